"""SS409 shared-pool-replay-order

## What it does
Reports graphs that share a memory pool and are replayed at the same time, or in another order than they were captured
while an output of the later graph is still needed.

## Why is this bad?
A graph that shares a pool may place its temporaries where another graph of the pool has outputs or temporaries. This is
safe if the graphs are replayed one after the other, in the order of their captures. In another order, one graph
overwrites the results of another. At the same time, they overwrite each other's temporaries.

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

## Fix safety
Unsafe: `--fix --unsafe-fixes` swaps two replays that are next to each other, or removes the shared pool. Without the
shared pool the graphs need more memory. There is no repair if the graphs have no names of their own (a table of
graphs): no line then says which capture shares its pool.

## References
- PyTorch, "CUDA semantics": CUDA Graphs, sharing memory across captures
- `docs/semantics.md`, GC-07
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import operation_name
from streamsafe.rule import Rule


class SharedPoolReplayOrder(Rule):
    code = "SS409"
    name = "shared-pool-replay-order"
    fix = "unsafe"
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
                f"{operation_name(conflict.second)} reads what the replay of another graph has overwritten: replay "
                "graphs that share a pool in the order of their captures, and read their outputs before the next replay"
            )
        return (
            f"{operation_name(conflict.second)} may overwrite the results of another graph with the same memory pool: "
            "replay such graphs one after the other, in the order of their captures"
        )

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "replay them in that order, on one stream, or give each a pool of its own"
        )
