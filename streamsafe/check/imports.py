"""Which files of a project a file imports, by its import statements alone: what its result depends on.

The machine looks a name up in the folders above the file that names it; so does this, on the text of the statements, so
that nothing has to be parsed to know whether a result of an earlier check still holds, or who may call a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from streamsafe.project import footprint
from streamsafe.project.packages import PROJECT_MARKS

_STATEMENT = re.compile(
    rb"^[ \t]*(?:from[ \t]+[.\w \t]+?[ \t]*\bimport\b[ \t]*(?:\([^)]*\)|(?:[^\n\\]|\\\n)*)"
    rb"|import[ \t]+(?:[^\n\\]|\\\n)*)",
    re.MULTILINE,
)
_FROM = re.compile(r"from\s+([.\s]*)([\w.]*)\s*import\b\s*\(?(.*)", re.DOTALL)
_COMMENT = re.compile(r"#[^\n]*")
_DEFINED = re.compile(
    rb"^(?:[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|(\w+)[ \t]*(?::[^=\n]*)?=(?!=))", re.MULTILINE
)
_LIBRARIES = frozenset("torch torchvision numpy cupy cupyx cuda triton typing collections os sys".split())
"""What is not looked for: models say what these do."""
Binding = tuple[int, str, str]
"""How many folders up a module's name begins (zero: an absolute name), its name, and what is imported from it."""
REEXPORTS = 4
"""How many files may hand a name on."""
HIGHEST = 8
"""How many folders above a file are looked through."""


def statements(data: bytes) -> str:
    """The import statements of a text, a line each or several."""
    return "\n".join(found.decode("utf-8", "replace") for found in _STATEMENT.findall(data))


def names(text: str) -> Iterator[tuple[int, str]]:
    """The modules that import statements may mean: how many folders up they begin, and the dotted name.

    Zero is an absolute name. Of ``from a import b`` both ``a`` and ``a.b`` may be modules.
    """
    for each in _STATEMENT.findall(text.encode()):
        statement = _COMMENT.sub("", each.decode()).strip()
        found = _FROM.match(statement)
        if found is None:
            for part in statement.removeprefix("import").split(","):
                if part.split():
                    yield 0, part.split()[0]
            continue
        level, module = found[1].count("."), found[2]
        if module or level:
            yield level, module
        for part in found[3].rstrip(")").split(","):
            words = part.replace("\\", " ").split()
            if words and words[0].isidentifier():
                yield level, f"{module}.{words[0]}" if module else words[0]


def bindings(text: str) -> dict[str, Binding]:
    """What import statements bind: by the local name, what it stands for; all names of a module as the name ``*``."""
    found: dict[str, Binding] = {}
    for each in _STATEMENT.findall(text.encode()):
        statement = _COMMENT.sub("", each.decode()).strip()
        source = _FROM.match(statement)
        parts = source[3].rstrip(")") if source is not None else statement.removeprefix("import")
        for part in parts.split(","):
            name, *alias = part.replace("\\", " ").split()[::2] or ("",)
            local = alias[0] if alias else name
            if source is not None and name == "*":
                found[f"* {len(found)}"] = (source[1].count("."), source[2], name)
            elif source is not None and name.isidentifier():
                found[local] = (source[1].count("."), source[2], name)
            elif source is None and name:
                found[local if alias else name.rpartition(".")[2]] = (0, name, "")
    return found


def definitions(data: bytes) -> frozenset[str]:
    """The functions and classes of a text, those of inner blocks too, and the variables at its top."""
    return frozenset(
        (name or variable).decode("utf-8", "replace") for name, variable in _DEFINED.findall(data)
    )


def defined(data: bytes) -> frozenset[str] | None:
    """The functions, classes and imported names of a text.

    None where the text takes all names of another module: it may then have any name.
    """
    bound = bindings(statements(data))
    if any(name == "*" for _, _, name in bound.values()):
        return None
    return definitions(data) | bound.keys()


