"""Idioms of libraries and of classes: for each a program in which something must fire, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.evalfiles import EvalFile, check_tree, write_tree

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
    "what goes through iterators of the tree asks them for each element": """
class Ahead:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.load()

    def load(self):
        with torch.cuda.stream(self.stream):
            self.batch = next(self.loader).cuda(non_blocking=True)

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.batch
        self.load()
        return batch

class InOrder(Ahead):
    def __next__(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.batch
        batch.record_stream(torch.cuda.current_stream())
        self.load()
        return batch

def bad_zip(loader, others):
    for x, other in zip(Ahead(loader), others):
        y = x + other  # expect: SS101

def good_zip(loader, others):
    for x, other in zip(InOrder(loader), others):
        y = x + other

def bad_both(loader, others):
    ahead = Ahead(loader)
    for i, (x, other) in enumerate(zip(ahead, others)):
        y = x + other  # expect: SS101

def good_both(loader, others):
    ahead = InOrder(loader)
    for i, (x, other) in enumerate(zip(ahead, others)):
        y = x + other

def bad_shown(loader, n):
    return [x + 1 for x in tqdm(itertools.islice(Ahead(loader), n))]  # expect: SS101

def good_shown(loader, n):
    return [x + 1 for x in tqdm(itertools.islice(InOrder(loader), n))]
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
    "a parameter that is kept beside its work, in a class or in one that inherits from it": """
class Launching:
    def __init__(self, model):
        self.works = []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.launch)

    def launch(self, param):
        self.works.append((param, dist.all_reduce(param.grad, async_op=True)))

class Bad(Launching):
    def finish(self):
        for param, work in self.works:
            param.grad.div_(2)  # expect: SS102
            work.wait()
        self.works.clear()

class Good(Launching):
    def finish(self):
        for param, work in self.works:
            work.wait()
            param.grad.div_(2)
        self.works.clear()
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
    text = HEAD + CASES[name]
    write_tree(tmp_path, {"module.py": text})
    found = check_tree(tmp_path, "--engine", "next", "--no-cache").get("module.py", [])
    shown = [each for each in found if each.confidence != "possible"]
    assert not EvalFile(tmp_path / "module.py", text).disagreements(shown)
