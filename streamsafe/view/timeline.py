"""A trace laid out: a lane for each queue, the operations on it, the edges between them, the hazards.

:meth:`Timeline.events` is the layout for Perfetto or chrome://tracing, :mod:`streamsafe.view.page` shows
the hazards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from streamsafe.order.hazard import Access, Conflict, Frame, Hazard
from streamsafe.order.memory import Use
from streamsafe.order.operations import (
    Access as AccessOperation,
)
from streamsafe.order.operations import (
    Allocate,
    CaptureBegin,
    CaptureEnd,
    CompletedEvent,
    CompletedStream,
    DestroyStream,
    Finish,
    Free,
    HostAccess,
    HostEdge,
    Mark,
    Operation,
    Record,
    Replay,
    Stream,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Wait,
)
from streamsafe.runtime.judge import coded, reconsider
from streamsafe.runtime.marks import SUPPRESSED, places
from streamsafe.runtime.session import Session
from streamsafe.runtime.traces import steps

STEP_US = 10
"""One operation of the trace. The order is real; the durations are not."""

HOST = "the host"

StepKind = Literal["access", "edge", "memory"]


@dataclass(slots=True)
class Lane:
    """One queue, or one host thread.

    Attributes:
        name: as hazards call it.
        label: the name, with a number where another lane has the same.
        device: None for the host.
        kind: as in the trace.
    """

    name: str
    label: str
    device: Hashable = None
    kind: str = "host"


@dataclass(slots=True)
class Step:
    """One operation on a lane.

    Attributes:
        line: of the trace, from 0 for its first operation.
        lane: its lane's place in the timeline.
        kind: what it does: touches arrays, makes or takes an edge, or hands out or takes back memory.
        stack: where it was enqueued.
        uses: the arrays it reads and writes, in words.
        hazards: the hazards it is part of, by number.
    """

    line: int
    lane: int
    name: str
    kind: StepKind
    stack: tuple[Frame, ...] = ()
    uses: dict[str, list[str]] = field(default_factory=dict)
    hazards: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """A hazard and the steps of its accesses; None for one that did not happen (an allocation still to come)."""

    hazard: Hazard
    first: int | None
    second: int | None


@dataclass(slots=True)
class Timeline:
    """What a trace says: lanes, steps on them, the edges between steps, the hazards.

    Attributes:
        complete: false where the trace breaks off before the run's end.
    """

    lanes: list[Lane] = field(default_factory=lambda: [Lane(HOST, HOST)])
    steps: list[Step] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    complete: bool = False
    _streams: dict[Hashable, int] = field(default_factory=dict)
    _hosts: dict[Hashable, int] = field(default_factory=lambda: {None: 0})
    _records: dict[Hashable, int] = field(default_factory=dict)
    _blocks: dict[tuple[Hashable, int], int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)
    _barriers: dict[tuple[int, int], int] = field(default_factory=dict)
    _carried: dict[Hashable, int] = field(default_factory=dict)
    _taken: dict[Hashable, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str) -> Timeline:
        """Reads a trace.

        Raises:
            streamsafe.order.trace.TraceError: no trace that this version reads.
            OSError: the file cannot be read.
        """
        timeline = cls()
        session = Session("collect")
        silent: set[tuple[Any, ...]] = set()
        taken: list[tuple[Conflict, Hazard]] = []
        for index, (operation, conflicts) in enumerate(steps(path)):
            if isinstance(operation, Mark) and operation.name == SUPPRESSED:
                silent.add(operation.data)  # type: ignore[arg-type]
            timeline.complete |= isinstance(operation, Finish)
            timeline._lay(index, operation)
            for conflict in conflicts:
                hazard = coded(conflict)
                if places(hazard) not in silent and session.take(hazard, suppressible=False) is not None:
                    timeline._mark(hazard, conflict)
                    taken.append((conflict, hazard))
        for conflict, hazard in taken:
            reconsider(conflict, hazard)
        return timeline

    # -- laying out --------------------------------------------------------------------------------------------------

    def _lay(self, index: int, operation: Operation) -> None:
        match operation:
            case Stream():
                self._introduce(operation)
            case DestroyStream():
                self._streams.pop(operation.key, None)
            case AccessOperation():
                lane = self._stream(operation.stream)
                at = self._step(index, lane, operation.operation, "access", operation.site)
                self.steps[at].uses = _uses(operation)
                if operation.happened:
                    self._barrier(lane, at)
            case HostAccess():
                at = self._host_step(index, operation.host, operation.operation, "access", operation.site)
                self.steps[at].uses = _uses(operation)
            case Replay():
                lane = self._stream(operation.stream)
                at = self._step(index, lane, operation.operation, "access", operation.site)
                if operation.happened:
                    self._barrier(lane, at)
            case Record():
                lane = self._stream(operation.stream)
                self._records[operation.event] = self._step(index, lane, "record", "edge", operation.site)
            case Wait():
                at = self._step(index, self._stream(operation.stream), "wait", "edge", operation.site)
                self._arrow(self._records.get(operation.event), at)
            case SynchronizeStream():  # a query that was true is one, too
                source = self._last.get(self._stream(operation.stream))
                name = "query: done" if isinstance(operation, CompletedStream) else "synchronize"
                self._arrow(source, self._host_step(index, operation.host, name, "edge", operation.site))
            case SynchronizeEvent():
                name = "query: done" if isinstance(operation, CompletedEvent) else "synchronize"
                at = self._host_step(index, operation.host, name, "edge", operation.site)
                self._arrow(self._records.get(operation.event), at)
            case SynchronizeDevice():
                sources = [
                    last for lane, last in self._last.items() if self.lanes[lane].device == operation.device
                ]
                at = self._host_step(index, operation.host, "synchronize device", "edge", operation.site)
                for source in sources:
                    self._arrow(source, at)
            case HostEdge():
                self._hand_over(operation)
            case Allocate():
                lane = (
                    self._host(operation.host) if operation.stream is None else self._stream(operation.stream)
                )
                self._blocks[operation.space, operation.start] = lane
                self._step(index, lane, "allocate", "memory", operation.site)
            case Free():
                lane = self._blocks.pop((operation.space, operation.start), 0)
                self._step(index, lane, "free", "memory", operation.site)
            case CaptureBegin() | CaptureEnd():
                name = "capture begins" if isinstance(operation, CaptureBegin) else "capture ends"
                self._step(index, self._stream(operation.stream), name, "edge", operation.site)

    def _introduce(self, stream: Stream) -> None:
        known = self._streams.get(stream.key)
        name = stream.name or f"stream {stream.key}"
        if known is None:
            self._streams[stream.key] = self._lane(Lane(name, name, stream.device, stream.kind))
        elif stream.name:
            self.lanes[known].name = stream.name
            self.lanes[known].label = self._label(stream.name, known)

    def _lane(self, lane: Lane) -> int:
        lane.label = self._label(lane.name, len(self.lanes))
        self.lanes.append(lane)
        return len(self.lanes) - 1

    def _label(self, name: str, number: int) -> str:
        """A name that no other lane shows."""
        taken = {lane.label for place, lane in enumerate(self.lanes) if place != number}
        label, count = name, 2
        while label in taken:
            label, count = f"{name} ({count})", count + 1
        return label

    def _stream(self, key: Hashable) -> int:
        known = self._streams.get(key)
        if known is None:
            name = f"stream {key}"
            known = self._streams[key] = self._lane(Lane(name, name, 0, "non-blocking"))
        return known

    def _host(self, key: Hashable) -> int:
        known = self._hosts.get(key)
        if known is None:
            name = f"{HOST} (thread {key})"
            known = self._hosts[key] = self._lane(Lane(name, name))
        return known

    def _step(self, index: int, lane: int, name: str, kind: StepKind, stack: tuple[Frame, ...]) -> int:
        self.steps.append(Step(index, lane, name, kind, stack))
        at = len(self.steps) - 1
        if kind != "memory":
            self._last[lane] = at
        return at

    def _host_step(
        self, index: int, host: Hashable, name: str, kind: StepKind, stack: tuple[Frame, ...]
    ) -> int:
        at = self._step(index, self._host(host), name, kind, stack)
        for source in sorted(self._taken.pop(host, ())):
            self._arrow(source, at)
        return at

    def _barrier(self, lane: int, at: int) -> None:
        """The legacy default stream waits for the blocking streams of its device, and they for it."""
        here = self.lanes[lane]
        if here.kind not in ("legacy", "blocking", "per-thread"):
            return
        for other, source in self._last.items():
            there = self.lanes[other]
            pair = {here.kind, there.kind}
            if there.device == here.device and "legacy" in pair and pair & {"blocking", "per-thread"}:
                if self._barriers.get((other, lane)) != source:
                    self._barriers[other, lane] = source
                    self._arrow(source, at)

    def _hand_over(self, edge: HostEdge) -> None:
        """Host threads learn of each other through locks, thread ends and queues.

        The arrow goes from the last thing that the one did to the next thing that the other does.
        """
        if edge.source in self._carried:
            self._taken.setdefault(edge.target, set()).add(self._carried[edge.source])
        elif edge.source in self._hosts and self._hosts[edge.source] in self._last:
            self._carried[edge.target] = self._last[self._hosts[edge.source]]

    def _arrow(self, source: int | None, target: int) -> None:
        if source is not None:
            self.edges.append((source, target))

    def _mark(self, hazard: Hazard, conflict: Conflict) -> None:
        second = None if hazard.latent else self._find(conflict.second, len(self.steps))
        first = None
        if conflict.first is not None:
            first = self._find(conflict.first, len(self.steps) if second is None else second)
        for found in {first, second} - {None}:
            self.steps[found].hazards.append(len(self.found))  # type: ignore[index]
        self.found.append(Found(hazard, first, second))

    def _find(self, access: Access, before: int) -> int | None:
        """The last step before a place that is this access."""
        for position in range(before - 1, -1, -1):
            step = self.steps[position]
            if step.name == access.operation and step.stack[:1] == access.stack[:1]:
                if self.lanes[step.lane].name == access.timeline:
                    return position
        return None

    # -- for Perfetto ------------------------------------------------------------------------------------------------

    def events(self) -> dict[str, Any]:
        """The timeline in the trace event format (JSON).

        One track a lane; each operation a slice, with its stack and arrays as arguments; existing edges as flows; for
        each hazard a span of its own from the first access to the second, whose slices carry its code in their names.
        """
        out: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "streamsafe"}}
        ]
        for track, lane in enumerate(self.lanes, 1):
            about = {"thread_name": {"name": lane.label}, "thread_sort_index": {"sort_index": track}}
            for name, args in about.items():
                out.append({"ph": "M", "pid": 1, "tid": track, "name": name, "args": args})
        for number, found in enumerate(self.found, 1):
            out.extend(self._span(number, found))
        out.extend(self._slice(place) for place in range(len(self.steps)))
        for number, (source, target) in enumerate(self.edges, 1):
            for phase, place in (("s", source), ("f", target)):
                track = self.steps[place].lane + 1
                flow = {"ph": phase, "pid": 1, "tid": track, "ts": place * STEP_US + 1}
                flow |= {"id": number, "name": "edge", "cat": "edge"}
                out.append(flow | {"bp": "e"} if phase == "f" else flow)
        return {"traceEvents": out, "displayTimeUnit": "ms"}

    def _slice(self, place: int) -> dict[str, Any]:
        step = self.steps[place]
        event: dict[str, Any] = {"pid": 1, "tid": step.lane + 1, "ts": place * STEP_US}
        event |= {"name": step.name, "cat": step.kind, "args": {"stack": [_frame(f) for f in step.stack]}}
        event["args"] |= step.uses
        if step.kind == "memory":
            return event | {"ph": "i", "s": "t"}
        if step.hazards:
            hazards = [self.found[number].hazard for number in step.hazards]
            codes = dict.fromkeys(hazard.code for hazard in hazards)
            event |= {"name": f"{', '.join(codes)}: {step.name}", "cat": "hazard", "cname": "terrible"}
            event["args"]["hazard"] = [hazard.message for hazard in hazards]
        return event | {"ph": "X", "dur": STEP_US - 1}

    def _span(self, number: int, found: Found) -> Iterable[dict[str, Any]]:
        hazard = found.hazard
        last = max(len(self.steps) - 1, 0)
        begin = found.first if found.first is not None else found.second if found.second is not None else last
        end = found.second if found.second is not None else last
        event: dict[str, Any] = {"pid": 1, "tid": 1, "id2": {"local": str(number)}, "cat": "hazard"}
        event["name"] = f"{hazard.code} {hazard.name}"
        args = {"message": hazard.message, "fix": hazard.help}
        yield event | {"ph": "b", "ts": begin * STEP_US, "args": args}
        yield event | {"ph": "e", "ts": end * STEP_US + STEP_US - 1}


def _uses(operation: HostAccess) -> dict[str, list[str]]:
    modes = {"reads": operation.reads, "writes": operation.writes}
    return {mode: [_array(use) for use in uses] for mode, uses in modes.items() if uses}


def _array(use: Use) -> str:
    """An array in words: its name, type and shape, and its bytes."""
    (_, start, stop, shape, _, _), name, dtype = use[0], use[1], use[2]
    kind = f"{dtype} {tuple(shape)} " if dtype is not None and shape is not None else ""
    return f"{name + ' ' if name else ''}{kind}{start:#x}..{stop:#x}"


def _frame(frame: Frame) -> str:
    return f"{frame.filename}:{frame.line} {frame.function}"
