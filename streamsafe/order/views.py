"""Exact overlap of strided views, from addresses alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

FEW_RUNS = 4
"""A view of at most this many contiguous runs is handled as that many ranges."""

WORK_LIMIT = 1 << 18
"""How much an exact comparison of two views may cost (candidate solutions, or runs) before it is given up."""


class View(NamedTuple):
    """Equal runs of bytes at regular distances.

    Attributes:
        start: address of the first run.
        run: bytes of each run.
        dims: (count, distance in bytes) for each level, the widest first; distances are positive.
    """

    start: int
    run: int
    dims: tuple[tuple[int, int], ...]

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.start + self.run + sum((count - 1) * distance for count, distance in self.dims)

    def runs(self) -> Iterator[tuple[int, int]]:
        """All runs as (start, stop), in no particular order."""
        starts = [self.start]
        for count, distance in self.dims:
            starts = [start + i * distance for start in starts for i in range(count)]
        return ((start, start + self.run) for start in starts)

    def size(self) -> int:
        """How many runs there are."""
        number = 1
        for count, _ in self.dims:
            number *= count
        return number


@lru_cache(maxsize=4096)
def normalize(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> View:
    """The bytes of an array whose lowest address is 0, with the fewest and longest runs.

    Broadcast and single-element dimensions vanish, a negative stride is the same bytes as a positive one, and whatever
    is contiguous or overlaps itself becomes part of the run.
    """
    run = itemsize
    dims: list[tuple[int, int]] = []
    for distance, number in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True)):
        if number <= 1 or distance == 0:
            continue
        if not dims and distance <= run:
            run += (number - 1) * distance
        elif dims and distance == dims[-1][0] * dims[-1][1]:
            dims[-1] = (dims[-1][0] * number, dims[-1][1])
        else:
            dims.append((number, distance))
    return View(0, run, tuple(reversed(dims)))


def touches(view: View, start: int, stop: int) -> bool:
    """Whether a view has a byte in ``[start, stop)``."""
    if stop <= start or view.start >= stop or view.stop <= start:
        return False
    if view.start >= start or not view.dims:
        return True
    (number, distance), inner = view.dims[0], view.dims[1:]
    # of the copies that begin before the range only the last ones can reach into it; one that begins inside does touch
    last = (start - view.start) // distance
    if last + 1 < number and view.start + (last + 1) * distance < stop:
        return True
    for index in range(min(last, number - 1), -1, -1):
        copy = View(view.start + index * distance, view.run, inner)
        if copy.stop <= start:
            return False
        if touches(copy, start, stop):
            return True
    return False


def overlap(first: View, second: View, start: int, stop: int) -> bool | None:
    """Whether two views have a byte of ``[start, stop)`` in common; None when that is too much work to tell."""
    start = max(start, first.start, second.start)
    stop = min(stop, first.stop, second.stop)
    if start >= stop:
        return False
    if not first.dims:
        return touches(second, start, stop)
    if not second.dims:
        return touches(first, start, stop)
    if _interleaved(first, second):
        return False
    if start == max(first.start, second.start) and stop == min(first.stop, second.stop):
        shared = _shares_memory(first, second)
        if shared is not None:
            return shared
    return _compare_runs(first, second, start, stop)


def _interleaved(first: View, second: View) -> bool:
    """Whether the innermost distance is the same, all others are multiples of it, and the runs never meet in it."""
    distance = first.dims[-1][1]
    for view in (first, second):
        if any(other % distance for _, other in view.dims):
            return False
    offset = (second.start - first.start) % distance
    return first.run <= offset and offset + second.run <= distance


class _Address:
    """Tells NumPy of memory that it never touches. NumPy takes address 0 for a request to allocate: hence the base."""

    def __init__(self, view: View, base: int) -> None:
        counts = [count for count, _ in view.dims]
        distances = [distance for _, distance in view.dims]
        self.__array_interface__ = {
            "version": 3,
            "data": (view.start - base + 4096, False),
            "typestr": "|u1",
            "shape": (*counts, view.run),
            "strides": (*distances, 1),
        }


def _shares_memory(first: View, second: View) -> bool | None:
    try:
        import numpy
    except ImportError:
        return None
    base = min(first.start, second.start)
    arrays: list[Any] = [numpy.asarray(_Address(view, base)) for view in (first, second)]
    # NumPy 2 keeps it in a namespace of its own
    too_hard: type[Exception] = getattr(numpy, "exceptions", numpy).TooHardError
    shares_memory: Any = numpy.shares_memory  # its annotation knows no limits but two
    try:
        return bool(shares_memory(*arrays, max_work=WORK_LIMIT))
    except too_hard:
        return None


def _compare_runs(first: View, second: View, start: int, stop: int) -> bool | None:
    if first.size() + second.size() > WORK_LIMIT:
        return None
    pieces: list[tuple[int, int, int]] = []
    for which, view in enumerate((first, second)):
        for begin, end in view.runs():
            begin, end = max(begin, start), min(end, stop)
            if begin < end:
                pieces.append((begin, end, which))
    pieces.sort()
    reach = [start, start]
    for begin, end, which in pieces:
        if reach[1 - which] > begin:
            return True
        reach[which] = max(reach[which], end)
    return False
