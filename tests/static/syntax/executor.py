"""Executes the intermediate representation, so that lowering can be compared with CPython itself."""

from __future__ import annotations

import ast
import builtins
import operator
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.lower import MODULE_BODY

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "@": operator.imatmul,
    "<<": operator.ilshift,
    ">>": operator.irshift,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "not": operator.not_,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}

Env = dict[ir.Reg, Any]


class Executor:
    """Runs the functions of an index that holds one module.

    Args:
        source: the module's text.
        names: what it finds among its globals.
    """

    def __init__(self, source: str, names: Mapping[str, Any]) -> None:
        self.index = Index()
        module = self.index.add("/program.py", (ast.parse(source), source.encode()))
        assert module is not None
        self.module = module.name
        self.globals: dict[str, Any] = dict(names)

    def run(self) -> dict[str, Any]:
        """Execute the module's body; its globals."""
        fn = self.index.function(f"{self.module}:{MODULE_BODY}")
        self.finish(Frame(self, fn, {}, {}).steps())
        return self.globals

    def finish(self, steps: Generator[Any, Any, Any]) -> Any:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("yields outside of a generator")

    def make(self, fid: str, defaults: dict[str, Any], outer: dict[str, Env]) -> Callable[..., Any]:
        """The Python function that a closure is."""
        fn = self.index.function(fid)

        def steps(args: Sequence[Any], keywords: dict[str, Any]) -> Generator[Any, Any, Any]:
            return Frame(self, fn, bind(fn, args, keywords, defaults), outer).steps()

        if fn.is_generator:

            def generator(*args: Any, **keywords: Any) -> Generator[Any, Any, Any]:
                return steps(args, keywords)

            return generator
        if fn.is_async:

            @types.coroutine
            def coroutine(*args: Any, **keywords: Any) -> Generator[Any, Any, Any]:
                return (yield from steps(args, keywords))

            return coroutine

        def function(*args: Any, **keywords: Any) -> Any:
            return self.finish(steps(args, keywords))

        return function


def bind(fn: ir.Function, args: Sequence[Any], keywords: dict[str, Any], defaults: dict[str, Any]) -> Env:
    """The parameters' values of a call."""
    env: Env = {}
    left, given = list(args), dict(keywords)
    for p in fn.params:
        if p.kind == "vararg":
            env[p.name], left = tuple(left), []
        elif p.kind == "kwarg":
            env[p.name], given = given, {}
        elif p.kind != "keyword" and left:
            env[p.name] = left.pop(0)
        elif p.kind != "positional" and p.name in given:
            env[p.name] = given.pop(p.name)
        elif p.name in defaults:
            env[p.name] = defaults[p.name]
        else:
            raise TypeError(f"missing {p.name}")
    if left or given:
        raise TypeError("too many arguments")
    return env


