"""Guards: the literals under which something happens, over access paths and flags.

A literal says of one atom that something holds or does not. Literals name atoms, not spellings: ``if self.stream:`` and
``if self.stream is not None:`` give the same literal when the values are the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple

from streamsafe.static.domain import counts
from streamsafe.static.domain.atoms import (
    CAPTURING,
    DEFAULT,
    LOST,
    MADE,
    Atom,
    Bound,
    Capture,
    Class,
    Const,
    Context,
    Function,
    Library,
    New,
    Partial,
    Path,
    Symbol,
    Test,
    Tuple,
    Value,
    const,
    ordered,
    path,
    rank,
)

IS_NONE: Final = "is none"
IS_TRUE: Final = "is true"
EQUALS: Final = "equals"
IS_INSTANCE: Final = "is instance"
IS_CPU: Final = "is cpu"
QUERY: Final = "query"
"""The operation of a test whose outcome the device gives, each time anew: whether a stream or an event is done."""


NAMES: Final = "names"
"""The operation of a test whether the text of a device names a kind of devices: ``"cuda" in device``."""


class Literal(NamedTuple):
    """``kind`` holds of ``atom`` (compared with ``other``) or not, as ``truth`` says."""

    kind: str
    atom: Atom
    other: Hashable
    truth: bool

    def negated(self) -> Literal:
        """The opposite."""
        return Literal(self.kind, self.atom, self.other, not self.truth)


Guard = frozenset[Literal]
ALWAYS: Final[Guard] = frozenset()


def contradicts(first: Guard, second: Guard) -> bool:
    """Whether the two cannot hold at once."""
    if not first or not second:
        return False
    if len(first) > len(second):
        first, second = second, first
    return any(literal.negated() in second or _excluded(literal, second) for literal in first)


def _excluded(literal: Literal, guard: Guard) -> bool:
    """One value equals no two constants."""
    return (
        literal.kind == EQUALS
        and literal.truth
        and any(
            other.kind == EQUALS
            and other.truth
            and other.atom is literal.atom
            and other.other != literal.other
            for other in guard
        )
    )


def joined(first: Guard, second: Guard) -> Guard:
    """What holds on either side."""
    return first if first is second else first & second


def without(guard: Guard, atom: Atom) -> Guard:
    """The guard after a store to an access path: nothing is known of it, nor of what lies below."""
    if not guard or not isinstance(atom, Path):
        return guard
    depth = len(atom.fields)
    return frozenset(
        literal
        for literal in guard
        if not any(
            isinstance(each, Path) and each.root == atom.root and each.fields[:depth] == atom.fields
            for each in _mentioned(literal.atom)
        )
    )


def _mentioned(atom: Atom) -> Iterable[Atom]:
    if isinstance(atom, Test):
        for side in (atom.left, atom.right):
            for each in side:
                yield from _mentioned(each)
    else:
        yield atom


def comparable(atom: Test) -> bool:
    """Whether both sides of a comparison are one thing each that stays what it is."""
    return atom.op != QUERY and all(
        len(side) == 1 and all(isinstance(each, Path | Const | Test) for each in side)
        for side in (atom.left, atom.right)
    )


SELF_PATH: Final = path("self")

CHANGING: Final[set[str]] = set()
"""Types whose truth is in what they hold: tensors and containers; the models fill it."""

_NEVER_NONE: Final = (New, Context, Capture, Function, Partial, Class, Tuple, Library)


def decided(kind: str, other: Hashable, atom: Atom) -> bool | None:
    """Whether something holds of an atom, where that can be told."""
    if isinstance(atom, Const):
        if kind == IS_NONE:
            return atom.value is None
        if kind == IS_TRUE:
            return bool(atom.value)
        if kind == EQUALS:
            return bool(atom.value == other)
        if kind == IS_CPU:
            return isinstance(atom.value, str) and atom.value.partition(":")[0] == "cpu"
        return None
    if isinstance(atom, Test):
        return _outcome(atom) if kind == IS_TRUE else False if kind == IS_NONE else None
    if kind == EQUALS and type(other) is int and counts.is_above(atom):
        return counts.counts("==", frozenset((atom,)), frozenset((const(other),)))
    if kind == IS_NONE:
        if isinstance(atom, _NEVER_NONE):
            return None if isinstance(atom, Library) and atom.name.endswith(MADE) else False
        if isinstance(atom, Symbol) and atom is not CAPTURING:
            return False
        return False if isinstance(atom, Bound) and bool(atom.owner) and atom.name.startswith("__") else None
    if kind == IS_TRUE:
        if isinstance(atom, New) and atom.kind not in CHANGING:
            return True
        if isinstance(atom, Function | Class | Context) or atom is DEFAULT or counts.is_true(atom):
            return True
    return None


def _outcome(atom: Test) -> bool | None:
    """What a comparison of two constants gives."""
    compare = _COMPARED.get(atom.op)
    if compare is None or len(atom.left) != 1 or len(atom.right) != 1:
        return None
    (left,), (right,) = atom.left, atom.right
    if not isinstance(left, Const) or not isinstance(right, Const):
        return None
    try:
        return bool(compare(left.value, right.value))
    except TypeError:
        return None


_COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def literal_of(kind: str, atom: Atom, other: Hashable, truth: bool) -> Literal | None:
    """The literal that a test of one atom stands for; None where none is kept.

    A path that is tested for its truth is taken to be an object: it is true exactly when it is not None.
    """
    if atom is CAPTURING:
        return Literal(IS_TRUE, atom, None, truth) if kind == IS_TRUE else None
    if isinstance(atom, Test):
        return Literal(IS_TRUE, atom, None, truth) if kind == IS_TRUE and comparable(atom) else None
    if not isinstance(atom, Path):
        return None
    if kind == IS_TRUE:
        return Literal(IS_NONE, atom, None, not truth)
    if kind == IS_NONE:
        return Literal(IS_NONE, atom, None, truth)
    return Literal(kind, atom, other, truth)


def asks_for_host(kind: str, atom: Atom, other: Hashable) -> tuple[Atom, bool] | None:
    """Of what a test asks whether it is the host, or lies there: ``x.is_cuda``, ``device.type == "cpu"``.

    Returns:
        The memory or the device, and whether it is the host where the test holds; None where that is not asked.
    """
    if isinstance(atom, Test):
        if (
            kind != IS_TRUE
            or atom.op not in ("==", "!=", NAMES)
            or len(atom.left) != 1
            or len(atom.right) != 1
        ):
            return None
        (left,), (right,) = atom.left, atom.right
        if not isinstance(right, Const):
            return None
        if atom.op == NAMES and isinstance(left, Path) and isinstance(right.value, str):
            found = asks_for_host(EQUALS, left, right.value)
            return found or (left, right.value == "cpu")
        found = asks_for_host(EQUALS, left, right.value)
        return found if found is None or atom.op == "==" else (found[0], not found[1])
    owner, last = _attribute(atom)
    if kind == IS_TRUE and last in ("is_cuda", "is_cpu") and owner is not None:
        return owner, last == "is_cpu"
    if kind == EQUALS and isinstance(other, str) and other.partition(":")[0] in ("cuda", "cpu"):
        if last == "type" and owner is not None:
            atom = owner
            owner, last = _attribute(atom)
        if last == "device" and owner is not None:
            atom = device_of(atom)
        if isinstance(atom, New | Path) or (isinstance(atom, Const) and atom.type == "str"):
            return atom, other.partition(":")[0] == "cpu"
    return None


def device_of(atom: Atom) -> Atom:
    """What a literal calls a device: ``x.device`` is where ``x`` lies; what ``self`` keeps as its own is a device."""
    owner, last = _attribute(atom)
    if last != "device" or owner is None or (isinstance(owner, Path) and owner == SELF_PATH):
        return atom
    return owner


def _attribute(atom: Atom) -> tuple[Atom | None, str]:
    """The object and the name of an attribute."""
    if isinstance(atom, Path) and atom.fields:
        return path(atom.root, *atom.fields[:-1]), atom.fields[-1]
    if isinstance(atom, Bound) and len(atom.owner) == 1:
        return next(iter(atom.owner)), atom.name
    return None, ""


def _decided_at_call(literal: Literal, atom: Atom) -> bool | None:
    """As :func:`decided`; a path that was tested for its truth, as ``is None``, may turn out to be a false constant."""
    if literal.kind == IS_NONE and isinstance(atom, Const) and isinstance(atom.value, bool):
        return not atom.value
    return decided(literal.kind, literal.other, atom)


def renamed(
    guard: Guard,
    rename: Callable[[Atom], Value],
    capturing: bool | None,
    is_instance: Callable[[Atom, Hashable], bool | None] | None = None,
    on_host: Callable[[Atom], bool | None] | None = None,
) -> Guard | None:
    """A callee's guard in the caller's names.

    Args:
        is_instance: whether an atom is an instance of the classes that a literal names.
        on_host: whether memory lies on the host, where that is known.
        rename: what an atom of the callee is for the caller.
        capturing: whether the caller is in a capture; None where that is not known.

    Returns:
        The literals that the caller does not decide, or None when they contradict what the caller knows.
    """
    if not guard:
        return ALWAYS
    found: set[Literal] = set()
    for literal in guard:
        if literal.atom is CAPTURING:
            if capturing is not None and capturing is not literal.truth:
                return None
            if capturing is None:
                found.add(literal)
            continue
        values = rename(literal.atom)
        if not values:
            found |= _undecided(literal)
            continue
        if literal.kind == IS_INSTANCE and is_instance is not None:
            verdicts = {is_instance(atom, literal.other) for atom in values}
        elif literal.kind == IS_CPU and on_host is not None:
            verdicts = {_first(decided(IS_CPU, None, atom), on_host(atom)) for atom in values}
        else:
            verdicts = {_decided_at_call(literal, atom) for atom in values}
        if None not in verdicts and literal.truth not in verdicts:
            return None
        if literal.kind == IS_CPU and verdicts == {literal.truth}:
            continue  # where the memory lies is known
        if len(values) == 1:
            (atom,) = values
            if isinstance(atom, Path) or atom is CAPTURING or (isinstance(atom, Test) and comparable(atom)):
                found.add(Literal(literal.kind, atom, literal.other, literal.truth))
                continue
        if None in verdicts:
            found |= _undecided(literal)
    return frozenset(found)


def settled(guard: Guard, rename: Callable[[Atom], Value]) -> bool:
    """Whether a caller decides all literals of a callee's guard."""
    return all(
        {_decided_at_call(literal, atom) for atom in rename(literal.atom)} == {literal.truth}
        for literal in guard
    )


def _undecided(literal: Literal) -> Guard:
    """What stays of a literal about something that has no name here: that some device is taken to be the host."""
    return frozenset((literal._replace(atom=LOST),)) if literal.kind == IS_CPU and literal.truth else ALWAYS


def _first(one: bool | None, other: bool | None) -> bool | None:
    return other if one is None else one


def describe(guard: Guard) -> str:
    """A guard in words, for ``--explain-line``."""
    atoms = ordered({literal.atom for literal in guard})
    parts = []
    for atom in atoms:
        for literal in sorted((each for each in guard if each.atom is atom), key=repr):
            verb = "" if literal.truth else "not "
            parts.append(f"{verb}{literal.kind} {atom}")
    return " and ".join(parts)


def sort_key(guard: Guard) -> list[tuple[str, str, str, bool]]:
    """The same order of guards in every run."""
    return sorted((each.kind, rank(each.atom), str(each.other), each.truth) for each in guard)
