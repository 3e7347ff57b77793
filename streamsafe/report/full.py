"""One hazard for a person: the source with both accesses underlined, their streams, the missing edge and the help.

`check`, `run`, `verify` and pytest all show a hazard by :func:`render`. It knows no library and no terminal.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from streamsafe.order.hazard import Access, Frame, Hazard, Note, Span
from streamsafe.order.wording import block, missing_edge, pending_phrase, quoted, shown
from streamsafe.report.later_round import again
from streamsafe.report.paths import location
from streamsafe.report.sources import Source, Sources, located
from streamsafe.rule import find_rule

Style = Callable[..., str]
Facts = Sequence[tuple[str, str]]
TAB = 4
_STDLIB = os.path.dirname(os.__file__) + os.sep
WIDEST = 200
"""Characters of a row that are shown."""


@dataclass(frozen=True, slots=True)
class _Label:
    span: Span
    text: str
    primary: bool


def plain(text: str, **_: object) -> str:
    """A style that adds nothing."""
    return text


def render(hazard: Hazard, sources: Sources, style: Style = plain, facts: Facts = ()) -> str:
    """One hazard, as a block of lines without the last line end.

    Args:
        hazard: what to show, of a static analysis (spans) or of a run (stacks).
        sources: where the source comes from; a file that cannot be read any more is shown without source.
        style: `click.style` or a function like it; what it adds has no width.
        facts: what else is known, as kind and text: what a recorded run says, which ranks have it.
    """
    return "\n".join(_Block(located(hazard, sources), sources, style, facts).lines())


class _Block:
    """The lines of one hazard. The rule says how severe it is and on which access it stands."""

    def __init__(self, hazard: Hazard, sources: Sources, style: Style, facts: Facts = ()) -> None:
        rule = find_rule(hazard.code)
        self.hazard = hazard
        self.sources = sources
        self.style = style
        self.facts = facts
        self.colour = "red" if rule is None or rule.severity == "error" else "yellow"
        self.on_first = (
            rule is not None
            and rule.place == "first"
            and hazard.first is not None
            and hazard.first.span is not None
        )
        self.step = 0

    def lines(self) -> Iterator[str]:
        yield self._title()
        labels = list(self._labels())
        gutter = max((self._digits(label.span) for label in labels), default=1)
        filenames = list(dict.fromkeys(label.span.filename for label in labels))
        bar = self.style("|", fg="blue", bold=True)
        for number, filename in enumerate(filenames):
            here = [label for label in labels if label.span.filename == filename]
            arrow = self.style("-->" if number == 0 else ":::", fg="blue", bold=True)
            anchor = here[0].span if number == 0 else min(here, key=lambda label: label.span.row).span
            yield f"{' ' * gutter}{arrow} {location(anchor, self.sources[filename])}"
            yield f"{' ' * gutter} {bar}"
            yield from self._source(here, gutter)
        if labels:
            yield f"{' ' * gutter} {bar}"
        for kind, text in self._footer():
            yield f"{' ' * gutter} {self._mark('=')} {self.style(kind, bold=True)}: {text}"

    def _title(self) -> str:
        hazard = self.hazard
        about: list[str] = [hazard.confidence] if hazard.confidence != "certain" else []
        about += ["latent"] if hazard.latent else []
        said = f" ({', '.join(about)})" if about else ""
        title = self.style(f"{hazard.code} {hazard.name}", fg=self.colour, bold=True)
        return f"{title}{said}: {self.style(hazard.message, bold=True)}"

    def _mark(self, text: str) -> str:
        return self.style(text, fg="blue", bold=True)

    def _digits(self, span: Span) -> int:
        return len(str(self.sources[span.filename].place(span.row)[1]))

    # -- what stands under the source --------------------------------------------------------------------------------

    def _labels(self) -> Iterator[_Label]:
        """The access that the hazard stands on first, then the other one, then what explains them."""
        hazard = self.hazard
        places = {note.span for note in hazard.notes}
        steps = self._steps()
        pair = (hazard.first, hazard.second) if self.on_first else (hazard.second, hazard.first)
        for access, primary in zip(pair, (True, False), strict=True):
            if access is None or access.span is None:
                continue
            if self.on_first and not primary and (hazard.latent or access.span in places):
                continue  # a note says it
            number = steps.get("used", "") if access is hazard.first else ""
            yield _Label(access.span, f"{number}{self._does(access)}".strip(), primary)
        cited = {note.span for note in hazard.notes}
        for note in (*hazard.notes, *(edge for edge in hazard.edges if edge.span not in cited)):
            if note.span is not None:
                yield _Label(note.span, f"{steps.get(note.role, '')}{self._says(note)}", primary=False)

    def _steps(self) -> dict[str, str]:
        """The numbers of the steps by which a block is reused too early, in the order of time."""
        roles = {note.role for note in self.hazard.notes}
        if not roles & {"allocated", "released", "reused"}:
            return {}
        happened = [role for role in ("allocated", "used", "released", "reused") if role in {*roles, "used"}]
        return {role: f"{number}. " for number, role in enumerate(happened, 1)}

    def _does(self, access: Access) -> str:
        """What an access does, for the label under it."""
        hazard = self.hazard
        if not access.timeline or hazard.first is None:
            return ""
        who = quoted(access.timeline)
        if access is hazard.first:
            return f"{who} {pending_phrase(access)} {block(hazard)}"
        return f"{who} {access.reads_or_writes} {block(hazard)}{self._round(access.span)}"

    def _says(self, note: Note) -> str:
        return note.message + (self._round(note.span) if note.role == "reused" else "")

    def _round(self, second: Span | None) -> str:
        first = self.hazard.first.span if self.hazard.first is not None else None
        if first is None or second is None:
            return ""
        found = again(self.sources[second.filename].text, first, second)
        return f" {found}" if found else ""

    # -- what stands below -------------------------------------------------------------------------------------------

    def _footer(self) -> Iterator[tuple[str, str]]:
        hazard = self.hazard
        steps = self._steps()
        if hazard.first is not None and len(hazard.first.stack) > 1:
            yield "first access", _called(hazard.first.stack)
        if len(hazard.second.stack) > 1:
            yield "second access" if hazard.first is not None else "stack", _called(hazard.second.stack)
        if hazard.second.module:
            yield "module", quoted(hazard.second.module)
        if not hazard.second.stack and not hazard.second.span and hazard.first is None:
            yield "note", "no Python code of the program is known to have called it"
        for note in (*hazard.notes, *hazard.edges):
            if note.span is None:
                yield "note", f"{steps.get(note.role, '')}{note.message}"
        extent = _extent(hazard)
        if extent:
            yield "memory", extent
        yield from self.facts
        yield from self._because()
        for assumption in hazard.assumptions:
            yield "assumes", f"that {assumption.text}"
        if hazard.missing is not None and hazard.first is not None:
            yield "missing edge", " -> ".join(missing_edge(hazard))
        if hazard.help:
            yield "help", hazard.help
        if hazard.count > 1:
            yield "note", f"this happened {hazard.count} times; the first time is shown"
        if hazard.further:
            yield "note", f"and {hazard.further} more like it, by the same missing edge"

    def _because(self) -> Iterator[tuple[str, str]]:
        """The path that shows the hazard, where it has more to say than the labels."""
        steps = self.hazard.witness
        labelled = {label.span for label in self._labels()}
        if all(step.span in labelled for step in steps):
            return
        for number, step in enumerate(steps):
            where = f"{self._where(step.span)} " if step.span is not None else ""
            yield "because" if number == 0 else "then", f"{where}{step.message}"

    def _where(self, span: Span) -> str:
        return location(span, self.sources[span.filename]).rpartition(":")[0]

    # -- source ------------------------------------------------------------------------------------------------------

    def _source(self, labels: list[_Label], gutter: int) -> Iterator[str]:
        """The rows that have labels, each label on a row of its own below, and what lies between them, shortened."""
        text = self.sources[labels[0].span.filename]
        if not text.text:  # it cannot be read (any more)
            return
        previous: int | None = None
        for row in sorted({label.span.row for label in labels}):
            if not 0 < row <= len(text.lines):
                continue
            if previous is not None and row - previous == 2:
                yield self._row(row - 1, text, gutter)
            elif previous is not None and row - previous > 2:
                yield self._mark("...")
            previous = row
            yield self._row(row, text, gutter)
            here = [label for label in labels if label.span.row == row]
            for label in sorted(here, key=lambda label: (label.span.column, not label.primary)):
                yield f"{' ' * gutter} {self._mark('|')} {self._underline(label, text.lines[row - 1])}"

    def _underline(self, label: _Label, line: str) -> str:
        end = label.span.end_column if label.span.end_row == label.span.row else len(line.rstrip()) + 1
        start = _width(line, label.span.column)
        width = max(1, _width(line, end) - start)
        mark = ("^" if label.primary else "-") * min(width, WIDEST)
        text = f"{mark} {label.text}".rstrip()
        return " " * start + self.style(text, fg=self.colour if label.primary else "blue", bold=True)

    def _row(self, row: int, text: Source, gutter: int) -> str:
        line = text.lines[row - 1]
        shown = "".join(char if char.isprintable() else " " for char in line.expandtabs(TAB))
        if len(shown) > WIDEST:
            shown = shown[:WIDEST] + "..."
        return f"{self._mark(f'{text.place(row)[1]:>{gutter}} |')} {shown}".rstrip()


def _called(stack: tuple[Frame, ...]) -> str:
    """How an access was reached: ``in load, called at train.py:19 in main``."""
    frame, *callers = stack
    parts = [f"in {frame.function}"]
    for caller in callers:
        if caller.filename.startswith(_STDLIB) and "site-packages" not in caller.filename:
            continue
        within = "" if caller.function == "<module>" else f" in {caller.function}"
        parts.append(f"called at {shown(caller.filename)}:{caller.line}{within}")
    return ", ".join(parts)


def _extent(hazard: Hazard) -> str:
    """What is known of the bytes that the accesses have in common (run time)."""
    memory = hazard.memory
    if memory.start is None or memory.stop is None or memory.stop <= memory.start:
        return ""
    kind = " ".join(str(part) for part in (memory.dtype, memory.shape) if part is not None)
    return ", ".join(
        part for part in (kind, f"{memory.stop - memory.start} bytes at {memory.start:#x}") if part
    )


def _width(line: str, column: int) -> int:
    """Cells of a terminal before a column (from 1)."""
    before = line[: column - 1].expandtabs(TAB)
    if before.isascii():
        return len(before)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in before)
    return len(before) + wide - sum(unicodedata.combining(char) > 0 for char in before)
