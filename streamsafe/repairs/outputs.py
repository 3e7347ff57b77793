"""Repair of outputs of a graph that are kept over its next replay (SS412): a copy is kept."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from streamsafe.repairs.place import SIMPLE, Place, call_of, name_of
from streamsafe.repairs.tree import Codemod

_KEEPS = ("append", "put", "add")


def kept_output(place: Place) -> tuple[str, Codemod] | None:
    """SS412: a copy is kept, not the memory that the next replay overwrites."""
    kept = _kept(place)
    if not kept:
        return None
    copy = "copy" if place.hazard.memory.owner == "cupy" else "clone"
    mod = Codemod()
    for each in kept:
        mod.replace(each, lambda node: cst.Call(cst.Attribute(node, cst.Name(copy))))  # type: ignore[arg-type]
    return f"keep {place.code(kept[0])}.{copy}()", mod


def _kept(place: Place) -> Sequence[cst.BaseExpression]:
    """The expressions whose values are still used after the next replay."""
    node, line = place.node, place.line
    call = call_of(node)
    if isinstance(node, cst.Name):
        return _assigned(place, node)
    if call is not None and name_of(call) in _KEEPS and len(call.args) == 1:
        return _one(call.args[0].value)
    if isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Assign):
        statement = line.body[0]
        if len(statement.targets) == 1 and isinstance(statement.targets[0].target, cst.Subscript):
            return _one(statement.value)
    if isinstance(node, cst.ListComp):
        return _calls([node.elt])
    if isinstance(node, cst.DictComp):
        return _calls([node.value])
    if isinstance(node, (cst.List, cst.Tuple)):
        return _calls([each.value for each in node.elements])[:-1]  # nothing is replayed after the last one
    if isinstance(node, cst.BinaryOperation):
        return _calls([node.left, node.right])[:1]
    return ()


def _one(value: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    """What is stored: a value, or the only call in a dictionary."""
    if isinstance(value, cst.Dict):
        calls = [each.value for each in value.elements if isinstance(each.value, cst.Call)]
        return calls if len(calls) == 1 else ()
    return [value] if isinstance(value, (*SIMPLE, cst.Call)) else ()


def _calls(values: Sequence[cst.BaseExpression]) -> Sequence[cst.BaseExpression]:
    """Values that are all calls."""
    return values if all(isinstance(each, cst.Call) for each in values) else ()


def _assigned(place: Place, name: cst.Name) -> Sequence[cst.BaseExpression]:
    """The call that a name stands for, where the function assigns it once."""
    values = [
        node.value if isinstance(node, cst.Assign) and len(node.targets) == 1 else None
        for node in place.tree.walk(place.tree.scope(name))
        if isinstance(node, (cst.Assign, cst.AugAssign, cst.AnnAssign, cst.For, cst.NamedExpr))
        if name.value in _targets(node)
    ]
    return [values[0]] if len(values) == 1 and isinstance(values[0], cst.Call) else ()


def _targets(node: cst.CSTNode) -> set[str]:
    """The names that a statement assigns."""
    targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else [node.target]  # type: ignore[attr-defined]
    found: set[str] = set()
    for each in targets:
        parts = [part.value for part in each.elements] if isinstance(each, (cst.Tuple, cst.List)) else [each]
        found |= {part.value for part in parts if isinstance(part, cst.Name)}
    return found
