"""SS412 stale-replay-output

## What it does
Reports the output of a captured graph that is kept, without a copy, once for each of several replays.

## Why is this bad?
Each replay writes its results to the same memory. A reference to the output of one replay has the results of the next
replay after it. A list of outputs then contains one tensor several times.

## Example
```python
outputs = []
for batch in batches:
    static_input.copy_(batch)
    graph.replay()
    outputs.append(static_output)
```

Use instead:
```python
outputs = []
for batch in batches:
    static_input.copy_(batch)
    graph.replay()
    outputs.append(static_output.clone())
```

A run tells of two names of one output that were given between different replays, where the function still reads the
older one beside the newer, and of a list that gets the output of each replay.

## Known problems
`check` does not follow an output that a function returns and its caller keeps. A run does not see outputs that are kept
in other containers, nor an output that is kept under one name and read after the next replay: a program that gives the
present output a new name looks the same. CuPy's graphs: `check` alone.

## Fix safety
Unsafe: `--fix --unsafe-fixes` keeps a `clone()` (CuPy: `copy()`). The copy takes time and memory.

## References
- PyTorch, "CUDA semantics": CUDA Graphs
- `docs/semantics.md`, GC-05
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule


class StaleReplayOutput(Rule):
    code = "SS412"
    name = "stale-replay-output"
    fix = "unsafe"
    rank = 0
    bad = """\
import torch


def run(model, batches):
    x = torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    outputs = []
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        outputs.append(y)  # expect: SS412
    return outputs
"""
    good = """\
import torch


def run(model, batches):
    x = torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    outputs = []
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        outputs.append(y.clone())
    return outputs
"""

    def message(self, conflict: Conflict) -> str:
        what = f"`{conflict.memory.name}`" if conflict.memory.name else "the output"
        return f"{what} is stored after each replay without a copy: the next replay overwrites it"

    def help(self, conflict: Conflict) -> str:
        copy = "copy" if conflict.memory.owner == "cupy" else "clone"
        return super().help(conflict) or f"store a copy: {copy}()"
