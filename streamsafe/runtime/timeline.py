"""A trace as a picture: a timeline for Perfetto or chrome://tracing, and a page that shows one hazard."""

from __future__ import annotations

import html
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamsafe.order.hazard import Access, Conflict, Frame, Hazard
from streamsafe.order.program import (
    Access as AccessOperation,
)
from streamsafe.order.program import (
    CaptureBegin,
    CaptureEnd,
    HostAccess,
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
from streamsafe.runtime.present import describe
from streamsafe.runtime.replay import SUPPRESSED, places, steps
from streamsafe.runtime.session import Session, coded

STEP_US = 10
"""One operation of the trace. The order is real; the durations are not."""

HOST_LANE = "the host"
TEMPLATE = Path(__file__).with_name("hazard.html")


@dataclass(slots=True)
class Step:
    """One operation on a lane.

    Attributes:
        index: its place in the trace.
        lane: the stream's or the host's.
        name: what is shown.
        stack: where it was enqueued.
        hazards: the hazards it is part of.
    """

    index: int
    lane: str
    name: str
    kind: str
    stack: tuple[Frame, ...] = ()
    hazards: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Timeline:
    """What a trace says, laid out: lanes, steps on them, the edges between steps, the hazards."""

    lanes: list[str] = field(default_factory=lambda: [HOST_LANE])
    steps: list[Step] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    hazards: list[Hazard] = field(default_factory=list)
    pairs: list[tuple[int | None, int]] = field(default_factory=list)
    _names: dict[Hashable, str] = field(default_factory=dict)
    _records: dict[Hashable, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)

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
        for index, (operation, conflicts) in enumerate(steps(path)):
            if isinstance(operation, Mark) and operation.name == SUPPRESSED:
                silent.add(operation.data)  # type: ignore[arg-type]
            timeline._lay(index, operation)
            for conflict in conflicts:
                hazard = coded(conflict)
                if places(hazard) not in silent and session.take(hazard, suppressible=False) is not None:
                    timeline._mark(hazard, conflict)
        return timeline

    def _lay(self, index: int, operation: Operation) -> None:
        if isinstance(operation, Stream):
            name = self._names[operation.key] = operation.name or str(operation.key)
            if name not in self.lanes:
                self.lanes.append(name)
        elif isinstance(operation, AccessOperation):
            self._step(index, self._lane(operation.stream), operation.operation, "access", operation.site)
        elif isinstance(operation, HostAccess):
            self._step(index, HOST_LANE, operation.operation, "access", operation.site)
        elif isinstance(operation, Replay):
            self._step(index, self._lane(operation.stream), operation.operation, "access", operation.site)
        elif isinstance(operation, Record):
            self._records[operation.event] = self._step(
                index, self._lane(operation.stream), "record", "edge", operation.site
            )
        elif isinstance(operation, Wait):
            at = self._step(index, self._lane(operation.stream), "wait", "edge", operation.site)
            self._arrow(self._records.get(operation.event), at)
        elif isinstance(operation, SynchronizeStream):
            source = self._last.get(self._lane(operation.stream))
            self._arrow(source, self._step(index, HOST_LANE, "synchronize", "edge", operation.site))
        elif isinstance(operation, SynchronizeEvent):
            at = self._step(index, HOST_LANE, "synchronize", "edge", operation.site)
            self._arrow(self._records.get(operation.event), at)
        elif isinstance(operation, SynchronizeDevice):
            sources = [last for lane, last in self._last.items() if lane != HOST_LANE]
            at = self._step(index, HOST_LANE, "synchronize device", "edge", operation.site)
            for source in sources:
                self._arrow(source, at)
        elif isinstance(operation, (CaptureBegin, CaptureEnd)):
            name = "capture begins" if isinstance(operation, CaptureBegin) else "capture ends"
            self._step(index, self._lane(operation.stream), name, "edge", operation.site)

    def _lane(self, key: Hashable) -> str:
        return self._names.get(key, str(key))

    def _step(self, index: int, lane: str, name: str, kind: str, stack: tuple[Frame, ...]) -> int:
        self.steps.append(Step(index, lane, name, kind, stack))
        self._last[lane] = len(self.steps) - 1
        return len(self.steps) - 1

    def _arrow(self, source: int | None, target: int) -> None:
        if source is not None:
            self.edges.append((source, target))

    def _mark(self, hazard: Hazard, conflict: Conflict) -> None:
        number = len(self.hazards)
        self.hazards.append(hazard)
        last = len(self.steps) - 1
        second = self._find(conflict.second, last)
        first = None
        if conflict.first is not None:
            before = (second if second is not None else last + 1) - 1
            first = self._find(conflict.first, before)
        for found in (first, second):
            if found is not None:
                self.steps[found].hazards.append(number)
        self.pairs.append((first, second if second is not None else last))

    def _find(self, access: Access, latest: int) -> int | None:
        for position in range(latest, -1, -1):
            step = self.steps[position]
            if step.name == access.operation and step.stack[:1] == access.stack[:1]:
                return position
        return None

    def events(self) -> dict[str, Any]:
        """The timeline in the trace event format (JSON): one track a lane, edges as flows, hazards marked."""
        tracks = {lane: number for number, lane in enumerate(self.lanes, 1)}
        for step in self.steps:
            tracks.setdefault(step.lane, len(tracks) + 1)
        out: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "streamsafe"}}
        ]
        for lane, track in tracks.items():
            out.append({"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": lane}})
            out.append(
                {
                    "ph": "M",
                    "pid": 1,
                    "tid": track,
                    "name": "thread_sort_index",
                    "args": {"sort_index": track},
                }
            )
        for step in self.steps:
            event: dict[str, Any] = {
                "ph": "X",
                "pid": 1,
                "tid": tracks[step.lane],
                "ts": step.index * STEP_US,
                "dur": STEP_US - 1,
                "name": step.name,
                "cat": "hazard" if step.hazards else step.kind,
                "args": {"stack": [f"{f.filename}:{f.line} {f.function}" for f in step.stack]},
            }
            if step.hazards:
                event["cname"] = "terrible"
                event["args"]["hazard"] = [self.hazards[number].message for number in step.hazards]
            out.append(event)
        flows = [(source, target, "edge") for source, target in self.edges]
        flows += [(first, second, "missing edge") for first, second in self.pairs if first is not None]
        for number, (source, target, name) in enumerate(flows, 1):
            for phase, position in (("s", source), ("f", target)):
                step = self.steps[position]
                flow: dict[str, Any] = {
                    "ph": phase,
                    "pid": 1,
                    "tid": tracks[step.lane],
                    "id": number,
                    "name": name,
                }
                flow |= {"cat": name, "ts": step.index * STEP_US + 1}
                if phase == "f":
                    flow["bp"] = "e"
                out.append(flow)
        return {"traceEvents": out, "displayTimeUnit": "ms"}

    def page(self, number: int = 1) -> str:
        """A self-contained page with the picture of one hazard, counted from 1.

        Raises:
            LookupError: there is no such hazard.
        """
        if not self.hazards:
            raise LookupError("there is no hazard to show")
        if number > len(self.hazards):
            raise LookupError(f"there are only {len(self.hazards)} hazards")
        hazard = self.hazards[number - 1]
        first, second = self.pairs[number - 1]
        return (
            TEMPLATE.read_text(encoding="utf-8")
            .replace("{{title}}", html.escape(f"{hazard.code} {hazard.name}"))
            .replace("{{message}}", html.escape(hazard.message))
            .replace("{{picture}}", self._picture(first, second))
            .replace("{{text}}", html.escape(describe(hazard, snippets=True)))
        )

    def _picture(self, first: int | None, second: int) -> str:
        """Lanes from top to bottom, time from left to right; what lies between the accesses, and a little around."""
        start = max((first if first is not None else second) - 2, 0)
        shown = list(range(start, min(second + 2, len(self.steps))))
        wanted = {self.steps[second].lane} | ({self.steps[first].lane} if first is not None else set())
        wanted |= {
            self.steps[position].lane for edge in self.edges for position in edge if set(edge) <= set(shown)
        }
        shown = [position for position in shown if self.steps[position].lane in wanted][-40:]
        lanes = [lane for lane in self.lanes if lane in wanted]
        width, height, left = 118, 74, 190
        places = {
            position: (left + column * width, 40 + lanes.index(self.steps[position].lane) * height)
            for column, position in enumerate(shown)
        }
        right = left + len(shown) * width + 20
        parts = [
            f'<svg viewBox="0 0 {right} {40 + len(lanes) * height}" role="img" aria-label="the two accesses">'
        ]
        for row, lane in enumerate(lanes):
            y = 40 + row * height + 16
            parts.append(f'<text class="lane" x="8" y="{y + 5}">{html.escape(lane)}</text>')
            parts.append(f'<line class="lane" x1="{left - 12}" y1="{y}" x2="{right}" y2="{y}"/>')
        for source, target in self.edges:
            if source in places and target in places:
                parts.append(_arrow(places[source], places[target], "edge"))
        if first is not None and first in places and second in places:
            parts.append(_arrow(places[first], places[second], "gap"))
            across = (places[first][0] + places[second][0] + 100) / 2
            down = (places[first][1] + places[second][1] + 32) / 2
            parts.append(f'<text class="gap" x="{across}" y="{down}">no edge</text>')
        for position, (x, y) in places.items():
            step = self.steps[position]
            role = "first" if position == first else "second" if position == second else step.kind
            where = f"{step.stack[0].filename}:{step.stack[0].line}" if step.stack else ""
            parts.append(
                f'<g class="{role}"><title>{html.escape(step.name)} {html.escape(where)}</title>'
                f'<rect x="{x}" y="{y}" width="100" height="32" rx="5"/>'
                f'<text x="{x + 50}" y="{y + 20}">{html.escape(step.name[:15])}</text></g>'
            )
        return "".join([*parts, "</svg>"])


def _arrow(source: tuple[int, int], target: tuple[int, int], kind: str) -> str:
    x1, y1 = source[0] + 100, source[1] + 16
    x2, y2 = target[0], target[1] + 16
    bend = max((x2 - x1) / 2, 20)
    path = f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
    return f'<path class="{kind}" d="{path}" marker-end="url(#{kind})"/>'
