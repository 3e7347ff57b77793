"""Expressions and conditions to instructions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.builder import Builder
from streamsafe.static.syntax.ir import Reg, Star
from streamsafe.static.syntax.scopes import Scope, free_names

DEEPEST = 150
"""How deep an expression may be nested; what lies deeper is not looked at (operands in a row do not nest)."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.UAdd: "+", ast.USub: "-", ast.Invert: "~", ast.Not: "not"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def operator_text(op: ast.operator) -> str:
    """A binary operator as it is written."""
    return _BINARY[type(op)]


def expression(b: Builder, node: ast.expr) -> Reg:
    """Lower an expression; the register that holds its value."""
    lower = _EXPRESSIONS.get(type(node))
    if lower is None or b.depth >= DEEPEST:
        return b.opaque(node)
    b.depth += 1
    try:
        return lower(b, node)
    finally:
        b.depth -= 1


# -- names -------------------------------------------------------------------------------------------------------------
def load(b: Builder, name: str, node: ast.AST) -> Reg:
    """Read a name: its own register, or a new one that holds the value of an outer name or a global."""
    found = b.scopes[-1].find(name)
    if found is None:
        dst = b.temp()
        b.emit(ir.Global(dst, name, b.at(node)))
        return dst
    owner, register = found
    if owner == b.fn.fid:
        if name not in b.rebound:
            return register
        dst = b.temp()
        b.emit(ir.Move(dst, register, b.at(node)))
        return dst
    dst = b.temp()
    b.emit(ir.Outer(dst, register, owner, b.at(node)))
    return dst


def store_name(b: Builder, name: str, value: Reg, node: ast.AST) -> None:
    """Bind a name."""
    found = b.scopes[-1].find(name)
    if found is None:
        b.emit(ir.SetGlobal(name, value, b.at(node)))
    elif found[0] == b.fn.fid:
        b.emit(ir.Move(found[1], value, b.at(node)))
    else:
        b.emit(ir.SetOuter(found[1], found[0], value, b.at(node)))


