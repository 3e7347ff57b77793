"""What functions of other files do: asked where a finding stands, so that nobody else pays for it.

A file is interpreted by itself; what it calls elsewhere is taken for what a careful author would write. Where that
leads to a finding, the definitions are looked up in the package that the file belongs to and in what it imports from
beside it, and read for two things only: whether they keep what they are given and touch no device, and whether they
wait.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from textwrap import dedent
from typing import NamedTuple

from streamsafe.static import footprint
from streamsafe.static.discovery import SKIPPED
from streamsafe.static.reading import LIMIT


class Doing(Enum):
    """What a function does."""

    KEEPS = auto()
    """It stores, looks up or decides on the host: no device memory is touched."""
    WAITS = auto()
    """It waits for a stream, an event or a work: what it waits for was chosen by who wrote it."""
    READS = auto()
    """It takes a number out of a tensor: the host waits for the current stream."""


class Question(NamedTuple):
    """A call whose code is not seen.

    Args:
        name: of a function, with its module as it is imported, or of a method of such a class; else a method's name
            alone.
        method: whether it is a method of an object of unknown class.
    """

    name: str
    method: bool


FILES = 20_000
"""Files of a package that are looked through; in a larger one nothing is known."""
DEFINITIONS = 6
"""Definitions of a name that may agree on what it does; of more, nothing is known."""
_ABOVE = 8
_ROOTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""How many directories above a file may hold what it imports, and what lies where a project begins."""
DEPTH = 3
"""How many calls down a function is followed."""


def answers(path: str, imports: Mapping[str, str], questions: Iterable[Question]) -> dict[Question, Doing]:
    """What is known of calls whose code is not seen.

    Args:
        path: the file that calls.
        imports: what its names stand for, as ``SourceFile.imports`` has it.
        questions: the calls.
    """
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        return {}
    top = package_of(path)
    packages = [top] if top else []
    modules = {module for dotted in imports.values() for module in _modules(path, dotted)}
    packages += sorted({package_of(m) or m for m in modules} - {top})
    found = {}
    for question in questions:
        doing = _of_method(question.name, packages) if question.method else _of_function(question.name, path)
        if doing is not None:
            found[question] = doing
    return found


def package_of(path: str) -> str:
    """The directory of the topmost package that a file belongs to; empty where it belongs to none."""
    found, directory = "", os.path.dirname(path)
    while directory != found and os.path.isfile(os.path.join(directory, "__init__.py")):
        found, directory = directory, os.path.dirname(directory)
    return found


def _modules(path: str, dotted: str) -> list[str]:
    """The files that a name may be imported from: those of the project, which lie beside the file or above it."""
    level = len(dotted) - len(dotted.lstrip("."))
    parts = [part for part in dotted.split(".") if part]
    directory = os.path.dirname(path)
    starts = []
    if level:
        for _ in range(level - 1):
            directory = os.path.dirname(directory)
        starts.append(directory)
    else:  # beside the file, or a directory above that is on the path: the root of the sources is not known
        for _ in range(_ABOVE):
            starts.append(directory)
            if any(os.path.exists(os.path.join(directory, mark)) for mark in _ROOTS):
                break
            directory = os.path.dirname(directory)
    for start in starts:
        for count in range(len(parts), 0, -1):
            base = os.path.join(start, *parts[:count])
            for file in (f"{base}.py", os.path.join(base, "__init__.py")):
                footprint.note(file)
                if os.path.isfile(file) and file != path:
                    return [file]
    return []


