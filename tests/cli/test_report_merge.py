"""Several processes: one report a rank, and `streamsafe report merge`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsafe.report.ranks import own
from streamsafe.report.record import listed
from tests.cli.helpers import Cli

ROOT = Path(__file__).parents[2]


def access(line: int, mode: str = "writes") -> dict[str, Any]:
    stack = [{"filename": "/srv/train.py", "line": line, "function": "step"}]
    return {"operation": "add", "timeline": "side", "reads_or_writes": mode, "stack": stack}


def hazard(first: int, second: int, code: str = "SS101", count: int = 1) -> dict[str, Any]:
    def place(row: int) -> dict[str, Any]:
        span = {"location": {"row": row, "column": 1}, "end_location": {"row": row, "column": 9}}
        return {"filename": "/srv/train.py", **span}

    return {
        "code": code,
        "name": "unordered-read",
        "message": "`sum` may read `x` before `add` has written it",
        **place(second),
        "related": [{**place(first), "message": "`add` writes `x` here"}],
        "severity": "error",
        "confidence": "certain",
        "latent": False,
        "count": count,
        "first": access(first),
        "second": access(second, "reads"),
        "memory": {"name": "x", "owner": "torch", "shape": None, "dtype": None, "start": 0, "stop": 64},
        "missing": {"source": "side", "target": "main", "fix": "main.wait_stream(side)"},
        "help": "main.wait_stream(side)",
        "fix": None,
        "url": None,
    }


@pytest.fixture
def reports(project: Path) -> list[str]:
    """Ranks 0, 1 and 3 share a hazard; rank 1 has another one, and rank 2 none."""
    ranks = [[hazard(10, 12)], [hazard(10, 12, count=4), hazard(20, 22)], [], [hazard(10, 12)]]
    for rank, hazards in enumerate(ranks):
        (project / f"out.rank{rank}.json").write_text(json.dumps(hazards))
    return [f"out.rank{rank}.json" for rank in (3, 1, 0, 2)]


def test_each_hazard_once_with_its_ranks(cli: Cli, reports: list[str]) -> None:
    result = cli("report", "merge", "--output-format", "json", *reports)
    assert result.exit_code == 1
    merged = [(each["location"]["row"], each["ranks"], each["count"]) for each in json.loads(result.stdout)]
    assert merged == [(12, [0, 1, 3], 6), (22, [1], 1)]
    assert "streamsafe: 2 hazards in 4 reports" in result.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("full", "= ranks: 0-1, 3\n"),
        ("concise", "/srv/train.py:12:1: SS101 [ranks 0-1, 3] "),
        ("grouped", "SS101  [rank 1] "),
        ("json-lines", '"ranks": [0, 1, 3]'),
        ("sarif", '"ranks": ['),
        ("github", "[ranks 0-1, 3] "),
        ("gitlab", "[ranks 0-1, 3] "),
        ("junit", "[ranks 0-1, 3] "),
        ("markdown", "ranks 0-1, 3"),
    ],
)
def test_each_format_names_the_ranks(name: str, text: str, cli: Cli, reports: list[str]) -> None:
    assert text in cli("report", "merge", "--output-format", name, *reports).stdout
    assert cli("report", "merge", "--output-format", name, "-o", "all", *reports).stdout == ""
    assert text in Path("all").read_text()


def test_what_was_merged_can_be_merged_again(cli: Cli, reports: list[str]) -> None:
    cli("report", "merge", "--output-format", "json", "-o", "some.json", *reports[:2])
    cli("report", "merge", "--output-format", "json-lines", "-o", "all.jsonl", "some.json", reports[2])
    first, second = map(json.loads, Path("all.jsonl").read_text().splitlines())
    assert (first["ranks"], first["count"], second["ranks"]) == ([0, 1, 3], 6, [1])


def test_no_hazards(cli: Cli, reports: list[str]) -> None:
    result = cli("report", "merge", "out.rank2.json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "streamsafe: no hazards in 1 report\n"


@pytest.mark.parametrize("text", ["", "{", "3", '[{"code": "SS101"}]', '{"streamsafe": "trace"}'])
def test_what_is_no_report(text: str, cli: Cli, project: Path) -> None:
    (project / "bad.json").write_text(text)
    result = cli("report", "merge", "bad.json")
    if text:
        assert (result.exit_code, "bad.json is no report" in result.stderr) == (2, True)
    else:  # JSON lines with no hazard
        assert result.exit_code == 0
    assert cli("report", "merge", "none.json").exit_code == 2


def test_names() -> None:
    several = {"RANK": "3", "WORLD_SIZE": "8"}
    assert own("out.json", several) == "out.rank3.json"
    assert own("runs/v1.2/out", several) == "runs/v1.2/out.rank3"
    assert own("-", several) == "-"
    assert own(os.devnull, several) == os.devnull
    assert own("out.json", {}) == own("out.json", {"RANK": "3"}) == "out.json"
    assert [listed(ranks) for ranks in ((0,), (0, 1), (3, 0, 1), (0, 2, 4))] == [
        "0",
        "0-1",
        "0-1, 3",
        "0, 2, 4",
    ]


def test_each_process_writes_files_of_its_own(project: Path, cli: Cli) -> None:
    pytest.importorskip("cupy", reason="the program needs CuPy: pip install cupy-cuda12x")
    program = ROOT / "fixtures" / "together" / "wait_by_a_flag.py"
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", "--mode", "collect"]
    command += ["--report", "out.json", "--trace", "run.jsonl", str(program), "--eager"]
    for rank in ("0", "1"):
        variables = {"RANK": rank, "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
        subprocess.run(
            command, cwd=project, env={**os.environ, **variables}, check=False, capture_output=True
        )
    names = ["out.rank0.json", "out.rank1.json", "run.rank0.jsonl", "run.rank1.jsonl"]
    assert sorted(path.name for path in project.iterdir()) == names
    result = cli("report", "merge", *names[:2])
    assert result.stdout.count("SS101 unordered-read") == 1
    assert "= ranks: 0-1" in result.stdout
    assert "out += 1" in result.stdout
