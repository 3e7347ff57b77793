"""How the checker decides: an access against what the shadow memory remembers, under the clocks of the timelines.

Order is kept by :mod:`streamsafe.order.clocks`, memory by :mod:`streamsafe.order.memory`, the lives of blocks by
:mod:`streamsafe.order.pools`. :class:`Engine` is the inside of :class:`streamsafe.order.checker.Checker`, which is its
only user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

from streamsafe.order.captures import VIOLATIONS, Capture, Graph, Subject, message_of
from streamsafe.order.clocks import Clock, ClockHolder, Devices, Event, Recorded, Timeline, of_values
from streamsafe.order.explain import Explainer, Naming, Render, no_name, no_stack
from streamsafe.order.hazard import Conflict, Mode
from streamsafe.order.memory import (
    HOST,
    Block,
    Cell,
    Found,
    Partial,
    Record,
    Region,
    Shadow,
    Space,
    Use,
    pieces,
)
from streamsafe.order.pools import Blocks, hand_out
from streamsafe.order.views import View

Veto = Callable[[list[Conflict]], bool]

State = tuple[Clock, int, bool]
"""What an operation changes of its timeline: clock, count, shown."""

Epoch = tuple[Timeline, int]
"""A place on a timeline, for :meth:`Engine.passed`."""

Plan = list[tuple[Use, Mode, int, int, View | None, list[Cell]]]
"""What an operation does to memory: the use, what it does, where, and the cells that remember it."""

FEW_CELLS = 8
"""Neighbours that one operation wrote become one cell when there are more: fewer are cheap to look at one by one."""

SWEEP_EVERY = 4096
"""After how many new records, at least, those that everybody knows are dropped."""


class Engine:
    """The state of a running stream program, and what an access does to it."""

    def __init__(self, *, threads: bool = False, render: Render = no_stack, naming: Naming = no_name) -> None:
        self._threads = threads
        self._explain = Explainer(render, naming)
        self._devices = Devices()
        self._streams: dict[Hashable, Timeline] = {}
        self._gone: list[Timeline] = []
        self._events: dict[Hashable, Event] = {}
        self._host = Timeline(None, HOST, "host", "the host")
        self._hosts: dict[Hashable, Timeline] = {} if threads else {None: self._host}
        self._objects: dict[Hashable, ClockHolder] = {}
        self._shadows: defaultdict[Space, Shadow] = defaultdict(Shadow)
        self._blocks: defaultdict[Space, Blocks] = defaultdict(Blocks)
        self._captures: list[Capture] = []
        self._graphs = 0
        self._sequence = 0
        self._suspected: set[Hashable] = set()
        self._overlays: set[tuple[int, int]] = set()  # launches of which it was said
        self._debt = 0
        self._sweep_at = SWEEP_EVERY

    def ask_for_names(self, calling: Callable[[Timeline], None]) -> None:
        """From now on ``calling`` is given each timeline whose name is about to be used: it may find a better one."""
        self._explain.calling = calling

    # -- questions, which change nothing ------------------------------------------------------------------------------

    @property
    def operations(self) -> int:
        """How many operations, records, waits and synchronizes there were."""
        return self._sequence

    @property
    def busy_streams(self) -> int:
        """How many streams had work."""
        return sum(line.last > 0 for line in self._streams.values())

    def timeline(self, key: Hashable) -> Timeline:
        """The queue registered under a key. Raises KeyError for an unknown one."""
        return self._streams[key]

    def freed_blocks(self) -> list[Block]:
        """What lies free in the pools, as far as it was handed out before. A question only."""
        return [block for blocks in self._blocks.values() for block in blocks.freed()]

    def drop_graph(self, graph: Graph) -> None:
        """A graph will not be launched again; here it goes with what mentions it."""

    def capturing(self, stream: Hashable) -> bool:
        """Whether what is enqueued on the stream is captured."""
        return self._streams[stream].capture is not None

    def recorded(self, event: Hashable) -> bool:
        """Whether the event holds a record, captured or not."""
        cell = self._events.get(event)
        return cell is not None and cell.record is not None

    def captured(self, event: Hashable) -> bool:
        """Whether the event's last record was captured."""
        cell = self._events.get(event)
        return cell is not None and cell.capture is not None

    def waited(self, event: Hashable, host: Hashable = None) -> bool:
        """Whether the host comes after the event's last record; false when it was never recorded."""
        cell = self._events.get(event)
        if cell is None or cell.record is None or cell.capture is not None:
            return False
        return self._host_of(host).knows(cell.record.source, cell.record.covered)

    def epoch(self, stream: Hashable) -> Epoch:
        """The place of the operation that was last enqueued on a stream. A question only."""
        timeline = self._streams[stream]
        return timeline, timeline.count

    def passed(self, epoch: Epoch, host: Hashable = None) -> bool:
        """Whether the host comes after a place on a stream: after all that was enqueued there up to it."""
        timeline, count = epoch
        return self._host_of(host).clock.get(timeline.id, 0) >= count

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _host_of(self, host: Hashable) -> Timeline:
        if not self._threads:
            return self._host
        line = self._hosts.get(host)
        if line is None:
            line = self._hosts[host] = Timeline(host, HOST, "host", f"the host (thread {host})")
            started = self._objects.pop(host, None)
            if started is not None:
                line.learn(started.snapshot())
        return line

    def _illegal(
        self,
        violation: str,
        timeline: Timeline,
        site: object,
        *,
        other: Timeline | None = None,
        operation: str = "",
    ) -> Conflict:
        """The conflict for one of the violations of :mod:`streamsafe.order.captures`."""
        known = VIOLATIONS[violation]
        name = other.name if other is not None else ""
        message = message_of(violation, timeline.name, name, itself=other is timeline)
        return self._violation(known.rule, timeline, known.operation or operation, message, site)

    def _violation(
        self, violation: str, timeline: Timeline, operation: str, message: str, site: object
    ) -> Conflict:
        begun = [self._explain.note("the capture begins here", each.graph.site) for each in self._captures]
        return self._explain.violation(violation, timeline.name, operation, message, site, begun)

    def _implicit(self, timeline: Timeline, operation: str, site: object) -> list[Conflict]:
        """The default stream would wait for a blocking stream that is capturing: CUDA refuses (GP-02)."""
        for member in self._devices[timeline.device].blocking:
            if member.capture is not None:
                return [self._illegal("implicit_wait", timeline, site, other=member, operation=operation)]
        return []

    def handed_out(self, block: Block, stream: Hashable) -> None:
        """For a capture's program: a block begins a life, given out to a stream that is captured or not."""
        taken = self._streams.get(stream)
        hand_out(self._shadows[block.space], block, partial(self._inside_order, taken))

    def _inside_order(self, taken: Timeline | None) -> Callable[[Partial], bool]:
        """For a capture's program: what comes before what ``taken`` does next; nothing does when it is not captured."""
        return self._ordered(taken, self._host) if taken else lambda _: False

    def _ordered(self, timeline: Timeline, *hosts: Timeline) -> Callable[[Partial], bool]:
        """Whether an access comes before what ``timeline`` would do next, given by one of ``hosts``."""
        knowing = [timeline, *hosts, *timeline.peers]

        def ordered(entry: Partial) -> bool:
            record = entry.record
            return any(line.knows(record.timeline, record.count) for line in knowing)

        return ordered

    def _access(
        self,
        timeline: Timeline,
        line: Timeline,
        reads: Sequence[Use],
        writes: Sequence[Use],
        operation: str,
        site: object,
        veto: Veto | None,
        before: State | None = None,
        *,
        trial: bool = False,
        graph: Graph | None = None,
    ) -> list[Conflict]:
        """The general case: launch edges, examination, verdict, commit. ``before`` is the timeline's state that a veto
        restores, if not its present one. With ``trial`` nothing happens at all. ``graph``: this is its launch.
        """
        before = before or (timeline.clock, timeline.count, timeline.shown)
        if timeline.kind == "legacy" and self._captures:
            refused = self._implicit(timeline, operation, site)
            if refused:
                if veto is not None:
                    veto(refused)
                return refused
        self._sequence += 1
        if graph is not None:
            for known in (line, *timeline.peers, graph, *graph.waits):  # also its last launch (GC-08, GC-13)
                timeline.learn(known.snapshot())
        elif timeline is not line and timeline.kind != "function":
            timeline.launch(line)
        plan: Plan = []
        found: list[Found] = []
        for use in reads:
            self._examine(timeline, use, "reads", plan, found, line.clock)
        for use in writes:
            self._examine(timeline, use, "writes", plan, found, line.clock)
        record = Record(timeline, timeline.count, operation, site, self._sequence)
        record.graph = graph
        conflicts = list(self._overlaid(plan, graph, record, trial)) if self._graphs else []
        if graph is not None:
            conflicts += self._overwritten(graph, record, trial)
        chosen = self._choose(found, record, trial) if found else []
        conflicts.extend(
            self._explain.pair(pair, record, line, lambda source: self._needs(plan, source, line))
            for pair in chosen
        )
        if trial or (conflicts and veto is not None and veto(conflicts)):
            timeline.clock, timeline.count, timeline.shown = before
            if not trial:
                self._assume(timeline, chosen)
            return conflicts
        self._assume(timeline, chosen)
        if timeline.shown:
            timeline.count += 1
            timeline.shown = False
        record.count = timeline.count
        timeline.last = self._sequence
        if timeline.kind != "host" or self._threads:  # with one host, whatever is enqueued comes after it
            self._commit(plan, record)
        if graph is not None:
            graph.learn(timeline.snapshot())
            for event in graph.records:
                event.learn(timeline.snapshot())
                event.stamp(timeline, self._sequence, site)
        return conflicts

    def _examine(
        self,
        timeline: Timeline,
        use: Use,
        mode: Mode,
        plan: Plan,
        found: list[Found],
        known: Clock,
    ) -> None:
        region = use[0]
        space = region[0]
        shadow = self._shadows[space]
        simple = region[4] is None and region[1] < region[2]
        for start, stop, view in ((region[1], region[2], None),) if simple else pieces(region):
            cell = shadow.cells.get(start)
            if cell is not None and cell.stop == stop:
                cells = [cell]
            else:
                find = shadow.cover if view is None else shadow.around
                cells = find(start, stop, self._blocks[space].owner)
                self._debt += len(cells)
            for cell in cells:
                if not cell.admits(timeline, mode, known, self._sequence):
                    cell.examine(timeline, use, mode, view, found, known, self._sequence)
            plan.append((use, mode, start, stop, view, cells))

    def _choose(self, found: list[Found], second: Record, trial: bool) -> list[Found]:
        """One conflict for each missing edge: certain before possible, a read before a write, the last access first."""
        best: dict[Hashable, Found] = {}
        for pair in found:
            if not pair.certain and self._suspicion(pair, second) in self._suspected:
                continue
            key = (pair.first.timeline, pair.first_block is not pair.block)
            other = best.get(key)
            if other is None or _rank(pair) < _rank(other):
                best[key] = pair
            elif (
                other.first is pair.first and other.use is pair.use and other.second_mode == pair.second_mode
            ):
                # the same pair in the next cell
                best[key] = other._replace(
                    start=min(other.start, pair.start), stop=max(other.stop, pair.stop)
                )
        if not trial:
            for pair in best.values():
                if not pair.certain:
                    self._suspected.add(self._suspicion(pair, second))
        return sorted(best.values(), key=_earliest)

    @staticmethod
    def _suspicion(pair: Found, second: Record) -> Hashable:
        return (pair.first.timeline.id, second.timeline.id, pair.first.operation, second.operation)

    def _assume(self, timeline: Timeline, chosen: list[Found]) -> None:
        """Go on as if the missing edges had been there."""
        for pair in chosen:
            if pair.certain:
                timeline.learn(pair.first.timeline.snapshot())

    def _commit(self, plan: Plan, record: Record) -> None:
        for use, mode, start, stop, view, cells in plan:
            shadow = self._shadows[use[0][0]]
            if len(cells) > 1 or cells[0].stop != stop:
                # another use of the same operation may have cut or merged them since
                cells = shadow.overlapping(start, stop)
            if view is not None or not use[3] or record.timeline.kind == "host":
                # a host thread hides no stream's access: two threads are not compared
                for cell in cells:
                    cell.commit_partial(Partial(record, mode, view, use[3], cell.block))
            elif mode == "reads":
                for cell in cells:
                    cell.commit_read(record)
            else:
                for cell in cells:
                    cell.commit_write(record)
                if len(cells) > FEW_CELLS:
                    shadow.merge(cells)
        if self._debt > self._sweep_at:
            self._sweep()

    def _capture(
        self,
        timeline: Timeline,
        capture: Capture,
        reads: Sequence[Use],
        writes: Sequence[Use],
        operation: str,
        site: object,
    ) -> list[Conflict]:
        """The operation becomes part of a graph: nothing happens now."""
        capture.graph.conflicts.extend(
            capture.program.access(timeline.key, reads, writes, operation=operation, site=site)
        )
        for use in reads:
            capture.add(use, "reads", operation, site, self._blocks[use[0][0]].owner(use[0][1])[0])
        for use in writes:
            capture.add(use, "writes", operation, site, self._blocks[use[0][0]].owner(use[0][1])[0])
        return []

    def _overlaid(self, plan: Plan, graph: Graph | None, second: Record, trial: bool) -> Iterator[Conflict]:
        """Reads of what the launch of another graph of the same pool has overwritten (GC-07)."""
        seen: dict[int, Block | None] = {}
        if (
            graph is not None
        ):  # it reads what its capture saw there, even if the memory was handed out again since
            seen = {id(each.use): each.block for each in graph.accesses}
        for use, mode, _, _, _, cells in plan:
            for cell in cells if mode == "reads" else ():
                block = seen[id(use)] if graph is not None else cell.block
                launch = cell.write
                if launch is None or launch.graph is None or not self._is_overlaid(cell, launch.graph, block):
                    continue
                key = launch.graph.key, launch.sequence
                if key in self._overlays:
                    continue
                if not trial:
                    self._overlays.add(key)
                assert block is not None
                shared = Use(Region(block.space, cell.start, cell.stop))
                yield self._explain.overlaid(launch, second, shared, block)

    @staticmethod
    def _is_overlaid(cell: Cell, graph: Graph, block: Block | None) -> bool:
        """Whether a launch wrote the memory as a block of its own, and it is read as ``block``: the graphs are not
        launched in the order of their captures. A graph that was given the other's array writes it rightly.
        """
        if block is None or block.graph is None or block.graph is graph or graph.managed:
            return False
        return any(
            each.mode == "writes"
            and each.block is not block
            and each.use[0][1] < cell.stop
            and cell.start < each.use[0][2]
            for each in graph.accesses
        )

    def _overwritten(self, graph: Graph, second: Record, trial: bool) -> Iterator[Conflict]:
        """The graph's memory that was freed since its capture and now is somebody else's (GC-06, GP-13)."""
        for captured in graph.accesses:
            dead = captured.block
            if dead is None or not dead.freed or dead in graph.reported:
                continue
            if graph.pool is not None and dead.graph is graph:
                continue
            region = captured.use[0]
            # what a private pool gives to a later capture is a matter of the order of launches (GC-07)
            pooled = dead.graph is not None and dead.graph.pool is not None
            for live in self._blocks[region[0]].overlapping(region[1], region[2]):
                if live.freed or live.graph is graph or (pooled and live.graph is not None):
                    continue
                if not trial:
                    graph.reported.add(dead)
                shadow = self._shadows[region[0]]
                low, high = max(region[1], live.start), min(region[2], live.stop)
                history = [
                    entry
                    for cell in shadow.overlapping(low, high)
                    for entry in cell.history()
                    if entry.block is live
                ]
                last = max(history, key=lambda entry: entry.record.sequence, default=None)
                yield self._explain.overwritten(graph, second, captured.use, captured.mode, dead, live, last)
                break

    def _needs(self, plan: Plan, source: Timeline, host: Timeline) -> bool:
        """Whether an operation has to come after something of ``source`` that the host did not wait for."""
        return any(
            cell.needs(source, host, mode, view)
            for use, mode, start, stop, view, _ in plan
            for cell in self._shadows[use[0][0]].overlapping(
                start, stop
            )  # a later use may have cut the first cells
        )

    def _sweep(self) -> None:
        """Drop every record that all hosts know, hence everybody's next operation, and what is left of lost streams."""
        hosts = list(self._hosts.values())

        def wanted(entry: Partial) -> bool:
            record = entry.record
            return not all(host.knows(record.timeline, record.count) for host in hosts)

        mentioned: set[Timeline] = set()
        cells = 0
        for shadow in self._shadows.values():
            shadow.remove([cell for cell in shadow.cells.values() if not cell.keep(wanted)])
            cells += len(shadow.cells)
            for cell in shadow.cells.values():
                mentioned.update(entry.record.timeline for entry in cell.history())
        for device in self._devices.values():
            device.drop_finished(hosts)
            mentioned.update(device.streams)
        lost = {line.id for line in self._gone if line not in mentioned}
        if lost:
            self._gone = [line for line in self._gone if line.id not in lost]
            holders: list[ClockHolder] = [*self._streams.values(), *hosts, *self._events.values()]
            holders += [*self._objects.values(), *self._gone]
            for holder in holders:
                if not lost.isdisjoint(holder.clock):
                    holder.clock = {line: known for line, known in holder.clock.items() if line not in lost}
                if isinstance(holder, Timeline):
                    for line in lost:
                        holder.served.pop(line, None)
        if len(self._suspected) > SWEEP_EVERY:
            self._suspected.clear()
        self._debt = 0
        self._sweep_at = max(SWEEP_EVERY, 2 * cells)

    def remembered(self) -> int:
        """How many accesses are kept, over all memory; for tests of boundedness."""
        shadows = self._shadows.values()
        return sum(sum(1 for _ in cell.history()) for shadow in shadows for cell in shadow.cells.values())

    def _log(self, line: Timeline, event: Event, site: object) -> None:
        last = event.record
        whom = "an event" if last is None else last.source.name
        line.log.append((whom, event, last, event.replaced, None, self._sequence, site))

    def _log_stream(self, line: Timeline, source: Timeline, site: object) -> None:
        now = self._sequence
        present = of_values(Recorded, (source, source.count, now, None, source.last))
        line.log.append((source.name, None, present, (), None, now, site))

    def _log_device(self, line: Timeline, device: Space, site: object) -> None:
        now = self._sequence
        idle_since = max(stream.last for stream in self._devices[device].streams)
        present = Recorded(self._devices[device].legacy, 0, now, None, idle_since)
        line.log.append((f"device {device}", None, present, (), device, now, site))

    def _forbidden(
        self, subject: Subject, timeline: Timeline, host: Hashable, site: object
    ) -> list[Conflict]:
        """The violation, if a capture in progress forbids to wait for or query this."""
        for capture in self._captures:
            if capture.forbids(subject, host):
                which = "device_wait" if subject == "device" else "stream_wait"
                return [self._illegal(which, timeline, site, other=capture.origin)]
        return []

    def _holder(self, key: Hashable) -> ClockHolder:
        line = self._hosts.get(key)
        if line is not None:
            return line
        found = self._objects.get(key)
        if found is None:
            found = self._objects[key] = ClockHolder()
        return found


def _rank(pair: Found) -> tuple[Any, ...]:
    return (not pair.certain, pair.second_mode == "writes", -pair.first.sequence)


def _earliest(pair: Found) -> int:
    """The order in which conflicts of one operation are given: of its memory's cells they do not depend."""
    return pair.first.sequence
