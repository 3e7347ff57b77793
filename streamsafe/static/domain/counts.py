"""Counts of rounds: the number of the first round, and some number above it in all others."""

from __future__ import annotations

from typing import Final

from streamsafe.static.domain.atoms import Atom, Const, Symbol, Value, symbol

ABOVE: Final = "above "
"""How the name of a number begins that is above one that is known."""


def above(number: int) -> Symbol:
    """Some number above one that is known."""
    return symbol(f"{ABOVE}{number}")


def counts(op: str, left: Value, right: Value) -> bool | None:
    """What a comparison of a count with a constant says; None where that is not known."""
    if len(left) != 1 or len(right) != 1:
        return None
    (count,), (other,) = left, right
    if not isinstance(other, Const) or type(other.value) is not int:
        return None
    to = other.value
    if isinstance(count, Const) and type(count.value) is int:
        n = count.value
        return {">": n > to, ">=": n >= to, "==": n == to, "!=": n != to, "<": n < to, "<=": n <= to}.get(op)
    if isinstance(count, Symbol) and count.name.startswith(ABOVE):
        least = int(count.name[len(ABOVE) :]) + 1
        if least > to:
            return {">": True, ">=": True, "==": False, "!=": True, "<": False, "<=": False}.get(op)
        if least == to:
            return {">=": True, "<": False}.get(op)
    return None


def is_above(atom: Atom) -> bool:
    """Whether an atom is a number of which a lower bound is known."""
    return isinstance(atom, Symbol) and atom.name.startswith(ABOVE)


def plus(count: Atom, step: Value, from_zero: bool) -> Symbol | None:
    """A count after a step up; None of what is no count. ``from_zero``: it is one that begins at zero, or above."""
    if len(step) != 1:
        return None
    (by,) = step
    if not isinstance(by, Const) or type(by.value) is not int or by.value < 1:
        return None
    if isinstance(count, Const) and type(count.value) is int:
        return above(count.value)
    if is_above(count):
        return count  # type: ignore[return-value]
    return above(0) if from_zero else None


def is_true(atom: Atom) -> bool:
    """Whether an atom is a number above zero."""
    return isinstance(atom, Symbol) and atom.name.startswith(ABOVE) and int(atom.name[len(ABOVE) :]) >= 0
