"""What the sanitizer costs a PyTorch program, on a GPU: each loop plain, under streamsafe and under PyTorch's own
sanitizer, interleaved; the median of rounds.

python benchmarks/runtime_torch.py [--rounds N] [--only adds,...] [--no-csan] [--json FILE] [--memory STEPS] [--times]

Prints a Markdown table: microseconds of the plain loop, and how many times that the others take. `--memory`: resident
memory over so many training steps in one session. `--times`: of importing, of enabling, of a session.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import streamsafe
from streamsafe.runtime.torch.watch import extension

Step = Callable[[], None]
cuda: Any = torch.cuda

AIMS = {
    "adds": 1.3,
    "mlp": 1.25,
    "encoder 512": 1.3,
    "encoder 1024": 1.15,
    "foreach": 1.5,
    "pinned": 1.5,
    "waits": 1.5,
    "views": 1.5,
    "lists": 1.5,
    "streams": 1.5,
}


def adds() -> Step:
    """50 small additions, one after the other."""
    a = torch.ones(1024, device="cuda")

    def step() -> None:
        x = a
        for _ in range(50):
            x = x + a

    return step


def mlp() -> Step:
    """A training step of an MLP of 8 layers, SGD."""
    layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 512, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def encoder(width: int, batch: int, length: int) -> Step:
    """A training step of a bfloat16 encoder layer, AdamW."""
    model = torch.nn.TransformerEncoderLayer(width, 8, batch_first=True).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(batch, length, width, device="cuda").bfloat16()

    def step() -> None:
        optimizer.zero_grad()
        model(x).float().pow(2).mean().backward()
        optimizer.step()

    return step


def foreach() -> Step:
    """An optimizer step over 600 tensors, with lists."""
    parameters = [torch.nn.Parameter(torch.randn(256, device="cuda")) for _ in range(600)]
    for parameter in parameters:
        parameter.grad = torch.randn(256, device="cuda")
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=True)
    return lambda: optimizer.step() and None


def pinned() -> Step:
    """A ring of four pinned buffers: filled by the host, copied, waited for before they are filled again."""
    ring = [torch.empty(1 << 12, pin_memory=True) for _ in range(4)]
    done = [cuda.Event() for _ in ring]
    device = torch.empty(1 << 12, device="cuda")

    def step() -> None:
        for number in range(16):
            slot = number % 4
            done[slot].synchronize()
            ring[slot].fill_(number)
            device.copy_(ring[slot], non_blocking=True)
            done[slot].record()
            device.add_(1)

    return step


def waits() -> Step:
    """50 waits of a stream for another, with a kernel between them."""
    a, b = cuda.Stream(), cuda.Stream()
    x = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()

    def step() -> None:
        for _ in range(25):
            a.wait_stream(b)
            with torch.cuda.stream(a):
                x.add_(1)
            b.wait_stream(a)
            with torch.cuda.stream(b):
                x.add_(1)

    return step


def views() -> Step:
    """4,096 slices of one tensor: 64 of them written, then all of it read."""
    x = torch.zeros(4096, 64, device="cuda")
    slices = list(x.unbind(0))
    for each in slices:
        each.fill_(1)
    at = [0]

    def step() -> None:
        for _ in range(64):
            at[0] = (at[0] + 61) % 4096
            slices[at[0]].fill_(2)
        x.sum()

    return step


def lists() -> Step:
    """One operator over lists of 1,000 tensors."""
    one = [torch.ones(64, device="cuda") for _ in range(1000)]
    two = [torch.ones(64, device="cuda") for _ in range(1000)]

    def step() -> None:
        torch._foreach_add_(one, two)

    return step


def streams() -> Step:
    """2,000 streams of the program's own: 50 of them wait, work and are waited for."""
    runtime = ctypes.CDLL(next(name for name in loaded_libraries() if "libcudart" in name))
    made = []
    for _ in range(2000):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0  # non-blocking
        made.append(cuda.ExternalStream(handle.value))
    x = torch.zeros(2000, 256, device="cuda")
    rows = list(x.unbind(0))
    at = [0]

    def step() -> None:
        main = cuda.current_stream()
        for _ in range(50):
            at[0] = (at[0] + 1) % 2000
            stream = made[at[0]]
            stream.wait_stream(main)
            with cuda.stream(stream):
                rows[at[0]].add_(1)
            main.wait_stream(stream)
        x.sum()

    return step


