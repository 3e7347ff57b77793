"""What knows of what: vector clocks, written as epochs wherever one number will do (FastTrack, PLDI 2009).

A timeline stamps its accesses with its *epoch*, the pair of its id and its count. Whatever has a clock *knows* an
access when its clock has at least that count under that id. A count moves on only when somebody may have learnt it: all
accesses between two such moments share one epoch. So who knows an epoch knows all that the timeline knew up to its end,
and most edges teach nothing and cost one look-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple, TypeAlias

Clock = dict[int, int]
"""Timeline id to count. Shared and never changed in place."""

Kind = Literal["legacy", "blocking", "non-blocking", "per-thread", "host", "function"]
"""``function``: what one host function on a stream does, whenever it runs. No launch gives it anything to know."""

ENDLESS = 1 << 62
"""A count that no timeline reaches: who knows it knows whatever that timeline is going to do."""

LOG_LENGTH = 16
"""How many waits a timeline remembers, to explain a hazard with."""

_ids = count(1)

of_values: Any = tuple.__new__
"""``of_values(Wait, (...))``: a named tuple in half the time that its constructor takes."""


class Snapshot(NamedTuple):
    """All that a holder knows at one moment: its own epoch (id 0: it has none) and its clock."""

    timeline: int
    reach: int
    clock: Clock


News: TypeAlias = "Snapshot | tuple[int, int, Clock]"


class Recorded(NamedTuple):
    """One record of an event: whose, how far it covers it, when and where, and when the source last did something."""

    source: Timeline
    covered: int
    sequence: int
    site: object
    idle_since: int


class Wait(NamedTuple):
    """A wait that happened, kept to explain a hazard.

    Attributes:
        whom: what was waited for, in words.
        event: what was waited for, when that was an event; its present state may tell that it was recorded too late.
        record: what it stood for at the wait; None: never recorded. For a stream or device: its present.
        replaced: records of other timelines that were overwritten before it, the latest first.
        device: set when the wait was for all streams of a device.
        sequence, site: when and where the wait stands.
    """

    whom: str
    event: Event | None
    record: Recorded | None
    replaced: tuple[Recorded, ...]
    device: Hashable
    sequence: int
    site: object

    def covers_some_of(self, source: Timeline) -> bool:
        """Whether it was a wait for that timeline."""
        if self.device is not None:
            return self.device == source.device
        return self.record is not None and self.record.source is source


class ClockHolder:
    """Anything that can know of accesses: a timeline, an event, a graph, a lock."""

    __slots__ = ("clock",)

    def __init__(self) -> None:
        self.clock: Clock = {}

    def snapshot(self) -> Snapshot:
        """What a learner comes to know from this holder now."""
        return Snapshot(0, 0, self.clock)

    def learn(self, news: News) -> None:
        """Know also what ``news`` says."""
        merged = dict(self.clock)
        _merge(merged, news)
        self.clock = merged


class Timeline(ClockHolder):
    """One queue, or one host thread.

    Attributes:
        key: the caller's key; device, kind: as registered; name: as a user would say it.
        id, count: its present epoch.
        shown: somebody may know the present epoch, so that whatever comes next begins another.
        gone: the handle was destroyed.
        last: sequence number of its last access.
        log: its last waits, as plain tuples laid out like :class:`Wait`; :meth:`waits` has them as such.
        served: by timeline id, the last access that needed something of that timeline, ordered by no host.
        capture: the :class:`streamsafe.order.captures.Capture` that takes what is enqueued here, if any.
        peers: the streams that it waits for at a launch under the legacy default stream's barrier.
    """

    __slots__ = (
        "capture",
        "count",
        "device",
        "gone",
        "id",
        "key",
        "kind",
        "last",
        "log",
        "name",
        "peers",
        "served",
        "shown",
    )

    def __init__(self, key: Hashable, device: Hashable, kind: Kind, name: str) -> None:
        super().__init__()
        self.key = key
        self.device = device
        self.kind = kind
        self.name = name
        self.id = next(_ids)
        self.count = 1
        self.shown = False
        self.gone = False
        self.last = 0
        self.log: deque[tuple[Any, ...]] = deque(maxlen=LOG_LENGTH)
        self.served: dict[int, int] = {}
        self.capture: Any = None
        self.peers: Sequence[Timeline] = ()

    def settled(self) -> bool:
        """Whether the legacy default stream's barrier has nothing to teach it."""
        known = self.clock
        for peer in self.peers:  # noqa: SIM110 - at each operation of a blocking stream: a generator takes twice as long
            if known.get(peer.id, 0) < peer.count or peer.capture is not None:
                return False
        return True

    def launch(self, host: Timeline) -> None:
        """An operation is enqueued: it comes after what ``host`` did, and the legacy default stream and the blocking
        streams wait for each other (TS-28, CS-02 to CS-08). Sources: CUDA "Stream synchronization behavior",
        cudaEventRecord, cudaStreamWaitEvent, cudaGraphLaunch.
        """
        known = self.clock
        if known.get(host.id, 0) < host.count:
            host.shown = True
            self.learn((host.id, host.count, host.clock))
        for peer in self.peers:
            if self.clock.get(peer.id, 0) < peer.count:
                peer.shown = True
                self.learn((peer.id, peer.count, peer.clock))

    def waits(self) -> list[Wait]:
        """Its last waits, the latest last."""
        return [Wait(*entry) for entry in self.log]

    def knows(self, timeline: Timeline, count: int) -> bool:
        """Whether an access in that epoch comes before whatever this timeline does next."""
        return timeline is self or self.clock.get(timeline.id, 0) >= count

    def snapshot(self) -> Snapshot:
        self.shown = True
        return Snapshot(self.id, self.count, self.clock)

    def learn(self, news: News) -> None:
        timeline, reach, clock = news
        known = self.clock
        own = self.id
        if timeline == own or (timeline and known.get(timeline, 0) >= reach):
            return
        merged = known.copy()
        if timeline:
            merged[timeline] = reach
        changed = timeline > 0
        for other, theirs in clock.items():
            if known.get(other, 0) < theirs and other != own and other != timeline:
                merged[other] = theirs
                changed = True
        if not changed:
            return
        if self.shown:
            self.count += 1
            self.shown = False
        self.clock = merged


