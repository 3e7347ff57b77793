"""`streamsafe run --simulate` for programs that use PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import torch
x = torch.zeros(4, device="cuda")
x += 1
print(x.tolist(), torch.cuda.device_count())
"""


@pytest.fixture(autouse=True)
def simulated(torch: Any, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("a CUDA build has no simulated device")


def run(*arguments: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "streamsafe", "run", *arguments, str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_a_program_runs_without_a_gpu(tmp_path: Path) -> None:
    ended = run("--simulate", "--devices", "3", program=PROGRAM, folder=tmp_path)
    assert ended.stdout == "[1.0, 1.0, 1.0, 1.0] 3\n", ended.stderr
    assert "simulated CUDA device under PyTorch: " in ended.stderr
    assert "kernels do not compute" not in ended.stderr  # CuPy's runtime was not used


def test_a_program_that_uses_neither_library(tmp_path: Path) -> None:
    ended = run("--simulate", program="print(1)\n", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert "under PyTorch" not in ended.stderr


def test_cupy_and_torch_are_simulated_in_one_process(tmp_path: Path) -> None:
    pytest.importorskip("cupy_backends", reason="CuPy is not installed")
    program = "import cupy\ny = cupy.zeros(4)\ny += 1\n" + PROGRAM
    ended = run("--simulate", program=program, folder=tmp_path)
    assert ended.stdout == "[1.0, 1.0, 1.0, 1.0] 1\n", ended.stderr
    assert "simulated CUDA device under PyTorch: " in ended.stderr
    assert "kernels do not compute" in ended.stderr


RACE = """
import torch
side = torch.cuda.Stream()
x = torch.zeros(4, device="cuda")
with torch.cuda.stream(side):
    x.add_(1)
"""


def test_stacks_end_where_the_program_begins(tmp_path: Path) -> None:
    """No frame of click, and none of the console script."""
    ended = run("--simulate", "--mode", "collect", program=RACE, folder=tmp_path)
    assert (ended.returncode, ended.stderr.count("SS102 unordered-write")) == (1, 1), ended.stderr
    assert "called at" not in ended.stderr
    assert "program.py:6:" in ended.stderr  # torch is imported in the session
    assert "click" not in ended.stderr


def test_a_cpu_build_says_how_to_go_on_without_a_gpu(tmp_path: Path) -> None:
    assert "streamsafe run --simulate" in run(program=RACE, folder=tmp_path).stderr
    other = run(program='raise RuntimeError("of the program")\n', folder=tmp_path)
    assert "--simulate" not in other.stderr
