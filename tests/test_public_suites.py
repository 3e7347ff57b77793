"""What ``benchmarks/simulated_suites.py`` keeps of a suite that crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import simulated_suites

SUITE = """
import os, sys, pytest

def test_passes(): pass
def test_is_skipped(): pytest.skip("no reason")
def test_fails(): assert 1 == 2
def test_reports(): raise RuntimeError("SS101 unordered-read: a race")
def test_dies(): os._exit(3)
def test_comes_after(): pass

@pytest.fixture
def broken():
    yield
    raise ValueError("in the teardown")

def test_breaks_after(broken): pass
def test_ends_all(): os._exit(3)
def test_does_not_run(): pass
"""


def test_a_suite_that_crashes_leaves_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "test_not_collected.py").write_text("import no_such_module", encoding="utf-8")
    record = tmp_path / "record.jsonl"
    where = str(Path(simulated_suites.__file__).parent)
    environment = os.environ | {simulated_suites.RECORD: str(record), "PYTHONPATH": where}
    command = [sys.executable, "-m", "pytest", "-p", "simulated_suites", "-p", "no:cacheprovider"]
    command += ["-q", "--continue-on-collection-errors", str(tmp_path)]
    for crashes in (1, 2):  # the second process goes on after the test in which the first one died
        subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True)
        made = simulated_suites.read(record)
        assert len(made.crashed) == crashes
    assert [name.rpartition("::")[2] for name in made.crashed] == ["test_dies", "test_ends_all"]
    assert (made.passed, made.failed, made.skipped, made.left) == (3, 3, 1, 1)
    assert (made.reported, dict(made.codes)) == (1, {"SS101": 1})
    assert made.causes["assert N == N"] == made.causes["ValueError: in the teardown"] == 1
