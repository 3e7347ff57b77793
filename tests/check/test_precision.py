"""What real code taught: for each mechanism a program in which something must fire, and its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

HEAD = """\
import contextlib
import time
from abc import abstractmethod

import torch
import torch.distributed as dist
from torch import nn

"""

CASES = {
    "the default stream waits for a stream made elsewhere, which may be a blocking one": """
def to_host(side):
    with torch.cuda.stream(side):
        host = torch.empty(64, pin_memory=True)
        host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
    return host

def good(handle):
    host = to_host(torch.cuda.ExternalStream(handle))
    torch.cuda.default_stream().synchronize()
    return host.tolist()

def bad_no_wait(handle):
    host = to_host(torch.cuda.ExternalStream(handle))
    return host.tolist()  # expect: SS301

def bad_stream_of_torch():
    host = to_host(torch.cuda.Stream())
    torch.cuda.default_stream().synchronize()
    return host.tolist()  # expect: SS301
""",
    "a device that nobody names is not taken for the host": """
def fetch(x, device):
    return x.to(device, non_blocking=True)

def bad_named(x):
    y = fetch(x.cuda(), torch.device("cpu"))
    return y.tolist()  # expect: SS301

def good_not_named(x, table, slots):
    y = fetch(x.cuda(), table[0].layout.device)
    table[0].index_copy_(0, slots, y)
    return y.tolist()
""",
    "a copy from another device runs on a stream of that device": """
class GoodStreamOfTheTarget:
    def __init__(self, second):
        self.second = second
        self.stream = torch.cuda.Stream(second)

    def move(self, x):
        h = x.cuda() * 2
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            h = h.to(self.second, non_blocking=True)
        return h, torch.zeros(8, device="cuda")

class BadStreamOfTheSource:
    def __init__(self, second):
        self.second = second
        self.stream = torch.cuda.Stream()

    def move(self, x):
        h = x.cuda() * 2
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            h = h.to(self.second, non_blocking=True)  # expect: SS201
        return h, torch.zeros(8, device="cuda")
""",
    "blocks of two streams are in two pools": """
def place(stream):
    return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()

class GoodOneOrTheOther:
    def __init__(self, stream=None):
        self.stream = torch.cuda.Stream() if stream is None else None
        self.work = None

    def start(self, x):
        with place(self.stream):
            flat = torch.zeros(8, device="cuda")
            flat.add_(1)
            self.work = flat

class BadBesides:
    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.work = None

    def start(self, x):
        flat = torch.zeros(8, device="cuda")
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            flat.add_(1)  # expect: SS201
        self.work = flat
""",
    "an entry that records an event and waits for it orders": """
class Waiting:
    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.grads = {}
        self.done = None

    def start(self, net):
        for name, p in net.named_parameters():
            self.grads[name] = p.detach().cuda() * 2
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for grad in self.grads.values():
                self.flat.copy_(grad)

    def finish(self):
        with torch.cuda.stream(self.stream):
            self.done = torch.cuda.Event()
            self.done.record()
        self.done.synchronize()

class Hasty:
    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.grads = {}
        self.done = None

    def start(self, net):
        for name, p in net.named_parameters():
            self.grads[name] = p.detach().cuda() * 2
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for grad in self.grads.values():
                self.flat.copy_(grad)  # expect: SS201

    def finish(self):
        with torch.cuda.stream(self.stream):
            self.done = torch.cuda.Event()
            self.done.record()
""",
    "graphs and their inputs by key, and a workspace that they share": """
class BadGrows:
    def __init__(self, net):
        self.net = net
        self.graphs, self.inputs, self.outputs = {}, {}, {}
        self.tables = None

    def fit(self, n, d):
        if self.tables is None:
            self.tables = (torch.empty(n, d, device="cuda"), torch.empty(n, d, device="cuda"))
        elif self.tables[0].size(0) < n:
            self.tables = (torch.empty(n, d, device="cuda"), torch.empty(n, d, device="cuda"))  # expect: SS403

    def capture(self, key, tables):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = self.inputs[key]
            for block in self.net.blocks:
                y = block(y, tables=tables)
            self.outputs[key] = y
        self.graphs[key] = graph

    def run(self, x):
        key = x.shape[0]
        self.fit(key, x.shape[1])
        if key not in self.graphs:
            self.inputs[key] = torch.empty_like(x)
            self.capture(key, (self.tables[0][:key], self.tables[1][:key]))
        self.inputs[key].copy_(x)
        self.graphs[key].replay()
        return self.outputs[key].clone()

