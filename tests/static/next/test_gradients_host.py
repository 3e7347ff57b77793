"""The fixtures of gradients and of host accesses under the new engine: what it says of them, and the gaps it has.

A gap is a definition of which the engine says something else than the fixture expects. A gap that is mended leaves
the table; one that appears is a regression.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.static.evalfiles import FIXTURES, EvalFile, Found, check_tree, eval_files

PREFIXES = ("ss11", "ss301", "ss302")

GAPS: dict[str, set[str]] = {
    "ss111_spellings": {
        "BadTwoSteps",
        "PassBesideStep",
    },
    "ss111_structures": {
        "bad_optimizer_of_each_model",
        "bad_stack_entered_before",
    },
    "ss111_trainers": {
        "hasty_averaging",
    },
    "ss111_whose_gradients": {
        "BadHooksOfTwoModules",
        "BadWorkOfEachParameter",
        "GoodChunks",
    },
    "ss113_initial_gradient_lifetime": {
        "BadSeedOfEachForward",
    },
    "ss301_cupy": {
        "BadBuffersGoRound",
        "bad_blocks_that_overlap",
        "bad_rows_of_a_table",
    },
    "ss301_forms": {
        "bad_waits_where_all_came_from_the_host",
        "good_waits_where_any_came_from_the_device",
    },
    "ss301_host_uses": {
        "good_numpy_view_returned_unread",
    },
    "ss301_spellings": {
        "collected_by_a_hook",
        "module_on_the_host",
    },
    "ss302_counted_rounds": {
        "BadRingOnlyAsks",
        "BadRingWaitsOneRoundLate",
    },
}


@cache
def shown(name: str) -> list[Found]:
    """What the new engine shows of a fixture by default."""
    found = check_tree(FIXTURES / name, "--engine", "next")
    return [each for findings in found.values() for each in findings]


def gaps(file: EvalFile) -> set[str]:
    """The definitions of a file of which something else is said than is expected."""
    wrong = file.disagreements(shown(file.path.name))
    return {match[1] for line in wrong if (match := re.search(r" in (\S+)(?:\n|$)", line))}


@pytest.mark.parametrize("file", eval_files(PREFIXES), ids=lambda f: f.name)
def test_what_is_shown(file: EvalFile) -> None:
    assert gaps(file) == GAPS.get(file.name, set())
