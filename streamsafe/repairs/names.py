"""What names mean in a file: which function holds a place, and whether a name of a new line means one thing there."""

from __future__ import annotations

import ast
import builtins
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from streamsafe.findings.baseline import symbol
from streamsafe.order.hazard import Span

INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class File:
    """What is asked of one file many times: its lines, who is inside whom, and what the module binds."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.lines = source.split("\n")  # not at form feeds, which end no line of Python
        self.tree = tree
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
        self._definitions = sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
        self._rows = [node.lineno for node in self._definitions]
        self._module: Counter[str] = Counter(
            name for node in statements(tree) for name in bound_by(node, inside=False)
        )
        self._assigned: dict[ast.ClassDef, set[str]] = {}

    @staticmethod
    @lru_cache(maxsize=4)
    def of(source: str) -> File | None:
        """A file; None where it does not parse."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return File(source, ast.parse(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def around(self, span: Span) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        """The functions and classes that hold a span, the innermost first."""
        for number in reversed(range(bisect_right(self._rows, span.row))):
            node = self._definitions[number]
            if holds(node, span):
                yield node
            if node.col_offset == 0:  # what stands before it is beside it
                return

    def scope(self, span: Span) -> Scope:
        """The innermost function (or the module) that holds a span."""
        functions = (node for node in self.around(span) if not isinstance(node, ast.ClassDef))
        return next(functions, self.tree)

    def owner(self, span: Span) -> ast.ClassDef | None:
        """The innermost class that holds a span."""
        return next((node for node in self.around(span) if isinstance(node, ast.ClassDef)), None)

    def assigned(self, span: Span) -> set[str]:
        """The attributes of ``self`` that the methods of the class at a span assign."""
        owner = self.owner(span)
        if owner is None:
            return set()
        if owner not in self._assigned:
            self._assigned[owner] = {node.attr for node in of_self(owner) if isinstance(node.ctx, ast.Store)}
        return self._assigned[owner]

    def calls_its_own(self, node: ast.stmt) -> bool:
        """Whether an expression of a statement calls what the file defines, by its last name, or what a table holds."""
        defined = {each.name for each in self._definitions}
        parts = (part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.stmt))
        calls = (each.func for part in parts for each in ast.walk(part) if isinstance(each, ast.Call))
        return any(
            not isinstance(func, (ast.Name, ast.Attribute))
            or (func.attr if isinstance(func, ast.Attribute) else func.id) in defined
            for func in calls
        )

    def knows(self, names: set[str], scope: Scope, place: ast.stmt) -> bool:
        """Whether names mean one thing at a statement: parameters, and what a function or the module binds once."""
        around = set(path(scope, Span("", place.lineno, 0, place.lineno, 0)))
        inside: Counter[str] = Counter(parameters(scope))
        known = set(inside)
        for node in statements(scope):
            bound = [*bound_by(node, inside=node in around)]
            inside.update(bound)
            if node.lineno < place.lineno:
                known.update(bound)
        if isinstance(scope, ast.Module):
            return all(name in known and inside[name] == 1 for name in names)
        return all(
            (inside[name] == 1 and name in known) if name in inside else self._outside(name, scope)
            for name in names
        )

    def is_global(self, name: str) -> bool:
        """Whether the module binds a name, once."""
        return self._module[name] == 1

    def _outside(self, name: str, scope: Scope) -> bool:
        """Whether the functions around a scope, or the module, bind a name once."""
        if isinstance(scope, ast.Module):
            return self.is_global(name)
        for node in self.around(Span("", scope.lineno, 0, scope.end_lineno or 0, 0)):
            if node is scope or isinstance(node, ast.ClassDef):
                continue
            count = sum(name == each for each in bindings(node))
            if count:
                return count == 1
        return self.is_global(name)

    def sees(self, name: str, span: Span) -> bool:
        """Whether a name exists at a place: a function around it, the module or Python has it."""
        if self._module[name] or "*" in self._module or hasattr(builtins, name):
            return True
        functions = (node for node in self.around(span) if not isinstance(node, ast.ClassDef))
        return any(name in bindings(node) for node in functions)


def parameters(scope: Scope) -> list[str]:
    """The names of a function's parameters."""
    if isinstance(scope, ast.Module):
        return []
    given = scope.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [argument.arg for argument in every if argument is not None]


@lru_cache(maxsize=64)
def bindings(scope: Scope) -> tuple[str, ...]:
    """The names that a scope binds, each as often as it does."""
    bound = (name for node in statements(scope) for name in bound_by(node, inside=True))
    return (*parameters(scope), *bound)


def inside(source: str, row: int) -> str:
    """The function that holds a row, as ``Class.method()``, or the class; empty at the top of the module."""
    name, file = symbol(source, row), File.of(source)
    function = file is not None and not isinstance(file.scope(Span("", row, 1, row, 1)), ast.Module)
    return f"{name}()" if name and function else name


def names_of(code: str) -> set[str] | None:
    """The names that a line needs; None when it is a sentence, not a call."""
    try:
        expression = ast.parse(code.strip(), mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(expression, ast.Call):
        return None
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def attributes_of(code: str) -> set[str]:
    """The attributes of ``self`` that a line needs."""
    return {node.attr for node in of_self(ast.parse(code.strip()))}


def of_self(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes of ``self`` in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node


def holds(node: ast.AST, span: Span) -> bool:
    """Whether the rows of a span are among those of a node."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return bool(first <= span.row and span.end_row <= last)


def path(scope: Scope, span: Span) -> Iterator[ast.stmt]:
    """The statements of a scope that hold a span, outer ones first; not those of functions and classes inside it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        if hasattr(node, "lineno") and not holds(node, span):
            continue
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            waiting.extend(ast.iter_child_nodes(node))


def statements(scope: Scope) -> Iterator[ast.stmt]:
    """The statements of a scope, outer ones first, without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            waiting.extend(ast.iter_child_nodes(node))


def bound_by(node: ast.stmt, *, inside: bool) -> Iterator[str]:
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
        for name in stored(node):
            yield from (name, name) if over else (name,)


def stored(node: ast.AST) -> Iterator[str]:
    """The names that are assigned in a node's expressions, not in those of its body or of a comprehension."""
    waiting = list(ast.iter_child_nodes(node))[::-1]
    while waiting:  # not by recursion: a sum of 2,000 terms is 2,000 deep
        child = waiting.pop()
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif isinstance(child, (ast.expr, ast.withitem)) and not isinstance(child, INNER):
            waiting += list(ast.iter_child_nodes(child))[::-1]


def imported(tree: ast.Module) -> dict[str, str]:
    """The file's names for modules and for what is in them, with what they stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
    return found


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an expression that is only names and attributes; empty for others."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
