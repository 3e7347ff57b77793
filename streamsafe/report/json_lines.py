"""Findings as JSON lines: one object a line, the same as in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable

from streamsafe.report.record import Record


def render(records: Iterable[Record]) -> str:
    """All findings."""
    return "\n".join(json.dumps(record.data) for record in records)
