"""The order that a call whose code is not seen is assumed to make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamsafe.apis import names as apis
from streamsafe.order.edges import Edge
from streamsafe.static import fields, hints
from streamsafe.static.concrete import spelled
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    Api,
    Const,
    Container,
    Event,
    Instance,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    iterate,
)


class AssumedOrder(Part):
    """What a call whose code is not seen waits for, and what waits for it."""

    def ordering_by_name(
        self, function: Value, called: str, call: Call, st: State, name: str
    ) -> Value | None:
        """What a call does whose name, or kernel, tells all of it."""
        if called in apis.SERIALIZERS:
            for value in call.everything():
                self.tensors.read_on_host(st, value, call.site, f"{called}()")
            return PLAIN
        if called in apis.EXPECTING_METHODS:
            return self.library.do_raises_context(call, st)
        if spelled(hints.CURRENT_STREAM, called):
            return (
                self.streams.do_current_cupy_stream(call, st)
                if self.tensors.default_library == "cupy"
                else self.streams.do_current_stream(call, st)
            )
        if called in apis.HOST_FUNCTIONS:
            return self.streams.do_host_function(call, st)
        if spelled(hints.RECORDING_HELPER, called):
            return self.do_record_helper(call, st)
        if called in ("wait_stream", "wait_event") and isinstance(function, Api):
            for value in call.everything():  # of these one is the stream that waits
                if isinstance(value, (Stream, Opaque)):
                    st.order.learn_everything(value.name)
        if spelled(hints.SYNCHRONIZES, called):
            self.effects.host_learns_everything(st, call.site)
            return NONE
        if called in apis.LIKE_FACTORIES:
            return self.tensor_functions.factory(called, call, st)
        model = self.kernel_launches.kernel_of(function, st)
        return (
            self.kernel_launches.launch_kernel(function, model, call, st, name) if model is not None else None
        )

    def may_wait(self, called: str, values: Sequence[Value], call: Call, st: State) -> bool:
        """Whether a call may return only when the device has done its work: nobody who reads a clock doubts that.

        It is asked to by a flag, or it is named for it and given a handle or nothing.
        """
        if any(call.kwargs.get(flag) == Const(True) for flag in _WAITING_FLAGS):
            return True
        return spelled(hints.MAY_WAIT, called) and not any(
            isinstance(t, Tensor)
            or (self.expressions.is_tensor(st, t) and t.name.base() not in self.run.presumed)
            for value in values
            for t, _ in self.memory.tensors_in(st, value)
        )

    def order_before(self, values: list[Value], streams: Sequence[Value], st: State) -> None:
        """Given streams, events or works it waits where that is needed."""
        if any(isinstance(v, (Stream, Event)) for v in streams):
            for s, guard in self.effects.possible_streams(st, "torch"):
                st.order.learn_everything(s.name, guard)
            for v in streams:
                if isinstance(v, (Stream, Event)):
                    st.order.learn_everything(v.name)
        for value in values:
            self.passed_to_unseen(value, st)

    def passed_to_unseen(self, value: Value, st: State) -> None:
        """Whoever is given an event records it where that is needed; given a work with its tensors it waits for it."""
        for held_value in self.parts_of(st, value):
            if isinstance(held_value, Event):
                st.store.mark(held_value.name, fields.MAYBE_RECORDED)
            elif isinstance(held_value, Work):
                for s, guard in self.effects.possible_streams(st, "torch"):
                    st.order.learn(s.name, held_value.name, guard=guard)

    def order_after(
        self, touched: list[Value], streams: Sequence[Value], call: Call, st: State, library: str
    ) -> None:
        """What it did with the streams and events it was given is ordered, too, and what it used is recorded there."""
        for v in streams:
            if isinstance(v, (Stream, Event)):
                for s, guard in self.effects.possible_streams(st, "torch"):
                    st.order.obey([Edge(v.name, s.name)], guard)
            if isinstance(v, Stream):
                for value in touched:
                    self.memory.recorded_on(
                        st, value, [v, *(s for s, _ in self.effects.possible_streams(st, "torch"))]
                    )
        flag = call.kwargs.get("record_stream", NONE)  # the method's name for a flag: it calls it
        if any(not isinstance(v, Const) or v.value for v in iterate(flag)):
            for value in touched:
                self.memory.record_stream(st, value, self.effects.current(st, library), library, call.site)

    def as_used_stream(self, value: Value, st: State) -> Value:
        """Something of unknown kind that has been used as a stream is one."""
        if (
            isinstance(value, Opaque)
            and value.name in self.run.carriers
            and self.builtin_functions.is_used_as_stream(value, st)
        ):
            return self.effects.as_stream(value, self.tensors.default_library)
        return value

    def within_standing(self, value: Value, st: State) -> bool:
        """Whether an object lives on beside a call of its method: ``self``, or a part of one.

        Of all that such an object holds, a method that is not seen needs little.
        """
        holders = [v for v in iterate(value) if isinstance(v, (Opaque, Instance))]
        if any(
            isinstance(v, Instance)
            or (isinstance(v, Opaque) and v.name.parent is not None and str(v.name.site).isidentifier())
            for v in holders
        ):
            return True
        names = {v.name for v in holders}
        for root in self.run.protocol_roots:
            if names.isdisjoint(st.store.leads(root)):
                continue
            for value in st.store.of(root).values():
                for inner in iterate(value) if type(value) is Union else (value,):
                    if isinstance(inner, Object) and inner.name in names and inner in holders:
                        return True
        return False

    def do_record_helper(self, call: Call, st: State) -> Value:
        """A helper that records what it is given on a stream, the current one where it is given none."""
        values = call.everything()
        streams = [v for v in values if any(isinstance(inner, Stream) for inner in iterate(v))]
        if not streams and len(values) > 1 and isinstance(values[-1], Opaque):
            streams = values[-1:]
        on = self.effects.as_stream(streams[0], "torch") if streams else self.effects.current(st, "torch")
        for value in values:
            if value not in streams:
                self.memory.record_stream(st, value, on, "torch", call.site)
        return NONE

    def parts_of(self, st: State, value: Value, depth: int = 0) -> Iterator[Value]:
        """A value and what it holds."""
        for inner in iterate(value):
            yield inner
            held = list(inner.items) if isinstance(inner, Tuple) else []
            if isinstance(inner, (Container, Instance, Opaque)):
                held = self.containers.held(inner, st)
            for part in held if depth < 3 else ():
                yield from self.parts_of(st, part, depth + 1)


_WAITING_FLAGS = ("sync", "synchronize", "blocking", "block", "wait")
"""Parameters by which a call is asked to return when its work is done."""
