"""What is released: built, checked, installed in a fresh environment, used as its README says (`pytest --release`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif("not config.getoption('--release')", reason="--release runs it: two minutes")

USES = """\
from __future__ import annotations

import streamsafe
from streamsafe.order.hazard import Conflict, Hazard
from streamsafe.rule import Rule


class Mine(Rule):
    code = "XX101"
    name = "mine"
    rank = 500

    def message(self, conflict: Conflict) -> str:
        return conflict.second.operation


@streamsafe.sanitize(mode="warn")
def step(n: int) -> float:
    return float(n)


def run() -> list[Hazard]:
    with streamsafe.sanitize(mode="collect", ignore=["SS202"]) as session:
        value: float = step(3)
        print(value, session.summary())
    try:
        raise AssertionError
    except streamsafe.StreamHazardError as error:
        print(error.hazard.code)
    return list(session.hazards)
"""


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=inherited, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    run("git", "clone", "-q", ROOT, source, cwd=folder)
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", source, cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def fresh(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    (wheel,) = dist.glob("*.whl")
    run(folder / "venv" / "bin" / "pip", "install", "-q", wheel, cwd=folder)
    return folder / "venv" / "bin"


def test_distributions(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, cwd=dist)
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "streamsafe/py.typed",
        "streamsafe/rules/ss101_unordered_read.py",
        "streamsafe/cli/check.py",
    } <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "docs/", "fixtures/"))]
    with tarfile.open(sdist) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    assert {"docs/index.md", "tests/test_release.py", "examples/pipeline.py", "mkdocs.yml"} <= inside


def test_the_commands_of_the_readme(fresh: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shown = run(fresh / "streamsafe", "check", "examples", cwd=tmp_path, status=1)
    assert "SS101 unordered-read" in shown
    assert "@@" in run(
        fresh / "streamsafe", "check", "examples", "--diff", "--unsafe-fixes", cwd=tmp_path, status=1
    )
    packages = run(fresh / "pip", "list", "--format", "freeze", cwd=tmp_path).lower()
    assert {line.partition("==")[0] for line in packages.split()} <= {
        *("streamsafe", "click", "libcst", "pathspec", "pyyaml", "pyyaml-ft", "typing-extensions", "tomli"),
        *("pip", "setuptools"),
    }, "the base install is light"


def test_extras_say_what_is_missing(fresh: Path, tmp_path: Path) -> None:
    for arguments, extra in ((["server"], "streamsafe[lsp]"), (["check", "--watch"], "streamsafe[watch]")):
        done = subprocess.run(
            [fresh / "streamsafe", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert extra in done.stderr


def test_the_packages_of_the_examples(fresh: Path, tmp_path: Path) -> None:
    """A third party's rule by its entry point, and a model by configuration."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for package in ("plugin", "model"):
        run(fresh / "pip", "install", "-q", "--no-deps", tmp_path / "examples" / package, cwd=tmp_path)
    assert "HP001  early-reduction" in run(fresh / "streamsafe", "rules", cwd=tmp_path)
    arguments = ("check", "-q", "--output-format", "concise", "train.py")
    train = tmp_path / "examples" / "model"
    assert "train.py:11:12: HP001 " in run(fresh / "streamsafe", *arguments, cwd=train, status=1)
    found = run(fresh / "streamsafe", *arguments, "--ignore", "early-reduction", cwd=train)
    assert found == ""
    run(fresh / "pip", "uninstall", "-q", "-y", "streamsafe-hot-path", cwd=tmp_path)
    assert "train.py:11:12: SS101 " in run(fresh / "streamsafe", *arguments, cwd=train, status=1)
    assert run(fresh / "streamsafe", *arguments, "--isolated", cwd=train) == "", "the model shows it"


def test_types_from_outside(fresh: Path, tmp_path: Path) -> None:
    """What a user's type checkers say of a program that uses the package."""
    (tmp_path / "uses.py").write_text(USES, encoding="utf-8")
    python = fresh / "python"
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "uses.py", cwd=tmp_path)
    pytest.importorskip("pyright")
    ready = subprocess.run([sys.executable, "-m", "pyright", "--version"], capture_output=True, check=False)
    if ready.returncode != 0:  # it fetches its own program, the first time
        pytest.skip("pyright cannot be had here")
    run(sys.executable, "-m", "pyright", "--pythonpath", python, "uses.py", cwd=tmp_path)
