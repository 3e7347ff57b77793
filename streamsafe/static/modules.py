"""The modules of a project: what the names of a file mean, by the rules of Python's imports.

Most files are only looked into for one or two definitions. So a file is split into the statements of its top level by
its text, and a statement is parsed when it is asked for. Where the text does not split as Python reads it, the whole
file is parsed.

One file: how a file is split and how its names are resolved use the same index.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

from streamsafe.check import prefilter
from streamsafe.project import footprint
from streamsafe.project.packages import packages
from streamsafe.project.text import SourceError, read

DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
KEPT: Final = 300
"""How many files are kept in memory."""

_DEFINED: Final = re.compile(r"(?:async[ \t]+def|def|class)[ \t]+(\w+)")
_ASSIGNED: Final = re.compile(
    r"[ \t]*((?:\w+[ \t]*,[ \t]*)*\w+)[ \t]*(?::[^=\n]+)?=(?!=)(?:[ \t]*(\w+)[ \t]*=(?!=))?"
)
_INNER: Final = re.compile(
    r"^[ \t]+(?:(?:async[ \t]+def|def|class)[ \t]+(\w+)|(\w+)[ \t]*(?::[^=\n]+)?=[^=])", re.MULTILINE
)
_COMPOUND: Final = re.compile(r"(?:if|try|with|for|while|match)\b")
_CONTINUES: Final = re.compile(r"[ \t#)\]}]|(?:else|elif|except|finally)\b")
_QUOTES: Final = re.compile("\"\"\"|'''")
_IMPORT: Final = re.compile(
    r"^[ \t]*(from[ \t]+[\w.]+[ \t]+import\b(?:[^(\n]*\([^)]*\)|[^\n]*)|import[ \t]+\w[^\n]*)", re.MULTILINE
)
_GLOBAL: Final = re.compile(r"^[ \t]+global[ \t]+([\w, \t]+)", re.MULTILINE)
_ATTRIBUTE: Final = re.compile(r"^[ \t]+(\w+)(?:\.\w+)+[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
_FILLING: Final = re.compile(r"(\w+)(?:\[|\.\w+\()")
_WORD: Final = re.compile(r"\w+")

Binding = tuple[str, str]
"""What a name means: the file and the name there, or ``("", dotted name)`` of a library's."""


@dataclass(slots=True)
class Parts:
    """What of a syntax tree has to do with names.

    Attributes:
        names: those that are read.
        attributes: those of a name (``module.name``).
        imports: the import statements, those in functions too.
        quoted: annotations in quotes.
    """

    names: dict[str, None] = field(default_factory=dict)
    attributes: list[ast.Attribute] = field(default_factory=list)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    quoted: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, node: ast.AST) -> Parts:
        """The parts of a tree, in its order."""
        parts = cls()
        todo: list[tuple[ast.AST, bool]] = [(node, False)]
        while todo:
            node, annotation = todo.pop()
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    parts.names[node.id] = None
            elif isinstance(node, ast.Constant):
                if annotation and isinstance(node.value, str):
                    parts.quoted[node.value] = None
            elif isinstance(node, ast.Import | ast.ImportFrom):
                parts.imports.append(node)
            else:
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    parts.attributes.append(node)
                for name in reversed(node._fields):
                    value = getattr(node, name, None)
                    says = annotation or name in ("annotation", "returns")
                    if isinstance(value, ast.AST):
                        todo.append((value, says))
                    elif isinstance(value, list):
                        todo += [(each, says) for each in reversed(value) if isinstance(each, ast.AST)]
        return parts