class _Definition(NamedTuple):
    """A function, and the file it stands in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    file: str


@lru_cache(maxsize=64)
def _index(package: str) -> dict[str, list[tuple[str, int]]]:
    """Where the functions of a package, or of a single file, are defined: file and byte."""
    found: dict[str, list[tuple[str, int]]] = {}
    for count, file in enumerate(_files(package)):
        if count > FILES:
            return {}
        for match in _DEF.finditer(_bytes(file)):
            found.setdefault(match[1].decode("ascii", "replace"), []).append((file, match.start()))
    return found


def _files(package: str) -> Iterator[str]:
    if os.path.isfile(package):
        yield package
        return
    for directory, inner, files in os.walk(package):
        footprint.note(directory)
        inner[:] = sorted(name for name in inner if name not in SKIPPED and not name.startswith("."))
        yield from (os.path.join(directory, name) for name in sorted(files) if name.endswith(".py"))


@lru_cache(maxsize=64)
def _bytes(file: str) -> bytes:
    footprint.note(file)
    try:
        if os.path.getsize(file) > LIMIT:
            return b""
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def forget() -> None:
    """Files may have changed since: read them anew."""
    for known in (_index, _bytes, _at, _doing):
        known.cache_clear()


_TESTS = re.compile(r"/(?:tests?|testing)/|/(?:test_|conftest)[^/]*$|_test\.py$")
_DEF = re.compile(rb"def (\w+)[ \t]*[(\[]")


@lru_cache(maxsize=1024)
def _at(file: str, start: int) -> _Definition | None:
    """The function that a ``def`` begins; None where it cannot be read by itself."""
    data = _bytes(file)
    begin = data.rfind(b"\n", 0, start) + 1
    before = data[begin:start]
    if before.strip() not in (b"", b"async"):
        return None
    indent = len(before) - len(before.lstrip())
    lines = data[begin:].split(b"\n", 2000)
    taken = [lines[0]]
    for line in lines[1:]:
        bare = line.strip()
        margin = len(line) - len(line.lstrip())
        if bare and margin <= indent and not bare.startswith((b")", b"]", b"#")):
            break
        taken.append(line)
    try:
        body = ast.parse(dedent(b"\n".join(taken).decode("utf-8"))).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    node = body[0] if body else None
    return _Definition(node, file) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _of_method(name: str, packages: Iterable[str]) -> Doing | None:
    """What all methods of a name do that a package has.

    Those that leave it to their heirs do not count, nor do those of tests, which stand for others.
    """
    found_at = [place for package in packages for place in _index(package).get(name, ())]
    places = [(file, start) for file, start in found_at if not _TESTS.search(file.replace(os.sep, "/"))]
    if not places or len(places) > DEFINITIONS:
        return None
    found = set()
    for file, start in places:
        definition = _at(file, start)
        if definition is None or not _is_method(definition.node):
            return None
        if not is_left_open(definition.node):
            found.add(_doing(definition, DEPTH))
    return found.pop() if len(found) == 1 else None


def _of_function(dotted: str, path: str, depth: int = DEPTH) -> Doing | None:
    """What a function does that is imported under a name, or a method of a class that is."""
    owner, _, name = dotted.rpartition(".")
    cls = owner.rpartition(".")[2]
    cls = cls if cls.lstrip("_")[:1].isupper() else ""
    for file in _modules(path, dotted):
        inside = _body_of(file, cls) if cls else None
        for where, start in _index(file).get(name, ()):
            definition = _at(where, start)
            if definition is None or (
                start not in inside if inside is not None else _is_method(definition.node)
            ):
                continue
            return None if is_left_open(definition.node) else _doing(definition, DEPTH)
        again = _reexported(file, cls or name) if depth and inside is None else ""
        if again:
            return _of_function(f"{again}.{name}" if cls else again, file, depth - 1)
    return None


def _body_of(file: str, cls: str) -> range | None:
    """The bytes of a top-level class; None where the file has none of that name."""
    data = _bytes(file)
    begin = re.search(rb"^class %s\b" % re.escape(cls.encode()), data, re.MULTILINE)
    if begin is None:
        return None
    end = re.compile(rb"^[^\s#)\]]", re.MULTILINE).search(data, begin.end())
    return range(begin.end(), end.start() if end else len(data))


def _reexported(file: str, name: str) -> str:
    """From where a module imports a name that it does not define."""
    data = _bytes(file)
    if name.encode() not in data:
        return ""
    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for statement in body:
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            if (alias.asname or alias.name) == name and isinstance(statement, ast.ImportFrom):
                module = "." * statement.level + (statement.module or "")
                return f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
    return ""


def _is_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [*node.args.posonlyargs, *node.args.args]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    return static or bool(names and names[0].arg in ("self", "cls"))


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """What stands in a function, without docstrings and dots."""
    return [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]


def is_left_open(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function leaves it to others to say what it does."""
    return all(isinstance(statement, (ast.Pass, ast.Raise)) for statement in _body(node))


