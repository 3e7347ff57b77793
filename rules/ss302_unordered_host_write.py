"""SS302 unordered-host-write

## What it does
Reports a host write to memory that an asynchronous copy may still be reading (a pinned source) or writing
(its destination).

## Why is this bad?
A `non_blocking=True` copy from pinned memory reads the host buffer later, when the device reaches the copy. If the host
fills the buffer for the next batch before that, the device gets the next batch twice, or a mixture.

Pageable memory is copied to a staging buffer before the call returns, so only pinned buffers are affected. A new
pinned tensor for each batch is safe: PyTorch's pinned memory pool waits for the copy.

## Example
```python
staging = torch.empty(n, pin_memory=True)
for batch in loader:
    staging.copy_(batch)  # the copy of the last iteration may still read it
    x = staging.to("cuda", non_blocking=True)
```

Use instead:
```python
staging = torch.empty(n, pin_memory=True)
copied = torch.cuda.Event()
for batch in loader:
    copied.synchronize()
    staging.copy_(batch)
    x = staging.to("cuda", non_blocking=True)
    copied.record()
```

## Known problems
A pinned buffer that is filled again in each call is reported unless its class waits. A caller in another file that
waits once in each step is not seen.

## References
- PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory() in PyTorch"
- CUDA Runtime API, "API synchronization behavior": Memcpy
- `torch.Tensor.pin_memory`, `cupyx.empty_pinned`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import no_wait, race
from streamsafe.rule import Rule


class UnorderedHostWrite(Rule):
    code = "SS302"
    name = "unordered-host-write"
    fix = "unsafe"
    rank = 50
    bad = """\
import torch


def upload(batches, step):
    staging = torch.empty(1024, pin_memory=True)
    for batch in batches:
        staging.copy_(batch)  # expect: SS302
        step(staging.to("cuda", non_blocking=True))
"""
    good = """\
import torch


def upload(batches, step):
    staging = torch.empty(1024, pin_memory=True)
    copied = torch.cuda.Event()
    for batch in batches:
        copied.synchronize()
        staging.copy_(batch)
        x = staging.to("cuda", non_blocking=True)
        copied.record()
        step(x)
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.host == "writes"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict)}: {no_wait(conflict)}"
