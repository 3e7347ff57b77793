"""What users say about kernels whose parameters their source does not explain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamsafe.cuda import base_name

annotated: dict[str, tuple[frozenset[str | int], frozenset[str | int]]] = {}
"""Kernel's own name -> names or positions of the parameters that it reads, and writes, as users say."""

revision = [0]
"""How often ``annotated`` has changed."""


def annotate(kernel: Any, reads: Iterable[str | int] = (), writes: Iterable[str | int] = ()) -> Any:
    """Says what a kernel does with its parameters, where its source does not.

    Args:
        kernel: a ``RawKernel``, a function of a ``RawModule``, or a kernel's name.
        reads, writes: names or positions (from 0) of parameters.

    Returns:
        the kernel, so that this can wrap its definition.

    Raises:
        TypeError: ``kernel`` has no name.
    """
    name = (
        kernel
        if isinstance(kernel, str)
        else getattr(kernel, "name", None) or getattr(kernel, "__name__", None)
    )
    if not isinstance(name, str):
        raise TypeError(f"{kernel!r} is no kernel: it has no name")
    annotated[base_name(name)] = (frozenset(reads), frozenset(writes))
    revision[0] += 1
    return kernel
