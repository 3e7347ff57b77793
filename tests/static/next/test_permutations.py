"""Every short program, as source text through the new engine, against the judge of all its paths."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.static.evalfiles import check_tree, write_tree
from tests.static.programs import SPELLINGS, Program, Spelling, exiting, longer, programs

# (steps, blocks), and of how many programs a spelling takes one
SIZES = {(2, 0): 1, (2, 1): 1, (2, 2): 4, (3, 0): 4, (3, 1): 40, (4, 0): 40, (3, 2): 1000}
EXITING = {(2, 0): 3, (2, 1): 24, (3, 0): 24}
LONGER = 30
IN_A_FILE = 150
LOST_IN_JOINS = {"helpers": 1}
"""False alarms by spelling: partitions with one relation are joined, and lose which condition led there."""


def chosen(name: str) -> list[Program]:
    """The programs of a spelling; of the larger ones each spelling takes others."""
    turn = list(SPELLINGS).index(name)
    taken: list[Program] = []
    for size, one_in in SIZES.items():
        taken += islice(programs(*size), turn % one_in, None, one_in)
    for size, one_in in EXITING.items():
        taken += islice(exiting(*size), turn % one_in, None, one_in)
    dice = Random(name)
    return taken + [longer(dice, steps=6, blocks=3) for _ in range(LONGER)]


def reported(spelling: Spelling, taken: list[Program], root: Path) -> list[bool]:
    """For each program whether an unordered access is reported in it."""
    files, rows = {}, {}
    for start in range(0, len(taken), IN_A_FILE):
        files[f"p{start}.py"], rows[start] = spelling.module(taken[start : start + IN_A_FILE])
    options = ("--select", "SS1", "--jobs", "1", "--engine", "next", "--no-cache")
    found = check_tree(write_tree(root, files), *options)
    hit = {
        start + bisect_right(rows[start], finding.row) - 1
        for start in rows
        for finding in found.get(f"p{start}.py", [])
    }
    return [number in hit for number in range(len(taken))]


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_short_program(name: str, tmp_path: Path) -> None:
    spelling = SPELLINGS[name]
    taken = chosen(name)
    verdicts = [spelling.is_racy(program) for program in taken]
    wrong = [
        f"# {'missing' if racy else 'false'} alarm\n{spelling.text('program', program)}"
        for program, racy, found in zip(taken, verdicts, reported(spelling, taken, tmp_path), strict=True)
        if racy is not found
    ]
    assert not any(each.startswith("# missing") for each in wrong)
    assert len(wrong) == LOST_IN_JOINS.get(name, 0), f"\n{len(wrong)} of {len(taken)} programs\n" + "\n".join(
        sorted(wrong, key=len)[:6]
    )
