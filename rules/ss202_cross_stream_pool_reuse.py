"""SS202 cross-stream-pool-reuse

## What it does
Reports a CuPy array that returns to its memory pool while a stream other than its allocation stream may still use it.
The finding is on the use that is not protected.

## Why is this bad?
CuPy's pool has one arena for each stream. An array belongs to the arena of the stream that was current at its
allocation. When the last reference is dropped, the next allocation on that stream can get the block at once. CuPy has
no `record_stream`: the allocating stream, or the host, must wait for the other stream before the array is freed. The
pinned memory pool has the same problem.

Streams made by `cupy.cuda.Stream()` and the null stream wait for each other, so this pair is safe.

## Example
```python
with producer:
    x = cupy.empty(n)
with consumer:
    consumer.wait_event(producer.record())
    y = x * 2
del x  # `producer` may allocate over it while `consumer` still reads
```

Use instead:
```python
with producer:
    x = cupy.empty(n)
with consumer:
    consumer.wait_event(producer.record())
    y = x * 2
    done = consumer.record()
producer.wait_event(done)
del x
```

## Known problems
The check does not see a second reference that another file keeps.

## Fix safety
Unsafe: `--fix --unsafe-fixes` adds a wait of the allocating stream after the use. That stream may become slower. You
can also keep a reference until the use is done.

## References
- CuPy User Guide, "Memory Management" and "Current Stream"
- `cupy.cuda.MemoryPool`, `cupy.cuda.Stream.wait_event`
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.order.wording import reuse_sentence
from streamsafe.rule import Rule


class CrossStreamPoolReuse(Rule):
    code = "SS202"
    name = "cross-stream-pool-reuse"
    fix = "unsafe"
    rank = 20
    place = "first"
    bad = """\
import cupy

producer = cupy.cuda.Stream(non_blocking=True)
consumer = cupy.cuda.Stream(non_blocking=True)


def scale(n, rounds):
    results = []
    for _ in range(rounds):
        with producer:
            x = cupy.arange(n)
        with consumer:
            consumer.wait_event(producer.record())
            results.append(x * 2)  # expect: SS202
        del x
    return results
"""
    good = """\
import cupy

producer = cupy.cuda.Stream(non_blocking=True)
consumer = cupy.cuda.Stream(non_blocking=True)


def scale(n, rounds):
    results = []
    for _ in range(rounds):
        with producer:
            x = cupy.arange(n)
        with consumer:
            consumer.wait_event(producer.record())
            results.append(x * 2)
            done = consumer.record()
        producer.wait_event(done)
        del x
    return results
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.facts.reuse == "cupy"

    def message(self, conflict: Conflict) -> str:
        return reuse_sentence(conflict, "CuPy's pool does not wait for other streams")

    def help(self, conflict: Conflict) -> str:
        return (
            super().help(conflict)
            or "owner.wait_event(user.record())  # owner allocated the array, user uses it; before it is released"
        )
