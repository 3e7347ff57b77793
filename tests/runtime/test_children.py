"""``streamsafe run`` watches the Python processes that a program starts, says so, and fails where it could not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs torch (pip install .[torch-tests])"
)

WORK = """
import torch
def work(ordered):
    side = torch.cuda.Stream()
    x = torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    x.add_(1)
    if ordered:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    torch.cuda.synchronize()
"""
STARTS = """
import multiprocessing, subprocess, sys
from work import work
ordered = len(sys.argv) > 1
if __name__ == "__main__":
    for method in ("spawn", "fork", "forkserver"):
        child = multiprocessing.get_context(method).Process(target=work, args=(ordered,))
        child.start(); child.join()
    subprocess.run([sys.executable, "-c", f"import work; work.work({ordered})"], check=True)
"""
UNWATCHED = """
import os, subprocess, sys
os.unlink("known.txt")
subprocess.run([sys.executable, "-c", "import torch; print('runs all the same')"], check=True)
subprocess.run([sys.executable, "-c", "pass"], check=True)
"""


def run(folder: Path, *arguments: str, **files: str) -> tuple[int, str, str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    variables = {
        name: text for name, text in os.environ.items() if not name.startswith(("STREAMSAFE", "PYTEST"))
    }
    variables["PYTHONPATH"] = os.fspath(ROOT)
    if cache := os.environ.get("STREAMSAFE_CACHE"):
        variables["STREAMSAFE_CACHE"] = cache
    command = [sys.executable, "-m", "streamsafe", "run", *arguments]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    return ended.returncode, ended.stdout, ended.stderr


@needs_torch
def test_what_children_find_is_the_run_s(tmp_path: Path) -> None:
    report = ("--mode", "collect", "--report", "out.json")
    status, _, said = run(tmp_path, "--simulate", *report, "starts.py", starts=STARTS, work=WORK)
    assert status == 1, said
    assert "in 4 child processes: SS101 unordered-read" in said
    assert "streamsafe: no hazards here, 1 in child processes" in said
    found = json.loads((tmp_path / "out.json").read_text())
    assert [(each["code"], Path(each["filename"]).name, each["location"]["row"]) for each in found] == [
        ("SS101", "work.py", 11)
    ]


@needs_torch
def test_the_summary_counts_processes(tmp_path: Path) -> None:
    status, _, said = run(tmp_path, "--simulate", "starts.py", "ordered", starts=STARTS, work=WORK)
    assert status == 0, said
    assert "streamsafe: no hazards\n" in said
    assert "on 8 streams in 4 processes" in said
    assert "did not end" not in said


def test_a_process_that_cannot_be_watched_is_said(tmp_path: Path) -> None:
    """A child that imports no library needs no session, and counts as no process."""
    (tmp_path / "known.txt").write_text("", encoding="utf-8")
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    arguments = ("--suppressions", "known.txt", "starts.py")
    status, output, said = run(tmp_path, *arguments, starts=UNWATCHED)
    assert (status, output) == (2, "runs all the same\n")
    assert "streamsafe: could not watch the process `-c import torch; print('runs all the same')`: " in said
    assert said.count("could not watch") == 1
    (tmp_path / "known.txt").write_text("", encoding="utf-8")
    assert run(tmp_path, "--allow-idle", *arguments)[0] == 0
