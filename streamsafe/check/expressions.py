"""Expressions: names, attributes, operators."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any, TypeGuard

from . import data_model
from .source import STRONG, Class, Function, Module, dotted
from .state import Raised, Returned, State
from .values import NONE, Cls, Const, Func, Future, Lib, Map, Seq, Stream, Sym, Tensor, V

LIBRARIES = tuple(
    """torch numpy cupy time contextlib functools threading queue collections concurrent itertools asyncio copy random
    os math typing dataclasses cv2 PIL triton numba builtins""".split()
)
"""Packages that are no part of the tree."""
_BUILTINS = frozenset(dir(builtins))
_PLAIN = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Name, ast.Attribute)
_FOLLOWED = STRONG | frozenset(
    "RawKernel ElementwiseKernel ReductionKernel RawModule getLogger namedtuple ContextVar".split()
)
"""Words of which one stands in what a module-level name is set to, where that is followed."""


class Expressions:
    """Evaluates expressions."""

    def __init__(self, state: State) -> None:
        self.m = state
        self._constants: dict[ast.Constant, Const] = {}

    def table(self) -> dict[type[ast.AST], Callable[[Any], V]]:
        """What evaluates each kind of expression."""
        return {
            ast.Constant: self.eval_constant,
            ast.Name: self.eval_name,
            ast.Attribute: self.eval_attribute,
            ast.Subscript: self.eval_subscript,
            ast.BinOp: self.eval_binop,
            ast.UnaryOp: self.eval_unaryop,
            ast.BoolOp: self.eval_boolop,
            ast.Compare: self.eval_compare,
            ast.IfExp: self.eval_ifexp,
            ast.Lambda: self.eval_lambda,
            ast.JoinedStr: self.eval_joined,
            ast.NamedExpr: self.eval_named,
            ast.Await: self.eval_await,
            ast.Starred: self.eval_starred,
        }

    def eval_constant(self, n: ast.Constant) -> V:
        v = self._constants.get(n)
        if v is None:
            v = self._constants[n] = Const(n.value)
        return v

    def eval_name(self, n: ast.Name) -> V:
        return self.name(n.id)

    def name(self, id_: str) -> V:
        f = self.m.frame
        v = f.env.get(id_)
        if v is not None:
            return v
        for c in f.enclosing():
            v = c.env.get(id_)
            if v is not None:
                return v
        full = f.imports.get(id_)
        if full is None and f.closure is not None:
            full = f.closure.imports.get(id_)
        return self.global_name(f.module, id_, full)

    def global_name(self, m: Module, id_: str, full: str | None = None) -> V:
        k = (m.path, id_)
        v = self.m.globals.get(k)
        if v is not None:
            return v
        full = full or m.imports.get(id_)
        if full is not None:
            v = self._imported(full, m)
        elif id_ in m.functions:
            v = Func(m.functions[id_])
        elif id_ in m.classes:
            v = Cls(m.classes[id_])
        elif id_ in m.globals:
            self.m.globals[k] = self.m.sym(self.m.vn(("global", k)), id_)
            v = self._assigned(m, id_) or self.m.sym(self.m.vn(("global", k)), id_)
        else:
            v = Lib("builtins." + id_) if id_ in _BUILTINS else self._starred(m, id_)
        self.m.globals[k] = v
        if id_ in m.fillers and isinstance(v, (Seq, Map)):
            data_model.fill(self.m, m, id_)
        return v

    def _starred(self, m: Module, id_: str) -> V:
        """A name that the file does not bind itself: it may be imported with all names of a module."""
        found = self.m.project.starred(m, id_)
        if isinstance(found, Function):
            return Func(found)
        if found is not None:
            return Cls(found)
        return self.m.sym(self.m.vn(("global", (m.path, id_))), id_, "imported" if m.stars else "")

    def _assigned(self, m: Module, id_: str) -> V | None:
        """What the assignment of a module-level name makes; None where that is not followed, or others set it."""
        node = m.globals[id_]
        device = isinstance(node, ast.Call) and dotted(node.func) in ("torch.device", "device")
        if not (
            device or isinstance(node, _PLAIN) or _is_number(node) or not _FOLLOWED.isdisjoint(m.words(node))
        ):
            return None
        try:
            v = self.m.eval_in(m, node)
        except (Raised, Returned):
            return None
        if isinstance(v, Stream) and v.timeline.name.startswith("<"):
            v.timeline.name = id_
        if isinstance(v, Const) and v.value is None:
            return None  # set elsewhere
        if isinstance(v, Seq) and not v.items and v.kind != "tuple":
            v.limit = "open"  # others may have filled it
        return v

    def _imported(self, full: str, m: Module) -> V:
        if full.startswith(LIBRARIES):
            return Lib(self.m.library.canonical(full))
        found = self.m.project.lookup(full, m.path)
        if isinstance(found, Function):
            return Func(found)
        if isinstance(found, Class):
            return Cls(found)
        mod, _, last = full.rpartition(".")
        if mod:
            path = self.m.project.find_file(mod, m.path)
            if path:
                target = self.m.project.module(path)
                if target is not None and last in target.globals:
                    return self.global_name(target, last)
        return Lib(full)

    def eval_attribute(self, n: ast.Attribute) -> V:
        owner = self.m.eval(n.value)
        return self.m.attribute(owner, n.attr, n)

    def eval_subscript(self, n: ast.Subscript) -> V:
        owner = self.m.eval(n.value)
        if isinstance(owner, Lib) and owner.name in ("numpy.s_", "numpy.index_exp", "cupy.s_"):
            return self.m.library.index_of(n.slice)
        if isinstance(owner, Tensor) or (isinstance(owner, Sym) and owner.block is not None):
            return self.m.library.index(self.m.library.tensor(owner), n.slice, n)
        if isinstance(n.slice, ast.Slice):
            low, high, step = (
                self.m.eval(b) if b is not None else NONE
                for b in (n.slice.lower, n.slice.upper, n.slice.step)
            )
            if isinstance(owner, Seq):
                if _is_bound(low) and _is_bound(high) and _is_bound(step):
                    return Seq(owner.items[low.value : high.value : step.value], owner.kind, owner.more)
                return owner
            if isinstance(owner, Sym):
                return self.m.library.slice_of(owner, n.slice, n)
            return self.m.fresh("<slice>")
        index = self.m.eval(n.slice)
        if isinstance(owner, (Lib, Cls)):
            return owner
        if isinstance(index, Tensor) and index.mask and index.block.place == "cuda":
            self.m.library.sync_quiet()  # the size of the result is a value of the mask
        return self.m.element(owner, index)

    def eval_await(self, n: ast.Await) -> V:
        v = self.m.eval(n.value)
        if isinstance(v, Future):
            self.m.library.joined(v)
            return v.value
        return v

    def eval_binop(self, n: ast.BinOp) -> V:
        a, b = self.m.eval(n.left), self.m.eval(n.right)
        return data_model.operated(self.m, n.op, a, b, n) or self.m.library.binary(a, b, n)

    def eval_unaryop(self, n: ast.UnaryOp) -> V:
        if isinstance(n.op, ast.Not):
            v = self.m.eval(n.operand)
            if isinstance(v, Const):
                return Const(not v.value)
            if isinstance(v, Tensor):
                self.m.library.host_value(v, n, "not")
            neg, key = self.m.aliases.get(getattr(v, "vn", -1), (False, ("truth", self.m.key(v))))
            if key in self.m.conds:
                return Const(self.m.conds[key] == neg)
            got = self.m.sym(self.m.vn(("not", self.m.key(v))), "<not>", "host")
            self.m.aliases[got.vn] = (not neg, key)
            return got
        v = self.m.eval(n.operand)
        if isinstance(v, Const) and isinstance(v.value, (int, float)):
            if isinstance(n.op, ast.USub):
                return Const(-v.value)
            if isinstance(n.op, ast.UAdd):
                return v
            if isinstance(v.value, int):
                return Const(~v.value)
        return self.m.library.unary(v, n)

    def eval_boolop(self, n: ast.BoolOp) -> V:
        last: V = NONE
        for i, x in enumerate(n.values):
            last = self.m.eval(x)
            if i == len(n.values) - 1:
                return last
            if isinstance(last, Const):
                if bool(last.value) == isinstance(n.op, ast.Or):
                    return last
                continue
            if isinstance(n.op, ast.Or):
                if isinstance(last, Sym):
                    strong = self.m.frame.module.strong(n.values[i + 1])
                    if self.m.decide(("truth", self.m.key(last)), not strong, flip=strong):
                        return last
                else:
                    return last
            elif isinstance(last, Sym):
                if not self.m.decide(("truth", self.m.key(last)), True, flip=False):
                    return last
        return last

    def eval_compare(self, n: ast.Compare) -> V:
        a = self.m.as_tensor(self.m.eval(n.left))
        keys = [self.m.key(a)]
        values = [a]
        for c in n.comparators:
            v = self.m.as_tensor(self.m.eval(c))
            values.append(v)
            keys.append(self.m.key(v))
        if any(isinstance(v, Tensor) for v in values) and not isinstance(
            n.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)
        ):
            return self.m.library.compute(values, n, "compare")
        if len(n.ops) == 1:
            got = self.m.compare(n.ops[0], values[0], values[1])
            if isinstance(got, bool):
                return Const(got)
            neg, key = got
            if key in self.m.conds:
                return Const(self.m.conds[key] != neg)
            truth = self.m.sym(self.m.vn(("cmp", neg, key)), "<comparison>", "host")
            self.m.aliases[truth.vn] = (neg, key)
            return truth
        return self.m.sym(
            self.m.vn(("cmp", tuple(type(o).__name__ for o in n.ops), tuple(keys))), "<comparison>"
        )

    def eval_ifexp(self, n: ast.IfExp) -> V:
        strong = self.m.frame.module.strong(n.body), self.m.frame.module.strong(n.orelse)
        default = strong[0] or not strong[1]
        if isinstance(n.body, ast.Constant) and n.body.value is None:
            default = False
        taken = self.m.truth(n.test, default, flip=any(strong))
        return self.m.eval(n.body if taken else n.orelse)

    def eval_lambda(self, n: ast.Lambda) -> V:
        f = Func(self.m.frame.module.inner(n), None, self.m.frame)
        f.defaults = self.m.defaults_of(n.args)
        return f

    def eval_joined(self, n: ast.JoinedStr) -> V:
        parts: list[Any] = []
        for v in n.values:
            if isinstance(v, ast.Constant):
                parts.append(v.value)
            if isinstance(v, ast.FormattedValue):
                x = self.m.eval(v.value)
                parts.append(self.m.key(x))
                self.m.library.reported(x)
                data_model.written(self.m, x, v)
                if isinstance(x, Tensor):
                    self.m.library.host_value(x, v.value, "formatting")
                elif isinstance(x, Sym) and self.m.library.tensorish(x):
                    self.m.uncertain.append(self.m.library.tick())  # its text may be its value
        got = self.m.sym(self.m.vn(("str", *parts)), "<text>", "host")
        if len(parts) == 2 and parts[0] == "cuda:":
            self.m.library.devices_named[got.vn] = parts[1]
        return got

    def eval_named(self, n: ast.NamedExpr) -> V:
        v = self.m.eval(n.value)
        self.m.assign(n.target, v, n)
        return v

    def eval_starred(self, n: ast.Starred) -> V:
        return self.m.eval(n.value)


def _is_number(node: ast.expr) -> bool:
    """Whether an expression computes with constants only."""
    parts = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
    return isinstance(node, (ast.BinOp, ast.UnaryOp)) and all(isinstance(n, parts) for n in ast.walk(node))


def _is_bound(v: V) -> TypeGuard[Const]:
    """Whether a bound of a slice is known."""
    return isinstance(v, Const) and (v.value is None or isinstance(v.value, int))
