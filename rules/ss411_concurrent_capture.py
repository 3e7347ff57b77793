"""SS411 concurrent-capture

## What it does
Reports a capture that begins, or a graph that is launched, inside another capture. Also reports device work of another
thread during a capture in the global mode, for example a data loader that pins memory.

## Why is this bad?
Two captures cannot be nested: the inner one fails, or both are lost. A launch of a graph inside a capture fails with
"operation not permitted when stream is capturing". In the global capture mode, which is the default, an unsafe call
in *any* thread (a query, an allocation, a synchronize) breaks the capture. The error appears in the thread that made
the call.

## Example
```python
with torch.cuda.graph(outer):
    y = x * 2
    with torch.cuda.graph(inner):
        z = y + 1
```

Use instead:
```python
with torch.cuda.graph(outer):
    y = x * 2
with torch.cuda.graph(inner):
    z = y + 1
```

## Fix safety
Unsafe: `--fix --unsafe-fixes` moves an inner capture after the outer one, or adds
`capture_error_mode="thread_local"` if the other thread is the problem. There is no repair for a graph that is
launched inside a capture.

## References
- `torch.cuda.graph` (`capture_error_mode`)
- CUDA Runtime API: `cudaThreadExchangeStreamCaptureMode`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import statement
from streamsafe.rule import Rule


class ConcurrentCapture(Rule):
    code = "SS411"
    name = "concurrent-capture"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def capture(x):
    outer = torch.cuda.CUDAGraph()
    inner = torch.cuda.CUDAGraph()
    with torch.cuda.graph(outer):
        y = x * 2
        with torch.cuda.graph(inner):  # expect: SS411
            z = y + 1
    return outer, inner, z
"""
    good = """\
import torch


def capture(x):
    outer = torch.cuda.CUDAGraph()
    inner = torch.cuda.CUDAGraph()
    with torch.cuda.graph(outer):
        y = x * 2
    with torch.cuda.graph(inner):
        z = y + 1
    return outer, inner, z
"""

    def message(self, conflict: Conflict) -> str:
        what = statement(conflict.second)
        return (
            f"{what} while another capture is active or another thread uses CUDA, which can break the capture"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or 'end the other capture first, or capture with capture_error_mode="thread_local"'
        )
