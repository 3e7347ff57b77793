"""SS113 initial-grad-missing-record-stream

## What it does
Reports an initial gradient that is allocated on one stream, read by a backward pass on another stream, and freed
without `record_stream`. The fill and the backward pass are ordered; the reuse of the memory is not.

## Why is this bad?
The allocator knows only the stream on which a block was allocated. When the tensor is freed, the next allocation on
that stream can get the block at once, while the backward pass still reads it. `record_stream` tells the allocator
about the second stream.

The program is correct without it if the allocating stream, or the host, waits for the backward stream before the
tensor is freed, if the tensor is allocated under the backward stream, or if a reference lives until a synchronize.

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

## Fix safety
Unsafe: `--fix --unsafe-fixes` adds `record_stream`. The memory is reused later than before.

## References
- PyTorch, "CUDA semantics": Stream semantics of backward passes (the example records the initial gradient)
- `torch.Tensor.record_stream`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import access_phrase, block, quoted
from streamsafe.rule import Rule


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
            f"{access_phrase(use)} reads {block(conflict)}, an initial gradient that is not recorded on "
            f"{quoted(use.timeline)}: its memory may be reused too early"
        )

    def help(self, conflict: Conflict) -> str:
        use = conflict.first or conflict.second
        fallback = f"call record_stream({use.timeline}) on it before it is freed"
        return super().help(conflict) or fallback
