"""The intermediate representation: register instructions on a control-flow graph.

A register is a local variable (its name) or a temporary (a number). A variable of a comprehension or of a class body is
a register of the function around it, under a name of its own (``x'1``). Every instruction ends with ``at``, an index
into :attr:`Function.spans`: the positions of the source stand beside the instructions and not in them, so a comment or
a blank line changes no instruction. ``(function id, at)`` names a site.

An edge may carry an assumption: the condition of the branch, in terms of registers, so that its meaning is a value and
not a spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Reg: TypeAlias = "str | int"


class Span(NamedTuple):
    """A range of the source: lines from 1, columns from 0 in UTF-8 bytes, as :mod:`ast` counts."""

    line: int
    column: int
    end_line: int
    end_column: int


# -- values ------------------------------------------------------------------------------------------------------------
class Const(NamedTuple):
    """dst = a literal: str, bytes, int, float, complex, bool, None, Ellipsis."""

    dst: Reg
    value: Any
    at: int


class Opaque(NamedTuple):
    """dst = a value that the lowering gave up on (an expression nested beyond its limit)."""

    dst: Reg
    at: int


class Global(NamedTuple):
    """dst = a name of the module or of the builtins."""

    dst: Reg
    name: str
    at: int


class SetGlobal(NamedTuple):
    """A name of the module = src. In the body of a module every store is one."""

    name: str
    src: Reg
    at: int


class Outer(NamedTuple):
    """dst = the register ``name`` of an enclosing function, ``owner``."""

    dst: Reg
    name: str
    owner: str
    at: int


class SetOuter(NamedTuple):
    """The register ``name`` of an enclosing function, ``owner``, = src (``nonlocal``)."""

    name: str
    owner: str
    src: Reg
    at: int


class Move(NamedTuple):
    """dst = src; a store to a local variable is one."""

    dst: Reg
    src: Reg
    at: int


class Closure(NamedTuple):
    """dst = a function or a lambda; ``defaults`` are the parameters' defaults, evaluated here.

    ``captured`` are the registers of this function that it, or a function inside it, reads or writes as ``Outer``.
    """

    dst: Reg
    function: str
    defaults: tuple[tuple[str, Reg], ...]
    captured: tuple[str, ...]
    at: int


class Decorate(NamedTuple):
    """dst = decorator(target): what is bound in the place of a function or a class that is defined with a decorator."""

    dst: Reg
    decorator: Reg
    target: Reg
    at: int


class MakeClass(NamedTuple):
    """dst = a class; ``members`` are the names bound by its body and the registers that hold them at its end."""

    dst: Reg
    cls: str
    bases: tuple[Reg | Star, ...]
    keywords: tuple[tuple[str | None, Reg], ...]
    members: tuple[tuple[str, str], ...]
    at: int


class Import(NamedTuple):
    """dst = the module ``module`` (absolute), or its attribute ``name``; ``name`` "*" binds what it exports."""

    dst: Reg
    module: str
    name: str | None
    at: int


# -- memory ------------------------------------------------------------------------------------------------------------
class Attr(NamedTuple):
    """dst = obj.name"""

    dst: Reg
    obj: Reg
    name: str
    at: int


class SetAttr(NamedTuple):
    """obj.name = src"""

    obj: Reg
    name: str
    src: Reg
    at: int


class Item(NamedTuple):
    """dst = obj[key]"""

    dst: Reg
    obj: Reg
    key: Reg
    at: int


class SetItem(NamedTuple):
    """obj[key] = src"""

    obj: Reg
    key: Reg
    src: Reg
    at: int


class Del(NamedTuple):
    """A local variable is unbound: ``del x``, and the end of an ``except ... as x``."""

    name: str
    at: int


class DelGlobal(NamedTuple):
    """A name of the module is unbound."""

    name: str
    at: int


class DelAttr(NamedTuple):
    """del obj.name"""

    obj: Reg
    name: str
    at: int


class DelItem(NamedTuple):
    """del obj[key]"""

    obj: Reg
    key: Reg
    at: int


# -- data --------------------------------------------------------------------------------------------------------------
class Star(NamedTuple):
    """``*reg`` among the elements of a display or the arguments of a call."""

    reg: Reg


BuildKind: TypeAlias = Literal["tuple", "list", "set", "dict", "generator"]


class Build(NamedTuple):
    """dst = a new container. Of a dict ``keys`` are its keys (None: ``**element``), else ``keys`` is empty.

    A comprehension builds an empty one and adds to it; so does a generator expression, here taken to be run at once.
    """

    dst: Reg
    kind: BuildKind
    elements: tuple[Reg | Star, ...]
    keys: tuple[Reg | None, ...]
    at: int


class Add(NamedTuple):
    """A comprehension's container gains an element (of a dict, under a key)."""

    container: Reg
    value: Reg
    key: Reg | None
    at: int


