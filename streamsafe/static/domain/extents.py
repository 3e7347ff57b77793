"""Extents of memory: which part of a buffer a view covers, as far as constants and parameters say.

A extent is an interval of indices for each dimension from the first on. Two accesses to one buffer whose extents are
apart in one dimension touch no common element.
"""

from __future__ import annotations

from typing import Any, Final

from streamsafe.static.domain.atoms import Atom, Const, Path, Value, rank

End = int | Path
"""An end of an interval: a number, or what lies at a path when the function is entered."""

Interval = tuple[End, End | None]
"""From the first index to the one after the last; None: up to the end of the dimension."""

Extent = tuple[Interval | None, ...]
"""An interval for each dimension; None, and each dimension that is not given, is the whole of it."""

WHOLE: Final[Extent] = ()

TURNED: Final[Extent] = (None,)
"""All of a buffer, in another order: ``x.t()``."""


def is_scattered(extent: Extent) -> bool:
    """Whether the elements of a view do not lie one behind the other."""
    if extent == TURNED:
        return True
    *outer, inner = extent or TURNED
    return inner is not None and any(part is None or part[1] != _next(part[0]) for part in outer)


def _next(begin: End) -> End | None:
    return begin + 1 if isinstance(begin, int) else None


def apart(one: Extent, other: Extent) -> bool:
    """Whether two extents of one buffer certainly have no element in common."""
    return any(
        mine is not None and yours is not None and (_ends_before(mine, yours) or _ends_before(yours, mine))
        for mine, yours in zip(one, other, strict=False)
    )


def _ends_before(first: Interval, second: Interval) -> bool:
    end, begin = first[1], second[0]
    return end == begin or (isinstance(end, int) and isinstance(begin, int) and end <= begin)


def lasting(extent: Extent) -> Extent:
    """What of a extent means the same in every call of a function: constant ends."""
    if all(part is None or (_is_number(part[0]) and _is_number(part[1])) for part in extent):
        return extent
    return tuple(
        part if part is None or (_is_number(part[0]) and _is_number(part[1])) else _constant(part)
        for part in extent
    )


def _constant(part: Interval) -> Interval | None:
    begin, end = part
    found: Interval = (begin if isinstance(begin, int) else 0, end if isinstance(end, int) else None)
    return None if found == (0, None) else found


def _is_number(end: End | None) -> bool:
    return not isinstance(end, Path)


def index(held: Value) -> Interval | None:
    """The interval of one index; None where it is not a constant, or counts from the end."""
    number = end_of(held)
    return (number, number + 1) if isinstance(number, int) else None


def end_of(held: Value) -> End | None:
    """An end of a slice; None where it is not known, or counts from the end of the dimension."""
    if len(held) != 1:
        return None
    (atom,) = held
    if isinstance(atom, Path):
        return None if any(step.startswith("[") for step in atom.fields) else atom
    if isinstance(atom, Const) and type(atom.value) is int and atom.value >= 0:
        return atom.value
    return None


def sort_key(extent: Extent) -> tuple[Any, ...]:
    """The same order in every run."""
    return tuple("" if part is None else f"{_text(part[0])}:{_text(part[1])}" for part in extent)


def _text(end: End | None) -> str:
    return rank(end) if isinstance(end, Atom) else str(end)
