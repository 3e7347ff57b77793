"""Comments that suppress findings, for a project that starts with a clean slate."""

from __future__ import annotations

import io
import tokenize
from collections import defaultdict
from collections.abc import Iterable

from streamsafe.findings.collect import Finding, Texts
from streamsafe.findings.edits import Edit
from streamsafe.project.suppressions import find as find_suppressions


def additions(
    findings: Iterable[Finding], texts: Texts, reason: str = ""
) -> tuple[dict[str, list[Edit]], list[Finding]]:
    """The edits that suppress findings, by file, and the findings that no comment can suppress.

    A comment is added at the end of the first row of the finding's access that can hold one; a row that has one of
    ours, or a `noqa`, gets the code added to it.
    """
    wanted: dict[tuple[str, int], set[str]] = defaultdict(set)
    left: list[Finding] = []
    rows: dict[str, dict[int, int]] = {}
    for finding in findings:
        path, span = finding.span.filename, finding.span
        text = texts[path]
        if path not in rows:
            rows[path] = {} if text.cells else _ends(text.text)
        row = next((row for row in range(span.row, span.end_row + 1) if row in rows[path]), None)
        if row is None or finding.rule.code == "SS900":
            left.append(finding)
        else:
            wanted[path, row].add(finding.rule.code)
    edits: dict[str, list[Edit]] = defaultdict(list)
    for (path, row), codes in wanted.items():
        edits[path].append(_edit(texts[path].text, row, rows[path][row], sorted(codes), reason))
    return dict(edits), left


def _edit(source: str, row: int, end: int, codes: list[str], reason: str) -> Edit:
    for each in find_suppressions(source):
        if each.row == row and each.target == row and each.codes:
            listed = ", ".join(dict.fromkeys((*each.codes, *codes)))
            content = f"# noqa: {listed}" if each.kind == "noqa" else f"# streamsafe: ignore[{listed}]"
            return Edit(row, each.column, row, each.end_column, content)
    # a reason behind `noqa` codes could itself be taken for one
    added = f"# streamsafe: ignore[{', '.join(codes)}] {reason}" if reason else f"# noqa: {', '.join(codes)}"
    return Edit(row, end, row, end, f"  {added}")


def _ends(source: str) -> dict[int, int]:
    """The rows at whose end a comment can stand, with the column (from 1) behind what stands there."""
    found: dict[int, int] = {}
    lines = source.split("\n")
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NL, tokenize.NEWLINE):
                row = token.start[0]
                found[row] = len(lines[row - 1].rstrip()) + 1
    except (tokenize.TokenError, SyntaxError):
        return found
    return found
