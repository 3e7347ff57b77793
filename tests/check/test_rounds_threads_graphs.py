"""Rounds of loops, threads that run their targets, graphed callables and graphs of one pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

HEAD = """\
import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import cupy as cp
import numpy as np
import torch
from torch import nn

"""

CASES = {
    "what is captured by make_graphed_callables": """
class Asks(nn.Module):
    def forward(self, x):
        return x * x.max().item()  # expect: SS401

class AsksNothing(nn.Module):
    def forward(self, x):
        return x * x.max()

def graphed(sample):
    return torch.cuda.make_graphed_callables((Asks().cuda(), AsksNothing().cuda()), ((sample,), (sample,)))

def bad_two_outputs(model, sample, a, b):
    fast = torch.cuda.make_graphed_callables(model, (sample,))
    left = fast(a)
    right = fast(b)
    return left + right  # expect: SS412

def good_two_outputs(model, sample, a, b):
    fast = torch.cuda.make_graphed_callables(model, (sample,))
    left = fast(a).clone()
    right = fast(b)
    return left + right

def bad_kept_by_name(model, sample, views):
    fast = torch.cuda.make_graphed_callables(model, (sample,))
    found = {}
    for name, view in views.items():
        found[name] = fast(view)  # expect: SS412
    return found

def good_kept_by_name(model, sample, views):
    fast = torch.cuda.make_graphed_callables(model, (sample,))
    found = {}
    for name, view in views.items():
        found[name] = fast(view).clone()
    return found

def bad_inside_another(model, sample, x):
    fast = torch.cuda.make_graphed_callables(model, (sample,))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = fast(x)  # expect: SS411
    return g, y
""",
    "a thread begins on the default stream": """
def bad_target(x):
    side = torch.cuda.Stream()
    found = []

    def work(y):
        found.append(y.sum())  # expect: SS101

    with torch.cuda.stream(side):
        y = x.cuda() * 2
        thread = threading.Thread(target=work, args=(y,))
        thread.start()
        thread.join()
    return found

def good_target(x):
    side = torch.cuda.Stream()
    found = []

    def work(y):
        with torch.cuda.stream(side):
            found.append(y.sum())

    with torch.cuda.stream(side):
        y = x.cuda() * 2
        thread = threading.Thread(target=work, kwargs={"y": y})
        thread.start()
        thread.join()
    return found

class BadWorker(threading.Thread):
    def __init__(self, y):
        super().__init__()
        self.y = y

    def run(self):
        self.y.add_(1)  # expect: SS102

def started(x):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = x.cuda() * 2
        BadWorker(y).start()
""",
    "what a future gives is what its function returned": """
def upload(x, side):
    with torch.cuda.stream(side):
        return x.to("cuda", non_blocking=True)

def bad_future(x):
    side = torch.cuda.Stream()
    with ThreadPoolExecutor() as pool:
        y = pool.submit(upload, x, side).result()
    return y + 1  # expect: SS101

def good_future(x):
    side = torch.cuda.Stream()
    with ThreadPoolExecutor() as pool:
        y = pool.submit(upload, x, side).result()
    torch.cuda.current_stream().wait_stream(side)
    return y + 1
""",
    "memory that a thread is given in a partial": """
def bad_partial(save, x):
    h = x.to("cpu", non_blocking=True)
    threading.Thread(target=functools.partial(save, h)).start()  # expect: SS301

def good_partial(save, x):
    h = x.to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    threading.Thread(target=functools.partial(save, h)).start()
""",
    "graphs of one pool": """
def captured(f, h, x, pool):
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first, pool=pool):
        a = f(x)
    with torch.cuda.graph(second, pool=pool):
        b = h(x)
    return first, second, a, b

def bad_order(f, h, x):
    pool = torch.cuda.graph_pool_handle()
    first, second, a, b = captured(f, h, x, pool)
    second.replay()
    first.replay()  # expect: SS409
    return b.clone()

def good_order(f, h, x):
    pool = torch.cuda.graph_pool_handle()
    first, second, a, b = captured(f, h, x, pool)
    first.replay()
    second.replay()
    return b.clone()

def good_needed_no_more(f, h, x):
    pool = torch.cuda.graph_pool_handle()
    first, second, a, b = captured(f, h, x, pool)
    second.replay()
    kept = b.clone()
    first.replay()
    return a.clone(), kept

def good_pools_of_their_own(f, h, x):
    first, second, a, b = captured(f, h, x, None)
    second.replay()
    first.replay()
    return b.clone()

