"""Where memory lies, and which names of memory may mean the same bytes."""

from __future__ import annotations

from typing import Final, Literal

from streamsafe.static.domain.access import CAPTURED, D2H, ELAPSED, H2D, PARAMETERS, RECORD
from streamsafe.static.domain.atoms import CURRENT, DEFAULT, GRADIENTS, LOST, Atom, New, Path

Place = Literal["device", "pinned", "pageable"]

DEVICE: Final[Place] = "device"
PINNED: Final[Place] = "pinned"
PAGEABLE: Final[Place] = "pageable"


def joined_place(first: str, second: str) -> str:
    """Where memory lies that lies in either place: on the host it is pinned on some path; else it is not known."""
    if first == second:
        return first
    return PINNED if {first, second} == {PINNED, PAGEABLE} else ""


def is_element(field: str) -> bool:
    """Whether a step of a path goes to an element, not to an attribute."""
    return field.startswith("[")


def overlap(first: Atom, second: Atom) -> bool:
    """The same memory: the same atom, or a path and an element of it. Two different constant elements are apart."""
    if first is second:
        return True
    if is_gradient(first) or is_gradient(second):
        return is_gradient(first) and is_gradient(second) and _same_gradients(first, second)
    if isinstance(first, Path) and isinstance(second, Path):
        rest = _below(first.root, first.fields, second.root, second.fields)
        if rest is not None and all(map(is_element, rest)):
            return True
        return _holds_parameter(first, second) or _holds_parameter(second, first)
    return False


MEMBERS: Final = frozenset(("parameters()", "named_parameters()", "buffers()", "named_buffers()"))
"""The steps from a module to all of its memory, that of its parts among it."""

PARAMETER_NAMES: Final = frozenset(("weight", "bias"))
"""The parameters to which the modules of PyTorch give a name."""


def is_of_module(fields: tuple[str, ...]) -> bool:
    """Whether the memory at a path is a parameter or a buffer of a module, as its steps show."""
    return bool(fields) and (fields[-1] in PARAMETER_NAMES or not MEMBERS.isdisjoint(fields))


def _holds_parameter(all_of: Path, one: Path) -> bool:
    """Whether a path is of all the memory of a module, and another is some memory of it or of a part of it."""
    mine = _module(all_of.fields)
    if mine is None or all_of.root != one.root or not is_of_module(one.fields):
        return False
    yours = _module(one.fields)
    if yours is None:
        yours = one.fields[:-1]
    rest = _below(all_of.root, mine, one.root, yours)
    return rest is not None and len(mine) <= len(yours)


def _module(fields: tuple[str, ...]) -> tuple[str, ...] | None:
    """The fields of the module of which a path is all memory."""
    for number, step in enumerate(fields):
        if step in MEMBERS:
            return fields[:number]
    return None


def _below(
    root: str, fields: tuple[str, ...], other_root: str, other: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The steps from the shorter of two paths to the longer one; None where neither lies below the other."""
    if root != other_root:
        return None
    short, long = (fields, other) if len(fields) <= len(other) else (other, fields)
    for mine, yours in zip(short, long, strict=False):
        if mine != yours and not (is_element(mine) and is_element(yours) and _any(mine, yours)):
            return None
    return long[len(short) :]


def _any(mine: str, yours: str) -> bool:
    """Whether two different steps may be to one element."""
    both = {mine, yours}
    return SOME in both or (EACH in both) is not (PAST in both)


def _same_gradients(first: Atom, second: Atom) -> bool:
    """Whether two gradients may be one. Those of two modules are apart unless one module is a part of the other."""
    if not isinstance(first, Path) or not isinstance(second, Path):
        return True
    mine, yours = module_of(first), module_of(second)
    if mine is not None and yours is not None:
        return _below(first.root, mine, second.root, yours) is not None
    if mine is not None or yours is not None:
        return True  # a tensor that a name or a list holds may be a parameter of any module
    rest = _below(first.root, first.fields[:-1], second.root, second.fields[:-1])
    return rest is not None and all(map(is_element, rest))


def module_of(gradient: Path) -> tuple[str, ...] | None:
    """The fields of the module of which a gradient is one: ``self.net`` of ``self.net.parameters()[each].grad``."""
    for number, step in enumerate(gradient.fields):
        if step.endswith("()"):
            return gradient.fields[:number]
    return None


EACH: Final = "[each]"
"""The step of a path to any element; in a loop, to the element of this round."""

PAST: Final = "[past]"
"""The step to an element of the rounds before, in a loop."""

SOME: Final = "[some]"
"""The step to an element that was touched before a loop: it may be any of the loop's."""


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

    What a capture records meets only what it records, on the device; the host meets only the copies that it does not
    wait for; and the record of an event only who asks for its time.
    """
    if first & PARAMETERS or (first ^ second) & CAPTURED or (second_is_host and first & CAPTURED):
        return False
    if (first | second) & RECORD:
        return bool(first & RECORD and second & ELAPSED)
    return not second_is_host or bool(first & (D2H | H2D | RECORD))


def _made_by_one_call(first: Atom, second: Atom) -> bool:
    """Whether one call of a helper gives both, in two rounds: it may well make the stream on first use only."""
    return (
        isinstance(first, New)
        and isinstance(second, New)
        and bool(first.calls)
        and first.key[1:-1] == second.key[1:-1]
    )


def same_queue(first: Atom, second: Atom) -> bool:
    """One FIFO, or ordered by the legacy default stream's barrier. A stream that is lost conflicts with nothing."""
    if first is second or first is LOST or second is LOST or _made_by_one_call(first, second):
        return True
    if first is CURRENT or first is DEFAULT:
        return is_blocking(second)
    if second is CURRENT or second is DEFAULT:
        return is_blocking(first)
    return False
