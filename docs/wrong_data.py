"""What each bug does to a program: wrong numbers, or an error.

    python docs/wrong_data.py                   # on a GPU: a table
    python docs/wrong_data.py --json FILE       # the same as data: docs/wrong_data.json is made so

Each function below is the bug of one rule, and with ``fixed`` its repair. It returns what it saw and what is right; the
script runs each twenty times. A race depends on time: the work before it is made long here (`busy`), as a large model's
work is, so that it shows nearly always.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch

TRIALS = 20
N = 1 << 20
Seen = tuple[str, float, float]
"""The name of a value, what it is, what it should be."""


def busy(rounds: int = 12) -> None:
    """Keep the current stream at work for some milliseconds."""
    x = torch.ones(4096, 4096, device="cuda")
    for _ in range(rounds):
        x = x @ x * 1e-4


def ss101(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    scores = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        busy()
        scores.add_(1)
    if fixed:
        torch.cuda.current_stream().wait_stream(side)
    total = scores.sum()
    return "scores.sum()", total.item(), N


def ss102(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    batch = torch.ones(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    busy()
    total = batch.sum()
    if fixed:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        batch.fill_(2)
    torch.cuda.synchronize()
    return "total", total.item(), N


def ss103(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    ready = torch.cuda.Event()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        if not fixed:
            ready.record()
        busy()
        x.add_(1)
        if fixed:
            ready.record()
    torch.cuda.current_stream().wait_event(ready)
    total = x.sum()
    return "x.sum()", total.item(), N


class Slow(torch.autograd.Function):
    """The identity whose backward pass takes some milliseconds."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        busy()
        return grad * 2


