"""What a path shows as a conflict: what it assumes, the path between the accesses, one for each missing edge."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import streamsafe.check
from streamsafe.check import assumptions
from streamsafe.check.check import Files
from streamsafe.check.models.state import ASSUMPTIONS
from streamsafe.order.hazard import Conflict
from streamsafe.rule import code_for

HEAD = "import torch\n\n\n"
PREFETCH = """\
def prefetch(x):
    side = torch.cuda.Stream()
    y = torch.zeros(8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.mul_(2)
    z = y + 1
    return y.sum(), z
"""
ORDERED = PREFETCH.replace("    z =", "    torch.cuda.current_stream().wait_stream(side)\n    z =")
UNKNOWN_STREAMS = """\
class Copies:
    def run(self, x: torch.Tensor):
        with torch.cuda.stream(self.load):
            y = torch.ones(8, device="cuda")
        with torch.cuda.stream(self.work):
            return y + 1
"""
RECORDED_WHERE_IT_WAS_MADE = """\
def loop(n, model):
    load = torch.cuda.Stream()
    for _ in range(n):
        with torch.cuda.stream(load):
            x = torch.ones(8, device="cuda")
        torch.cuda.current_stream().wait_stream(load)
        model(x)
        {record}
        del x
"""


def conflicts(text: str, path: Path) -> list[Conflict]:
    file = path / "program.py"
    file.write_text(HEAD + text)
    return Files([str(file)]).run(str(file)).conflicts


def test_one_finding_for_one_missing_edge(tmp_path: Path) -> None:
    (found,) = conflicts(PREFETCH, tmp_path)
    assert (found.second.operation, found.further) == ("arithmetic", 1)
    assert found.confidence == "certain"
    assert not found.assumptions
    assert found.missing is not None
    assert found.missing.fix == "torch.cuda.current_stream().wait_stream(side)"


def test_the_witness_stands_in_the_order_of_time(tmp_path: Path) -> None:
    (found,) = conflicts(PREFETCH, tmp_path)
    rows = [note.span.row for note in found.witness if note.span is not None]
    assert rows == [8, 9, 10]
    assert found.witness[0].message == "enters `side`"


def test_with_the_edge_nothing_is_shown(tmp_path: Path) -> None:
    assert conflicts(ORDERED, tmp_path) == []


def test_two_unknown_streams_are_an_assumption_that_names_both(tmp_path: Path) -> None:
    found = next(each for each in conflicts(UNKNOWN_STREAMS, tmp_path) if each.facts.reuse is None)
    said = {each.name: each.text for each in found.assumptions}
    assert said["stream"] == "`self.load` and `self.work` are two streams"
    assert found.confidence != "certain"


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ("x.record_stream(load)", 1),  # on the stream that allocated it, which says nothing
        ("pass", 1),
        ("x.record_stream(torch.cuda.current_stream())", 0),
    ],
)
def test_record_stream_counts_on_the_stream_that_uses_it(record: str, shown: int, tmp_path: Path) -> None:
    found = conflicts(RECORDED_WHERE_IT_WAS_MADE.format(record=record), tmp_path)
    assert sum(each.facts.reuse == "torch" for each in found) == shown


def tags_in_the_source() -> set[str]:
    """The tags that the check gives as `assumptions=`, or appends to what is assumed."""
    found: set[str] = set()
    for file in Path(streamsafe.check.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            given: list[ast.expr] = []
            if isinstance(node, ast.Call):
                given = [each.value for each in node.keywords if each.arg == "assumptions"]
                if isinstance(node.func, ast.Attribute) and node.func.attr == "append":
                    named = isinstance(node.func.value, ast.Name) and node.func.value.id in (
                        "assumed",
                        "extra",
                    )
                    given += node.args if named else []
            for value in given:
                found |= {
                    n.value
                    for n in ast.walk(value)
                    if isinstance(n, ast.Constant) and isinstance(n.value, str)
                }
    return found


def test_every_assumption_has_a_name_and_a_sentence() -> None:
    used = tags_in_the_source() | ASSUMPTIONS
    assert len(used) > 15
    assert used <= assumptions.KINDS.keys()


@pytest.mark.parametrize(
    ("code", "tags", "expected"),
    [
        ("SS101", (), "certain"),
        ("SS101", ("stream",), "likely"),
        ("SS101", ("stream", "place"), "possible"),
        ("SS101", ("helper",), "possible"),
        ("SS101", ("calls",), "possible"),
        ("SS302", ("calls",), "likely"),
        ("SS101", ("methods",), "likely"),
        ("SS101", ("methods", "waits"), "possible"),
        ("SS201", ("calls",), "certain"),
        ("SS201", ("calls", "local"), "possible"),
    ],
)
def test_confidence_counts_assumptions(code: str, tags: tuple[str, ...], expected: str) -> None:
    assert assumptions.confidence(code, tags) == expected


FROM_A_POOL = """\
def store(x: torch.Tensor, pool):
    copies = torch.cuda.Stream()
    done = torch.cuda.Event()
    with torch.cuda.stream(copies):
        host = pool.acquire({given})
        host.copy_(x, non_blocking=True)
    done.record(copies)
    return host, done
"""


@pytest.mark.parametrize(("given", "codes"), [("x.shape, x.dtype", ["SS101"]), ("", []), ("timeout=3", [])])
def test_a_pool_orders_nothing_and_a_lock_may(given: str, codes: list[str], tmp_path: Path) -> None:
    """``acquire`` of a lock may come after all that another thread has waited for."""
    found = conflicts(FROM_A_POOL.format(given=given), tmp_path)
    assert [code_for(each).code for each in found] == codes