def loaded_libraries() -> set[str]:
    """Files of the shared libraries in this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return {line.split()[-1] for line in maps if ".so" in line}


LOOPS: dict[str, tuple[Callable[[], Step], int]] = {
    "adds": (adds, 40),
    "mlp": (mlp, 30),
    "encoder 512": (lambda: encoder(512, 8, 256), 30),
    "encoder 1024": (lambda: encoder(1024, 16, 1024), 12),
    "foreach": (foreach, 20),
    "pinned": (pinned, 30),
    "waits": (waits, 20),
    "views": (views, 20),
    "lists": (lists, 20),
    "streams": (streams, 10),
}


def timed(step: Step, n: int) -> float:
    """Microseconds of one step."""
    step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(n):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / n * 1e6


@contextmanager
def unseen() -> Iterator[None]:
    """As if the sanitizer had never been enabled in this process."""
    module, _ = extension()
    module.include_thread(False)
    try:
        yield
    finally:
        module.include_thread(True)


class Csan:
    """PyTorch's own sanitizer; what it listens with is switched off in between, which its mode does not do."""

    def __init__(self) -> None:
        import torch.cuda._sanitizer as sanitizer

        self._mode = sanitizer.CUDASanitizerDispatchMode()

    def measure(self, step: Step, n: int) -> float:
        with self._mode:
            torch.cuda.synchronize()
            return timed(step, max(1, n // 5))


def measure(names: list[str], rounds: int, csan: bool) -> list[dict[str, Any]]:
    """One row for each loop."""
    with streamsafe.sanitize("collect"):  # builds and installs
        torch.ones(1, device="cuda").add_(1)
    steps = {name: LOOPS[name][0]() for name in names}
    times: dict[str, dict[str, list[float]]] = {
        name: {"plain": [], "hooks": [], "streamsafe": [], "csan": []} for name in names
    }
    hazards = []
    for name in names:
        n = LOOPS[name][1]
        for _ in range(3):
            steps[name]()
        for _ in range(rounds):
            with unseen():
                times[name]["plain"].append(timed(steps[name], n))
            times[name]["hooks"].append(timed(steps[name], n))
            torch.cuda.synchronize()
            with streamsafe.sanitize("collect") as session:
                times[name]["streamsafe"].append(timed(steps[name], n))
            hazards += session.hazards
    if csan:  # last: its trace stays
        own = Csan()
        for name in names:
            with unseen():
                for _ in range(3):
                    times[name]["csan"].append(own.measure(steps[name], LOOPS[name][1]))
    assert not hazards, streamsafe.StreamHazardError(hazards[0])
    rows = []
    for name in names:
        found = times[name]
        plain = statistics.median(found["plain"])
        ratios = {
            key: statistics.median([a / b for a, b in zip(found[key], found["plain"], strict=False)])
            for key in ("hooks", "streamsafe")
        }
        own_cost = statistics.median(found["csan"]) / plain if found["csan"] else None
        rows.append({"loop": name, "plain_us": plain, **ratios, "csan": own_cost, "aim": AIMS[name]})
    return rows


def everything() -> Step:
    """A small training step with a prefetched batch, events, a ring of pinned buffers, and memory of changing sizes."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    ring = [(torch.randn(64, 64).pin_memory(), cuda.Event()) for _ in range(3)]
    copies = cuda.Stream()
    at = [0]

    def step() -> None:
        at[0] += 1
        buffer, done = ring[at[0] % 3]
        done.synchronize()
        buffer.fill_(at[0] % 7)
        with cuda.stream(copies):
            batch = buffer[: 1 + at[0] % 64].to("cuda", non_blocking=True)
            done.record()
        cuda.current_stream().wait_stream(copies)
        batch.record_stream(cuda.current_stream())
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


def growth(steps: int) -> dict[str, Any]:
    """Resident kilobytes after each tenth of the steps, and what the extension counts."""
    step = everything()
    module, _ = extension()
    resident_kb = []
    with streamsafe.sanitize("collect") as session:
        for _ in range(10):
            for _ in range(steps // 10):
                step()
            cuda.synchronize()
            resident_kb.append(resident())
        return {"steps": steps, "kB": resident_kb, "hazards": len(session.hazards), **module.counters()}


TIMES = """
import json, time
begun = time.perf_counter(); import streamsafe; streamsafe_s = time.perf_counter() - begun
begun = time.perf_counter(); import torch; torch_s = time.perf_counter() - begun
x = torch.ones(8, device="cuda"); torch.cuda.synchronize()
begun = time.perf_counter()
with streamsafe.sanitize("collect"): x.add_(1)
first_s = time.perf_counter() - begun
begun = time.perf_counter()
for _ in range(100):
    with streamsafe.sanitize("collect"): pass
print(json.dumps({"import streamsafe": streamsafe_s, "import torch": torch_s, "first session": first_s,
                  "a session": (time.perf_counter() - begun) / 100}))
"""


def times() -> dict[str, float]:
    """Seconds of importing and of sessions, in a process of its own; the extension is built already."""
    ended = subprocess.run([sys.executable, "-c", TIMES], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def resident() -> int:
    """Resident kilobytes of this process now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(LOOPS))
    parser.add_argument("--no-csan", action="store_true")
    parser.add_argument("--memory", type=int, default=0, metavar="STEPS")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    rows = measure(names, options.rounds, not options.no_csan) if names else []
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Python {platform.python_version()}\n"
    )
    if rows:
        print("| loop | plain us | hooks only | streamsafe | at most | PyTorch's own |")
        print("|---|---|---|---|---|---|")
    for row in rows:
        own = f"{row['csan']:.1f}" if row["csan"] else "-"
        print(
            f"| {row['loop']} | {row['plain_us']:.0f} | {row['hooks']:.2f} | {row['streamsafe']:.2f} | "
            f"{row['aim']} | {own} |"
        )
    memory = growth(options.memory) if options.memory else None
    if memory:
        print(f"\n{memory}")
    taken = times() if options.times else None
    if taken:
        print("\n" + ", ".join(f"{name}: {seconds * 1e3:.3f} ms" for name, seconds in taken.items()))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "memory": memory, "times": taken}, file, indent=1)


if __name__ == "__main__":
    main()
