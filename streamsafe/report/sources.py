"""Where reports take source lines from, and a hazard whose places are all spans."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from streamsafe.order.hazard import Access, Frame, Hazard, Note, Span


class Source(Protocol):
    """The text of one file. A notebook's is that of its code cells, one after the other."""

    @property
    def text(self) -> str:
        """All of it; empty when the file cannot be read."""

    @property
    def lines(self) -> list[str]:
        """The rows, without their ends."""

    def place(self, row: int) -> tuple[int | None, int]:
        """The notebook cell that a row stands in, or None, and the row in it."""


class Sources(Protocol):
    """The texts of files by path."""

    def __getitem__(self, path: str) -> Source:
        """The text of a file; an empty one when it cannot be read."""


@dataclass(frozen=True)
class Plain:
    """A text with no cells."""

    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def place(self, row: int) -> tuple[int | None, int]:
        return None, row


class Loaded:
    """The sources of a running program, as tracebacks show them: what is typed into a prompt or a cell, too."""

    def __init__(self) -> None:
        self._known: dict[str, Plain] = {}

    def __getitem__(self, path: str) -> Plain:
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = Plain("".join(linecache.getlines(path)))
        return known


def located(hazard: Hazard, sources: Sources) -> Hazard:
    """The hazard with a span wherever a stack says where: from then on a run-time hazard is like a static one."""

    def access(each: Access) -> Access:
        return replace(each, span=each.span or span_of(each.stack, sources))

    def note(each: Note) -> Note:
        return replace(each, span=each.span or span_of(each.stack, sources))

    return replace(
        hazard,
        first=access(hazard.first) if hazard.first is not None else None,
        second=access(hazard.second),
        notes=tuple(map(note, hazard.notes)),
        edges=tuple(map(note, hazard.edges)),
    )


def span_of(stack: tuple[Frame, ...], sources: Sources) -> Span | None:
    """The place of the innermost frame: the call where Python knows it, else the whole line."""
    if not stack:
        return None
    frame = stack[0]
    if frame.column:
        return Span(frame.filename, frame.line, frame.column, frame.end_line, frame.end_column)
    lines = sources[frame.filename].lines
    text = lines[frame.line - 1].rstrip() if 0 < frame.line <= len(lines) else ""
    indent = len(text) - len(text.lstrip())
    return Span(frame.filename, frame.line, indent + 1, frame.line, max(len(text), indent) + 1)
