"""Where memory lies, and which names of memory may mean the same bytes."""

from __future__ import annotations

from typing import Final, Literal

from streamsafe.static.domain.access import CAPTURED, D2H, ELAPSED, H2D, RECORD
from streamsafe.static.domain.atoms import CURRENT, DEFAULT, GRADIENTS, LOST, Atom, New, Path

Place = Literal["device", "pinned", "pageable"]

DEVICE: Final[Place] = "device"
PINNED: Final[Place] = "pinned"
PAGEABLE: Final[Place] = "pageable"


def is_element(field: str) -> bool:
    """Whether a step of a path goes to an element, not to an attribute."""
    return field.startswith("[")


def overlap(first: Atom, second: Atom) -> bool:
    """The same memory: the same atom, or a path and an element of it. Two different constant elements are apart."""
    if first is second:
        return True
    if first is GRADIENTS or second is GRADIENTS:
        return is_gradient(first) and is_gradient(second)
    if isinstance(first, Path) and isinstance(second, Path):
        if first.root != second.root:
            return False
        short, long = first.fields, second.fields
        if len(short) > len(long):
            short, long = long, short
        for mine, yours in zip(short, long, strict=False):
            if mine != yours and not (is_element(mine) and is_element(yours) and EACH in (mine, yours)):
                return False
        return all(map(is_element, long[len(short) :]))
    return False


EACH: Final = "[each]"
"""The step of a path to any element."""


def is_gradient(atom: Atom) -> bool:
    """Whether an atom is a gradient: that of a path, or all of them."""
    return atom is GRADIENTS or (isinstance(atom, Path) and atom.fields[-1:] == ("grad",))


def is_blocking(stream: Atom) -> bool:
    """Whether the legacy default stream and this one wait for each other."""
    return isinstance(stream, New) and stream.kind in BLOCKING


BLOCKING: Final[set[str]] = {"cupy.cuda.Stream"}
"""Types of streams that are blocking; the models add theirs."""


def can_meet(first: int, second: int, second_is_host: bool) -> bool:
    """Whether two accesses with these tags can be a pair at all.

    What a capture records meets only what it records; the host meets only the copies that it does not wait for; and
    the record of an event only who asks for its time.
    """
    if (first ^ second) & CAPTURED:
        return False
    if (first | second) & RECORD:
        return bool(first & RECORD and second & ELAPSED)
    return not second_is_host or bool(first & (D2H | H2D | RECORD))


def same_queue(first: Atom, second: Atom) -> bool:
    """One FIFO, or ordered by the legacy default stream's barrier. A stream that is lost conflicts with nothing."""
    if first is second or first is LOST or second is LOST:
        return True
    if first is CURRENT or first is DEFAULT:
        return is_blocking(second)
    if second is CURRENT or second is DEFAULT:
        return is_blocking(first)
    return False
