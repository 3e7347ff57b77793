"""The edit that a finding carries adds the missing edge: what it was found for is not found any more."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.edits import apply
from streamsafe.order.hazard import Span
from streamsafe.report.record import Record, records
from streamsafe.static.fixes import insertion
from tests.static.evalfiles import FIXTURES, EvalFile, check_tree, write_tree

ROWS = FIXTURES.parent / "runtime" / "rows"


def findings(root: Path) -> list[dict[str, Any]]:
    arguments = ["check", "--isolated", "--output-format", "json", str(root)]
    found: list[dict[str, Any]] = json.loads(
        CliRunner().invoke(main, arguments, catch_exceptions=False).stdout
    )
    return found


@pytest.mark.parametrize(("root", "least"), [(FIXTURES, 180), (ROWS, 45)], ids=["static", "rows"])
def test_a_fix_ends_its_finding(tmp_path: Path, root: Path, least: int) -> None:
    """One repair in each definition, all in one copy of the fixtures: each finding is gone and no other has come.

    An initial gradient that is ordered but not recorded is the next finding of one that was not ordered.
    """
    by_file: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for finding in findings(root):
        by_file[Path(finding["filename"])].append(finding)
    files, expected, repaired = {}, {}, 0
    for path, found in by_file.items():
        file = EvalFile(path, path.read_text(encoding="utf-8"))
        chosen: dict[str, Record] = {}
        for record in records(found):
            if record.fix is not None and record.fix.applicability == "unsafe" and record.place is not None:
                chosen.setdefault(file.definition_at(record.place.row), record)
        edits = [edit for record in chosen.values() if record.fix is not None for edit in record.fix.edits]
        name = path.relative_to(root.resolve()).as_posix()
        files[name] = apply(file.text.encode(), edits).decode()
        ast.parse(files[name])
        left = Counter((finding["code"], finding["location"]["row"]) for finding in found)
        for record in chosen.values():
            assert record.place is not None
            left[record.code, record.place.row] -= 1
            if record.code == "SS112":
                left["SS113", record.place.row] += 1
        added = [edit.row for edit in edits for _ in range(edit.content.count("\n"))]
        expected[name] = Counter(
            {
                (code, row + sum(row >= each for each in added)): count
                for (code, row), count in left.items()
                if count > 0
            }
        )
        repaired += len(chosen)
    assert repaired >= least
    fixed = check_tree(write_tree(tmp_path, files))
    wrong = {}
    for name, left in expected.items():
        now = Counter((each.code, each.row) for each in fixed.get(name, []))
        if now - left:
            wrong[name] = now - left
    assert wrong == {}


BODY = """
import torch
s = torch.cuda.Stream()
t = torch.cuda.Stream()
def f(x, n):
{}
"""
WAIT = "torch.cuda.current_stream().wait_stream(s)"
ENTER = "s.wait_stream(torch.cuda.current_stream())  # before s becomes current"


@pytest.mark.parametrize(
    ("body", "line", "row"),
    [
        ("with torch.cuda.stream(s):\n    x += 1\ny = x.sum()", WAIT, 3),
        ("with torch.cuda.stream(s):\n    x += 1\nif n:\n    y = x.sum()", WAIT, 4),
        ("with torch.cuda.stream(s):\n    x += 1\nif x.sum():\n    pass", WAIT, 3),
        ("for _ in n:\n    with torch.cuda.stream(s):\n        x += 1\n    y = x.sum()", WAIT, 4),
        ("with torch.cuda.stream(s):\n    x += 1\nwith torch.no_grad():\n    y = x.sum()", WAIT, 4),
        ("x += 1\nwith torch.cuda.stream(s):\n    y = x.sum()", ENTER, 2),
        ("x += 1\nwith torch.no_grad():\n    with torch.cuda.stream(s):\n        y = x.sum()", ENTER, 3),
        # no place is certain
        ("with torch.cuda.stream(s):\n    x += 1\nwhile x.sum():\n    pass", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nif n: y = x.sum()", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nn = 1; y = x.sum()", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nif n:\n    pass\nelif x.sum():\n    pass", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\ny = [x.sum() for _ in n]", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\ndef g():\n    return x.sum()", WAIT, None),
        ("with torch.cuda.stream(s):\n    x += 1\nwith torch.cuda.stream(t):\n    y = x.sum()", WAIT, None),
        ("x += 1\ny = x.sum()", ENTER, None),
        # the line's names mean something else there, or nothing
        ("with torch.cuda.stream(s):\n    x += 1\ny = x.sum()", "u.synchronize()", None),
        ("for u in n:\n    x += 1\ny = x.sum()", "u.synchronize()", None),
        ("u = s\nx += 1\nu = t\ny = x.sum()", "u.synchronize()", None),
        ("x += 1\ny = x.sum()\nu = s", "u.synchronize()", None),
        ("x += 1\ny = x.sum()", "self.stream.synchronize()", None),
        ("x += 1\ny = x.sum()", "let s wait for t first", None),
    ],
)
def test_where_it_goes(body: str, line: str, row: int | None) -> None:
    source = BODY.format("".join(f"    {each}\n" for each in body.splitlines()))
    lines = source.splitlines()

    def span(text: str) -> Span:
        at = next(number for number, each in enumerate(lines, 1) if text in each)
        return Span("m.py", at, 1, at, len(lines[at - 1]) + 1)

    found = insertion(source, line, span("x.sum()"), span("x += 1"))
    assert (found and found.row - 5) == row
    if found is not None:
        indent = len(lines[found.row - 1]) - len(lines[found.row - 1].lstrip())
        assert found.content == " " * indent + line.partition("  #")[0] + "\n"


def test_the_attributes_of_another_class_are_not_its_own() -> None:
    source = "class A:\n    def f(self, x):\n        x += 1\n        x.sum()\n"
    first, second = Span("m.py", 3, 1, 3, 9), Span("m.py", 4, 1, 4, 9)
    assert insertion(source, "self.s.synchronize()", second, first) is None
    source += "    def __init__(self, s):\n        self.s = s\n"
    found = insertion(source, "self.s.synchronize()", second, first)
    assert found is not None and found.row == 4
