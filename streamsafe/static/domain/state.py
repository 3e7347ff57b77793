"""The state of one trace partition: the product of the domain, copied on write and joined where paths meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from streamsafe.order.hazard import Span
from streamsafe.static.domain import guards, values
from streamsafe.static.domain.access import RECORD, Access
from streamsafe.static.domain.atoms import (
    CAPTURING,
    CURRENT,
    HOST,
    LOST,
    UNKNOWN,
    Atom,
    Capture,
    Context,
    Generator,
    New,
    Path,
    Symbol,
    Tuple,
    Value,
    path,
    rank,
)
from streamsafe.static.domain.capturing import Capturing
from streamsafe.static.domain.extents import WHOLE, Extent
from streamsafe.static.domain.guards import ALWAYS, IS_CPU, Guard
from streamsafe.static.domain.heap import Heap, join_values
from streamsafe.static.domain.order import Carriers, Order, antichain
from streamsafe.static.domain.places import joined_place
from streamsafe.static.domain.timing import CLOCK, Timing

Reg = str | int
Choice = Reg | Path
K = TypeVar("K")
V = TypeVar("V")


class Wait(NamedTuple):
    """A wait: ``who`` waits for ``whom`` (a stream or an event); ``source`` is the stream the event was recorded on.

    ``recorded`` is where; both are None for an event that was not recorded before the wait on this path. ``earlier``
    are the streams on which the event was recorded before that. ``idle``: nothing had been done on the source.
    ``known``: the carriers at entry whose knowledge ``whom`` had. ``stated``: made where a field says that there is
    something to wait for, which methods of its object set.
    """

    who: Atom
    whom: Atom
    source: Atom | None
    span: Span
    recorded: Span | None = None
    earlier: frozenset[Atom] = frozenset()
    idle: bool = False
    known: Carriers = frozenset()
    stated: bool = False

    def sort_key(self) -> tuple[Any, ...]:
        """The same order in every run."""
        return (self.span, rank(self.who), rank(self.whom), self.recorded or self.span)


class Cell(NamedTuple):
    """An event's last record: on which stream, where, in a capture or not; and the streams of those it replaces."""

    stream: Atom
    span: Span
    earlier: frozenset[Atom] = frozenset()
    captured: bool = False


class HostWork(NamedTuple):
    """Something that is illegal, or different, inside a capture: the code it then has, what it is, and where.

    Attributes:
        block: the block of the function that is analysed where it, or the call that leads to it, stands.
        open: of an exit: whether the function reaches it only under a condition.
        unsure: through how many calls that nobody in sight decides to reach it has come.
    """

    code: str
    what: str
    span: Span
    guard: Guard
    block: int = 0
    open: bool = False
    unsure: int = 0

    def sort_key(self) -> tuple[Any, ...]:
        """The same order in every run; first what is surest."""
        return (self.span, self.code, self.what, self.unsure, self.open, guards.sort_key(self.guard))


class Region(NamedTuple):
    """The capture under way: where it begins, on which stream, into which graph; ``relaxed``: in the relaxed mode."""

    span: Span
    stream: Atom
    graph: Atom | None
    relaxed: bool = False


