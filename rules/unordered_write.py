"""SS102 unordered-write

## What it does
Reports a write on one stream to memory that another stream may still be reading or writing.

## Why is this bad?
Waiting before reading is only half of a hand-over. The stream that refills a buffer has to wait for the
stream that still reads it, or the reader sees the next round's values; two unordered writes leave the memory
with either result, or a mixture. `consumer.wait_stream(producer)` orders the read after the write; it does
not order the next write after the read.

## Example
```python
for batch in loader:
    with torch.cuda.stream(copy_stream):
        buffer.copy_(batch, non_blocking=True)  # the last round's `step` may still read it
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
Two slices of one tensor are different memory only where their bounds show it. Rows that a condition keeps apart
(`if i < j`) may be reported.

## References
- PyTorch, "CUDA semantics": CUDA streams
- CUDA Runtime API, "Stream synchronization behavior"
- `torch.cuda.Stream.wait_stream`: a snapshot, in one direction
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import no_wait, race


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
