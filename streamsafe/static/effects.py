"""What operations do to a state: accesses, edges, allocation and release, and the conflicts these show.

These are the verbs of a stream program. The tables say which call means which verbs; the interpreter says when.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsafe.order import edges
from streamsafe.order.edges import Carrier, Edge
from streamsafe.order.symbolic import ALWAYS, HOST, Carriers, Guard, Made, Order
from streamsafe.static.parts import disjoint
from streamsafe.static.state import State, Waited
from streamsafe.static.values import (
    NONE,
    Const,
    Container,
    Context,
    Event,
    Generator,
    Instance,
    Method,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    import libcst as cst

    from streamsafe.static.source import Slice

AMBIENT = Name("ambient")
"""The current stream at entry, taken to be the default stream."""
HOOK = Name("hook stream")
"""The stream on which autograd runs a hook: its node's (TA-06)."""
EACH = "each element"
"""An element of a container that is walked from end to end: stands for all of them."""
ANY = "[?]"
"""An element at an index that is not known: may be any of them."""
GRADIENTS = Name("gradients")
"""The gradients that backward passes leave in ``.grad``."""


COPIES = frozenset({"d2h", "d2h?", "h2d", "h2d?", "host function"})
"""Accesses of a stream to memory that the host may touch too."""


class Assumed(IntFlag):
    """What a finding leans on. The first two are ordinary, the others strong."""

    NOTHING = 0
    UNMODELLED = 1
    METHODS = 2
    AMBIENT = 4
    PLACE = 8
    OLDER = 16
    RELEASE = 32
    FORGOTTEN = 64
    ROUNDS = 128
    POSSIBLE = 256
    BLIND = 512
    """Both accesses are of calls whose code is not seen."""


_STRONG = (
    Assumed.AMBIENT,
    Assumed.PLACE,
    Assumed.OLDER,
    Assumed.RELEASE,
    Assumed.FORGOTTEN,
    Assumed.ROUNDS,
)


class Site:
    """A syntax node and the slice it stands in; there is one for each node."""

    __slots__ = ("node", "slice")

    def __init__(self, slice_: Slice, node: cst.CSTNode) -> None:
        self.slice = slice_
        self.node = node


class Detail(NamedTuple):
    """What is remembered of an access besides what the engine needs."""

    operation: str
    memory: str
    assumed: Assumed
    tags: frozenset[str]
    entry: str


@dataclass(slots=True)
class Finding:
    """A pair of accesses (or one illegal operation) found on some path."""

    kind: str
    second: Site
    operation: str
    writes: bool
    timeline: str
    first: Made | None = None
    first_timeline: str = ""
    memory: str = ""
    assumed: Assumed = Assumed.NOTHING
    tags: frozenset[str] = frozenset()
    notes: list[tuple[str, Site]] = field(default_factory=list)
    ineffective: Waited | None = None
    entry: str = ""
    streams: tuple[Hashable, Hashable] = ("", "")
    buffer: Name | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Findings with the same key are one."""
        first = self.first.site if self.first else None
        return (self.kind, self.second, first)

    @property
    def strong(self) -> int:
        """How many strong assumptions it leans on."""
        return sum(1 for flag in _STRONG if self.assumed & flag)


def constants(value: Value | None) -> list[Any]:
    """What is kept under a key of the interpreter's own, on every way here."""
    return [v.value for v in iterate(value) if isinstance(v, Const)] if value is not None else []


