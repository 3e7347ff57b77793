"""The types of constructor parameters that are not annotated, as the calls of the class in the tree show them.

A wrapper is what it is made of: ``Runner(model)`` calls ``self.model``. Only what all calls agree on counts, and only
classes of the tree, streams, events and graphs: of memory the place matters, which differs from call to call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.modules import Definition
from streamsafe.static.syntax.scopes import dotted

if TYPE_CHECKING:
    from streamsafe.static.summary.facts import Facts
    from streamsafe.static.summary.solve import Engine

_STEPS: Final = 3
_ROLES: Final = frozenset(("stream", "event", "graph"))


class Constructed:
    """The calls of all classes of the tree, by the class's own name."""

    def __init__(self, engine: Engine, facts: Facts) -> None:
        self._engine = engine
        self._facts = facts
        self._index = engine.index
        self._calls: dict[str, list[tuple[Definition | None, str, ast.Call]]] | None = None
        self._known: dict[tuple[str, str], str] = {}

    def parameter(self, fn: ir.Function, name: str) -> str:
        """The type that every call in sight gives a parameter of ``__init__``; "" where they differ, or show none."""
        if fn.name != "__init__" or fn.cls is None or not fn.is_method:
            return ""
        key = (fn.fid, name)
        found = self._known.get(key)
        if found is None:
            self._known[key] = ""  # as long as it is looked for
            found = self._known[key] = self._parameter(fn, fn.cls, name)
        return found

    def _parameter(self, fn: ir.Function, cid: str, name: str) -> str:
        position = next((n for n, p in enumerate(fn.params[1:]) if p.name == name), None)
        types = set()
        for definition, module, call in self._calls_of(cid):
            given = next((each.value for each in call.keywords if each.arg == name), None)
            if given is None and position is not None and position < len(call.args):
                before = call.args[: position + 1]
                given = None if any(isinstance(each, ast.Starred) for each in before) else before[position]
            type = self._type(definition, module, given, _STEPS) if given is not None else ""
            if type:
                types.add(type)
        return types.pop() if len(types) == 1 else ""

    def _calls_of(self, cid: str) -> Iterable[tuple[Definition | None, str, ast.Call]]:
        if self._calls is None:
            self._calls = {}
            self._collect(self._calls)
        for definition, module, call in self._calls.get(self._index.classes[cid].name, ()):
            symbol = self._index.resolve(module, dotted(call.func))
            if symbol.kind == "class" and symbol.name == cid:
                yield definition, module, call

    def _collect(self, calls: dict[str, list[tuple[Definition | None, str, ast.Call]]]) -> None:
        names = {cls.name for cls in self._index.classes.values()}
        inside = {id(d.node): d for d in self._index.definitions.values()}

        for name, module in sorted(self._index.modules.items()):
            todo: list[tuple[ast.AST, Definition | None]] = [(module.tree, None)]
            while todo:
                node, definition = todo.pop()
                definition = inside.get(id(node), definition)
                if isinstance(node, ast.Call):
                    called = node.func
                    last = called.attr if isinstance(called, ast.Attribute) else ""
                    last = called.id if isinstance(called, ast.Name) else last
                    if last in names:
                        calls.setdefault(last, []).append((definition, name, node))
                todo.extend((child, definition) for child in ast.iter_child_nodes(node))

    def _type(self, definition: Definition | None, module: str, given: ast.expr, steps: int) -> str:
        """The type of an expression, by its form."""
        if not steps:
            return ""
        if isinstance(given, ast.Call):
            symbol = self._index.resolve(module, dotted(given.func))
            if symbol.kind == "class":
                return symbol.name
            type = self._engine.constructed(symbol.name) if symbol.kind == "library" else ""
            return type if self._engine.role(type) in _ROLES else ""
        if isinstance(given, ast.Name):
            return self._variable(definition, module, given.id, steps)
        if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name):
            if (
                definition is not None
                and definition.cls is not None
                and self._is_self(definition, given.value.id)
            ):
                field = self._facts.fields(definition.cls).get(given.attr)
                return self._counts(field.type) if field is not None else ""
        return ""

    def _variable(self, definition: Definition | None, module: str, name: str, steps: int) -> str:
        if definition is None:
            body: list[ast.stmt] | ast.expr = self._index.modules[module].tree.body
        else:
            arguments = definition.node.args
            for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if parameter.arg == name:
                    fn = self._engine.function(definition.fid)
                    return self._counts(self._facts.annotated(fn, name).type) if fn is not None else ""
            body = definition.node.body
        found = {
            self._type(definition, module, node.value, steps - 1)
            for statement in (body if isinstance(body, list) else [])
            for node in ast.walk(statement)
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        }
        return found.pop() if len(found) == 1 else ""

    def _counts(self, type: str) -> str:
        return type if ":" in type or self._engine.role(type) in _ROLES else ""

    @staticmethod
    def _is_self(definition: Definition, name: str) -> bool:
        arguments = definition.node.args
        first = (*arguments.posonlyargs, *arguments.args)[:1]
        return bool(first) and first[0].arg == name


__all__ = ["Constructed"]
