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
    t = model(x)
    a = cupy.asarray(t)  # CuPy's current stream does not wait for `side`
    total = a.sum()
```

Use instead:
```python
with torch.cuda.stream(side):
    t = model(x)
    a = cupy.from_dlpack(t)
    total = a.sum()
```

## Known problems
`streamsafe check` finds this only if both accesses are in one function or class. Memory that is passed in a way that
streamsafe does not know is not seen.

## References
- Python array API standard, "Data interchange mechanisms": stream handling of `__dlpack__`
- CuPy User Guide, "Interoperability"; Numba, "CUDA Array Interface (Version 3)": Synchronization
"""

from __future__ import annotations

from streamsafe.order.hazard import Conflict
from streamsafe.rule import Rule
from streamsafe.wording import race


class InteropWithoutHandshake(Rule):
    code = "SS501"
    name = "interop-without-handshake"
    rank = 60
    sides = ("run",)
    bad = """\
import cupy
import torch

side = torch.cuda.Stream()


def total(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        t = x * 2
        a = cupy.asarray(t)
        return a.sum()  # expect: SS501
"""
    good = """\
import cupy
import torch

side = torch.cuda.Stream()


def total(x):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        t = x * 2
        a = cupy.from_dlpack(t)
        return a.sum()
"""

    def matches(self, conflict: Conflict) -> bool:
        return conflict.first is not None and conflict.facts.interop

    def message(self, conflict: Conflict) -> str:
        return f"{race(conflict)}: the array was passed between the libraries without an exchange of streams"
