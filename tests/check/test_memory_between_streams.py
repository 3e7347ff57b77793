"""Memory that one stream allocates and another one uses: who lets go of it when, and who takes it next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

HEAD = """\
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn

"""

CASES = {
    "what a model makes of something unknown may be memory of the stream on which it is called": """
class BadSaver:
    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.pending = []

    def run(self, model, batches):
        for batch in batches:
            out = model(batch)
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                host = torch.empty(out.shape, pin_memory=True)
                host.copy_(out, non_blocking=True)  # expect: SS201
                event = torch.cuda.Event()
                event.record()
            self.pending.append((host, event))

class GoodSaver:
    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.pending = []

    def run(self, model, batches):
        for batch in batches:
            out = model(batch)
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                host = torch.empty(out.shape, pin_memory=True)
                host.copy_(out, non_blocking=True)
                event = torch.cuda.Event()
                event.record()
            out.record_stream(self.stream)
            self.pending.append((host, event))
""",
    "a model that is called on a stream of the program's own uses there what may be a tensor": """
class BadParallel(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = a, b
        self.side = torch.cuda.Stream()

    def forward(self, x):
        h = x * 2
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = self.a(h)  # expect: SS201
        del h
        z = self.b(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return y + z

class GoodParallel(BadParallel):
    def forward(self, x):
        h = x * 2
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = self.a(h)
        z = self.b(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return y + z
""",
    "between two streams of the program's own nothing has to lie on the device that is not known to": """
def bad(first, second, batches):
    s1, s2 = torch.cuda.Stream(), torch.cuda.Stream()
    for batch in batches:
        with torch.cuda.stream(s1):
            y = first(batch)
            done = s1.record_event()
        with torch.cuda.stream(s2):
            s2.wait_event(done)
            z = second(y)  # expect: SS201
    torch.cuda.synchronize()
    return z

def good(first, second, batches):
    s1, s2 = torch.cuda.Stream(), torch.cuda.Stream()
    for batch in batches:
        with torch.cuda.stream(s1):
            y = first(batch)
            done = s1.record_event()
        with torch.cuda.stream(s2):
            s2.wait_event(done)
            z = second(y)
        y.record_stream(s2)
    torch.cuda.synchronize()
    return z
""",
    "what is recorded on the stream that it is allocated on is not recorded": """
class BadFetcher:
    def __init__(self):
        self.stream = torch.cuda.Stream()

    def fetch(self, batch):
        with torch.cuda.stream(self.stream):
            x = batch.to("cuda", non_blocking=True)
            x.record_stream(self.stream)
        torch.cuda.current_stream().wait_stream(self.stream)
        return x  # expect: SS201

class GoodFetcher(BadFetcher):
    def fetch(self, batch):
        with torch.cuda.stream(self.stream):
            x = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.stream)
        x.record_stream(torch.cuda.current_stream())
        return x
""",
    "a pass that is given its first gradient reads nothing of what it begins with": """
def bad(trunk, x, make):
    side = torch.cuda.Stream()
    hidden = trunk(x)
    seed = torch.ones(8, device="cuda")
    with torch.cuda.stream(side):
        hidden.backward(seed)  # expect: SS112
    torch.cuda.current_stream().wait_stream(side)

def good(trunk, x, make):
    side = torch.cuda.Stream()
    hidden = trunk(x)
    with torch.cuda.stream(side):
        seed = torch.ones(8, device="cuda")
        hidden.backward(seed)
    torch.cuda.current_stream().wait_stream(side)
""",
    "a gradient that a parameter does not keep is memory of the next node of the pass": """
class BadOffloaded:
    def __init__(self, model):
        self.stream = torch.cuda.Stream()
        self.out = {}
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, p):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.out[p] = p.grad.to("cpu", non_blocking=True)  # expect: SS201
        p.grad = None

class GoodOffloaded(BadOffloaded):
    def hook(self, p):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.out[p] = p.grad.to("cpu", non_blocking=True)
        p.grad.record_stream(self.stream)
        p.grad = None

class GoodKept(BadOffloaded):
    def hook(self, p):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.out[p] = p.grad.to("cpu", non_blocking=True)
""",
    "a gradient is let go of when a hook gives another one in its place": """
class BadReplaced:
    def __init__(self, model):
        self.stream = torch.cuda.Stream()
        for p in model.parameters():
            p.register_hook(self.hook)

    def hook(self, grad):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            new = grad.clone()  # expect: SS201
            new.record_stream(self.stream)
        return torch.empty_like(grad)

class GoodReplaced(BadReplaced):
    def hook(self, grad):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            new = grad.clone()
        torch.cuda.current_stream().wait_stream(self.stream)
        return torch.empty_like(grad)

class GoodNotReplaced(BadReplaced):
    def hook(self, grad):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            new = grad.clone()

class BadReplacedTooEarly(BadReplaced):
    def hook(self, grad):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            new = grad.clone()
        grad.record_stream(self.stream)
        return new  # expect: SS101
""",
    "a thread that fills a queue goes on while what it has put there is used": """
class BadLoader:
    def __init__(self, data):
        self.queue = queue.Queue(2)
        self.data = data
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        stream = torch.cuda.Stream()
        for item in self.data:
            with torch.cuda.stream(stream):
                x = item.to("cuda", non_blocking=True)
                event = torch.cuda.Event()
                event.record(stream)
            self.queue.put((x, event))
        self.queue.put(None)

    def __iter__(self):
        while True:
            got = self.queue.get()
            if got is None:
                return
            x, event = got
            torch.cuda.current_stream().wait_event(event)
            yield x  # expect: SS201

class GoodLoader(BadLoader):
    def __iter__(self):
        while True:
            got = self.queue.get()
            if got is None:
                return
            x, event = got
            torch.cuda.current_stream().wait_event(event)
            x.record_stream(torch.cuda.current_stream())
            yield x

def bad(data, model):
    batches = queue.Queue(2)

    def work():
        stream = torch.cuda.Stream()
        for item in data:
            with torch.cuda.stream(stream):
                x = item.to("cuda", non_blocking=True)
            stream.synchronize()
            batches.put(x)
        batches.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    while True:
        x = batches.get()
        if x is None:
            break
        y = model(x)  # expect: SS201
    thread.join()
    return y

def good(data, model):
    batches = queue.Queue(2)

    def work():
        stream = torch.cuda.Stream()
        for item in data:
            with torch.cuda.stream(stream):
                x = item.to("cuda", non_blocking=True)
            stream.synchronize()
            batches.put(x)
        batches.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    while True:
        x = batches.get()
        if x is None:
            break
        y = model(x)
        torch.cuda.current_stream().synchronize()
    thread.join()
    return y
""",
    "a thread that fills a queue is run to its end": """
class BadFeeder(threading.Thread):
    def __init__(self, data, model):
        super().__init__(daemon=True)
        self.data, self.model = data, model
        self.queue = queue.Queue(2)
        self.start()

    def run(self):
        stream = torch.cuda.Stream()
        x = torch.empty(8, device="cuda")
        self.queue.put(x)
        with torch.cuda.stream(stream):
            x.zero_()  # expect: SS102
        self.queue.put(None)

    def first(self):
        x = self.queue.get()
        return x.sum()  # expect: SS101
""",
    "a list of unknown length is longer once something was added": """
def pieces(x, count):
    chunks = list(x.chunk(count))
    if len(chunks) < count:
        chunks.extend([torch.zeros_like(chunks[0]) for _ in range(count - len(chunks))])
    return chunks

def bad(x: torch.Tensor, count):
    side = torch.cuda.Stream()
    y = x.cuda() * 2
    with torch.cuda.stream(side):
        chunks = pieces(y, count)
        assert len(chunks) == count
        z = chunks[0] + 1  # expect: SS101
    torch.cuda.current_stream().wait_stream(side)
    return y, z
""",
    "a method that calls one of its own name calls that of something else": """
class Wrapper:
    def plan(self, x: torch.Tensor, module):
        host = x.cuda().to("cpu", non_blocking=True)
        self.info = module.plan(host)  # expect: SS301
""",
    "what is moved to the host on a stream of an object is let go of, unless somebody waits": """
class BadSwap:
    def __init__(self):
        self.out_stream = torch.cuda.Stream()
        self.host = {}

    def swap_out(self, key, t: torch.Tensor):
        self.out_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.out_stream):
            self.host[key] = t.to("cpu", non_blocking=True)  # expect: SS201

