"""What the check knows of Python: containers, fields, loops, generators, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.small_programs import check_program

CASES = {
    "what follows an exception that no caller in sight catches is taken for ordered": """
class Good:
    def __init__(self):
        self.side = torch.cuda.Stream()
        self.built = False

    def build(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = x * 2
            if self.built:
                raise ValueError("built already")
            self.built = True
        torch.cuda.synchronize()
        return y

    def first(self, n):
        x = torch.ones(n, device="cuda")
        return self.build(x)

    def again(self, n):
        return torch.zeros(n, device="cuda")

class Bad(Good):
    def build(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = x * 2  # expect: SS201
            if self.built:
                return None
            self.built = True
        torch.cuda.synchronize()
        return y
""",
    "what an unknown's method gives may be a tensor, what is dropped is none": """
def used(side, batch):
    with torch.cuda.stream(side):
        y = batch.add(1)
    return y.sum()  # expect: SS101 SS201

def dropped(side, names):
    with torch.cuda.stream(side):
        names.add(1)
    return names.copy()
""",
    "what is cleared or replaced lets go of memory, what is asked for does not": """
def cleared(side, n):
    held = [torch.ones(n, device="cuda")]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = held[0] * 2  # expect: SS201
    held.clear()
    z = torch.zeros(n, device="cuda")
    torch.cuda.synchronize()
    return y, z

def cleared_by_name(side, n):
    held = {"x": torch.ones(n, device="cuda")}
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = held["x"] * 2  # expect: SS201
    held.clear()
    z = torch.zeros(n, device="cuda")
    torch.cuda.synchronize()
    return y, z

def replaced(side, n):
    held = {"x": torch.ones(n, device="cuda")}
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = held["x"] * 2  # expect: SS201
    held.update({"x": n})
    z = torch.zeros(n, device="cuda")
    torch.cuda.synchronize()
    return y, z

def asked_for(side, n):
    held = [n, torch.ones(n, device="cuda")]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = held[1] * 2
    held.pop(0)
    other = held.copy(), held.index(n), held.count(n)
    z = torch.zeros(n, device="cuda")
    torch.cuda.synchronize()
    return y, z, held, other
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
    "elements are compared by their values, or by a key": """
def bad_sorted(x, names):
    h = x.cuda().to("cpu", non_blocking=True)
    return sorted(zip(h, names))  # expect: SS301

def good_sorted(x, names):
    h = x.cuda().to("cpu", non_blocking=True)
    return sorted(zip(names, h)), sorted(zip(h, names), key=lambda pair: pair[1])
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
    "what a pattern matches has its names": """
class Pair:
    __match_args__ = ("x", "s")
    def __init__(self, x, s):
        self.x = x
        self.s = s

def by_key(side, n):
    match {"x": torch.ones(n, device="cuda"), "s": side}:
        case {"x": a, "s": s}:
            with torch.cuda.stream(s):
                return a * 2  # expect: SS101 SS201

def by_key_after_a_wait(side, n):
    match {"x": torch.ones(n, device="cuda"), "s": side}:
        case {"x": a, "s": s}:
            s.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(s):
                y = a * 2
            torch.cuda.current_stream().wait_stream(s)
            a.record_stream(s)
            return y

def by_place(side, n):
    match [torch.ones(n, device="cuda"), side]:
        case [a, s]:
            with torch.cuda.stream(s):
                return a * 2  # expect: SS101 SS201

def by_attribute(side, n):
    match Pair(torch.ones(n, device="cuda"), side):
        case Pair(x=a, s=s):
            with torch.cuda.stream(s):
                return a * 2  # expect: SS101 SS201

def of_an_unknown(given, n):
    x = torch.ones(n, device="cuda")
    match given:
        case [s, *_]:
            with torch.cuda.stream(s):
                return x * 2  # expect: SS101 SS201
        case {"s": s}:
            with torch.cuda.stream(s):
                return x + 2  # expect: SS101 SS201
""",
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name: str, tmp_path: Path) -> None:
    check_program(tmp_path, CASES[name])
