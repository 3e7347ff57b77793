"""Other files of a project: what they say of a call that a finding leans on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from streamsafe.static import elsewhere

HANDED_ON = """
import importlib
import torch
from pkg.store import Store, put_aside

def step(x, side: torch.cuda.Stream, store):  # its class is not named: linking has no part in this
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    {call}
    torch.cuda.current_stream().wait_stream(side)
    return y
"""
READ = """
import torch
from .store import Store

def step(x, store):  # its class is not named: linking has no part in this
    host = torch.empty(x.shape, pin_memory=True)
    host.copy_(x, non_blocking=True)
    store.note_all(x)
    return host.tolist()
"""
MEASURED = """
import torch

class Trainer:
    def mean_of_losses(self, losses):
        ...  # the heirs say

    def step(self, losses):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.train(losses)
        end.record()
        mean = self.mean_of_losses(losses)
        return mean, start.elapsed_time(end)
"""
MADE = """
import torch
from pkg.store import Store

def step(x, side: torch.cuda.Stream):
    store = Store()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    store.scale(y)
    torch.cuda.current_stream().wait_stream(side)
    return y
"""
TIMED = """
import time
import torch
from pkg.store import Store, measured

def step(x):
    x = x.cuda()
    store = Store(4)
    torch.cuda.synchronize()
    start = time.time()
    y = {call}
    return y, time.time() - start
