"""Kernels of the user's own: CuPy's raw kernels, Numba, Triton; what a launch reads and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamsafe.apis import names as apis
from streamsafe.kernels.python import assigned_elements, has_constants, stored_through, waits
from streamsafe.kernels.signatures import Signature, kernels
from streamsafe.static import fields, parts
from streamsafe.static.facts import Assumed
from streamsafe.static.launches import reached
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Class,
    Const,
    Instance,
    Method,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.source import FunctionUnit


class KernelLaunches(Part):
    """Launches of kernels whose source is in the file."""

    def do_make_kernel(self, call: Call, st: State) -> Value:
        """A kernel: which arguments it writes, its source says."""
        name = self.objects.fresh(call.node, st, "kernel")
        st.store[(name, fields.KERNEL_KIND)] = Const(call.text.rpartition(".")[2])
        texts = [v.value for v in call.everything() if isinstance(v, Const) and isinstance(v.value, str)]
        st.store[(name, fields.KERNEL_SOURCE)] = Const(tuple(texts))
        return Opaque(name)

    def kernel_of(self, function: Value, st: State) -> Opaque | None:
        """The kernel a value stands for."""
        for inner in iterate(function):
            if isinstance(inner, Method):
                inner = inner.receiver
            if isinstance(inner, Opaque):
                for name in inner.name.chain():
                    if (name, fields.KERNEL_KIND) in st.store:
                        return Opaque(name)
        return None

    def imported_name(self, dotted: str) -> str:
        """What a dotted name of the file is in full."""
        first, _, rest = dotted.partition(".")
        return ".".join(filter(None, (self.run.file.imports.get(first, first), rest)))

    def stream_of(self, value: Instance | Class) -> Stream | None:
        """The stream that an instance of a class which derives from a library's is."""
        if isinstance(value, Class):
            return None
        for unit in self.class_members.ancestry(value.unit):
            for base in unit.bases:
                name = apis.canonical(self.imported_name(base))
                if apis.FUNCTIONS.get(name) == "make_cupy_stream":
                    self.run.table.unknown.add(value.name.base())
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
        grid = call.grid
        if isinstance(grid, Tuple) and len(grid.items) > 2:
            stream = self.arrays.given_stream(grid.items[2])
        elif kind == "rawkernel" and grid is not None:
            stream = self.arrays.given_stream(call.kwargs.get("stream"))
        elif kind == "rawkernel" and grid is None and len(arguments) >= 3 and isinstance(arguments[2], Tuple):
            stream = self.arrays.given_stream(call.get(4, "stream"))
            arguments = list(arguments[2].items)
        if kind == "fuse":
            return self.tensors.operation(st, call.everything(), call.site, f"{unit.name}()", library="cupy")
        names = [p.name.value for p in (*unit.node.params.posonly_params, *unit.node.params.params)]
        flags = {
            k: bool(v.value)
            for k, v in call.kwargs.items()
            if isinstance(v, Const) and type(v.value) in (bool, int)
        }
        written = stored_through(unit.node, flags) if kind == "triton" else assigned_elements(unit.node)
        library = self.tensors.library_of(st, arguments)
        if waits(unit.node, flags):
            for s, guard in self.effects.possible_streams(st, library, stream):
                st.order.learn_everything(s.name, guard)
        given = [*zip(names, arguments, strict=False), *(call.kwargs.items() if kind == "triton" else ())]
        for name, value in given:
            if kind == "triton":  # most are numbers: sizes, strides, flags
                value = union(
                    (t, g) for t, g in self.memory.tensors_in(st, value) if self.is_used_as_tensor(st, t)
                )
            self.accesses.access(
                st, value, call.site, f"{unit.name}()", writes=name in written, library=library, stream=stream
            )
        return NONE

    def is_used_as_tensor(self, st: State, value: Object) -> bool:
        """Whether something shows that an object is a tensor."""
        return (
            isinstance(value, Tensor) or value.name in st.order.made or self.expressions.is_tensor(st, value)
        )

    def launch_kernel(
        self, function: Value, kernel: Opaque, call: Call, st: State, method: str = ""
    ) -> Value:
        """``kernel((grid,), (block,), (args...), stream=None)`` or an elementwise kernel's call."""
        kind = st.store.get((kernel.name, fields.KERNEL_KIND))
        stream = self.arrays.given_stream(call.kwargs.pop("stream", None))
        text = "kernel launch"
        if kind == Const("RawModule"):
            if method == "get_function" and call.args and isinstance(call.args[0], Const):
                one = Opaque(self.objects.fresh(call.node, st, "kernel"))
                st.store[(one.name, fields.KERNEL_KIND)] = Const("RawKernel")
                source = self.sources(kernel, st)
                st.store[(one.name, fields.KERNEL_SOURCE)] = Const((*source, call.args[0].value))
                return one
            return UNKNOWN
        for s, _ in self.effects.possible_streams(
            st, "cupy", stream
        ):  # whatever memory it is given, by addresses perhaps
            self.captures.capture_access(st, kernel, s.name, call.site, text, writes=False)
        if kind == Const("RawKernel"):
            if len(call.args) < 3:
                return UNKNOWN
            packed = call.args[2]
            arguments = list(
                map(self.interop.pointee, packed.items if isinstance(packed, Tuple) else [packed])
            )
            known = self.signature(kernel, st)
            assumed = Assumed.NOTHING if known is not None else Assumed.UNMODELLED
            directions = [] if known is None else [parameter.direction for parameter in known.parameters]
            directions += ["writes"] * (len(arguments) - len(directions))
            if known is not None:
                arguments = self.reached(known, arguments, call, st)
            for writes in (False, True):
                for value, direction in zip(arguments, directions, strict=False):
                    if direction == "updates" or writes is (direction not in ("reads", "value")):
                        self.accesses.access(
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
            self.accesses.access(st, value, call.site, text, writes=False, library="cupy", stream=stream)
        for value in outputs:
            self.accesses.access(st, value, call.site, text, writes=True, library="cupy", stream=stream)
        if outputs:
            return outputs[0]
        return self.tensors.new_tensor(st, call.site, text, library="cupy", place="device", stream=stream)

    def sources(self, kernel: Opaque, st: State) -> tuple[str, ...]:
        """The strings a kernel was made with."""
        found = st.store.one(kernel.name, fields.KERNEL_SOURCE)
        return tuple(found.value) if found is not None else ()

    def input_count(self, kernel: Opaque, st: State) -> int | None:
        """How many arguments of an elementwise kernel are read; what follows them is written."""
        texts = self.sources(kernel, st)
        if not texts:
            return None
        return len([p for p in texts[0].split(",") if p.strip()])

    def signature(self, kernel: Opaque, st: State) -> Signature | None:
        """What a raw kernel does with its parameters (see :mod:`streamsafe.kernels.signatures`)."""
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
        forms = [self.computed.form_of(value, st) for value in arguments]
        found = reached(known, forms, *(_extents(value) for value in call.args[:2])) if any(forms) else {}
        result = list(arguments)
        for place, (parameter, value) in enumerate(zip(known.parameters, arguments, strict=False)):
            picked = found.get(parameter.name)
            if picked is not None:
                result[place] = union(
                    (replace(v, part=parts.elements(v.part, parameter.itemsize, picked)), guard)
                    if isinstance(v, Tensor) and not v.strided
                    else (v, guard)
                    for v, guard in alternatives(self.memory.view(st, value))
                )
        return result


def _extents(value: Value) -> tuple[int, ...] | None:
    """A grid or a block, where its numbers are written down."""
    if not isinstance(value, Tuple) or not value.items:
        return None
    sizes = tuple(item.value for item in value.items if isinstance(item, Const) and type(item.value) is int)
    return sizes if len(sizes) == len(value.items) else None
