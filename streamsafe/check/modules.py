"""The files of a project: parsed when they are asked for, found by the names that imports give them."""

from __future__ import annotations

import ast
import os
import re

from streamsafe.project.settings import Model
from streamsafe.project.text import SourceError, parse, read

from .imports import defined
from .source import Class, Function, Module

_LIBRARIES = ("torch.", "numpy.", "cupy.", "builtins.")
Names = dict[str, frozenset[str] | None]
_DEEPEST = 200
"""Brackets inside each other that are parsed: as many as CPython's parser takes."""


def tree_of(text: str) -> ast.Module:
    """The syntax tree of a file, whatever supported Python it is written for.

    Raises:
        SourceError: it is no Python of any supported version, or is nested too deeply.
    """
    try:
        return parse(text)
    except SourceError as error:
        if not isinstance(error.__cause__, SyntaxError) or _depth(text) > _DEEPEST:
            raise
        import libcst  # takes long to load, and is needed for hardly any file

        from .lowering import parsed

        try:
            return parsed(text)
        except (
            libcst.ParserSyntaxError,
            SyntaxError,
            ValueError,
        ):  # the latter: a literal that makes no sense
            raise error from error.__cause__


def _depth(text: str) -> int:
    """How many brackets stand inside each other at most, those in strings and comments too."""
    depth = deepest = 0
    for character in re.findall(r"[][(){}]", text):
        depth = depth + 1 if character in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


class Project:
    """The files of a tree.

    Args:
        files: those that are checked; others are found through imports.
        defined: what an earlier project has found out of the names of files; it is added to.

    Attributes:
        parsed: how many characters of source are parsed.
        defined: the names that files have, by path; None for a file that may have any name.
    """

    def __init__(self, files: list[str], defined: Names | None = None) -> None:
        self.files = files
        self.defined: Names = {} if defined is None else defined
        self.wrappers: dict[str, Model] = {}
        self.modules: dict[str, Module | None] = {}
        self.parsed = 0
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

    def load(self, path: str, text: str) -> Module:
        """The file at a path, of which the text is known.

        Raises:
            SourceError: it cannot be parsed.
        """
        module = self.modules.get(path)
        if module is None:
            module = self.modules[path] = Module(path, text, tree_of(text), self)
            self.parsed += len(text)
        return module

    def module(self, path: str) -> Module | None:
        """The file at a path; None where it cannot be read or parsed."""
        if path not in self.modules:
            self.modules[path] = None
            try:
                with open(path, "rb") as opened:
                    data = opened.read()
                self.load(path, read(data, path).text)
            except (SourceError, OSError):
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
                elif found is None and last not in m.globals:
                    found = self.starred(m, last, depth)
        else:
            owner = self.lookup(module, near, depth + 1) if "." in module else None
            if isinstance(owner, Class):
                found = owner.method(last)
        self._found[key] = found
        return found

    def starred(self, m: Module, name: str, depth: int = 0) -> Class | Function | None:
        """A class or function that a file imports with all names of a module.

        Args:
            depth: how many re-exports were followed.
        """
        if name.startswith("_"):
            return None
        for star in m.stars:
            path = self.find_file(star, m.path)
            if path is None or self._may_define(path, name):
                found = self.lookup(f"{star}.{name}", m.path, depth + 1)
                if found is not None:
                    return found
        return None

    def _may_define(self, path: str, name: str) -> bool:
        """Whether a file may have a name. Asked of its text: a package may take all names of hundreds of files."""
        if path in self.modules:
            return True
        if path not in self.defined:
            try:
                with open(path, "rb") as opened:
                    self.defined[path] = defined(opened.read())
            except OSError:
                self.defined[path] = frozenset()
        names = self.defined[path]
        return names is None or name in names