"""
METHOD, FUNCTION = "store.put_aside(y)", "put_aside(y)"
BY_NAME = 'importlib.import_module("pkg.store").put_aside(y)'
KEEPS = "class Store:\n    def put_aside(self, value):\n        {body}\n"
KEEPS_PLAINLY = "KEPT = []\ndef put_aside(value):\n    {body}\nclass Store: ...\n"
WAITS = "import torch\nclass Store:\n    def note_all(self, x):\n        {body}\n"
OF_CLASS = (
    "class Other:\n    def scale(self, value):\n        return value * 2\n\n"
    "class Store:\n    def scale(self, value):\n        {body}\n"
)
CALLED = "class Store:\n    def forward(self, x):\n        {body}\ndef measured(x): ...\n"
SWITCHED = (
    "import torch\nclass Store: ...\ndef measured(x, log={body}):\n    log = log and torch.cuda.is_available()\n"
    "    y = x * 2\n    if log:\n        torch.cuda.synchronize()\n    return y\n"
)
HEIR = (
    "from .step import Trainer\nclass Own(Trainer):\n    def mean_of_losses(self, losses):\n        {body}\n"
)

METADATA = (HANDED_ON, METHOD, KEEPS)
CASES = {
    "a method keeps what it is given": (HANDED_ON, METHOD, KEEPS, "self.kept.append(value)", []),
    "a method computes": (HANDED_ON, METHOD, KEEPS, "self.kept.append(value + 1)", ["SS101"]),
    "a method fills a tensor": (HANDED_ON, METHOD, KEEPS, "self.rows[0] = value", ["SS101"]),
    "a method fills a table": (HANDED_ON, METHOD, KEEPS, "self.rows = {}; self.rows[0] = value", []),
    "a method tells how many there are": (HANDED_ON, METHOD, KEEPS, "return len(value) + 1", []),
    "a method hands it on": (HANDED_ON, METHOD, KEEPS, "self.model(value)", ["SS101"]),
    "a function keeps it": (HANDED_ON, FUNCTION, KEEPS_PLAINLY, "KEPT.append(value)", []),
    "a function computes": (HANDED_ON, FUNCTION, KEEPS_PLAINLY, "KEPT.append(value.sum())", ["SS101"]),
    "a method asks for a device": (
        *METADATA,
        *("at = value.device; return limits(at, value.shape[0] // 2)", []),
    ),
    "a method asks for what is in a tensor": (*METADATA, "at = value[0]; return limits(at, 2)", ["SS101"]),
    "a method looks a size up": (*METADATA, "return TABLE[value.size(0) * rows(value.dtype)]", []),
    "a method looks an element up": (*METADATA, "return TABLE[value.size(0) * rows(value)]", ["SS101"]),
    "a method asks the device": (*METADATA, "with on(value.device): return handle()", []),
    "a method uses the device": (*METADATA, "with on(value.device): return handle(value)", ["SS101"]),
    "a module is imported by its name": (HANDED_ON, BY_NAME, KEEPS_PLAINLY, "KEPT.append(value)", []),
    "a function of such a module computes": (
        *(HANDED_ON, BY_NAME, KEEPS_PLAINLY),
        *("KEPT.append(value * 2)", ["SS101"]),
    ),
    "the host waits": (READ, "", WAITS, "torch.cuda.synchronize()", []),
    "the host waits if it is told to": (READ, "", WAITS, "if self.slow: torch.cuda.synchronize()", ["SS301"]),
    "the host waits for what there is": (READ, "", WAITS, "if len(x): torch.cuda.synchronize()", ["SS301"]),
    "the host asks for a number": (READ, "", WAITS, "return x.sum().item()", []),
    "the host asks for a shape": (READ, "", WAITS, "return x.sum().shape", ["SS301"]),
    "a method of a class that is imported keeps": (MADE, "", OF_CLASS, "self.kept.append(value)", []),
    "a method of a class that is imported computes": (MADE, "", OF_CLASS, "return value * 3", ["SS101"]),
    "an object that is called waits": (TIMED, "store(x)", CALLED, "return (x * 2).cpu().numpy()", []),
    "an object that is called does not wait": (TIMED, "store(x)", CALLED, "return x * 2", ["SS311"]),
    "a function waits unless it is told not to": (TIMED, "measured(x)", SWITCHED, "True", []),
    "a function waits if it is told to": (TIMED, "measured(x)", SWITCHED, "False", ["SS311"]),
    "a thread waits for another": (READ, "", WAITS, "self.cv.wait()", ["SS301"]),
    "an heir waits": (MEASURED, "", HEIR, "return sum(x.item() for x in losses)", []),
    "an heir does not wait": (MEASURED, "", HEIR, "return sum(losses)", ["SS312"]),
}


def _codes(*paths: Path) -> list[str]:
    result = CliRunner().invoke(
        main, ["check", "--isolated", "--output-format", "json", *map(str, paths)], catch_exceptions=False
    )
    return [finding["code"] for finding in json.loads(result.stdout)]


def _package(root: Path, **files: str) -> Path:
    package = root / "pkg"
    package.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize("case", CASES)
def test_what_another_file_does(case: str, tmp_path: Path) -> None:
    text, call, other, body, expected = CASES[case]
    package = _package(tmp_path, step=text.format(call=call), store=other.format(body=body))
    assert _codes(package / "step.py") == expected
    assert _codes(package) == expected  # whatever else is named


def test_standard_input_has_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, store = HANDED_ON.format(call=METHOD), KEEPS.format(body="self.kept.append(value)")
    package = _package(tmp_path, step=text, store=store)
    monkeypatch.chdir(package)
    command = ["check", "--isolated", "--output-format", "json", "--stdin-filename", "step.py", "-"]
    result = CliRunner().invoke(main, command, input=text, catch_exceptions=False)
    assert json.loads(result.stdout) == []


def test_what_is_exported_again(tmp_path: Path) -> None:
    text = HANDED_ON.replace("pkg.store", "pkg").format(call=FUNCTION)
    store = KEEPS_PLAINLY.format(body="KEPT.append(value)")
    package = _package(tmp_path, step=text, store=store, __init__="from .store import Store, put_aside\n")
    assert _codes(package / "step.py") == []


def test_several_that_disagree(tmp_path: Path) -> None:
    keeps, computes = KEEPS.format(body="self.kept = value"), KEEPS.format(body="self.kept = value + 1")
    package = _package(tmp_path, step=HANDED_ON.format(call=METHOD), store=keeps, other=computes)
    assert _codes(package / "step.py") == ["SS101"]


def test_stand_ins_of_tests_say_nothing(tmp_path: Path) -> None:
    keeps = KEEPS.format(body="self.kept = value")
    package = _package(tmp_path, step=HANDED_ON.format(call=METHOD), test_store=keeps)
    assert _codes(package / "step.py") == ["SS101"]
    (package / "test_store.py").rename(package / "store.py")
    elsewhere.forget()
    assert _codes(package / "step.py") == []


def test_a_file_that_nobody_imports_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(HANDED_ON.format(call=METHOD), encoding="utf-8")
    (tmp_path / "unrelated.py").write_text(KEEPS.format(body="self.kept = value"), encoding="utf-8")
    assert _codes(tmp_path) == ["SS101"]


@pytest.mark.parametrize("text", ["def put_aside(self, value:\n", "\xff\xfe", ""])
def test_a_file_that_cannot_be_read_says_nothing(text: str, tmp_path: Path) -> None:
    package = _package(tmp_path, step=HANDED_ON.format(call=METHOD))
    (package / "store.py").write_bytes(text.encode("latin-1"))
    assert _codes(package / "step.py") == ["SS101"]