class StreamTable:
    """The topology of an analysis: which streams take part in the legacy barrier of which device."""

    def __init__(self) -> None:
        self.blocking: set[Name] = set()
        self.unknown: set[Name] = set()  # CuPy streams of which it is not seen whether they are blocking
        self.devices: dict[Name, int] = {}  # streams of other devices than the first

    def device_of(self, stream: Carrier) -> int:
        """The device of a stream; the first as long as none is named."""
        return self.devices.get(stream.base(), 0) if isinstance(stream, Name) else 0

    def ambient_of(self, device: int) -> Name:
        """The default stream of a device."""
        if device == 0:
            return AMBIENT
        name = Name(AMBIENT.site, (device,))
        self.devices[name] = device
        return name

    def is_legacy(self, stream: Carrier) -> bool:
        """The ambient stream is taken to be the default stream."""
        return isinstance(stream, Name) and stream.site == AMBIENT.site and stream.parent is None

    def is_blocking(self, stream: Carrier) -> bool:
        """Streams made blocking (CuPy's ``Stream()``)."""
        return stream in self.blocking

    def legacy_of(self, stream: Carrier) -> Carrier:
        """The default stream of the same device."""
        return self.ambient_of(self.device_of(stream))

    def blocking_of(self, stream: Carrier) -> Iterable[Carrier]:
        """The blocking streams of the same device."""
        device = self.device_of(stream)
        return tuple(s for s in self.blocking if self.device_of(s) == device)

    def streams_of(self, device: Carrier) -> Iterable[Carrier]:
        """Not asked: a device synchronize is :meth:`Effects.host_learns_everything`."""
        return ()


