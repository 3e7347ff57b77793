"""Attributes that methods other than the constructor assign or fill: before such a call they are not there."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from streamsafe.static import stream_terms
from streamsafe.static.source import ClassUnit, SourceFile

_HARMLESS = frozenset("object ABC Generic Protocol".split())
"""Bases that assign nothing."""
_DYNAMIC = frozenset("setattr vars __dict__ __getattr__ __getattribute__ __setattr__".split())
_CONSTRUCTORS = frozenset("__init__ __new__ __post_init__ setUp asyncSetUp setup_method __setstate__".split())


def late_attributes(file: SourceFile, classes: Iterable[ClassUnit]) -> set[str] | None:
    """The attributes of ``self`` that neither the constructor nor what it calls assigns, but some other method.

    To read one before is an error, so the methods that do are called after one that assigns it.

    Args:
        file: where the classes stand.
        classes: the class and its bases in the file.

    Returns:
        Their names; None where a base is not seen, or attributes are assigned by computed names: any may be there.
    """
    known = list(classes)
    names = {unit.name for unit in known}
    assigned: dict[str, set[str]] = {}  # by method
    calls: dict[str, set[str]] = {}
    early: set[str] = set()
    for unit in known:
        if any(base.rpartition(".")[2] not in _HARMLESS | names for base in unit.bases):
            return None
        early |= {*unit.attributes, *unit.annotations, *unit.methods}
        for qualname, definitions in file.definitions.items():
            owner, _, method = qualname.partition(".")
            if owner != unit.name:
                continue
            for definition in definitions:
                if definition.calls & _DYNAMIC or method in _DYNAMIC:
                    return None
                name = method.partition(".")[0]
                assigned.setdefault(name, set()).update(_assigned(definition.node))
                calls.setdefault(name, set()).update(definition.called_on_self)
    added = set(_CONSTRUCTORS)
    constructing: set[str] = set()
    while added:
        constructing |= added
        added = set().union(*(calls.get(name, ()) for name in added)) - constructing
    for name in constructing & assigned.keys():
        early |= assigned.pop(name)
    return set().union(*assigned.values()) - early


def reassigned_attributes(file: SourceFile, classes: Iterable[ClassUnit]) -> set[str]:
    """The attributes of ``self`` that a method other than the constructor assigns.

    Args:
        file: where the classes stand.
        classes: the class and its bases in the file.
    """
    names = {unit.name for unit in classes}
    return {
        name
        for qualname, definitions in file.definitions.items()
        if qualname.partition(".")[0] in names and qualname.split(".")[1:2] != ["__init__"]
        for definition in definitions
        for name in _assigned(definition.node)
    }


def _assigned(function: ast.AST) -> Iterable[str]:
    for node in stream_terms.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                yield node.attr
