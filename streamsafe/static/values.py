"""What an expression may stand for: the value domain of the interpreter.

Objects are named by where they are made (site), through which calls (path) and by age: the newest object of a site,
the one of the round before, or *older* ones, of which there may be many. Attributes and elements of objects that are
not seen made are named by their parent: ``x.grad`` and ``x.grad`` are one object as long as nothing is assigned to it.

One file: the kinds of values refer to each other, and union and renaming cover all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

from streamsafe.order.symbolic import ALWAYS, Guard, Way, simplify
from streamsafe.static.numbers import OVER, Bounds, Form
from streamsafe.static.source import ClassUnit, FunctionUnit

MAX_ALTERNATIVES = 6
MAX_GUARDS = 4
MAX_NUMBERS = 2

EACH = "each element"
"""An element of a container that a loop iterates over from end to end: stands for all of them."""

EVERY = "every one"
"""Of the streams that a loop has made those that are kept: the one that some iteration of a later loop reaches."""

ITERATED = "each element iterated before"
"""What is known of every element since the last loop over all of them."""


MOST_STACKED = 8
"""The places of an ``ExitStack``: of one that takes more nothing is known."""

PARAMETERS = "parameters()"
"""The list of a module's parameters."""

STATE = "state_dict()"
"""What this method gives is what the object holds."""

ANY = "[?]"
"""An element at an index that is not known: may be any of them."""


class Name:
    """Identity of an object: equal names are one and the same.

    Args:
        site: a syntax node, or a word such as ``ambient`` for what no source line makes.
        path: the call sites through which it was reached, and the rounds of loops that stay distinct, see ``deeper``.
        parent: the object it is an attribute or element of.
        age: 0 for the newest object of the site, 1 for the one of the round before, 2 for all older ones of the same
            run of a loop; 3 for all of the run before, 4 for those of earlier ones.
    """

    __slots__ = ("_base", "_family", "_older", "_unknown", "age", "parent", "path", "site")

    _known: ClassVar[dict[tuple[Hashable, ...], Name]] = {}

    site: Hashable
    path: tuple[Hashable, ...]
    parent: Name | None
    age: int
    _base: Name | None
    _family: frozenset[Name] | None
    _older: bool | None
    _unknown: bool | None

    def __new__(
        cls, site: Hashable, path: tuple[Hashable, ...] = (), parent: Name | None = None, age: int = 0
    ) -> Name:
        """The one name of this kind."""
        key = (site, path, parent, age)
        self = cls._known.get(key)
        if self is None:
            self = object.__new__(cls)
            self.site, self.path, self.parent, self.age = site, path, parent, age
            self._base = self._family = self._older = self._unknown = None
            cls._known[key] = self
        return self

    @classmethod
    @contextmanager
    def kept(cls) -> Iterator[None]:
        """While a file is analysed its names are kept; afterwards only those are that were there before."""
        before = len(cls._known)
        try:
            yield
        finally:
            for key in list(cls._known)[before:]:
                name = cls._known.pop(key)
                name._base = name._family = None  # they may be of itself

    def __repr__(self) -> str:
        return f"Name({self.site!r}, {self.path!r}, {self.parent!r}, {self.age})"

    def child(self, key: Hashable) -> Name:
        """The attribute or element ``key`` of this object."""
        return Name(key, (), self)

    def with_age(self, age: int) -> Name:
        """The same name with another age."""
        return self if age == self.age else Name(self.site, self.path, self.parent, age)

    def newest(self) -> Name:
        """The same name for the newest object."""
        return self.with_age(0)

    def root(self) -> Name:
        """The object from which this one is reached."""
        name = self
        while name.parent is not None:
            name = name.parent
        return name

    def chain(self) -> list[Name]:
        """This name and its parents."""
        found, parent = [self], self.parent
        while parent is not None:
            found.append(parent)
            parent = parent.parent
        return found

    def family(self) -> frozenset[Name]:
        """The newest of this name and of each of its parents."""
        if self._family is None:
            self._family = frozenset(name.newest() for name in self.chain())
        return self._family

    def base(self) -> Name:
        """The same name without an age: what is said of it holds for every object of the site."""
        if self._base is None:
            parent = self.parent.base() if self.parent is not None else None
            self._base = Name(self.site, self.path, parent)
        return self._base

    def is_unknown_element(self) -> bool:
        """Whether it is an element of which the index is not known, or a part of one."""
        if self._unknown is None:
            self._unknown = any(name.site == ANY for name in self.chain())
        return self._unknown

    def is_older(self) -> bool:
        """Whether it, or something it is reached from, stands for many objects."""
        if self._older is None:
            self._older = any(name.age > 1 for name in self.chain())
        return self._older


