"""The programs that show what each bug gives: the sanitizer reports each by its code, and no repaired one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from tests.torch.conftest import restore_generators

SOURCE = Path(__file__).parents[2] / "docs" / "wrong_data.py"
OTHERS = {"SS202", "SS203", "SS501"}
"""Bugs of CuPy: tests/runtime has them."""
EXPECTED: dict[str, set[str]] = {
    "SS311": set(),  # reading a clock and rebinding a name are no calls of a library:
    "SS403": set(),  # these two are found by the check alone
    "SS411": {"SS401"},  # `torch.cuda.graph` synchronizes before it captures
}
CODES = [
    f"SS{line[6:9]}" for line in SOURCE.read_text(encoding="utf-8").splitlines() if line.startswith("def ss")
]


@pytest.fixture(scope="module")
def programs(backend: Any) -> Any:
    spec = importlib.util.spec_from_file_location("wrong_data", SOURCE)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.N, module.TRIALS = 1024, 1
    module.busy = lambda rounds=1: backend.ones(8, 8, device="cuda") @ backend.ones(8, 8, device="cuda")
    return module


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@pytest.mark.parametrize("code", [code for code in CODES if code not in OTHERS])
def test_the_sanitizer_reports_the_bug_and_not_its_repair(torch: Any, programs: Any, code: str) -> None:
    with streamsafe.sanitize(mode="collect") as watched:
        programs.outcome(programs.CASES[code], True)
    assert [hazard.code for hazard in watched.hazards] == []
    with streamsafe.sanitize(mode="collect") as watched:
        programs.outcome(programs.CASES[code], False)
    restore_generators(torch)
    codes = {hazard.code for hazard in watched.hazards}
    assert codes == EXPECTED.get(code, {code})
