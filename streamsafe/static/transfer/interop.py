"""Arrays handed between libraries (CI rows), and the raw pointers of CuPy and the CUDA runtime (CS rows)."""

from __future__ import annotations

from dataclasses import replace

from streamsafe.static import fields
from streamsafe.static.facts import AMBIENT
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    CAPSULE,
    NONE,
    POINTER,
    UNKNOWN,
    Const,
    Container,
    Function,
    Instance,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    under,
    union,
)


class Interop(Part):
    """DLPack and the CUDA array interface, raw pointers, and copies and fills by them."""

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
        memory = self.pointee(data.items[0]) if isinstance(data, Tuple) and data.items else UNKNOWN
        stream = st.store.get((shown.name, "stream"), NONE)
        given = any(isinstance(v, Stream) for v in iterate(stream)) or (
            isinstance(stream, Const) and isinstance(stream.value, int)
        )
        if given:
            self.effects.synchronize_stream(st, self.arrays.given_stream(stream), "cupy", call.site)
        return self.borrowed(memory, self.importing(call), st, exchanged=given)

    # -- raw pointers --------------------------------------------------------------------------------------------

    @staticmethod
    def pointee(value: Value) -> Value:
        """The array that an address leads to."""
        found = []
        for inner, guard in alternatives(value):
            while isinstance(inner, Partial) and inner.function == POINTER:
                inner = inner.args[0]
            found.append((inner, guard))
        return union(found) if found else UNKNOWN

    def pointer_method(self, pointer: Partial, name: str, call: Call, st: State) -> Value:
        """A method of ``MemoryPointer``; those without ``_async`` run on the legacy default stream (CS-27)."""
        target = self.pointee(pointer)
        own = name.endswith("_async")
        stream = self.arrays.given_stream(call.get(2, "stream")) if own else Stream(AMBIENT, "cupy")
        text = f"{name}()"
        other = self.pointee(call.args[0]) if call.args else UNKNOWN
        if name.startswith("memset"):
            self.accesses.access(st, target, call.site, text, writes=True, library="cupy", stream=stream)
        elif name.startswith("copy_to_host"):
            self.transfer(st, other, target, stream, call, text)
        elif name.startswith("copy_from"):
            self.transfer(st, target, other, stream, call, text)
        else:
            return UNKNOWN
        if not own and not name.startswith(("memset", "copy_from_device")):
            self.effects.synchronize_stream(st, stream, "cupy", call.site)
        return NONE

    def transfer(
        self, st: State, target: Value, source: Value, stream: Value | None, call: Call, text: str
    ) -> None:
        """A raw copy: of host memory only pinned is touched by the stream."""
        for value, writes in ((source, False), (target, True)):
            for inner, guard in self.memory.tensors_in(st, value):
                one = under(inner, guard)
                if not self.tensors.is_host(st, inner):
                    self.accesses.access(
                        st, one, call.site, text, writes=writes, library="cupy", stream=stream
                    )
                elif self.arrays.is_pinned(st, inner):
                    tags = frozenset({"d2h" if writes else "h2d"})
                    self.accesses.access(
                        st, one, call.site, text, writes=writes, library="cupy", stream=stream, tags=tags
                    )
                else:
                    self.accesses.host_access(st, one, call.site, text, writes=writes)

    def do_make_texture(self, call: Call, st: State) -> Value:
        """``texture.CUDAarray``: device memory that is filled by ``copy_from``."""
        name = self.objects.fresh(call.node, st, "texture")
        self.run.libraries[name.base()] = "cupy"
        return Opaque(name)

    def do_texture_resource(self, call: Call, st: State) -> Value:
        """``texture.ResourceDescriptor(type, cuArr=None, arr=None, ...)``: what a texture object is bound to."""
        bound = (call.get(1, "cuArr"), call.get(2, "arr"))
        return next((value for value in bound if value is not None and value != NONE), UNKNOWN)

    def texture_copy(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """``CUDAarray.copy_from(array, stream=None)`` and ``copy_to``: copies on that stream."""
        stream, other = self.arrays.given_stream(call.get(1, "stream")), call.args[0]
        target, source = (receiver, other) if name == "copy_from" else (other, receiver)
        self.transfer(st, target, source, stream, call, f"{name}()")
        return NONE

    def do_raw_copy(self, call: Call, st: State) -> Value:
        """``runtime.memcpyAsync(dst, src, size, kind, stream)``; ``memcpy`` is a legacy action that blocks the host."""
        given = [call.get(0, "dst"), call.get(1, "src")]
        pointers = [self.pointee(v) for v in given if v is not None]
        if len(pointers) < 2:
            return NONE
        name = call.text.rpartition(".")[2]
        own = name.endswith("Async")
        stream = self.arrays.given_stream(call.get(4, "stream")) if own else Stream(AMBIENT, "cupy")
        self.transfer(st, pointers[0], pointers[1], stream, call, f"{name}()")
        if not own:
            self.effects.synchronize_stream(st, stream, "cupy", call.site)
        return NONE

    def do_raw_fill(self, call: Call, st: State) -> Value:
        """``runtime.memsetAsync(ptr, value, size, stream)``."""
        name = call.text.rpartition(".")[2]
        own = name.endswith("Async")
        stream = self.arrays.given_stream(call.get(3, "stream")) if own else Stream(AMBIENT, "cupy")
        pointer = call.get(0, "ptr")
        if pointer is not None:
            target = self.pointee(pointer)
            self.accesses.access(
                st, target, call.site, f"{name}()", writes=True, library="cupy", stream=stream
            )
        return NONE

    def do_raw_wait(self, call: Call, st: State) -> Value:
        """``runtime.streamWaitEvent(stream, event)``."""
        for event in self.events.event_of(call.get(1, "event")):
            self.events.wait_for(
                st, event, self.arrays.given_stream(call.get(0, "stream")), "cupy", call.site
            )
        return NONE

    def do_raw_record(self, call: Call, st: State) -> Value:
        """``runtime.eventRecord(event, stream)``."""
        for event in self.events.event_of(call.get(0, "event")):
            self.run.own_events.add(event.name)
            self.effects.record(st, event, self.arrays.given_stream(call.get(1, "stream")), "cupy", call.site)
        return NONE

    def do_pointed_array(self, call: Call, st: State) -> Value:
        """``cupy.ndarray(shape, dtype, memptr)``: an array over memory that something else owns."""
        pointer = call.get(2, "memptr")
        memory = self.pointee(pointer) if pointer is not None else UNKNOWN
        if any(isinstance(v, Tensor) for v in iterate(memory)):
            return union(
                (Tensor(v.name, part=v.part), g) for v, g in alternatives(memory) if isinstance(v, Tensor)
            )
        owned = not any(
            isinstance(v, Opaque) and st.store.marked(v.name, fields.UNOWNED_MEMORY) for v in iterate(memory)
        )
        return self.tensors.new_tensor(
            st,
            call.site,
            "ndarray()",
            library="cupy",
            place="device",
            written=False,
            allocated=owned,
        )

    def do_pointer_to(self, call: Call, st: State) -> Value:
        """``UnownedMemory(ptr, ...)``, ``MemoryPointer(mem, offset)``, ``c_void_p(address)``: the same address."""
        given = call.args[0] if call.args else UNKNOWN
        known = any(isinstance(v, Tensor) for v in iterate(self.pointee(given)))
        if call.text.endswith("UnownedMemory") and not known:
            somebodys = self.objects.fresh(call.node, st, "memory")
            st.store.mark(somebodys, fields.UNOWNED_MEMORY)
            return Opaque(somebodys)
        return given


EXCHANGED = (("stream", Const(True)),)
