"""A hazard in words, with the two lines of code, and as data."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from typing import Any, Literal, TextIO

from streamsafe.order.hazard import Access, Frame, Hazard, Memory, Note
from streamsafe.registry import rule as rule_of
from streamsafe.report.colour import wanted
from streamsafe.report.paths import shown

BOLD, RED, RESET = "\033[1m", "\033[31m", "\033[0m"
CONTEXT = 2
"""Lines shown around the line of an access."""


def describe(hazard: Hazard, *, snippets: bool = False) -> str:
    """The hazard in a few lines: what, both accesses and where they are, the missing edge and the fix.

    Args:
        snippets: also show the source around both accesses.
    """
    sure = "" if hazard.confidence == "certain" else f" ({hazard.confidence})"
    latent = " (latent)" if hazard.latent else ""
    lines = [f"{hazard.code} {hazard.name}{sure}{latent}: {hazard.message}"]
    for label, access in (("first", hazard.first), ("then", hazard.second)):
        if access is None:
            continue
        does = "reads" if access.reads_or_writes == "reads" else "writes"
        lines.append(f"  {label + ':':7}{access.operation} {does} on {access.timeline}{_where(access.stack)}")
        if snippets and access.stack:
            lines.extend(f"    {line}" for line in snippet(access.stack[0]))
            lines.extend(f"         called from {_place_of(frame)}" for frame in access.stack[1:])
    known = array(hazard.memory)
    if known:
        lines.append(f"  array: {known}")
    lines.extend(f"  note:  {note.message}{_where(note.stack)}" for note in hazard.notes)
    lines.extend(f"  edge:  {edge.message}{_where(edge.stack)}" for edge in hazard.edges)
    if hazard.help:
        lines.append(f"  fix:   {hazard.help}")
    if hazard.count > 1:
        lines.append(f"  met {hazard.count} times")
    return "\n".join(lines)


def place_of(hazard: Hazard) -> str:
    """``file:line`` of the second access; of the first where the second has not happened yet; or nothing."""
    for access in (hazard.second, hazard.first):
        if access is not None and access.stack:
            return f"{shown(access.stack[0].filename)}:{access.stack[0].line}"
    return ""


def _where(stack: tuple[Frame, ...]) -> str:
    return f"  [{_place_of(stack[0])}]" if stack else ""


def _place_of(frame: Frame) -> str:
    return f"{shown(frame.filename)}:{frame.line} in {frame.function}"


def show(hazard: Hazard, file: TextIO) -> None:
    """Prints the hazard with both pieces of code, in colour on a terminal."""
    colour = wanted(file)
    for line, strong in emphasized(hazard):
        codes = BOLD + RED if strong == "message" else BOLD if strong else ""
        print(f"{codes}{line}{RESET}" if colour and codes else line, file=file)


def emphasized(hazard: Hazard) -> Iterator[tuple[str, Literal["message", "line", ""]]]:
    """The lines of a hazard, and which of them stand out: its message, the two accesses with their lines, the fix."""
    first, *rest = describe(hazard, snippets=True).splitlines()
    yield first, "message"
    for line in rest:
        yield line, "line" if line.lstrip().startswith((">", "first:", "then:", "fix:")) else ""


def array(memory: Memory) -> str:
    """What is known of an array: its name, type and shape, and how many bytes the accesses have in common."""
    kind = " ".join(str(part) for part in (memory.dtype, memory.shape) if part is not None)
    size = ""
    if memory.start is not None and memory.stop is not None and memory.stop > memory.start:
        size = f"{memory.stop - memory.start} bytes at {memory.start:#x}"
    return ", ".join(part for part in (memory.name, kind, size) if part)


def rows_around(frame: Frame) -> list[tuple[int, str]]:
    """The numbered rows around a frame's line; empty when the file cannot be read."""
    rows = range(max(frame.line - CONTEXT, 1), frame.line + CONTEXT + 1)
    return [(row, text.rstrip()) for row in rows if (text := linecache.getline(frame.filename, row))]


def snippet(frame: Frame) -> list[str]:
    """The source around a frame's line, which is marked; empty when the file cannot be read."""
    return [
        f"{'>' if row == frame.line else ' '} {row:5} {text}".rstrip() for row, text in rows_around(frame)
    ]


def as_dict(hazard: Hazard) -> dict[str, Any]:
    """The hazard as JSON data: the keys of a static finding, and both accesses with their stacks."""
    rule = rule_of(hazard.code)
    return {
        "code": hazard.code,
        "name": hazard.name,
        "message": hazard.message,
        **_place(hazard.second.stack),
        "related": [
            *([_related(hazard.first, hazard)] if hazard.first is not None and hazard.first.stack else []),
            *(_note(note) for note in (*hazard.notes, *hazard.edges) if note.stack),
        ],
        "severity": rule.severity if rule is not None else "error",
        "confidence": hazard.confidence,
        "latent": hazard.latent,
        "count": hazard.count,
        "first": None if hazard.first is None else _access(hazard.first),
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


def _place(stack: tuple[Frame, ...]) -> dict[str, Any]:
    if not stack:
        return {"filename": None, "location": None, "end_location": None}
    path, line = stack[0].filename, stack[0].line
    text = linecache.getline(path, line).rstrip()
    return {
        "filename": os.path.abspath(path) if os.path.exists(path) else path,
        "location": {"row": line, "column": len(text) - len(text.lstrip()) + 1},
        "end_location": {"row": line, "column": len(text) + 1},
    }


def _related(access: Access, hazard: Hazard) -> dict[str, Any]:
    message = (
        f"{access.operation} on {access.timeline} {access.reads_or_writes} {hazard.memory.name or 'it'} here"
    )
    return {**_place(access.stack), "message": message}


def _note(note: Note) -> dict[str, Any]:
    return {**_place(note.stack), "message": note.message}


def _access(access: Access) -> dict[str, Any]:
    return {
        "operation": access.operation,
        "timeline": access.timeline,
        "reads_or_writes": access.reads_or_writes,
        "stack": [{"filename": f.filename, "line": f.line, "function": f.function} for f in access.stack],
    }
