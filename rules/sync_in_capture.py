"""SS401 sync-in-capture

## What it does
Reports an operation inside a graph capture that makes the host wait for the device: `.item()`, `.cpu()`, `.tolist()`,
`nonzero`, `if tensor:`, a copy from or to pageable memory, `synchronize()`, a query.

## Why is this bad?
During a capture the work is recorded, not run, so there is nothing to wait for. CUDA returns an error and usually
invalidates the capture. CuPy allows no copy between host and device inside a capture, not even an asynchronous one
from pinned memory.

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
A function that asks whether a capture is active (`is_current_stream_capturing`) is not checked.

## Fix safety
Unsafe: `--fix --unsafe-fixes` moves the statement: a read of a result after the capture and one replay, a synchronize
after the capture, a copy from pageable memory before it. It is offered only if the statement is directly in the
block of the capture and no later statement there uses its result.

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
    fix = "unsafe"
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
