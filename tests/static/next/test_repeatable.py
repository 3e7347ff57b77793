"""What is found is the same in every run: whatever strings hash to, wherever objects lie, in whatever order files are
named, and in however many processes they are analysed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.static.evalfiles import FIXTURES

PACKAGE = {
    "__init__.py": "",
    "tools.py": """
import torch

def to(x, device, quantized=None, flag=True):
    if quantized is not None:
        device = "cpu"
    y = x.to(device, non_blocking=flag)
    return y

def wait(*streams):
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)

def fork(a, b, fast):
    stream = a if fast else b
    with torch.cuda.stream(stream):
        x = torch.ones(4, device="cuda")
    return x, stream
""",
    "use.py": """
import torch
from pkg import tools

class Holder:
    def __init__(self, fast, a, b):
        self.side = torch.cuda.Stream() if fast else torch.cuda.Stream(priority=-1)
        self.item = torch.zeros(4) if fast else torch.zeros(4, device="cuda") if a else torch.cuda.Event()
        self.a = self.b = torch.zeros(8, pin_memory=True)

    def put(self, x):
        with torch.cuda.stream(self.side):
            self.a.copy_(x, non_blocking=True)
            self.b.copy_(x, non_blocking=True)
        tools.wait(x.a, x.b)

    def get(self):
        return self.a.tolist(), self.b.numpy().sum()

def copy(x, quantized):
    x = torch.ones(4, device="cuda") + x
    return tools.to(x, x.device, quantized).tolist()

def use(a, b, c, fast):
    x, stream = tools.fork(a, b, fast)
    torch.cuda.current_stream().wait_stream(c), torch.cuda.current_stream().wait_stream(b)
    return x.sum()
""",
}


def check(*arguments: str | Path, seed: str, jobs: int = 1) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "streamsafe", "check", "--engine=next", "--isolated", "--no-cache"]
    result = subprocess.run(
        [*command, "--confidence=possible", "--output-format=json", f"--jobs={jobs}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert result.returncode in (0, 1), result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def files(pytestconfig: pytest.Config) -> list[Path]:
    """Every 24th fixture, at another commit others; all with ``--exhaustive``."""
    every = sorted(FIXTURES.glob("*.py"))
    return every if pytestconfig.getoption("--exhaustive") else every[pytestconfig.getoption("--part") :: 24]


def in_order(found: list[dict[str, Any]]) -> list[str]:
    """Findings as texts; the order of files is that in which they are named."""
    return sorted(json.dumps(one, sort_keys=True) for one in found)


def test_neither_seed_nor_file_order_nor_processes_matter(files: list[Path]) -> None:
    first = check(*files, seed="0")
    assert first
    assert check(*files, seed="1") == first
    assert in_order(check(*reversed(files), seed="2", jobs=2)) == in_order(first)


def test_a_package_is_judged_alike(tmp_path: Path) -> None:
    """Values that may be several things: devices, streams, objects of two kinds, two waits on one line."""
    for name, text in PACKAGE.items():
        (tmp_path / "pkg").mkdir(exist_ok=True)
        (tmp_path / "pkg" / name).write_text(text)
    found = [check(tmp_path, seed=str(seed)) for seed in range(5)]
    assert found[0]
    assert all(each == found[0] for each in found)
