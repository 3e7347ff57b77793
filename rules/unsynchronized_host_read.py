"""SS301 unsynchronized-host-read

## What it does
Reports a host read of memory that an asynchronous device-to-host copy may still be writing.

## Why is this bad?
`non_blocking=True` towards the host returns before the copy is done. `x.to("cpu", non_blocking=True)` looks
like `x.cpu()`, but its result may be read only after the stream (or an event recorded after the copy) was
waited for by the host. Until then the memory holds what was there before: often zeros, or the last batch.

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
A caller in another file that synchronizes between the copy and the read is not seen.

## References
- PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory() in PyTorch"
- CUDA Runtime API, "API synchronization behavior": Memcpy
- `torch.Tensor.to`, `cupy.ndarray.get`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import no_wait, race


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
