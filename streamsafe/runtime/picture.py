"""A page that shows one hazard: the lanes of its accesses, the edges around them, the gap, both pieces of code."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from pathlib import Path

from streamsafe.order.hazard import Access, Frame, Hazard, Note
from streamsafe.report.sources import Loaded
from streamsafe.runtime.present import array, rows_around
from streamsafe.runtime.timeline import Found, Step, Timeline

TEMPLATE = Path(__file__).with_name("hazard.html")

EDGES = 6
"""Edges drawn at most, besides those that are cited: the last ones before the second access."""
RUN = 2
"""Operations in a row that say nothing about the hazard, from which on they are only counted."""
BEFORE = 6
"""Operations shown before one that is illegal where it stands."""
CALLERS = 4
NOT_YET = "<p>It has not happened yet: the memory is free, and whoever gets it next need not wait.</p>"

WIDTH, HEIGHT, COLUMN, ROW, LEFT, TOP = 134, 44, 154, 104, 200, 34


def page(timeline: Timeline, number: int = 1) -> str:
    """A self-contained page with the picture of one hazard, counted from 1.

    Raises:
        LookupError: there is no such hazard.
    """
    if not timeline.found:
        where = "" if timeline.complete else " in the part of the trace that is there"
        raise LookupError(f"there is no hazard to show{where}")
    if number > len(timeline.found):
        count = len(timeline.found)
        raise LookupError(f"there {'is only 1 hazard' if count == 1 else f'are only {count} hazards'}")
    found = timeline.found[number - 1]
    hazard = found.hazard
    several = f"hazard {number} of {len(timeline.found)}" if len(timeline.found) > 1 else ""
    parts = {
        "title": html.escape(f"{hazard.code} {hazard.name}"),
        "several": several,
        "message": _rich(hazard.message),
        "picture": _Picture(timeline, found).svg(),
        "accesses": "".join(_accesses(hazard)),
        "facts": "".join(_facts(hazard)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def _rich(text: str) -> str:
    """A sentence with its code set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _place(stack: tuple[Frame, ...]) -> str:
    return html.escape(f"{stack[0].filename}:{stack[0].line}") if stack else ""


def _accesses(hazard: Hazard) -> Iterable[str]:
    for title, access in (("First", hazard.first), ("Then", hazard.second)):
        if access is not None:
            role = "alone" if hazard.first is None else title.lower()
            code = _code(access) if not hazard.latent or access is hazard.first else NOT_YET
            yield f'<section class="{role}">{_heading(title, access, hazard)}{code}</section>'


def _heading(title: str, access: Access, hazard: Hazard) -> str:
    what = _rich(f"`{access.operation}` on `{access.timeline}`")
    does = f" {access.reads_or_writes}" if hazard.first is not None else ""
    return f"<h2>{title if hazard.first is not None else 'Here'}: {what}{does}</h2>"


def _code(access: Access) -> str:
    if not access.stack:
        return "<p>It was not enqueued from Python code that is known.</p>"
    frame, *callers = access.stack
    lines = "".join(
        f'<span class="{"here" if row == frame.line else "line"}"><i>{row}</i>{html.escape(text)}</span>'
        for row, text in rows_around(frame, Loaded())
    )
    where = f"<p>{_place(access.stack)} in <code>{html.escape(frame.function)}</code></p>"
    called = "".join(
        f"<li>called from {_place((each,))} in <code>{html.escape(each.function)}</code></li>"
        for each in callers[:CALLERS]
    )
    return where + (f"<pre>{lines}</pre>" if lines else "") + (f"<ul>{called}</ul>" if called else "")


def _facts(hazard: Hazard) -> Iterable[str]:
    rows: list[tuple[str, str]] = []
    known = array(hazard.memory)
    if known:
        rows.append(("Array", html.escape(known)))
    rows.extend(("Note", _note(note)) for note in hazard.notes)
    rows.extend(("Edge that exists", _note(edge)) for edge in hazard.edges)
    if hazard.missing is not None and hazard.first is not None:
        edge = f"`{hazard.missing.source}` → `{hazard.missing.target}`"
        rows.append(("Missing edge", _rich(edge)))
    if hazard.help:
        rows.append(("Fix", _rich(hazard.help)))
    if hazard.count > 1:
        rows.append(("Met", f"{hazard.count} times; the picture shows the first"))
    return (f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)


def _note(note: Note) -> str:
    place = _place(note.stack)
    return _rich(note.message) + (f" <small>{place}</small>" if place else "")


