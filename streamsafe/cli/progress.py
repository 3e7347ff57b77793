"""A bar on a terminal for a check that takes more than a second; nothing on a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from streamsafe.findings.checking import Done

AFTER = 1.0
"""Seconds."""


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Done | None]:
    """Called for each file that is done; None where there is nobody to show it to."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    began = time.monotonic()
    bar: Any = None

    def done(count: int, total: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - began > AFTER and count < total:
            bar = click.progressbar(length=total, label="Checking", file=sys.stderr, show_pos=True)
            bar.__enter__()
        if bar is not None:
            bar.update(count - bar.pos)

    try:
        yield done
    finally:
        if bar is not None:
            # no bar is left behind, and the cursor that click hides is shown again
            click.echo("\r\033[K\033[?25h", file=sys.stderr, nl=False, color=True)
