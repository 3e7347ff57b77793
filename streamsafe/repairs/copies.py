"""Repairs of copies between the host and the device that gain nothing from pinning or from not blocking."""

from __future__ import annotations

import libcst as cst

from streamsafe.repairs.place import Place, keyword, name_of, receiver, without_argument
from streamsafe.repairs.tree import Codemod


def blocking_copy(place: Place) -> tuple[str, Codemod] | None:
    """SS321: the copy says that it blocks."""
    call = place.call
    if call is None or keyword(call, "non_blocking") is None:
        return None
    mod = Codemod()
    mod.replace(call, lambda node: without_argument(node, "non_blocking"))  # type: ignore[arg-type]
    return "leave non_blocking=True out", mod


def plain_copy(place: Place) -> tuple[str, Codemod] | None:
    """SS322: the tensor is copied as it is."""
    call = place.call
    pinned = receiver(call) if call is not None else None
    tensor = receiver(pinned) if isinstance(pinned, cst.Call) and name_of(pinned) == "pin_memory" else None
    if call is None or tensor is None:
        return None

    def copy(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        return without_argument(node.with_changes(func=node.func.with_changes(value=tensor)), "non_blocking")

    mod = Codemod()
    mod.replace(call, copy)
    return "copy the tensor without pinning it", mod
