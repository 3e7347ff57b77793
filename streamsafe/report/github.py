"""Findings as GitHub workflow commands, which GitHub shows as annotations of a pull request's lines.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamsafe.order.wording import shown
from streamsafe.report.record import Record

LEVELS = {"error": "error", "warning": "warning", "advice": "notice"}


def render(records: Iterable[Record], notes: Sequence[tuple[str, str]] = ()) -> str:
    """All findings, one command a line; then a notice for each function that was analysed in part only.

    Args:
        records: the findings.
        notes: (file, function and limit).
    """
    return "\n".join([*map(_command, records), *(_notice(*note) for note in notes)])


def _notice(path: str, note: str) -> str:
    file = _escaped(shown(path), ",:")
    return f"::notice title=streamsafe,file={file}::{_escaped(f'not run to its end: {note}')}"


def _command(record: Record) -> str:
    properties = {"title": f"streamsafe ({record.code} {record.name})"}
    place = record.place
    if place is not None:
        properties["file"] = place.path
        if place.cell is None:  # rows of a notebook's cell are no rows of its file
            properties |= {"line": str(place.row), "endLine": str(place.end_row)}
        if place.cell is None and place.row == place.end_row:  # columns count in one line only
            properties |= {"col": str(place.column), "endColumn": str(place.end_column)}
    lines = [f"{place}: {record.code} {record.sentence}" if place else f"{record.code} {record.sentence}"]
    lines += [f"{other}: {other.message}" for other in record.related]
    lines += [f"help: {record.help}"] if record.help else []
    given = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in properties.items())
    text = "\n".join(lines)
    return f"::{LEVELS[record.severity]} {given}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    for char in f"%\r\n{more}":
        text = text.replace(char, f"%{ord(char):02X}")
    return text
