"""SS312 event-timing-misuse

## What it does
Reports `elapsed_time` (CuPy: `get_elapsed_time`) of events that were made without timing, never recorded, or
recorded by work that the host has not waited for.

## Why is this bad?
The call raises: it does not wait. `torch.cuda.Event()` has no timing unless `enable_timing=True` is given.
With a small kernel the missing synchronize goes unnoticed, and the call fails under load.

## Example
```python
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
start.record()
y = x @ w
end.record()
print(start.elapsed_time(end))
```

Use instead:
```python
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
start.record()
y = x @ w
end.record()
end.synchronize()
print(start.elapsed_time(end))
```

## References
- CUDA Runtime API: `cudaEventElapsedTime`
- `torch.cuda.Event.elapsed_time`, `cupy.cuda.get_elapsed_time`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import quoted


class EventTimingMisuse(Rule):
    code = "SS312"
    name = "event-timing-misuse"
    severity = "warning"
    rank = 0
    bad = """\
import torch


def measure(x):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    y = x @ x
    end.record()
    return y, start.elapsed_time(end)  # expect: SS312
"""
    good = """\
import torch


def measure(x):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    y = x @ x
    end.record()
    end.synchronize()
    return y, start.elapsed_time(end)
"""

    def message(self, conflict: Conflict) -> str:
        return f"{quoted(conflict.second.operation)} needs events that are timed, recorded and complete"

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "make both events with enable_timing=True and synchronize the later one first"
        )
