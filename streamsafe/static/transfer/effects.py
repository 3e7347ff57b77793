"""What operations do to the order of a state: records, waits and synchronization.

These are the verbs of a stream program. The tables say which call means which verbs; the interpreter says when.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

from streamsafe.order import edges
from streamsafe.order.edges import Carrier, Edge
from streamsafe.order.symbolic import ALWAYS, HOST, Guard, Made, Order
from streamsafe.static import element_keys, fields, keyed
from streamsafe.static.facts import AMBIENT, Assumed, Detail, Finding, Site
from streamsafe.static.parts import disjoint
from streamsafe.static.state import State, Waited
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    ANY,
    EACH,
    ITERATED,
    NONE,
    Const,
    Event,
    Instance,
    Name,
    Opaque,
    Stream,
    Union,
    Value,
    alternatives,
    union,
)

_BY_KEY = ("by key",)
"""What the carrier begins with that knows what an event covers which was picked by a key: then who has waited for it,
what the event was picked from, and the key.
"""


class Effects(Part):
    """The verbs that order work: records, waits, synchronization."""

    # -- streams -------------------------------------------------------------------------------------------------

    def order(self) -> Order:
        """An order in which nothing has happened."""
        return Order(self.run.carriers, disjoint, _stands_for)

    def current(self, st: State, library: str) -> Value:
        """The current stream of a library."""
        return st.current.get(library) or _ambient(library)

    def as_stream(self, value: Value, library: str) -> Value:
        """A stream for what is used as one; None keeps the current one."""
        if isinstance(value, Instance):  # of a class that derives from one
            return Stream(value.name, library)
        if isinstance(value, Opaque):
            if library == "cupy":
                self.run.table.unknown.add(value.name.base())
            return Stream(value.name, library)
        if isinstance(value, Union):
            return union((self.as_stream(v, library), g) for v, g in value.alternatives)
        return value

    def possible_streams(
        self, st: State, library: str, stream: Value | None = None
    ) -> list[tuple[Stream, Guard]]:
        """The streams an operation may run on, each with the guard it needs."""
        found = []
        chosen = self.conditions.exclusive(st, self.current(st, library) if stream is None else stream)
        for value, guard in alternatives(chosen, st.path):
            if isinstance(value, Opaque):
                value = self.as_stream(value, library)
            if isinstance(value, Stream):
                self.take_loop_waits(st, value.name)
                found.append((value, guard))
            elif value == NONE:
                found.extend(
                    (s, guard & g) for s, g in self.possible_streams(st, library) if not guard.contradicts(g)
                )
        return found

    def take_loop_waits(self, st: State, name: Name) -> None:
        """A stream that a loop reaches, or that is used first after one, waited for what all did in loops before."""
        taken = st.store.marked(name, fields.LOOP_WAITS_TAKEN)
        for element in name.chain():
            common = element.parent and element_keys.transplanted(
                name, element, element.parent.child(ITERATED)
            )
            if common is None or common not in self.run.carriers:
                continue
            iterated = element.site == EACH
            if iterated or not taken:
                st.order.learn(name, common)
            if not iterated:
                st.store.mark(name, fields.LOOP_WAITS_TAKEN)

    def keep_loop_waits(self, st: State, iterated: set[Name]) -> None:
        """A loop is over: what the stream of each iteration has waited for, all have."""
        for carrier in self.run.carriers.known() if iterated else ():
            if not isinstance(carrier, Name) or carrier.family().isdisjoint(iterated):
                continue
            each = next(name for name in carrier.chain() if name.newest() in iterated)
            common = (
                element_keys.transplanted(carrier, each, each.parent.child(ITERATED))
                if each.parent is not None
                else None
            )
            if common is not None:
                st.order.inherit(common, carrier)

    def spread(self, name: Name) -> list[Name]:
        """The carriers a name stands for: an element of a whole loop, or at an unknown index, for every element."""
        if name.site not in (EACH, ANY) or name.parent is None:
            return [name]
        members = self.run.members.get(name.parent.base(), set())
        return [name] + [
            c
            for c in self.run.carriers.known()
            if isinstance(c, Name) and c != name and (c.parent == name.parent or c.base() in members)
        ]

    # -- edges ---------------------------------------------------------------------------------------------------

    def record(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """An event is recorded."""
        marker = ("timing", event.name)
        st.order.drop(marker)
        for s, guard in self.possible_streams(st, library, stream):
            detail = Detail("record()", "", Assumed.NOTHING, frozenset({"timing"}), self.run.entry)
            st.order.add(Made(site, marker, None, False, s.name, detail), guard, covers=False)
            st.order.obey(edges.record(event.name, s.name, HOST, self.run.table), guard)
            for other in self.spread(event.name)[1:]:
                # which element was recorded is not known: another one keeps what it had
                forgets = event.name.site == EACH
                st.order.obey(
                    (
                        e._replace(forget=e.forget and forgets)
                        for e in edges.record(other, s.name, HOST, self.run.table)
                    ),
                    guard,
                )
            self.captures.capture_record(st, event.name, s.name)
        st.store[(event.name, fields.RECORDED_ON)] = union(
            (s, g) for s, g in self.possible_streams(st, library, stream)
        )
        st.store[(event.name, fields.RECORD_SITE)] = Const(site)
        names = {s.name for s, _ in self.possible_streams(st, library, stream)}
        for known in st.store.constants(event.name, fields.EVER_RECORDED_ON):
            names |= known
        st.store[(event.name, fields.EVER_RECORDED_ON)] = Const(frozenset(names))
        self.explain(
            st, site, f"records {self.objects.describe(event)} on {self.streams_text(st, library, stream)}"
        )

    @staticmethod
    def recorders(st: State, event: Event) -> tuple[set[Name], Hashable | None]:
        """The streams that an event was recorded on, now or before it was recorded again, and where it was last."""
        names: set[Name] = set().union(*st.store.constants(event.name, fields.EVER_RECORDED_ON))
        sites = st.store.constants(event.name, fields.RECORD_SITE)
        return names, sites[0] if len(sites) == 1 else None

    def wait_event(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """A stream waits for an event."""
        recorded_on, recorded_at = self.recorders(st, event)
        for s, guard in self.possible_streams(st, library, stream):
            before = self.lacking(st, s.name, guard)
            for target in self.spread(s.name):
                for source in self.spread(event.name):
                    st.order.obey(edges.wait(target, source, HOST, self.run.table), guard)
            self.note_wait(
                st,
                s.name,
                site,
                recorded_at,
                recorded_on,
                before,
                guard,
                event.name,
            )
            self._wait_by_key(st, s.name, event.name, guard)
            self.captures.capture_wait(st, event.name, s.name, site, is_stream=False)
        self.explain(
            st, site, f"{self.streams_text(st, library, stream)} waits for {self.objects.describe(event)}"
        )

    def wait_stream(self, st: State, waiter: Value, other: Value, library: str, site: Site) -> None:
        """One stream waits for another: a record and a wait (TS-06)."""
        for target, target_guard in self.possible_streams(st, library, waiter):
            for source, source_guard in self.possible_streams(st, library, other):
                if target_guard.contradicts(source_guard):
                    continue
                guard = target_guard & source_guard
                if st.path.contradicts(guard):
                    continue
                before = self.lacking(st, target.name, guard)
                for t in self.spread(target.name):
                    for s in self.spread(source.name):
                        st.order.obey(edges.launch(s, HOST, self.run.table), guard)
                        st.order.obey(edges.launch(t, HOST, self.run.table), guard)
                        st.order.obey([Edge(t, s)], guard)
                self.note_wait(st, target.name, site, None, {source.name}, before, guard, source.name)
                self.captures.capture_wait(st, source.name, target.name, site, is_stream=True)
        self.explain(
            st,
            site,
            f"{self.streams_text(st, library, waiter)} waits for {self.streams_text(st, library, other)}",
        )

    def synchronize_stream(self, st: State, stream: Value | None, library: str, site: Site) -> None:
        """The host waits for a stream."""
        for s, guard in self.possible_streams(st, library, stream):
            before = self.lacking(st, HOST, guard)
            for source in self.spread(s.name):
                st.order.obey(edges.synchronize_stream(HOST, source, self.run.table), guard)
            self.note_wait(st, HOST, site, None, {s.name}, before, guard, s.name)
        self.explain(st, site, f"the host waits for {self.streams_text(st, library, stream)}")

    def synchronize_event(self, st: State, event: Event, site: Site) -> None:
        """The host waits for an event."""
        sources, at = self.recorders(st, event)
        before = self.lacking(st, HOST, ALWAYS)
        for source in self.spread(event.name):
            st.order.obey(edges.synchronize_event(HOST, source))
        self._wait_by_key(st, HOST, event.name, ALWAYS)
        self.note_wait(st, HOST, site, at, sources, before, ALWAYS, event.name)
        self.explain(st, site, f"the host waits for {self.objects.describe(event)}")

    def _wait_by_key(self, st: State, waiter: Carrier, event: Name, guard: Guard) -> None:
        """Who waits for an event that was picked by a key knows what the event of that key covers, whichever it is."""
        if event.parent is None or type(event.site) is not tuple or not keyed.is_key(event.site):
            return
        owner = event.parent.base()
        others = [
            c
            for c in self.run.carriers.known()
            if isinstance(c, Name)
            and c.parent is not None
            and c.parent.base() is owner
            and keyed.is_key(c.site)
        ]
        for other in others:
            st.order.learn((*_BY_KEY, waiter, owner, event.site), other, guard=guard)

    def host_learns_everything(self, st: State, site: Site | None = None) -> None:
        """A device synchronize, or a call that is taken to order everything."""
        st.order.learn_everything(HOST)
        if site is not None:
            self.explain(st, site, "the host waits for every stream")

    def synchronize_device(self, st: State, device: int, site: Site) -> None:
        """The host waits for the streams of one device of several (CS-25, TG-06)."""
        before = self.lacking(st, HOST, ALWAYS)
        for timeline in {made.timeline: None for made, _ in st.order.iterate() if made.timeline != HOST}:
            if self.run.table.device_of(timeline) == device:
                st.order.learn(HOST, timeline)
        self.note_wait(st, HOST, site, None, set(), before, ALWAYS)
        self.explain(st, site, f"the host waits for every stream of device {device}")

    def lacking(self, st: State, learner: Carrier, guard: Guard) -> dict[Made, None]:
        """Accesses that a wait might be meant for: not yet known to who waits."""
        bit = st.order.bit(learner)
        path = st.path & guard
        return {
            made: None
            for made, ways in st.order.iterate()
            if made.timeline != learner
            and isinstance(made.buffer, Name)
            and any(not way.carriers & bit and not path.contradicts(way.guard) for way in ways)
        }

    def note_wait(
        self,
        st: State,
        learner: Carrier,
        site: Site,
        recorded: Hashable | None,
        sources: set[Name],
        before: dict[Made, None],
        guard: Guard,
        awaited: Name | None = None,
    ) -> None:
        """Remember a wait that leaves something uncovered which it may have been meant for (SS103)."""
        if not before and learner == HOST:
            return
        after = self.lacking(st, learner, guard)
        useless = len(after) == len(before)
        uncovered = {made.site for made in after if made.timeline in sources or useless}
        # the wait turned round: the stream that did the work waits for the one that will use it
        turned = (
            {made.site for made, _ in st.order.iterate() if made.timeline == learner} if useless else set()
        )
        if uncovered:
            st.waits = {w: None for w in st.waits if (w.timeline, w.site) != (learner, site)}
            st.waits[Waited(learner, site, recorded, frozenset(uncovered), useless, awaited)] = None
        if turned and learner != HOST:
            for source in sources:  # in any order: of one timeline there is one
                st.waits = st.waits | {Waited(source, site, recorded, frozenset(turned)): None}

    # -- accesses ------------------------------------------------------------------------------------------------

    def is_doubtful(self, finding: Finding) -> bool:
        """Whether a finding leans on so much that it is only possible, however the file goes on."""
        return bool(finding.assumed & Assumed.POSSIBLE) or finding.strong > 1

    def is_ordered_by_key(
        self, st: State, made: Made, timeline: Carrier, keys: frozenset[Hashable], path: Guard
    ) -> bool:
        """Whether the event of the element that is accessed was waited for, picked by the same key.

        An event of each element of a list: it covers the access to the element that was picked by its own key. Whoever
        has waited for the one of his key has waited for what touches his element.
        """
        detail: Detail = made.detail  # type: ignore[assignment]
        waits = [
            (self.run.carriers.bit(c), c[2])
            for c in self.run.carriers.known()
            if type(c) is tuple and c[:1] == _BY_KEY and c[1] in (timeline, HOST) and c[3] in keys
        ]
        ways = st.order.accesses(made.buffer).get(made, ()) if waits and detail.keys else ()
        known = st.order.bit(timeline)
        left = [way for way in ways if not way.carriers & known and not path.contradicts(way.guard)]
        covering = [
            (owner, self.run.carriers.bit(event)) for owner, event in self._events_of_keys(detail.keys)
        ]
        return bool(left) and all(
            any(
                way.carriers & waited
                and any(owner is events and way.carriers & bit for owner, bit in covering)
                for waited, events in waits
            )
            for way in left
        )

    def _events_of_keys(self, keys: frozenset[Hashable]) -> list[tuple[Name, Name]]:
        """The events that were picked by one of these keys, each behind what it was picked from."""
        return [
            (c.parent.base(), c)
            for c in self.run.carriers.known()
            if isinstance(c, Name) and c.parent is not None and c.site in keys
        ]

    # -- words ---------------------------------------------------------------------------------------------------

    def streams_text(self, st: State, library: str, stream: Value | None) -> str:
        """How a user would name the streams that an operation may run on."""
        return " or ".join(
            dict.fromkeys(self.objects.describe(s) for s, _ in self.possible_streams(st, library, stream))
        )

    def explain(self, st: State, site: Site, text: str) -> None:
        """Keep a line for ``--explain-line``."""
        if self.run.explained is not None:
            self.run.explained.append((site, text))


@cache
def _ambient(library: str) -> Stream:
    return Stream(AMBIENT, library)


def _stands_for(named: Hashable, other: Hashable) -> bool:
    """Whether an access can be named in place of another: a hazard with it leans on no more."""
    assert isinstance(named, Detail)
    assert isinstance(other, Detail)
    if named.assumed & ~other.assumed:
        return False
    return bool(other.assumed & Assumed.POSSIBLE) or (named.tags == other.tags and named.entry == other.entry)
