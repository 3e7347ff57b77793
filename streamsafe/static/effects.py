"""What operations do to a state: accesses, edges, allocation and release, and the conflicts these show.

These are the verbs of a stream program. The tables say which call means which verbs; the interpreter says when.

One file: an access, an edge and a release are checked against the same order and share how a conflict is reported.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache, partial
from typing import TYPE_CHECKING

from streamsafe.order import edges
from streamsafe.order.edges import Carrier, Edge
from streamsafe.order.symbolic import ALWAYS, HOST, Accesses, Carriers, Guard, Made, Order
from streamsafe.static import element_keys, keyed, parts
from streamsafe.static.facts import (
    ACCESSES_AN_ACCESS,
    AGAIN,
    AMBIENT,
    AUTOGRAD,
    CALLER,
    COPIES,
    EFFORT,
    ENTERED,
    EXHAUSTED,
    FILE_EFFORT,
    GRADIENTS,
    HANDED_OUT,
    HOOK,
    SPENT,
    UNNUMBERED,
    WAYS_AN_ACCESS,
    Assumed,
    Detail,
    Finding,
    Site,
    StreamTable,
    constants,
)
from streamsafe.static.memory import Memory
from streamsafe.static.parts import disjoint, owner, touched
from streamsafe.static.state import State, Waited
from streamsafe.static.suggestions import COMMUNICATION
from streamsafe.static.values import (
    ANY,
    EACH,
    ITERATED,
    NONE,
    PARAMETERS,
    PLAIN,
    Const,
    Event,
    Instance,
    Name,
    Object,
    Opaque,
    Span,
    Stream,
    Tensor,
    Union,
    Value,
    alternatives,
    union,
)

if TYPE_CHECKING:
    import libcst as cst

    from streamsafe.static.source import SourceFile


_NO_TAGS: frozenset[str] = frozenset()

_BY_KEY = ("by key",)
"""What the carrier begins with that knows what an event covers which was picked by a key: then who has waited for it,
what the event was picked from, and the key.
"""


class Effects(Memory):
    """The verbs. The interpreter inherits them."""

    rounds: list[set[Name]]

    # declared here, implemented further down the chain
    conditions: dict[Hashable, int]
    file: SourceFile

    def __init__(self) -> None:
        self.carriers = Carriers()
        self.table = StreamTable()
        self.effort = 0  # accesses of this entry so far
        self.total_effort = 0  # and of all entries of the file
        self.cut_short: dict[str, str] = {}  # entry -> the limit that its analysis has reached
        self.findings: dict[tuple[Hashable, ...], Finding] = {}
        self.candidates: list[Name] = []  # what may have lost its last name
        self.ended: set[Name] = set()  # of these, what a call that ended had among its own names
        self.entry = ""
        self.silent = 0
        self.unsaid: set[Hashable] = set()  # the memory that findings are about which are not to be said
        self.alone: cst.CSTNode | None = None  # the expression that is a whole statement
        self.unordered_accesses: set[tuple[str, Hashable]] = set()  # accesses that an entry found unordered
        # what a caller who is not seen gives the function that is looked at
        self.from_caller: dict[Name, Site] = {}
        self.recorded_siblings: set[tuple[Name, Name]] = (
            set()
        )  # objects of which some part is recorded on a stream
        self.members: dict[Name, set[Name]] = {}  # streams and events that were put into a container
        self.made_here: set[Name] = set()
        self.libraries: dict[Name, str] = {}  # whose a tensor is
        self.sites_of: dict[Name, Site] = {}  # where a tensor is allocated
        self.given_at: dict[Name, Site] = {}  # the last call that gave it to who made that call
        self.results: set[Name] = set()  # tensors that an operation returns
        self.tensor_rows: set[Name] = set()  # what was unpacked from one of these, and is used as a tensor
        self.produced: set[Name] = set()  # what the rounds of threads have allocated
        self.closed: set[Name] = set()  # scopes and objects that hold only what is seen put there
        self.holders: set[Name] = set()  # objects of whose parts something is known
        self.cuda_devices: set[Name] = (
            set()
        )  # objects of unknown kind that are used as CUDA devices somewhere
        self.plain: set[Name] = set()  # objects that are known to be no tensors
        self.settings: set[Name] = set()  # what a command line was parsed into: nothing it holds is a tensor
        self.tensorish: set[Name] = set()  # objects of unknown kind that are used as tensors somewhere
        # those of them that are only what a call of unknown kind has made of one
        self.presumed: set[Name] = set()
        self.asked_otherwise: set[Name] = set()  # objects that are asked for a method which no tensor has
        self.leaf_tensors: set[Name] = set()  # tensors that were made leaves, each of a pass of its own
        self.gradients_given = False  # something was assigned to the gradient of a parameter
        self.loaded: set[Name] = set()  # what was read from files into pageable memory
        self.numbers: set[Name] = set()  # tensors of the host that may have no dimension
        self.unplaced: set[Name] = set()  # memory taken for the host's that may be pinned, or lie elsewhere
        self.of_numpy: set[Name] = set()  # arrays that are not seen made, of which torch has made tensors
        self.advice: dict[tuple[Hashable, ...], Finding] = {}  # on speed: see advice.py
        self.constructed: Name | None = None  # the object whose constructor is interpreted
        self.builds_module = False  # that of a module nobody is seen to make
        self.late: dict[Name, set[str]] = {}  # attributes that are not there until some method assigns them
        self.explained: list[tuple[Site, str]] | None = None
        self.inherited: set[Made] = set()  # what calls of methods before this one have left
        self.beside = False  # the entry is a thread's that waits for what others hand over
        self.handed_on: set[Hashable] = set()  # where accesses before a signal to a thread are
        self.one_stream = False  # the file mentions no other stream than the current one

    # -- what the interpreter supplies ---------------------------------------------------------------------------

    # -- streams -------------------------------------------------------------------------------------------------

    def order(self) -> Order:
        """An order in which nothing has happened."""
        return Order(self.carriers, disjoint, _stands_for)

    def current(self, st: State, library: str) -> Value:
        """The current stream of a library."""
        return st.current.get(library) or _ambient(library)

    calling: Value | None = None
    """The stream whose host function is interpreted, if any."""

    def as_stream(self, value: Value, library: str) -> Value:
        """A stream for what is used as one; None keeps the current one."""
        if isinstance(value, Instance):  # of a class that derives from one
            return Stream(value.name, library)
        if isinstance(value, Opaque):
            if library == "cupy":
                self.table.unknown.add(value.name.base())
            return Stream(value.name, library)
        if isinstance(value, Union):
            return union((self.as_stream(v, library), g) for v, g in value.alternatives)
        return value

    def streams(self, st: State, library: str, stream: Value | None = None) -> list[tuple[Stream, Guard]]:
        """The streams an operation may run on, each with the guard it needs."""
        found = []
        chosen = self.exclusive(st, self.current(st, library) if stream is None else stream)
        for value, guard in alternatives(chosen, st.path):
            if isinstance(value, Opaque):
                value = self.as_stream(value, library)
            if isinstance(value, Stream):
                self.take_loop_waits(st, value.name)
                found.append((value, guard))
            elif value == NONE:
                found.extend((s, guard & g) for s, g in self.streams(st, library) if not guard.contradicts(g))
        return found

    def take_loop_waits(self, st: State, name: Name) -> None:
        """A stream that a loop reaches, or that is used first after one, waited for what all did in loops before."""
        taken = (name, "@loop waits") in st.store
        for element in name.chain():
            common = element.parent and element_keys.transplanted(
                name, element, element.parent.child(ITERATED)
            )
            if common is None or common not in self.carriers:
                continue
            iterated = element.site == EACH
            if iterated or not taken:
                st.order.learn(name, common)
            if not iterated:
                st.store[(name, "@loop waits")] = PLAIN

    def keep_loop_waits(self, st: State, iterated: set[Name]) -> None:
        """A loop is over: what the stream of each iteration has waited for, all have."""
        for carrier in self.carriers.known() if iterated else ():
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

    def exclusive(self, st: State, value: Value) -> Value:
        """One of several streams is one of them at a time: alternatives whose guards do not say so get some."""
        return value

    def spread(self, name: Name) -> list[Name]:
        """The carriers a name stands for: an element of a whole loop, or at an unknown index, for every element."""
        if name.site not in (EACH, ANY) or name.parent is None:
            return [name]
        members = self.members.get(name.parent.base(), set())
        return [name] + [
            c
            for c in self.carriers.known()
            if isinstance(c, Name) and c != name and (c.parent == name.parent or c.base() in members)
        ]

    # -- edges ---------------------------------------------------------------------------------------------------

    def record(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """An event is recorded."""
        marker = ("timing", event.name)
        st.order.drop(marker)
        for s, guard in self.streams(st, library, stream):
            detail = Detail("record()", "", Assumed.NOTHING, frozenset({"timing"}), self.entry)
            st.order.add(Made(site, marker, None, False, s.name, detail), guard, covers=False)
            st.order.obey(edges.record(event.name, s.name, HOST, self.table), guard)
            for other in self.spread(event.name)[1:]:
                # which element was recorded is not known: another one keeps what it had
                forgets = event.name.site == EACH
                st.order.obey(
                    (
                        e._replace(forget=e.forget and forgets)
                        for e in edges.record(other, s.name, HOST, self.table)
                    ),
                    guard,
                )
            self.capture_record(st, event.name, s.name)
        st.store[(event.name, "@recorded")] = union((s, g) for s, g in self.streams(st, library, stream))
        st.store[(event.name, "@record site")] = Const(site)
        names = {s.name for s, _ in self.streams(st, library, stream)}
        for known in constants(st.store.get((event.name, "@recorders"))):
            names |= known
        st.store[(event.name, "@recorders")] = Const(frozenset(names))
        self.explain(st, site, f"records {self.describe(event)} on {self._streams_text(st, library, stream)}")

    @staticmethod
    def recorders(st: State, event: Event) -> tuple[set[Name], Hashable | None]:
        """The streams that an event was recorded on, now or before it was recorded again, and where it was last."""
        names: set[Name] = set().union(*constants(st.store.get((event.name, "@recorders"))))
        sites = constants(st.store.get((event.name, "@record site")))
        return names, sites[0] if len(sites) == 1 else None

    def wait_event(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """A stream waits for an event."""
        recorded_on, recorded_at = self.recorders(st, event)
        for s, guard in self.streams(st, library, stream):
            before = self.lacking(st, s.name, guard)
            for target in self.spread(s.name):
                for source in self.spread(event.name):
                    st.order.obey(edges.wait(target, source, HOST, self.table), guard)
            self._waited(
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
            self.capture_wait(st, event.name, s.name, site, is_stream=False)
        self.explain(st, site, f"{self._streams_text(st, library, stream)} waits for {self.describe(event)}")

    def wait_stream(self, st: State, waiter: Value, other: Value, library: str, site: Site) -> None:
        """One stream waits for another: a record and a wait (TS-06)."""
        for target, target_guard in self.streams(st, library, waiter):
            for source, source_guard in self.streams(st, library, other):
                if target_guard.contradicts(source_guard):
                    continue
                guard = target_guard & source_guard
                if st.path.contradicts(guard):
                    continue
                before = self.lacking(st, target.name, guard)
                for t in self.spread(target.name):
                    for s in self.spread(source.name):
                        st.order.obey(edges.launch(s, HOST, self.table), guard)
                        st.order.obey(edges.launch(t, HOST, self.table), guard)
                        st.order.obey([Edge(t, s)], guard)
                self._waited(st, target.name, site, None, {source.name}, before, guard, source.name)
                self.capture_wait(st, source.name, target.name, site, is_stream=True)
        self.explain(
            st,
            site,
            f"{self._streams_text(st, library, waiter)} waits for {self._streams_text(st, library, other)}",
        )

    def synchronize_stream(self, st: State, stream: Value | None, library: str, site: Site) -> None:
        """The host waits for a stream."""
        for s, guard in self.streams(st, library, stream):
            before = self.lacking(st, HOST, guard)
            for source in self.spread(s.name):
                st.order.obey(edges.synchronize_stream(HOST, source, self.table), guard)
            self._waited(st, HOST, site, None, {s.name}, before, guard, s.name)
        self.explain(st, site, f"the host waits for {self._streams_text(st, library, stream)}")

    def synchronize_event(self, st: State, event: Event, site: Site) -> None:
        """The host waits for an event."""
        sources, at = self.recorders(st, event)
        before = self.lacking(st, HOST, ALWAYS)
        for source in self.spread(event.name):
            st.order.obey(edges.synchronize_event(HOST, source))
        self._wait_by_key(st, HOST, event.name, ALWAYS)
        self._waited(st, HOST, site, at, sources, before, ALWAYS, event.name)
        self.explain(st, site, f"the host waits for {self.describe(event)}")

    def _wait_by_key(self, st: State, waiter: Carrier, event: Name, guard: Guard) -> None:
        """Who waits for an event that was picked by a key knows what the event of that key covers, whichever it is."""
        if event.parent is None or type(event.site) is not tuple or not keyed.is_key(event.site):
            return
        owner = event.parent.base()
        others = [
            c
            for c in self.carriers.known()
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
            if self.table.device_of(timeline) == device:
                st.order.learn(HOST, timeline)
        self._waited(st, HOST, site, None, set(), before, ALWAYS)
        self.explain(st, site, f"the host waits for every stream of device {device}")

    def lacking(self, st: State, learner: Carrier, guard: Guard) -> dict[Made, None]:
        """Accesses that a wait might be meant for: not yet known to who waits."""
        bit = 0 if learner == HOST else self.carriers.bit(learner)
        path = st.path & guard
        return {
            made: None
            for made, ways in st.order.iterate()
            if made.timeline != learner
            and isinstance(made.buffer, Name)
            and any(not way.carriers & bit and not path.contradicts(way.guard) for way in ways)
        }

    def _waited(
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

    def access(
        self,
        st: State,
        value: Value,
        site: Site,
        operation: str,
        *,
        writes: bool,
        library: str = "torch",
        stream: Value | None = None,
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """A device operation touches what ``value`` stands for, on a stream."""
        streams = self.streams(st, library, stream)
        if (
            len(streams) > 1
            and any(
                not first.contradicts(second)
                for n, (_, first) in enumerate(streams)
                for _, second in streams[:n]
            )
        ):  # which of them it is hangs on something that is not followed: what else hangs on it is not known either
            assumed |= Assumed.FORGOTTEN
        for target, guard in self.tensors(st, value):
            for s, stream_guard in streams:
                both = guard & stream_guard
                if guard.contradicts(stream_guard) or st.path.contradicts(both):
                    continue
                self._touch(st, target, site, operation, writes, s, both, assumed, tags)

    def _touch(
        self,
        st: State,
        target: Object,
        site: Site,
        operation: str,
        writes: bool,
        stream: Stream,
        guard: Guard,
        assumed: Assumed,
        tags: frozenset[str],
    ) -> None:
        if self.is_spent():
            return  # one statement may touch thousands: the share counts here too
        buffer, part, keys = _picked(target)
        if isinstance(target, Tensor):
            self.tensorish.add(buffer.base())
            self.presumed.discard(buffer.base())
        if buffer.parent is not None:
            self.holds(buffer)
        if self.one_stream and stream.name is AMBIENT and not tags & COPIES and self.explained is None:
            return  # what one stream does to memory of the device is ordered
        spent, self.carriers.work = divmod(self.carriers.work, WAYS_AN_ACCESS)
        self.effort += 1 + spent
        self.total_effort += 1 + spent + len(st.order.made.get(buffer, ())) // ACCESSES_AN_ACCESS
        if self.pooled and not writes:
            self.wants_overlaid(st, buffer, site, guard)
        if st.capture is not None and tags & {"h2d", "h2d?"}:
            self.copies_filled(st, buffer, site)
        one_of_many = buffer.is_older() or buffer.is_unknown_element() or self.is_some_element(buffer)
        if one_of_many:
            assumed |= Assumed.OLDER
        if stream.name.is_older() or stream.name.is_unknown_element():
            assumed |= Assumed.CHOICE
        if stream.name == HOOK:
            tags |= {"hook"}
        if isinstance(target, Tensor) and target.unexchanged:
            tags |= {"unexchanged"}
        if st.current.get("device") == PLAIN and self.table.is_legacy(stream.name):
            tags |= {UNNUMBERED}
        st.order.obey(edges.launch(stream.name, HOST, self.table), guard)
        self._check(
            st, buffer, part, writes, stream.name, site, operation, guard, assumed, tags, target, keys
        )
        iterated = self.iterated_element(buffer)
        if iterated is not None and iterated in st.order.made:
            many = assumed | Assumed.OLDER
            self._check(
                st, iterated, part, writes, stream.name, site, operation, guard, many, tags, target, keys
            )
        if buffer in self.from_caller:
            self._against_caller(st, target, writes, stream.name, site, operation, guard, assumed, tags)
        memory = self.describe(target)
        detail = Detail(operation, memory, assumed, tags, self.entry, keys)
        # a replay repeats every access of a capture, also those that a later one stands for
        alone = st.capture is None and not one_of_many
        covers = alone and part is None and not isinstance(target, Opaque)
        st.order.add(Made(site, buffer, part, writes, stream.name, detail), guard, covers=covers, alone=alone)
        self.capture_access(st, target, stream.name, site, operation, writes)
        if self.explained is not None:
            text = f"{operation} {'writes' if writes else 'reads'} {memory} on {self.describe(stream)}"
            self.explain(st, site, text)

    def iterated_element(self, buffer: Name) -> Name | None:
        """The element of a loop that is over which stands for one that is picked by an unknown key."""
        if buffer.parent is None:
            return None
        for name in buffer.chain():
            if name.parent is not None and _is_picked(name.site):
                each = name.parent.child(EACH)
                if any(each in names for names in self.rounds):
                    return None  # it goes on: this may be another one than the round's
                return element_keys.transplanted(buffer, name, each)
        return None

    def reach_picked(self, st: State, element: Name) -> None:
        """A loop begins: it will reach the elements that have been picked before by unknown keys."""
        for buffer in list(st.order.made):
            if not isinstance(buffer, Name) or buffer.parent is None:
                continue
            picked = next(
                (n for n in buffer.chain() if n.parent is element.parent and _is_picked(n.site)), None
            )
            moved = element_keys.transplanted(buffer, picked, element) if picked is not None else None
            if moved is not None:
                st.order.share(buffer, partial(_on_buffer, moved))
                if buffer.base() in self.tensorish:
                    self.tensorish.add(moved.base())

    def is_some_element(self, buffer: Name) -> bool:
        """Whether it is some element of a loop that is over, not known which; a module needs all it has."""
        for name in buffer.chain():
            if name.site == EACH and name.parent is not None and name.parent.site != PARAMETERS:
                if not any(name in names for names in self.rounds):
                    return True
        return False

    def host_access(
        self,
        st: State,
        value: Value,
        site: Site,
        operation: str,
        *,
        writes: bool,
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """The host touches memory; a host function does so on its stream's timeline."""
        if self.calling is not None:
            tags |= {"host function"}
            self.access(
                st, value, site, operation, writes=writes, stream=self.calling, assumed=assumed, tags=tags
            )
            return
        for target, guard in self.tensors(st, value):
            _, part, keys = _picked(target)
            if writes and st.capture is not None:
                self.fills_in_capture(st, target, site)
            elif self.pooled and not writes:
                self.wants_overlaid(st, target.name, site, guard)
            self._check(
                st, target.name, part, writes, HOST, site, operation, guard, assumed, tags, target, keys
            )
            self.explain(
                st, site, f"the host {'writes' if writes else 'reads'} {self.describe(target)} ({operation})"
            )

    def _check(
        self,
        st: State,
        buffer: Name,
        part: Hashable | None,
        writes: bool,
        timeline: Carrier,
        site: Site,
        operation: str,
        guard: Guard,
        assumed: Assumed,
        tags: frozenset[str],
        target: Object,
        keys: frozenset[Hashable],
    ) -> None:
        path = st.path & guard
        conflicts = st.order.conflicts(buffer, part, writes, timeline, path)
        if not conflicts:
            return
        place = self.place(st, target)
        by_stream: dict[Carrier, tuple[Made, Guard]] = {}
        for made, way in conflicts:
            # the host conflicts only with what touches host memory: copies, and functions that streams call
            if timeline == HOST and (place == "device" or not made.detail.tags & COPIES):  # type: ignore[attr-defined]
                continue
            if "backward" in tags and not made.writes and self.is_of_leaf(made.part):
                continue  # the leaf of another pass: its gradient is other memory
            if keys and self._is_ordered_by_key(st, made, timeline, keys, path):
                continue
            best = by_stream.get(made.timeline)
            if best is None or _detail_rank(made, self.entry) > _detail_rank(best[0], self.entry):
                by_stream[made.timeline] = (made, way)
        for made, way in by_stream.values():
            detail: Detail = made.detail  # type: ignore[assignment]
            extra = Assumed.NOTHING
            if self.is_no_tensor(buffer, assumed | detail.assumed):
                continue
            if detail.entry != self.entry:
                extra |= Assumed.METHODS
                if self.beside and timeline != HOST and made.site not in self.handed_on:
                    extra |= Assumed.POSSIBLE  # it may come only when the thread is done
            if self.may_be_one(made.timeline, timeline, st):
                extra |= Assumed.POSSIBLE
            if UNNUMBERED in tags | detail.tags and self.are_defaults(made.timeline, timeline):
                extra |= Assumed.POSSIBLE  # of two devices that may be one
            if (
                operation == AUTOGRAD
                and isinstance(made.timeline, Name)
                and self._is_from_elsewhere(made.timeline)
            ):
                extra |= Assumed.POSSIBLE  # the node that is handed the gradient may wait for that stream
            if HANDED_OUT in detail.tags:
                extra |= Assumed.POSSIBLE  # the caller may have waited in between
            repeated = (
                frozenset({AGAIN}) if detail.entry == self.entry and made in self.inherited else _NO_TAGS
            )
            if assumed & detail.assumed & Assumed.FORGOTTEN:
                extra |= Assumed.POSSIBLE
            if assumed & detail.assumed & Assumed.UNMODELLED:
                extra |= Assumed.BLIND
            finding = Finding(
                kind="pair",
                second=site,
                operation=operation,
                writes=writes,
                timeline=self.timeline_text(timeline),
                first=made,
                first_timeline=self.timeline_text(made.timeline),
                memory=self.named_since(target, detail.memory),
                assumed=assumed | detail.assumed | extra,
                tags=tags
                | repeated
                | {f"first:{t}" for t in detail.tags}
                | ({"host"} if timeline == HOST or "host function" in tags else set()),
                entry=self.entry,
                streams=(made.timeline, timeline),
                buffer=buffer,
            )
            if not writes and not made.writes:
                continue
            finding.ineffective = self._ineffective(st, made, timeline)
            if finding.ineffective is not None:
                if self._is_of_another(st, made, finding.ineffective, keys):
                    finding.assumed |= Assumed.POSSIBLE
            self.report(st, finding, way)
            if self._is_doubtful(finding):
                continue  # what it leans on may not hold: it stands for no other
            # one missing edge, one finding: go on as if the second timeline had waited
            joins = self.open_branches(st)
            st.order.obey([Edge(timeline, made.timeline)], guard & way)
            st.order.made.update(joins)

    def _is_doubtful(self, finding: Finding) -> bool:
        """Whether a finding leans on so much that it is only possible, however the file goes on."""
        return bool(finding.assumed & Assumed.POSSIBLE) or finding.strong > 1

    def _against_caller(
        self,
        st: State,
        target: Object,
        writes: bool,
        timeline: Name,
        site: Site,
        operation: str,
        guard: Guard,
        assumed: Assumed,
        tags: frozenset[str],
    ) -> None:
        """A parameter is used on a stream that is not ordered after what the caller did: see ``callers.settle``."""
        if tags & COPIES or not (isinstance(target, Tensor) or target.name.base() in self.tensorish):
            return
        for made, way in st.order.conflicts(ENTERED, None, True, timeline, st.path & guard):
            parameter = self.from_caller[target.name]
            memory = self.describe(target)
            detail = Detail("the caller", memory, Assumed.METHODS, frozenset(), self.entry)
            finding = Finding(
                kind="pair",
                second=site,
                operation=operation,
                writes=writes,
                timeline=self.timeline_text(timeline),
                first=Made(parameter, target.name, None, True, AMBIENT, detail),
                first_timeline=self.timeline_text(AMBIENT),
                memory=memory,
                assumed=assumed | Assumed.METHODS,
                tags=tags,
                entry=self.entry,
                streams=(CALLER, timeline),
                buffer=target.name,
            )
            if self.may_be_one(AMBIENT, timeline, st):
                finding.assumed |= Assumed.POSSIBLE
            self.report(st, finding, way)
            st.order.learn(timeline, made.timeline, guard=guard & way)
            break

    def is_of_leaf(self, part: Hashable | None) -> bool:
        """Whether a part of all gradients is that of a tensor which was made a leaf for one pass."""
        leaf = owner(part)
        return leaf is not None and leaf.base() in self.leaf_tensors

    def is_no_tensor(self, buffer: Name | None, assumed: Assumed) -> bool:
        """Whether a call of unknown kind is all that is said to touch an object, and no tensor has the methods it has.

        A handle, a manager, a state: whoever is handed one does something else with it than read its memory.
        """
        if buffer is None or not assumed & Assumed.UNMODELLED:
            return False
        base = buffer.base()
        return base in self.asked_otherwise and (base not in self.tensorish or base in self.presumed)

    def may_be_one(self, first: Carrier, second: Carrier, st: State) -> bool:
        """Whether two streams may be ordered by what they are: one parameter of two calls, CuPy's default flavour, two
        that were picked by keys which may be the same.

        A CuPy stream whose making is not seen is as likely as not null or blocking, and then ordered with the
        default stream (CS-01 to CS-08).
        """
        if not (isinstance(first, Name) and isinstance(second, Name)):
            return False
        if first.base() == second.base() and isinstance(first.root().site, str):
            return True
        if keyed.may_be_one(first, second, st):
            return True
        other = second if self.table.is_legacy(first) else first if self.table.is_legacy(second) else None
        return other is not None and other.base() in self.table.unknown

    def are_defaults(self, first: Carrier, second: Carrier) -> bool:
        """Whether both are default streams: of two devices, then."""
        return bool(self.table.is_legacy(first) and self.table.is_legacy(second))

    def _ineffective(self, st: State, made: Made, timeline: Carrier) -> Waited | None:
        """The wait that was meant for an access: of several the last one, a wait of the timeline's own before all."""
        found = [w for w in reversed(st.waits) if w.timeline in (timeline, HOST) and made.site in w.uncovered]
        return max(found, key=lambda w: (w.timeline == timeline, w.recorded is not None)) if found else None

    def _is_ordered_by_key(
        self, st: State, made: Made, timeline: Carrier, keys: frozenset[Hashable], path: Guard
    ) -> bool:
        """Whether the event of the element that is accessed was waited for, picked by the same key.

        An event of each element of a list: it covers the access to the element that was picked by its own key. Whoever
        has waited for the one of his key has waited for what touches his element.
        """
        detail: Detail = made.detail  # type: ignore[assignment]
        waits = [
            (self.carriers.bit(c), c[2])
            for c in self.carriers.known()
            if type(c) is tuple and c[:1] == _BY_KEY and c[1] in (timeline, HOST) and c[3] in keys
        ]
        ways = st.order.accesses(made.buffer).get(made, ()) if waits and detail.keys else ()
        known = 0 if timeline == HOST else self.carriers.bit(timeline)
        left = [way for way in ways if not way.carriers & known and not path.contradicts(way.guard)]
        covering = [(owner, self.carriers.bit(event)) for owner, event in self._events_of_keys(detail.keys)]
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
            for c in self.carriers.known()
            if isinstance(c, Name) and c.parent is not None and c.site in keys
        ]

    def _is_of_another(self, st: State, made: Made, waited: Waited, keys: frozenset[Hashable]) -> bool:
        """Whether what was waited for may be another event or stream than it seems.

        The caller may have given the stream that is current. Or each of many objects has an event of its own, recorded
        at one place, and which one was waited for is not known; or it was picked by a key of which nothing says that it
        is another one than the key of what is accessed.
        """
        if (
            made.timeline == AMBIENT
            and waited.awaited is not None
            and self._is_from_elsewhere(waited.awaited)
        ):
            return True
        event = waited.awaited
        if event is not None and event.parent is not None and keyed.is_key(event.site):
            owner, bits = (
                event.parent.base(),
                [way.carriers for way in st.order.accesses(made.buffer).get(made, ())],
            )
            recorded = [
                c.site
                for c in self.carriers.known()
                if isinstance(c, Name)
                and c is not event
                and c.parent is not None
                and c.parent.base() is owner
                and any(carriers & self.carriers.bit(c) for carriers in bits)
            ]
            if recorded and keyed.any_relation(keys or recorded, event.site, st) is None:
                return True
        if waited.recorded is None or not isinstance(made.buffer, Name) or not made.buffer.is_older():
            return False
        ways = st.order.accesses(made.buffer).get(made, ())
        for other in self.carriers.known():
            site = st.store.get((other, "@record site")) if isinstance(other, Name) else None
            if site is not None and waited.recorded in constants(site):
                bit = self.carriers.bit(other)
                if any(way.carriers & bit for way in ways):
                    return True
        return False

    @staticmethod
    def _is_from_elsewhere(stream: Name) -> bool:
        """Whether a stream is a parameter, or a part of one."""
        symbols = (AMBIENT, HOOK)
        return isinstance(stream.root().site, str) and stream not in symbols and stream.site != COMMUNICATION

    def is_spent(self) -> bool:
        """Whether an entry, or the file, has made as many accesses as it may: the rest of the entry is left out."""
        if self.effort <= EFFORT and self.total_effort <= FILE_EFFORT:
            return False
        self.cut_short[self.entry] = SPENT
        return True

    def is_exhausted(self) -> bool:
        """Whether calls are no longer followed, because an entry or the file has had its share."""
        return False

    def report(self, st: State, finding: Finding, way: Guard = ALWAYS) -> None:
        """Keep a finding; of two with the same places the one that assumes less."""
        if self.silent:
            self.unsaid.add(finding.buffer)
            return
        if self.is_exhausted() and finding.kind in ("pair", "reuse"):
            self.cut_short.setdefault(self.entry, EXHAUSTED)
            finding.assumed |= Assumed.POSSIBLE  # what was not followed any more may well order it
        if finding.first is not None:
            self.unordered_accesses.add((finding.entry, finding.first.site))
        old = self.findings.get(finding.key)
        if old is None or (finding.strong, finding.assumed.value) < (old.strong, old.assumed.value):
            self.findings[finding.key] = finding

    def violation(
        self,
        st: State,
        kind: str,
        site: Site,
        operation: str,
        notes: list[tuple[str, Site]] | None = None,
        assumed: Assumed = Assumed.NOTHING,
        memory: str = "",
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """An operation that is illegal where it stands."""
        self.report(
            st,
            Finding(
                kind=kind,
                second=site,
                operation=operation,
                writes=False,
                timeline=self._streams_text(st, "torch", None),
                notes=notes or [],
                assumed=assumed,
                entry=self.entry,
                memory=memory,
                tags=tags,
            ),
        )

    def forget_plain(self, st: State) -> None:
        """Between two calls nothing is kept of objects that nobody leads to, or that nothing shows to be tensors."""
        self.prune(st)
        for buffer in list(st.order.made):
            if isinstance(buffer, Name) and buffer != GRADIENTS and buffer.base() not in self.tensorish:
                if all(made.timeline == AMBIENT for made in st.order.made[buffer]):
                    del st.order.made[buffer]

    # -- captures: see capture.py and replays.py ------------------------------------------------------------------

    pooled = False

    def open_branches(self, st: State) -> dict[Hashable, Accesses]:
        """What stands for branches of a capture that have to be joined."""
        return {}

    def wants_overlaid(self, st: State, buffer: Name, site: Site, guard: Guard = ALWAYS) -> None:
        """An output is needed that a replay may have overwritten."""

    def fills_in_capture(self, st: State, target: Object, site: Site) -> None:
        """The host writes memory inside a capture."""

    def copies_filled(self, st: State, buffer: Name, site: Site) -> None:
        """A copy is captured of memory that the host may have written in the capture."""

    def capture_access(
        self, st: State, target: Object, stream: Name, site: Site, operation: str, writes: bool
    ) -> None:
        """An access inside a capture."""

    def reuses_captured(self, st: State, buffer: Name, library: str) -> None:
        """A block is taken that a captured graph may still write."""

    def capture_record(self, st: State, event: Name, stream: Name) -> None:
        """An event recorded inside a capture."""

    def capture_wait(self, st: State, source: Name, stream: Name, site: Site, *, is_stream: bool) -> None:
        """A wait inside a capture."""

    # -- words ---------------------------------------------------------------------------------------------------

    def timeline_text(self, timeline: Carrier) -> str:
        """How a user would name a timeline."""
        if timeline == HOST:
            return "the host"
        return self.describe(Stream(timeline)) if isinstance(timeline, Name) else str(timeline)

    def _streams_text(self, st: State, library: str, stream: Value | None) -> str:
        return " or ".join(dict.fromkeys(self.describe(s) for s, _ in self.streams(st, library, stream)))

    def explain(self, st: State, site: Site, text: str) -> None:
        """Keep a line for ``--explain-line``."""
        if self.explained is not None:
            self.explained.append((site, text))


@cache
def _ambient(library: str) -> Stream:
    return Stream(AMBIENT, library)


def _picked(target: Object) -> tuple[Name, Hashable | None, frozenset[Hashable]]:
    """The buffer of an object, the part of it, and the keys by which it was picked."""
    part = touched(target.part) if isinstance(target, Span) else None
    keys = frozenset([*parts.keys(part), *keyed.keys_in(target.name)])
    return target.name, parts.without_keys(part), keys


def _is_picked(site: Hashable) -> bool:
    """Whether an element is one that a key has picked of which it is not known which it is."""
    return type(site) is tuple and site[:1] == ("[]",) and isinstance(site[1], Name)


def _on_buffer(buffer: Name, made: Made) -> Made:
    """The same access, to the element that a loop reaches."""
    detail: Detail = made.detail  # type: ignore[assignment]
    return made._replace(buffer=buffer, detail=detail._replace(assumed=detail.assumed | Assumed.OLDER))


def _detail_rank(made: Made, entry: str) -> tuple[bool, bool, bool]:
    """Which of one stream's accesses a hazard is reported with.

    A write before a read, a pass's before all, and one of the same call before one of an earlier call.
    """
    detail: Detail = made.detail  # type: ignore[assignment]
    return made.writes, "backward" in detail.tags, detail.entry == entry


def _stands_for(named: Hashable, other: Hashable) -> bool:
    """Whether an access can be named in place of another: a hazard with it leans on no more."""
    assert isinstance(named, Detail)
    assert isinstance(other, Detail)
    if named.assumed & ~other.assumed:
        return False
    return bool(other.assumed & Assumed.POSSIBLE) or (named.tags == other.tags and named.entry == other.entry)