class State:
    """One partition.

    Attributes:
        env: register -> value.
        heap: (object, field) -> value; ``[]`` is any element, ``[k]`` the element of a constant key.
        places: buffer -> where it lies.
        homes: buffer -> the stream that was current when it was allocated.
        order: who knows what, and the accesses made so far.
        current: the current stream.
        capture: the capture under way.
        capturing: what else is known of captures.
        guard: the literals that hold.
        waits: the waits made so far.
        cells: event -> the stream it was last recorded on, and where.
        recorded: (buffer, stream): ``record_stream``.
        work: what would be illegal in a capture.
        entered: context register -> what was current before it was entered.
        timing: the readings of clocks.
        choices: the locals that hold streams, events or contexts: they keep partitions apart.
        tested: local -> what a test of it has given, where its value does not say: it gives that again.
        views: register -> of which part of its memory it is a view; of a slice, which part it makes.
        parts: buffer -> the part that the instruction under way can touch.
        blurred: buffers of which views are kept somewhere.
    """

    __slots__ = (
        "_sig",
        "blurred",
        "capture",
        "capturing",
        "cells",
        "choices",
        "current",
        "dead",
        "entered",
        "env",
        "guard",
        "heap",
        "homes",
        "order",
        "parts",
        "places",
        "recorded",
        "tested",
        "timing",
        "views",
        "waits",
        "work",
    )

    def __init__(self) -> None:
        self.env: dict[Reg, Value] = {}
        self.heap = Heap()
        self.places: dict[Atom, str] = {}
        self.homes: dict[Atom, Atom] = {}
        self.order = Order()
        self.current: Atom = CURRENT
        self.capture: Region | None = None
        self.guard: Guard = ALWAYS
        self.waits: frozenset[Wait] = frozenset()
        self.cells: dict[Atom, Cell] = {}
        self.recorded: frozenset[tuple[Atom, Atom]] = frozenset()
        self.work: frozenset[HostWork] = frozenset()
        self.timing = Timing()
        self.capturing = Capturing()
        self.entered: dict[Reg, tuple[Atom, Region | None]] = {}
        self.choices: dict[Choice, Value] = {}
        self.tested: dict[Reg, bool] = {}
        self.views: Mapping[Reg, Extent] = _NO_VIEWS
        self.parts: Mapping[Atom, Extent] = {}
        self.blurred: frozenset[Atom] = frozenset()
        self.dead = False
        self._sig: tuple[object, ...] | None = None

    def fork(self) -> State:
        """An independent copy."""
        twin = State.__new__(State)
        twin.env, twin.heap = dict(self.env), self.heap.fork()
        twin.places, twin.homes, twin.cells = dict(self.places), dict(self.homes), dict(self.cells)
        twin.order = self.order.fork()
        twin.current, twin.capture, twin.guard = self.current, self.capture, self.guard
        twin.waits, twin.recorded, twin.work = self.waits, self.recorded, self.work
        twin.timing, twin.capturing = self.timing.fork(), self.capturing.fork()
        twin.entered, twin.choices = dict(self.entered), dict(self.choices)
        twin.tested = dict(self.tested) if self.tested else {}
        twin.views, twin.parts, twin.blurred = self.views, self.parts, self.blurred
        twin.dead, twin._sig = self.dead, None
        return twin

    # -- registers ---------------------------------------------------------------------------------------------------

    def get(self, reg: Reg) -> Value:
        """What a register holds."""
        return values.read(self.env.get(reg, UNKNOWN))

    def set_local(self, name: Reg, value: Value) -> None:
        """A store to a local variable."""
        self.env[name] = value
        if name in self.tested:
            del self.tested[name]
        if name in self.choices:
            del self.choices[name]
        for atom in value:
            if splits(atom):
                self.choices[name] = value
                break

    def set_field(self, owner: Atom, field: str, value: Value) -> None:
        """A store to a field, or to a variable of a module: what was there is gone."""
        self.heap[owner, field] = value
        if isinstance(owner, Path):
            at = path(owner.root, *owner.fields, field)
            self.choices.pop(at, None)
            if any(splits(atom) or self._has_streams(atom) for atom in value):
                self.choices[at] = value

    def _has_streams(self, atom: Atom) -> bool:
        """Whether an object that was made here has a field for a stream or an event."""
        return isinstance(atom, New) and any(
            splits(each) for held in self.heap.fields(atom).values() for each in held
        )

    # -- partitions --------------------------------------------------------------------------------------------------

    def idle(self, stream: Atom) -> bool:
        """Whether nothing has been done on a stream so far."""
        return not any(
            access.stream is stream and not access.tags & RECORD for access in self.order.accesses()
        )

    def is_plain(self) -> bool:
        """Whether so far all work is on the stream current at entry and outside captures, and only the host waits.

        Clocks do not count: what is late on one path is late in a join, too.
        """
        if self.current is not CURRENT or self.capture is not None or self.cells or self.recorded:
            return False
        if any(carrier is not HOST for carrier in self.order.knows) or not self.capturing.is_empty():
            return False
        if any(wait.who is not HOST for wait in self.waits):
            return False
        if any(literal.atom is CAPTURING for literal in self.guard):
            return False
        return not any(names_streams(atom) for held in self.choices.values() for atom in held)

    def unsettle(self) -> None:
        """What was read of the signature before no longer counts."""
        self._sig = None

    def settled_signature(self) -> tuple[object, ...]:
        """The signature of a state that only joins change from here on."""
        if self._sig is None:
            self._sig = self.signature()
        return self._sig

    def signature(self) -> tuple[object, ...]:
        """What keeps two partitions apart: order, current stream, capture, locals that name streams, some literals."""
        literals = frozenset(each for each in self.guard if each.kind == IS_CPU or each.atom is CAPTURING)
        choices = frozenset(self.choices.items())
        return (self.order.relation, self.current, self.capture, self.recorded, choices, literals)

    def distance(self, other: State) -> int:
        """How much is lost when this partition is joined into another: the current stream weighs most."""
        apart = 8 * (self.current is not other.current) + 8 * (self.capture != other.capture)
        apart += 4 * (self.choices.keys() != other.choices.keys())
        apart += 2 * (self.choices != other.choices)
        return apart + (self.order.knows != other.order.knows)

    def join(self, other: State) -> bool:
        """Take in the paths of another partition; whether anything changed.

        Every part only grows, or only shrinks, in a finite set.
        """
        self._sig = None
        changed = join_values(self.env, other.env)
        changed |= self.heap.join(other.heap)
        changed |= _join(self.places, other.places, joined_place)
        changed |= _join(self.homes, other.homes, _same_home)
        changed |= _join_missing(self.cells, other.cells)
        changed |= self.order.join(other.order)
        changed |= self.timing.join(other.timing)
        changed |= self.capturing.join(other.capturing)
        if self.waits is not other.waits and not other.waits <= self.waits:
            self.waits = self.waits | other.waits
            changed = True
        if self.work is not other.work and not other.work <= self.work:
            self.work = self.work | other.work
            changed = True
        if self.recorded is not other.recorded and self.recorded != other.recorded:
            changed |= self._join_recorded(other)
        if not self.guard <= other.guard:
            self.guard = self.guard & other.guard
            changed = True
        for local in [each for each, truth in self.tested.items() if other.tested.get(each) is not truth]:
            del self.tested[local]
            changed = True
        if self.views != other.views:
            both = dict.fromkeys((*self.views, *other.views), WHOLE)
            both.update((reg, view) for reg, view in self.views.items() if other.views.get(reg) == view)
            changed |= both != self.views
            self.views = both
        if not other.blurred <= self.blurred:
            self.blurred = self.blurred | other.blurred
            changed = True
        if self.choices != other.choices:
            for name in [each for each in self.choices if _of_a_loop(each)]:
                if other.choices.get(name) != self.choices[name]:
                    del self.choices[name]
                    changed = True
            for name in self.choices:
                held = None if isinstance(name, Path) else self.env.get(name)
                if held is not None:
                    self.choices[name] = held
        return changed

    def _join_recorded(self, other: State) -> bool:
        """A buffer that does not exist on one side does not lose its record there."""
        here = {access.buffer for access in self.order.accesses()}
        there = {access.buffer for access in other.order.accesses()}
        both = frozenset(
            pair
            for pair in self.recorded | other.recorded
            if (pair in self.recorded or pair[0] not in here)
            and (pair in other.recorded or pair[0] not in there)
        )
        changed = both != self.recorded
        self.recorded = both
        return changed

    # -- renaming ----------------------------------------------------------------------------------------------------

    def rename(self, names: dict[Atom, Atom]) -> None:
        """Give atoms other names everywhere: what a site made in an earlier round becomes *earlier*.

        The earlier name may be in use: what has it is joined with what gets it.
        """

        def one(atom: Atom) -> Atom:
            found = names.get(atom)
            if found is not None:
                return found
            return values.inside(atom, many)

        known: dict[Value, Value] = {}

        def many(value: Value) -> Value:
            found = known.get(value)
            if found is None:
                found = value
                for atom in value:
                    if atom in names or type(atom) not in values.LEAVES:
                        found = frozenset(map(one, value))
                        break
                known[value] = found
            return found

        for reg, value in self.env.items():
            if value:
                self.env[reg] = many(value)
        self.heap.rename(names, many)
        for old, new in names.items():
            if old in self.places:
                self.places[new] = self.places[old]
            if old in self.homes:
                self.homes[new] = self.homes[old]
            if old in self.cells:
                self.cells[new] = self.cells.pop(old)
        self.order = renamed_order(self.order, names)
        self.timing.rename(names)
        self.capturing.rename(names)
        if self.blurred:
            self.blurred = frozenset(names.get(buffer, buffer) for buffer in self.blurred)
        if self.recorded:
            self.recorded = frozenset((names.get(b, b), names.get(s, s)) for b, s in self.recorded)
        if self.waits:
            self.waits = frozenset(
                wait._replace(
                    who=names.get(wait.who, wait.who),
                    whom=names.get(wait.whom, wait.whom),
                    source=names.get(wait.source, wait.source) if wait.source else None,
                    known=frozenset(names.get(each, each) for each in wait.known),
                )
                for wait in self.waits
            )
        for choice, value in self.choices.items():
            self.choices[choice] = many(value)
        self.current = names.get(self.current, self.current)


