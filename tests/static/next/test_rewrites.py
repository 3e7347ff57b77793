"""Programs written again in ways that change nothing: the next engine says the same, at the same places."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.static.evalfiles import FIXTURES, check_tree, write_tree
from tests.static.rewrites import REWRITES, Rewritten

SHARED = Path(__file__).parents[4] / "shared" / "cases"
OPTIONS = ("--engine", "next", "--no-cache", "--jobs", "1")
SAMPLE = 32
"""Of so many files each rewrite takes one, each another one; with ``--every-program`` all of them."""

Places = Counter[tuple[int, str]]


@cache
def programs() -> dict[str, str]:
    """The fixtures and the shared cases, by name."""
    paths = [*sorted(FIXTURES.glob("ss*.py")), *(sorted(SHARED.glob("*.py")) if SHARED.is_dir() else ())]
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
    found = check_tree(write_tree(root, texts), *OPTIONS)
    out: dict[str, Places] = {}
    for name, new in files.items():
        places: Places = Counter()
        for file in new.files:
            for each in found.get(f"{Path(name).stem}/{file}", []):
                row = new.original(each.row) if file == name else each.row
                places[row, each.code] += 1
        out[name] = places
    return out


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
        if before[name] != after[name]
    ]


KNOWN: dict[str, set[str]] = {
    # the ways in which a call returns are joined before the context is left
    "nullcontext": {"dh01_lightning_move_to_cpu_nonblocking_bad.py"},
}
"""Rewrite -> programs of which something else is still said."""


@pytest.mark.parametrize("rewrite", REWRITES)
def test_programs_written_again(rewrite: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    names = list(programs())
    if not request.config.getoption("--every-program"):
        names = names[list(REWRITES).index(rewrite) :: SAMPLE]
    wrong = disagreements(names, rewrite, tmp_path)
    differ = {each.partition(":")[0] for each in wrong}
    assert differ == KNOWN.get(rewrite, set()) & set(names), "\n".join(wrong)
