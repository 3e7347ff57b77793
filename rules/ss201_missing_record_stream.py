"""SS201 missing-record-stream

## What it does
Reports a tensor that is freed while a stream other than its allocation stream may still use it, with neither
`record_stream` nor a wait. The finding is on the use that is not protected.

## Why is this bad?
PyTorch's caching allocator keeps blocks by the stream that was current at the allocation. When the last reference to a
tensor is dropped (`del`, a new assignment, the end of a function, `resize_(0)`), the next allocation on that stream
can get the block at once. It does not wait for other streams. The other stream then reads or overwrites the memory of
a different tensor.

With `tensor.record_stream(s)` the allocator waits for the work that `s` has when the tensor is freed. It does not
cover work that `s` gets later, or memory that PyTorch does not own.

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
The check does not see a second reference that another file keeps. The memory then lives longer than the check assumes.

## Fix safety
Unsafe: `--fix --unsafe-fixes` adds `record_stream` before the use, where one place is certain. The memory is reused
later than before.

## References
- `torch.Tensor.record_stream`
- PyTorch, "CUDA semantics": Memory management, CUDA streams
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import quoted, reuse_sentence, unprotected_use
from streamsafe.rule import Rule


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
        return reuse_sentence(conflict, f"it is not recorded on {quoted(unprotected_use(conflict).timeline)}")

    def help(self, conflict: Conflict) -> str:
        fallback = (
            f"tensor.record_stream(s)  # s is {unprotected_use(conflict).timeline}; before it is released"
        )
        return super().help(conflict) or fallback
