"""Texts in which nothing is begun that anybody could wait for are not interpreted: that loses no finding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsafe.static import analyze, stream_terms
from streamsafe.static.relevance import Relevance
from streamsafe.static.source import SourceFile

FIXTURES = Path(__file__).parents[2] / "fixtures"


def is_idle(text: str) -> bool:
    return Relevance(SourceFile(text, "text.py"), ()).idle


TIMED = """
import time
import torch

def measure(model, x):
    start = time.perf_counter()
    y = model(x{})
    return y, time.perf_counter() - start
"""


@pytest.mark.parametrize(
    "bringing",
    [
        ".to(device)",
        ".cuda()",
        ", device=0",
        ", torch.device(1)",
        ", torch.cuda.FloatTensor(4)",
        ", torch.as_tensor(x, None, 0)",
        ", **{'device': 0}",
        ".register_hook(print)",
    ],
)
def test_a_clock_is_followed_where_memory_may_be_brought_to_a_device(bringing: str) -> None:
    assert is_idle(TIMED.format(""))
    assert not is_idle(TIMED.format(bringing))


def test_a_clock_is_followed_where_a_pass_runs() -> None:
    assert not is_idle(TIMED.format("") + "    y.backward()\n")
    assert not is_idle(
        "from torch.autograd import grad as backward\n" + TIMED.format("") + "    backward(y)\n"
    )


def test_what_may_be_left_under_way_is_followed() -> None:
    assert not is_idle(TIMED.format(", non_blocking=True"))
    assert not is_idle(TIMED.format(", async_op=True"))
    assert not is_idle(TIMED.format(", stream=torch.cuda.Stream()"))


def test_what_happens_in_an_idle_text_can_be_explained() -> None:
    text = TIMED.format("").replace("model(x)", "torch.add(x, 1)")
    assert is_idle(text)
    assert analyze.analyze(text, "text.py", explain=7).explanation


def pieces() -> Iterator[str]:
    """Each function and class of the fixtures with the imports and assignments of its file."""
    for path in sorted(FIXTURES.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        shared = [s for s in body if isinstance(s, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))]
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield ast.unparse(ast.Module([*shared, statement], []))


def test_no_idle_piece_of_the_fixtures_has_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = [piece for piece in pieces() if is_idle(piece)]
    assert len(idle) > 300
    monkeypatch.setattr(stream_terms, "may_launch", lambda nodes, imported: True)
    assert not any(map(is_idle, idle))
    for piece in idle:
        assert not analyze.analyze(piece, "piece.py").conflicts, piece
