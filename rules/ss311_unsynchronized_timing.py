"""SS311 unsynchronized-timing

## What it does
Reports two reads of a host clock that are subtracted, where the host has not waited for the device work launched
between them. If a loop between the two reads contains a wait, the wait counts.

## Why is this bad?
A kernel launch returns at once. The difference of the two clock values is the time to enqueue the work, not the time to
do it. A model looks hundreds of times faster than it is, and its time appears at the next synchronize.

## Example
```python
start = time.perf_counter()
y = x @ w
print(time.perf_counter() - start)
```

Use instead:
```python
torch.cuda.synchronize()
start = time.perf_counter()
y = x @ w
torch.cuda.synchronize()
print(time.perf_counter() - start)
```

## Known problems
Code that measures the launch time on purpose, or a deadline, is reported too. Suppress it and give the reason.

## References
- PyTorch, "CUDA semantics": Asynchronous execution
- `torch.cuda.synchronize`, `torch.utils.benchmark`, `cupyx.profiler.benchmark`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class UnsynchronizedTiming(Rule):
    code = "SS311"
    name = "unsynchronized-timing"
    severity = "warning"
    fix = "unsafe"
    rank = 0
    sides = ("check",)
    bad = """\
import time

import torch


def measure(n):
    x = torch.randn(n, n, device="cuda")
    start = time.perf_counter()
    y = x @ x
    elapsed = time.perf_counter() - start  # expect: SS311
    return y, elapsed
"""
    good = """\
import time

import torch


def measure(n):
    x = torch.randn(n, n, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    y = x @ x
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    return y, elapsed
"""

    def message(self, conflict: Conflict) -> str:
        return "the clock is read before the host has waited for the device work that is timed"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or "torch.cuda.synchronize()  # before the clock is read"