@dataclass(slots=True, eq=False)
class Statement:
    """A statement at the top level of a module.

    Attributes:
        first, last: its rows, decorators included, from 1.
        names: what it binds; those of imports left out.
    """

    module: Module
    first: int
    last: int
    names: tuple[str, ...]
    _node: ast.stmt | None = None
    _parts: Parts | None = None
    _words: tuple[bool, frozenset[str]] | None = None
    _meanings: dict[str, Binding] | None = None
    _uses: tuple[Binding, ...] | None = None
    _size: int | None = None

    @property
    def text(self) -> str:
        """Its rows."""
        return "\n".join(self.module.lines[self.first - 1 : self.last])

    @property
    def is_definition(self) -> bool:
        """Whether it defines a function or a class."""
        text = self.module.lines[self.first - 1]
        return text.startswith("@") or _DEFINED.match(text) is not None

    @property
    def is_class(self) -> bool:
        """Whether it defines a class, which its text shows: decorators come first."""
        rows = self.module.lines[self.first - 1 : self.last]
        return next((row.startswith("class") for row in rows if _DEFINED.match(row)), False)

    @property
    def node(self) -> ast.stmt | None:
        """The syntax tree, with the rows of the file; None where its text does not parse by itself."""
        if self._node is None:
            try:
                found = ast.parse("\n" * (self.first - 1) + self.text).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
            if len(found) != 1:
                return None
            self._node = found[0]
        return self._node

    @property
    def parts(self) -> Parts:
        """What of its syntax tree has to do with names."""
        if self._parts is None:
            self._parts = Parts.of(self.node) if self.node is not None else Parts()
        return self._parts

    @property
    def size(self) -> int:
        """How many statements there are in it, itself included."""
        if self._size is None:
            self._size = _size(self.node) if self.node is not None else 0
        return self._size

    @property
    def names_streams(self) -> bool:
        """Whether its text names streams, events, captures or copies that do not block."""
        return self._read()[0]

    @property
    def words(self) -> frozenset[str]:
        """The words in its text."""
        return self._read()[1]

    def _read(self) -> tuple[bool, frozenset[str]]:
        if self._words is None:
            text = self.text
            self._words = prefilter.names_streams(text.encode()), frozenset(_WORD.findall(text))
        return self._words

    @property
    def meanings(self) -> dict[str, Binding]:
        """What the names mean that it binds at the top level, or reads."""
        if self._meanings is None:
            module = self.module
            self._meanings = {name: (module.path, name) for name in self.names}
            for name in self.parts.names:
                meaning = module.meaning(name) if name not in self._meanings else None
                if meaning is not None:
                    self._meanings[name] = meaning
        return self._meanings

    @property
    def uses(self) -> tuple[Binding, ...]:
        """What it uses of other modules of the project, and of its own module."""
        if self._uses is None:
            module = self.module
            if self.words.isdisjoint(module.bound) and self.words.isdisjoint(module.of_project):
                self._uses = ()  # which spares parsing it
                return ()
            found: dict[Binding, None] = {}
            for name in (*self.parts.names, *self.parts.quoted):
                target = module.target(name)
                if target is not None and target[1]:
                    found[target] = None
                elif target is None and name in module.bound:
                    found[module.path, name] = None
            for node in self.parts.attributes:
                target = module.attribute(node)
                if target is not None:
                    found[target] = None
            self._uses = tuple(found)
        return self._uses


@dataclass(eq=False)
class Module:
    """A file of a project.

    Attributes:
        statements: those at the top level, in order.
        bound: name -> the statement at the top level that binds it last, imports left out.
        imported: name -> the module, the name in it ("" for the module itself), and the level, as an import has them.
        stars: the modules, and the levels, of which all public names are imported.
    """

    path: str
    lines: list[str]
    statements: list[Statement] = field(default_factory=list)
    bound: dict[str, Statement] = field(default_factory=dict)
    imported: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    stars: list[tuple[str, int]] = field(default_factory=list)

    @cached_property
    def rebound(self) -> frozenset[str]:
        """The names of the module that its functions assign, or an attribute of which they do."""
        text = "\n".join(self.lines)
        found = (*_GLOBAL.finditer(text), *_ATTRIBUTE.finditer(text))
        return frozenset(name for match in found for name in _WORD.findall(match[1]))

    @cached_property
    def filled(self) -> dict[str, list[Statement]]:
        """By name of the module, what puts something into what it holds: statements, and decorators of classes."""
        found: dict[str, list[Statement]] = {}
        holders = {name for name, each in self.bound.items() if not each.is_definition or each.is_class}
        for statement in self.statements:
            text = self.lines[statement.first - 1]
            named: set[str] = set()
            if text.startswith("@") and statement.is_class and statement.node is not None:
                decorators = getattr(statement.node, "decorator_list", ())
                named = {n.id for d in decorators for n in ast.walk(d) if isinstance(n, ast.Name)}
                makers = [self.bound[each] for each in named & self.bound.keys()]
                named = named.union(*(each.words for each in makers if each.is_definition))
            elif filling := _FILLING.match(text):
                named = {filling[1]}
            for name in named & holders - set(statement.names):
                found.setdefault(name, []).append(statement)
        return found

    @cached_property
    def starred(self) -> list[str]:
        """The files of the project of which all public names are imported."""
        folder = os.path.dirname(self.path)
        found = (_find(folder, name, level) for name, level in self.stars)
        return [path for path in found if path is not None and path != self.path]

    @cached_property
    def of_project(self) -> frozenset[str]:
        """The names that imports bind to what the project holds."""
        return frozenset(name for name in self.imported if self.target(name) is not None)

    @cached_property
    def _targets(self) -> dict[str, tuple[str, str] | None]:
        return {}

    def target(self, name: str) -> tuple[str, str] | None:
        """What an import binds to a name: the file of the project, and the name in it, "" for the whole module."""
        if name not in self.imported:
            return None
        if name not in self._targets:
            self._targets[name] = None  # meanwhile: modules may import from each other in a circle
            self._targets[name] = _imported(self.path, *self.imported[name])
        return self._targets[name]

    def library(self, name: str) -> str | None:
        """The dotted name outside the project that an import binds to a name."""
        if name not in self.imported or self.target(name) is not None:
            return None
        module, inner, _ = self.imported[name]
        return f"{module}.{inner}" if inner else module

    def attribute(self, node: ast.Attribute) -> tuple[str, str] | None:
        """The file and the name in it that ``module.name`` means; None where the value is no module of the project."""
        target = self.target(node.value.id) if isinstance(node.value, ast.Name) else None
        return (target[0], node.attr) if target is not None and not target[1] else None

    def meaning(self, name: str) -> Binding | None:
        """What a name means in the module."""
        target = self.target(name)
        if target is not None:
            where, inner = target
            found = resolved(where, inner) if inner else None
            return (found.module.path if found is not None else where, inner)
        if name in self.bound:
            return (self.path, name)
        dotted = self.library(name)
        return ("", dotted) if dotted is not None else None


