"""Every kernel launch, with its live arrays, before it is enqueued.

``Module`` and ``Function`` are extension classes whose ``cpdef`` methods a Python subclass overrides, for callers in C
too. CuPy's compiler entry hands out the subclass, so ufuncs, elementwise, reduction, raw, fused and jit kernels all
come through :meth:`TracedFunction.linear_launch` or ``__call__``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import cupy._core._cub_reduction as cub_reduction
import cupy._core.raw as raw
import cupy.cuda.compiler as compiler
import numpy
from cupy.cuda.device import get_device_id
from cupy.cuda.function import Function, Module
from cupy.cuda.memory import MemoryPointer

from streamsafe.kernels.bodies import SIZE, read
from streamsafe.kernels.elements import Spans, spans
from streamsafe.kernels.signatures import Parameter, Signature, Variable, base_name, signature
from streamsafe.order.memory import HOST
from streamsafe.runtime.annotations import annotated, check_places, revision
from streamsafe.runtime.blocks import pinned_blocks
from streamsafe.runtime.cupy import touches as uses
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.cupy.delay import delayed
from streamsafe.runtime.cupy.interop import operand
from streamsafe.runtime.cupy.state import MAJOR, OrderLock, order_lock, plain_pointer, state, timeline
from streamsafe.runtime.cupy.touches import array_type, latest
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.patches import Patches

plain_call = Function.__call__
plain_linear = Function.linear_launch

_LIMIT = 256
_GENERATED = {"_ind", "_in_ind", "_segment_size"}
_PREFIX = re.compile(r"^cupyx?_(?:cub_)?")


class TracedFunction(Function):
    """A kernel whose launches the monitor records."""

    __slots__ = (  # read at each launch: a dictionary beside an extension class's fields is slow
        "directions",
        "generated",
        "indexed",
        "name",
        "operation",
        "parameters",
        "places",
        "plan",
        "seen",
        "silent",
        "stamp",
        "structs",
        "symbols",
        "told",
        "variables",
    )

    def __init__(self, module: TracedModule, name: str) -> None:
        super().__init__(module.plain, name)
        self.describe(module, name)

    def describe(self, module: TracedModule, name: str) -> None:
        """Reads in the module's source what the kernel does."""
        self.name = base_name(module.expression(name))
        self.operation = self.name
        self.parameters = module.signature(name)
        generated = self.parameters is not None and any(
            p.name in _GENERATED for p in self.parameters.parameters
        )
        if generated:
            self.operation = _label(self.name)
        self.generated = generated
        self.stamp = revision[0]
        self._set_directions()
        described = self.parameters.parameters if self.parameters is not None else ()
        self.structs = {place: each.fields for place, each in enumerate(described) if each.fields}
        self.indexed = tuple(each.name for each in described if each.itemsize)
        self.seen: dict[tuple[Any, ...], dict[str, Spans]] = {}
        self.told = False
        self.symbols = module.symbols
        self.variables = () if self.parameters is None else self.parameters.variables
        # In CuPy 13 a reduction's launch is a C function that prints and drops exceptions.
        self.silent = (
            MAJOR < 14
            and self.parameters is not None
            and any(p.name == "_in_ind" for p in self.parameters.parameters)
        )

    def _set_directions(self) -> None:
        """What the kernel does with each argument. Of a generated kernel's, the plain values are left out."""
        directions = _directions(self.parameters, self.name, self.generated)
        self.directions = directions
        self.places = [
            _place(position, direction)
            for position, direction in enumerate(directions)
            if direction != "value" or not self.generated
        ]
        self.plan: Any = None

    def _plan(self) -> Any:
        """For the compiled hook: what the kernel does by the places of its arguments; None where that is not all."""
        if hooks.module is None or self.indexed or self.structs or self.variables:
            return None
        places = [(*place, self.directions[place[0]] == "value") for place in self.places]
        return hooks.module.plan(places, len(self.directions), self.stamp, not self.silent, self.operation)

    def _spans(self, args: Any, shape: Any) -> dict[str, Spans] | None:
        """The elements that this launch touches of each parameter, if an argument tells the kernel where to begin.

        Args:
            shape: (grid, block), or the (size, largest block) that a linear launch makes these of.
        """
        assert self.parameters is not None
        numbers = {
            each.name: number
            for each, argument in zip(self.parameters.parameters, args, strict=False)
            if each.direction == "value" and (number := _integer(argument)) is not None
        }
        key = (shape, *numbers.values())
        found = self.seen.get(key)
        if found is None:
            body = read(self.parameters.body) if numbers else None
            if body is None:
                self.indexed = ()
                return None
            grid, block = shape
            names = tuple(numbers)
            if not isinstance(grid, tuple):
                size, block = grid, min(grid, block)
                numbers[SIZE] = size
                grid, block = (-(-size // max(block, 1)),), (block,)
            found = spans(body, numbers, self.indexed, grid, block)
            if not self.told:
                others = ({**numbers, name: numbers[name] + 1} for name in names)
                begins = [_begins(spans(body, each, self.indexed, grid, block)) for each in others]
                self.told = any(each != _begins(found) for each in begins)
                if not self.told:
                    if all(each is None or each for each in found.values()):
                        self.indexed = ()  # its arguments never tell: to know how much it touches is not worth the time
                    return None
            if len(self.seen) >= _LIMIT:
                self.seen.clear()
            self.seen[key] = found
        return found

    def report(self, monitor: Monitor, args: Any, stream: Any, grid: Any, block: Any) -> OrderLock:
        """Tells the monitor of a launch.

        Returns:
            the lock of its stream, taken: it is to be released when the launch is enqueued.
        """
        if plain_pointer:
            plain_pointer.discard(get_ident())
        reads: list[uses.Touch] = []
        writes: list[uses.Touch] = []
        if self.stamp != revision[0]:
            self.stamp = revision[0]
            self._set_directions()
        directions = self.directions
        known = len(directions)
        spanned = self._spans(args, (grid, block)) if self.indexed else None
        places = self.places
        if len(args) != known:
            directions = (directions + ("unknown",) * len(args))[: len(args)]
            places = [_place(position, direction) for position, direction in enumerate(directions)]
        for position, is_read, is_written, certain in places:
            argument = args[position]
            if isinstance(argument, array_type):
                data = argument.data
                if type(data) is MemoryPointer:
                    operand(monitor, argument)
                    data = argument.data
                last = latest.get(data.ptr)
                if (
                    last is not None
                    and certain
                    and last[0] == argument.size
                    and last[1] is argument.dtype
                    and argument._c_contiguous
                ):
                    touch = last[2]
                else:
                    touch = uses.of_array(argument, certain)
            elif directions[position] == "value":
                if position in self.structs:
                    _members(argument, self.structs[position], reads, writes)
                continue
            elif isinstance(argument, MemoryPointer):
                touch = uses.of_pointer(argument, certain=certain)
            else:
                found = _of_other(argument) if position < known else None
                if found is None:
                    continue
                touch = found
            if spanned is not None:
                touches = self._narrowed(touch, argument, position, spanned)
                if is_read:
                    reads.extend(touches)
                if is_written:
                    writes.extend(touches)
                continue
            if is_read:
                reads.append(touch)
            if is_written:
                writes.append(touch)
        if self.variables and self.symbols:
            _module_memory(self.variables, self.symbols, reads, writes)
        if self.plan is None:
            self.plan = self._plan()
        if monitor.delay is not None:
            delayed(monitor, stream)
        queue = timeline(monitor, stream)
        ordered = order_lock(queue)
        ordered.acquire()
        try:
            monitor.access(queue, reads, writes, self.operation, not self.silent, False, 4)
        except BaseException:
            ordered.release()
            raise
        return ordered

    def _narrowed(
        self, touch: uses.Touch, argument: Any, position: int, spanned: dict[str, Spans]
    ) -> Sequence[uses.Touch]:
        parameters = () if self.parameters is None else self.parameters.parameters
        if position < len(parameters):
            parameter = parameters[position]
            found = spanned.get(parameter.name)
            # a CArray counts elements in C order, a pointer in memory
            if found is not None and (not parameter.array or getattr(argument, "_c_contiguous", False)):
                return uses.narrowed(touch, found, parameter.itemsize)
        return (touch,)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Any,
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        monitor = state.monitor
        if monitor is None:
            if plain_pointer:
                plain_pointer.discard(get_ident())
            plain_call(self, grid, block, args, shared_mem, stream, enable_cooperative_groups)
            return
        ordered = self.report(monitor, args, stream, grid, block)
        try:
            plain_call(self, grid, block, args, shared_mem, stream, enable_cooperative_groups)
        finally:
            ordered.release()

    def linear_launch(
        self,
        size: int,
        args: Any,
        shared_mem: int = 0,
        block_max_size: int = 128,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        monitor = state.monitor
        if monitor is None:
            if plain_pointer:
                plain_pointer.discard(get_ident())
            plain_linear(self, size, args, shared_mem, block_max_size, stream, enable_cooperative_groups)
            return
        ordered = self.report(monitor, args, stream, size, block_max_size)
        try:
            plain_linear(self, size, args, shared_mem, block_max_size, stream, enable_cooperative_groups)
        finally:
            ordered.release()


class TracedModule(Module):
    """A compiled module that hands out traced functions; the real one is kept alive behind it."""

    def __init__(self, plain: Module, source: str, expressions: dict[str, str] | None = None) -> None:
        super().__init__()
        self.plain = plain
        self.source = source
        mapping = plain.mapping
        self.symbols: dict[str, int] = {}
        self.lowered = {lowered: expression for expression, lowered in (mapping or {}).items()}
        if mapping is not None:
            self._set_mapping(mapping)

    def expression(self, name: str) -> str:
        """What the user calls a function that has a lowered name."""
        return str(self.lowered.get(name, name))

    def signature(self, name: str) -> Signature | None:
        """What the kernel does with its parameters, as far as the source says."""
        return signature(self.source, self.expression(name)) or signature(self.source, name)

    def get_function(self, name: str | bytes) -> TracedFunction:
        return TracedFunction(self, name.decode() if isinstance(name, bytes) else name)

    def get_global_var(self, name: str | bytes) -> Any:
        """The address of a variable; from now on others can touch it than the module's own kernels."""
        address = self.plain.get_global_var(name)
        self.symbols[base_name(name.decode() if isinstance(name, bytes) else name)] = int(address)
        return address


def _place(position: int, direction: str) -> tuple[int, bool, bool, bool]:
    """An argument's position, and whether an array there is read, is written, and certainly so."""
    return position, direction in ("reads", "updates"), direction != "reads", direction != "unknown"


def _begins(found: dict[str, Spans]) -> dict[str, list[int]]:
    """Where the spans of each parameter begin."""
    return {name: [span.low for span in each] for name, each in found.items() if each}


def _integer(argument: Any) -> int | None:
    """The value of an argument that is a whole number."""
    kind = type(argument)
    if kind is not int and not isinstance(argument, (numpy.integer, bool, numpy.bool_)):
        argument = getattr(argument, "value", None)  # as CuPy wraps it for the kernels that it generates
        if not isinstance(argument, (int, numpy.integer, numpy.bool_)):
            return None
    return int(argument)


def _label(name: str) -> str:
    return re.split(r"__|_pass\d", _PREFIX.sub("", name), maxsplit=1)[0] or name


def _directions(known: Signature | None, name: str, generated: bool) -> tuple[str, ...]:
    reads, writes = annotated.get(name, (frozenset(), frozenset()))
    if known is None:
        named = {place for place in reads | writes if isinstance(place, int)}
        return tuple(
            "writes" if place in writes else "reads" if place in reads else "unknown"
            for place in range(max(named, default=-1) + 1)
        )
    directions = []
    if reads or writes:
        check_places(name, reads | writes, [parameter.name for parameter in known.parameters])
    for position, parameter in enumerate(known.parameters):
        direction: str = parameter.direction
        if {parameter.name, position} & writes:
            direction = "writes"
        elif {parameter.name, position} & reads:
            direction = "reads"
        elif generated and not parameter.const:
            direction = "writes"
        directions.append(direction)
    return tuple(directions)


def _of_other(argument: Any) -> uses.Touch | None:
    """A texture or surface, or a pointer passed as a number: its block from there on, if it is one of ours, as a
    possible access.
    """
    if hasattr(argument, "ResDesc"):
        return uses.of_resource(argument)
    from streamsafe.runtime.cupy.memory import block_at

    try:
        address = int(argument)
    except (TypeError, ValueError):
        return None
    found = block_at(address)
    if found is None:
        block = pinned_blocks.holding(address)
        if block is None:
            return None
        return uses.of_bytes(HOST, address, block + pinned_blocks.sizes[block] - address, certain=False)
    device, start, size = found
    return uses.of_bytes(device, address, start + size - address, certain=False)


def _members(
    argument: Any, fields: tuple[Parameter, ...], reads: list[uses.Touch], writes: list[uses.Touch]
) -> None:
    """The pointers in a struct that is passed by value: its members by name, or else by their order."""
    names = getattr(getattr(argument, "dtype", None), "names", None)
    if names is None or getattr(argument, "shape", ()) != ():
        return
    if len(names) != len(fields) and not {each.name for each in fields} <= set(names):
        return
    for name, field in zip(names, fields, strict=False):
        if field.name in names:
            name = field.name
        touch = _of_other(argument[name]) if field.direction != "value" else None
        if touch is None:
            continue
        if field.direction in ("reads", "updates"):
            reads.append(touch)
        if field.direction != "reads":
            writes.append(touch)


def _module_memory(
    variables: tuple[Variable, ...],
    symbols: dict[str, int],
    reads: list[uses.Touch],
    writes: list[uses.Touch],
) -> None:
    """The module's variables that the program has asked the address of."""
    for name, direction, size in variables:
        address = symbols.get(name)
        if address is None:
            continue
        touch = uses.of_bytes(get_device_id(), address, size, direction != "unknown")
        if direction in ("reads", "updates"):
            reads.append(touch)
        if direction != "reads":
            writes.append(touch)


def install(patches: Patches) -> None:
    """Traces kernels compiled from now on."""

    def compile_(original: Callable[..., Module]) -> Callable[..., Module]:
        def compile_module_with_cache(source: str, *args: Any, **kwargs: Any) -> Module:
            module = original(source, *args, **kwargs)
            if isinstance(module, TracedModule):
                return module
            return TracedModule(module, source)

        return compile_module_with_cache

    def load(original: Callable[..., Module]) -> Callable[..., Module]:
        def get_raw_module(*args: Any, **kwargs: Any) -> Module:
            module = original(*args, **kwargs)
            if isinstance(module, TracedModule):
                return module
            return TracedModule(module, args[0] or "")

        return get_raw_module

    def parameters(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_param_info(*args: Any, **kwargs: Any) -> Any:
            plain_pointer.add(get_ident())
            return original(*args, **kwargs)

        return get_param_info

    hooks.replace(TracedFunction, "linear_launch", "linear_launch", plain_linear)
    hooks.replace(TracedFunction, "__call__", "call", plain_call)
    patches.wrap(compiler, "_compile_module_with_cache", compile_)
    patches.wrap(raw, "_get_raw_module", load)
    patches.wrap(cub_reduction, "_get_param_info", parameters)