class GoodRecorded(BadSwap):
    def swap_out(self, key, t: torch.Tensor):
        self.out_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.out_stream):
            self.host[key] = t.to("cpu", non_blocking=True)
        t.record_stream(self.out_stream)

class GoodJoined(BadSwap):
    def __init__(self):
        self.out_stream = torch.cuda.Stream()
        self.host = {}

    def swap_out(self, key, t: torch.Tensor):
        self.out_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.out_stream):
            self.host[key] = t.to("cpu", non_blocking=True)

    def join(self):
        torch.cuda.current_stream().wait_stream(self.out_stream)

class GoodKept(BadSwap):
    def __init__(self):
        self.out_stream = torch.cuda.Stream()
        self.host = {}
        self.kept = {}

    def swap_out(self, key, t: torch.Tensor):
        self.out_stream.wait_stream(torch.cuda.current_stream())
        self.kept[key] = t
        with torch.cuda.stream(self.out_stream):
            self.host[key] = t.to("cpu", non_blocking=True)
""",
    "who is given an event for the host allocates memory before it waits": """
class BadStore:
    def __init__(self, n):
        self.stream = torch.cuda.Stream()
        self.events = [torch.cuda.Event() for _ in range(n)]

    def store(self, i, kv: torch.Tensor, idx):
        part = kv.index_select(0, idx)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host = part.to("cpu", non_blocking=True)  # expect: SS201
            self.events[i].record(self.stream)
        return host, self.events[i]

class GoodStore(BadStore):
    def store(self, i, kv: torch.Tensor, idx):
        part = kv.index_select(0, idx)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host = part.to("cpu", non_blocking=True)
            self.events[i].record(self.stream)
        part.record_stream(self.stream)
        return host, self.events[i]

class GoodGiven(BadStore):
    def store(self, i, kv: torch.Tensor, idx):
        part = kv.index_select(0, idx)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            host = part.to("cpu", non_blocking=True)
            self.events[i].record(self.stream)
        return host, self.events[i], part

def bad(kv: torch.Tensor, idx):
    stream = torch.cuda.Stream()
    part = kv.index_select(0, idx)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        host = part.to("cpu", non_blocking=True)  # expect: SS201
        event = stream.record_event()
    return host, event
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    check_program(tmp_path, CASES[name], HEAD)
