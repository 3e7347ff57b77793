"""How findings are shown: the formats, the file they go to, and the last line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from streamsafe.cli import Failure
from streamsafe.findings.verdict import MARKS
from streamsafe.order.hazard import CONFIDENCES
from streamsafe.order.wording import shown
from streamsafe.report.colour import linked, links_wanted, wanted
from streamsafe.report.formats import FORMATS, MACHINE, render

if TYPE_CHECKING:
    from streamsafe.findings.checking import Report
    from streamsafe.findings.collect import Finding, Outcome, Texts


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--output-format` and `--output-file`, which several commands have."""
    command = click.option(
        "-o", "--output-file", metavar="FILE", help="Write the hazards to this file instead of the terminal."
    )(command)
    return click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        default=None,
        help="How hazards are shown [default: full].",
    )(command)


def report(report: str | None, output_format: str | None, output_file: str | None) -> tuple[str | None, str]:
    """Where the hazards of a run go, and in which format.

    Args:
        report: of `--report`, which is short for JSON in a file.
        output_format, output_file: of the options of these names.

    Returns:
        a path, ``-`` for the terminal, or None where nothing was asked for; and a format.
    """
    if report is not None and (output_format or output_file):
        raise click.UsageError("--report is short for --output-format json --output-file: name one of them")
    if report is not None:
        return report, "json"
    if output_format is None and output_file is None:
        return None, "full"
    return output_file or "-", output_format or "full"


