"""Programs written again in ways that change nothing: the same is found, at the same places, as sure as before.

A verdict hangs on no comment, no blank line, no count of lines, and on no name that the file is free to choose.
"""

from __future__ import annotations

import ast
import zlib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.check.evalfiles import FIXTURES, check_tree, write_tree
from tests.check.rewrites import REWRITES, Rewritten

SHARED = Path(__file__).parents[3] / "shared" / "cases"
SAMPLE = 50
"""Of so many pairs of a program and a rewrite the usual run takes one; with ``--all`` all of them."""

Places = Counter[tuple[int, str, str]]
WEAKER = {"certain": "likely", "likely": "possible"}


@cache
def programs() -> dict[str, str]:
    """The fixtures and the shared cases, by name."""
    paths = [*sorted(FIXTURES.glob("*.py")), *(sorted(SHARED.glob("*.py")) if SHARED.is_dir() else ())]
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


_BEFORE: dict[str, Places] = {}


def before_of(names: list[str], root: Path) -> dict[str, Places]:
    """What is said of programs as they are, asked once."""
    missing = [name for name in names if name not in _BEFORE]
    _BEFORE.update(said(root, {name: Rewritten({name: programs()[name]}) for name in missing}))
    return _BEFORE


def said(root: Path, files: dict[str, Rewritten]) -> dict[str, Places]:
    """What is said of each program, at the rows of the original; each program lies in a directory of its own."""
    if not files:
        return {}
    texts = {
        f"{Path(name).stem}/{file}": text for name, new in files.items() for file, text in new.files.items()
    }
    found = check_tree(write_tree(root, texts), "--no-cache", "--jobs", "1", "--confidence", "possible")
    out: dict[str, Places] = {}
    for name, new in files.items():
        places: Places = Counter()
        for file in new.files:
            for each in found.get(f"{Path(name).stem}/{file}", []):
                row = new.original(each.row) if file == name else each.row
                places[row, each.code, each.confidence] += 1
        out[name] = places
    return out


def is_same(rewrite: str, before: Places, after: Places) -> bool:
    """Whether the same is said: a helper in another file may cost one step of confidence (docs/limits.md)."""
    if rewrite != "helpers elsewhere":
        return before == after
    lost, new = sorted((before - after).elements()), sorted((after - before).elements())
    weaker = [(row, code, WEAKER[confidence]) for row, code, confidence in lost if confidence in WEAKER]
    return sorted(weaker) == new and len(weaker) == len(lost)


def disagreements(names: list[str], rewrite: str, root: Path) -> list[str]:
    """Programs of which something else is said once they are written again, and what."""
    chosen = {name: programs()[name] for name in names}
    new = {name: REWRITES[rewrite](name, text) for name, text in chosen.items()}
    for name, rewritten in new.items():
        for text in rewritten.files.values():
            ast.parse(text, name)
    new = {name: each for name, each in new.items() if each.files != {name: chosen[name]}}
    before = before_of(list(new), root / "before")
    after = said(root / "after", new)
    return [
        f"{name}: lost {sorted((before[name] - after[name]).elements())}, "
        f"new {sorted((after[name] - before[name]).elements())}"
        for name in new
        if not is_same(rewrite, before[name], after[name])
    ]


def sampled(rewrite: str, name: str) -> bool:
    """Whether the usual run takes a program with a rewrite: always the same ones."""
    return zlib.crc32(f"{rewrite}/{name}".encode()) % SAMPLE == 0


HINT = "what a model takes a name for, or what methods of other classes are called"
OPTIMIZER = "a parameter or an attribute is an optimizer by its name"
LINKED = "of a caller in another file less is known than of one in the same file"

KNOWN: dict[str, dict[str, str]] = {
    "renamed locals": {
        **dict.fromkeys(
            """python_data_model.py python_helper_functions.py ss111_backward_semantics.py
            ss111_structures.py ss111_uses_of_gradients.py ss311_implicit_host_waits.py
            ss311_unsynchronized_timing.py torch_gradient_tensors.py""".split(),
            OPTIMIZER,
        ),
        **dict.fromkeys(
            """python_name_hints.py python_next_with_default.py python_unknown_queues.py
            torch_unseen_helpers.py""".split(),
            HINT,
        ),
    },
    "renamed attributes": {
        **dict.fromkeys(
            """ss111_structures.py ss111_trainers.py""".split(),
            OPTIMIZER,
        ),
        **dict.fromkeys(
            """python_lambdas.py python_name_hints.py""".split(),
            HINT,
        ),
    },
    "renamed functions": {
        **dict.fromkeys(
            """ss403_captured_steps.py ss409_shared_pool_replay_order.py""".split(),
            HINT,
        ),
    },
    "helpers elsewhere": {
        **dict.fromkeys(
            """cupy_or_numpy.py python_comprehensions.py python_filled_lists.py python_helper_functions.py
            python_lambdas.py ss311_unsynchronized_timing.py ss312_events_in_containers.py
            torch_prefetched_batches.py torch_ring_exchange.py""".split(),
            LINKED,
        ),
    },
}
"""Rewrite -> program -> why something else is said of it; who mends it takes it out."""


@pytest.mark.parametrize("rewrite", REWRITES)
def test_programs_written_again(rewrite: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    every = request.config.getoption("--all")
    names = [name for name in programs() if every or sampled(rewrite, name)]
    wrong = disagreements(names, rewrite, tmp_path)
    differ = {each.partition(":")[0] for each in wrong}
    assert differ == KNOWN.get(rewrite, {}).keys() & set(names), "\n".join(wrong)


def test_what_is_known_to_differ_is_there() -> None:
    written = {
        name for names in KNOWN.values() for name in names if not name.endswith(("_bad.py", "_good.py"))
    }
    assert KNOWN.keys() <= REWRITES.keys() and written <= programs().keys()
