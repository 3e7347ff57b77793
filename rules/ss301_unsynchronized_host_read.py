"""SS301 unsynchronized-host-read

## What it does
Reports a host read of memory that an asynchronous device-to-host copy may still be writing.

## Why is this bad?
A `non_blocking=True` copy to the host returns before it is done. `x.to("cpu", non_blocking=True)` looks like `x.cpu()`,
but the host may read its result only after it has waited for the stream, or for an event recorded after the copy.
Until then the memory has its old contents: often zeros, or the previous batch.

## Example
```python
scores = logits.to("cpu", non_blocking=True)
print(scores.numpy().max())
```

Use instead:
```python
scores = logits.to("cpu", non_blocking=True)
torch.cuda.current_stream().synchronize()
print(scores.numpy().max())
```

## Known problems
The check does not see a synchronize in a caller of another file, between the copy and the read.

## References
- PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory() in PyTorch"
- CUDA Runtime API, "API synchronization behavior": Memcpy
- `torch.Tensor.to`, `cupy.ndarray.get`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import no_wait, race
from streamsafe.rule import Rule


class UnsynchronizedHostRead(Rule):
    code = "SS301"
    name = "unsynchronized-host-read"
    fix = "unsafe"
    rank = 40
    bad = """\
import torch


def best(model, batch):
    logits = model(batch.cuda())
    scores = logits.to("cpu", non_blocking=True)
    return scores.numpy().argmax()  # expect: SS301
"""
    good = """\
import torch


def best(model, batch):
    logits = model(batch.cuda())
    scores = logits.to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return scores.numpy().argmax()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.host == "reads"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict)}: {no_wait(conflict)}"