MOST_CALLS = 4
"""How many call sites of a path are kept, and how many rounds: the innermost."""


def deeper(path: tuple[Hashable, ...], step: Hashable) -> tuple[Hashable, ...]:
    """A path one step longer; a call deep inside a round is still one of that round.

    Args:
        path: the steps so far, outermost first.
        step: a call site, or a round of a loop: the loop and a number.
    """
    path = (*path, step)
    alike = [position for position, each in enumerate(path) if (type(each) is tuple) == (type(step) is tuple)]
    if len(alike) <= MOST_CALLS:
        return path
    return path[: alike[0]] + path[alike[0] + 1 :]


Renaming = Callable[[Name], Name]


class _Renamed(dict[Name, Name]):
    """What names become, worked out when it is first asked for; most are left alone."""

    __slots__ = ("_names", "_next_age")

    def __init__(self, names: set[Name], next_age: tuple[int, int, int, int, int]) -> None:
        self._names = names
        self._next_age = next_age

    def __missing__(self, name: Name) -> Name:
        if self._names.isdisjoint(name.family()):
            self[name] = name
            return name
        parent, age = name.parent, name.age
        if parent is not None:
            parent = self[parent]
        if self._next_age[age] != age and name.newest() in self._names:
            age = self._next_age[age]
        result = name
        if age != name.age or parent is not name.parent:
            result = Name(name.site, name.path, parent, age)
        self[name] = result
        return result


def aging(names: set[Name]) -> Renaming:
    """A renaming after which the newest objects of these names are those of the round before."""
    return _Renamed(names, (1, 2, 2, 3, 4)).__getitem__


def aging_loops(names: set[Name]) -> Renaming:
    """A renaming after which what the last run of a loop has made is of the run before."""
    return _Renamed(names, (3, 3, 3, 4, 4)).__getitem__


def all_newest(names: set[Name]) -> Renaming:
    """A renaming after which all objects of these names are the newest."""
    return _Renamed(names, (0, 0, 0, 0, 0)).__getitem__


Picks = tuple[tuple[Hashable, Hashable], ...]

PAST = Name(OVER)
"""Renamed to this, what one iteration of a loop has picked is no longer distinguished from what others have."""


def rename_picks(picked: Picks, renaming: Renaming) -> Picks:
    """What is picked along each axis, after the objects that hold the indices have aged."""
    new: list[tuple[Hashable, Hashable]] | None = None
    for position, pick in enumerate(picked):
        what: Hashable = pick[1]
        if type(what) is Name:
            what = renaming(what)
        elif type(what) is Bounds:
            what = what.rename(renaming)
        if what is not pick[1] and new is None:
            new = list(picked[:position])
        if new is not None and what is not PAST and what is not None:
            new.append((pick[0], what))
    return picked if new is None else tuple(new)


def rename_part(part: Hashable | None, renaming: Renaming) -> Hashable | None:
    """A part of a buffer after the objects that hold its indices have aged."""
    if type(part) is not tuple:
        return part
    changed = [rename_picks(layer.picked, renaming) for layer in part]
    if all(new is layer.picked for new, layer in zip(changed, part, strict=True)):
        return part
    layers = tuple(layer._replace(picked=new) for new, layer in zip(changed, part, strict=True))
    return layers if any(map(any, layers)) else None


@dataclass(frozen=True, slots=True)
class Value:
    """Base of all values; on its own: nothing is known."""

    def rename(self, renaming: Renaming) -> Value:
        """The same value after objects have aged."""
        return self


UNKNOWN = Value()


@dataclass(frozen=True, slots=True, eq=False)
class Const(Value):
    """A Python constant, or a plain number or string whose value is not known (``value`` is Ellipsis)."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const)
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        return hash(self.value)


NONE = Const(None)
PLAIN = Const(...)


@dataclass(frozen=True, slots=True, eq=False)
class Positive(Const):
    """A plain number that is not known but greater than zero: what has been counted up."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Positive

    def __hash__(self) -> int:
        return hash(Positive)


POSITIVE = Positive(...)


