"""SS321 pageable-non-blocking

## What it does
Reports copies with `non_blocking=True` between the device and pageable memory of the host.

## Why is this bad?
The copy engine of the device reads and writes only pinned memory. The driver first copies pageable memory to a pinned
buffer of its own, on the host. So the call blocks for most of the copy, although the flag says that it does not. This
is advice on speed: the program is correct.

## Example
```python
ids = torch.tensor(tokens)
x = ids.to("cuda", non_blocking=True)
```

Use instead:
```python
ids = torch.tensor(tokens, pin_memory=True)
x = ids.to("cuda", non_blocking=True)
```

## Known problems
Pinning a small tensor that is copied once costs more than the copy. Remove the flag in that case.

## Fix safety
Unsafe: `--fix --unsafe-fixes` removes `non_blocking=True`. The host then waits for the copy. To pin the tensor is often
better.

## References
- CUDA Runtime API, "API synchronization behavior"
- PyTorch tutorial, "A guide on good usage of `non_blocking` and `pin_memory()` in PyTorch"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import quoted
from streamsafe.rule import Rule


class PageableNonBlocking(Rule):
    code = "SS321"
    name = "pageable-non-blocking"
    severity = "advice"
    fix = "unsafe"
    default = False
    rank = 0
    sides = ("check",)
    bad = """\
import torch


def upload(tokens):
    ids = torch.tensor(tokens)
    return ids.to("cuda", non_blocking=True)  # expect: SS321
"""
    good = """\
import torch


def upload(tokens):
    ids = torch.tensor(tokens, pin_memory=True)
    return ids.to("cuda", non_blocking=True)
"""

    def message(self, conflict: Conflict) -> str:
        return (
            f"{quoted(conflict.second.operation)} is called with non_blocking=True, but copies pageable memory: "
            "the driver copies it to a pinned buffer first"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict) or "make the tensor with pin_memory=True, or leave non_blocking=True out"
        )
