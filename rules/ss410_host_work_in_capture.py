"""SS410 host-work-in-capture

## What it does
Reports host work inside a capture that each replay needs again: the host fills memory that the graph copies to the
device, or draws random numbers.

## Why is this bad?
A capture records device work. Host work inside it runs once. Every replay copies the values, and uses the numbers, of
the capture.

## Example
```python
with torch.cuda.graph(g):
    pinned[0] = step
    x.copy_(pinned, non_blocking=True)
```

Use instead:
```python
with torch.cuda.graph(g):
    x.copy_(pinned, non_blocking=True)
pinned[0] = step
g.replay()
```

## Known problems
A Python counter that a replay does not advance is reported only if the captured work uses it.

## Fix safety
Unsafe: `--fix --unsafe-fixes` moves the host work before each replay in the same function. There is no repair if the
replay is elsewhere.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, constraints
- `docs/semantics.md`, GC-03 and GC-19
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import operation_name
from streamsafe.rule import Rule


class HostWorkInCapture(Rule):
    code = "SS410"
    name = "host-work-in-capture"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def capture(f, x):
    pinned = torch.zeros(8, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pinned.add_(1)  # expect: SS410
        x.copy_(pinned, non_blocking=True)
        y = f(x)
    graph.replay()
    return y.clone()
"""
    good = """\
import torch


def capture(f, x):
    pinned = torch.zeros(8, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.copy_(pinned, non_blocking=True)
        y = f(x)
    pinned.add_(1)
    graph.replay()
    return y.clone()
"""

    def message(self, conflict: Conflict) -> str:
        return f"{operation_name(conflict.second)} inside a capture runs once: a replay of the graph does not repeat it"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or "do it before each replay, into memory that the graph reads"
