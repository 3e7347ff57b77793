"""One path as a stream program: its streams, what each knows of the others, and who touched which memory.

What a record, a wait, a launch and the default stream's barrier teach is :mod:`streamsafe.order.clocks`' to say, as
at run time. What a path adds: streams of which it is not known whether they are two, parts of blocks of which it is not
known whether they meet, and the caller, whose work nobody sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from streamsafe.check.overlap import Part
from streamsafe.check.trail import Trail
from streamsafe.check.wording import operation_name
from streamsafe.order import clocks
from streamsafe.order.clocks import Clock, Recorded, Snapshot
from streamsafe.order.explain import Explainer
from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.memory import Found, Record, Region, Use

Site: TypeAlias = Any
"""A file and a node of its tree."""

Origin = Literal["host", "new", "ambient", "null", "sym", "elem", "comm", "hook", "caller"]
"""How a path came to a stream: made here, current at the call, the default stream, an unknown, an element of unknown
index, the stream of collectives, that of a node of the backward pass, the caller's work."""

KINDS: dict[str, clocks.Kind] = {"host": "host", "null": "legacy"}


class Timeline(clocks.Timeline):
    """A stream, or the host.

    Attributes:
        origin: how the path came to it. site: where it was made. born: when.
        lib: whose stream it is. blocking: whether it and the default stream wait for each other.
        group, place: of an element: of which list, and which round modulo what; of what a memoized function has made:
            by which one, and for what.
        members: the streams of that list, of which it is one.
        external: it was made elsewhere: it may be a blocking one.
    """

    __slots__ = ("blocking", "born", "external", "group", "lib", "members", "origin", "place", "site")

    def __init__(
        self,
        name: str,
        origin: Origin,
        site: Site = None,
        lib: str = "torch",
        blocking: bool = False,
        group: object = None,
    ) -> None:
        kind = KINDS.get(origin, "blocking" if blocking else "non-blocking")
        super().__init__(None, None, kind, name)
        self.origin: Origin = origin
        self.site = site
        self.lib = lib
        self.blocking = blocking
        self.group = group
        self.place: Any = None
        self.members: frozenset[Timeline] = frozenset()
        self.born = 0
        self.external = False

    @property
    def uid(self) -> int:
        """Its number: no two streams of a process have the same."""
        return self.id


def distinct(a: Timeline, b: Timeline) -> Literal["yes", "likely", "unknown", "no"]:
    """Whether two streams are two. *Likely* is an assumption; *unknown* is resolved in the program's favour."""
    if a is b:
        return "no"
    origins = {a.origin, b.origin}
    if origins == {"comm"}:
        return "likely"  # of two process groups, as far as can be seen
    if (
        origins == {"new"} and a.group is not None and a.group == b.group
    ):  # made for two keys, which may be one
        return "yes" if any(map(_apart, a.place, b.place)) else "unknown"
    if "ambient" in origins and (a.blocking or b.blocking):
        return "unknown"  # the caller's stream is most often the default one, which it is ordered with
    if origins <= {"new", "ambient", "null", "comm"}:
        return "yes" if not origins <= {"ambient", "null"} else "no"
    if "elem" in origins:
        return _distinct_element(a, b) if a.origin == "elem" else _distinct_element(b, a)
    if "hook" in origins:
        return "likely" if origins != {"hook"} else "no"
    if "sym" in origins and origins & {"ambient", "null", "comm"}:
        return "likely"
    if origins == {"sym"} and "." in a.name and "." in b.name and a.name != b.name:
        return "likely" if a.name.rpartition(".")[0] == b.name.rpartition(".")[0] else "unknown"
    return "unknown"


def _apart(one: Any, other: Any) -> bool:
    """Whether two keys are two: constants, or elements of one list with two known indices."""
    if one[0] == other[0] == "c":
        return bool(one != other)
    return bool(one[0] == other[0] == "of" and one[1] == other[1] and one[2] != other[2])


def _distinct_element(element: Timeline, other: Timeline) -> Literal["yes", "likely", "unknown", "no"]:
    if other.origin in ("ambient", "null", "comm"):
        return "yes"
    if other.origin == "elem":
        one, two = element.place, other.place
        if element.group == other.group and one and two and one[1] == two[1] and one[0] != two[0]:
            return "likely"  # there are several streams that take turns
        return "unknown" if element.group == other.group else "yes"
    return "unknown" if other.origin == "sym" or other in element.members else "yes"


