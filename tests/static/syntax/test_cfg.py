"""The graph of a function: the order of its blocks, what lives across them, and components of a call graph."""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.cfg import components, graph, read, written
from streamsafe.static.syntax.index import Index
from tests.static.syntax.random_programs import Programs


def functions(source: str) -> list[ir.Function]:
    index = Index()
    module = index.add("/m.py", (ast.parse(source), source.encode()))
    assert module is not None
    found = [index.function("m:<module>")]
    done: set[str] = set()
    while fresh := [fid for fid in index.definitions if fid not in done]:
        done.update(fresh)
        found += [index.function(fid) for fid in fresh]
    return found


def one(source: str) -> ir.Function:
    return next(fn for fn in functions(source) if fn.name == "f")


@settings(max_examples=30, derandomize=True)
@given(st.integers(0, 2**32))
def test_every_temporary_is_made_before_it_is_read(seed: int) -> None:
    """In every block, a temporary that is read is made there or lives at the end of each block before."""
    for fn in functions(Programs(seed).program()):
        g = graph(fn)
        entering: dict[int, set[int]] = {}
        for b in g.order:
            for target in g.successors[b]:
                entering.setdefault(target, set(g.live[b])).intersection_update(g.live[b])
        for b in g.order:
            made = set(entering.get(b, ()))
            for instr in fn.blocks[b].instrs:
                assert all(r in made for r in read(instr) if isinstance(r, int)), (fn.fid, b, instr)
                made.update(r for r in written(instr) if isinstance(r, int))


def test_an_inner_loop_comes_before_what_follows_it() -> None:
    fn = one(
        "def f(xs):\n    for x in xs:\n        while x:\n            x = g(x)\n        h(x)\n    return 1\n"
    )
    g = graph(fn)
    assert len(g.heads) == 2
    last = next(i for i, block in enumerate(fn.blocks) if any(isinstance(x, ir.Return) for x in block.instrs))
    assert g.position[last] == len(g.order) - 1 or g.order[-1] != last
    assert g.position[min(g.heads)] > 0


def test_a_handler_that_only_raises_again_does_not_matter() -> None:
    fn = one("def f(c):\n    with c:\n        c.x()\n    return 1\n")
    assert not any(isinstance(i, ir.Catch) for b in graph(fn).order for i in fn.blocks[b].instrs)
    fn = one("def f(c):\n    try:\n        c.x()\n    except ValueError:\n        return 2\n    return 1\n")
    assert any(isinstance(i, ir.Catch) for b in graph(fn).order for i in fn.blocks[b].instrs)


def test_components_come_callees_first() -> None:
    calls = {"a": ["b", "c"], "b": ["d"], "c": ["b", "e"], "d": ["b"], "e": []}
    assert components("abcde", calls.__getitem__) == [["b", "d"], ["e"], ["c"], ["a"]]
