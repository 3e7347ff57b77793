"""What the machine does with one program: each row has a line with a hazard and a twin without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsafe.check.check import Files
from streamsafe.check.paths import MAX_FILE_STEPS
from streamsafe.check.state import MAX_STEPS

HEAD = "import torch\n\nside = torch.cuda.Stream()\n\n\n"
COPIES = """
def copies(xs):
    for x in xs:
        with torch.cuda.stream(side):
            y = torch.ones(8, device="cuda") + 1
        yield y
        torch.cuda.current_stream().wait_stream(side)
"""
PROGRAMS = {
    "next() runs a generator up to its first value": (
        COPIES + "def step(xs):\n    y = next(copies(xs))\n    return y.sum()  # BAD\n",
        COPIES
        + "def step(xs):\n    ys = copies(xs)\n    y = next(ys)\n    next(ys, None)\n    return y.sum()\n",
    ),
    "break leaves the loop over a generator, not the function": (
        COPIES + "def step(xs):\n    for y in copies(xs):\n        break\n    return y.sum()  # BAD\n",
        COPIES
        + "def step(xs):\n    for y in copies(xs):\n        break\n    side.synchronize()\n    return y.sum()\n",
    ),
    "a loop of an unknown number of rounds may have none": (
        """
def step(n):
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda") + 1
    for _ in range(n):
        side.synchronize()
    return y.sum()  # BAD
""",
        """
def step(total, n):
    size = total // n
    with torch.cuda.stream(side):
        y = torch.ones(size, device="cuda") + 1
    for _ in range(n):
        side.synchronize()
    return y.sum()
""",
    ),
    "the parts of a row belong together": (
        """
def step(i):
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda") + 1
        first = side.record_event()
        z = torch.ones(8, device="cuda") + 1
        second = side.record_event()
    rows = [(y, second), (z, first)]
    out, event = rows[i]
    event.wait()
    return out.sum()  # BAD
""",
        """
def step(i):
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda") + 1
        first = side.record_event()
        z = torch.ones(8, device="cuda") + 1
        second = side.record_event()
    rows = [(y, first), (z, second)]
    out, event = rows[i]
    event.wait()
    return out.sum()
""",
    ),
    "a class inside a class": (
        """
class Maker:
    class Copy:
        def __init__(self, stream):
            with torch.cuda.stream(stream):
                self.out = torch.ones(8, device="cuda") + 1

    def run(self):
        return self.Copy(torch.cuda.Stream()).out.sum()  # BAD
""",
        """
class Maker:
    class Copy:
        def __init__(self, stream):
            with torch.cuda.stream(stream):
                self.out = torch.ones(8, device="cuda") + 1
            stream.synchronize()

    def run(self):
        return self.Copy(torch.cuda.Stream()).out.sum()
""",
    ),
    "a class whose objects are given another one of it": (
        """
class Node:
    def __init__(self, parent: Node, value):
        self.parent = parent


def step(node: Node):
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda") + 1
    return y.sum()  # BAD
""",
        """
class Node:
    def __init__(self, parent: Node, value):
        self.parent = parent


def step(node: Node):
    with torch.cuda.stream(side):
        y = torch.ones(8, device="cuda") + 1
    torch.cuda.current_stream().wait_stream(side)
    return y.sum()
""",
    ),
}


def rows(path: Path, text: str) -> set[int]:
    """The rows at which reads that nothing orders are shown."""
    path.write_text(HEAD + text)
    run = Files([str(path)]).run(str(path))
    assert run.unreadable is None
    return {c.shown_at.row for c in run.conflicts if c.shown_at is not None and c.second.operation == "sum()"}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_a_path_shows(kind: str, tmp_path: Path) -> None:
    bad, good = PROGRAMS[kind]
    expected = {n for n, line in enumerate((HEAD + bad).split("\n"), 1) if "# BAD" in line}
    assert rows(tmp_path / "bad.py", bad) == expected
    assert rows(tmp_path / "good.py", good) == set()


def test_results_do_not_depend_on_the_run(tmp_path: Path) -> None:
    text = "\n\n".join(bad.replace("step(", f"step{n}(") for n, (bad, _) in enumerate(PROGRAMS.values()))
    first, second = rows(tmp_path / "one.py", text), rows(tmp_path / "two.py", text)
    assert first and first == second


def test_a_path_that_is_too_long_is_cut_and_said(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text(
        HEAD + "def step(x):\n    with torch.cuda.stream(side):\n" + "        x = x + 1\n" * (MAX_STEPS + 1)
    )
    run = Files([str(path)]).run(str(path))
    assert run.notes
    assert run.paths * MAX_STEPS <= 2 * MAX_FILE_STEPS


def test_few_paths_are_run_where_no_order_matters(tmp_path: Path) -> None:
    def paths(first: str) -> int:
        path = tmp_path / "step.py"
        asked = "".join(f"    if a{n}:\n        print(torch.cuda.current_stream())\n" for n in range(8))
        arguments = ", ".join(f"a{n}" for n in range(8))
        path.write_text(
            f"import torch\n\n\ndef step(x, {arguments}):\n    {first}\n{asked}    return x.sum()\n"
        )
        return Files([str(path)]).run(str(path)).paths

    assert paths("x = x + 1") <= 9 < paths("torch.cuda.Stream().wait_stream(torch.cuda.current_stream())")
