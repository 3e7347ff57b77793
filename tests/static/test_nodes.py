"""LibCST's nodes made of ``ast``'s are those that LibCST's own parser makes, but for layout."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
import pytest

from streamsafe.static import concrete
from streamsafe.static.nodes import FIELDS, Builder, pairs

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "fixtures").rglob("*.py"))[::4]

EVERYTHING = '''
from __future__ import annotations
from . import a as b, c
from .x.y import *
import d.e.f as g, h
x: int
y: list[int] = [1, *z]; w = x = 0x10
a, *b = c[1:2, ::3, ...], d[(1, 2)], e[()], f[1,]
del a, b[0]
del (c)
x @= 1; x //= 2
@p.q(1)
@r
class C(Base, *bases, metaclass=M, **kw):
    """Doc"""
    n = 1
    def m(self): return 1
    async def f(self, a, /, b: int = 1, *c, d, e=2, **k) -> None:
        global u, v
        async with a as b, c: await d
        async for i, j in k: continue
        else: pass
        return [x async for x in y if a if b for z in w]
def g(*, k, j=1):
    def inner(): nonlocal k; return k
def h():
    yield
    yield 1, 2
    v = yield from w
    raise A from B
    assert a < b <= c is not d not in e, "m"
if a and b and c or not d:
    pass
elif (n := -x ** +y) if ~p else lambda q, *r, s=1, **t: {**u, v: w, "k": {1, *x}}:
    pass
else:
    if e: pass
while True:
    break
else:
    f(1, *a, k=2, **b)
    f(k=1, *a)
    f(x for x in y)
try:
    raise
except (A, B) as e:
    pass
except:
    pass
else:
    pass
finally:
    print(1.5, 2j, b"x", None, True, f"{a!r:>{w}} t {b}", {k: v for k, v in w}, {k for k in w})
match p, q:
    case [A(1, b=2), *rest] | {"k": v, **others} if g:
        pass
    case None | -1 | x.y as z:
        pass
    case _:
        pass
'''


def _values(node: object) -> Iterator[object]:
    """A tree in one line: kinds, and the words and values of what has some."""
    if isinstance(node, (list, tuple)):
        yield "["
        for inner in node:
            yield from _values(inner)
        yield "]"
    elif isinstance(node, (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString)):
        # strings that stand side by side are one for ast, with whatever is shown in them
        value = None if isinstance(node, cst.FormattedString) else node.evaluated_value
        yield value if value is not None else [list(_values(e)) for e in _shown(node)]
    elif isinstance(node, (cst.Integer, cst.Float, cst.Imaginary)):
        yield ast.literal_eval(node.value)
    elif isinstance(node, cst.CSTNode):
        yield "sequence" if isinstance(node, (cst.MatchList, cst.MatchTuple)) else type(node).__name__
        for name in FIELDS.get(type(node), ()):
            yield from _values(getattr(node, name))
    elif isinstance(node, str):
        yield node


def _shown(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    if isinstance(node, cst.ConcatenatedString):
        yield from (*_shown(node.left), *_shown(node.right))
    elif isinstance(node, cst.FormattedString):
        yield from (p.expression for p in node.parts if isinstance(p, cst.FormattedStringExpression))


def _made(text: str) -> cst.Module:
    return Builder(list(io.StringIO(text))).module(ast.parse(text).body)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_our_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert list(_values(_made(text))) == list(_values(cst.parse_module(text)))


def test_every_kind_of_syntax() -> None:
    made, parsed = _made(EVERYTHING), cst.parse_module(EVERYTHING)
    assert list(_values(made)) == list(_values(parsed))
    kinds = {type(node) for node in concrete.walk(made)}
    assert set(FIELDS) - kinds <= {cst.TryStar, cst.ExceptStarHandler}


def test_strings_side_by_side() -> None:
    made, parsed = _made('f"a{b=}" "c" f"{d:{e}}"\n'), cst.parse_module('f"a{b=}" "c" f"{d:{e}}"\n')
    found = {a.value: b for a, b in pairs(made, parsed) if isinstance(a, cst.Name)}
    assert {(name, getattr(node, "value", None)) for name, node in found.items()} == {
        ("b", "b"),
        ("d", "d"),
        ("e", "e"),
    }


def test_every_node_has_its_counterpart() -> None:
    made, parsed = _made(EVERYTHING), cst.parse_module(EVERYTHING)
    found = dict(pairs(made, parsed))
    left = {type(node) for node in concrete.walk(made) if node not in found}
    assert left <= {cst.FormattedStringText, cst.MatchList}
