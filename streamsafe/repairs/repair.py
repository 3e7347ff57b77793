"""Repairs: the one that a finding has, and files repaired until nothing is left that can be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamsafe.findings.baseline import symbol
from streamsafe.findings.edits import Edit, EditError, Fix, apply
from streamsafe.order.hazard import Span
from streamsafe.order.lines import code as code_of
from streamsafe.project.suppressions import Suppression
from streamsafe.project.suppressions import find as find_suppressions
from streamsafe.project.text import Text
from streamsafe.repairs.edges import after_use, handed_out, insertion
from streamsafe.repairs.external_streams import for_torch
from streamsafe.repairs.names import inside
from streamsafe.repairs.place import Place
from streamsafe.repairs.repair_of_rule import REPAIRS, WHOLE
from streamsafe.repairs.tree import Codemod, Tree

if TYPE_CHECKING:
    from streamsafe.findings.checking import Report
    from streamsafe.findings.collect import Finding, Texts
    from streamsafe.project.files import File

ROUNDS = 100
"""How often a file is repaired and checked again, at most."""


def fix_of(finding: Finding, texts: Texts) -> Fix | None:
    """The repair of a finding, where one is certain to be right; none in a notebook, or where the settings say so."""
    if finding.repaired == "never":
        return None
    text = texts[finding.span.filename]
    if text.place(1)[0] is not None:
        return None
    if finding.rule.code == "SS901":
        return _without_suppression(finding, text)
    found = _repair(finding, text)
    if found is None:
        return None
    message, edits = found
    fix = Fix("safe" if finding.repaired == "safe" else "unsafe", message, edits)
    elsewhere = where(finding, fix, text)
    return replace(fix, message=f"{message} ({elsewhere})") if elsewhere else fix


def where(finding: Finding, fix: Fix, text: Text) -> str:
    """Where a repair goes, if that is not the line that is shown: ``in `Step.run()`, before line 9``."""
    edit = fix.edits[0]
    if edit.row == finding.span.row:
        return ""
    place = f"{'before' if edit.content.endswith(chr(10)) else 'on'} line {edit.row}"
    function = inside(text.text, edit.row)
    return f"in `{function}`, {place}" if function else place


def _repair(finding: Finding, text: Text) -> tuple[str, tuple[Edit, ...]] | None:
    """What a finding's repair does, and its edits."""
    hazard = finding.hazard
    known = REPAIRS.get(hazard.code)
    if known is None:
        return _edge(finding, text)
    notes = tuple(
        note.span
        for note in hazard.notes
        if note.span is not None and note.span.filename == finding.span.filename
    )
    tree = Tree.of(text.text) if hazard.code in WHOLE else Tree.around(text.text, finding.span, *notes)
    if tree is None:
        return None
    first = finding.other.span if finding.other is not None else None
    other = first if first is not None and first.filename == finding.span.filename else None
    found = known(Place(tree, tree.at(finding.span), hazard, notes, other))
    edits = tree.edits(found[1]) if found is not None else ()
    return (found[0], edits) if found is not None and edits else None


def _edge(finding: Finding, text: Text) -> tuple[str, tuple[Edit, ...]] | None:
    """The help's line of code, which adds the edge: before the second access, or where the data is taken out."""
    other, missing = finding.other, finding.hazard.missing
    edge = for_torch(text.text, missing.edge) if missing is not None else None
    if edge is None or (other is not None and other.span is None):
        return None
    place = finding.ordered_at
    tree = Tree.around(text.text, place) if place.filename == finding.span.filename else None
    if tree is None:
        return None
    mod = Codemod()
    if finding.hazard.code == "SS202":
        code = code_of(edge)
        row = after_use(text.text, edge, finding.span)
        at = tree.line_at(row) if row is not None else None
        if at is None:
            return None
        mod.after(at, code)
        return code, tree.edits(mod)
    first = other.span if other is not None else None
    found = insertion(text.text, edge, place, first)
    if found is None and first is not None:
        found = handed_out(text.text, edge, place, first)
        tree = Tree.around(text.text, first) or tree
    at = tree.line_at(found.row) if found is not None else None
    if found is None or at is None:
        return None
    mod.before(at, found.statement)
    return found.line, tree.edits(mod)


def _without_suppression(finding: Finding, text: Text) -> Fix | None:
    """Takes a code that suppresses nothing out of its comment; a comment that says nothing else goes."""
    span = finding.span
    for each in find_suppressions(text.text):
        if (each.row, each.column) != (span.row, span.column) or not each.codes:
            continue
        gone = finding.hazard.second.operation.strip("`").partition("[" if each.kind != "noqa" else ": ")[2]
        gone = gone.rstrip("]")
        if gone not in each.codes:
            continue
        left = [code for code in each.codes if code != gone]
        if left:
            listed = ", ".join(left)
            content = f"# noqa: {listed}" if each.kind == "noqa" else f"# streamsafe: {each.kind}[{listed}]"
            edit = Edit(each.row, each.column, each.row, each.end_column, content)
        else:
            edit = _comment_gone(text.lines[each.row - 1], each)
        return Fix("safe", f"remove the unused suppression of {gone}", (edit,))
    return None


