"""Waits in files that use CuPy and PyTorch.

`torch.cuda.Stream.wait_stream` takes streams of PyTorch only; `torch.cuda.ExternalStream` is one for a CuPy stream.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from streamsafe.repairs.names import File, dotted, imported


def for_torch(source: str, line: str) -> str:
    """A line of PyTorch in which CuPy's streams stand as external ones; other lines as they are."""
    call = re.fullmatch(r"(.+)\.(wait_stream|record_stream)\((.+)\)", line.partition("  #")[0])
    torch, streams = _libraries(source) if call is not None else ("", frozenset[str]())
    if call is None or not torch or not streams:
        return line
    waiter, verb, other = call.groups()
    if verb == "wait_stream" and waiter in streams:
        waiter = f"{torch}.cuda.ExternalStream({waiter}.ptr)"
    if other in streams:
        other = f"{torch}.cuda.ExternalStream({other}.ptr)"
    return f"{waiter}.{verb}({other}){line[call.end(3) + 1 :]}"


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