@lru_cache(maxsize=1024)
def _doing(definition: _Definition, depth: int) -> Doing | None:
    """What a function does, and what it calls of its own file."""
    reader = _Reader(definition, depth)
    body = _body(definition.node)
    for doing, methods in _WAITING:
        reader.methods = methods
        if reader.waits(body):
            return doing
    return Doing.KEEPS if all(map(reader.keeps, body)) else None


_WAITING = (
    (Doing.WAITS, frozenset({"synchronize", "wait_stream", "wait_event", "wait"})),
    (Doing.READS, frozenset({"item", "tolist", "numpy"})),
)
"""Methods that wait. ``cpu`` says less: many are called where the tensor is there already."""
_ASKS = frozenset(
    {
        *(
            "len",
            "isinstance",
            "issubclass",
            "getattr",
            "hasattr",
            "setattr",
            "range",
            "enumerate",
            "zip",
            "id",
        ),
        *("str", "int", "type", "repr", "bool", "tuple", "list", "dict", "set", "sorted", "reversed", "iter"),
        *(
            "cast",
            "next",
            "any",
            "all",
            "print",
            "callable",
            "super",
            "min",
            "max",
            "field",
            "frozenset",
            "deque",
        ),
    }
)
"""Functions that ask or make tables: of tensors in them they touch nothing."""
_TABLES = frozenset(
    {
        *(
            "append",
            "appendleft",
            "extend",
            "insert",
            "add",
            "pop",
            "popleft",
            "popitem",
            "remove",
            "discard",
        ),
        *("get", "setdefault", "items", "keys", "values", "update", "clear", "index", "count", "copy", "put"),
        *("put_nowait", "get_nowait", "qsize", "full", "join", "split", "strip", "startswith", "endswith"),
        *("format", "debug", "info", "warning", "error", "warning_once", "info_once", "acquire", "release"),
        *("notify", "notify_all"),
    }
)
"""Methods of tables, queues, texts, locks and logs."""
_METADATA = frozenset(
    {
        "device",
        "dtype",
        "shape",
        "ndim",
        "layout",
        "itemsize",
        "nbytes",
        "requires_grad",
        "is_cuda",
        "is_meta",
    }
)
"""Attributes of a tensor that say nothing of what is in its memory."""
_SHAPES = frozenset(
    {"size", "dim", "numel", "data_ptr", "element_size", "is_contiguous", "stride", "nelement"}
)
_ORDINARY = (
    *(
        ast.Assign,
        ast.AnnAssign,
        ast.Expr,
        ast.Return,
        ast.Pass,
        ast.Raise,
        ast.Assert,
        ast.Delete,
        ast.Global,
    ),
    *(
        ast.If,
        ast.For,
        ast.While,
        ast.Try,
        ast.Break,
        ast.Continue,
        ast.Import,
        ast.ImportFrom,
        ast.AugAssign,
    ),
)


_WAITED = (Doing.WAITS, Doing.READS)


