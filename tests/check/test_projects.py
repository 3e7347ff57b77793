"""What is followed through projects: each mechanism fires once, beside its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.evalfiles import EvalFile, check_tree, report, write_tree

CASES = {
    "a field that a method called by __init__ fills": {
        "offload.py": """
import torch


class BadOffloader:
    def __init__(self, weights, pin=True):
        self.pin = pin
        self.side = torch.cuda.Stream()
        self.on_host = {}
        self._collect(weights)

    def _collect(self, weights):
        for key, weight in weights.items():
            self.on_host[key] = torch.empty(weight.shape, pin_memory=self.pin)

    def fetch(self, key):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return self.on_host[key].to("cuda", non_blocking=True)

    def update(self, key, weight):
        self.on_host[key].copy_(weight.cpu())  # expect: SS302


class GoodOffloader:
    def __init__(self, weights, pin=True):
        self.pin = pin
        self.side = torch.cuda.Stream()
        self.on_host = {}
        self._collect(weights)

    def _collect(self, weights):
        for key, weight in weights.items():
            self.on_host[key] = torch.empty(weight.shape, pin_memory=self.pin)

    def fetch(self, key):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return self.on_host[key].to("cuda", non_blocking=True)

    def update(self, key, weight):
        self.side.synchronize()
        self.on_host[key].copy_(weight.cpu())
"""
    },
    "streams and buffers that an object has from the one that made it": {
        "counter.py": """
class Counter:
    def __init__(self, owner, side):
        self.owner = owner
        self.side = side

    def wait(self):
        self.side.synchronize()

    def total(self):
        return self.owner.buffer.sum()  # expect: SS101


class OtherCounter(Counter):
    def total(self):
        return self.owner.buffer.sum()
""",
        "engine.py": """
import torch

from counter import Counter, OtherCounter


