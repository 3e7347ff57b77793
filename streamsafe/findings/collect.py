"""From conflicts to what is shown: codes, selection, suppressions, confidence and baseline, in that order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from streamsafe.check.assumptions import SHOWN_BY_DEFAULT
from streamsafe.check.task import Checked, violation
from streamsafe.findings import baseline
from streamsafe.order.hazard import CONFIDENCES, Access, Confidence, Hazard, Span
from streamsafe.project.files import File, matches
from streamsafe.project.settings import Config
from streamsafe.project.suppressions import Suppression, find
from streamsafe.project.text import SourceError, Text, read
from streamsafe.rule import SEVERITIES, RegistryError, Rule, Severity, code_for, codes_of, find_rule, select

if TYPE_CHECKING:
    from streamsafe.findings.verdict import Verdict

Layer = tuple[Sequence[str] | None, Sequence[str], Sequence[str]]
"""select, extend-select, ignore."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hazard in a file, with its rule.

    Attributes:
        level: the severity that the configuration gives the rule, if any.
        repaired: whether its repair is made: ``never``, as a ``safe`` one, or as its rule says ("").
        run: what recorded runs say of it; None where none were given.
        cut_short: why the file was not run to its end, where a limit cut that short.
    """

    hazard: Hazard
    rule: Rule
    level: Severity | None = None
    repaired: Literal["", "never", "safe"] = ""
    run: Verdict | None = None
    cut_short: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity:
        """The rule's, unless the configuration gives the rule another one (``level``)."""
        return self.level or self.rule.severity

    @property
    def access(self) -> Access:
        """The access that the finding stands on."""
        first = self.hazard.first
        return (
            first if self.rule.place == "first" and first is not None and first.span else self.hazard.second
        )

    @property
    def other(self) -> Access | None:
        """The other access, if there is one."""
        return self.hazard.second if self.access is self.hazard.first else self.hazard.first

    @property
    def span(self) -> Span:
        """Where it stands."""
        assert self.access.span is not None
        return self.access.span

    @property
    def ordered_at(self) -> Span:
        """Where an edge is missing: of what a host function does, where its stream is given it."""
        return self.access.given or self.span

    @property
    def places(self) -> list[Span]:
        """The accesses, and the waits, allocations and releases that explain it."""
        spans = [access.span for access in (self.access, self.other) if access is not None]
        spans += [note.span for note in (*self.hazard.notes, *self.hazard.edges)]
        return [span for span in spans if span is not None]

    def sort_key(self) -> tuple[object, ...]:
        span, hazard = self.span, self.hazard
        return (
            span.filename,
            span.row,
            span.column,
            hazard.code,
            span.end_row,
            span.end_column,
            hazard.message,
        )


@dataclass(slots=True)
class Outcome:
    """What a run shows, and what it does not.

    Attributes:
        findings: in the order of file, row, column and code.
        hidden: findings below the confidence that is shown, by confidence.
        minor: findings below the severity that is shown.
        suppressed: findings that a comment suppresses.
        known: findings that the baseline knows.
        gone: how many the baseline knows that were not found again in the files checked.
        unchanged: findings on lines that have not changed, where only changed ones count.
        ordered: findings that are not shown because the runs that were given order them.
    """

    findings: list[Finding] = field(default_factory=list)
    hidden: Counter[Confidence] = field(default_factory=Counter)
    minor: int = 0
    suppressed: int = 0
    known: int = 0
    gone: int = 0
    unchanged: int = 0
    ordered: int = 0


class Texts:
    """The texts of files, read when they are first asked for."""

    def __init__(self, given: Mapping[str, bytes] | None = None) -> None:
        self._given = given or {}
        self._known: dict[str, Text] = {}

    def __getitem__(self, path: str) -> Text:
        """The text of a file; empty when it cannot be read or decoded."""
        text = self._known.get(path)
        if text is None:
            try:
                text = read(self._bytes(path), path)
            except (OSError, SourceError):
                text = Text(path, "")
            self._known[path] = text
        return text

    def _bytes(self, path: str) -> bytes:
        if path in self._given:
            return self._given[path]
        with open(path, "rb") as file:
            return file.read()


