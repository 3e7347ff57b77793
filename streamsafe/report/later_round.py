"""Whether the second of two accesses stands before the first in the source: then it is a later round that makes it."""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache

from streamsafe.order.hazard import Span

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def again(text: str, first: Span, second: Span) -> str:
    """``in the next iteration``, ``in the next call``, or nothing.

    Args:
        text: the source that both spans are in.
        first, second: where the two accesses stand.
    """
    if first.filename != second.filename or (second.row, second.column) > (first.row, first.column):
        return ""
    tree = _parsed(text)
    if tree is None:
        return ""
    around, other = _around(tree, first), _around(tree, second)
    common = [node for node in around if node in other]
    functions = [node for node in common if isinstance(node, _FUNCTIONS)]
    for path in (around, other):  # code of a function inside runs when that function is called
        if [node for node in path if isinstance(node, _FUNCTIONS)] != functions:
            return ""
    if any(isinstance(node, _LOOPS) for node in common[common.index(functions[-1]) if functions else 0 :]):
        return "in the next iteration"
    return "in the next call" if functions else ""


@lru_cache(maxsize=16)
def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _around(tree: ast.AST, span: Span) -> list[ast.AST]:
    """The loops and functions whose bodies a place is in, the outermost first."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        for child in ast.iter_child_nodes(node):
            line, end = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
            if line is None or end is None:
                pending.append(child)
            elif line <= span.row <= end:
                if isinstance(child, (*_LOOPS, *_FUNCTIONS)):
                    found.append(child)
                pending.append(child)
    return found