class Event(ClockHolder):
    """A mutable cell: a record overwrites it, a wait copies it (TS-09 to TS-15).

    Attributes:
        key: the caller's.
        record: the last record, None when there is none.
        replaced: what it held before of other timelines, the latest first.
        capture: the ``Capture`` in which it was recorded, if any: outside it orders nothing (GC-20).
    """

    __slots__ = ("capture", "key", "record", "replaced")

    def __init__(self, key: Hashable) -> None:
        super().__init__()
        self.key = key
        self.record: Recorded | None = None
        self.replaced: tuple[Recorded, ...] = ()
        self.capture: Any = None

    def snapshot(self) -> Snapshot:
        if self.record is None:
            return Snapshot(0, 0, self.clock)
        return Snapshot(self.record.source.id, self.record.covered, self.clock)

    def learn(self, news: News) -> None:
        """An event holds one record at a time, so it always forgets. :meth:`stamp` says whose."""
        self.clock = news[2]

    def stamp(self, source: Timeline, sequence: int, site: object, capture: object = None) -> None:
        """Whose record it now holds. One made in a capture covers nothing outside it."""
        last = self.record
        if last is not None and last.source is not source:
            self.replaced = (last, *self.replaced[: LOG_LENGTH - 1])
        covered = source.count if capture is None else 0
        self.record = of_values(Recorded, (source, covered, sequence, site, source.last))
        self.capture = capture
        if capture is not None:
            self.clock = {}


def _merge(into: Clock, news: News) -> None:
    """Pointwise maximum."""
    timeline, reach, clock = news
    if timeline and into.get(timeline, 0) < reach:
        into[timeline] = reach
    for other, known in clock.items():
        if into.get(other, 0) < known:
            into[other] = known


class Device:
    """The streams of one device."""

    __slots__ = ("blocking", "legacy", "streams")

    def __init__(self, device: Hashable) -> None:
        self.legacy = Timeline(None, device, "legacy", "the default stream")
        self.blocking: list[Timeline] = []
        self.legacy.peers = self.blocking
        self.streams: list[Timeline] = [self.legacy]

    def add(self, stream: Timeline) -> None:
        """A stream of this device, not the legacy default one."""
        self.streams.append(stream)
        if stream.kind in ("blocking", "per-thread"):
            self.blocking.append(stream)
            stream.peers = (self.legacy,)

    def drop_finished(self, hosts: Iterable[Timeline]) -> None:
        """Forget destroyed streams that did nothing, or whose work everybody knows."""
        hosts = list(hosts)

        def pending(stream: Timeline) -> bool:
            if not stream.gone:
                return True
            return stream.last > 0 and not all(host.knows(stream, stream.count) for host in hosts)

        self.streams = [stream for stream in self.streams if pending(stream)]
        self.blocking[:] = [stream for stream in self.blocking if pending(stream)]


class Devices(dict[Hashable, Device]):
    """All devices, each there once it is asked for."""

    def __missing__(self, key: Hashable) -> Device:
        device = self[key] = Device(key)
        return device
