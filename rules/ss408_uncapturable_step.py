"""SS408 uncapturable-step

## What it does
Reports `step()` of an optimizer inside a graph capture, if the optimizer was created without `capturable=True`. Also
reports `step` of a `GradScaler` there, unless the optimizer is fused.

## Why is this bad?
Adam and similar optimizers keep their step counts on the host unless they are `capturable`; PyTorch raises an error in
the capture. A gradient scaler decides on the host whether to step. For this it reads a value that a capture does not
compute. With `fused=True` the device decides. The scaler's `scale`, `unscale_` and `update` do not need the host
(measured on an H200 with torch 2.11: a replay doubles the scale).

## Example
```python
optimizer = torch.optim.Adam(model.parameters())
with torch.cuda.graph(g):
    loss_of(model).backward()
    optimizer.step()
```

Use instead:
```python
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
with torch.cuda.graph(g):
    loss_of(model).backward()
    optimizer.step()
```

With a gradient scaler, make the optimizer with `fused=True, capturable=True`, or capture the forward and the backward
pass, and call `scaler.step` and `scaler.update` after the replay.

## Fix safety
Unsafe: `--fix --unsafe-fixes` creates the optimizer with `capturable=True`, and with `fused=True` if a gradient scaler
steps it (Adam and AdamW). The results can differ in the last digits.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, whole-network capture, usage with `torch.cuda.amp`
- `torch.optim.Adam`, `capturable`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import operation_name
from streamsafe.rule import Rule


class UncapturableStep(Rule):
    code = "SS408"
    name = "uncapturable-step"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def capture(model, x):
    optimizer = torch.optim.Adam(model.parameters())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).sum().backward()
        optimizer.step()  # expect: SS408
    return graph
"""
    good = """\
import torch


def capture(model, x):
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).sum().backward()
        optimizer.step()
    return graph
"""

    def message(self, conflict: Conflict) -> str:
        what = "the optimizer keeps its step count on the host, and PyTorch raises an error"
        if "scaler" in conflict.second.operation:
            what = "the host decides whether to step, from a value that the capture does not compute"
        return f"{operation_name(conflict.second)} inside a capture: {what}"

    def help(self, conflict: Conflict) -> str:
        what = "make the optimizer with capturable=True"
        if "scaler" in conflict.second.operation:
            what = "make the optimizer fused and capturable, or step it after the replay"
        return super().help(conflict) or what
