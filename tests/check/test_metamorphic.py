"""What falls silent when a program is changed so that nothing can race."""

from __future__ import annotations

import ast

import pytest

from tests.check import not_shown
from tests.check.evalfiles import (
    EvalFile,
    Found,
    check_tree,
    eval_files,
    in_fixture,
    write_tree,
)
from tests.check.transform import one_stream, synchronized

STREAMS = eval_files(("ss1", "ss2"))
ACCESSES = eval_files(("ss1", "ss2", "ss301", "ss302"))
DEVICE_ORDER = ("SS1", "SS2")
SILENT = ("good_", "safe_", "Good")


def lines(file: EvalFile, text: str, found: list[Found]) -> str:
    rows = text.splitlines()
    return "".join(f"\n# false alarm: {file.name}:{f.row} {f.code}  {rows[f.row - 1].strip()}" for f in found)


def unlisted(file: EvalFile, how: str, found: list[Found]) -> list[Found]:
    """Findings that `not_shown.txt` does not list."""
    return [
        f for f in found if not not_shown.known(f"{file.path.name}#{how} row+{f.row} {f.code} false alarm")
    ]


@pytest.fixture(scope="module")
def on_one_stream(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Found]]:
    root = tmp_path_factory.mktemp("one_stream")
    return check_tree(write_tree(root, {f.path.name: one_stream(f.text) for f in STREAMS}))


@pytest.mark.parametrize("file", STREAMS, ids=lambda f: f.name)
def test_one_stream_is_silent(file: EvalFile, on_one_stream: dict[str, list[Found]]) -> None:
    """All streams are the current one: nothing is left to order between streams. Host accesses are another matter."""
    text = one_stream(file.text)
    assert text != file.text
    found = [f for f in on_one_stream.get(file.path.name, []) if f.code.startswith(DEVICE_ORDER)]
    assert not unlisted(file, "one-stream", found), lines(file, text, found)


@pytest.fixture(scope="module")
def in_lock_step(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Found]]:
    root = tmp_path_factory.mktemp("synchronized")
    return check_tree(write_tree(root, {f.path.name: synchronized(f.text) for f in ACCESSES}))


def statement_at(tree: ast.Module, row: int) -> ast.stmt | None:
    """The innermost statement that holds a row."""
    held = [
        n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= row <= (n.end_lineno or n.lineno)
    ]
    return max(held, key=lambda n: (n.lineno, n.col_offset), default=None)


@pytest.mark.parametrize("file", ACCESSES, ids=lambda f: f.name)
def test_synchronized_is_silent(file: EvalFile, in_lock_step: dict[str, list[Found]]) -> None:
    """The host waits for the device after each statement, so two statements never race; one alone may still."""
    text, tree = synchronized(file.text), ast.parse(file.text)
    alone = {
        file.definition_at(f.row)
        for f in in_fixture(file)
        if f.first_row is not None and statement_at(tree, f.row) is statement_at(tree, f.first_row)
    }
    changed = EvalFile(file.path, text)
    found = [f for f in in_lock_step.get(file.path.name, []) if changed.definition_at(f.row) not in alone]
    assert not unlisted(file, "lock-step", found), lines(file, text, found)
