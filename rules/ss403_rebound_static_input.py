"""SS403 rebound-static-input

## What it does
Reports a tensor that a captured graph reads, and that the program replaces, frees or reallocates before a replay. It
should fill the tensor in place.

## Why is this bad?
A graph stores addresses, not names. After `static_input = batch` the replay still reads the old memory. If the old
tensor is still alive, the replay computes with old values. If it was freed, the replay reads the memory of another
tensor. No error is raised.

## Example
```python
with torch.cuda.graph(g):
    static_output = model(static_input)
for batch in loader:
    static_input = batch.cuda()
    g.replay()
```

Use instead:
```python
with torch.cuda.graph(g):
    static_output = model(static_input)
for batch in loader:
    static_input.copy_(batch)
    g.replay()
```

## Known problems
A test that replaces a captured input on purpose is reported. Suppress it and give the reason.

## Fix safety
Unsafe: `--fix --unsafe-fixes` turns an assignment into `copy_`. The new values must have the shape of the captured
tensor.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, "to run the graph on new data, copy it into the static input"
- CUDA Programming Guide, "CUDA Graphs"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import block
from streamsafe.rule import Rule


class ReboundStaticInput(Rule):
    code = "SS403"
    name = "rebound-static-input"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def serve(model, loader):
    static_input = torch.zeros(32, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = model(static_input)
    for batch in loader:
        static_input = batch.cuda()  # expect: SS403
        graph.replay()
        yield static_output.clone()
"""
    good = """\
import torch


def serve(model, loader):
    static_input = torch.zeros(32, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = model(static_input)
    for batch in loader:
        static_input.copy_(batch)
        graph.replay()
        yield static_output.clone()
"""

    def message(self, conflict: Conflict) -> str:
        what = f"{block(conflict)} is {conflict.second.operation}"
        return f"{what}, but each replay of the graph still uses its old memory"

    def help(self, conflict: Conflict) -> str:
        keep = "keep it for as long as the graph is replayed"
        fill = "fill the captured tensor in place: copy_(...)"
        return super().help(conflict) or (keep if conflict.second.operation == "released" else fill)