@dataclass(frozen=True, slots=True, eq=False)
class Number(Const):
    """A plain number of which it is known how it is computed; its value, too, in a round that has a number."""

    form: Form

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.value == other.value and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)

    def rename(self, renaming: Renaming) -> Value:
        """The same number; one of an iteration that is no longer distinguished from others is any."""
        form = self.form.rename(renaming)
        if form is self.form:
            return self
        known = form is not None and not any(name.is_older() for name in form.names())
        return Number(self.value, form) if form is not None and known else Const(self.value)


def least(value: Value) -> int | None:
    """What a whole number is at least; None for what is none, or where that is not known."""
    if isinstance(value, Number):
        return value.form.least()
    if isinstance(value, Positive):
        return 1
    return value.value if isinstance(value, Const) and type(value.value) is int else None


def most(value: Value) -> int | None:
    """What a whole number is at most; None for what is none, is counted up, or where that is not known."""
    return value.value if isinstance(value, Const) and type(value.value) is int else None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTest(Const):
    """Whether a device of unknown kind is of some kind: ``value`` if it is CUDA's, ``on_host`` if it is the host."""

    device: Name | None
    on_host: bool

    def denied(self) -> DeviceTest:
        """The opposite."""
        return DeviceTest(not self.value, self.device, not self.on_host)

    def rename(self, renaming: Renaming) -> Value:
        return self if self.device is None else DeviceTest(self.value, renaming(self.device), self.on_host)


