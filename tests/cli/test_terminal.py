"""What a person sees on a terminal and does not on a pipe: colour, links, progress, quiet and verbose."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from streamsafe.cli.progress import progress
from streamsafe.report.colour import links_wanted, wanted
from streamsafe.rule import rule_page
from tests.cli.helpers import BUG, CLEAN, Cli

VARIABLES = ("NO_COLOR", "FORCE_COLOR", "FORCE_HYPERLINK", "TERM")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "variables", "colour", "links"),
    [
        (Terminal(), {}, True, True),
        (Terminal(), {"NO_COLOR": "1"}, False, False),
        (Terminal(), {"TERM": "dumb"}, True, False),
        (Terminal(), {"FORCE_HYPERLINK": "0"}, True, False),
        (io.StringIO(), {}, False, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True, False),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        (io.StringIO(), {"FORCE_HYPERLINK": "1"}, False, True),
    ],
)
def test_when(
    monkeypatch: pytest.MonkeyPatch, file: io.StringIO, variables: dict[str, str], colour: bool, links: bool
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (wanted(file), links_wanted(file)) == (colour, links)


@pytest.mark.parametrize("name", ["full", "concise"])
def test_the_code_is_a_link(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (project / "bug.py").write_text(BUG)
    monkeypatch.setenv("FORCE_HYPERLINK", "1")
    link = f"\x1b]8;;{rule_page('unordered-read')}\x1b\\SS101\x1b]8;;\x1b\\"
    assert cli("check", "--output-format", name).stdout.count(link) == 1
    assert f"{link}  unordered-read" in cli("rules").stdout
    monkeypatch.delenv("FORCE_HYPERLINK")
    assert "\x1b" not in cli("check", "--output-format", name).stdout


def test_quiet(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "-q", "--output-format", "concise")
    assert (result.exit_code, result.stdout.count("\n"), result.stderr) == (1, 1, "")
    (project / "bug.py").write_text(CLEAN)
    result = cli("check", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_verbose(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.streamsafe]\n")
    (project / "bug.py").write_text(BUG)
    (project / "plain.py").write_text("x = 1\n")
    loud, plain = cli("check", "-v"), cli("check")
    assert loud.stdout == plain.stdout
    assert plain.stderr == ""
    lines = loud.stderr.splitlines()
    assert lines[0] == "streamsafe: configuration: pyproject.toml"
    assert lines[1].startswith("streamsafe: 2 files found, 1 parsed (the others name no stream API), ")
    assert lines[2:] == ["streamsafe: checked bug.py", "streamsafe: checked plain.py"]


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar after a second, on a terminal; it leaves nothing behind."""
    now = iter((0.0, 0.5, 1.5, 2.0, 2.5))
    monkeypatch.setattr(time, "monotonic", lambda: next(now, 9.0))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress() as done:
        assert done is not None
        done(1, 4)
        assert terminal.getvalue() == "", "nothing in the first second"
        done(2, 4)
        assert "2/4" in terminal.getvalue()
        done(4, 4)
    assert terminal.getvalue().endswith("\r\x1b[K\x1b[?25h")


@pytest.mark.parametrize(("file", "quiet"), [(io.StringIO(), False), (Terminal(), True)])
def test_no_progress(monkeypatch: pytest.MonkeyPatch, file: io.StringIO, quiet: bool) -> None:
    monkeypatch.setattr(sys, "stderr", file)
    with progress(quiet=quiet) as done:
        assert done is None
    assert file.getvalue() == ""
