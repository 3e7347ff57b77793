"""From pairs of accesses to conflicts: who, where, on which stream, and the edge that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from streamsafe.order.hazard import (
    CONFIDENCES,
    Access,
    Confidence,
    Conflict,
    Facts,
    Memory,
    Missing,
    Mode,
    Note,
    Span,
)
from streamsafe.static import confidence
from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import Access as Touch
from streamsafe.static.domain.atoms import COMMUNICATION, CURRENT, DEFAULT, GRADIENTS, HOST, Atom, New, Path
from streamsafe.static.domain.places import EACH, PAST, SOME, is_element
from streamsafe.static.domain.state import Wait
from streamsafe.static.helps import Help
from streamsafe.static.summary.facts import MODULE, OUTER
from streamsafe.static.summary.model import Pair
from streamsafe.static.summary.solve import Engine


class Findings:
    """Conflicts of pairs, one for each missing edge at each place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: dict[tuple[object, ...], tuple[int, str, Conflict]] = {}
        self._lines: dict[str, list[str] | None] = {}

    def add(self, pair: Pair) -> None:
        """Keep a pair: of several at one place for one missing edge, the surest."""
        sure = confidence.weigh(pair)
        key = _key(pair)
        rank = CONFIDENCES.index(sure)
        known = self._found.get(key)
        if known is not None and known[0] <= rank:
            return
        self._found[key] = (rank, sure, self._conflict(pair, sure))

    def conflicts(self) -> list[Conflict]:
        """All of them, by place: of the same two places under several names of their streams, the surest."""
        found: dict[object, Conflict] = {}
        for _, _, conflict in sorted(self._found.values(), key=_rank):
            found.setdefault((_place(conflict), conflict.facts.host is None), conflict)
        return sorted(found.values(), key=_place)

    # -- one conflict ------------------------------------------------------------------------------------------------

    def _conflict(self, pair: Pair, sure: Confidence) -> Conflict:
        if pair.kind == "violation" or pair.first is None or pair.second is None:
            second = Access(pair.what, "", "reads", self.span(pair.span))
            notes = tuple(Note(text, self.span(span)) for text, span in pair.notes)
            return Conflict(
                second,
                None,
                Memory(""),
                Facts(violation=pair.violation, timing=pair.reason),
                notes=notes,
                confidence=sure,
            )
        if pair.kind == "reuse":
            return self._reuse(pair, pair.first, pair.second, sure)
        return self._pair(pair, pair.first, pair.second, sure)

    def _pair(self, pair: Pair, one: Touch, other: Touch, sure: Confidence) -> Conflict:
        first, second = self._access(one), self._access(other)
        host: Mode | None = second.reads_or_writes if other.stream is HOST else None
        gradient: Literal["result", "initial"] | None = None
        if other.tags & tag.INITIAL:
            gradient = "initial"
        elif one.tags & tag.GRADIENT and one.writes:
            gradient, host = "result", None
        missed = None if gradient else ineffective(pair, one, other)
        notes = tuple(self._missed(missed)) if missed is not None else ()
        fix = self._help(other.span.filename).edge(first, second, host)
        return Conflict(
            second=second,
            first=first,
            memory=Memory(self.memory(one.buffer, other.buffer)),
            facts=Facts(
                host=host,
                gradient=gradient,
                ineffective_wait=missed is not None,
                interop=bool(one.tags & tag.UNEXCHANGED) != bool(other.tags & tag.UNEXCHANGED),
            ),
            missing=Missing(first.timeline, second.timeline, fix),
            notes=notes,
            confidence=sure,
        )

    def _reuse(self, pair: Pair, one: Touch, other: Touch, sure: Confidence) -> Conflict:
        use = self._access(one, "reads")
        after = Access("the next allocation", self.timeline(other.stream), "writes", self.span(other.span))
        block = self._engine.blocks.get((one.span, one.stream))
        owner: Literal["torch", "cupy"] = "cupy" if one.tags & tag.CUPY else "torch"
        name = self.memory(block) if block is not None else self.memory(one.buffer)
        initial = bool(one.tags & tag.INITIAL)
        help_ = self._help(one.span.filename)
        fix = f"let the allocating stream wait for {use.timeline} before the array is released"
        if owner == "torch":
            fix = help_.record(name, use.timeline)
        notes = [Note("allocated here", self._place(block))] if block is not None else []
        return Conflict(
            second=after,
            first=use,
            memory=Memory(name, owner),
            facts=Facts(gradient="initial-reuse") if initial else Facts(reuse=owner),
            missing=Missing(use.timeline, after.timeline, fix),
            notes=tuple(notes),
            confidence=sure,
        )

    def _access(self, one: Touch, mode: Mode | None = None) -> Access:
        made: Mode = "writes" if one.writes else "reads"
        return Access(one.operation, self.timeline(one.stream), mode or made, self.span(one.span))

    def _missed(self, wait: Wait) -> Iterator[Note]:
        yield Note("this wait does not cover it", self.span(wait.span))
        if wait.recorded is not None:
            yield Note("the event was recorded here", self.span(wait.recorded))

    # -- names -------------------------------------------------------------------------------------------------------

    def timeline(self, stream: Atom) -> str:
        """A stream as a user would name it."""
        if stream is HOST:
            return "the host"
        if stream is CURRENT:
            return "the current stream"
        if stream is DEFAULT:
            return "the default stream"
        if stream is COMMUNICATION:
            return "the stream of the collectives"
        return self._name(stream) or "a side stream"

    def memory(self, *buffers: Atom) -> str:
        """Memory as a user would name it."""
        if GRADIENTS in buffers:
            return "the gradients"
        for buffer in buffers:
            name = self._name(buffer)
            if name:
                return name
        return ""

    def _name(self, atom: Atom) -> str:
        if isinstance(atom, New):
            return self._engine.names.get(atom.place, "")
        if isinstance(atom, Path):
            root = atom.root
            if root.startswith(OUTER):
                root = root.rpartition(" ")[2]
            parts = [] if root.startswith(MODULE) else [root]
            text = ".".join(parts)
            for step in atom.fields:
                if is_element(step):
                    text += "[...]" if step in (EACH, PAST, SOME) else step
                else:
                    text = f"{text}.{step}" if text else step
            return text
        return ""

    def _help(self, filename: str) -> Help:
        return Help(self._engine.imports(filename))

    # -- places ------------------------------------------------------------------------------------------------------

    def span(self, span: Span) -> Span:
        """A span whose columns count characters; those of the syntax tree count bytes."""
        lines = self._text(span.filename)
        if lines is None:
            return span
        return Span(
            span.filename,
            span.row,
            _characters(lines, span.row, span.column),
            span.end_row,
            _characters(lines, span.end_row, span.end_column),
        )

    def _place(self, block: New) -> Span:
        filename, row, column, _ = block.place
        return self.span(Span(filename, row, column, row, column + 1))

    def _text(self, filename: str) -> list[str] | None:
        """The lines of a file; None where every character is a byte."""
        if filename not in self._lines:
            text = self._engine.text(filename)
            self._lines[filename] = None if text.isascii() else text.splitlines()
        return self._lines[filename]


