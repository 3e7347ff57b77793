"""SS103 ineffective-wait

## What it does
Reports an unordered read or write whose stream, or the host before it, did wait for something that was meant
to order it and does not.

The usual ways to wait for nothing: the event was recorded before the work, on another stream than the one
that did the work, after the wait, or never; the wait is the wrong way round; `default_stream()` is waited for
where the work ran on `current_stream()`.

## Why is this bad?
The code looks synchronized, so nobody looks there. An event is a mutable cell: `record` stores what its
stream has been given *so far*, `wait` reads the cell *now*, and waiting for an event that was never recorded
succeeds at once. A wait that is merely useless is not reported: without the hazard it is harmless.

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
In a loop, an event that one round records and the next round waits for may look ineffective in the first round.

## References
- CUDA Runtime API: `cudaEventRecord`, `cudaStreamWaitEvent` (the wait uses the most recent record before the call)
- `torch.cuda.Event`, `torch.cuda.default_stream`, `cupy.cuda.Event`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import quoted, race


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
