"""What the sanitizer costs a CuPy program, on a GPU: each loop without it, with its hooks in Python and with compiled
ones, interleaved; the median of rounds.

python benchmarks/runtime_cupy.py [--rounds N] [--quick] [--only loops,...] [--json FILE] [--simulate]

Prints Markdown tables: the loops, a step that is decorated, entry and exit among a million objects, what one launch is
made of, the import, the cost when nothing is enabled, and the resident memory over a million operations.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

if "--simulate" in sys.argv:  # before CuPy is imported
    from streamsafe.simulate import cuda as simulate

    simulate.install(values="fill")

import cupy as cp
import cupyx
import numpy as np

import streamsafe
from streamsafe.runtime import places as sites
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.monitor import current

Loop = Callable[[], None]

BUSY = r"""
extern "C" __global__ void busy(float* out, const float* in, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    out[threadIdx.x] = in[threadIdx.x] + 1;
}
"""

LIMITS = {
    "launch-bound": 1.3,
    "waits": 1.5,
    "one short kernel": 2.0,
    "10-50 us kernels": 1.3,
    "1 ms kernels": 1.05,
}


def small_ufuncs(n: int) -> Loop:
    """A launch-bound loop: one small ufunc into an existing array."""
    a, b = cp.ones(1000, cp.float32), cp.ones(1000, cp.float32)

    def loop() -> None:
        for _ in range(n):
            cp.add(a, 1, out=b)

    return loop


def small_expressions(n: int) -> Loop:
    """The same with a fresh result each time: an allocation, a launch, a free."""
    a, b = cp.ones(1000, cp.float32), cp.ones(1000, cp.float32)

    def loop() -> None:
        for _ in range(n):
            a + b

    return loop


def pipeline(n: int, microseconds: Sequence[float]) -> Loop:
    """Upload, kernels of the given lengths and download on three streams, with two buffers each."""
    busy = cp.RawKernel(BUSY, "busy")
    per_microsecond = cp.cuda.Device().attributes["ClockRate"] / 1e3
    cycles = [np.int64(length * per_microsecond) for length in microseconds]
    up, compute, down = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    size = 1 << 14
    source = [cupyx.zeros_pinned(size, np.float32) for _ in range(2)]
    result = [cupyx.zeros_pinned(size, np.float32) for _ in range(2)]
    x, y = [cp.zeros(size, cp.float32) for _ in range(2)], [cp.zeros(size, cp.float32) for _ in range(2)]
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
            for length in cycles:
                busy((1,), (256,), (y[slot], x[slot], length), stream=compute)
            computed[slot].record(compute)
            down.wait_event(computed[slot])
            y[slot].get(stream=down, out=result[slot], blocking=False)
            downloaded[slot].record(down)

    return loop


def ring(n: int, slots: int) -> Loop:
    """Uploads through a ring of pinned buffers: wait for the slot's event, fill it, copy, record."""
    stream = cp.cuda.Stream(non_blocking=True)
    host = [cupyx.zeros_pinned(4096, np.float32) for _ in range(slots)]
    device = [cp.zeros(4096, cp.float32) for _ in range(slots)]
    copied = [cp.cuda.Event(disable_timing=True) for _ in range(slots)]
    cp.cuda.Device().synchronize()

    def loop() -> None:
        for i in range(n):
            slot = i % slots
            copied[slot].synchronize()
            host[slot].fill(i)
            device[slot].set(host[slot], stream=stream)
            copied[slot].record(stream)

    return loop


def scalars(n: int) -> Loop:
    """A loop that looks at a scalar in each round."""
    a = cp.ones(1000, cp.float32)

    def loop() -> None:
        for _ in range(n):
            cp.add(a, 1, out=a)
            float(a[0])

    return loop


def sums(n: int) -> Loop:
    """The same with a reduction: what a test of convergence does."""
    a = cp.ones(1000, cp.float32)

    def loop() -> None:
        for _ in range(n):
            float(cp.add(a, 1, out=a).sum())

    return loop


