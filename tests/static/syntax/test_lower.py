"""Lowering keeps the meaning: programs run by CPython and from the intermediate representation do the same."""

from __future__ import annotations

import ast
from types import TracebackType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.index import Index
from streamsafe.static.syntax.lower import MODULE_BODY
from tests.static.syntax.executor import Executor
from tests.static.syntax.random_programs import Programs, compiled


class World:
    """What programs find among their globals; everything they do to it is logged."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        log = self.log
        calls = iter(range(10_000))

        class Manager:
            def __init__(self, n: int) -> None:
                self.n = n

            def __enter__(self) -> int:
                log.append(("enter", self.n))
                return self.n

            def __exit__(
                self, kind: type | None, error: BaseException | None, at: TracebackType | None
            ) -> bool:
                log.append(("exit", self.n, kind and kind.__name__))
                return self.n % 3 == 0

        class Box:
            __match_args__ = ("value",)
            shared: Any = None

            def __init__(self, value: Any) -> None:
                self.value = value

            def __repr__(self) -> str:
                return "Box"

        def t(n: int) -> int:
            log.append(n)
            return n

        def boom(n: int) -> int:
            if next(calls) % 3 == 0:
                raise (ValueError, KeyError, IndexError)[n % 3]
            return n

        def show(*args: Any, **keywords: Any) -> str:
            return repr((args, sorted(keywords.items(), key=repr)))[:40]

        self.names = {
            "t": t,
            "boom": boom,
            "Manager": Manager,
            "box": Box,
            "show": show,
            "log": log,
            "keep": lambda f: f,
            "__name__": "program",
        }


def outcome(log: list[Any], error: Exception | None) -> list[str]:
    """A log as text: functions and objects by their kind only."""
    texts = [_plain(entry) for entry in log]
    return [*texts, type(error).__name__ if error else "no exception"]


def _plain(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(_plain, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (int, str, float, bool, type(None))):
        text = repr(value)
        return "an object" if " at 0x" in text or "object" in text or "<" in text else text
    return "an object"


def by_cpython(source: str) -> list[str]:
    world = World()
    error: Exception | None = None
    try:
        exec(compiled(source), world.names)
    except Exception as problem:
        error = problem
    return outcome(world.log, error)


def from_ir(source: str) -> list[str]:
    world = World()
    error: Exception | None = None
    try:
        Executor(source, world.names).run()
    except AssertionError as problem:
        if problem.args and str(problem.args[0]).startswith(("yields outside", "not executed")):
            raise
        error = problem
    except Exception as problem:
        error = problem
    return outcome(world.log, error)


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 2**32))
def test_random_programs_do_the_same(seed: int) -> None:
    source = Programs(seed).program()
    assert from_ir(source) == by_cpython(source), source


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            """
def outer(a):
    seen = []
    def inner(b):
        nonlocal a
        seen.append((a, b))
        a += b
        return lambda: (a, b, seen)
    first = inner(1)
    return inner(2)(), first(), a
log.append(outer(10))
""",
            id="nonlocal",
        ),
        pytest.param(
            """
def f(x):
    return x + (x := x + 1) * (lambda: x)() + x
log.append(f(3))
def g():
    x = 1
    def h():
        nonlocal x
        x += 1
        return x
    return (x, h(), x, x + h() + x)
log.append(g())
""",
            id="an operand is read before it is bound anew",
        ),
        pytest.param(
            """
async def leaf(n):
    t(n)
    return n + 1
async def root():
    async def inner():
        return [await leaf(1), await leaf(2)]
    return await inner(), await leaf(3)
def drive(step):
    try:
        step.send(None)
    except StopIteration as end:
        return end.value
log.append(drive(root()))
""",
            id="async",
        ),
        pytest.param(
            """
def f(stop):
    for i in range(4):
        try:
            with Manager(1) as m, Manager(4):
                if i == stop:
                    return i, m
                if i == 1:
                    continue
                t(i)
        finally:
            if i == 2:
                break
            t(100 + i)
    else:
        return "whole"
    return "broken"
log.append([f(0), f(1), f(2), f(3), f(9)])
""",
            id="every way out of a try and a with",
        ),
        pytest.param(
            """
def f(n):
    try:
        try:
            raise (ValueError, KeyError, TypeError)[n]
        except ValueError:
            return t(1)
        except KeyError as error:
            raise RuntimeError from error
        finally:
            t(2)
    except RuntimeError as error:
        return type(error.__cause__).__name__
    except TypeError:
        try:
            raise
        except Exception as error:
            return type(error).__name__
for n in range(3):
    log.append(f(n))
""",
            id="exceptions raised in handlers",
        ),
        pytest.param(
            """
def f(a, /, b=t(1), *rest, key=t(2), **more):
    return a, b, rest, key, sorted(more.items())
log.append([f(1), f(1, 2, 3, key=4, other=5), f(*[1, 2], **{"key": 3})])
""",
            id="parameters",
        ),
        pytest.param(
            """
def count(n):
    total = 0
    while n:
        n -= 1
        if n % 3 == 1:
            continue
        got = yield n
        total += got or 0
    return total
def outer():
    result = yield from count(6)
    yield ("total", result)
g = outer()
log.append(next(g))
for v in (10, 20, 30):
    log.append(g.send(v))
""",
            id="generators",
        ),
        pytest.param(
            """
x = "module"
class A:
    x = "class"
    y = [x, [i for i in range(2)]]
    def m(self):
        return x
    class B:
        z = "inner"
    __p = 1
    def q(self):
        self.__r = self.__p
        return self.__r
log.append((A.x, A.y, A().m(), A.B.z, A().q(), A()._A__r if hasattr(A(), "_A__r") else 0))
""",
            id="class bodies",
        ),
    ],
)
def test_a_program_does_the_same(source: str) -> None:
    assert from_ir(source) == by_cpython(source)


def lowered(source: str, name: str = MODULE_BODY) -> ir.Function:
    index = Index()
    module = index.add("/m.py", (ast.parse(source), source.encode()))
    assert module is not None
    return index.function(f"m:{name}")


def test_a_sum_of_many_terms_is_lowered_whole() -> None:
    fn = lowered("def f(a):\n    return " + " + ".join(["a"] * 2000), "f")
    assert sum(isinstance(i, ir.Binary) for b in fn.blocks for i in b.instrs) == 1999


def test_what_is_nested_too_deeply_is_lost_alone() -> None:
    source = f"def f(a):\n    x = a{'.b()' * 400}\n    y = a.b()\n    return y"
    instrs = [i for b in lowered(source, "f").blocks for i in b.instrs]
    assert sum(isinstance(i, ir.Opaque) for i in instrs) == 1
    assert isinstance(instrs[-1], ir.Return)


def test_a_long_chain_of_elif() -> None:
    fn = lowered(
        "def f(a):\n    if a == 0:\n        return 0\n"
        + "".join(f"    elif a == {i}:\n        return {i}\n" for i in range(1, 900)),
        "f",
    )
    assert sum(isinstance(i, ir.Return) for b in fn.blocks for i in b.instrs) == 901


def test_a_comment_or_a_blank_line_changes_no_instruction() -> None:
    source = "def f(a):\n    if a:\n        b = a.x\n    return [c for c in b]\n"
    spread = source.replace("    b = a.x\n", "    # nothing\n\n        b = (a .\n             x)\n")
    one, other = lowered(source, "f"), lowered(spread, "f")
    assert one.blocks == other.blocks
    assert one.spans != other.spans
