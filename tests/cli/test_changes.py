"""`--diff-base`: only what changed lines cause."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.helpers import BUG, CLEAN, Cli, places

OLD = BUG.replace("total", "old")


def git(project: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)


@pytest.fixture
def repository(project: Path) -> Path:
    """A repository with one commit that holds a hazard."""
    git(project, "init", "-q")
    (project / "old.py").write_text(OLD)
    (project / "fine.py").write_text(CLEAN)
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    return project


def found(cli: Cli) -> list[tuple[str, str, int]]:
    return places(cli("check", "--output-format", "json", "--diff-base", "HEAD"))


def test_old_hazards_are_not_reported(cli: Cli, repository: Path) -> None:
    assert found(cli) == []
    assert (
        cli("check", "--diff-base", "HEAD").stdout == "No hazards found in 2 files (1 on unchanged lines).\n"
    )
    (repository / "old.py").write_text("# a line\n\n" + OLD)
    assert found(cli) == [], "a hazard that moves is no new one"


@pytest.mark.parametrize(
    ("before", "after"),
    [("return x.sum()", "return x.mean()"), ("x.fill_(2)", "x.fill_(3)")],
    ids=["second access", "first access"],
)
def test_a_changed_access(cli: Cli, repository: Path, before: str, after: str) -> None:
    (repository / "old.py").write_text(OLD.replace(before, after))
    assert found(cli) == [("old.py", "SS101", 11)]


def test_a_wait_that_is_removed(cli: Cli, repository: Path) -> None:
    (repository / "fine.py").write_text(BUG)
    assert found(cli) == [("fine.py", "SS101", 11)]


def test_a_new_file_and_a_commit(cli: Cli, repository: Path) -> None:
    (repository / "ü new.py").write_text(BUG)
    assert found(cli) == [("ü new.py", "SS101", 11)]
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    assert found(cli) == []
    assert cli("check", "--diff-base", "HEAD~1").exit_code == 1


def test_where_the_branch_began(cli: Cli, repository: Path) -> None:
    """What others changed since on the base is not this branch's."""
    git(repository, "checkout", "-qb", "base")
    (repository / "fine.py").write_text(CLEAN + "\n")
    (repository / "old.py").write_text(OLD.replace("x.sum()", "x.mean()"))
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-qb", "mine", "HEAD~1")
    assert cli("check", "--diff-base", "base").exit_code == 0


def test_from_a_directory_below(cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "bug.py").write_text(BUG)
    monkeypatch.chdir(repository / "sub")
    assert found(cli) == [("bug.py", "SS101", 11)]


def test_refused(cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cli("check", "--diff-base", "no-such-branch")
    assert (result.exit_code, "git knows no revision 'no-such-branch'" in result.stderr) == (2, True)
    monkeypatch.setenv("PATH", str(repository))
    result = cli("check", "--diff-base", "HEAD")
    assert (result.exit_code, "needs git" in result.stderr) == (2, True)


def test_outside_a_repository(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--diff-base", "HEAD")
    assert (result.exit_code, "is in no git repository" in result.stderr) == (2, True)
