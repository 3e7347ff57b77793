"""`streamsafe check`: what it prints, and its exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamsafe import __version__
from streamsafe.rule import all_rules, rule_page
from tests.cli.helpers import BUG, BUG_ROW, CLEAN, Cli, findings, places


def test_finding_and_exit_status(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "bug.py", "--output-format", "concise")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"bug.py:{BUG_ROW}:12: SS101 ")
    assert result.stdout.endswith("Found 1 hazard in 1 file.\n")
    assert result.stderr == ""


def test_clean(cli: Cli, project: Path) -> None:
    (project / "clean.py").write_text(CLEAN)
    result = cli("check")
    assert (result.exit_code, result.stdout) == (0, "No hazards found in 1 file.\n")


def test_nothing_to_check(cli: Cli, project: Path) -> None:
    result = cli("check")
    assert (result.exit_code, result.stdout) == (0, "No Python files found.\n")


def test_full_underlines_both_accesses(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    lines = cli("check").stdout.splitlines()
    assert "  --> bug.py:11:12" in lines
    assert any("---" in line and "`side` may still be writing `x`" in line for line in lines)
    assert any("^^^" in line and "the current stream reads `x`" in line for line in lines)
    assert any("missing edge: `side` -> the current stream" in line for line in lines)
    assert any("help: " in line and "wait_stream(side)" in line for line in lines)


@pytest.mark.parametrize(
    ("variable", "coloured"),
    [({"FORCE_COLOR": "1"}, True), ({}, False), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colour(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, variable: dict[str, str], coloured: bool
) -> None:
    (project / "bug.py").write_text(BUG)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in cli("check").stdout) is coloured


def test_json_contract(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    (finding,) = findings(cli("check", "--output-format", "json"))
    assert set(finding) == {
        *(
            "code",
            "name",
            "message",
            "filename",
            "location",
            "end_location",
            "related",
            "severity",
            "confidence",
        ),
        *("help", "fix", "url", "witness", "assumptions", "further"),
    }
    assert finding["code"] == "SS101"
    assert finding["name"] == "unordered-read"
    assert finding["filename"] == str(project / "bug.py")
    assert finding["location"] == {"row": BUG_ROW, "column": 12}
    assert finding["end_location"] == {"row": BUG_ROW, "column": 19}
    assert finding["severity"] == "error"
    assert finding["confidence"] == "certain"
    line = "torch.cuda.current_stream().wait_stream(side)"
    at = {"row": BUG_ROW, "column": 1}
    edit = {"content": f"    {line}\n", "location": at, "end_location": at}
    assert finding["help"] == line
    assert finding["fix"] == {"applicability": "unsafe", "message": line, "edits": [edit]}
    first = finding["related"][0]
    assert set(first) == {"filename", "location", "end_location", "message"}
    assert first["location"] == {"row": 10, "column": 9}
    assert "fill_" in first["message"]


def test_json_without_findings(cli: Cli, project: Path) -> None:
    (project / "clean.py").write_text(CLEAN)
    assert cli("check", "--output-format", "json").stdout == "[]\n"


def test_columns_count_characters(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG.replace("return x.sum()", 'return "é漢😀", x.sum()'))
    (finding,) = findings(cli("check", "--output-format", "json"))
    assert finding["location"]["column"] == 19


@pytest.mark.parametrize(
    ("options", "status", "codes"),
    [
        (["--select", "SS101"], 1, ["SS101"]),
        (["--select", "SS1"], 1, ["SS101"]),
        (["--select", "unordered-read"], 1, ["SS101"]),
        (["--select", "ALL"], 1, ["SS101"]),
        (["--select", "SS2,SS3"], 0, []),
        (["--select", "SS2", "--select", "SS101"], 1, ["SS101"]),
        (["--select", "SS2", "--extend-select", "SS101"], 1, ["SS101"]),
        (["--ignore", "SS101"], 0, []),
        (["--ignore", "SS1"], 0, []),
        (["--ignore", "SS1", "--select", "SS101"], 1, ["SS101"]),
        (["--select", "SS1", "--ignore", "SS101"], 0, []),
        (["--exit-zero"], 0, ["SS101"]),
    ],
)
def test_selection(cli: Cli, project: Path, options: list[str], status: int, codes: list[str]) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--output-format", "json", *options)
    assert result.exit_code == status
    assert [item["code"] for item in findings(result)] == codes


def test_statistics(cli: Cli, project: Path) -> None:
    (project / "a.py").write_text(BUG)
    (project / "b.py").write_text(BUG + "\n\n# noqa: SS102\n")
    result = cli("check", "--statistics")
    assert (result.exit_code, result.stdout) == (
        1,
        "2  SS101  unordered-read\n1  SS901  unused-suppression\n",
    )
    counted = json.loads(cli("check", "--statistics", "--output-format", "json").stdout)
    assert counted[0] == {"code": "SS101", "name": "unordered-read", "count": 2}


@pytest.mark.parametrize(
    "arguments", [["-", "--stdin-filename", "pkg/mod.py"], ["--stdin-filename", "pkg/mod.py"]]
)
def test_stdin(cli: Cli, project: Path, arguments: list[str]) -> None:
    result = cli("check", *arguments, "--output-format", "concise", stdin=BUG)
    assert result.exit_code == 1
    assert result.stdout.startswith("pkg/mod.py:11:12: SS101")


def test_stdin_without_name(cli: Cli, project: Path) -> None:
    assert cli("check", "-", "--output-format", "concise", stdin=BUG).stdout.startswith("-:11:12: SS101")
    assert cli("check", "-", stdin=CLEAN).exit_code == 0
    assert cli("check", "-", stdin="x = (").exit_code == 1


def test_stdin_uses_the_configuration_of_its_name(cli: Cli, project: Path) -> None:
    (project / "pkg").mkdir()
    (project / "pkg" / "pyproject.toml").write_text('[tool.streamsafe]\nignore = ["SS101"]\n')
    assert cli("check", "-", "--stdin-filename", "pkg/mod.py", stdin=BUG).exit_code == 0
    assert cli("check", "-", "--stdin-filename", "mod.py", stdin=BUG).exit_code == 1


def test_show_files(cli: Cli, project: Path) -> None:
    for name in ("b.py", "a.py", "c.txt"):
        (project / name).write_text(BUG)
    result = cli("check", "--show-files")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [str(project / "a.py"), str(project / "b.py")]


def test_show_settings(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.streamsafe]\nselect = ["SS1"]\nconfidence = "certain"\n')
    (settings,) = json.loads(cli("check", "--show-settings").stdout)
    assert settings["path"] == str(project / "pyproject.toml")
    assert settings["select"] == ["SS1"]
    assert settings["confidence"] == "certain"


def test_explain_line(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--explain-line", f"bug.py:{BUG_ROW}")
    assert result.exit_code == 0
    assert "side" in result.stdout
    assert cli("check", "--explain-line", "bug.py:2").stdout.strip() != ""


HIDDEN = {
    "it is not selected": (BUG, ["--ignore", "SS101"], "not reported: SS101 is not selected"),
    "a comment": (
        BUG.replace("x.sum()", "x.sum()  # noqa: SS101"),
        [],
        "not reported: a comment suppresses it",
    ),
    "nothing": (BUG, [], ""),
}


@pytest.mark.parametrize("why", HIDDEN)
def test_explain_line_says_why_a_finding_is_not_reported(cli: Cli, project: Path, why: str) -> None:
    text, options, said = HIDDEN[why]
    (project / "bug.py").write_text(text)
    told = cli("check", *options, "--explain-line", f"bug.py:{BUG_ROW}").stdout
    assert "SS101 (certain): " in told
    assert (said in told) if said else ("not reported" not in told)
    refused = cli("check", "--select", "SS99", "--explain-line", f"bug.py:{BUG_ROW}")
    assert (refused.exit_code, "SS99" in refused.stderr) == (2, True)


@pytest.mark.parametrize("place", ["bug.py", "bug.py:x", "bug.py:0", "nope.py:3", ":3"])
def test_explain_line_refuses(cli: Cli, project: Path, place: str) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--explain-line", place)
    assert result.exit_code == 2
    assert "--explain-line" in result.stderr


def test_findings_do_not_depend_on_the_order_of_paths(cli: Cli, project: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (project / name).write_text(BUG)
    forward = cli("check", "a.py", "b.py", "c.py", "--output-format", "json")
    backward = cli("check", "c.py", "a.py", "b.py", "a.py", "--output-format", "json")
    assert forward.stdout == backward.stdout
    assert [place[0] for place in places(forward)] == ["a.py", "b.py", "c.py"]


def test_no_prefilter_and_jobs_change_nothing(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "broken.py").write_text("def f(:\n")
    (project / "plain.py").write_text("print('hello')  # noqa: SS101\n")
    (project / "suppressed.py").write_text(f"{BUG}# streamsafe: ignore-file[SS101]\n")
    for number in range(5):
        (project / f"bug{number}.py").write_text(BUG)
    expected = cli("check", "--output-format", "json").stdout
    assert len(json.loads(expected)) == 6
    assert cli("check", "--output-format", "json", "--no-prefilter").stdout == expected
    monkeypatch.setattr("streamsafe.check.processes.PARALLEL_FROM", 0)
    monkeypatch.setattr("streamsafe.check.files.LOOKS_A_PROCESS", 2)
    for jobs in ("1", "2", "3"):
        assert cli("check", "--output-format", "json", "--jobs", jobs).stdout == expected


def test_notebook(cli: Cli, project: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "import torch\n", "!nvidia-smi\n", "torch.nn?\n"],
        },
        {"cell_type": "code", "source": BUG.splitlines(keepends=True)},
    ]
    notebook = {
        "cells": cells,
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (project / "bug.ipynb").write_text(json.dumps(notebook))
    assert cli("check", "--output-format", "concise").stdout.startswith("bug.ipynb:cell 3:11:12: SS101")
    (finding,) = findings(cli("check", "--output-format", "json"))
    assert finding["cell"] == 3
    assert finding["location"] == {"row": BUG_ROW, "column": 12}
    assert finding["related"][0]["cell"] == 3
    assert "cell 3:11:12" in cli("check").stdout


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout == f"streamsafe {__version__}\n"
    listed = cli("--help").stdout
    assert all(f"  {name}" in listed for name in ("check", "rule", "rules"))
    assert "--output-format" in cli("check", "--help").stdout


def test_rule_and_rules(cli: Cli) -> None:
    assert cli("rule", "ss101").stdout == cli("rule", "unordered-read").stdout
    assert "## What it does" in cli("rule", "SS101").stdout
    unknown = cli("rule", "SS999")
    assert unknown.exit_code == 2
    assert "SS999" in unknown.stderr
    assert re.search(r"^SS101  unordered-read +error +on$", cli("rules").stdout, re.MULTILINE)
    described = json.loads(cli("rule", "--all", "--output-format", "json").stdout)[0]
    assert (described["code"], described["url"]) == ("SS101", rule_page("unordered-read"))
    assert described["documentation"].startswith("SS101 unordered-read")
    every = cli("rule", "--all").stdout
    assert all(f"{code} " in every for code in all_rules())
    assert cli("rule").exit_code == cli("rule", "SS101", "--all").exit_code == 2
    assert {"code", "name", "severity", "default", "fix", "url"} == set(
        json.loads(cli("rules", "--output-format", "json").stdout)[0]
    )
