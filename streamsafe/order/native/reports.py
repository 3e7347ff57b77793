"""From the core's reports (``report.hpp``) to conflicts: the reader, and the places where it keeps what it has read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Protocol

from streamsafe.order.captures import VIOLATIONS, CapturedAccess, Graph, message_of
from streamsafe.order.clocks import Event, Recorded, Timeline, Wait
from streamsafe.order.clocks import Kind as TimelineKind
from streamsafe.order.explain import Explainer, Naming, Render
from streamsafe.order.hazard import Conflict, Mode
from streamsafe.order.memory import Block, Found, Owner, Partial, Record, Region, Use
from streamsafe.order.native.spaces import space_of

PAIR, LATENT, OVERWRITTEN, VIOLATION, OVERLAID = range(5)
MODES: tuple[Mode, Mode] = ("reads", "writes")
KINDS: tuple[TimelineKind, ...] = ("legacy", "blocking", "non-blocking", "per-thread", "host", "function")
OWNERS: tuple[str, ...] = ("unknown", "cupy", "torch", "pinned", "driver")

_VIOLATIONS = tuple(VIOLATIONS)
"""Their names by the numbers of the core's ``Violation``."""


class Source(Protocol):
    """Who knows what the ids in a report stand for."""

    def line_name(self, label: int) -> str:
        """The stream or host thread, as a user would say it."""

    def line_key(self, label: int) -> Hashable:
        """The caller's key of the stream; None where there is none."""

    def host_name(self, key: int) -> str:
        """The host, or one of its threads."""

    def operation_name(self, operation: int) -> str:
        """The operation, as a user would write it."""

    def site_of(self, site: int) -> object:
        """Where it was enqueued; None: not known."""

    def memory_of(self, name: int) -> Use | None:
        """The array that a name stands for; None: nothing but its bytes is known."""

    def state(self, serials: Sequence[int]) -> list[int]:
        """The present logs of timelines."""


class Details:
    """One report's parts, for a front end that knows more than the core.

    Attributes:
        first, second: the operations; ``first_mode``, ``second_mode``: what they did.
        first_flags: the front end's own marks on the block that the first access was in; flags: on the present one.
        use: which of the operation's uses it is; -1: not one of them.
    """

    __slots__ = ("first", "first_flags", "first_operation", "flags", "second", "second_operation", "use")

    def __init__(self) -> None:
        self.first: Record | None = None
        self.second: Record | None = None
        self.first_operation = 0
        self.second_operation = 0
        self.first_flags = 0
        self.flags = 0
        self.use = -1


