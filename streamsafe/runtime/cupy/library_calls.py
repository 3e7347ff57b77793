"""Library calls: their operands from the table, before they are enqueued, on the stream their wrapper gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from operator import itemgetter
from types import ModuleType
from typing import Any

import numpy

from streamsafe.apis import cuda_libraries as table
from streamsafe.apis.effects import Call
from streamsafe.runtime.blocks import device_blocks
from streamsafe.runtime.cupy import memory
from streamsafe.runtime.cupy import touches as uses
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.cupy.state import order_lock, state, timeline, timeline_of_handle
from streamsafe.runtime.patches import Patches
from streamsafe.toolchain.imports import after_import

Wrapped = Callable[..., Any]
Patch = Callable[[Patches, ModuleType], None]

_LETTER = {"s": 4, "d": 8, "c": 8, "z": 16}
_CUDA_TYPES = {
    0: 4,
    1: 8,
    2: 2,
    3: 1,
    4: 8,
    5: 16,
    6: 4,
    7: 2,
    8: 1,
    9: 2,
    10: 4,
    12: 4,
    14: 2,
    15: 4,
    24: 8,
    26: 8,
}
"""Bytes of a ``cudaDataType``."""
_NCCL_TYPES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2}
"""Bytes of an ``ncclDataType``."""


# -- operands from raw pointers --------------------------------------------------------------------------------------


def _operand(text: str, values: dict[str, int], itemsize: int) -> tuple[int, uses.Touch] | None:
    """The pointer and the bytes of one operand of a call."""
    name, _, shape = text.partition(":")
    pointer = values[name]
    found = memory.block_at(pointer)
    if found is None and shape == "*":
        return None
    device = found[0] if found else _device()
    if shape == "*":
        assert found is not None
        return pointer, uses.of_bytes(device, pointer, found[1] + found[2] - pointer)
    shape, _, size = shape.partition("#")
    shape, _, kind = shape.partition("/")
    if size:
        itemsize = int(size)
    elif kind:
        itemsize = _CUDA_TYPES.get(values[kind], itemsize)
    parts = shape.split(",") + [""] * 6
    rows, columns = _number(parts[0], values), _number(parts[1], values)
    if parts[3] and values[parts[3]] != 0:
        rows, columns = columns, rows
    leading = _number(parts[2], values)
    extents, strides = [columns, rows], [leading * itemsize, itemsize]
    if parts[4]:
        extents.insert(0, _number(parts[5], values))
        strides.insert(0, values[parts[4]] * itemsize)
    return pointer, uses.of_view(device, pointer, tuple(extents), tuple(strides), _Sized(itemsize))


class _Sized:
    """Stands in for a dtype of which only the size is known."""

    def __init__(self, itemsize: int) -> None:
        self.itemsize = itemsize

    def __str__(self) -> str:
        return f"{self.itemsize}-byte elements"


def _number(text: str, values: dict[str, int]) -> int:
    return int(text) if text.isdigit() else values[text]


def _device() -> int:
    from cupy.cuda.device import get_device_id

    return int(get_device_id())


def _bound(names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names that the table has for the parameters."""
    values = dict(zip(names, args, strict=False))
    values.update((table.NAMES.get(name, name), value) for name, value in kwargs.items())
    return values


def _pointers(values: Iterable[Any]) -> list[uses.Touch]:
    """What the numbers that are addresses in blocks may lead to: possible accesses."""
    found = []
    for value in values:
        if isinstance(value, int) and value > _SMALL:
            block = memory.block_at(value)
            if block is not None:
                device, start, size = block
                found.append(uses.of_bytes(device, value, start + size - value, certain=False))
    return found


_SMALL = 1 << 16
"""No address of memory is that small a number."""


_KNOWN = 256
_UNKNOWN: tuple[int, list[uses.Touch], list[uses.Touch]] = (-1, [], [])


