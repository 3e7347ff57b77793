"""What `threads=True` costs beside the default: each loop plain, in a session with one clock for all threads, and in
one with a clock for each, interleaved; the median of rounds.

python benchmarks/runtime_threads.py [--rounds N] [--steps N] [--simulate]

Prints a Markdown table: microseconds of a step, how many times the plain step the default is, and how many times the
default `threads=True` is.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from device import ready

import streamsafe

Loop = Callable[[int], None]


def loops(torch: Any) -> dict[str, Loop]:
    """By name; each makes its locks and threads itself, so that a session sees them."""

    def training(steps: int) -> None:
        model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6))).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        batch = torch.ones(32, 64, device="cuda")
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    def handed_over(steps: int) -> None:
        items: queue.Queue[Any] = queue.Queue(2)
        back: queue.Queue[Any] = queue.Queue()

        def work() -> None:
            for item in iter(items.get, None):
                for _ in range(8):
                    item.add_(1)
                back.put(item)

        thread = threading.Thread(target=work)
        thread.start()
        batch = torch.ones(1024, device="cuda")
        for _ in range(steps):
            items.put(batch)
            batch = back.get()
        items.put(None)
        thread.join()

    def locked(locks: int) -> Loop:
        def run(steps: int) -> None:
            own = [threading.Lock() for _ in range(locks)]
            x = torch.ones(1024, device="cuda")
            for _ in range(steps):
                for lock in own:
                    with lock:
                        pass
                x.add_(1)

        return run

    return {
        "a training step of an MLP, one thread": training,
        "8 operators of a thread that is given tensors by a queue, and gives them back": handed_over,
        "an operator and a lock": locked(1),
        "an operator and 8 locks": locked(8),
    }


def timed(torch: Any, loop: Loop, steps: int) -> float:
    """Microseconds of a step."""
    begun = time.perf_counter()
    loop(steps)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps * 1e6


def measure(torch: Any, name: str, loop: Loop, rounds: int, steps: int) -> str:
    """One row of the table."""
    plain, shared, own = [], [], []
    for _ in range(rounds):
        plain.append(timed(torch, loop, steps))
        with streamsafe.sanitize("collect"):
            shared.append(timed(torch, loop, steps))
        with streamsafe.sanitize("collect", threads=True):
            own.append(timed(torch, loop, steps))
    default = statistics.median(a / b for a, b in zip(shared, plain, strict=True))
    ratio = statistics.median(a / b for a, b in zip(own, shared, strict=True))
    return f"| {name} | {statistics.median(plain):.1f} | {default:.2f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--simulate", action="store_true", help="the simulated device")
    options = parser.parse_args()
    torch = ready(simulate=options.simulate)
    print("| loop | plain us | default | threads=True, of the default |")
    print("|---|---|---|---|")
    for name, loop in loops(torch).items():
        loop(10)
        print(measure(torch, name, loop, options.rounds, options.steps))


if __name__ == "__main__":
    main()
