"""One line a finding: ``file:row:column: CODE message``."""

from __future__ import annotations

from streamsafe.findings.collect import Finding, Texts
from streamsafe.report.paths import location


def render(finding: Finding, texts: Texts) -> str:
    """One finding, without a line end. The confidence stands there when it is not certain, and what runs say of it."""
    hazard = finding.hazard
    words = [] if hazard.confidence == "certain" else [str(hazard.confidence)]
    words += [finding.run.mark] if finding.run is not None else []
    sure = f"[{', '.join(words)}] " if words else ""
    place = location(finding.span, texts[finding.span.filename])
    return f"{place}: {hazard.code} {sure}{hazard.message}"