def store(b: Builder, target: ast.expr, value: Reg) -> None:
    """Store a value to a target of an assignment, a loop, or a ``with``."""
    at = b.at(target)
    if isinstance(target, ast.Name):
        store_name(b, target.id, value, target)
    elif isinstance(target, ast.Attribute):
        b.emit(ir.SetAttr(expression(b, target.value), mangled(b, target.attr), value, at))
    elif isinstance(target, ast.Subscript):
        obj = expression(b, target.value)
        b.emit(ir.SetItem(obj, expression(b, target.slice), value, at))
    elif isinstance(target, ast.Starred):
        store(b, target.value, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        registers = tuple(b.temp() for _ in target.elts)
        star = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        b.emit(ir.Unpack(registers, value, star, at))
        for element, register in zip(target.elts, registers, strict=True):
            store(b, element, register)


def mangled(b: Builder, name: str) -> str:
    """An attribute's name: ``__x`` of a class is its own."""
    if b.classes and name.startswith("__") and not name.endswith("__"):
        return f"_{b.classes[-1].lstrip('_')}{name}"
    return name


# -- expressions -------------------------------------------------------------------------------------------------------
def _constant(b: Builder, node: ast.Constant) -> Reg:
    return b.const(node.value, node)


def _name(b: Builder, node: ast.Name) -> Reg:
    return load(b, node.id, node)


def _attribute(b: Builder, node: ast.Attribute) -> Reg:
    obj = expression(b, node.value)
    dst = b.temp()
    b.emit(ir.Attr(dst, obj, mangled(b, node.attr), b.at(node)))
    return dst


def _subscript(b: Builder, node: ast.Subscript) -> Reg:
    obj = expression(b, node.value)
    key = expression(b, node.slice)
    dst = b.temp()
    b.emit(ir.Item(dst, obj, key, b.at(node)))
    return dst


def _slice(b: Builder, node: ast.Slice) -> Reg:
    parts = [None if part is None else expression(b, part) for part in (node.lower, node.upper, node.step)]
    dst = b.temp()
    b.emit(ir.Slice(dst, parts[0], parts[1], parts[2], b.at(node)))
    return dst


def elements(b: Builder, nodes: list[ast.expr]) -> tuple[Reg | Star, ...]:
    """The elements of a display, or positional arguments."""
    return tuple(
        Star(expression(b, n.value)) if isinstance(n, ast.Starred) else expression(b, n) for n in nodes
    )


def _call(b: Builder, node: ast.Call) -> Reg:
    func = expression(b, node.func)
    args = elements(b, node.args)
    keywords = tuple((k.arg, expression(b, k.value)) for k in node.keywords)
    dst = b.temp()
    b.emit(ir.Call(dst, func, args, keywords, b.at(node)))
    return dst


def _display(b: Builder, node: ast.Tuple | ast.List | ast.Set) -> Reg:
    parts = elements(b, node.elts)
    dst = b.temp()
    kind: ir.BuildKind = (
        "tuple" if isinstance(node, ast.Tuple) else "list" if isinstance(node, ast.List) else "set"
    )
    b.emit(ir.Build(dst, kind, parts, (), b.at(node)))
    return dst


def _dict(b: Builder, node: ast.Dict) -> Reg:
    keys: list[Reg | None] = []
    values: list[Reg | Star] = []
    for key, value in zip(node.keys, node.values, strict=True):
        keys.append(None if key is None else expression(b, key))
        values.append(expression(b, value))
    dst = b.temp()
    b.emit(ir.Build(dst, "dict", tuple(values), tuple(keys), b.at(node)))
    return dst


def _binary(b: Builder, node: ast.BinOp) -> Reg:
    spine = [node]  # a sum of many terms nests to the left: no recursion for it
    while isinstance(spine[-1].left, ast.BinOp):
        spine.append(spine[-1].left)
    left = expression(b, spine[-1].left)
    for part in reversed(spine):
        right = expression(b, part.right)
        dst = b.temp()
        b.emit(ir.Binary(dst, _BINARY[type(part.op)], left, right, b.at(part)))
        left = dst
    return left


def _unary(b: Builder, node: ast.UnaryOp) -> Reg:
    operand = expression(b, node.operand)
    if isinstance(node.op, ast.Not):
        b.host(operand, node)
    dst = b.temp()
    b.emit(ir.Unary(dst, _UNARY[type(node.op)], operand, b.at(node)))
    return dst


def _compare(b: Builder, node: ast.Compare) -> Reg:
    left = expression(b, node.left)
    if len(node.ops) == 1:
        right = expression(b, node.comparators[0])
        dst = b.temp()
        b.emit(ir.Compare(dst, _COMPARE[type(node.ops[0])], left, right, b.at(node)))
        return dst
    out, end = b.temp(), b.block()
    for i, (op, operand) in enumerate(zip(node.ops, node.comparators, strict=True)):
        right = expression(b, operand)
        b.emit(ir.Compare(out, _COMPARE[type(op)], left, right, b.at(node)))
        left = right
        if i < len(node.ops) - 1:
            on = b.block()
            b.host(out, node)
            b.choose("true", out, None, on, end)
            b.start(on)
    b.go(end)
    b.start(end)
    return out


def _named(b: Builder, node: ast.NamedExpr) -> Reg:
    value = expression(b, node.value)
    scopes = b.scopes
    while b.scopes[-1].kind == "comprehension":
        b.scopes = b.scopes[:-1]  # a name bound inside a comprehension belongs to the scope around it
    store_name(b, node.target.id, value, node)
    b.scopes = scopes
    return value


def _lambda(b: Builder, node: ast.Lambda) -> Reg:
    dst = b.temp()
    closure(b, node, dst)
    return dst


def closure(b: Builder, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef, dst: Reg) -> None:
    """Make a function: evaluate its defaults and note what it captures."""
    args = node.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    given = positional[len(positional) - len(args.defaults) :]
    defaults = [(name, expression(b, value)) for name, value in zip(given, args.defaults, strict=True)]
    for parameter, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if default is not None:
            defaults.append((parameter.arg, expression(b, default)))
    function = b.definitions.define_function(node, b)
    b.emit(ir.Closure(dst, function, tuple(defaults), captures(b, free_names(node)), b.at(node)))


def captures(b: Builder, names: set[str]) -> tuple[str, ...]:
    """The registers of this function that a function inside it uses, by the names it takes from around it."""
    scope = function_scope(b)
    found = {at[1] for name in names if (at := scope.find(name)) is not None and at[0] == b.fn.fid}
    b.fn.captured |= found
    return tuple(sorted(found))


def function_scope(b: Builder) -> Scope:
    """The scope that a function defined here sees: class bodies are passed over."""
    return next(s for s in reversed(b.scopes) if s.kind != "class")


def _yield(b: Builder, node: ast.Yield | ast.YieldFrom) -> Reg:
    b.fn.is_generator = True
    value = b.const(None, node) if node.value is None else expression(b, node.value)
    dst = b.temp()
    b.emit(ir.Yield(dst, value, isinstance(node, ast.YieldFrom), b.at(node)))
    return dst


def _await(b: Builder, node: ast.Await) -> Reg:
    value = expression(b, node.value)
    dst = b.temp()
    b.emit(ir.Await(dst, value, b.at(node)))
    return dst


def _formatted(b: Builder, node: ast.JoinedStr | ast.FormattedValue) -> Reg:
    parts: list[Reg] = []
    todo: list[ast.expr] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.JoinedStr):
            todo.extend(reversed(part.values))
        elif isinstance(part, ast.FormattedValue):
            parts.append(expression(b, part.value))
            if part.format_spec is not None:
                todo.append(part.format_spec)
    dst = b.temp()
    b.emit(ir.Format(dst, tuple(parts), b.at(node)))
    return dst


