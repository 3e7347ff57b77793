"""Linking: a file and the definitions of its project that it uses, as one text.

The interpreter sees one file. What a class of another file does with its stream is in sight once its definition stands
in the same text: the definitions that a file imports from its own project, and what these use, are put above it, each
at the columns where it stands in its own file. Rows of the linked text lead back to files and rows.

Only names are resolved, by the rules of Python's imports. A definition one of whose names means something else in the
linked text is left out, and so is what does not fit into the limits: it stays an import, of which nothing is known.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from streamsafe.check import prefilter
from streamsafe.order.hazard import Conflict, Frame, Span
from streamsafe.static.index import Entry, using
from streamsafe.static.modules import (
    Binding,
    Module,
    Statement,
    parsed,
    resolved,
)

STATEMENTS: Final = 240
"""Statements of definitions of other files that are linked to a file, at most: comments and layout do not count."""
LONGEST: Final = 180
"""Statements of one such definition, at most."""
SHORT: Final = 25
"""Statements of a definition that has nothing to do with streams, at most: it may be what reads or keeps memory."""
DEPTH: Final = 4
"""How many imports away from the file a definition may be."""
CALLERS: Final = 3
"""How many files away from stream code the last caller may be."""
MOST_IMPORTERS: Final = 8
"""What more files import is one of the project's common tools, and who calls it is not followed."""

_OF_DEVICES: Final = frozenset({"torch", "cupy"})

_IS_IMPORT: Final = re.compile(r"(?:from|import)\b")

T = TypeVar("T")


class Segment(NamedTuple):
    """Rows of the linked text that are a file's: the first of them there and in the file, and how many there are."""

    path: str
    start: int
    first: int
    length: int


@dataclass(slots=True)
class Linked:
    """A linked text.

    Attributes:
        text: what is interpreted.
        segments: where each file lies in it, in order.
        definitions: those of other files: file, first and last row there.
        cut_short: whether a limit left definitions out.
    """

    text: str
    segments: list[Segment]
    definitions: tuple[tuple[str, int, int], ...] = ()
    cut_short: bool = False

    @property
    def own(self) -> range:
        """The rows of the file itself."""
        last = self.segments[-1]
        return range(last.start, last.start + last.length)

    def unlink(self, conflict: Conflict) -> Conflict:
        """A conflict of the linked text, as one of the files that it is made of."""
        return self._mapped(conflict)

    def place(self, first: int, last: int) -> tuple[str, int, int]:
        """Rows of the linked text as a file's: the file, the first and the last row."""
        at = self._file(first)
        up = at.start - at.first
        return at.path, first - up, last - up

    def _file(self, row: int) -> Segment:
        return next((each for each in reversed(self.segments) if row >= each.start), self.segments[0])

    def _mapped(self, part: T) -> T:
        """A part of a conflict with all its places in their own files."""
        if isinstance(part, Span):
            at = self._file(part.row)
            up = at.start - at.first
            return replace(part, filename=at.path, row=part.row - up, end_row=part.end_row - up)
        if isinstance(part, Frame):
            at = self._file(part.line)
            return replace(part, filename=at.path, line=part.line - at.start + at.first)
        if isinstance(part, tuple):
            return cast(T, tuple(map(self._mapped, part)))
        if is_dataclass(part) and not isinstance(part, type):
            held: dict[str, Any] = {each.name: getattr(part, each.name) for each in fields(part)}
            changed = {
                name: self._mapped(value)
                for name, value in held.items()
                if isinstance(value, tuple) or is_dataclass(value)
            }
            return replace(part, **changed) if changed else part
        return part