class _Picture:
    """Lanes from top to bottom, time from left to right: the two accesses, and what could have ordered them."""

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

    def _shown(self, ends: set[int]) -> list[int | tuple[int, ...]]:
        """Places of steps, in order; a tuple stands for steps that are only counted."""
        kept = ends | set(self._cited) | {place for edge in self._edges for place in edge}
        columns: list[int | tuple[int, ...]] = []
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

    def svg(self) -> str:
        """The picture."""
        columns = len(self._columns) + (self._found.second is None)
        right, bottom = LEFT + columns * COLUMN + 10, TOP + len(self._lanes) * ROW - (ROW - HEIGHT) + 24
        size = f'style="width:{right}px;min-width:min({right}px,72rem)" viewBox="0 0 {right} {bottom}"'
        parts = ["<title>the two accesses, and the edges around them</title>"]
        for lane in self._lanes:
            y = self._y(lane) + HEIGHT // 2
            label = html.escape(_short(self._timeline.lanes[lane].label, 24))
            parts.append(f'<text class="lane" x="8" y="{y + 5}">{label}</text>')
            parts.append(f'<line class="lane" x1="{LEFT - 14}" y1="{y}" x2="{right}" y2="{y}"/>')
        corners: dict[int, tuple[int, int]] = {}
        for column, entry in enumerate(self._columns):
            x = LEFT + column * COLUMN
            if isinstance(entry, tuple):
                parts.append(self._counted(x, entry))
            else:
                corners[entry] = (x, self._y(self._timeline.steps[entry].lane))
                parts.append(self._box(entry, *corners[entry]))
        for begin, end in self._edges:
            if begin in corners and end in corners:
                parts.append(_arrow(corners[begin], corners[end], "edge"))
        parts.extend(self._gap(corners))
        return f'<svg {size} role="img">{"".join(parts)}</svg>'

    def _gap(self, corners: dict[int, tuple[int, int]]) -> Iterable[str]:
        """What is missing between the two accesses; the second one is still to come where the hazard is latent."""
        found = self._found
        if found.second is not None:
            second = corners[found.second]
        else:
            second = (LEFT + len(self._columns) * COLUMN, self._y(self._pair[-1]))
            yield _rectangle("second latent", *second, found.hazard.second.operation, "still to come")
        if found.first is not None:
            first = corners[found.first]
            x, y = _middle(first, second)
            said = "no edge" if found.hazard.missing is not None else "same memory"
            yield _arrow(first, second, "gap")
            yield f'<text class="gap" x="{x}" y="{y + 5}">{said}</text>'

    def _y(self, lane: int) -> int:
        return TOP + self._lanes.index(lane) * ROW

    def _counted(self, x: int, places: tuple[int, ...]) -> str:
        lanes = [self._timeline.steps[place].lane for place in places]
        middle, above = x + WIDTH // 2, HEIGHT // 2 - 8
        return "".join(
            f'<text class="more" x="{middle}" y="{self._y(lane) + above}">{lanes.count(lane)} more</text>'
            for lane in dict.fromkeys(lanes)
        )

    def _box(self, place: int, x: int, y: int) -> str:
        step = self._timeline.steps[place]
        role: str = step.kind
        if place == self._found.first:
            role = "first"
        elif place == self._found.second:
            role = "second"
        elif place in self._cited:
            role += " cited"
        return _rectangle(role, x, y, step.name, _line(step), self._cited.get(place, ""))


def _line(step: Step) -> str:
    if not step.stack:
        return ""
    row = f":{step.stack[0].line}"
    return _short(Path(step.stack[0].filename).name, 20 - len(row)) + row


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _rectangle(role: str, x: int, y: int, name: str, where: str, title: str = "") -> str:
    full = html.escape(" ".join(part for part in (name, where, title) if part))
    return (
        f'<g class="{role}"><title>{full}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + WIDTH // 2}" y="{y + 19}">{html.escape(_short(name, 18))}</text>'
        f'<text class="where" x="{x + WIDTH // 2}" y="{y + 35}">{html.escape(where)}</text></g>'
    )


def _ends(source: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """From the side of the one box that faces the other one; over the top where they share a lane."""
    (x1, y1), (x2, y2) = source, target
    down = y2 > y1
    return x1 + WIDTH // 2, y1 + HEIGHT * down, x2 + WIDTH // 2, y2 + HEIGHT * (y2 < y1)


def _middle(source: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    x1, y1, x2, y2 = _ends(source, target)
    return (x1 + x2) // 2, (y1 + y2) // 2 - (24 if source[1] == target[1] else 0)


def _arrow(source: tuple[int, int], target: tuple[int, int], kind: str) -> str:
    x1, y1, x2, y2 = _ends(source, target)
    bend = (y2 - y1) * 2 // 3 or -32
    up = bend if source[1] == target[1] else -bend
    path = f"M{x1},{y1} C{x1},{y1 + bend} {x2},{y2 + up} {x2},{y2}"
    return f'<path class="{kind}" d="{path}" marker-end="url(#{kind})"/>'