class Reach(NamedTuple):
    """All that is done when something is done: of each stream, up to where.

    Attributes:
        clock: by the number of a stream, its epoch. Never changed in place.
        source, site: the stream whose present it is, and where an event was recorded for it; None where there is none.
        sequence, idle_since: when that was, and when the stream had last done something.
    """

    clock: Clock
    source: Timeline | None = None
    site: Site = None
    sequence: int = 0
    idle_since: int = 0

    def get(self, timeline: Timeline | None, otherwise: int = 0) -> int:
        """How far it covers a stream."""
        return otherwise if timeline is None else self.clock.get(timeline.id, otherwise)

    def covers(self, access: Access) -> bool:
        """Whether an access is done."""
        return self.clock.get(access.timeline.id, 0) >= access.at


NOTHING = Reach({})


def all_of(reaches: Iterable[Reach]) -> Reach:
    """What is done when several things are."""
    clock: Clock = {}
    for reach in reaches:
        for timeline, count in reach.clock.items():
            clock[timeline] = max(count, clock.get(timeline, 0))
    return Reach(clock)


class Waited(NamedTuple):
    """A wait that stands in the program: who, for what, where, what it covered, and when it was."""

    who: Timeline
    of: Timeline | None
    site: Site
    reach: Reach
    at: int


@dataclass(slots=True)
class Access:
    """An operation touches a part of a block.

    Attributes:
        at: the epoch of the timeline.
        op: what the program called. kind: ``d2h``, ``h2d``, ``backward``, ``collective``, ``initial`` or nothing.
        notes: what has to be assumed for it, and other marks of the models.
        call: when it was, in the time of the run. sequence: in the order of operations; 0 where that is not known.
        library: whose operation it is.
        given: of what a host function does: the stream that calls it, and where that was given it.
    """

    timeline: Timeline
    at: int
    write: bool
    part: Part
    site: Site
    op: str
    kind: str = ""
    notes: frozenset[Any] = frozenset()
    call: int = 0
    library: str = "torch"
    sequence: int = 0
    given: tuple[Timeline, Site] | None = None


def order_code(second: Access) -> str:
    """The code of two accesses of two streams that nothing orders, by the second one."""
    return "SS102" if second.write else "SS101"


class Launch(NamedTuple):
    """Work that a stream was given.

    Attributes:
        seq: when, in the order of operations. at: the epoch of its stream.
        op: what the program called. memory: what the program calls what it works on.
        assumed: what has to be assumed for it to be work of the device.
    """

    seq: int
    timeline: Timeline
    at: int
    site: Site
    op: str
    memory: str = ""
    assumed: tuple[str, ...] = ()


class Block:
    """A piece of memory.

    Attributes:
        place: ``cuda``, ``pinned``, ``pageable``, ``host``, ``pool`` (of graphs) or ``unknown``.
        text: what the program calls it. lib: whose allocator. alloc, home: on which stream, and where.
        fresh: whether it was allocated by code that was run. kept: whether something unseen holds it.
        accesses: the last ones.
        likes: the blocks that stand for others like it.
        recorded: the streams that it is recorded on. own: where it was on its own one, which says nothing.
        freed: where it was let go of. lost: where, of memory that a graph uses.
        given: the number of the unknown that the caller has given; 0 for none. owner: the unknown that it is a part of.
        shared: when another library was given it without an exchange of streams; 0 for never.
        writer, epoch: the graph whose replay has written it, and how often one has.
        pinned_by: the call and the statement that have copied it to pinned memory.
    """

    __slots__ = (
        "accesses",
        "alloc",
        "device",
        "epoch",
        "freed",
        "fresh",
        "given",
        "home",
        "kept",
        "lib",
        "likes",
        "lost",
        "notes",
        "own",
        "owner",
        "pinned_by",
        "place",
        "recorded",
        "shared",
        "text",
        "uid",
        "writer",
    )
    count = 0

    def __init__(
        self,
        place: str,
        text: str = "",
        alloc: Timeline | None = None,
        home: Site = None,
        lib: str = "torch",
        fresh: bool = False,
    ) -> None:
        Block.count += 1
        self.uid = Block.count
        self.place, self.text, self.alloc, self.home, self.lib, self.fresh = (
            place,
            text,
            alloc,
            home,
            lib,
            fresh,
        )
        self.accesses: list[Access] = []
        self.likes: list[Block] = []
        self.recorded: set[Timeline] = set()
        self.notes: set[str] = set()
        self.freed: Site = None
        self.own: Site = None
        self.lost: Any = None
        self.writer: Any = None
        self.owner: Any = None
        self.device: Any = None
        self.pinned_by: Any = None
        self.given = self.shared = self.epoch = 0
        self.kept = False

    @property
    def seen(self) -> bool:
        """Whether it was allocated by code that was run."""
        return (self.fresh or self.home is not None) and "result" not in self.notes


