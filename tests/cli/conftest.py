"""Drives the real command line, in this process where that is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamsafe.cli import main
from tests.cli.helpers import Cli


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def cli(project: Path) -> Cli:
    """Runs a command; anything that is no SystemExit is a failure of the test."""

    def run(*args: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, list(args), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
