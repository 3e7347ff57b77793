"""Traces of programs that use PyTorch: the hazards again, and the lines that the run orders."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamsafe import sanitize
from streamsafe.cli import main

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
    (
        "strided",
        f"{MAIN}.wait_stream(side)",
        "data.view(256, 256)[:, 3].sum()",
        "SS101",
        "the wait at program.py:14",
    ),
]


@pytest.fixture(autouse=True)
def simulated(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a CUDA build has no simulated device")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with nothing in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def streamsafe(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def recorded(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """Codes of the hazards of a session around ``program.py`` with these arguments, which writes ``run.jsonl``."""
    monkeypatch.setattr(sys, "argv", ["program.py", *arguments])
    with open("run.jsonl", "w", encoding="utf-8") as trace, sanitize(mode="collect", trace=trace) as session:
        runpy.run_path("program.py", run_name="__main__")
    assert Path("run.jsonl").read_text().endswith('{"do":"finish"}\n')
    return [hazard.code for hazard in session.hazards]


def checked() -> list[tuple[str, str, str]]:
    """Code, outcome and text of what the check finds, marked by the run."""
    result = streamsafe(
        "check", "--isolated", "--trace", "run.jsonl", "--output-format", "json", "program.py"
    )
    found = json.loads(result.stdout)
    return [(each["code"], each["run"]["outcome"], each["run"]["message"]) for each in found]


@pytest.mark.parametrize(
    ("join", "use", "code", "edge"), [row[1:] for row in JOINS], ids=[row[0] for row in JOINS]
)
def test_a_run_orders_or_confirms(
    join: str, use: str, code: str, edge: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "program.py").write_text(PROGRAM.format(join=join, use=use))
    assert recorded(monkeypatch) == []
    ((found, outcome, text),) = checked()
    assert (found, outcome) == (code, "ordered")
    assert text == f"ordered in this run by {edge}"
    assert streamsafe("verify", "run.jsonl").exit_code == 0
    assert recorded(monkeypatch, "--eager") == [code]
    ((found, outcome, _),) = checked()
    assert (found, outcome) == (code, "confirmed")
    verified = streamsafe("verify", "run.jsonl", "--output-format", "concise")
    assert verified.exit_code == 1
    assert f"program.py:15: {code} " in verified.stdout


def test_the_command_records_the_whole_run(folder: Path) -> None:
    program = PROGRAM.format(join=f"{MAIN}.wait_stream(side)", use="data.sum()")
    (folder / "program.py").write_text(f"{program}\nfor _ in range(500):\n    main()\n")
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", "--mode", "collect"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--trace", "run.jsonl", "program.py"], env=environment, check=True)
    assert checked()[0][1] == "ordered"
    actions = [json.loads(line)["do"] for line in (folder / "run.jsonl").read_text().splitlines()[1:]]
    assert actions.count("synchronize_device") == 501
    assert actions[-1] == "finish"


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


def test_a_trace_holds_launches_of_graphs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "program.py").write_text(GRAPHS)
    assert recorded(monkeypatch) == ["SS101"]
    verified = streamsafe("verify", "run.jsonl", "--output-format", "concise")
    assert "program.py:13: SS101 " in verified.stdout
    assert verified.exit_code == 1


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
def test_a_trace_knows_backward_passes(
    wait: str, join: str, codes: set[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "program.py").write_text(BACKWARD.format(wait=wait, join=join))
    assert set(recorded(monkeypatch)) == codes
    verified = streamsafe("verify", "run.jsonl", "--output-format", "concise")
    assert set(re.findall(r"SS\d+", verified.stdout)) == codes
    assert verified.exit_code == bool(codes)
