"""SS203 captured-temporary-reused

## What it does
Reports the launch of a CuPy graph while a live array has memory that was a temporary of the graph's capture.

## Why is this bad?
PyTorch gives each graph a private memory pool. CuPy does not. A temporary that is allocated and freed during a capture
returns to the ordinary pool, and a later array can get its address. The graph still writes to this address: every
launch overwrites the array.

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

## Known problems
The static check reports this only if it sees the temporaries of the capture.

## Fix safety
Unsafe: `--fix --unsafe-fixes` gives the temporaries names, so their memory stays allocated until the function ends. It
is offered only if the graph does not leave the function.

## References
- `cupy.cuda.Stream.begin_capture`, `cupy.cuda.Graph`
- CUDA Programming Guide, "CUDA Graphs" (addresses are fixed at capture)
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import access_phrase, block
from streamsafe.rule import Rule


class CapturedTemporaryReused(Rule):
    code = "SS203"
    name = "captured-temporary-reused"
    fix = "unsafe"
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
        temporary = f"{block(conflict)}, whose memory was a temporary of the graph's capture"
        return f"{access_phrase(conflict.second)} overwrites {temporary}"

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "allocate the temporary before the capture and keep it alive with the graph"
        )