@lru_cache(maxsize=KEPT)
def module_of(path: str) -> Module | None:
    """A file, split by its text; None where it cannot be read, or parsed."""
    text = _text(path)
    if text is None:
        return None
    module = Module(path, text.split("\n"))
    statements = _split(module.lines)
    if statements is None:
        return parsed(path)
    for first, last, names in statements:
        module.statements.append(Statement(module, first, last, names))
    _bind(module)
    for found in _imports(text):
        _import(module, found)
    return module


@lru_cache(maxsize=1)
def parsed(path: str) -> Module | None:
    """A file with all its statements parsed; None where it cannot be."""
    text = _text(path)
    try:
        tree = ast.parse(text) if text is not None else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if text is None or tree is None:
        return None
    module = Module(path, text.split("\n"))
    for node in tree.body:
        statement = Statement(module, *_rows(node), tuple(_binds(node)), node)
        module.statements.append(statement)
        if "import" in statement.words:
            for found in statement.parts.imports:
                _import(module, found)
    _bind(module)
    return module


def resolved(where: str, name: str, visited: set[str] | None = None) -> Statement | None:
    """The statement that binds a name which a module has, or hands on from another one.

    Args:
        where: the file of the module.
        name: the name in it.
        visited: the modules that were asked already: they may import from each other in a circle.
    """
    visited = set() if visited is None else visited
    module = module_of(where) if where not in visited else None
    if module is None:
        return None
    visited.add(where)
    if name in module.bound:
        found = module.bound[name]
        if found.node is not None:
            return found
        whole = parsed(where)  # the text does not split as Python reads it
        return whole.bound.get(name) if whole is not None else None
    further = module.target(name)
    if further is not None:
        return resolved(*further, visited) if further[1] else None
    if name.startswith("_"):
        return None
    starred = (resolved(star, name, visited) for star in module.starred)
    return next((each for each in starred if each is not None), None)


def imports_in(text: str) -> set[str]:
    """The words in the import statements of a text."""
    return {word for match in _IMPORT.finditer(text) for word in _WORD.findall(match[1])}


def forget() -> None:
    """Files may have changed since they were read."""
    for cached in (module_of, parsed, _names, _is_starred, _find, _top):
        cached.cache_clear()


def _text(path: str) -> str | None:
    footprint.note(path)
    try:
        with open(path, "rb") as opened:
            return read(opened.read(), path).text
    except (OSError, SourceError):
        return None


def _split(lines: Sequence[str]) -> list[tuple[int, int, tuple[str, ...]]] | None:
    """The statements of the top level: first and last row, and the names they bind; None where quotes do not pair."""
    starts: list[tuple[int, int]] = []
    quote = ""
    decorated = False
    for row, line in enumerate(lines, 1):
        if not quote and line.strip() and not _CONTINUES.match(line):
            if not decorated:
                starts.append((row, row))
            decorated = line[0] == "@"
        if line and (quote or line[0] != "#") and starts and not line.isspace():
            starts[-1] = (starts[-1][0], row)
        if '"""' in line or "'''" in line:
            for match in _QUOTES.finditer(line):
                if not quote:
                    quote = match[0]
                elif quote == match[0]:
                    quote = ""
    if quote:
        return None
    return [(first, last, _bound_by(lines, first, last)) for first, last in starts]


