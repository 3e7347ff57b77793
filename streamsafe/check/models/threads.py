"""Threads, executors and the queues between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from streamsafe.apis import names as apis

from ..coroutines import Coroutine
from ..program import NOTHING, Timeline, all_of
from ..source import Function
from ..values import (
    NONE,
    Bound,
    Cls,
    Event,
    Func,
    Future,
    Obj,
    Partial,
    Seq,
    Stream,
    Sym,
    Thread,
    V,
    Work,
    contents,
)
from .autograd import Autograd
from .path import Args, Known, Kwargs, Node
from .state import HOSTS, handled

PUTS = frozenset(("put", "put_nowait"))


def puts(f: Function) -> bool:
    """Whether a function, or a method of its object that it calls, puts things into queues."""
    own = (f.cls.method(name) for name in f.calls()[0]) if f.cls is not None else ()
    return any(not each.words.isdisjoint(PUTS) for each in (f, *own) if each is not None)


class Producer:
    """A thread that puts things into queues: it pauses there, and goes on where somebody takes from an empty one.

    Attributes:
        thread: what the program knows it as. running: whether it is what is run.
    """

    def __init__(self, lib: Threads, f: Func, args: Args, n: Node) -> None:
        self.lib, self.thread = lib, Thread()
        self.running = False
        self.known = lib.order.known(lib.order.host)
        self.current = {"torch": [lib.m.ambient["torch"]], "cupy": [lib.m.null]}
        self.frames: list[Any] = []
        self.walked: list[V] = []
        self.coroutine = Coroutine(lib.m, lambda pause: self._run(pause, f, args, n))

    def _run(self, pause: Callable[[V], None], f: Func, args: Args, n: Node) -> None:
        self.pause = pause
        self.base = (len(self.lib.m.frames), len(self.lib.m.walked))
        with suppress(self.lib.m.Blocked):
            self.lib.m.call_function(f, list(args), {}, n, force=True)

    def resume(self) -> None:
        """Let it run until it puts the next thing into a queue, or to its end."""
        lib, m = self.lib, self.lib.m
        host, known, views = lib.order.host, lib.order.known(lib.order.host), len(lib.views)
        current, capture = m.current, m.capture
        m.current, m.capture = self.current, None
        lib.order.forget(host, self.known)
        m.in_thread.append(self.thread)
        self.running = True
        try:
            self.coroutine.resume()
        finally:
            self.running = False
            lib.views_waited_for(views)
            m.in_thread.pop()
            m.current, m.capture = current, capture
            self.known = lib.order.known(host)
            lib.order.forget(host, known)

    def put(self) -> None:
        """It has put something into a queue: others go on, and this one later, on top of what is run then."""
        m = self.lib.m
        frames, walked = self.base
        self.frames, self.walked = m.frames[frames:], m.walked[walked:]
        del m.walked[walked:]
        depth = m.depth
        m.paused.append(self)
        try:
            self.pause(NONE)
        finally:
            m.paused.remove(self)
            m.frames, m.depth = [*m.frames, *self.frames], depth
            m.walked += self.walked
            self.base = (len(m.frames) - len(self.frames), len(m.walked) - len(self.walked))

    @property
    def done(self) -> bool:
        return self.coroutine.done

    def close(self) -> None:
        """Nobody asks for more."""
        self.coroutine.close()


class Threads(Autograd):
    """Threads, executors and the queues between them."""

    def producer(self, f: Func, args: Args, n: Node) -> Thread:
        """A thread that puts things into queues is begun: it runs to the first of them."""
        producer = Producer(self, f, args, n)
        self.producers.append(producer)
        self.m.suspended.append(producer)
        producer.resume()
        producer.thread.at = self.m.seq
        self.m.threads.append(producer.thread)
        return producer.thread

    def produce(self, into: Seq | None = None) -> None:
        """The threads that put things into queues go on: until there is something in one of these, or to their end."""
        for producer in self.producers:
            while not (producer.done or producer.running or (into is not None and into.items)):
                producer.resume()

    def in_thread(self, f: V, args: Args, kwargs: Kwargs, n: Node, after: Known = NOTHING) -> Future:
        """Run something in another thread.

        Args:
            after: what is done when it begins, beside what this thread knows.
        """
        m = self.m
        saved, capture = dict(m.current), m.capture
        m.current, m.capture = {"torch": [m.ambient["torch"]], "cupy": [m.null]}, None
        known = self.order.known(self.order.host)
        thread = Thread()
        views = len(self.views)
        m.in_thread.append(thread)
        self.order.learn(self.order.host, after)
        try:
            if isinstance(f, Func):
                value = m.call_function(f, list(args), dict(kwargs), n, force=True)
            else:
                value = (
                    m.call_value(f, list(args), dict(kwargs), n)
                    if isinstance(f, (Partial, Obj, Cls, Bound, Sym))
                    else m.fresh("<result>")
                )
        except m.Blocked:
            value = NONE
        finally:
            self.views_waited_for(views)
            m.in_thread.pop()
            m.current, m.capture = saved, capture
            after = self.order.known(self.order.host)
            self.order.forget(self.order.host, known)
        thread.running, thread.at, thread.knew = True, m.seq, after
        m.threads.append(thread)
        return Future(value, after, thread)

    def host_function(self, t: Timeline, f: V, args: Args, kwargs: Kwargs, n: Node) -> None:
        """A stream calls a function of the host when all is done that it was given before (CS-23)."""
        around, self.order.given = self.order.given, (t, self.m.site(n))
        try:
            self.in_thread(f, args, kwargs, n, after=self.order.snapshot(t))
        finally:
            self.order.given = around
        self.m.threads[-1].running = False

    def decorated_for_streams(self, f: Func, args: Args, kwargs: Kwargs, n: Node) -> bool:
        """A call of a function gives it to the current stream where its decorator is named so."""
        named = (d.rpartition(".")[2] for d in f.function.decorators)
        if self.order.given is not None or not any(map(apis.HOST_FUNCTION.fullmatch, named)):
            return False
        self.host_function(self.cur(), f, args, kwargs, n)
        return True

    def gives_host_function(self, name: str, args: Args, kwargs: Kwargs, n: Node) -> bool:
        """A call that is named so gives a function to the stream whose handle stands before it, or to the current one.

        Of a handle that nobody knows the function comes after all that was done.
        """
        if not apis.HOST_FUNCTION.fullmatch(name):
            return False
        at = next((i for i, v in enumerate(args) if isinstance(handled(v), (Func, Partial, Bound))), None)
        if at is None:
            return False
        stream = handled(args[0]) if at else None
        if isinstance(stream, Sym):
            done = all_of([self.order.snapshot(t) for t in self.order.ticks if t is not self.order.host])
            self.in_thread(args[at], args[at + 1 :], kwargs, n, after=done)
            self.m.threads[-1].running = False
        else:
            t = stream.timeline if isinstance(stream, Stream) else self.cur()
            self.host_function(t, args[at], args[at + 1 :], kwargs, n)
        return True

    def joined(self, v: V) -> None:
        """The host has waited for another thread: it knows what that one knew at its end."""
        if not isinstance(v, Future):
            return
        if v.thread is not None:
            v.thread.running = False
        if v.snapshot is not None:
            self.order.learn(self.order.host, v.snapshot)

    def thread_object(self, r: Obj, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        """A method of an object whose class is a thread."""
        threads = self.started
        if name == "start" and r.vn not in threads:
            run = r.cls.method("run")
            if run is not None and puts(run):
                threads[r.vn] = self.producer(Func(run, r), [], n)
                threads[r.vn].running = True
            elif run is not None:
                self.in_thread(Func(run, r), [], {}, n)
                threads[r.vn] = self.m.threads[-1]
        elif name in apis.THREAD_WAITS and r.vn in threads:
            threads[r.vn].running = False
            self.produce()
            known = threads[r.vn].knew
            if known is not None:
                self.order.learn(self.order.host, known)
            else:
                self.everything(n)
        return NONE

    def queue_method(self, r: Seq, name: str, args: Args, n: Node) -> V:
        """A queue between threads: a thread that waits for an item lets the others run."""
        m = self.m
        if name in ("put", "put_nowait") and args:
            if not self.taken_from(n):
                self.handed_over(args[0], name, n)
            if len(r.items) < 12:
                r.items.append(args[0])
                self.sent[id(args[0])] = self.order.known(self.order.host)
            running = next((p for p in self.producers if p.thread in m.in_thread[-1:]), None)
            if running is not None:
                running.put()
            return NONE
        if name in ("get", "get_nowait"):
            if not r.items:
                self.produce(r)
            if not r.items:
                self.go_on(n)
            if r.items:
                v = r.items.pop(0)
                self.order.learn(
                    self.order.host, self.sent.pop(id(v), NOTHING)
                )  # who put it there had waited for that
                return v
            if m.in_thread:
                raise self.m.Blocked
            return m.fresh("<got>", "element")
        if name == "join":
            self.go_on(n)
            return NONE
        return m.fresh(name, "host")

    def taken_from(self, n: Node) -> bool:
        """Whether the file has somebody who takes something from queues."""
        return any(not {"get", "get_nowait"}.isdisjoint(f.words) for f in self.m.frame.module.all_functions)

    def handed_over(self, v: V, name: str, n: Node) -> None:
        """Somebody who is not in sight is given what a copy still fills, and nothing to wait for."""
        if self.waitable(v, 0):
            return
        for t in self.tensors_in(v):
            if (t.block.place in HOSTS or t.numpy) and any(a.kind == "d2h" for a in t.block.accesses):
                self.host(t, False, f"{name}()", n)

    def waitable(self, v: V, depth: int) -> bool:
        if isinstance(v, (Event, Work, Stream, Func)):
            return True
        return depth < 3 and any(self.waitable(x, depth + 1) for x in contents(v))

    def go_on(self, n: Node) -> None:
        """The threads that wait for something go on, from the beginning of what they do."""
        if self.m.in_thread:
            return
        waiting, self.waiting = self.waiting, []
        for f, args, rounds in waiting:
            self.in_thread(f, args, {}, n)
            if rounds:
                self.waiting.append((f, args, rounds - 1))
