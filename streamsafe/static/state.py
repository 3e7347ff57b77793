"""What is known at one point of a program: names, objects, order, the path taken, the current streams, the capture.

One file: copy, join and comparison must cover every field of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, NamedTuple, TypeVar, overload

from streamsafe.order.forks import Forked, differing, meeting
from streamsafe.order.symbolic import ALWAYS, Guard, Made, Order, substituted
from streamsafe.static import element_keys
from streamsafe.static.fields import Field, Mark
from streamsafe.static.routes import distinct, distinguishing, entered, few
from streamsafe.static.tables import EMPTY, Table
from streamsafe.static.tables import joined as joined_tables
from streamsafe.static.values import (
    EACH,
    ITERATED,
    PLAIN,
    Clock,
    Const,
    Name,
    Opaque,
    Renaming,
    Union,
    Value,
    alternatives,
    conditions_in,
    iterate,
    reguarded,
    rename_part,
    union,
)

Key = tuple[Name, Hashable]

K = TypeVar("K")
V = TypeVar("V", bound=Value)
Ordered = dict[K, None]
"""A set of which the order is that in which its elements were added; shared by states, so never changed in place."""


_NOTHING: Mapping[Hashable, Value] = {}


class Store:
    """What each object holds, by owner and key. Copies share an object's table until one of them changes it."""

    __slots__ = ("_own", "objects")

    def __init__(self) -> None:
        self.objects: Forked[Name, Table] = Forked()
        self._own: set[Name] = set()

    def copy(self) -> Store:
        """An independent copy."""
        twin = Store()
        twin.objects = self.objects.fork()
        self._own = set()
        return twin

    def _table(self, owner: Name) -> Table:
        table = self.objects.get(owner)
        if table is None or owner not in self._own:
            table = self.objects[owner] = Table(table or ())
            self._own.add(owner)
        return table

    def of(self, owner: Name) -> Mapping[Hashable, Value]:
        """What one object holds."""
        return self.objects.get(owner, _NOTHING)

    def drop(self, owner: Name) -> None:
        """An object is no more."""
        self.objects.discard(owner)
        self._own.discard(owner)

    def settled(self) -> Mapping[Name, Table]:
        """What each object holds: a table of which something is worked out is not changed any more."""
        self._own = set()
        return self.objects

    def leads(self, owner: Name) -> frozenset[Name]:
        """The objects that what one object holds leads to."""
        self._own.discard(owner)
        table = self.objects.get(owner)
        return table.leads() if table is not None else frozenset()

    def conditions(self) -> int:
        """The conditions on which it depends what objects hold."""
        found = 0
        for table in self.settled().values():
            found |= table.conditions()
        return found

    def leaning(self, conditions: int) -> list[tuple[Key, Value]]:
        """What depends on some of these conditions."""
        return [
            ((owner, key), value)
            for owner, table in self.settled().items()
            if table.conditions() & conditions
            for key, value in table.items()
            if leans(value, conditions)
        ]

    def rename(self, renaming: Callable[[Name], Name], names: set[Name]) -> None:
        """Objects age: every mention of them changes."""
        rebuilt: list[tuple[Name, Table]] = []
        elsewhere = names.isdisjoint
        for owner, table in list(self.settled().items()):
            try:
                mentioned = table.known_mentioned  # most are not touched, and this is done often
            except AttributeError:
                mentioned = table.mentioned(owner)
            if elsewhere(mentioned):
                continue
            changed = Table()
            touched = False
            for key, old in table.items():
                new, value = element_keys.rename_key(key, renaming), old.rename(renaming)
                touched = touched or value is not old or new is not key
                changed[new] = union([(changed[new], ALWAYS), (value, ALWAYS)]) if new in changed else value
            new_owner = renaming(owner)
            if new_owner is not owner:
                del self.objects[owner]
                rebuilt.append((new_owner, changed))
            elif touched and changed != table:
                self.objects[owner] = changed
        for owner, table in rebuilt:
            known = self.objects.get(owner)
            if known is not None:
                merged = Table(known)
                for key, value in table.items():
                    held = merged.get(key)
                    merged[key] = (
                        value if held is None or held == value else union([(held, ALWAYS), (value, ALWAYS)])
                    )
                table = merged
            self.objects[owner] = table

    def gather(self, iterated: set[Name]) -> list[Value]:
        """A loop is over: what it leaves on its elements is what is known of every element.

        Notes about their memory stay with the elements.

        Returns:
            What was known of every element before and no longer is.
        """
        found: dict[Name, dict[Hashable, list[Value]]] = {}
        for owner, table in list(self.objects.items()):
            if iterated.isdisjoint(owner.family()):
                continue
            element = next((n for n in owner.chain() if n.site == EACH and n.newest() in iterated), None)
            if element is None or element.parent is None:
                continue
            kept = element_keys.transplanted(owner, element, element.parent.child(ITERATED))
            assert kept is not None
            before = self.objects.get(kept, _NOTHING)
            notes = Table()
            for key, value in table.items():
                if type(key) is Field:
                    notes[key] = value
                    continue
                unset = Opaque(owner.child(key))  # where it was known before, there was no such round
                left = [v for v in iterate(value) if v != unset or key not in before]
                found.setdefault(kept, {}).setdefault(key, []).extend(left or [before[key]])
            self.drop(owner)
            if notes:
                self.objects[owner] = notes
        replaced = []
        for kept, keys in found.items():
            for key, values in keys.items():
                known = self.get((kept, key))
                self[(kept, key)] = value = union((v, ALWAYS) for v in values)
                if known is not None and known != value:
                    replaced.append(known)
        return replaced

    def reach(self, element: Name) -> None:
        """A loop reaches an element: of it is known what is known of every element."""
        if element.parent is None:
            return
        known = element.parent.child(ITERATED)
        for owner, table in list(self.objects.items()):
            own = element_keys.transplanted(owner, known, element)
            if own is not None:
                self.objects[own] = Table({**table, **self.of(own)})
                self._own.add(own)

    @staticmethod
    def join(
        first: Store,
        first_only: Guard,
        second: Store,
        second_only: Guard,
        path: Guard,
        opaque: Callable[[Name], bool],
    ) -> Store:
        """What objects hold when either path was taken."""
        joined = Store()
        first._own, second._own = set(), set()  # it shares their tables
        joined.objects, differing = meeting(first.objects, second.objects)
        for owner in differing:
            left, right = first.objects.get(owner), second.objects.get(owner)
            if left is right:
                continue
            table = joined_tables(owner, left or EMPTY, right or EMPTY, first_only, second_only, path, opaque)
            if table:
                dict.__setitem__(joined.objects, owner, table)
            else:
                joined.objects.discard(owner)
        return joined

    def mark(self, owner: Name, field: Field[Mark]) -> None:
        """An object has a field that says no more than that."""
        self._table(owner)[field] = PLAIN

    def marked(self, owner: Name, field: Field[Mark]) -> bool:
        """Whether an object has such a field."""
        table = self.objects.get(owner)
        return table is not None and field in table

    def every(self, owner: Name, field: Field[V]) -> list[V]:
        """All that a field of an object may say."""
        value = self.get((owner, field))
        return [v for v in iterate(value) if isinstance(v, field.kind)] if value is not None else []

    def one(self, owner: Name, field: Field[V]) -> V | None:
        """What a field of an object says, where that is one thing."""
        value = self.get((owner, field))
        return value if isinstance(value, field.kind) else None

    def constants(self, owner: Name, field: Field[Const]) -> list[Any]:
        """The constants that a field of an object may say."""
        return [v.value for v in self.every(owner, field)]

    def add(self, owner: Name, field: Field[V], value: V) -> None:
        """A field of an object may say this, too."""
        known = self.get((owner, field))
        self[(owner, field)] = value if known is None else union([(known, ALWAYS), (value, ALWAYS)])

    @overload
    def get(self, key: Key) -> Value | None: ...
    @overload
    def get(self, key: Key, default: Value) -> Value: ...
    def get(self, key: Key, default: Value | None = None) -> Value | None:
        """The value under an owner and a key."""
        table = self.objects.get(key[0])
        return default if table is None else table.get(key[1], default)

    def __getitem__(self, key: Key) -> Value:
        return self.objects[key[0]][key[1]]

    def __setitem__(self, key: Key, value: Value) -> None:
        self._table(key[0])[key[1]] = value

    def __delitem__(self, key: Key) -> None:
        table = self._table(key[0])
        del table[key[1]]
        if not table:
            self.drop(key[0])

    @overload
    def pop(self, key: Key, default: None) -> Value | None: ...
    @overload
    def pop(self, key: Key, default: Value) -> Value: ...
    def pop(self, key: Key, default: Value | None) -> Value | None:
        """Take a value out."""
        if key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def __contains__(self, key: Key) -> bool:
        table = self.objects.get(key[0])
        return table is not None and key[1] in table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self.objects == other.objects

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return sum(map(len, self.objects.values()))

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Everything; the store may change meanwhile."""
        for owner, table in list(self.objects.items()):
            for key, value in list(table.items()):
                yield (owner, key), value


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture that is under way.

    Attributes:
        site: the call or ``with`` that began it.
        origin: the capturing streams' carriers.
        members: every carrier that takes part: the origin, streams forked from it, events recorded in it.
        graph: the graph it ends in.
        mode: ``global``, ``thread_local`` or ``relaxed``; empty when not known.
        library: ``torch`` or ``cupy``.
        guard: the paths on which it is under way, where others arrived here without one.
        nested: how many captures were begun inside it and have not ended.
        waits: the waits that were remembered when it began.
        on_default: it was begun on what is taken to be the default stream.
        external: events that each replay will record for the world outside.
        cold: what of it has not been warmed up, and where that is called.
        modules: what it called without being seen inside: the parameters of those are inputs, too.
        displaced: what lost a name to an assignment inside it, with that name and where.
        depth: how many calls were under way when it began.
    """

    site: Hashable
    origin: tuple[Name, ...]
    members: frozenset[Name]
    graph: Name | None
    mode: str
    library: str
    guard: Guard = ALWAYS
    nested: int = 0
    waits: Ordered[Waited] = field(default_factory=dict)
    on_default: bool = False
    external: tuple[Name, ...] = ()
    cold: tuple[str, Hashable] | None = None
    modules: tuple[Name, ...] = ()
    displaced: tuple[tuple[Name, str, Hashable], ...] = ()
    depth: int = 0


