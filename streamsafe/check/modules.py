"""The files of a project: parsed when they are asked for, found by the names that imports give them."""

from __future__ import annotations

import ast
import os

from .source import Class, Function, Module

_LIBRARIES = ("torch.", "numpy.", "cupy.", "builtins.")
_MAX_LINES_LEFT_OUT = 8


def parsed(text: str) -> ast.Module:
    """The tree of a file; a few lines that are no Python are left out.

    Raises:
        SyntaxError: what is no Python is not confined to a few lines.
    """
    for _ in range(_MAX_LINES_LEFT_OUT):
        try:
            return ast.parse(text)
        except SyntaxError as e:
            lines = text.split("\n")
            if not e.lineno or e.lineno > len(lines) or not lines[e.lineno - 1].strip():
                raise
            lines[e.lineno - 1] = ""
            text = "\n".join(lines)
    return ast.parse(text)


class Project:
    """The files of a tree.

    Args:
        files: those that are checked; others are found through imports.
    """

    def __init__(self, files: list[str]) -> None:
        self.files = files
        self.modules: dict[str, Module | None] = {}
        self._packages: dict[str, bool] = {}
        self._found: dict[tuple[str, str], Class | Function | None] = {}
        self._files: dict[tuple[str, str], str | None] = {}

    def package_of(self, path: str) -> str:
        """The dotted name of the package that a file stands in."""
        folder = os.path.dirname(os.path.abspath(path))
        parts = []
        while self._is_package(folder):
            parts.append(os.path.basename(folder))
            folder = os.path.dirname(folder)
        return ".".join(reversed(parts))

    def _is_package(self, folder: str) -> bool:
        if folder not in self._packages:
            self._packages[folder] = os.path.exists(os.path.join(folder, "__init__.py"))
        return self._packages[folder]

    def module(self, path: str, text: str | None = None) -> Module | None:
        """The file at a path; None where it cannot be read or parsed."""
        if path not in self.modules:
            self.modules[path] = None
            try:
                if text is None:
                    with open(path, encoding="utf-8", errors="replace") as f:
                        text = f.read()
                self.modules[path] = Module(path, text, parsed(text), self)
            except (SyntaxError, ValueError, RecursionError, OSError):
                pass
        return self.modules[path]

    def find_file(self, name: str, near: str) -> str | None:
        """The file of a dotted module name, looked up in the folders above a file."""
        folder = os.path.dirname(near)
        key = (name, folder)
        if key not in self._files:
            self._files[key] = self._find_file(name, os.path.abspath(folder))
        return self._files[key]

    def _find_file(self, name: str, folder: str) -> str | None:
        relative = name.replace(".", os.sep)
        for _ in range(8):
            for path in (
                os.path.join(folder, relative + ".py"),
                os.path.join(folder, relative, "__init__.py"),
            ):
                if os.path.exists(path):
                    return path
            up = os.path.dirname(folder)
            if up == folder or not up.strip("/"):
                break
            folder = up
        return None

    def lookup(self, name: str, near: str = "", depth: int = 0) -> Class | Function | None:
        """A class or function by its full dotted name, through re-exports.

        Args:
            near: the file that names it.
        """
        if "." not in name or depth > 4 or name.startswith(_LIBRARIES):
            return None
        key = (name, os.path.dirname(near))
        if key in self._found:
            return self._found[key]
        self._found[key] = None
        module, _, last = name.rpartition(".")
        path = self.find_file(module, near or (self.files[0] if self.files else "."))
        found: Class | Function | None = None
        if path:
            m = self.module(path)
            if m:
                found = m.classes.get(last) or m.functions.get(last)
                if found is None and last in m.imports and m.imports[last] != name:
                    found = self.lookup(m.imports[last], path, depth + 1)
        else:
            owner = self.lookup(module, near, depth + 1) if "." in module else None
            if isinstance(owner, Class):
                found = owner.method(last)
        self._found[key] = found
        return found
