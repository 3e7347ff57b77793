"""One fixture in ten, for plain ``pytest``, which has no time for test_fixtures.py."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.check import findings
from tests.check.evalfiles import FIXTURES, EvalFile, by_file, eval_files, report

SAMPLE = eval_files()[::10]


@cache
def found() -> list[dict[str, Any]]:
    first, *others = (file.path for file in SAMPLE)
    return report(first, "--confidence", "possible", *map(str, others), repairs=False)


@pytest.mark.parametrize("file", SAMPLE, ids=lambda file: file.name)
def test_what_is_shown(file: EvalFile) -> None:
    shown = by_file(found(), FIXTURES).get(file.path.name, [])
    assert not file.disagreements([each for each in shown if each.confidence != "possible"])
    assert findings.sections(found(), SAMPLE)[file.name] == findings.pinned().get(file.name, [])
