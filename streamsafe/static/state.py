"""What is known at one point of a program: names, objects, order, the path taken, the current streams, the capture."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamsafe.order.symbolic import ALWAYS, Guard, Made, Order
from streamsafe.static.values import Name, Opaque, Value, rename_part, union

Key = tuple[Name, Hashable]


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
        inputs: where tensors made before the capture were read from.
        guard: the paths on which it is under way, where others arrived here without one.
        nested: how many captures were begun inside it and have not ended.
        waits: the waits that were remembered when it began.
    """

    site: Hashable
    origin: frozenset[Name]
    members: frozenset[Name]
    graph: Name | None
    mode: str
    library: str
    inputs: frozenset[Key] = frozenset()
    guard: Guard = ALWAYS
    nested: int = 0
    waits: frozenset[Waited] = frozenset()


class Rebound(NamedTuple):
    """A static input that no longer is what the graph reads."""

    key: Key
    site: Hashable
    graph: Name


class Waited(NamedTuple):
    """A wait that was made, and what it left uncovered.

    Attributes:
        timeline: who waited, a stream or the host.
        site: the wait.
        recorded: where the event it waited for was recorded, if that is not the wait itself.
        uncovered: the sites of the accesses it might have been meant to cover.
        useless: it ordered nothing that was not ordered already.
    """

    timeline: Hashable
    site: Hashable
    recorded: Hashable | None
    uncovered: frozenset[Hashable]
    useless: bool = False


