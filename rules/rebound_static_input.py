"""SS403 rebound-static-input

## What it does
Reports a tensor that a captured graph reads and that is rebound, freed or reallocated before a replay,
instead of being filled in place.

## Why is this bad?
A graph keeps addresses, not names. After `static_input = batch` the replay still reads the old memory: the
old values if something keeps it alive, somebody else's tensor if not. Nothing fails; every result is stale or
wrong.

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
A test that rebinds a captured input on purpose is reported. Suppress it with a reason.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, "to run the graph on new data, copy it into the static input"
- CUDA Programming Guide, "CUDA Graphs"
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import block


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
        return f"{what}, but the captured graph goes on using its old memory at each replay"

    def help(self, conflict: Conflict) -> str:
        keep = "keep it for as long as the graph is replayed"
        fill = "fill the captured tensor in place: copy_(...)"
        return super().help(conflict) or (keep if conflict.second.operation == "released" else fill)
