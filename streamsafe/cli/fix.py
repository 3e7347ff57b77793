"""`--fix`, `--diff` and `--add-noqa`: files changed, or shown as they would be."""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamsafe.cli import Failure
from streamsafe.cli.output import count, error
from streamsafe.findings.edits import Edit, EditError, apply
from streamsafe.order.wording import shown
from streamsafe.report.colour import wanted

if TYPE_CHECKING:
    from streamsafe.findings.checking import Report
    from streamsafe.project.files import File

Check = Callable[[Sequence["File"], Mapping[str, bytes]], "Report"]


@dataclass(frozen=True, slots=True)
class Fixing:
    """How repairs are made.

    Attributes:
        unsafe: also those that add a wait or a synchronize.
        diff: print them as a diff, and change no file.
        given: what came on standard input, which is printed as it is repaired.
    """

    unsafe: bool
    diff: bool
    given: Mapping[str, bytes]


def fix(report: Report, files: Sequence[File], check: Check, how: Fixing) -> tuple[Report, int, str]:
    """Repair files.

    Returns:
        what is found in them now, how many repairs were made, and a sentence on them.

    Raises:
        Failure: a file cannot be written.
    """
    from streamsafe.repairs.repair import repair

    done = repair(report, files, check, how.given, unsafe=how.unsafe)
    for problem in done.problems:
        error(problem)
    fixed = done.fixed
    for path, data in done.changed.items():
        old = how.given[path] if path in how.given else Path(path).read_bytes()
        if how.diff:
            _print_diff(path, old, data)
        elif path not in how.given:
            try:
                Path(path).write_bytes(data)
            except OSError as problem:
                raise Failure(f"{shown(path)}: cannot be written: {problem.strerror or problem}") from problem
    if not how.diff:
        for path, data in how.given.items():  # standard input is printed, repaired or not
            sys.stdout.buffer.write(done.changed.get(path, data))
            sys.stdout.flush()
    made = "Would fix" if how.diff else "Fixed"
    note = f"{made} {count(fixed, 'hazard')}." if fixed else ""
    return (
        done.report,
        fixed,
        " ".join(filter(None, (note, offer(done.report, unsafe=how.unsafe, fixing=True)))),
    )


def offer(report: Report, *, unsafe: bool, fixing: bool = False) -> str:
    """What can be repaired, and by which option."""
    fixable = _fixable(report)
    if fixing:
        hidden = 0 if unsafe else fixable["unsafe"]
        return f"{count(hidden, 'repair')} can be made with --unsafe-fixes." if hidden else ""
    parts = []
    safe = fixable["safe"] + (fixable["unsafe"] if unsafe else 0)
    if safe:
        flags = " --unsafe-fixes" if unsafe else ""
        parts.append(f"{safe} fixable: --diff{flags} shows how, --fix{flags} does it.")
    if fixable["unsafe"] and not unsafe:
        flags = " --unsafe-fixes"
        parts.append(f"{fixable['unsafe']} fixable: --diff{flags} shows how, --fix{flags} does it.")
    return "\n".join(parts)


def _fixable(report: Report) -> Counter[str]:
    """How many findings have a repair, by its applicability: of the same findings in the same texts what is kept."""
    from streamsafe.check.cache import Cache, key_of

    texts = report.texts
    if not report.cache or texts is None or not report.findings:
        return _counted(report)
    cache = Cache(report.cache)
    files = sorted({finding.span.filename for finding in report.findings})
    shown = (f"{each.rule.code} {each.span} {each.hazard.message}" for each in report.findings)
    key = key_of("fixable", *shown, *(texts[path].text for path in files))
    known = cache.load(key) or {}
    if all(isinstance(value, int) for value in known.values()) and known:
        return Counter(known)
    fixable = _counted(report)
    cache.store(key, {"safe": fixable["safe"], "unsafe": fixable["unsafe"]})
    return fixable


def _counted(report: Report) -> Counter[str]:
    from streamsafe.repairs.repair import count_fixable  # imports LibCST

    return count_fixable(report.findings, report.texts)


def add_noqa(report: Report, reason: str) -> int:
    """Add a comment that suppresses it to each finding's line."""
    if report.texts is None or not report.findings:
        click.echo("Added no comments: there is nothing to suppress.")
        return 0
    from streamsafe.repairs.noqa import additions

    edits, left = additions(report.findings, report.texts, reason)
    written = 0
    for path, changes in edits.items():
        written += _write(path, changes)
    for finding in left:
        place = f"{shown(finding.span.filename)}:{finding.span.row}"
        error(
            f"{place}: no comment can suppress {finding.rule.code} here: use per-file-ignores or a baseline"
        )
    click.echo(f"Added {count(written, 'comment')} in {count(len(edits), 'file')}.")
    return 1 if left or written < sum(map(len, edits.values())) else 0


def _write(path: str, changes: list[Edit]) -> int:
    try:
        file = Path(path)
        file.write_bytes(apply(file.read_bytes(), changes))
    except (OSError, EditError) as problem:
        error(f"{shown(path)}: {problem}")
        return 0
    return len(changes)


def _print_diff(path: str, old: bytes, new: bytes) -> None:
    before, after = (data.decode("utf-8", "replace").splitlines(keepends=True) for data in (old, new))
    colour = wanted(sys.stdout)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in difflib.unified_diff(before, after, shown(path), shown(path)):
        strong = line.startswith(("+++", "---"))
        text = click.style(line.rstrip("\r\n"), fg=None if strong else colours.get(line[:1]), bold=strong)
        click.echo(text, color=colour)
        if not line.endswith("\n"):
            click.echo("\\ No newline at end of file")
