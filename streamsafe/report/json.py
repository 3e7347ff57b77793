"""Findings as JSON: an array of objects whose keys are only ever added to."""

from __future__ import annotations

import os
from typing import Any

from streamsafe.findings.collect import Finding, Texts
from streamsafe.findings.edits import Fix
from streamsafe.findings.verdict import Verdict
from streamsafe.order.hazard import Assumption, Note, Span
from streamsafe.order.wording import access_phrase, block


def as_dict(finding: Finding, texts: Texts, fix: Fix | None) -> dict[str, Any]:
    """One finding with its repair, if it has one. In a notebook rows count from the beginning of ``cell``."""
    hazard = finding.hazard
    related = []
    other = finding.other
    if other is not None and other.span is not None:
        message = f"{access_phrase(other)} {other.reads_or_writes} {block(hazard)} here"
        related.append({**_place(other.span, texts), "message": message})
    notes = (*hazard.notes, *hazard.edges)
    related += [
        {**_place(note.span, texts), "message": note.message} for note in notes if note.span is not None
    ]
    described = {
        "code": hazard.code,
        "name": hazard.name,
        "message": hazard.message,
        **_place(finding.span, texts),
        "related": related,
        "severity": finding.severity,
        "confidence": hazard.confidence,
        "witness": [_step(step, texts) for step in hazard.witness],
        "assumptions": [_assumption(each, texts) for each in hazard.assumptions],
        "further": hazard.further,
        "help": hazard.help or None,
        "fix": _fix(fix),
        "url": finding.rule.url,
    }
    if finding.cut_short:
        described["cut_short"] = list(finding.cut_short)
    if finding.run is not None:
        described["run"] = _run(finding.run)
    return described


def _step(step: Note, texts: Texts) -> dict[str, Any]:
    """A step of the path that shows a finding."""
    place = _place(step.span, texts) if step.span is not None else {}
    return {**place, "message": step.message}


def _assumption(assumption: Assumption, texts: Texts) -> dict[str, Any]:
    """What a finding takes for granted."""
    place = _place(assumption.span, texts) if assumption.span is not None else {}
    return {"name": assumption.name, "message": assumption.text, **place}


def _run(verdict: Verdict) -> dict[str, Any]:
    edge = verdict.edge
    return {
        "outcome": verdict.outcome,
        "count": verdict.count,
        "message": verdict.text,
        "edge": None if edge is None else {"filename": _filename(edge[0]), "row": edge[1]},
    }


def _fix(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    edits = [
        {
            "content": edit.content,
            "location": {"row": edit.row, "column": edit.column},
            "end_location": {"row": edit.end_row, "column": edit.end_column},
        }
        for edit in fix.edits
    ]
    return {"applicability": fix.applicability, "message": fix.message, "edits": edits}


def _place(span: Span, texts: Texts) -> dict[str, Any]:
    text = texts[span.filename]
    cell, row = text.place(span.row)
    place: dict[str, Any] = {"filename": _filename(span.filename)}
    if cell is not None:
        place["cell"] = cell
    place["location"] = {"row": row, "column": span.column}
    place["end_location"] = {"row": text.place(span.end_row)[1], "column": span.end_column}
    return place


def _filename(path: str) -> str:
    return os.path.abspath(path) if os.path.exists(path) else path
