"""One line a finding: ``file:row:column: CODE message``."""

from __future__ import annotations

from streamsafe.findings import Finding, Texts
from streamsafe.report.paths import location


def render(finding: Finding, texts: Texts) -> str:
    """One finding, without a line end. The confidence is shown when it is not certain."""
    hazard = finding.hazard
    sure = "" if hazard.confidence == "certain" else f"[{hazard.confidence}] "
    place = location(finding.span, texts[finding.span.filename])
    return f"{place}: {hazard.code} {sure}{hazard.message}"
