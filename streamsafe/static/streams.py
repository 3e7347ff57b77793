"""Streams, events and devices of both libraries.

One file: streams, events and devices refer to each other in almost every method.
"""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, HOST, Guard
from streamsafe.static import apis, concrete
from streamsafe.static.facts import AMBIENT, Assumed, Site
from streamsafe.static.python import Builtins
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Const,
    Context,
    Device,
    Event,
    Function,
    Method,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    union,
)


def given(value: Value) -> Value:
    """A value that cannot be None here, or the call would fail."""
    found = [(v, g) for v, g in value.alternatives if v != NONE] if isinstance(value, Union) else []
    return found[0][0] if len(found) == 1 else union(found) if found else value


_BLOCKING = frozenset({"streamDefault", "cudaStreamDefault", "CU_STREAM_DEFAULT"})
_NON_BLOCKING = frozenset({"streamNonBlocking", "cudaStreamNonBlocking", "CU_STREAM_NON_BLOCKING"})
"""Flags with which a stream is made by its handle."""


class Streams(Builtins):
    """Streams, events and devices of both libraries."""

    def do_make_device(self, call: Call, st: State) -> Value:
        """``torch.device``."""
        value = call.get(0, "type")
        if isinstance(value, Const) and isinstance(value.value, str):
            return Device(value.value.partition(":")[0])
        if isinstance(value, (Device, Union)):
            return value
        if isinstance(value, Opaque) and value.name.base() in self.cuda_devices:
            return Device("cuda")
        if isinstance(value, Opaque):
            return Device("", value.name)
        return Device("cuda" if isinstance(value, Const) and isinstance(value.value, int) else "")

    def do_device_module(self, call: Call, st: State) -> Value:
        """The device module under another name."""
        return Api("torch.cuda")

    def do_make_generator(self, call: Call, st: State) -> Value:
        """``torch.Generator``: it must be registered with graphs."""
        name = self.fresh(call.node, st, "generator")
        st.store[(name, "@generator")] = PLAIN
        return Opaque(name)

    # -- streams -------------------------------------------------------------------------------------------------

    def do_make_stream(self, call: Call, st: State) -> Value:
        """A pool stream: non-blocking (TS-01)."""
        return Stream(self.fresh(call.node, st, "stream"))

    def do_make_cupy_stream(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Stream()``: blocking unless asked otherwise (CS-01)."""
        if call.kwargs.get("null") == Const(True) or (call.args and call.args[0] == Const(True)):
            return Stream(self.table.ambient_of(self.device(st)), "cupy")
        name = self.fresh(call.node, st, "stream")
        if self.device(st):
            self.table.devices[name.base()] = self.device(st)
        non_blocking = call.get(1, "non_blocking")
        if non_blocking is None or non_blocking == Const(False):
            self.table.blocking.update((name.with_age(age), None) for age in range(3))
        return Stream(name, "cupy")

    def do_make_raw_stream(self, call: Call, st: State) -> Value:
        """``runtime.streamCreateWithFlags(flags)``: blocking by default, and not with ``streamNonBlocking``."""
        flags = call.get(0, "flags")
        text = flags.name.rpartition(".")[2] if isinstance(flags, Api) else ""
        blocking = flags == Const(0) or text in _BLOCKING
        options: dict[str, Value] = {"non_blocking": Const(not blocking)}
        stream = self.do_make_cupy_stream(Call(call.node, call.site, [], options), st)
        if isinstance(stream, Stream) and not blocking and flags != Const(1) and text not in _NON_BLOCKING:
            self.table.unknown.add(stream.name.base())
        return stream

    @staticmethod
    def device(st: State) -> int:
        """The current device of CuPy; the first where none is named."""
        current = st.current.get("device")
        return current.value if isinstance(current, Const) and type(current.value) is int else 0

    def do_make_external_stream(self, call: Call, st: State) -> Value:
        """A stream of another library, by its handle: the same queue (TS-27, CI-11)."""
        library = "cupy" if call.text.startswith("cupy") else "torch"
        handles = alternatives(self._handle(call, st), st.path)
        return union((self._of_handle(handle, library, call, st), guard) for handle, guard in handles)

    def _of_handle(self, handle: Value, library: str, call: Call, st: State) -> Stream:
        """The stream that a handle is one of."""
        name: Name | None = None
        if isinstance(handle, Stream):
            return Stream(handle.name, library)
        if isinstance(handle, Opaque):
            if handle.name.site in ("ptr", "cuda_stream") and handle.name.parent is not None:
                return Stream(handle.name.parent, library)
            name = handle.name.base()  # the same handle is the same stream, made again or not
        elif isinstance(handle, Method) and isinstance(handle.receiver, Object):
            name = handle.receiver.name.child(handle.name)
        elif isinstance(handle, Const) and handle.value is not ...:
            name = Name(("handle", handle.value))
        if name is None:
            return Stream(self.fresh(call.node, st, "stream"), library)
        if library == "cupy":
            self.table.unknown.add(name.base())
        return Stream(name, library)

    def _handle(self, call: Call, st: State) -> Value:
        """The handle that a call is given first: ``int(stream)`` is the one of that stream."""
        node = call.node.args[0].value if isinstance(call.node, cst.Call) and call.node.args else None
        if isinstance(node, cst.Call) and len(node.args) == 1:
            if isinstance(node.func, cst.Name) and node.func.value == "int":
                return self.eval(node.args[0].value, st)
        return call.args[0] if call.args else UNKNOWN

    def do_stream_context(self, call: Call, st: State) -> Value:
        """``torch.cuda.stream(s)``."""
        stream = call.get(0, "stream")
        if stream is None:
            return Context("stream", (NONE,))
        return Context("stream", (self.as_stream(stream, "torch"),))

    def do_current_stream(self, call: Call, st: State) -> Value:
        """The calling thread's current stream, now."""
        return self.current(st, "torch")

    def do_current_cupy_stream(self, call: Call, st: State) -> Value:
        """CuPy's current stream."""
        return self.current(st, "cupy")

    def do_default_stream(self, call: Call, st: State) -> Value:
        """The default stream; outside hooks and contexts the ambient stream is taken to be it."""
        if call.text.startswith("cupy"):
            return Stream(self.table.ambient_of(self.device(st)), "cupy")
        return Stream(AMBIENT, "torch")

    def do_per_thread_stream(self, call: Call, st: State) -> Value:
        """The per-thread default stream: blocking (CS-08)."""
        name = Name("the per-thread default stream")
        self.table.blocking[name] = None
        return Stream(name, "cupy")

    def do_set_stream(self, call: Call, st: State) -> Value:
        """``set_stream``: current until changed; None changes nothing (TS-24).

        The stream that an object keeps which is handed out elsewhere, one for each device, is set again wherever it is
        used: it is current there already, unless what is current is put back afterwards.
        """
        stream = call.get(0, "stream")
        if stream is not None and stream != NONE and not self._is_set_already(stream):
            self.enter_stream(st, self.as_stream(stream, "torch"), "torch")
        return NONE

    def _is_set_already(self, stream: Value) -> bool:
        unit = self.stack[-1].unit
        keeper = stream.name.parent if isinstance(stream, Opaque) else None
        return (
            keeper is not None
            and isinstance(keeper.site, tuple)
            and keeper.site[-1] == "result"
            and unit is not None
            and "current_stream" not in concrete.names_in(unit.node)
        )

    def enter_stream(self, st: State, stream: Value, library: str) -> None:
        """A stream becomes current; where it is None nothing changes."""
        before = self.current(st, library)
        found = []
        for value, guard in alternatives(self.exclusive(st, stream), st.path):
            found.append((before if value == NONE else value, guard))
        chosen = union(found)
        if all(isinstance(v, Stream) for v in iterate(chosen)):
            st.current[library] = self.exclusive(st, chosen)

    def do_benchmark(self, call: Call, st: State) -> Value:
        """``triton.testing.do_bench(f)``: calls, and waits for the device before it tells how long they took."""
        function = call.get(0, "fn")
        if function is not None:
            self.call_value(function, Call(call.node, call.site), st)
        self.host_learns_everything(st, call.site)
        return PLAIN

    def do_synchronize_device(self, call: Call, st: State) -> Value:
        """The host waits for every stream of the device (TS-21)."""
        self.sync_in_capture(st, call.site, f"{call.text or 'synchronize'}()")
        self.host_learns_everything(st, call.site)
        return NONE

    def do_synchronize_raw_stream(self, call: Call, st: State) -> Value:
        """``runtime.streamSynchronize(ptr)``."""
        stream = call.args[0] if call.args else UNKNOWN
        if isinstance(stream, (Stream, Opaque)):
            self.synchronize_stream(st, self.as_stream(stream, "cupy"), "cupy", call.site)
        else:
            self.host_learns_everything(st, call.site)
        return NONE

    def do_stream_wait_stream(self, call: Call, st: State) -> Value:
        """``a.wait_stream(b)`` (TS-06)."""
        receiver, other = call.args[0], call.get(1, "stream")
        library = self.stream_library(receiver)
        if other is not None and other != NONE:
            waiter, source = self.as_stream(given(receiver), library), self.as_stream(given(other), library)
            self.wait_stream(st, waiter, source, library, call.site)
        return NONE

    @staticmethod
    def stream_library(value: Value) -> str:
        """Whose current stream a stream may become."""
        return next((v.library for v in iterate(value) if isinstance(v, Stream)), "torch")

    def event_of(self, value: Value | None) -> list[Event]:
        """The events a value stands for."""
        found = []
        for inner in iterate(value) if value is not None else ():
            if isinstance(inner, Event):
                found.append(inner)
            elif isinstance(inner, Opaque):
                found.append(Event(inner.name))
        return found

    def do_stream_wait_event(self, call: Call, st: State) -> Value:
        """``s.wait_event(e)`` (TS-09, CS-11)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        stream = self.as_stream(receiver, library)
        self.each_event(
            call.get(1, "event"), st, lambda event, way: self.wait_for(way, event, stream, library, call.site)
        )
        return NONE

    def each_event(self, value: Value | None, st: State, action: Callable[[Event, State], object]) -> None:
        """Do something with an event; of several with known guards with each on the paths on which it is meant.

        Those under one guard are not: who waits for one of them is taken to wait for any.
        """
        choices = alternatives(value, st.path) if value is not None else []
        if len(choices) < 2 or any(guard == ALWAYS for _, guard in choices):
            for event in self.event_of(value):
                action(event, st)
            return

        def on(guard: Guard) -> Callable[[State], Value]:
            def way(branch: State) -> Value:
                for choice, when in choices:
                    for event in self.event_of(choice) if when == guard else ():
                        action(event, branch)
                return NONE

            return way

        meant = {guard: choice for choice, guard in choices if choice != NONE}
        self.each_way([(choice, guard, on(guard)) for guard, choice in meant.items()], st)

    def wait_for(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """A wait; an event of which no record and no making is seen is taken to cover everything."""
        if self.is_foreign(st, event):
            waiting = self.streams(st, library, stream)
            for s, guard in waiting:
                st.order.learn_everything(s.name, guard)
                self.capture_wait(st, event.name, s.name, site, is_stream=False)
            self.foreign_waits.append((event.name, waiting))
            return
        self.wait_event(st, event, stream, library, site)

    def is_foreign(self, st: State, event: Event) -> bool:
        """Whether an event comes from code that is not seen."""
        if (event.name, "@recorded") in st.store:
            return False
        if (event.name, "@foreign") in st.store:
            return True
        if (event.name, "@made") in st.store:
            return False
        if event.name in self.own_events:
            return False
        for name in event.name.chain():
            if name.parent is not None and isinstance(name.site, str) and name.site.isidentifier():
                return True  # an attribute: had it been made here, it would be known by that
            if (name, "@made") in st.store:
                return False
        return True

    def awaitable_by_others(self, st: State) -> set[Stream]:
        """The streams on which events were recorded that others hold, too: they may wait for them."""
        return {
            stream
            for owner, table in st.store.objects.items()
            if "@recorded" in table and "@made" not in table and isinstance(owner.root().site, str)
            for stream in iterate(table["@recorded"])
            if isinstance(stream, Stream)
        }

    own_events: set[Name]
    foreign_waits: list[tuple[Name, list[tuple[Stream, Guard]]]]
    """The waits for events of code that is not seen, with the streams that wait."""

    def none_to_wait_for(self, st: State, waits: list[tuple[Name, list[tuple[Stream, Guard]]]]) -> None:
        """Who gives None for an event says that there is nothing to wait for."""
        for event, waiting in waits:
            if self.known_missing(st, Opaque(event)):
                for stream, guard in waiting:
                    st.order.learn_everything(stream.name, guard)

    def do_stream_record_event(self, call: Call, st: State) -> Value:
        """``s.record_event(e=None)`` gives the event."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        events = self.event_of(call.get(1, "event")) if call.get(1, "event") not in (None, NONE) else []
        if not events:
            events = [Event(self.fresh(call.node, st, "event"))]
        for event in events:
            self.own_events.add(event.name)
            self.record(st, event, self.as_stream(receiver, library), library, call.site)
        return union((e, ALWAYS) for e in events)

    def do_stream_synchronize(self, call: Call, st: State) -> Value:
        """``s.synchronize()`` (TS-19)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        names = [s.name for s, _ in self.streams(st, library, self.as_stream(receiver, library))]
        self.wait_in_capture(st, call.site, "synchronize()", names)
        self.synchronize_stream(st, self.as_stream(receiver, library), library, call.site)
        return NONE

    def do_stream_query(self, call: Call, st: State) -> Value:
        """``s.query()``: true is an edge to the host (TS-20)."""
        receiver = call.args[0]
        found = [self.query_stream(st, v, call.site) for v in iterate(receiver) if isinstance(v, Stream)]
        return found[0] if found else PLAIN

    def do_stream_use(self, call: Call, st: State) -> Value:
        """``s.use()``: current until changed (CS-12)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        self.enter_stream(st, self.as_stream(receiver, library), library)
        return receiver

    def do_stream_callback(self, call: Call, st: State) -> Value:
        """A host function runs in the stream's order (CS-23): what it touches is the stream's access."""
        receiver = call.args[0]
        callback = call.args[1] if len(call.args) > 1 else UNKNOWN
        arguments = call.args[2:]
        library = self.stream_library(receiver)
        outside, self.calling = self.calling, self.as_stream(receiver, library)
        current, st.current = st.current, {}
        if isinstance(callback, (Function, Partial, Method)):
            self.call_value(callback, Call(call.node, call.site, arguments), st)
        else:
            for value in arguments:
                self.host_access(st, value, call.site, "host function", writes=False)
        self.calling, st.current = outside, current
        return NONE

    def do_host_function(self, call: Call, st: State) -> Value:
        """``launch_hostfunc(f, x)``: a host function on the current stream."""
        functions = (n for n, v in enumerate(call.args) if isinstance(v, (Function, Partial, Method)))
        first = next(functions, len(call.args))  # the stream it is given, if any, is the current one's handle
        given = [self.current(st, self.default_library), *call.args[first:]]
        return self.do_stream_callback(Call(call.node, call.site, given), st)

    def do_stream_add_callback(self, call: Call, st: State) -> Value:
        """``stream.add_callback(f, arg)``: a host function that gets the stream and the status, too."""
        call.args[2:2] = [call.args[0], UNKNOWN]
        return self.do_stream_callback(call, st)

    # -- events --------------------------------------------------------------------------------------------------

    def do_make_event(self, call: Call, st: State) -> Value:
        """``torch.cuda.Event``: cannot time unless asked to."""
        timing = call.get(0, "enable_timing")
        known = bool(timing.value) if isinstance(timing, Const) and timing.value is not ... else None
        name = self.fresh(call.node, st, "timer" if known else "event")
        self.own_events.add(name)
        self.event_sites[name] = call.site
        if call.get(3, "external") == Const(True):
            st.store[(name, "@external")] = PLAIN
        elif call.starred:
            st.store[(name, "@may be external")] = PLAIN
        return Event(name, False if timing is None else known)

    def do_share_event(self, call: Call, st: State) -> Value:
        """``Event.from_ipc_handle``: whoever recorded it is another process."""
        name = self.fresh(call.node, st, "event")
        st.store[(name, "@foreign")] = PLAIN
        return Event(name)

    def do_make_cupy_event(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Event``: times unless ``disable_timing`` is set."""
        disabled = call.get(1, "disable_timing")
        known = not disabled.value if isinstance(disabled, Const) and disabled.value is not ... else None
        name = self.fresh(call.node, st, "event")
        self.own_events.add(name)
        return Event(name, True if disabled is None else known)

    def do_make_event_handle(self, call: Call, st: State) -> Value:
        """An event by its handle; whether it times is in flags that are not read."""
        name = self.fresh(call.node, st, "event")
        self.own_events.add(name)
        return Event(name, None)

    def do_bindings(self, call: Call, st: State) -> Value:
        """A call of NVIDIA's own bindings gives an error, and what it makes."""
        verb = apis.BINDINGS.get(call.text.rpartition(".")[2])
        if verb is None:
            return self.unmodelled(Api(call.text), call, st)
        made = getattr(self, f"do_{verb}")(call, st)
        return Tuple((PLAIN,) if made == NONE else (PLAIN, made))

    def do_begin_body_capture(self, call: Call, st: State) -> Value:
        """``cudaStreamBeginCaptureToGraph(stream, graph, ...)``: the body of a conditional node.

        The body runs when the node does, so it comes after what was captured before, and the rest comes after it
        (CUDA runtime, "Conditional Nodes").
        """
        body = call.get(0, "stream")
        if st.capture is not None and body is not None:
            for origin in st.capture.origin:
                self.wait_stream(
                    st, self.as_stream(body, "torch"), Stream(origin, "torch"), "torch", call.site
                )
        return NONE

    def do_end_body_capture(self, call: Call, st: State) -> Value:
        """``cudaStreamEndCapture(stream)``: the capture of a body ends, and the one around it goes on."""
        body = call.get(0, "stream")
        if st.capture is not None and body is not None:
            for origin in st.capture.origin:
                self.wait_stream(
                    st, Stream(origin, "torch"), self.as_stream(body, "torch"), "torch", call.site
                )
        return NONE

    def do_event_record(self, call: Call, st: State) -> Value:
        """``e.record(stream=None)``: left out it is the current stream (TS-11, CS-10)."""
        stream = call.get(1, "stream")
        for event in self.event_of(call.args[0]):
            self.own_events.add(event.name)
            library = self.stream_library(stream) if stream not in (None, NONE) else self.default_library
            value = self.as_stream(stream, library) if stream is not None and stream != NONE else None
            self.record(st, event, value, library, call.site)
        return NONE

    def do_event_wait(self, call: Call, st: State) -> Value:
        """``e.wait(stream=None)`` makes a stream wait, not the host."""
        stream = call.get(1, "stream")
        value = self.as_stream(stream, "torch") if stream is not None and stream != NONE else None
        self.each_event(
            call.args[0], st, lambda event, way: self.wait_for(way, event, value, "torch", call.site)
        )
        return NONE

    def do_event_synchronize(self, call: Call, st: State) -> Value:
        """``e.synchronize()`` (TS-18)."""
        self.wait_in_capture(st, call.site, "synchronize()", [e.name for e in self.event_of(call.args[0])])

        def synchronize(event: Event, way: State) -> None:
            if self.is_foreign(way, event):
                self.host_learns_everything(way, call.site)
            else:
                self.synchronize_event(way, event, call.site)

        self.each_event(call.args[0], st, synchronize)
        return NONE

    def do_event_query(self, call: Call, st: State) -> Value:
        """``e.query()``: true is an edge to the host (TS-16)."""
        choices = [(e, g) for v, g in alternatives(call.args[0], st.path) for e in self.event_of(v)]
        return self.query_event(st, choices, call.site) if choices else PLAIN

    def do_event_elapsed_time(self, call: Call, st: State) -> Value:
        """``a.elapsed_time(b)`` needs timing and completion, and is no sync (TX-01)."""
        self._elapsed(st, [call.args[0], call.get(1, "end_event") or NONE], call.site)
        return PLAIN

    def do_elapsed_time_function(self, call: Call, st: State) -> Value:
        """``cupy.cuda.get_elapsed_time(a, b)``."""
        self._elapsed(st, call.args[:2], call.site)
        return PLAIN

    def _elapsed(self, st: State, given: list[Value], site: Site) -> None:
        """Once it has returned both events are known to be complete, or it would have raised (TX-01)."""
        self.check_elapsed(st, given, site)
        for value in given:
            for event, way in ((e, way) for v, way in alternatives(value, st.path) for e in self.event_of(v)):
                for source in self.spread(event.name) if (event.name, "@recorded") in st.store else ():
                    st.order.learn(HOST, source, guard=way)

    def check_elapsed(self, st: State, given: list[Value], site: Site) -> None:
        """SS312: made without timing, never recorded, or not known to be complete."""
        choices = [
            (e, way) for value in given for v, way in alternatives(value, st.path) for e in self.event_of(v)
        ]
        events = [event for event, _ in choices]
        for event in events:
            if event.timing is False:
                made = self.event_sites.get(event.name.base())
                notes = [("made without enable_timing", made)] if made is not None else []
                self.violation(
                    st, "event-timing-misuse", site, "elapsed_time", notes, tags=frozenset({"no timing"})
                )
                return
        for event in events:
            if self.never_recorded(st, event):
                made = self.event_sites.get(event.name.base())
                notes = [("made here, and never recorded", made)] if made is not None else []
                self.violation(
                    st, "event-timing-misuse", site, "elapsed_time", notes, tags=frozenset({"not recorded"})
                )
                return
        for event, way in choices[-1:]:
            recorded = st.store.get((event.name, "@recorded"))
            if recorded is None:
                continue
            if st.order.conflicts(("timing", event.name), None, True, HOST, st.path & way):
                self.violation(
                    st,
                    "event-timing-misuse",
                    site,
                    "elapsed_time",
                    [],
                    assumed=Assumed.UNMODELLED,
                    tags=frozenset({"not complete"}),
                )
                return

    def never_recorded(self, st: State, event: Event) -> bool:
        """Whether an event was made by this entry into the file, and neither recorded nor given to anybody since."""
        here = bool(self.rounds) and event.name in self.rounds[0] and (event.name, "@made") in st.store
        return here and not {"@recorded", "@given"} & st.store.of(event.name).keys()

    event_sites: dict[Name, Site]
