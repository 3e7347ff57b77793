"""Inside a session, and after one, a program finds of its objects what it finds without the sanitizer.

Values, types, identities, containers and caches: the table of ``tests/runtime/unchanged.py``, in three processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
from tests.runtime.unchanged import PINNED, PROBES

ROOT = Path(__file__).resolve().parents[2]
MODES = ("plain", "inside", "after")


@pytest.fixture(scope="module")
def found(backend: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    simulated = [] if request.config.getoption("--gpu") else ["--simulate"]
    results = {}
    for mode in MODES:
        done = subprocess.run(
            [sys.executable, "-m", "tests.runtime.unchanged", mode, *simulated],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        results[mode] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", [name for name in PROBES if name != "pinned_arrays"])
def test_program(found: dict[str, Any], name: str, mode: str) -> None:
    assert found[mode][name] == found["plain"][name]


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("name", PINNED)
def test_pinned_array(found: dict[str, Any], name: str, mode: str) -> None:
    assert found[mode]["pinned_arrays"][name] == found["plain"]["pinned_arrays"][name]


def test_nothing_is_reported(found: dict[str, Any]) -> None:
    assert found["inside"]["hazards"] == []
