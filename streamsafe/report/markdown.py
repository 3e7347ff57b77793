"""Findings as Markdown, for a pull request's comment or a job's summary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from streamsafe.report.record import Place, Record


def render(records: Iterable[Record]) -> str:
    """All findings, under a heading for each file."""
    found = list(records)
    if not found:
        return "No hazards found."
    noun = "hazard" if len(found) == 1 else "hazards"
    parts = [f"## {len(found)} stream {noun}"]
    for path, group in groupby(found, key=lambda record: record.place.path if record.place else ""):
        parts.append(f"### {_code(path)}" if path else "### At run time")
        parts += ["\n".join(_item(record)) for record in group]
    return "\n\n".join(parts)


def _item(record: Record) -> Iterable[str]:
    where = f"line {_row(record.place)}: " if record.place else ""
    name = f"{record.code} {record.name}"
    name = f"[{name}]({record.url})" if record.url else name
    yield f"- **{name}** {where}{_text(record.sentence)}"
    for other in record.related:
        yield f"  - {_code(other.path)} line {_row(other)}: {_text(other.message)}"
    if record.help:
        yield f"  - help: {_code(record.help) if '(' in record.help else _text(record.help)}"


def _row(place: Place) -> str:
    return f"{place.row} of cell {place.cell}" if place.cell is not None else str(place.row)


def _text(text: str) -> str:
    """A sentence whose code spans stay code, and in which nothing else is markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<>\[\]#|])", r"\\\1", part) for part in parts
    )


def _code(text: str) -> str:
    """A code span, with a fence longer than any run of backticks in it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"
