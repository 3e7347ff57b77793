"""What is shown by default needs no assumption: for each kind a program that shows it, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.evalfiles import EvalFile, check_tree, write_tree

TORCH = """\
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _SymmetricMemory

"""

CUPY = """\
import cupy as cp
from elsewhere import make_array

"""

CASES = {
    "what a binding gives is no work of a stream": """
def good(x, dest, group):
    memory = _SymmetricMemory.rendezvous(x, group)
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    part = memory.get_part(1, x.shape, x.dtype)
    other = memory.part(1, x.shape, x.dtype)
    with torch.cuda.stream(s):
        dest.copy_(part)
        dest.add_(other)
    torch.cuda.current_stream().wait_stream(s)

def bad(x, group):
    memory = _SymmetricMemory.rendezvous(x, group)
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    signals = torch.zeros(4, device="cuda")
    with torch.cuda.stream(s):
        _SymmetricMemory.stream_write_value32(signals, offset=0, val=1)  # expect: SS102
""",
    "a tensor that may be there already is not copied": """
def good(place):
    s = torch.cuda.Stream()
    y = torch.ones(8, device="cuda")
    with torch.cuda.stream(s):
        z = y.to(s.device, non_blocking=True)
        z = z.to(place.of(s), non_blocking=True)
    return z

def bad():
    s = torch.cuda.Stream()
    y = torch.ones(8, device="cuda")
    with torch.cuda.stream(s):
        z = y.to("cpu", non_blocking=True)  # expect: SS101
    return z
""",
    "what was cast has the type that it was cast to": """
class Good:
    def start(self, out, x):
        if out.value.dtype != x.dtype:
            out.value = out.value.to(x.dtype)
        self.work = dist.all_to_all_single(out.value, x.cuda(), async_op=True)

    def run(self, out, x):
        for _ in range(2):
            self.start(out, x)

class Bad:
    def start(self, out, x, dtype):
        if out.value.dtype != x.dtype:
            out.value = out.value.to(dtype)  # expect: SS101
        self.work = dist.all_to_all_single(out.value, x.cuda(), async_op=True)

    def run(self, out, x, dtype):
        for _ in range(2):
            self.start(out, x, dtype)
""",
    "an element of a list that is not seen is another one in each round": """
class Good:
    def __init__(self):
        self.side = torch.cuda.Stream()

    def run(self, parts, x, y, rank, n):
        rows = [part.view(n, -1) for part in parts.split(4)]
        self.side.wait_stream(torch.cuda.current_stream())
        for step in range(1, n):
            place = (rank + step) % n
            for i, row in enumerate([r[place] for r in rows]):
                stream = [torch.cuda.current_stream(), self.side][i % 2]
                with torch.cuda.stream(stream):
                    torch.matmul(x, y, out=row)
        torch.cuda.current_stream().wait_stream(self.side)

class Bad:
    def __init__(self):
        self.side = torch.cuda.Stream()

    def run(self, parts, x, y, rank, n):
        rows = [part.view(n, -1) for part in parts.split(4)]
        self.side.wait_stream(torch.cuda.current_stream())
        for step in range(2):
            stream = [torch.cuda.current_stream(), self.side][step % 2]
            with torch.cuda.stream(stream):
                torch.matmul(x, y, out=rows[0])  # expect: SS102
        torch.cuda.current_stream().wait_stream(self.side)
""",
    "parameters that were moved are held by their module": """
class Good:
    def __init__(self, module):
        self.module = module
        self.module.to("cuda")
        self.graph = None

    def capture(self, x):
        self.inputs = x
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.module(self.inputs)

    def forward(self, x):
        if self.graph is None:
            self.capture(x)
        self.inputs.copy_(x)
        self.graph.replay()
        return self.out

class Bad:
    def __init__(self, module):
        self.module = module
        self.module.to("cuda")
        self.graph = None

    def capture(self, x):
        self.inputs = x
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.module(self.inputs)
        self.module.half()  # expect: SS403

    def forward(self, x):
        if self.graph is None:
            self.capture(x)
        self.inputs.copy_(x)
        self.graph.replay()
        return self.out
