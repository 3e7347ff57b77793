"""SS203 captured-temporary-reused

## What it does
Reports the launch of a CuPy graph while memory that was a temporary of its capture belongs to a live array.

## Why is this bad?
PyTorch gives each graph a private memory pool. CuPy does not: what a capture allocates and frees goes back to
the ordinary pool, and a later array may be given the address. The graph still uses it: every launch
overwrites the array, on whatever stream it is launched.

## Example
```python
with stream:
    stream.begin_capture()
    cupy.multiply(x * 2, 3, out=y)  # `x * 2` is a temporary
    graph = stream.end_capture()
    z = cupy.arange(n)  # may be given the temporary's memory
    graph.launch(stream)
```

Use instead:
```python
with stream:
    temporary = cupy.empty_like(x)
    z = cupy.arange(n)
    stream.begin_capture()
    cupy.multiply(x, 2, out=temporary)  # kept alive for as long as the graph
    cupy.multiply(temporary, 3, out=y)
    graph = stream.end_capture()
    graph.launch(stream)
```

## References
- `cupy.cuda.Stream.begin_capture`, `cupy.cuda.Graph`
- CUDA Programming Guide, "CUDA Graphs" (addresses are fixed at capture)
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import block, by


class CapturedTemporaryReused(Rule):
    code = "SS203"
    name = "captured-temporary-reused"
    rank = 10
    bad = """\
import cupy

stream = cupy.cuda.Stream(non_blocking=True)


def run(x, y, n):
    with stream:
        stream.begin_capture()
        cupy.multiply(x * 2, 3, out=y)
        graph = stream.end_capture()
        z = cupy.arange(n)
        graph.launch(stream)  # expect: SS203
        return z.sum()
"""
    good = """\
import cupy

stream = cupy.cuda.Stream(non_blocking=True)


def run(x, y, n):
    with stream:
        temporary = cupy.empty_like(x)
        stream.begin_capture()
        cupy.multiply(x, 2, out=temporary)
        cupy.multiply(temporary, 3, out=y)
        graph = stream.end_capture()
        z = cupy.arange(n)
        graph.launch(stream)
        return z.sum()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.facts.reuse == "captured"

    def message(self, conflict: Conflict) -> str:
        return f"{by(conflict.second)} overwrites {block(conflict)}, which was a temporary of the graph's capture"

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "allocate the temporary before the capture and keep it alive with the graph"
        )