def ss111(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    w = torch.ones(N, device="cuda", requires_grad=True)
    w.grad = torch.zeros_like(w)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = Slow.apply(w * 1).sum()
        loss.backward()
    if fixed:
        torch.cuda.current_stream().wait_stream(side)
    total = w.grad.sum()
    return "w.grad.sum()", total.item(), 2 * N


def ss112(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    w = torch.ones(N, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = w * 3
    gradient = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    busy()
    gradient.fill_(1)
    if fixed:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss.backward(gradient=gradient)
    torch.cuda.synchronize()
    assert w.grad is not None
    return "w.grad.sum()", w.grad.sum().item(), 3 * N


def ss113(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    w = torch.ones(N, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = w * 3
    gradient = torch.ones(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        busy()
        loss.backward(gradient=gradient)
        if fixed:
            gradient.record_stream(side)
    del gradient
    other = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    assert w.grad is not None and other.numel()
    return "w.grad.sum()", w.grad.sum().item(), 3 * N


def ss201(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    x = torch.ones(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        busy()
        total = x.sum()
        if fixed:
            x.record_stream(side)
    del x
    y = torch.full((N,), 2.0, device="cuda")
    torch.cuda.synchronize()
    assert y.numel()
    return "total", total.item(), N


def ss202(fixed: bool) -> Seen:
    import cupy

    producer, consumer = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    load = cupy.ones((4096, 4096), dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with producer:
        x = cupy.ones(N)
        ready = producer.record()
    with consumer:
        consumer.wait_event(ready)
        for _ in range(8):
            load = load @ load * 1e-4
        total = x.sum()
        done = consumer.record()
    if fixed:
        producer.wait_event(done)
    del x
    with producer:
        other = cupy.full(N, 2.0)
    cupy.cuda.Device().synchronize()
    return "total", float(total), float(N) * (other.size // N)


def ss203(fixed: bool) -> Seen:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    x, y = cupy.ones(N), cupy.zeros(N)
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        cupy.multiply(x * 2, 3, out=y)  # compiled before the capture
        kept = cupy.empty_like(x)
        stream.begin_capture()
        if fixed:
            cupy.multiply(x, 2, out=kept)
            cupy.multiply(kept, 3, out=y)
        else:
            cupy.multiply(x * 2, 3, out=y)
        graph = stream.end_capture()
        z = cupy.full(N, 7.0)
        graph.launch(stream)
        total = z.sum()
    stream.synchronize()
    return "z.sum()", float(total), 7 * N


def ss301(fixed: bool) -> Seen:
    scores = torch.zeros(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    busy()
    scores.fill_(1)
    host.copy_(scores, non_blocking=True)
    if fixed:
        torch.cuda.current_stream().synchronize()
    total = float(host.sum())
    torch.cuda.synchronize()
    return "host.sum()", total, N


def ss302(fixed: bool) -> Seen:
    staging = torch.empty(N, pin_memory=True)
    copies = []
    copied = torch.cuda.Event()
    busy()
    for value in (1, 2):
        if fixed:
            copied.synchronize()
        staging.fill_(value)
        copies.append(staging.to("cuda", non_blocking=True))
        copied.record()
    return "first batch's sum", copies[0].sum().item(), N


def milliseconds(f: Callable[[], object]) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    f()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def ss311(fixed: bool) -> Seen:
    right = milliseconds(busy)
    torch.cuda.synchronize()
    start = time.perf_counter()
    busy()
    if fixed:
        torch.cuda.synchronize()
    elapsed = (time.perf_counter() - start) * 1e3
    return "elapsed, ms", round(elapsed, 1), round(right, 1)


def ss312(fixed: bool) -> Seen:
    right = milliseconds(busy)
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    busy()
    end.record()
    if fixed:
        end.synchronize()
    return "start.elapsed_time(end), ms", round(start.elapsed_time(end), 1), round(right, 1)


def ss401(fixed: bool) -> Seen:
    x = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = x.sum()
        if not fixed:
            total.item()
    graph.replay()
    return "total", total.item(), N


def ss402(fixed: bool) -> Seen:
    side = torch.cuda.Stream()
    x = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        if fixed:
            torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    return "y.sum()", y.sum().item(), 2 * N


def ss403(fixed: bool) -> Seen:
    x = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    batch = torch.ones(N)
    if fixed:
        x.copy_(batch)
    else:
        x = batch.cuda()
    graph.replay()
    return "output.sum()", y.sum().item(), 2 * N


def ss404(fixed: bool) -> Seen:
    generator = torch.Generator("cuda")
    graph = torch.cuda.CUDAGraph()
    if fixed:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        noise = torch.randn(N, device="cuda", generator=generator)
    graph.replay()
    first = noise.clone()
    graph.replay()
    return "replays with the same noise", float(torch.equal(first, noise)), 0


def ss405(fixed: bool) -> Seen:
    x = torch.ones(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream() if fixed else torch.cuda.current_stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.capture_begin()
        y = x * 2
        graph.capture_end()
    graph.replay()
    return "y.sum()", y.sum().item(), 2 * N


def ss408(fixed: bool) -> Seen:
    w = torch.ones(N, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.1, capturable=fixed)
    w.grad = torch.ones_like(w)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    graph.replay()
    return "w[0], two steps", round(w[0].item(), 2), 0.8


def ss409(fixed: bool) -> Seen:
    x = torch.ones(N, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = x * 2
        del_me = a * 3
    kept = del_me if fixed else None
    del del_me
    with torch.cuda.graph(second, pool=first.pool()):
        b = x * 7
    second.replay()
    first.replay()
    assert kept is None or kept.numel()
    return "b.sum()", b.sum().item(), 7 * N


def ss410(fixed: bool) -> Seen:
    pinned = torch.zeros(N, pin_memory=True)
    x = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if not fixed:
            pinned.add_(1)
        x.copy_(pinned, non_blocking=True)
        y = x * 1
    for _ in range(3):
        if fixed:
            torch.cuda.synchronize()
            pinned.add_(1)
        graph.replay()
    return "y[0] after three replays", y[0].item(), 3


def ss411(fixed: bool) -> Seen:
    x = torch.ones(N, device="cuda")
    outer, inner = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    if fixed:
        with torch.cuda.graph(outer):
            y = x * 2
        with torch.cuda.graph(inner):
            z = y + 1
    else:
        with torch.cuda.graph(outer):
            y = x * 2
            with torch.cuda.graph(inner):
                z = y + 1
    outer.replay()
    inner.replay()
    return "z.sum()", z.sum().item(), 3 * N


def ss412(fixed: bool) -> Seen:
    x = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    outputs = []
    for value in (1, 2, 3):
        x.fill_(value)
        graph.replay()
        outputs.append(y.clone() if fixed else y)
    return "outputs[0].sum()", outputs[0].sum().item(), 2 * N


def ss501(fixed: bool) -> Seen:
    import cupy

    side = torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    cupy.cuda.Device().synchronize()
    with torch.cuda.stream(side):
        busy()
        x.add_(1)
        stream = cupy.cuda.ExternalStream(side.cuda_stream) if fixed else cupy.cuda.Stream(non_blocking=True)
        with stream:
            total = cupy.asarray(x).sum()
    torch.cuda.synchronize()
    return "cupy.asarray(x).sum()", float(total), N


CASES: dict[str, Callable[[bool], Seen]] = {
    name.upper(): f for name, f in sorted(globals().items()) if name.startswith("ss") and callable(f)
}


def outcome(case: Callable[[bool], Seen], fixed: bool) -> dict[str, object]:
    """Run one case; an error of CUDA is an outcome, too."""
    wrong, shown, error = 0, None, ""
    for _ in range(TRIALS):
        try:
            seen = case(fixed)
            torch.cuda.synchronize()
        except RuntimeError as e:
            error = next((line for line in str(e).splitlines() if line.strip()), type(e).__name__)
            wrong += 1
            break
        name, value, right = seen
        if abs(value - right) > 0.2 * abs(right) if "ms" in name else value != right:
            wrong, shown = wrong + 1, seen
        else:
            shown = shown or seen
    found: dict[str, object] = {"wrong": wrong, "of": 1 if error else TRIALS}
    if error:
        found["error"] = error
    elif shown is not None:
        found["name"], found["value"], found["right"] = shown
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the outcomes as JSON")
    parser.add_argument("--case", metavar="CODE", help="one case, in this process")
    options = parser.parse_args()
    if options.case:
        case = CASES[options.case]
        busy()
        torch.cuda.synchronize()
        print(json.dumps({"fixed": outcome(case, True), "bug": outcome(case, False)}))
        return
    outcomes = {}
    for code in CASES:  # a process each: an error in a capture may spoil what comes after it
        ran = subprocess.run([sys.executable, __file__, "--case", code], capture_output=True, text=True)
        lines = ran.stdout.splitlines()
        outcomes[code] = json.loads(lines[-1]) if lines else {"stopped": ran.stderr.splitlines()[-1:]}
        print(code, outcomes[code], flush=True)
    device = torch.cuda.get_device_name(0)
    version = torch.__version__.partition("+")[0]
    data = {"device": device, "torch": version, "date": date.today().isoformat(), "outcomes": outcomes}
    if options.json:
        Path(options.json).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