def _comment_gone(line: str, each: Suppression) -> Edit:
    """Without the directive and its reason; another comment behind it stays."""
    before, behind = line[: each.column - 1], line[each.end_column - 1 :]
    start, end = len(before.rstrip()), len(line)
    if "#" in behind:
        end = len(line) - len(behind) + behind.index("#")
        start = len(before)
    elif not before.strip():
        return Edit(each.row, 1, each.row + 1, 1, "")
    return Edit(each.row, start + 1, each.row, end + 1, "")


@dataclass(slots=True)
class Repaired:
    """What repairing did.

    Attributes:
        changed: files whose bytes are now others.
        fixed: how many repairs were made.
        report: what is found in the files now.
        problems: repairs that were not made, with the reason.
    """

    report: Report
    changed: dict[str, bytes] = field(default_factory=dict)
    fixed: int = 0
    problems: list[str] = field(default_factory=list)


def repair(
    report: Report,
    files: Sequence[File],
    check: Callable[[Sequence[File], Mapping[str, bytes]], Report],
    given: Mapping[str, bytes],
    *,
    unsafe: bool,
) -> Repaired:
    """Make the repairs of a report's findings, one in each function at a time, and check again after each.

    A repair that does not end its finding is taken back: nothing is added that does nothing.

    Args:
        report: what was found in ``files``.
        check: checks files of which some bytes are given.
        given: the bytes of files that are not to be read from disk.
        unsafe: also the repairs that change what the program does.
    """
    result = Repaired(report)
    refused: set[tuple[str, str, str]] = set()
    for _ in range(ROUNDS):
        step = _step(result, given, unsafe, refused)
        if not step:
            break
        here = [file for file in files if file.path in step]
        after = check(here, {**given, **{path: data for path, (data, _) in step.items()}})
        counts, before = (Counter(map(_key, each.findings)) for each in (after, result.report))
        crashed = {each.path for each in after.crashes}
        for path, (data, findings) in step.items():
            if path in crashed or any(counts[_key(each)] >= before[_key(each)] for each in findings):
                refused.update(map(_key, findings))  # what it adds does nothing
            else:
                result.changed[path] = data
                result.fixed += len(findings)
        result.report = check(files, {**given, **result.changed})
    return result


def _key(finding: Finding) -> tuple[str, str, str]:
    """A finding but for its row, which a repair moves."""
    return finding.span.filename, finding.hazard.code, finding.hazard.message


def _origin(finding: Finding) -> Span | None:
    """Where the memory is allocated that is reused too early, or written that is not waited for."""
    allocated = (note.span for note in finding.hazard.notes if note.role == "allocated")
    first = finding.hazard.first if finding.rule.place == "second" else None
    return next(allocated, first.span if first is not None else None)


def _step(
    result: Repaired, given: Mapping[str, bytes], unsafe: bool, refused: set[tuple[str, str, str]]
) -> dict[str, tuple[bytes, list[Finding]]]:
    """For each file with repairs, its bytes after one in each function, and the findings that these are for."""
    texts = result.report.texts
    chosen: dict[str, dict[str, tuple[Finding, Fix]]] = {}
    begun: set[Span] = set()
    for finding in result.report.findings:
        if texts is None or _key(finding) in refused:
            continue
        fix = fix_of(finding, texts)
        if fix is None or (fix.applicability == "unsafe" and not unsafe):
            continue
        if (origin := _origin(finding)) is not None:
            if origin in begun:
                continue  # one line may be enough for all that wait for the same
            begun.add(origin)
        path = finding.span.filename
        group = (
            symbol(texts[path].text, fix.edits[0].row) if fix.applicability == "unsafe" else str(fix.edits)
        )
        chosen.setdefault(path, {}).setdefault(group, (finding, fix))
    step: dict[str, tuple[bytes, list[Finding]]] = {}
    for path, pairs in chosen.items():
        edits, made = _together(pairs.values())
        try:
            data = result.changed.get(path) or given.get(path) or Path(path).read_bytes()
            new = apply(data, edits)
            ast.parse(new)
        except (OSError, EditError, SyntaxError, ValueError) as error:
            result.problems.append(f"{path}: not fixed: {error}")
            refused |= {_key(finding) for finding, _ in pairs.values()}
            continue
        step[path] = (new, made)
    return step


def _together(pairs: Iterable[tuple[Finding, Fix]]) -> tuple[list[Edit], list[Finding]]:
    """The edits of the repairs that can be made at once: no row is touched by two of them."""
    edits: list[Edit] = []
    made: list[Finding] = []
    rows: set[int] = set()
    for finding, fix in pairs:
        here = {row for edit in fix.edits for row in range(edit.row, edit.end_row + 1)}
        if rows.isdisjoint(here):
            rows |= here
            edits += fix.edits
            made.append(finding)
    return edits, made


def count_fixable(findings: Iterable[Finding], texts: Texts | None) -> Counter[str]:
    """How many findings have a repair, by its applicability."""
    if texts is None:
        return Counter()
    fixes = (fix_of(finding, texts) for finding in findings)
    return Counter(fix.applicability for fix in fixes if fix is not None)