def _characters(lines: list[str], row: int, column: int) -> int:
    if row > len(lines):
        return column
    return len(lines[row - 1].encode()[: column - 1].decode(errors="ignore")) + 1


def _key(pair: Pair) -> tuple[object, ...]:
    if pair.kind == "violation" or pair.first is None or pair.second is None:
        return (pair.violation, pair.span)
    if pair.kind == "reuse":
        return ("reuse", pair.first.span)
    host = pair.second.stream is HOST
    return ("pair", pair.second.span, host, pair.first.stream, pair.second.stream)


def _rank(found: tuple[int, str, Conflict]) -> int:
    return found[0]


def _place(conflict: Conflict) -> tuple[object, ...]:
    assert conflict.second.span is not None
    first = (
        conflict.first.span if conflict.first is not None and conflict.first.span else conflict.second.span
    )
    return (conflict.second.span, first, conflict.facts.violation or "")


def ineffective(pair: Pair, first: Touch, second: Touch) -> Wait | None:
    """The wait that was meant to cover the first access and does not."""
    found = [
        (sure, wait)
        for wait in pair.waits | pair.before
        if (sure := _meant(wait, wait in pair.waits, first.stream, second.stream)) is not None
    ]
    return min(found, key=lambda each: (each[0], each[1].sort_key()))[1] if found else None


def _meant(wait: Wait, between: bool, source: Atom, target: Atom) -> int | None:
    """How plainly a wait was meant for a pair; None where it was not."""
    ours = wait.who is target or wait.who is HOST
    is_event = wait.source is not wait.whom
    if wait.idle and wait.who is target and wait.source is source:
        return 0  # it names both and covers nothing
    if not between:
        return None
    if ours and is_event:
        if wait.source is None:
            return 1 if isinstance(wait.whom, New) or wait.whom.__class__ is Path else None
        if wait.source is source or source in wait.earlier:
            return 0
        if wait.source is target or wait.idle:
            return 1
    if (
        ours
        and not is_event
        and (wait.source is target or (wait.source is DEFAULT and source is not DEFAULT))
    ):
        return 1
    if wait.who is DEFAULT and target is CURRENT:
        return 1
    if wait.who is source and wait.source is target:
        return 2
    return None


__all__ = ["Findings", "ineffective"]
