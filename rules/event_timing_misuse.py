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

## Known problems
An event that another file records or synchronizes is not seen.

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
    fix = "unsafe"
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
        return f"{quoted(conflict.second.operation)} fails: {_WRONG[conflict.facts.timing]}"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or _HELP[conflict.facts.timing, conflict.second.operation in _CUPY]


_WRONG = {
    "untimed": "an event was made without timing",
    "unrecorded": "an event was never recorded",
    "pending": "the host has not waited for the events, which may not be complete yet",
    None: "an event was made without timing, never recorded, or has not happened yet",
}
_CUPY = ("get_elapsed_time", "get_elapsed_time()")
_TIMED = {False: "torch.cuda.Event(enable_timing=True)", True: "cupy.cuda.Event()  # disable_timing is False"}
_HELP = {
    (timing, cupy): {
        "untimed": _TIMED[cupy],
        "unrecorded": "event.record()  # on the stream whose work is timed",
    }.get(timing or "", "event.synchronize()  # of the last event, before the elapsed time is read")
    for timing in _WRONG
    for cupy in (False, True)
}
