"""SS401 sync-in-capture

## What it does
Reports an operation inside a graph capture that synchronizes the host with the device: `.item()`, `.cpu()`,
`.tolist()`, `nonzero`, a truth test of a tensor, a copy from or to pageable memory, `synchronize()`, a query.

## Why is this bad?
While a stream is captured its work is written down, not run. There is nothing to wait for: CUDA answers with
an error and, in most cases, invalidates the capture. CuPy allows no copy between host and device inside a
capture, not even an asynchronous one from pinned memory.

## Example
```python
with torch.cuda.graph(g):
    loss = model(static_input).mean()
    print(loss.item())
```

Use instead:
```python
with torch.cuda.graph(g):
    loss = model(static_input).mean()
g.replay()
print(loss.item())
```

## Known problems
A function that asks whether a capture is under way is trusted to know what it does.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, Constraints
- CUDA Runtime API: `cudaStreamBeginCapture`; CUDA Programming Guide, "Prohibited and Unhandled Operations"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import quoted


class SyncInCapture(Rule):
    code = "SS401"
    name = "sync-in-capture"
    rank = 0
    bad = """\
import torch


def capture(model, static_input):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(static_input).mean()
        print(loss.item())  # expect: SS401
    return graph, loss
"""
    good = """\
import torch


def capture(model, static_input):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(static_input).mean()
    graph.replay()
    print(loss.item())
    return graph, loss
"""

    def message(self, conflict: Conflict) -> str:
        return (
            f"{quoted(conflict.second.operation)} waits for the device inside a capture, where work is only recorded: "
            "it fails with cudaErrorStreamCaptureUnsupported and invalidates the capture"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "move it out of the capture: before its begin, or after a launch of the graph"
        )
