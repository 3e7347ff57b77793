"""PyTorch watched from Python, where no compiler is found: what it finds, and what it says that it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamsafe.runtime.torch.fallback.trace import LISTENED, QUIET, NoTrace, methods

ROOT = Path(__file__).resolve().parents[2]

UNSEEN = {
    "autograd/an_initial_gradient_freed_too_early": "reuse after a use by backward()",
    "graphs/gc05_an_output_kept_over_a_replay": "not seen with native code either",
}
"""Programs whose hazards it does not find, and why. In ordered programs it finds nothing."""


@pytest.fixture(scope="module")
def ask(backend: Any, request: pytest.FixtureRequest) -> Any:
    """Runs a task of tests/torch/without_compiler.py in a process of its own."""
    gpu = ["--gpu"] if request.config.getoption("--gpu") else []

    def run(task: str) -> Any:
        command = [sys.executable, "-m", "tests.torch.without_compiler", task, *gpu]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return run


def test_the_programs(ask: Any, request: pytest.FixtureRequest) -> None:
    found = ask("table")
    assert found["ran"] > 400
    expected = {name: [""] for name in UNSEEN}
    if request.config.getoption("--gpu"):
        expected["misc/a_compiled_function"] = ["", "SS101"]  # its place is the call, not the decorator
    assert found["wrong"] == expected


def test_exceptions_and_refused_operations(ask: Any) -> None:
    found = ask("exceptions")
    assert found["caught"] == ["of the program"] * 3 + ["SS102"]
    assert found["value"] == 2.0
    (note,) = found["notes"]
    assert "there is no C++ compiler /no/compiler" in note and "streamsafe build-torch" in note


def test_other_tools_and_threads(ask: Any) -> None:
    found = ask("others")
    silent = ("compiled", "transformed", "faked", "inference", "conditional")
    assert [found[name] for name in silent] == [[]] * len(silent)
    assert found["race"] == ["SS101"] and found["thread"] == ["SS101"]
    assert found["modes"] == 0
    assert found["child"] == 0


def test_a_trace(ask: Any) -> None:
    assert ask("trace") == {"run": ["SS111"], "trace": ["SS111"]}


def test_build_torch_says_what_happens_without(backend: Any) -> None:
    command = [sys.executable, "-m", "streamsafe", "build-torch", "--force"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CXX": "/no/compiler"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "there is no C++ compiler /no/compiler" in ended.stderr
    assert "watched from Python alone" in ended.stderr


def header(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "include" / "c10" / "core" / "impl"
    folder.mkdir(parents=True)
    (folder / "PyInterpreter.h").write_text(text)
    return tmp_path


def test_the_table_of_the_trace(backend: Any) -> None:
    """The entries that are taken out are found by the installed torch's header."""
    names = methods(Path(backend.__file__).parent)
    assert names[:3] == ["complete destructor", "deleting destructor", "name"]
    assert {f"trace_gpu_{name}" for name in (*LISTENED, *QUIET)} <= set(names)
    assert names[-1].startswith("trace_gpu_")


HEADERS = {
    "no destructor": "struct C10_API PyInterpreterVTable {\n  virtual void name() const = 0;\n};",
    "no trace": "struct C10_API PyInterpreterVTable {\n  virtual ~PyInterpreterVTable() = default;\n};",
    "nothing": "",
}


@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS)
def test_a_header_that_is_not_as_expected(text: str, tmp_path: Path) -> None:
    with pytest.raises(NoTrace, match="is not as it is"):
        methods(header(tmp_path, text))


def test_no_headers(tmp_path: Path) -> None:
    with pytest.raises(NoTrace, match="headers are not in"):
        methods(tmp_path)
