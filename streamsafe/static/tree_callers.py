"""Which methods have a caller somewhere in the tree, as far as names say.

Two methods of a class that nobody calls may be called one after the other by whoever uses the class. Where the tree
uses the class and calls both, its own calls decide: what the analysis does not resolve of them does nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from streamsafe.static import footprint

_OWN = frozenset({"self", "cls"})
"""The receivers of a call of the same object's method."""


class TreeCallers:
    """Looks for callers by name in all files of a project, when it is asked.

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

    def has_caller(self, path: str, method: str) -> bool:
        """Whether the project of a file uses the class of a method outside its body, and calls the method by its name.

        What an instance's own call, iteration and ``with`` run counts as called where the class is used.

        Args:
            path: the file that defines the class.
            method: its qualified name: ``Class.method``.
        """
        found = self._known.get((path, method))
        if found is None:
            owner, _, name = method.rpartition(".")
            class_name = owner.rpartition(".")[2]
            found = self._is_used(path, class_name) and (_is_implicit(name) or self._is_called(path, name))
            self._known[path, method] = found
        return found

    def _is_used(self, path: str, class_name: str) -> bool:
        return any(
            class_name in uses.names and (other == path or class_name not in uses.classes)
            for other, uses in self._with(path, class_name)
        )

    def _is_called(self, path: str, name: str) -> bool:
        return any(name in uses.called for _, uses in self._with(path, name))

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
        called: the methods that it calls on something else than the object itself.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self.classes: set[str] = set()
        self.called: set[str] = set()
        todo: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
        while todo:
            node, inside = todo.pop()
            if isinstance(node, ast.ClassDef):
                inside = inside | {node.name}
                self.classes.add(node.name)
                todo += [(child, inside) for child in (*node.decorator_list, *node.keywords, *node.body)]
                continue  # a base is no use: objects of the derived class are others
            if isinstance(node, ast.Name):
                self.names |= {node.id} - inside
            elif isinstance(node, ast.Attribute):
                self.names |= {node.attr} - inside
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if not _is_of_same_object(node.func.value):
                    self.called.add(node.func.attr)
            todo += [(child, inside) for child in ast.iter_child_nodes(node)]


def _is_of_same_object(receiver: ast.expr) -> bool:
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Name):
        return receiver.func.id == "super"
    return isinstance(receiver, ast.Name) and receiver.id in _OWN


def _is_implicit(name: str) -> bool:
    """Whether Python, or a module's ``__call__``, runs a method that nobody calls by its name."""
    return name == "forward" or (name.startswith("__") and name.endswith("__"))


__all__ = ["TreeCallers"]
