"""What the next engine follows through projects: each mechanism fires once, beside its silent twin."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from tests.static.evalfiles import EvalFile, check_tree, write_tree

OPTIONS = ("--engine", "next", "--no-cache", "--jobs", "1")

CASES = {
    "a field that a method called by __init__ fills": {
        "offload.py": """
import torch


class BadOffloader:
    def __init__(self, weights, pin=True):
        self.pin = pin
        self.side = torch.cuda.Stream()
        self.on_host = {}
        self._collect(weights)

    def _collect(self, weights):
        for key, weight in weights.items():
            self.on_host[key] = torch.empty(weight.shape, pin_memory=self.pin)

    def fetch(self, key):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return self.on_host[key].to("cuda", non_blocking=True)

    def update(self, key, weight):
        self.on_host[key].copy_(weight.cpu())  # expect: SS302


class GoodOffloader:
    def __init__(self, weights, pin=True):
        self.pin = pin
        self.side = torch.cuda.Stream()
        self.on_host = {}
        self._collect(weights)

    def _collect(self, weights):
        for key, weight in weights.items():
            self.on_host[key] = torch.empty(weight.shape, pin_memory=self.pin)

    def fetch(self, key):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return self.on_host[key].to("cuda", non_blocking=True)

    def update(self, key, weight):
        self.side.synchronize()
        self.on_host[key].copy_(weight.cpu())
"""
    },
    "a method that its class and others call": {
        "manager.py": """
import torch


class BadManager:
    def __init__(self, size):
        self.side = torch.cuda.Stream()
        self.host = torch.empty(size, pin_memory=True)
        self.device = torch.empty(size, device="cuda")
        self.load()

    def load(self):
        with torch.cuda.stream(self.side):
            self.device.copy_(self.host, non_blocking=True)

    def change(self, values):
        self.host.copy_(values)  # expect: SS302


class GoodManager:
    def __init__(self, size):
        self.side = torch.cuda.Stream()
        self.host = torch.empty(size, pin_memory=True)
        self.device = torch.empty(size, device="cuda")
        self._load()

    def _load(self):
        with torch.cuda.stream(self.side):
            self.device.copy_(self.host, non_blocking=True)

    def reload(self):
        self._load()
        self.side.synchronize()

    def change(self, values):
        self.side.synchronize()
        self.host.copy_(values)
""",
        "trainer.py": """
from manager import BadManager, GoodManager


def train(size):
    manager, other = BadManager(size), GoodManager(size)
    run(manager, other)
    return manager, other


def run(manager: BadManager, other: GoodManager):
    manager.load()
    other.reload()
""",
    },
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_followed(name: str, tmp_path: Path) -> None:
    write_tree(tmp_path, CASES[name])
    found = check_tree(tmp_path, *OPTIONS)
    wrong = [
        problem
        for file, text in CASES[name].items()
        for problem in EvalFile(tmp_path / file, text).disagreements(found.get(file, []))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


EXPLAINED = """
import torch


class Loader:
    def __init__(self):
        self.side = torch.cuda.Stream()
        self.batch = torch.empty(8, device="cuda")

    def fill(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.batch.copy_(x)

    def use(self, x):
        self.fill(x)
        return self.batch.sum()


def unrelated(x):
    return x
"""


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("self.side.wait_stream", ["in Loader.fill:", "self.side waits for the current stream"]),
        ("self.batch.copy_", ["copy_ reads x on self.side", "copy_ writes self.batch on self.side"]),
        (
            "self.fill(x)",
            [
                "in Loader.use:",
                "calls Loader.fill: ",
                "copy_ writes self.batch on self.side (line 13)",
                "self.side waits for the current stream (line 11)",
                "self.side comes after the current stream",
            ],
        ),
        (
            "return self.batch.sum()",
            [
                "sum reads self.batch on the current stream",
                "earlier, line 13: copy_ writes self.batch on self.side; what comes after it: self.side",
                "SS101 (certain): `sum` on the current stream reads `self.batch`",
            ],
        ),
        ("return x\n", ["no stream, access or edge is known there"]),
    ],
)
def test_explained_lines(statement: str, said: list[str], tmp_path: Path) -> None:
    file = tmp_path / "loader.py"
    file.write_text(EXPLAINED, encoding="utf-8")
    row = EXPLAINED[: EXPLAINED.index(statement)].count("\n") + 1
    place = f"{file}:{row}"
    result = CliRunner().invoke(
        main, ["check", "--isolated", "--engine", "next", "--explain-line", place], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert not [text for text in said if text not in result.stdout], result.stdout
