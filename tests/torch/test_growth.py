"""What a program makes and drops is not kept: the engine's registries are as large after many as after few."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import streamsafe
from streamsafe.order.native.checker import NativeChecker
from streamsafe.runtime.monitor import current

FEW, MANY = 600, 2400
Step = Callable[[], object]


def threads(torch: Any) -> Step:
    x, lock = torch.ones(64, device="cuda"), threading.Lock()

    def work() -> None:
        with lock:
            x.add_(1)
            torch.cuda.current_stream().synchronize()

    def step() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return step


def conditions(torch: Any) -> Step:
    def step() -> None:
        done = threading.Event()
        done.set()
        done.wait()

    return step


def events(torch: Any) -> Step:
    x, side = torch.ones(64, device="cuda"), torch.cuda.Stream()

    def step() -> None:
        event = torch.cuda.Event()
        x.add_(1)
        event.record()
        side.wait_event(event)

    return step


def unrecorded(torch: Any) -> Step:
    side = torch.cuda.Stream()

    def step() -> None:
        side.wait_event(torch.cuda.Event())
        torch.cuda.Event().synchronize()

    return step


def annotated(torch: Any) -> Step:
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    return lambda: streamsafe.annotate.edge(one, two)


def graphs(torch: Any) -> Step:
    x, side = torch.ones(64, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            x.add_(1)
        with torch.cuda.stream(side):
            graph.replay()

    return step


def streams(torch: Any) -> Step:
    """Streams of another library's, that work behind one another, and are destroyed."""
    last: list[Any] = []
    numbers = iter(range(1 << 20, 1 << 30))

    def step() -> None:
        monitor = current.monitor
        assert monitor is not None
        handle = next(numbers)
        stream = monitor.stream(0, handle, "non-blocking")
        if last:
            event = ("event", handle)
            monitor.order(monitor.checker.record, event, last[0])
            monitor.order(monitor.checker.wait, stream, event)
            monitor.destroy_event(event)  # type: ignore[arg-type]
            monitor.destroy_stream(0, last[1])
        monitor.access(stream, (), [((0, 4096, 8192, None, None, 1), "", None, True)], "kernel")
        last[:] = [stream, handle]

    return step


def made_streams(torch: Any) -> Step:
    """Streams of the runtime's, that work one behind the other, and are destroyed."""
    x, runtime = torch.ones(64, device="cuda"), torch.cuda.cudart()

    def step() -> None:
        handle = ctypes.c_void_p()
        assert not int(runtime.cudaStreamCreate(ctypes.addressof(handle)))
        stream = torch.cuda.ExternalStream(handle.value)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x.add_(1)
        torch.cuda.current_stream().wait_stream(stream)
        assert not int(runtime.cudaStreamDestroy(handle.value))

    return step


def code(torch: Any) -> Step:
    """Functions that are compiled, called and dropped, forwards and backwards."""
    x = torch.ones(64, device="cuda", requires_grad=True)
    numbers = iter(range(1 << 20))

    def step() -> None:
        number = next(numbers)
        text = f"def work():\n    x.grad = None\n    (x * {number % 7}).sum().backward()\nwork()"
        exec(compile(text, f"<made {number}>", "exec"), {"x": x})

    return step


ROOM = {"code": 4500}
"""How many more may be kept after many: places are looked through once there are 4,096 new ones."""

MADE: dict[str, tuple[Callable[[Any], Step], bool]] = {
    "threads": (threads, True),
    "conditions": (conditions, True),
    "events": (events, False),
    "events that are never recorded": (unrecorded, False),
    "annotated edges": (annotated, False),
    "graphs": (graphs, False),
    "streams": (streams, False),
    "streams of the runtime": (made_streams, False),
    "code": (code, False),
}


@pytest.mark.parametrize("what", MADE)
def test_what_is_made_and_dropped(torch: Any, what: str) -> None:
    make, each_thread = MADE[what]
    with streamsafe.sanitize("collect", threads=each_thread) as session:
        step = make(torch)
        kept = []
        for times in (FEW, MANY) if what not in ROOM else (2000, 6000):
            for _ in range(times):
                step()
            gc.collect()
            torch.ones(1, device="cuda").add_(1)  # hears of what is gone
            assert current.monitor is not None
            checker = current.monitor.checker
            assert isinstance(checker, NativeChecker)
            kept.append(checker.sizes())
    assert not session.hazards
    room = ROOM.get(what, 300)
    grown = {name: (few, kept[1][name]) for name, few in kept[0].items() if kept[1][name] > few + room}
    assert not grown


def test_places_in_code_that_is_gone_are_kept_while_something_remembers_them(torch: Any) -> None:
    x = torch.ones(64, device="cuda")
    side = torch.cuda.Stream()

    def run(text: str, name: str) -> None:
        exec(compile(text, name, "exec"), {"torch": torch, "x": x, "side": side})

    with streamsafe.sanitize("collect") as session:
        run("x.add_(1)", "<first>")
        y = torch.ones(64, device="cuda")
        for number in range(5000):
            run("def work():\n    x * 2\n    y = x + 1\nwork()", f"<made {number}>")
            y.add_(1)
        run("with torch.cuda.stream(side):\n    x.mul_(2)", "<second>")
    (hazard,) = session.hazards
    assert hazard.first is not None
    assert [hazard.first.stack[0].filename, hazard.second.stack[0].filename] == ["<made 4999>", "<second>"]
    with streamsafe.sanitize("collect") as session:
        run("x.add_(1)", "<first>")
        for number in range(5000):
            run(
                "def work():\n    y = torch.ones(8, device='cuda')\n    y.add_(1)\nwork()", f"<made {number}>"
            )
        run("with torch.cuda.stream(side):\n    x.mul_(2)", "<second>")
    (hazard,) = session.hazards
    assert hazard.first is not None
    assert [hazard.first.stack[0].filename, hazard.second.stack[0].filename] == ["<first>", "<second>"]


@pytest.mark.parametrize("waits", [False, True])
def test_work_of_a_stream_that_is_destroyed_goes_on(torch: Any, waits: bool) -> None:
    x, side, runtime = torch.ones(64, device="cuda"), torch.cuda.Stream(), torch.cuda.cudart()
    handle = ctypes.c_void_p()
    torch.cuda.synchronize()
    with streamsafe.sanitize("collect") as session:
        runtime.cudaStreamCreate(ctypes.addressof(handle))
        stream = torch.cuda.ExternalStream(handle.value)
        with torch.cuda.stream(stream):
            x.add_(1)
        if waits:
            side.wait_stream(stream)
        runtime.cudaStreamDestroy(handle.value)
        with torch.cuda.stream(side):
            x.mul_(2)
        torch.cuda.synchronize()
    assert [hazard.code for hazard in session.hazards] == ([] if waits else ["SS102"])
