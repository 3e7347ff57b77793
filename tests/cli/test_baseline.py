"""Baselines: what is known stays quiet, what is new is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsafe.findings.baseline import symbol
from tests.cli.helpers import BUG, Cli, places

FILE = "known.json"


@pytest.fixture
def known(cli: Cli, project: Path) -> Path:
    """A project whose one finding is in the baseline."""
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--baseline", FILE, "--write-baseline")
    assert (result.exit_code, result.stdout) == (0, f"Wrote 1 hazard to {FILE}.\n")
    return project / FILE


def test_content(known: Path) -> None:
    assert json.loads(known.read_text()) == {
        "version": 1,
        "findings": [
            {"path": "bug.py", "symbol": "total", "code": "SS101", "line": "returnx.sum()", "count": 1}
        ],
    }


def test_known(cli: Cli, known: Path) -> None:
    result = cli("check", "--baseline", FILE)
    assert (result.exit_code, result.stdout) == (0, "No hazards found in 1 file (1 in the baseline).\n")
    assert cli("check").exit_code == 1


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("import torch", "import os\n\nimport torch", 0),
        ("return x.sum()", "return  x.sum( )  # a comment", 0),
        ("return x.sum()", "return x.mean()", 1),
        ("def total", "def other", 1),
        ("    return x.sum()", "    y = x.max()\n    return x.sum()", 1),
    ],
)
def test_edits(cli: Cli, project: Path, known: Path, old: str, new: str, status: int) -> None:
    (project / "bug.py").write_text(BUG.replace(old, new))
    assert cli("check", "--baseline", FILE).exit_code == status


def test_a_second_one_is_new(cli: Cli, project: Path, known: Path) -> None:
    twice = BUG.replace("    return x.sum()", "    if n:\n        return x.sum()\n    return x.sum()")
    (project / "bug.py").write_text(twice)
    assert len(places(cli("check", "--baseline", FILE, "--output-format", "json"))) == 1


def test_another_file_is_new(cli: Cli, project: Path, known: Path) -> None:
    (project / "other.py").write_text(BUG)
    assert [name for name, _, _ in places(cli("check", "--baseline", FILE, "--output-format", "json"))] == [
        "other.py"
    ]


def test_gone(cli: Cli, project: Path, known: Path) -> None:
    (project / "bug.py").write_text("import torch\n")
    result = cli("check", "--baseline", FILE)
    assert (result.exit_code, result.stdout) == (
        0,
        "No hazards found in 1 file (1 of the baseline no longer found).\n",
    )


def test_from_another_directory(
    cli: Cli, project: Path, known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert cli("check", "..", "--baseline", f"../{FILE}").exit_code == 0


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 2, "findings": []}', '{"version": 1, "findings": [3]}', "\xff"]
)
def test_broken(cli: Cli, project: Path, known: Path, content: str) -> None:
    known.write_text(content, encoding="latin-1")
    result = cli("check", "--baseline", FILE)
    assert result.exit_code == 2
    assert FILE in result.stderr


def test_unwritable(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--baseline", "nowhere/known.json", "--write-baseline")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_symbol() -> None:
    source = (
        "x = 1\nclass A:\n    def f(self):\n        def g():\n            pass\n        return g\n    y = 2\n"
    )
    assert [symbol(source, row) for row in range(1, 8)] == ["", "A", "A.f", "A.f.g", "A.f.g", "A.f", "A"]
    assert symbol("def f(:\n", 1) == ""
