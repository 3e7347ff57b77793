"""Python's operators and literals on known values: what they compute, how they compare, which method defines them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import libcst as cst

from streamsafe.static.values import PLAIN, Const, Value, iterate, least

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
