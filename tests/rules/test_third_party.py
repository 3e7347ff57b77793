"""A third party's rule, through the entry-point group, is no different from ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import BUG

RULE = '''\
"""XX101 summed-too-early

## What it does
Reports sums.
"""

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class SummedTooEarly(Rule):
    code = "XX101"
    name = "summed-too-early"
    severity = "warning"
    rank = 105

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.second.operation == "sum()"

    def message(self, conflict: Conflict) -> str:
        return "too early"
'''


def run(directory: Path, rule: str, target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "theirs.py").write_text(rule)
    info = directory / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[streamsafe.rules]\ntheirs = {target}\n")
    (directory / "bug.py").write_text(BUG)
    return subprocess.run(
        [sys.executable, "-m", "streamsafe", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("target", ["theirs", "theirs:SummedTooEarly"])
def test_found(tmp_path: Path, target: str) -> None:
    result = run(tmp_path, RULE, target, "check", "--output-format", "json", "--select", "XX")
    assert result.returncode == 1, result.stderr
    (finding,) = json.loads(result.stdout)
    assert (finding["code"], finding["name"], finding["severity"]) == ("XX101", "summed-too-early", "warning")


def test_listed_and_explained(tmp_path: Path) -> None:
    assert "XX101  summed-too-early" in run(tmp_path, RULE, "theirs", "rules").stdout


def test_ignored_like_any_other(tmp_path: Path) -> None:
    assert run(tmp_path, RULE, "theirs", "check", "--ignore", "summed-too-early,SS1").returncode == 0


@pytest.mark.parametrize(
    ("rule", "target", "words"),
    [
        (RULE.replace("XX101", "SS101"), "theirs", "code SS101 is taken"),
        (RULE.replace("XX101", "1"), "theirs", "no rule code"),
        ("import does_not_exist\n", "theirs", "cannot load the rule 'theirs'"),
        (RULE, "theirs:Nothing", "cannot load the rule 'theirs'"),
        (RULE, "theirs:Conflict", "neither a rule nor a module"),
    ],
)
def test_broken(tmp_path: Path, rule: str, target: str, words: str) -> None:
    for arguments in (("rules",), ("check",), ("rule", "SS101")):
        directory = tmp_path / arguments[0]
        directory.mkdir()
        result = run(directory, rule, target, *arguments)
        assert result.returncode == 2
        assert words in result.stderr
        assert "Traceback" not in result.stderr
