"""Findings as a SARIF 2.1.0 log: rules with their help, both accesses, the flow between them, and the fix.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from streamsafe.findings.edits import Edit, Fix
from streamsafe.project.version import __version__
from streamsafe.report.record import Place, Record
from streamsafe.rule import DOCUMENTATION, Rule, find_rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
LEVELS = {"error": "error", "warning": "warning", "advice": "note"}
PRECISION = {"certain": "very-high", "likely": "high", "possible": "medium"}


def render(records: Iterable[Record], notes: Sequence[tuple[str, str]] = ()) -> str:
    """All findings, as one run.

    Args:
        records: the findings.
        notes: (file, why) of what was not run to its end: notifications of the run's invocation.
    """
    found = list(records)
    codes = sorted({record.code for record in found})
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "streamsafe",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": DOCUMENTATION,
                "rules": [_rule(rule) for code in codes if (rule := find_rule(code)) is not None],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"uri": Path.cwd().as_uri() + "/"}},
        "results": [_result(record, codes) for record in found],
    }
    if notes:
        run["invocations"] = [
            {"executionSuccessful": True, "toolExecutionNotifications": [_notification(*n) for n in notes]}
        ]
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _notification(path: str, note: str) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"not run to its end: {note}"},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(path)}}],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    documentation = rule.documentation()
    text = _summary(documentation) or rule.name
    described: dict[str, Any] = {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.name.replace("-", " ").capitalize()},
        "fullDescription": {"text": text},
        "help": {"text": documentation or text, "markdown": documentation or text},
        "defaultConfiguration": {"level": LEVELS[rule.severity], "enabled": rule.default},
        "properties": {
            "tags": ["cuda", "concurrency" if rule.severity == "error" else "correctness"],
            "problem.severity": {"error": "error", "warning": "warning"}.get(rule.severity, "recommendation"),
        },
    }
    if rule.url:
        described["helpUri"] = rule.url
    return described


def _summary(documentation: str) -> str:
    """The paragraph under "What it does", on one line."""
    _, _, body = documentation.partition("## What it does\n")
    return " ".join(body.split("\n\n", 1)[0].split())


def _result(record: Record, codes: Sequence[str]) -> dict[str, Any]:
    assumed = "".join(f"\nAssumes that {text}." for text in record.assumptions)
    message = record.sentence + assumed + (f"\nHelp: {record.help}" if record.help else "")
    result: dict[str, Any] = {
        "ruleId": record.code,
        "ruleIndex": codes.index(record.code),
        "level": LEVELS[record.severity],
        "kind": "fail",
        "message": {"text": message},
        "locations": [] if record.place is None else [_location(record.place)],
        "partialFingerprints": {"streamsafe/v1": record.fingerprint},
        "occurrenceCount": record.count,
        "properties": {
            "confidence": record.confidence,
            "precision": PRECISION[record.confidence],
            "latent": record.latent,
        },
    }
    if record.assumptions:
        result["properties"]["assumptions"] = [dict(each) for each in record.data["assumptions"]]
    if record.run:
        result["properties"]["run"] = record.data["run"]
    if record.ranks:
        result["properties"]["ranks"] = list(record.ranks)
    if record.related:
        result["relatedLocations"] = [
            {"id": number, **_location(place)} for number, place in enumerate(record.related, 1)
        ]
    if record.witness:
        steps = [_passed(step, number, record) for number, step in enumerate(record.witness, 1)]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    elif record.place is not None and record.related:
        result["codeFlows"] = [{"threadFlows": [{"locations": _flow(record, record.place)}]}]
    if record.fix is not None and record.place is not None and record.place.cell is None:
        result["fixes"] = [_fix(record.fix, record.place)]
    return result


def _passed(step: Place, number: int, record: Record) -> dict[str, Any]:
    """A step of the path that shows a finding."""
    place = record.place
    here = place is not None and (step.filename, step.row, step.column) == (
        place.filename,
        place.row,
        place.column,
    )
    importance = "essential" if here else "important"
    return {"location": _location(step), "executionOrder": number, "importance": importance}


def _flow(record: Record, place: Place) -> list[dict[str, Any]]:
    """The accesses in the order of time: where the finding stands on the first, what follows is related."""
    rule = find_rule(record.code)
    here = Place(
        place.filename, place.row, place.column, place.end_row, place.end_column, record.message, place.cell
    )
    at_run_time = "second" in record.data  # there a hazard stands where it completes, whatever its rule
    first = rule is not None and rule.place == "first" and not at_run_time
    steps = (here, *record.related) if first else (*record.related, here)
    return [
        {
            "location": _location(step),
            "executionOrder": number,
            "importance": "essential" if step is here else "important",
        }
        for number, step in enumerate(steps, 1)
    ]


def _location(place: Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(place.filename)}
    if place.cell is None:  # rows of a notebook's cell are no rows of its file
        physical["region"] = {
            "startLine": place.row,
            "startColumn": place.column,
            "endLine": place.end_row,
            "endColumn": place.end_column,
        }
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.cell is not None:
        location["logicalLocations"] = [{"name": f"cell {place.cell}, row {place.row}", "kind": "module"}]
    if place.message:
        location["message"] = {"text": place.message}
    return location


def _artifact(filename: str) -> dict[str, str]:
    path = Path(filename)
    if not path.is_absolute():
        return {"uri": path.as_posix(), "uriBaseId": ROOT}
    relative = os.path.relpath(path)
    if relative.startswith(".."):
        return {"uri": path.as_uri()}
    from urllib.parse import quote

    return {"uri": quote(relative.replace(os.sep, "/")), "uriBaseId": ROOT}


def _fix(fix: Fix, place: Place) -> dict[str, Any]:
    return {
        "description": {"text": fix.message},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(place.filename),
                "replacements": [_replacement(edit) for edit in fix.edits],
            }
        ],
    }


def _replacement(edit: Edit) -> dict[str, Any]:
    return {
        "deletedRegion": {
            "startLine": edit.row,
            "startColumn": edit.column,
            "endLine": edit.end_row,
            "endColumn": edit.end_column,
        },
        "insertedContent": {"text": edit.content},
    }
