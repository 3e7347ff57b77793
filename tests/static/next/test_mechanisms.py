"""Small programs for each mechanism of the new engine: what must fire, marked on its line, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.evalfiles import EvalFile, check_tree, write_tree

HEAD = """\
import threading
from concurrent.futures import ThreadPoolExecutor

import cupy as cp
import cupyx
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

"""

CASES = {
    "the host asks for a bound, a size or a number in a capture": """
def bad_bound(x):
    x = x.cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x[: x.argmax()]  # expect: SS401
        z = torch.zeros(x.amax(), device="cuda")  # expect: SS401
        for _ in range(x.sum()):  # expect: SS401
            x.mul_(2)
    return g, y, z

def good_bound(x, n):
    x = x.cuda()
    size = x.argmax().item()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = x[: x.shape[0] - n]
        z = torch.zeros(size, device="cuda")
        for _ in range(x.size(0)):
            x.mul_(2)
    return g, y, z
""",
    "an index by a mask asks for the number of its true elements": """
class Positive(nn.Module):
    def forward(self, x):
        return x[x > 0].sum()  # expect: SS401

def bad_mask(x):
    x = x.cuda()
    net = Positive()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        keep = x.ge(0) & torch.isfinite(x)
        y = x[keep]  # expect: SS401
        z = net(x)
    return g, y, z

def good_mask(x):
    x = x.cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        keep = x.ge(0) & torch.isfinite(x)
        y = torch.where(keep, x, 0.0)
        z = x[x.argsort()]
    return g, y, z
""",
    "memory of the host is copied to the device in a capture": """
def bad_literal(x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        w = torch.tensor([0.2, 0.8], device="cuda")  # expect: SS401
    return g, w

def good_literal(x):
    w = torch.tensor([0.2, 0.8], device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = torch.full((2,), 0.5, device="cuda") * w
    return g, y
""",
    "another stream may be asked in the relaxed mode": """
def bad_asked(x):
    g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(g):
        x.mul_(2)
        return g, s.query()  # expect: SS401

def good_asked(x):
    g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(g, capture_error_mode="relaxed"):
        x.mul_(2)
        return g, s.query()
""",
    "what is expected to raise is no finding": """
def test_that_it_fails(x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.mul_(2)
        with pytest.raises(RuntimeError):
            x.sum().item()
        x.sum().item()  # expect: SS401
""",
    "an attribute of a stream asks the device": """
def bad_asked(n):
    s = cp.cuda.Stream(non_blocking=True)
    with s:
        x = cp.ones(n)
    s.priority
    return x * 2  # expect: SS101

def good_asked(n):
    s = cp.cuda.Stream(non_blocking=True)
    with s:
        x = cp.ones(n)
    while not s.done:
        pass
    return x * 2
""",
    "an asynchronous collective runs on a stream of its own": """
def bad_early(x):
    x = x.cuda() * 2
    work = dist.all_reduce(x, async_op=True)
    y = x + 1  # expect: SS101
    work.wait()
    return y

def bad_elsewhere(x, side: torch.cuda.Stream):
    x = x.cuda() * 2
    work = dist.all_reduce(x, async_op=True)
    with torch.cuda.stream(side):
        work.wait()
    return x + 1  # expect: SS101

def good_waited(x, flag):
    x = x.cuda() * 2
    work = dist.all_reduce(x, async_op=flag)
    if work is not None:
        work.wait()
    return x + 1

def good_two_in_one_queue(x):
    x = x.cuda() * 2
    dist.all_reduce(x, async_op=True)
    dist.broadcast(x, 0, async_op=True).wait()
    return x + 1
""",
    "who waits for each of some streams waits for all of them": """
def bad_none(x, n):
    streams = [torch.cuda.Stream() for _ in range(n)]
    parts = []
    for s in streams:
        with torch.cuda.stream(s):
            parts.append(x.cuda() * 2)
    return torch.stack(parts)  # expect: SS101

def good_each(x, n):
    streams = [torch.cuda.Stream() for _ in range(n)]
    parts = []
    for s in streams:
        with torch.cuda.stream(s):
            parts.append(x.cuda() * 2)
    for s in streams:
        torch.cuda.current_stream().wait_stream(s)
    return torch.stack(parts)
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {"module.py": HEAD + CASES[name]})
    found = check_tree(tmp_path, "--engine", "next", "--no-cache").get("module.py", [])
    shown = [each for each in found if each.confidence != "possible"]
    text = HEAD + CASES[name]
    assert not EvalFile(tmp_path / "module.py", text).disagreements(shown)
