"""Small programs for each mechanism of the analysis: what must fire, marked on its line, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.evalfiles import EvalFile, check_tree, write_tree

HEAD = """\
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import cupy as cp
import cupyx
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

"""

CASES = {
    "a process group has at least one member, so who is not alone has others": """
class Good:
    def __init__(self, group, x):
        self.workers = group.size()
        self.out = torch.empty(8, device="cuda")
        if self.workers == 1:
            return
        self.work = dist.all_to_all_single(self.out, x, group=group, async_op=True)

    def get(self):
        if self.workers > 1:
            self.work.wait()
        return self.out.sum()

class Bad:
    def __init__(self, group, x):
        self.workers = group.size()
        self.out = torch.empty(8, device="cuda")
        if self.workers == 1:
            return
        self.work = dist.all_to_all_single(self.out, x, group=group, async_op=True)

    def get(self):
        if self.workers > 2:
            self.work.wait()
        return self.out.sum()  # expect: SS101
""",
    "a function that returns within a generator's context leaves after the rest of the generator": """
import contextlib

@contextlib.contextmanager
def joined(side):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)

@contextlib.contextmanager
def left_alone(side):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield

def doubled(x, context):
    with context:
        return x * 2

def good(n):
    side = torch.cuda.Stream()
    x = torch.ones(n, device="cuda")
    return doubled(x, joined(side)) + 1

def bad(n):
    side = torch.cuda.Stream()
    x = torch.ones(n, device="cuda")
    return doubled(x, left_alone(side)) + 1  # expect: SS101
""",
    "polling an event that is not recorded yet tells nothing": """
def good(x):
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda")
        done.record()
    while not done.query():
        pass
    return y + x

def bad(x):
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda")
    while not done.query():
        pass
    return y + x  # expect: SS103
""",
    "an upload of CuPy's from pinned memory reads it later, unless it is asked to block": """
def bad_asarray(shape, batch):
    staging = cupyx.empty_pinned(shape)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x = cp.asarray(staging)
    staging[...] = batch  # expect: SS302
    stream.synchronize()
    return x

def bad_loop(shape, batches):
    staging = cupyx.zeros_pinned(shape)
    out = []
    for batch in batches:
        staging[...] = batch  # expect: SS302
        out.append(cp.array(staging))
    return out

class BadUploader:
    def __init__(self, shape):
        self.staging = cupyx.zeros_pinned(shape)
        self.stream = cp.cuda.Stream(non_blocking=True)

    def upload(self, batch):
        self.staging[:] = batch  # expect: SS302
        with self.stream:
            return cp.asarray(self.staging)

class GoodUploader:
    def __init__(self, shape):
        self.staging = cupyx.zeros_pinned(shape)
        self.stream = cp.cuda.Stream(non_blocking=True)

    def upload(self, batch):
        self.stream.synchronize()
        self.staging[:] = batch
        with self.stream:
            return cp.asarray(self.staging)

def good_pageable(shape, batch):
    staging = np.empty(shape)
    x = cp.asarray(staging)
    staging[...] = batch
    return x

def good_unknown(staging, batch):
    x = cp.asarray(staging)
    staging[...] = batch
    return x

def good_blocking(shape, batch):
    staging = cupyx.empty_pinned(shape)
    x = cp.asarray(staging, blocking=True)
    staging[...] = batch
    return x
""",
    "an object of a class that is a container holds what it is made of": """
class Batch(dict):
    def host(self):
        return Batch({k: v.to("cpu", non_blocking=True) for k, v in self.items()})

class Rows(list):
    pass

def bad_method(x):
    h = Batch(x=x.cuda()).host()
    print(h["x"].sum().item())  # expect: SS301

def bad_key(x):
    h = Batch({"x": x.cuda().to("cpu", non_blocking=True)})
    print(h["x"].numpy())  # expect: SS301

def bad_keyword(x):
    h = Batch(x=x.cuda().to("cpu", non_blocking=True))
    print(h["x"].numpy())  # expect: SS301

