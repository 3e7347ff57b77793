"""Which classes a tree uses, as far as names say.

Two methods of a class that nobody calls may be called one after the other by whoever uses the class. Where the tree
uses the class, its own calls decide: what the analysis does not resolve of them does nothing, and a method that none
of them calls is not part of how the class is used.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from streamsafe.project import footprint

_PLAIN = frozenset(
    {"attr", "attrs", "dataclass", "dataclasses", "final", "runtime_checkable", "total_ordering"}
)
"""Decorators that give nobody the class."""


class TreeUses:
    """Looks for uses of classes by name in all files of a project, when it is asked.

    Args:
        projects: the paths of the files of each project.
    """

    def __init__(self, projects: Iterable[Collection[str]]) -> None:
        self._project_of: dict[str, list[str]] = {}
        for project in projects:
            self._project_of |= dict.fromkeys(project, sorted(project))
        self._texts: dict[str, bytes] = {}
        self._uses: dict[str, _Uses] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def is_used(self, path: str, class_name: str) -> bool:
        """Whether the project of a file uses a class outside its body, by its name, a decorator or a derived class.

        Args:
            path: the file that defines the class.
            class_name: its name.
        """
        found = self._known.get((path, class_name))
        if found is None:
            self._known[path, class_name] = False  # of classes that derive from each other none is used so
            found = self._known[path, class_name] = any(
                (class_name in uses.names and (other == path or class_name not in uses.classes))
                or (other == path and class_name in uses.registered)
                or any(self.is_used(other, heir) for heir in uses.heirs.get(class_name, ()))
                for other, uses in self._with(path, class_name)
            )
        return found

    def _with(self, path: str, word: str) -> Iterator[tuple[str, _Uses]]:
        """The files of a project in which a word stands, and what they use."""
        for other in self._project_of.get(path, [path]):
            if word.encode() in self._text(other):
                yield other, self._uses_of(other)

    def _text(self, path: str) -> bytes:
        found = self._texts.get(path)
        if found is None:
            footprint.note(path)
            try:
                with open(path, "rb") as file:
                    found = file.read()
            except OSError:
                found = b""
            self._texts[path] = found
        return found

    def _uses_of(self, path: str) -> _Uses:
        found = self._uses.get(path)
        if found is None:
            try:
                found = _Uses(ast.parse(self._text(path)))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                found = _Uses(ast.Module([], []))
            self._uses[path] = found
        return found


class _Uses:
    """What a file uses.

    Attributes:
        names: names and attributes that it reads; in the body of a class not the class's own.
        classes: the classes that it defines: their names mean none of another file.
        registered: those of them that a decorator is given.
        heirs: by the name of a class, those that derive from it here.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self.classes: set[str] = set()
        self.registered: set[str] = set()
        self.heirs: dict[str, set[str]] = {}
        todo: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
        while todo:
            node, inside = todo.pop()
            if isinstance(node, ast.ClassDef):
                inside = inside | {node.name}
                self._define(node)
                todo += [(child, inside) for child in (*node.decorator_list, *node.keywords, *node.body)]
                continue  # a base is no use: objects of the derived class are others
            if isinstance(node, ast.Name):
                self.names |= {node.id} - inside
            elif isinstance(node, ast.Attribute):
                self.names |= {node.attr} - inside
            todo += [(child, inside) for child in ast.iter_child_nodes(node)]

    def _define(self, node: ast.ClassDef) -> None:
        self.classes.add(node.name)
        for base in node.bases:
            self.heirs.setdefault(_last_name(base), set()).add(node.name)
        if any(_first_name(decorator) not in _PLAIN for decorator in node.decorator_list):
            self.registered.add(node.name)


def _last_name(base: ast.expr) -> str:
    """``Base`` of ``package.Base`` and of ``Base[T]``."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _first_name(decorator: ast.expr) -> str:
    """``package`` of ``@package.register("name")``."""
    while isinstance(decorator, (ast.Call, ast.Attribute)):
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    return getattr(decorator, "id", "")


__all__ = ["TreeUses"]
