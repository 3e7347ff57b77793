"""Comparisons: when two ask the same, how they come out for numbers between bounds, what follows from one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import libcst as cst

from streamsafe.static import numbers
from streamsafe.static.numbers import Form
from streamsafe.static.values import Name, Number, Value


class Question(NamedTuple):
    """What a comparison asks.

    Args:
        key: equal where the same is asked again.
        names: the objects it is about.
        wanted: false where the comparison asks for the opposite.
        numbers: the two sides as numbers, None for one that is none.
    """

    key: tuple[Any, ...]
    names: tuple[Name, ...]
    wanted: bool
    numbers: tuple[Form | None, Form | None]


def as_form(value: Value, side: Hashable) -> Form | None:
    """A side of a question as a number; of the number of a round, how it is computed."""
    if isinstance(value, Number):
        return value.form
    if isinstance(side, Form):
        return side
    if isinstance(side, Name):
        return numbers.of_atom(side)
    return numbers.number(int(side)) if isinstance(side, str) and side.isdecimal() else None


ASKS: dict[type[cst.BaseCompOp], tuple[str, bool, bool]] = {
    cst.LessThan: ("<", True, False),
    cst.GreaterThanEqual: ("<", False, False),
    cst.GreaterThan: ("<", True, True),
    cst.LessThanEqual: ("<", False, True),
    cst.Equal: ("=", True, False),
    cst.NotEqual: ("=", False, False),
    cst.Is: ("=", True, False),
    cst.IsNot: ("=", False, False),
    cst.In: ("in", True, False),
    cst.NotIn: ("in", False, False),
}
"""What comparisons ask, whether it is that or the opposite, and whether of the operands turned round."""

TURNED: dict[type[cst.BaseCompOp], cst.BaseCompOp] = {
    cst.LessThan: cst.GreaterThan(),
    cst.GreaterThan: cst.LessThan(),
    cst.LessThanEqual: cst.GreaterThanEqual(),
    cst.GreaterThanEqual: cst.LessThanEqual(),
}


def decided(operator: cst.BaseCompOp, number: int, lower: int | None, upper: int | None) -> bool | None:
    """How whatever lies between two bounds compares with a number; None where that is open."""
    word, wanted, turned = ASKS.get(type(operator), ("", True, False))
    if turned:  # asked is whether the number is less
        less = True if lower is not None and number < lower else None
        less = False if upper is not None and upper <= number else less
    else:
        less = True if upper is not None and upper < number else None
        less = False if lower is not None and number <= lower else less
    if word == "=":
        less = (
            False
            if (lower is not None and number < lower) or (upper is not None and upper < number)
            else None
        )
        less = True if number == lower == upper else less
    return None if less is None or word not in ("<", "=") else less is wanted


def count_test(operator: cst.BaseCompOp, number: int) -> tuple[int, bool] | None:
    """``n > 1`` and its like as ``n == number``, or its negation: a count that is asked for is that or more."""
    shift = {cst.GreaterThan: (0, False), cst.GreaterThanEqual: (-1, False)}
    shift |= {cst.LessThanEqual: (0, True), cst.LessThan: (-1, True)}
    found = shift.get(type(operator))
    if found is None or number + found[0] not in (0, 1):
        return None
    return number + found[0], found[1]


def without_implied(true: frozenset[Any], false: frozenset[Any]) -> tuple[frozenset[Any], frozenset[Any]]:
    """A reason, without what it says twice: that an answer is known which follows from the rest of the reason."""
    follow = {
        key
        for key in true
        if type(key) is tuple
        and key[0] == "any of"
        and any(yes <= true - {key} and no <= false for yes, no in key[1])
    }
    return true - follow, false
