"""Conditions: how they come out, and what is known when they have."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .program import distinct
from .state import State
from .values import (
    Bound,
    Clock,
    Cls,
    Const,
    Ctx,
    Event,
    Func,
    Gen,
    Graph,
    Key,
    Lib,
    Map,
    Obj,
    Partial,
    Seq,
    Stream,
    Sym,
    Tensor,
    V,
    Work,
)

_OF_OBJECTS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Comparisons that do not ask for the values of tensors."""
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Conditions:
    """How the conditions of a path come out."""

    def __init__(self, state: State) -> None:
        self.m = state

    def truth(self, node: ast.expr, default: bool = True, flip: bool = True) -> bool:
        """Evaluate a condition."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand, not default, flip)
        if isinstance(node, ast.BoolOp):
            each = (self.truth(v, default, flip) for v in node.values)
            return all(each) if isinstance(node.op, ast.And) else any(each)
        if isinstance(node, ast.NamedExpr):
            return self.truthy(self.m.eval(node), default, flip, node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            op = node.ops[0]
            a, b = (self.as_tensor(self.m.eval(x)) for x in (node.left, node.comparators[0]))
            if (isinstance(a, Tensor) or isinstance(b, Tensor)) and not isinstance(op, _OF_OBJECTS):
                return self.truthy(self.m.library.compute([a, b], node, "compare"), default, flip, node)
            got = self.compare(op, a, b)
            if isinstance(got, bool):
                return got
            negated, key = got
            return self.m.decide(key, default != negated, flip, node) != negated
        return self.truthy(self.m.eval(node), default, flip, node)

    def truthy(self, v: V, default: bool, flip: bool, node: ast.AST | None = None) -> bool:
        if isinstance(v, Const):
            return bool(v.value)
        if isinstance(v, (Stream, Event, Graph, Func, Cls, Obj, Lib, Work, Ctx, Clock, Partial, Gen, Bound)):
            return True
        if isinstance(v, Seq) and not v.more and (v.items or v.limit != "open"):
            return bool(v.items)
        if isinstance(v, Map) and v.items:
            return True
        if isinstance(v, Tensor):
            self.m.library.host_value(v, node, "if")
            return self.m.decide(("truth", self.m.key(v), len(self.m.decisions)), default, flip, node)
        if isinstance(v, Sym) and v.vn in self.m.aliases:
            neg, key = self.m.aliases[v.vn]
            return self.m.decide(key, default != neg, flip, node) != neg
        return self.m.decide(("truth", self.m.key(v)), default, flip, node)

    def compare(self, op: ast.cmpop, a: V, b: V) -> bool | tuple[bool, Key]:
        """How a comparison comes out, or (negated, key) of what has to be decided."""
        negated = isinstance(op, (ast.IsNot, ast.NotEq, ast.NotIn))
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._contains(a, b, negated)
        if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            return self._less(op, a, b)
        if isinstance(op, (ast.Is, ast.IsNot)) or (isinstance(b, Const) and b.value is None):
            for x, y in ((a, b), (b, a)):
                if isinstance(y, Const) and y.value is None:
                    if isinstance(x, Const):
                        return (x.value is None) != negated
                    # of what is unknown, None is what is falsy
                    return (not negated, ("truth", self.m.key(x))) if isinstance(x, Sym) else negated
        return self._equal(a, b, negated)

    def _equal(self, a: V, b: V, negated: bool) -> bool | tuple[bool, Key]:
        if isinstance(a, Const) and isinstance(b, Const):
            return bool(a.value == b.value) != negated
        if isinstance(a, Const):
            a, b = b, a
        ka, kb = self.m.key(a), self.m.key(b)
        if isinstance(b, Const):
            known = self.m.conds.get(("is", ka))
            if known is not None:
                return bool(known == kb) != negated
            path = self.m.path
            if b.value and ka in path.falsy:
                return negated
            if kb in path.never.get(ka, ()) or kb not in path.among.get(ka, (kb,)):
                return negated
            if isinstance(b.value, bool) and isinstance(a, Sym):
                return (negated == b.value, ("truth", ka))
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return (negated, ("eq", ka, kb, len(self.m.decisions)))
        if ka == kb:
            return not negated
        if isinstance(a, Stream) and isinstance(b, Stream):
            apart: str = distinct(a.timeline, b.timeline)
            if apart != "unknown":
                return (apart == "no") != negated
        differ = self.m.numbers.apart(ka, kb)
        if differ is not None:
            return differ == negated
        return (negated, ("eq", ka, kb))

    def _contains(self, a: V, b: V, negated: bool) -> bool | tuple[bool, Key]:
        """Whether a is in b."""
        ka = self.m.key(a)
        if isinstance(b, Tensor) and self.m.at is not None:
            self.m.library.host_value(b, self.m.at, "in")
        if isinstance(b, Map) and ka in b.items:
            return not negated
        if isinstance(b, Seq) and not b.more:
            constants = [i for i in b.items if isinstance(i, Const)]
            if len(constants) == len(b.items):
                if isinstance(a, Const):
                    return (a.value in [i.value for i in constants]) != negated
                found = self.m.path.is_among(ka, {self.m.key(i) for i in constants})
                if found is not None:
                    return found != negated
                return (negated, ("in", ka, ("q", tuple(self.m.key(i) for i in constants))))
        return (negated, ("in", ka, self.m.key(b)))

    def _less(self, op: ast.cmpop, a: V, b: V) -> bool | tuple[bool, Key]:
        """How <, <=, > or >= comes out: whether a < b, or not b < a."""
        if isinstance(a, Const) and isinstance(b, Const):
            try:
                return _COMPARE[type(op)](a.value, b.value)
            except TypeError:
                return (False, ("cmp", type(op).__name__, self.m.key(a), self.m.key(b)))
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return (False, ("cmp", type(op).__name__, self.m.key(a), self.m.key(b), len(self.m.decisions)))
        if isinstance(op, (ast.LtE, ast.Gt)):
            a, b = b, a
        return (isinstance(op, (ast.LtE, ast.GtE)), ("cmp", "Lt", self.m.key(a), self.m.key(b)))

    def as_tensor(self, v: V) -> V:
        """In a capture: a parameter that is known for a tensor, as one."""
        if (
            self.m.capture is not None
            and isinstance(v, Sym)
            and v.block is not None
            and "declared" in v.block.notes
        ):
            return self.m.library.tensor(v)
        return v
