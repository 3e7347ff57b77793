"""Statements to instructions and blocks.

``finally`` and the exit of a context are lowered once for each way out, as CPython compiles them: falling through, an
exception, ``return``, ``break``, ``continue``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.builder import Builder, Cleanup, Loop
from streamsafe.static.syntax.expressions import (
    branch,
    captures,
    closure,
    elements,
    expression,
    function_scope,
    load,
    mangled,
    open_loop,
    operator_text,
    store,
    store_name,
)
from streamsafe.static.syntax.ir import Reg
from streamsafe.static.syntax.patterns import Bindings, match_pattern
from streamsafe.static.syntax.scopes import Scope, absolute, bound_names, free_names


def statements(b: Builder, body: list[ast.stmt]) -> None:
    """Lower statements in order; what control does not reach is left out."""
    for node in body:
        if b.here is None:
            return
        lower = _STATEMENTS.get(type(node))
        if lower is not None:
            lower(b, node)


# -- simple statements -------------------------------------------------------------------------------------------------
def _expression(b: Builder, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        expression(b, node.value)


def _assign(b: Builder, node: ast.Assign) -> None:
    value = expression(b, node.value)
    for target in node.targets:
        store(b, target, value)


def _annotated(b: Builder, node: ast.AnnAssign) -> None:
    if node.value is not None:
        store(b, node.target, expression(b, node.value))


def _augmented(b: Builder, node: ast.AugAssign) -> None:
    target, op, at = node.target, operator_text(node.op), b.at(node)
    if isinstance(target, ast.Name):
        left = load(b, target.id, target)
        right = expression(b, node.value)
        dst = b.temp()
        b.emit(ir.InPlace(dst, op, left, right, at))
        store_name(b, target.id, dst, node)
        return
    obj = expression(b, target.value)
    old, dst = b.temp(), b.temp()
    if isinstance(target, ast.Attribute):
        name = mangled(b, target.attr)
        b.emit(ir.Attr(old, obj, name, b.at(target)))
        b.emit(ir.InPlace(dst, op, old, expression(b, node.value), at))
        b.emit(ir.SetAttr(obj, name, dst, at))
    else:
        key = expression(b, target.slice)
        b.emit(ir.Item(old, obj, key, b.at(target)))
        b.emit(ir.InPlace(dst, op, old, expression(b, node.value), at))
        b.emit(ir.SetItem(obj, key, dst, at))


def _return(b: Builder, node: ast.Return) -> None:
    value = b.const(None, node) if node.value is None else expression(b, node.value)
    if isinstance(value, str) and b.around:  # a finally may bind the name anew
        kept = b.temp()
        b.emit(ir.Move(kept, value, b.at(node)))
        value = kept
    b.leave(0)
    b.emit(ir.Return(value, b.at(node)))
    b.here = None


def _raise(b: Builder, node: ast.Raise) -> None:
    src: Reg | None = None
    if node.exc is not None:
        src = expression(b, node.exc)
    elif b.caught:
        src = b.caught[-1]
    cause = None if node.cause is None else expression(b, node.cause)
    b.emit(ir.Raise(src, cause, b.at(node)))
    b.here = None


def _delete(b: Builder, node: ast.Delete) -> None:
    todo = list(node.targets)
    while todo:
        target = todo.pop(0)
        if isinstance(target, ast.Name):
            found = b.scopes[-1].find(target.id)
            if found is None:
                b.emit(ir.DelGlobal(target.id, b.at(target)))
            elif found[0] == b.fn.fid:
                b.emit(ir.Del(found[1], b.at(target)))
        elif isinstance(target, ast.Attribute):
            b.emit(ir.DelAttr(expression(b, target.value), mangled(b, target.attr), b.at(target)))
        elif isinstance(target, ast.Subscript):
            obj = expression(b, target.value)
            b.emit(ir.DelItem(obj, expression(b, target.slice), b.at(target)))
        elif isinstance(target, (ast.Tuple, ast.List)):
            todo[:0] = target.elts


def _assert(b: Builder, node: ast.Assert) -> None:
    on, off = b.block(), b.block()
    branch(b, node.test, on, off)
    b.start(off)
    error, made = b.temp(), b.temp()
    b.emit(ir.Global(error, "AssertionError", b.at(node)))
    args = () if node.msg is None else (expression(b, node.msg),)
    b.emit(ir.Call(made, error, args, (), b.at(node)))
    b.emit(ir.Raise(made, None, b.at(node)))
    b.start(on)


def _import(b: Builder, node: ast.Import) -> None:
    for alias in node.names:
        dst = b.temp()
        b.emit(ir.Import(dst, alias.name, None, b.at(node)))
        top = alias.name.split(".")[0]
        if alias.asname is None and top != alias.name:
            dst = b.temp()
            b.emit(ir.Import(dst, top, None, b.at(node)))
        store_name(b, alias.asname or top, dst, node)


def _import_from(b: Builder, node: ast.ImportFrom) -> None:
    module = absolute(b.package, node.module, node.level)
    for alias in node.names:
        dst = b.temp()
        b.emit(ir.Import(dst, module, alias.name, b.at(node)))
        if alias.name != "*":
            store_name(b, alias.asname or alias.name, dst, node)


# -- definitions -------------------------------------------------------------------------------------------------------
def _function(b: Builder, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    decorators = [expression(b, d) for d in node.decorator_list]
    dst: Reg = b.temp()
    closure(b, node, dst)
    _bind(b, node, decorators, dst)


def _bind(
    b: Builder, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, decorators: list[Reg], value: Reg
) -> None:
    for decorator in reversed(decorators):
        dst = b.temp()
        b.emit(ir.Decorate(dst, decorator, value, b.at(node)))
        value = dst
    store_name(b, node.name, value, node)


def _class(b: Builder, node: ast.ClassDef) -> None:
    """The body runs here; its names are registers of this function under names of their own."""
    decorators = [expression(b, d) for d in node.decorator_list]
    bases = elements(b, node.bases)
    keywords = tuple((k.arg, expression(b, k.value)) for k in node.keywords)
    cls = b.definitions.define_class(node, b)
    bound, module_names, _ = bound_names(node.body)
    registers = {name: b.rename(name) for name in sorted(bound)}
    scope = Scope(b.fn.fid, "class", registers, function_scope(b), frozenset(module_names))
    b.scopes = [*b.scopes, scope]
    b.classes.append(node.name)
    statements(b, node.body)
    b.classes.pop()
    b.scopes = b.scopes[:-1]
    dst = b.temp()
    captures(b, free_names(node))
    members = tuple((mangled_in(node.name, name), register) for name, register in registers.items())
    b.emit(ir.MakeClass(dst, cls, bases, keywords, members, b.at(node)))
    _bind(b, node, decorators, dst)


def mangled_in(cls: str, name: str) -> str:
    """A name bound in a class body, as an attribute of the class."""
    return f"_{cls.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


# -- branches and loops ------------------------------------------------------------------------------------------------
def _if(b: Builder, node: ast.If) -> None:
    end = b.block()
    while b.here is not None:  # a chain of elif nests to the right: no recursion for it
        yes, no = b.block(), b.block()
        branch(b, node.test, yes, no)
        b.start(yes)
        statements(b, node.body)
        b.go(end)
        b.start(no)
        if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
            statements(b, node.orelse)
            break
        node = node.orelse[0]
    b.go(end)
    b.start(end)


def _for(b: Builder, node: ast.For | ast.AsyncFor) -> None:
    source = expression(b, node.iter)
    done, end = b.block(), b.block()
    head, _, out = open_loop(b, node.iter, source, node.target, isinstance(node, ast.AsyncFor), node)
    b.around.append(Loop(head, end))
    statements(b, node.body)
    b.around.pop()
    b.go(head, back=True)
    b.start(out)
    b.go(done)
    b.start(done)
    statements(b, node.orelse)
    b.go(end)
    b.start(end)


def _while(b: Builder, node: ast.While) -> None:
    head, inside, done, end = b.block(), b.block(), b.block(), b.block()
    b.go(head)
    b.start(head)
    branch(b, node.test, inside, done)
    b.start(inside)
    b.around.append(Loop(head, end))
    statements(b, node.body)
    b.around.pop()
    if _is_endless(node):
        b.edge(end)
    b.go(head, back=True)
    b.start(done)
    statements(b, node.orelse)
    b.go(end)
    b.start(end)


def _is_endless(loop: ast.While) -> bool:
    """Whether a loop is left only by an exception or with the process, as that of a worker thread.

    What its rounds have done by then is what the function does.
    """
    if not (isinstance(loop.test, ast.Constant) and loop.test.value):
        return False
    todo: list[tuple[ast.AST, bool]] = [(each, True) for each in loop.body]
    while todo:
        node, own = todo.pop()
        if isinstance(node, ast.Return) or (own and isinstance(node, ast.Break)):
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            inner = own and not isinstance(node, ast.While | ast.For | ast.AsyncFor)
            todo += [(each, inner) for each in ast.iter_child_nodes(node)]
    return True


def _jump(b: Builder, node: ast.Break | ast.Continue) -> None:
    depth = next((i for i in range(len(b.around) - 1, -1, -1) if isinstance(b.around[i], Loop)), None)
    if depth is None:
        b.here = None
        return
    loop = b.around[depth]
    assert isinstance(loop, Loop)
    b.leave(depth + 1)
    if isinstance(node, ast.Break):
        b.go(loop.end)
    else:
        b.go(loop.head, back=True)


# -- contexts and exceptions -------------------------------------------------------------------------------------------
def _with(b: Builder, node: ast.With | ast.AsyncWith) -> None:
    after = b.block()
    _context(b, node, 0)
    b.go(after)
    b.start(after)


def _context(b: Builder, node: ast.With | ast.AsyncWith, i: int) -> None:
    if i == len(node.items):
        statements(b, node.body)
        return
    item, is_async = node.items[i], isinstance(node, ast.AsyncWith)
    manager = expression(b, item.context_expr)
    context, entered = b.temp(), b.temp()
    b.emit(ir.Move(context, manager, b.at(item.context_expr)))
    b.emit(ir.Enter(entered, context, is_async, b.at(item.context_expr)))

    def leave(out: Builder) -> None:
        out.emit(ir.Exit(None, context, None, is_async, out.at(node)))

    outside, unwinding, after = b.handler, b.block(), b.block()
    b.around.append(Cleanup(leave, outside))
    b.handler = unwinding
    b.split()
    if item.optional_vars is not None:
        store(b, item.optional_vars, entered)
    _context(b, node, i + 1)
    b.around.pop()
    b.handler = outside
    b.split()
    leave(b)
    b.go(after)
    b.start(unwinding, anyway=True)
    error, swallowed, on = b.temp(), b.temp(), b.block()
    b.emit(ir.Catch(error, b.at(node)))
    b.emit(ir.Exit(swallowed, context, error, is_async, b.at(node)))
    b.choose("swallow", swallowed, None, after, on)
    b.start(on)
    b.emit(ir.Raise(error, None, b.at(node)))
    b.start(after)


def _try(b: Builder, node: Any) -> None:
    outside = b.handler
    finally_entry: int | None = None
    if node.finalbody:
        finally_entry = b.block()
        body: list[ast.stmt] = node.finalbody
        b.around.append(Cleanup(lambda out: statements(out, body), outside))
        b.handler = finally_entry
    inner = b.handler
    after = b.block()
    if node.handlers:
        dispatch = b.block()
        b.handler = dispatch
        b.split()
        statements(b, node.body)
        b.handler = inner
        if node.orelse:
            b.split()
            statements(b, node.orelse)
        b.go(after)
        b.start(dispatch, anyway=True)
        _handlers(b, node, after)
    else:
        b.split()
        statements(b, node.body)
        statements(b, node.orelse)
        b.go(after)
    if finally_entry is None:
        b.start(after)
        return
    b.around.pop()
    b.handler = outside
    end = b.block()
    b.start(after)
    statements(b, node.finalbody)
    b.go(end)
    b.start(finally_entry, anyway=True)
    error = b.temp()
    b.emit(ir.Catch(error, b.at(node)))
    b.caught.append(error)
    statements(b, node.finalbody)
    b.caught.pop()
    b.emit(ir.Raise(error, None, b.at(node)))
    b.start(end)


def _handlers(b: Builder, node: Any, after: int) -> None:
    """Try the handlers in order; raise again what none of them takes."""
    error = b.temp()
    b.emit(ir.Catch(error, b.at(node)))
    b.caught.append(error)
    handler: ast.ExceptHandler
    for handler in node.handlers:
        others: int | None = None
        if handler.type is not None:
            kind = expression(b, handler.type)
            on, others = b.block(), b.block()
            b.choose("except", error, kind, on, others)
            b.start(on)
        if handler.name:
            store_name(b, handler.name, error, handler)
        statements(b, handler.body)
        if handler.name and b.here is not None:
            found = b.scopes[-1].find(handler.name)
            if found is None:
                b.emit(ir.DelGlobal(handler.name, b.at(handler)))
            elif found[0] == b.fn.fid:
                b.emit(ir.Del(found[1], b.at(handler)))
        b.go(after)
        if others is None:
            break
        b.start(others)
    else:
        b.emit(ir.Raise(error, None, b.at(node)))
        b.here = None
    b.caught.pop()


def _match(b: Builder, node: ast.Match) -> None:
    value = expression(b, node.subject)
    subject = b.temp()
    b.emit(ir.Move(subject, value, b.at(node.subject)))
    end = b.block()
    for case in node.cases:
        failed = b.block()
        bound: Bindings = []
        match_pattern(b, case.pattern, subject, failed, bound)
        for name, register, at in bound:
            store_name(b, name, register, at)
        if case.guard is not None:
            on = b.block()
            branch(b, case.guard, on, failed)
            b.start(on)
        statements(b, case.body)
        b.go(end)
        b.start(failed)
    b.go(end)
    b.start(end)


def _type_alias(b: Builder, node: Any) -> None:
    store(b, node.name, b.opaque(node))


_STATEMENTS: dict[type[ast.stmt], Callable[[Builder, Any], None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Delete: _delete,
    ast.Assert: _assert,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.Break: _jump,
    ast.Continue: _jump,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.Match: _match,
}
if hasattr(ast, "TryStar"):  # Python 3.11
    _STATEMENTS[ast.TryStar] = _try
if hasattr(ast, "TypeAlias"):  # Python 3.12
    _STATEMENTS[ast.TypeAlias] = _type_alias
