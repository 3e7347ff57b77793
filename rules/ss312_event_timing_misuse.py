"""SS312 event-timing-misuse

## What it does
Reports `elapsed_time` (CuPy: `get_elapsed_time`) of events that have no timing, that were never recorded, or that are
not complete because the host has not waited.

## Why is this bad?
The call raises an error. It does not wait. `torch.cuda.Event()` has no timing unless you pass `enable_timing=True`;
`cupy.cuda.Event()` has timing unless you pass `disable_timing=True`. With a small kernel the missing synchronize is
not noticed, and the call fails when the device is busy.

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
The check does not see a record or a synchronize in another file.

## Fix safety
Unsafe: `--fix --unsafe-fixes` makes the events with timing, or adds a synchronize of the last event, whichever is
missing. An event with timing is slower to record, and the host waits. There is no repair for an event that was never
recorded.

## References
- CUDA Runtime API: `cudaEventElapsedTime`
- `torch.cuda.Event.elapsed_time`, `cupy.cuda.get_elapsed_time`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import quoted
from streamsafe.rule import Rule


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
        timing, cupy = conflict.facts.timing or "", conflict.second.operation in _CUPY
        known = super().help(conflict) or _HELP.get((timing, cupy)) or _HELP.get((timing, False))
        return known or "event.synchronize()  # of the last event, before the elapsed time is read"


_WRONG = {
    "untimed": "an event was made without timing",
    "unrecorded": "an event was never recorded",
    "pending": "the host has not waited for the events, which may not be complete yet",
    None: "an event was made without timing, never recorded, or is not complete",
}
_CUPY = ("get_elapsed_time", "get_elapsed_time()")
_HELP = {
    ("untimed", False): "make the events with torch.cuda.Event(enable_timing=True)",
    ("untimed", True): "make the events with cupy.cuda.Event(), without disable_timing=True",
    ("unrecorded", False): "record both events, on the stream whose work is timed",
}
"""By the mistake, and whether the events are CuPy's."""