class Slice(NamedTuple):
    """dst = slice(lower, upper, step); None where a part is left out."""

    dst: Reg
    lower: Reg | None
    upper: Reg | None
    step: Reg | None
    at: int


class Unpack(NamedTuple):
    """dsts = src, element by element; ``star`` is the position of the target that takes the rest."""

    dsts: tuple[Reg, ...]
    src: Reg
    star: int | None
    at: int


class Binary(NamedTuple):
    """dst = left op right; op as it is written: ``+``, ``@``, ..."""

    dst: Reg
    op: str
    left: Reg
    right: Reg
    at: int


class InPlace(NamedTuple):
    """dst = left op= right: may write ``left``; a store of dst to the target follows."""

    dst: Reg
    op: str
    left: Reg
    right: Reg
    at: int


class Unary(NamedTuple):
    """dst = op operand; op is ``-``, ``+``, ``~`` or ``not``."""

    dst: Reg
    op: str
    operand: Reg
    at: int


class Compare(NamedTuple):
    """dst = left op right; op as it is written, also ``is``, ``is not``, ``in``, ``not in``."""

    dst: Reg
    op: str
    left: Reg
    right: Reg
    at: int


class Format(NamedTuple):
    """dst = an f-string: the host looks at the parts."""

    dst: Reg
    parts: tuple[Reg, ...]
    at: int


class Host(NamedTuple):
    """The host looks at the value: a condition."""

    src: Reg
    at: int


class Shape(NamedTuple):
    """dst = whether a pattern's subject has a shape: a sequence of ``size`` elements (or more), or a mapping."""

    dst: Reg
    subject: Reg
    kind: Literal["sequence", "mapping"]
    size: int
    open: bool
    at: int


class MatchArg(NamedTuple):
    """dst = what a class pattern's ``position``-th sub-pattern matches: ``subject.<cls.__match_args__[position]>``."""

    dst: Reg
    subject: Reg
    cls: Reg
    position: int
    at: int


# -- control -----------------------------------------------------------------------------------------------------------
class Iter(NamedTuple):
    """dst = iter(src)"""

    dst: Reg
    src: Reg
    is_async: bool
    at: int


class Next(NamedTuple):
    """dst = the element of this round of a loop."""

    dst: Reg
    iterator: Reg
    at: int


class Return(NamedTuple):
    """The function returns src. It ends its block."""

    src: Reg
    at: int


class Raise(NamedTuple):
    """An exception is raised (src None: the one being handled). It ends its block, which may have a handler."""

    src: Reg | None
    cause: Reg | None
    at: int


class Catch(NamedTuple):
    """dst = the exception that brought control here: the first instruction of a handler."""

    dst: Reg
    at: int


class Yield(NamedTuple):
    """dst = yield src; ``delegated``: yield from src."""

    dst: Reg
    src: Reg
    delegated: bool
    at: int


class Await(NamedTuple):
    """dst = await src"""

    dst: Reg
    src: Reg
    at: int


# -- contexts and calls ------------------------------------------------------------------------------------------------
class Enter(NamedTuple):
    """dst = the value that entering the context manager gives."""

    dst: Reg
    context: Reg
    is_async: bool
    at: int


class Exit(NamedTuple):
    """The context is left; with an exception, ``dst`` is whether the context manager swallows it."""

    dst: Reg | None
    context: Reg
    exception: Reg | None
    is_async: bool
    at: int


