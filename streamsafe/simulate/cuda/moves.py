"""CuPy's own copies, fills and dtype conversions, by NumPy: ``cupy.full``, ``a[...] = 0``, ``astype``.

They need no compiler, and they carry along which of the elements are known. So they also run where kernels do not
compute, and keep what the program uploaded exact.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy

from streamsafe.simulate.cuda.kernels import Function, View, argument, view
from streamsafe.simulate.cuda.memory import AddressSpace

# A strided target is marked element by element: beyond this many it counts as not computed.
_MOST_ELEMENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Move:
    """One copy or fill.

    Attributes:
        target: elements written.
        source: elements read, or the number that fills.
    """

    target: View
    source: View | Any

    def run(self, memory: AddressSpace) -> None:
        """Move the values, and what is known about them."""
        if not self.target.size:
            return
        runs = _runs(self.target)
        value = self.source
        if isinstance(value, View):
            if memory.unknown(*value.extent):
                for start, end in runs or [_ends(self.target)]:
                    memory.forget(start, end - start)
                return
            value = value.array()
        with numpy.errstate(all="ignore"):
            self.target.array()[...] = value
        if runs is None:
            memory.forget(*self.target.extent)
            return
        for start, end in runs:
            memory.remember(start, end - start)


def read_move(kernel: Function, arguments: int) -> Move | None:
    """Read the arguments of a launch of a copy or fill kernel; None if they are not what such a kernel takes."""
    arrays = [parameter for parameter in kernel.parameters or () if parameter.dtype is not None]
    if not arrays or arrays[-1].reads or not arguments:
        return None
    target = view(arguments, arrays[-1])
    if len(arrays) == 2:
        return Move(target, view(arguments, arrays[0]))
    if kernel.scalar is None:
        return None
    raw = ctypes.string_at(argument(arguments, 0), kernel.scalar.itemsize)
    return Move(target, numpy.frombuffer(raw, kernel.scalar)[0])


def _ends(elements: View) -> tuple[int, int]:
    first, size = elements.extent
    return first, first + size


def _runs(elements: View) -> list[tuple[int, int]] | None:
    """Return the address ranges of the elements, neighbours merged; None when they are too many to tell."""
    first, size = elements.extent
    width = elements.dtype.itemsize if elements.dtype is not None else 0
    if elements.size * width == size:
        return [(first, first + size)]
    if elements.size > _MOST_ELEMENTS:
        return None
    offsets: Any = numpy.zeros((), numpy.intp)
    for extent, stride in zip(elements.shape, elements.strides, strict=True):
        offsets = numpy.add.outer(offsets, numpy.arange(extent) * stride)
    starts = numpy.unique(offsets.ravel()) + elements.pointer
    breaks = numpy.flatnonzero(numpy.diff(starts) != width) + 1
    return [(int(run[0]), int(run[-1]) + width) for run in numpy.split(starts, breaks)]