def _raw(call: Call, letter: str, name: str) -> Callable[[Wrapped], Wrapped]:
    names = call.parameters.split()
    reads, writes = call.reads.split(), call.writes.split()
    itemsize = _LETTER.get(letter, 4)
    asked = {each for text in (*reads, *writes) for each in re.split("[:,/#]", text)}
    key_of = itemgetter(*(place for place, each in enumerate(names) if each in asked))
    known: dict[Any, tuple[int, list[uses.Touch], list[uses.Touch]]] = {}
    """By the arguments that operands depend on: the state of the blocks when they were found, and they."""

    def make(original: Wrapped) -> Wrapped:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            monitor = state.monitor
            if monitor is None:
                return original(*args, **kwargs)
            key = key_of(args) if len(args) == len(names) else None
            changes, read, written = known.get(key, _UNKNOWN)
            if key is None or changes != device_blocks.changes:
                values = _bound(names, args, kwargs)
                try:
                    read, written = (
                        [
                            found[1]
                            for text in operands
                            if (found := _operand(text, values, itemsize)) is not None
                        ]
                        for operands in (reads, writes)
                    )
                except (KeyError, TypeError):  # a keyword that the table does not have
                    read, written = [], _pointers(values.values())
                if key is not None:
                    if len(known) >= _KNOWN:
                        known.clear()
                    known[key] = device_blocks.changes, read, written
            queue = timeline(monitor)
            with order_lock(queue):
                monitor.access(queue, read, written, name)
                return original(*args, **kwargs)

        return called

    return make


def _typed(name: str) -> list[tuple[str, str]]:
    """The (name, type letter) pairs that a name with ``{t}`` stands for."""
    letters = "sdcz" if "{t}" in name else name[:1]
    return [(name.replace("{t}", letter), letter) for letter in letters]


def _patch_calls(patches: Patches, module: ModuleType, calls: Sequence[Call], library: str) -> None:
    for call in calls:
        for name, letter in _typed(call.last):
            patches.wrap(module, name, _raw(call, letter, f"{library} {name}"))


def _patch_solver(patches: Patches, module: ModuleType) -> None:
    """cuSOLVER: every pointer into a block is written, except the operands that the table lists as read."""
    others = {
        name
        for name in dir(module)
        if re.match(table.CUSOLVER_COMPUTES, name) and callable(getattr(module, name))
    }
    for call in table.CUSOLVER:
        for name, _ in _typed(call.last):
            others.discard(name)
            patches.wrap(module, name, _solver(name, call.parameters.split(), frozenset(call.reads.split())))
    for name in others:
        patches.wrap(module, name, _solver(name, [], frozenset()))


def _solver(name: str, parameters: list[str], read: frozenset[str]) -> Callable[[Wrapped], Wrapped]:
    def make(original: Wrapped) -> Wrapped:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            monitor = state.monitor
            if monitor is None:
                return original(*args, **kwargs)
            reads: list[uses.Touch] = []
            writes: list[uses.Touch] = []
            names = [*parameters, *(f"argument {place}" for place in range(len(parameters), len(args)))]
            for parameter, argument in _bound(names, args, kwargs).items():
                if parameter != "h" and isinstance(argument, int) and argument > _SMALL:
                    (reads if parameter in read else writes).extend(_block_from(argument))
            if not (reads or writes):
                return original(*args, **kwargs)
            queue = timeline(monitor)
            with order_lock(queue):
                monitor.access(queue, reads, writes, f"cuSOLVER {name}")
                return original(*args, **kwargs)

        return called

    return make


