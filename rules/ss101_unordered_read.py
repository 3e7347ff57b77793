"""SS101 unordered-read

## What it does
Reports a read on one stream of memory that another stream writes, where no wait orders the read after the write.

## Why is this bad?
Streams run at the same time unless an event, a wait or a synchronize orders them. A stream made by
`torch.cuda.Stream()` does not wait for the default stream. Entering `with torch.cuda.stream(s)` adds no wait, and
leaving it adds none. The read gets old, new or half-written values. They differ from run to run, and no error is
raised.

CuPy's `Stream()` and the legacy default stream wait for each other. Two CuPy streams do not, and neither does
`Stream(non_blocking=True)`.

## Example
```python
with torch.cuda.stream(side):
    scores = model(batch)
best = scores.argmax()  # the current stream has not waited for `side`
```

Use instead:
```python
with torch.cuda.stream(side):
    scores = model(batch)
torch.cuda.current_stream().wait_stream(side)
best = scores.argmax()
```

## Known problems
The check does not see a wait inside a function that it cannot follow, for example one of another package. It may then
report a read that is ordered, as *likely*. Describe such a function as a model.

## References
- PyTorch, "CUDA semantics": CUDA streams
- CUDA Runtime API, "Stream synchronization behavior"
- `torch.cuda.Stream.wait_stream`, `cupy.cuda.Stream.wait_event`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import no_wait, race
from streamsafe.rule import Rule


class UnorderedRead(Rule):
    code = "SS101"
    name = "unordered-read"
    fix = "unsafe"
    rank = 110
    bad = """\
import torch

side = torch.cuda.Stream()


def predict(model, batch):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        scores = torch.softmax(batch @ model.weight, dim=-1)
    best = scores.argmax(dim=-1)  # expect: SS101
    return best
"""
    good = """\
import torch

side = torch.cuda.Stream()


def predict(model, batch):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        scores = torch.softmax(batch @ model.weight, dim=-1)
    torch.cuda.current_stream().wait_stream(side)
    scores.record_stream(torch.cuda.current_stream())
    best = scores.argmax(dim=-1)
    return best
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.second.reads_or_writes == "reads"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict)}: {no_wait(conflict)}"
