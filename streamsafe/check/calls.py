"""Calls: what is called with what, functions, classes and generators."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from . import data_model
from .relevance import Relevance
from .source import Class, Function
from .state import MAX_DEPTH, Frame, Returned, State
from .values import (
    HELD,
    NO_RESULT,
    NONE,
    Bound,
    Cls,
    Const,
    Func,
    Gen,
    Lib,
    Map,
    Obj,
    Partial,
    Seq,
    Stream,
    Tensor,
    V,
)

_WAITING_FOR_A_TIME = frozenset(
    "time.sleep builtins.max builtins.min asyncio.sleep builtins.round builtins.int builtins.float".split()
)
"""Calls that a measured time does not leave the program by."""
_MAX_RECURSION = 4


class Calls:
    """Calls functions and classes of the tree."""

    def __init__(self, state: State) -> None:
        self.m = state
        self.relevance = Relevance(state)

    def table(self) -> dict[type[ast.AST], Callable[[Any], V]]:
        """What evaluates each kind of expression."""
        return {ast.Call: self.eval_call}

    def eval_call(self, n: ast.Call) -> V:
        self.m.step()
        if _is_super(n):
            return self.m.fresh("super", "super")
        if isinstance(n.func, ast.Attribute) and _is_super(n.func.value):
            return self._super_call(n, n.func.attr)
        callee = self.m.eval(n.func)
        args: list[V] = []
        self.m.walked.append(Seq(args))
        try:
            kwargs = self._arguments(n, args)
            if self.m.measured and not (isinstance(callee, Lib) and callee.name in _WAITING_FOR_A_TIME):
                for v in (*args, *kwargs.values()):
                    self.m.library.reported(v)
            return self.call_value(callee, args, kwargs, n)
        finally:
            self.m.walked.pop()

    def _arguments(self, n: ast.Call, args: list[V]) -> dict[str, V]:
        """Evaluate the arguments of a call: those by place are put into ``args``."""
        for a in n.args:
            if isinstance(a, ast.Starred):
                v = data_model.unpacked(self.m, self.m.eval(a.value), a)
                if isinstance(v, Seq):
                    args += v.items
                else:
                    args.append(
                        self.m.sym(self.m.vn(("star", self.m.key(v))), getattr(v, "text", "args"))
                        if not isinstance(v, Tensor)
                        else v
                    )
            else:
                args.append(self.m.eval(a))
        kwargs = {}
        for k in n.keywords:
            v = self.m.eval(k.value)
            if k.arg is None:
                v = data_model.contents(self.m, v)
            if k.arg is not None:
                kwargs[k.arg] = v
            elif isinstance(v, Map):
                for kk, vv in v.items.items():
                    if kk[0] == "c" and isinstance(kk[2], str):
                        kwargs[kk[2]] = vv
        return kwargs

    def _super_call(self, n: ast.Call, name: str) -> V:
        f = self.m.frame.function
        args = [self.m.eval(a) for a in n.args if not isinstance(a, ast.Starred)]
        kwargs = {k.arg: self.m.eval(k.value) for k in n.keywords if k.arg}
        self_ = self.m.frame.env.get("self")
        if f is not None and f.cls is not None and isinstance(self_, Obj):
            for c in f.cls.mro()[1:]:
                m = c.methods.get(name)
                if m is not None:
                    return self.call_function(Func(m, self_), args, kwargs, n)
        return self._of_builtin_base(f, self_, name, args, kwargs, n)

    def _of_builtin_base(
        self, f: Function | None, self_: V | None, name: str, args: list[V], kwargs: dict[str, V], n: ast.Call
    ) -> V:
        """What ``super()`` calls of a base that is not in the tree: an object is made, or a container is used."""
        if name == "__new__" and args and isinstance(args[0], Cls):
            return Obj(args[0].cls, self.m.vn(("new", len(self.m.vns))), args[0].cls.name)
        if (
            name == "__init__"
            and isinstance(self_, Obj)
            and data_model.saves_tensors(self_.cls)
            and len(args) > 1
        ):
            self.m.library.registered(self_, args)
            return NONE
        held = data_model.contents(self.m, self_) if self_ is not None else NONE
        if isinstance(self_, Obj) and isinstance(held, (Seq, Map)) and not self_.cls.is_record:
            if name == "__init__":
                made = data_model.container(self.m, self_.cls.container, args, kwargs, n)
                self_.fields[HELD] = made
                return NONE
            if name == "__getitem__" and args:
                return self.m.element(held, args[0])
            if not name.startswith("__"):
                return self.m.library.method(held, name, args, kwargs, n)
        return self.m.fresh("super()." + name)

    def call_value(self, callee: V, args: list[V], kwargs: dict[str, V], n: ast.AST) -> V:
        if isinstance(callee, Func):
            return self.call_function(callee, args, kwargs, n)
        if isinstance(callee, Cls):
            return self._construct(callee.cls, args, kwargs, n)
        if isinstance(callee, Partial):
            return self.call_value(callee.func, [*callee.args, *args], {**callee.kwargs, **kwargs}, n)
        if isinstance(callee, Lib):
            return self.m.library.call(callee.name, args, kwargs, n)
        if isinstance(callee, Obj):
            m = callee.cls.method("forward") if callee.cls.is_module() else callee.cls.method("__call__")
            m = m or callee.cls.method("__call__") or callee.cls.method("forward")
            if m is not None:
                self.m.library.module_runs(callee)
                return self.call_function(Func(m, callee), args, kwargs, n)
        if isinstance(callee, Bound) and isinstance(callee.receiver, Cls) and callee.name == "_make":
            given = self.m.materialised(args[0], n) if args else []
            return self._construct(callee.receiver.cls, given, {}, n)
        return self.m.library.call_unknown(callee, args, kwargs, n)

    def _construct(self, c: Class, args: list[V], kwargs: dict[str, V], n: ast.AST) -> V:
        if any(b.endswith(("Enum", "IntEnum", "TypedDict", "Exception", "Error")) for b in c.bases):
            o = Obj(c, self.m.vn(("new", len(self.m.vns))), c.name)
            for name, v in [*zip(c.declared, args, strict=False), *kwargs.items()]:
                o.fields[name] = v
            return o
        o = data_model.made(self.m, c, args, kwargs, n)
        init = c.method("__init__")
        if init is not None:
            if init.strong or self.m.depth < 3:
                self.call_function(Func(init, o), args, kwargs, n, force=True)
        else:
            data_model.set_fields(self.m, o, args, kwargs, n)
            post = c.method("__post_init__")
            if post is not None:
                self.call_function(Func(post, o), [], {}, n, force=True)
        return o

    def call_function(
        self, f: Func, args: list[V], kwargs: dict[str, V], n: ast.AST, force: bool = False
    ) -> V:
        fn = f.function
        if fn.cls is not None and fn.cls.is_autograd() and fn.name == "apply":
            return self.m.library.opaque(f, args, kwargs, n)
        if fn.kernel:
            return self.m.library.kernel(f, args, kwargs, n)
        if fn.generator:
            return Gen(f, args, kwargs)
        if fn.decorators and self.m.library.decorated_for_streams(f, args, kwargs, n):
            return NONE
        again = sum(1 for fr in self.m.frames if fr.function is fn)
        counted = any(isinstance(a, Const) and type(a.value) is int for a in args)  # down to a number
        deep = self.m.depth >= MAX_DEPTH or again >= (_MAX_RECURSION if counted else 2)
        if isinstance(fn.node, ast.Lambda):
            force = True
        strong = force or self.relevance.matters(fn, args, kwargs)
        if deep or not strong or fn.abstract:
            return self.m.library.opaque(f, args, kwargs, n, unseen=deep and strong)
        key = self._memo_key(f, args, kwargs)
        if key in self.m.memo:
            return self.m.memo[key]
        env = self.bind(f, args, kwargs)
        self.m.entered.add(fn)
        self.m.orders |= fn.orders
        frame = Frame(fn.module, fn, env, f.closure)
        frame.call = n
        self.m.frames.append(frame)
        self.m.depth += 1
        try:
            if isinstance(fn.node, ast.Lambda):
                raise Returned(self.m.eval(fn.node.body))
            self.m.body(fn.body)
            result: V = NO_RESULT
        except Returned as r:
            result = r.value
        finally:
            self.m.depth -= 1
            self.m.frames.pop()
        self.m.trail.add(self.m.seq, "returns", f"`{fn.name}()` returns", self.m.site(n))
        if self.m.captured:
            self.m.lost(
                n, frame, [result, *args, *kwargs.values(), *([f.self_] if f.self_ is not None else [])]
            )
        self.m.left(n)
        if key is not None:
            self.m.memo[key] = result
            if isinstance(result, Stream) and result.timeline.origin == "new":
                result.timeline.group = ("memoized", fn)
                result.timeline.place = [self.m.numbers.place(k) for k in key[1:]]
        return self.m.library.stamp(result) if self.m.graphs else result

    def _memo_key(self, f: Func, args: list[V], kwargs: dict[str, V]) -> Any:
        """What a memoized function knows a call by."""
        if not f.function.memoized:
            return None
        return (
            f.function,
            *(self.m.key(v) for v in args),
            *((k, self.m.key(v)) for k, v in sorted(kwargs.items())),
        )

    def _default(self, f: Func, name: str, node: ast.expr) -> V:
        """What a parameter is by default: evaluated once, where the function is defined."""
        known = f.defaults.get(name)
        if known is not None or isinstance(node, ast.Constant):
            return known or self.m.eval(node)
        key = ("default", f.function.module.path, node)
        if key not in self.m.memo:
            self.m.memo[key] = self.m.eval_in(f.function.module, node)
        return self.m.memo[key]

    def bind(self, f: Func, args: list[V], kwargs: dict[str, V]) -> dict[str, V]:
        a = f.function.node.args
        env: dict[str, V] = {}
        values = list(args)
        if f.self_ is not None:
            values.insert(0, f.self_)
        names = [*a.posonlyargs, *a.args]
        defaults = [None] * (len(names) - len(a.defaults)) + list(a.defaults)

        def by_name(p: ast.arg, default: ast.expr | None) -> V:
            if p.arg in kwargs:
                return kwargs[p.arg]
            return self._default(f, p.arg, default) if default is not None else self.m.fresh(p.arg, "param")

        for i, (p, d) in enumerate(zip(names, defaults, strict=False)):
            env[p.arg] = values[i] if i < len(values) else by_name(p, d)
        if a.vararg is not None:
            env[a.vararg.arg] = Seq(values[len(names) :], "tuple", False)
        for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=False):
            env[p.arg] = by_name(p, d)
        if a.kwarg is not None:
            known = {p.arg for p in (*names, *a.kwonlyargs)}
            env[a.kwarg.arg] = Map(
                {("c", "str", k): v for k, v in kwargs.items() if k not in known},
                self.m.vn(("kw", len(self.m.vns))),
            )
        return env


def _is_super(n: ast.expr) -> bool:
    return isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "super"
