"""A source file in slices: only the functions, classes and statements that are needed become LibCST trees.

``ast`` (fast, no whitespace) finds where the top-level statements stand, what they import, define and call. A slice
becomes a tree when the interpreter asks for it; LibCST itself parses it, for positions, only when something is reported
there.

One file: all of it is the index of one file, computed from one ``ast`` tree and kept for its lifetime.
"""

from __future__ import annotations

import ast
import io
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamsafe.apis import names as apis
from streamsafe.project.text import NESTED, SourceError, parse
from streamsafe.static import stream_terms
from streamsafe.static.owners import Owners
from streamsafe.static.stream_terms import last_name

if TYPE_CHECKING:
    import libcst as cst

    from streamsafe.order.hazard import Span

AstFunction = ast.FunctionDef | ast.AsyncFunctionDef
_PARSING = threading.Lock()
_OF_OPTIMIZERS = ("zero_grad", "param_groups")
_OTHER_LIBRARIES = frozenset("mxnet paddle mindspore oneflow tensorflow keras jax flax".split())
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(eq=False)
class Slice:
    """One top-level statement of a file."""

    file: SourceFile
    first: int
    last: int

    @cached_property
    def methods(self) -> dict[str, list[MethodSlice]]:
        """Of a class: its methods that are parsed on demand, by name, in their order."""
        found: dict[str, list[MethodSlice]] = defaultdict(list)
        statement = next(iter(self.file.starting_at.get(self.first, ())), None)
        for child in statement.body if isinstance(statement, ast.ClassDef) else ():
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            body = child.body[0]
            begin = _begin(body)
            line = self.file.lines[begin - 1]
            if begin > child.lineno and not line[: body.col_offset].strip():
                found[child.name].append(
                    MethodSlice(self.file, _begin(child), child.end_lineno or child.lineno, begin, child)
                )
        return found

    @cached_property
    def text(self) -> str:
        """Its source; of methods that are parsed on demand only the head, in the same lines."""
        lines = self.file.lines[self.first - 1 : self.last]
        for method in (m for methods in self.methods.values() for m in methods):
            start, end = method.body - self.first, method.last - self.first
            indentation = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
            lines[start : end + 1] = [f"{indentation}...\n", *["\n"] * (end - start)]
        return "".join(lines)

    @property
    def base(self) -> int:
        """How many lines of the file stand before its text."""
        return self.first - 1

    @cached_property
    def module(self) -> cst.Module:
        """Its concrete syntax tree, without layout."""
        from streamsafe.static.nodes import Builder

        hollow = {method.node for methods in self.methods.values() for method in methods}
        builder = Builder(self.file.lines, hollow)
        made = builder.module(self.file.starting_at[self.first])
        self.file.function_rows.update(builder.rows)
        return made

    @property
    def tree(self) -> cst.CSTNode:
        """What of it was made."""
        return self.module

    @staticmethod
    def tree_of(module: cst.Module) -> cst.CSTNode:
        """What of LibCST's tree of its text stands for that."""
        return module

    @cached_property
    def _positions(self) -> dict[cst.CSTNode, tuple[int, int, int, int]]:
        """Where the nodes stand in its text: LibCST knows, and is asked where something is reported."""
        import libcst
        from libcst.metadata import MetadataWrapper, PositionProvider

        from streamsafe.static.nodes import pairs

        try:
            with _unchecked():
                parsed = libcst.parse_module(self.text)
        except libcst.ParserSyntaxError as error:
            row = self.base + error.raw_line
            raise SourceError(error.message, row, error.raw_column + 1) from error
        except RecursionError as error:
            raise SourceError(NESTED, self.first) from error
        places = MetadataWrapper(parsed, unsafe_skip_copy=True).resolve(PositionProvider)
        return {
            made: (place.start.line, place.start.column, place.end.line, place.end.column)
            for made, node in pairs(self.tree, self.tree_of(parsed))
            if (place := places.get(node)) is not None
        }

    def span(self, node: cst.CSTNode) -> Span:
        """Where a node of this slice stands in the file."""
        from streamsafe.order.hazard import Span

        row, column, end_row, end_column = self._positions.get(node, (1, 0, 1, 1))
        base = self.base
        return Span(self.file.filename, row + base, column + 1, end_row + base, end_column + 1)

    def rows(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of a node in the file."""
        if node in self.file.function_rows:
            return self.file.function_rows[node]
        row, _, end_row, _ = self._positions.get(node, (1, 0, 1, 1))
        return row + self.base, end_row + self.base


@dataclass(eq=False)
class MethodSlice(Slice):
    """A method of a top-level class, parsed when it is interpreted."""

    body: int  # the line in which its body begins
    node: AstFunction

    @cached_property
    def text(self) -> str:
        """Its source, in a class of its own: it keeps its indentation."""
        return "class _:\n" + "".join(self.file.lines[self.first - 1 : self.last])

    @property
    def base(self) -> int:
        """How many lines of the file stand before its text."""
        return self.first - 2

    @cached_property
    def function(self) -> cst.FunctionDef:
        """Its definition."""
        from streamsafe.static.nodes import Builder

        builder = Builder(self.file.lines)
        made = builder.function(self.node)
        self.file.function_rows.update(builder.rows)
        return made

    @property
    def tree(self) -> cst.CSTNode:
        """What of it was made."""
        return self.function

    @staticmethod
    def tree_of(module: cst.Module) -> cst.CSTNode:
        """What of LibCST's tree of its text stands for that."""
        return module.body[0].body.body[0]  # type: ignore[union-attr]


@dataclass(eq=False)
class FunctionUnit:
    """A function as the interpreter calls it.

    Attributes:
        head: its definition, without its body if that stands ``apart``, in a slice of its own.
    """

    name: str
    qualname: str
    head: cst.FunctionDef | cst.Lambda
    slice: Slice
    owner: ClassUnit | None = None
    generator: bool = False
    decorators: tuple[str, ...] = ()
    apart: MethodSlice | None = None

    @property
    def node(self) -> cst.FunctionDef | cst.Lambda:
        """Its definition."""
        return self.apart.function if self.apart else self.head

    @property
    def is_contextmanager(self) -> bool:
        """Whether a call of it gives a context manager."""
        return any(d.endswith("contextmanager") for d in self.decorators)

    @property
    def is_property(self) -> bool:
        """Whether reading the attribute calls it."""
        return any(d == "property" or d.endswith("cached_property") for d in self.decorators)

    @property
    def is_kept(self) -> bool:
        """Whether what the attribute was when it was first read it is from then on."""
        return any(d.endswith("cached_property") for d in self.decorators)

    @property
    def is_static(self) -> bool:
        """Whether it takes no ``self``."""
        return "staticmethod" in self.decorators

    @property
    def is_memoized(self) -> bool:
        """Whether it gives the same object again for the same arguments."""
        return any(d.rpartition(".")[2] in ("lru_cache", "cache") for d in self.decorators)

    @property
    def is_classmethod(self) -> bool:
        """Whether it takes the class first."""
        return "classmethod" in self.decorators

    def takes(self, positional: int, keywords: Collection[str]) -> bool:
        """Whether a call of so many arguments and these keywords fits; the receiver is not counted."""
        parameters = self.head.params
        named = [*parameters.posonly_params, *parameters.params]
        if self.owner is not None and not self.is_static:
            named = named[1:]
        given = {p.name.value for p in named[:positional]} | set(keywords)
        by_keyword = {p.name.value for p in (*named[positional:], *parameters.kwonly_params)}
        if positional > len(named) and type(parameters.star_arg).__name__ != "Param":
            return False
        if parameters.star_kwarg is None and not set(keywords) <= by_keyword:
            return False
        needed = {p.name.value for p in (*named, *parameters.kwonly_params) if p.default is None}
        return needed <= given

    def __repr__(self) -> str:
        return f"<{self.qualname}>"


_HOLDERS = {
    **dict.fromkeys(("dict", "OrderedDict", "UserDict", "defaultdict", "Dict"), "dict"),
    **dict.fromkeys(("list", "UserList", "List", "deque"), "list"),
}

_FIELDED = frozenset({"dataclass", "define", "frozen", "mutable", "attrs", "s"})
"""Decorators, of the standard library or of attrs, that make a constructor of a class's fields."""


@dataclass(eq=False)
class ClassUnit:
    """A class of the file."""

    name: str
    node: cst.ClassDef
    slice: Slice
    bases: tuple[str, ...] = ()
    methods: dict[str, FunctionUnit] = field(default_factory=dict)
    setters: dict[str, FunctionUnit] = field(default_factory=dict)
    attributes: dict[str, cst.BaseExpression] = field(default_factory=dict)
    annotations: dict[str, cst.BaseExpression] = field(default_factory=dict)
    decorators: tuple[str, ...] = ()
    classes: dict[str, ClassUnit] = field(default_factory=dict)
    qualname: str = ""

    @property
    def is_named_tuple(self) -> bool:
        """Whether it is iterated and unpacked like the tuple of its fields."""
        return any("NamedTuple" in base for base in self.bases)

    @property
    def holds(self) -> str:
        """What kind of container its instances are, where a base says so."""
        return next((kind for base in self.bases if (kind := _HOLDERS.get(base.rpartition(".")[2]))), "")

    @property
    def is_enumeration(self) -> bool:
        """Whether its attributes are members that differ by their names."""
        return any(base.rpartition(".")[2] in ("Enum", "StrEnum") for base in self.bases)

    @property
    def is_dataclass(self) -> bool:
        """Whether ``__init__`` comes from its fields."""
        return any(d.rpartition(".")[2] in _FIELDED for d in self.decorators)

    def __repr__(self) -> str:
        return f"<class {self.name}>"


@dataclass(eq=False)
class Definition:
    """A function as ``ast`` sees it: what it calls, what it has to do with streams, and whether it yields."""

    qualname: str
    node: AstFunction
    calls: frozenset[str]
    stream_terms: int
    generator: bool
    top: str  # the top-level function or class it stands in

    @cached_property
    def called_on_self(self) -> frozenset[str]:
        """The methods that it calls, or mentions, of its own object."""
        return frozenset(
            inner.attr
            for inner in stream_terms.walk(self.node)
            if isinstance(inner, ast.Attribute)
            and (
                (isinstance(inner.value, ast.Name) and inner.value.id in ("self", "cls"))
                or (isinstance(inner.value, ast.Call) and getattr(inner.value.func, "id", "") == "super")
            )
        )


class SourceFile:
    """A file, its imports and its top-level statements.

    Args:
        text: the source.
        filename: for spans.

    Raises:
        SourceError: it does not parse.
    """

    def __init__(self, text: str, filename: str, own: range | None = None) -> None:
        self.filename = filename
        self.own = own
        self.lines = list(io.StringIO(text))  # str.splitlines would also end lines at form feeds
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += "\n"
        self.tree = parse(text)
        self.imports: dict[str, str] = {}
        self.statements: list[ast.stmt] = list(self.tree.body)
        self.functions: dict[str, ast.stmt] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.nested: dict[str, ast.ClassDef] = {}  # classes in the bodies of classes, by qualified name
        self.bindings: dict[str, list[ast.stmt]] = defaultdict(list)
        self.definitions: dict[str, list[Definition]] = defaultdict(list)
        self.function_rows: dict[cst.CSTNode, tuple[int, int]] = {}  # of those that were made into nodes
        self._slices: dict[ast.stmt, Slice] = {}
        self._index()

    @cached_property
    def starting_at(self) -> dict[int, list[ast.stmt]]:
        """Top-level statements by the line in which they begin."""
        found: dict[int, list[ast.stmt]] = defaultdict(list)
        for statement in self.statements:
            found[_begin(statement)].append(statement)
        return found

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All that there is in it, as :func:`stream_terms.walk` gives it."""
        return list(stream_terms.walk(self.tree))

    @cached_property
    def first_rows(self) -> list[int]:
        """The line of each top-level statement, in order; of a function or class, that of its name."""
        return [statement.lineno for statement in self.statements]

    @cached_property
    def library(self) -> str:
        """The one library that it uses: ``cupy``, or ``torch`` where that is not all there is."""
        tops = {name.partition(".")[0] for name in self.imports.values()}
        return "cupy" if "cupy" in tops and "torch" not in tops else "torch"

    @cached_property
    def has_passes(self) -> bool:
        """Whether it runs backward passes: a function that runs one may be called for several modules."""
        return any(
            (isinstance(node, AstFunction) and node.name == "backward")
            or (
                isinstance(node, ast.Attribute)
                and (node.attr == "backward" or (node.attr == "grad" and last_name(node.value) == "autograd"))
            )
            for node in self.nodes
        )

    @cached_property
    def optimizers(self) -> frozenset[str]:
        """The names and attributes of what steps and has gradients that it sets to zero, or groups of parameters."""
        used: dict[str, set[str]] = defaultdict(set)
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and node.attr in ("step", *_OF_OPTIMIZERS):
                used[last_name(node.value)].add(node.attr)
        return frozenset(
            name
            for name, methods in used.items()
            if "step" in methods and not methods.isdisjoint(_OF_OPTIMIZERS)
        )

    @cached_property
    def functions_that_keep_gradients(self) -> list[str]:
        """The classes of the file that are functions of autograd's, and add to gradients beside ``.grad``."""
        return [
            name
            for name, node in self.classes.items()
            if any(apis.MAIN_GRADIENT in d.calls for d in self.definitions.get(f"{name}.backward", ()))
            and any("Function" in (getattr(b, "attr", "") or getattr(b, "id", "")) for b in node.bases)
        ]

    @cached_property
    def implementations(self) -> dict[str, str]:
        """Of abstract classes and protocols the one class of the file that implements them."""
        heirs: dict[str, list[str]] = defaultdict(list)
        for name, node in self.classes.items():
            for base in node.bases:
                heirs[last_name(base)].append(name)
        abstract = {
            name
            for name, node in self.classes.items()
            if any(last_name(base) in ("ABC", "Protocol") for base in node.bases)
            or any(last_name(keyword.value) == "ABCMeta" for keyword in node.keywords)
        }
        return {name: heirs[name][0] for name in abstract if len(heirs[name]) == 1}

    @cached_property
    def is_foreign(self) -> bool:
        """Whether it is written for another library, whose arrays and gradients are not torch's or CuPy's."""
        tops = {name.partition(".")[0] for name in self.imports.values()}
        if "torch_xla" in tops and not any(map(_says_cuda, self.nodes)):
            return True  # torch's, on devices whose queues are not CUDA's
        return not tops.isdisjoint(_OTHER_LIBRARIES) and not any(
            name.startswith(("torch", "cupy"))
            for node in self.nodes
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in (
                [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            )
        )

    @cached_property
    def tests_device(self) -> bool:
        """Whether it asks of tensors whether they are on the device."""
        return any(isinstance(node, ast.Attribute) and node.attr == "is_cuda" for node in self.nodes)

    @cached_property
    def tests_device_kind(self) -> bool:
        """Whether it asks whether a device, or a tensor's, is the host."""
        return self.tests_device or any(
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], (ast.Eq, ast.NotEq))
            and any(map(_says_host, (node.left, node.comparators[0])))
            for node in self.nodes
        )

    @cached_property
    def picks_by_remainder(self) -> bool:
        """Whether a parameter of some function, brought down to one of a few, picks one: ``slots[step % 2]``."""
        return any("%" in line for line in self.lines) and any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Mod)
            and isinstance(part.left, ast.Name)
            and part.left.id in {a.arg for a in definition.node.args.args}
            for definitions in self.definitions.values()
            for definition in definitions
            for node in stream_terms.walk(definition.node)
            if isinstance(node, (ast.Subscript, ast.IfExp))
            for part in stream_terms.walk(node.slice if isinstance(node, ast.Subscript) else node.test)
        )

    @cached_property
    def owners(self) -> Owners:
        """What its functions do to the attributes of each class, and to their variables."""
        return Owners(self.tree, {**self.classes, **self.nested})

    def may_set(self, name: str, classes: Set[str], attribute: str) -> bool:
        """Whether a function, other than the constructor, may set an attribute of an object of the module.

        One that asks for the attribute, too, sets it on first use: whoever needs it calls that function.

        Args:
            name: the name of the module that holds the object.
            classes: the object's classes.
            attribute: the attribute's name.
        """
        users = self._attribute_owners.get(attribute, frozenset[tuple[str, str, bool]]())
        for function, owner, sets in users:
            if not sets or (function, owner, False) in users:
                continue
            if owner == "self":
                within, _, method = function.partition(".")
                if within in classes and method != "__init__":
                    return True
            elif owner == name or owner not in self.bindings:
                if self.owners.may_be_of(self.owners.place(attribute, owner, "", function), classes):
                    return True
        return False

    @cached_property
    def _attribute_owners(self) -> dict[str, set[tuple[str, str, bool]]]:
        """By name of an attribute, the functions that set it, or ask for it, each with the last name of whose it is."""
        found: dict[str, set[tuple[str, str, bool]]] = defaultdict(set)
        for qualname, definitions in self.definitions.items():
            for node in (node for d in definitions for node in stream_terms.walk(d.node)):
                if isinstance(node, ast.Attribute):
                    found[node.attr].add((qualname, last_name(node.value), isinstance(node.ctx, ast.Store)))
        return found

    @cached_property
    def flags(self) -> frozenset[str]:
        """The names that some ``if`` or ``while`` asks whether they are set."""
        found: set[str] = set()
        tests = [node.test for node in self.nodes if isinstance(node, (ast.If, ast.While, ast.IfExp))]
        while tests:
            test = tests.pop()
            if isinstance(test, ast.BoolOp):
                tests.extend(test.values)
            elif isinstance(test, ast.UnaryOp):
                tests.append(test.operand)
            elif isinstance(test, ast.Compare):
                tests.append(test.left)
            elif isinstance(test, ast.Name):
                found.add(test.id)
        return frozenset(found)

    @cached_property
    def switched(self) -> dict[str, frozenset[str]]:
        """By class, the attributes that a method sets true, and another one false, its constructor apart."""
        set_by: dict[tuple[str, str], set[tuple[bool, str]]] = defaultdict(set)
        for qualname, definitions in self.definitions.items():
            owner, _, method = qualname.rpartition(".")
            if owner not in self.classes or method == "__init__":
                continue
            for node in (node for d in definitions for node in stream_terms.walk(d.node)):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    for target in node.targets:
                        if isinstance(target, ast.Attribute) and type(node.value.value) is bool:
                            set_by[owner, target.attr].add((node.value.value, method))
        found: dict[str, frozenset[str]] = {}
        for (owner, attribute), by in set_by.items():
            true, false = ({m for v, m in by if v is wanted} for wanted in (True, False))
            if true and false and len(true | false) > 1:
                found[owner] = found.get(owner, frozenset()) | {attribute}
        return found

    @cached_property
    def stored(self) -> frozenset[str]:
        """The attributes that something assigns, and every word that a call other than a question is given."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") not in ("getattr", "hasattr"):
                given = (*node.args, *(keyword.value for keyword in node.keywords))
                found.update(v.value for v in given if isinstance(v, ast.Constant) and type(v.value) is str)
        return frozenset(found)

    def has_other_argument(self, function: str, parameter: str, position: int, value: str) -> bool:
        """Whether some call of a function gives another value than this constant for a parameter."""
        for call in self._calls_by_name.get(function, ()):
            given = next((k.value for k in call.keywords if k.arg == parameter), None)
            method = isinstance(call.func, ast.Attribute)
            if given is None and len(call.args) > position - method >= 0:
                given = call.args[position - method]
            if given is not None and not (isinstance(given, ast.Constant) and given.value == value):
                return True
        return False

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, ast.Call):
                found[last_name(node.func)].append(node)
                if last_name(node.func) == "partial" and node.args:
                    bound = ast.Call(node.args[0], node.args[1:], node.keywords)
                    found[last_name(node.args[0])].append(bound)
        return found

    @cached_property
    def set_by_functions(self) -> frozenset[str]:
        """The names of the module that some function binds anew."""
        if not any(line.lstrip().startswith("global ") for line in self.lines):
            return frozenset()
        nodes = (node for node in self.nodes if isinstance(node, ast.Global))
        return frozenset(name for node in nodes for name in node.names)

    @cached_property
    def turning(self) -> frozenset[str]:
        """The names and attributes that go round a few numbers: ``i = 1 - i``, ``i ^= 1``, ``i = (i + 1) % n``."""
        found: set[str] = set()
        for node in self.nodes:
            target: ast.expr
            if isinstance(node, ast.AugAssign):
                target, turns = node.target, isinstance(node.op, (ast.BitXor, ast.Mod))
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, turns = node.targets[0], _turns(node.value)
            else:
                continue
            if turns and isinstance(target, (ast.Name, ast.Attribute)):
                found.add(target.id if isinstance(target, ast.Name) else target.attr)
        return frozenset(found)

    @cached_property
    def generators(self) -> frozenset[str]:
        """The names of the functions that yield."""
        if not any("yield" in line for line in self.lines):
            return frozenset()
        return frozenset(
            node.name
            for node in self.nodes
            if isinstance(node, ast.FunctionDef)
            and any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(node))
        )

    @cached_property
    def fills(self) -> dict[str, list[ast.stmt]]:
        """The top-level statements that put something into what a name of the module holds."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in _flat(self.statements):
            place: ast.expr | None = None
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
                place = statement.targets[0].value
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                function = statement.value.func
                place = function.value if isinstance(function, ast.Attribute) else None
            if isinstance(place, ast.Name):
                found.setdefault(place.id, []).append(statement)
        return found

    @cached_property
    def translated(self) -> frozenset[str]:
        """Functions in a language of the device: what stands in them the host does not do."""
        return frozenset(
            qualname
            for qualname, definitions in self.definitions.items()
            if definitions
            and all(any(map(self._is_of_device, getattr(d.node, "decorator_list", ()))) for d in definitions)
        )

    def _is_of_device(self, decorator: ast.expr) -> bool:
        first, _, rest = ast.unparse(
            decorator.func if isinstance(decorator, ast.Call) else decorator
        ).partition(".")
        return ".".join(filter(None, (self.imports.get(first, first), rest))) in apis.DEVICE_LANGUAGES

    @cached_property
    def registered(self) -> dict[str, list[str]]:
        """Functions and classes whose decorators, functions of the file themselves, mention a name of the module.

        A decorator mentions what its function does, what it is given, and the class or object that it is a method of.
        What a base does in ``__init_subclass__`` it does to each class that inherits from it.
        """
        found: dict[str, list[str]] = {}
        for name, decorated in (*self.functions.items(), *self.classes.items()):
            for decorator in getattr(decorated, "decorator_list", ()):
                base = decorator.func if isinstance(decorator, ast.Call) else decorator
                made_by = base.id if isinstance(base, ast.Name) else ""
                mentioned = {n for d in self.definitions.get(made_by, ()) for n in d.calls}
                if made_by in self.functions or isinstance(base, ast.Attribute):
                    mentioned |= {n.id for n in stream_terms.walk(decorator) if isinstance(n, ast.Name)}
                    mentioned.discard(made_by)
                for each in sorted(mentioned & self.bindings.keys()):
                    found.setdefault(each, []).append(name)
        for name, node in self.classes.items():
            for base in self._bases(node):
                for definition in self.definitions.get(f"{base}.__init_subclass__", ()):
                    for each in sorted((definition.calls | {base}) & self.bindings.keys()):
                        found.setdefault(each, []).append(name)
        return found

    def _bases(self, node: ast.ClassDef) -> list[str]:
        """The classes of the file that a class inherits from."""
        found: list[str] = []
        todo = [node]
        while todo:
            for base in todo.pop().bases:
                if isinstance(base, ast.Name) and base.id in self.classes and base.id not in found:
                    found.append(base.id)
                    todo.append(self.classes[base.id])
        return found

    def slice(self, statement: ast.stmt) -> Slice:
        """The slice of a top-level statement."""
        found = self._slices.get(statement)
        if found is None:
            first = _begin(statement)
            found = self._slices[statement] = Slice(self, first, statement.end_lineno or statement.lineno)
        return found

    def segment(self, node: ast.stmt) -> str:
        """The lines of a statement."""
        return "".join(self.lines[node.lineno - 1 : node.end_lineno])

    def _index(self) -> None:
        for statement in _flat(self.statements):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[statement.name] = statement
                self.bindings[statement.name].append(statement)
            elif isinstance(statement, ast.ClassDef):
                self.classes[statement.name] = statement
                self.bindings[statement.name].append(statement)
            elif isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._import(statement)
        for top in self.statements:
            names = (
                {
                    node.id: None
                    for node in stream_terms.walk(top)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                }
                if not isinstance(top, _SCOPES)
                else {}
            )
            for name in names:
                self.bindings[name].append(top)
        for top in self.statements:
            name = getattr(top, "name", "")
            self._define(top, "", name)
        if any("getattr(" in line for line in self.lines):
            self._call_by_name()

    def _call_by_name(self) -> None:
        """Who is given the name of a method and calls what goes by it calls that, and so does who gives it."""
        calling = {
            definition.node.name: definition
            for definitions in self.definitions.values()
            for definition in definitions
            if _calls_by_name(definition.node)
        }
        for definitions in self.definitions.values() if calling else ():
            for definition in definitions:
                for called in sorted(definition.calls.intersection(calling)):
                    named = _given_names(definition.node, called)
                    definition.calls |= named
                    calling[called].calls |= named

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname:
                    self.imports[alias.asname] = alias.name
                else:
                    top = alias.name.partition(".")[0]
                    self.imports[top] = top
            return
        module = "." * statement.level + (statement.module or "")
        for alias in statement.names:
            dot = "" if module.endswith(".") and not statement.module else "."
            self.imports[alias.asname or alias.name] = f"{module}{dot}{alias.name}"

    def _define(self, node: ast.stmt, prefix: str, top: str) -> None:
        for inner in _flat([node]):
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                qualname = f"{prefix}{inner.name}"
                calls, found, generator, imports = _calls(inner)
                for statement in sorted(imports, key=lambda i: i.lineno):
                    self._import(statement)
                definition = Definition(qualname, inner, calls, found, generator, top)
                self.definitions[qualname].append(definition)
                for child in inner.body:
                    self._define_inside(child, f"{qualname}.", top)
            elif isinstance(inner, ast.ClassDef):
                if prefix and prefix[:-1] in (self.classes.keys() | self.nested.keys()):
                    self.nested[f"{prefix}{inner.name}"] = inner
                for child in inner.body:
                    self._define_inside(child, f"{prefix}{inner.name}.", top)

    def _define_inside(self, node: ast.AST, prefix: str, top: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._define(node, prefix, top)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, block, ()):
                self._define_inside(child, prefix, top)