def _of_a_loop(choice: object) -> bool:
    """Whether a choice is of the first round of a loop, which a path that has had it no longer has, or of a field."""
    return isinstance(choice, tuple | Path)


def splits(atom: Atom) -> bool:
    """Whether a local that holds the atom keeps partitions apart."""
    if isinstance(atom, New):
        return atom.kind in SPLITTING
    if isinstance(atom, Tuple):
        return any(splits(each) for item in atom.items for each in item)
    return isinstance(atom, Context | Capture | Generator) or (
        isinstance(atom, Symbol) and atom.name in ("null context", "current", "default")
    )


def names_streams(atom: Atom) -> bool:
    """Whether an atom is a stream, an event, or a context of streams."""
    if isinstance(atom, New):
        return atom.kind in SPLITTING and atom.kind != CLOCK
    if isinstance(atom, Tuple):
        return any(names_streams(each) for item in atom.items for each in item)
    return isinstance(atom, Context | Capture)


_NO_VIEWS: Mapping[Reg, Extent] = {}

SPLITTING: set[str] = set()
"""Types of streams and events; the models fill it."""

CARRYING: set[str] = set()
"""Types of what may stand in the order relation: streams, events, work and graphs; the models fill it."""


def _join(mine: dict[K, V], theirs: Mapping[K, V], join: Callable[[V, V], V]) -> bool:
    """What both sides know is joined; what one side knows stands."""
    changed = False
    for key, value in theirs.items() if mine != theirs else ():
        both = join(mine[key], value) if key in mine else value
        if key not in mine or both != mine[key]:
            mine[key] = both
            changed = True
    return changed