class _Reader:
    """Reads one function.

    Attributes:
        methods: those that wait, of which it is asked whether they are called.
        switched_on: parameters that are true where a call does not say otherwise.
    """

    def __init__(self, definition: _Definition, depth: int) -> None:
        self.methods: frozenset[str] = frozenset()
        self.file = definition.file
        self.depth = depth
        node = definition.node
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.numbers = {
            a.arg for a in given if a.annotation is not None and _NUMBER.match(ast.unparse(a.annotation))
        }
        for inner in ast.walk(node):
            if isinstance(inner, ast.For) and isinstance(inner.iter, ast.Call):
                counted = getattr(inner.iter.func, "id", "")
                first = inner.target.elts[0] if isinstance(inner.target, ast.Tuple) else inner.target
                if counted == ("enumerate" if first is not inner.target else "range") and isinstance(
                    first, ast.Name
                ):
                    self.numbers.add(first.id)
            elif isinstance(inner, ast.Assign) and self._is_number(inner.value):
                self.numbers |= {t.id for t in inner.targets if isinstance(t, ast.Name)}
        self.given = {a.arg for a in given} - {"self", "cls"} - self.numbers
        ordinary = [*node.args.posonlyargs, *node.args.args]
        defaults = node.args.defaults
        offered = [*zip(ordinary[len(ordinary) - len(defaults) :], defaults, strict=True)]
        offered += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d]
        self.switched_on = {a.arg for a, d in offered if isinstance(d, ast.Constant) and d.value is True}
        metadata = {a.arg for a in given if a.annotation is not None and _is_metadata_type(a.annotation)}
        self.carrying = {a.arg for a in given} - self.numbers - metadata
        self._find_carrying(node)

    def _find_carrying(self, function: ast.AST) -> None:
        """Which names may lead to the tensors that a function is given, beside its parameters."""
        bound: list[tuple[ast.expr, ast.expr]] = []
        for inner in ast.walk(function):
            if isinstance(inner, ast.Assign):
                bound += [(target, inner.value) for target in inner.targets]
            elif isinstance(inner, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and inner.value is not None:
                bound.append((inner.target, inner.value))
            elif isinstance(inner, (ast.For, ast.AsyncFor, ast.comprehension)):
                bound.append((inner.target, inner.iter))
            elif isinstance(inner, ast.withitem) and inner.optional_vars is not None:
                bound.append((inner.optional_vars, inner.context_expr))
        more = True
        while more:
            new = {
                name.id
                for target, value in bound
                if self.carries(value)
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
            more = not new <= self.carrying
            self.carrying |= new

    def carries(self, node: ast.AST) -> bool:
        """Whether an expression may lead to the tensors that a function is given, or that its object keeps."""
        if isinstance(node, ast.Attribute) and node.attr in _METADATA:
            return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPES:
            return False
        if isinstance(node, ast.Name):
            return node.id in self.carrying
        return any(map(self.carries, ast.iter_child_nodes(node)))

    def called(self, name: str, *, method: bool) -> list[Doing | None]:
        """What the functions, or the methods, of the same file do that have a name."""
        if not self.depth:
            return []
        places = _index(self.file).get(name, ())
        found = [
            d
            for file, start in places
            if (d := _at(file, start)) is not None and _is_method(d.node) is method
        ]
        return [_doing(d, self.depth - 1) for d in found if not is_left_open(d.node)]

    # -- waiting -------------------------------------------------------------------------------------------------

    def waits(self, statements: Iterable[ast.stmt]) -> bool:
        """Whether it waits each time that it is called, or whenever there is something to wait for."""
        return any(map(self._waits, statements))

    def _waits(self, statement: ast.stmt) -> bool:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(statement, ast.If):
            if self._calls_wait(statement.test):
                return True
            return self.waits(statement.body) and (
                self.waits(statement.orelse) or self._is_guard(statement.test)
            )
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            return any(self._calls_wait(item.context_expr) for item in statement.items) or self.waits(
                statement.body
            )
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            return self.waits(statement.body)
        if isinstance(statement, ast.Try):
            return self.waits(statement.body) or self.waits(statement.finalbody)
        return self._calls_wait(statement)

    def _calls_wait(self, node: ast.AST) -> bool:
        for call in ast.walk(node):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr in self.methods and not _HOST_THREADS.search(ast.unparse(call.func.value)):
                return True
            own = isinstance(call.func.value, ast.Name) and call.func.value.id == "self"
            told = self.called(call.func.attr, method=True) if own else []
            if told and all(doing in _WAITED for doing in told):
                return True
        return False

    def _is_guard(self, test: ast.expr) -> bool:
        """Whether a condition asks no more than whether there is something to wait for, or whether nobody says no."""
        if isinstance(test, ast.Compare):
            return len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot))
        if isinstance(test, ast.Name):
            return test.id in self.switched_on
        return ast.unparse(test).endswith("is_available()")

    # -- keeping -------------------------------------------------------------------------------------------------

    def keeps(self, node: ast.AST) -> bool:
        """Whether a piece of a function touches no device memory."""
        if isinstance(node, ast.stmt):
            if isinstance(node, ast.With):
                return all(_is_lock(item) or not self.carries(item) for item in node.items) and all(
                    map(self.keeps, node.body)
                )
            if not isinstance(node, _ORDINARY):
                return False
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if any(isinstance(t, ast.Subscript) and not self._is_table(t.value) for t in targets):
                return False  # it may be a tensor that is filled
            if isinstance(node, ast.AugAssign) and not self._is_number(node.value):
                return False
        elif isinstance(node, ast.Call):
            if not self._harmless(node):
                return False
        elif isinstance(node, ast.BinOp):
            return self._is_number(node) or not self.carries(node)
        elif isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        elif isinstance(node, ast.Lambda):
            return True
        return all(map(self.keeps, ast.iter_child_nodes(node)))

    def _harmless(self, call: ast.Call) -> bool:
        function = call.func
        if self.carrying and not self.carries(call):
            return True  # it is given metadata at most; one that is given nothing may take what is kept elsewhere
        if isinstance(function, ast.Name):
            name = function.id
            if name in _ASKS or (name[:1].isupper() and name not in self.given):
                return True
            told = self.called(name, method=False)
            return bool(told) and all(doing is Doing.KEEPS for doing in told)
        if not isinstance(function, ast.Attribute):
            return False
        name = function.attr
        if name in _TABLES or name in _SHAPES or name == "__init__" or name[:1].isupper():
            return True
        if ast.unparse(function) in (
            "torch.is_tensor",
            "time.time",
            "time.perf_counter",
            "threading.get_ident",
        ):
            return True
        own = isinstance(function.value, ast.Name) and function.value.id in ("self", "cls")
        told = self.called(name, method=True) if own else []
        return bool(told) and all(doing is Doing.KEEPS for doing in told)

    def _is_table(self, node: ast.expr) -> bool:
        """Whether what is filled under a key is a list or a dict by how the file makes it."""
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return bool(name) and re.search(_TABLE % re.escape(name.encode()), _bytes(self.file)) is not None

    def _is_number(self, node: ast.expr) -> bool:
        """Whether an expression is a count, a size or a text."""
        if isinstance(node, ast.BinOp):
            return self._is_number(node.left) and self._is_number(node.right)
        if isinstance(node, ast.Name):
            return node.id in self.numbers
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        if isinstance(node, ast.Call):
            named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            return named in _SHAPES or named in ("len", "int", "min", "max", "str", "time", "perf_counter")
        return isinstance(
            node, (ast.Constant, ast.Attribute, ast.JoinedStr, ast.UnaryOp, ast.List, ast.Tuple)
        )


