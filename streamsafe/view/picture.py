"""The picture of one hazard: the lanes of its accesses, the edges around them, and the gap between them."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from streamsafe.view.timeline import Found, Step, Timeline

EDGES = 6
"""Edges drawn at most, besides those that are cited: the last ones before the second access."""
RUN = 2
"""Operations in a row that say nothing about the hazard, from which on they are only counted."""
BEFORE = 6
"""Operations shown before one that is illegal where it stands."""
NARROW = 3
"""Lanes of the picture for narrow screens at most."""

WIDTH, HEIGHT = 134, 44

Point = tuple[int, int]
Column = int | tuple[int, ...]
"""The place of a step, or those of steps that are only counted."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand.

    Attributes:
        tall: time runs from top to bottom and lanes stand side by side; else from left to right, one below the other.
        along, across: from one operation to the next, and from one lane to the next.
        before: room for the names of the lanes, along the time.
        margin: room before the first lane.
    """

    tall: bool
    along: int
    across: int
    before: int
    margin: int

    def corner(self, place: int, lane: int) -> Point:
        """The upper left corner of a box."""
        time, side = self.before + place * self.along, self.margin + lane * self.across
        return (side, time) if self.tall else (time, side)

    def size(self, places: int, lanes: int) -> Point:
        """Width and height of the whole picture."""
        time, side = self.before + places * self.along + 10, self.margin + lanes * self.across
        return (side, time) if self.tall else (time, side - (self.across - HEIGHT) + 24)

    def arrow(self, source: Point, target: Point) -> tuple[str, Point]:
        """The path from one box to another, and its middle."""
        return _down(source, target) if self.tall else _across(source, target)


WIDE = Layout(tall=False, along=154, across=104, before=200, margin=34)
TALL = Layout(tall=True, along=74, across=150, before=44, margin=8)


def _across(source: Point, target: Point) -> tuple[str, Point]:
    """From the side of the one box that faces the other one; over the top where they share a lane."""
    (x, y), (x2, y2) = source, target
    same, bend = y == y2, 0
    x1, y1 = x + WIDTH // 2, y + HEIGHT * (y2 > y)
    x2, y2 = x2 + WIDTH // 2, y2 + HEIGHT * (y2 < y)
    bend = (y2 - y1) * 2 // 3 or -32
    path = f"M{x1},{y1} C{x1},{y1 + bend} {x2},{y2 + (bend if same else -bend)} {x2},{y2}"
    return path, ((x1 + x2) // 2, (y1 + y2) // 2 - (24 if same else 0))


def _down(source: Point, target: Point) -> tuple[str, Point]:
    """From the bottom of the one box to the top of the other; between the lanes, where others lie on the way."""
    (left, y), (x2, y2) = source, target
    x1, y1 = left + WIDTH // 2, y + HEIGHT
    gutter = x2 - 8 if x2 > left else x2 + WIDTH + 8
    x2 += WIDTH // 2
    if y2 - y1 <= TALL.along:
        bend = max((y2 - y1) * 2 // 3, 16)
        return f"M{x1},{y1} C{x1},{y1 + bend} {x2},{y2 - bend} {x2},{y2}", ((x1 + x2) // 2, (y1 + y2) // 2)
    begin, end = y1 + 34, y2 - 34
    path = f"M{x1},{y1} C{x1},{y1 + 20} {gutter},{y1 + 10} {gutter},{begin} L{gutter},{end}"
    return f"{path} C{gutter},{y2 - 10} {x2},{y2 - 28} {x2},{y2}", (gutter, (begin + end) // 2)


class Picture:
    """The two accesses, and what could have ordered them."""

    def __init__(self, timeline: Timeline, found: Found) -> None:
        self._timeline = timeline
        self._found = found
        self._cited = self._citations()
        ends = [place for place in (found.first, found.second) if place is not None]
        last = found.second
        if last is None:  # latent: it has not happened yet
            last = max([*ends, *self._cited], default=len(timeline.steps) - 1)
        self._begin = found.first if found.first is not None else max(last - BEFORE, 0)
        self._end = last
        self._pair = [timeline.steps[place].lane for place in ends] or [0]
        if found.second is None:
            self._pair.append(self._lane_named(found.hazard.second.timeline))
        self._edges = [edge for edge in timeline.edges if self._matters(*edge)][-EDGES:]
        self._columns = self._shown(set(ends))
        self._lanes = self._stacked()

    def _lane_named(self, name: str) -> int:
        return next((n for n, lane in enumerate(self._timeline.lanes) if lane.name == name), 0)

    def _citations(self) -> dict[int, str]:
        """The steps that the hazard's notes and nearest edges are about."""
        hazard, steps = self._found.hazard, self._timeline.steps
        before = len(steps) if self._found.second is None else self._found.second
        cited = {}
        for note in (*hazard.notes, *hazard.edges):
            for place in range(before - 1, -1, -1):
                step = steps[place]
                if note.stack and step.kind != "access" and step.stack[:1] == note.stack[:1]:
                    cited[place] = note.message
                    break
        return cited

    def _matters(self, source: int, target: int) -> bool:
        if {source, target} <= self._cited.keys():
            return True
        leaves, enters = self._timeline.steps[source].lane, self._timeline.steps[target].lane
        if self._found.first is None:
            near = bool({leaves, enters} & set(self._pair))
        else:  # from where the first access runs, after it; to where the second runs, before it
            near = (leaves == self._pair[0] and source >= self._begin) or enters == self._pair[-1]
        return near and self._begin < target <= self._end

    def _shown(self, ends: set[int]) -> list[Column]:
        """Places of steps, in order; a tuple stands for steps that are only counted."""
        kept = ends | set(self._cited) | {place for edge in self._edges for place in edge}
        columns: list[Column] = []
        run: list[int] = []
        for place in range(min([*kept, self._begin]), self._end + 1):
            if place in kept:
                columns += [tuple(run)] if len(run) > RUN else run
                columns.append(place)
                run = []
            elif self._begin <= place and self._timeline.steps[place].lane in self._pair:
                if self._timeline.steps[place].kind != "memory":
                    run.append(place)
        return columns

    def _stacked(self) -> list[int]:
        """The lanes from top to bottom: those of the pair are neighbours."""
        pair = list(dict.fromkeys(self._pair))
        places = [
            place for column in self._columns for place in ([column] if isinstance(column, int) else column)
        ]
        others = sorted({self._timeline.steps[place].lane for place in places} - set(pair))
        above = [lane for lane in others if self._timeline.lanes[lane].device is None]
        return [*above, *pair, *(lane for lane in others if lane not in above)]

    def wide(self) -> str:
        """Lanes from top to bottom, time from left to right."""
        return _Drawing(self, WIDE, self._lanes, self._columns).svg()

    def tall(self) -> str:
        """Lanes side by side, time from top to bottom: for narrow screens, with few lanes."""
        lanes = self._lanes
        if len(lanes) > NARROW:
            steps = self._timeline.steps
            used = [steps[place].lane for edge in self._edges for place in edge] + [
                steps[place].lane for place in self._cited
            ]
            kept = sorted(set(lanes) - set(self._pair), key=lambda lane: -used.count(lane))
            few = {*self._pair, *kept[: NARROW - len(set(self._pair))]}
            lanes = [lane for lane in lanes if lane in few]
        columns = [each for column in self._columns if (each := self._of_lanes(column, lanes)) is not None]
        return _Drawing(self, TALL, lanes, columns).svg()

    def _of_lanes(self, column: Column, lanes: list[int]) -> Column | None:
        steps = self._timeline.steps
        if isinstance(column, int):
            return column if steps[column].lane in lanes else None
        return tuple(place for place in column if steps[place].lane in lanes) or None


