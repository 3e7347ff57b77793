"""SS201 missing-record-stream

## What it does
Reports a tensor whose last reference goes while another stream than the one it was allocated on may still use it.
Neither `record_stream` nor a wait protects its memory. The hazard stands on the use that nothing covers.

## Why is this bad?
PyTorch's caching allocator ties a block to the stream that was current at its allocation. When the last
reference goes (`del`, rebinding, the end of a scope, `resize_(0)`), the next allocation on that stream gets
the block at once, without waiting for any other stream. The other stream then reads, or overwrites, somebody
else's tensor.

`tensor.record_stream(s)` makes the allocator wait for what `s` had been given when the tensor is freed. Work
that `s` is given after the free is not covered, and memory that PyTorch does not own is not covered at all.

## Example
```python
with torch.cuda.stream(side):
    x = batch.cuda(non_blocking=True)
torch.cuda.current_stream().wait_stream(side)
y = model(x)
del x  # `side` may allocate over it while the current stream still reads
```

Use instead:
```python
with torch.cuda.stream(side):
    x = batch.cuda(non_blocking=True)
torch.cuda.current_stream().wait_stream(side)
x.record_stream(torch.cuda.current_stream())
y = model(x)
del x
```

## Known problems
An object that keeps a second reference in another file is not seen: the memory then lives longer than the check
thinks.

## References
- `torch.Tensor.record_stream`
- PyTorch, "CUDA semantics": Memory management, CUDA streams
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import quoted, reuse, user


class MissingRecordStream(Rule):
    code = "SS201"
    name = "missing-record-stream"
    fix = "unsafe"
    rank = 30
    place = "first"
    bad = """\
import torch

side = torch.cuda.Stream()


def run(shape, weight, rounds):
    total = torch.zeros(shape[-1], device="cuda")
    for _ in range(rounds):
        with torch.cuda.stream(side):
            noise = torch.randn(shape, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        total += noise @ weight  # expect: SS201
        del noise
    return total
"""
    good = """\
import torch

side = torch.cuda.Stream()


def run(shape, weight, rounds):
    total = torch.zeros(shape[-1], device="cuda")
    for _ in range(rounds):
        with torch.cuda.stream(side):
            noise = torch.randn(shape, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        noise.record_stream(torch.cuda.current_stream())
        total += noise @ weight
        del noise
    return total
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.facts.reuse == "torch" and conflict.facts.gradient != "initial-reuse"

    def message(self, conflict: Conflict) -> str:
        return reuse(conflict, f"it is not recorded on {quoted(user(conflict).timeline)}")

    def help(self, conflict: Conflict) -> str:
        fallback = f"tensor.record_stream(s)  # s is {user(conflict).timeline}; before it is released"
        return super().help(conflict) or fallback
