"""One module as the index knows it: the names it binds, its classes and its functions. No file is read here."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streamsafe.static.syntax.ir import Type
from streamsafe.static.syntax.scopes import FunctionNode, Scope, absolute, as_type, dotted


class Symbol(NamedTuple):
    """What a name stands for.

    kind and name:
        function: a function of the tree, its id
        class:    a class of the tree, its id
        module:   a module of the tree, its name
        library:  something outside the tree, by its dotted name (``builtins.len``, ``torch.cuda.Stream``)
        variable: a variable of a module or a class: ``module:name``, ``module:Class.name``
        unknown:  nothing is known
    """

    kind: Literal["function", "class", "module", "library", "variable", "unknown"]
    name: str


UNKNOWN = Symbol("unknown", "")


class Binding(NamedTuple):
    """How a module binds a name: ``import`` and ``alias`` lead on by a dotted name, the others end here.

    Of ``from a.b import c`` the target is ``a.b`` and ``name`` is ``c``.
    """

    kind: Literal["function", "class", "import", "alias", "variable"]
    target: str
    name: str = ""


@dataclass(slots=True)
class Definition:
    """A function before it is lowered.

    Attributes:
        around: the scope that it sees, of a function inside a function.
        classes: names of the classes around it, outermost first.
    """

    fid: str
    name: str
    node: FunctionNode
    module: str
    cls: str | None = None
    around: Scope | None = None
    classes: tuple[str, ...] = ()

    @property
    def decorators(self) -> tuple[str, ...]:
        """The dotted names of its decorators, as written, outermost first."""
        return () if isinstance(self.node, ast.Lambda) else tuple(dotted(d) for d in self.node.decorator_list)


@dataclass(slots=True)
class Class:
    """A class of the tree.

    Attributes:
        cid: its id: ``module:Outer.Name``.
        bases: as written.
        methods: name -> function id; of a property, its getter.
        setters: name -> function id of a property's setter.
        properties: names that are computed when they are read (``property``, ``cached_property``).
        annotated: names annotated in the body, in order, and their types.
        assigned: names that the body assigns, and the value (the last one).
        inner: classes defined in the body: name -> id.
        decorators: as written.
    """

    cid: str
    name: str
    module: str
    bases: tuple[Type, ...]
    methods: dict[str, str] = field(default_factory=dict)
    setters: dict[str, str] = field(default_factory=dict)
    properties: set[str] = field(default_factory=set)
    annotated: dict[str, Type] = field(default_factory=dict)
    assigned: dict[str, ast.expr] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)
    decorators: tuple[str, ...] = ()


@dataclass(slots=True)
class Module:
    """A module of the tree.

    Attributes:
        name: its dotted name; unique in the index.
        path: its file.
        package: what relative imports start from.
        stars: modules whose names it imports with ``*``.
        exported: ``__all__``, where it is a plain list.
        rebinds: whether it has ``:=`` or ``nonlocal``.
        source: the text that was parsed, in UTF-8.
    """

    name: str
    path: str
    package: str
    tree: ast.Module
    names: dict[str, Binding] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    exported: frozenset[str] | None = None
    rebinds: bool = True
    source: bytes = b""
    starts: list[int] = field(default_factory=list)

    def lines(self, first: int, last: int) -> bytes:
        """The text of some lines, counted from 1."""
        if not self.starts:
            self.starts.append(0)
            at = self.source.find(b"\n")
            while at >= 0:
                self.starts.append(at + 1)
                at = self.source.find(b"\n", at + 1)
            self.starts.append(len(self.source))
        return self.source[self.starts[first - 1] : self.starts[min(last, len(self.starts) - 1)]]


@dataclass(slots=True)
class Contents:
    """What one module defines, collected by :func:`collect`."""

    functions: list[Definition] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    ids: dict[ast.AST, str] = field(default_factory=dict)


def collect(module: Module) -> Contents:
    """Fill a module's names and list what it defines at its top level and in its classes."""
    contents = Contents()
    _Collector(module, contents).block(module.tree.body, "", None, (), weak=False)
    return contents


def class_contents(
    node: ast.ClassDef, cid: str, module: Module, around: Scope | None, classes: tuple[str, ...]
) -> Contents:
    """A class defined inside a function, and its methods."""
    contents = Contents()
    collector = _Collector(module, contents, around)
    collector.class_body(node, cid, classes)
    return contents


