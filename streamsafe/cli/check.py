"""`streamsafe check`: find stream hazards in source files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streamsafe.cli import Failure
from streamsafe.config import Config, ConfigError, Configs
from streamsafe.order.hazard import CONFIDENCES, Confidence
from streamsafe.report.colour import wanted
from streamsafe.report.paths import shown
from streamsafe.static import project
from streamsafe.static.discovery import File, Found, discover

if TYPE_CHECKING:
    from streamsafe.findings import Finding, Outcome, Texts

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as it was given."""

    paths: tuple[str, ...]
    stdin_filename: str | None
    select: tuple[str, ...]
    extend_select: tuple[str, ...]
    ignore: tuple[str, ...]
    output_format: str
    confidence: Confidence | None
    config: str | None
    isolated: bool
    force_exclude: bool
    prefilter: bool
    jobs: int
    exit_zero: bool
    statistics: bool
    show_files: bool
    show_settings: bool
    explain_line: str | None
    baseline: str | None
    write_baseline: bool


def _codes(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for text in value for part in text.split(",") if part.strip())


def _selector(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, metavar="CODES", multiple=True, callback=_codes, help=text)


@click.command()
@click.argument("paths", nargs=-1)
@click.option("--stdin-filename", metavar="FILE", help="The name that standard input (-) is checked under.")
@_selector("--select", "Codes, prefixes or names to report, comma-separated; ALL for every rule.")
@_selector("--extend-select", "The same, in addition to those that are on.")
@_selector("--ignore", "Codes, prefixes or names not to report.")
@click.option(
    "--output-format",
    type=click.Choice(["full", "concise", "json"]),
    default="full",
    help="How findings are shown.",
)
@click.option(
    "--confidence", type=click.Choice(CONFIDENCES), help="The least confidence to show [default: likely]."
)
@click.option("--config", metavar="FILE", help="Read [tool.streamsafe] from this file only.")
@click.option("--isolated", is_flag=True, help="Read no configuration file.")
@click.option("--force-exclude", is_flag=True, help="Apply `exclude` to files that are named, too.")
@click.option(
    "--prefilter/--no-prefilter",
    default=True,
    help="Skip files that name no stream API (changes no finding).",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(0), default=0, help="Processes; 0 for one a processor. [default: 0]"
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--statistics", is_flag=True, help="Show how often each code was found, and nothing else.")
@click.option("--show-files", is_flag=True, help="List the files that would be checked, and check none.")
@click.option("--show-settings", is_flag=True, help="Show the settings that count for the paths, as JSON.")
@click.option(
    "--explain-line", metavar="FILE:LINE", help="Show the streams, accesses and edges known at a line."
)
@click.option("--baseline", metavar="FILE", help="Report only what this file does not know.")
@click.option("--write-baseline", is_flag=True, help="Write all findings to the --baseline file.")
def check(**values: Any) -> NoReturn:
    """Find stream hazards in Python files, notebooks and directories (default: the working directory).

    Exit status: 0 no findings, 1 findings, 2 a usage error, a file that cannot be found, or an internal error.
    """
    options = Options(**values)
    try:
        sys.exit(_run(options))
    except ConfigError as error:
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(130)


def _run(options: Options) -> int:
    configs = Configs(options.config, isolated=options.isolated)
    if options.explain_line is not None:
        return _explain(options.explain_line, configs)
    if options.write_baseline and options.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE")
    given: dict[str, bytes] = {}
    found = _files(options, configs, given)
    for problem in found.problems:
        _error(problem)
    for warning in found.warnings:
        click.echo(f"streamsafe: warning: {warning}", err=True)
    if options.show_files:
        for file in found.files:
            click.echo(file.path)
        return 2 if found.problems else 0
    if options.show_settings:
        return _show_settings(found.files, configs)

    selects = any((options.select, options.extend_select, options.ignore))
    if selects or any(_selects(file.config) for file in found.files):
        _check_selectors(options, found.files)
    plan = project.plan(found.files, given, use_prefilter=options.prefilter, jobs=options.jobs)
    checked = [*plan.unread, *project.check(plan.tasks, options.jobs)]
    crashes = [result for result in checked if result.crash]
    for result in crashes:
        _error(f"internal error, {shown(result.path)} was not checked: {result.crash}; please report it")
    outcome, texts = _collect(options, configs, found.files, plan, checked, given)
    if options.write_baseline and options.baseline is not None:
        return _write_baseline(options.baseline, outcome, texts) if not crashes else 2
    findings = outcome.findings if outcome is not None else []
    _show(options, findings, outcome, texts, len(found.files) - len(crashes))
    if crashes or found.problems:
        return 2
    return 1 if findings and not options.exit_zero else 0


def _files(options: Options, configs: Configs, given: dict[str, bytes]) -> Found:
    paths = options.paths or ((STDIN,) if options.stdin_filename else (".",))
    if STDIN not in paths:
        return discover(paths, configs, force_exclude=options.force_exclude)
    if len(paths) > 1:
        raise click.UsageError("standard input (-) cannot be checked together with other paths")
    name = options.stdin_filename or STDIN
    path = os.path.abspath(name) if options.stdin_filename else name
    given[path] = sys.stdin.buffer.read()
    directory = os.path.dirname(os.path.abspath(name))
    return Found([File(path, configs.of_directory(directory), named=True)])


def _selects(config: Config) -> bool:
    return config.select is not None or bool(config.extend_select or config.ignore or config.per_file_ignores)


def _layer(options: Options) -> tuple[tuple[str, ...] | None, tuple[str, ...], tuple[str, ...]]:
    return options.select or None, options.extend_select, options.ignore


def _check_selectors(options: Options, files: list[File]) -> None:
    from streamsafe.findings import Selection
    from streamsafe.registry import RegistryError

    try:
        selection = Selection(_layer(options))
        for config in {id(file.config): file.config for file in files}.values():
            selection.check(config)
    except RegistryError as error:
        raise Failure(str(error)) from error


def _collect(
    options: Options,
    configs: Configs,
    files: list[File],
    plan: project.Plan,
    checked: list[project.Checked],
    given: dict[str, bytes],
) -> tuple[Outcome | None, Texts | None]:
    """What is shown; None when nothing was found, which needs no rule to be imported."""
    if not plan.mentions and not any(result.conflicts for result in checked) and options.baseline is None:
        return None, None
    from streamsafe.findings import Selection, Texts, collect
    from streamsafe.registry import RegistryError
    from streamsafe.static.baseline import BaselineError

    by_path = {file.path: file.config for file in files}
    texts = Texts(given)
    try:
        outcome = collect(
            checked,
            files,
            plan.mentions,
            texts,
            Selection(_layer(options)),
            lambda path: by_path.get(path) or configs.of_directory(os.path.dirname(os.path.abspath(path))),
            options.confidence,
            None if options.write_baseline else options.baseline,
        )
    except (BaselineError, RegistryError) as error:
        raise Failure(str(error)) from error
    return outcome, texts


def _show(
    options: Options, findings: list[Finding], outcome: Outcome | None, texts: Texts | None, files: int
) -> None:
    if options.statistics:
        return _statistics(options, findings)
    if options.output_format == "json":
        from streamsafe.report import json

        if texts is None:
            return click.echo("[]")
        return click.echo(json.render(findings, texts))
    colour = wanted(sys.stdout)
    if texts is not None and options.output_format == "concise":
        from streamsafe.report import concise

        for finding in findings:
            click.echo(concise.render(finding, texts))
    elif texts is not None:
        from streamsafe.report import full

        for finding in findings:
            click.echo(full.render(finding.hazard, texts, click.style) + "\n", color=colour)
    click.echo(_summary(findings, outcome, files), color=colour)


def _summary(findings: list[Finding], outcome: Outcome | None, files: int) -> str:
    """The last line: what was found, and what is not shown."""
    if files == 0:
        return click.style("No Python files found.", fg="yellow", bold=True)
    noun = "finding" if any(finding.rule.code.startswith("SS9") for finding in findings) else "hazard"
    if findings:
        line = click.style(f"Found {_count(len(findings), noun)}", fg="red", bold=True)
    else:
        line = click.style("No hazards found", fg="green", bold=True)
    line += f" in {_count(files, 'file')}"
    rest = []
    if outcome is not None:
        hidden = [f"{n} {confidence}" for confidence, n in sorted(outcome.hidden.items())]
        if hidden:
            rest.append(f"{', '.join(hidden)} hidden, see --confidence")
        if outcome.suppressed:
            rest.append(f"{outcome.suppressed} suppressed")
        if outcome.known:
            rest.append(f"{outcome.known} in the baseline")
        if outcome.gone:
            rest.append(f"{outcome.gone} of the baseline no longer found")
    return f"{line} ({'; '.join(rest)})." if rest else f"{line}."


def _statistics(options: Options, findings: list[Finding]) -> None:
    counts = Counter((finding.rule.code, finding.rule.name) for finding in findings)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    if options.output_format == "json":
        import json

        click.echo(json.dumps([{"code": c, "name": name, "count": n} for (c, name), n in rows], indent=2))
        return
    width = max((len(str(n)) for _, n in rows), default=1)
    for (code, name), n in rows:
        click.echo(f"{n:>{width}}  {code}  {name}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _error(message: str) -> None:
    click.echo(f"streamsafe: error: {message}", err=True)


def _show_settings(files: list[File], configs: Configs) -> int:
    import json

    distinct = {id(file.config): file.config for file in files}.values() or [
        configs.of_directory(os.getcwd())
    ]
    click.echo(json.dumps([config.to_dict() for config in distinct], indent=2))
    return 0


def _write_baseline(path: str, outcome: Outcome | None, texts: Texts | None) -> int:
    from streamsafe.findings import fingerprints
    from streamsafe.static import baseline

    findings = outcome.findings if outcome is not None else []
    try:
        baseline.write(path, fingerprints(findings, texts, path) if texts is not None else [])
    except baseline.BaselineError as error:
        raise Failure(str(error)) from error
    click.echo(f"Wrote {_count(len(findings), 'finding')} to {path}.")
    return 0


def _explain(place: str, configs: Configs) -> int:
    path, _, line = place.rpartition(":")
    if not path or not line.isascii() or not line.isdigit() or int(line) == 0:
        raise click.UsageError(f"--explain-line: {place!r} is not FILE:LINE")
    if not os.path.isfile(path):
        raise click.UsageError(f"--explain-line: {path}: no such file")
    full = os.path.abspath(path)
    models = configs.of_directory(os.path.dirname(full)).models
    result = project.check_one(project.Task(full, 0, models), explain=int(line))
    if result.crash:
        _error(f"internal error in {path}: {result.crash}; please report it")
        return 2
    reported = _findings_at(result, int(line))
    for text in (*result.explanation, *reported):
        click.echo(text)
    if not result.explanation and not reported:
        click.echo("no stream, access or edge is known there")
    return 0


def _findings_at(result: project.Checked, row: int) -> list[str]:
    """What a file's analysis reports on a row, whatever is selected, suppressed or hidden."""
    from streamsafe.registry import code_for

    lines = []
    for conflict in result.conflicts:
        spans = [access.span for access in (conflict.first, conflict.second) if access is not None]
        if any(span is not None and span.row <= row <= span.end_row for span in spans):
            hazard = code_for(conflict)
            lines.append(f"{hazard.code} ({hazard.confidence}): {hazard.message}")
    return lines
