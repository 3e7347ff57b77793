"""Statements other than loops, and what they bind."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from . import data_model, patterns
from .source import HOLDING, dotted
from .state import Broke, Continued, Frame, Raised, Returned, State, StopGenerator
from .values import (
    NO_RESULT,
    NONE,
    Const,
    Ctx,
    Event,
    Func,
    Gen,
    Graph,
    Lazy,
    Lib,
    Map,
    Obj,
    Range,
    Seq,
    Stream,
    Sym,
    Tensor,
    V,
    Work,
)

_EXITS = (ast.Return, ast.Continue, ast.Break)
_PUTTING = frozenset("append add extend insert put".split())
_DEVICE_WORDS = frozenset(("is_cuda", "is_available", "device"))


class Statements:
    """Runs statements and binds names."""

    def __init__(self, state: State) -> None:
        self.m = state

    def table(self) -> dict[type[ast.AST], Callable[[Any], None]]:
        """The method that runs each kind of statement."""
        return {
            ast.Expr: self.run_expr,
            ast.Assign: self.run_assign,
            ast.AnnAssign: self.run_annassign,
            ast.AugAssign: self.run_augassign,
            ast.Return: self.run_return,
            ast.Raise: self.run_raise,
            ast.Break: self.run_break,
            ast.Continue: self.run_continue,
            ast.If: self.run_if,
            ast.With: self.run_with,
            ast.AsyncWith: self.run_with,
            ast.Try: self.run_try,
            getattr(ast, "TryStar", ast.Try): self.run_try,  # Python 3.11
            ast.Delete: self.run_delete,
            ast.FunctionDef: self.run_function,
            ast.AsyncFunctionDef: self.run_function,
            ast.Import: self.run_import,
            ast.ImportFrom: self.run_import,
            ast.Assert: self.run_assert,
            ast.Match: self.run_match,
        }

    def run_expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.m.dropped = s.value
            self.m.eval(s.value)

    def run_assign(self, s: ast.Assign) -> None:
        value = self.m.eval(s.value)
        for t in s.targets:
            self.assign(t, value, s)

    def run_annassign(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self.assign(s.target, self.m.eval(s.value), s)

    def run_augassign(self, s: ast.AugAssign) -> None:
        target = s.target
        load = self.m.eval(target)
        value = self.m.eval(s.value)
        got = data_model.operated(self.m, s.op, load, value, s, inplace=True)
        self.assign(target, got or self.m.library.inplace(load, value, s), s, aug=True)

    def run_return(self, s: ast.Return) -> None:
        self.m.left_at = s
        value = self.m.eval(s.value) if s.value is not None else NONE
        if self.m.measured and len(self.m.frames) < 3:
            self.m.library.reported(value)
        raise Returned(value)

    def run_raise(self, s: ast.Raise) -> None:
        raise Raised

    def run_break(self, s: ast.Break) -> None:
        raise Broke

    def run_continue(self, s: ast.Continue) -> None:
        raise Continued

    def run_if(self, s: ast.If) -> None:
        out, other = _exit(s.body), _exit(s.orelse)
        a, b, body_waits, orelse_waits = self.m.frame.module.branches(s)
        if _asks_for_tensor(s.test):
            self.m.body(s.body if self.m.truth(s.test, True, flip=a or b) else s.orelse)
            return
        busy = self.m.order.busy
        waits = body_waits or orelse_waits
        a, b = a or self._keeps_what_waits(s.body), b or self._keeps_what_waits(s.orelse)
        about = _about_what_waits(s)
        if waits and (self.m.timing or about != {s.test}) and not self._about_devices(s.test):
            a, b = a or body_waits, b or orelse_waits
        if out is ast.Raise:
            taken = self.m.truth(s.test, False, flip=False)
        elif other is ast.Raise:
            taken = self.m.truth(s.test, True, flip=False)
        elif out in _EXITS and not a:
            taken = self.m.truth(s.test, False, flip=busy)
        elif about and a and isinstance(s.test, ast.BoolOp) and isinstance(s.test.op, ast.And):
            taken = all(self.m.truth(t, True, flip=t not in about) for t in s.test.values)
        elif a or b:
            taken = self.m.truth(s.test, a, flip=True)
        else:
            off = not s.orelse and _turns_off(s.body)
            parts = (
                s.test.values
                if off and isinstance(s.test, ast.BoolOp) and isinstance(s.test.op, ast.And)
                else [s.test]
            )
            on = not off and not (_does_nothing(s.body) and s.orelse and not _does_nothing(s.orelse))
            each = [
                self.m.truth(t, on or t is not parts[-1], flip=self._tells_whether_to_wait(s)) for t in parts
            ]
            taken = all(each)
        self.m.body(s.body if taken else s.orelse)

    def _tells_whether_to_wait(self, s: ast.If) -> bool:
        """Whether a branch assigns a name that a later condition tests before a wait."""
        f = self.m.frame.function
        return bool(
            f is not None
            and f.guards
            and any(
                isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in f.guards
                for x in (*s.body, *s.orelse)
                for n in ast.walk(x)
            )
        )

    def run_with(self, s: ast.With | ast.AsyncWith) -> None:
        self._with_items(s.items, s.body, s)

    def _with_items(self, items: list[ast.withitem], body: list[ast.stmt], s: ast.stmt) -> None:
        if not items:
            self.m.body(body)
            return
        item = items[0]
        ctx = self.m.eval(item.context_expr)
        self._within(
            ctx, item.optional_vars, s, item.context_expr, lambda: self._with_items(items[1:], body, s)
        )

    def _within(
        self, ctx: V, target: ast.expr | None, s: ast.stmt, node: ast.AST, inner: Callable[[], None]
    ) -> None:
        """Run something inside a context manager."""
        if isinstance(ctx, Gen):
            done: list[int] = []
            left: list[Returned | Broke | Continued] = []

            def at_yield(v: V) -> None:
                if done:
                    raise StopGenerator
                done.append(1)
                if target is not None:
                    self.assign(target, v, s)
                try:
                    inner()
                except (Returned, Broke, Continued) as how:
                    left.append(how)  # the rest of the generator runs first

            self.m.run_generator(ctx, at_yield, s)
            if left:
                raise left[0]
            return
        if isinstance(ctx, Obj):
            enter, leave = ctx.cls.method("__enter__"), ctx.cls.method("__exit__")
            value: V = ctx
            if enter is not None:
                value = self.m.call_function(Func(enter, ctx), [], {}, node)
            if target is not None:
                self.assign(target, value, s)
            try:
                inner()
            finally:
                if leave is not None and not self.m.cut:
                    self.m.call_function(Func(leave, ctx), [NONE, NONE, NONE], {}, node)
            return
        opened = self.m.library.enter(ctx, node)
        if target is not None:
            given = ctx.payload if isinstance(ctx, Ctx) and ctx.kind == "plain" else None
            self.assign(target, ctx if given is None else given, s)
        try:
            inner()
        finally:
            self.m.library.leave(opened, node)

    def run_try(self, s: ast.Try) -> None:
        catches = any(_catches_missing_keys(h) for h in s.handlers)
        try:
            try:
                self.m.catching += catches
                try:
                    self.m.body(s.body)
                finally:
                    self.m.catching -= catches
            except Raised:
                if not s.handlers:
                    raise
                self.m.body(s.handlers[0].body)
            else:
                self.m.body(s.orelse)
        finally:
            if s.finalbody and not self.m.cut:
                self.m.body(s.finalbody)

    def run_delete(self, s: ast.Delete) -> None:
        for t in s.targets:
            if isinstance(t, ast.Name):
                self.m.frame.env.pop(t.id, None)
            elif isinstance(t, ast.Attribute):
                owner = self.m.eval(t.value)
                if isinstance(owner, Obj):
                    owner.fields.pop(t.attr, None)
                elif isinstance(owner, Sym):
                    self.m.fields[(owner.vn, t.attr)] = NONE
            elif isinstance(t, ast.Subscript):
                owner, index = self.m.eval(t.value), self.m.eval(t.slice)
                if isinstance(owner, Map):
                    owner.items.pop(self.m.key(index), None)
                elif (
                    isinstance(owner, Seq)
                    and isinstance(index, Const)
                    and isinstance(index.value, int)
                    and owner.items
                ):
                    with suppress(IndexError):
                        del owner.items[index.value]
        self.m.released(s)
        if self.m.captured:
            self.m.lost(s)

    def run_function(self, s: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        f = Func(self.m.frame.module.inner(s), None, self.m.frame)
        f.defaults = self.m.defaults_of(s.args)
        self.m.frame.env[s.name] = f

    def run_import(self, s: ast.Import | ast.ImportFrom) -> None:
        self.m.frame.module.add_import(s, self.m.frame.imports)

    def run_assert(self, s: ast.Assert) -> None:
        holds = self.m.truth(s.test, True, flip=False)
        if isinstance(s.test, ast.Compare) and self.m.measured:
            self._asserted(s.test)
        if not holds:
            raise Raised  # the assertion excludes what this path assumes

    def _asserted(self, test: ast.Compare) -> None:
        """Report the times that an assertion compares with something."""
        parts = set(ast.walk(test))
        for h in self.m.measured.values():
            if h.second.site[1] in parts and h not in self.m.hazards:
                self.m.hazards.append(h)

    def run_match(self, s: ast.Match) -> None:
        patterns.run_match(self.m, s)

    def assign(self, t: ast.expr, v: V, s: ast.AST, aug: bool = False) -> None:
        if isinstance(t, ast.Name):
            self._set_name(t.id, v, s)
        elif isinstance(t, ast.Attribute):
            self._set_attribute(t, v, s)
        elif isinstance(t, ast.Subscript):
            self.m.library.reported(v)
            owner = self.m.eval(t.value)
            self.m.library.set_item(owner, t, v, s, aug)
        elif isinstance(t, (ast.Tuple, ast.List)):
            self._unpack(t, v, s)
        elif isinstance(t, ast.Starred):
            self.assign(t.value, v, s)

    def _set_name(self, name: str, v: V, s: ast.AST) -> None:
        f = self.m.frame
        old = f.env.get(name)
        if self.m.graphs:
            v = self.m.library.stamp(v)
        f.sites[name] = s
        outer = self._outer(f, name)
        if outer is not None:
            f, old = outer, outer.env.get(name)
        if name in f.stash:
            self.m.globals[(f.module.path, name)] = v
        else:
            f.env[name] = v
        _name(v, name)
        if old is not None and old is not v:
            self.m.maybe_released(old, s, name=True)

    def _set_attribute(self, t: ast.Attribute, v: V, s: ast.AST) -> None:
        self.m.library.reported(v)
        owner = self.m.eval(t.value)
        text = (
            f"{getattr(owner, 'text', '')}.{t.attr}"
            if not isinstance(t.value, ast.Name)
            else f"{t.value.id}.{t.attr}"
        )
        _name(v, text)
        if data_model.set_attribute(self.m, owner, t.attr, v, s):
            return
        if isinstance(owner, Obj):
            old = owner.fields.get(t.attr)
            owner.fields[t.attr] = v
            if old is not None and old is not v:
                self.m.maybe_released(old, s)
        elif isinstance(owner, Sym):
            if t.attr == "data" and isinstance(v, (Tensor, Sym)):
                self.m.library.set_data(owner, v, s)
                return
            if t.attr == "grad" and isinstance(v, Const) and v.value is None:
                self.m.fields.pop((owner.vn, t.attr), None)
                self.m.library.drop_gradients(s)
                return
            if self.m.conds.get(("truth", self.m.key(owner))) is False:
                raise Raised  # None and other false values take no attributes
            old = self.m.fields.get((owner.vn, t.attr))
            self.m.fields[(owner.vn, t.attr)] = v
            if t.attr == "grad":
                self.m.library.gradient_assigned(owner, v)
            if isinstance(v, Event):
                self.m.may_be_recorded(v)  # by the methods of its new owner
            if old is not None and old is not v:
                self.m.maybe_released(old, s)
        elif isinstance(owner, Tensor) and t.attr == "data":
            self.m.library.set_data(owner, v, s)
        elif isinstance(owner, Tensor) and t.attr == "grad":
            self.m.library.set_grad(owner, v, s)

    def _outer(self, f: Frame, name: str) -> Frame | None:
        """The frame that holds a name which a function declares nonlocal."""
        if f.function is None or name not in f.function.nonlocal_names:
            return None
        return next((c for c in f.enclosing() if name in c.env), None)

    def _unpack(self, t: ast.Tuple | ast.List, v: V, s: ast.AST) -> None:
        if v is NO_RESULT:
            raise Raised
        v = data_model.unpacked(self.m, v, s) if isinstance(v, Obj) else v
        elts = t.elts
        star = next((i for i, e in enumerate(elts) if isinstance(e, ast.Starred)), None)
        if isinstance(v, Seq) and star is None and len(v.items) == len(elts):
            items = list(v.items)
        elif isinstance(v, Seq) and star is not None and len(v.items) >= len(elts) - 1:
            tail = len(elts) - 1 - star
            items = [
                *v.items[:star],
                Seq(v.items[star : len(v.items) - tail]),
                *(v.items[len(v.items) - tail :] if tail else []),
            ]
        elif isinstance(v, (Lazy, Range, Gen)):
            items = self.m.materialised(v, s) if not isinstance(v, Gen) else []
            items = (items + [self.m.fresh("item") for _ in elts])[: len(elts)]
        elif isinstance(v, Sym) and v.block is not None and "private" in v.block.notes:
            items = [self._piece(v, i) for i in range(len(elts))]
        elif isinstance(v, Tensor):
            items = [self.m.library.view(v, (("i", i),)) for i in range(len(elts))]
        else:
            items = [self.m.element(v, Const(i)) for i in range(len(elts))]
        for e, i in zip(elts, items, strict=False):
            self.assign(e.value if isinstance(e, ast.Starred) else e, i, s)

    def _piece(self, v: Sym, i: int) -> Sym:
        """One of several results of a captured call: all lie in the graph's memory."""
        s = self.m.sym(self.m.vn(("item", self.m.key(v), i)), f"{v.text}[{i}]", "element")
        s.block = v.block
        if v.stamp is not None:
            s = s.copy()
            s.stamp = v.stamp
        return s

    def _keeps_what_waits(self, body: list[ast.stmt]) -> bool:
        """Whether a branch stores a stream, an event or a work that is waited for later."""
        words = frozenset[str]().union(*map(self.m.frame.module.words, body))
        if not words & _PUTTING and not any(isinstance(x, ast.AugAssign) for x in body):
            return False
        env = self.m.frame.env
        return any(isinstance(env.get(w), (Stream, Event, Work)) for w in words)

    def _about_devices(self, test: ast.expr) -> bool:
        """Whether a condition asks where a known value lies: its answer is fixed."""
        for n in _of_devices(test):
            if isinstance(n, ast.Constant):
                if self.m.library.where(Const(n.value)) != "unknown":
                    return True
            elif isinstance(n, ast.Name):
                v = self.m.name(n.id)
                if (isinstance(v, Lib) and v.name.startswith(("numpy", "cupy"))) or (
                    isinstance(v, Func) and v.function.words & _DEVICE_WORDS
                ):
                    return True
            else:
                return True
        return False