@dataclass(slots=True)
class Hazard:
    """What a path shows.

    Attributes:
        code: of the rule. first, second: the two accesses; for reused memory the allocation and the use.
        assumptions: tags of :mod:`streamsafe.check.assumptions`.
        notes: further places, by the models' names for them.
        wait: where an ineffective wait stands. missed: what the order engine says of it.
        seq: when memory was handed out again. never: where the stream was made that must not wait anywhere.
        trail: what the path has done. further: how many more pairs the same missing edge leaves unordered.
    """

    code: str
    first: Access | None
    second: Access
    block: Block | None
    assumptions: tuple[str, ...] = ()
    notes: list[tuple[str, Site]] = field(default_factory=list)
    wait: Site = None
    missed: Conflict | None = None
    seq: int = 0
    never: Site = None
    further: int = 0
    trail: Trail | None = None


_COPIES = ("d2h", "h2d")
_CALLERS = frozenset(("ambient", "null", "host"))
"""Origins of the timelines that a path's caller provides: work on them alone is ordered."""
KEPT = 24
"""How many accesses of one block are remembered."""


def as_frames(site: object) -> tuple[Frame, ...]:
    """A place for the order engine's notes."""
    if not isinstance(site, tuple) or getattr(site[1], "lineno", None) is None:
        return ()
    module, node = site
    return (
        Frame(module.path, node.lineno, "", node.col_offset + 1, node.end_lineno, node.end_col_offset + 1),
    )