@dataclass(frozen=True, slots=True)
class Output:
    """Where findings go, and how.

    Attributes:
        format: one of FORMATS.
        file: a path; None for standard output.
        quiet: no last line.
    """

    format: str
    file: str | None = None
    quiet: bool = False

    @contextmanager
    def opened(self) -> Iterator[TextIO | None]:
        """The file to write to; None for standard output.

        Raises:
            Failure: the file cannot be written.
        """
        if self.file is None:
            yield None
            return
        try:
            file = open(self.file, "w", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            raise Failure(f"{self.file}: cannot be written: {error.strerror or error}") from error
        with file:
            yield file

    def show(self, report: Report, files: int, note: str = "") -> None:
        """Write what a check found, and say at the end how much that is.

        Args:
            report: what was found.
            files: how many files were checked.
            note: what else the end says, for a person.
        """
        with self.opened() as file:
            if self.format in MACHINE:
                self._machine(report, file)
            else:
                self._blocks(report, file)
        if self.quiet:
            return
        if self.format in MACHINE and self.format != "grouped" and self.file is None:
            if report.notes:
                click.echo(f"streamsafe: warning: {_limits(report)}", err=True)
            return
        colour = wanted(sys.stdout)
        if note:
            click.echo(note, color=colour)
        click.echo(_summary(report.findings, report.outcome, files, _limits(report)), color=colour)

    def _machine(self, report: Report, file: TextIO | None) -> None:
        objects: list[dict[str, Any]] = []
        if report.texts is not None and report.findings:
            from streamsafe.repairs.repair import fix_of
            from streamsafe.report.json import as_dict

            texts = report.texts
            objects = [as_dict(finding, texts, fix_of(finding, texts)) for finding in report.findings]
        text = render(self.format, objects, report.notes)
        if text:
            click.echo(text, file=file)
        if text and self.format == "grouped" and self.file is None:
            click.echo(file=file)

    def _blocks(self, report: Report, file: TextIO | None) -> None:
        texts = report.texts
        if texts is None:
            return
        from streamsafe.report import concise, full

        colour, links = wanted(file or sys.stdout), links_wanted(file or sys.stdout)
        repaired = _elsewhere(report, texts) if self.format != "concise" else [""] * len(report.findings)
        for finding, elsewhere in zip(report.findings, repaired, strict=True):
            if self.format == "concise":
                block = concise.render(finding, texts)
            else:
                said = [("run", finding.run.text)] if finding.run is not None else []
                block = full.render(finding.hazard, texts, click.style, said)
                block += _repair(elsewhere, block) + "\n"
            if links and finding.rule.url:
                code = finding.hazard.code
                block = block.replace(code, linked(code, finding.rule.url), 1)
            click.echo(block, color=colour, file=file)

    def statistics(self, findings: list[Finding], notes: Sequence[tuple[str, str]] = ()) -> None:
        """How often each code was found, most often first, and which files were not run to their end."""
        counts = Counter((finding.rule.code, finding.rule.name) for finding in findings)
        rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
        with self.opened() as file:
            if self.format == "json":
                import json

                objects = [{"code": code, "name": name, "count": n} for (code, name), n in rows]
                click.echo(json.dumps(objects, indent=2), file=file)
                return
            width = max((len(str(n)) for _, n in rows), default=1)
            for (code, name), n in rows:
                click.echo(f"{n:>{width}}  {code}  {name}", file=file)
            for path, note in notes:
                click.echo(f"{shown(path)}: not run to its end: {note}", file=file)


def _limits(report: Report) -> str:
    """How many files were not run to their end; "" where all were."""
    cut = {path for path, _ in report.notes}
    if not cut:
        return ""
    return f"{count(len(cut), 'file')} not run to {'its' if len(cut) == 1 else 'their'} end, see --verbose"


def _shows(option: str, number: int) -> str:
    """What shows so many that are hidden."""
    return f"{option} shows {'it' if number == 1 else 'them'}"


def _summary(findings: list[Finding], outcome: Outcome | None, files: int, limits: str = "") -> str:
    """The last line: what was found, what is not shown, and what was not run to its end."""
    if files == 0:
        return click.style("No Python files found.", fg="yellow", bold=True)
    if findings:
        line = click.style(f"Found {_kinds(findings)}", fg="red", bold=True)
    else:
        line = click.style("No hazards found", fg="green", bold=True)
    line += f" in {count(files, 'file')}"
    marks = Counter(finding.run.mark for finding in findings if finding.run is not None)
    rest = [", ".join(f"{marks[mark]} {mark}" for mark in MARKS.values() if marks[mark])] if marks else []
    if outcome is not None:
        if outcome.hidden:
            named = [each for each in CONFIDENCES if outcome.hidden[each]]
            hidden = ", ".join(f"{outcome.hidden[each]} {each}" for each in named)
            shows = _shows(f"--confidence {named[-1]}", sum(outcome.hidden.values()))
            rest.append(f"{hidden} hidden: {shows}")
        if outcome.minor:
            rest.append(f"{outcome.minor} less severe hidden: {_shows('--severity advice', outcome.minor)}")
        if outcome.suppressed:
            rest.append(f"{outcome.suppressed} suppressed")
        if outcome.known:
            rest.append(f"{outcome.known} in the baseline")
        if outcome.gone:
            rest.append(f"{outcome.gone} of the baseline no longer found")
        if outcome.unchanged:
            rest.append(f"{outcome.unchanged} on unchanged lines")
        if outcome.ordered:
            rest.append(f"{outcome.ordered} ordered in this run hidden")
    if limits:
        rest.append(limits)
    return f"{line} ({'; '.join(rest)})." if rest else f"{line}."


def _elsewhere(report: Report, texts: Texts) -> list[str]:
    """Where the repair of each finding goes, when that is not the line that is shown; else "".

    Of the same findings in the same texts what is kept: repairs are made with LibCST, which takes a while.
    """
    from streamsafe.check.cache import Cache, key_of

    if not report.cache or not report.findings:
        return _placed(report, texts)
    cache = Cache(report.cache)
    files = sorted({finding.span.filename for finding in report.findings})
    shown = (f"{each.rule.code} {each.span} {each.hazard!r}" for each in report.findings)
    key = key_of("elsewhere", *shown, *(texts[path].text for path in files))
    known = (cache.load(key) or {}).get("elsewhere")
    if isinstance(known, list) and [*map(type, known)] == [str] * len(report.findings):
        return known
    placed = _placed(report, texts)
    cache.store(key, {"elsewhere": placed})
    return placed


def _placed(report: Report, texts: Texts) -> list[str]:
    from streamsafe.repairs.repair import fix_of, where  # imports LibCST

    fixes = ((finding, fix_of(finding, texts)) for finding in report.findings)
    return [
        where(finding, fix, texts[finding.span.filename]) if fix is not None else "" for finding, fix in fixes
    ]


def _repair(elsewhere: str, block: str) -> str:
    """One more line of a block: where the repair goes, when that is not the line that is shown."""
    if not elsewhere:
        return ""
    last = click.unstyle(block).rpartition("\n")[2]
    mark = click.style("=", fg="blue", bold=True)
    return f"\n{' ' * (len(last) - len(last.lstrip()))}{mark} {click.style('fix', bold=True)}: {elsewhere}"


def _kinds(findings: list[Finding]) -> str:
    """Hazards are mistakes about streams; what housekeeping rules (SS9) report is a problem."""
    problems = sum(finding.rule.code.startswith("SS9") for finding in findings)
    hazards = len(findings) - problems
    if not problems:
        return count(hazards, "hazard")
    return (
        f"{count(hazards, 'hazard')} and {count(problems, 'problem')}"
        if hazards
        else count(problems, "problem")
    )


def count(number: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def error(message: str) -> None:
    """What went wrong, on standard error."""
    click.echo(f"streamsafe: error: {message}", err=True)
