"""Settings that users of ruff expect: files, single entries, which repairs are made, formats, caches and versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.helpers import BUG, Cli

TABLE = "[tool.streamsafe]\n"


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("streamsafe.toml", 'ignore = ["SS101"]\n', 0),
        (".streamsafe.toml", 'ignore = ["SS101"]\n', 0),
        ("streamsafe.toml", 'ignore = ["SS2"]\n', 1),
        ("streamsafe.toml", "", 1),  # an empty table counts, and says nothing
        ("streamsafe.toml", TABLE + 'ignore = ["SS101"]\n', 2),  # there is no such key
    ],
)
def test_a_file_of_its_own(cli: Cli, project: Path, name: str, content: str, status: int) -> None:
    (project / "bug.py").write_text(BUG)
    (project / "pyproject.toml").write_text(TABLE + 'select = ["SS101"]\n')
    (project / name).write_text(content)
    assert cli("check").exit_code == status


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (["ignore = ['SS101']"], 0),
        (["ignore=['SS2']"], 1),
        (["ignore = ['SS101']", "ignore = []"], 1),  # the last one counts
        (["per-file-ignores.'src/' = ['SS1']"], 0),
        (["nonsense = 1"], 2),
        (["ignore = "], 2),
        (["other.toml"], 1),
        (["other.toml", "ignore = ['SS101']"], 0),
        (["other.toml", "pyproject.toml"], 2),
    ],
)
def test_single_entries_are_stronger_than_files(
    cli: Cli, project: Path, given: list[str], status: int
) -> None:
    (project / "src").mkdir()
    (project / "src" / "bug.py").write_text(BUG)
    (project / "pyproject.toml").write_text(TABLE + 'ignore = ["SS3"]\n')
    (project / "other.toml").write_text(TABLE + 'select = ["SS101"]\n')
    options = [word for each in given for word in ("--config", each)]
    assert cli("check", *options).exit_code == status
    if not any(each.endswith(".toml") for each in given):
        assert cli("check", "--isolated", *options).exit_code == status


@pytest.mark.parametrize(
    ("table", "options", "fixed"),
    [
        ("", ["--unsafe-fixes"], True),
        ("", [], False),  # a wait is added only when it is asked for
        ('unfixable = ["SS101"]', ["--unsafe-fixes"], False),
        ('unfixable = ["SS2"]', ["--unsafe-fixes"], True),
        ('fixable = ["SS2"]', ["--unsafe-fixes"], False),
        ('fixable = ["SS101"]\nunfixable = ["ALL"]', ["--unsafe-fixes"], True),
        ('fixable = ["ALL"]\nunfixable = ["SS1"]', ["--unsafe-fixes"], False),
        ('extend-safe-fixes = ["SS101"]', [], True),
        ('extend-safe-fixes = ["SS2"]', [], False),
    ],
)
def test_which_repairs_are_made(cli: Cli, project: Path, table: str, options: list[str], fixed: bool) -> None:
    (project / "pyproject.toml").write_text(TABLE + table + "\n")
    bug = project / "bug.py"
    bug.write_text(BUG)
    cli("check", "--fix", *options)
    assert (bug.read_text() != BUG) is fixed


def test_a_selector_that_names_no_rule_is_refused(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text(TABLE + 'unfixable = ["SS9999"]\n')
    (project / "bug.py").write_text(BUG)
    result = cli("check")
    assert result.exit_code == 2
    assert "'SS9999'" in result.stderr


@pytest.mark.parametrize(("include", "status"), [("*.py", 1), ("*.pyw", 0), ("src/", 1), ("lib/", 0)])
def test_include(cli: Cli, project: Path, include: str, status: int) -> None:
    (project / "pyproject.toml").write_text(TABLE + f'include = ["{include}"]\n')
    (project / "src").mkdir()
    (project / "src" / "bug.py").write_text(BUG)
    assert cli("check").exit_code == status
    assert cli("check", "src/bug.py").exit_code == 1  # a file that is named is always checked


def test_the_format_of_the_settings(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text(TABLE + 'output-format = "json"\n')
    (project / "bug.py").write_text(BUG)
    assert len(json.loads(cli("check").stdout)) == 1
    assert "bug.py:" in cli("check", "--output-format", "concise").stdout
    (project / "pyproject.toml").write_text(TABLE + 'output-format = "xml"\n')
    assert cli("check").exit_code == 2


@pytest.mark.parametrize(
    ("table", "options", "folder"),
    [
        ("", [], ".streamsafe_cache"),
        ('cache-dir = "kept"', [], "kept"),
        ('cache-dir = "kept"', ["--cache-dir", "other"], "other"),
        ('cache-dir = "kept"', ["--no-cache"], None),
    ],
)
def test_where_results_are_kept(
    cli: Cli, project: Path, table: str, options: list[str], folder: str | None
) -> None:
    (project / "pyproject.toml").write_text(TABLE + table + "\n")
    (project / "bug.py").write_text(BUG)
    assert cli("check", *options).exit_code == 1
    made = [each.name for each in project.iterdir() if each.is_dir()]
    assert made == ([folder] if folder else [])


def test_clean(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text(TABLE + 'cache-dir = "kept"\n')
    (project / "bug.py").write_text(BUG)
    cli("check")
    (project / "below").mkdir()
    (project / "below" / ".streamsafe_cache").mkdir()
    result = cli("clean")
    assert result.exit_code == 0
    assert sorted(each.name for each in project.rglob("*") if each.is_dir()) == ["below"]
    (project / "kept").mkdir()  # nothing of ours: it stays
    assert cli("clean").exit_code == 0
    assert (project / "kept").is_dir()


@pytest.mark.parametrize(
    ("version", "status"),
    [(">=0.0.1", 1), ("0.1.0", 1), ("==0.1.0", 1), (">=0.1,<1", 1), (">=99", 2), ("0.0.9", 2), ("new", 2)],
)
def test_the_version_that_a_project_asks_for(cli: Cli, project: Path, version: str, status: int) -> None:
    (project / "pyproject.toml").write_text(TABLE + f'required-version = "{version}"\n')
    (project / "bug.py").write_text(BUG)
    assert cli("check").exit_code == status


def test_ignore_noqa(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG.replace("return x.sum()", "return x.sum()  # noqa: SS101"))
    assert cli("check").exit_code == 0
    assert cli("check", "--ignore-noqa").exit_code == 1


@pytest.mark.parametrize("repair", ["--fix", "--fix-only", "--diff"])
def test_repairs_and_suppressions_refuse_each_other(cli: Cli, project: Path, repair: str) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--add-noqa", repair)
    assert result.exit_code == 2
    assert "--add-noqa" in result.stderr
    assert (project / "bug.py").read_text() == BUG
