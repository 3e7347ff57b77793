"""Waits in files that use CuPy and PyTorch.

`torch.cuda.Stream.wait_stream` takes streams of PyTorch only; `torch.cuda.ExternalStream` is one for a CuPy stream.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from streamsafe.order.hazard import Edge, Named
from streamsafe.repairs.names import File, dotted, imported


def for_torch(source: str, edge: Edge | None) -> Edge | None:
    """An edge of PyTorch in which CuPy's streams stand as external ones; other edges as they are."""
    if edge is None or edge.library != "torch" or edge.kind not in ("wait", "record"):
        return edge
    torch, streams = _libraries(source)
    if not torch or not streams:
        return edge

    def external(stream: Named) -> Named:
        code = f"{torch}.cuda.ExternalStream({stream.code}.ptr)"
        return replace(stream, code=code) if stream.code in streams else stream

    return replace(edge, source=external(edge.source), target=external(edge.target))


@lru_cache(maxsize=4)
def _libraries(source: str) -> tuple[str, frozenset[str]]:
    """What a file calls PyTorch, and the variables that it assigns CuPy's streams to; asked for each finding."""
    file = File.of(source)
    names = imported(file.tree) if file is not None else {}
    torch = next((name for name, module in names.items() if module == "torch"), "")
    if file is None or not any(module.partition(".")[0] == "cupy" for module in names.values()):
        return torch, frozenset()
    return torch, frozenset(_of_cupy(file.tree, names))


def _of_cupy(tree: ast.Module, names: dict[str, str]) -> Iterator[str]:
    """The variables and attributes that a file assigns a CuPy stream to, as code."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        first, _, rest = dotted(node.value.func).partition(".")
        if f"{names.get(first, first)}.{rest}".startswith("cupy.cuda.") and "Stream" in rest:
            yield from map(ast.unparse, node.targets)
