"""Findings as a GitLab Code Quality report.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from streamsafe.report.record import Place, Record


def render(records: Iterable[Record]) -> str:
    """All findings."""
    return json.dumps([_issue(record) for record in records], indent=2)


def _issue(record: Record) -> dict[str, Any]:
    issue: dict[str, Any] = {
        "type": "issue",
        "categories": ["Performance" if record.severity == "advice" else "Bug Risk"],
        "check_name": record.code,
        "description": f"{record.code} {record.sentence}",
        "severity": _severity(record),
        "fingerprint": record.fingerprint,
        "location": _location(record.place),
    }
    if record.related:
        issue["other_locations"] = [_location(place) for place in record.related]
    if record.help:
        issue["content"] = {"body": "\n\n".join(filter(None, (record.help, record.url)))}
    return issue


def _severity(record: Record) -> str:
    if record.severity == "error":
        return "critical" if record.confidence == "certain" else "major"
    return "minor" if record.severity == "warning" else "info"


def _location(place: Place | None) -> dict[str, Any]:
    if place is None:
        return {"path": ".", "lines": {"begin": 1}}
    if place.cell is not None:  # rows of a notebook's cell are no rows of its file
        return {"path": place.path, "lines": {"begin": 1}}
    return {
        "path": place.path,
        "lines": {"begin": place.row, "end": place.end_row},
        "positions": {
            "begin": {"line": place.row, "column": place.column},
            "end": {"line": place.end_row, "column": place.end_column},
        },
    }
