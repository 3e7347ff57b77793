"""SS406 missing-capture-warmup

## What it does
Reports the capture of a backward pass if the module had no warm-up on a side stream. The module is created in the same
function and never ran, ran only on the default stream, or is a DistributedDataParallel that ran fewer than 11 times.
A module that is created elsewhere may have run there. It is reported only if its warm-up comes after the capture.

At run time, a capture that CUDA gave up is reported if nothing illegal was called in it, and it failed in a backward
pass or where cuBLAS, cuSOLVER, cuSPARSE or cuFFT was first used. The error of CUDA goes on as it is.

## Why is this bad?
Some libraries initialize when they first run: cuBLAS and cuDNN create handles and workspaces and choose algorithms,
cuFFT makes a plan for each new shape, and DistributedDataParallel builds its buckets. This must not happen inside a
capture. If the autograd graph was created on the default stream, its nodes run there, outside the capture. A
capture of the forward pass alone rarely fails, and is not reported.

## Example
```python
model = torch.nn.Linear(8, 8).cuda()
with torch.cuda.graph(g):
    model(x).sum().backward()
```

Use instead:
```python
model = torch.nn.Linear(8, 8).cuda()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        model(x).sum().backward()
torch.cuda.current_stream().wait_stream(side)
with torch.cuda.graph(g):
    model(x).sum().backward()
```

## Known problems
`check` does not see a warm-up in another file. It does not report a capture whose work is defined elsewhere.

## Fix safety
Unsafe: `--fix --unsafe-fixes` adds three (for DistributedDataParallel, eleven) iterations on a side stream, and clears
the gradients after them. If the captured statements include an optimizer step, the warm-up changes the weights.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, whole-network capture, usage with DistributedDataParallel
- `docs/semantics.md`, GC-17
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import statement
from streamsafe.rule import Rule


class MissingCaptureWarmup(Rule):
    code = "SS406"
    name = "missing-capture-warmup"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def capture(x):
    model = torch.nn.Linear(8, 8).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # expect: SS406
        y = model(x)
        y.sum().backward()
    return graph, y
"""
    good = """\
import torch


def capture(x):
    model = torch.nn.Linear(8, 8).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
        y.sum().backward()
    return graph, y
"""

    def message(self, conflict: Conflict) -> str:
        return f"{statement(conflict.second)}: it needs a warm-up on a side stream first"

    def help(self, conflict: Conflict) -> str:
        runs = "eleven" if conflict.facts.cause == "eleven" else "three"
        return super().help(conflict) or f"run it {runs} times on a side stream before the capture"