class Reader:
    """Reads reports.

    Args:
        source: what the ids stand for.
        render, naming: as for :class:`streamsafe.order.explain.Explainer`.
    """

    def __init__(self, source: Source, render: Render, naming: Naming) -> None:
        self.explain = Explainer(render, naming)
        self.details = Details()
        self._source = source
        self._lines: dict[int, Timeline] = {}
        self._events: dict[int, Event] = {}
        self._watched: set[int] = set()
        self._graphs: dict[int, Graph] = {}
        self._data: list[int] = []
        self._at = 0

    def graph(self, key: int) -> Graph:
        """The graph of a key; the same object each time."""
        found = self._graphs.get(key)
        if found is None:
            found = self._graphs[key] = Graph(key, None, None)
        return found

    def forget(self, graph: int) -> None:
        """A graph will not be launched again."""
        self._graphs.pop(graph, None)

    def rename(self, key: Hashable, name: str) -> None:
        """A stream has a better name."""
        for line in self._lines.values():
            if line.key == key:
                line.name = name

    def read(self, report: Sequence[int], uses: Sequence[Use] = ()) -> Conflict:
        """The conflict that a report tells of.

        Args:
            uses: what the operation touches, as it was given to the core.
        """
        self._data, self._at = list(report), 0
        self.details = Details()
        kind = self._next()
        if kind == PAIR:
            return self._pair(uses)
        if kind == LATENT:
            return self._latent()
        if kind == OVERWRITTEN:
            return self._overwritten()
        if kind == OVERLAID:
            return self._overlaid()
        return self._violation()

    # -- kinds -------------------------------------------------------------------------------------------------------

    def _pair(self, uses: Sequence[Use]) -> Conflict:
        certain = bool(self._next())
        first, first_mode = self._record(), MODES[self._next()]
        second = self._record()
        second_mode, index, name, space = MODES[self._next()], self._next(), self._next(), self._next()
        start, stop = self._next(), self._next()
        first_block, block = self._block(), self._block()
        reused, host = bool(self._next()), self._next()
        graphs = self._captured(space, start, stop), self._captured(space, start, stop)
        self._waits()
        needed = set(self._list())
        again = self._next(), self._next()
        if not reused:
            first_block = block
        use = uses[index] if 0 <= index < len(uses) else self._source.memory_of(name)
        if use is None:
            use = Use(Region(space_of(space), start, stop))
        one, two = self._made(first), self._made(second)
        one.graph, two.graph = graphs
        self.details.first, self.details.second = one, two
        self.details.first_operation, self.details.second_operation, self.details.use = (
            first[1],
            second[1],
            index,
        )
        found = Found(one, first_mode, first_block, second_mode, use, start, stop, block, certain)
        wanted = {id(self._lines[serial]) for serial in needed}
        conflict = self.explain.pair(found, two, self._lines[host], lambda line: id(line) in wanted)
        conflict = replace(conflict, again=again)
        recheck_at_end = conflict.recheck_at_end
        if recheck_at_end is None:
            return conflict
        self._watched.update(serial for serial in (second[0], host) if serial)

        def later() -> bool:
            self.refresh()
            return recheck_at_end()

        return replace(conflict, recheck_at_end=later)

    def _latent(self) -> Conflict:
        record, mode, block = self._record(), MODES[self._next()], self._block()
        start, stop = self._next(), self._next()
        self._waits()
        assert block is not None
        entry = Partial(self._made(record), mode, None, True, block)
        self.details.first, self.details.first_operation = entry.record, record[1]
        return self.explain.latent(entry, block, start, stop)

    def _overwritten(self) -> Conflict:
        second = self._record()
        mode, name, space = MODES[self._next()], self._next(), self._next()
        start, stop = self._next(), self._next()
        dead, live = self._block(), self._block()
        self.details.first_flags = 0
        last = (self._record(), MODES[self._next()]) if self._next() else None
        graph = self._captured(space, start, stop)
        self._waits()
        assert dead is not None and live is not None and graph is not None
        entry = Partial(self._made(last[0]), last[1], None, True, live) if last is not None else None
        use = self._source.memory_of(name) or Use(Region(space_of(space), start, stop))
        two = self._made(second)
        self.details.second, self.details.second_operation = two, second[1]
        return self.explain.overwritten(graph, two, use, mode, dead, live, entry)

    def _overlaid(self) -> Conflict:
        """A graph of a shared pool was launched after the one whose output lies in the same memory."""
        first, second = self._record(), self._record()
        space, start, stop = self._next(), self._next(), self._next()
        block = self._block()
        self._captured(space, start, stop)
        self._waits()
        launch, reading = self._made(first), self._made(second)
        self.details.first, self.details.second = launch, reading
        self.details.first_operation, self.details.second_operation = first[1], second[1]
        return self.explain.overlaid(launch, reading, Use(Region(space_of(space), start, stop)), block)

    def _violation(self) -> Conflict:
        violation = _VIOLATIONS[self._next()]
        by_host, subject, other = bool(self._next()), self._next(), self._next()
        given, site = self._next(), self._source.site_of(self._next())
        begun = [
            self.explain.note("the capture begins here", self._source.site_of(each)) for each in self._list()
        ]
        name = self._source.host_name(subject) if by_host else self._source.line_name(subject)
        origin = self._source.line_name(other) if other else ""
        known = VIOLATIONS[violation]
        text = message_of(violation, name, origin, itself=other == subject and not by_host)
        operation = self._source.operation_name(given) or known.operation
        return self.explain.violation(known.rule, name, operation, text, site, begun)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _list(self) -> list[int]:
        return [self._next() for _ in range(self._next())]

    def _record(self) -> tuple[int, int, int, int, int, int]:
        """Timeline, operation, site, graph, count, sequence."""
        return (self._next(), self._next(), self._next(), self._next(), self._next(), self._next())

    def _made(self, record: tuple[int, int, int, int, int, int]) -> Record:
        serial, operation, site, _, count, sequence = record
        name = self._source.operation_name(operation)
        return Record(self._lines[serial], count, name, self._source.site_of(site), sequence)

    def _block(self) -> Block | None:
        """A block; its timeline is filled in once the lines are read."""
        if not self._next():
            return None
        space, start, stop, owner, serial = (
            self._next(),
            self._next(),
            self._next(),
            self._next(),
            self._next(),
        )
        ended, site, freed_site, name, graph, flags = (
            self._next(),
            self._next(),
            self._next(),
            self._next(),
            self._next(),
            self._next(),
        )
        known: Owner = OWNERS[owner]  # type: ignore[assignment]
        timeline = self._lines.get(serial)
        if timeline is None:
            timeline = self._lines[serial] = Timeline(serial, 0, "non-blocking", "")
        memory = self._source.memory_of(name)
        said = memory.name if memory is not None else ""
        block = Block(space_of(space), start, stop, known, timeline, said, self._source.site_of(site))
        block.ended = bool(ended)
        block.freed_site = self._source.site_of(freed_site)
        block.graph = self.graph(graph) if graph else None
        self.details.first_flags, self.details.flags = self.details.flags, flags
        return block

    def _captured(self, space: int, start: int, stop: int) -> Graph | None:
        """The graph of a launch, with the one access of it that lies in the range."""
        key = self._next()
        if not key:
            return None
        graph = self.graph(key)
        graph.accesses = []
        if self._next():
            operation, mode, site = (
                self._source.operation_name(self._next()),
                MODES[self._next()],
                self._source.site_of(self._next()),
            )
            use = Use(Region(space_of(space), start, stop))
            graph.accesses = [CapturedAccess(use, mode, operation, site, None)]
        return graph

    def _recorded(self) -> Recorded | None:
        serial, covered, sequence, site, idle_since = (
            self._next(),
            self._next(),
            self._next(),
            self._next(),
            self._next(),
        )
        if not serial:
            return None
        return Recorded(self._lines[serial], covered, sequence, self._source.site_of(site), idle_since)

    def _waits(self) -> None:
        """Timelines, events and logs, as they are now."""
        for _ in range(self._next()):
            serial, label, kind, device, last = (
                self._next(),
                self._next(),
                self._next(),
                self._next(),
                self._next(),
            )
            line = self._lines.get(serial)
            if line is None:
                line = self._lines[serial] = Timeline(serial, device, "non-blocking", "")
            line.device, line.kind, line.last = device, KINDS[kind], last
            line.key = self._source.line_key(label)
            line.name = (
                self._source.host_name(device) if KINDS[kind] == "host" else self._source.line_name(label)
            )
        for _ in range(self._next()):
            serial, capture = self._next(), self._next()
            event = self._events.setdefault(serial, Event(serial))
            event.record = self._recorded()
            event.capture = self.graph(capture) if capture else None
        for _ in range(self._next()):
            line = self._lines[self._next()]
            line.log.clear()
            for _ in range(self._next()):
                serial, device, sequence, site = self._next(), self._next(), self._next(), self._next()
                record = self._recorded()
                replaced = [self._recorded() for _ in range(self._next())]
                known = tuple(each for each in replaced if each is not None)
                whom = "an event" if record is None else record.source.name
                if device >= 0:
                    whom = f"device {device}"
                covered: int | None = device if device >= 0 else None
                place = self._source.site_of(site)
                event_of = self._events.get(serial)
                line.log.append(Wait(whom, event_of, record, known, covered, sequence, place))
            line.served = {self._lines[self._next()].id: self._next() for _ in range(self._next())}

    def refresh(self) -> None:
        """Read the present state of the timelines of which conflicts are checked again at the end."""
        self._data, self._at = self._source.state(sorted(self._watched)), 0
        self._waits()
