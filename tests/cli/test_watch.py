"""`--watch`: a check now, and one after each change."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import BUG, CLEAN, Cli


def test_watch(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is repaired, the configuration is broken and mended, and each time the state is shown."""
    watchfiles = pytest.importorskip("watchfiles")
    (project / "bug.py").write_text(BUG)
    watched: list[Any] = []

    def changes(*paths: str, watch_filter: Any, raise_interrupt: bool) -> Iterator[set[Any]]:
        watched.extend(paths)
        assert watch_filter(1, "a.py")
        assert watch_filter(1, "x/pyproject.toml")
        assert not watch_filter(1, "a.pyc")
        (project / "bug.py").write_text(CLEAN)
        yield set()
        (project / "pyproject.toml").write_text("[tool.streamsafe\n")
        yield set()
        (project / "pyproject.toml").write_text("[tool.streamsafe]\n")
        yield set()

    monkeypatch.setattr(watchfiles, "watch", changes)
    result = cli("check", "--watch", "--output-format", "concise")
    assert watched == ["."]
    assert [line for line in result.stdout.splitlines() if "hazard" in line] == [
        "Found 1 hazard in 1 file.",
        *["No hazards found in 1 file."] * 2,
    ]
    assert result.stderr.count("Watching for changes") == 4
    assert "not valid TOML" in result.stderr
    assert result.exit_code == 0


def test_without_the_extra(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *given: Any, **more: Any) -> Any:
        if name == "watchfiles":
            raise ImportError(name)
        return imported(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    result = cli("check", "--watch")
    assert (result.exit_code, "pip install 'streamsafe[watch]'" in result.stderr) == (2, True)


def test_standard_input_is_not_watched(cli: Cli) -> None:
    assert cli("check", "-", "--watch", stdin="").exit_code == 2