class Effects:
    """The verbs. The interpreter inherits them."""

    def __init__(self) -> None:
        self.carriers = Carriers()
        self.table = StreamTable()
        self.findings: dict[tuple[Hashable, ...], Finding] = {}
        self.candidates: list[Name] = []
        self.entry = ""
        self.silent = 0
        self.ending = False
        self.evidence: set[tuple[Hashable, ...]] = set()
        self.recorded_siblings: set[tuple[Name, Name]] = set()  # objects of which some part is recorded on a stream
        self.members: dict[Name, set[Name]] = {}  # streams and events that were put into a container
        self.made_here: set[Name] = set()
        self.libraries: dict[Name, str] = {}  # whose a tensor is
        self.sites_of: dict[Name, Site] = {}  # where a tensor is allocated
        self.results: set[Name] = set()  # tensors that an operation returns
        self.closed: set[Name] = set()  # scopes and objects that hold only what is seen put there
        self.holders: set[Name] = set()  # objects of whose parts something is known
        self.plain: set[Name] = set()  # objects that are known to be no tensors
        self.tensorish: set[Name] = set()  # objects of unknown kind that are used as tensors somewhere
        self.explained: list[tuple[Site, str]] | None = None

    # -- what the interpreter supplies ---------------------------------------------------------------------------

    def frames(self) -> Iterable[Name]:
        """The scopes that are alive."""
        raise AssertionError

    def describe(self, value: Value) -> str:
        """How a user would name an object."""
        raise AssertionError

    # -- streams -------------------------------------------------------------------------------------------------

    def order(self) -> Order:
        """An order in which nothing has happened."""
        return Order(self.carriers, disjoint)

    def current(self, st: State, library: str) -> Value:
        """The current stream of a library."""
        return st.current.get(library) or Stream(AMBIENT, library)

    def as_stream(self, value: Value, library: str) -> Value:
        """A stream for what is used as one; None keeps the current one."""
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
                found.append((value, guard))
            elif value == NONE:
                found.extend((s, guard & g) for s, g in self.streams(st, library) if not guard.contradicts(g))
        return found

    def exclusive(self, st: State, value: Value) -> Value:
        """One of several streams is one of them at a time: alternatives whose guards do not say so get some."""
        return value

    def spread(self, name: Name) -> list[Name]:
        """The carriers a name stands for: an element of a whole walk, or at an unknown index, for every element."""
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
                st.order.obey((e._replace(forget=e.forget and forgets) for e in edges.record(other, s.name, HOST, self.table)), guard)
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
            before = self._lacking(st, s.name, guard)
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
            )
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
                before = self._lacking(st, target.name, guard)
                for t in self.spread(target.name):
                    for s in self.spread(source.name):
                        st.order.obey(edges.launch(s, HOST, self.table), guard)
                        st.order.obey(edges.launch(t, HOST, self.table), guard)
                        st.order.obey([Edge(t, s)], guard)
                self._waited(st, target.name, site, None, {source.name}, before, guard)
                self.capture_wait(st, source.name, target.name, site, is_stream=True)
        self.explain(
            st,
            site,
            f"{self._streams_text(st, library, waiter)} waits for {self._streams_text(st, library, other)}",
        )

    def synchronize_stream(self, st: State, stream: Value | None, library: str, site: Site) -> None:
        """The host waits for a stream."""
        for s, guard in self.streams(st, library, stream):
            before = self._lacking(st, HOST, guard)
            for source in self.spread(s.name):
                st.order.obey(edges.synchronize_stream(HOST, source, self.table), guard)
            self._waited(st, HOST, site, None, {s.name}, before, guard)
        self.explain(st, site, f"the host waits for {self._streams_text(st, library, stream)}")

    def synchronize_event(self, st: State, event: Event, site: Site) -> None:
        """The host waits for an event."""
        sources, at = self.recorders(st, event)
        before = self._lacking(st, HOST, ALWAYS)
        for source in self.spread(event.name):
            st.order.obey(edges.synchronize_event(HOST, source))
        self._waited(st, HOST, site, at, sources, before, ALWAYS)
        self.explain(st, site, f"the host waits for {self.describe(event)}")

    def host_learns_everything(self, st: State, site: Site | None = None) -> None:
        """A device synchronize, or a call that is taken to order everything."""
        st.order.learn_everything(HOST)
        if site is not None:
            self.explain(st, site, "the host waits for every stream")

    def synchronize_device(self, st: State, device: int, site: Site) -> None:
        """The host waits for the streams of one device of several (CS-25, TG-06)."""
        before = self._lacking(st, HOST, ALWAYS)
        timelines = {made.timeline for made, _ in st.order.iterate() if made.timeline != HOST}
        for timeline in sorted(timelines, key=str):
            if self.table.device_of(timeline) == device:
                st.order.learn(HOST, timeline)
        self._waited(st, HOST, site, None, set(), before, ALWAYS)
        self.explain(st, site, f"the host waits for every stream of device {device}")

    def _lacking(self, st: State, learner: Carrier, guard: Guard) -> dict[Made, None]:
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
    ) -> None:
        """Remember a wait that leaves something uncovered which it may have been meant for (SS103)."""
        if not before and learner == HOST:
            return
        after = self._lacking(st, learner, guard)
        useless = len(after) == len(before)
        uncovered = {made.site for made in after if made.timeline in sources or useless}
        # the wait turned round: the stream that did the work waits for the one that will use it
        turned = {made.site for made, _ in st.order.iterate() if made.timeline == learner} if useless else set()
        if uncovered:
            st.waits = frozenset(w for w in st.waits if (w.timeline, w.site) != (learner, site)) | {
                Waited(learner, site, recorded, frozenset(uncovered), useless)
            }
        if turned and learner != HOST:
            for source in sources:
                st.waits |= {Waited(source, site, recorded, frozenset(turned))}

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
        if len(streams) > 1 and any(
            not first.contradicts(second) for n, (_, first) in enumerate(streams) for _, second in streams[:n]
        ):  # which of them it is hangs on something that is not followed: what else hangs on it is not known either
            optional = any(self.table.is_legacy(s.name) for s, _ in streams)
            assumed |= Assumed.POSSIBLE if optional else Assumed.FORGOTTEN
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
        buffer, part = target.name, target.part if isinstance(target, Tensor) else None
        if isinstance(target, Tensor):
            self.tensorish.add(buffer.base())
        if buffer.parent is not None:
            self.holds(buffer)
        if buffer.is_older():
            assumed |= Assumed.OLDER
        if stream.name == HOOK:
            tags |= {"hook"}
        if isinstance(target, Tensor) and target.unexchanged:
            tags |= {"unexchanged"}
        st.order.obey(edges.launch(stream.name, HOST, self.table), guard)
        self._check(st, buffer, part, writes, stream.name, site, operation, guard, assumed, tags, target)
        memory = self.describe(target)
        detail = Detail(operation, memory, assumed, tags, self.entry)
        # a replay repeats every access of a capture, also those that a later one stands for
        covers = part is None and not buffer.is_older() and not isinstance(target, Opaque) and st.capture is None
        st.order.add(Made(site, buffer, part, writes, stream.name, detail), guard, covers=covers)
        self.capture_access(st, target, stream.name, site, operation, writes)
        self.explain(
            st, site, f"{operation} {'writes' if writes else 'reads'} {memory} on {self.describe(stream)}"
        )

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
        """The host touches memory."""
        for target, guard in self.tensors(st, value):
            part = target.part if isinstance(target, Tensor) else None
            self._check(
                st, target.name, part, writes, HOST, site, operation, guard, assumed, tags, target
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
    ) -> None:
        path = st.path & guard
        conflicts = st.order.conflicts(buffer, part, writes, timeline, path)
        if not conflicts:
            return
        place = self.place(st, target)
        by_stream: dict[Carrier, tuple[Made, Guard]] = {}
        for made, way in conflicts:
            # the host meets only what touches host memory: copies, and functions that streams call
            if timeline == HOST and (place == "device" or not made.detail.tags & COPIES):  # type: ignore[attr-defined]
                continue
            best = by_stream.get(made.timeline)
            if best is None or (made.writes and not best[0].writes):
                by_stream[made.timeline] = (made, way)
        for made, way in by_stream.values():
            detail: Detail = made.detail  # type: ignore[assignment]
            extra = Assumed.NOTHING
            if detail.entry != self.entry:
                extra |= Assumed.METHODS
            if self.may_be_one(made.timeline, timeline):
                extra |= Assumed.POSSIBLE
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
                memory=detail.memory or self.describe(target),
                assumed=assumed | detail.assumed | extra,
                tags=tags | {f"first:{t}" for t in detail.tags} | ({"host"} if timeline == HOST else set()),
                entry=self.entry,
                streams=(made.timeline, timeline),
                buffer=buffer,
            )
            if not writes and not made.writes:
                continue
            finding.ineffective = self._ineffective(st, made, timeline)
            self.report(st, finding, way)
            # one missing edge, one finding: go on as if the second timeline had waited
            st.order.obey([Edge(timeline, made.timeline)], guard & way)

    def may_be_one(self, first: Carrier, second: Carrier) -> bool:
        """Whether two streams may be ordered by what they are: one parameter of two calls, or CuPy's default flavour.

        A CuPy stream whose making is not seen is as likely as not null or blocking, and then ordered with the
        default stream (CS-01 to CS-08).
        """
        if not (isinstance(first, Name) and isinstance(second, Name)):
            return False
        if first.base() == second.base() and isinstance(first.root().site, str):
            return True
        other = second if self.table.is_legacy(first) else first if self.table.is_legacy(second) else None
        return other is not None and other.base() in self.table.unknown

    def _ineffective(self, st: State, made: Made, timeline: Carrier) -> Waited | None:
        found = [
            w
            for w in st.waits
            if w.timeline in (timeline, HOST) and made.site in w.uncovered
        ]
        return max(found, key=lambda w: (w.timeline == timeline, str(w.recorded is not None))) if found else None

    def report(self, st: State, finding: Finding, way: Guard = ALWAYS) -> None:
        """Keep a finding; of two with the same places the one that assumes less."""
        if self.silent:
            return
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

    # -- memory --------------------------------------------------------------------------------------------------

    def tensors(self, st: State, value: Value, depth: int = 0) -> Iterator[tuple[Object, Guard]]:
        """The tensors a value stands for or holds, each with the guard it needs."""
        for inner, guard in alternatives(value, st.path):
            if isinstance(inner, Opaque) and self.is_plain(inner.name):
                continue
            if isinstance(inner, Tensor) and depth < 4 and (inner.name, "data") in st.store:
                # its memory was replaced
                yield from ((t, guard & g) for t, g in self.tensors(st, st.store[(inner.name, "data")], depth + 1))
                continue
            if isinstance(inner, (Tensor, Opaque)):
                yield inner, guard
                if isinstance(inner, Opaque) and depth == 0:
                    yield from ((t, guard) for t in self._held(st, inner))
            elif isinstance(inner, Tuple) and depth < 4:
                for item in inner.items:
                    yield from ((t, guard & g) for t, g in self.tensors(st, item, depth + 1))
            elif isinstance(inner, (Container, Instance)) and depth < 3:
                for key, held in list(st.store.of(inner.name).items()):
                    if not (isinstance(key, str) and key.startswith("@")):
                        yield from ((t, guard & g) for t, g in self.tensors(st, held, depth + 1))

    def is_plain(self, name: Name) -> bool:
        """Whether an object is known to be no tensor: an index, a key, a parameter that is annotated so."""
        site = name.site
        if isinstance(site, tuple) and len(site) == 2 and site[1] in ("index", "key"):
            return True
        return name.base() in self.plain

    def _held(self, st: State, opaque: Opaque) -> Iterator[Object]:
        """What is known to be reached from an object that is not seen made."""
        seen = set()
        name = opaque.name
        tables = [st.store.of(name)]
        deep = name.base() in self.holders
        if deep:
            tables += [t for o, t in st.store.objects.items() if o.parent is not None and o != name and name in o.chain()]
        for table in tables:
            for key, held in list(table.items()):
                if isinstance(key, str) and key.startswith("@"):
                    continue
                for inner in iterate(held):
                    if isinstance(inner, (Tensor, Opaque)) and inner.name not in seen:
                        seen.add(inner.name)
                        yield inner
        for buffer in list(st.order.made) if deep else ():
            if isinstance(buffer, Name) and buffer.parent is not None and buffer != name and buffer not in seen:
                if name in buffer.chain() and self.belongs(st, buffer):
                    yield Opaque(buffer)

    def holds(self, name: Name) -> None:
        """Something is known of a part of an object: whoever has the whole has it too."""
        parent = name.parent
        while parent is not None:
            base = parent.base()
            if base in self.holders:
                return
            self.holders.add(base)
            parent = parent.parent

    def belongs(self, st: State, buffer: Name) -> bool:
        """Whether an attribute or element still is what its parent holds: nothing else was assigned to it."""
        name = buffer
        while name.parent is not None:
            held = st.store.get((name.parent, name.site))
            if held is not None and not any(
                isinstance(v, Object) and v.name == name for v in iterate(held)
            ):
                return False
            name = name.parent
        return True

    def place(self, st: State, target: Value) -> str:
        """``device``, ``pinned``, ``pageable`` or nothing."""
        found = st.store.get((target.name, "@place")) if isinstance(target, Object) else None
        if isinstance(found, Const):
            return str(found.value)
        return "host" if isinstance(target, Tensor) and target.numpy else ""

    def set_place(self, st: State, target: Value, place: str) -> None:
        """Where a buffer lies is known from now on."""
        if isinstance(target, Object):
            st.store[(target.name, "@place")] = Const(place)

    def allocate(self, st: State, buffer: Name, library: str, site: Site, stream: Value | None = None) -> None:
        """A block is taken from the pool of the current stream (TL-01, CS-20): its next life begins."""
        st.store[(buffer, "@allocated")] = union(self.streams(st, library, stream))
        base = buffer.base()
        self.libraries[base] = library
        self.sites_of[base] = site
        self.candidates.append(buffer)
        self.reuses_captured(st, buffer, library)
        for s, guard in self.streams(st, library, stream):
            pool = ("pool", s.name)
            if pool not in st.order.made:
                continue
            st.order.obey(edges.launch(s.name, HOST, self.table), guard)
            for made, way in st.order.conflicts(pool, None, True, s.name, st.path & guard):
                detail: Detail = made.detail  # type: ignore[assignment]
                extra = Assumed.METHODS if detail.entry != self.entry else Assumed.NOTHING
                released = made.part
                self.report(
                    st,
                    Finding(
                        kind="reuse",
                        second=made.site,  # type: ignore[arg-type]
                        operation=detail.operation,
                        writes=made.writes,
                        timeline=self.timeline_text(made.timeline),
                        first=made,
                        first_timeline=self.timeline_text(s.name),
                        memory=detail.memory,
                        assumed=detail.assumed
                        | extra
                        | (Assumed.BLIND if detail.assumed & Assumed.UNMODELLED else Assumed.NOTHING),
                        tags=detail.tags | {f"library:{library}"},
                        notes=[
                            *(released.notes if isinstance(released, Release) else ()),
                            ("the next allocation on that stream may take its memory", site),
                        ],
                        entry=self.entry,
                        streams=(made.timeline, s.name),
                        buffer=released.buffer if isinstance(released, Release) else None,
                    ),
                    way,
                )
                st.order.obey([Edge(s.name, made.timeline)], guard & way)

    def record_stream(self, st: State, value: Value, stream: Value, library: str, site: Site) -> None:
        """``tensor.record_stream(stream)``: a later free waits for what that stream has by then (TL-03)."""
        for target, _ in self.tensors(st, value):
            key = (target.name, "@recorded on")
            names = [s for s, _ in self.streams(st, library, stream)]
            before = [s for r in iterate(st.store.get(key, NONE)) if isinstance(r, Tuple) for s in r.items]
            st.store[key] = Tuple(tuple(dict.fromkeys([*before, *names])))
            for s in names:
                self.evidence.add(("recorded", self.entry.partition(".")[0], s.name))
                if target.name.parent is not None:
                    self.recorded_siblings.add((target.name.parent.base(), s.name))
        self.explain(st, site, f"record_stream({self._streams_text(st, library, stream)})")

    def release_unreachable(self, st: State, site: Site, keep: Iterable[Value] = ()) -> None:
        """Blocks whose last name is gone go back to their pool."""
        if not self.candidates:
            return
        candidates, self.candidates = self.candidates, []
        concerned = []
        for name in dict.fromkeys(candidates):
            allocated = st.store.get((name, "@allocated"))
            if allocated is None or name not in st.order.made:
                continue
            own = {s.name for s in iterate(allocated) if isinstance(s, Stream)}
            if any(made.timeline not in own for made in st.order.made[name]):
                concerned.append(name)
        if not concerned:
            return
        alive = self.reachable(st, keep)
        for name in concerned:
            if name not in alive:
                self.release(st, name, site)

    def release(self, st: State, buffer: Name, site: Site) -> None:
        """A block goes back to the pool of the stream it was allocated on; uses that were recorded are waited for."""
        allocated = st.store.get((buffer, "@allocated"))
        if allocated is None:
            return
        if st.capture is None and (buffer, "@captured") in st.store:
            st.order.drop(buffer)  # the graph's own pool keeps it
            return
        recorded = st.store.get((buffer, "@recorded on"))
        covered = {
            s.name for r in iterate(recorded or NONE) if isinstance(r, Tuple) for s in r.items if isinstance(s, Stream)
        }
        library = self.libraries.get(buffer.base())
        if library == "cupy":
            covered = set()
        made_at = self.sites_of.get(buffer.base())
        for stream in iterate(allocated):
            if not isinstance(stream, Stream):
                continue
            notes: list[tuple[str, Site]] = []
            if made_at is not None:
                notes.append((f"allocated on {self.describe(stream)}", made_at))
            notes.append(("released here, while that use may still run", site))
            release = Release(tuple(notes), buffer)
            table = dict(st.order.accesses(buffer))
            for made in table:
                if made.timeline == stream.name or made.timeline in covered:
                    continue
                if "kept alive" in made.detail.tags:  # type: ignore[attr-defined]
                    continue
                st.order.made.setdefault(("pool", stream.name), {})
                pooled = made._replace(buffer=("pool", stream.name), part=release, writes=True)
                merged = dict(st.order.made[("pool", stream.name)])
                merged[pooled] = table[made]
                st.order.made[("pool", stream.name)] = merged
            if ("pool", stream.name) in st.order.made and not st.order.made[("pool", stream.name)]:
                del st.order.made[("pool", stream.name)]
        st.order.drop(buffer)

    def prune(self, st: State, keep: Iterable[Value] = ()) -> None:
        """Forget objects that nothing leads to any more."""
        alive = self.reachable(st, keep)
        for owner in list(st.store.objects):
            if owner not in alive and self.is_own(owner):
                st.store.drop(owner)
        for order in (st.order, st.eager):
            for buffer in list(order.made) if order is not None else ():
                gone = isinstance(buffer, Name) and buffer not in alive and self.is_own(buffer)
                timed = isinstance(buffer, tuple) and buffer[0] == "timing" and buffer[1] not in alive
                if order is not None and (gone or timed):
                    del order.made[buffer]

    def forget_plain(self, st: State) -> None:
        """Between two calls nothing is kept of objects that nobody leads to, or that nothing shows to be tensors."""
        self.prune(st)
        for buffer in list(st.order.made):
            if isinstance(buffer, Name) and buffer != GRADIENTS and buffer.base() not in self.tensorish:
                if all(made.timeline == AMBIENT for made in st.order.made[buffer]):
                    del st.order.made[buffer]

    def is_own(self, name: Name) -> bool:
        """Whether an object is made in what is analysed."""
        root = name.root().base()
        return root in self.made_here or (root in self.closed and not isinstance(root.site, str))

    def reachable(self, st: State, keep: Iterable[Value] = ()) -> set[Name]:
        """Every object that some live name leads to."""
        held: dict[Name, list[Value]] = {}
        external: set[Name] = set()
        children: dict[Name, list[Name]] = {}
        for owner, table in st.store.objects.items():
            held[owner] = [v for k, v in table.items() if not (isinstance(k, str) and k.startswith("@"))]
            root = owner.root().base()
            if root not in self.made_here and root not in self.closed:
                external.add(owner)  # somebody who is not seen holds it
            if owner.parent is not None:
                children.setdefault(owner.parent, []).append(owner)
        seen: set[Name] = set()
        stack: list[Name] = [*self.frames(), *external]
        values: list[Value] = list(keep)
        while stack or values:
            while values:
                value = values.pop()
                if isinstance(value, Union):
                    values.extend(v for v, _ in value.alternatives)
                elif isinstance(value, Object):
                    stack.append(value.name)
                elif isinstance(value, Tuple):
                    values.extend(value.items)
                elif isinstance(value, Method):
                    values.append(value.receiver)
                elif isinstance(value, Context):
                    values.extend(value.payload)
                elif isinstance(value, (Partial, Generator)):
                    values.extend((value.function, *value.args, *(v for _, v in value.kwargs)))
                else:
                    frame = getattr(value, "frame", None)
                    if frame is not None:
                        stack.append(frame)
                    receiver = getattr(value, "receiver", None)
                    if receiver is not None:
                        values.append(receiver)
            if stack:
                name = stack.pop()
                if name in seen:
                    continue
                seen.add(name)
                values.extend(held.get(name, ()))
                stack.extend(children.get(name, ()))
                if name.parent is not None:
                    stack.append(name.parent)
        return seen

    # -- captures: see capture.py ---------------------------------------------------------------------------------

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


class Release(NamedTuple):
    """Where a block was allocated and released: the part of a pooled access."""

    notes: tuple[tuple[str, Site], ...]
    buffer: Name
