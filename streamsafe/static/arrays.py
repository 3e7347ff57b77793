"""Arrays: CuPy's own copies, kernels, raw pointers and pinned memory, and the NumPy methods they share (CS rows).

One file: the verbs share CuPy's rules of which stream a copy or a kernel uses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.cuda import Signature, kernels
from streamsafe.order import edges
from streamsafe.order.symbolic import HOST, Guard
from streamsafe.static import apis, parts
from streamsafe.static.facts import AMBIENT, Assumed, constants
from streamsafe.static.interop import Interop
from streamsafe.static.kernels import assigned_elements, has_constants, stored_through, waits
from streamsafe.static.launches import reached
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    POINTER,
    UNKNOWN,
    Class,
    Const,
    Instance,
    Method,
    Name,
    Object,
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

if TYPE_CHECKING:
    from streamsafe.static.source import FunctionUnit

PINNED_POOL = Name("the pinned pool")
"""Where CuPy's pinned blocks return at once when their last name is gone (CS-19): its next owner is the host."""


class Arrays(Interop):
    """What CuPy adds to the verbs."""

    # declared here, implemented further down the chain

    def host_result(self, call: Call, st: State) -> Name:
        """Fresh host memory."""

    def note_sizes(self, name: str, call: Call) -> None: ...

    def do_blocking_operation(self, call: Call, st: State) -> Value:
        """A function that blocks the host."""

    def given_stream(self, value: Value | None) -> Value | None:
        """A ``stream=`` argument; left out or None it is the current one. Raw handles 0 and 1 are the null stream."""
        if value is None or value == NONE:
            return None
        if isinstance(value, Const):
            return Stream(AMBIENT, "cupy")
        return self.as_stream(value, "cupy")

    def is_pinned(self, st: State, value: Value) -> bool:
        """Whether this is, or may be, page-locked memory."""
        return any(self.place(st, v) == "pinned" for v in iterate(value) if isinstance(v, Object))

    # -- copies between arrays and the host (CS-13 to CS-19) ---------------------------------------------------------

    def tensor_get(self, receiver: Value, call: Call, st: State) -> Value:
        """CuPy's ``x.get(stream=None, order="C", out=None, blocking=True)`` (CS-13, CS-14)."""
        stream, out, blocking = call.get(0, "stream"), call.get(2, "out"), call.get(3, "blocking")
        if isinstance(stream, Const) and isinstance(stream.value, str):
            return UNKNOWN  # a mapping is asked for a key
        return self.array_to_host(st, receiver, stream, out, blocking, call, "get()")

    def do_asnumpy(self, call: Call, st: State) -> Value:
        """``cupy.asnumpy(a, stream=None, order="C", out=None, *, blocking=True)``."""
        source = call.args[0] if call.args else UNKNOWN
        blocking = call.kwargs.get("blocking")
        return self.array_to_host(
            st, source, call.get(1, "stream"), call.get(3, "out"), blocking, call, "asnumpy()"
        )

    def array_to_host(
        self,
        st: State,
        source: Value,
        stream: Value | None,
        out: Value | None,
        blocking: Value | None,
        call: Call,
        text: str,
    ) -> Value:
        """A device-to-host copy, on a stream; where it blocks, the host waits for that stream."""
        if all(self.is_host(st, v) for v in iterate(source) if isinstance(v, Object)) and source != UNKNOWN:
            self.hand_to_host(st, [source], call.site, text)
            return source
        outcomes = self.flag(Const(True) if blocking is None else blocking, st, call.node)
        target = self.given_stream(stream)
        self.sync_in_capture(st, call.site, text)
        self.access(st, source, call.site, text, writes=False, library="cupy", stream=target)
        if out is None or out == NONE:
            result: Value = Tensor(self.host_result(call, st), numpy=True)
            assumed = Assumed.POSSIBLE
        else:
            result = out
            known = any(self.place(st, v) for v in iterate(out) if isinstance(v, Object))
            assumed = (
                Assumed.NOTHING if self.is_pinned(st, out) else Assumed.POSSIBLE if known else Assumed.PLACE
            )
        tags = frozenset({"d2h"})
        self.access(
            st,
            result,
            call.site,
            text,
            writes=True,
            library="cupy",
            stream=target,
            tags=tags,
            assumed=assumed,
        )
        self.wait_where(st, outcomes, target, call)
        return result

    def wait_where(
        self, st: State, outcomes: list[tuple[bool, Guard]], stream: Value | None, call: Call
    ) -> None:
        """The host waits for a stream where a flag is true."""
        guards = [guard for outcome, guard in outcomes if outcome]
        if not guards:
            return
        if len(guards) == len(outcomes) == 1:
            self.synchronize_stream(st, stream, "cupy", call.site)
            return
        for guard in guards:
            for s, way in self.streams(st, "cupy", stream):
                if not guard.contradicts(way):
                    st.order.obey(edges.synchronize_stream(HOST, s.name, self.table), guard & way)

    def tensor_set(self, receiver: Value, call: Call, st: State) -> Value:
        """CuPy's ``x.set(host, stream=None)``: asynchronous; pinned memory is read in place, and nobody keeps it."""
        source, stream = call.get(0, "arr") or UNKNOWN, self.given_stream(call.get(1, "stream"))
        self.upload(st, receiver, source, stream, call, "set()")
        return NONE

    def upload(
        self,
        st: State,
        target: Value,
        source: Value,
        stream: Value | None,
        call: Call,
        text: str,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """A host-to-device copy: pageable memory is staged before the call returns (CS-17, CS-18)."""
        pinned = self.is_pinned(st, source)
        if pinned or any(self.place(st, v) == "device" for v in iterate(source) if isinstance(v, Object)):
            if pinned and st.capture is not None:
                self.sync_in_capture(st, call.site, text)
            tags |= {"h2d"} if pinned else frozenset()
            self.access(st, source, call.site, text, writes=False, library="cupy", stream=stream, tags=tags)
        else:
            self.hand_to_host(st, [source], call.site, text)
            self.sync_in_capture(st, call.site, text)
        self.access(st, target, call.site, text, writes=True, library="cupy", stream=stream)

    def do_cupy_asarray(self, call: Call, st: State) -> Value:
        """``cupy.asarray(host, blocking=False)``: pinned memory is read in place, and kept alive meanwhile (CS-18)."""
        source = call.args[0] if call.args else UNKNOWN
        text = f"{call.text.rpartition('.')[2]}()"
        shown = self.imported(source, st, call)
        if shown is not None:
            return shown
        objects = [v for v in iterate(source) if isinstance(v, Object)]
        torches = self.library_of(st, [source]) == "torch"
        if any(
            self.place(st, v) == "device"
            or (torches and not self.is_host(st, v) and (isinstance(v, Tensor) or self.is_tensor(st, v)))
            for v in objects
        ):
            if torches:  # its interface tells of no stream (CI-02)
                source = self.borrowed(source, "cupy", st, exchanged=False)
            if text != "array()" or call.kwargs.get("copy") == Const(False):
                return source
            return self.operation(st, [source], call.site, text, library="cupy")
        made = self.new_tensor(st, call.site, text, library="cupy", place="device", written=False)
        self.upload(st, made, source, None, call, text, frozenset({"kept alive"}))
        self.wait_where(st, self.flag(call.kwargs.get("blocking"), st, call.node), None, call)
        return made

    # -- functions and methods ---------------------------------------------------------------------------------------

    def do_cupy_function(self, call: Call, st: State) -> Value:
        """A function of CuPy: an operation on the current stream."""
        name = call.text.rpartition(".")[2]
        if name[:1].isupper() or name in apis.ARRAY_TYPES:
            return UNKNOWN if name[:1].isupper() else PLAIN
        for position, value in enumerate(call.args):
            call.args[position] = self.imported(value, st, call) or value
        operands, out = self.operands(name, call, st)
        text = f"{name}()"
        if name in apis.FACTORIES:
            return self.array_factory(name, call, st)
        if out is not None:
            for value in self.tensor_results(st, out):
                self.in_place(st, value, operands, call.site, text, library="cupy")
            return out
        if name in apis.ARRAY_WRITING_FUNCTIONS and call.args:
            self.in_place(st, call.args[0], call.everything()[1:], call.site, text, library="cupy")
            return NONE
        if name == "nan_to_num" and call.get(1, "copy") == Const(False):
            self.in_place(st, call.args[0], call.args[:1], call.site, text, library="cupy")
            return call.args[0]
        if name in ("split", "array_split", "hsplit", "vsplit"):
            return self.pieces(call, st)
        if name in apis.ARRAY_VIEW_FUNCTIONS:
            return self.reshaped(call.args[0], call) if call.args else UNKNOWN
        if name in ("nonzero", "unique", "flatnonzero", "argwhere") or (
            name == "where" and len(call.args) == 1
        ):
            return self.do_blocking_operation(call, st)
        result = self.operation(st, operands, call.site, text, library="cupy")
        for made in iterate(result):
            if isinstance(made, Tensor) and not self.place(st, made):
                st.store[(made.name, "@place")] = Const("device")
        return result

    def operands(self, name: str, call: Call, st: State) -> tuple[list[Value], Value | None]:
        """What a function of CuPy reads, and the array that it is given to write: ``out=``, a filter's ``output=``
        (which may be a type), or the operand that a routine of BLAS overwrites.
        """
        position = apis.BLAS_OUTPUTS.get(name) if call.text.startswith("cupy.cublas.") else None
        read = [value for place, value in enumerate(call.args) if place != position]
        read += [value for key, value in call.kwargs.items() if key not in ("out", "output")]
        out = call.kwargs.get("out", call.kwargs.get("output"))
        if position is not None and out is None and position < len(call.args):
            out = call.args[position]
            read.append(out)
        return read, out if out is not None and self.tensors(st, out) else None

    def array_factory(self, name: str, call: Call, st: State) -> Value:
        """A fresh array; the ``_like`` ones read only the shape of their argument."""
        written = not name.startswith("empty")
        self.note_sizes(name, call)
        return self.new_tensor(st, call.site, f"{name}()", library="cupy", place="device", written=written)

    def do_cupy_factory(self, call: Call, st: State) -> Value:
        """``cupy.empty``."""
        return self.array_factory("empty", call, st)

    def reshaped(self, value: Value, call: Call, *, turned: bool = False) -> Value:
        """The same memory under other axes; ``turned`` where these have changed places."""
        found: list[tuple[Value, Guard]] = []
        for inner, guard in alternatives(value):
            if isinstance(inner, Tensor):
                part = parts.reshaped(inner.part, id(call.node))
                inner = replace(inner, part=part, strided=inner.strided or turned)
            found.append((inner, guard))
        return union(found)

    def pieces(self, call: Call, st: State) -> Value:
        """``split(x, n)``: views that have nothing in common."""
        base = call.args[0] if call.args else UNKNOWN
        count = call.get(1, "indices_or_sections")
        number = count.value if isinstance(count, Const) and isinstance(count.value, int) else None
        if not isinstance(base, Tensor) or number is None or not 0 < number <= MAX_PIECES:
            return base
        return Tuple(
            tuple(replace(base, part=parts.section(base.part, id(call.node), i)) for i in range(number))
        )

    def array_method(self, receiver: Value, first: Object, name: str, call: Call, st: State) -> Value | None:
        """A method that NumPy's and CuPy's arrays have and torch's tensors have not, or not so."""
        if name in apis.ARRAY_WRITING_METHODS:
            operands = call.everything()
            if name in apis.ARRAY_UPDATING_METHODS:
                operands.append(receiver)
            self.in_place(st, receiver, operands, call.site, f"{name}()")
            return NONE
        if name in ("toDlpack", "to_dlpack"):
            return self.do_to_dlpack(Call(call.node, call.site, [receiver]), st)
        if name == "flatten":
            return self.operation(
                st, [receiver], call.site, "flatten()", library=self.library_of(st, [receiver])
            )
        if name in apis.POINTER_METHODS:
            return self.pointer_method(Partial(POINTER, (receiver,), ()), name, call, st)
        if name in ("reshape", "transpose", "swapaxes", "view"):
            return self.reshaped(receiver, call, turned=name in apis.STRIDING_METHODS)
        if name in ("tobytes", "tofile", "dump", "dumps"):
            self.read_on_host(st, receiver, call.site, f"{name}()")
            return PLAIN
        return None

    def is_array(self, st: State, value: Object) -> bool:
        """Whether this is an array of NumPy's or CuPy's."""
        return (isinstance(value, Tensor) and value.numpy) or self.library_of(st, [value]) == "cupy"

    # -- pinned memory (CS-19) ---------------------------------------------------------------------------------------

    def do_cupy_pinned(self, call: Call, st: State) -> Value:
        """Pinned memory as an array: a block that another array has left may still be in use by a copy."""
        name = self.fresh(call.node, st, "pinned")
        st.store[(name, "@place")] = Const("pinned")
        self.libraries[name] = "cupy"
        value = Tensor(name, numpy=True)
        self.stack[-1].temporaries.append(value)
        self.allocate(st, name, "cupy", call.site, Stream(PINNED_POOL, "cupy"))
        return value

    # -- raw pointers ------------------------------------------------------------------------------------------------

    @staticmethod
    def pointee(value: Value) -> Value:
        """The array that an address leads to."""
        found = []
        for inner, guard in alternatives(value):
            while isinstance(inner, Partial) and inner.function == POINTER:
                inner = inner.args[0]
            found.append((inner, guard))
        return union(found) if found else UNKNOWN

    def tensor_attribute(self, base: Tensor, name: str, st: State, node: cst.CSTNode) -> Value:
        """``x.data``, ``x.data.ptr``, ``x.ctypes.data``: addresses; ``x.real`` and ``x.imag``: parts."""
        held = st.store.get((base.name, name))
        if held is not None:
            return held
        if name == "data" and base.numpy:  # a memory view
            return base
        if name == "ctypes" or (name in ("data", "ptr", "mem") and self.is_array(st, base)):
            return Partial(POINTER, (base,), ())
        if name in ("real", "imag"):
            return replace(base, part=parts.component(base.part, name))
        if name in ("T", "flat", "mT"):
            turned = base.strided or name != "flat"
            return replace(base, part=parts.reshaped(base.part, name), strided=turned)
        return super().tensor_attribute(base, name, st, node)

    def pointer_method(self, pointer: Partial, name: str, call: Call, st: State) -> Value:
        """A method of ``MemoryPointer``; those without ``_async`` run on the legacy default stream (CS-27)."""
        target = self.pointee(pointer)
        own = name.endswith("_async")
        stream = self.given_stream(call.get(2, "stream")) if own else Stream(AMBIENT, "cupy")
        text = f"{name}()"
        other = self.pointee(call.args[0]) if call.args else UNKNOWN
        if name.startswith("memset"):
            self.access(st, target, call.site, text, writes=True, library="cupy", stream=stream)
        elif name.startswith("copy_to_host"):
            self.transfer(st, other, target, stream, call, text)
        elif name.startswith("copy_from"):
            self.transfer(st, target, other, stream, call, text)
        else:
            return UNKNOWN
        if not own and not name.startswith(("memset", "copy_from_device")):
            self.synchronize_stream(st, stream, "cupy", call.site)
        return NONE

    def transfer(
        self, st: State, target: Value, source: Value, stream: Value | None, call: Call, text: str
    ) -> None:
        """A raw copy: of host memory only pinned is touched by the stream."""
        for value, writes in ((source, False), (target, True)):
            for inner, guard in self.tensors(st, value):
                one = under(inner, guard)
                if not self.is_host(st, inner):
                    self.access(st, one, call.site, text, writes=writes, library="cupy", stream=stream)
                elif self.is_pinned(st, inner):
                    tags = frozenset({"d2h" if writes else "h2d"})
                    self.access(
                        st, one, call.site, text, writes=writes, library="cupy", stream=stream, tags=tags
                    )
                else:
                    self.host_access(st, one, call.site, text, writes=writes)

    def do_make_texture(self, call: Call, st: State) -> Value:
        """``texture.CUDAarray``: device memory that is filled by ``copy_from``."""
        name = self.fresh(call.node, st, "texture")
        self.libraries[name.base()] = "cupy"
        return Opaque(name)

    def do_texture_resource(self, call: Call, st: State) -> Value:
        """``texture.ResourceDescriptor(type, cuArr=None, arr=None, ...)``: what a texture object is bound to."""
        bound = (call.get(1, "cuArr"), call.get(2, "arr"))
        return next((value for value in bound if value is not None and value != NONE), UNKNOWN)

    def texture_copy(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """``CUDAarray.copy_from(array, stream=None)`` and ``copy_to``: copies on that stream."""
        stream, other = self.given_stream(call.get(1, "stream")), call.args[0]
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
        stream = self.given_stream(call.get(4, "stream")) if own else Stream(AMBIENT, "cupy")
        self.transfer(st, pointers[0], pointers[1], stream, call, f"{name}()")
        if not own:
            self.synchronize_stream(st, stream, "cupy", call.site)
        return NONE

    def do_raw_fill(self, call: Call, st: State) -> Value:
        """``runtime.memsetAsync(ptr, value, size, stream)``."""
        name = call.text.rpartition(".")[2]
        own = name.endswith("Async")
        stream = self.given_stream(call.get(3, "stream")) if own else Stream(AMBIENT, "cupy")
        pointer = call.get(0, "ptr")
        if pointer is not None:
            target = self.pointee(pointer)
            self.access(st, target, call.site, f"{name}()", writes=True, library="cupy", stream=stream)
        return NONE

    def do_raw_wait(self, call: Call, st: State) -> Value:
        """``runtime.streamWaitEvent(stream, event)``."""
        for event in self.event_of(call.get(1, "event")):
            self.wait_for(st, event, self.given_stream(call.get(0, "stream")), "cupy", call.site)
        return NONE

    def do_raw_record(self, call: Call, st: State) -> Value:
        """``runtime.eventRecord(event, stream)``."""
        for event in self.event_of(call.get(0, "event")):
            self.own_events.add(event.name)
            self.record(st, event, self.given_stream(call.get(1, "stream")), "cupy", call.site)
        return NONE

    def do_make_sparse(self, call: Call, st: State) -> Value:
        """A sparse matrix: its ``data`` is what is read where the matrix is."""
        made = self.operation(
            st, call.everything(), call.site, f"{call.text.rpartition('.')[2]}()", library="cupy"
        )
        if isinstance(made, Tensor):
            st.store[(made.name, "data")] = made
        return made

    def do_make_plan(self, call: Call, st: State) -> Value:
        """A plan of cuFFT."""
        name = self.fresh(call.node, st, "plan")
        st.store[(name, "@plan")] = PLAIN
        return Opaque(name)

    def do_make_random(self, call: Call, st: State) -> Value:
        """A random generator of CuPy's, or of NumPy's."""
        name = self.fresh(call.node, st, "generator")
        st.store[(name, "@random")] = Const(call.text.partition(".")[0])
        return Opaque(name)

    def do_make_pinned_pool(self, call: Call, st: State) -> Value:
        """A pool of pinned memory of the program's own."""
        name = self.fresh(call.node, st, "pool")
        st.store[(name, "@pinned_pool")] = PLAIN
        return Opaque(name)

    def array_maker(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """A method of a plan or of a random generator, an operation on the current stream, or of a pinned pool."""
        if (receiver.name, "@pinned_pool") in st.store and name == "malloc":
            return self.do_cupy_pinned(call, st)
        if (receiver.name, "@plan") in st.store and name == "fft" and len(call.args) > 1:
            self.in_place(st, call.args[1], call.args[:1], call.site, "fft()")
            return NONE
        for library in constants(st.store.get((receiver.name, "@random"))):
            if name not in ("seed", "get_state", "set_state", "spawn", "bit_generator"):
                drawn = Call(call.node, call.site, call.args, call.kwargs, f"{library}.random.{name}")
                return self.verb("host_random" if library == "numpy" else "cupy_function", drawn, st)
        return None

    def do_pointed_array(self, call: Call, st: State) -> Value:
        """``cupy.ndarray(shape, dtype, memptr)``: an array over memory that something else owns."""
        pointer = call.get(2, "memptr")
        memory = self.pointee(pointer) if pointer is not None else UNKNOWN
        if any(isinstance(v, Tensor) for v in iterate(memory)):
            return union(
                (Tensor(v.name, part=v.part), g) for v, g in alternatives(memory) if isinstance(v, Tensor)
            )
        owned = not any(isinstance(v, Opaque) and (v.name, "@unowned") in st.store for v in iterate(memory))
        return self.new_tensor(
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
            somebodys = self.fresh(call.node, st, "memory")
            st.store[(somebodys, "@unowned")] = PLAIN
            return Opaque(somebodys)
        return given

    # -- kernels of the user's own -----------------------------------------------------------------------------------

    def do_make_kernel(self, call: Call, st: State) -> Value:
        """A kernel: which arguments it writes, its source says."""
        name = self.fresh(call.node, st, "kernel")
        st.store[(name, "@kernel")] = Const(call.text.rpartition(".")[2])
        texts = [v.value for v in call.everything() if isinstance(v, Const) and isinstance(v.value, str)]
        st.store[(name, "@source")] = Const(tuple(texts))
        return Opaque(name)

    def kernel_of(self, function: Value, st: State) -> Opaque | None:
        """The kernel a value stands for."""
        for inner in iterate(function):
            if isinstance(inner, Method):
                inner = inner.receiver
            if isinstance(inner, Opaque):
                for name in inner.name.chain():
                    if (name, "@kernel") in st.store:
                        return Opaque(name)
        return None

    def imported_name(self, dotted: str) -> str:
        """What a dotted name of the file is in full."""
        first, _, rest = dotted.partition(".")
        return ".".join(filter(None, (self.file.imports.get(first, first), rest)))

    def stream_of(self, value: Instance | Class) -> Stream | None:
        """The stream that an instance of a class which derives from a library's is."""
        if isinstance(value, Class):
            return None
        for unit in self.ancestry(value.unit):
            for base in unit.bases:
                name = apis.canonical(self.imported_name(base))
                if apis.FUNCTIONS.get(name) == "make_cupy_stream":
                    self.table.unknown.add(value.name.base())
                    return Stream(value.name, "cupy")
                if apis.FUNCTIONS.get(name) == "make_stream":
                    return Stream(value.name)
        return None

    def compiled(self, unit: FunctionUnit, *, launched: bool = False) -> str | None:
        """How a function of the file is compiled into a kernel: a value of ``COMPILERS``; None if it is not.

        Args:
            unit: the function.
            launched: it is given a grid.
        """
        for decorator in unit.decorators:
            name = self.imported_name(decorator)
            bare = ".".join(name.split(".")[-2:])  # a module may be handed on by another one
            found = apis.COMPILERS.get(name) or apis.COMPILERS.get(bare)
            if found is not None:
                return found
        # Triton's own parameters say it under any other decorator, and so does a grid
        return "triton" if unit.decorators and (launched or has_constants(unit.node)) else None

    def launch_compiled(self, unit: FunctionUnit, kind: str, call: Call, st: State) -> Value:
        """A kernel that is written in Python: what its body assigns to it writes."""
        stream = None
        arguments = list(call.args)
        grid = call.kwargs.pop("@grid", None)
        if isinstance(grid, Tuple) and len(grid.items) > 2:
            stream = self.given_stream(grid.items[2])
        elif kind == "rawkernel" and grid is not None:
            stream = self.given_stream(call.kwargs.get("stream"))
        elif kind == "rawkernel" and grid is None and len(arguments) >= 3 and isinstance(arguments[2], Tuple):
            stream = self.given_stream(call.get(4, "stream"))
            arguments = list(arguments[2].items)
        if kind == "fuse":
            return self.operation(st, call.everything(), call.site, f"{unit.name}()", library="cupy")
        names = [p.name.value for p in (*unit.node.params.posonly_params, *unit.node.params.params)]
        flags = {
            k: bool(v.value)
            for k, v in call.kwargs.items()
            if isinstance(v, Const) and type(v.value) in (bool, int)
        }
        written = stored_through(unit.node, flags) if kind == "triton" else assigned_elements(unit.node)
        library = self.library_of(st, arguments)
        if waits(unit.node, flags):
            for s, guard in self.streams(st, library, stream):
                st.order.learn_everything(s.name, guard)
        given = [*zip(names, arguments, strict=False), *(call.kwargs.items() if kind == "triton" else ())]
        for name, value in given:
            if kind == "triton":  # most are numbers: sizes, strides, flags
                value = union((t, g) for t, g in self.tensors(st, value) if self.is_used_as_tensor(st, t))
            self.access(
                st, value, call.site, f"{unit.name}()", writes=name in written, library=library, stream=stream
            )
        return NONE

    def is_used_as_tensor(self, st: State, value: Object) -> bool:
        """Whether something shows that an object is a tensor."""
        return isinstance(value, Tensor) or value.name in st.order.made or self.is_tensor(st, value)

    def launch_kernel(
        self, function: Value, kernel: Opaque, call: Call, st: State, method: str = ""
    ) -> Value:
        """``kernel((grid,), (block,), (args...), stream=None)`` or an elementwise kernel's call."""
        kind = st.store.get((kernel.name, "@kernel"))
        stream = self.given_stream(call.kwargs.pop("stream", None))
        text = "kernel launch"
        if kind == Const("RawModule"):
            if method == "get_function" and call.args and isinstance(call.args[0], Const):
                one = Opaque(self.fresh(call.node, st, "kernel"))
                st.store[(one.name, "@kernel")] = Const("RawKernel")
                source = st.store.get((kernel.name, "@source"), Const(()))
                assert isinstance(source, Const)
                st.store[(one.name, "@source")] = Const((*source.value, call.args[0].value))
                return one
            return UNKNOWN
        for s, _ in self.streams(st, "cupy", stream):  # whatever memory it is given, by addresses perhaps
            self.capture_access(st, kernel, s.name, call.site, text, writes=False)
        if kind == Const("RawKernel"):
            if len(call.args) < 3:
                return UNKNOWN
            packed = call.args[2]
            arguments = list(map(self.pointee, packed.items if isinstance(packed, Tuple) else [packed]))
            known = self.signature(kernel, st)
            assumed = Assumed.NOTHING if known is not None else Assumed.UNMODELLED
            directions = [] if known is None else [parameter.direction for parameter in known.parameters]
            directions += ["writes"] * (len(arguments) - len(directions))
            if known is not None:
                arguments = self.reached(known, arguments, call, st)
            for writes in (False, True):
                for value, direction in zip(arguments, directions, strict=False):
                    if direction == "updates" or writes is (direction not in ("reads", "value")):
                        self.access(
                            st,
                            value,
                            call.site,
                            text,
                            writes=writes,
                            library="cupy",
                            stream=stream,
                            assumed=assumed,
                        )
            return NONE
        inputs = self.input_count(kernel, st)
        out = call.kwargs.get("out")
        outputs = [out] if out is not None and out != NONE else []
        values = list(call.args)
        if inputs is not None and len(values) > inputs:
            outputs += values[inputs:]
            values = values[:inputs]
        for value in values:
            self.access(st, value, call.site, text, writes=False, library="cupy", stream=stream)
        for value in outputs:
            self.access(st, value, call.site, text, writes=True, library="cupy", stream=stream)
        if outputs:
            return outputs[0]
        return self.new_tensor(st, call.site, text, library="cupy", place="device", stream=stream)

    def sources(self, kernel: Opaque, st: State) -> tuple[str, ...]:
        """The strings a kernel was made with."""
        found = st.store.get((kernel.name, "@source"))
        return tuple(found.value) if isinstance(found, Const) else ()

    def input_count(self, kernel: Opaque, st: State) -> int | None:
        """How many arguments of an elementwise kernel are read; what follows them is written."""
        texts = self.sources(kernel, st)
        if not texts:
            return None
        return len([p for p in texts[0].split(",") if p.strip()])

    def signature(self, kernel: Opaque, st: State) -> Signature | None:
        """What a raw kernel does with its parameters (see :mod:`streamsafe.cuda`)."""
        texts = self.sources(kernel, st)
        for text in texts:
            found = kernels(text)
            for name, known in found:
                if name in texts or len(found) == 1:
                    return known
        return None

    def reached(self, known: Signature, arguments: list[Value], call: Call, st: State) -> list[Value]:
        """The arguments of a launch, the arrays as what it touches of them."""
        if not any(each.itemsize for each in known.parameters):
            return arguments
        forms = [self.form_of(value, st) for value in arguments]
        found = reached(known, forms, *(_extents(value) for value in call.args[:2])) if any(forms) else {}
        result = list(arguments)
        for place, (parameter, value) in enumerate(zip(known.parameters, arguments, strict=False)):
            picked = found.get(parameter.name)
            if picked is not None:
                result[place] = union(
                    (replace(v, part=parts.elements(v.part, parameter.itemsize, picked)), guard)
                    if isinstance(v, Tensor) and not v.strided
                    else (v, guard)
                    for v, guard in alternatives(self.view(st, value))
                )
        return result


def _extents(value: Value) -> tuple[int, ...] | None:
    """A grid or a block, where its numbers are written down."""
    if not isinstance(value, Tuple) or not value.items:
        return None
    sizes = tuple(item.value for item in value.items if isinstance(item, Const) and type(item.value) is int)
    return sizes if len(sizes) == len(value.items) else None


MAX_PIECES = 8
