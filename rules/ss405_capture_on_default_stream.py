"""SS405 capture-on-default-stream

## What it does
Reports a capture that begins with `capture_begin` or `begin_capture` while the default stream is current.

## Why is this bad?
CUDA cannot capture the legacy default stream: the call raises an error. `with torch.cuda.graph(g)` uses a side stream.
`g.capture_begin()` and CuPy's `stream.begin_capture()` do not.

## Example
```python
g = torch.cuda.CUDAGraph()
g.capture_begin()
y = model(x)
g.capture_end()
```

Use instead:
```python
g = torch.cuda.CUDAGraph()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    g.capture_begin()
    y = model(x)
    g.capture_end()
torch.cuda.current_stream().wait_stream(side)
```

## Fix safety
Unsafe: `--fix --unsafe-fixes` replaces PyTorch's `capture_begin` and `capture_end` by `with torch.cuda.graph(...)`, if
both are in one block. The context also synchronizes the device and empties PyTorch's cache. There is no repair for
CuPy.

## References
- `torch.cuda.CUDAGraph.capture_begin`, `cupy.cuda.Stream.begin_capture`
- CUDA Runtime API: `cudaStreamBeginCapture`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import statement
from streamsafe.rule import Rule


class CaptureOnDefaultStream(Rule):
    code = "SS405"
    name = "capture-on-default-stream"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def capture(model, x):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()  # expect: SS405
    y = model(x)
    graph.capture_end()
    return graph, y
"""
    good = """\
import torch


def capture(model, x):
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.capture_begin()
        y = model(x)
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(side)
    return graph, y
"""

    def message(self, conflict: Conflict) -> str:
        return f"{statement(conflict.second)} on the default stream, which CUDA cannot capture"

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict) or "with torch.cuda.stream(side):  # CuPy: with side:; around the capture"
        )