class Imports:
    """The files that files import.

    Args:
        text: the import statements of a file.
        data: the bytes of a file.
    """

    def __init__(self, text: Callable[[str], str], data: Callable[[str], bytes]) -> None:
        self.text = text
        self._data = data
        self._bound: dict[str, dict[str, Binding]] = {}
        self._direct: dict[str, tuple[str, ...]] = {}
        self._heads: dict[tuple[str, str], tuple[str, ...]] = {}
        self._found: dict[tuple[str, str], str | None] = {}
        self._reached: dict[str, frozenset[str]] = {}
        self._entered: dict[str, frozenset[str]] = {}
        self._origins: dict[str, tuple[str, ...]] = {}
        self._definitions: dict[str, frozenset[str]] = {}

    def direct(self, path: str) -> tuple[str, ...]:
        """The files that a file names in its import statements."""
        known = self._direct.get(path)
        if known is None:
            folder = os.path.dirname(path)
            found: dict[str, None] = {}
            for level, name in names(self.text(path)):
                file = self._file(folder, level, name)
                if file is not None and file != path:
                    found[file] = None
            known = self._direct[path] = tuple(found)
        return known

    def bound(self, path: str) -> dict[str, Binding]:
        """What the import statements of a file bind, by the local name."""
        known = self._bound.get(path)
        if known is None:
            known = self._bound[path] = bindings(self.text(path))
        return known

    def file(self, path: str, level: int, name: str) -> str | None:
        """The file of a module that a file names."""
        return self._file(os.path.dirname(path), level, name)

    def reached(self, path: str) -> frozenset[str]:
        """The file and all that it imports, directly and by others."""
        return _closure(path, self.direct, self._reached)

    def entered(self, path: str) -> frozenset[str]:
        """The file and those whose functions and classes its names stand for, directly and by others.

        Unlike :meth:`reached` it leaves out what a package imports beside the names that are asked of it.
        """
        return _closure(path, self.origins, self._entered)

    def origins(self, path: str) -> tuple[str, ...]:
        """The files that define what a file imports by name."""
        known = self._origins.get(path)
        if known is None:
            folder = os.path.dirname(path)
            found: dict[str, None] = {}
            for binding in self.bound(path).values():
                found |= dict.fromkeys(self._defining(folder, *binding, 0))
            found.pop(path, None)
            known = self._origins[path] = tuple(found)
        return known

    def _defining(self, folder: str, level: int, module: str, name: str, depth: int) -> list[str]:
        """The files that define what a name of a module stands for, through those that hand it on."""
        file = self._file(folder, level, module)
        if file is None or depth > REEXPORTS or name[:2] == "__":
            return []
        if name in ("", "*") or name in self._defined_in(file):
            return [file]
        inner = self._file(folder, level, f"{module}.{name}".strip("."))
        found = [inner] if inner is not None else []
        above = os.path.dirname(file)
        bound = self.bound(file)
        if name in bound:
            found += self._defining(above, *bound[name], depth + 1)
        elif name[0] != "_":
            for at, source, given in bound.values():
                if given == "*":
                    found += self._defining(above, at, source, name, depth + 1)
        return found

    def _defined_in(self, path: str) -> frozenset[str]:
        known = self._definitions.get(path)
        if known is None:
            known = self._definitions[path] = definitions(self._data(path))
        return known

    def _file(self, folder: str, level: int, name: str) -> str | None:
        return self._relative(folder, level, name) if level else self._absolute(folder, name)

    def _relative(self, folder: str, level: int, name: str) -> str | None:
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        key = (folder, "." + name)
        if key not in self._found:
            footprint.note(os.path.join(folder, name.partition(".")[0]) if name else folder)
            self._found[key] = _module(folder, name)
        return self._found[key]

    def _absolute(self, folder: str, name: str) -> str | None:
        head = name.partition(".")[0]
        if head in _LIBRARIES:
            return None
        key = (folder, name)
        if key not in self._found:
            places = (_module(place, name) for place in self._with_head(folder, head))
            self._found[key] = next((place for place in places if place is not None), None)
        return self._found[key]

    def _with_head(self, folder: str, head: str) -> tuple[str, ...]:
        """The folders above a file that hold a module or a package of a name."""
        key = (folder, head)
        known = self._heads.get(key)
        if known is None:
            here = os.path.join(folder, head)
            footprint.note(here)
            own = (folder,) if os.path.exists(here + ".py") or os.path.isdir(here) else ()
            up = os.path.dirname(folder)
            above = self._with_head(up, head) if up != folder and not _is_root(folder) else ()
            known = self._heads[key] = (*own, *above)[:HIGHEST]
        return known


def _closure(
    path: str, step: Callable[[str], tuple[str, ...]], known: dict[str, frozenset[str]]
) -> frozenset[str]:
    """A file and all that steps lead to. What is found is kept in ``known``."""
    if path not in known:
        seen = {path}
        todo = [path]
        while todo:
            for file in step(todo.pop()):
                done = known.get(file)
                if done is not None:
                    seen |= done
                elif file not in seen:
                    seen.add(file)
                    todo.append(file)
        known[path] = frozenset(seen)
    return known[path]


_roots: dict[str, bool] = {}


def _is_root(folder: str) -> bool:
    known = _roots.get(folder)
    if known is None:
        known = _roots[folder] = any(os.path.exists(os.path.join(folder, mark)) for mark in PROJECT_MARKS)
    return known


def _module(folder: str, name: str) -> str | None:
    """The file of a module below a folder; of no name, the folder's own."""
    place = os.path.join(folder, *name.split(".")) if name else folder
    for path in (
        (place + ".py", os.path.join(place, "__init__.py")) if name else (os.path.join(place, "__init__.py"),)
    ):
        if os.path.exists(path):
            return path
    return None
