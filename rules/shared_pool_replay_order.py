"""SS409 shared-pool-replay-order

## What it does
Reports graphs that share a memory pool and are replayed at once, and the replay of one that was captured before another
of which the outputs are still needed.

## Why is this bad?
A graph that is captured into a pool may keep its temporaries where another graph of that pool keeps its outputs or its
own temporaries. That is safe when the graphs are replayed one after the other in the order in which they were captured.
In another order a graph overwrites what a later one has computed; at once they overwrite each other's temporaries.

## Example
```python
with torch.cuda.graph(first):
    a = f(x)
with torch.cuda.graph(second, pool=first.pool()):
    b = h(x)
second.replay()
first.replay()  # may overwrite b
print(b)
```

Use instead:
```python
with torch.cuda.graph(first):
    a = f(x)
with torch.cuda.graph(second, pool=first.pool()):
    b = h(x)
first.replay()
second.replay()
print(b)
```

## Known problems
Graphs that share a pool and are replayed by different callers are not compared.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, sharing memory across captures
- `docs/semantics.md`, GC-07
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import deed


class SharedPoolReplayOrder(Rule):
    code = "SS409"
    name = "shared-pool-replay-order"
    rank = 0
    bad = """\
import torch


def run(f, h, x):
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = f(x)
    with torch.cuda.graph(second, pool=first.pool()):
        b = h(x)
    second.replay()
    first.replay()  # expect: SS409
    return a.clone(), b.clone()
"""
    good = """\
import torch


def run(f, h, x):
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = f(x)
    with torch.cuda.graph(second, pool=first.pool()):
        b = h(x)
    first.replay()
    second.replay()
    return a.clone(), b.clone()
"""

    def message(self, conflict: Conflict) -> str:
        if conflict.first is not None:  # seen by a run, when the array is read
            return (
                f"{deed(conflict.second)} reads what the replay of another graph overwrote: graphs that share a pool "
                "are replayed in the order of their captures, and read before the next round"
            )
        return (
            f"{deed(conflict.second)} of a graph that shares its pool: such graphs are replayed in the order of their "
            "captures, one after the other"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "replay them in that order, on one stream, or give each a pool of its own"
        )
