"""SS102 unordered-write

## What it does
Reports a write on one stream to memory that another stream may still be reading or writing.

## Why is this bad?
A consumer that waits before it reads orders one direction only. The stream that fills the buffer again must also wait
for the stream that still reads it. Otherwise the reader gets the values of the next iteration. Two writes that are
not ordered leave either result, or a mixture.

`consumer.wait_stream(producer)` orders the read after the write. It does not order the next write after the read.

## Example
```python
for batch in loader:
    with torch.cuda.stream(copy_stream):
        buffer.copy_(batch, non_blocking=True)  # `step` of the last iteration may still read it
    torch.cuda.current_stream().wait_stream(copy_stream)
    step(buffer)
```

Use instead:
```python
for batch in loader:
    copy_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copy_stream):
        buffer.copy_(batch, non_blocking=True)
    torch.cuda.current_stream().wait_stream(copy_stream)
    step(buffer)
```

## Known problems
Two slices of one tensor count as different memory only if their bounds show it. A write may be reported although a
condition (`if i < j`) keeps the rows apart.

## References
- PyTorch, "CUDA semantics": CUDA streams
- CUDA Runtime API, "Stream synchronization behavior"
- `torch.cuda.Stream.wait_stream` (it waits for the work enqueued so far, in one direction)
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import no_wait, race
from streamsafe.rule import Rule


class UnorderedWrite(Rule):
    code = "SS102"
    name = "unordered-write"
    fix = "unsafe"
    rank = 120
    bad = """\
import torch

side = torch.cuda.Stream()


def accumulate(batches, weight):
    total = torch.zeros(1024, device="cuda")
    buffer = torch.empty(1024, 1024, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    for batch in batches:
        with torch.cuda.stream(side):
            buffer.copy_(batch)  # expect: SS102
        torch.cuda.current_stream().wait_stream(side)
        total += buffer @ weight
    torch.cuda.synchronize()
    return total
"""
    good = """\
import torch

side = torch.cuda.Stream()


def accumulate(batches, weight):
    total = torch.zeros(1024, device="cuda")
    buffer = torch.empty(1024, 1024, device="cuda")
    for batch in batches:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            buffer.copy_(batch)
        torch.cuda.current_stream().wait_stream(side)
        total += buffer @ weight
    torch.cuda.synchronize()
    return total
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.second.reads_or_writes == "writes"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict)}: {no_wait(conflict)}"