@dataclass(frozen=True, slots=True)
class Text(Value):
    """A string made of parts of which some are not known; the parts that are literals are constants."""

    parts: tuple[Value, ...]

    def rename(self, renaming: Renaming) -> Value:
        return Text(tuple(part.rename(renaming) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Device(Value):
    """A device: ``cuda``, ``cpu`` or not known; then ``name`` says which, where that is known."""

    kind: str
    name: Name | None = None

    def rename(self, renaming: Renaming) -> Value:
        return self if self.name is None else Device(self.kind, renaming(self.name))


@dataclass(frozen=True, slots=True)
class Api(Value):
    """Something of a library, by its canonical dotted name."""

    name: str


HOST_FUNCTION = Api("what hostfunc gives")
"""``Partial(HOST_FUNCTION, (function,), ())`` is a function that, where it is called, is launched on a stream."""
POINTER = Api("pointer")
"""``Partial(POINTER, (array,), ())`` is the address of an array's memory."""
CAPSULE = Api("capsule")
"""``Partial(CAPSULE, (array,), ...)`` is an array exported by DLPack."""
GRAPHED = Api("graphed callable")
"""``Partial(GRAPHED, (Tuple((graph, outputs)),), ())`` is a function that replays a graph."""
UNTIL = Api("until")
"""``Partial(UNTIL, (function, last), ())`` is what ``iter(function, last)`` gives."""

FUTURE = Api("future")
"""``Partial(FUTURE, (value,), ())`` is what an executor gives for a call."""


@dataclass(frozen=True, slots=True)
class Method(Value):
    """A method of an object whose code is not seen."""

    receiver: Value
    name: str

    def rename(self, renaming: Renaming) -> Value:
        return Method(self.receiver.rename(renaming), self.name)


@dataclass(frozen=True, slots=True)
class Function(Value):
    """A function of the analysed file; ``frame`` is the scope it closes over, ``receiver`` what it is bound to."""

    unit: FunctionUnit
    frame: Name | None = None
    receiver: Value | None = None

    def rename(self, renaming: Renaming) -> Value:
        return Function(
            self.unit,
            renaming(self.frame) if self.frame else None,
            self.receiver.rename(renaming) if self.receiver else None,
        )


@dataclass(frozen=True, slots=True)
class Partial(Value):
    """A callable with arguments already given."""

    function: Value
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...]
    grid: Value | None = None
    """Of a kernel that is written in Python: what it is launched with."""

    def rename(self, renaming: Renaming) -> Value:
        return Partial(
            self.function.rename(renaming),
            tuple(a.rename(renaming) for a in self.args),
            tuple((k, v.rename(renaming)) for k, v in self.kwargs),
            self.grid and self.grid.rename(renaming),
        )


@dataclass(frozen=True, slots=True)
class Class(Value):
    """A class of the analysed file."""

    unit: ClassUnit


@dataclass(frozen=True, slots=True)
class Object(Value):
    """Base of values that have an identity."""

    name: Name

    def rename(self, renaming: Renaming) -> Value:
        name = renaming(self.name)
        return self if name is self.name else replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Span(Object):
    """Base of objects that lead to memory.

    Attributes:
        part: a known part of that memory, None for all of it.
    """

    part: Hashable | None = field(default=None, kw_only=True)

    def rename(self, renaming: Renaming) -> Value:
        name, part = renaming(self.name), rename_part(self.part, renaming)
        return self if name is self.name and part is self.part else self.placed(name, part)

    def placed(self, name: Name, part: Hashable | None) -> Span:
        """The same over another object, or another part of it."""
        return Opaque(name, part=part) if type(self) is Opaque else replace(self, name=name, part=part)


@dataclass(frozen=True, slots=True)
class Opaque(Span):
    """An object of which nothing is known but that it is one: a parameter, an attribute, a result."""


@dataclass(frozen=True, slots=True)
class Instance(Span):
    """An instance of a class of the analysed file."""

    unit: ClassUnit


@dataclass(frozen=True, slots=True)
class Super(Instance):
    """``super()``: an instance whose methods are looked for behind a class; what they get is the instance."""

    whole: ClassUnit


@dataclass(frozen=True, slots=True)
class Stream(Object):
    """A stream; ``library`` is whose ``current`` it may become."""

    library: str = "torch"


@dataclass(frozen=True, slots=True)
class Event(Object):
    """An event. ``timing``: made able to time; None when not known."""

    timing: bool | None = None


@dataclass(frozen=True, slots=True)
class Graph(Object):
    """A CUDA graph, or the object that will hold one."""


@dataclass(frozen=True, slots=True)
class Work(Object):
    """An asynchronous collective: ``wait()`` orders it before the waiter's current stream."""


@dataclass(frozen=True, slots=True)
class Tensor(Span):
    """A tensor or array over a buffer.

    Attributes:
        numpy: a NumPy view: whatever touches it is the host.
        strided: a view whose elements are not next to each other.
        library: the library that it was handed to, where that is not the one that made it.
        unexchanged: it was handed over by a path that exchanges no stream.
        view: a tensor of its own over memory of another: what is assigned to that one's ``.data`` is not seen here.
    """

    numpy: bool = False
    strided: bool = False
    library: str = ""
    unexchanged: bool = False
    view: bool = False


@dataclass(frozen=True, slots=True)
class Context(Value):
    """A context manager: ``stream`` (of ``library``), ``capture``, or ``nothing``."""

    kind: str
    payload: tuple[Value, ...] = ()
    options: tuple[tuple[str, Value], ...] = ()

    def rename(self, renaming: Renaming) -> Value:
        return Context(
            self.kind,
            tuple(v.rename(renaming) for v in self.payload),
            tuple((k, v.rename(renaming)) for k, v in self.options),
        )


@dataclass(frozen=True, slots=True)
class Generator(Value):
    """A call of a generator or context-manager function of the file, not yet run."""

    function: Value
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...]
    site: Hashable

    def rename(self, renaming: Renaming) -> Value:
        return Generator(
            self.function.rename(renaming),
            tuple(a.rename(renaming) for a in self.args),
            tuple((k, v.rename(renaming)) for k, v in self.kwargs),
            self.site,
        )


@dataclass(frozen=True, slots=True)
class Tuple(Value):
    """A tuple whose elements are known."""

    items: tuple[Value, ...]

    def rename(self, renaming: Renaming) -> Value:
        items = tuple(v.rename(renaming) for v in self.items)
        return self if all(a is b for a, b in zip(items, self.items, strict=True)) else Tuple(items)


@dataclass(frozen=True, slots=True)
class Container(Span):
    """A list, set, dict, deque or queue made in what is analysed; its elements are in the store."""

    kind: str = "list"


@dataclass(frozen=True, slots=True)
class Clock(Value):
    """A reading of a host clock; where paths have joined it may be one of several."""

    readings: frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class Union(Value):
    """One of several values, each under a guard."""

    alternatives: tuple[tuple[Value, Guard], ...]

    def rename(self, renaming: Renaming) -> Value:
        renamed = []
        touched = False
        for value, guard in self.alternatives:
            new = value.rename(renaming)
            touched = touched or new is not value
            renamed.append((new, guard))
        return union(renamed) if touched else self


def alternatives(value: Value, path: Guard = ALWAYS) -> list[tuple[Value, Guard]]:
    """The values it may be on this path, each with the guard it needs."""
    if isinstance(value, Union):
        true, false = path
        return [(v, g) for v, g in value.alternatives if not (true & g.false or false & g.true)]
    return [(value, ALWAYS)]


