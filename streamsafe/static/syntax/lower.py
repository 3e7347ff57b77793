"""A function's syntax tree to the intermediate representation: all of Python 3.10 to 3.13."""

from __future__ import annotations

import ast

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.builder import Builder, Definitions
from streamsafe.static.syntax.expressions import expression
from streamsafe.static.syntax.ir import Block, Function, Param, ParamKind, Span
from streamsafe.static.syntax.scopes import (
    FunctionNode,
    Scope,
    as_type,
    bound_names,
    dotted,
    parameters,
    rebound_names,
)
from streamsafe.static.syntax.statements import statements

MODULE_BODY = "<module>"
"""The name of the function that a module's body is."""


def lower_function(
    node: FunctionNode,
    *,
    fid: str,
    module: str,
    package: str,
    definitions: Definitions,
    cls: str | None = None,
    class_names: tuple[str, ...] = (),
    around: Scope | None = None,
    rebinds: bool = True,
) -> Function:
    """Lower a function, a method or a lambda.

    Args:
        node: its syntax tree.
        fid: its id.
        module: the name of its module.
        package: what its relative imports start from.
        definitions: names what is defined inside.
        cls: the class of which it is a method.
        class_names: the names of the classes around it, outermost first (for ``__private`` names).
        around: the scope around it.
        rebinds: whether the module has ``:=`` or ``nonlocal`` at all.
    """
    body: list[ast.stmt] = [] if isinstance(node, ast.Lambda) else node.body
    scanned: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(body)
    bound, module_names, _ = bound_names(scanned)
    params = _params(node)
    names = {*bound, *(p.name for p in params)}
    fn = Function(
        fid,
        "<lambda>" if isinstance(node, ast.Lambda) else node.name,
        module,
        cls,
        around.owner if around is not None else None,
        params,
        None if isinstance(node, ast.Lambda) else as_type(node.returns),
        () if isinstance(node, ast.Lambda) else tuple(dotted(d) for d in node.decorator_list),
        _span(node),
        [Block()],
        is_async=isinstance(node, ast.AsyncFunctionDef),
    )
    scope = Scope(fid, "function", {name: name for name in names}, around, frozenset(module_names))
    b = Builder(fn, definitions, package, [scope], classes=list(class_names))
    if rebinds:
        b.rebound = rebound_names(scanned) & names
    if isinstance(node, ast.Lambda):
        value = expression(b, node.body)
        b.emit(ir.Return(value, b.at(node.body)))
    else:
        _body(b, body, node)
    return fn


def lower_module(tree: ast.Module, *, module: str, package: str, definitions: Definitions) -> Function:
    """Lower the body of a module: a function without parameters whose names are globals."""
    fid = f"{module}:{MODULE_BODY}"
    fn = Function(fid, MODULE_BODY, module, None, None, (), None, (), Span(1, 0, 1, 0), [Block()])
    b = Builder(fn, definitions, package, [Scope(fid)])
    _body(b, tree.body, tree)
    return fn


def _body(b: Builder, body: list[ast.stmt], node: ast.AST) -> None:
    statements(b, body)
    if b.here is not None:
        last = body[-1] if body else node
        none = b.const(None, last)
        b.emit(ir.Return(none, b.at(last)))


def _span(node: ast.expr | ast.stmt) -> Span:
    return Span(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)


def _default(given: ast.expr) -> object:
    """A constant; ``...`` of what is computed."""
    if isinstance(given, ast.UnaryOp) and isinstance(given.op, ast.USub):
        inner = given.operand
        negative = isinstance(inner, ast.Constant) and isinstance(inner.value, int | float)
        return -inner.value if negative else ...  # type: ignore[attr-defined]
    return given.value if isinstance(given, ast.Constant) else ...


def _named(given: ast.expr | None) -> tuple[str, object]:
    """The name that a default is, or that is called for it with one constant, and that constant."""
    if isinstance(given, ast.Name):
        return given.id, None
    if isinstance(given, ast.Call) and len(given.args) == 1 and isinstance(given.args[0], ast.Constant):
        return dotted(given.func), given.args[0].value
    return "", None


def _params(node: FunctionNode) -> tuple[Param, ...]:
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    defaults: dict[str, ast.expr] = {
        a.arg: d
        for a, d in zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)
    }
    for keyword, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if default is not None:
            defaults[keyword.arg] = default
    kinds: dict[str, ParamKind] = {a.arg: "positional" for a in args.posonlyargs}
    kinds |= {a.arg: "keyword" for a in args.kwonlyargs}
    if args.vararg:
        kinds[args.vararg.arg] = "vararg"
    if args.kwarg:
        kinds[args.kwarg.arg] = "kwarg"
    out = []
    for a in parameters(node):
        given = defaults.get(a.arg)
        out.append(
            Param(
                a.arg,
                kinds.get(a.arg, "normal"),
                as_type(a.annotation),
                given is not None,
                None if given is None else _default(given),
                *_named(given),
            )
        )
    return tuple(out)
