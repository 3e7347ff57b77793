"""Linking: a file and the definitions of its project that it uses, as one text.

The interpreter sees one file. What a class of another file does with its stream is in sight once its definition stands
in the same text: the definitions that a file imports from its own project, and what these use, are put above it, each
at the columns where it stands in its own file. Rows of the linked text lead back to files and rows.

Only names are resolved, by the rules of Python's imports. A definition one of whose names means something else in the
linked text is left out, and so is what does not fit into the limits: it stays an import, of which nothing is known.
"""

from __future__ import annotations

import ast
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from streamsafe.order.hazard import Conflict, Frame, Span
from streamsafe.static import prefilter
from streamsafe.static.reading import SourceError, read
from streamsafe.static.syntax.packages import packages

LINES: Final = 400
"""Lines of definitions of other files that are linked to a file, at most."""
LONGEST: Final = 300
"""Lines of one such definition, at most."""
SHORT: Final = 30
"""Lines of a definition that has nothing to do with streams, at most: it may be what reads or keeps memory."""
DEPTH: Final = 4
"""How many imports away from the file a definition may be."""
CALLERS: Final = 1
"""How many imports away from stream code a file without any is looked at, for what it does with that code."""

MOST_IMPORTERS: Final = 8
"""What more files import is one of the project's common tools, and who calls it is not followed."""

_IMPORT: Final = re.compile(rb"^[ \t]*(?:from|import)\b(?:[^(\n]*\([^)]*\)|[^\n]*)", re.MULTILINE)
_BOUND: Final = re.compile(
    rb"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+(\w+)|^[ \t]*(\w+)[ \t]*(?::[^=\n]+)?=[^=]", re.MULTILINE
)
_WORD: Final = re.compile(rb"\w+")
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Binding = tuple[str, str]
"""What a name of the linked text means: the file and the name there, or ``("", dotted name)`` of a library's."""

T = TypeVar("T")


class Segment(NamedTuple):
    """Rows of the linked text that are a file's: the first of them, from 1, and how many there are."""

    path: str
    start: int
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

    def _file(self, row: int) -> Segment:
        return next((each for each in reversed(self.segments) if row >= each.start), self.segments[0])

    def _mapped(self, part: T) -> T:
        """A part of a conflict with all its places in their own files."""
        if isinstance(part, Span):
            at = self._file(part.row)
            up = at.start - 1
            return replace(part, filename=at.path, row=part.row - up, end_row=part.end_row - up)
        if isinstance(part, Frame):
            at = self._file(part.line)
            return replace(part, filename=at.path, line=part.line - at.start + 1)
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


# -- modules ----------------------------------------------------------------------------------------------------------


@dataclass
class _Module:
    """A file, parsed.

    Attributes:
        bound: name -> the statement at its top level that binds it last, imports left out.
        imported: name -> the module, the name in it ("" for the module itself), and the level, as an import has them.
    """

    path: str
    lines: list[str]
    tree: ast.Module
    bound: dict[str, ast.stmt] = field(default_factory=dict)
    imported: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    @cached_property
    def _targets(self) -> dict[str, tuple[str, str] | None]:
        return {}

    def target(self, name: str) -> tuple[str, str] | None:
        """What an import binds to a name: the file of the project, and the name in it, "" for the whole module."""
        if name not in self.imported:
            return None
        if name not in self._targets:
            self._targets[name] = _imported(self.path, *self.imported[name])
        return self._targets[name]

    def library(self, name: str) -> str | None:
        """The dotted name outside the project that an import binds to a name."""
        if name not in self.imported or self.target(name) is not None:
            return None
        module, inner, _ = self.imported[name]
        return f"{module}.{inner}" if inner else module

    @cached_property
    def _known(self) -> dict[tuple[str, ast.AST], Any]:
        return {}

    def attribute(self, node: ast.Attribute) -> tuple[str, str] | None:
        """The file and the name in it that ``module.name`` means; None where the value is no module of the project."""
        target = self.target(node.value.id) if isinstance(node.value, ast.Name) else None
        return (target[0], node.attr) if target is not None and not target[1] else None

    def words(self, statement: ast.stmt) -> tuple[bool, frozenset[bytes]]:
        """Whether the text of a statement names streams, and the words in it."""
        key = ("words", statement)
        if key not in self._known:
            text = _source(self, statement)
            self._known[key] = (prefilter.names_streams(text), frozenset(_WORD.findall(text)))
        return cast(tuple[bool, frozenset[bytes]], self._known[key])

    def meanings(self, statement: ast.stmt) -> dict[str, _Binding]:
        """What the names mean that a statement binds at the top level, or uses."""
        key = ("meanings", statement)
        if key not in self._known:
            found = {name: (self.path, name) for name in _binds(statement)}
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in found:
                    meaning = _meaning(self, node.id)
                    if meaning is not None:
                        found[node.id] = meaning
            self._known[key] = found
        return cast(dict[str, _Binding], self._known[key])

    def uses(self, statement: ast.AST, own: bool) -> tuple[tuple[str, str], ...]:
        """What a statement uses of what the module imports from the project, and with ``own`` of the module itself."""
        key = (f"uses {own}", statement)
        if key not in self._known:
            found: dict[tuple[str, str], None] = {}
            quoted = _quoted(statement)
            for node in ast.walk(statement):
                used: tuple[str, str] | None = None
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    used = self.target(node.id)
                    if used is None and own and node.id in self.bound:
                        used = (self.path, node.id)
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    used = self.attribute(node)
                elif isinstance(node, ast.Constant) and node in quoted:
                    used = self.target(str(node.value))
                if used is not None and used[1]:
                    found[used] = None
            self._known[key] = tuple(found)
        return cast(tuple[tuple[str, str], ...], self._known[key])