def _patch_sorts(patches: Patches, thrust: ModuleType) -> None:
    """thrust: the arguments are the element type, the addresses and the shape."""

    def sized(pointer: int, dtype: Any, count: int) -> uses.Touch | None:
        return uses.of_bytes(_device(), pointer, count * numpy.dtype(dtype).itemsize) if pointer else None

    def tell(name: str, reads: Iterable[uses.Touch | None], writes: Iterable[uses.Touch | None]) -> None:
        monitor = state.monitor
        if monitor is not None:
            monitor.access(timeline(monitor), [r for r in reads if r], [w for w in writes if w], name)

    def sort(dtype: Any, data: int, keys: int, shape: Any) -> None:
        count = int(numpy.prod(shape, dtype=numpy.int64))
        data_, keys_ = sized(data, dtype, count), sized(keys, "q", count)
        tell("sort", [data_], [data_, keys_])

    def argsort(dtype: Any, index: int, data: int, keys: int, shape: Any) -> None:
        count = int(numpy.prod(shape, dtype=numpy.int64))
        data_ = sized(data, dtype, count)
        tell("argsort", [data_], [sized(index, "q", count), data_, sized(keys, "q", count)])

    def lexsort(dtype: Any, index: int, keys: int, k: int, n: int) -> None:
        tell("lexsort", [sized(keys, dtype, k * n)], [sized(index, "q", n)])

    def made(operands: Callable[..., None]) -> Callable[[Wrapped], Wrapped]:
        def make(original: Wrapped) -> Wrapped:
            @wraps(original)
            def called(*args: Any, **kwargs: Any) -> Any:
                if state.monitor is not None:
                    operands(*args, *kwargs.values())  # in order: nobody but CuPy calls these
                return original(*args, **kwargs)

            return called

        return make

    for name, make in (("sort", sort), ("argsort", argsort), ("lexsort", lexsort)):
        patches.wrap(thrust, name, made(make))


def _patch_nccl(patches: Patches, module: ModuleType) -> None:
    communicator = getattr(module, "NcclCommunicator", None)
    if communicator is None:
        return
    for call in table.NCCL:
        patches.wrap(communicator, call.last, _collective(call))


def _collective(call: Call) -> Callable[[Wrapped], Wrapped]:
    parameters = call.parameters.split()

    def make(original: Wrapped) -> Wrapped:
        @wraps(original)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            monitor = state.monitor
            if monitor is not None:
                values = _bound(parameters, args, kwargs)
                size = values["count"] * _NCCL_TYPES.get(values["type"], 1)

                def touch(text: str) -> list[uses.Touch]:
                    if not text:
                        return []
                    pointer = values[text.rstrip("@")]
                    found = memory.block_at(pointer)
                    whole = size * self.size() if text.endswith("@") else size
                    return [uses.of_bytes(found[0] if found else _device(), pointer, whole)]

                queue = timeline_of_handle(monitor, values[call.on])
                monitor.access(queue, touch(call.reads), touch(call.writes), f"NCCL {call.last}")
            return original(self, *args, **kwargs)

        return called

    return make


# -- operands that are arrays ----------------------------------------------------------------------------------------


_WITHOUT_ARRAYS = frozenset([type(None), int, float, bool, complex, str])
"""Types of usual arguments that hold no array."""


def _arrays(value: Any, depth: int = 0) -> list[Any]:
    """The arrays in an argument: itself, in a sequence, or the parts of a sparse matrix."""
    if isinstance(value, uses.array_type):
        return [value]
    if type(value) in _WITHOUT_ARRAYS:
        return []
    if depth < 2 and isinstance(value, (list, tuple)):
        return [array for part in value for array in _arrays(part, depth + 1)]
    parts = (
        [getattr(value, name, None) for name in ("data", "indices", "indptr", "row", "col")]
        if depth < 2 and hasattr(value, "nnz")
        else []
    )
    return [part for part in parts if isinstance(part, uses.array_type)]


