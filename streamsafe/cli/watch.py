"""`--watch`: check again whenever a Python file or the configuration changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from streamsafe.cli import Failure
from streamsafe.project.files import SUFFIXES
from streamsafe.project.settings import ConfigError

MISSING = "--watch needs the package watchfiles: pip install 'streamsafe[watch]'"


def watch(paths: Sequence[str], check: Callable[[], int]) -> int:
    """Check now and after each change, until interrupted.

    Args:
        paths: files and directories to look at.
        check: makes one check and shows it.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise Failure(MISSING) from error
    status = _checked(check)
    for _ in watchfiles.watch(*paths, watch_filter=_concerns, raise_interrupt=False):
        status = _checked(check)
    return status


def _concerns(change: object, path: str) -> bool:
    return path.endswith((*SUFFIXES, "pyproject.toml"))


def _checked(check: Callable[[], int]) -> int:
    """One check on a clear screen; a mistake in the configuration is shown, and watching goes on."""
    if sys.stdout.isatty():
        click.clear()
    try:
        status = check()
    except (click.ClickException, ConfigError) as error:
        failure = error if isinstance(error, click.ClickException) else Failure(str(error))
        failure.show()
        status = failure.exit_code
    click.echo("Watching for changes; Ctrl-C ends it.", err=True)
    return status