@contextmanager
def _unchecked() -> Iterator[None]:
    """Nodes are not checked as they are made: the parser makes valid ones, and checking takes a third as long again."""
    from libcst import CSTNode as base

    with _PARSING:  # two threads that took turns could leave the checks switched off
        check = base.__post_init__
        base.__post_init__ = lambda self: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            base.__post_init__ = check  # type: ignore[method-assign]


def _says_cuda(node: ast.AST) -> bool:
    """Whether a name, an attribute or a string mentions CUDA."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and "cuda" in node.value
    return isinstance(node, (ast.Name, ast.Attribute)) and "cuda" in last_name(node)


def _says_host(node: ast.expr) -> bool:
    """Whether this is ``"cpu"``, or the device of that name."""
    if isinstance(node, ast.Call) and last_name(node.func) == "device" and node.args:
        node = node.args[0]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cpu")


def _begin(statement: ast.stmt) -> int:
    """The line in which a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _flat(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, also those inside a top-level ``if``, ``try`` or ``with``."""
    for statement in statements:
        yield statement
        if isinstance(statement, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            for block in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", ()):
                yield from _flat(handler.body)


_NAMING = frozenset({"getattr", "methodcaller", "setattr"})
"""Functions whose meaning a string argument gives."""


def _calls(function: AstFunction) -> tuple[frozenset[str], int, bool, list[ast.Import | ast.ImportFrom]]:
    """The last names of what a function calls or mentions, its stream terms, whether it yields, and what it imports."""
    names: set[str] = set()
    found = 0
    generator = False
    imports: list[ast.Import | ast.ImportFrom] = []
    own = True
    stack: list[object] = []
    inner: list[object] = []  # scopes inside, whose yields are their own
    stream_terms.inside(function, stack)
    while stack or inner:
        if not stack:
            own = False
            stream_terms.inside(inner.pop(), stack)
            continue
        node = stack.pop()
        kind = type(node)
        if kind in stream_terms.KINDS:
            found |= stream_terms.of_node(node)  # type: ignore[arg-type]
            if kind is ast.Name:
                names.add(node.id)  # type: ignore[attr-defined]
                continue
            if kind is ast.Attribute:
                names.add(node.attr)  # type: ignore[attr-defined]
            if kind is ast.Call and type(node.func) is ast.Name and node.func.id in _NAMING:  # type: ignore[attr-defined]
                names.update(a.value for a in node.args if type(a) is ast.Constant and type(a.value) is str)  # type: ignore[attr-defined]
        elif kind is ast.Yield or kind is ast.YieldFrom:
            generator = generator or own
        elif kind is ast.Import or kind is ast.ImportFrom:
            imports.append(node)  # type: ignore[arg-type]
            continue
        if kind in _SCOPES and own:
            inner.append(node)
        else:
            stream_terms.inside(node, stack)
    return frozenset(names), found, generator, imports


def _calls_by_name(function: AstFunction) -> bool:
    """Whether a function calls what an object has under a name that it is given: ``getattr(callback, hook)(...)``."""
    given = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Name)
        and node.args[1].id in given
        for node in stream_terms.walk(function)
    )


def _given_names(function: AstFunction, called: str) -> frozenset[str]:
    """The words that a function gives another one."""
    return frozenset(
        value.value
        for node in stream_terms.walk(function)
        if isinstance(node, ast.Call) and last_name(node.func) == called
        for value in (*node.args, *(keyword.value for keyword in node.keywords))
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def _turns(value: ast.expr) -> bool:
    """Whether a number is brought down to one of a few."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        return isinstance(value.left, ast.Constant) and isinstance(value.right, (ast.Name, ast.Attribute))
    return isinstance(value, ast.BinOp) and isinstance(value.op, (ast.BitXor, ast.Mod))