def library_calls(n: int, blocks: int) -> Loop:
    """Matrix products of tiles of an array, among many other arrays that are alive."""
    alive = [cp.empty(16, cp.float32) for _ in range(blocks)]
    a, b = cp.ones((256, 32), cp.float32), cp.ones((32, 32), cp.float32)
    out = cp.empty((32, 32), cp.float32)

    def loop() -> None:
        for i in range(n):
            tile = i % 8 * 32
            cp.dot(a[tile : tile + 32], b, out=out)
        assert len(alive) == blocks

    return loop


LOOPS: dict[str, tuple[Callable[[int], Loop], int, str]] = {
    "small ufunc, `out=`": (small_ufuncs, 5000, "launch-bound"),
    "small expression": (small_expressions, 5000, "launch-bound"),
    "ring of 2 pinned buffers": (lambda n: ring(n, 2), 3000, "waits"),
    "ring of 8 pinned buffers": (lambda n: ring(n, 8), 1000, "waits"),
    "ring of 32 pinned buffers": (lambda n: ring(n, 32), 500, "waits"),
    "an element read in each round": (scalars, 2000, "waits"),
    "a sum read in each round": (sums, 1000, "waits"),
    "library calls on views, no other blocks": (lambda n: library_calls(n, 0), 500, "launch-bound"),
    "library calls on views, 20,000 live blocks": (lambda n: library_calls(n, 20_000), 500, "launch-bound"),
    "pipeline, one 10 us kernel": (lambda n: pipeline(n, [10]), 500, "one short kernel"),
    "pipeline, one 50 us kernel": (lambda n: pipeline(n, [50]), 500, "one short kernel"),
    "pipeline, kernels of 10, 20, 35, 50 us": (
        lambda n: pipeline(n, [10, 20, 35, 50]),
        300,
        "10-50 us kernels",
    ),
    "pipeline, one 1 ms kernel": (lambda n: pipeline(n, [1000]), 100, "1 ms kernels"),
}


def seconds(loop: Loop) -> float:
    start = time.perf_counter()
    loop()
    cp.cuda.Device().synchronize()
    return time.perf_counter() - start


def timed(make: Callable[[int], Loop], n: int) -> float:
    """Microseconds an iteration, once warm."""
    loop = make(n)
    loop()
    cp.cuda.Device().synchronize()
    return seconds(loop) / n * 1e6


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()


WAYS = ("plain", "Python hooks", "compiled hooks")


@contextmanager
def watched(way: str) -> Iterator[streamsafe.Session | None]:
    """A session with the hooks of one way; none for ``plain``."""
    if way == "plain":
        yield None
        return
    hooks.enabled = way == "compiled hooks"
    try:
        with streamsafe.sanitize("collect") as session:
            yield session
    finally:
        hooks.enabled = True


