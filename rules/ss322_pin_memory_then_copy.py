"""SS322 pin-memory-then-copy

## What it does
Reports `x.pin_memory().to(device, non_blocking=True)`: a tensor that is pinned only to be copied once.

## Why is this bad?
`pin_memory()` allocates pinned memory and copies the tensor into it, and the host waits for both. This costs more than
a plain copy to the device, so the asynchronous copy after it gains nothing. This is advice on speed: the program is
correct.

## Example
```python
y = mask.pin_memory().to("cuda", non_blocking=True)
```

Use instead:
```python
y = mask.to("cuda")
```

## Known problems
If another thread makes the pinned copy, as a data loader does, this thread does not wait for it.

## Fix safety
Unsafe: `--fix --unsafe-fixes` removes `pin_memory()` and `non_blocking=True`. The host then waits for the copy.

## References
- PyTorch tutorial, "A guide on good usage of `non_blocking` and `pin_memory()` in PyTorch"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import quoted
from streamsafe.rule import Rule


class PinMemoryThenCopy(Rule):
    code = "SS322"
    name = "pin-memory-then-copy"
    severity = "advice"
    fix = "unsafe"
    default = False
    rank = 0
    sides = ("check",)
    bad = """\
import torch


def upload(mask):
    return mask.pin_memory().to("cuda", non_blocking=True)  # expect: SS322
"""
    good = """\
import torch


def upload(mask):
    return mask.to("cuda")
"""

    def message(self, conflict: Conflict) -> str:
        return f"{quoted(conflict.second.operation)} copies a tensor that was pinned only for this copy"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or 'copy the tensor as it is: x.to("cuda")'
