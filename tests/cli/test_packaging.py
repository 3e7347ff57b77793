"""What is installed."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

from streamsafe import __version__

ROOT = Path(__file__).parents[2]


def test_every_directory_is_a_package() -> None:
    directories = {path.parent for path in (ROOT / "streamsafe").rglob("*.py")}
    assert [str(path) for path in sorted(directories) if not (path / "__init__.py").exists()] == []


def test_version() -> None:
    installed = distribution("streamsafe")
    assert installed.version == __version__
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_entry_points() -> None:
    points = {(point.group, point.name, point.value) for point in distribution("streamsafe").entry_points}
    assert points == {
        ("console_scripts", "streamsafe", "streamsafe.cli:main"),
        ("pytest11", "streamsafe", "streamsafe.runtime.plugin"),
    }


def test_licence() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert distribution("streamsafe").metadata["License-Expression"] == "Apache-2.0"
