"""One check of some files, from their bytes to what is shown: what the command line, fixes and the server share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamsafe.check.files import check as run_files
from streamsafe.check.files import plan as plan_of
from streamsafe.check.task import ADVICE, Checked, Plan
from streamsafe.order.hazard import Confidence
from streamsafe.project.files import File
from streamsafe.project.settings import Config, Configs

if TYPE_CHECKING:
    from streamsafe.findings.collect import Finding, Layer, Outcome, Texts
    from streamsafe.rule import Severity

CACHE = ".streamsafe_cache"
"""Where results are kept between runs, in the working directory."""

Done = Callable[[int, int], None]
"""Told after each file that was analysed: how many are done, of how many."""


@dataclass(frozen=True, slots=True)
class Request:
    """How files are checked.

    Attributes:
        configs: the configuration of each directory.
        layer: the command line's select, extend-select and ignore, stronger than a configuration's.
        confidence, severity: the least that is shown; None for the configuration's.
        baseline: a file whose hazards are not shown.
        prefilter: whether files that name no stream API are skipped.
        jobs: at most so many processes; 0 for as many as there are processors.
        cache: the directory in which results are kept between runs; "" for none.
        ignore_noqa: whether comments that suppress count for nothing.
    """

    configs: Configs
    layer: Layer = (None, (), ())
    confidence: Confidence | None = None
    severity: Severity | None = None
    baseline: str | None = None
    prefilter: bool = True
    jobs: int = 0
    cache: str = ""
    ignore_noqa: bool = False

    def config_of(self, path: str) -> Config:
        """The configuration that counts for a file."""
        return self.configs.of_directory(os.path.dirname(os.path.abspath(path)))


@dataclass(slots=True)
class Report:
    """What a check found.

    Attributes:
        outcome, texts: None when nothing was found, which needs no rule to be imported.
        crashes: files that were not checked because of an internal error.
        analysed: how many files were worth parsing.
        notes: files that were not run to their end, and why.
        problems: what went wrong with the cache, in one sentence each.
        cache: the directory in which results are kept between runs; "" for none.
        stopped: whether the user has stopped it before all files were checked.
    """

    outcome: Outcome | None = None
    texts: Texts | None = None
    crashes: list[Checked] = field(default_factory=list)
    analysed: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    cache: str = ""
    stopped: bool = False

    @property
    def findings(self) -> list[Finding]:
        """What is shown, in the order of file, row, column and code."""
        return self.outcome.findings if self.outcome is not None else []


def check(
    request: Request,
    files: Sequence[File],
    given: Mapping[str, bytes] | None = None,
    done: Done | None = None,
) -> Report:
    """Check files.

    Args:
        request: how.
        files: which.
        given: the bytes of files that are not to be read from disk.
        done: called for each file that is checked.

    Raises:
        streamsafe.findings.baseline.BaselineError: the baseline cannot be read.
        streamsafe.rule.RegistryError: a rule cannot be loaded, or a selector names none.
    """
    given = given or {}
    _check_selectors(request, files)
    report = Report(cache=request.cache)
    done_files = _found(request, given, files, report.problems, done)
    plan, checked = done_files.plan, done_files.checked
    report.analysed, report.stopped = plan.count, done_files.stopped
    if not _wants_advice(request, files):
        for each in checked:  # it costs nothing to find, and rules to show
            each.conflicts = [c for c in each.conflicts if c.facts.violation not in ADVICE.values()]
    report.crashes = [each for each in checked if each.crash]
    report.notes = [(each.path, note) for each in checked for note in each.notes]
    found = plan.mentions or any(each.conflicts for each in checked) or request.baseline is not None
    if not found:
        return report
    from streamsafe.findings.collect import Selection, Texts, collect

    by_path = {file.path: file.config for file in files}
    report.texts = Texts(given)
    report.outcome = collect(
        checked,
        files,
        plan.mentions,
        report.texts,
        Selection(request.layer),
        lambda path: by_path.get(path) or request.config_of(path),
        request.confidence,
        request.severity,
        request.baseline,
        request.ignore_noqa,
    )
    _say_limits(report)
    return report


@dataclass(slots=True)
class _Found:
    """What came of the files.

    Attributes:
        stopped: whether the user has stopped the check before all were checked.
    """

    plan: Plan
    checked: list[Checked]
    stopped: bool = False


def _found(
    request: Request,
    given: Mapping[str, bytes],
    files: Sequence[File],
    problems: list[str],
    done: Done | None,
) -> _Found:
    """What was planned, and what came of the files: of an earlier check, if nothing has changed since."""
    from streamsafe.check.cache import Cache
    from streamsafe.check.runs import Run

    cache = Cache(request.cache) if request.cache and not given else None
    run = Run(cache, files, request.prefilter) if cache is not None else None
    known = run.known() if run is not None else None
    if known is not None:
        return _Found(*known)
    plan = plan_of(files, given, use_prefilter=request.prefilter, jobs=request.jobs)
    kept = request.cache if run else ""
    results = run_files(plan, jobs=request.jobs, done=done, cache=kept, given=given, problems=problems)
    found = _Found(plan, [*plan.unread, *results.checked], results.stopped)
    if run is not None and cache is not None and not found.stopped:
        run.keep(plan, found.checked, results.looked)
        problems += [problem for problem in cache.problems if problem not in problems]
    return found


def _say_limits(report: Report) -> None:
    """Let each finding know what in its file was analysed in part only."""
    if report.outcome is None or not report.notes:
        return
    notes: dict[str, list[str]] = {}
    for path, note in report.notes:
        notes.setdefault(path, []).append(note)
    report.outcome.findings = [
        replace(finding, cut_short=tuple(notes[path]))
        if (path := finding.span.filename) in notes
        else finding
        for finding in report.outcome.findings
    ]


def _wants_advice(request: Request, files: Sequence[File]) -> bool:
    """Whether a rule of advice is selected for a file."""
    if not any(request.layer) and not any(_selects(file.config) for file in files):
        return False
    from streamsafe.findings.collect import Selection

    selection = Selection(request.layer)
    return any(not selection.codes(file.path, file.config).isdisjoint(ADVICE) for file in files)


def _check_selectors(request: Request, files: Sequence[File]) -> None:
    """See that all selectors name rules, so that a mistake is one also where nothing is found."""
    if not any(request.layer) and not any(_selects(file.config) for file in files):
        return
    from streamsafe.findings.collect import Selection

    selection = Selection(request.layer)
    for config in {id(file.config): file.config for file in files}.values():
        selection.check(config)


def _selects(config: Config) -> bool:
    return config.select is not None or any(
        (config.extend_select, config.ignore, config.per_file_ignores, config.rule_severity)
    )
