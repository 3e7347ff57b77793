"""What a limit does to findings, how often one bug is shown, and whose order counts for two methods."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from tests.static.evalfiles import Found, check_tree, write_tree


def check(folder: Path, text: str) -> list[Found]:
    """The findings in one file, those that are possible included."""
    write_tree(folder, {"module.py": text})
    options = ("--engine", "next", "--no-cache", "--confidence", "possible")
    return check_tree(folder, *options).get("module.py", [])


def paths(number: int, waits: bool) -> str:
    """A function with a path for each way to take ``number`` conditions, and work on two streams."""
    conditions = "".join(f"    if c{i}:\n        s = torch.cuda.Stream()\n" for i in range(number))
    names = ", ".join(f"c{i}" for i in range(number))
    wait = "    torch.cuda.current_stream().wait_stream(side)\n" if waits else ""
    return (
        f"import torch\n\ndef many(x: torch.Tensor, {names}):\n    s = None\n{conditions}"
        "    side = torch.cuda.Stream()\n    side.wait_stream(torch.cuda.current_stream())\n"
        f"    with torch.cuda.stream(side):\n        x.mul_(2)\n{wait}    return x.sum()\n"
    )


@pytest.mark.parametrize(("number", "confidence"), [(2, "certain"), (15, "possible")])
def test_what_rests_on_joined_paths_is_possible(tmp_path: Path, number: int, confidence: str) -> None:
    assert [(each.code, each.confidence) for each in check(tmp_path, paths(number, False))] == [
        ("SS101", confidence)
    ]
    assert not check(tmp_path, paths(number, True))


BIG = """import torch

class Big:
    def __init__(self, x: torch.Tensor):
        self.x = x
        self.side = torch.cuda.Stream()
{fields}

def use(x: torch.Tensor):
    big = Big(x)
    with torch.cuda.stream(big.side):
        big.x.mul_(2)
    {wait}
    return x.sum()
"""


@pytest.mark.parametrize(("number", "cut"), [(20, False), (400, True)])
def test_an_object_with_many_fields_is_cut_short_and_says_so(tmp_path: Path, number: int, cut: bool) -> None:
    fields = "\n".join(f"        self.f{i} = [{i}]" for i in range(number))
    write_tree(tmp_path, {"module.py": BIG.format(fields=fields, wait="pass")})
    command = ["check", "--isolated", "--engine=next", "--no-cache", "--verbose", str(tmp_path)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert ("fields dropped" in result.stderr) is cut
    wait = "torch.cuda.current_stream().wait_stream(big.side)"
    assert not check(tmp_path, BIG.format(fields=fields, wait=wait))


def test_one_bug_under_two_names_of_a_stream_is_shown_once(tmp_path: Path) -> None:
    text = """import torch

class Holder:
    def __init__(self):
        self.copies = torch.cuda.Stream()

_HOLDER = None

def holder():
    global _HOLDER
    if _HOLDER is None:
        _HOLDER = Holder()
    return _HOLDER

def bad(x: torch.Tensor):
    holder().copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(holder().copies):
        x.mul_(2)
    return x.sum()
"""
    assert [(each.code, each.row) for each in check(tmp_path, text)] == [("SS101", 19)]


CALLS = """import torch

class Store:
    def __init__(self, x: torch.Tensor):
        self.x = x.cuda()
        self.out, self.back = torch.cuda.Stream(), torch.cuda.Stream()

    def send(self):
        with torch.cuda.stream(self.out):
            self.x.mul_(2)

    def fetch(self):
        with torch.cuda.stream(self.back):
            self.x.add_(1)

class Worker:
    def __init__(self, store: Store):
        self.store = store

    def begin(self):
        self.store.send()

    def end(self):
        self.store.fetch()
"""
STEP = """
def step(worker: Worker):
    worker.begin()
    torch.cuda.synchronize()
    worker.end()
    torch.cuda.synchronize()
"""


def test_who_calls_two_methods_shows_their_order(tmp_path: Path) -> None:
    assert {each.code for each in check(tmp_path, CALLS)} == {"SS102"}
    assert not check(tmp_path, CALLS + STEP)