class BadEngine:
    def __init__(self):
        self.side = torch.cuda.Stream()
        self.buffer = torch.empty(8, device="cuda")
        self.counter = Counter(self, self.side)

    def step(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.buffer.copy_(x)
        return self.counter.total()


class GoodEngine:
    def __init__(self):
        self.side = torch.cuda.Stream()
        self.buffer = torch.empty(8, device="cuda")
        self.counter = OtherCounter(self, self.side)

    def step(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.buffer.copy_(x)
        self.counter.wait()
        return self.counter.total()
""",
    },
    "a context of a stream that is kept, and may be none": {
        "branches.py": """
from contextlib import nullcontext

import torch


class Bad:
    def __init__(self, use):
        self.side = torch.cuda.Stream() if use else None
        self.context = torch.cuda.stream(self.side) if use else nullcontext()

    def step(self, x):
        y = x.cuda() + 1
        if self.side is not None:
            y.record_stream(self.side)
        with self.context:
            return y * 2  # expect: SS101


class Good:
    def __init__(self, use):
        self.side = torch.cuda.Stream() if use else None
        self.context = torch.cuda.stream(self.side) if use else nullcontext()

    def step(self, x):
        y = x.cuda() + 1
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream())
            y.record_stream(self.side)
        with self.context:
            return y * 2
"""
    },
    "named tuples, dataclasses and namespaces that hold a copy": {
        "outputs.py": """
from collections import namedtuple
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

Result = namedtuple("Result", "values indices")


@dataclass
class Output:
    ids: torch.Tensor
    count: int = 0


def on_host(values, indices):
    return Result(values.to("cpu", non_blocking=True), indices.to("cpu", non_blocking=True))


def bad_named(v, i):
    result = on_host(v.cuda(), i.cuda())
    return result.values.tolist()  # expect: SS301


def bad_unpacked(v, i):
    values, indices = on_host(v.cuda(), i.cuda())
    return indices.tolist()  # expect: SS301


def good_named(v, i):
    result = on_host(v.cuda(), i.cuda())
    torch.cuda.current_stream().synchronize()
    return result.values.tolist()


def bad_replaced(x):
    output = replace(Output(x.cuda().to("cpu", non_blocking=True)), count=1)
    return output.ids.tolist()  # expect: SS301


def bad_namespace(x):
    output = SimpleNamespace(ids=x.cuda().to("cpu", non_blocking=True), count=1)
    return output.ids.tolist()  # expect: SS301


def good_namespace(x):
    output = SimpleNamespace(ids=x.cuda().to("cpu", non_blocking=True), count=1)
    torch.cuda.synchronize()
    return output.ids.tolist()
"""
    },
    "objects that are pickled": {
        "pickled.py": """
import pickle
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Item:
    feature: torch.Tensor
    name: str = ""


def bad_broadcast(x):
    item = Item(x.cuda().to("cpu", non_blocking=True))
    dist.broadcast_object_list([item], src=0)  # expect: SS301


def good_broadcast(x):
    item = Item(x.cuda().to("cpu"))
    dist.broadcast_object_list([item], src=0)


def bad_dumps(x):
    return pickle.dumps({"item": Item(x.cuda().to("cpu", non_blocking=True))})  # expect: SS301


def bad_state(model):
    state = {k: v.to("cpu", non_blocking=True) for k, v in model.state_dict().items()}
    torch.save(state, "state.pt")  # expect: SS301


def good_state(model):
    state = {k: v.to("cpu", non_blocking=True) for k, v in model.state_dict().items()}
    torch.cuda.synchronize()
    torch.save(state, "state.pt")
"""
    },
    "parameters of modules, and layers that share a stream": {
        "moe.py": """
import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.side = side
        self.weight = nn.Parameter(torch.empty(4, 4))

    def forward(self, x):
        with torch.cuda.stream(self.side):
            return x @ self.weight  # expect: SS101


class BadMoe(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.experts = nn.ModuleList([Expert(self.side) for _ in range(count)])
        self.shared = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.shared(x)
        for expert in self.experts:
            out = expert(hidden)
        torch.cuda.current_stream().wait_stream(self.side)
        hidden.record_stream(self.side)
        return out


class GoodMoe(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.experts = nn.ModuleList([Expert(self.side) for _ in range(count)])
        self.shared = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.shared(x)
        self.side.wait_stream(torch.cuda.current_stream())
        for expert in self.experts:
            out = expert(hidden)
        torch.cuda.current_stream().wait_stream(self.side)
        hidden.record_stream(self.side)
        return out
"""
    },
    "a ring of pinned buffers that NumPy data fills": {
        "ring.py": """
import numpy as np
import torch


class Ring:
    def __init__(self, size, count):
        self.buffers = [torch.empty(size, pin_memory=True) for _ in range(count)]
        self.copied = [torch.cuda.Event() for _ in range(count)]
        self.turn = 0


class Bad(Ring):
    def put(self, data: np.ndarray):
        buffer = self.buffers[self.turn]
        buffer.copy_(torch.from_numpy(data))  # expect: SS302
        self.turn = (self.turn + 1) % len(self.buffers)
        return buffer.to("cuda", non_blocking=True)


class Good(Ring):
    def put(self, data: np.ndarray):
        self.copied[self.turn].synchronize()
        buffer = self.buffers[self.turn]
        buffer.copy_(torch.from_numpy(data))
        out = buffer.to("cuda", non_blocking=True)
        self.copied[self.turn].record()
        self.turn = (self.turn + 1) % len(self.buffers)
        return out
"""
    },
    "what operators make of parameters that nothing shows to be tensors": {
        "operators.py": """
import torch


def bad_product(x):
    side = torch.cuda.Stream()
    y = x * 2
    with torch.cuda.stream(side):
        return y + 1  # expect: SS101


def bad_read_after(x):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        z = x + 1
    return z * 2  # expect: SS101


def good_product(x):
    side = torch.cuda.Stream()
    y = x * 2
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return y + 1


def good_numbers(x, count, buffers):
    side = torch.cuda.Stream()
    last = count - 1
    with torch.cuda.stream(side):
        buffers.append(x.cuda())
        count += 1
    return last // 2 + count


def helper(x, side):
    with torch.cuda.stream(side):
        a = x * 2  # expect: SS101
    return a


def bad_result_of_a_helper(x):
    side = torch.cuda.Stream()
    y = x.cuda() + 1
    a = helper(y, side)
    y.record_stream(side)
    return a.sum()  # expect: SS101
"""
    },
    "a package whose inner directory has no __init__.py": {
        "project/__init__.py": "",
        "project/inner/streams.py": """
import torch


def fill(buffer, side):
    with torch.cuda.stream(side):
        buffer.fill_(0)  # expect: SS102
""",
        "project/inner/use.py": """
import torch

from project.inner.streams import fill


def bad():
    side = torch.cuda.Stream()
    buffer = torch.ones(8, device="cuda")
    fill(buffer, side)
    return buffer.sum()  # expect: SS101


def good():
    side = torch.cuda.Stream()
    buffer = torch.ones(8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    fill(buffer, side)
    torch.cuda.current_stream().wait_stream(side)
    return buffer.sum()
""",
    },
    "a method that the class leaves to its subclasses": {
        "strategies.py": """
from abc import ABC, abstractmethod

import torch


class Strategy(ABC):
    @abstractmethod
    def load(self, buffer, side): ...

    def join(self, side):
        raise NotImplementedError


class Fast(Strategy):
    def load(self, buffer, side):
        with torch.cuda.stream(side):
            buffer.fill_(1)  # expect: SS102

    def join(self, side):
        torch.cuda.current_stream().wait_stream(side)


class Bad:
    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self.side = torch.cuda.Stream()
        self.buffer = torch.empty(4, device="cuda")

    def step(self):
        self.strategy.load(self.buffer, self.side)
        return self.buffer + 1  # expect: SS101


class Good:
    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self.side = torch.cuda.Stream()
        self.buffer = torch.empty(4, device="cuda")

    def step(self):
        self.side.wait_stream(torch.cuda.current_stream())
        self.strategy.load(self.buffer, self.side)
        self.strategy.join(self.side)
        return self.buffer + 1
"""
    },
    "a function that a package re-exports with all names of a module": {
        "pkg/__init__.py": "from .apply import *\n",
        "pkg/apply.py": """
def each(items, function):
    if isinstance(items, tuple):
        return tuple(each(item, function) for item in items)
    return function(items)
""",
        "loader.py": """
import torch
from pkg import each


class BadLoader:
    def __init__(self, batches, device):
        self.batches, self.device = batches, device
        self.side = torch.cuda.Stream()

    def __next__(self):
        with torch.cuda.stream(self.side):
            batch = each(next(self.batches), lambda x: x.to(self.device, non_blocking=True))
        torch.cuda.current_stream().wait_stream(self.side)
        return batch  # expect: SS201


class GoodLoader:
    def __init__(self, batches, device):
        self.batches, self.device = batches, device
        self.side = torch.cuda.Stream()

    def __next__(self):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            batch = each(next(self.batches), lambda x: x.to(self.device, non_blocking=True))
        torch.cuda.current_stream().wait_stream(self.side)
        return batch
""",
    },
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_followed(name: str, tmp_path: Path) -> None:
    write_tree(tmp_path, CASES[name])
    found = check_tree(tmp_path)
    wrong = [
        problem
        for file, text in CASES[name].items()
        for problem in EvalFile(tmp_path / file, text).disagreements(found.get(file, []))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_what_lies_in_a_file_that_is_not_named(tmp_path: Path) -> None:
    """What a named file begins is its finding, wherever the second access lies."""
    write_tree(
        tmp_path,
        {
            "reads.py": "def total(host):\n    return host.sum().item()\n",
            "copies.py": """
import torch
from reads import total


def bad():
    return total(torch.ones(4, device="cuda").to("cpu", non_blocking=True))


def good():
    host = torch.ones(4, device="cuda").to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    return total(host)
""",
        },
    )
    found = report(tmp_path / "copies.py")
    assert [(Path(f["filename"]).name, f["code"], f["location"]["row"]) for f in found] == [
        ("reads.py", "SS301", 2)
    ]
    assert found[0]["related"][0]["location"]["row"] == 7
