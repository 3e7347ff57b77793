"""All rows, by the name of their call."""

from __future__ import annotations

from streamsafe.apis import (
    cuda_libraries,
    cuda_runtime,
    cupy,
    distributed,
    packages,
    python,
    streams,
    torch,
)
from streamsafe.apis.effects import Call
from streamsafe.apis.names import canonical

ROWS: tuple[Call, ...] = (
    *streams.ROWS,
    *torch.ROWS,
    *distributed.ROWS,
    *cupy.ROWS,
    *cuda_runtime.ROWS,
    *cuda_libraries.ROWS,
    *python.ROWS,
    *packages.ROWS,
)

BY_NAME: dict[str, Call] = {call.name: call for call in ROWS}


def find(name: str) -> Call | None:
    """The row of a call by the name under which a program has it; None where there is none.

    Args:
        name: a function by its module, a method by its class: ``torch.Tensor.copy_``.
    """
    return BY_NAME.get(canonical(name))