@dataclass(slots=True)
class _Linker:
    """What is put into one linked text.

    Attributes:
        root: the file.
        related: names of what has to do with streams.
        meanings: what each name of the text's top level means.
        included: file -> row -> the statement of it that is in the text. A parsed file may be forgotten and parsed
            again meanwhile: files and statements are known by path and row, not by identity.
        names: what these bind, and what names they are used by.
        size: how many statements they have.
        cut_short: whether a limit left definitions out.
    """

    root: Module
    related: Set[str]
    meanings: dict[str, Binding] = field(default_factory=dict)
    included: dict[str, dict[int, Statement]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    size: int = 0
    cut_short: bool = False

    def run(self) -> None:
        """Find the definitions that the file uses, the nearest first."""
        for name in self.root.bound:
            self.meanings[name] = (self.root.path, name)
        todo = deque((each, 0) for each in self.root.statements)
        while todo:
            statement, depth = todo.popleft()
            for where, name in statement.uses:
                if where == self.root.path:
                    self.names.add(name)
                    continue
                found = resolved(where, name) if depth < DEPTH else None
                if found is None:
                    continue
                if self._holds(found):
                    self.names.add(name)
                elif self._include(found):
                    self.names.update((name, *found.names))
                    deeper = depth + (found.module.path != statement.module.path)
                    todo.append((found, deeper))
                    for other in found.module.filled.get(name, ()):
                        if not self._holds(other) and self._include(other):
                            self.names.update(other.names)
                            todo.append((other, deeper))

    def _include(self, statement: Statement) -> bool:
        """Put a definition into the text, unless a name of it means something else there, or it is too long."""
        related = statement.names_streams or not self.related.isdisjoint(statement.words)
        size = statement.size
        if size > (LONGEST if related else SHORT) or self.size + size > STATEMENTS:
            self.cut_short = self.cut_short or statement.names_streams
            return False
        if not statement.is_definition and not statement.module.rebound.isdisjoint(statement.names):
            return False  # what it is later is assigned by functions, which may not be in the text
        wanted = statement.meanings
        if any(self._meaning(name) not in (None, meaning) for name, meaning in wanted.items()):
            return False
        self.meanings.update(wanted)
        self.size += size
        self.included.setdefault(statement.module.path, {})[statement.first] = statement
        return True

    def _meaning(self, name: str) -> Binding | None:
        """What a name means in the text, as far as it is made."""
        dotted = self.root.library(name) if name not in self.meanings else None
        return ("", dotted) if dotted is not None else self.meanings.get(name)

    def _holds(self, statement: Statement) -> bool:
        path = statement.module.path
        return path == self.root.path or statement.first in self.included.get(path, {})

    def held(self, where: str, name: str) -> Statement | None:
        """The statement of the text that binds a name of a module."""
        if name not in self.names:
            return None  # which spares reading the module
        found = resolved(where, name)
        return found if found is not None and self._holds(found) else None


def link(path: str, related: Set[str] = frozenset()) -> Linked | None:
    """A file with the definitions of its project that it uses; None where there are none that matter.

    They matter where the file, or one of them, names streams, events, captures or copies that do not block, or where a
    host clock is read beside a device.

    Args:
        path: the file.
        related: names of definitions that have to do with streams; of others only short ones are linked.
    """
    root = parsed(path)
    if root is None:
        return None
    linker = _Linker(root, related)
    linker.run()
    statements = [each for some in linker.included.values() for each in some.values()]
    if not any(each.is_definition for each in statements):
        return Linked("", [], cut_short=True) if linker.cut_short else None
    return _text(linker)


class Callers(NamedTuple):
    """What of a project calls stream code that others define.

    Attributes:
        files: the callers, without named files that have stream code themselves.
        related: the names of all that has to do with streams.
        clocks: the names of what reads a host clock.
    """

    files: list[str]
    related: frozenset[str]
    clocks: frozenset[str]


def callers(named: Set[str], known: Mapping[str, Entry]) -> Callers:
    """The files of a project that import what others define of streams, as far as that may show in named files.

    So do files that import what reads a host clock, if they import a library of a device, too.

    Args:
        named: the files whose hazards are shown.
        known: all files of a project.
    """
    exported = {path: each.exported for path, each in known.items() if each.exported}
    clocks = frozenset[str]().union(*(each.clocks for path, each in known.items() if path in named))
    files: set[str] = set()
    for _ in range(CALLERS):
        shown = {path: names for path, names in exported.items() if path in named or path in files}
        found = _importers(named, known, exported, shown, clocks) - files
        files |= found
        # what calls stream code of another file is stream code to its own callers
        given = frozenset[str]().union(*exported.values())
        more = {path: using(path, known[path].imports & given) for path in sorted(found)}
        if not any(more.values()):
            break
        exported |= {path: names | exported.get(path, names) for path, names in more.items() if names}
    related = frozenset[str]().union(*exported.values())
    return Callers(sorted(files), related, clocks)


def _importers(
    named: Set[str],
    known: Mapping[str, Entry],
    exported: Mapping[str, frozenset[str]],
    shown: Mapping[str, frozenset[str]],
    clocks: frozenset[str],
) -> set[str]:
    """The files that import what others define of streams, without what more files import than are followed.

    Args:
        named: the files whose hazards are shown.
        known: all files of a project.
        exported: by file, the names of what has to do with streams.
        shown: the same of the named files and of their callers: other files matter as callers of these.
        clocks: the names of what reads a host clock.
    """
    anywhere, there = _words(exported), _words(shown)
    by_name: dict[str, list[str]] = {}
    for path, each in known.items():
        if path not in named:
            wanted = there
        elif not each.relevant:
            wanted = anywhere
        else:
            continue
        if not each.imports.isdisjoint(_OF_DEVICES):
            wanted |= clocks
        for name in each.imports & wanted:
            by_name.setdefault(name, []).append(path)
    return {path for some in by_name.values() if len(some) <= MOST_IMPORTERS for path in some}


def _words(exported: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The words by which an import may name what files define."""
    return frozenset[str]().union(*exported.values(), (Path(path).stem for path in exported))


def _text(linker: _Linker) -> Linked | None:
    lines: list[str] = []
    segments: list[Segment] = []
    for path in [*reversed(linker.included), linker.root.path]:  # what is used stands above who uses it
        for first, rows in _blocks(linker, path):
            segments.append(Segment(path, len(lines) + 1, first, len(rows)))
            lines += rows
    text = "\n".join(lines)
    source = text.encode()
    if not prefilter.names_streams(source) and not prefilter.measures(source):
        return None
    definitions = tuple(
        (path, each.first, each.last) for path, some in linker.included.items() for each in some.values()
    )
    return Linked(text, segments, definitions, linker.cut_short)


def _blocks(linker: _Linker, path: str) -> list[tuple[int, list[str]]]:
    """The rows of a module that are in the text, in pieces with the first row of each.

    Imports of what is linked are left out. Of the file itself all rows are there: what is left out of it is blank.
    """
    if path == linker.root.path:
        module = linker.root
        own, kept = list(module.lines), list(module.statements)
        for statement in _unrelated(linker):
            own[statement.first - 1 : statement.last] = [""] * (statement.last - statement.first + 1)
            kept.remove(statement)
    else:
        kept = list(linker.included[path].values())
        module = kept[0].module
        kept += _libraries(module, kept)
        own = list(module.lines)
    of_project = module.of_project
    for statement in kept:
        if "import" not in statement.words and statement.words.isdisjoint(of_project):
            continue
        for node in statement.parts.imports:
            if isinstance(node, ast.ImportFrom):
                _without_linked(linker, module, own, node)
        for attribute in statement.parts.attributes:
            meant = module.attribute(attribute)
            if meant is not None and linker.held(*meant) is not None:
                _without_module(own, attribute)
    if module is linker.root:
        return [(1, own)]
    rows = sorted({row for each in kept for row in range(each.first, each.last + 1)})
    starts = [row for row, before in zip(rows, [-1, *rows], strict=False) if row != before + 1]
    ends = [row for row, after in zip(rows, [*rows[1:], -1], strict=True) if after != row + 1]
    return [(start, own[start - 1 : end]) for start, end in zip(starts, ends, strict=True)]


def _unrelated(linker: _Linker) -> list[Statement]:
    """The definitions of a file without stream code that have nothing to do with any: they cost time only."""
    root = linker.root
    definitions = [each for each in root.statements if each.is_definition]
    if any(each.names_streams for each in root.statements):
        return []
    names = linker.related | {
        name for name, (_, inner, _) in root.imported.items() if inner in linker.related
    }
    kept = [each for each in definitions if not names.isdisjoint(each.words)]
    for statement in kept:  # which grows: who calls them goes on with what they leave under way
        own = set(statement.names) - names
        names |= own
        kept += [each for each in definitions if each not in kept and not own.isdisjoint(each.words)]
    for statement in kept:
        kept += [
            each for each in definitions if each not in kept and not statement.words.isdisjoint(each.names)
        ]
    return [each for each in definitions if each not in kept]


def _libraries(module: Module, kept: Iterable[Statement]) -> list[Statement]:
    """The imports of libraries that statements of a module use."""
    names = {name for each in kept for name in each.parts.names}
    return [
        statement
        for statement in module.statements
        if _IS_IMPORT.match(statement.text)
        and any(
            not names.isdisjoint(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            for node in statement.parts.imports
        )
    ]


def _without_linked(linker: _Linker, module: Module, own: list[str], node: ast.ImportFrom) -> None:
    """An import without the names that are in the text; other names for them are given by assignments."""
    if node.module == "__future__":
        return _replace(own, node, "pass")
    rest: list[str] = []
    other: list[str] = []
    classes: list[str] = []
    for alias in node.names:
        where, name = module.target(alias.asname or alias.name) or ("", "")
        found = linker.held(where, name) if name else None
        if found is None:
            rest.append(f"{alias.name} as {alias.asname}" if alias.asname else alias.name)
        elif alias.asname and alias.asname != name and isinstance(found.node, ast.ClassDef):
            classes.append(f"class {alias.asname}({name}): pass")
        elif alias.asname and alias.asname != name:
            other.append(f"{alias.asname} = {name}")
    if len(rest) < len(node.names):
        left = [f"from {'.' * node.level}{node.module or ''} import {', '.join(rest)}"] if rest else []
        plain = "; ".join([*left, *other])
        _replace(own, node, *([plain] if plain else []), *classes)
    return None


def _replace(own: list[str], node: ast.stmt, *texts: str) -> None:
    """Put other statements in the place of one that stands alone in its rows: as many of them as it has rows."""
    row, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before = own[row].encode()[: node.col_offset].decode()
    if not before.strip():
        rows = [before + text for text in texts or ("pass",)]
        own[row : last + 1] = (rows + [""] * (last - row))[: last - row + 1]


def _without_module(own: list[str], node: ast.Attribute) -> None:
    """``module.name`` as ``name``, with blanks behind it: what follows keeps its columns."""
    row = node.lineno - 1
    if node.end_lineno == node.lineno:
        data = own[row].encode()
        name = node.attr.encode().ljust((node.end_col_offset or 0) - node.col_offset)
        own[row] = (data[: node.col_offset] + name + data[node.end_col_offset :]).decode()


__all__ = ["Linked", "callers", "link"]
