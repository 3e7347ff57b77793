"""What syntax calls on objects of the tree: ``__iter__``, ``__next__``, ``__getitem__``, ``__setitem__``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain.atoms import (
    NONE,
    UNKNOWN,
    Atom,
    New,
    Path,
    Value,
    const,
    ordered,
    tuple_of,
    value,
)
from streamsafe.static.domain.places import EACH
from streamsafe.static.domain.state import State
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import objects
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


def method_of(a: Analysis, held: Value, name: str) -> tuple[Atom, str] | None:
    """The method of a class of the tree that a piece of syntax calls on a value; None where there is none."""
    if len(held) != 1:
        return None
    (atom,) = held
    if not isinstance(atom, New | Path):
        return None
    type = a.type_of(atom)
    if ":" not in type or type not in a.engine.index.classes:
        return None
    fid = a.engine.index.method(type, name)
    return (atom, fid) if fid is not None else None


def invoke(
    a: Analysis, s: State, at: int, dst: ir.Reg, held: Value, name: str, *args: Value
) -> list[State] | None:
    """Call such a method. None where there is none."""
    found = method_of(a, held, name)
    if found is None:
        return None
    from streamsafe.static.summary.instantiate import instantiate

    atom, fid = found
    return instantiate(a, s, at, dst, fid, [value(atom), *args], {})


def iterate(a: Analysis, s: State, at: int, dst: ir.Reg, held: Value) -> list[State] | None:
    """``iter(x)``: what ``__iter__`` returns; a generator's elements, all made at once."""
    if not _iterated(s, held):
        return invoke(a, s, at, dst, held, "__iter__")
    (container,) = held
    states = [s]
    for field in _iterated(s, held):
        after: list[State] = []
        for t in states:
            made = iterate(a, t, at, dst, t.heap[container, field])
            for u in made or ():
                u.heap[container, field] = u.get(dst)
            after += [t] if made is None else made
        states = after
    for t in states:
        t.env[dst] = value(container)
    return states


def advance(a: Analysis, s: State, at: int, dst: ir.Reg, held: Value) -> list[State] | None:
    """``next(x)``: what ``__next__`` returns; of what goes through several at once, a tuple of what each gives."""
    fields = _iterated(s, held)
    if not fields:
        return invoke(a, s, at, dst, held, "__next__")
    (container,) = held
    states = [s]
    for field in fields:
        after: list[State] = []
        for t in states:
            part = t.heap[container, field]
            made = advance(a, t, at, dst, part)
            if made is None:
                t.env[dst] = objects.step_into(a, t, part, EACH)
            for u in [t] if made is None else made:
                u.heap[container, f"{_GIVES}{field}"] = u.get(dst)  # as long as the others give theirs
                after.append(u)
        states = after
    for t in states:
        given = [t.heap.pop((container, f"{_GIVES}{field}"), UNKNOWN) for field in fields]
        form = t.heap.get((container, _FORM))
        if form == _ALONE:
            t.env[dst] = given[0]
        else:
            t.env[dst] = value(tuple_of(UNKNOWN, *given) if form == _NUMBERED else tuple_of(*given))
    return states


_ITERATED: Final = "iterated "
_GIVES: Final = "gives "
_FORM: Final = "form"
_NUMBERED: Final = value(const("enumerate"))
_ALONE: Final = value(const("elements"))


def goes_through(a: Analysis, s: State, container: New, iterated: list[Value], form: str) -> None:
    """``zip(x, y)``, ``enumerate(x)``, ``islice(x, 3)``: each round asks iterators of classes of the tree.

    Args:
        form: the kind of the result: ``zip``, ``enumerate`` or ``elements``.
    """
    methods = ("__iter__", "__next__")
    if any(_iterated(s, held) or any(method_of(a, held, name) for name in methods) for held in iterated):
        for number, held in enumerate(iterated):
            s.heap[container, f"{_ITERATED}{number:02}"] = held
        s.heap[container, _FORM] = value(const(form))


def _iterated(s: State, held: Value) -> list[str]:
    """The fields of what goes through several iterators at once that hold these."""
    if len(held) != 1:
        return []
    (atom,) = held
    fields = s.heap.fields(atom)
    return sorted(field for field in fields if field.startswith(_ITERATED)) if fields else []


@special("next")
def call_next(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``next(iterator)``"""
    return advance(a, s, c.at, c.dst, c.args[0] if c.args else UNKNOWN)


@special("iter")
def call_iter(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``iter(x)``"""
    return iterate(a, s, c.at, c.dst, c.args[0] if c.args else UNKNOWN)


@special("dict_get")
def get(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``d.get(key, default)``: the element under a key, or the default.

    A default of None adds nothing to an element that may be there: where there is none, nothing is under way.
    """
    step = objects.step_of(c.given.get("key", UNKNOWN)) or EACH
    found = objects.step_into(a, s, c.receiver, step)
    default = c.given.get("default", UNKNOWN) - {NONE}
    return found | default if found else found


@special("take_over")
def take(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``queue.get()``: what was put there."""
    found: Value = UNKNOWN
    for atom in ordered(c.receiver):
        if isinstance(atom, New):
            found = found | objects.elements(s, atom)
        else:
            found = found | objects.step_into(a, s, value(atom), EACH)
    return found