class Selection:
    """Which codes are on in which file.

    Args:
        override: the command line's layer, stronger than a configuration's.

    Raises:
        RegistryError: a selector names no rule.
    """

    def __init__(self, override: Layer = (None, (), ())) -> None:
        self._override = override
        self._codes: dict[int, tuple[Config, frozenset[str]]] = {}
        select([override])

    def check(self, config: Config) -> None:
        """See that a configuration's selectors name rules.

        Raises:
            RegistryError: one does not.
        """
        try:
            self._of_config(config)
            for _, selectors in config.per_file_ignores:
                select([(None, (), selectors)])
            fixes = (*(config.fixable or ()), *config.unfixable, *config.extend_safe_fixes)
            for selector in (*(each for each, _ in config.rule_severity), *fixes):
                codes_of(selector)
        except RegistryError as error:
            raise RegistryError(f"{config.path}: {error}") from error

    def codes(self, path: str, config: Config) -> frozenset[str]:
        """The codes that are on in a file."""
        codes = self._of_config(config)
        for pattern, selectors in config.per_file_ignores:
            if matches(path, False, config.root, (pattern,)):
                codes -= frozenset().union(*(codes_of(selector) for selector in selectors))
        return codes

    def severity(self, rule: Rule, config: Config) -> Severity | None:
        """The severity that a configuration gives a rule: that of the most specific selector; None for none."""
        given = [
            (len(codes), level)
            for selector, level in config.rule_severity
            if rule.code in (codes := codes_of(selector))
        ]
        return min(given, key=lambda each: each[0])[1] if given else None

    def repaired(self, rule: Rule, config: Config) -> Literal["", "never", "safe"]:
        """What a configuration says of a rule's repairs; of `fixable` and `unfixable` the more specific counts."""
        fixable = _length(rule, ("ALL",) if config.fixable is None else config.fixable)
        if fixable <= _length(rule, config.unfixable):
            return "never"
        return "safe" if _length(rule, config.extend_safe_fixes) >= 0 else ""

    def _of_config(self, config: Config) -> frozenset[str]:
        known = self._codes.get(id(config))
        if known is None:
            layer = (config.select, config.extend_select, config.ignore)
            known = self._codes[id(config)] = (config, select([layer, self._override]))
        return known[1]


def _length(rule: Rule, selectors: Iterable[str]) -> int:
    """How specific the most specific selector is that means a rule; -1 for none."""
    lengths = (0 if each == "ALL" else len(each) for each in selectors if rule.code in codes_of(each))
    return max(lengths, default=-1)


def collect(
    checked: Iterable[Checked],
    files: Iterable[File],
    mentions: set[str],
    texts: Texts,
    selection: Selection,
    config_of: Callable[[str], Config],
    confidence: Confidence | None = None,
    severity: Severity | None = None,
    baseline_file: str | None = None,
    ignore_noqa: bool = False,
) -> Outcome:
    """Turn what was found into what is shown.

    Args:
        checked: the files that were parsed.
        files: all files of the run.
        mentions: files that may hold a suppression.
        config_of: the configuration that counts for a file.
        confidence, severity: the least that is shown; None for the configuration's.
        baseline_file: a baseline whose findings are not shown.
        ignore_noqa: whether comments that suppress count for nothing.

    Raises:
        baseline.BaselineError: the baseline cannot be read.
    """
    outcome = Outcome()
    suppressions: dict[str, list[Suppression]] = {}

    def of_file(path: str) -> list[Suppression]:
        if path not in suppressions:
            suppressions[path] = find(texts[path].text)
        return suppressions[path]

    shown: list[Finding] = []
    for conflict in (conflict for result in checked for conflict in result.conflicts):
        hazard = code_for(conflict)
        rule = _rule(hazard.code)
        path = Finding(hazard, rule).span.filename
        config = config_of(path)
        if hazard.code not in selection.codes(path, config):
            continue
        finding = Finding(hazard, rule, selection.severity(rule, config), selection.repaired(rule, config))
        if not ignore_noqa and _suppressed(hazard, finding.rule, of_file):
            outcome.suppressed += 1
        elif not visible(hazard, confidence or least_confidence(path, config)):
            outcome.hidden[hazard.confidence] += 1
        elif not _severe(finding, severity or config.severity):
            outcome.minor += 1
        else:
            shown.append(finding)
    for file in files:
        if file.path in mentions and not ignore_noqa:
            codes = selection.codes(file.path, file.config)
            notes = _housekeeping(file.path, of_file(file.path), codes)
            leveled = [
                Finding(
                    each.hazard,
                    each.rule,
                    selection.severity(each.rule, file.config),
                    selection.repaired(each.rule, file.config),
                )
                for each in notes
            ]
            shown.extend(note for note in leveled if _severe(note, severity or file.config.severity))
    shown = list({finding.sort_key(): finding for finding in sorted(shown, key=Finding.sort_key)}.values())
    if baseline_file is not None:
        shown = _new(shown, outcome, texts, baseline_file, {file.path for file in files})
    outcome.findings = shown
    return outcome


