"""`streamsafe check --explain-line`: what is known at one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamsafe.cli import Failure, output
from streamsafe.project.settings import Config, Configs
from streamsafe.static import project

if TYPE_CHECKING:
    from streamsafe.findings.collect import Layer


def explain(place: str, configs: Configs, layer: Layer = (None, (), ())) -> int:
    """Print the streams, accesses and edges that are known at a line, and what is reported there.

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
    task = project.Task(full, os.path.getsize(full), config.models)
    from streamsafe.registry import RegistryError

    result = project.check_one(task, explain=row)
    if result.crash:
        output.error(f"internal error in {path}: {result.crash}; please report it")
        return 2
    try:
        reported = _findings_at(result, row, config, layer)
    except RegistryError as error:
        raise Failure(str(error)) from error
    for text in (*result.explanation, *reported):
        click.echo(text)
    if not result.explanation and not reported:
        click.echo("no stream, access or edge is known there")
    return 0


def _exists(full: str, path: str, row: int) -> None:
    """See that a file has a row; of a file that cannot be decoded the check itself says so."""
    from streamsafe.project.text import SourceError, read

    try:
        text = read(Path(full).read_bytes(), full)
    except (OSError, SourceError):
        return
    lines = len(text.lines) - (text.lines[-1] == "")
    if row > lines:
        raise click.UsageError(
            f"--explain-line: {path} has {output.count(lines, 'line')}, there is no line {row}"
        )


def _findings_at(result: project.Checked, row: int, config: Config, layer: Layer) -> list[str]:
    """What is reported on a row, in one line each."""
    if not result.conflicts:
        return []
    from streamsafe.findings.collect import Selection
    from streamsafe.registry import code_for

    codes = Selection(layer).codes(result.path, config)
    lines = []
    for conflict in result.conflicts:
        spans = [access.span for access in (conflict.first, conflict.second) if access is not None]
        if any(span is not None and span.row <= row <= span.end_row for span in spans):
            hazard = code_for(conflict)
            if hazard.code in codes:
                lines.append(f"{hazard.code} ({hazard.confidence}): {hazard.message}")
    return lines