class GoodMadeOnce:
    def __init__(self, net, n, d):
        self.net = net
        self.graphs, self.inputs, self.outputs = {}, {}, {}
        self.tables = (torch.empty(n, d, device="cuda"), torch.empty(n, d, device="cuda"))

    def capture(self, key, tables):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = self.inputs[key]
            for block in self.net.blocks:
                y = block(y, tables=tables)
            self.outputs[key] = y
        self.graphs[key] = graph

    def run(self, x):
        key = x.shape[0]
        if key not in self.graphs:
            self.inputs[key] = torch.empty_like(x)
            self.capture(key, (self.tables[0][:key], self.tables[1][:key]))
        self.inputs[key].copy_(x)
        self.graphs[key].replay()
        return self.outputs[key].clone()
""",
    "a stream is compared with the current one": """
def good_waits_where_they_differ(x, side: torch.cuda.Stream):
    y = x.cuda() * 2
    apart = torch.cuda.current_stream() != side
    if apart:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        z = y + 1
    torch.cuda.current_stream().wait_stream(side)
    return z

def bad_waits_where_they_are_one(x, side: torch.cuda.Stream):
    y = x.cuda() * 2
    if torch.cuda.current_stream() == side:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        z = y + 1  # expect: SS101
    torch.cuda.current_stream().wait_stream(side)
    return z
""",
    "an entry hands its work out": """
class GoodHandsOut:
    def __init__(self, mask: torch.Tensor):
        self.mask = mask

    def send(self, source, group):
        return dist.broadcast(self.mask, src=source, group=group, async_op=True)

    def merged(self, other):
        return torch.cat([self.mask, other])

class BadDropsIt:
    def __init__(self, mask: torch.Tensor):
        self.mask = mask

    def send(self, source, group):
        dist.broadcast(self.mask, src=source, group=group, async_op=True)

    def merged(self, other):
        return torch.cat([self.mask, other])  # expect: SS101
""",
    "data of the host is on the device when the call returns": """
def good_indices(x, numbers, side: torch.cuda.Stream):
    index = torch.tensor([n + 1 for n in numbers], device="cuda")
    with torch.cuda.stream(side):
        y = x.index_select(0, index)
    torch.cuda.current_stream().wait_stream(side)
    return y

def bad_indices(x, numbers, side: torch.cuda.Stream):
    index = torch.tensor([n + 1 for n in numbers], device="cuda") + 1
    with torch.cuda.stream(side):
        y = x.index_select(0, index)  # expect: SS101
    torch.cuda.current_stream().wait_stream(side)
    return y
""",
    "a helper that makes a stream on first use gives the same one in each round": """
class GoodLazy:
    def __init__(self):
        self._side = None

    def side(self):
        if self._side is None:
            self._side = torch.cuda.Stream()
        return self._side

    def run(self, hosts):
        for host in hosts:
            with torch.cuda.stream(self.side()):
                x = torch.zeros(8, device="cuda")
                x.copy_(host.pin_memory(), non_blocking=True)

def bad_streams_of_a_list(x):
    streams = [torch.cuda.Stream() for _ in range(2)]
    with torch.cuda.stream(streams[0]):
        y = x.cuda() * 2
    with torch.cuda.stream(streams[1]):
        return y + 1  # expect: SS101
""",
    "a count in a dictionary is no field of a class of the tree": """
class Sent:
    def __init__(self):
        self.chunks: dict[str, int] = {"count": 0}

    def run(self, x):
        self.chunks["count"] += 1
        return x.cuda().to("cpu", non_blocking=True).tolist()  # expect: SS301
