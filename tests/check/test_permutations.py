"""Every short program, as source text through the whole of ``streamsafe check``, against the judge of all its paths.

Both ways and with nothing excused: what is racy on some path is reported at the default confidence, what is ordered
on all of them is not. ``--all`` takes all programs of up to four steps in up to two blocks (an hour) instead
of all the smallest ones and some of the others, at another commit others.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import islice
from pathlib import Path

import pytest

from tests.check.evalfiles import check_tree, write_tree
from tests.check.programs import SPELLINGS, Program, Spelling, exiting, longer, programs

# (steps, blocks), and of how many programs a spelling takes one when every program is not asked for
SIZES = {(2, 0): 1, (2, 1): 1, (2, 2): 6, (3, 0): 6, (3, 1): 30, (4, 0): 30, (3, 2): 300, (4, 1): 600}
HUGE = (4, 2)  # of these a spelling takes one in five when every program is asked for
EXITING = {(2, 0): 6, (2, 1): 30, (3, 0): 30, (3, 1): 1500}  # the same of programs with an exit
LONGER = 20
IN_A_FILE = 150
ENOUGH = 20


def chosen(spelling: str, every: bool, part: int) -> list[Program]:
    """The programs to check in one spelling; of the larger ones each spelling and each part takes others."""
    turn = list(SPELLINGS).index(spelling) + part * len(SPELLINGS)
    taken: list[Program] = []
    for size, one_in in SIZES.items():
        step = 1 if every else one_in
        taken += islice(programs(*size), turn % step, None, step)
    for size, one_in in EXITING.items():
        step = len(SPELLINGS) if every else one_in
        taken += islice(exiting(*size), turn % step, None, step)
    if every:
        taken += islice(programs(*HUGE), turn % len(SPELLINGS), None, len(SPELLINGS))
    dice = random.Random(f"{spelling} {part}")
    return taken + [longer(dice, steps=6, blocks=3) for _ in range(LONGER * (50 if every else 1))]


def reported(spelling: Spelling, taken: list[Program], root: Path) -> list[bool]:
    """For each program whether an unordered access is reported in it."""
    files, rows = {}, {}
    for start in range(0, len(taken), IN_A_FILE):
        files[f"p{start}.py"], rows[start] = spelling.module(taken[start : start + IN_A_FILE])
    found = check_tree(write_tree(root, files), "--select", "SS1", "--jobs", "1")
    hit = {
        start + bisect_right(rows[start], finding.row) - 1
        for start in rows
        for finding in found.get(f"p{start}.py", [])
    }
    return [number in hit for number in range(len(taken))]


MISSING = {"parameters": 1.0, "helpers": 0.1}
"""Spellings of which not every racy program is shown, and what share may be missing: two parameters may be one stream,
and not every helper is followed."""


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_short_program(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    spelling = SPELLINGS[name]
    taken = chosen(name, request.config.getoption("--all"), 0)
    verdicts = [spelling.is_racy(program) for program in taken]
    assert min(verdicts.count(True), verdicts.count(False)) > ENOUGH, "programs of one kind only"
    shown = reported(spelling, taken, tmp_path)
    missing = sum(racy and not found for racy, found in zip(verdicts, shown, strict=True))
    assert missing <= MISSING.get(name, 0) * len(taken)
    wrong = [
        f"# {'missing' if racy else 'false'} alarm\n{spelling.text('program', program)}"
        for program, racy, found in zip(taken, verdicts, shown, strict=True)
        if racy is not found and not (racy and name in MISSING)
    ]
    assert not wrong, f"\n{len(wrong)} of {len(taken)} programs\n" + "\n".join(sorted(wrong, key=len)[:10])
