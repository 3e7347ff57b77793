"""What other threads of the host run, and how they wait for one another: threads, pools, futures, events, queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamsafe.apis import names as apis
from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import ALWAYS, HOST
from streamsafe.static import fields, sequences
from streamsafe.static.facts import Site
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Const,
    Container,
    Event,
    Function,
    Instance,
    Name,
    Opaque,
    Partial,
    Stream,
    Tuple,
    Value,
    Work,
    alternatives,
    iterate,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


THREADS = "threads"
"""What other host threads know that have been started: their starter learns it when it waits for one of them."""


class Threads(Part):
    """Functions that other threads of the host run, and what they are handed."""

    """The attributes that some code in sight fills; None until it is asked for."""

    rounds_before: int = 0
    """How many loops stand around the start of the thread under way."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.host_waits: bool = False
        """A thread has waited for another one."""

    def do_make_thread(self, call: Call, st: State) -> Value:
        """A thread: its function runs when it is started."""
        name = self.objects.fresh(call.node, st, "thread")
        target = call.get(1, "target")
        if target is not None:
            st.store[(name, "target")] = target
        arguments = call.get(3, "args")
        if arguments is not None:
            st.store[(name, "args")] = arguments
        st.store.mark(name, fields.THREAD)
        return Opaque(name)

    def do_make_executor(self, call: Call, st: State) -> Value:
        """A thread pool."""
        name = self.objects.fresh(call.node, st, "executor")
        st.store.mark(name, fields.EXECUTOR)
        return Opaque(name)

    def do_make_signal(self, call: Call, st: State) -> Value:
        """``threading.Event()`` and its like: threads tell one another by it."""
        name = self.objects.fresh(call.node, st, "signal")
        st.store.mark(name, fields.SIGNAL)
        if call.text.endswith("Barrier"):
            st.store.mark(name, fields.SIGNAL_SET)  # by whoever waits, too
        if call.text.endswith("Semaphore") and call.get(0, "value") == Const(0):
            st.store.mark(name, fields.EMPTY_SEMAPHORE)  # the first one waits for another thread
        return Opaque(name)

    def signal_method(self, signal: Opaque, name: str, call: Call, st: State) -> Value:
        """A wait for a signal is ordered after the stream whose host function gave it, and else after no stream.

        One that nobody gives in the code that is seen may come from somebody who has waited for the device.
        """
        if name in apis.SIGNAL_SETS:
            st.store.mark(signal.name, fields.SIGNAL_SET)
            self.signal_others(st)
            if self.run.calling is not None:
                st.order.obey(
                    [
                        Edge(signal.name, s.name)
                        for s, _ in self.effects.possible_streams(st, "cupy", self.run.calling)
                    ]
                )
        elif name in apis.SIGNAL_WAITS:
            if name != "acquire" or st.store.marked(signal.name, fields.EMPTY_SEMAPHORE):
                self.blocks(st, call)
            if st.store.marked(signal.name, fields.SIGNAL_SET):
                st.order.obey([Edge(HOST, signal.name)])
            elif name != "acquire":
                self.effects.host_learns_everything(st, call.site)
        elif name == "clear":
            st.store.pop((signal.name, fields.SIGNAL_SET), None)
        return PLAIN

    def blocks(self, st: State, call: Call) -> None:
        """The thread that is interpreted waits for another one: those that waited for it go on first."""
        if self.run.threads or self.run.beside:
            self.host_waits = True
            return
        waiting = [
            table[fields.WAITING_THREAD]
            for _, table in st.store.objects.items()
            if fields.WAITING_THREAD in table
        ]
        for thread in (each for value in waiting for each in iterate(value)):
            if not isinstance(thread, (Opaque, Instance)) or thread.name != thread.name.newest():
                continue  # one of several rounds or calls before has had its turn
            target, items = self._thread_target(thread, st)
            running = isinstance(target, Function) and any(a.unit is target.unit for a in self.run.stack)
            if target is not None and not running:
                self.in_thread(target, items, {}, call, st)

    def waits_first(self, values: list[Value], call: Call, st: State) -> bool:
        """Whether a thread that takes what a queue is given here waits before it reads the copies among it."""
        names = {
            t.name
            for v in values
            for t, _ in self.memory.tensors_in(st, v)
            if self.tensors.pending_copy(st, t)
        }
        waiting = any(fields.WAITING_THREAD in table for _, table in st.store.objects.items())
        if not names or not waiting or self.run.threads or self.run.beside:
            return False
        after = st.copy()
        unreported, self.run.unreported = self.run.unreported, set()
        self.run.taking = True
        with self.out_of_sight():
            self.blocks(after, call)
        self.run.taking = False
        read, self.run.unreported = self.run.unreported, unreported
        return names.isdisjoint(read) and not any(
            made.writes and made.buffer in names for made in self.effects.lacking(after, HOST, ALWAYS)
        )

    @contextmanager
    def out_of_sight(self) -> Iterator[None]:
        """What is interpreted here is to be known, not reported or explained."""
        explained, self.run.explained = self.run.explained, None
        self.run.silent += 1
        yield
        self.run.silent -= 1
        self.run.explained = explained

    def signal_others(self, st: State) -> None:
        """Another thread is signalled to go on: what has been enqueued by now comes before what it does."""
        self.run.before_signals.update(made.site for made, _ in st.order.iterate())

    def noted_in_thread(self, buffer: Name) -> None:
        """What each round of a loop of a thread allocates is noted."""
        if self.run.threads and len(self.run.rounds) > self.rounds_before:
            self.run.produced.add(buffer.base())

    def is_produced(self, st: State, value: Value) -> bool:
        """Whether something is a queue of what a thread allocates round by round, or an object that has one."""
        held = [*st.store.of(value.name).values(), value] if isinstance(value, Instance) else [value]
        queues = [
            v for inner in held for v in iterate(inner) if isinstance(v, Container) and v.kind == "queue"
        ]
        return any(
            t.name.base() in self.run.produced for q in queues for t, _ in self.memory.tensors_in(st, q)
        )

    def produced_next(self, st: State, taken: Value) -> None:
        """Somebody takes what a thread has put into a queue: that thread allocates the next one meanwhile."""
        if self.run.threads or self.run.beside:
            return
        for target, _ in self.memory.tensors_in(st, taken):
            base = target.name.base()
            if base in self.run.produced:
                for stream, guard in alternatives(
                    st.store.get((target.name, fields.ALLOCATED_ON), NONE), st.path
                ):
                    if isinstance(stream, Stream):
                        self.memory.taken_from_pool(
                            st, stream, guard, self.run.libraries[base], self.run.sites_of[base]
                        )

    @contextmanager
    def elsewhere(self, st: State, *, beside: bool = False) -> Iterator[None]:
        """What is interpreted here another thread does; where that would wait the others go on.

        Args:
            st: what is known when it starts.
            beside: whether its starter goes on meanwhile: what it waits for the starter has not waited for.
        """
        host = st.order.host
        started = st.copy() if beside else None
        if beside:
            st.order.host = self.run.carriers.bit(THREADS)
        current, st.current = st.current, {}
        outer, self.run.blocked = self.run.blocked, []
        before, self.rounds_before = self.rounds_before, len(self.run.rounds)
        self.run.threads += 1
        yield
        self.run.threads -= 1
        self.rounds_before = before
        self.paths.settle(st, self.paths.joined([st, *self.run.blocked]))
        self.run.blocked = outer
        st.order.host = host
        st.current = current
        if started is not None:
            self._note_published(started, st)

    def in_thread(
        self,
        function: Value,
        arguments: list[Value],
        kwargs: dict[str, Value],
        call: Call,
        st: State,
        *,
        beside: bool = False,
    ) -> Value:
        """A function runs in another thread: it starts on the default stream (TS-22)."""
        with self.elsewhere(st, beside=beside):
            return self.calls.call_value(function, Call(call.node, call.site, arguments, kwargs), st)

    def mapped_in_threads(self, call: Call, st: State) -> Value:
        """``executor.map(f, xs)``: the function runs for each element, in threads."""
        with self.elsewhere(st):
            return self.comprehensions.do_map_call(
                Call(call.node, call.site, call.args, {}, "builtins.map"), st
            )

    def do_thread_call(self, call: Call, st: State) -> Value:
        """``asyncio.to_thread(f, *args)``."""
        return self.in_thread(call.args[0], call.args[1:], call.kwargs, call, st) if call.args else UNKNOWN

    def do_as_completed(self, call: Call, st: State) -> Value:
        """``concurrent.futures.as_completed(fs)``: each is done when it is its turn."""
        self.learn_from_threads(st)
        return call.args[0] if call.args else UNKNOWN

    def do_wait_futures(self, call: Call, st: State) -> Value:
        """``concurrent.futures.wait(fs)``."""
        self.threads_done(st)
        return Tuple((call.args[0], UNKNOWN)) if call.args else UNKNOWN

    def threads_done(self, st: State) -> None:
        """Somebody waited for what runs in other threads: from here on none of them is taken to be at work."""
        self.learn_from_threads(st)
        if st.threads:
            st.threads = {t: None for t in st.threads if not isinstance(t, Site)}

    def learn_from_threads(self, st: State) -> None:
        """The host learns from another thread, whichever it is, what that has waited for."""
        if THREADS in self.run.carriers:
            st.order.learn(HOST, THREADS)

    def read_by_starter(self, st: State, held: Value | None, place: tuple[Name, str] | None = None) -> None:
        """Who finds what a thread has left for others, a flag or an element of a list, knows how far that has got."""
        if not self.run.published or st.order.host:
            return
        filled = [v for v in iterate(held) if isinstance(v, Container)] if held is not None else []
        if (place is not None and (place[0].base(), place[1]) in self.run.published) or any(
            (v.name.base(), None) in self.run.published for v in filled
        ):
            self.learn_from_threads(st)

    def _note_published(self, started: State, st: State) -> None:
        """Note what a thread has assigned or filled since it started."""
        for name, table in st.store.objects.items():
            old = started.store.objects.get(name)
            if old is None or old is table:
                continue
            for key, value in table.items():
                if old.get(key) != value:
                    attribute = isinstance(key, str) and key[:1] not in ("*", "[")
                    self.run.published.add((name.base(), key if attribute else None))

    def is_thread(self, value: Instance) -> bool:
        """Whether an object is a thread of a class of the file."""
        return any(
            base.rpartition(".")[2] == "Thread"
            for u in self.class_members.ancestry(value.unit)
            for base in u.bases
        )

    @staticmethod
    def carries_event(values: list[Value], st: State) -> bool:
        """Whether something is handed over with the stream to wait for, or with an event that it leads to."""
        given = [v for value in values for v in iterate(value)]
        if any(isinstance(v, (Event, Stream)) for v in given):
            return True
        reached: set[Name] = set()
        for value in given:  # grows
            if isinstance(value, Tuple):
                given.extend(v for item in value.items for v in iterate(item))
            elif isinstance(value, (Instance, Container)) and value.name not in reached:
                reached.add(value.name)
                given.extend(v for held in st.store.of(value.name).values() for v in iterate(held))
        return any(isinstance(v, (Event, Work)) for v in given)

    def thread_method(self, receiver: Opaque | Instance, name: str, call: Call, st: State) -> Value:
        """A method of a thread."""
        target, items = self._thread_target(receiver, st)
        if name == "start":
            syncs = self.run.waits
            result: Value = NONE
            with self.passed_to_thread(target or UNKNOWN, items, "start()", call, st):
                if target is not None and self.would_wait(target, items, call, st):
                    self.run.waiting.update(
                        (v.unit, v.receiver) for v in iterate(target) if isinstance(v, Function)
                    )
                    st.store[(receiver.name, fields.WAITING_THREAD)] = receiver
                elif target is not None:
                    result = self.in_thread(target, items, {}, call, st, beside=True)
            if self.run.waits > syncs or (
                target is not None and self._waits_for_work(target, items, call, st)
            ):
                st.threads = st.threads | {call.site: None}
            return result
        if name == "join":
            if st.store.pop((receiver.name, fields.WAITING_THREAD), None) is not None and target is not None:
                self.in_thread(target, items, {}, call, st)
            self.threads_done(st)
        return NONE

    def go_on_waiting(self, st: State) -> None:
        """Threads that nobody joins: what waits for work, a function made beside it, has got some meanwhile."""
        for name, table in list(st.store.objects.items()) if self.run.waiting else ():
            target = table.get("target")
            closures = isinstance(target, Function) and target.frame is not None
            if not closures or st.store.pop((name, fields.WAITING_THREAD), None) is None or st.dead:
                continue
            assert isinstance(target, Function)
            node = target.unit.node
            given = self._thread_target(Opaque(name), st)[1]
            self.in_thread(
                target, given, {}, Call(node, self.call_stack.site_in(target.unit.slice, node)), st
            )

    @contextmanager
    def passed_to_thread(
        self, target: Value, values: list[Value], text: str, call: Call, st: State
    ) -> Iterator[None]:
        """Another thread is given something, which it reads; where its function is seen, unless that waits before."""
        bound = [v for v in iterate(target) if isinstance(v, Partial)]
        values = [*values, *(v for given in bound for v in given.args)]
        functions = [v.function if isinstance(v, Partial) else v for v in iterate(target)]
        seen = all(isinstance(v, Function) for v in functions)
        if not seen and not self.carries_event(values, st):
            self.copies.pass_to_host(st, values, call.site, text)
        yield
        if seen and not self.carries_event(values, st):
            host, st.order.host = st.order.host, self.run.carriers.bit(THREADS)  # it is the thread that reads
            self.copies.pass_to_host(st, values, call.site, text)
            st.order.host = host

    def _thread_target(self, thread: Opaque | Instance, st: State) -> tuple[Value | None, list[Value]]:
        """What a thread runs, and with what: the function that it was given, or its class's ``run``."""
        if isinstance(thread, Instance):
            return self.class_members.own_method(thread, "run"), []
        arguments = st.store.get((thread.name, "args"), NONE)
        return st.store.get((thread.name, "target")), list(arguments.items) if isinstance(
            arguments, Tuple
        ) else []

    def _waits_for_work(self, target: Value, arguments: list[Value], call: Call, st: State) -> bool:
        """Whether a thread that finds lists of its object empty when it starts waits for what is put there later."""
        later, blurred = st.copy(), False
        for function in iterate(target):
            owner = function.receiver if isinstance(function, Function) else None
            if not isinstance(owner, Instance):
                continue
            held = later.store.of(owner.name)
            filled = [k for k in held if self.run.file.owners.is_filled(owner.unit.qualname, str(k))]
            for value in [v for key in filled for v in iterate(held[key])]:
                if isinstance(value, Container) and not sequences.length(later, value):
                    sequences.blur(later, value)
                    later.store[(value.name, "*")] = Opaque(value.name.child("brought"))
                    blurred = True
        if not blurred:
            return False
        syncs = self.run.waits
        with self.out_of_sight():
            self.in_thread(target, arguments, {}, call, later)
        return self.run.waits > syncs

    def would_wait(self, target: Value, arguments: list[Value], call: Call, st: State) -> bool:
        """Whether a thread that starts here waits for what others do: it goes on when it is joined."""
        before, self.host_waits = self.host_waits, False
        with self.out_of_sight():
            self.in_thread(target, arguments, {}, call, st.copy())
        waits, self.host_waits = self.host_waits, before
        return waits
