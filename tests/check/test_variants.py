"""The verdict does not depend on how the library is spelled, and a suppression silences exactly what it names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.check import not_shown
from tests.check.evalfiles import (
    EvalFile,
    Found,
    check_tree,
    eval_files,
    in_fixture,
    parameters_run,
    write_tree,
)
from tests.check.transform import SPELLINGS, suppressed

FILES = eval_files()
SPELLED = [(file, spelling) for file in FILES for spelling in file.variants()]
Lookup = Callable[[str], set[tuple[int, str]]]


def usual(file: EvalFile) -> set[tuple[int, str]]:
    return {(f.row, f.code) for f in in_fixture(file)}


def verdicts(findings: dict[str, list[Found]]) -> Lookup:
    return lambda name: {(f.row, f.code) for f in findings.get(name, [])}


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Lookup:
    chosen = [(each["file"], each["spelling"]) for each in parameters_run(request, "test_spelling")]
    files = {f"{s}/{file.path.name}": SPELLINGS[s](file.text) for file, s in chosen}
    return verdicts(check_tree(write_tree(tmp_path_factory.mktemp("spelled"), files)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("file", "spelling"), SPELLED, ids=lambda v: v.name if isinstance(v, EvalFile) else v
)
def test_spelling(file: EvalFile, spelling: str, spelled: Lookup) -> None:
    assert SPELLINGS[spelling](file.text) != file.text, "nothing to spell otherwise"
    if spelled(f"{spelling}/{file.path.name}") != usual(file):
        assert not_shown.known(f"{file.path.name} {spelling} SS000 other findings in another spelling")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, list[Found]]:
    """What is found in each file with a suppression at each of its findings."""
    chosen: list[EvalFile] = [each["file"] for each in parameters_run(request, "test_suppressed")]
    files = {file.path.name: suppressed(file.text, sorted(usual(file))) for file in chosen}
    return check_tree(write_tree(tmp_path_factory.mktemp("suppressed"), files))


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", [f for f in FILES if not f.name.startswith("ss9")], ids=lambda f: f.name)
def test_suppressed(file: EvalFile, left: dict[str, list[Found]]) -> None:
    """With `# noqa: CODE` at each finding nothing is left, no unused suppression either."""
    assert left.get(file.path.name, []) == []
