"""The fixtures of clocks, captures and interop under the new engine: what it says of them, and the gaps it has.

A gap is a definition of which the engine says something else than the fixture expects. A gap that is mended leaves
the table; one that appears is a regression.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main
from tests.static.evalfiles import EvalFile, Found, eval_files

PREFIXES = ("ss31", "ss4", "ss5")

GAPS: dict[str, set[str]] = {
    "ss311_unsynchronized_timing": {
        "good_reference_on_the_host",
        "good_waits_where_there_is_a_device",
    },
    "ss312_event_timing_misuse": {
        "BadStages",
        "bad_events_in_a_list",  # shown as possible
    },
    "ss401_below_a_capture": {
        "Masked",
        "bad_kernel_beside_the_capture",
    },
    "ss401_cupy_capture": {
        "bad_asks_what_it_counts_up",
        "bad_null_stream_takes_up_what_was_captured",
    },
    "ss401_default_device": {
        "GoodDrafter",
    },
    "ss401_given_objects": {
        "Shifted",
    },
    "ss402_events_of_captures": {
        "bad_not_drained_before_the_capture",
        "bad_some_left_for_the_capture",
    },
    "ss402_replays_and_branches": {
        "Piece",
        "bad_one_of_many_captures",
    },
    "ss402_unjoined_capture_stream": {
        "bad_joins_what_takes_no_part",
    },
    "ss403_captured_steps": {
        "WithState",
        "bad_grown_after_the_capture",
        "good_step_of_another_pass",
    },
    "ss403_lifetimes": {
        "BadWeak",
    },
    "ss405_capture_on_default_stream": {
        "RecordingOfCallers",
    },
    "ss406_missing_capture_warmup": {
        "bad_too_few_runs",
        "bad_warmed_up_after",
    },
    "ss409_shared_pool_replay_order": {
        "CapturedByName",
    },
    "ss412_stale_replay_output": {
        "Decoder",
    },
}


@cache
def shown() -> dict[str, list[Found]]:
    """File name -> what the new engine shows of it by default."""
    paths = [str(file.path) for file in eval_files(PREFIXES)]
    options = ["--isolated", "--engine", "next", "--output-format", "json"]
    result = CliRunner().invoke(main, ["check", *options, *paths], catch_exceptions=False)
    found: dict[str, list[Found]] = defaultdict(list)
    for finding in json.loads(result.stdout):
        row = finding["location"]["row"]
        found[Path(finding["filename"]).name].append(Found(row, finding["code"], finding["confidence"]))
    return found


def gaps(file: EvalFile) -> set[str]:
    """The definitions of a file of which something else is said than is expected."""
    wrong = file.disagreements(shown().get(file.path.name, []))
    return {match[1] for line in wrong if (match := re.search(r" in (\S+)(?:\n|$)", line))}


@pytest.mark.parametrize("file", eval_files(PREFIXES), ids=lambda f: f.name)
def test_what_is_shown(file: EvalFile) -> None:
    assert gaps(file) == GAPS.get(file.name, set())
