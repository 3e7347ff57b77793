"""Python's operators and literals on known values: what they compute, how they compare, which method defines them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, NamedTuple

import libcst as cst

from streamsafe.static import numbers
from streamsafe.static.numbers import Form
from streamsafe.static.values import PLAIN, Const, Name, Number, Value, iterate, least

DIVIDING = (
    cst.Divide,
    cst.DivideAssign,
    cst.FloorDivide,
    cst.FloorDivideAssign,
    cst.Modulo,
    cst.ModuloAssign,
)
"""Operators that divide."""

DUNDER: dict[type[cst.CSTNode], str] = {
    cst.Add: "add",
    cst.AddAssign: "add",
    cst.Subtract: "sub",
    cst.SubtractAssign: "sub",
    cst.Multiply: "mul",
    cst.MultiplyAssign: "mul",
    cst.MatrixMultiply: "matmul",
    cst.MatrixMultiplyAssign: "matmul",
    cst.Divide: "truediv",
    cst.DivideAssign: "truediv",
    cst.BitOr: "or",
    cst.BitAnd: "and",
    cst.LeftShift: "lshift",
    cst.RightShift: "rshift",
}
"""What the method is called that a class defines for an operator."""

COUNTING = (
    cst.BitOr,
    cst.BitOrAssign,
    cst.Modulo,
    cst.ModuloAssign,
    cst.FloorDivide,
    cst.FloorDivideAssign,
    cst.LeftShift,
    cst.RightShift,
)
"""Operators that, where nothing is known of either side, count rather than compute."""


_INTEGER_OPERATORS: dict[type[cst.CSTNode], Callable[[int, int], int]] = {
    cst.Add: lambda a, b: a + b,
    cst.Subtract: lambda a, b: a - b,
    cst.Multiply: lambda a, b: a * b,
    cst.FloorDivide: lambda a, b: a // b,
    cst.Modulo: lambda a, b: a % b,
    cst.LeftShift: lambda a, b: a << b if 0 <= b < 62 else 0,
    cst.BitXor: lambda a, b: a ^ b,
    cst.BitAnd: lambda a, b: a & b,
    # a number that is only counted up would never come to an end
    cst.ModuloAssign: lambda a, b: a % b,
    cst.BitXorAssign: lambda a, b: a ^ b,
    cst.BitAndAssign: lambda a, b: a & b,
}


def computed(operator: cst.BaseBinaryOp | cst.BaseAugOp, left: Value, right: Value) -> Const | None:
    """Whole numbers are computed: they index lists and bound slices."""
    if not (isinstance(left, Const) and isinstance(right, Const)):
        return None
    if type(left.value) is not int or type(right.value) is not int:
        return None
    function = _INTEGER_OPERATORS.get(type(operator))
    try:
        result = function(left.value, right.value) if function is not None else None
    except (ZeroDivisionError, ValueError):
        return None
    return Const(result) if isinstance(result, int) and abs(result) < 1 << 62 else None


@lru_cache(maxsize=4096)
def constant(node: cst.BaseExpression) -> Value:
    """What a literal says; the standard library compiles each to find out."""
    try:
        return Const(node.evaluated_value)  # type: ignore[attr-defined]
    except (ValueError, SyntaxError, AttributeError):
        return PLAIN


def compare(operator: cst.BaseCompOp, left: Any, right: Any) -> bool | None:
    """How a comparison of two known values comes out; None where it is an error, or a membership test."""
    try:
        if isinstance(operator, cst.Equal):
            return bool(left == right)
        if isinstance(operator, cst.NotEqual):
            return bool(left != right)
        if isinstance(operator, cst.Is):
            return left is right
        if isinstance(operator, cst.IsNot):
            return left is not right
        if isinstance(operator, cst.LessThan):
            return bool(left < right)
        if isinstance(operator, cst.GreaterThan):
            return bool(left > right)
        if isinstance(operator, cst.GreaterThanEqual):
            return bool(left >= right)
        if isinstance(operator, cst.LessThanEqual):
            return bool(left <= right)
    except TypeError:
        return None
    return None


def is_positive_sum(left: Value, right: Value) -> bool:
    """Whether a sum is greater than zero."""
    sides = [[least(v) for v in iterate(value)] for value in (left, right)]
    return all(n is not None and n >= 0 for side in sides for n in side) and any(
        all(n is not None and n > 0 for n in side) for side in sides
    )


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


COMPARISONS: dict[type[cst.BaseCompOp], tuple[str, bool, bool]] = {
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
    word, wanted, turned = COMPARISONS.get(type(operator), ("", True, False))
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
