"""Which files are found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streamsafe.project.files import discover
from streamsafe.project.settings import Configs

FILES = (
    "a.py",
    "b.pyw",
    "c.ipynb",
    "d.txt",
    "script",
    "pkg/e.py",
    "pkg/build/f.py",
    "pkg/.venv/g.py",
    "pkg/gen/h.py",
    "pkg/gen/keep.py",
    "node_modules/i.py",
    "out.py",
)


@pytest.fixture
def tree(project: Path) -> Path:
    for name in FILES:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return project


def names(root: Path, *paths: str, force_exclude: bool = False) -> list[str]:
    found = discover(paths or (".",), Configs(), force_exclude=force_exclude)
    assert not found.problems
    return [str(Path(file.path).relative_to(root)) for file in found.files]


def test_directory(tree: Path) -> None:
    expected = ["a.py", "b.pyw", "c.ipynb", "out.py", "pkg/e.py", "pkg/gen/h.py", "pkg/gen/keep.py"]
    assert names(tree) == expected
    assert names(tree, "pkg", ".", "a.py") == expected


def test_named_paths_are_always_taken(tree: Path) -> None:
    assert names(tree, "d.txt", "script", "pkg/build", "pkg/.venv/g.py") == [
        "d.txt",
        "pkg/.venv/g.py",
        "pkg/build/f.py",
        "script",
    ]


@pytest.mark.parametrize(
    ("ignores", "gone"),
    [
        ({".gitignore": "gen/"}, {"pkg/gen/h.py", "pkg/gen/keep.py"}),
        ({".gitignore": "pkg/gen/*\n!keep.py"}, {"pkg/gen/h.py"}),
        ({".gitignore": "/e.py"}, set()),
        ({"pkg/.gitignore": "/e.py"}, {"pkg/e.py"}),
        ({".gitignore": "*.py", "pkg/.gitignore": "!*.py"}, {"a.py", "out.py"}),
        ({".gitignore": "# comment\n\n\\#x\n*.pyw"}, {"b.pyw"}),
        ({".gitignore": "out"}, set()),
        ({".gitignore": "out.*"}, {"out.py"}),
        ({".gitignore": "pkg/**/h.py"}, {"pkg/gen/h.py"}),
        ({".gitignore": "pkg"}, {"pkg/e.py", "pkg/gen/h.py", "pkg/gen/keep.py"}),
        ({".gitignore": "\xff\x00["}, set()),
    ],
)
def test_gitignore_agrees_with_git(tree: Path, ignores: dict[str, str], gone: set[str]) -> None:
    everything = set(names(tree))
    for name, content in ignores.items():
        (tree / name).write_text(content, encoding="latin-1")
    assert everything - set(names(tree)) == gone
    subprocess.run(["git", "init", "-q"], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    )
    assert gone == everything - set(listed.stdout.splitlines())


def test_gitignore_above_counts_inside_the_repository_only(tree: Path) -> None:
    (tree / ".gitignore").write_text("gen/\n")
    assert names(tree, "pkg") == ["pkg/e.py", "pkg/gen/h.py", "pkg/gen/keep.py"]
    (tree / ".git").mkdir()
    assert names(tree, "pkg") == ["pkg/e.py"]
    assert names(tree, "pkg/gen/h.py") == ["pkg/gen/h.py"]


def test_a_directory_that_is_named_is_searched_even_if_ignored(tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".gitignore").write_text("/pkg\n")
    (tree / "pyproject.toml").write_text('[tool.streamsafe]\nexclude = ["gen"]\n')
    assert not any(name.startswith("pkg") for name in names(tree))
    assert names(tree, "pkg") == ["pkg/e.py"]
    assert names(tree, "pkg/gen") == ["pkg/gen/h.py", "pkg/gen/keep.py"]
    assert names(tree, "pkg/gen", force_exclude=True) == []


def test_exclude(tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[tool.streamsafe]\nexclude = ["pkg/gen", "*.pyw", "/out.py"]\n')
    assert names(tree) == ["a.py", "c.ipynb", "pkg/e.py"]
    assert names(tree, "out.py", "a.py") == ["a.py", "out.py"]
    assert names(tree, "out.py", "a.py", force_exclude=True) == ["a.py"]
    assert names(tree, "pkg/gen/h.py", force_exclude=True) == []
