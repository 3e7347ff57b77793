"""`--fix`, `--diff` and their companions: what they change, what they print, and their exit status."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from tests.cli.helpers import BUG, BUG_ROW, CLEAN, Cli, findings

LINE = "torch.cuda.current_stream().wait_stream(side)"
UNUSED = "import torch\n\nx = torch.zeros(3)  # noqa: SS101\n"


def test_unsafe_fixes(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--fix", "--unsafe-fixes")
    assert (result.exit_code, result.stdout) == (0, "Fixed 1 hazard.\nNo hazards found in 1 file.\n")
    assert (project / "bug.py").read_text() == CLEAN
    again = cli("check", "--fix", "--unsafe-fixes")
    assert (again.exit_code, again.stdout) == (0, "No hazards found in 1 file.\n")
    assert (project / "bug.py").read_text() == CLEAN


def test_a_wait_is_not_added_without_being_asked_for(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--fix")
    assert result.exit_code == 1
    assert (project / "bug.py").read_text() == BUG
    assert "1 repair can be made with --unsafe-fixes." in result.stdout
    assert (
        "1 fixable: --diff --unsafe-fixes shows how, --fix --unsafe-fixes does it.\n" in cli("check").stdout
    )
    (project / "bug.py").write_text(UNUSED)
    assert "1 fixable: --diff shows how, --fix does it.\n" in cli("check").stdout


def test_diff(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--diff", "--unsafe-fixes")
    assert (result.exit_code, result.stderr) == (1, "Would fix 1 hazard.\n")
    assert result.stdout.splitlines()[:2] == ["--- bug.py", "+++ bug.py"]
    assert f"+    {LINE}" in result.stdout.splitlines()
    assert (project / "bug.py").read_text() == BUG
    (project / "bug.py").write_text(CLEAN)
    result = cli("check", "--diff", "--unsafe-fixes")
    assert (result.exit_code, result.output) == (0, "")


def test_fix_only(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG + BUG[BUG.index("def total") :].replace("total", "other"))
    (project / "clean.py").write_text(CLEAN)
    result = cli("check", "--fix-only", "--unsafe-fixes")
    assert (result.exit_code, result.stdout) == (0, "Fixed 2 hazards.\n")
    assert (project / "bug.py").read_text().count(LINE) == 2
    assert (project / "clean.py").read_text() == CLEAN


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--exit-non-zero-on-fix"], 1)])
def test_exit_status_of_a_fix(cli: Cli, project: Path, options: list[str], status: int) -> None:
    (project / "bug.py").write_text(BUG)
    assert cli("check", "--fix", "--unsafe-fixes", *options).exit_code == status
    assert cli("check", "--fix", "--unsafe-fixes", *options).exit_code == 0, "nothing was fixed this time"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (UNUSED, "import torch\n\nx = torch.zeros(3)\n"),
        (UNUSED.replace("SS101", "SS101 - why"), "import torch\n\nx = torch.zeros(3)\n"),
        (UNUSED.replace("SS101", "E501, SS101"), "import torch\n\nx = torch.zeros(3)  # noqa: E501\n"),
        (UNUSED.replace("SS101", "SS101, SS201"), "import torch\n\nx = torch.zeros(3)\n"),
        (
            UNUSED.replace("# noqa: SS101", "# streamsafe: ignore[SS101] why"),
            "import torch\n\nx = torch.zeros(3)\n",
        ),
        (
            UNUSED.replace("# noqa: SS101", "# noqa: SS101  # type: ignore"),
            "import torch\n\nx = torch.zeros(3)  # type: ignore\n",
        ),
        ("# streamsafe: ignore-file[SS101]\nx = 1\n", "x = 1\n"),
        ("# streamsafe: ignore[SS101]\nx = 1", "x = 1"),
    ],
)
def test_an_unused_suppression_goes_safely(cli: Cli, project: Path, before: str, after: str) -> None:
    (project / "a.py").write_text(before)
    assert cli("check", "--fix").exit_code == 0
    assert (project / "a.py").read_text() == after


@pytest.mark.parametrize(
    ("encoding", "prefix", "end"),
    [
        ("utf-8", "", "\r\n"),
        ("utf-8", "", "\r"),
        ("utf-8-sig", "", "\n"),
        ("latin-1", "# -*- coding: latin-1 -*-\n", "\n"),
        ("utf-8", "x = 1\f\n", "\n"),
    ],
)
def test_encoding_and_line_ends_stay(cli: Cli, project: Path, encoding: str, prefix: str, end: str) -> None:
    def data(text: str) -> bytes:
        return (prefix + text.replace("x.sum()", "x.sum()  # é")).replace("\n", end).encode(encoding)

    (project / "bug.py").write_bytes(data(BUG))
    assert cli("check", "--fix", "--unsafe-fixes").exit_code == 0
    fixed = (project / "bug.py").read_bytes()
    assert fixed == data(CLEAN)
    assert fixed.startswith(codecs.BOM_UTF8) == (encoding == "utf-8-sig")


def test_standard_input_is_printed_fixed(cli: Cli, project: Path) -> None:
    result = cli("check", "-", "--fix", "--unsafe-fixes", stdin=BUG)
    assert (result.exit_code, result.stdout) == (0, CLEAN)
    assert cli("check", "-", "--fix", "--unsafe-fixes", stdin=CLEAN).stdout == CLEAN
    result = cli("check", "-", "--diff", "--unsafe-fixes", "--stdin-filename", "a.py", stdin=BUG)
    assert result.stdout.startswith("--- a.py\n+++ a.py\n")
    assert not (project / "a.py").exists()


def test_a_file_that_cannot_be_written(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "bug.py").write_text(BUG)

    def refuse(path: Path, data: bytes) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    result = cli("check", "--fix", "--unsafe-fixes")
    assert result.exit_code == 2
    assert "bug.py: cannot be written: Permission denied" in result.stderr


def test_a_fix_says_where_it_goes(cli: Cli, project: Path) -> None:
    """Not on the line shown: before the `with` that makes another stream current."""
    text = (
        "import torch\n\nside = torch.cuda.Stream()\n\n\nclass Step:\n    def run(self, n):\n"
        '        x = torch.zeros(n, device="cuda")\n        with torch.cuda.stream(side):\n            y = x * 2\n'
        "        torch.cuda.synchronize()\n        return y.sum()\n"
    )
    (project / "bug.py").write_text(text)
    finding, *_ = findings(cli("check", "--output-format", "json"))
    row = finding["fix"]["edits"][0]["location"]["row"]
    assert (row, finding["location"]["row"]) == (9, 10)
    line = "side.wait_stream(torch.cuda.current_stream())"
    assert finding["fix"]["message"] == f"{line} (in `Step.run()`, before line 9)"
    assert "   = fix: in `Step.run()`, before line 9\n" in cli("check").stdout
    (project / "bug.py").write_text(BUG)
    assert "= fix:" not in cli("check").stdout


def test_add_noqa(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--add-noqa")
    assert (result.exit_code, result.stdout) == (0, "Added 1 comment in 1 file.\n")
    assert (project / "bug.py").read_text() == BUG.replace("x.sum()", "x.sum()  # noqa: SS101")
    assert cli("check").stdout == "No hazards found in 1 file (1 suppressed).\n"
    assert cli("check", "--add-noqa").stdout == "Added no comments: there is nothing to suppress.\n"


@pytest.mark.parametrize(
    "options", [["--add-noqa=the caller waits"], ["--add-noqa", "--reason", "the caller waits"]]
)
def test_add_noqa_with_a_reason(cli: Cli, project: Path, options: list[str]) -> None:
    (project / "bug.py").write_text(BUG)
    assert cli("check", *options).exit_code == 0
    line = (project / "bug.py").read_text().splitlines()[BUG_ROW - 1]
    assert line == "    return x.sum()  # streamsafe: ignore[SS101] the caller waits"
    assert cli("check").exit_code == 0


@pytest.mark.parametrize(
    ("line", "suppressed"),
    [
        ("return x.sum()  # noqa: E501", "return x.sum()  # noqa: E501, SS101"),
        (
            "return x.sum()  # streamsafe: ignore[SS201] so",
            "return x.sum()  # streamsafe: ignore[SS201, SS101] so",
        ),
        ("return x.sum()  # a comment", "return x.sum()  # a comment  # noqa: SS101"),
        ("return x.sum(\n        0,\n    )", "return x.sum(  # noqa: SS101\n        0,\n    )"),
        (
            'return x.sum(*"""\n""".split())',
            'return x.sum(*"""\n""".split())  # noqa: SS101',
        ),
    ],
)
def test_add_noqa_beside_what_is_there(cli: Cli, project: Path, line: str, suppressed: str) -> None:
    (project / "bug.py").write_text(BUG.replace("return x.sum()", line))
    assert cli("check", "--add-noqa", "--ignore", "SS9").exit_code == 0
    assert suppressed in (project / "bug.py").read_text()
    assert cli("check", "--ignore", "SS9").exit_code == 0


def test_add_noqa_where_no_comment_can_stand(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG.replace("return x.sum()", "return x.sum() + \\\n        1"))
    result = cli("check", "--add-noqa")
    assert result.exit_code == 1
    assert "bug.py:11: no comment can suppress SS101 here" in result.stderr