class _Collector:
    def __init__(self, module: Module, contents: Contents, around: Scope | None = None) -> None:
        self.module = module
        self.contents = contents
        self.around = around
        self.taken: set[str] = set()

    def unique(self, name: str) -> str:
        out, n = name, 1
        while out in self.taken:
            n += 1
            out = f"{name}#{n}"
        self.taken.add(out)
        return out

    def bind(self, name: str, binding: Binding, weak: bool) -> None:
        """Later bindings win, but those of handlers and else branches, and plain values, only where there is none."""
        names = self.module.names
        if weak or (binding.kind == "variable" and name in names):
            names.setdefault(name, binding)
        else:
            names[name] = binding

    def block(
        self, body: Iterable[ast.stmt], prefix: str, cls: Class | None, classes: tuple[str, ...], weak: bool
    ) -> None:
        """Statements of a module or of a class, conditional ones included."""
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.function(node, prefix, cls, classes, weak)
            elif isinstance(node, ast.ClassDef):
                cid = self.unique(f"{self.module.name}:{prefix}{node.name}")
                if cls is None:
                    self.bind(node.name, Binding("class", cid), weak)
                elif not weak or node.name not in cls.inner:
                    cls.inner[node.name] = cid
                self.class_body(node, cid, classes)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                if cls is None:
                    self.imports(node, weak)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                self.assignment(node, cls, weak)
            else:
                self.compound(node, prefix, cls, classes, weak)

    def compound(
        self, node: ast.stmt, prefix: str, cls: Class | None, classes: tuple[str, ...], weak: bool
    ) -> None:
        self.block(getattr(node, "body", ()), prefix, cls, classes, weak)
        for handler in getattr(node, "handlers", ()):
            self.block(handler.body, prefix, cls, classes, weak=True)
        otherwise = weak or isinstance(node, ast.If)
        self.block(getattr(node, "orelse", ()), prefix, cls, classes, otherwise)
        self.block(getattr(node, "finalbody", ()), prefix, cls, classes, weak)
        for case in getattr(node, "cases", ()):
            self.block(case.body, prefix, cls, classes, weak)

    def function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        prefix: str,
        cls: Class | None,
        classes: tuple[str, ...],
        weak: bool,
    ) -> None:
        fid = self.unique(f"{self.module.name}:{prefix}{node.name}")
        definition = Definition(
            fid, node.name, node, self.module.name, cls.cid if cls else None, self.around, classes
        )
        self.contents.functions.append(definition)
        self.contents.ids[node] = fid
        if cls is None:
            self.bind(node.name, Binding("function", fid), weak)
            return
        decorators = definition.decorators
        if any(d.endswith((".setter", ".deleter")) for d in decorators):
            if decorators[-1].endswith(".setter"):
                cls.setters[node.name] = fid
            return
        if any(d.endswith("overload") for d in decorators) and node.name in cls.methods:
            return
        if weak and node.name in cls.methods:
            return
        cls.methods[node.name] = fid
        if any(d.rpartition(".")[2] in ("property", "cached_property") for d in decorators):
            cls.properties.add(node.name)

    def class_body(self, node: ast.ClassDef, cid: str, classes: tuple[str, ...]) -> None:
        bases = tuple(as_type(base) or Type("?") for base in node.bases)
        cls = Class(cid, node.name, self.module.name, bases)
        cls.decorators = tuple(dotted(d) for d in node.decorator_list)
        self.contents.classes.append(cls)
        self.contents.ids[node] = cid
        prefix = cid.partition(":")[2] + "."
        self.block(node.body, prefix, cls, (*classes, node.name), weak=False)

    def imports(self, node: ast.Import | ast.ImportFrom, weak: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.split(".")[0]
                self.bind(alias.asname or target, Binding("import", target), weak)
            return
        base = absolute(self.module.package, node.module, node.level)
        for alias in node.names:
            if alias.name == "*":
                self.module.stars.append(base)
            else:
                self.bind(alias.asname or alias.name, Binding("import", base, alias.name), weak)

    def assignment(self, node: ast.Assign | ast.AnnAssign, cls: Class | None, weak: bool) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for name in names_of(target):
                if cls is None:
                    self.variable(name, target, node.value, weak)
                elif node.value is not None:
                    cls.assigned[name] = node.value
                if isinstance(node, ast.AnnAssign) and cls is not None:
                    cls.annotated[name] = as_type(node.annotation) or Type("?")

    def variable(self, name: str, target: ast.expr, value: ast.expr | None, weak: bool) -> None:
        if name == "__all__" and isinstance(value, (ast.List, ast.Tuple)):
            texts = [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            self.module.exported = frozenset(texts)
        fields = _tuple_fields(value)
        if fields is not None and isinstance(target, ast.Name) and name not in self.module.names:
            self.named_tuple(name, fields, weak)
            return
        alias = "?"
        if isinstance(target, ast.Name) and isinstance(value, (ast.Name, ast.Attribute)):
            alias = dotted(value)
        if "?" not in alias and alias.split(".")[0] != name and name not in self.module.names:
            self.bind(name, Binding("alias", alias), weak)
        else:
            if self.module.names.get(name, Binding("variable", "")).kind == "alias":
                del self.module.names[name]  # bound twice: it stands for neither
            self.bind(name, Binding("variable", f"{self.module.name}:{name}"), weak)

    def named_tuple(self, name: str, fields: list[str], weak: bool) -> None:
        """``Name = namedtuple("Name", "a b")``: a class with these fields."""
        cls = Class(
            self.unique(f"{self.module.name}:{name}"), name, self.module.name, (Type("typing.NamedTuple"),)
        )
        cls.annotated = dict.fromkeys(fields, Type("?"))
        self.contents.classes.append(cls)
        self.bind(name, Binding("class", cls.cid), weak)


def _tuple_fields(node: ast.expr | None) -> list[str] | None:
    """The fields of ``namedtuple("Name", "a b")`` or ``NamedTuple("Name", [("a", int)])``; None of anything else."""
    if not isinstance(node, ast.Call) or len(node.args) != 2:
        return None
    if dotted(node.func).rpartition(".")[2] not in ("namedtuple", "NamedTuple"):
        return None
    given = node.args[1]
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return given.value.replace(",", " ").split()
    if not isinstance(given, (ast.List, ast.Tuple)):
        return None
    names = [
        each.elts[0] if isinstance(each, (ast.Tuple, ast.List)) and each.elts else each for each in given.elts
    ]
    texts = [each.value for each in names if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return texts if len(texts) == len(names) else None


def names_of(target: ast.expr) -> list[str]:
    """The plain names among the targets of an assignment."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for element in target.elts for name in names_of(element)]
    return names_of(target.value) if isinstance(target, ast.Starred) else []
