"""What an array, a pointer or a number touches, as the engine wants it: plain tuples laid out like ``Use``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import cupy
from cupy.cuda.memory import MemoryPointer, PooledMemory

from streamsafe.kernels.elements import Span
from streamsafe.order.memory import HOST
from streamsafe.runtime.blocks import pinned_blocks

Touch: TypeAlias = tuple[Any, ...]
"""A tuple laid out like :class:`streamsafe.order.memory.Use`."""

array_type: Any = cupy.ndarray.__mro__[1]
"""CuPy's array base class, which all its arrays are."""


_LIMIT = 8192
_contiguous: dict[tuple[int, int, Any, bool], Touch] = {}
_strided: dict[tuple[Any, ...], Touch] = {}
_ranges: dict[tuple[int, int], Touch] = {}
_hosted: dict[tuple[int, int], Touch | None] = {}
latest: dict[int, tuple[int, Any, Touch]] = {}
"""By address: elements, dtype and touch of the contiguous array that :func:`of_array` was last asked for there."""


def _forget() -> None:
    """Which space an address is in has changed."""
    _contiguous.clear()
    latest.clear()
    _strided.clear()
    _ranges.clear()
    _hosted.clear()


pinned_blocks.changed.append(_forget)


def space_of(pointer: Any) -> Any:
    """The address space of a ``MemoryPointer``: its device's, or the host's where it points into pinned memory."""
    if pinned_blocks and pinned_blocks.holding(pointer.ptr) is not None:
        return HOST
    return pointer.device_id


def of_array(array: Any, certain: bool = True) -> Touch:
    """The elements of a ``cupy.ndarray``: its exact bytes, with strides where it is not contiguous."""
    data = array.data
    if array._c_contiguous or array._f_contiguous:
        key = (data.ptr, array.size, array.dtype, certain)
        touch = _contiguous.get(key)
        if touch is None:
            if len(_contiguous) >= _LIMIT:
                _contiguous.clear()
                latest.clear()
            pointer = data.ptr
            region = (space_of(data), pointer, pointer + array.nbytes, array.shape, None, array.itemsize)
            touch = _contiguous[key] = (region, "", str(array.dtype), certain)
        if certain:
            latest[data.ptr] = (array.size, array.dtype, touch)
        return touch
    shape, strides = array.shape, array.strides
    view = (data.ptr, shape, strides, array.dtype, certain)
    found = _strided.get(view)
    if found is None:
        if len(_strided) >= _LIMIT:
            _strided.clear()
        found = _strided[view] = of_view(space_of(data), data.ptr, shape, strides, array.dtype, certain)
    return found


def of_view(
    space: Any,
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Any,
    certain: bool = True,
) -> Touch:
    """The elements of a strided view: pointer of its first element, shape in elements, strides in bytes."""
    itemsize = dtype.itemsize
    if 0 in shape:
        return ((space, pointer, pointer, shape, None, itemsize), "", str(dtype), certain)
    low = high = pointer
    kept_shape: list[int] = []
    kept_strides: list[int] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1 or stride == 0:
            continue
        reach = (extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
        kept_shape.append(extent)
        kept_strides.append(abs(stride))
    region: Touch = (space, low, high + itemsize, tuple(kept_shape), tuple(kept_strides), itemsize)
    if not kept_shape or _fills(kept_shape, kept_strides, itemsize):
        region = (space, low, high + itemsize, shape, None, itemsize)
    return (region, "", str(dtype), certain)


def _fills(shape: list[int], strides: list[int], itemsize: int) -> bool:
    expected = itemsize
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if stride > expected:
            return False
        expected = max(expected, stride * extent)
    return True


def of_bytes(space: Any, pointer: int, size: int, certain: bool = True) -> Touch:
    """``size`` bytes from an address."""
    return ((space, pointer, pointer + size, None, None, 1), "", None, certain)


def of_copied(pointer: Any, size: int) -> Touch:
    """The ``size`` bytes from a ``MemoryPointer`` that a copy moves."""
    key = pointer.ptr, size
    touch = _ranges.get(key)
    if touch is None:
        if len(_ranges) >= _LIMIT:
            _ranges.clear()
        touch = _ranges[key] = of_bytes(space_of(pointer), pointer.ptr, size)
    return touch


def of_hosted(address: int, size: int) -> Touch | None:
    """``size`` bytes of the host's from an address, if they are in a pinned block of the user's."""
    key = address, size
    try:
        return _hosted[key]
    except KeyError:
        if len(_hosted) >= _LIMIT:
            _hosted.clear()
        pinned = pinned_blocks.holding(address) is not None
        touch = _hosted[key] = of_bytes(HOST, address, size) if pinned else None
        return touch


def of_pointer(pointer: Any, size: int | None = None, certain: bool = True) -> Touch:
    """``size`` bytes from a ``MemoryPointer``; to the end of its block when the size is not known."""
    start = pointer.ptr
    if size is None:
        memory = pointer.mem
        size = max(memory.ptr + memory.size - start, 0)
    return of_bytes(space_of(pointer), start, size, certain)


def narrowed(touch: Touch, spans: Sequence[Span], itemsize: int) -> list[Touch]:
    """What a kernel's subscripts leave of what it is given: the elements of ``spans``, of ``itemsize`` bytes each."""
    if not spans:
        return []
    (space, start, stop, _, strides, _), name, dtype, certain = touch
    last = (stop - start) // itemsize - 1
    if strides is not None:
        return [touch]
    parts: list[Touch] = []
    for low, high, step in spans:
        step = max(step, 1)
        if low < 0:
            low += -(low // step) * step
        high = min(high, last)
        if low > high or (low == 0 and high == last and step == 1):
            return [touch]
        count = (high - low) // step + 1
        begin = start + low * itemsize
        end = begin + (count - 1) * step * itemsize + itemsize
        apart = (step * itemsize,) if count > 1 and step > 1 else None
        parts.append(((space, begin, end, (count,), apart, itemsize), name, dtype, certain))
    return parts or [touch]


def of_texels(array: Any) -> Touch:
    """An opaque CUDA array: one byte in an address space of their own stands for all of it."""
    return of_bytes("texture", int(array.ptr), 1)


def of_resource(bound: Any) -> Touch | None:
    """What a texture or surface object is bound to: a CUDA array, or an array in device memory."""
    resource = bound.ResDesc
    if resource.cuArr is not None:
        return of_texels(resource.cuArr)
    return of_array(resource.arr) if isinstance(resource.arr, array_type) else None


def block_of(memory: Any) -> tuple[int, int, int]:
    """(device, address, size) of what a ``MemoryPointer.mem`` is."""
    return memory.device_id, memory.ptr, memory.size


def pooled(memory: Any) -> bool:
    """Whether the memory is a block of a CuPy pool, which can carry attributes."""
    return type(memory) is PooledMemory


__all__ = [
    "MemoryPointer",
    "Touch",
    "array_type",
    "block_of",
    "narrowed",
    "of_array",
    "of_bytes",
    "of_copied",
    "of_hosted",
    "of_pointer",
    "of_resource",
    "of_texels",
    "of_view",
    "pinned_blocks",
    "pooled",
    "space_of",
]
