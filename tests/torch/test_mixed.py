"""Programs that use CuPy and PyTorch (fixtures/runtime/rows/ci*.py) under both simulated runtimes, in one process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "fixtures/runtime/rows").glob("ci*.py"))

RUN = """
import importlib.util, json, sys, warnings
from streamsafe.simulate import install as simulations
simulations.install(2)
warnings.simplefilter("ignore")
import cupy, torch, streamsafe
found = {}
for path in sys.argv[1:]:
    torch.cuda.synchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    with streamsafe.sanitize(mode="collect") as session:
        spec.loader.exec_module(module)
        module.main()
    found[path] = [[each.code, each.message] for each in session.hazards]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hazards(backend: Any, request: pytest.FixtureRequest) -> dict[str, list[list[str]]]:
    """Codes and messages of each program's hazards."""
    if request.config.getoption("--gpu"):
        pytest.skip("tests/runtime runs these programs on a GPU")
    pytest.importorskip("cupy_backends", reason="CuPy is not installed")
    command = [sys.executable, "-c", RUN, *map(str, PROGRAMS)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, list[list[str]]] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.stem))
def test_codes(path: Path, hazards: dict[str, list[list[str]]]) -> None:
    expected = re.search(r"^# expect: (.*)$", path.read_text(encoding="utf-8"), re.M)
    assert expected is not None
    words = {word for word in expected[1].split() if word not in ("none", "latent")}
    assert {code for code, _ in hazards[str(path)]} == words, hazards[str(path)]
