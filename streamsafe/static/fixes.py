"""Where the line that adds a missing edge goes: an edit for a finding, where one place is certain."""

from __future__ import annotations

import ast
from bisect import bisect_right
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
    names = _names(code)
    file = _File.of(source)
    if names is None or file is None:
        return None
    scope = file.scope(place)
    if other is None:
        other = Span(place.filename, 0, 0, 0, 0)  # a place that no node holds
    elif place.filename != other.filename or file.scope(other) is not scope:
        return None
    statements = list(_path(scope, place))
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
    start = file.lines[statement.lineno - 1]
    indent = start[: len(start) - len(start.lstrip())]
    alone = len(indent.encode()) == statement.col_offset and not start.lstrip().startswith("elif")
    if not alone or isinstance(statement, (ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    if statement.lineno > 1 and file.lines[statement.lineno - 2].strip() == code.strip():
        return None  # it stands there already, and the access is one of another call
    inner = (node for node in ast.walk(statement) if isinstance(node, _INNER))
    if any(_holds(node, place) and not _holds(node, other) for node in inner):
        return None
    if not file.knows(names, scope, statement) or not _attributes(code) <= file.assigned(place):
        return None
    return Insertion(statement.lineno, f"{indent}{code.strip()}\n")


def names_known(source: str, line: str, place: Span) -> bool:
    """Whether every name of a line of code means one thing at a place."""
    names, file = _names(line), _File.of(source)
    if names is None or file is None or not _attributes(line) <= file.assigned(place):
        return False
    scope = file.scope(place)
    statements = list(_path(scope, place))
    return bool(statements) and file.knows(names, scope, statements[-1])


class _File:
    """What is asked of one file many times: its lines, who is inside whom, and what the module binds."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.lines = source.split("\n")  # not at form feeds, which end no line of Python
        self.tree = tree
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
        self._definitions = sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
        self._rows = [node.lineno for node in self._definitions]
        self._module: Counter[str] = Counter(
            name for node in _statements(tree) for name in _bound(node, inside=False)
        )
        self._assigned: dict[ast.ClassDef, set[str]] = {}

    @staticmethod
    @lru_cache(maxsize=4)
    def of(source: str) -> _File | None:
        """A file; None where it does not parse."""
        try:
            return _File(source, ast.parse(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def around(self, span: Span) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        """The functions and classes that hold a span, the innermost first."""
        for node in reversed(self._definitions[: bisect_right(self._rows, span.row)]):
            if _holds(node, span):
                yield node
            if node.col_offset == 0:  # what stands before it is beside it
                return

    def scope(self, span: Span) -> Scope:
        """The innermost function (or the module) that holds a span."""
        functions = (node for node in self.around(span) if not isinstance(node, ast.ClassDef))
        return next(functions, self.tree)

    def assigned(self, span: Span) -> set[str]:
        """The attributes of ``self`` that the methods of the class at a span assign."""
        owner = next((node for node in self.around(span) if isinstance(node, ast.ClassDef)), None)
        if owner is None:
            return set()
        if owner not in self._assigned:
            self._assigned[owner] = {node.attr for node in _of_self(owner) if isinstance(node.ctx, ast.Store)}
        return self._assigned[owner]

    def knows(self, names: set[str], scope: Scope, place: ast.stmt) -> bool:
        """Whether names mean one thing at a statement: parameters, and what the function or the module binds once."""
        around = set(_path(scope, Span("", place.lineno, 0, place.lineno, 0)))
        inside: Counter[str] = Counter()
        if not isinstance(scope, ast.Module):
            given = scope.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            inside.update(argument.arg for argument in every if argument is not None)
        known = set(inside)
        for node in _statements(scope):
            bound = [*_bound(node, inside=node in around)]
            inside.update(bound)
            if node.lineno < place.lineno:
                known.update(bound)
        if isinstance(scope, ast.Module):
            return all(name in known and inside[name] == 1 for name in names)
        return all(
            (inside[name] == 1 and name in known) if name in inside else self._module[name] == 1
            for name in names
        )


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


def _path(scope: Scope, span: Span) -> Iterator[ast.stmt]:
    """The statements of a scope that hold a span, outer ones first; not those of functions and classes inside it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        if hasattr(node, "lineno") and not _holds(node, span):
            continue
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            waiting.extend(ast.iter_child_nodes(node))


def _statements(scope: Scope) -> Iterator[ast.stmt]:
    """The statements of a scope, outer ones first, without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            waiting.extend(ast.iter_child_nodes(node))


def _bound(node: ast.stmt, *, inside: bool) -> Iterator[str]:
    """The names that a statement binds by itself, and as often as it does; twice where a loop has ended.

    Args:
        node: the statement.
        inside: whether the place that is asked about is in it.
    """
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    else:
        over = isinstance(node, (ast.For, ast.AsyncFor)) and not inside
        for name in _stored(node):
            yield from (name, name) if over else (name,)


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that are assigned in a node's expressions, not in those of its body or of a comprehension."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif isinstance(child, (ast.expr, ast.withitem)) and not isinstance(child, _INNER):
            yield from _stored(child)
