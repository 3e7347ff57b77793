"""SS404 capture-rng

## What it does
Reports random numbers drawn inside a graph capture from a generator that is not registered with the graph. Also
reports a read or write of random number state inside a capture.

## Why is this bad?
A graph replays the same kernels with the same arguments, so the offset of a generator must be in device memory. PyTorch
does this for the default generator, and for another generator after `graph.register_generator_state(generator)`. A
generator that is not registered raises an error inside the capture. `get_rng_state`, `manual_seed` and
`initial_seed` raise one too, and a replay would not repeat them.

## Example
```python
generator = torch.Generator("cuda")
with torch.cuda.graph(g):
    noise = torch.randn(n, device="cuda", generator=generator)
```

Use instead:
```python
generator = torch.Generator("cuda")
g.register_generator_state(generator)
with torch.cuda.graph(g):
    noise = torch.randn(n, device="cuda", generator=generator)
```

## Fix safety
Unsafe: `--fix --unsafe-fixes` registers the generator before the capture, or moves the access to the random number
state before it. A registered generator gives other numbers in each replay.

## References
- `torch.cuda.CUDAGraph.register_generator_state`
- PyTorch, "CUDA semantics": CUDA Graphs, Constraints
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import statement
from streamsafe.rule import Rule


class CaptureRng(Rule):
    code = "SS404"
    name = "capture-rng"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def capture(n):
    generator = torch.Generator("cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        noise = torch.randn(n, device="cuda", generator=generator)  # expect: SS404
    return graph, noise
"""
    good = """\
import torch


def capture(n):
    generator = torch.Generator("cuda")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        noise = torch.randn(n, device="cuda", generator=generator)
    return graph, noise
"""

    def message(self, conflict: Conflict) -> str:
        return f"{statement(conflict.second)}: the captured graph does not have this random number state"

    def help(self, conflict: Conflict) -> str:
        return super().help(conflict) or "call graph.register_generator_state(generator) before the capture"
