"""Advice that a file shows together with others: it counts for advice only, and costs nothing where nobody asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.static import analyze
from streamsafe.static.analysis import Analysis

STAGING = """\
import torch

def staging(n):
    return torch.empty(n)
"""
LOADER = """\
import torch
from .staging import staging

def fill(n):
    host = staging(n)
    return host.to("cuda", non_blocking=True)

def load(n):
    host = torch.empty(n)
    return host.to("cuda", non_blocking=True)
"""
RACE = """\

def race(x):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = x + 1
    return y.sum()
"""


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each text that is analysed, whether it is one of several files."""
    linked: list[bool] = []
    real = analyze.analyze

    def noted(source: str, filename: str, *, own: range | None = None, **options: object) -> Analysis:
        if Path(filename).name == "loader.py":
            linked.append(own is not None)
        return real(source, filename, own=own, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(analyze, "analyze", noted)
    return linked


def found(tree: Path, *options: str) -> list[tuple[int, str, str]]:
    arguments = ["check", "-j1", "--isolated", "--output-format", "json", *options, str(tree)]
    shown = json.loads(CliRunner().invoke(main, arguments, catch_exceptions=False).stdout)
    return [(each["location"]["row"], each["code"], each["confidence"]) for each in shown]


def write(tree: Path, loader: str) -> Path:
    package = tree / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "staging.py").write_text(STAGING)
    (package / "loader.py").write_text(loader)
    return package


def test_where_nobody_asks_for_advice_it_needs_no_second_look(tmp_path: Path, analysed: list[bool]) -> None:
    package = write(tmp_path, LOADER)
    assert found(package, "--no-cache") == []
    assert analysed == [True]
    analysed.clear()
    assert found(package, "--no-cache", "--select", "SS321") == [
        (6, "SS321", "likely"),
        (10, "SS321", "certain"),
    ]
    assert analysed == [True, False]


def test_hazards_have_their_second_look(tmp_path: Path, analysed: list[bool]) -> None:
    package = write(tmp_path, LOADER + RACE)
    shown = found(package, "--no-cache")
    assert [each[1:] for each in shown] == [("SS101", "certain")]
    assert analysed == [True, False]


def test_what_is_kept_of_a_check_without_advice_is_not_used_for_one_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    package = write(tmp_path, LOADER)
    for _ in range(2):
        assert found(package) == []
        assert found(package, "--select", "SS321") == [(6, "SS321", "likely"), (10, "SS321", "certain")]
