"""SS111 grad-outside-backward-stream

## What it does
Reports a use of gradients on a stream other than the one that was current at the call of `backward()` or
`autograd.grad()`, with no wait between.

A use is a read or write of `.grad`, of a gradient that `autograd.grad` returns, `optimizer.step()`,
`clip_grad_norm_`, a gradient scaler, or a collective.

## Why is this bad?
`backward()` behaves like any other operation: when it returns, the gradients are ready on the stream that was current
at the call, and on no other stream. Before PyTorch 1.10 the default stream waited too. Code that calls `backward()`
inside a stream context and uses the gradients outside was safe then, and has a race now.

## Example
```python
with torch.cuda.stream(side):
    loss.backward()
optimizer.step()
```

Use instead:
```python
with torch.cuda.stream(side):
    loss.backward()
torch.cuda.current_stream().wait_stream(side)
optimizer.step()
```

## Known problems
If the check does not know which module a backward pass goes through, it takes all gradients for one.

## References
- PyTorch, "CUDA semantics": Stream semantics of backward passes
- `torch.Tensor.backward`, `torch.autograd.grad`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import no_wait, race
from streamsafe.rule import Rule


class GradOutsideBackwardStream(Rule):
    code = "SS111"
    name = "grad-outside-backward-stream"
    fix = "unsafe"
    rank = 90
    bad = """\
import torch


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.side = torch.cuda.Stream()

    def step(self, batch):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.model(batch).sum().backward()
        self.optimizer.step()  # expect: SS111
"""
    good = """\
import torch


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.side = torch.cuda.Stream()

    def step(self, batch):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.model(batch).sum().backward()
        torch.cuda.current_stream().wait_stream(self.side)
        self.optimizer.step()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.gradient == "result"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict, 'a gradient that')}: {no_wait(conflict)}"
