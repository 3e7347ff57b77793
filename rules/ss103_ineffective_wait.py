"""SS103 ineffective-wait

## What it does
Reports a read or write that is not ordered (see SS101 and SS102) although the program contains a wait for this
purpose.

The usual mistakes are:

- the event is recorded before the work, after the wait, on another stream, or never;
- the wait has the wrong direction;
- the program waits for `default_stream()`, but the work ran on `current_stream()`.

## Why is this bad?
The code looks synchronized, so a reader does not look for a race there. `record` stores the work that its stream has
at that time. `wait` uses the most recent `record` before it. A wait for an event that was never recorded returns at
once.

A wait that orders nothing, in code without a race, is not reported.

## Example
```python
with torch.cuda.stream(side):
    ready.record()
    x.mul_(2)  # after the record: not covered by it
torch.cuda.current_stream().wait_event(ready)
y = x.sum()
```

Use instead:
```python
with torch.cuda.stream(side):
    x.mul_(2)
    ready.record()
torch.cuda.current_stream().wait_event(ready)
y = x.sum()
```

## Known problems
An event that is recorded in one iteration and waited for in the next can be reported for the first iteration, where it
orders nothing.

## References
- CUDA Runtime API: `cudaEventRecord`, `cudaStreamWaitEvent` (the wait uses the most recent record before the call)
- `torch.cuda.Event`, `torch.cuda.default_stream`, `cupy.cuda.Event`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import quoted, race
from streamsafe.rule import Rule


class IneffectiveWait(Rule):
    code = "SS103"
    name = "ineffective-wait"
    fix = "unsafe"
    rank = 100
    bad = """\
import torch

side = torch.cuda.Stream()
ready = torch.cuda.Event()


def scale(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        ready.record()
        x.mul_(2)
    torch.cuda.current_stream().wait_event(ready)
    return x.sum()  # expect: SS103
"""
    good = """\
import torch

side = torch.cuda.Stream()
ready = torch.cuda.Event()


def scale(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)
        ready.record()
    torch.cuda.current_stream().wait_event(ready)
    return x.sum()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.ineffective_wait

    def message(self, conflict: Conflict) -> str:
        assert conflict.first is not None
        return f"{race(conflict)}: there is a wait, but it does not cover {quoted(conflict.first.operation)}"