class Rebound(NamedTuple):
    """A static input that no longer is what the graph reads.

    Attributes:
        memory: its name.
        site: where its name is given another tensor, or where it is made if nothing keeps it.
        graph: whose input it is.
        guard: on which paths.
        released: where it lost its last name.
        passing: whether this counts for a replay of the same call only.
    """

    memory: str
    site: Hashable
    graph: Name
    guard: Guard = ALWAYS
    released: Hashable | None = None
    passing: bool = False


class Waited(NamedTuple):
    """A wait that was made, and what it left uncovered.

    Attributes:
        timeline: who waited, a stream or the host.
        site: the wait.
        recorded: where the event it waited for was recorded, if that is not the wait itself.
        uncovered: the sites of the accesses it might have been meant to cover.
        useless: it ordered nothing that was not ordered already.
        awaited: the event or the stream that was waited for.
    """

    timeline: Hashable
    site: Hashable
    recorded: Hashable | None
    uncovered: frozenset[Hashable]
    useless: bool = False
    awaited: Name | None = None


@dataclass(slots=True, eq=False)
class State:
    """One point of the program; copied at branches, joined after them, otherwise changed in place.

    While a stream captures, ``order`` is that of what is captured and ``eager`` holds what really has run. ``routes``
    are the guards of the paths that may lead here, where some have left early; ``path`` is what they have in common.
    """

    order: Order
    store: Store = field(default_factory=Store)
    path: Guard = ALWAYS
    routes: tuple[Guard, ...] = (ALWAYS,)
    current: dict[str, Value] = field(default_factory=dict)
    capture: Capture | None = None
    eager: Order | None = None
    graphs: dict[Name, frozenset[Name]] = field(default_factory=dict)
    rebound: Ordered[Rebound] = field(default_factory=dict)
    clocks: frozenset[Clock] = frozenset()
    threads: Ordered[Hashable] = field(default_factory=dict)
    waits: Ordered[Waited] = field(default_factory=dict)
    dead: bool = False

    def copy(self) -> State:
        """An independent copy."""
        return State(
            order=self.order.copy(),
            store=self.store.copy(),
            path=self.path,
            routes=self.routes,
            current=dict(self.current),
            capture=self.capture,
            eager=self.eager.copy() if self.eager is not None else None,
            graphs=dict(self.graphs),
            rebound=self.rebound,
            clocks=self.clocks,
            threads=self.threads,
            waits=self.waits,
            dead=self.dead,
        )

    def become(self, other: State) -> None:
        """Take over another state's content."""
        for name in _PARTS:
            setattr(self, name, getattr(other, name))

    def same(self, other: State) -> bool:
        """Whether two states say the same."""
        return (
            self.dead == other.dead
            and self.path == other.path
            and self.routes == other.routes
            and self.current == other.current
            and self.capture == other.capture
            and self.graphs == other.graphs
            and self.rebound == other.rebound
            and self.clocks == other.clocks
            and self.threads == other.threads
            and self.waits == other.waits
            and self.store == other.store
            and self.order == other.order
            and self.eager == other.eager
        )

    def leave_capture(self) -> None:
        """What was captured has not run: the order is what it was outside."""
        if self.capture is not None:
            self.waits = self.capture.waits
            self.order, self.eager, self.capture = self.eager or self.order, None, None

    def assume(self, *guards: Guard) -> None:
        """Enter a branch that is taken under any of these guards."""
        if ALWAYS in guards:
            return
        routes = entered(self.routes, guards)
        if not routes:
            self.dead = True
            return
        path = reduce(Guard.common, routes)
        added = path.without(self.path)
        self.path = path
        self.routes = few(routes)
        if added != ALWAYS or len(guards) > 1:
            assumed = routes if len(guards) > 1 else (added,)
            self.order.assume(*assumed)
            if self.eager is not None:
                self.eager.assume(*assumed)
            if self.rebound:
                self.rebound = {r: None for r in self.rebound if not self.path.contradicts(r.guard)}
            if self.capture is not None and self.path.contradicts(self.capture.guard):
                self.leave_capture()

    def track(self, key: Key, condition: int) -> None:
        """A condition stands from now on for whether a name holds something false, whatever it stood for before.

        Args:
            key: the name; what it may hold is under guards of which no false value's admits another one's.
            condition: its bit.
        """
        said = Guard(0, condition), Guard(condition, 0)
        choices = [(v, g, said[is_falsy(v)]) for v, g in alternatives(self.store[key], self.path)]
        self.substitute([(guard, new) for _, guard, new in choices], condition)
        self.store[key] = union((v, guard.forget(condition) & new) for v, guard, new in choices)

    def reguard(self, conditions: int, change: Callable[[Guard], Guard]) -> None:
        """Every guard that mentions one of these conditions changes; what is not held on this path is gone."""
        path = self.path
        self.path = change(path)
        self.routes = distinct(map(change, self.routes))
        for order in (self.order, self.eager):
            if order is not None:
                order.reguard(conditions, change)
        if self.capture is not None:
            self.capture = replace(self.capture, guard=change(self.capture.guard))
        self.rebound = {r._replace(guard=change(r.guard)): None for r in self.rebound}
        for key, value in self.store.leaning(conditions):
            self.store[key] = reguarded(value, lambda guard: (change(guard),), path)
        for library, value in self.current.items():
            if leans(value, conditions):
                self.current[library] = union((v, change(g)) for v, g in alternatives(value))

    def flip(self, condition: int) -> None:
        """A condition is turned into its opposite, wherever it is mentioned."""
        self.reguard(condition, lambda guard: guard.flip(condition))

    def conditions(self) -> int:
        """The conditions that something here leans on."""
        found = self.store.conditions()
        guards = [*self.routes]
        for value in self.current.values():
            if isinstance(value, Union):
                guards.extend(guard for _, guard in value.alternatives)
        for order in (self.order, self.eager):
            if order is not None:
                found |= order.conditions()
        if self.capture is not None:
            guards.append(self.capture.guard)
        guards.extend(r.guard for r in self.rebound)
        for true, false in guards:
            found |= true | false
        return found

    def forget(self, conditions: int) -> None:
        """Those conditions are about something that is no more."""
        if conditions:
            self.reguard(conditions, lambda guard: guard.forget(conditions))

    def exchange(self, old: int, new: int) -> None:
        """One condition takes the place of another wherever that tells what is held, or what has happened, apart."""
        self.reguard(old, lambda guard: guard.exchange(old, new))
        self.path = self.path.forget(new)
        self.routes = distinct(route.forget(new) for route in self.routes)

    def substitute(self, pairs: Sequence[tuple[Guard, Guard]], gone: int, beside: int = 0) -> None:
        """Conditions take the place of others, wherever these are mentioned.

        Args:
            pairs: what held and what is said instead; one of the first holds.
            gone: the conditions that are no longer mentioned, but for what is said instead.
            beside: others; what is held under these gets what is said instead, too.
        """
        routes = [new for route in self.routes for new in substituted(route, pairs, gone)]
        if not routes:
            return
        self.routes = few(distinct(routes))
        self.path = reduce(Guard.common, self.routes)
        for order in (self.order, self.eager):
            if order is not None:
                order.substitute(pairs, gone)
        if self.capture is not None:
            self.capture = replace(self.capture, guard=self.capture.guard.forget(gone))
        self.rebound = {
            r._replace(guard=guard): None for r in self.rebound for guard in substituted(r.guard, pairs, gone)
        }
        for key, value in self.store.leaning(gone | beside):
            self.store[key] = reguarded(value, lambda guard: substituted(guard, pairs, gone))

    def rename(self, renaming: Renaming, names: set[Name]) -> None:
        """Every mention of an object changes.

        Args:
            renaming: how names change; those of other objects it leaves alone.
            names: the newest objects of the sites concerned.
        """
        self.store.rename(renaming, names)
        self.current = {library: value.rename(renaming) for library, value in self.current.items()}
        for order in (self.order, self.eager):
            if order is not None:
                self._rename_order(order, renaming, names)
        if self.capture is not None:
            self.capture = replace(
                self.capture,
                origin=tuple(map(renaming, self.capture.origin)),
                members=frozenset(map(renaming, self.capture.members)),
                graph=renaming(self.capture.graph) if self.capture.graph else None,
                external=tuple(map(renaming, self.capture.external)),
                displaced=tuple((renaming(name), word, at) for name, word, at in self.capture.displaced),
            )
        self.graphs = {renaming(g): frozenset(map(renaming, inputs)) for g, inputs in self.graphs.items()}
        self.rebound = {r._replace(graph=renaming(r.graph)): None for r in self.rebound}

    @staticmethod
    def _rename_order(order: Order, renaming: Renaming, names: set[Name]) -> None:
        moves = []
        for carrier in order.carriers.known():
            if isinstance(carrier, Name) and not names.isdisjoint(carrier.family()):
                older = renaming(carrier)
                if older is not carrier:
                    moves.append((order.carriers.bit(carrier), order.carriers.bit(older)))

        order.rewrite(
            lambda made: _renamed(made, renaming),
            moves,
            lambda table: not names.isdisjoint(table.mentioned(_named)),
        )

    @staticmethod
    def join(first: State | None, second: State | None, opaque: Callable[[Name], bool]) -> State | None:
        """What is known when either path was taken; None stands for a path that does not arrive."""
        if first is None or first.dead:
            return second if second is not None and not second.dead else None
        if second is None or second.dead:
            return first
        if first is second:
            return first
        first, second = _join_readings(first, second)
        path = first.path.common(second.path)
        first_only, second_only = first.path.without(path), second.path.without(path)
        ways = (
            distinguishing(first.routes, second.routes, first_only),
            distinguishing(second.routes, first.routes, second_only),
        )
        joined = State(order=Order.join(first.order, ways[0], second.order, ways[1]), path=path)
        routes = distinct((*first.routes, *second.routes))
        joined.routes = few(routes)
        joined.store = Store.join(first.store, first_only, second.store, second_only, path, opaque)
        for library in {**first.current, **second.current}:
            one, other = first.current.get(library), second.current.get(library)
            if one is None or other is None or one == other:
                only = one or other
                assert only is not None
                joined.current[library] = only
            else:
                joined.current[library] = union([(one, first_only), (other, second_only)])
        if first.capture or second.capture:
            joined.capture = _join_captures(first.capture, first_only, second.capture, second_only)
            outside = first.eager or first.order, second.eager or second.order
            joined.eager = Order.join(outside[0], ways[0], outside[1], ways[1]).copy()
        joined.graphs = {
            g: first.graphs.get(g, frozenset()) | second.graphs.get(g, frozenset())
            for g in {**first.graphs, **second.graphs}
        }
        joined.rebound = _joined_rebound(first.rebound, first_only, second.rebound, second_only)
        joined.clocks = first.clocks | second.clocks
        joined.threads = first.threads | second.threads
        joined.waits = first.waits | second.waits
        return joined


