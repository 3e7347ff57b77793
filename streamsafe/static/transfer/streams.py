"""Streams and devices of both libraries."""

from __future__ import annotations

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import concrete, fields
from streamsafe.static.facts import AMBIENT
from streamsafe.static.state import State
from streamsafe.static.transfer.devices import CURRENT
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
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


class Streams(Part):
    """Verbs of streams and devices."""

    def do_make_device(self, call: Call, st: State) -> Value:
        """``torch.device``."""
        value = call.get(0, "type")
        if isinstance(value, Const) and isinstance(value.value, str):
            return Device(value.value.partition(":")[0])
        if isinstance(value, (Device, Union)):
            return value
        if isinstance(value, Opaque) and value.name.base() in self.run.cuda_devices:
            return Device("cuda")
        if isinstance(value, Opaque):
            return Device("", value.name)
        return Device("cuda" if isinstance(value, Const) and isinstance(value.value, int) else "")

    def do_device_module(self, call: Call, st: State) -> Value:
        """The device module under another name."""
        return Api("torch.cuda")

    def do_make_generator(self, call: Call, st: State) -> Value:
        """``torch.Generator``: it must be registered with graphs."""
        return Opaque(self.objects.fresh(call.node, st, "generator"))

    # -- streams -------------------------------------------------------------------------------------------------

    def do_make_stream(self, call: Call, st: State) -> Value:
        """A pool stream: non-blocking (TS-01)."""
        name = self.objects.fresh(call.node, st, "stream")
        device = call.get(0, "device")
        own = st.store.get((CURRENT, fields.STREAMS_DEVICE)) if device in (None, NONE) else device
        if own is not None:
            st.store[(name, fields.STREAMS_DEVICE)] = own
        return Stream(name)

    def do_make_cupy_stream(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Stream()``: blocking unless asked otherwise (CS-01)."""
        if call.kwargs.get("null") == Const(True) or (call.args and call.args[0] == Const(True)):
            return Stream(self.run.table.ambient_of(self.device(st)), "cupy")
        name = self.objects.fresh(call.node, st, "stream")
        if self.device(st):
            self.run.table.devices[name.base()] = self.device(st)
        non_blocking = call.get(1, "non_blocking")
        if non_blocking is None or non_blocking == Const(False):
            self.run.table.blocking.update((name.with_age(age), None) for age in range(3))
        return Stream(name, "cupy")

    def do_make_raw_stream(self, call: Call, st: State) -> Value:
        """``runtime.streamCreateWithFlags(flags)``: blocking by default, and not with ``streamNonBlocking``."""
        flags = call.get(0, "flags")
        text = flags.name.rpartition(".")[2] if isinstance(flags, Api) else ""
        blocking = flags == Const(0) or text in _BLOCKING
        options: dict[str, Value] = {"non_blocking": Const(not blocking)}
        stream = self.do_make_cupy_stream(Call(call.node, call.site, [], options), st)
        if isinstance(stream, Stream) and not blocking and flags != Const(1) and text not in _NON_BLOCKING:
            self.run.table.unknown.add(stream.name.base())
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
            return Stream(self.objects.fresh(call.node, st, "stream"), library)
        if library == "cupy":
            self.run.table.unknown.add(name.base())
        return Stream(name, library)

    def _handle(self, call: Call, st: State) -> Value:
        """The handle that a call is given first: ``int(stream)`` is the one of that stream."""
        node = call.node.args[0].value if isinstance(call.node, cst.Call) and call.node.args else None
        if isinstance(node, cst.Call) and len(node.args) == 1:
            if isinstance(node.func, cst.Name) and node.func.value == "int":
                return self.expressions.eval(node.args[0].value, st)
        return call.args[0] if call.args else UNKNOWN

    def do_stream_context(self, call: Call, st: State) -> Value:
        """``torch.cuda.stream(s)``."""
        stream = call.get(0, "stream")
        if stream is None:
            return Context("stream", (NONE,))
        return Context("stream", (self.effects.as_stream(stream, "torch"),))

    def do_current_stream(self, call: Call, st: State) -> Value:
        """The calling thread's current stream, now."""
        return self.effects.current(st, "torch")

    def do_current_cupy_stream(self, call: Call, st: State) -> Value:
        """CuPy's current stream."""
        return self.effects.current(st, "cupy")

    def do_default_stream(self, call: Call, st: State) -> Value:
        """The default stream; outside hooks and contexts the ambient stream is taken to be it."""
        if call.text.startswith("cupy"):
            return Stream(self.run.table.ambient_of(self.device(st)), "cupy")
        return Stream(AMBIENT, "torch")

    def do_per_thread_stream(self, call: Call, st: State) -> Value:
        """The per-thread default stream: blocking (CS-08)."""
        name = Name("the per-thread default stream")
        self.run.table.blocking[name] = None
        return Stream(name, "cupy")

    def do_set_stream(self, call: Call, st: State) -> Value:
        """``set_stream``: current until changed; None changes nothing (TS-24).

        The stream that an object keeps which is handed out elsewhere, one for each device, is set again wherever it is
        used: it is current there already, unless what is current is put back afterwards.
        """
        stream = call.get(0, "stream")
        if stream is not None and stream != NONE and not self._is_set_already(stream):
            self.enter_stream(st, self.effects.as_stream(stream, "torch"), "torch")
        return NONE

    def _is_set_already(self, stream: Value) -> bool:
        unit = self.run.stack[-1].unit
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
        before = self.effects.current(st, library)
        found = []
        for value, guard in alternatives(self.conditions.exclusive(st, stream), st.path):
            found.append((before if value == NONE else value, guard))
        chosen = union(found)
        if all(isinstance(v, Stream) for v in iterate(chosen)):
            st.current[library] = self.conditions.exclusive(st, chosen)

    def do_benchmark(self, call: Call, st: State) -> Value:
        """``triton.testing.do_bench(f)``: calls, and waits for the device before it tells how long they took."""
        function = call.get(0, "fn")
        if function is not None:
            self.calls.call_value(function, Call(call.node, call.site), st)
        self.effects.host_learns_everything(st, call.site)
        return PLAIN

    def do_synchronize_device(self, call: Call, st: State) -> Value:
        """The host waits for every stream of the device (TS-21)."""
        self.captures.sync_in_capture(st, call.site, f"{call.text or 'synchronize'}()")
        self.effects.host_learns_everything(st, call.site)
        return NONE

    def do_synchronize_raw_stream(self, call: Call, st: State) -> Value:
        """``runtime.streamSynchronize(ptr)``."""
        stream = call.args[0] if call.args else UNKNOWN
        if isinstance(stream, (Stream, Opaque)):
            self.effects.synchronize_stream(st, self.effects.as_stream(stream, "cupy"), "cupy", call.site)
        else:
            self.effects.host_learns_everything(st, call.site)
        return NONE

    def do_stream_wait_stream(self, call: Call, st: State) -> Value:
        """``a.wait_stream(b)`` (TS-06)."""
        receiver, other = call.args[0], call.get(1, "stream")
        library = self.stream_library(receiver)
        if other is not None and other != NONE:
            waiter, source = (
                self.effects.as_stream(given(receiver), library),
                self.effects.as_stream(given(other), library),
            )
            self.effects.wait_stream(st, waiter, source, library, call.site)
        return NONE

    @staticmethod
    def stream_library(value: Value) -> str:
        """Whose current stream a stream may become."""
        return next((v.library for v in iterate(value) if isinstance(v, Stream)), "torch")

    def do_stream_wait_event(self, call: Call, st: State) -> Value:
        """``s.wait_event(e)`` (TS-09, CS-11)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        stream = self.effects.as_stream(receiver, library)
        self.events.each_event(
            call.get(1, "event"),
            st,
            lambda event, way: self.events.wait_for(way, event, stream, library, call.site),
        )
        return NONE

    def awaitable_by_others(self, st: State) -> set[Stream]:
        """The streams on which events were recorded that others hold, too: they may wait for them."""
        return {
            stream
            for owner, table in st.store.objects.items()
            if fields.RECORDED_ON in table
            and fields.CREATED not in table
            and isinstance(owner.root().site, str)
            for stream in iterate(table[fields.RECORDED_ON])
            if isinstance(stream, Stream)
        }

    def none_to_wait_for(self, st: State, waits: list[tuple[Name, list[tuple[Stream, Guard]]]]) -> None:
        """Who gives None for an event says that there is nothing to wait for."""
        for event, waiting in waits:
            if self.graph_memory.known_missing(st, Opaque(event)):
                for stream, guard in waiting:
                    st.order.learn_everything(stream.name, guard)

    def do_stream_record_event(self, call: Call, st: State) -> Value:
        """``s.record_event(e=None)`` gives the event."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        events = (
            self.events.event_of(call.get(1, "event")) if call.get(1, "event") not in (None, NONE) else []
        )
        if not events:
            events = [Event(self.objects.fresh(call.node, st, "event"))]
            self.run.libraries[events[0].name.base()] = library
        for event in events:
            self.run.own_events.add(event.name)
            self.effects.record(st, event, self.effects.as_stream(receiver, library), library, call.site)
        return union((e, ALWAYS) for e in events)

    def do_stream_synchronize(self, call: Call, st: State) -> Value:
        """``s.synchronize()`` (TS-19)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        names = [
            s.name
            for s, _ in self.effects.possible_streams(st, library, self.effects.as_stream(receiver, library))
        ]
        self.captures.wait_in_capture(st, call.site, "synchronize()", names)
        self.effects.synchronize_stream(st, self.effects.as_stream(receiver, library), library, call.site)
        return NONE

    def do_stream_query(self, call: Call, st: State) -> Value:
        """``s.query()``: true is an edge to the host (TS-20)."""
        receiver = call.args[0]
        found = [
            self.clocks.query_stream(st, v, call.site) for v in iterate(receiver) if isinstance(v, Stream)
        ]
        return found[0] if found else PLAIN

    def do_stream_use(self, call: Call, st: State) -> Value:
        """``s.use()``: current until changed (CS-12)."""
        receiver = call.args[0]
        library = self.stream_library(receiver)
        self.enter_stream(st, self.effects.as_stream(receiver, library), library)
        return receiver

    def do_stream_callback(self, call: Call, st: State) -> Value:
        """A host function runs in the stream's order (CS-23): what it touches is the stream's access."""
        receiver = call.args[0]
        callback = call.args[1] if len(call.args) > 1 else UNKNOWN
        arguments = call.args[2:]
        library = self.stream_library(receiver)
        outside, self.run.calling = self.run.calling, self.effects.as_stream(receiver, library)
        current, st.current = st.current, {}
        if isinstance(callback, (Function, Partial, Method)):
            self.calls.call_value(callback, Call(call.node, call.site, arguments), st)
        else:
            for value in arguments:
                self.accesses.host_access(st, value, call.site, "host function", writes=False)
        self.run.calling, st.current = outside, current
        return NONE

    def do_host_function(self, call: Call, st: State) -> Value:
        """``launch_hostfunc(f, x)``: a host function on the current stream."""
        functions = (n for n, v in enumerate(call.args) if isinstance(v, (Function, Partial, Method)))
        first = next(functions, len(call.args))  # the stream it is given, if any, is the current one's handle
        given = [self.effects.current(st, self.tensors.default_library), *call.args[first:]]
        return self.do_stream_callback(Call(call.node, call.site, given), st)

    def do_stream_add_callback(self, call: Call, st: State) -> Value:
        """``stream.add_callback(f, arg)``: a host function that gets the stream and the status, too."""
        call.args[2:2] = [call.args[0], UNKNOWN]
        return self.do_stream_callback(call, st)

    # -- events --------------------------------------------------------------------------------------------------

    def do_bindings(self, call: Call, st: State) -> Value:
        """A call of NVIDIA's own bindings gives an error, and what it makes."""
        verb = apis.BINDINGS.get(call.text.rpartition(".")[2])
        if verb is None:
            return self.unseen.unmodelled(Api(call.text), call, st)
        made = self.run.verbs[verb](call, st)
        return Tuple((PLAIN,) if made == NONE else (PLAIN, made))

    def do_begin_body_capture(self, call: Call, st: State) -> Value:
        """``cudaStreamBeginCaptureToGraph(stream, graph, ...)``: the body of a conditional node.

        The body runs when the node does, so it comes after what was captured before, and the rest comes after it
        (CUDA runtime, "Conditional Nodes").
        """
        body = call.get(0, "stream")
        if st.capture is not None and body is not None:
            for origin in st.capture.origin:
                self.effects.wait_stream(
                    st, self.effects.as_stream(body, "torch"), Stream(origin, "torch"), "torch", call.site
                )
        return NONE

    def do_end_body_capture(self, call: Call, st: State) -> Value:
        """``cudaStreamEndCapture(stream)``: the capture of a body ends, and the one around it goes on."""
        body = call.get(0, "stream")
        if st.capture is not None and body is not None:
            for origin in st.capture.origin:
                self.effects.wait_stream(
                    st, Stream(origin, "torch"), self.effects.as_stream(body, "torch"), "torch", call.site
                )
        return NONE
