"""Whether a name may be None where a repair would use it: what is inserted must not fail on a path of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from streamsafe.order.hazard import Span
from streamsafe.repairs.names import File, Scope, parameters, path, statements


def guard(file: File, statement: ast.stmt, code: str) -> str:
    """The condition under which a line may be put before a statement; empty where it always may.

    Args:
        file: the file.
        statement: what the line goes before.
        code: the line: a call.
    """
    place = Span("", statement.lineno, 0, statement.lineno, 0)
    scope = file.scope(place)
    found = [
        name
        for name in _used(code)
        if _may_be_none(file, scope, place, name) and not _is_something(scope, statement, name)
    ]
    return " and ".join(f"{name} is not None" for name in found)


def _used(code: str) -> list[str]:
    """The names and attributes of ``self`` in a line, each once."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(code)):
        if _is_path(node):
            found[ast.unparse(node)] = None
    return list(found)


def _is_path(node: ast.AST) -> bool:
    """A local name or an attribute of ``self``."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "self"
    return isinstance(node, ast.Name) and node.id != "self"


def _may_be_none(file: File, scope: Scope, place: Span, name: str, depth: int = 0) -> bool:
    """Whether something in the file says so: an assignment of None, a default, or a question whether it is None."""
    if name.startswith("self."):
        owner = file.owner(place)
        return owner is not None and (
            any(_gives_none(value) for value in _values(ast.walk(owner), name)) or _is_asked(owner, name)
        )
    if isinstance(scope, ast.Module) or name not in _bound(scope):
        return any(_gives_none(value) for value in _values(file.tree.body, name))
    for value in _values(statements(scope), name):
        if _gives_none(value):
            return True
        if _is_path(value) and depth < 3 and ast.unparse(value) != name:
            if _may_be_none(file, scope, place, ast.unparse(value), depth + 1):
                return True
    return _is_asked(scope, name) or _defaults_to_none(scope, name)


def _bound(scope: Scope) -> set[str]:
    targets = (
        node for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {*parameters(scope), *(node.id for node in targets)}


def _values(nodes: Iterator[ast.AST] | list[ast.stmt], name: str) -> Iterator[ast.expr]:
    """What is assigned to a name."""
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and any(ast.unparse(target) == name for target in targets):
            yield value


def _gives_none(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _gives_none(value.body) or _gives_none(value.orelse)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "next":
        return len(value.args) == 2 and _gives_none(value.args[1])
    return isinstance(value, ast.Constant) and value.value is None


def _defaults_to_none(scope: Scope, name: str) -> bool:
    if isinstance(scope, ast.Module):
        return False
    given = scope.args
    names = [*given.posonlyargs, *given.args]
    pairs = [*zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(arg, value) for arg, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
    return any(arg.arg == name and _gives_none(value) for arg, value in pairs)


def _is_asked(tree: ast.AST, name: str) -> bool:
    """Whether something asks if it is None."""
    return any(_says(node, name) is not None for node in ast.walk(tree) if isinstance(node, ast.Compare))


def _says(test: ast.expr, name: str) -> bool | None:
    """What a condition that holds says of a name: that it is something, that it is None, or nothing."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        said = _says(test.operand, name)
        return None if said is None else not said
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return True if any(_says(value, name) for value in test.values) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and ast.unparse(test.left) == name:
        other = test.comparators[0]
        if isinstance(other, ast.Constant) and other.value is None:
            return isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
        return None
    if isinstance(test, ast.NamedExpr) and test.target.id == name:
        return True
    return True if _is_path(test) and ast.unparse(test) == name else None


def _is_something(scope: Scope, statement: ast.stmt, name: str) -> bool:
    """Whether a name cannot be None at a statement: what is around or before it says so, or it would fail."""
    for node in _own(statement):  # what the statement itself does with it would fail
        if isinstance(node, (ast.Attribute, ast.Subscript)) and ast.unparse(node.value) == name:
            return True
    for outer in path(scope, Span("", statement.lineno, 0, statement.lineno, 0)):
        if isinstance(outer, (ast.If, ast.While)) and outer is not statement:
            said = _says(outer.test, name)
            below = outer.body if any(_holds(each, statement) for each in outer.body) else []
            if (said is True and below) or (said is False and not below):
                return True
    left = False
    for node in sorted(statements(scope), key=lambda each: each.lineno):
        if node.lineno >= statement.lineno:
            break
        if isinstance(node, ast.If) and _says(node.test, name) is False and _leaves(node.body[-1]):
            left = True
        elif any(ast.unparse(each) == name for each in _stored(node)):
            left = False
    return left


def _leaves(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _stored(node: ast.stmt) -> Iterator[ast.expr]:
    for each in _own(node):
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Store):
            yield each


def _holds(node: ast.stmt, other: ast.stmt) -> bool:
    return node.lineno <= other.lineno <= (node.end_lineno or node.lineno)


def _own(node: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler)):
            yield from ast.walk(child)
