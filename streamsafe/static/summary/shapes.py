"""Structural typing: the one class of the tree that has all attributes which a program uses of something untyped.

``def finish(self, bucket): bucket.handle.wait(); return bucket.data`` is about the class that has a ``handle`` and a
``data``, if there is one such class. Names that tensors, streams and modules have say nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from streamsafe.static.syntax import cfg, ir

if TYPE_CHECKING:
    from streamsafe.static.summary.solve import Engine

ELEMENT: Final = "[]"
"""Ends the name of what is an element of something."""

_FEWEST: Final = 2
_LIBRARY_TYPES: Final = (
    "torch.Tensor",
    "torch.cuda.Stream",
    "torch.cuda.Event",
    "torch.nn.Module",
    "cupy.ndarray",
    "builtins.dict",
    "builtins.list",
)


class Shapes:
    """The attributes of all classes of the tree."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._index = engine.index
        self._classes: dict[str, frozenset[str]] = {}
        self._having: dict[str, set[str]] | None = None
        self._known: dict[frozenset[str], str] = {}

    def matching(self, used: Iterable[str]) -> str:
        """The class that has all of some attributes, and none else but its bases and subclasses has; or ""."""
        names = frozenset(used)
        found = self._known.get(names)
        if found is None:
            found = self._known[names] = self._matching(names)
        return found

    def _matching(self, names: frozenset[str]) -> str:
        if len(names) < _FEWEST or not any(map(self._says_something, names)):
            return ""
        having = self._all()
        classes = set.intersection(*(having.get(name, set()) for name in names))
        if not classes:
            return ""
        for cid in sorted(classes):
            if all(cid in self._index.mro(other) for other in classes):
                return cid
        return ""

    def _says_something(self, name: str) -> bool:
        models = self._engine.models
        return name not in models.metadata and not any(models.method(type, name) for type in _LIBRARY_TYPES)

    def _all(self) -> Mapping[str, set[str]]:
        if self._having is None:
            self._having = {}
            for cid in sorted(self._index.classes):
                for each in self._index.mro(cid):
                    for name in self._of_class(each):
                        self._having.setdefault(name, set()).add(cid)
        return self._having

    def _of_class(self, cid: str) -> frozenset[str]:
        """The attributes that a class defines, or that its methods store in their object."""
        found = self._classes.get(cid)
        if found is None:
            cls = self._index.classes[cid]
            names = {*cls.methods, *cls.annotated, *cls.assigned, *cls.inner}
            for fid in cls.methods.values():
                names |= _stored(self._index.definitions[fid].node)
            found = self._classes[cid] = frozenset(names)
        return found


def _stored(node: ast.AST) -> set[str]:
    """The attributes that a method stores in its first parameter."""
    arguments: ast.arguments | None = getattr(node, "args", None)
    first = (*arguments.posonlyargs, *arguments.args)[:1] if arguments is not None else ()
    return {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and any(parameter.arg == inner.value.id for parameter in first)
    }


def uses(fn: ir.Function, roots: Mapping[ir.Reg, str], me: ir.Reg | None = None) -> dict[str, set[str]]:
    """The attributes that a function uses of what its parameters hold, or of the fields of its object.

    Args:
        roots: registers at entry -> names.
        me: the register of the object of a method: its fields have their own names.

    Returns:
        Name, or name with :data:`ELEMENT` for its elements -> attributes.
    """
    names: dict[ir.Reg, str] = dict(roots)
    found: dict[str, set[str]] = {}
    for number in cfg.graph(fn).order:
        for i in fn.blocks[number].instrs:
            if isinstance(i, ir.Attr):
                if me is not None and i.obj == me:
                    names[i.dst] = i.name
                elif i.obj in names:
                    found.setdefault(names[i.obj], set()).add(i.name)
            elif isinstance(i, ir.SetAttr):
                if i.obj in names and i.obj != me:
                    found.setdefault(names[i.obj], set()).add(i.name)
            elif isinstance(i, ir.Item):
                if i.obj in names:
                    names[i.dst] = names[i.obj] + ELEMENT
            elif isinstance(i, ir.Iter):
                if i.src in names:
                    names[i.dst] = names[i.src]
            elif isinstance(i, ir.Next):
                if i.iterator in names:
                    names[i.dst] = names[i.iterator] + ELEMENT
            elif isinstance(i, ir.Move):
                if i.src in names:
                    names[i.dst] = names[i.src]
                elif i.dst in names:
                    del names[i.dst]
    return found


__all__ = ["ELEMENT", "Shapes", "uses"]
