"""What falls silent when a program is changed so that nothing can race, and what speaks up without an edge."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.static.evalfiles import (
    EvalFile,
    Found,
    check_tree,
    eval_files,
    in_fixture,
    parameters_run,
    write_tree,
)
from tests.static.transform import one_stream, ordering_statements, slice_of, synchronized, without

STREAMS = eval_files(("ss1", "ss2"))
ACCESSES = eval_files(("ss1", "ss2", "ss301", "ss302"))
DEVICE_ORDER = ("SS1", "SS2")
SILENT = ("good_", "safe_", "Good")


def lines(file: EvalFile, text: str, found: list[Found]) -> str:
    rows = text.splitlines()
    return "".join(f"\n# false alarm: {file.name}:{f.row} {f.code}  {rows[f.row - 1].strip()}" for f in found)


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
    assert not found, lines(file, text, found)


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
    assert not found, lines(file, text, found)


@dataclass(frozen=True)
class Deletion:
    """A silent definition without one of its ordering statements."""

    file: EvalFile
    definition: str
    row: int

    @property
    def name(self) -> str:
        return f"{self.file.name}/{self.definition}_{self.row}.py"

    @property
    def redundant(self) -> bool:
        return "# redundant: " in self.file.lines[self.row - 1]

    def text(self) -> str:
        sliced = slice_of(self.file.text, self.definition)
        statement = next(s for s in ordering_statements(ast.parse(sliced)) if s.lineno == self.row)
        return without(sliced, statement)


def deletions() -> list[Deletion]:
    found = []
    for file in [*ACCESSES, *eval_files(("ss402",))]:
        for node in file.definitions:
            if node.name.startswith(SILENT):  # what else is silent is a helper of these
                statements = [
                    s for s in ordering_statements(node) if "# unchecked: " not in file.lines[s.lineno - 1]
                ]
                found += [Deletion(file, node.name, s.lineno) for s in statements]
    return found


DELETIONS = deletions()


@pytest.fixture(scope="module")
def after_deletion(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, list[Found]]:
    root: Path = tmp_path_factory.mktemp("deleted")
    chosen: list[Deletion] = [
        each["deletion"] for each in parameters_run(request, "test_deleting_an_edge_fires")
    ]
    return check_tree(write_tree(root, {d.name: d.text() for d in chosen}))


@pytest.mark.exhaustive
@pytest.mark.parametrize("deletion", DELETIONS, ids=lambda d: f"{d.file.name}:{d.row}")
def test_deleting_an_edge_fires(deletion: Deletion, after_deletion: dict[str, list[Found]]) -> None:
    """Each wait, synchronize and record_stream is needed, or the fixture says why not; then it really is not."""
    fires = bool(after_deletion.get(deletion.name))
    line = f"{deletion.file.path.name}:{deletion.row}: {deletion.file.lines[deletion.row - 1].strip()}"
    assert fires is not deletion.redundant, f"\n# {'false' if fires else 'missing'} alarm without {line}"
