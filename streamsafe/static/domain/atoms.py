"""Atoms: what a value may be, as seen from the entry of the function that is analysed.

Atoms are interned: two atoms are equal exactly when they are one object, so they hash by identity. Where an order among
atoms can reach a result, sort them by :func:`rank`, which does not depend on when they were made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

Value = frozenset["Atom"]
"""What a register may hold; the empty set is unknown, and nothing happens to it."""

UNKNOWN: Final[Value] = frozenset()

Place = tuple[str, int, int, tuple[int, int]]
"""Where an object is made: file, row and column (both from 1), and where the call ends: a chain has one beginning."""


class Atom:
    """Base of all atoms. ``key`` is the type's name and what the atom is made of."""

    __slots__ = ("_rank", "key")

    key: tuple[Any, ...]
    _rank: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.key[1:])

    def __repr__(self) -> str:
        return f"{self.key[0]}({', '.join(map(repr, self.key[1:]))})"


_TABLE: dict[tuple[Any, ...], Atom] = {}

A = TypeVar("A", bound=Atom)


def _interned(kind: type[A], *parts: Any) -> A:
    key = (kind.__name__, *parts)
    found = _TABLE.get(key)
    if found is None:
        found = kind.__new__(kind)
        found.key = key
        found._rank = ""
        found.__init__(*parts)  # type: ignore[misc]
        _TABLE[key] = found
    return found  # type: ignore[return-value]


def _restored(kind: type[A], parts: tuple[Any, ...]) -> A:
    return _interned(kind, *parts)


class Path(Atom):
    """What lies at an access path when the function is entered: a parameter and its fields."""

    __slots__ = ("fields", "root")

    def __init__(self, root: str, fields: tuple[str, ...]) -> None:
        self.root = root
        self.fields = fields


class New(Atom):
    """An object made at a site, named by the call sites above it; ``age`` 0 is the newest, 1 stands for earlier ones.

    ``kind`` is ``buffer``, ``stream``, ``blocking`` (a stream that the legacy default stream waits for), ``event``,
    ``list``, ``graph``, ``work``, or the id of a class of the tree.
    """

    __slots__ = ("age", "calls", "kind", "place")

    def __init__(self, kind: str, place: Place, calls: tuple[tuple[int, int], ...], age: int) -> None:
        self.kind = kind
        self.place = place
        self.calls = calls
        self.age = age


MAYBE: Final = "maybe memory"
"""The kind of what an operator makes of values that nothing shows to be tensors."""


class Symbol(Atom):
    """An atom that there is once."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Const(Atom):
    """A constant; ``type`` keeps ``True`` and ``1`` apart."""

    __slots__ = ("type", "value")

    def __init__(self, type: str, value: Any) -> None:
        self.type = type
        self.value = value


class Tuple(Atom):
    """A tuple of known length."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Value, ...]) -> None:
        self.items = items


class Context(Atom):
    """A context that makes a stream current."""

    __slots__ = ("streams",)

    def __init__(self, streams: Value) -> None:
        self.streams = streams


class Capture(Atom):
    """A context that captures a graph, on a stream where one is named."""

    __slots__ = ("graph", "mode", "streams")

    def __init__(self, streams: Value, graph: Value, mode: Value) -> None:
        self.streams = streams
        self.graph = graph
        self.mode = mode


class Test(Atom):
    """The outcome of comparing two values that are not known: the same comparison has the same outcome."""

    __slots__ = ("left", "op", "right")

    def __init__(self, op: str, left: Value, right: Value) -> None:
        self.op = op
        self.left = left
        self.right = right


class Array(Atom):
    """A view of memory under another type: the NumPy array of a tensor."""

    __slots__ = ("of", "type")

    def __init__(self, of: Value, type: str) -> None:
        self.of = of
        self.type = type


class Pool(Atom):
    """The blocks that a stream's allocator may hand out again: a release reads it, an allocation writes it."""

    __slots__ = ("stream",)

    def __init__(self, stream: Value) -> None:
        self.stream = stream


class Function(Atom):
    """A function of the tree, with the values of the names that it takes from the scope around it."""

    __slots__ = ("closure", "fid")

    def __init__(self, fid: str, closure: tuple[tuple[str, Value], ...]) -> None:
        self.fid = fid
        self.closure = closure


