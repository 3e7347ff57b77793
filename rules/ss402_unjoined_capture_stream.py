"""SS402 unjoined-capture-stream

## What it does
Reports work on a side stream inside a graph capture, if the side stream does not first wait for the capturing stream,
or if the capturing stream does not wait for the side stream before the capture ends. Also reports a wait for work
that is not part of the capture.

## Why is this bad?
A side stream that has not waited for the capturing stream runs its work at once, and only once. The graph does not
contain the work, and no error says so. If the capturing stream does not wait for the side stream at the end, the end
of the capture fails. A wait for an event that was recorded outside the capture fails too.

## Example
```python
with torch.cuda.graph(g):
    with torch.cuda.stream(side):  # not forked from the capture
        y = x * 2
```

Use instead:
```python
with torch.cuda.graph(g):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
```

## Fix safety
Unsafe: `--fix --unsafe-fixes` adds both waits around the `with` of the side stream. There is no repair for a wait for
work outside the capture.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, Usage with multiple streams
- CUDA Programming Guide, "Cross-stream Dependencies and Events"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import operation_name
from streamsafe.rule import Rule


class UnjoinedCaptureStream(Rule):
    code = "SS402"
    name = "unjoined-capture-stream"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch

side = torch.cuda.Stream()


def capture(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with torch.cuda.stream(side):
            y = x * 2  # expect: SS402
    return graph, y
"""
    good = """\
import torch

side = torch.cuda.Stream()


def capture(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
    return graph, y
"""

    def message(self, conflict: Conflict) -> str:
        if any("ends without" in note.message for note in conflict.notes):
            what = "the capture ends before the capturing stream waits for it"
            return f"{operation_name(conflict.second)} inside a capture: {what}"
        return (
            f"{operation_name(conflict.second)} inside a capture: a side stream must wait for the capturing stream "
            "first, and the capturing stream for the side stream before the capture ends"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "side.wait_stream(capturing)  # first; and at the end capturing.wait_stream(side)"
        )