def _bound_by(lines: Sequence[str], first: int, last: int) -> tuple[str, ...]:
    """The names that a statement binds, by its text."""
    text = lines[first - 1]
    if text[0] == "@":
        head = next((m for line in lines[first:last] if (m := _DEFINED.match(line))), None)
        return (head[1],) if head is not None else ()
    defined = _DEFINED.match(text)
    if defined is not None:
        return (defined[1],)
    if _COMPOUND.match(text):
        inner = _INNER.finditer("\n".join(lines[first - 1 : last]))
        return tuple(dict.fromkeys(match[1] or match[2] for match in inner))
    assigned = _ASSIGNED.match(text)
    if assigned is None:
        return ()
    names = [name.strip() for name in assigned[1].split(",")]
    return tuple(names + ([assigned[2]] if assigned[2] else []))


def _bind(module: Module) -> None:
    for statement in module.statements:
        for name in statement.names:
            module.bound[name] = statement


def _imports(text: str) -> Iterator[ast.stmt]:
    """The import statements of a file, those in functions too."""
    found = [match[1] for match in _IMPORT.finditer(text.replace("\\\n", " "))]
    try:
        yield from ast.parse("\n".join(found)).body
    except (SyntaxError, ValueError):
        for each in found:  # a sentence of a docstring may begin like one
            try:
                yield from ast.parse(each).body
            except (SyntaxError, ValueError):
                continue


def _import(module: Module, node: ast.AST) -> None:
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name == "*":
                module.stars.append((node.module or "", node.level))
            else:
                module.imported[alias.asname or alias.name] = (node.module or "", alias.name, node.level)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            module.imported[alias.asname or top] = (alias.name if alias.asname else top, "", 0)


def _binds(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level binds, those of imports left out."""
    todo: list[ast.AST] = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, DEFINITIONS):
            yield each.name
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif not isinstance(each, ast.Lambda | ast.expr_context | ast.Constant):
            todo.extend(ast.iter_child_nodes(each))


def _size(node: ast.stmt) -> int:
    """How many statements there are in one, itself included."""
    count = 0
    todo: list[ast.AST] = [node]
    while todo:
        each = todo.pop()
        count += isinstance(each, ast.stmt)
        for block in _BLOCKS:
            todo += getattr(each, block, ())
    return count


_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def _rows(node: ast.stmt) -> tuple[int, int]:
    """The first and the last row of a statement, with its decorators."""
    decorators = node.decorator_list if isinstance(node, DEFINITIONS) else ()
    return min([node.lineno, *(each.lineno for each in decorators)]), node.end_lineno or 0


@lru_cache(maxsize=20_000)
def _names(path: str) -> frozenset[str]:
    """The names that a file binds at its top level, or imports."""
    module = module_of(path)
    return frozenset((*module.bound, *module.imported)) if module is not None else frozenset()


@lru_cache(maxsize=20_000)
def _is_starred(path: str, name: str) -> bool:
    """Whether a file has a name from another module of the project of which it imports all names."""
    module = module_of(path)
    return module is not None and bool(module.stars) and resolved(path, name) is not None


@lru_cache(maxsize=20_000)
def _find(folder: str, dotted: str, level: int) -> str | None:
    """The file of a module of the project that a file in a folder imports; None where it is no file of it."""
    base = folder
    if level:
        for _ in range(level - 1):
            base = os.path.dirname(base)
    else:
        base, name = _top(base)
        if name and dotted.partition(".")[0] != name:
            return None  # what lies beside a package is another project's
    steps = dotted.split(".") if dotted else []
    whole = os.path.join(base, *steps)
    places = (f"{whole}.py", os.path.join(whole, "__init__.py"))
    footprint.note(*places)
    for path in places:
        if (steps or level) and os.path.isfile(path):
            return path
    return None


@lru_cache(maxsize=10_000)
def _top(folder: str) -> tuple[str, str]:
    """The folder around the top package that a folder belongs to, and the package; the folder itself without one."""
    above, names = packages(folder)
    return above, names[0] if names else ""


def _imported(importer: str, module: str, name: str, level: int) -> tuple[str, str] | None:
    """The file and the name in it that an import binds, "" for a whole module; None outside the project."""
    folder = os.path.dirname(importer)
    where = _find(folder, module, level)
    if not name:
        return (where, "") if where is not None else None
    inner = _find(folder, f"{module}.{name}" if module else name, level)
    if inner is not None:
        return inner, ""  # a module, also where the package imports from it
    if where is not None and where != importer and (name in _names(where) or _is_starred(where, name)):
        return where, name
    return None


__all__ = [
    "DEFINITIONS",
    "Binding",
    "Module",
    "Statement",
    "forget",
    "imports_in",
    "module_of",
    "parsed",
    "resolved",
]
