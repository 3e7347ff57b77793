"""SS501 interop-without-handshake

## What it does
Reports memory that one library writes on its stream and another library uses on its own stream, where the array was
passed in a way that does not exchange streams.

## Why is this bad?
PyTorch and CuPy each have a current stream, and neither knows the other's. `cupy.from_dlpack(tensor)` and
`torch.from_dlpack(array)` exchange the streams and add a wait. `__cuda_array_interface__` of a tensor,
`torch.as_tensor` of a CuPy array, a raw capsule and a raw pointer do not. The consumer may read before the producer
has written.

## Example
```python
with torch.cuda.stream(side):
    t = torch.relu(x)
    a = cupy.asarray(t)  # CuPy's current stream does not wait for `side`
    total = a.sum()
```

Use instead:
```python
with torch.cuda.stream(side):
    t = torch.relu(x)
    a = cupy.from_dlpack(t)
    total = a.sum()
```

## Known problems
`streamsafe check` finds this only if a stream still writes the array where it is passed, and if the write and the use
are in one file. A later write is SS101. An extension that takes a raw pointer is not followed.

## Fix safety
Unsafe: `--fix --unsafe-fixes` replaces `cupy.asarray(t)` and `torch.as_tensor(a)` by `from_dlpack`. The consumer's
stream then waits for the producer's current stream. There is no repair if another stream writes the array:
`from_dlpack` does not order that one.

## References
- Python array API standard, "Data interchange mechanisms": stream handling of `__dlpack__`
- CuPy User Guide, "Interoperability"; Numba, "CUDA Array Interface (Version 3)": Synchronization
"""

from __future__ import annotations

from dataclasses import replace

from streamsafe.order.hazard import Conflict, Hazard
from streamsafe.order.wording import race
from streamsafe.rule import Rule

HANDSHAKE = "array = cupy.from_dlpack(tensor)  # or tensor = torch.from_dlpack(array)"
"""Either one exchanges the streams; `streamsafe check` names the array."""


def whose(timeline: str, library: str) -> str:
    """A timeline, with the library where it is that library's current stream."""
    return f"the {library}'s current stream" if timeline == "the current stream" else timeline


class InteropWithoutHandshake(Rule):
    code = "SS501"
    name = "interop-without-handshake"
    rank = 60
    fix = "unsafe"
    bad = """\
import cupy
import torch

side = torch.cuda.Stream()


def total(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        t = torch.relu(x)
        a = cupy.asarray(t)
        return t, a.sum()  # expect: SS501
"""
    good = """\
import cupy
import torch

side = torch.cuda.Stream()


def total(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        t = torch.relu(x)
        a = cupy.from_dlpack(t)
        return t, a.sum()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.interop

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict)}: the array was passed between the libraries without an exchange of streams"

    def hazard(self, conflict: Conflict) -> Hazard:
        """The conflict, where it says whose current stream is meant: each library has its own."""
        first, missing = conflict.first, conflict.missing
        return super().hazard(
            replace(
                conflict,
                first=first and replace(first, timeline=whose(first.timeline, "producer")),
                second=replace(conflict.second, timeline=whose(conflict.second.timeline, "consumer")),
                missing=missing
                and replace(
                    missing,
                    source=whose(missing.source, "producer"),
                    target=whose(missing.target, "consumer"),
                ),
            )
        )

    def help(self, conflict: Conflict) -> str:
        writer = conflict.first.timeline if conflict.first is not None else ""
        if not writer.isascii() or " " in writer or "[..." in writer or not writer:
            return HANDSHAKE
        return f"{writer}.synchronize()  # or pass it by from_dlpack, where {writer} is current"
