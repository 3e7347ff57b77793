"""Programs with their repairs made: each computes what it did, fails at nothing and has no hazard more."""

from __future__ import annotations

import importlib.util
import inspect
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import streamsafe
from tests.check.repaired import repaired
from tests.torch.conftest import restore_generators
from tests.torch.test_programs import FOLDER, PROGRAMS, Program, begin_anew, leave_group, missing

FILES = sorted({program.path for program in PROGRAMS})


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(torch: Any, module: ModuleType, program: Program) -> tuple[str, Counter[str]]:
    """What a program returns or fails with, and the codes of its hazards."""
    torch.cuda.set_device(0)
    torch.cuda.set_stream(torch.cuda.default_stream())
    torch.cuda.synchronize()
    restore_generators(torch)
    begin_anew(torch)
    function = getattr(module, program.name)
    arguments = [function.cases[program.case]] if program.case else []
    with streamsafe.sanitize(mode="collect") as session:
        try:
            result = repr(function(lambda: None, *arguments))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    leave_group(torch, program)
    return result, Counter(hazard.code for hazard in session.hazards)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_repaired_programs_run(
    torch: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = repaired(path)
    if text is None:
        pytest.skip("nothing is repaired")
    monkeypatch.syspath_prepend(str(FOLDER))
    kit = importlib.import_module("kit")
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    before: dict[str, tuple[str, Counter[str]]] = {}
    sources: dict[str, str] = {}
    for file, name in ((path, f"{path.stem}_before"), (tmp_path / path.name, f"{path.stem}_after")):
        monkeypatch.setattr(kit, "PROGRAMS", {})
        module = load(file, name)  # one after the other: an operator that both define is the later one's
        for program in PROGRAMS:
            if program.path != path or missing(torch, program, request.config.getoption("--gpu")):
                continue
            source = inspect.getsource(getattr(module, program.name))
            if file == path:
                before[str(program)], sources[str(program)] = outcome(torch, module, program), source
            elif source != sources[str(program)]:
                result, left = outcome(torch, module, program)
                assert result == before[str(program)][0], str(program)
                assert not left, f"{program}: {dict(before[str(program)][1])} before, {dict(left)} left"
