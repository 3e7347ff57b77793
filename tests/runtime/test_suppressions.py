"""Suppression files, limits and what makes a run fail, by the real command line on the simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamsafe.order.hazard import Access, Frame, Hazard, Memory
from streamsafe.runtime.suppressions import SuppressionError, load, write

pytest.importorskip("cupy_backends", reason="CuPy is not installed")
ROOT = Path(__file__).resolve().parents[2]

RACY = """
import cupy as cp

a = cp.cuda.Stream(non_blocking=True)
b = cp.cuda.Stream(non_blocking=True)


class Counter:
    def __init__(self):
        self.total = cp.zeros(4096)

    def add(self):
        with a:
            self.total.fill(7)

    def show(self, out):
        with b:
            cp.copyto(out, self.total)


counter, out = Counter(), cp.zeros(4096)
cp.cuda.Device().synchronize()
counter.add()
counter.show(out)
cp.cuda.Device().synchronize()
for _ in range(3):
    with a:
        out.fill(1)
    with b:
        out.fill(2)
    cp.cuda.Device().synchronize()
"""
FITS = '[[suppress]]\ncode = "SS101"\nfunction = "Counter.show"\nreason = "a count may be old"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "racy.py").write_text(RACY)
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "streamsafe",
        "run",
        "--simulate",
        "--mode",
        "collect",
        *options,
        "racy.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_file_says_what_it_has_suppressed_and_what_is_unused(folder: Path) -> None:
    unused = '[[suppress]]\nfunction = "Counter.nothing"\n'
    old = '[[suppress]]\ncode = "SS102"\nexpires = 2020-01-31\n'
    (folder / "known.toml").write_text(FITS + unused + old)
    ended = run(folder, "--suppressions", "known.toml")
    assert ended.returncode == 1
    assert "1 hazard (SS102" in ended.stderr
    assert "known.toml, suppression 1 (a count may be old) suppressed 1" in ended.stderr
    assert "known.toml, suppression 2 is unused" in ended.stderr
    assert "known.toml, suppression 3 expired on 2020-01-31: it suppresses nothing" in ended.stderr


def test_a_written_file_suppresses_what_was_found(folder: Path) -> None:
    ended = run(folder, "--write-suppressions", "known.toml")
    assert ended.returncode == 0
    assert "wrote 2 suppressions to known.toml" in ended.stderr
    (folder / "racy.py").write_text("# a line more\n" + RACY)
    ended = run(folder, "--suppressions", "known.toml")
    assert ended.returncode == 0, ended.stderr
    assert "no hazards, 4 suppressed" in ended.stderr


def test_the_settings_name_a_file_and_the_limit(folder: Path) -> None:
    (folder / "known.toml").write_text(FITS)
    table = '[tool.streamsafe.run]\nsuppressions = "known.toml"\nlimit = 1\n'
    (folder / "pyproject.toml").write_text(table)
    ended = run(folder)
    assert ended.returncode == 1
    assert "1 hazard (SS102" in ended.stderr
    (folder / "pyproject.toml").write_text("[tool.streamsafe.run]\nlimit = 'one'\n")
    assert run(folder).returncode == 2


def test_the_limit_is_said(folder: Path) -> None:
    ended = run(folder, "--limit", "1")
    assert ended.returncode == 1
    assert "1 hazard (SS101)" in ended.stderr
    assert "the limit of 1 is reached: 3 more were found and are not shown" in ended.stderr


@pytest.mark.parametrize(("least", "status"), [("certain", 0), ("likely", 0), ("possible", 1)])
def test_what_makes_a_run_fail(folder: Path, least: str, status: int) -> None:
    launch = "with a:\n    counter.total.fill(2)\nwith b:\n    kernel((1,), (1,), (counter.total,))"
    source = '__device__ void h(float*); extern "C" __global__ void k(float* a) { h(a); }'
    kernel = f"kernel = cp.RawKernel({source!r}, 'k')\n"
    uncertain = RACY.replace("counter.add()\ncounter.show(out)", kernel + launch).partition("for _ in")[0]
    (folder / "racy.py").write_text(uncertain)
    ended = run(folder, "--fail-on", least)
    assert "1 hazard" in ended.stderr
    assert ended.returncode == status


HAZARD = Hazard(
    "SS101",
    "unordered-read",
    "",
    Access("fill", "`a`", "writes", stack=(Frame("/src/mylib/metrics.py", 3, "Counter.add"),)),
    Access("copyto", "`b`", "reads", stack=(Frame("/src/main.py", 9, "main"),)),
    Memory("self.total"),
)


@pytest.mark.parametrize(
    ("entry", "covers"),
    [
        ('code = "SS101"', True),
        ('code = "SS1"', True),
        ('code = "SS2"', False),
        ('code = "ALL"\nmemory = "self.*"', True),
        ('memory = "other"', False),
        ('operator = "copy*"', True),
        ('operator = "fill"', True),
        ('operator = "copy"', False),
        ('function = "add"', True),
        ('function = "Counter.*"', True),
        ('function = "show"', False),
        ('module = "mylib.metrics"', True),
        ('module = "metrics"', True),
        ('module = "mylib.*"', True),
        ('module = "mylib"', False),
        ('file = "mylib/*.py"', True),
        ('file = "tests/*.py"', False),
        ('module = "mylib.metrics"\nfunction = "main"', False),  # of two frames
        ('code = "SS101"\nexpires = 2020-01-01', False),
        ('code = "SS101"\nexpires = 2999-01-01', True),
    ],
)
def test_all_that_an_entry_names_must_fit(tmp_path: Path, entry: str, covers: bool) -> None:
    path = tmp_path / "known.toml"
    path.write_text(f"[[suppress]]\n{entry}\n")
    (allowance,) = load(str(path))
    assert (allowance.covers(HAZARD) and not allowance.expired) is covers


def test_what_is_written_fits_again(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    assert write(str(path), [HAZARD, HAZARD]) == 1
    (allowance,) = load(str(path))
    assert allowance.covers(HAZARD)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[suppress]]\ncod = 'SS101'\n", "suppression 1: unknown key 'cod'"),
        ("[[suppress]]\nreason = 'because'\n", "suppression 1: says nothing of what it suppresses"),
        ("[[suppress]]\ncode = 'SS999'\n", "suppression 1: no rule has the code 'SS999'"),
        ("[[suppress]]\ncode = 1\n", "suppression 1: code must be a string"),
        ("[[suppress]]\ncode = 'SS101'\nexpires = 'soon'\n", "expires must be a date"),
        ("[suppress]\ncode = 'SS101'\n", "in two brackets"),
        ("[other]\n", "unknown key 'other'"),
        ("[[suppress]", "not valid TOML"),
    ],
)
def test_a_file_that_means_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(SuppressionError, match="known") as raised:
        load(str(path))
    assert said in str(raised.value)
