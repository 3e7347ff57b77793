"""Which names a scope binds, which it takes from the scopes around it, and under what register each one lives."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from streamsafe.static.syntax.ir import Type

FunctionNode: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"
Definition: TypeAlias = "FunctionNode | ast.ClassDef"

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NEW_SCOPES = (*_FUNCTIONS, ast.ClassDef)


@dataclass(slots=True)
class Scope:
    """The names that a function, a comprehension or a class body binds.

    Attributes:
        owner: the function whose registers they are.
        registers: name -> register.
        parent: the scope around it; of a function, that of the function (or comprehension) that encloses it.
        module_names: names declared ``global``.
    """

    owner: str
    kind: Literal["function", "comprehension", "class"] = "function"
    registers: dict[str, str] = field(default_factory=dict)
    parent: Scope | None = None
    module_names: frozenset[str] = frozenset()

    def find(self, name: str) -> tuple[str, str] | None:
        """The function that owns a name seen from here and its register there; None for a name of the module."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.module_names:
                return None
            if name in scope.registers:
                return scope.owner, scope.registers[name]
            scope = scope.parent
        return None


def parameters(node: FunctionNode) -> Iterator[ast.arg]:
    """All parameters in the order of the signature."""
    args = node.args
    yield from args.posonlyargs
    yield from args.args
    if args.vararg:
        yield args.vararg
    yield from args.kwonlyargs
    if args.kwarg:
        yield args.kwarg


def bound_names(body: Iterable[ast.AST]) -> tuple[set[str], set[str], set[str]]:
    """What the statements of one scope bind, and what they declare ``global`` and ``nonlocal``."""
    bound: set[str] = set()
    module_names: set[str] = set()
    outer: set[str] = set()
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
            continue
        if isinstance(node, _NEW_SCOPES):
            if not isinstance(node, ast.Lambda):
                bound.add(node.name)
                todo.extend(node.decorator_list)
            if not isinstance(node, ast.ClassDef):
                todo.extend(node.args.defaults)
                todo.extend(d for d in node.args.kw_defaults if d is not None)
            continue
        if isinstance(node, ast.comprehension):
            todo.append(node.iter)
            todo.extend(node.ifs)
            continue
        if isinstance(node, ast.Global):
            module_names.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            if node.name:
                bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        todo.extend(ast.iter_child_nodes(node))
    bound.discard("*")
    return bound - module_names - outer, module_names, outer


def free_names(node: Definition) -> set[str]:
    """The names that a function, or a class, takes from the scopes around it (or from the module)."""
    used: set[str] = set()
    inner: list[Definition] = []
    if isinstance(node, ast.ClassDef):
        bound: set[str] = set()  # what a class body binds is not seen by its functions
        todo: list[ast.AST] = [*node.body, *node.bases, *(k.value for k in node.keywords)]
    else:
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        bound = bound_names(body)[0] | {a.arg for a in parameters(node)}
        todo = list(body)
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Name):
            used.add(part.id)
        elif isinstance(part, (ast.Nonlocal, ast.Global)):
            used.update(part.names)
        elif isinstance(part, _NEW_SCOPES):
            inner.append(part)
            if not isinstance(part, ast.Lambda):
                todo.extend(part.decorator_list)
            if not isinstance(part, ast.ClassDef):
                todo.extend(part.args.defaults)
                todo.extend(d for d in part.args.kw_defaults if d is not None)
        else:
            todo.extend(ast.iter_child_nodes(part))
    for part in inner:
        used |= free_names(part)
    return used - bound


def dotted(node: ast.AST) -> str:
    """``a.b.c`` as text; of a call, its callee; "?" stands for any other part."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            parts.append(node.id if isinstance(node, ast.Name) else "?")
            return ".".join(reversed(parts))


def as_type(node: ast.AST | None, depth: int = 6) -> Type | None:
    """An annotation as a :class:`Type`; None where there is none."""
    if node is None:
        return None
    if depth == 0:
        return Type("?")
    if isinstance(node, ast.Constant):
        if node.value is None:
            return Type("None")
        if isinstance(node.value, str):
            try:
                return as_type(ast.parse(node.value.strip(), mode="eval").body, depth - 1)
            except (SyntaxError, ValueError, RecursionError):
                return Type("?")
        return Type("?")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return Type("|", tuple(_union(node, depth)))
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Type(dotted(node.value), tuple(as_type(i, depth - 1) or Type("?") for i in inner))
    if isinstance(node, (ast.Name, ast.Attribute)):
        return Type(dotted(node))
    if isinstance(node, (ast.List, ast.Tuple)):
        return Type("[]", tuple(as_type(i, depth - 1) or Type("?") for i in node.elts))
    return Type("?")


def _union(node: ast.expr, depth: int) -> Iterator[Type]:
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    for part in (node, *reversed(parts)):
        yield as_type(part, depth - 1) or Type("?")


def absolute(package: str, module: str | None, level: int) -> str:
    """The absolute name of what ``from ...module import`` names in a module of ``package``."""
    if not level:
        return module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - (level - 1)] if level > 1 else parts
    return ".".join([*parts, module] if module else parts)


def rebound_names(body: Iterable[ast.AST]) -> set[str]:
    """Names that may be bound anew while an expression is evaluated: by ``:=``, by a function inside (``nonlocal``)."""
    names: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.NamedExpr):
                names.add(node.target.id)
            elif isinstance(node, ast.Nonlocal):
                names.update(node.names)
    return names
