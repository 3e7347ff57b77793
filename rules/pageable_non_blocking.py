"""SS321 pageable-non-blocking

## What it does
Reports copies with `non_blocking=True` between the device and pageable memory of the host.

## Why is this bad?
The copy engine of the device reads and writes pinned memory only. A copy from pageable memory is staged by the driver
first: the host copies the bytes into a pinned buffer of the driver's own, and waits for more than the launch. So the
flag does little, and reads as if the copy ran beside the host's work. This is advice on speed: the program is correct.

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
A small tensor that is made once is not worth pinning: pinning costs more than the copy. Leave the flag out there.

## References
- CUDA Runtime API, "API synchronization behavior"
- PyTorch tutorial, "A guide on good usage of `non_blocking` and `pin_memory()` in PyTorch"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import quoted


class PageableNonBlocking(Rule):
    code = "SS321"
    name = "pageable-non-blocking"
    severity = "advice"
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
            f"{quoted(conflict.second.operation)} is asked not to block, but copies pageable memory of the host, "
            "which the driver stages first"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict) or "make the tensor with pin_memory=True, or leave non_blocking=True out"
        )