_PARTS = tuple(part.name for part in fields(State))


def _renamed(made: Made, renaming: Renaming) -> Made:
    """An access after objects have aged."""
    buffer = made.buffer
    if isinstance(buffer, Name):
        buffer = renaming(buffer)
    elif isinstance(buffer, tuple):
        buffer = tuple(renaming(x) if isinstance(x, Name) else x for x in buffer)
    timeline = renaming(made.timeline) if isinstance(made.timeline, Name) else made.timeline
    part = made.part if made.part is None else rename_part(made.part, renaming)
    if buffer == made.buffer and timeline is made.timeline and part is made.part:
        return made
    return made._replace(buffer=buffer, part=part, timeline=timeline)


def _named(made: Made) -> set[Name]:
    """The newest of every name that an access speaks of."""
    names: set[Name] = set()

    def note(name: Name) -> Name:
        names.update(name.family())
        return name

    _renamed(made, note)
    return names


def is_falsy(value: Value) -> bool:
    """Whether a value is known to be None, false, zero or empty."""
    return isinstance(value, Const) and value.value is not ... and not value.value


def _join_readings(first: State, second: State) -> tuple[State, State]:
    """Where a variable holds one reading of a clock on one path and another on the other, it holds one that is either.

    What was launched since that one is on each path what was launched since the reading which was made there, so that
    no path's launches are laid to the other's reading.
    """
    merged: dict[Clock, tuple[Clock, Clock]] = {}
    held: list[tuple[Key, Clock]] = []
    if first.clocks and second.clocks:
        for owner in differing(first.store.objects, second.store.objects):
            others = second.store.of(owner)
            for key, one in first.store.of(owner).items():
                other = others.get(key)
                if isinstance(one, Clock) and isinstance(other, Clock) and one != other:
                    either = Clock(one.readings | other.readings)
                    merged[either] = (one, other)
                    held.append(((owner, key), either))
    if not merged:
        return first, second
    sides = (first.copy(), second.copy())
    for at, side in enumerate(sides):
        for either, readings in merged.items():
            side.order.repeat(("since", readings[at]), ("since", either))
        for end in side.clocks:
            for either, readings in merged.items():
                pending = side.store.get((Name(end), ("since", readings[at])))
                if pending is not None:
                    side.store[(Name(end), ("since", either))] = pending
        for either, readings in merged.items():
            for key, pending in list(side.store.of(Name(readings[at])).items()):
                side.store[(Name(either), key)] = pending
        for key, either in held:
            side.store[key] = either
        side.clocks = side.clocks.union(merged)
    return sides