_COMPUTED = frozenset({Number, Positive})
_DISTINGUISHED = (Const, Number, Positive, Stream, Tensor, Event)
"""What a name may mean under several guards that are kept apart."""


def union(choices: Iterable[tuple[Value, Guard]]) -> Value:
    """One value that is any of these."""
    merged: dict[Value, Guard] = {}
    paths: dict[Value, list[Way]] = {}
    for value, guard in choices:
        if type(value) is not Union:
            known = merged.get(value)
            if known is None:
                merged[value] = guard
                continue
            merged[value] = known.common(guard)
            if type(value) in _DISTINGUISHED:
                paths.setdefault(value, [Way(0, known)]).append(Way(0, guard))
            continue
        for inner, inner_guard in value.alternatives:
            both = inner_guard
            if guard is not ALWAYS:
                if guard.contradicts(inner_guard):
                    continue
                both = guard & inner_guard
            known = merged.get(inner)
            if known is None:
                merged[inner] = both
                continue
            merged[inner] = known.common(both)
            if type(inner) in _DISTINGUISHED:
                paths.setdefault(inner, [Way(0, known)]).append(Way(0, both))
    if len(merged) > MAX_ALTERNATIVES:
        merged = _fewer_rows(merged, lambda row: (_flags_of_row(row), _kept_together(row)))
    if len(merged) > MAX_ALTERNATIVES:
        merged = _fewer_rows(merged, _flags_of_row)
    if len(merged) > MAX_ALTERNATIVES:
        merged = _fewer_rows(merged, lambda row: ())
    if len(merged) > MAX_ALTERNATIVES:
        kept: dict[Value, Guard] = {
            v: g for v, g in merged.items() if isinstance(v, (Stream, Event, Work, Tensor))
        }
        if not kept:  # what a few places have put into a list, of this round and of those before
            kept = {v: g for v, g in merged.items() if isinstance(v, Instance)}
            kept = kept if len(kept) <= 2 * MAX_ALTERNATIVES else {}
        if not kept or len(kept) > 3 * MAX_ALTERNATIVES:
            return UNKNOWN
        merged = kept
    if len(merged) > 1 and not _COMPUTED.isdisjoint(map(type, merged)):
        merged = _any_number(merged)
    if not merged:
        return UNKNOWN
    if len(merged) == 1:
        return next(iter(merged))
    if not paths:
        return Union(tuple(merged.items()))
    found: list[tuple[Value, Guard]] = []
    for value, guard in merged.items():
        # a flag, or a stream that is current, tells the paths apart that set it
        guards = [way.guard for way in simplify(paths[value])] if value in paths else []
        found.extend((value, each) for each in (guards if 1 < len(guards) <= MAX_GUARDS else (guard,)))
    return Union(tuple(found))


def _flags_of_row(row: Tuple) -> Hashable:
    """The flags and words in a row, which distinguish it from other rows."""
    return tuple(v.value if type(v) is Const and type(v.value) in (bool, str) else ... for v in row.items)


def _fewer_rows(choices: dict[Value, Guard], row_key: Callable[[Tuple], Hashable]) -> dict[Value, Guard]:
    """Of many rows that are alike it is known what stands in each place, and under which guard."""
    rows: dict[Hashable, list[tuple[Tuple, Guard]]] = {}
    for value, guard in choices.items():
        if isinstance(value, Tuple):
            rows.setdefault((len(value.items), row_key(value)), []).append((value, guard))
    merged = {v: g for v, g in choices.items() if not isinstance(v, Tuple)}
    for alike in rows.values():
        columns = zip(*(row.items for row, _ in alike), strict=True)
        guards = [guard for _, guard in alike]
        row = Tuple(tuple(union(zip(column, guards, strict=True)) for column in columns))
        merged[row] = reduce(Guard.common, guards)
    return merged


def _kept_together(row: Tuple) -> tuple[Value | None, ...]:
    """The memory in a row, and the streams, events and works."""
    return tuple(v if isinstance(v, (Tensor, Stream, Event, Work)) else None for v in row.items)


def up_to_date(choices: list[tuple[Value, Guard]]) -> list[tuple[Value, Guard]]:
    """Rows, of which several have the same memory with the same stream or event and another word beside it: they are
    one row, at several times. Other choices as they are.
    """
    for row, _ in choices:
        kept = _kept_together(row) if isinstance(row, Tuple) else ()
        if not any(isinstance(v, Tensor) for v in kept) or all(
            v is None or isinstance(v, Tensor) for v in kept
        ):
            return choices
    return list(_fewer_rows(dict(choices), _kept_together).items())


