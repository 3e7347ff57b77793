"""Whether the sanitizer stays right under stress: how often what it says or does is wrong, of how many times.

python benchmarks/runtime_stress.py [--only threads,...] [--times N] [--simulate]

* threads: four threads race, four do not: errors that came up in the wrong thread, or in none.
* forks: children that are forked while four threads work: those that do not end.
* operators: a custom operator is defined again and again, in turn one that reads and one that writes: wrong verdicts.
* kernels: a Triton kernel, likewise.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import linecache
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from device import ready

import streamsafe

RACE = "x.add_(1)\nwith on(side): x.mul_(2)"
WAIT = 20.0
"""Seconds that a child may take."""


def threads(torch: Any, times: int) -> tuple[int, int]:
    """Each race stands in code of its own, so that each is a new hazard."""
    wrong = [0] * 8
    start = threading.Barrier(8)

    def work(number: int) -> None:
        x, side = torch.ones(64, device="cuda"), torch.cuda.Stream()
        racy = number % 2 == 0
        codes = [compile(RACE, f"<race {number} {each}>", "exec") for each in range(times)]
        start.wait()
        for code in codes:
            torch.cuda.current_stream().wait_stream(side)
            try:
                if racy:
                    exec(code, {"x": x, "on": torch.cuda.stream, "side": side})
                else:
                    x.add_(1)
                    x.mul_(2)
                wrong[number] += racy
            except streamsafe.StreamHazardError:
                wrong[number] += not racy
        side.synchronize()

    with contextlib.suppress(streamsafe.StreamHazardError), streamsafe.sanitize("raise"):
        running = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    return sum(wrong), 8 * times


def forks(torch: Any, times: int) -> tuple[int, int]:
    """A child works on the CPU, as a DataLoader's worker does."""
    over, hung = threading.Event(), 0

    def work() -> None:
        x = torch.ones(64, device="cuda")
        while not over.is_set():
            x.add_(1)

    with streamsafe.sanitize("collect"):
        running = [threading.Thread(target=work) for _ in range(4)]
        for thread in running:
            thread.start()
        for _ in range(times):
            child = os.fork()
            if not child:
                torch.ones(4).add_(1)
                os._exit(0)
            limit = time.monotonic() + WAIT
            while not os.waitpid(child, os.WNOHANG)[0]:
                if time.monotonic() > limit:
                    hung += 1
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    break
                time.sleep(0.001)
        over.set()
        for thread in running:
            thread.join()
    return hung, times


def verdict(torch: Any, x: Any, call: Callable[[], None]) -> bool:
    """Whether a call that is not ordered after a read of ``x`` is reported: it writes."""
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    before = x + 1
    with streamsafe.sanitize("collect") as session:
        before = x + 1
        with torch.cuda.stream(side):
            call()
        torch.cuda.synchronize()
    del before
    return bool(session.hazards)


def operators(torch: Any, times: int) -> tuple[int, int]:
    x, wrong = torch.ones(64, device="cuda"), 0
    for number in range(times):
        writes = bool(number % 2)
        library = torch.library.Library("stress", "FRAGMENT")
        library.define("touch(Tensor(a!) x) -> ()" if writes else "touch(Tensor x) -> ()")
        library.impl("touch", lambda x: None, "CUDA")
        wrong += verdict(torch, x, lambda: torch.ops.stress.touch(x)) is not writes
        library._destroy()
        del library
        gc.collect()
    return wrong, times


KERNEL = """
import triton
import triton.language as tl
@triton.jit
def touch(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store({target} + at, tl.load({source} + at))
"""


def kernels(torch: Any, times: int) -> tuple[int, int]:
    x, y, wrong = torch.ones(64, device="cuda"), torch.ones(64, device="cuda"), 0
    for number in range(times):
        writes = bool(number % 2)
        text = KERNEL.format(target="x" if writes else "y", source="y" if writes else "x")
        name, found = f"<kernel {number}>", {"__name__": "kernel"}
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), found)
        touch: Any = found["touch"]
        wrong += verdict(torch, x, partial(touch[(1,)], x, y, BLOCK=64)) is not writes
        del touch, found
        linecache.cache.pop(name, None)
        gc.collect()
    return wrong, times


PARTS: dict[str, Callable[[Any, int], tuple[int, int]]] = {
    each.__name__: each for each in (threads, forks, operators, kernels)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--simulate", action="store_true", help="the simulated device")
    options = parser.parse_args()
    torch = ready(simulate=options.simulate)
    print("| part | times | wrong |")
    print("|---|---|---|")
    for name in options.only.split(","):
        try:
            wrong, times = PARTS[name](torch, options.times)
        except ImportError as error:
            print(f"| {name} | 0 | not run: {error} |", flush=True)
        else:
            print(f"| {name} | {times:,} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
