"""SS410 host-work-in-capture

## What it does
Reports work of the host, inside a capture, that the graph needs again at each replay: memory that the host fills and
the graph copies to the device, and random numbers that are drawn on the host.

## Why is this bad?
A capture records work of the device. What the host does meanwhile happens once: every replay copies the values, and
computes with the numbers, of the capture.

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
Python counters that a replay does not advance are not reported.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, constraints
- `docs/semantics.md`, GC-03 and GC-19
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import deed


class HostWorkInCapture(Rule):
    code = "SS410"
    name = "host-work-in-capture"
    rank = 0
    sides = ("check",)
    bad = """\
import torch


def capture(f, x):
    pinned = torch.zeros(8, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pinned.add_(1)  # expect: SS410
        x.copy_(pinned, non_blocking=True)
        y = f(x)
    return graph, y
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
    return graph, y
"""

    def message(self, conflict: Conflict) -> str:
        return f"{deed(conflict.second)} inside a capture: the graph's replays do not repeat it"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or "do it before each replay, into memory that the graph reads"