def bad_list(x):
    h = Rows([x.cuda().to("cpu", non_blocking=True)])
    print(h[0].numpy())  # expect: SS301

def good_method(x):
    h = Batch(x=x.cuda()).host()
    torch.cuda.synchronize()
    print(h["x"].sum().item())

def good_other_key(x):
    x = x.cuda()
    h = Batch({"x": x.to("cpu", non_blocking=True), "n": x.cpu()})
    print(h["n"].numpy())

def good_list(x):
    h = Rows([x.cuda().to("cpu", non_blocking=True)])
    torch.cuda.current_stream().synchronize()
    print(h[0].numpy())
""",
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
    "a record covers whichever of several tensors it is given, and each element of a container": """
SIDE = torch.cuda.Stream()

def bad_no_record(x, flag):
    if flag:
        x = x.clone()
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        x.sum()  # expect: SS201

def good_record(x, flag):
    if flag:
        x = x.clone()
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        x.sum()
    x.record_stream(SIDE)

class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        try:
            image, target = next(self.loader)
        except StopIteration:
            self.batch = None
            return
        with torch.cuda.stream(self.stream):
            self.batch = (image.cuda(non_blocking=True), target.cuda(non_blocking=True))

    def __iter__(self):
        return self

    def __next__(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.batch
        if batch is None:
            raise StopIteration
        for tensor in batch:
            tensor.record_stream(torch.cuda.current_stream())
        self.preload()
        return batch

def good_each(model, loader):
    for image, target in Prefetcher(loader):
        model(image + target)
""",
    "a stream that may be None is the current one for all that is given it": """
def good_none(chunks, cache, stream):
    buffer = torch.empty_like(chunks[0], pin_memory=True)
    done = torch.cuda.Event()
    with torch.cuda.stream(stream):
        for chunk in chunks:
            done.synchronize()
            buffer.copy_(chunk)
            cache.copy_(buffer, non_blocking=True)
            done.record(stream)

def bad_none(chunks, cache, stream):
    buffer = torch.empty_like(chunks[0], pin_memory=True)
    with torch.cuda.stream(stream):
        for chunk in chunks:
            buffer.copy_(chunk)  # expect: SS302
            cache.copy_(buffer, non_blocking=True)
""",
    "a module that is called reads its parameters": """
class Group:
    def __init__(self, modules):
        self.modules = modules
        self.stream = torch.cuda.Stream()
        self.host = {p: p.data.cpu().pin_memory() for m in modules for p in m.parameters()}

    def onload(self):
        with torch.cuda.stream(self.stream):
            for m in self.modules:
                for name, p in m.named_parameters():
                    p.data = self.host[p].to("cuda", non_blocking=True)

def bad_onload(block: nn.Linear, x):
    group = Group([block])
    group.onload()
    return block(x)  # expect: SS101

def good_onload(block: nn.Linear, x):
    group = Group([block])
    group.onload()
    torch.cuda.current_stream().wait_stream(group.stream)
    return block(x)

def good_other_module(block: nn.Linear, other: nn.Linear, x):
    group = Group([block])
    group.onload()
    return other(x)

def bad_by_name(block: nn.Linear, x, host):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for p, h in zip(block.parameters(), host):
            p.data.copy_(h, non_blocking=True)
    return nn.functional.linear(x, block.weight)  # expect: SS101
""",
    "what says that it returns a number is no memory": """
def size_of(x) -> int:
    return x.rows * x.columns

class GoodSize:
    def __init__(self):
        self.side = torch.cuda.Stream()

    def put(self, x):
        self.size = size_of(x)

    def use(self):
        with torch.cuda.stream(self.side):
            y = torch.zeros(4, device="cuda")
            y[self.size] = 2
            return y.sum().item()
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
    "a NumPy view shows where the memory lies": """
def bad_view(x: torch.Tensor, device, other):
    h = x.to(device, non_blocking=True)
    if other.type == "cpu":
        torch.cuda.synchronize()
    return h.numpy().sum()  # expect: SS301

def bad_unknown_destination(x, h):
    h.copy_(x.cuda(), non_blocking=True)
    return h.numpy().sum()  # expect: SS301

def good_unknown_destination(x, h):
    h.copy_(x.cuda(), non_blocking=True)
    return h.sum()

def good_view(x: torch.Tensor, device):
    h = x.to(device, non_blocking=True)
    if h.device.type == "cpu":
        torch.cuda.synchronize()
    return h.numpy().sum()

def good_where_it_came_from(x: torch.Tensor):
    h = x.to("cpu", non_blocking=True)
    if x.is_cuda:
        torch.cuda.synchronize()
    return h.numpy().sum()
""",
    "a query orders where its answer is yes": """
def bad_asked_once(x):
    h = x.cuda().to("cpu", non_blocking=True)
    done = torch.cuda.current_stream().record_event()
    if not done.query():
        pass
    return h.tolist()  # expect: SS301

def good_asked_until(x):
    h = x.cuda().to("cpu", non_blocking=True)
    done = torch.cuda.current_stream().record_event()
    while not done.query():
        pass
    return h.tolist()

def good_all(x, y):
    h, k = x.cuda().to("cpu", non_blocking=True), y.cuda().to("cpu", non_blocking=True)
    events = [torch.cuda.current_stream().record_event() for _ in range(2)]
    if all(e.query() for e in events):
        return h.tolist(), k.tolist()
    return None
""",
    "elements are compared by their values, or by a key": """
def bad_sorted(x, names):
    h = x.cuda().to("cpu", non_blocking=True)
    return sorted(zip(h, names))  # expect: SS301

def good_sorted(x, names):
    h = x.cuda().to("cpu", non_blocking=True)
    return sorted(zip(names, h)), sorted(zip(h, names), key=lambda pair: pair[1])
""",
    "options that are given by name are as good as written": """
OPTIONS = {"non_blocking": True}

def bad_options(x):
    h = x.cuda().to("cpu", **OPTIONS)
    return h.tolist()  # expect: SS301

def good_options(x):
    h = x.cuda().to("cpu", **{"non_blocking": False})
    return h.tolist()
""",
    "a parameter of a module moves with it": """
class Scaled(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.kept = torch.ones(n)
        self.moved = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.moved.to(x.device) * self.kept.to(x.device)  # expect: SS401

def captured(n, x):
    net = Scaled(n).cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x.cuda())
    return g, y
""",
    "an input of a graph is let go of in a method that does not capture it": """
class BadRunner:
    def __init__(self, net, weight):
        self.net, self.weight = net, weight
        self.graph = torch.cuda.CUDAGraph()

    def allocate(self, n):
        self.tokens = torch.zeros(n, device="cuda")

    def capture(self):
        with torch.cuda.graph(self.graph):
            self.out = self.net(self.tokens) * self.weight

    def __call__(self, tokens):
        self.tokens = tokens  # expect: SS403
        self.graph.replay()
        return self.out

class GoodRunner:
    def __init__(self, net):
        self.net = net
        self.graph = torch.cuda.CUDAGraph()

    def allocate(self, n):
        self.tokens = torch.zeros(n, device="cuda")

    def capture(self):
        with torch.cuda.graph(self.graph):
            self.out = self.net(self.tokens)

    def __call__(self, tokens):
        self.tokens.copy_(tokens)
        self.graph.replay()
        return self.out
""",
    "inputs of a graph in a container": """
class BadNamed:
    def __init__(self, net, ids, mask):
        self.net = net
        self.inputs = {"ids": ids.clone(), "mask": mask.clone()}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.net(**self.inputs)

    def each(self, batch):
        for name in self.inputs:
            self.inputs[name] = batch[name].cuda()  # expect: SS403
        self.graph.replay()

    def all(self, batch):
        self.inputs.update({name: value.cuda() for name, value in batch.items()})  # expect: SS403
        self.graph.replay()

class GoodNamed:
    def __init__(self, net, ids, mask):
        self.net = net
        self.inputs = {"ids": ids.clone(), "mask": mask.clone()}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.net(**self.inputs)

    def each(self, batch):
        for name in self.inputs:
            self.inputs[name].copy_(batch[name])
        self.graph.replay()

class GoodTable:
    def __init__(self, net):
        self.net, self.known = net, {}

    def __call__(self, x):
        if x.shape not in self.known:
            static = x.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = self.net(static)
            self.known[x.shape] = (graph, static, out)
        graph, static, out = self.known[x.shape]
        static.copy_(x)
        graph.replay()
        return out.clone()
""",
    "parameters of a module that a graph calls": """
def bad_data(net, x, other):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x)
    for p, q in zip(net.parameters(), other.parameters()):
        p.data = q.data.clone()  # expect: SS403
    g.replay()
    return y

def good_data(net, x, other):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x)
    for p, q in zip(net.parameters(), other.parameters()):
        p.data.copy_(q.data)
    g.replay()
    return y

def good_back(net, x, average):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x)
    own = net.weight.data
    net.weight.data = average
    net(x)
    net.weight.data = own
    g.replay()
    return y
""",
    "gradients that a captured step reads": """
def bad_step(net, opt, x, n):
    g = torch.cuda.CUDAGraph()
    net(x).sum().backward()
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        opt.step()
    for _ in range(n):
        opt.zero_grad()  # expect: SS403
        net(x).sum().backward()
        g.replay()

def good_step(net, opt, x, n):
    g = torch.cuda.CUDAGraph()
    net(x).sum().backward()
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        opt.step()
    for _ in range(n):
        opt.zero_grad(set_to_none=False)
        net(x).sum().backward()
        g.replay()
""",
    "a capture puts its output in the place of its input": """
def bad_state(net, x, n):
    state = torch.zeros(8, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        state = net(x, state)  # expect: SS403
    for _ in range(n):
        g.replay()
    return state

def good_state(net, x, n):
    state = torch.zeros(8, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        state.copy_(net(x, state))
    for _ in range(n):
        g.replay()
    return state
""",
    "optimizers that count on the host": """
class Trainer:
    def __init__(self, net):
        self.net = net
        self.bad = torch.optim.AdamW(net.parameters())
        self.good = torch.optim.AdamW(net.parameters(), capturable=True)
        self.plain = torch.optim.SGD(net.parameters(), lr=0.1)
        self.graph = torch.cuda.CUDAGraph()

    def capture(self, x):
        with torch.cuda.graph(self.graph):
            self.net(x).sum().backward()
            self.bad.step()  # expect: SS408
            self.good.step()
            self.plain.step()

def good_set_afterwards(net, x):
    opt = torch.optim.Adam(net.parameters())
    for group in opt.param_groups:
        group["capturable"] = True
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        net(x).sum().backward()
        opt.step()
    return g
""",
    "random numbers of the host are drawn once, at the capture": """
def bad_drawn(net, x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x) * random.random()  # expect: SS410
        if np.random.rand() < 0.5:  # expect: SS410
            y.mul_(2)
    return g, y

def good_drawn(net, x, scale):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = net(x) * scale
    scale.fill_(random.random())
    g.replay()
    return y
""",
    "autograd runs the backward of a function of the tree": """
class Apart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            grad_w = x.t() @ grad  # expect: SS111
        return grad @ w.t(), grad_w  # expect: SS101

class Asking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * grad.norm().item()  # expect: SS401

class Beside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            grad_w = x.t() @ grad
        main.wait_stream(side)
        grad_w.record_stream(main)
        return grad @ w.t(), grad_w

def captured(x):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        Asking.apply(x).sum().backward()
    return g
""",
    "who runs a module's passes is no tensor": """
def bad_engine(engine, batch):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        engine.backward(engine(batch))
    engine.step()  # expect: SS111

def good_engine(engine, batch):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        loss = engine(batch)
    engine.backward(loss)
    engine.step()
""",
    "keywords that a function hands on are its callee's": """
def shifted(x, by):
    return x + by

def handed_on(**tensors):
    return shifted(**tensors)

def moved(x, by):
    return x + by  # expect: SS101

def handed_on_too(**tensors):
    return moved(**tensors)

def bad(n):
    side = torch.cuda.Stream()
    x = torch.ones(n, device="cuda")
    with torch.cuda.stream(side):
        y = handed_on_too(x=x, by=x)
    side.synchronize()
    return y

def good(n):
    side = torch.cuda.Stream()
    x = torch.ones(n, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = handed_on(x=x, by=x)
    side.synchronize()
    return y
""",
    "the fields of a dataclass hold what its defaults make": """
@dataclass
class Slot:
    stream: torch.cuda.Stream = field(default_factory=torch.cuda.Stream)
    done: torch.cuda.Event = field(default_factory=lambda: torch.cuda.Event())
    waits: list = field(default_factory=list)
    ready: object = None

def good(x: torch.Tensor):
    slot = Slot()
    y = x + 1
    slot.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(slot.stream):
        y.mul_(2)
        e = torch.cuda.Event()
        e.record(slot.stream)
        slot.waits.append(e)
    for e in slot.waits:
        torch.cuda.current_stream().wait_event(e)
    return y + 1

def good2(x: torch.Tensor):
    slot = Slot()
    y = x + 1
    slot.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(slot.stream):
        y.mul_(2)
    slot.done.record(slot.stream)
    if slot.ready is None:
        torch.cuda.current_stream().wait_event(slot.done)
    return y + 1

def bad_other_event(x: torch.Tensor):
    slot = Slot()
    y = x + 1
    slot.done.record(slot.stream)
    slot.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(slot.stream):
        y.mul_(2)
    if slot.ready is None:
        torch.cuda.current_stream().wait_event(slot.done)
    return y + 1  # expect: SS103

@dataclass
class Buf:
    n: int
    def __post_init__(self):
        self.side = torch.cuda.Stream()
        self.buf = torch.zeros(self.n, device="cuda")

def bad2(n):
    b = Buf(n)
    with torch.cuda.stream(b.side):
        b.buf.add_(1)  # expect: SS102
    torch.cuda.synchronize()

def good3(n):
    b = Buf(n)
    b.side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(b.side):
        b.buf.add_(1)
    torch.cuda.synchronize()
""",
    "elements that are recorded one by one are recorded where they are used together": """
@dataclass
class Context:
    index: int
    features: list = field(default_factory=list)
    event: object = None

class Stage:
    def __init__(self, tables):
        self.tables = tables
        self.stream = torch.cuda.Stream()

    def start(self, host_ids) -> Context:
        context = Context(0)
        with torch.cuda.stream(self.stream):
            for table, ids in zip(self.tables, host_ids):
                context.features.append(table.index_select(0, ids.to("cuda", non_blocking=True)))
            context.event = self.stream.record_event()
        return context

class Bad:
    def __init__(self, stage: Stage):
        self.stage = stage
        self.pending: Context | None = None

    def take(self):
        context, self.pending = self.pending, None
        torch.cuda.current_stream().wait_event(context.event)
        return context.features

    def progress(self, ids):
        out = torch.cat(self.take(), dim=1)  # expect: SS201
        self.pending = self.stage.start(ids)
        return out

class Good:
    def __init__(self, stage: Stage):
        self.stage = stage
        self.pending: Context | None = None

    def take(self):
        context, self.pending = self.pending, None
        torch.cuda.current_stream().wait_event(context.event)
        for feature in context.features:
            feature.record_stream(torch.cuda.current_stream())
        return context.features

    def progress(self, ids):
        out = torch.cat(self.take(), dim=1)
        self.pending = self.stage.start(ids)
        return out
""",
    "a loop over few streams goes through them one by one": """
class Lanes:
    def __init__(self):
        self.l = torch.cuda.Stream()
        self.r = torch.cuda.Stream()

    def good(self, x: torch.Tensor):
        x = x + 1
        for s in (self.l, self.r):
            s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.l):
            a = x + 1
        with torch.cuda.stream(self.r):
            b = x + 2
        for s in (self.l, self.r):
            torch.cuda.current_stream().wait_stream(s)
        return a + b

    def good_sync(self, x: torch.Tensor):
        x = x + 1
        for s in [self.l, self.r]:
            s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.l):
            a = x + 1
        with torch.cuda.stream(self.r):
            b = x + 2
        for s in (self.l, self.r):
            s.synchronize()
        return a + b

    def good_pairs(self, x: torch.Tensor):
        x = x + 1
        first, second = torch.cuda.Event(), torch.cuda.Event()
        for stream, event in zip((self.l, self.r), (first, second)):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x.sum()
            event.record(stream)
        for number, event in enumerate((first, second)):
            torch.cuda.current_stream().wait_event(event)
        return x.mul_(2)

    def bad_one_left_out(self, x: torch.Tensor):
        x = x + 1
        for stream in (self.l, self.r):
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.l):
            a = x + 1
        with torch.cuda.stream(self.r):
            b = x + 2
        x.record_stream(self.r)
        for stream in (self.l,):
            stream.synchronize()
        return a + b  # expect: SS101

    def bad_one_event(self, x: torch.Tensor):
        x = x + 1
        event = torch.cuda.Event()
        for stream in (self.l, self.r):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x.sum()
            event.record(stream)
        torch.cuda.current_stream().wait_event(event)
        return x.mul_(2)  # expect: SS103
""",
    "an event that a helper records on each of several streams is of the last one": """
def join(streams):
    event = torch.cuda.Event()
    for stream in streams:
        event.record(stream)
    torch.cuda.current_stream().wait_event(event)

def join_each(streams):
    for stream in streams:
        torch.cuda.current_stream().wait_event(stream.record_event())

def join_kept(streams):
    events = [stream.record_event() for stream in streams]
    for event in events:
        torch.cuda.current_stream().wait_event(event)

def join_one_by_one(streams):
    event = torch.cuda.Event()
    for stream in streams:
        event.record(stream)
        event.wait()

def good_in_its_round(streams):
    done, out = torch.cuda.Event(), []
    for stream in streams:
        with torch.cuda.stream(stream):
            y = torch.ones(4, device="cuda")
        done.record(stream)
        torch.cuda.current_stream().wait_event(done)
        y.record_stream(torch.cuda.current_stream())
        out.append(y + 1)
    torch.cuda.synchronize()
    return out

def good(x: torch.Tensor, joined):
    left, right = torch.cuda.Stream(), torch.cuda.Stream()
    for stream in (left, right):
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(left):
        a = x + 1
    with torch.cuda.stream(right):
        b = x + 2
    joined([left, right])
    y = torch.cat([a, b])
    torch.cuda.synchronize()
    return y

def good_each(x: torch.Tensor):
    return good(x, join_each)

def good_kept(x: torch.Tensor):
    return good(x, join_kept)

def good_one_by_one(x: torch.Tensor):
    return good(x, join_one_by_one)

def bad(x: torch.Tensor):
    left, right = torch.cuda.Stream(), torch.cuda.Stream()
    for stream in (left, right):
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(left):
        a = x + 1
    with torch.cuda.stream(right):
        b = x + 2
    join([left, right])
    y = torch.cat([a, b])  # expect: SS103
    torch.cuda.synchronize()
    return y
""",
    "a default that is computed is not None, and a device by default is that device": """
class Cache:
    def __init__(self, device=torch.device("cpu")):
        self.device = device

    def move(self, x):
        if self.device is not None:
            x = x.to(self.device, non_blocking=True)
        return x

def bad_by_default():
    x = torch.ones(4, device="cuda")
    return Cache().move(x).numpy().sum()  # expect: SS301

def good_on_the_device():
    x = torch.ones(4, device="cuda")
    return Cache(torch.device("cuda")).move(x).sum().item()

SIDE = torch.cuda.Stream()

def joined(x, stream=SIDE):
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)
    return x * 2

def good_waits_by_default(x: torch.Tensor):
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        x.add_(1)
    return joined(x)
""",
    "a loop over what was put into a container here has a round": """
def capture(model, inputs):
    static = {name: value.clone() for name, value in inputs.items()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(**static)
    return graph, [static[name] for name in sorted(static)], out

def forgetful(model, inputs):
    static = {name: value.clone() for name, value in inputs.items()}  # expect: SS403
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(**static)
    return graph, out

def good_keeps_the_inputs(model, x: torch.Tensor, y: torch.Tensor):
    graph, inputs, out = capture(model, {"x": x, "y": y})
    graph.replay()
    return out.clone()

def bad_lets_them_go(model, x: torch.Tensor, y: torch.Tensor):
    graph, out = forgetful(model, {"x": x, "y": y})
    graph.replay()
    return out.clone()
""",
    "what goes back to where its parts came from goes to the host perhaps, and what a tensor picks is of a tensor": """
def bad(idx, grad, table):
    step, mem = table.state
    work = grad.device
    home = step.device
    rows, inverse, counts = torch.unique(idx, return_inverse=True, return_counts=True)
    i = rows.to(home)
    step[i] += 1
    step = step[i].to(work, non_blocking=True)
    old = mem[i].to(work, non_blocking=True)
    values = torch.zeros((rows.shape[0], grad.shape[1]), device=work)
    values.index_add_(0, inverse, grad)
    values = values / counts.unsqueeze(1)
    new = 0.1 * old + (1.0 - 0.1) * values
    mem[i] = new.to(home, non_blocking=True)  # expect: SS301

def bad_of_one(idx, grad, mem):
    work, home = grad.device, mem.device
    i = idx.to(home)
    part = mem[i].to(work, non_blocking=True)
    mem[i] = (0.1 * part + grad).to(home, non_blocking=True)  # expect: SS301

def good_waits(idx, grad, mem):
    work, home = grad.device, mem.device
    i = idx.to(home)
    part = mem[i].to(work, non_blocking=True)
    new = (0.1 * part + grad).to(home, non_blocking=True)
    torch.cuda.synchronize()
    mem[i] = new

def good_blocks(idx, grad, mem):
    work, home = grad.device, mem.device
    i = idx.to(home)
    part = mem[i].to(work, non_blocking=True)
    mem[i] = (0.1 * part + grad).to(home)

def good_on_the_device(idx, grad, mem):
    assert mem.is_cuda
    work, home = grad.device, mem.device
    i = idx.to(home)
    part = mem[i].to(work, non_blocking=True)
    mem[i] = (0.1 * part + grad).to(home, non_blocking=True)

def good_never_elsewhere(idx, grad, mem):
    mem[idx.to(mem.device)] = (grad * 2).to(mem.device, non_blocking=True)

def good_in_a_table(table, keys, grad):
    work, home = grad.device, keys.device
    part = keys.to(work, non_blocking=True)
    table[keys.shape] = (part * 2).to(home, non_blocking=True)
""",
    "a branch that no path has come to is not left for the rounds of a loop": """
def total(self, weight: torch.Tensor, layers, options, name):
    if options.mode == "none":
        self.to(options.device, non_blocking=True)
    result, rest = None, None
    for layer in layers:
        module = layer.get(name, None)
        if module is not None and hasattr(self, "weight"):
            part, bias = module.part(weight)
            if result is not None and part is not None:
                result += part.to(result.device, non_blocking=True)  # expect: SS301
            else:
                result = part
            if rest is not None and bias is not None:
                rest += bias
            else:
                rest = bias
            if options.mode != "none":
                if result is not None:
                    result = result.to("cpu", non_blocking=True)
                if options.waits:
                    torch.cuda.synchronize()
    return result, rest
""",
    "what goes out with an event is used by who waits for that, and is handed out again": """
def bad(batch, device, stream):
    with torch.cuda.stream(stream):
        x = batch.to(device, non_blocking=True)
        event = stream.record_event()
    return x, event  # expect: SS201

def good_recorded(batch, device, stream):
    user = torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        x = batch.to(device, non_blocking=True)
        event = stream.record_event()
    x.record_stream(user)
    return x, event

def good_waits(batch, device, stream):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x = batch.to(device, non_blocking=True)
        event = stream.record_event()
    return x, event

class BadPutter:
    def __init__(self, device, queue):
        self.device, self.queue = device, queue
        self.stream = torch.cuda.Stream()

    def load(self, batch):
        with torch.cuda.stream(self.stream):
            x = batch.to(self.device, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self.queue.put({"x": x, "ready": event})  # expect: SS201

class GoodPutter(BadPutter):
    def load(self, batch):
        self.stream.synchronize()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(self.stream):
            x = batch.to(self.device, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self.queue.put({"x": x, "ready": event})
""",
    "who records what it takes from elsewhere is the one that is given it": """
def good_load(batch, device, stream):
    with torch.cuda.stream(stream):
        x = batch.to(device, non_blocking=True)
        event = stream.record_event()
    return x, event

def take(x, event):
    torch.cuda.current_stream().wait_event(event)
    x.record_stream(torch.cuda.current_stream())
    return x
""",
    "each of several optimizers reads the gradients of its own parameters": """
class Offloaded:
    def __init__(self, optimizers):
        self.optimizers = optimizers
        self.side = torch.cuda.Stream()
        self.copied = {}

    def gather(self):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    for param in group["params"]:
                        param.grad = torch.ones(8, device="cuda")
                self.copied[optimizer] = self.side.record_event()

class Good(Offloaded):
    def step(self):
        self.gather()
        for optimizer in self.optimizers:
            self.copied[optimizer].wait()
            optimizer.step()

class Bad(Offloaded):
    def step(self):
        self.gather()
        for optimizer in self.optimizers:
            optimizer.step()  # expect: SS101
""",
    "what is asked of a tensor's kind reads none of its data": """
from torch.overrides import has_torch_function_unary

def good(x: torch.Tensor):
    with torch.cuda.stream(torch.cuda.Stream()):
        return torch.is_quantized(x) or has_torch_function_unary(x) or torch.is_floating_point(x)

def bad(x: torch.Tensor):
    with torch.cuda.stream(torch.cuda.Stream()):
        return torch.is_nonzero(x)  # expect: SS101
""",
    "an event of an earlier call may be recorded by another one": """
class Good:
    def __init__(self):
        self.side = torch.cuda.Stream()
        self.begins, self.ends = [], []

    def start(self):
        self.begins.append(torch.cuda.Event(enable_timing=True))
        self.ends.append(torch.cuda.Event(enable_timing=True))
        self.begins[-1].record()

    def elapsed(self):
        with torch.cuda.stream(self.side):
            torch.ones(8, device="cuda")
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(self.begins, self.ends)]

    def stop(self):
        self.ends[-1].record()

def bad():
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)  # expect: SS312
""",
    "a wait for the device under a condition is one that may be left out": """
def bad(x: torch.Tensor, settings):
    y = x.cuda().to("cpu", non_blocking=True)
    if settings.careful:
        torch.cuda.synchronize()
    return y.sum().item()  # expect: SS301

def good(x: torch.Tensor):
    y = x.cuda().to("cpu", non_blocking=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return y.sum().item()

def good_where_there_is_one(xs, event):
    y = xs.cuda().to("cpu", non_blocking=True)
    if event is not None:
        event.synchronize()
    return y.sum().item()

def good_where_any_is_on_the_device(xs: list[torch.Tensor]):
    moved, out = False, []
    for x in xs:
        moved |= x.is_cuda
        out.append(x.to("cpu", non_blocking=True))
    if moved:
        torch.cuda.synchronize()
    return [y.tolist() for y in out]
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {"module.py": HEAD + CASES[name]})
    found = check_tree(tmp_path).get("module.py", [])
    shown = [each for each in found if each.confidence != "possible"]
    text = HEAD + CASES[name]
    assert not EvalFile(tmp_path / "module.py", text).disagreements(shown)