class Graphs:
    def __init__(self, f, h, x):
        self.f, self.h, self.x = f, h, x

    def capture(self):
        self.first, self.second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.first):
            self.a = self.f(self.x)
        with torch.cuda.graph(self.second, pool=self.first.pool()):
            self.b = self.h(self.x)

    def bad_run(self):
        self.second.replay()
        self.first.replay()  # expect: SS409
        return self.a + self.b

    def good_run(self):
        self.first.replay()
        self.second.replay()
        return self.a + self.b
""",
    "autograd gives tensors to a backward": """
class BadCut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ends):
        ctx.save_for_backward(ends)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (ends,) = ctx.saved_tensors
        return grad[: ends[-1].item()], None  # expect: SS401

class GoodCut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor.item(), None

def captured(x, ends, given):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        torch.autograd.grad(BadCut.apply(x, ends), x, given)
        torch.autograd.grad(GoodCut.apply(x, 0.5), x, given)
    return g
""",
    "a count that goes up says that there was a round, or a call, before": """
def good_counted_up(loader, n):
    host = torch.empty(n, pin_memory=True)
    device = torch.empty(n, device="cuda")
    done = 0
    for x in loader:
        if done != 0:
            torch.cuda.current_stream().synchronize()
        host.copy_(x)
        device.copy_(host, non_blocking=True)
        done += 1
    return device

def bad_counted_now_and_then(loader, n, odd):
    host = torch.empty(n, pin_memory=True)
    device = torch.empty(n, device="cuda")
    done = 0
    for x in loader:
        if done > 0:
            torch.cuda.current_stream().synchronize()
        host.copy_(x)  # expect: SS302
        device.copy_(host, non_blocking=True)
        if odd(x):
            done += 1
    return device

class GoodCalls:
    def __init__(self, n):
        self.host = torch.empty(n, pin_memory=True)
        self.device = torch.empty(n, device="cuda")
        self.calls = 0

    def upload(self, labels):
        if self.calls > 0:
            torch.cuda.current_stream().synchronize()
        self.calls += 1
        self.host.copy_(labels)
        self.device.copy_(self.host, non_blocking=True)

class BadCallsSetBack:
    def __init__(self, n):
        self.host = torch.empty(n, pin_memory=True)
        self.device = torch.empty(n, device="cuda")
        self.calls = 0

    def upload(self, labels):
        if self.calls > 0:
            torch.cuda.current_stream().synchronize()
        self.calls += 1
        self.host.copy_(labels)  # expect: SS302
        self.device.copy_(self.host, non_blocking=True)

    def again(self):
        self.calls = 0
""",
    "a function that is returned is called again": """
def bad_uploader(n):
    host = torch.empty(n, pin_memory=True)

    def upload(values):
        host.copy_(values)  # expect: SS302
        return host.to("cuda", non_blocking=True)

    return upload

def good_uploader(n):
    host = torch.empty(n, pin_memory=True)

    def upload(values):
        host.copy_(values)
        out = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return out

    return upload

def bad_step(model, optimizer):
    side = torch.cuda.Stream()

    def gradients(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(x).sum().backward()

    def step(x):
        gradients(x)
        optimizer.step()  # expect: SS111

    return step

def good_step(model, optimizer):
    side = torch.cuda.Stream()

    def gradients(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(x).sum().backward()
        torch.cuda.current_stream().wait_stream(side)

    def step(x):
        gradients(x)
        optimizer.step()

    return step
""",
    "a decorator of the tree puts its wrapper in the place of a function": """
def shown(function):
    @functools.wraps(function)
    def wrapper(x):
        y = function(x)
        print(y.mean().item())  # expect: SS401
        return y

    return wrapper

def named(function):
    def wrapper(x):
        print(function.__name__)
        return function(x)

    return wrapper

@named
def halved(x):
    return x / 2

def captured(x):
    x = x.cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = halved(x)
    return g, y

@shown
def shown_half(x):
    return x / 2

def captured_and_shown(x):
    x = x.cuda()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = shown_half(x)
    return g, y
""",
    "a method of an untyped value is given to a helper": """
def run_on(stream, function):
    with torch.cuda.stream(stream):
        function()

def bad_backward(loss, optimizer):
    side = torch.cuda.Stream()
    run_on(side, loss.backward)
    optimizer.step()  # expect: SS111

def good_backward(loss, optimizer):
    side = torch.cuda.Stream()
    run_on(side, loss.backward)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.step()
""",
    "memory that is loaded to the host": """
import time

def bad_from_anywhere(path):
    w = torch.empty(4, device="cuda")
    start = time.perf_counter()
    w.copy_(torch.load(path))
    return time.perf_counter() - start  # expect: SS311

def good_from_the_host(path):
    w = torch.empty(4, device="cuda")
    start = time.perf_counter()
    w.copy_(torch.load(path, map_location=torch.device("cpu"))["bias"])
    return time.perf_counter() - start
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    check_program(tmp_path, CASES[name], HEAD)
