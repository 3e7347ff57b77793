"""Which source lines of a run touched common memory, and what ordered them.

A trace holds the run's operations. :class:`PairTable` replays them without the edges that the checker assumes after a
conflict, and keeps for each pair of lines how often it was ordered, how often it was not, and the edge that ordered it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from streamsafe.order.captures import Graph
from streamsafe.order.checker import Checker
from streamsafe.order.clocks import Clock, Timeline
from streamsafe.order.decide import Plan
from streamsafe.order.hazard import Frame, Mode
from streamsafe.order.memory import Found, Partial, Space, Use
from streamsafe.order.memory import Record as Accessed
from streamsafe.order.operations import (
    Allocate,
    Free,
    HostAccess,
    HostEdge,
    Operation,
    Record,
    Replay,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Wait,
)

Stack = tuple[Frame, ...]

MOST_PAIRS = 100_000
"""Pairs that are kept; those that come later are counted only."""
MOST_LESSONS = 128
"""Edges that are remembered for each two timelines, to tell which one ordered an access."""
SWEEP_AT = 1 << 17
"""New records before those that everybody knows are dropped: later, they make no pair any more."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What ordered two accesses.

    Attributes:
        what: in words, as they stand after "ordered by": ``the wait``, ``the order of work on one stream``.
        site: where the program says so; empty where nothing of the program does.
    """

    what: str
    site: Stack = ()


SAME = Reason("the order of work on one stream")
IN_TURN = Reason("the order of the host's own code")
BARRIER = Reason("the default stream, which waits for blocking streams and they for it")
GRAPH = Reason("the order of two launches of one graph")
RECORDED = Reason("`record_stream`, which keeps the memory until the stream is done")
UNKNOWN = Reason("an edge at the beginning of the run")


@dataclass(slots=True)
class Pair:
    """Two accesses of common memory, by where they stand, over the whole run.

    Attributes:
        first, second: their stacks, innermost frame first; the first happened first.
        reuse: the memory was freed and handed out again between them.
        ordered, unordered: how often.
        reason: what ordered them the first time; None where nothing ever did.
    """

    first: Stack
    second: Stack
    reuse: bool
    ordered: int = 0
    unordered: int = 0
    reason: Reason | None = None


class PairTable(Checker):
    """Fed with a trace's operations, knows its pairs.

    Attributes:
        pairs: by both stacks and whether memory was reused in between.
        ran: the lines, as (file, line), that touched memory.
        left_out: how many accesses belong to pairs beyond :data:`MOST_PAIRS`.
    """

    def __init__(self, *, threads: bool = False) -> None:
        super().__init__(threads=threads)
        self._sweep_at = SWEEP_AT
        self._lessons: dict[tuple[int, int], deque[tuple[int, Reason]]] = {}
        self._graphs_by_number: dict[int, Graph] = {}
        self._now: Stack = ()
        self._line: Timeline = self._host
        self._launching = False
        self._known: Clock = {}
        self._graph: Graph | None = None
        self.pairs: dict[tuple[Stack, Stack, bool], Pair] = {}
        self.ran: set[tuple[str, int]] = set()
        self.left_out = 0

    def feed(self, operation: Operation) -> None:
        """One operation of the trace happens."""
        if isinstance(operation, Allocate):
            self._handed_out(operation)
        elif isinstance(operation, Free):
            self._freed(operation)
        elif isinstance(operation, (HostAccess, Replay)) and self._touches(operation):
            return
        learner = self._learner(operation)
        before = learner.clock if learner is not None else None
        operation.apply(self, self._graphs_by_number)
        if learner is not None and before is not None and learner.clock is not before:
            host = self._host_of(operation.host) if isinstance(operation, Record) else None
            self._learnt(learner, before, _reason(operation), host)

    def _learner(self, operation: Operation) -> Timeline | None:
        """The timeline that an operation of order teaches; accesses look at their own launch."""
        if isinstance(operation, (Wait, Record)):
            return self._streams.get(operation.stream)
        if isinstance(operation, (SynchronizeStream, SynchronizeEvent, SynchronizeDevice)):
            return self._host_of(operation.host)
        if isinstance(operation, HostEdge) and operation.target in self._hosts:
            return self._hosts[operation.target]
        return None

    def _learnt(self, learner: Timeline, before: Clock, reason: Reason, host: Timeline | None = None) -> None:
        """Keep what taught a timeline whom it now knows; at a launch, ``host`` or a barrier did."""
        for source, count in learner.clock.items():
            if before.get(source, 0) >= count or source == learner.id:
                continue
            why = reason
            if host is not None:
                if source == host.id:
                    why = IN_TURN
                elif host.clock.get(source, 0) >= count:
                    why = self._why(host, source, count)
            lessons = self._lessons.get((learner.id, source))
            if lessons is None:
                lessons = self._lessons[learner.id, source] = deque(maxlen=MOST_LESSONS)
            lessons.append((count, why))

    def _why(self, timeline: Timeline, source: int, count: int) -> Reason:
        """What first taught a timeline an epoch of another one."""
        lessons = self._lessons.get((timeline.id, source), ())
        return next((reason for reached, reason in lessons if reached >= count), UNKNOWN)

    # -- the checker, without assumed edges -------------------------------------------------------------------------

    def _touches(self, operation: HostAccess | Replay) -> bool:
        """An access or a launch: its pairs are counted. False in a capture, where nothing happens yet."""
        line = self._host_of(operation.host)
        timeline = line if type(operation) is HostAccess else self._streams[operation.stream]  # type: ignore[union-attr]
        if timeline.capture is not None:
            return False
        graph = self._graphs_by_number[operation.graph] if isinstance(operation, Replay) else None
        self._now = operation.site
        self.ran.update((frame.filename, frame.line) for frame in self._now)
        self._line, self._launching, self._known = line, timeline is not line, timeline.clock
        self._graph = graph
        trial = graph is None and not operation.happened
        reads: Sequence[Use] = ()
        writes: Sequence[Use] = ()
        if graph is not None:
            reads, writes = graph.uses("reads"), graph.uses("writes")
        elif isinstance(operation, HostAccess):
            reads, writes = operation.reads, operation.writes
        name = operation.arguments()["operation"]
        self._access(timeline, line, reads, writes, name, self._now, None, trial=trial, graph=graph)
        if not trial:
            self._launched(timeline)
        return True

    def _handed_out(self, block: Allocate) -> None:
        """What a block's earlier owners did and is ordered is a pair with its allocation."""
        line = self._host_of(block.host)
        taker = line if block.stream is None else self._streams[block.stream]
        self._now = block.site
        if not self._now or block.fresh:
            return
        for entry in self._history(block.space, block.start, block.start + block.size):
            record = entry.record
            first = record.timeline
            if not isinstance(record.site, tuple) or first.kind == "host":
                continue
            if first is taker:
                self._count(record.site, True, SAME)
            else:
                knowing = next((each for each in (taker, line) if each.knows(first, record.count)), None)
                if knowing is not None:
                    self._count(record.site, True, self._why(knowing, first.id, record.count))

    def _freed(self, operation: Free) -> None:
        """The streams that a block was recorded on keep it until they are done."""
        block = self._blocks[operation.space].at(operation.start)
        self._now = operation.site
        if block is None or block.freed or not block.recorded or not self._now:
            return
        for entry in self._history(operation.space, block.start, block.stop):
            record = entry.record
            covering = [each for each in block.recorded if each.knows(record.timeline, record.count)]
            if covering and isinstance(record.site, tuple) and record.timeline is not block.timeline:
                self._count(record.site, True, RECORDED)

    def _history(self, space: Space, start: int, stop: int) -> list[Partial]:
        return [entry for cell in self._shadows[space].overlapping(start, stop) for entry in cell.history()]

    def _launched(self, timeline: Timeline) -> None:
        """Keep what the launch of the present operation taught its timeline."""
        if self._launching and timeline.clock is not self._known:
            self._learnt(timeline, self._known, GRAPH if self._graph is not None else BARRIER, self._line)
            self._known = timeline.clock

    def _examine(
        self, timeline: Timeline, use: Use, mode: Mode, plan: Plan, found: list[Found], known: Clock
    ) -> None:
        self._launched(timeline)
        super()._examine(timeline, use, mode, plan, found, known)
        if not self._now:
            return
        for view, cell in [(each[4], cell) for each in plan if each[0] is use for cell in each[5]]:
            for record, first_mode, other, _, block in cell.history():
                if mode == first_mode == "reads" or not isinstance(record.site, tuple) or not record.site:
                    continue
                first = record.timeline
                if first.kind == "host" and timeline.kind == "host":
                    continue
                if not timeline.knows(first, record.count):
                    continue  # `found` has it, or it is not a matter of streams
                if cell._common_bytes(view, other) is False:
                    continue
                reason = SAME if first is timeline else self._why(timeline, first.id, record.count)
                self._count(record.site, block is not cell.block, reason)

    def _choose(self, found: list[Found], second: Accessed, trial: bool) -> list[Found]:
        for pair in found:
            if isinstance(pair.first.site, tuple) and pair.first.site and pair.certain:
                self._count(pair.first.site, pair.first_block is not pair.block, None)
        return []

    def _count(self, first: Stack, reuse: bool, reason: Reason | None) -> None:
        if not self._now:
            return
        key = (first, self._now, reuse)
        pair = self.pairs.get(key)
        if pair is None:
            if len(self.pairs) >= MOST_PAIRS:
                self.left_out += 1
                return
            pair = self.pairs[key] = Pair(first, self._now, reuse)
        if reason is None:
            pair.unordered += 1
        else:
            pair.ordered += 1
            pair.reason = pair.reason or reason


def _reason(operation: Operation) -> Reason:
    site: Stack = getattr(operation, "site", ())
    if isinstance(operation, Wait):
        return BARRIER if operation.implicit else Reason("the wait", site)
    if isinstance(operation, Record):
        return BARRIER
    if isinstance(operation, (SynchronizeStream, SynchronizeEvent, SynchronizeDevice)):
        completed = operation.method.startswith("completed")
        return Reason("the query that was true" if completed else "the synchronize", site)
    return Reason("the order of two host threads")
