"""A page that shows the hazards of a trace: an index, and for each the picture, both pieces of code and the fix."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from pathlib import Path

from streamsafe.order.hazard import Access, Frame, Hazard, Note
from streamsafe.order.wording import access_phrase, missing_edge, shown
from streamsafe.report.run_time import array, place_of, rows_around
from streamsafe.report.sources import Loaded
from streamsafe.view.picture import Picture
from streamsafe.view.timeline import Found, Timeline

TEMPLATE = Path(__file__).with_name("hazard.html")

CALLERS = 4
MOST = 100
"""Hazards on a page at most."""
NOT_YET = "<p>It has not happened yet: the memory is free, and its next user need not wait.</p>"


def page(timeline: Timeline, number: int | None = None) -> str:
    """A self-contained page.

    Args:
        number: of the one hazard to show, from 1; all of them where it is None.

    Raises:
        LookupError: there is no such hazard.
    """
    found = timeline.found
    if not found:
        where = "" if timeline.complete else " in the part of the trace that is there"
        raise LookupError(f"there is no hazard to show{where}")
    if number is not None and number > len(found):
        count = len(found)
        raise LookupError(f"there {'is only 1 hazard' if count == 1 else f'are only {count} hazards'}")
    numbered = list(enumerate(found, 1))[:MOST] if number is None else [(number, found[number - 1])]
    parts = {
        "title": _title(found) if len(numbered) > 1 else html.escape(_name(numbered[0][1].hazard)),
        "index": _index(numbered, len(found)) if len(numbered) > 1 else "",
        "hazards": "".join(_article(timeline, each, place, len(found)) for place, each in numbered),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def _name(hazard: Hazard) -> str:
    return f"{hazard.code} {hazard.name}"


def _title(found: list[Found]) -> str:
    return f"{len(found)} stream hazards"


def _index(numbered: list[tuple[int, Found]], count: int) -> str:
    """One line for each hazard, linked to its article."""
    rows = "".join(
        f'<li><a href="#hazard-{number}">{html.escape(_name(found.hazard))}</a> '
        f"<small>{html.escape(place_of(found.hazard))}</small><br>{_rich(found.hazard.message)}</li>"
        for number, found in numbered
    )
    more = f"<p>The first {MOST} of {count} are shown.</p>" if count > len(numbered) else ""
    return f"<nav><h1>{count} stream hazards</h1><ol>{rows}</ol>{more}</nav>"


def _article(timeline: Timeline, found: Found, number: int, count: int) -> str:
    """One hazard."""
    hazard = found.hazard
    picture = Picture(timeline, found)
    level = "h1" if count == 1 else "h2"
    several = f" <small>hazard {number} of {count}</small>" if count > 1 else ""
    latent = " <small>latent</small>" if hazard.latent else ""
    return (
        f'<article id="hazard-{number}"><{level}>{html.escape(_name(hazard))}{latent}{several}</{level}>'
        f"<p>{_rich(hazard.message)}</p>"
        f'<div class="picture">{picture.wide()}{picture.tall()}</div>'
        f'<div class="accesses">{"".join(_accesses(hazard))}</div>'
        f"<dl>{''.join(_facts(hazard))}</dl></article>"
    )


def _rich(text: str) -> str:
    """A sentence with its code set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _place(stack: tuple[Frame, ...]) -> str:
    return html.escape(f"{shown(stack[0].filename)}:{stack[0].line}") if stack else ""


def _accesses(hazard: Hazard) -> Iterable[str]:
    for title, access in (("First", hazard.first), ("Then", hazard.second)):
        if access is not None:
            role = "alone" if hazard.first is None else title.lower()
            code = _code(access) if not hazard.latent or access is hazard.first else NOT_YET
            yield f'<section class="{role}">{_heading(title, access, hazard)}{code}</section>'


def _heading(title: str, access: Access, hazard: Hazard) -> str:
    what = _rich(access_phrase(access))
    does = f" {access.reads_or_writes}" if hazard.first is not None else ""
    return f"<h3>{title if hazard.first is not None else 'Here'}: {what}{does}</h3>"


def _code(access: Access) -> str:
    if not access.stack:
        return "<p>It was not enqueued from Python code that is known.</p>"
    frame, *callers = access.stack
    lines = "".join(
        f'<span class="{"here" if row == frame.line else "line"}"><i>{row}</i>{_marked(text, row, frame)}</span>'
        for row, text in rows_around(frame, Loaded())
    )
    where = f"<p>{_place(access.stack)} in <code>{html.escape(frame.function)}</code></p>"
    called = "".join(
        f"<li>called from {_place((each,))} in <code>{html.escape(each.function)}</code></li>"
        for each in callers[:CALLERS]
    )
    return where + (f"<pre>{lines}</pre>" if lines else "") + (f"<ul>{called}</ul>" if called else "")


def _marked(text: str, row: int, frame: Frame) -> str:
    """A row of code; on the access's line the call is marked, where it is known."""
    if row != frame.line or not frame.column:
        return html.escape(text)
    end = frame.end_column - 1 if frame.end_line == frame.line else len(text)
    before, call, after = text[: frame.column - 1], text[frame.column - 1 : end], text[end:]
    return f"{html.escape(before)}<mark>{html.escape(call)}</mark>{html.escape(after)}"


def _facts(hazard: Hazard) -> Iterable[str]:
    rows: list[tuple[str, str]] = []
    known = array(hazard.memory)
    if known:
        rows.append(("Array", html.escape(known)))
    rows.extend(("Note", _note(note)) for note in hazard.notes)
    rows.extend(("Edge that exists", _note(edge)) for edge in hazard.edges)
    if hazard.missing is not None and hazard.first is not None:
        rows.append(("Missing edge", _rich(" → ".join(missing_edge(hazard)))))
    if hazard.help:
        rows.append(("Fix", f"<code>{html.escape(hazard.help)}</code>"))
    if hazard.count > 1:
        rows.append(("Seen", f"{hazard.count} times; the first is shown"))
    return (f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)


def _note(note: Note) -> str:
    place = _place(note.stack)
    return _rich(note.message) + (f" <small>{place}</small>" if place else "")
