"""Results kept between runs: the same cold and warm; nothing stale; a broken cache costs time only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamsafe.cli import main

HELPER = """
import torch

def bring(x, done=None):
    out = x.to("cpu", non_blocking=True)
    if done is not None:
        done.record()
    return out
"""
REPORT = """
import torch
from pkg.helper import bring

def report(x):
    x = torch.ones(4, device="cuda") + x
    return bring(x).tolist()
"""
MAIN = """
import torch

def copy(host):
    side = torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    with torch.cuda.stream(side):
        y = x + 1
    return y
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text(HELPER)
    (package / "report.py").write_text(REPORT)
    (tmp_path / "main.py").write_text(MAIN)
    return tmp_path


OPTIONS = ("--isolated", "--engine=next", "--output-format=json")


def check(
    tree: Path, *arguments: str, code: int = 1, seed: str | None = None
) -> tuple[list[dict[str, Any]], str]:
    """What is found, and what is said on standard error; in a process of its own where strings have a hash seed."""
    command = ["check", *OPTIONS, *(arguments or (".",))]
    if seed is None:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tree)
            result = CliRunner().invoke(main, command, catch_exceptions=False)
        assert result.exit_code == code, result.stderr
        return json.loads(result.stdout), result.stderr
    ended = subprocess.run(
        [sys.executable, "-m", "streamsafe", *command],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout), ended.stderr


def entries(tree: Path) -> list[Path]:
    return sorted((tree / ".streamsafe_cache").glob("*/*.json"))


def test_a_warm_run_says_the_same(tree: Path) -> None:
    cold, _ = check(tree)
    assert {(Path(f["filename"]).name, f["code"]) for f in cold} >= {("report.py", "SS301")}
    assert len(entries(tree)) == 2
    warm, problems = check(tree)
    assert warm == cold and not problems
    without, _ = check(tree, "--no-cache", ".")
    assert without == cold


def test_a_result_depends_on_the_files_it_followed(tree: Path) -> None:
    check(tree)
    (tree / "pkg" / "helper.py").write_text(HELPER.replace(", non_blocking=True", ""))
    after, _ = check(tree, code=1)
    assert "SS301" not in {f["code"] for f in after}


def test_the_paths_named_decide_what_is_reported_only(tree: Path) -> None:
    alone, _ = check(tree, "--no-cache", "pkg/report.py")
    whole, _ = check(tree, "--no-cache", "pkg")
    assert alone == [f for f in whole if f["filename"].endswith("report.py")] != []


def test_no_cache_writes_none(tree: Path) -> None:
    check(tree, "--no-cache", ".")
    assert not (tree / ".streamsafe_cache").exists()


@pytest.mark.parametrize("damage", ["not JSON", "{}", "[]"])
def test_a_broken_entry_is_made_again(tree: Path, damage: str) -> None:
    cold, _ = check(tree)
    for entry in entries(tree):
        entry.write_text(damage)
    again, problems = check(tree)
    assert again == cold
    assert "is made again" in problems
    assert check(tree) == (cold, "")


def test_a_cache_that_cannot_be_written_is_a_warning(tree: Path) -> None:
    (tree / ".streamsafe_cache").write_text("a file, not a directory")
    found, problems = check(tree)
    assert found and "streamsafe: warning: " in problems and "cannot be" in problems


def test_neither_jobs_nor_hash_seed_nor_order_matters(tree: Path) -> None:
    one, _ = check(tree, "--no-cache", "--jobs=1", "main.py", "pkg", seed="1")
    two, _ = check(tree, "--no-cache", "--jobs=2", "pkg", "main.py", seed="2")
    assert one == two


def test_runs_at_the_same_time_agree(tree: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "streamsafe",
        "check",
        "--isolated",
        "--engine=next",
        "--output-format=json",
        ".",
    ]
    running = [
        subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = [process.communicate() for process in running]
    assert len({out for out, _ in results}) == 1
    assert all(not err for _, err in results)


def test_a_limit_that_is_reached_is_stated_cold_and_warm(tree: Path) -> None:
    chain = "".join(
        f"    if c{i}:\n        s = torch.cuda.Stream()\n        torch.cuda.set_stream(s)\n"
        for i in range(15)
    )
    names = ", ".join(f"c{i}" for i in range(15))
    (tree / "main.py").write_text(
        f"import torch\n\ndef many({names}):\n{chain}    return torch.ones(3, device='cuda')\n"
    )
    for _ in range(2):
        _, said = check(tree, "--verbose", "main.py", code=0)
        assert "main.py: analysis cut short in many: partitions joined" in said


def test_a_limit_that_is_reached_is_stated_with_findings(tree: Path) -> None:
    chain = "".join(
        f"    if c{i}:\n        s = torch.cuda.Stream()\n        torch.cuda.set_stream(s)\n"
        for i in range(15)
    )
    names = ", ".join(f"c{i}" for i in range(15))
    (tree / "main.py").write_text(
        f"import torch\n\ndef many({names}):\n{chain}    return torch.ones(3, device='cuda')\n\n"
        "def bad(x):\n    side = torch.cuda.Stream()\n    y = x.cuda() + 1\n"
        "    with torch.cuda.stream(side):\n        z = y * 2\n    y.record_stream(side)\n    return z\n"
    )
    found, _ = check(tree, "main.py")
    assert [each["cut_short"] for each in found] == [["many: partitions joined"]]
    command = ["check", "--isolated", "--engine=next", "--no-cache", str(tree / "main.py")]
    shown = CliRunner().invoke(main, command, catch_exceptions=False).stdout
    last = f"(a limit cut the analysis of many ({tree / 'main.py'}) short, see --verbose).\n"
    assert shown.endswith(f"Found 1 hazard in 1 file {last}")