""",
    "what trains on the host is not taken for work of the device": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)

def train(model, loader, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    start = time.time()
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.time() - start  # expect: SS311

def bad_on_the_device(loader):
    return train(Net().cuda(), loader, "cuda")

def good_scheduler(loader, model):
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for x in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    start = time.time()
    scheduler.step()
    return time.time() - start

def bad_optimizer_beside_the_scheduler(loader, model):
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for x in loader:
        model(x.cuda()).sum().backward()
        torch.cuda.synchronize()
        start = time.time()
        optimizer.step()
        scheduler.step()
        print(time.time() - start)  # expect: SS311
""",
    "a module that was moved to the host computes there": """
def bad_wait_for_some(model, loader, device, wait):
    model.to(device)
    for x in loader:
        start = time.time()
        model(x.to(device)).argmax()
        if wait:
            torch.cuda.synchronize()
        print(time.time() - start)  # expect: SS311

def good_host(args, model, loader):
    if args.cpu:
        device = torch.device("cpu")
    else:
        assert torch.cuda.is_available()
        device = torch.device("cuda")
    model.to(device)
    for x in loader:
        start = time.time()
        model(x.to(device)).argmax()
        if device.type == "cuda":
            torch.cuda.synchronize()
        print(time.time() - start)

def good_not_both(args, model, x):
    device = torch.device("cpu") if args.cpu else torch.device("cuda")
    model.to(device)
    several = not args.cpu and args.several
    if several:
        model = nn.DataParallel(model, device_ids=[0])
    start = time.time()
    model(x)
    if not args.cpu:
        torch.cuda.synchronize()
    return time.time() - start
""",
    "factories put on the default device what names none": """
def bad_default_device():
    torch.set_default_device("cuda")
    x = torch.randn(8, 8)
    start = time.time()
    y = x @ x
    return y, time.time() - start  # expect: SS311

def good_default_host():
    torch.set_default_device("cpu")
    x = torch.randn(8, 8)
    start = time.time()
    y = x @ x
    return y, time.time() - start

def bad_default_type():
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    x = torch.zeros(8)
    start = time.time()
    y = x + 1
    return y, time.time() - start  # expect: SS311
""",
    "what a class leaves to others may wait": """
class Backend:
    @abstractmethod
    def complete(self, work):
        pass

    def finish(self, work):
        raise NotImplementedError

    def note(self, work):
        self.count = 1

def good_complete(backend: Backend, x):
    x = x.cuda()
    start = time.time()
    y = x * 2
    backend.complete(start)
    return y, time.time() - start

def good_finish(backend: Backend, x):
    x = x.cuda()
    start = time.time()
    y = x * 2
    backend.finish(start)
    return y, time.time() - start

def bad_note(backend: Backend, x):
    x = x.cuda()
    start = time.time()
    y = x * 2
    backend.note(start)
    return y, time.time() - start  # expect: SS311
""",
    "a logger's log is not that of a tensor": """
def good_logged(make, loss, step):
    run = make()
    start = time.time()
    run.log({"loss": loss.item()}, step=step)
    return time.time() - start

def bad_logarithm(x):
    x = x.cuda()
    start = time.time()
    y = x.log()
    return y, time.time() - start  # expect: SS311
""",
    "the surest of what is pending is named": """
def bad_before_what_may_be_on_the_host(x, y):
    x = x.cuda()
    start = time.time()
    x = x * 2
    z = y.sum() + 1
    return z, time.time() - start  # expect: SS311

def good_waited_for(x, y):
    x = x.cuda()
    y = y.cuda()
    start = time.time()
    x = x * 2
    z = y.sum()
    print(z.item(), time.time() - start)
    return x
""",
    "a function that gives nothing gives no two results": """
def run(x, last):
    y = x * 2
    if last:
        torch.cuda.synchronize()
        return x, y

def good_returned(x, last):
    x = x.cuda()
    start = time.time()
    x, y = run(x, last)
    return y, time.time() - start

def bad_either(x, last):
    x = x.cuda()
    start = time.time()
    found = run(x, last)
    return found, time.time() - start  # expect: SS311
""",
    "the least of nothing raises": """
def good_gathered(count):
    start = time.time()
    clock = torch.ones(1, device="cuda")
    clocks = [torch.zeros(1, device="cuda") for _ in range(count)]
    dist.all_gather(clocks, clock)
    least = min([each.cpu().tolist()[0] for each in clocks])
    return least, time.time() - start

def bad_gathered(count):
    start = time.time()
    clock = torch.ones(1, device="cuda")
    clocks = [torch.zeros(1, device="cuda") for _ in range(count)]
    dist.all_gather(clocks, clock)
    return clocks, time.time() - start  # expect: SS311
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    check_program(tmp_path, CASES[name], HEAD)
