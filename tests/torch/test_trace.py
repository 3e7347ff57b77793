"""Traces of programs that use PyTorch: the hazards again, and the lines that the run orders."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
import sys
import torch

EAGER = "--eager" in sys.argv


def main():
    side = torch.cuda.Stream()
    data = torch.zeros(1 << 16, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        data.add_(1)
    if not EAGER:
        {join}
    total = {use}
    torch.cuda.synchronize()
    return total


main()
"""
MAIN = "torch.cuda.current_stream()"
JOINS = [
    ("wait_stream", f"{MAIN}.wait_stream(side)", "data.sum()", "SS101", "the wait at program.py:14"),
    (
        "wait_event",
        f"{MAIN}.wait_event(side.record_event())",
        "data * 2",
        "SS101",
        "the wait at program.py:14",
    ),
    ("write", f"{MAIN}.wait_stream(side)", "data.zero_()", "SS102", "the wait at program.py:14"),
    ("strided", "side.synchronize()", "data.view(256, 256)[:, 3].sum()", "SS101", "the synchronize"),
]


@pytest.fixture(autouse=True)
def simulated(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a CUDA build has no simulated device")


def streamsafe(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamsafe", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def checked(folder: Path, *arguments: str) -> list[tuple[str, str, str]]:
    """Code, outcome and text of what the check finds, marked by a run with these arguments."""
    run = streamsafe(
        folder, "run", "--simulate", "--mode", "collect", "--trace", "run.jsonl", "program.py", *arguments
    )
    assert (folder / "run.jsonl").read_text().endswith('{"do":"finish"}\n'), run.stderr
    result = streamsafe(
        folder, "check", "--isolated", "--trace", "run.jsonl", "--output-format", "json", "program.py"
    )
    found = json.loads(result.stdout)
    return [(each["code"], each["run"]["outcome"], each["run"]["message"]) for each in found]


@pytest.mark.parametrize(
    ("join", "use", "code", "edge"), [row[1:] for row in JOINS], ids=[row[0] for row in JOINS]
)
def test_a_run_orders_or_confirms(join: str, use: str, code: str, edge: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(join=join, use=use))
    ((found, outcome, text),) = checked(tmp_path)
    assert (found, outcome) == (code, "ordered")
    assert text == f"ordered in this run by {edge}"
    assert streamsafe(tmp_path, "verify", "run.jsonl").returncode == 0
    ((found, outcome, _),) = checked(tmp_path, "--eager")
    assert (found, outcome) == (code, "confirmed")
    verified = streamsafe(tmp_path, "verify", "run.jsonl", "--output-format", "concise")
    assert verified.returncode == 1
    assert f"program.py:15: {code} " in verified.stdout


def test_a_trace_has_the_whole_run(tmp_path: Path) -> None:
    program = PROGRAM.format(join="side.synchronize()", use="data.sum()")
    (tmp_path / "program.py").write_text(f"{program}\nfor _ in range(500):\n    main()\n")
    assert checked(tmp_path)[0][1] == "ordered"
    verbs = [json.loads(line)["do"] for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]]
    assert verbs.count("synchronize_stream") == 501
    assert verbs[-1] == "finish"


GRAPHS = """\
import torch


def main():
    side = torch.cuda.Stream()
    data = torch.zeros(1 << 16, device="cuda")
    graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
    for graph in graphs:
        with torch.cuda.graph(graph):
            data.add_(1)
    graphs[1].replay()
    with torch.cuda.stream(side):
        total = data.sum()
    torch.cuda.synchronize()
    return total


main()
"""


def test_a_trace_holds_launches_of_graphs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(GRAPHS)
    streamsafe(tmp_path, "run", "--simulate", "--mode", "collect", "--trace", "run.jsonl", "program.py")
    verified = streamsafe(tmp_path, "verify", "run.jsonl", "--output-format", "concise")
    assert "program.py:13: SS101 " in verified.stdout
    assert verified.returncode == 1


BACKWARD = """\
import torch


def main():
    side = torch.cuda.Stream()
    w = torch.ones(1 << 16, device="cuda", requires_grad=True)
    given = torch.empty(1 << 16, device="cuda")
    torch.cuda.synchronize()
    given.fill_(1)
    {wait}
    with torch.cuda.stream(side):
        (w * 2).backward(given)
    {join}
    w.grad.sum()
    torch.cuda.synchronize()


main()
"""
WAIT, JOIN = "side.wait_stream(torch.cuda.current_stream())", "torch.cuda.current_stream().wait_stream(side)"
PASSES = [
    ("ordered", WAIT, JOIN, set()),
    ("result", WAIT, "pass", {"SS111"}),
    ("initial", "pass", JOIN, {"SS112"}),
]


@pytest.mark.parametrize(
    ("wait", "join", "codes"), [row[1:] for row in PASSES], ids=[row[0] for row in PASSES]
)
def test_a_trace_knows_backward_passes(wait: str, join: str, codes: set[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BACKWARD.format(wait=wait, join=join))
    run = streamsafe(tmp_path, "run", "--simulate", "--mode", "collect", "--trace", "run.jsonl", "program.py")
    assert set(re.findall(r"SS\d+", run.stderr)) == codes, run.stderr
    verified = streamsafe(tmp_path, "verify", "run.jsonl", "--output-format", "concise")
    assert set(re.findall(r"SS\d+", verified.stdout)) == codes
    assert verified.returncode == bool(codes)
