"""SS111 grad-outside-backward-stream

## What it does
Reports a use of gradients on another stream than the one that was current when `backward()` or
`autograd.grad()` was called, with no wait between.

Uses are `.grad`, a gradient returned by `autograd.grad`, `optimizer.step()`, `clip_grad_norm_`, a gradient
scaler, a collective, and anything else that reads or writes a gradient.

## Why is this bad?
`backward()` has the stream semantics of any other call: when it returns, the gradients are ready on the
stream that was current at the call, and on no other. Since PyTorch 1.10 this includes the default stream:
code that calls `backward()` inside a stream context and uses the gradients outside it was safe before, and is
a race now.

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
Where the module that a backward pass goes through is not seen, all gradients count as one.

## References
- PyTorch, "CUDA semantics": Stream semantics of backward passes
- `torch.Tensor.backward`, `torch.autograd.grad`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import no_wait, race


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
            loss = self.model(batch).sum()
            loss.backward()
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
            loss = self.model(batch).sum()
            loss.backward()
        torch.cuda.current_stream().wait_stream(self.side)
        self.optimizer.step()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.gradient == "result"

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict, 'a gradient that')}: {no_wait(conflict)}"
