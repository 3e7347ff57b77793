"""`streamsafe check --explain-line`: what is known at one line, and why nothing is reported there."""

from __future__ import annotations

import os
from pathlib import Path

import click

from streamsafe.check.files import check, plan
from streamsafe.check.task import Checked
from streamsafe.cli import Failure, output
from streamsafe.findings.collect import Layer, Selection, least_confidence, visible
from streamsafe.order.hazard import Conflict
from streamsafe.project.files import File
from streamsafe.project.settings import Config, Configs
from streamsafe.project.suppressions import find
from streamsafe.project.text import SourceError, read
from streamsafe.rule import RegistryError, code_for, find_rule


def explain(place: str, configs: Configs, layer: Layer = (None, (), ())) -> int:
    """Print what runs come to at a line, what is found there, and why it is not reported.

    Args:
        place: ``FILE:LINE``.
        configs: for the models of the user's own wrappers, and the rules that are on.
        layer: the rules that the command line selects.
    """
    path, _, line = place.rpartition(":")
    if not path or not line.isascii() or not line.isdigit() or int(line) == 0:
        raise click.UsageError(f"--explain-line: {place!r} is not FILE:LINE")
    if not os.path.isfile(path):
        raise click.UsageError(f"--explain-line: {path}: no such file")
    full, row = os.path.abspath(path), int(line)
    _exists(full, path, row)
    config = configs.of_directory(os.path.dirname(full))
    planned = plan([File(full, config, named=True)], {}, use_prefilter=False)
    result = next(iter(check(planned, jobs=1, explain=(full, row)).checked), Checked(full))
    if result.crash:
        output.error(f"internal error in {path}: {result.crash}; please report it")
        return 2
    try:
        reported = _found_at(result, row, config, layer)
    except RegistryError as error:
        raise Failure(str(error)) from error
    lines = [*result.explanation, *reported, *(f"not run to its end: {note}" for note in result.notes)]
    for text in lines or ["nothing is found on this line"]:
        click.echo(text)
    return 0


def _exists(full: str, path: str, row: int) -> None:
    """See that a file has a row; of a file that cannot be decoded the check itself says so."""
    try:
        text = read(Path(full).read_bytes(), full)
    except (OSError, SourceError):
        return
    lines = len(text.lines) - (text.lines[-1] == "")
    if row > lines:
        raise click.UsageError(
            f"--explain-line: {path} has {output.count(lines, 'line')}, there is no line {row}"
        )


def _found_at(result: Checked, row: int, config: Config, layer: Layer) -> list[str]:
    """What is found on a row, and, where it is not reported, why."""
    codes = Selection(layer).codes(result.path, config)
    lines = []
    for conflict in result.conflicts:
        spans = [access.span for access in (conflict.first, conflict.second) if access is not None]
        if any(span is not None and span.row <= row <= span.end_row for span in spans):
            hazard = code_for(conflict)
            lines.append(f"{hazard.code} ({hazard.confidence}): {hazard.message}")
            lines += [f"  assumes that {each.text}" for each in hazard.assumptions]
            lines += [f"  not reported: {why}" for why in _hidden(conflict, hazard.code, codes, config)]
    return lines


def _hidden(conflict: Conflict, code: str, codes: frozenset[str], config: Config) -> list[str]:
    """Why something that is found is not reported."""
    place = conflict.shown_at
    hazard = code_for(conflict)
    why = []
    if code not in codes:
        why.append(f"{code} is not selected")
    if place is not None:
        least = least_confidence(place.filename, config)
        if not visible(hazard, least):
            why.append(f"it is {hazard.confidence}: --confidence {hazard.confidence} shows it")
        rule = find_rule(code)
        rows = range(place.row, place.end_row + 1)
        text = read(Path(place.filename).read_bytes(), place.filename).text
        if rule is not None and any(each.covers(code, rule.name, rows) for each in find(text)):
            why.append("a comment suppresses it")
    return why
