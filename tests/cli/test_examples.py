"""The examples of the README show what their comments say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsafe.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "encodings.py": {"SS301"},
    "metrics.py": {"SS301", "SS302", "SS311"},
    "pipeline.py": {"SS101", "SS202"},
    "prefetch.py": {"SS101", "SS111", "SS201"},
}


def test_every_example_is_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    result = CliRunner().invoke(
        main,
        ["check", str(EXAMPLES / name), "--isolated", "--confidence", "likely", "--output-format", "json"],
    )
    assert result.exit_code == 1
    findings = json.loads(result.stdout)
    assert {finding["code"] for finding in findings} == EXPECTED[name]
    unnamed = [finding["message"] for finding in findings if "a tensor" in finding["message"]]
    assert not unnamed, "every tensor of the examples has a name where its hazard is met"