def _quoted(statement: ast.AST) -> set[ast.AST]:
    """The annotations of a statement that are in quotes."""
    found: list[ast.AST | None] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.AnnAssign | ast.arg):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
    return {part for each in found if each is not None for part in ast.walk(each)}


@lru_cache(maxsize=300)
def _module(path: str) -> _Module | None:
    """A file of the project; None where it cannot be parsed."""
    try:
        with open(path, "rb") as opened:
            text = read(opened.read(), path).text
        tree = ast.parse(text)
    except (OSError, SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = _Module(path, text.split("\n"), tree)
    for statement in tree.body:
        for name in _binds(statement):
            module.bound[name] = statement
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module.imported[alias.asname or alias.name] = (node.module or "", alias.name, node.level)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                module.imported[alias.asname or top] = (alias.name if alias.asname else top, "", 0)
    return module


@lru_cache(maxsize=20_000)
def _names(path: str) -> frozenset[bytes]:
    """The names that a file seems to bind at its top level, by its text: most files are never parsed."""
    try:
        with open(path, "rb") as opened:
            data = opened.read()
    except OSError:
        return frozenset()
    bound = {match[1] or match[2] for match in _BOUND.finditer(data)}
    return frozenset(bound.union(*(_WORD.findall(match[0]) for match in _IMPORT.finditer(data))))


def forget() -> None:
    """Files may have changed since they were read."""
    _module.cache_clear()
    _names.cache_clear()
    _find.cache_clear()


def _binds(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level binds, those of imports left out."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


@lru_cache(maxsize=20_000)
def _find(importer: str, dotted: str, level: int) -> str | None:
    """The file of a module of the project, by the rules of imports; None where it is no file of it."""
    base = os.path.dirname(importer)
    if level:
        for _ in range(level - 1):
            base = os.path.dirname(base)
    else:
        base, names = packages(base)
        if names and dotted.partition(".")[0] != names[0]:
            return None  # what lies beside a package is another project's
    steps = dotted.split(".") if dotted else []
    whole = os.path.join(base, *steps)
    for path in (f"{whole}.py", os.path.join(whole, "__init__.py")):
        if (steps or level) and os.path.isfile(path):
            return path
    return None


def _imported(importer: str, module: str, name: str, level: int) -> tuple[str, str] | None:
    """The file and the name in it that an import binds, "" for a whole module; None outside the project."""
    if name == "*":
        return None
    where = _find(importer, module, level)
    if not name:
        return (where, "") if where is not None else None
    inner = _find(importer, f"{module}.{name}" if module else name, level)
    if inner is not None:
        return inner, ""  # a module, also where the package imports from it
    if where is not None and where != importer and name.encode() in _names(where):
        return where, name
    return None


def _resolved(where: str, name: str, steps: int = 5) -> tuple[_Module, ast.stmt] | None:
    """The module and the statement that bind a name which a module has, or hands on from another one."""
    module = _module(where)
    if module is None or not steps:
        return None
    if name in module.bound:
        return module, module.bound[name]
    further = module.target(name)
    return _resolved(*further, steps - 1) if further is not None and further[1] else None


def _rows(statement: ast.stmt) -> tuple[int, int]:
    """The first and the last row of a statement, with its decorators."""
    decorators = statement.decorator_list if isinstance(statement, _DEFINITIONS) else ()
    return min([statement.lineno, *(each.lineno for each in decorators)]), statement.end_lineno or 0


# -- linking ----------------------------------------------------------------------------------------------------------


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
        lines: how many rows they have.
        cut_short: whether a limit left definitions out.
    """

    root: _Module
    related: Set[bytes]
    meanings: dict[str, _Binding] = field(default_factory=dict)
    included: dict[str, dict[int, ast.stmt]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    lines: int = 0
    cut_short: bool = False

    def run(self) -> None:
        """Find the definitions that the file uses, the nearest first."""
        for name in self.root.bound:
            self.meanings[name] = (self.root.path, name)
        todo: deque[tuple[_Module, ast.AST, int]] = deque([(self.root, self.root.tree, 0)])
        while todo:
            module, statement, depth = todo.popleft()
            for where, name in module.uses(statement, module.path != self.root.path):
                found = _resolved(where, name)
                if found is None or depth >= DEPTH:
                    continue
                target, definition = found
                if self._holds(target, definition):
                    self.names.add(name)
                elif self._include(target, definition):
                    self.names.update((name, *_binds(definition)))
                    todo.append((target, definition, depth + (target.path != module.path)))

    def _include(self, module: _Module, statement: ast.stmt) -> bool:
        """Put a definition into the text, unless a name of it means something else there, or it is too long."""
        first, last = _rows(statement)
        length = last - first + 1
        streams, words = module.words(statement)
        related = streams or not self.related.isdisjoint(words)
        if length > (LONGEST if related else SHORT) or self.lines + length > LINES:
            self.cut_short = self.cut_short or streams
            return False
        wanted = module.meanings(statement)
        if any(self._meaning(name) not in (None, meaning) for name, meaning in wanted.items()):
            return False
        self.meanings.update(wanted)
        self.lines += length
        self.included.setdefault(module.path, {})[statement.lineno] = statement
        return True

    def _meaning(self, name: str) -> _Binding | None:
        """What a name means in the text, as far as it is made."""
        dotted = self.root.library(name) if name not in self.meanings else None
        return ("", dotted) if dotted is not None else self.meanings.get(name)

    def _holds(self, module: _Module, statement: ast.stmt) -> bool:
        return module.path == self.root.path or statement.lineno in self.included.get(module.path, {})

    def has(self, where: str, name: str) -> bool:
        """Whether a name of a module is in the text."""
        if name not in self.names:
            return False  # which spares parsing the module
        found = _resolved(where, name)
        return found is not None and self._holds(*found)


def _meaning(module: _Module, name: str) -> _Binding | None:
    """What a name means in a module."""
    target = module.target(name)
    if target is not None:
        where, inner = target
        found = _resolved(where, inner) if inner else None
        return (found[0].path if found is not None else where, inner)
    if name in module.bound:
        return (module.path, name)
    dotted = module.library(name)
    return ("", dotted) if dotted is not None else None


def link(path: str, related: Set[bytes] = frozenset()) -> Linked | None:
    """A file with the definitions of its project that it uses; None where there are none that matter.

    They matter where the file, or one of them, names streams, events, captures or copies that do not block.

    Args:
        path: the file.
        related: names of definitions that have to do with streams; of others only short ones are linked.
    """
    root = _module(path)
    if root is None:
        return None
    linker = _Linker(root, related)
    linker.run()
    statements = [each for some in linker.included.values() for each in some.values()]
    if not any(isinstance(each, _DEFINITIONS) for each in statements):
        return Linked("", [], cut_short=True) if linker.cut_short else None
    return _text(linker)


def callers(paths: Iterable[str], others: Iterable[str]) -> tuple[list[str], frozenset[bytes]]:
    """The files that import, directly or by others, what some files define that has to do with streams.

    Args:
        paths: files with stream code.
        others: files to look through.

    Returns:
        These files, and the names of all that has to do with streams.
    """
    left = {path: data for path in others if (data := _imports_of(path))}
    found: list[str] = []
    new, known = list(paths), set[bytes]()
    for _ in range(CALLERS):
        more, modules = _exported(new, known)
        names = (more - known) | modules
        known |= more
        by_name: dict[bytes, list[str]] = {}
        for path, data in left.items():
            for name in names & data:
                by_name.setdefault(name, []).append(path)
        new = sorted({path for some in by_name.values() if len(some) <= MOST_IMPORTERS for path in some})
        found += new
        for path in new:
            del left[path]
        if not new:
            break
    return sorted(found), frozenset(known)


def _exported(paths: Iterable[str], known: set[bytes]) -> tuple[set[bytes], set[bytes]]:
    """The definitions of files that name streams, or what has to do with them; and the modules of these files."""
    found: set[bytes] = set()
    modules: set[bytes] = set()
    for path in paths:
        module = _module(path)
        if module is None:
            continue
        words = {
            statement.name.encode(): module.words(statement)
            for statement in module.tree.body
            if isinstance(statement, _DEFINITIONS)
        }
        own = {name for name, (streams, used) in words.items() if streams or used & known}
        while more := {name for name, (_, used) in words.items() if used & own} - own:
            own |= more
        if own:
            found |= own
            modules.add(os.path.splitext(os.path.basename(path))[0].encode())
    return found, modules


def _source(module: _Module, statement: ast.stmt) -> bytes:
    first, last = _rows(statement)
    return "\n".join(module.lines[first - 1 : last]).encode()


def _imports_of(path: str) -> set[bytes]:
    """The words in the import statements of a file."""
    try:
        with open(path, "rb") as opened:
            data = opened.read()
    except OSError:
        return set()
    return {word for match in _IMPORT.finditer(data) for word in _WORD.findall(match[0])}


def _text(linker: _Linker) -> Linked | None:
    lines: list[str] = []
    segments: list[Segment] = []
    for path in [*reversed(linker.included), linker.root.path]:  # what is used stands above who uses it
        module = linker.root if path == linker.root.path else _module(path)
        if module is None:
            return None
        own = _block(linker, module)
        segments.append(Segment(path, len(lines) + 1, len(own)))
        lines += own
    text = "\n".join(lines)
    if not prefilter.names_streams(text.encode()):
        return None
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    definitions = tuple(
        (path, *_rows(statement)) for path, some in linker.included.items() for statement in some.values()
    )
    return Linked(text, segments, definitions, linker.cut_short)


def _block(linker: _Linker, module: _Module) -> list[str]:
    """The rows of a module with what is in the text of it, the others blank, and without imports of what is linked."""
    if module is linker.root:
        own, kept = list(module.lines), list(module.tree.body)
        for statement in _unrelated(linker):
            first, last = _rows(statement)
            own[first - 1 : last] = [""] * (last - first + 1)
            kept.remove(statement)
    else:
        own, kept = [""] * len(module.lines), list(linker.included[module.path].values())
        kept += _libraries(module, kept)
        for statement in kept:
            first, last = _rows(statement)
            own[first - 1 : last] = module.lines[first - 1 : last]
    for statement in kept:
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom):
                _without_linked(linker, module, own, node)
            elif isinstance(node, ast.Attribute):
                meant = module.attribute(node)
                if meant is not None and linker.has(*meant):
                    _without_module(own, node)
    return own


def _unrelated(linker: _Linker) -> list[ast.stmt]:
    """The definitions of a file without stream code that have nothing to do with any: they cost time only."""
    root = linker.root
    definitions = [each for each in root.tree.body if isinstance(each, _DEFINITIONS)]
    if any(root.words(each)[0] for each in root.tree.body):
        return []
    names = linker.related | {
        name.encode() for name, (_, inner, _) in root.imported.items() if inner.encode() in linker.related
    }
    kept = [each for each in definitions if not names.isdisjoint(root.words(each)[1])]
    for statement in kept:  # which grows
        used = root.words(statement)[1]
        kept += [each for each in definitions if each not in kept and each.name.encode() in used]
    return [each for each in definitions if each not in kept]


def _libraries(module: _Module, kept: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The imports of libraries that statements of a module use."""
    names = {node.id for each in kept for node in ast.walk(each) if isinstance(node, ast.Name)}
    return [
        statement
        for statement in module.tree.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        and not names.isdisjoint(alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    ]


def _without_linked(linker: _Linker, module: _Module, own: list[str], node: ast.ImportFrom) -> None:
    """An import without the names that are in the text; other names for them are given by assignments."""
    if node.module == "__future__":
        return _replace(own, node, "pass")
    rest: list[str] = []
    other: list[str] = []
    classes: list[str] = []
    for alias in node.names:
        where, name = module.target(alias.asname or alias.name) or ("", "")
        found = _resolved(where, name) if name and linker.has(where, name) else None
        if found is None:
            rest.append(f"{alias.name} as {alias.asname}" if alias.asname else alias.name)
        elif alias.asname and alias.asname != name and isinstance(found[1], ast.ClassDef):
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


__all__ = ["Linked", "callers", "forget", "link"]
