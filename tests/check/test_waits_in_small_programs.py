"""What the check knows of copies, events, collectives, records and waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

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
    "what is asked of an exporter's device touches no data": """
class Bad:
    def __init__(self):
        self.side = torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            self.pixels = torch.ones(4, device="cuda")

    def shown(self):
        return self.pixels.mean()  # expect: SS101

class Good:
    def __init__(self):
        self.side = torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            self.pixels = torch.ones(4, device="cuda")

    def __dlpack_device__(self):
        return self.pixels.__dlpack_device__()
""",
    "training with uneven inputs waits at its end": """
from torch.distributed.algorithms.join import Join

def bad(model, batches, optimizer):
    begin = time.time()
    with Join([model]):
        for batch in batches:
            model(batch.cuda()).sum().backward()
            optimizer.step()
        return time.time() - begin  # expect: SS311

def good(model, batches, optimizer):
    begin = time.time()
    with Join([model]):
        for batch in batches:
            model(batch.cuda()).sum().backward()
            optimizer.step()
    return time.time() - begin
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
    check_program(tmp_path, CASES[name])
