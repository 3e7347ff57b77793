"""One check of some files, each finding with a help that can be written where it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamsafe.findings import checking
from streamsafe.findings.checking import Done, Report, Request
from streamsafe.project.files import File


def check(
    request: Request,
    files: Sequence[File],
    given: Mapping[str, bytes] | None = None,
    done: Done | None = None,
) -> Report:
    """:func:`streamsafe.findings.checking.check`, with the same arguments and errors."""
    report = checking.check(request, files, given, done)
    if report.outcome is not None and report.texts is not None and report.outcome.findings:
        from streamsafe.repairs.advice import advised  # parses the files with findings

        texts = report.texts
        report.outcome.findings = [advised(finding, texts) for finding in report.outcome.findings]
    return report
