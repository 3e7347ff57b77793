"""A run-time hazard as text, by the renderer that `check` uses, and as data."""

from __future__ import annotations

import os
from typing import Any, TextIO

from streamsafe.order.hazard import Access, Frame, Hazard, Memory, Note, Span
from streamsafe.order.wording import access_phrase, block, shown
from streamsafe.report.colour import wanted
from streamsafe.report.full import Style, plain, render
from streamsafe.report.sources import Loaded, Sources, located
from streamsafe.rule import find_rule

CONTEXT = 2
"""Lines shown around the line of an access."""


def describe(hazard: Hazard, style: Style = plain) -> str:
    """The hazard in full: what, both accesses with their source, what explains them, the missing edge and the fix."""
    return render(hazard, Loaded(), style)


def place_of(hazard: Hazard) -> str:
    """``file:line`` of the second access; of the first where the second has not happened yet; or nothing."""
    frame = frame_of(hazard)
    return f"{shown(frame.filename)}:{frame.line}" if frame is not None else ""


def frame_of(hazard: Hazard) -> Frame | None:
    """The user's line that a hazard stands on."""
    accesses = (hazard.first, hazard.second) if hazard.latent else (hazard.second, hazard.first)
    return next((access.stack[0] for access in accesses if access is not None and access.stack), None)


def show(hazard: Hazard, file: TextIO) -> None:
    """Prints the hazard and an empty line, in colour on a terminal."""
    style: Style = plain
    if wanted(file):
        import click

        style = click.style
    print(describe(hazard, style), end="\n\n", file=file)


def array(memory: Memory) -> str:
    """What is known of an array: its name, type and shape, and how many bytes the accesses have in common."""
    kind = " ".join(str(part) for part in (memory.dtype, memory.shape) if part is not None)
    size = ""
    if memory.start is not None and memory.stop is not None and memory.stop > memory.start:
        size = f"{memory.stop - memory.start} bytes at {memory.start:#x}"
    return ", ".join(part for part in (memory.name, kind, size) if part)


def rows_around(frame: Frame, sources: Sources) -> list[tuple[int, str]]:
    """The numbered rows around a frame's line; empty when the file cannot be read."""
    source = sources[frame.filename]
    if not source.text:
        return []
    rows = range(max(frame.line - CONTEXT, 1), min(frame.line + CONTEXT, len(source.lines)) + 1)
    return [(row, source.lines[row - 1].rstrip()) for row in rows]


def as_dict(hazard: Hazard) -> dict[str, Any]:
    """The hazard as JSON data: the keys of a static hazard, and both accesses with their stacks."""
    rule = find_rule(hazard.code)
    hazard = located(hazard, Loaded())
    first = hazard.first
    return {
        "code": hazard.code,
        "name": hazard.name,
        "message": hazard.message,
        **_place(hazard.second.span),
        "related": [
            *([_related(first, hazard)] if first is not None and first.span is not None else []),
            *(_note(note) for note in (*hazard.notes, *hazard.edges) if note.span is not None),
        ],
        "severity": rule.severity if rule is not None else "error",
        "confidence": hazard.confidence,
        "latent": hazard.latent,
        "count": hazard.count,
        "first": None if first is None else _access(first),
        "second": _access(hazard.second),
        "memory": {
            "name": hazard.memory.name,
            "owner": hazard.memory.owner,
            "shape": hazard.memory.shape,
            "dtype": hazard.memory.dtype,
            "start": hazard.memory.start,
            "stop": hazard.memory.stop,
        },
        "missing": None
        if hazard.missing is None
        else {"source": hazard.missing.source, "target": hazard.missing.target, "fix": hazard.missing.fix},
        "help": hazard.help or None,
        "fix": None,
        "url": rule.url if rule is not None else None,
    }


def _place(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {"filename": None, "location": None, "end_location": None}
    path = span.filename
    return {
        "filename": os.path.abspath(path) if os.path.exists(path) else path,
        "location": {"row": span.row, "column": span.column},
        "end_location": {"row": span.end_row, "column": span.end_column},
    }


def _related(access: Access, hazard: Hazard) -> dict[str, Any]:
    message = f"{access_phrase(access)} {access.reads_or_writes} {block(hazard)} here"
    return {**_place(access.span), "message": message}


def _note(note: Note) -> dict[str, Any]:
    return {**_place(note.span), "message": note.message}


def _access(access: Access) -> dict[str, Any]:
    return {
        "operation": access.operation,
        "timeline": access.timeline,
        "reads_or_writes": access.reads_or_writes,
        "stack": [{"filename": f.filename, "line": f.line, "function": f.function} for f in access.stack],
        **({"module": access.module} if access.module else {}),
    }


def portable(hazard: Hazard, *, shown: bool = False) -> dict[str, Any]:
    """A hazard as data for a summary.

    Args:
        hazard: what was found.
        shown: its text is elsewhere.
    """
    known = {"code": hazard.code, "name": hazard.name, "message": hazard.message, "latent": hazard.latent}
    sure = {"confidence": hazard.confidence, "place": place_of(hazard)}
    return {**known, **sure, "text": "" if shown else describe(hazard)}
