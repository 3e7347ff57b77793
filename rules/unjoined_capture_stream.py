"""SS402 unjoined-capture-stream

## What it does
Reports work inside a graph capture on a stream that does not wait for the capturing stream first, or that the
capturing stream does not wait for before the capture ends. Also reports a wait for work that is not in the capture.

## Why is this bad?
A stream that the capture does not know runs its work at once, and only once: the graph does not contain it,
silently. A stream that was forked and not joined back makes the end of the capture fail, and so does waiting
for an event that was recorded outside the capture.

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

## References
- PyTorch, "CUDA semantics": CUDA Graphs, Usage with multiple streams
- CUDA Programming Guide, "Cross-stream Dependencies and Events"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import deed


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
        return f"{deed(conflict.second)}: in a capture every stream has to be forked from it and joined back to it"

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "side.wait_event(event)  # recorded on the capturing stream; and that one waits for side before the end"
        )
