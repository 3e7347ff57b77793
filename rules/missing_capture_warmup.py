"""SS406 missing-capture-warmup

## What it does
Reports the capture of a backward pass of a module that had no warm-up on a side stream. The module is made beside the
capture and never ran, ran only on the default stream, or is a DistributedDataParallel that ran fewer than 11 times.
A module that comes from elsewhere may have run there: it is reported where its warm-up comes after the capture.

## Why is this bad?
What a library sets up when it first runs (cuBLAS and cuDNN handles and workspaces, the choice of an algorithm,
DistributedDataParallel's buckets) must not be set up inside a capture. Nodes of the backward pass that were made on the
default stream would run there, outside the capture. A forward pass alone is rarely hurt, and not reported.

## Example
```python
model = torch.nn.Linear(8, 8).cuda()
with torch.cuda.graph(g):
    model(x).sum().backward()
```

Use instead:
```python
model = torch.nn.Linear(8, 8).cuda()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        model(x).sum().backward()
torch.cuda.current_stream().wait_stream(side)
with torch.cuda.graph(g):
    model(x).sum().backward()
```

## Known problems
A warm-up in another file is not seen. A capture whose work comes from elsewhere is not reported.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, whole-network capture, usage with DistributedDataParallel
- `docs/semantics.md`, GC-17
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import deed


class MissingCaptureWarmup(Rule):
    code = "SS406"
    name = "missing-capture-warmup"
    rank = 0
    sides = ("check",)
    bad = """\
import torch


def capture(x):
    model = torch.nn.Linear(8, 8).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # expect: SS406
        y = model(x)
        y.sum().backward()
    return graph, y
"""
    good = """\
import torch


def capture(x):
    model = torch.nn.Linear(8, 8).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
        y.sum().backward()
    return graph, y
"""

    def message(self, conflict: Conflict) -> str:
        return f"{deed(conflict.second)}: what is captured has to be warmed up before, on a side stream"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or "run it a few times on a side stream before the capture"
