"""SS113 initial-grad-missing-record-stream

## What it does
Reports an initial gradient that is allocated on one stream and read by a backward pass on another, and is not
recorded there before its last reference goes. The two are ordered: it is the memory that is reused too early.

## Why is this bad?
Ordering the fill before the backward pass is not enough. The allocator knows only the stream on which a block
was allocated: when the last reference goes, the block is free for the next allocation there, while the
backward pass may still be reading it. `record_stream` tells the allocator of the second stream.

Safe without it: the allocating stream (or the host) waits for the backward stream before the release, the
tensor is allocated under the backward stream, or something keeps it alive until a synchronize.

## Example
```python
gradient = torch.ones_like(loss)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    loss.backward(gradient=gradient)
del gradient
```

Use instead:
```python
gradient = torch.ones_like(loss)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    loss.backward(gradient=gradient)
    gradient.record_stream(side)
del gradient
```

## References
- PyTorch, "CUDA semantics": Stream semantics of backward passes (the example records the initial gradient)
- `torch.Tensor.record_stream`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import block, by, quoted


class InitialGradMissingRecordStream(Rule):
    code = "SS113"
    name = "initial-grad-missing-record-stream"
    fix = "unsafe"
    rank = 70
    place = "first"
    bad = """\
import torch

side = torch.cuda.Stream()


def grads(loss):
    gradient = torch.ones_like(loss)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss.backward(gradient=gradient)  # expect: SS113
    del gradient
    return torch.zeros_like(loss)
"""
    good = """\
import torch

side = torch.cuda.Stream()


def grads(loss):
    gradient = torch.ones_like(loss)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss.backward(gradient=gradient)
        gradient.record_stream(side)
    del gradient
    return torch.zeros_like(loss)
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.facts.gradient == "initial-reuse"

    def message(self, conflict: Conflict) -> str:
        use = conflict.first or conflict.second
        return (
            f"{by(use)} reads {block(conflict)}, an initial gradient that is not recorded on {quoted(use.timeline)}: "
            f"its memory may be reused too early"
        )

    def help(self, conflict: Conflict) -> str:
        use = conflict.first or conflict.second
        fallback = f"call record_stream({use.timeline}) on it before the last reference goes"
        return super().help(conflict) or fallback
