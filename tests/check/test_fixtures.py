"""Every fixture says on its own lines what is found in it, and nothing else is; a table pins the confidence of each."""

from __future__ import annotations

import pytest

from tests.check import findings
from tests.check.evalfiles import ADVICE, EvalFile, eval_files, in_fixture

RULES = [
    *(
        "SS101",
        "SS102",
        "SS103",
        "SS111",
        "SS112",
        "SS113",
        "SS201",
        "SS202",
        "SS301",
        "SS302",
        "SS311",
        "SS312",
        *ADVICE,
    ),
    *("SS401", "SS402", "SS403", "SS404", "SS405", "SS411", "SS901", "SS902"),
]


@pytest.mark.parametrize("file", eval_files(), ids=lambda f: f.name)
def test_what_is_shown(file: EvalFile) -> None:
    wrong = file.disagreements(in_fixture(file))
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("file", eval_files(), ids=lambda f: f.name)
def test_confidence_and_both_lines(file: EvalFile) -> None:
    """`python -m tests.check.findings` writes what is found now; look at the difference before it is committed."""
    assert findings.found()[file.name] == findings.pinned().get(file.name, [])


def test_nothing_is_pinned_of_fixtures_that_are_gone() -> None:
    assert findings.pinned().keys() <= {file.name for file in eval_files()}


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_fixtures(code: str) -> None:
    """A rule has a file of its own, in which something fires and something is silent."""
    files = eval_files((code.lower(),))
    assert any(code in file.codes for file in files)
    fires = {
        (f.name, f.definition_at(row))
        for f in files
        for row, _ in f.marked("expect") + f.marked("expect-any")
    }
    assert {(f.name, d.name) for f in files for d in f.definitions} - fires