def fingerprints(findings: Iterable[Finding], texts: Texts, baseline_file: str) -> list[baseline.Fingerprint]:
    """What a baseline keeps of findings."""
    return [
        baseline.fingerprint(
            finding.rule.code,
            finding.span.filename,
            finding.span.row,
            texts[finding.span.filename].text,
            baseline_file,
        )
        for finding in findings
    ]


def _rule(code: str) -> Rule:
    rule = find_rule(code)
    assert rule is not None
    return rule


def least_confidence(path: str, config: Config) -> Confidence:
    """The least confidence that a configuration shows in a file; of several patterns that match, the last counts."""
    least = config.confidence
    for pattern, confidence in config.per_file_confidence:
        if matches(path, False, config.root, (pattern,)):
            least = confidence
    return least


def _severe(finding: Finding, least: Severity) -> bool:
    return SEVERITIES.index(finding.severity) <= SEVERITIES.index(least)


def visible(hazard: Hazard, least: Confidence) -> bool:
    """Whether a hazard is as sure as what is shown; what is assumed and measured to be right counts as sure."""
    if hazard.assumptions and all(each.name in SHOWN_BY_DEFAULT for each in hazard.assumptions):
        return True
    return CONFIDENCES.index(hazard.confidence) <= CONFIDENCES.index(least)


def _suppressed(hazard: Hazard, rule: Rule, of_file: Callable[[str], list[Suppression]]) -> bool:
    """Whether a comment on either access's rows covers it; every comment that does counts as used."""
    hit = False
    for access in (hazard.first, hazard.second):
        if access is not None and access.span is not None:
            rows = range(access.span.row, access.span.end_row + 1)
            for suppression in of_file(access.span.filename):
                hit |= suppression.covers(hazard.code, rule.name, rows)
    return hit


def _housekeeping(path: str, found: list[Suppression], codes: frozenset[str]) -> Iterable[Finding]:
    """Suppressions that suppress nothing (SS901), or name what does not exist (SS902)."""
    for suppression in found:
        span = Span(path, suppression.row, suppression.column, suppression.row, suppression.end_column)
        if suppression.codes == () and "SS902" in codes:
            text = f"`{suppression.text}` names no code: write {suppression.kind}[SS101]"
            yield _note("unknown-code", text, span)
        for given in suppression.codes or ():
            rule = find_rule(given)
            if rule is None:
                ours = suppression.kind != "noqa" or (given[:2].upper() == "SS" and given[2:].isdigit())
                if ours and "SS902" in codes:
                    yield _note("unknown-code", f"no rule has the code or the name `{given}`", span)
            elif (
                "SS901" in codes
                and rule.code in codes
                and rule.code != "SS901"
                and given not in suppression.used
            ):
                yield _note("unused-suppression", f"`{_directive(suppression, given)}`", span)


def _directive(suppression: Suppression, given: str) -> str:
    return f"noqa: {given}" if suppression.kind == "noqa" else f"{suppression.kind}[{given}]"


def _note(name: str, operation: str, span: Span) -> Finding:
    hazard = code_for(violation(name, operation, span))
    return Finding(hazard, _rule(hazard.code))


def _new(
    findings: list[Finding], outcome: Outcome, texts: Texts, baseline_file: str, checked: set[str]
) -> list[Finding]:
    """The findings that the baseline does not know."""
    known = baseline.read(baseline_file)
    new = []
    for finding, mark in zip(findings, fingerprints(findings, texts, baseline_file), strict=True):
        if known[mark] > 0:
            known[mark] -= 1
            outcome.known += 1
        else:
            new.append(finding)
    root = os.path.dirname(os.path.abspath(baseline_file))
    outcome.gone = sum(
        count for mark, count in known.items() if os.path.normpath(os.path.join(root, mark.path)) in checked
    )
    return new