@lru_cache(maxsize=4096)
def _of_devices(test: ast.expr) -> tuple[ast.expr, ...]:
    """The parts of a condition that may name a device: names, strings, and attributes about devices."""
    return tuple(
        n
        for n in ast.walk(test)
        if isinstance(n, ast.Name)
        or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        or (isinstance(n, ast.Attribute) and n.attr in _DEVICE_WORDS)
    )


def _name(v: V, text: str) -> None:
    """Give a value without a name the name of its variable."""
    if isinstance(v, Stream):
        if v.timeline.name.startswith("<"):
            v.timeline.name = text
    elif isinstance(v, (Event, Graph)):
        v.text = v.text or text
    elif isinstance(v, Tensor):
        v.block.text = v.block.text or text
    elif isinstance(v, Sym) and v.text.startswith("<"):
        v.text = text


def _exit(body: list[ast.stmt]) -> type[ast.stmt] | None:
    """The statement by which a branch leaves its loop or function; None: it does not."""
    last = body[-1] if body else None
    if isinstance(last, (*_EXITS, ast.Raise)):
        return type(last)
    if (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Call)
        and dotted(last.value.func) in ("sys.exit", "exit")
    ):
        return ast.Raise
    return None


def _catches_missing_keys(h: ast.ExceptHandler) -> bool:
    """Whether a handler catches a missing key."""
    kinds = h.type.elts if isinstance(h.type, ast.Tuple) else [h.type]
    return any(dotted(kind) in ("KeyError", "LookupError") for kind in kinds)