def _among(values: Iterable[Any]) -> list[Any]:
    """The arrays in several arguments."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, uses.array_type):
            found.append(value)
        elif type(value) not in _WITHOUT_ARRAYS:
            found.extend(_arrays(value))
    return found


def _array_function(
    name: str, *, method: bool = False, held: Callable[[Any], list[uses.Touch]] | None = None
) -> Callable[[Wrapped], Wrapped]:
    """A function that reads the arrays it is given and writes ``out`` or its result.

    Args:
        name: as the user calls it.
        method: of an object, which is no array.
        held: what of its own that object writes.
    """

    def make(original: Wrapped) -> Wrapped:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            monitor = state.monitor
            if monitor is None:
                return original(*args, **kwargs)
            inputs = _among(args[1:] if method else args)
            out: list[Any] = []
            if kwargs:
                inputs.extend(_among(kwargs.values()))
                out = _among([kwargs.get(key) for key in ("out", "y", "C")])
            written = {id(array) for array in out}
            writes = [uses.of_array(a) for a in out]
            if held is not None:
                writes.extend(held(args[0]))
            reads = [uses.of_array(a) for a in inputs if id(a) not in written]
            monitor.access(timeline(monitor), reads, writes, name)
            result = original(*args, **kwargs)
            fresh = [a for a in _among((result,)) if id(a) not in written]
            if fresh:
                monitor.access(
                    timeline(monitor), (), [uses.of_array(a) for a in fresh], name, may_raise=False
                )
            return result

        return called

    return make if method else hooks.in_front("array_function", make, name)


def _zero(factor: Any) -> bool:
    return isinstance(factor, (int, float)) and factor == 0


def _patch_tensors(patches: Patches, module: ModuleType) -> None:
    for call in table.CUTENSOR:
        patches.wrap(module, call.last, _tensor_function(call))


def _tensor_function(call: Call) -> Callable[[Wrapped], Wrapped]:
    label = f"cuTENSOR {call.last.removeprefix('_try_').removesuffix('_routine')}"
    parameters, written = call.parameters.split(), call.writes
    operands = [(name, factor) for name, _, factor in (each.partition("?") for each in call.reads.split())]

    def make(original: Wrapped) -> Wrapped:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            monitor = state.monitor
            if monitor is None:
                return original(*args, **kwargs)
            values = {**dict(zip(parameters, args, strict=False)), **kwargs}
            out = _arrays(values.get(written))
            reads = [
                array
                for name, factor in operands
                if not _zero(values.get(factor))
                for array in _arrays(values.get(name))
            ]
            queue = timeline(monitor)
            monitor.access(queue, [uses.of_array(a) for a in reads], [uses.of_array(a) for a in out], label)
            result = original(*args, **kwargs)
            if not out:
                fresh = [uses.of_array(a) for a in _arrays(result)]
                if fresh:
                    monitor.access(queue, (), fresh, label, may_raise=False)
            return result

        return called

    return make


def _patch_arrays(patches: Patches, module: ModuleType, pattern: str) -> None:
    package, _, last = module.__name__.rpartition(".")
    homes = (
        module.__name__,
        f"{package}._{last}",
        None,
    )  # cupyx.cusolver hands on what cupyx._cusolver defines
    for name in dir(module):
        function = getattr(module, name)
        defined = getattr(function, "__module__", module.__name__) in homes
        if re.fullmatch(pattern, name) and callable(function) and not isinstance(function, type) and defined:
            patches.wrap(module, name, _array_function(name))


def _patch_methods(
    patches: Patches,
    module: ModuleType,
    classes: dict[str, str],
    held: Callable[[Any], list[uses.Touch]] | None = None,
) -> None:
    for name, pattern in classes.items():
        owner = getattr(module, name, None)
        if owner is None:
            continue
        for method in list(vars(owner)):
            if re.fullmatch(pattern, method) and callable(getattr(owner, method)):
                patches.wrap(owner, method, _array_function(method, method=True, held=held))


def _patch_fft(patches: Patches, cufft: ModuleType) -> None:
    def make(original: Wrapped) -> Wrapped:
        def fft(self: Any, a: Any, out: Any, direction: Any) -> Any:
            monitor = state.monitor
            if monitor is None:
                return original(self, a, out, direction)
            reads, writes = ([uses.of_array(x) for x in _arrays(each)] for each in (a, out))
            queue = timeline(monitor)
            with order_lock(queue):
                monitor.access(queue, reads, writes, "fft")
                return original(self, a, out, direction)

        return fft

    for name in ("Plan1d", "PlanNd"):
        plan = getattr(cufft, name, None)
        if plan is not None:
            patches.wrap(plan, "fft", make)


def _drawn_from(bits: Any) -> list[uses.Touch]:
    """The state of a bit generator, which every draw moves on."""
    pointer = getattr(bits, "state", None)
    return _block_from(pointer()) if callable(pointer) else []


def _block_from(address: int) -> list[uses.Touch]:
    """What of a block of this session lies at an address and behind it."""
    found = memory.block_at(address)
    if found is None:
        return []
    device, start, size = found
    return [uses.of_bytes(device, address, start + size - address)]


def _patch_generators(patches: Patches, module: ModuleType) -> None:
    """cuRAND's device generators: their methods, and the kernel that makes a bit generator's state."""
    _patch_methods(patches, module, table.GENERATORS, lambda generator: _drawn_from(generator.bit_generator))

    def init_curand(original: Wrapped) -> Wrapped:
        def init_curand(generator: Any, state_pointer: int, *args: Any) -> Any:
            monitor = state.monitor
            if monitor is not None:
                monitor.access(timeline(monitor), (), _block_from(state_pointer), "cuRAND init")
            return original(generator, state_pointer, *args)

        return init_curand

    def random_raw(original: Wrapped) -> Wrapped:
        def random_raw(generator: Any, out: Any) -> Any:
            monitor = state.monitor
            if monitor is not None:
                touched = [uses.of_array(out), *_drawn_from(generator)]
                monitor.access(timeline(monitor), (), touched, "random_raw")
            return original(generator, out)

        return random_raw

    patches.wrap(module, "init_curand", init_curand)
    patches.wrap(module, "random_raw", random_raw)


def _patch_textures(patches: Patches, texture: ModuleType) -> None:
    def copy_from(original: Wrapped) -> Wrapped:
        def copy_from(self: Any, in_arr: Any, stream: Any = None) -> Any:
            monitor = state.monitor
            if monitor is not None and isinstance(in_arr, uses.array_type):
                monitor.access(
                    timeline(monitor, stream), [uses.of_array(in_arr)], [uses.of_texels(self)], "copy_from"
                )
            return original(self, in_arr, stream)

        return copy_from

    def copy_to(original: Wrapped) -> Wrapped:
        def copy_to(self: Any, out_arr: Any, stream: Any = None) -> Any:
            monitor = state.monitor
            if monitor is not None and isinstance(out_arr, uses.array_type):
                monitor.access(
                    timeline(monitor, stream), [uses.of_texels(self)], [uses.of_array(out_arr)], "copy_to"
                )
            return original(self, out_arr, stream)

        return copy_to

    patches.wrap(texture.CUDAarray, "copy_from", copy_from)
    patches.wrap(texture.CUDAarray, "copy_to", copy_to)


# -- modules, now or when they are imported --------------------------------------------------------------------------


def _calls(calls: Sequence[Call], library: str) -> Patch:
    return lambda patches, module: _patch_calls(patches, module, calls, library)


def _functions(pattern: str) -> Patch:
    return lambda patches, module: _patch_arrays(patches, module, pattern)


_MODULES: dict[str, Patch] = {
    "cupy_backends.cuda.libs.cublas": _calls(table.CUBLAS, "cuBLAS"),
    "cupy_backends.cuda.libs.curand": _calls(table.CURAND, "cuRAND"),
    "cupy_backends.cuda.libs.cusolver": _patch_solver,
    "cupy_backends.cuda.libs.nccl": _patch_nccl,
    "cupy.cuda.cufft": _patch_fft,
    "cupy.cuda.texture": _patch_textures,
    "cupy.cuda.thrust": _patch_sorts,
    **{name: _functions(pattern) for name, pattern in table.ARRAY_FUNCTIONS.items()},
    "cupyx.cutensor": _patch_tensors,
    "cupy.random._generator_api": _patch_generators,
}


def watch(patches: Patches, module: ModuleType) -> None:
    """Patches one library's module."""
    _MODULES[module.__name__](patches, module)


def install(patches: Patches) -> None:
    """Patches the library modules that are loaded, and the others when they are: to load all of them takes seconds."""
    for name, patch in _MODULES.items():
        after_import(name, partial(patch, patches))