def _is_metadata_type(annotation: ast.expr) -> bool:
    """Whether a parameter is said to be a device, a type of elements or a shape."""
    return ast.unparse(annotation) in ("torch.device", "torch.dtype", "torch.Size")


_NUMBER = re.compile(r"(?:Optional\[|\"|')?(?:int|float|str|bool)\b")
_COUNTED = re.compile(
    r"(?:^|_)(?:num|n|count|counter|size|idx|index|len|length|id|step|steps|pos|total|bytes|max|min)(?:_|$)"
)
"""What an attribute is called that is a number."""
_TABLE = rb"\b%s\b(?:\s*:[^=\n]+)?\s*=\s*(?:[\[{(]|list\(|[\w.]*(?:dict|Dict|deque)\(|[\w.]+\.(?:get|setdefault)\()"


_HOST_THREADS = re.compile(
    r"(?:^|[._])(?:cv|cond|condition|lock|mutex|barrier|thread|process|proc)$", re.IGNORECASE
)
"""What is waited for by one thread or process of the host for another."""


def _is_lock(item: ast.withitem) -> bool:
    text = ast.unparse(item.context_expr).lower()
    return any(
        word in text for word in ("lock", "mutex", "nullcontext", "no_grad", "inference_mode", "_cv", "cond")
    )