@lru_cache(maxsize=4096)
def _about_what_waits(s: ast.If) -> frozenset[ast.expr]:
    """The parts of a condition that test the event or stream for which a branch waits.

    A path on which it was used has one.
    """
    waited = {
        ast.unparse(n.value)
        for x in (*s.body, *s.orelse)
        for n in ast.walk(x)
        if isinstance(n, ast.Attribute) and n.attr in HOLDING
    }
    joined = isinstance(s.test, ast.BoolOp) and isinstance(s.test.op, ast.And)
    parts = s.test.values if joined and isinstance(s.test, ast.BoolOp) else [s.test]
    return frozenset(
        part
        for part in parts
        if any(isinstance(n, ast.expr) and ast.unparse(n) in waited for n in ast.walk(part))
    )


def _does_nothing(body: list[ast.stmt]) -> bool:
    """Whether a branch only binds names to constants."""
    return all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant))
        for s in body
    )


def _turns_off(body: list[ast.stmt]) -> bool:
    """Whether a branch only sets names to False; calls, such as a warning, may stand beside."""
    off = [
        isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and s.value.value is False
        for s in body
    ]
    return any(off) and all(x or isinstance(s, ast.Expr) for x, s in zip(off, body, strict=False))


def _asks_for_tensor(n: ast.expr) -> bool:
    """Whether a condition is isinstance(x, Tensor)."""
    return (
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and n.func.id == "isinstance"
        and len(n.args) == 2
        and dotted(n.args[1]).endswith(("Tensor", "ndarray"))
    )