def _conditional(b: Builder, node: ast.IfExp) -> Reg:
    out = b.temp()
    yes, no, end = b.block(), b.block(), b.block()
    branch(b, node.test, yes, no)
    for block, part in ((yes, node.body), (no, node.orelse)):
        b.start(block)
        b.emit(ir.Move(out, expression(b, part), b.at(part)))
        b.go(end)
    b.start(end)
    return out


def _boolean(b: Builder, node: ast.BoolOp) -> Reg:
    out, end = b.temp(), b.block()
    is_or = isinstance(node.op, ast.Or)
    for part in node.values[:-1]:
        b.emit(ir.Move(out, expression(b, part), b.at(part)))
        b.host(out, part)
        rest = b.block()
        b.choose("true", out, None, end, rest, swap=not is_or)
        b.start(rest)
    b.emit(ir.Move(out, expression(b, node.values[-1]), b.at(node.values[-1])))
    b.go(end)
    b.start(end)
    return out


def _starred(b: Builder, node: ast.Starred) -> Reg:
    return expression(b, node.value)


# -- comprehensions ----------------------------------------------------------------------------------------------------
def _comprehension(b: Builder, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Reg:
    """A loop that adds to a container. Its variables are registers of their own."""
    out = b.temp()
    kind: ir.BuildKind = "list"
    if isinstance(node, ast.DictComp):
        kind = "dict"
    elif not isinstance(node, ast.ListComp):
        kind = "set" if isinstance(node, ast.SetComp) else "generator"
    b.emit(ir.Build(out, kind, (), (), b.at(node)))
    around = b.scopes
    scope = Scope(b.fn.fid, "comprehension", parent=function_scope(b))
    _generator(b, node, 0, out, scope)
    b.scopes = around
    return out


def _generator(b: Builder, node: Any, i: int, out: Reg, scope: Scope) -> None:
    if i == len(node.generators):
        key = expression(b, node.key) if isinstance(node, ast.DictComp) else None
        value = expression(b, node.value if isinstance(node, ast.DictComp) else node.elt)
        b.emit(ir.Add(out, value, key, b.at(node)))
        return
    part: ast.comprehension = node.generators[i]
    source = expression(b, part.iter)
    if i == 0:  # the first iterable is evaluated outside
        b.scopes = [*b.scopes, scope]
    for name in ast.walk(part.target):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
            scope.registers.setdefault(name.id, b.rename(name.id))
    head, _, end = open_loop(b, part.iter, source, part.target, bool(part.is_async), node)
    skip = b.block()
    for test in part.ifs:
        on = b.block()
        branch(b, test, on, skip)
        b.start(on)
    _generator(b, node, i + 1, out, scope)
    b.go(skip)
    b.start(skip)
    b.go(head, back=True)
    b.start(end)


def open_loop(
    b: Builder, iterable: ast.expr, source: Reg, target: ast.expr, is_async: bool, node: ast.AST
) -> tuple[int, int, int]:
    """Begin a loop over ``source``: its head, its body (the current block, where the target is bound) and its end.

    A loop over a display that is not empty has no way round its body.
    """
    iterator = b.temp()
    b.emit(ir.Iter(iterator, source, is_async, b.at(iterable)))
    head, inside, end = b.block(), b.block(), b.block()
    filled = isinstance(iterable, (ast.Tuple, ast.List)) and any(
        not isinstance(e, ast.Starred) for e in iterable.elts
    )
    b.go(inside if filled else head)
    b.start(head, anyway=True)  # the back edge leads to it
    b.choose("more", iterator, None, inside, end)
    b.start(inside)
    element = b.temp()
    b.emit(ir.Next(element, iterator, b.at(target)))
    store(b, target, element)
    return head, inside, end


# -- conditions --------------------------------------------------------------------------------------------------------
def branch(b: Builder, test: ast.expr, yes: int, no: int) -> None:
    """End the current block: to ``yes`` where the condition holds, else to ``no``."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, yes, no = test.operand, no, yes
    if isinstance(test, ast.Constant):
        b.go(yes if test.value else no)
    elif isinstance(test, ast.BoolOp):
        for part in test.values[:-1]:
            rest = b.block()
            if isinstance(test.op, ast.And):
                branch(b, part, rest, no)
            else:
                branch(b, part, yes, rest)
            b.start(rest)
        branch(b, test.values[-1], yes, no)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        _branch_compare(b, test, yes, no)
    elif (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "isinstance"
        and len(test.args) == 2
        and not test.keywords
        and b.scopes[-1].find("isinstance") is None
    ):
        subject = expression(b, test.args[0])
        b.choose("isinstance", subject, expression(b, test.args[1]), yes, no)
    else:
        value = expression(b, test)
        b.host(value, test)
        b.choose("true", value, None, yes, no)


def _branch_compare(b: Builder, test: ast.Compare, yes: int, no: int) -> None:
    op, right_node = test.ops[0], test.comparators[0]
    left = expression(b, test.left)
    identity = isinstance(op, (ast.Is, ast.IsNot))
    swap = isinstance(op, (ast.IsNot, ast.NotEq, ast.NotIn))
    if isinstance(right_node, ast.Constant) and isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        if right_node.value is None:
            return b.choose("none", left, None, yes, no, swap)
        if identity:
            return b.choose("is", left, right_node.value, yes, no, swap)
    right = expression(b, right_node)
    if identity:
        return b.choose("same", left, right, yes, no, swap)
    dst = b.temp()
    b.emit(ir.Compare(dst, _COMPARE[type(op)], left, right, b.at(test)))
    b.host(dst, test)
    if isinstance(right_node, ast.Constant) and isinstance(op, (ast.Eq, ast.NotEq)):
        return b.choose("eq", left, right_node.value, yes, no, swap)
    if isinstance(op, (ast.In, ast.NotIn)):
        return b.choose("in", left, right, yes, no, swap)
    return b.choose("true", dst, None, yes, no)


_EXPRESSIONS: dict[type[ast.expr], Callable[[Builder, Any], Reg]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.Tuple: _display,
    ast.List: _display,
    ast.Set: _display,
    ast.Dict: _dict,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.NamedExpr: _named,
    ast.Lambda: _lambda,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Await: _await,
    ast.JoinedStr: _formatted,
    ast.FormattedValue: _formatted,
    ast.IfExp: _conditional,
    ast.BoolOp: _boolean,
    ast.Starred: _starred,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
