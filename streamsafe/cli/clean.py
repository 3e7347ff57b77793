"""`streamsafe clean`: remove what earlier checks keep."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import click

from streamsafe.cli import Failure
from streamsafe.cli.output import error
from streamsafe.findings.checking import CACHE
from streamsafe.order.wording import shown
from streamsafe.project.settings import ConfigError, Configs


@click.command()
def clean() -> None:
    """Remove the caches of the working directory, of the folders below it, and the one that the settings name.

    Exit status: 0, or 2 when one cannot be removed.
    """
    try:
        named = Configs().of_directory(os.getcwd()).cache_dir
    except ConfigError as problem:
        raise Failure(str(problem)) from problem
    failed = False
    for folder in dict.fromkeys([*_caches("."), *([named] if named and _is_cache(named) else [])]):
        try:
            shutil.rmtree(folder)
        except OSError as problem:
            error(f"{shown(folder)}: {problem.strerror or problem}")
            failed = True
        else:
            click.echo(f"Removed {shown(folder)}.")
    if failed:
        raise SystemExit(2)


def _caches(top: str) -> Iterator[str]:
    for where, folders, _ in os.walk(os.path.abspath(top)):
        if CACHE in folders:
            folders.remove(CACHE)
            yield os.path.join(where, CACHE)
        folders[:] = [each for each in folders if each not in (".git", "node_modules")]


def _is_cache(folder: str) -> bool:
    """Whether a folder that the settings name was made as a cache: nothing else is removed."""
    return os.path.exists(os.path.join(folder, "CACHEDIR.TAG"))
