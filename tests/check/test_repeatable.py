"""What is found, and in which words, is the same in every run: whatever strings hash to, wherever objects lie,
in whatever order files are named, and in however many processes they are analysed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.check.evalfiles import FIXTURES

FILES = ("ss103_*.py", "ss403_*.py")
SEEDS = ("1", "2")

SEVERAL_OF_A_KIND = """\
import torch
from concurrent.futures import ThreadPoolExecutor


def waits_that_miss(x):
    side, a, b, c = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    d, e, f = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)
    torch.cuda.current_stream().wait_stream(a)
    torch.cuda.current_stream().wait_stream(b)
    torch.cuda.current_stream().wait_stream(c)
    torch.cuda.current_stream().wait_stream(d)
    torch.cuda.current_stream().wait_stream(e)
    torch.cuda.current_stream().wait_stream(f)  # the last one
    return x.sum()


def watch(counter):
    return counter.sum().item()


def threads_at_work(x, counter):
    g = torch.cuda.CUDAGraph()
    with ThreadPoolExecutor(max_workers=5) as pool:
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        pool.submit(watch, counter)
        with torch.cuda.graph(g):
            x.add_(1)
    return g
"""

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
    command = [sys.executable, "-m", "streamsafe", "check", "--isolated", "--confidence=possible"]
    result = subprocess.run(
        [*command, "--output-format=json", f"--jobs={jobs}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert result.returncode in (0, 1), result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(SEVERAL_OF_A_KIND.splitlines(), 1) if text in line)


def test_fixtures_are_judged_alike() -> None:
    files = [path for pattern in FILES for path in sorted(FIXTURES.glob(pattern))]
    first, *others = [check(*files, seed=seed) for seed in SEEDS]
    assert first
    assert all(found == first for found in others)


def test_which_of_several_places_is_shown(tmp_path: Path) -> None:
    """Of several waits the last."""
    path = tmp_path / "several.py"
    path.write_text(SEVERAL_OF_A_KIND)
    for seed in SEEDS:
        found = check(path, seed=seed)
        shown = {f["code"]: json.dumps(f) for f in found}
        assert set(shown) >= {"SS103", "SS411"}
        assert f'"row": {line_of("the last one")}' in shown["SS103"]


@pytest.fixture(scope="module")
def files(pytestconfig: pytest.Config) -> list[Path]:
    """Every 24th fixture, at another commit others; all with ``--all``."""
    every = sorted(FIXTURES.glob("*.py"))
    return every if pytestconfig.getoption("--all") else every[0::24]


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
