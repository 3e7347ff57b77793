"""`streamsafe.annotate`: work and edges that no hook sees, for PyTorch and CuPy on the simulated device.

Each program names the codes that it has; `unseen` stands for a kernel of a C++ extension, which no hook sees.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TORCH = """
import torch
from streamsafe import annotate

def unseen(*tensors):
    pass

x = torch.zeros(1024, device="cuda")
y = torch.zeros(1024, device="cuda")
side, other = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
"""
CUPY = """
import cupy as cp
from streamsafe import annotate

def unseen(*arrays):
    pass

x, y = cp.zeros(1024), cp.zeros(1024)
side, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
cp.cuda.Device().synchronize()
"""

PROGRAMS = {
    "a kernel that writes": (
        TORCH,
        "SS101",
        """
with torch.cuda.stream(side):
    unseen(x)
    annotate.access("scale", writes=[x])
y.copy_(x)
""",
    ),
    "a kernel that writes, and a wait": (
        TORCH,
        "",
        """
with torch.cuda.stream(side):
    unseen(x)
    annotate.access("scale", writes=[x])
torch.cuda.current_stream().wait_stream(side)
y.copy_(x)
""",
    ),
    "a kernel that reads": (
        TORCH,
        "SS102",
        """
annotate.reads(x, stream=side, operation="gather")
x.fill_(1)
""",
    ),
    "two kernels that read": (TORCH, "", "annotate.reads(x, stream=side)\ny.copy_(x)\n"),
    "an address": (TORCH, "SS102", "annotate.writes(x.data_ptr(), bytes=16, stream=side)\nx[:4].fill_(1)\n"),
    "an address beside it": (
        TORCH,
        "",
        "annotate.writes(x.data_ptr(), bytes=16, stream=side)\nx[4:].fill_(1)\n",
    ),
    "a raw handle": (TORCH, "SS102", "annotate.writes(x, stream=side.cuda_stream)\nx.fill_(1)\n"),
    "a flag in memory": (
        TORCH,
        "",
        """
with torch.cuda.stream(side):
    x.fill_(1)
    annotate.release("ready")
with torch.cuda.stream(other):
    annotate.acquire("ready")
    y.copy_(x)
""",
    ),
    "a flag that is set too early": (
        TORCH,
        "SS103",
        """
with torch.cuda.stream(side):
    annotate.release("ready")
    x.fill_(1)
with torch.cuda.stream(other):
    annotate.acquire("ready")
    y.copy_(x)
""",
    ),
    "another flag": (
        TORCH,
        "SS103",
        """
with torch.cuda.stream(side):
    x.fill_(1)
    annotate.release(("ready", 0))
with torch.cuda.stream(other):
    annotate.acquire(("ready", 1))
    y.copy_(x)
""",
    ),
    "an edge": (
        TORCH,
        "",
        """
with torch.cuda.stream(side):
    x.fill_(1)
annotate.edge(side, other)
with torch.cuda.stream(other):
    y.copy_(x)
""",
    ),
    "an edge the other way": (
        TORCH,
        "SS103",
        """
with torch.cuda.stream(side):
    x.fill_(1)
annotate.edge(other, side)
with torch.cuda.stream(other):
    y.copy_(x)
""",
    ),
    "a race that is meant": (
        TORCH,
        "",
        """
with torch.cuda.stream(side):
    x.add_(1)
with annotate.racy(x):
    y.copy_(x)
""",
    ),
    "a race over other memory": (
        TORCH,
        "SS101",
        """
with torch.cuda.stream(side):
    x.add_(1)
with annotate.racy(y):
    y.copy_(x)
""",
    ),
    "CuPy: a kernel that writes": (
        CUPY,
        "SS101",
        """
with side:
    unseen(x)
    annotate.access("scale", writes=[x])
with other:
    cp.copyto(y, x)
""",
    ),
    "CuPy: a flag in memory": (
        CUPY,
        "",
        """
with side:
    annotate.access("scale", writes=[x])
annotate.release(7, stream=side)
annotate.acquire(7, stream=other)
with other:
    cp.copyto(y, x)
""",
    ),
    "CuPy: an address": (
        CUPY,
        "SS102",
        "annotate.writes(x.data.ptr, 64, side.ptr)\nannotate.writes(x, stream=other)\n",
    ),
}


def needs(package: str) -> None:
    """Skips a test without a package, which is not imported: it would be watched by the tests that follow."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_program_says_counts(name: str, tmp_path: Path) -> None:
    begin, code, body = PROGRAMS[name]
    needs("torch" if begin is TORCH else "cupy_backends")
    program = tmp_path / "program.py"
    program.write_text(begin + body)
    ended = run(program)
    assert ended.returncode == (1 if code else 0), ended.stderr
    assert re.findall(r"^(SS\d+)", ended.stderr, re.M) == ([code] if code else [])


def run(program: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", "--mode", "collect", str(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("annotate.reads(x.data_ptr())", "`bytes` must say how much is meant"),
        ("annotate.reads(torch.zeros(1))", "memory of the host"),
        ("annotate.reads('x')", "str is no tensor, no array and no address"),
        ("annotate.reads(x, stream='side')", "str is no stream"),
        ("annotate.release(1, stream=3.0)", "float is no stream"),
    ],
)
def test_what_means_nothing_is_refused(call: str, said: str, tmp_path: Path) -> None:
    needs("torch")
    program = tmp_path / "program.py"
    program.write_text(f"{TORCH}\ntry:\n    {call}\nexcept TypeError as error:\n    print(error)\n")
    assert said in run(program).stdout


def test_outside_a_session_nothing_happens() -> None:
    from streamsafe import annotate

    annotate.reads(object())
    annotate.release("key")
    annotate.edge(None, None)
    with pytest.raises(TypeError, match="no address"), annotate.racy(object()):
        pass
