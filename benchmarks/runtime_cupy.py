"""What the sanitizer costs a CuPy program, on a GPU: each loop with and without it, interleaved; the median of rounds.

python benchmarks/runtime_cupy.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy as cp
import cupyx
import numpy as np

import streamsafe

BUSY = r"""
extern "C" __global__ void busy(float* out, const float* in, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    out[threadIdx.x] = in[threadIdx.x] + 1;
}
"""


def small_ufuncs(n: int) -> Callable[[], None]:
    """A launch-bound loop: one small ufunc into an existing array."""
    a, b = cp.ones(1000, cp.float32), cp.ones(1000, cp.float32)

    def loop() -> None:
        for _ in range(n):
            cp.add(a, 1, out=b)

    return loop


def small_expressions(n: int) -> Callable[[], None]:
    """The same with a fresh result each time: an allocation, a launch, a free."""
    a, b = cp.ones(1000, cp.float32), cp.ones(1000, cp.float32)

    def loop() -> None:
        for _ in range(n):
            a + b

    return loop


def pipeline(n: int, microseconds: float) -> Callable[[], None]:
    """Upload, compute and download on three streams with two buffers each."""
    busy = cp.RawKernel(BUSY, "busy")
    cycles = np.int64(microseconds * 1.7e3)
    up, compute, down = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    source, result = (
        cupyx.zeros_pinned((2, 1 << 14), np.float32),
        cupyx.zeros_pinned((2, 1 << 14), np.float32),
    )
    x, y = cp.zeros((2, 1 << 14), cp.float32), cp.zeros((2, 1 << 14), cp.float32)
    cp.cuda.Device().synchronize()
    uploaded, computed, downloaded = ([cp.cuda.Event() for _ in range(2)] for _ in range(3))

    def loop() -> None:
        for i in range(n):
            slot = i % 2
            up.wait_event(computed[slot])
            x[slot].set(source[slot], stream=up)
            uploaded[slot].record(up)
            compute.wait_event(uploaded[slot])
            compute.wait_event(downloaded[slot])
            busy((1,), (256,), (y[slot], x[slot], cycles), stream=compute)
            computed[slot].record(compute)
            down.wait_event(computed[slot])
            y[slot].get(stream=down, out=result[slot], blocking=False)
            downloaded[slot].record(down)

    return loop


LOOPS: dict[str, tuple[Callable[[], Callable[[], None]], int]] = {
    "small ufunc, out=": (lambda: small_ufuncs(5000), 5000),
    "small expression": (lambda: small_expressions(5000), 5000),
    "pipeline, 20 us kernels": (lambda: pipeline(500, 20), 500),
    "pipeline, 50 us kernels": (lambda: pipeline(500, 50), 500),
    "pipeline, 1 ms kernels": (lambda: pipeline(100, 1000), 100),
}


def timed(make: Callable[[], Callable[[], None]]) -> float:
    loop = make()
    loop()
    cp.cuda.Device().synchronize()
    start = time.perf_counter()
    loop()
    cp.cuda.Device().synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, (make, count) in LOOPS.items():
        plain, checked, hazards = [], [], 0
        for _ in range(options.rounds):
            plain.append(timed(make))
            with streamsafe.sanitize("collect") as session:
                checked.append(timed(make))
            hazards += len(session.hazards)
        without, with_ = statistics.median(plain) / count * 1e6, statistics.median(checked) / count * 1e6
        rows.append(
            {
                "loop": name,
                "us without": without,
                "us with": with_,
                "ratio": with_ / without,
                "hazards": hazards,
            }
        )
        print(
            f"{name:28} {without:8.2f} us -> {with_:8.2f} us  x{with_ / without:.2f}  hazards {hazards}",
            flush=True,
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
