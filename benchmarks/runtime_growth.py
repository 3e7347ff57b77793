"""Whether the sanitizer's memory grows with what a program makes and drops: resident memory after some of each, and
after many more, in one session each.

python benchmarks/runtime_growth.py [--only threads,...] [--few N] [--many N] [--simulate]

Prints a Markdown table: megabytes after ``--few`` (10,000) and after ``--many`` (1,000,000), plain and watched.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import resource
import threading
from collections.abc import Callable
from typing import Any

import streamsafe

Step = Callable[[int], None]


def operations(torch: Any) -> Step:
    """Work on tensors that are made and dropped."""
    x = torch.ones(64, device="cuda")

    def step(number: int) -> None:
        (x + number).mul_(2)

    return step


def threads(torch: Any) -> Step:
    """Threads that work, wait and end; each step makes one."""
    x = torch.ones(64, device="cuda")
    lock = threading.Lock()

    def work() -> None:
        with lock:
            x.add_(1)
            torch.cuda.current_stream().synchronize()

    def step(_: int) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return step


def locks(torch: Any) -> Step:
    """Events of the host's, each waited for once."""
    x = torch.ones(64, device="cuda")

    def step(_: int) -> None:
        done = threading.Event()
        x.add_(1)
        done.set()
        done.wait()

    return step


def events(torch: Any) -> Step:
    """Events that are recorded and waited for, and dropped."""
    side, x = torch.cuda.Stream(), torch.ones(64, device="cuda")

    def step(_: int) -> None:
        event = torch.cuda.Event()
        x.add_(1)
        event.record()
        side.wait_event(event)

    return step


def unrecorded(torch: Any) -> Step:
    """Waits for events that were never recorded."""
    side = torch.cuda.Stream()

    def step(_: int) -> None:
        event = torch.cuda.Event()
        side.wait_event(event)
        event.synchronize()

    return step


def streams(torch: Any) -> Step:
    """Streams that work one behind the other, and are destroyed."""
    x, runtime = torch.ones(64, device="cuda"), torch.cuda.cudart()

    def step(_: int) -> None:
        handle = ctypes.c_void_p()
        runtime.cudaStreamCreate(ctypes.addressof(handle))
        stream = torch.cuda.ExternalStream(handle.value)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x.add_(1)
        torch.cuda.current_stream().wait_stream(stream)
        runtime.cudaStreamDestroy(handle.value)

    return step


def graphs(torch: Any) -> Step:
    """Graphs of one kernel that are captured, launched once and dropped."""
    x = torch.ones(64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step(_: int) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            x.add_(1)
        with torch.cuda.stream(side):
            graph.replay()

    return step


def code(torch: Any) -> Step:
    """Functions that are compiled, called and dropped."""
    x = torch.ones(64, device="cuda")

    def step(number: int) -> None:
        given = {"x": x}
        exec(compile(f"def work():\n    x.add_({number % 7})\nwork()", f"<made {number}>", "exec"), given)

    return step


LOOPS: dict[str, Callable[[Any], Step]] = {
    each.__name__: each for each in (operations, threads, locks, events, unrecorded, streams, graphs, code)
}


def resident() -> float:
    """Megabytes of this process now."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def measure(name: str, few: int, many: int, simulated: bool, watched: bool) -> tuple[float, float]:
    """Megabytes after a few and after many steps, in a process of its own."""
    if simulated:
        from streamsafe.simulate import torch as simulate

        simulate.install()
    import torch

    def run() -> tuple[float, float]:
        step = LOOPS[name](torch)
        for number in range(few):
            step(number)
        torch.cuda.synchronize()
        before = resident()
        for number in range(few, many):
            step(number)
            if number % 1000 == 0:
                torch.cuda.synchronize()
        return before, resident()

    if not watched:
        return run()
    with streamsafe.sanitize("collect", threads=name in ("threads", "locks")) as session:
        found = run()
    assert not session.hazards, streamsafe.StreamHazardError(session.hazards[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(LOOPS))
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--simulate", action="store_true", help="the simulated device")
    options = parser.parse_args()
    few, many = f"after {options.few:,}", f"after {options.many:,}"
    print(f"| made and dropped | plain: {few} | {many} | streamsafe: {few} | {many} |")
    print("|---|---|---|---|---|")
    context = multiprocessing.get_context("spawn")
    for name in options.only.split(","):
        figures: list[float] = []
        for watched in (False, True):
            with context.Pool(1) as pool:
                figures += pool.apply(measure, (name, options.few, options.many, options.simulate, watched))
        print(f"| {name} | " + " | ".join(f"{each:.0f} MB" for each in figures) + " |", flush=True)


if __name__ == "__main__":
    main()
