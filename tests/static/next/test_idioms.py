"""Idioms of libraries and of classes: for each a program in which something must fire, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.evalfiles import EvalFile, check_tree, write_tree

HEAD = """\
import time
import cupy as cp
import torch
import torch.distributed as dist
from elsewhere import Lamb

"""

CASES = {
    "streams in a table, made when a name is first asked for": """
class Lanes:
    def __init__(self):
        self.lanes = {}

    def lane(self, name):
        if name not in self.lanes:
            self.lanes[name] = torch.cuda.Stream()
        return self.lanes[name]

    def good(self, x, names):
        current = torch.cuda.current_stream()
        for name in names:
            side = self.lane(name)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                x[name].add_(1)
        for side in self.lanes.values():
            current.wait_stream(side)
        x.mul_(2)

    def bad(self, x, names):
        current = torch.cuda.current_stream()
        for name in names:
            side = self.lane(name)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                x[name].add_(1)
        x.mul_(2)  # expect-any: SS102|SS103
""",
    "a wait where a field says that something is under way": """
class Side:
    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.forked = False

    def put(self, x):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            x.add_(1)
        self.forked = True

    def join(self):
        if not self.forked:
            return
        torch.cuda.current_stream().wait_stream(self.stream)
        self.forked = False

class Asked:
    def __init__(self, wide):
        self.stream = torch.cuda.Stream()
        self.wide = wide

    def put(self, x):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            x.add_(1)

    def join(self):
        if self.wide:
            torch.cuda.current_stream().wait_stream(self.stream)  # expect: SS402

def good_flag(side: Side, layers, x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for layer in layers:
            if layer.wide:
                side.put(x)
        side.join()
    return g

def bad_setting(side: Asked, x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        side.join()
    return g
""",
    "a barrier is one of devices where something shows that its group is": """
def good(x, group):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        dist.barrier(group=group)
        dist.all_reduce(x.cuda())
        dist.monitored_barrier()
    return g

def bad(x, group):
    g = torch.cuda.CUDAGraph()
    y = x.cuda()
    dist.all_reduce(y, group=group)
    with torch.cuda.graph(g):
        dist.barrier(group)  # expect: SS401
        dist.barrier()  # expect: SS401
    return g
""",
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
    "the parameters of a module lie where it was moved": """
def good(model: torch.nn.Module, x):
    model.cuda()
    start = time.perf_counter()
    y = x.cuda() @ x.cuda()
    if next(model.parameters()).is_cuda:
        torch.cuda.synchronize()
    return y, time.perf_counter() - start

def good_device(model: torch.nn.Module, x):
    model = model.to("cuda:0")
    start = time.perf_counter()
    y = x.cuda() @ x.cuda()
    if next(iter(model.parameters())).device.type == "cuda":
        torch.cuda.synchronize()
    return y, time.perf_counter() - start

def bad(model: torch.nn.Module, x):
    model.cpu()
    start = time.perf_counter()
    y = x.cuda() @ x.cuda()
    if next(model.parameters()).is_cuda:
        torch.cuda.synchronize()
    return y, time.perf_counter() - start  # expect: SS311
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
    text = HEAD + CASES[name]
    write_tree(tmp_path, {"module.py": text})
    found = check_tree(tmp_path, "--engine", "next", "--no-cache").get("module.py", [])
    shown = [each for each in found if each.confidence != "possible"]
    assert not EvalFile(tmp_path / "module.py", text).disagreements(shown)
