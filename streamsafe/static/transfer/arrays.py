"""Arrays: CuPy's own copies and pinned memory, and the NumPy methods that they share (CS rows)."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order import edges
from streamsafe.order.symbolic import HOST, Guard
from streamsafe.static import fields, parts
from streamsafe.static.facts import AMBIENT, Assumed
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    PLAIN,
    POINTER,
    UNKNOWN,
    Const,
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
    union,
)

PINNED_POOL = Name("the pinned pool")
"""Where CuPy's pinned blocks return at once when their last name is gone (CS-19): its next owner is the host."""


class Arrays(Part):
    """What CuPy adds to the verbs."""

    def given_stream(self, value: Value | None) -> Value | None:
        """A ``stream=`` argument; left out or None it is the current one. Raw handles 0 and 1 are the null stream."""
        if value is None or value == NONE:
            return None
        if isinstance(value, Const):
            return Stream(AMBIENT, "cupy")
        return self.effects.as_stream(value, "cupy")

    def is_pinned(self, st: State, value: Value) -> bool:
        """Whether this is, or may be, page-locked memory."""
        return any(self.memory.place(st, v) == "pinned" for v in iterate(value) if isinstance(v, Object))

    # -- copies between arrays and the host (CS-13 to CS-19) -----------------------------------------------------

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
        if (
            all(self.tensors.is_host(st, v) for v in iterate(source) if isinstance(v, Object))
            and source != UNKNOWN
        ):
            self.copies.pass_to_host(st, [source], call.site, text)
            return source
        outcomes = self.copies.flag(Const(True) if blocking is None else blocking, st, call.node)
        target = self.given_stream(stream)
        self.captures.sync_in_capture(st, call.site, text)
        self.accesses.access(st, source, call.site, text, writes=False, library="cupy", stream=target)
        if out is None or out == NONE:
            result: Value = Tensor(self.tensor_methods.host_result(call, st), numpy=True)
            assumed = Assumed.POSSIBLE
        else:
            result = out
            known = any(self.memory.place(st, v) for v in iterate(out) if isinstance(v, Object))
            assumed = (
                Assumed.NOTHING if self.is_pinned(st, out) else Assumed.POSSIBLE if known else Assumed.PLACE
            )
        tags = frozenset({"d2h"})
        self.accesses.access(
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
            self.effects.synchronize_stream(st, stream, "cupy", call.site)
            return
        for guard in guards:
            for s, way in self.effects.possible_streams(st, "cupy", stream):
                if not guard.contradicts(way):
                    st.order.obey(edges.synchronize_stream(HOST, s.name, self.run.table), guard & way)

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
        if pinned or any(
            self.memory.place(st, v) == "device" for v in iterate(source) if isinstance(v, Object)
        ):
            if pinned and st.capture is not None:
                self.captures.sync_in_capture(st, call.site, text)
            tags |= {"h2d"} if pinned else frozenset()
            self.accesses.access(
                st, source, call.site, text, writes=False, library="cupy", stream=stream, tags=tags
            )
        else:
            self.copies.pass_to_host(st, [source], call.site, text)
            self.captures.sync_in_capture(st, call.site, text)
        self.accesses.access(st, target, call.site, text, writes=True, library="cupy", stream=stream)

    def do_cupy_asarray(self, call: Call, st: State) -> Value:
        """``cupy.asarray(host, blocking=False)``: pinned memory is read in place, and kept alive meanwhile (CS-18)."""
        source = call.args[0] if call.args else UNKNOWN
        text = f"{call.text.rpartition('.')[2]}()"
        shown = self.interop.imported(source, st, call)
        if shown is not None:
            return shown
        objects = [v for v in iterate(source) if isinstance(v, Object)]
        torches = self.tensors.library_of(st, [source]) == "torch"
        if any(
            self.memory.place(st, v) == "device"
            or (
                torches
                and not self.tensors.is_host(st, v)
                and (isinstance(v, Tensor) or self.expressions.is_tensor(st, v))
            )
            for v in objects
        ):
            if torches:  # its interface tells of no stream (CI-02)
                source = self.interop.borrowed(source, "cupy", st, exchanged=False)
            if text != "array()" or call.kwargs.get("copy") == Const(False):
                return source
            return self.tensors.operation(st, [source], call.site, text, library="cupy")
        made = self.tensors.new_tensor(st, call.site, text, library="cupy", place="device", written=False)
        self.upload(st, made, source, None, call, text, frozenset({"kept alive"}))
        self.wait_where(st, self.copies.flag(call.kwargs.get("blocking"), st, call.node), None, call)
        return made

    # -- functions and methods -----------------------------------------------------------------------------------

    def do_cupy_function(self, call: Call, st: State) -> Value:
        """A function of CuPy: an operation on the current stream."""
        name = call.text.rpartition(".")[2]
        if name[:1].isupper() or name in apis.ARRAY_TYPES:
            return UNKNOWN if name[:1].isupper() else PLAIN
        for position, value in enumerate(call.args):
            call.args[position] = self.interop.imported(value, st, call) or value
        operands, out = self.operands(name, call, st)
        text = f"{name}()"
        if name in apis.FACTORIES:
            return self.array_factory(name, call, st)
        if out is not None:
            for value in self.tensors.tensor_results(st, out):
                self.tensors.in_place(st, value, operands, call.site, text, library="cupy")
            return out
        if name in apis.ARRAY_WRITING_FUNCTIONS and call.args:
            self.tensors.in_place(st, call.args[0], call.everything()[1:], call.site, text, library="cupy")
            return NONE
        if name == "nan_to_num" and call.get(1, "copy") == Const(False):
            self.tensors.in_place(st, call.args[0], call.args[:1], call.site, text, library="cupy")
            return call.args[0]
        if name in ("split", "array_split", "hsplit", "vsplit"):
            return self.pieces(call, st)
        if name in apis.ARRAY_VIEW_FUNCTIONS:
            return self.reshaped(call.args[0], call) if call.args else UNKNOWN
        if name in ("nonzero", "unique", "flatnonzero", "argwhere") or (
            name == "where" and len(call.args) == 1
        ):
            return self.tensor_functions.do_blocking_operation(call, st)
        result = self.tensors.operation(st, operands, call.site, text, library="cupy")
        for made in iterate(result):
            if isinstance(made, Tensor) and not self.memory.place(st, made):
                st.store[(made.name, fields.PLACE)] = Const("device")
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
        return read, out if out is not None and self.memory.tensors_in(st, out) else None

    def array_factory(self, name: str, call: Call, st: State) -> Value:
        """A fresh array; the ``_like`` ones read only the shape of their argument."""
        written = not name.startswith("empty")
        self.tensor_functions.note_sizes(name, call)
        return self.tensors.new_tensor(
            st, call.site, f"{name}()", library="cupy", place="device", written=written
        )

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
            self.tensors.in_place(st, receiver, operands, call.site, f"{name}()")
            return NONE
        if name in ("toDlpack", "to_dlpack"):
            return self.interop.do_to_dlpack(Call(call.node, call.site, [receiver]), st)
        if name == "flatten":
            return self.tensors.operation(
                st, [receiver], call.site, "flatten()", library=self.tensors.library_of(st, [receiver])
            )
        if name in apis.POINTER_METHODS:
            return self.interop.pointer_method(Partial(POINTER, (receiver,), ()), name, call, st)
        if name in ("reshape", "transpose", "swapaxes", "view"):
            return self.reshaped(receiver, call, turned=name in apis.STRIDING_METHODS)
        if name in ("tobytes", "tofile", "dump", "dumps"):
            self.tensors.read_on_host(st, receiver, call.site, f"{name}()")
            return PLAIN
        return None

    def is_array(self, st: State, value: Object) -> bool:
        """Whether this is an array of NumPy's or CuPy's."""
        return (isinstance(value, Tensor) and value.numpy) or self.tensors.library_of(st, [value]) == "cupy"

    # -- pinned memory (CS-19) -----------------------------------------------------------------------------------

    def do_cupy_pinned(self, call: Call, st: State) -> Value:
        """Pinned memory as an array: a block that another array has left may still be in use by a copy."""
        name = self.objects.fresh(call.node, st, "pinned")
        st.store[(name, fields.PLACE)] = Const("pinned")
        self.run.libraries[name] = "cupy"
        value = Tensor(name, numpy=True)
        self.run.stack[-1].temporaries.append(value)
        self.memory.allocate(st, name, "cupy", call.site, Stream(PINNED_POOL, "cupy"))
        return value

    # -- raw pointers --------------------------------------------------------------------------------------------

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
        return self.attributes.plain_tensor_attribute(base, name, st, node)

    def do_make_sparse(self, call: Call, st: State) -> Value:
        """A sparse matrix: its ``data`` is what is read where the matrix is."""
        made = self.tensors.operation(
            st, call.everything(), call.site, f"{call.text.rpartition('.')[2]}()", library="cupy"
        )
        if isinstance(made, Tensor):
            st.store[(made.name, "data")] = made
        return made

    def do_make_plan(self, call: Call, st: State) -> Value:
        """A plan of cuFFT."""
        name = self.objects.fresh(call.node, st, "plan")
        st.store.mark(name, fields.FFT_PLAN)
        return Opaque(name)

    def do_make_random(self, call: Call, st: State) -> Value:
        """A random generator of CuPy's, or of NumPy's."""
        name = self.objects.fresh(call.node, st, "generator")
        st.store[(name, fields.RANDOM_GENERATOR)] = Const(call.text.partition(".")[0])
        return Opaque(name)

    def do_make_pinned_pool(self, call: Call, st: State) -> Value:
        """A pool of pinned memory of the program's own."""
        name = self.objects.fresh(call.node, st, "pool")
        st.store.mark(name, fields.PINNED_POOL)
        return Opaque(name)

    def array_maker(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """A method of a plan or of a random generator, an operation on the current stream, or of a pinned pool."""
        if st.store.marked(receiver.name, fields.PINNED_POOL) and name == "malloc":
            return self.do_cupy_pinned(call, st)
        if st.store.marked(receiver.name, fields.FFT_PLAN) and name == "fft" and len(call.args) > 1:
            self.tensors.in_place(st, call.args[1], call.args[:1], call.site, "fft()")
            return NONE
        for library in st.store.constants(receiver.name, fields.RANDOM_GENERATOR):
            if name not in ("seed", "get_state", "set_state", "spawn", "bit_generator"):
                drawn = Call(call.node, call.site, call.args, call.kwargs, f"{library}.random.{name}")
                return self.library.verb("host_random" if library == "numpy" else "cupy_function", drawn, st)
        return None


MAX_PIECES = 8