""",
    "another method waits before the memory is handed out again": """
class Good:
    def __init__(self):
        self.side = torch.cuda.Stream()

    def pad(self, y):
        padded = torch.empty(8, device="cuda")
        with torch.cuda.stream(self.side):
            padded.copy_(y)
        return padded

    def join(self):
        torch.cuda.current_stream().wait_stream(self.side)

class Bad:
    def __init__(self):
        self.side = torch.cuda.Stream()

    def pad(self, y):
        padded = torch.empty(8, device="cuda")
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            padded.add_(1)  # expect: SS201

    def name(self):
        return "side"
""",
    "a stream picked from a list is one of that list": """
def good(x, w, n, step):
    streams = [torch.cuda.Stream() for _ in range(2)]
    out = torch.zeros(n, 8, device="cuda")
    for s in streams:
        s.wait_stream(torch.cuda.current_stream())
    for i in range(0, n, step):
        with torch.cuda.stream(streams[(i // step) % 2]):
            out[i : i + step].copy_(x[i : i + step] @ w)
    for s in streams:
        torch.cuda.current_stream().wait_stream(s)
    return out + 1

def bad_begin(x, w, n, step):
    streams = [torch.cuda.Stream() for _ in range(2)]
    out = torch.zeros(n, 8, device="cuda")
    streams[0].wait_stream(torch.cuda.current_stream())
    for i in range(0, n, step):
        with torch.cuda.stream(streams[(i // step) % 2]):
            out[i : i + step].copy_(x[i : i + step] @ w)  # expect: SS102
    for s in streams:
        torch.cuda.current_stream().wait_stream(s)
    return out

def bad_end(x, w, n, step):
    streams = [torch.cuda.Stream() for _ in range(2)]
    out = torch.zeros(n, 8, device="cuda")
    for s in streams:
        s.wait_stream(torch.cuda.current_stream())
    for i in range(0, n, step):
        with torch.cuda.stream(streams[(i // step) % 2]):
            out[i : i + step].copy_(x[i : i + step] @ w)
    torch.cuda.current_stream().wait_stream(streams[0])
    return out + 1  # expect: SS103
""",
    "a copy between two devices is ordered by both": """
def good():
    s = torch.cuda.Stream(device="cuda:1")
    a = torch.ones(8, device="cuda:0")
    with torch.cuda.stream(s):
        b = a.to("cuda:1", non_blocking=True)
        return (b * 2).sum().item()

def bad():
    s = torch.cuda.Stream(device="cuda:1")
    a = torch.ones(8, device="cuda:1")
    with torch.cuda.stream(s):
        b = a.to("cuda:1", non_blocking=True)
        return (b * 2).sum().item()  # expect: SS101
""",
}

ARRAYS = {
    "arrays of a file of CuPy are CuPy's": """
def good(shape):
    s = cp.cuda.Stream(non_blocking=True)
    with s:
        c = make_array(shape)
        c[:] = cp.random.rand(8) + 1
        d = c * 2
    s.synchronize()
    return d

def bad(shape):
    s = cp.cuda.Stream(non_blocking=True)
    c = cp.zeros(8)
    with s:
        c[:] = cp.random.rand(8) + 1  # expect: SS102
""",
}


@pytest.mark.parametrize("name", CASES)
def test_torch(name: str, tmp_path: Path) -> None:
    expected(TORCH + CASES[name], tmp_path)


@pytest.mark.parametrize("name", ARRAYS)
def test_cupy(name: str, tmp_path: Path) -> None:
    expected(CUPY + ARRAYS[name], tmp_path)


def expected(text: str, tree: Path) -> None:
    """Only what is certain is shown."""
    write_tree(tree, {"module.py": text})
    found = check_tree(tree).get("module.py", [])
    shown = [each for each in found if each.confidence == "certain"]
    assert not EvalFile(tree / "module.py", text).disagreements(shown)
