"""Findings by file: the file's name, then one indented line a finding."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from streamsafe.report.record import Record


def render(records: Iterable[Record]) -> str:
    """All findings, with a blank line between two files."""
    by_file = groupby(records, key=lambda record: record.place.path if record.place else "(no source line)")
    return "\n\n".join("\n".join(_block(path, list(found))) for path, found in by_file)


def _block(path: str, found: list[Record]) -> Iterable[str]:
    places = [_place(record) for record in found]
    width = max(map(len, places))
    yield f"{path}:"
    for place, record in zip(places, found, strict=True):
        yield f"  {place:>{width}}  {record.code}  {record.sentence}"


def _place(record: Record) -> str:
    if record.place is None:
        return "-"
    cell = f"cell {record.place.cell}:" if record.place.cell is not None else ""
    return f"{cell}{record.place.row}:{record.place.column}"
