"""Where the line that adds a missing edge goes: an edit for a finding, where one place is certain."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from streamsafe.order.hazard import Span
from streamsafe.static.helps import BEFORE

_INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Insertion:
    """Lines to put before a row (from 1)."""

    row: int
    content: str


def insertion(source: str, line: str, place: Span, other: Span | None) -> Insertion | None:
    """Where a line of code goes that orders two accesses, or None where no place is certain.

    It goes before the statement of ``place``; a line that has to run before a stream becomes current goes before the
    ``with`` that makes it so. Both accesses must stand in one function, in two statements, and every name of the line
    must mean one thing there.

    Args:
        source: the file.
        line: the line of code, as in a finding's help.
        place: where the finding stands.
        other: its other access; None for an operation that is wrong by itself.
    """
    code, _, before = line.partition(BEFORE)
    if "  # " in code:  # what it says is not only code
        return None
    names = _names(code)
    tree = _parse(source)
    if names is None or tree is None or (scope := _scope(tree, place)) is None:
        return None
    if other is None:
        other = Span(place.filename, 0, 0, 0, 0)  # a place that no node holds
    elif place.filename != other.filename or _scope(tree, other) is not scope:
        return None
    statements = [node for node in _statements(scope) if _holds(node, place)]
    if not statements or (_holds(statements[-1], other) and not hasattr(statements[-1], "body")):
        return None
    statement = statements[-1]
    entered = [
        node for node in statements if isinstance(node, ast.With) and any(map(_of_a_stream, node.items))
    ]
    if before:
        entered = [node for node in entered if not _holds(node, other)]
        if not entered:
            return None
        statement = entered[0]
    elif entered and "current_stream()" in code:  # another one is current there than the finding means
        return None
    lines = [f"{line}\n" for line in source.split("\n")]  # not at form feeds, which end no line of Python
    start = lines[statement.lineno - 1]
    indent = start[: len(start) - len(start.lstrip())]
    alone = len(indent.encode()) == statement.col_offset and not start.lstrip().startswith("elif")
    if not alone or isinstance(statement, (ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    if statement.lineno > 1 and lines[statement.lineno - 2].strip() == code.strip():
        return None  # it stands there already, and the access is one of another call
    inner = (node for node in ast.walk(statement) if isinstance(node, _INNER))
    if any(_holds(node, place) and not _holds(node, other) for node in inner):
        return None
    if not names <= _known(tree, scope, statement) or not _attributes(code) <= _made(tree, place):
        return None
    return Insertion(statement.lineno, f"{indent}{code.strip()}\n")


def names_known(source: str, line: str, place: Span) -> bool:
    """Whether every name of a line of code means one thing at a place."""
    names, tree = _names(line), _parse(source)
    scope = _scope(tree, place) if tree is not None else None
    if names is None or tree is None or scope is None or not _attributes(line) <= _made(tree, place):
        return False
    statements = [node for node in _statements(scope) if _holds(node, place)]
    return bool(statements) and names <= _known(tree, scope, statements[-1])


@lru_cache(maxsize=4)
def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=4)
def _definitions(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ...]:
    """Functions and classes of a file, from the outside inwards."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def _names(code: str) -> set[str] | None:
    """The names that a line needs; None when it is a sentence, not a call."""
    try:
        expression = ast.parse(code.strip(), mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(expression, ast.Call):
        return None
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _attributes(code: str) -> set[str]:
    """The attributes of ``self`` that a line needs."""
    return {node.attr for node in _of_self(ast.parse(code.strip()))}


def _made(tree: ast.Module, place: Span) -> set[str]:
    """The attributes that the methods of the class at a place assign."""
    classes = [n for n in _definitions(tree) if isinstance(n, ast.ClassDef) and _holds(n, place)]
    return {
        node.attr for owner in classes[-1:] for node in _of_self(owner) if isinstance(node.ctx, ast.Store)
    }


def _of_self(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node


def _of_a_stream(item: ast.withitem) -> bool:
    """Whether a context may make a stream current: an object, or a call that says so."""
    entered = item.context_expr
    if not isinstance(entered, ast.Call):
        return True
    name = entered.func.attr if isinstance(entered.func, ast.Attribute) else getattr(entered.func, "id", "")
    return "stream" in name.lower() or name.lower() in ("device", "use", "graph")


def _holds(node: ast.AST, span: Span) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return bool(first <= span.row and span.end_row <= last)


def _scope(tree: ast.Module, span: Span) -> Scope | None:
    """The innermost function (or the module) that holds a span; None inside a class body."""
    scope: Scope = tree
    for node in _definitions(tree):
        if not isinstance(node, ast.ClassDef) and _holds(node, span):
            scope = node
    return scope


def _statements(scope: Scope) -> Iterator[ast.stmt]:
    """The statements of a scope, outer ones first, without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            waiting.extend(ast.iter_child_nodes(node))


def _known(tree: ast.Module, scope: Scope, place: ast.stmt) -> set[str]:
    """The names that mean one thing at a statement: parameters, and what the function or the module binds once."""
    module = Counter(name for node in _statements(tree) for name in _bound(node, place))
    if isinstance(scope, ast.Module):
        here = {
            name for node in _statements(tree) if node.lineno < place.lineno for name in _bound(node, place)
        }
        return {name for name in here if module[name] == 1}
    arguments = scope.args
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    inside = Counter(argument.arg for argument in every if argument is not None)
    known = set(inside)
    for node in _statements(scope):
        inside.update(_bound(node, place))
        if node.lineno < place.lineno:
            known.update(_bound(node, place))
    known |= {name for name in module if name not in inside}
    return {name for name in known if inside[name] == 1 or (name not in inside and module[name] == 1)}


def _bound(node: ast.stmt, place: ast.stmt) -> Iterator[str]:
    """The names that a statement binds by itself, and as often as it does; twice where a loop has ended."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    else:
        over = isinstance(node, (ast.For, ast.AsyncFor)) and place not in ast.walk(node)
        for name in _stored(node):
            yield from (name, name) if over else (name,)


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that are assigned in a node's expressions, not in those of its body or of a comprehension."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif isinstance(child, (ast.expr, ast.withitem)) and not isinstance(child, _INNER):
            yield from _stored(child)
