"""What a function does with its names, as far as that tells numbers from tensors."""

from __future__ import annotations

import ast
from functools import lru_cache

NUMBER_FUNCTIONS = frozenset("range int divmod".split())
"""Functions whose arguments are numbers."""
NUMBER_OPERATORS = (ast.FloorDiv, ast.Mod)
"""Operators of numbers, as a rule."""


@lru_cache(maxsize=1024)
def number_names(function: ast.AST) -> frozenset[str]:
    """The names that a function uses as numbers.

    What a range counts to, what picks an element or repeats a list, what is divided without a remainder; and what is
    computed from such a number by an operator, or it from that.
    """
    found: set[str] = set()
    sums: list[set[str]] = []
    for n in ast.walk(function):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in NUMBER_FUNCTIONS:
            found |= {name for a in n.args for name in operands(a)}
        elif isinstance(n, ast.Subscript):
            found |= operands(n.slice)
        elif isinstance(n, ast.BinOp):
            if isinstance(n.op, NUMBER_OPERATORS):
                found |= operands(n) if not isinstance(n.left, ast.Constant) else set()
            elif isinstance(n.op, ast.Mult) and isinstance(n.left, ast.List):
                found |= operands(n.right)
        elif isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name):
            if isinstance(n.value, ast.BinOp) and isinstance(n.value.op, NUMBER_OPERATORS):
                found.add(n.targets[0].id)
            elif isinstance(n.value, ast.BinOp):
                sums.append({n.targets[0].id, *operands(n.value)})
    for names in sums:
        if len(names) > 1 and not found.isdisjoint(names) and len(names - found) == 1:
            found |= names
    return frozenset(found)


def operands(n: ast.AST) -> set[str]:
    """The names that an expression of operators consists of."""
    if isinstance(n, ast.Name):
        return {n.id}
    if isinstance(n, ast.BinOp):
        return operands(n.left) | operands(n.right)
    if isinstance(n, ast.UnaryOp):
        return operands(n.operand)
    if isinstance(n, ast.Slice):
        return {name for part in (n.lower, n.upper) if part is not None for name in operands(part)}
    return set()