@dataclass(slots=True, eq=False)
class State:
    """One point of the program; copied at branches, joined after them, otherwise changed in place.

    While a stream captures, ``order`` is that of what is captured and ``eager`` holds what really has run.
    """

    order: Order
    store: dict[Key, Value] = field(default_factory=dict)
    path: Guard = ALWAYS
    current: dict[str, Value] = field(default_factory=dict)
    capture: Capture | None = None
    eager: Order | None = None
    graphs: dict[Name, frozenset[Key]] = field(default_factory=dict)
    rebound: frozenset[Rebound] = frozenset()
    clocks: frozenset[Hashable] = frozenset()
    threads: frozenset[Hashable] = frozenset()
    waits: frozenset[Waited] = frozenset()
    dead: bool = False

    def copy(self) -> State:
        """An independent copy."""
        return State(
            order=self.order.copy(),
            store=dict(self.store),
            path=self.path,
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
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def same(self, other: State) -> bool:
        """Whether two states say the same."""
        return (
            self.dead == other.dead
            and self.path == other.path
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

    def assume(self, guard: Guard) -> None:
        """Enter a branch."""
        if self.path.contradicts(guard):
            self.dead = True
            return
        added = guard.without(self.path)
        if added != ALWAYS:
            self.path = self.path & added
            self.order.assume(added)
            if self.eager is not None:
                self.eager.assume(added)
            if self.capture is not None and self.path.contradicts(self.capture.guard):
                self.leave_capture()

    def forget(self, conditions: int) -> None:
        """Those conditions are about something that is no more."""
        if not conditions:
            return
        self.path = self.path.forget(conditions)
        self.order.forget(conditions)
        if self.eager is not None:
            self.eager.forget(conditions)
        if self.capture is not None:
            self.capture = replace(self.capture, guard=self.capture.guard.forget(conditions))
        from streamsafe.static.values import Union

        for key, value in self.store.items():
            if isinstance(value, Union) and any(
                (g.true | g.false) & conditions for _, g in value.alternatives
            ):
                self.store[key] = union((v, g.forget(conditions)) for v, g in value.alternatives)

    def rename(self, renaming: Callable[[Name], Name], concerns: Callable[[Name], bool]) -> None:
        """Objects age: every mention of them changes, in names, accesses and carriers."""
        changed: dict[Key, Value] = {}
        for (owner, key), value in self.store.items():
            new_owner, new_value = renaming(owner), value.rename(renaming)
            new_key = (new_owner, key)
            if new_key in changed:
                changed[new_key] = union([(changed[new_key], ALWAYS), (new_value, ALWAYS)])
            elif new_owner is not owner and new_key in self.store:
                changed[new_key] = union([(self.store[new_key], ALWAYS), (new_value, ALWAYS)])
            else:
                changed[new_key] = new_value
        self.store = changed
        self.current = {library: value.rename(renaming) for library, value in self.current.items()}
        for order in (self.order, self.eager):
            if order is not None:
                self._rename_order(order, renaming, concerns)
        if self.capture is not None:
            self.capture = replace(
                self.capture,
                origin=frozenset(map(renaming, self.capture.origin)),
                members=frozenset(map(renaming, self.capture.members)),
                graph=renaming(self.capture.graph) if self.capture.graph else None,
                inputs=frozenset((renaming(o), k) for o, k in self.capture.inputs),
            )
        self.graphs = {
            renaming(g): frozenset((renaming(o), k) for o, k in inputs) for g, inputs in self.graphs.items()
        }
        self.rebound = frozenset(
            Rebound((renaming(r.key[0]), r.key[1]), r.site, renaming(r.graph)) for r in self.rebound
        )

    @staticmethod
    def _rename_order(order: Order, renaming: Callable[[Name], Name], concerns: Callable[[Name], bool]) -> None:
        moves = []
        for carrier in order.carriers.known():
            if isinstance(carrier, Name) and concerns(carrier):
                older = renaming(carrier)
                moves.append((order.carriers.bit(carrier), order.carriers.bit(older)))

        def made(old: Made) -> Made:
            buffer = old.buffer
            if isinstance(buffer, Name):
                buffer = renaming(buffer)
            elif isinstance(buffer, tuple):
                buffer = tuple(renaming(x) if isinstance(x, Name) else x for x in buffer)
            timeline = renaming(old.timeline) if isinstance(old.timeline, Name) else old.timeline
            part = rename_part(old.part, renaming)
            return old._replace(buffer=buffer, part=part, timeline=timeline)

        order.rewrite(made, moves)

    @staticmethod
    def join(first: State | None, second: State | None, opaque: Callable[[Name], bool]) -> State | None:
        """What is known when either path was taken; None stands for a path that does not arrive."""
        if first is None or first.dead:
            return second if second is not None and not second.dead else None
        if second is None or second.dead:
            return first
        if first is second:
            return first
        path = first.path.common(second.path)
        first_only, second_only = first.path.without(path), second.path.without(path)
        joined = State(order=Order.join(first.order, first_only, second.order, second_only), path=path)
        store = joined.store
        for key, value in first.store.items():
            other = second.store.get(key)
            if key[1] == "@length" and other != value:
                continue
            if other is None:
                other = None if (key[0], "@materialized") in first.store else _default(key, opaque)
            if other is None or other is value or other == value:
                store[key] = value
            else:
                store[key] = union([(value, first_only), (other, second_only)])
        for key, value in second.store.items():
            if key not in store and key[1] != "@length":
                other = None if (key[0], "@materialized") in second.store else _default(key, opaque)
                store[key] = value if other is None else union([(other, first_only), (value, second_only)])
        for library in {**first.current, **second.current}:
            left, right = first.current.get(library), second.current.get(library)
            if left is None or right is None or left == right:
                joined.current[library] = left or right  # type: ignore[assignment]
            else:
                joined.current[library] = union([(left, first_only), (right, second_only)])
        if first.capture or second.capture:
            joined.capture = _join_captures(first.capture, first_only, second.capture, second_only)
            outside = first.eager or first.order, second.eager or second.order
            joined.eager = Order.join(outside[0], first_only, outside[1], second_only).copy()
        joined.graphs = {
            g: first.graphs.get(g, frozenset()) | second.graphs.get(g, frozenset())
            for g in {**first.graphs, **second.graphs}
        }
        joined.rebound = first.rebound | second.rebound
        joined.clocks = first.clocks | second.clocks
        joined.threads = first.threads | second.threads
        joined.waits = first.waits | second.waits
        return joined


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
        inputs=first.inputs | second.inputs,
        guard=(first.guard & first_only).common(second.guard & second_only),
        nested=min(first.nested, second.nested),
    )


def _default(key: Key, opaque: Callable[[Name], bool]) -> Value | None:
    """What an attribute is before anything is assigned to it, where its object is not seen made."""
    owner, attribute = key
    return Opaque(owner.child(attribute)) if isinstance(attribute, str) and opaque(owner) else None
