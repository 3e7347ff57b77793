"""`streamsafe check`: find stream hazards in source files."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streamsafe.check.files import COLLECT_AFTER
from streamsafe.cli import Failure, output
from streamsafe.cli.output import Output
from streamsafe.cli.progress import progress
from streamsafe.findings import checking
from streamsafe.order.hazard import CONFIDENCES, Confidence
from streamsafe.order.wording import shown
from streamsafe.project.files import File, Found, discover
from streamsafe.project.settings import Config, ConfigError, Configs
from streamsafe.report.formats import FORMATS
from streamsafe.rule import SEVERITIES, Severity

if TYPE_CHECKING:
    from streamsafe.findings.checking import Report

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as it was given."""

    paths: tuple[str, ...]
    stdin_filename: str | None
    select: tuple[str, ...]
    extend_select: tuple[str, ...]
    ignore: tuple[str, ...]
    confidence: Confidence | None
    severity: Severity | None
    fix: bool
    unsafe_fixes: bool
    diff: bool
    fix_only: bool
    exit_non_zero_on_fix: bool
    add_noqa: bool
    reason: str
    diff_base: str | None
    trace: tuple[str, ...]
    hide_ordered: bool
    baseline: str | None
    write_baseline: bool
    output_format: str | None
    output_file: str | None
    statistics: bool
    quiet: bool
    verbose: bool
    watch: bool
    config: tuple[str, ...]
    isolated: bool
    exclude: tuple[str, ...]
    extend_exclude: tuple[str, ...]
    force_exclude: bool
    prefilter: bool
    jobs: int
    exit_zero: bool
    show_files: bool
    show_settings: bool
    explain_line: str | None
    cache: bool
    cache_dir: str | None
    ignore_noqa: bool


def _listed(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for text in value for part in text.split(",") if part.strip())


def _list(name: str, metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, metavar=metavar, multiple=True, callback=_listed, help=text)