def distinguished(first: State, second: State) -> bool:
    """Whether the guards of two paths that join differ wherever another stream is current."""
    path = first.path.common(second.path)
    one, other = first.path.without(path), second.path.without(path)
    if one.contradicts(other):
        return True
    return first.current.keys() == second.current.keys() and all(
        v == w or (one & g).contradicts(other & h)
        for library, value in first.current.items()
        for v, g in alternatives(value, first.path)
        for w, h in alternatives(second.current[library], second.path)
    )


def leans(value: Value, conditions: int) -> bool:
    """Whether it depends on some of these conditions which of several values it is."""
    return bool(conditions_in(value) & conditions)


def _joined_rebound(
    first: Ordered[Rebound], first_only: Guard, second: Ordered[Rebound], second_only: Guard
) -> Ordered[Rebound]:
    """What was rebound on either path; on one of them only, under that path's guard."""
    if first == second:
        return first
    found = {r if r in second else r._replace(guard=r.guard & first_only): None for r in first}
    return found | {r._replace(guard=r.guard & second_only): None for r in second if r not in first}


def _join_captures(
    first: Capture | None, first_only: Guard, second: Capture | None, second_only: Guard
) -> Capture | None:
    """A capture that is under way on either path; on one of them only, under that path's guard."""
    if first is None:
        return replace(second, guard=second.guard & second_only) if second is not None else None
    if second is None:
        return replace(first, guard=first.guard & first_only)
    if first == second:
        return first
    return replace(
        first,
        members=first.members | second.members,
        guard=(first.guard & first_only).common(second.guard & second_only),
        nested=min(first.nested, second.nested),
        displaced=tuple(dict.fromkeys((*first.displaced, *second.displaced))),
    )
