"""What the host must know: the bounds of a slice, the size of new memory, a truth, how much a mask selects.

A value of the device is copied to the host for it, and the host waits for the stream (TM-08, TM-10): what waits there
is illegal in a capture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.atoms import (
    HOST,
    TRUE,
    UNKNOWN,
    Atom,
    Const,
    Library,
    New,
    Path,
    Test,
    Value,
    compared,
    const,
    ordered,
    value,
)
from streamsafe.static.domain.guards import IS_CPU, NAMES, QUERY, Literal
from streamsafe.static.domain.places import DEVICE, PAGEABLE, PINNED
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import memory as mem

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis

MASK: Final = "is a mask"
"""The field of memory that holds truth values: indexing with it asks for their number."""


def ask(a: Analysis, s: State, span: Span, held: Value, operation: str, certain: bool = False) -> None:
    """The host needs a value: that of memory of the device it waits for.

    Args:
        certain: whether what is asked for is memory for certain, wherever it lies.
    """
    for buffer in mem.buffers(a, s, held):
        place = mem.place_of(a, s, buffer)
        if place in (PINNED, PAGEABLE):
            mem.touch(a, s, span, buffer, False, HOST, operation)
        elif place == DEVICE:
            a.host_work(s, span, operation)
            mem.host_touch(a, s, span, value(buffer), operation)
        elif isinstance(buffer, Path) and (certain or a.role(buffer) == "tensor"):
            a.host_work(s, span, operation, guard=on_device(buffer))
            mem.touch(a, s, span, buffer, False, s.current, operation, tag.WEAK | tag.IF_DEVICE)


def on_device(buffer: Atom) -> frozenset[Literal]:
    """The guard under which memory at a path lies on the device."""
    return frozenset((Literal(IS_CPU, buffer, None, False),))


def look(a: Analysis, s: State, span: Span, held: Value) -> None:
    """The host looks at a value: only memory of which it is known where it lies is read."""
    for buffer in mem.buffers(a, s, held, 0):
        place = mem.place_of(a, s, buffer)
        if isinstance(buffer, New) and place and (buffer, mem.STRUCTURE) not in s.heap:
            if place == DEVICE:
                a.host_work(s, span, "the host looks at a value of the device")
            mem.host_touch(a, s, span, value(buffer), "bool")


# -- masks ------------------------------------------------------------------------------------------------------------


def mark_mask(s: State, held: Value) -> None:
    """New memory holds truth values."""
    for atom in ordered(held):
        if isinstance(atom, New):
            s.heap[atom, MASK] = value(TRUE)


def is_mask(s: State, held: Value) -> bool:
    """Whether memory holds truth values."""
    return bool(held) and all((atom, MASK) in s.heap for atom in held)


def compares(held: Value, of: Atom | None = None) -> bool:
    """Whether a value is what comparing (with a certain value) gives: an index of arrays is a mask then."""
    return bool(held) and all(
        isinstance(atom, Test)
        and any(isinstance(each, Path) and (of is None or each is of) for each in atom.left | atom.right)
        for atom in held
    )


def is_bool(held: Value) -> bool:
    """Whether a data type is that of truth values."""
    return any(
        (isinstance(atom, Library) and atom.name.rpartition(".")[2] in ("bool", "bool_"))
        or (isinstance(atom, Const) and atom.value in ("bool", "?"))
        for atom in held
    )


def names_device(name: Value, text: Value) -> Value:
    """``"cuda" in device``: whether a device, by its text, is one of the host."""
    if len(name) == 1 and len(text) == 1:
        (what,), (of,) = name, text
        if isinstance(what, Const) and what.value in ("cuda", "cpu") and isinstance(of, Path | Const):
            return value(compared(NAMES, text, name))
    return UNKNOWN


# -- questions ---------------------------------------------------------------------------------------------------------


def question(of: Atom, span: Span) -> Value:
    """Whether a stream or an event is done: where the answer is yes, the host comes after it."""
    return value(compared(QUERY, value(of), value(const(span))))


def answered(a: Analysis, s: State, held: Value) -> None:
    """A stream or an event that was asked is done: the host comes after it."""
    from streamsafe.static.transfer import streams

    for atom in ordered(held):
        if isinstance(atom, Test) and atom.op == QUERY:
            (at,) = atom.right
            assert isinstance(at, Const)
            for each in ordered(atom.left):
                streams.wait(a, s, at.value, HOST, each)


def is_question(atom: Atom) -> bool:
    """Whether an atom is the answer of a stream or an event that was asked."""
    return isinstance(atom, Test) and atom.op == QUERY