def ratios(rounds: int, divide: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    measured: list[dict[str, Any]] = []
    for name, (make, n, kind) in LOOPS.items():
        if only and not any(each in name for each in only):
            continue
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        messages: set[str] = set()
        for _ in range(rounds):
            for way in WAYS:
                with watched(way) as session:
                    taken[way].append(timed(make, n // divide))
                if session is not None:
                    messages |= {f"{hazard.code}: {hazard.message}" for hazard in session.hazards}
        medians = {way: statistics.median(values) for way, values in taken.items()}
        measured.append(
            {
                "loop": name,
                **medians,
                "ratios": [medians[way] / medians["plain"] for way in WAYS[1:]],
                "limit": LIMITS[kind],
                "hazards": sorted(messages),
            }
        )
    table(
        ["loop", *(f"us, {way}" for way in WAYS), *(f"ratio, {way}" for way in WAYS[1:]), "aim", "hazards"],
        [
            [
                row["loop"],
                *(f"{row[way]:.2f}" for way in WAYS),
                *(f"{ratio:.2f}" for ratio in row["ratios"]),
                f"{row['limit']}",
                str(len(row["hazards"])),
            ]
            for row in measured
        ],
    )
    for row in measured:
        for message in row["hazards"]:
            print(row["loop"], "->", message)
    return measured


def step(rounds: int, n: int) -> dict[str, float]:
    """Microseconds of a step of one launch: plain, decorated (a session for each call), and after an empty session."""
    a, b = cp.ones(1000, cp.float32), cp.ones(1000, cp.float32)

    def plain() -> None:
        cp.add(a, 1, out=b)

    def empty() -> None:
        pass

    decorated = streamsafe.sanitize("collect")(plain)
    entered = streamsafe.sanitize("collect")(empty)

    def apart() -> None:
        entered()
        plain()

    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for way in WAYS:
            hooks.enabled = way != "Python hooks"
            steps = {"a step": plain}
            if way != "plain":
                steps = {"a step": decorated, "entry and exit": entered, "entry and exit, then a step": apart}
            for what, function in steps.items():
                function()
                cp.cuda.Device().synchronize()
                start = time.perf_counter()
                for _ in range(n):
                    function()
                each = (time.perf_counter() - start) / n * 1e6
                taken.setdefault(f"{what}, {way}", []).append(each)
    hooks.enabled = True
    medians = {name: statistics.median(values) for name, values in taken.items()}
    table(["a step of one launch", "us"], [[name, f"{value:.1f}"] for name, value in medians.items()])
    return medians


def entering(rounds: int, objects: int) -> dict[str, float]:
    """Milliseconds to enter and leave a session, in a process with few Python objects and with many."""
    found: dict[str, float] = {}
    for name, count in (("few objects", 0), (f"{objects:,} objects", objects)):
        held = [[i] for i in range(count)]
        for way in WAYS[1:]:
            hooks.enabled = way == "compiled hooks"
            taken: list[tuple[float, float]] = []
            for _ in range(rounds + 1):
                session = streamsafe.sanitize("collect")
                start = time.perf_counter()
                session.__enter__()
                entered = time.perf_counter()
                session.__exit__(None, None, None)
                taken.append((entered - start, time.perf_counter() - entered))
            found[f"enter, {name}, {way}"] = statistics.median(enter for enter, _ in taken[1:]) * 1e3
            found[f"leave, {name}, {way}"] = statistics.median(leave for _, leave in taken[1:]) * 1e3
        del held
    hooks.enabled = True
    table(["a session", "ms"], [[name, f"{value:.3f}"] for name, value in found.items()])
    return found


def breakdown(rounds: int, n: int) -> dict[str, float]:
    """What the launch of a small ufunc is made of with hooks in Python: each layer added to the one before."""
    loop = small_ufuncs(n)

    def per_launch() -> float:
        loop()
        cp.cuda.Device().synchronize()
        return seconds(loop) / n * 1e6

    found: dict[str, list[float]] = {name: [] for name in ("plain", "override", "resolve", "stack", "check")}
    for _ in range(rounds):
        found["plain"].append(per_launch())
        found["override"].append(per_launch())
        with watched("Python hooks"):
            monitor = current.monitor
            assert monitor is not None
            whole = monitor.access
            layers: dict[str, Any] = {
                "resolve": lambda *args, **kwargs: None,
                "stack": lambda *args, **kwargs: sites.capture(2),
                "check": whole,
            }
            for name, access in layers.items():
                monitor.access = access  # type: ignore[method-assign]
                found[name].append(per_launch())
    medians = {name: statistics.median(values) for name, values in found.items()}
    words = {
        "plain": "CuPy alone",
        "override": "method overrides, nothing listening",
        "resolve": "operands to byte ranges, stream to timeline",
        "stack": "the user's line and its callers",
        "check": "the verdict, and what is remembered",
    }
    rows, before = [], 0.0
    for name, value in medians.items():
        rows.append(
            [words[name], f"{value - before:+.2f}", f"{value:.2f}", f"{value / medians['plain']:.2f}"]
        )
        before = value
    table(["a launch of a small ufunc", "us", "us in all", "ratio"], rows)
    return medians


def start_up(rounds: int) -> float:
    """Milliseconds of ``import streamsafe``, each in a process of its own."""
    program = "import time; t = time.perf_counter(); import streamsafe; print(time.perf_counter() - t)"
    environment = {name: value for name, value in os.environ.items() if name != "STREAMSAFE"}
    taken = [
        float(
            subprocess.run(
                [sys.executable, "-c", program], env=environment, capture_output=True, check=True
            ).stdout
        )
        for _ in range(rounds + 2)
    ]
    return statistics.median(taken) * 1e3


def not_enabled(rounds: int, n: int) -> tuple[float, float]:
    """Microseconds of a launch in processes that never import streamsafe, and that import it and enable nothing."""
    program = (
        "import sys, time\nif sys.argv[1] == 'yes': import streamsafe\n"
        "import cupy as cp\na = cp.ones(1000, 'f4'); b = cp.ones(1000, 'f4')\n"
        f"def loop():\n for _ in range({n}): cp.add(a, 1, out=b)\n"
        "loop(); cp.cuda.Device().synchronize(); best = []\n"
        "for _ in range(5):\n t = time.perf_counter(); loop(); cp.cuda.Device().synchronize()\n"
        f" best.append(time.perf_counter() - t)\nprint(sorted(best)[2] / {n} * 1e6)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "STREAMSAFE"}

    def once(imported: str) -> float:
        command = [sys.executable, "-c", program, imported]
        return float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    pairs = [(once("no"), once("yes")) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def memory_curve(operations: int, steps: int = 10) -> list[tuple[int, float]]:
    """Resident MiB during one session of many operations: kernels, views, fresh arrays, events, waits, copies."""
    a = cp.ones(4096, cp.float32)
    first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()

    def some(n: int) -> None:
        for i in range(n // 8):
            with first:
                fresh = a[i % 2048 :] + 1
                fresh *= 2
            second.wait_event(first.record())
            with second:
                fresh[::2].copy()
            first.wait_event(second.record())
            if i % 512 == 0:
                first.synchronize()

    with open("/proc/self/statm", encoding="ascii") as statm:
        page = os.sysconf("SC_PAGE_SIZE")

        def resident() -> float:
            statm.seek(0)
            return int(statm.read().split()[1]) * page / 2**20

        with streamsafe.sanitize("collect") as session:
            some(operations // steps // 10)
            gc.collect()
            points = [(0, resident())]
            for step in range(1, steps + 1):
                some(operations // steps)
                gc.collect()
                points.append((step * (operations // steps), resident()))
        assert not session.hazards, [hazard.message for hazard in session.hazards]
    table(["operations", "resident MiB"], [[f"{count:,}", f"{size:.1f}"] for count, size in points])
    return points


def machine() -> str:
    runtime = cp.cuda.runtime
    name = runtime.getDeviceProperties(0)["name"].decode()
    driver = runtime.driverGetVersion()
    return (
        f"one {name}, CUDA driver {driver // 1000}.{driver % 1000 // 10}, CuPy {cp.__version__}, "
        f"NumPy {np.__version__}, Python {platform.python_version()}"
    )


PARTS = ("loops", "step", "entering", "breakdown", "import", "off", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    parser.add_argument("--only", default=",".join(PARTS), help=f"which tables, of {', '.join(PARTS)}")
    parser.add_argument(
        "--simulate", action="store_true", help="on the simulated runtime: the hooks' own time"
    )
    parser.add_argument("--loop", action="append", default=[], help="only the loops whose name has this")
    parser.add_argument("--json", help="write the figures there too")
    options = parser.parse_args()
    divide = 10 if options.quick else 1
    wanted = options.only.split(",")
    figures: dict[str, Any] = {"machine": "simulated" if options.simulate else machine()}
    print(figures["machine"])
    if "loops" in wanted:
        figures["loops"] = ratios(options.rounds, divide, options.loop)
    if "step" in wanted:
        figures["step"] = step(options.rounds, 100 // divide)
    if "entering" in wanted:
        figures["entering"] = entering(3, 1_000_000 // divide)
    if "breakdown" in wanted:
        figures["breakdown"] = breakdown(options.rounds, 5000 // divide)
    if "import" in wanted:
        figures["import ms"] = start_up(options.rounds)
        print(f"\n`import streamsafe`: {figures['import ms']:.1f} ms")
    if "off" in wanted:
        without, imported = not_enabled(3, 20000 // divide)
        figures["not enabled"] = {"without": without, "imported": imported}
        print(
            f"A launch in a process without streamsafe: {without:.2f} us; "
            f"imported, nothing enabled: {imported:.2f} us"
        )
    if "memory" in wanted:
        figures["memory"] = memory_curve(1_000_000 // divide)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