class _AddNoqa(click.Command):
    """``--add-noqa=REASON`` is short for ``--add-noqa --reason REASON``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        split = [arg.partition("=") if arg.startswith("--add-noqa=") else (arg, "", "") for arg in args]
        return super().parse_args(
            ctx,
            [
                part
                for name, equals, reason in split
                for part in ((name, "--reason", reason) if equals else (name,))
            ],
        )


@click.command(cls=_AddNoqa)
@click.argument("paths", nargs=-1)
@click.option("--stdin-filename", metavar="FILE", help="The name that standard input (-) is checked under.")
@_list("--select", "CODES", "Codes, prefixes or names to report, comma-separated; ALL for every rule.")
@_list("--extend-select", "CODES", "Codes, prefixes or names to report in addition.")
@_list("--ignore", "CODES", "Codes, prefixes or names not to report.")
@click.option(
    "--confidence",
    type=click.Choice(CONFIDENCES),
    help="The least confidence to show [default: certain]; the others are for a review.",
)
@click.option(
    "--severity", type=click.Choice(SEVERITIES), help="The least severity to show [default: advice]."
)
@click.option("--fix", is_flag=True, help="Repair what can be repaired safely, and report the rest.")
@click.option(
    "--unsafe-fixes", is_flag=True, help="Also repairs that change what the program does, such as a wait."
)
@click.option("--diff", is_flag=True, help="Print the repairs as a diff, and change no file.")
@click.option("--fix-only", is_flag=True, help="Repair, and report nothing.")
@click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 when a file was repaired.")
@click.option("--ignore-noqa", is_flag=True, help="Show also what comments suppress.")
@click.option("--add-noqa", is_flag=True, help="Add a comment to the line of each hazard that suppresses it.")
@click.option("--reason", metavar="TEXT", default="", help="The reason in the comments of --add-noqa.")
@click.option(
    "--diff-base", metavar="REV", help="Report only hazards that lines changed since this git revision cause."
)
@click.option(
    "--trace",
    metavar="FILE",
    multiple=True,
    help="Mark each hazard as confirmed, ordered or not reached by a run that `streamsafe run --trace` recorded.",
)
@click.option("--hide-ordered", is_flag=True, help="Show only hazards that no --trace refutes.")
@click.option("--baseline", metavar="FILE", help="Report only hazards that this file does not list.")
@click.option("--write-baseline", is_flag=True, help="Write all hazards to the --baseline file.")
@output.options
@click.option("--statistics", is_flag=True, help="Show how often each code was found, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Print hazards, and nothing else.")
@click.option("-v", "--verbose", is_flag=True, help="Say which files are checked, how, and how long it took.")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes.")
@click.option(
    "--config",
    metavar="FILE|KEY=VALUE",
    multiple=True,
    help="Read the settings from this file only; or one setting, as TOML, that is stronger than any file's.",
)
@click.option("--isolated", is_flag=True, help="Read no configuration file.")
@_list(
    "--exclude", "PATTERNS", "Files not to check, as in .gitignore; instead of those of the configuration."
)
@_list("--extend-exclude", "PATTERNS", "The same, in addition to those of the configuration.")
@click.option(
    "--force-exclude", is_flag=True, help="Apply the patterns also to files named on the command line."
)
@click.option(
    "--prefilter/--no-prefilter",
    default=True,
    help="Skip files that name no stream API (changes no result).",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(0),
    default=0,
    help="Number of processes; 0 for one per processor. [default: 0]",
)
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are hazards.")
@click.option("--show-files", is_flag=True, help="List the files that would be checked, and check none.")
@click.option("--show-settings", is_flag=True, help="Show the settings that apply to the paths, as JSON.")
@click.option(
    "--explain-line", metavar="FILE:LINE", help="Show the streams, accesses and edges known at a line."
)
@click.option(
    "--cache/--no-cache", default=True, help="Use and keep results of earlier runs in .streamsafe_cache."
)
@click.option("--cache-dir", metavar="DIR", help="Keep results in this folder instead.")
def check(**values: Any) -> NoReturn:
    """Find stream hazards in Python files, notebooks and directories (default: the working directory).

    Exit status: 0 no hazards, 1 hazards, 2 a usage error, a file that cannot be found, or an internal error.
    """
    options = Options(**values)
    try:
        sys.exit(_run(options))
    except ConfigError as error:
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(130)


def _run(options: Options) -> int:
    configs = Configs(
        options.config,
        isolated=options.isolated,
        exclude=options.exclude or None,
        extend_exclude=options.extend_exclude,
    )
    if options.explain_line is not None:
        from streamsafe.cli.explain import explain

        layer = (options.select or None, options.extend_select, options.ignore)
        return explain(options.explain_line, configs, layer)
    if options.hide_ordered and not options.trace:
        raise click.UsageError("--hide-ordered needs --trace FILE")
    if options.trace and (options.fix or options.fix_only or options.diff or options.add_noqa):
        raise click.UsageError(
            "--trace cannot be used with a repair: what it inserts moves the lines of the run"
        )
    if options.add_noqa and (options.fix or options.fix_only or options.diff):
        raise click.UsageError("--add-noqa suppresses hazards, and --fix repairs them: name one of them")
    if options.write_baseline and options.baseline is None:
        raise click.UsageError("--write-baseline needs --baseline FILE")
    if options.watch and (STDIN in options.paths or options.stdin_filename):
        raise click.UsageError("standard input (-) cannot be watched")
    if options.watch:
        from streamsafe.cli.watch import watch

        return watch(options.paths or (".",), lambda: _once(options, configs.again()))
    if getattr(click.get_current_context().find_root().command, "owns_process", False):
        _spare_the_end()
    return _once(options, configs)


def _spare_the_end() -> None:
    """Do not look for unreachable cycles after the check: the process ends, and its memory with it.

    Python would look through all that is left twice, a tenth to a quarter of the time of a check in one process.
    """
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)


def _once(options: Options, configs: Configs) -> int:
    """One check, and what is done with what it finds."""
    given: dict[str, bytes] = {}
    found = _files(options, configs, given)
    for problem in found.problems:
        output.error(problem)
    for warning in () if options.quiet else found.warnings:
        click.echo(f"streamsafe: warning: {warning}", err=True)
    if options.show_files:
        for file in found.files:
            click.echo(file.path)
        return 2 if found.problems else 0
    if options.show_settings:
        return _show_settings(found.files, configs)
    here = configs.of_directory(os.getcwd())
    options = replace(options, output_format=options.output_format or _format_of(here))
    request = checking.Request(
        configs,
        (options.select or None, options.extend_select, options.ignore),
        options.confidence,
        options.severity,
        None if options.write_baseline else options.baseline,
        options.prefilter,
        options.jobs,
        os.path.abspath(options.cache_dir or here.cache_dir or checking.CACHE) if options.cache else "",
        options.ignore_noqa,
    )
    began = time.perf_counter()
    report = _check(options, request, found.files, given)
    if options.verbose:
        _say_how(found.files, report, time.perf_counter() - began)
    for problem in report.problems:
        click.echo(f"streamsafe: warning: {problem}", err=True)
    for result in report.crashes:
        output.error(
            f"internal error, {shown(result.path)} was not checked: {result.crash}; please report it"
        )
    status = _act(options, request, found.files, given, report)
    if report.stopped:
        output.error("interrupted: the files that are left were not checked")
        return 130
    return 2 if report.crashes or found.problems else status


def _format_of(config: Config) -> str | None:
    """The format that the settings name; None for the usual one."""
    if config.output_format and config.output_format not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise ConfigError(f"{config.path}: output-format: {config.output_format!r} is none of {allowed}")
    return config.output_format or None


def _check(options: Options, request: checking.Request, files: list[File], given: dict[str, bytes]) -> Report:
    from streamsafe.findings.baseline import BaselineError
    from streamsafe.repairs.checking import check
    from streamsafe.rule import RegistryError

    try:
        with progress(quiet=options.quiet) as done:
            report = check(request, files, given, done)
    except (BaselineError, RegistryError) as error:
        raise Failure(str(error)) from error
    if options.diff_base is not None:
        _only_changed(options.diff_base, report, files)
    if options.trace:
        _mark(options, report)
    return report


def _mark(options: Options, report: Report) -> None:
    """Say of each hazard what the recorded runs show of it."""
    from dataclasses import replace

    from streamsafe.findings.recorded_runs import Runs
    from streamsafe.order.trace import TraceError
    from streamsafe.runtime.traces import coded_steps

    try:
        runs = Runs(options.trace, coded_steps)
    except TraceError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot read {error.filename}: {error.strerror}") from error
    for warning in () if options.quiet else runs.warnings({each.span.filename for each in report.findings}):
        click.echo(f"streamsafe: warning: {warning}", err=True)
    if report.outcome is not None:
        marked = [replace(finding, run=runs.verdict(finding.hazard)) for finding in report.findings]
        kept = [each for each in marked if each.run is None or each.run.outcome != "ordered"]
        report.outcome.findings = kept if options.hide_ordered else marked
        report.outcome.ordered = len(marked) - len(report.outcome.findings)


def _act(
    options: Options,
    request: checking.Request,
    files: list[File],
    given: dict[str, bytes],
    report: Report,
) -> int:
    """Write, repair or show what was found, and return the exit status."""
    if options.write_baseline and options.baseline is not None:
        return 2 if report.crashes else _write_baseline(options.baseline, report)
    if options.add_noqa:
        from streamsafe.cli.fix import add_noqa

        return add_noqa(report, options.reason)
    note = ""
    fixed = 0
    if options.fix or options.fix_only or options.diff:
        from streamsafe.cli.fix import Fixing, fix

        how = Fixing(options.unsafe_fixes, options.diff, given)
        report, fixed, note = fix(
            report, files, lambda which, data: _check(options, request, list(which), dict(data)), how
        )
        if options.diff:
            if note and not options.quiet:
                click.echo(note, err=True)
            return 1 if fixed and not options.exit_zero else 0
        if STDIN in (options.paths or ()) or options.stdin_filename:
            return 1 if fixed and options.exit_non_zero_on_fix else 0
    elif (
        report.findings
        and not options.quiet
        and options.output_format in (None, "full", "concise", "grouped")
    ):
        from streamsafe.cli.fix import offer

        note = offer(report, unsafe=options.unsafe_fixes)
    show = Output(options.output_format or "full", options.output_file, options.quiet)
    if options.statistics:
        show.statistics(report.findings, report.notes)
    elif options.fix_only:
        click.echo(note) if note and not options.quiet else None
        return 1 if fixed and options.exit_non_zero_on_fix else 0
    else:
        show.show(report, len(files) - len(report.crashes), note)
    if fixed and options.exit_non_zero_on_fix:
        return 1
    return 1 if report.findings and not options.exit_zero else 0


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


def _only_changed(revision: str, report: Report, files: Sequence[File]) -> None:
    """Leave only the hazards that lines changed since a revision cause."""
    from streamsafe.project.changes import ChangesError, since

    try:
        changes = since(revision, [file.path for file in files])
    except ChangesError as error:
        raise Failure(str(error)) from error
    if report.outcome is not None:
        kept = [
            finding for finding in report.outcome.findings if changes.concern(finding.span, finding.places)
        ]
        report.outcome.unchanged = len(report.outcome.findings) - len(kept)
        report.outcome.findings = kept


def _say_how(files: list[File], report: Report, seconds: float) -> None:
    """What was read and how long it took, on standard error."""
    configs = {id(file.config): file.config for file in files}
    for config in configs.values():
        click.echo(
            f"streamsafe: configuration: {shown(config.path) if config.path else 'the defaults'}", err=True
        )
    click.echo(
        f"streamsafe: {output.count(len(files), 'file')} found, {report.analysed} parsed "
        f"(the others name no stream API), {seconds:.2f} s",
        err=True,
    )
    for file in files:
        click.echo(f"streamsafe: checked {shown(file.path)}", err=True)
    for path, note in report.notes:
        click.echo(f"streamsafe: {shown(path)}: not run to its end: {note}", err=True)


def _show_settings(files: list[File], configs: Configs) -> int:
    import json

    distinct = {id(file.config): file.config for file in files}.values() or [
        configs.of_directory(os.getcwd())
    ]
    click.echo(json.dumps([config.to_dict() for config in distinct], indent=2))
    return 0


def _write_baseline(path: str, report: Report) -> int:
    from streamsafe.findings import baseline
    from streamsafe.findings.collect import fingerprints

    try:
        marks = fingerprints(report.findings, report.texts, path) if report.texts is not None else []
        baseline.write(path, marks)
    except baseline.BaselineError as error:
        raise Failure(str(error)) from error
    click.echo(f"Wrote {output.count(len(report.findings), 'hazard')} to {path}.")
    return 0