class Frame:
    """One activation of a function."""

    def __init__(self, executor: Executor, fn: ir.Function, env: Env, outer: dict[str, Env]) -> None:
        self.executor = executor
        self.fn = fn
        self.env = env
        self.frames = {**outer, fn.fid: env}
        self.ready: dict[ir.Reg, Any] = {}  # iterator -> the element that a loop's head has fetched

    def get(self, reg: ir.Reg) -> Any:
        if reg not in self.env:
            raise UnboundLocalError(str(reg))
        return self.env[reg]

    def spread(self, parts: Sequence[ir.Reg | ir.Star]) -> list[Any]:
        out: list[Any] = []
        for part in parts:
            if isinstance(part, ir.Star):
                out.extend(self.get(part.reg))
            else:
                out.append(self.get(part))
        return out

    def holds(self, a: ir.Assume) -> bool:
        value = self.env.get(a.reg)
        if a.kind == "more":
            try:
                self.ready[a.reg] = next(self.get(a.reg))
            except StopIteration:
                return not a.truth
            return a.truth
        if a.kind == "true" or a.kind == "swallow":
            result = bool(value)
        elif a.kind == "none":
            result = value is None
        elif a.kind == "eq":
            result = value == a.other
        elif a.kind == "is":
            result = value is a.other
        elif a.kind == "same":
            result = value is self.get(a.other)
        elif a.kind == "in":
            result = value in self.get(a.other)
        else:
            result = isinstance(value, self.get(a.other))
        return result == a.truth

    def steps(self) -> Generator[Any, Any, Any]:
        at = 0
        pending: BaseException | None = None
        while True:
            block = self.fn.blocks[at]
            try:
                for instr in block.instrs:
                    if isinstance(instr, ir.Return):
                        return self.get(instr.src)
                    if isinstance(instr, ir.Catch):
                        self.env[instr.dst] = pending
                    elif isinstance(instr, ir.Yield):
                        if instr.delegated:
                            self.env[instr.dst] = yield from self.get(instr.src)
                        else:
                            self.env[instr.dst] = yield self.get(instr.src)
                    elif isinstance(instr, ir.Await):
                        self.env[instr.dst] = yield from self.get(instr.src)
                    else:
                        self.step(instr)
                if len(block.edges) == 1 and block.edges[0].assume is None:
                    at = block.edges[0].target
                    continue
                first, second = block.edges
                assert first.assume is not None and second.assume is not None
                assert first.assume._replace(truth=second.assume.truth) == second.assume
                at = first.target if self.holds(first.assume) else second.target
            except BaseException as error:
                if block.handler is None:
                    raise
                pending, at = error, block.handler

    def step(self, instr: ir.Instr) -> None:
        env, get = self.env, self.get
        match instr:
            case ir.Const(dst, value):
                env[dst] = value
            case ir.Global(dst, name):
                scope = self.executor.globals
                if name not in scope and not hasattr(builtins, name):
                    raise NameError(name)
                env[dst] = scope[name] if name in scope else getattr(builtins, name)
            case ir.SetGlobal(name, src):
                self.executor.globals[name] = get(src)
            case ir.DelGlobal(name):
                del self.executor.globals[name]
            case ir.Outer(dst, name, owner):
                if name not in self.frames[owner]:
                    raise NameError(name)
                env[dst] = self.frames[owner][name]
            case ir.SetOuter(name, owner, src):
                self.frames[owner][name] = get(src)
            case ir.Move(dst, src):
                env[dst] = get(src)
            case ir.Closure(dst, function, defaults, captured):
                assert set(captured) <= self.fn.captured
                values = {name: get(reg) for name, reg in defaults}
                env[dst] = self.executor.make(function, values, self.frames)
            case ir.Decorate(dst, decorator, target):
                env[dst] = get(decorator)(get(target))
            case ir.MakeClass(dst, cls, bases, keywords, members):
                body = {name: env[reg] for name, reg in members if reg in env}
                words = {k: get(v) for k, v in keywords if k}
                name = cls.rpartition(":")[2].rpartition(".")[2]
                env[dst] = types.new_class(name, tuple(self.spread(bases)), words, lambda ns: ns.update(body))
            case ir.Attr(dst, obj, name):
                env[dst] = getattr(get(obj), name)
            case ir.SetAttr(obj, name, src):
                setattr(get(obj), name, get(src))
            case ir.DelAttr(obj, name):
                delattr(get(obj), name)
            case ir.Item(dst, obj, key):
                env[dst] = get(obj)[get(key)]
            case ir.SetItem(obj, key, src):
                get(obj)[get(key)] = get(src)
            case ir.DelItem(obj, key):
                del get(obj)[get(key)]
            case ir.Del(name):
                get(name)
                del env[name]
            case ir.Slice(dst, lower, upper, step):
                env[dst] = slice(*(None if r is None else get(r) for r in (lower, upper, step)))
            case ir.Binary(dst, op, left, right):
                env[dst] = _BINARY[op](get(left), get(right))
            case ir.InPlace(dst, op, left, right):
                env[dst] = _INPLACE[op](get(left), get(right))
            case ir.Unary(dst, op, operand):
                env[dst] = _UNARY[op](get(operand))
            case ir.Compare(dst, op, left, right):
                env[dst] = _COMPARE[op](get(left), get(right))
            case ir.Format(dst, parts):
                env[dst] = "".join(str(get(p)) for p in parts)
            case ir.Host(src):
                get(src)
            case ir.Iter(dst, src):
                env[dst] = iter(get(src))
            case ir.Next(dst, iterator):
                env[dst] = self.ready.pop(iterator) if iterator in self.ready else next(get(iterator))
            case ir.Raise(src, cause):
                if src is None:
                    raise RuntimeError("No active exception to reraise")
                error = get(src)
                if cause is not None:
                    raise error from get(cause)
                raise error
            case ir.Enter(dst, context):
                env[dst] = get(context).__enter__()
            case ir.Exit(dst, context, exception):
                self.leave(dst, get(context), exception)
            case ir.Call(dst, func, args, keywords):
                named: dict[str, Any] = {}
                for keyword, reg in keywords:
                    named.update(get(reg) if keyword is None else {keyword: get(reg)})
                env[dst] = get(func)(*self.spread(args), **named)
            case _:
                self.data(instr)

    def leave(self, dst: ir.Reg | None, context: Any, exception: ir.Reg | None) -> None:
        if exception is None:
            context.__exit__(None, None, None)
        else:
            assert dst is not None
            error = self.get(exception)
            self.env[dst] = context.__exit__(type(error), error, error.__traceback__)

    def data(self, instr: ir.Instr) -> None:
        env, get = self.env, self.get
        match instr:
            case ir.Build(dst, "dict", elements, keys):
                built: dict[Any, Any] = {}
                for key, value in zip(keys, elements, strict=True):
                    assert not isinstance(value, ir.Star)
                    built.update(get(value) if key is None else {get(key): get(value)})
                env[dst] = built
            case ir.Build(dst, kind, elements):
                make = {"tuple": tuple, "list": list, "set": set, "generator": list}[kind]
                env[dst] = make(self.spread(elements))
            case ir.Add(container, value, key):
                into = get(container)
                if key is not None:
                    into[get(key)] = get(value)
                elif isinstance(into, set):
                    into.add(get(value))
                else:
                    into.append(get(value))
            case ir.Unpack(dsts, src, star):
                self.unpack(dsts, list(get(src)), star)
            case ir.Shape(dst, subject, kind, size, is_open):
                value = get(subject)
                if kind == "mapping":
                    env[dst] = isinstance(value, Mapping)
                else:
                    fits = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
                    env[dst] = fits and (len(value) >= size if is_open else len(value) == size)
            case ir.MatchArg(dst, subject, cls, position):
                if get(cls) in (int, str, list, tuple, dict):
                    env[dst] = get(subject)
                else:
                    env[dst] = getattr(get(subject), get(cls).__match_args__[position])
            case _:
                raise AssertionError(f"not executed: {instr}")

    def unpack(self, dsts: Sequence[ir.Reg], values: list[Any], star: int | None) -> None:
        if star is None:
            if len(values) != len(dsts):
                raise ValueError("cannot unpack")
            self.env.update(zip(dsts, values, strict=True))
            return
        after = len(dsts) - star - 1
        if len(values) < star + after:
            raise ValueError("cannot unpack")
        self.env.update(zip(dsts[:star], values[:star], strict=True))
        self.env[dsts[star]] = values[star : len(values) - after]
        self.env.update(zip(dsts[star + 1 :], values[len(values) - after :], strict=True))
