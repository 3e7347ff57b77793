"""Findings for a person: the source with both accesses underlined, their streams, the missing edge and the help."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streamsafe.findings import Finding, Texts
from streamsafe.order.hazard import Access, Span
from streamsafe.report.paths import location
from streamsafe.wording import block, quoted, still

Style = Callable[..., str]
TAB = 4
WIDEST = 200
"""Characters of a row that are shown."""


@dataclass(frozen=True, slots=True)
class _Label:
    span: Span
    text: str
    primary: bool


def render(finding: Finding, texts: Texts, style: Style) -> str:
    """One finding, as a block of lines without the last line end.

    Args:
        finding: what to show.
        texts: where the source comes from; a file that cannot be read any more is shown without source.
        style: `click.style` or a function like it; what it adds has no width.
    """
    return "\n".join(_lines(finding, texts, style))


def _lines(finding: Finding, texts: Texts, style: Style) -> Iterator[str]:
    hazard = finding.hazard
    colour = "red" if finding.rule.severity == "error" else "yellow"
    sure = "" if hazard.confidence == "certain" else f" ({hazard.confidence})"
    title = style(f"{hazard.code} {hazard.name}", fg=colour, bold=True)
    yield f"{title}{sure}: {style(hazard.message, bold=True)}"

    labels = list(_labels(finding))
    gutter = max(len(str(texts[label.span.filename].place(label.span.row)[1])) for label in labels)
    filenames = list(dict.fromkeys(label.span.filename for label in labels))
    bar = style("|", fg="blue", bold=True)
    for number, filename in enumerate(filenames):
        here = [label for label in labels if label.span.filename == filename]
        arrow = style("-->" if number == 0 else ":::", fg="blue", bold=True)
        anchor = finding.span if number == 0 else min(here, key=lambda label: label.span.row).span
        yield f"{' ' * gutter}{arrow} {location(anchor, texts[filename])}"
        yield f"{' ' * gutter} {bar}"
        yield from _source(here, texts, gutter, colour, style)
    yield f"{' ' * gutter} {bar}"

    for kind, text in _footer(finding):
        yield f"{' ' * gutter} {style('=', fg='blue', bold=True)} {style(kind, bold=True)}: {text}"


def _labels(finding: Finding) -> Iterator[_Label]:
    hazard = finding.hazard
    yield _Label(finding.span, _does(finding, finding.access), primary=True)
    other = finding.other
    explained = (
        finding.rule.place == "first" and other is not None and other.span in {n.span for n in hazard.notes}
    )
    if other is not None and other.span is not None and not explained:
        yield _Label(other.span, _does(finding, other), primary=False)
    for note in (*hazard.notes, *hazard.edges):
        if note.span is not None:
            yield _Label(note.span, note.message, primary=False)


def _does(finding: Finding, access: Access) -> str:
    """What an access does, for the label under it."""
    hazard = finding.hazard
    if not access.timeline or hazard.first is None:
        return ""
    who = quoted(access.timeline)
    if access is hazard.first:
        return f"{who} {still(access)} {block(hazard)}"
    return f"{who} {access.reads_or_writes} {block(hazard)}"


def _footer(finding: Finding) -> Iterator[tuple[str, str]]:
    hazard = finding.hazard
    for note in (*hazard.notes, *hazard.edges):
        if note.span is None:
            yield "note", note.message
    if hazard.missing is not None and hazard.first is not None:
        yield "missing edge", f"{quoted(hazard.missing.source)} -> {quoted(hazard.missing.target)}"
    if hazard.help:
        yield "help", hazard.help


def _source(labels: list[_Label], texts: Texts, gutter: int, colour: str, style: Style) -> Iterator[str]:
    """The rows that have labels, each label on a row of its own below, and what lies between them, shortened."""
    text = texts[labels[0].span.filename]
    if not text.text:  # it cannot be read (any more)
        return
    bar = style("|", fg="blue", bold=True)
    previous: int | None = None
    for row in sorted({label.span.row for label in labels}):
        if not 0 < row <= len(text.lines):
            continue
        if previous is not None and row - previous == 2:
            yield _row(row - 1, text.lines[row - 2], text.place(row - 1)[1], gutter, style)
        elif previous is not None and row - previous > 2:
            yield style("...", fg="blue", bold=True)
        previous = row
        line = text.lines[row - 1]
        yield _row(row, line, text.place(row)[1], gutter, style)
        here = [label for label in labels if label.span.row == row]
        for label in sorted(here, key=lambda label: (label.span.column, not label.primary)):
            end = label.span.end_column if label.span.end_row == row else len(line.rstrip()) + 1
            start = _width(line, label.span.column)
            width = max(1, _width(line, end) - start)
            mark = ("^" if label.primary else "-") * min(width, WIDEST)
            underline = style(
                f"{mark} {label.text}".rstrip(), fg=colour if label.primary else "blue", bold=True
            )
            yield f"{' ' * gutter} {bar} {' ' * start}{underline}"


def _row(row: int, line: str, number: int, gutter: int, style: Style) -> str:
    shown = "".join(char if char.isprintable() else " " for char in line.expandtabs(TAB))
    if len(shown) > WIDEST:
        shown = shown[:WIDEST] + "..."
    return f"{style(f'{number:>{gutter}} |', fg='blue', bold=True)} {shown}".rstrip()


def _width(line: str, column: int) -> int:
    """Cells of a terminal before a column (from 1)."""
    before = line[: column - 1].expandtabs(TAB)
    if before.isascii():
        return len(before)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in before)
    return len(before) + wide - sum(unicodedata.combining(char) > 0 for char in before)
