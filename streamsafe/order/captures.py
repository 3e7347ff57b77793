"""Captures: a stream program of its own, what it leaves to replay, and which calls it does not survive."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Literal

from streamsafe.order.clocks import Carrier, Event, Timeline
from streamsafe.order.hazard import Conflict, Mode
from streamsafe.order.memory import Region, Use

if TYPE_CHECKING:
    from streamsafe.order.checker import Checker
    from streamsafe.order.pools import Block

CaptureMode = Literal["global", "thread_local", "relaxed"]
Subject = Literal["captured", "eager", "device"]


class CapturedAccess:
    """One access of a graph: what it touches, and the captured operation that does."""

    __slots__ = ("block", "mode", "operation", "site", "use")

    def __init__(self, use: Use, mode: Mode, operation: str, site: object, block: Block | None) -> None:
        self.use = use
        self.mode = mode
        self.operation = operation
        self.site = site
        self.block = block


class Graph(Carrier):
    """What a capture left: its accesses, each memory once, and the blocks they lie in. A token for ``Checker.replay``.

    As a carrier it knows its previous launch (GC-13).

    Attributes:
        key: a number of its own, for traces.
        conflicts: the missing edges between its branches and the violations, found once, at the end of the capture.
        accesses: everything it reads and writes when launched.
        waits, records: events it waits for and records at each launch (those marked external, GC-21).
        managed: who captured it sees to the order of the launches (GC-07) himself.
        pool: the private pool of its temporaries; None: they are of the arenas that eager work uses too (CuPy).
    """

    __slots__ = ("accesses", "conflicts", "key", "managed", "pool", "records", "reported", "site", "waits")

    def __init__(self, key: int, pool: Hashable, site: object) -> None:
        super().__init__()
        self.key = key
        self.pool = pool
        self.managed = False
        self.site = site
        self.conflicts: list[Conflict] = []
        self.accesses: list[CapturedAccess] = []
        self.waits: list[Event] = []
        self.records: list[Event] = []
        self.reported: set[Block] = set()


class Capture:
    """A capture in progress.

    Attributes:
        origin: the stream it began on. mode, host: as ``cudaStreamBeginCapture`` was called.
        program: a checker of its own; its streams are all non-blocking, its events those recorded in it.
        members: the streams it takes, the origin first.
    """

    __slots__ = ("_accesses", "_filled", "graph", "host", "members", "mode", "origin", "program")

    def __init__(
        self, graph: Graph, program: Checker, origin: Timeline, mode: CaptureMode, host: Hashable
    ) -> None:
        self.graph = graph
        self.program = program
        self.origin = origin
        self.mode = mode
        self.host = host
        self.members: list[Timeline] = []
        self._accesses: dict[tuple[Mode, Region], CapturedAccess] = {}
        self._filled: dict[tuple[Hashable, Block | None], list[tuple[int, int]]] = {}
        self.join(origin)

    def join(self, stream: Timeline) -> None:
        """A stream's operations belong to this capture from now on (a fork, GM-fork_join)."""
        stream.capture = self
        self.members.append(stream)
        self.program.stream(stream.key, device=stream.device, kind="non-blocking", name=stream.name)

    def add(self, use: Use, mode: Mode, operation: str, site: object, block: Block | None) -> None:
        """An access the graph will make when launched. What it reads after it has written it, it has from itself."""
        region = use[0]
        space, start, stop, _, strides, _ = region
        filled = self._filled.setdefault((space, block), [])
        if start >= stop or (mode == "reads" and any(low <= start and stop <= high for low, high in filled)):
            return
        self._accesses[mode, region] = CapturedAccess(use, mode, operation, site, block)
        if mode == "writes" and strides is None and use[3] and (start, stop) not in filled:
            filled.append((start, stop))

    def unjoined(self) -> list[Timeline]:
        """The members whose last operation the origin does not come after: CUDA refuses such a capture."""
        inner = self.program.timeline
        origin = inner(self.origin.key)
        tips = [(member, inner(member.key)) for member in self.members[1:]]
        return [member for member, tip in tips if not origin.knows(tip, tip.count)]

    def end(self) -> Graph:
        """Let the members go; what they did is the graph's."""
        for member in self.members:
            member.capture = None
        self.graph.accesses = list(self._accesses.values())
        return self.graph

    def forbids(self, subject: Subject, host: Hashable) -> bool:
        """Whether waiting for or querying something is illegal while this capture lasts.

        ``captured``: a stream or event of a capture, never legal. ``device``: in no mode, from no thread
        (GM-dev_sync, GM-thr_dev_sync). ``eager``: another stream or event is "potentially unsafe", which the mode
        decides (GM-ev_query_pre, GM-ev_sync_pre, GM-side_stream_sync, GM-thr_ev_query).
        """
        if subject != "eager":
            return True
        if self.mode == "global":
            return True
        return self.mode == "thread_local" and host == self.host
