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
Unsafe: `--fix --unsafe-fixes` makes the first of these changes that fits:

- a blocking copy from or to pinned memory gets `non_blocking=True`;
- `x / x.max().item()` becomes `x / x.max()`, and `x[x > 0].sum()` becomes `x.where(x > 0, 0).sum()`;
- `torch.arange(n).to(x.device)` becomes `torch.arange(n, device=x.device)`;
- a read of a result moves after the capture and one replay, and a synchronize after the capture;
- a copy from pageable memory moves before the capture.

The last two need a statement directly in the block of the capture, whose result no later statement there uses. There
is no repair if the values decide what Python does next (`if x.sum() > 0:`, a size, a loop count) or the shape of a
result (`nonzero`, `unique`, `x[mask]`): a graph has one path and fixed shapes. Compute the value before the capture, or
use `torch.where` and padded shapes. A function that a capture calls has only the first three repairs, because its
callers need the value.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, Constraints
- CUDA Runtime API: `cudaStreamBeginCapture`; CUDA Programming Guide, "Prohibited and Unhandled Operations"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import quoted
from streamsafe.rule import Rule


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
            or "move it out of the capture: before the capture begins, or after a replay of the graph"
        )