def either(one: Value, guard: Guard, other: Value, other_guard: Guard) -> Value:
    """One value that is one of two, which are not equal."""
    kinds = type(one), type(other)
    if Union in kinds or not _COMPUTED.isdisjoint(kinds):
        return union([(one, guard), (other, other_guard)])
    return Union(((one, guard), (other, other_guard)))


def _is_plain(value: Value) -> bool:
    """Whether this is a number or a string whose value is not known."""
    return isinstance(value, Const) and value.value is ...


def _any_number(merged: dict[Value, Guard]) -> dict[Value, Guard]:
    """The values; of several numbers that are not known only those on different paths are kept apart."""
    numbers = [(value, guard) for value, guard in merged.items() if _is_plain(value)]
    if len(numbers) < 2 or (
        len(numbers) <= MAX_NUMBERS
        and all(g.contradicts(other) for n, (_, g) in enumerate(numbers) for _, other in numbers[:n])
    ):
        return merged
    left = {v: g for v, g in merged.items() if not _is_plain(v)}
    any_ = POSITIVE if all((least(v) or 0) > 0 for v, _ in numbers) else PLAIN
    return {**left, any_: reduce(Guard.common, (guard for _, guard in numbers))}


def under(value: Value, guard: Guard) -> Value:
    """A value that is there only where a guard holds."""
    return value if guard == ALWAYS else Union(((value, guard),))


def conditions_in(value: Value) -> int:
    """The conditions on which it depends what a value is, or what stands in its rows."""
    found = 0
    if type(value) is Union:
        for inner, (true, false) in value.alternatives:
            found |= true | false
            if type(inner) is Tuple:
                found |= conditions_in(inner)
    elif type(value) is Tuple:
        for item in value.items:
            found |= conditions_in(item)
    return found


def reguarded(value: Value, change: Callable[[Guard], Iterable[Guard]], path: Guard = ALWAYS) -> Value:
    """A value, and what stands in its rows, under other guards, each of which may become several."""
    if type(value) is Tuple:
        return (
            Tuple(tuple(reguarded(item, change, path) for item in value.items))
            if conditions_in(value)
            else value
        )
    if type(value) is not Union:
        return value
    choices = alternatives(value, path) or alternatives(value)
    return union((reguarded(v, change, path), new) for v, g in choices for new in change(g))


def rows(value: Value) -> Value:
    """A row whose parts hang on the same conditions is one of several rows: ``(buffer, stream)`` of the row taken."""
    if type(value) is not Tuple:
        return value
    columns = [{g: v for v, g in i.alternatives} if type(i) is Union else {ALWAYS: i} for i in value.items]
    guards = next((column.keys() for column in columns if ALWAYS not in column), None)
    if guards is None or any(column.keys() not in (guards, {ALWAYS}) for column in columns):
        return value
    return union(
        (Tuple(tuple(column.get(guard, column.get(ALWAYS, UNKNOWN)) for column in columns)), guard)
        for guard in guards
    )


def iterate(value: Value) -> tuple[Value, ...]:
    """The value itself, or each alternative of a union."""
    return tuple([inner for inner, _ in value.alternatives]) if type(value) is Union else (value,)


def led_to(values: Iterable[Value]) -> set[Name]:
    """The objects that values stand for, or are made of."""
    found: set[Name] = set()
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, Object):
            found.add(value.name)
        elif isinstance(value, Union):
            left.extend(v for v, _ in value.alternatives)
        elif isinstance(value, Tuple):
            left.extend(value.items)
        elif isinstance(value, Method):
            left.append(value.receiver)
        elif isinstance(value, Context):
            left.extend(value.payload)
        elif isinstance(value, (Partial, Generator)):
            left.extend((value.function, *value.args, *(v for _, v in value.kwargs)))
            if type(value) is Partial and value.grid is not None:
                left.append(value.grid)
        elif isinstance(value, Function):
            if value.frame is not None:
                found.add(value.frame)
            if value.receiver is not None:
                left.append(value.receiver)
    return found


def is_iterated_parameter(name: Name) -> bool:
    """Whether a name is that of an element of ``module.parameters()``."""
    return name.parent is not None and name.parent.site == PARAMETERS