class Call(NamedTuple):
    """dst = func(*args, **keywords); a keyword None is ``**reg``."""

    dst: Reg
    func: Reg
    args: tuple[Reg | Star, ...]
    keywords: tuple[tuple[str | None, Reg], ...]
    at: int


Instr: TypeAlias = (
    Const
    | Opaque
    | Global
    | SetGlobal
    | Outer
    | SetOuter
    | Move
    | Closure
    | Decorate
    | MakeClass
    | Import
    | Attr
    | SetAttr
    | Item
    | SetItem
    | Del
    | DelGlobal
    | DelAttr
    | DelItem
    | Build
    | Add
    | Slice
    | Unpack
    | Binary
    | InPlace
    | Unary
    | Compare
    | Format
    | Host
    | Shape
    | MatchArg
    | Iter
    | Next
    | Return
    | Raise
    | Catch
    | Yield
    | Await
    | Enter
    | Exit
    | Call
)


# -- the graph ---------------------------------------------------------------------------------------------------------
AssumeKind: TypeAlias = Literal[
    "true",  # reg is true
    "none",  # reg is None
    "eq",  # reg == the constant `other`
    "is",  # reg is the constant `other`: True, False, ...
    "same",  # reg is, or equals, the register `other`
    "isinstance",  # reg is an instance of what the register `other` holds
    "in",  # reg is in the register `other`
    "more",  # the iterator reg has another element
    "except",  # the exception reg matches the type in the register `other`
    "swallow",  # the context manager swallowed the exception (reg: what its exit returned): rare
]


class Assume(NamedTuple):
    """What holds on an edge: whether ``kind`` holds of ``reg``. ``other`` is a constant for "eq" and "is" only."""

    kind: AssumeKind
    reg: Reg
    other: Any
    truth: bool


class Edge(NamedTuple):
    """Control goes to block ``target``, under ``assume``; ``back`` where it is the back edge of a loop."""

    target: int
    assume: Assume | None
    back: bool


@dataclass(slots=True)
class Block:
    """Instructions without a branch between them. An exception in any of them goes to block ``handler``, if not None.

    A block without edges ends with a ``Return`` or a ``Raise``.
    """

    instrs: list[Instr] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    handler: int | None = None


class Type(NamedTuple):
    """An annotation: ``Optional[List[x.Y]]`` is Type("Optional", (Type("List", (Type("x.Y", ()),)),)).

    A union written with ``|`` has the name "|", ``None`` the name "None", what is no type the name "?".
    """

    name: str
    args: tuple[Type, ...] = ()


ParamKind: TypeAlias = Literal["positional", "normal", "keyword", "vararg", "kwarg"]


class Param(NamedTuple):
    """A parameter. ``default`` is a constant default, or ``...`` of one that is computed; ``has_default``: of any.

    ``default_name`` is the name that is the default, or that is called for it with ``default_argument``.
    """

    name: str
    kind: ParamKind = "normal"
    annotation: Type | None = None
    has_default: bool = False
    default: Any = None
    default_name: str = ""
    default_argument: Any = None


@dataclass(slots=True)
class Function:
    """A function, a method, a lambda, or the body of a module, lowered.

    Attributes:
        fid: its name in the tree: ``module:Class.method``, ``module:f.<locals>.g``, ``module:<module>``.
        module: the name of its module.
        cls: the id of the class of which it is a method.
        outer: the function around it.
        params: in the order of the signature; ``*args`` and ``**kwargs`` included.
        blocks: block 0 is the entry.
        spans: by the ``at`` of instructions.
        captured: registers that functions inside read or write.
        decorators: dotted names (of calls, the callee's), as written, outermost first.
    """

    fid: str
    name: str
    module: str
    cls: str | None
    outer: str | None
    params: tuple[Param, ...]
    returns: Type | None
    decorators: tuple[str, ...]
    span: Span
    blocks: list[Block] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    captured: set[str] = field(default_factory=set)
    is_generator: bool = False
    is_async: bool = False

    @property
    def is_method(self) -> bool:
        """Whether the first parameter is the instance (or the class, of a ``classmethod``)."""
        return self.cls is not None and "staticmethod" not in self.decorators and bool(self.params)
