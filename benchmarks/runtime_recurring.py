"""What a hazard costs that comes again and again: a loop plain, and under the sanitizer in four ways, interleaved; the
median of rounds.

python benchmarks/runtime_recurring.py [--rounds N] [--steps N] [--simulate]

Each step works on two streams, which meet without a wait. Prints a Markdown table: microseconds of a step, how many
times the plain step that is, and how many hazards were counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from device import ready

import streamsafe

Step = Callable[[], None]


def loop(torch: Any) -> dict[str, Step]:
    """The step as it is, with a comment, in an ``allow`` block, and in one that says that the race is meant."""
    side = torch.cuda.Stream()
    shared = torch.ones(1 << 10, device="cuda")
    own = [torch.ones(1 << 10, device="cuda") for _ in range(8)]

    def work() -> None:
        for each in own:
            each.add_(1)

    def recurring() -> None:
        shared.add_(1)
        work()
        with torch.cuda.stream(side):
            shared.mul_(1)

    def commented() -> None:
        shared.add_(1)  # streamsafe: ignore[SS102] may be one step old
        work()
        with torch.cuda.stream(side):
            shared.mul_(1)  # streamsafe: ignore[SS102] may be one step old

    def allowed() -> None:
        with streamsafe.allow("SS102"):
            recurring()

    def meant() -> None:
        with streamsafe.annotate.racy(shared):
            recurring()

    return {"reported": recurring, "comment": commented, "allow()": allowed, "annotate.racy()": meant}


def timed(torch: Any, step: Step, steps: int) -> float:
    """Microseconds of a step."""
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps * 1e6


def measure(torch: Any, name: str, step: Step, rounds: int, steps: int) -> str:
    """One row of the table."""
    plain, watched, counted = [], [], 0
    for _ in range(rounds):
        plain.append(timed(torch, step, steps))
        with streamsafe.sanitize("collect") as session:
            step()  # the report itself
            watched.append(timed(torch, step, steps))
        counted = sum(hazard.count for hazard in session.hazards) + session.suppressed
    ratio = statistics.median(a / b for a, b in zip(watched, plain, strict=True))
    return f"| {name} | {statistics.median(plain):.0f} | {statistics.median(watched):.0f} | {ratio:.2f} | {counted} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--simulate", action="store_true", help="the simulated device")
    options = parser.parse_args()
    torch = ready(simulate=options.simulate)
    print("| the hazard is | plain us | streamsafe us | ratio | counted |")
    print("|---|---|---|---|---|")
    for name, step in loop(torch).items():
        print(measure(torch, name, step, options.rounds, options.steps))


if __name__ == "__main__":
    main()