class Program:
    """Who knows of what on one path.

    Args:
        report: called with a block and two accesses of it that nothing orders.
        now: the time of the run.

    Attributes:
        host: the one thread. caller: what was given to the current stream before an entry was called.
        called, began: how many entries were, and when the last one was.
        ticks: the timelines that have done something, with the epoch of the last operation.
        waits: the waits that stand in the program.
        idle: the number of the last wait for a stream that had done nothing since the one before.
        copies: how many copies the host need not have waited for. made: how many streams were made.
        given: while a host function is run: the stream that calls it, and where that was given it.
    """

    def __init__(
        self, report: Callable[[Block, Access, Access], None], now: Callable[[], int] = lambda: 0
    ) -> None:
        self.host = Timeline("the host", "host")
        self.caller = Timeline("the caller's work", "caller")
        self.called = 0
        self.began = 0
        self.ticks: dict[Timeline, int] = {}
        self.report = report
        self.now = now
        self.trail = Trail()
        self.waits: list[Waited] = []
        self._joined: dict[tuple[Timeline, Timeline], tuple[int, set[Timeline]]] = {}
        self.given: tuple[Timeline, Site] | None = None
        self.idle = -1
        self.copies = self.made = 0
        self._sequence = 0
        self._explain = Explainer(as_frames)

    @property
    def concurrent(self) -> bool:
        """Whether anything was done, or may be next, that the host or another stream need not have waited for."""
        return bool(self.copies or self.made) or any(t.origin not in _CALLERS for t in self.ticks)

    @property
    def busy(self) -> bool:
        """Whether several timelines have done something, or one that is not the caller's, or a copy is under way."""
        return bool(self.copies) or len(self.ticks) > 1 or any(t.origin not in _CALLERS for t in self.ticks)

    def pending(self) -> bool:
        """Whether something was done for which neither the host nor a stream of the caller has waited."""
        return any(
            t.origin not in _CALLERS
            and not self.host.knows(t, epoch)
            and not any(each.origin == "ambient" and each.knows(t, epoch) for each in self.ticks)
            for t, epoch in self.ticks.items()
        )

    # -- what is known -----------------------------------------------------------------------------------------------

    def known(self, timeline: Timeline) -> Reach:
        """What comes before whatever a timeline does next."""
        return Reach(timeline.clock)

    def learn(self, timeline: Timeline, reach: Reach) -> None:
        """A timeline comes after all that something covers."""
        timeline.learn(Snapshot(0, 0, reach.clock))

    def forget(self, timeline: Timeline, reach: Reach) -> None:
        """A timeline knows nothing but this: the host goes on in another thread."""
        timeline.clock = reach.clock
        timeline.count += 1
        timeline.shown = False

    def snapshot(self, stream: Timeline, site: Site = None) -> Reach:
        """What is done when all that was given to a stream is done; ``site``: an event is recorded for that.

        The legacy default stream is done only when the blocking streams are (TS-28, CS-09), and those that may be.
        """
        if stream.kind == "legacy":
            self._barrier(stream)
            stream.launch(self.host)
        _, count, clock = stream.snapshot()
        done = dict(clock)
        if stream.origin in ("ambient", "null"):  # a caller's current stream is most often the default one
            done |= {each.id: tick for each, tick in self.ticks.items() if each.external}
        if stream in self.ticks:
            done[stream.id] = count
        made_here = stream.origin in ("new", "comm", "host") and stream.born > self.began
        if self.called and not made_here:
            done[self.caller.id] = self.called
        return Reach(done, stream, site, self._sequence, stream.last)

    def record(self, event: clocks.Event, stream: Timeline, site: Site, timing: bool) -> Reach:
        """An event is recorded: what is done when it is.

        Args:
            timing: whether it measures a time, which is work of the stream, but not such as waits are meant for.
        """
        if timing:
            last = stream.last
            self.enqueue(stream)
            stream.last = last
        reach = self.snapshot(stream, site)
        self._sequence += 1
        event.stamp(stream, self._sequence, site)
        return reach

    def told_apart(self, a: Timeline, b: Timeline) -> bool:
        """The program makes one of two streams wait for the other: it takes them for two."""
        return any(wait.of is not None and {wait.who, wait.of} == {a, b} for wait in self.waits)

    def covers(self, timeline: Timeline, access: Access) -> bool:
        """Whether an access comes before whatever a timeline does next."""
        return timeline.knows(access.timeline, access.at)

    # -- what happens ------------------------------------------------------------------------------------------------

    def wait(
        self,
        who: Timeline,
        reach: Reach,
        site: Site = None,
        of: Timeline | None = None,
        event: clocks.Event | None = None,
    ) -> None:
        """A stream or the host waits for what something covers, which is work of ``of``.

        Args:
            event: what it waits for, where that is an event.
        """
        if of is not None and max(who.clock.get(of.id, 0), self.host.clock.get(of.id, 0)) >= reach.get(of):
            self.idle = len(self.waits)
        self.learn(who, reach)
        if of is not None:
            self._members_waited_for(who, of)
        if site is None:
            return
        self.waits.append(Waited(who, of, site, reach, self.now()))
        if of is not None:
            self.trail.add(self.now(), "waits", "{} waits for {}", site, who, (who, of))
            whom = of.name if reach.site is None else "an event"
            record = Recorded(of, reach.get(of), reach.sequence, reach.site, reach.idle_since)
            replaced = event.replaced if event is not None else ()
            self._log(who, whom, event, record, replaced, site)

    def device_wait(self, site: Site) -> None:
        """The host waits for all streams of the device (TS-21)."""
        self.all_known(self.host)
        self.waits.append(Waited(self.host, None, site, self.known(self.host), self.now()))

    def wait_for_nothing(self, who: Timeline, event: clocks.Event, site: Site) -> None:
        """A stream or the host waits for an event that is not recorded yet, which orders nothing (TS-12, TS-17)."""
        self._log(who, "an event", event, None, (), site)

    def _log(
        self,
        who: Timeline,
        whom: str,
        event: clocks.Event | None,
        record: Recorded | None,
        replaced: tuple[Recorded, ...],
        site: Site,
    ) -> None:
        """Remember a wait, to explain with it what it does not cover."""
        self._sequence += 1
        who.log.append((whom, event, record, replaced, None, self._sequence, site))

    def _members_waited_for(self, who: Timeline, of: Timeline) -> None:
        """An element that is one of some streams is waited for where each of them is, after its last operation."""
        for each, epoch in list(self.ticks.items()):
            if of not in each.members or each is who:
                continue
            since, members = self._joined.get((who, each), (0, set()))
            members = {of} if since != epoch else members | {of}
            self._joined[(who, each)] = (epoch, members)
            if members == each.members:
                self.learn(who, self.snapshot(each))

    def enqueue(self, timeline: Timeline) -> int:
        """Something is given to a stream, or done by the host. Returns its epoch."""
        if timeline.members:  # it comes after what all of them come after
            clocks = [each.clock for each in timeline.members]
            self.learn(timeline, Reach({k: min(c.get(k, 0) for c in clocks) for k in clocks[0]}))
        if timeline is not self.host:
            if timeline.kind in ("legacy", "blocking") or timeline.origin == "ambient":
                self._barrier(timeline)
            timeline.launch(self.host)
        if timeline.shown:
            timeline.count += 1
            timeline.shown = False
        self._sequence += 1
        timeline.last = self._sequence
        self.ticks[timeline] = timeline.count
        return timeline.count

    def come_after_barrier(self, timeline: Timeline) -> None:
        """What a stream does next comes after the streams that the default stream's barrier makes it wait for."""
        if timeline.kind in ("legacy", "blocking"):
            self._barrier(timeline)
            timeline.launch(self.host)

    def _barrier(self, timeline: Timeline) -> None:
        """The streams that a legacy default stream and the blocking ones of its library wait for (CS-02 to CS-08)."""
        if (
            timeline.origin == "ambient"
        ):  # it may be the default one, also for another library's streams (CI-15)
            timeline.peers = [t for t in self.ticks if t.kind == "blocking" and t.lib != timeline.lib]
            return
        other = "blocking" if timeline.kind == "legacy" else "legacy"
        timeline.peers = [
            each
            for each in self.ticks
            if (each.kind == other and each.lib == timeline.lib)
            # another library's current stream may be the default one, too (CI-02b)
            or (other == "legacy" and each.origin == "ambient" and each.lib != timeline.lib)
        ]

    def all_known(self, timeline: Timeline) -> None:
        """A timeline waits for everything."""
        for other in list(self.ticks):
            if other is not timeline:
                self.learn(timeline, self.snapshot(other))
        if self.called:
            self.learn(timeline, Reach({self.caller.id: self.called}))

    def access(
        self,
        block: Block,
        timeline: Timeline,
        write: bool,
        part: Part,
        site: Site,
        op: str,
        kind: str = "",
        notes: frozenset[Any] = frozenset(),
        call: int = 0,
        at: int | None = None,
        library: str = "torch",
    ) -> Access:
        """An operation of a timeline touches a part of a block: each earlier access that conflicts is reported."""
        epoch = self.enqueue(timeline) if at is None else at
        access = Access(timeline, epoch, write, part, site, op, kind, notes, call, library, timeline.last)
        if timeline is self.host:
            access.given = self.given
        if kind in _COPIES:
            self.copies += 1
        known, host = timeline.clock, self.host.clock
        kept = []
        for earlier in block.accesses:
            other = earlier.timeline
            if other is timeline:
                if (write or not earlier.write) and earlier.part == part and write >= earlier.write:
                    continue  # covered by the new one
            elif known.get(other.id, 0) >= earlier.at:
                if (write or earlier.write) and host.get(other.id, 0) < earlier.at:
                    timeline.served[other.id] = access.sequence
                if write and part is None:
                    continue
            elif write or earlier.write:
                self.report(block, earlier, access)
            kept.append(earlier)
        kept.append(access)
        block.accesses = kept[-KEPT:]
        return access

    # -- explanations ------------------------------------------------------------------------------------------------

    def missed(self, block: Block, first: Access, second: Access) -> Conflict | None:
        """What the order engine says of two accesses that nothing orders, where a wait was meant to order them."""
        one, two = (
            Record(each.timeline, each.at, operation_name(each.op), each.site, each.sequence)
            for each in (first, second)
        )
        use = Use(Region(block.place, 0, 1), block.text)
        found = Found(
            one,
            "writes" if first.write else "reads",
            None,
            "writes" if second.write else "reads",
            use,
            0,
            1,
            None,
            True,
        )
        conflict = self._explain.pair(found, two, self.host, lambda source: source in set(_users(block)))
        return conflict if conflict.facts.ineffective_wait else None


def _users(block: Block) -> Iterator[clocks.Timeline]:
    """The timelines that have used a block."""
    for access in block.accesses:
        yield access.timeline
