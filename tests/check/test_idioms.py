"""Idioms of libraries and of classes: for each a program in which something must fire, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

HEAD = """\
import itertools
import time
import cupy as cp
import torch
import torch.distributed as dist
from elsewhere import Lamb
from torch.utils._pytree import tree_map
from tqdm import tqdm

"""

CASES = {
    "a scaler's step of an optimizer that nothing shows": """
def good(model, x):
    optimizer = Lamb(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
    return g

def bad(model, x):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)  # expect: SS408
    return g
""",
    "the default stream that a program makes wait is the current one": """
class Good:
    def __init__(self):
        self.side = cp.cuda.Stream(non_blocking=True)
        self.loaded, self.used = cp.cuda.Event(), cp.cuda.Event()

    def push(self, values):
        x = cp.asarray(values)
        self.loaded.record()
        self.side.wait_event(self.loaded)
        with self.side:
            y = x + 1
        self.used.record(self.side)
        cp.cuda.Stream.null.wait_event(self.used)
        return y

class Bad:
    def __init__(self):
        self.side = cp.cuda.Stream(non_blocking=True)
        self.loaded, self.used = cp.cuda.Event(), cp.cuda.Event()

    def push(self, values):
        x = cp.asarray(values)
        self.loaded.record()
        self.side.wait_event(self.loaded)
        with self.side:
            y = x + 1  # expect: SS202
        self.used.record(self.side)
        return y
""",
    "options in a dict, and what a function gives for each leaf of a tree": """
def bad_options(x):
    options = {"device": "cpu", "non_blocking": True}
    h = torch.square(x.cuda()).to(**options)
    return h.tolist()  # expect: SS301

def good_options(x):
    options = {"device": "cpu", "non_blocking": False}
    h = torch.square(x.cuda()).to(**options)
    return h.tolist()

def bad_dict(x, more):
    options = dict(more, device="cpu", non_blocking=True)
    h = torch.square(x.cuda()).to(**options)
    return h.tolist()  # expect: SS301

def bad_leaves(metrics):
    host = tree_map(lambda v: v.to("cpu", non_blocking=True), metrics)
    return {name: v.item() for name, v in host.items()}  # expect: SS301

def good_leaves(metrics):
    host = tree_map(lambda v: v.to("cpu", non_blocking=True), metrics)
    torch.cuda.synchronize()
    return {name: v.item() for name, v in host.items()}
""",
    "an object in a field, whose method has the name of one of arrays": """
class Buffer:
    def __init__(self, n):
        self.stream = torch.cuda.Stream()
        self.values = torch.empty(n, device="cuda")

    def fill(self, host):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.values.copy_(host, non_blocking=True)

class Owner:
    def __init__(self):
        self.buffer = Buffer(64)

    def bad(self, host):
        self.buffer.fill(host)
        return self.buffer.values.sum()  # expect: SS101

    def good(self, host):
        self.buffer.fill(host)
        torch.cuda.current_stream().wait_stream(self.buffer.stream)
        return self.buffer.values.sum()
""",
    "the gradient of a leaf seeds another pass": """
def good(trunk, head, x):
    s = torch.cuda.Stream()
    leaf = trunk(x).detach().requires_grad_()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        head(leaf).sum().backward()
    torch.cuda.current_stream().wait_stream(s)
    trunk(x).backward(leaf.grad)

def bad(trunk, head, x):
    s = torch.cuda.Stream()
    leaf = trunk(x).detach().requires_grad_()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        head(leaf).sum().backward()
    torch.autograd.backward([trunk(x)], [leaf.grad])  # expect: SS112
    torch.cuda.current_stream().wait_stream(s)
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    check_program(tmp_path, CASES[name], HEAD)