def _same_home(first: Atom, second: Atom) -> Atom:
    return first if first is second else LOST


def joined(mine: Mapping[K, V], theirs: Mapping[K, V], both: Callable[[V, V], V]) -> dict[K, V]:
    """What both sides know joined, and what one side knows."""
    found = dict(mine)
    _join(found, theirs, both)
    return found


def _join_missing(mine: dict[K, V], theirs: dict[K, V]) -> bool:
    changed = False
    for key, value in theirs.items():
        if key not in mine:
            mine[key] = value
            changed = True
    return changed


def renamed_order(order: Order, names: dict[Atom, Atom]) -> Order:
    """An order relation under other names; the one given is used up."""
    if not any(map(_may_carry, names)):
        order.rename_buffers(names)
        return order

    def some(carriers: Carriers) -> Carriers:
        for carrier in carriers:
            if carrier in names:
                return frozenset(names.get(each, each) for each in carriers)
        return carriers

    twin = Order()
    for carrier, known in order.knows.items():
        twin.knows[names.get(carrier, carrier)] = some(known)
    twin.ways = {token: antichain(map(some, ways)) if ways else ways for token, ways in order.ways.items()}
    for key, table in order.made.items():
        changed = {access: _renamed_access(access, names, some) for access in table}
        if all(old is new for old, new in changed.items()):
            twin.merge(key, table)
            continue
        for access, token in table.items():
            twin.put(changed[access], twin.ways[token])
    return twin


def _may_carry(atom: Atom) -> bool:
    """Whether an atom may stand in the order relation: it is no memory."""
    return not isinstance(atom, New) or atom.kind in CARRYING or ":" in atom.kind


def _renamed_access(access: Access, names: dict[Atom, Atom], some: Callable[[Carriers], Carriers]) -> Access:
    if access.buffer not in names and access.stream not in names and access.before.isdisjoint(names):
        return access
    return access.replace(
        buffer=names.get(access.buffer, access.buffer),
        stream=names.get(access.stream, access.stream),
        before=some(access.before),
    )
