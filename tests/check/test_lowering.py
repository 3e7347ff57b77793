"""Python that LibCST has parsed runs as the same Python that ``ast`` has parsed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from streamsafe.check.check import Files
from streamsafe.check.lowering import parsed
from streamsafe.check.modules import tree_of
from streamsafe.project.text import SourceError

SNIPPETS = {
    "assignments": "a = b = 1\nx: int = 2\ny.z: int\nz += 1\n(p, *q), [r] = s\nt @= u\n",
    "imports": "import a.b as c, d\nfrom . import e\nfrom ..f.g import h as i, j\nfrom k import *\n",
    "calls": "f(a, *b, k=c, **d)(e)[g, 1:2, ::3][...][h,][i:]\n",
    "operators": "a and b and c or not d\n-a ** ~b // +c\na < b <= c is not d not in e\nx if y else z\n",
    "numbers and strings": "1, 0x1F, 1.5, 2j, 1_000, 'a' 'b', b'c', r'\\d', '''e\nf''', None, True, ...\n",
    "displays": "[1, *a], {2, 3}, {**b, 'c': 4}, (), (5,), [], {}\n",
    "comprehensions": "[a for a, b in c if d if e for f in g]\n{h: i for h in j}\n{k for k in l}\nsum(m for m in n)\n",
    "lambdas": "lambda a, /, b=1, *c, d, e=2, **f: (yield)\n",
    "functions": "@g.h\nasync def f(a: int, /, b: str = 'c', *, d, e=1, **k) -> None:\n    await a\n"
    "    async with b as c, d: pass\n"
    "    async for x in y: yield x\n    else: return\n    [z async for z in w]\n",
    "classes": "@a\nclass B(C, *D, metaclass=E, **F):\n    g = 1\n    def h(self): return super().h()\n",
    "blocks": "if a: b\nelif c: d; e\nelse:\n    f\nwhile g: break\nelse: continue\nfor i in j: del k, l[0]\n",
    "errors": "try: a\nexcept (B, C) as d: raise\nexcept E: raise F from g\nelse: h\nfinally: i\n"
    "assert j, k\nglobal l, m\n",
    "match": "match a, b:\n    case [C(1, d=e), *_] | {'f': g, **h} if i: pass\n"
    "    case None | -1 | 'j' | k.l as m: pass\n    case _: pass\n",
    "walrus": "if (a := b): print(c := d)\n",
}


@pytest.mark.parametrize("kind", SNIPPETS)
def test_lowered_tree_is_that_of_ast(kind: str) -> None:
    text = SNIPPETS[kind]
    made = parsed(text)
    assert ast.dump(made) == ast.dump(ast.parse(text))
    assert [(n.lineno, n.end_lineno) for n in ast.walk(made) if isinstance(n, ast.stmt)] == [
        (n.lineno, n.end_lineno) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt)
    ]


BUG = """import torch

side = torch.cuda.Stream()


def step(x):
    y = torch.ones(8, device="cuda")
    with torch.cuda.stream(side):
        y.add_(1)
    return y.sum()
"""
NEWER = {
    "Python 3.11: except*": "try:\n    pass\nexcept* ValueError:\n    pass\n",
    "Python 3.12: type parameters": "def first[T: int, *U, **V](x: T) -> T:\n    return x\n\n\n"
    "class Box[T]:\n    pass\n",
    "Python 3.12: a type alias": "type Pair[T] = tuple[T, T]\n",
    "Python 3.12: quotes in a formatted string": 'name = f"{side["a"]!r:>{width}}"\n',
    "Python 3.13: defaults of type parameters": "class Box[T = int]:\n    pass\n",
    "Python 3.14: except without parentheses": "try:\n    pass\nexcept ValueError, TypeError:\n    pass\n",
    "Python 3.14: a template string": 'name = t"{side}"\n',
}


@pytest.mark.parametrize("kind", NEWER)
def test_newer_syntax_is_run_on_every_python(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "step.py"
    path.write_text(BUG + "\n\n" + NEWER[kind])
    run = Files([str(path)]).run(str(path))
    assert run.unreadable is None
    rows = {conflict.shown_at.row for conflict in run.conflicts if conflict.shown_at is not None}
    assert rows & {9, 10}


@pytest.mark.parametrize(
    "text",
    [
        "x = (\n",
        "def f(:\n    pass\n",
        "x = '\\N{no such name}'\n",
        "x = " + "(" * 3000 + ")" * 3000,
        "print 'x'\n",
        "x = 08\n",
    ],
)
def test_no_python_of_any_version_is_no_source(text: str) -> None:
    with pytest.raises(SourceError):
        tree_of(text)
