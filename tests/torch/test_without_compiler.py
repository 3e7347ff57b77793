"""Where there is no C++ compiler, PyTorch cannot be watched: what is said, and that no run is green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from streamsafe.simulate import torch as simulate
simulate.install()
import os, sys, tempfile
os.environ["PATH"] = os.environ["STREAMSAFE_CACHE"] = tempfile.mkdtemp()
import torch
x = torch.ones(4, device="cuda")
"""
SAID = (
    "PyTorch cannot be watched: there is no C++ compiler (c++, g++, clang++): install one (`apt install g++`)"
)


def run(tmp_path: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "CXX"}
    return subprocess.run(
        [sys.executable, *command, str(program)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def cpu_build(request: pytest.FixtureRequest, backend: Any) -> None:
    if request.config.getoption("--gpu"):
        pytest.skip("the simulated device is what these programs run on")


@pytest.mark.usefixtures("cpu_build")
@pytest.mark.parametrize(
    "session",
    [
        "import streamsafe\nwith streamsafe.sanitize():\n    x.add_(1)\nprint('watched')\n",
        "import streamsafe\nwith streamsafe.sanitize(mode='collect'):\n    x.add_(1)\nprint('watched')\n",
    ],
)
def test_a_session_does_not_begin(tmp_path: Path, session: str) -> None:
    ended = run(tmp_path, PROGRAM + session)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert SAID in ended.stderr.splitlines()[-1]


@pytest.mark.usefixtures("cpu_build")
def test_a_program_that_opens_no_session_runs(tmp_path: Path) -> None:
    ended = run(tmp_path, PROGRAM + "print(float(x.sum()))\n")
    assert (ended.returncode, ended.stdout) == (0, "4.0\n")


def test_build_torch_says_what_to_install(backend: Any) -> None:
    command = [sys.executable, "-m", "streamsafe", "build-torch", "--force"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CXX": "/no/compiler"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "there is no C++ compiler /no/compiler" in ended.stderr
    assert "cannot be watched" in ended.stderr
