"""Arrays handed between libraries: which ways exchange a stream, and which leave the order to luck (CI rows)."""

from __future__ import annotations

from dataclasses import replace

from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    CAPSULE,
    NONE,
    UNKNOWN,
    Const,
    Container,
    Function,
    Instance,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)


class Interop(Part):
    """DLPack and the CUDA array interface."""

    def borrowed(self, value: Value, library: str, st: State, *, exchanged: bool) -> Value:
        """The same memory as another library's array.

        Args:
            value: the array.
            library: the library that it is handed to.
            st: what is known here.
            exchanged: the two streams were put in order. Where they were not, it matters if something is pending on
                the memory that the library's current stream has not waited for: what is enqueued later no exchange
                would have ordered.
        """
        found = []
        for inner, guard in alternatives(value):
            if isinstance(inner, Tensor) and not inner.numpy:
                missed = not exchanged and self._is_pending(st, inner, library)
                inner = replace(inner, library=library, unexchanged=inner.unexchanged or missed)
            found.append((inner, guard))
        return union(found) if found else UNKNOWN

    def _is_pending(self, st: State, value: Tensor, library: str) -> bool:
        """Whether a library's current stream lacks an access to memory."""
        blocks = {target.name for target, _ in self.memory.tensors_in(st, value)}
        return any(
            made.buffer in blocks
            for stream, guard in self.effects.possible_streams(st, library)
            for made in self.effects.lacking(st, stream.name, guard)
        )

    def importing(self, call: Call) -> str:
        """The library that a function belongs to."""
        return "cupy" if call.text.startswith("cupy") else "torch"

    def do_from_dlpack(self, call: Call, st: State) -> Value:
        """``from_dlpack(x)``: the consumer's current stream waits for the producer's (CI-03, CI-04)."""
        library = self.importing(call)
        source = call.args[0] if call.args else UNKNOWN
        consumer = self.effects.current(st, library)
        if isinstance(source, Instance):
            method = self.class_members.find_method(source.unit, "__dlpack__")
            if method is None:
                return UNKNOWN
            bound = Function(method, None, source)
            source = self.functions.call_function(bound, [], {"stream": consumer}, st, call.node)
        elif isinstance(source, Tensor):
            self.handshake(st, source, consumer, call)
            return self.borrowed(source, library, st, exchanged=True)
        capsules = [v for v in iterate(source) if isinstance(v, Partial) and v.function == CAPSULE]
        if not capsules:
            return source
        exchanged = all(c.kwargs == EXCHANGED for c in capsules)
        arrays = union((c.args[0], g) for c, g in alternatives(source) if isinstance(c, Partial))
        return self.borrowed(arrays, library, st, exchanged=exchanged)

    def handshake(self, st: State, source: Value, consumer: Value, call: Call) -> None:
        """What the producer's library has on its current stream comes before what the consumer's will have."""
        producer = self.effects.current(st, self.tensors.library_of(st, [source]))
        if producer != consumer:
            self.effects.wait_stream(st, consumer, producer, "cupy", call.site)

    def do_to_dlpack(self, call: Call, st: State) -> Value:
        """A raw capsule: nobody tells its producer who will consume it (CI-03d)."""
        return Partial(CAPSULE, (call.args[0] if call.args else UNKNOWN,), ())

    def exported(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.__dlpack__(stream=None)``: a stream that is given waits for the producer's current one."""
        stream = call.get(0, "stream")
        if any(isinstance(v, Stream) for v in iterate(stream or UNKNOWN)):
            assert stream is not None
            self.handshake(st, receiver, stream, call)
            return Partial(CAPSULE, (receiver,), EXCHANGED)
        return Partial(CAPSULE, (receiver,), ())

    def imported(self, value: Value, st: State, call: Call) -> Value | None:
        """The memory that an object of the file shows by ``__cuda_array_interface__`` (CI-08); None for others."""
        if not isinstance(value, Instance):
            return None
        method = self.class_members.find_method(value.unit, "__cuda_array_interface__")
        if method is None:
            return None
        shown = self.attributes.instance_attribute(value, "__cuda_array_interface__", st, call.node)
        if not isinstance(shown, Container):
            return UNKNOWN
        data = st.store.get((shown.name, "data"), UNKNOWN)
        memory = self.pointers.pointee(data.items[0]) if isinstance(data, Tuple) and data.items else UNKNOWN
        stream = st.store.get((shown.name, "stream"), NONE)
        given = any(isinstance(v, Stream) for v in iterate(stream)) or (
            isinstance(stream, Const) and isinstance(stream.value, int)
        )
        if given:
            self.effects.synchronize_stream(st, self.arrays.given_stream(stream), "cupy", call.site)
        return self.borrowed(memory, self.importing(call), st, exchanged=given)


EXCHANGED = (("stream", Const(True)),)
