"""SS112 unordered-initial-grad

## What it does
Reports an initial gradient (`gradient=`, `grad_tensors=`, `grad_outputs=`) that one stream fills while
`backward()` or `autograd.grad()` is called on another stream, with no wait between.

## Why is this bad?
The backward pass first reads the initial gradient, on the stream that is current at the call. It waits for the streams
of the forward pass, but not for the stream that filled this tensor. It may read memory that `ones_like` has not
written yet, and then every gradient is wrong.

## Example
```python
gradient = torch.ones_like(loss)
with torch.cuda.stream(side):
    loss.backward(gradient=gradient)
```

Use instead:
```python
gradient = torch.ones_like(loss)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    loss.backward(gradient=gradient)
gradient.record_stream(side)
```

## References
- PyTorch, "CUDA semantics": Stream semantics of backward passes
- `torch.Tensor.backward`, `torch.autograd.backward`, `torch.autograd.grad`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import no_wait, race
from streamsafe.rule import Rule


class UnorderedInitialGrad(Rule):
    code = "SS112"
    name = "unordered-initial-grad"
    fix = "unsafe"
    rank = 80
    bad = """\
import torch

side = torch.cuda.Stream()


def grads(loss):
    gradient = torch.ones_like(loss)
    with torch.cuda.stream(side):
        loss.backward(gradient=gradient)  # expect: SS112
    torch.cuda.current_stream().wait_stream(side)
"""
    good = """\
import torch

side = torch.cuda.Stream()


def grads(loss):
    gradient = torch.ones_like(loss)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss.backward(gradient=gradient)
    torch.cuda.current_stream().wait_stream(side)
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.gradient == "initial"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict, 'an initial gradient that')}: {no_wait(conflict)}"
