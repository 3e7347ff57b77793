"""Two fixtures in one file keep the findings that each has alone: no class or function answers for another one."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.check.evalfiles import EvalFile, Found, check_tree, eval_files, parameters_run, write_tree
from tests.check.joining import Joined, joined

FILES = {f.name: f for f in eval_files() if not f.name.startswith(("ss321", "ss322"))}

SAMPLE = (  # classes that use the same attributes for different things, and files of either library
    ("python_queues_of_objects", "python_objects_in_containers"),
    ("torch_pinned_free_list", "torch_pinned_ring_of_objects"),
    ("cupy_threading_signals", "torch_pinned_free_list"),
    ("ss301_cupy", "python_queues_of_objects"),
)

MANY = 60

KNOWN = {  # what a file says of all that is in it
    "ss311_mxnet": "its arrays are those of another library",
    "ss311_torch_xla": "its devices are not CUDA's",
}


def pairs(many: int) -> list[Joined]:
    """As many pairs as can be joined, the same ones each time."""
    every = list(itertools.combinations(sorted(FILES.keys() - KNOWN.keys()), 2))
    random.Random(many).shuffle(every)
    found = (joined(FILES[first], FILES[second]) for first, second in every)
    return list(itertools.islice((pair for pair in found if pair is not None), many))


def sampled() -> list[Joined]:
    found = [joined(FILES[first], FILES[second]) for first, second in SAMPLE]
    assert all(found), "a pair of the sample cannot be joined"
    return [pair for pair in found if pair is not None]


@pytest.fixture(scope="module")
def apart_and_joined(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, list[Found]]:
    tests = ("test_a_sample_of_joined_files", "test_joined_files")
    chosen: list[Joined] = [each["pair"] for test in tests for each in parameters_run(request, test)]
    root: Path = tmp_path_factory.mktemp("joined")
    texts = {f.path.name: f.text for pair in chosen for f in (pair.first, pair.second)}
    return check_tree(write_tree(root, texts | {pair.name: pair.text for pair in chosen}))


def check(pair: Joined, found: dict[str, list[Found]]) -> None:
    def alone(file: EvalFile) -> set[tuple[int, str]]:
        return {(f.row, f.code) for f in found.get(file.path.name, [])}

    apart = pair.apart(found.get(pair.name, []))
    for file in (pair.first, pair.second):
        assert apart[file.name] == alone(file), f"{file.name} beside the other one"


@pytest.mark.parametrize("pair", sampled(), ids=lambda p: p.name)
def test_a_sample_of_joined_files(pair: Joined, apart_and_joined: dict[str, list[Found]]) -> None:
    check(pair, apart_and_joined)


@pytest.mark.exhaustive
@pytest.mark.parametrize("pair", pairs(MANY), ids=lambda p: p.name)
def test_joined_files(pair: Joined, apart_and_joined: dict[str, list[Found]]) -> None:
    check(pair, apart_and_joined)