class _Drawing:
    """One picture in one layout."""

    def __init__(self, picture: Picture, layout: Layout, lanes: list[int], columns: list[Column]) -> None:
        self._timeline = picture._timeline
        self._found = picture._found
        self._picture = picture
        self._layout = layout
        self._lanes = lanes
        self._columns = columns

    def svg(self) -> str:
        layout = self._layout
        places = len(self._columns) + (self._found.second is None)
        width, height = layout.size(places, len(self._lanes))
        parts = ["<title>the two accesses, and the edges around them</title>"]
        for lane in self._lanes:
            parts.extend(self._lane(lane, width, height))
        corners: dict[int, Point] = {}
        for column, entry in enumerate(self._columns):
            if isinstance(entry, tuple):
                parts.extend(self._counted(column, entry))
            else:
                corners[entry] = layout.corner(column, self._side(self._timeline.steps[entry].lane))
                parts.append(self._box(entry, corners[entry]))
        for begin, end in self._picture._edges:
            if begin in corners and end in corners:
                parts.append(self._arrow(corners[begin], corners[end], "edge"))
        parts.extend(self._gap(corners))
        least = f"min({width}px,72rem)" if not layout.tall else "0"
        kind = "tall" if layout.tall else "wide"
        size = f'style="width:{width}px;min-width:{least}" viewBox="0 0 {width} {height}"'
        return f'<svg class="{kind}" {size} role="img">{"".join(parts)}</svg>'

    def _side(self, lane: int) -> int:
        return self._lanes.index(lane)

    def _lane(self, lane: int, width: int, height: int) -> Iterable[str]:
        x, y = self._layout.corner(0, self._side(lane))
        name = self._timeline.lanes[lane].label
        full = f"<title>{html.escape(name)}</title>"
        if self._layout.tall:
            middle = x + WIDTH // 2
            yield f'<text class="lane" text-anchor="middle" x="{middle}" y="20">{full}{_text(name, 19)}</text>'
            yield f'<line class="lane" x1="{middle}" y1="30" x2="{middle}" y2="{height}"/>'
        else:
            middle = y + HEIGHT // 2
            yield f'<text class="lane" x="8" y="{middle + 5}">{full}{_text(name, 24)}</text>'
            yield f'<line class="lane" x1="{x - 14}" y1="{middle}" x2="{width}" y2="{middle}"/>'

    def _counted(self, column: int, places: tuple[int, ...]) -> Iterable[str]:
        lanes = [self._timeline.steps[place].lane for place in places]
        for lane in dict.fromkeys(lanes):
            x, y = self._layout.corner(column, self._side(lane))
            middle = y + HEIGHT // 2 - (0 if self._layout.tall else 8)
            yield f'<text class="more" x="{x + WIDTH // 2}" y="{middle}">{lanes.count(lane)} more</text>'

    def _box(self, place: int, corner: Point) -> str:
        step = self._timeline.steps[place]
        role: str = step.kind
        cited = self._picture._cited
        if place == self._found.first:
            role = "first"
        elif place == self._found.second:
            role = "second"
        elif place in cited:
            role += " cited"
        return _rectangle(role, corner, step.name, _line(step), cited.get(place, ""))

    def _arrow(self, source: Point, target: Point, kind: str) -> str:
        path, _ = self._layout.arrow(source, target)
        return f'<path class="{kind}" d="{path}" marker-end="url(#{kind})"/>'

    def _gap(self, corners: dict[int, Point]) -> Iterable[str]:
        """What is missing between the two accesses; the second one is still to come where the hazard is latent."""
        found = self._found
        if found.second is not None:
            second = corners[found.second]
        else:
            second = self._layout.corner(len(self._columns), self._side(self._picture._pair[-1]))
            yield _rectangle("second latent", second, found.hazard.second.operation, "still to come")
        if found.first is not None:
            first = corners[found.first]
            _, (x, y) = self._layout.arrow(first, second)
            said = "no edge" if found.hazard.missing is not None else "same memory"
            yield self._arrow(first, second, "gap")
            yield f'<text class="gap" x="{x}" y="{y + 5}">{said}</text>'


def _line(step: Step) -> str:
    if not step.stack:
        return ""
    row = f":{step.stack[0].line}"
    return _short(Path(step.stack[0].filename).name, 20 - len(row)) + row


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(text: str, most: int) -> str:
    return html.escape(_short(text, most))


def _rectangle(role: str, corner: Point, name: str, where: str, title: str = "") -> str:
    x, y = corner
    full = html.escape(" ".join(part for part in (name, where, title) if part))
    return (
        f'<g class="{role}"><title>{full}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + WIDTH // 2}" y="{y + 19}">{_text(name, 18)}</text>'
        f'<text class="where" x="{x + WIDTH // 2}" y="{y + 35}">{html.escape(where)}</text></g>'
    )