class Partial(Atom):
    """A callable with some of its arguments given: ``functools.partial``."""

    __slots__ = ("arguments", "function", "keywords")

    def __init__(
        self, function: Value, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.keywords = keywords


class Generator(Atom):
    """A generator of the tree that was called, not run: its roots, and once it is suspended what it resumes with."""

    __slots__ = ("fid", "resumed", "roots")

    def __init__(
        self, fid: str, roots: tuple[tuple[str, Value], ...], resumed: tuple[tuple[str, Value], ...]
    ) -> None:
        self.fid = fid
        self.roots = roots
        self.resumed = resumed


class Class(Atom):
    """A class of the tree."""

    __slots__ = ("cid",)

    def __init__(self, cid: str) -> None:
        self.cid = cid


class Library(Atom):
    """A dotted name outside the tree."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Bound(Atom):
    """A method of something that is no object of the tree."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Value, name: str) -> None:
        self.owner = owner
        self.name = name


MADE: Final = "()"
"""The name of what a function of a library of the host has made, whichever it is."""


def path(root: str, *fields: str) -> Path:
    """An access path."""
    return _interned(Path, root, fields)


def new(kind: str, place: Place, calls: tuple[tuple[int, int], ...] = (), age: int = 0) -> New:
    """An object made at a site."""
    return _interned(New, kind, place, calls, age)


def const(value: Any) -> Const:
    """A constant; what cannot be hashed is kept by its text."""
    try:
        hash(value)
    except TypeError:
        value = repr(value)
    return _interned(Const, type(value).__name__, value)


def tuple_of(*items: Value) -> Tuple:
    """A tuple of known length."""
    return _interned(Tuple, items)


def context(streams: Value) -> Context:
    """A stream context."""
    return _interned(Context, streams)


def capture(streams: Value, graph: Value = UNKNOWN, mode: Value = UNKNOWN) -> Capture:
    """A capture context."""
    return _interned(Capture, streams, graph, mode)


def compared(op: str, left: Value, right: Value) -> Test:
    """The outcome of a comparison."""
    return _interned(Test, op, left, right)


def array(of: Value, type: str) -> Array:
    """A view of memory under another type."""
    return _interned(Array, of, type)


def pool(stream: Atom) -> Pool:
    """The blocks of a stream's allocator."""
    return _interned(Pool, frozenset((stream,)))


def function(fid: str, closure: Iterable[tuple[str, Value]] = ()) -> Function:
    """A function of the tree."""
    return _interned(Function, fid, tuple(closure))


def partial(called: Value, arguments: Iterable[Value], keywords: Iterable[tuple[str, Value]]) -> Partial:
    """A callable with some of its arguments given."""
    return _interned(Partial, called, tuple(arguments), tuple(sorted(keywords, key=lambda pair: pair[0])))


def generator(
    fid: str, roots: Iterable[tuple[str, Value]], resumed: Iterable[tuple[str, Value]] = ()
) -> Generator:
    """A generator that was called."""
    return _interned(Generator, fid, tuple(roots), tuple(resumed))


def class_of(cid: str) -> Class:
    """A class of the tree."""
    return _interned(Class, cid)


def library(name: str) -> Library:
    """A dotted name outside the tree."""
    return _interned(Library, name)


def bound(owner: Value, name: str) -> Bound:
    """A method of a value."""
    return _interned(Bound, owner, name)


def symbol(name: str) -> Symbol:
    """An atom that there is once."""
    return _interned(Symbol, name)


CURRENT: Final = symbol("current")
"""The stream that is current when the function is entered."""
DEFAULT: Final = symbol("default")
"""The legacy default stream."""
HOST: Final = symbol("host")
ALL: Final = symbol("all")
"""In a carrier set at entry: every carrier there is."""
LOST: Final = symbol("lost")
"""A stream of which nothing is known: it conflicts with nothing."""
COMMUNICATION: Final = symbol("communication")
"""The stream of a process group, on which asynchronous collectives run."""
GRADIENTS: Final = symbol("gradients")
"""The gradients that a backward pass writes, as one object until parameters are named."""
ANYTHING: Final = symbol("anything")
"""In a value: on some path it is unknown."""
MANY: Final = symbol("many")
"""In :data:`TOP`, and nowhere else."""
TOP: Final[Value] = frozenset((MANY,))
"""More than the budget allows to keep: whatever is joined with it is no less. To who reads it, it is unknown."""
NULL_CONTEXT: Final = symbol("null context")
CAPTURING: Final = symbol("capturing")
"""The flag whether the current stream is capturing."""
NONE: Final = const(None)
TRUE: Final = const(True)
FALSE: Final = const(False)


def value(*atoms: Atom) -> Value:
    """The value that is one of these atoms."""
    return frozenset(atoms)


def rank(atom: Atom) -> str:
    """A text by which atoms are sorted, the same in every run."""
    if not atom._rank:
        atom._rank = _text(atom.key)
    return atom._rank


def ranks(pair: tuple[Atom, Atom]) -> tuple[str, str]:
    """As :func:`rank`, of two atoms."""
    return rank(pair[0]), rank(pair[1])


def _text(part: Any) -> str:
    if isinstance(part, Atom):
        return rank(part)
    if isinstance(part, tuple):
        return "(" + ",".join(map(_text, part)) + ")"
    if isinstance(part, frozenset):
        return "{" + ",".join(sorted(map(_text, part))) + "}"
    return repr(part)


def ordered(atoms: Iterable[Atom]) -> list[Atom]:
    """Atoms in an order that is the same in every run."""
    found = list(atoms)
    if len(found) > 1:
        found.sort(key=rank)
    return found
