"""Violations of captures: one list, in Python and in the core in C++."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from streamsafe.order.captures import VIOLATIONS, message_of
from streamsafe.rule import all_rules

CORE = Path(__file__).resolve().parents[2] / "streamsafe" / "order" / "native" / "core.hpp"


def test_the_core_has_the_first_ones_in_their_order() -> None:
    text = CORE.read_text(encoding="utf-8")
    body = re.sub(
        r"//[^\n]*", "", text.partition("enum class Violation")[2].partition("{")[2].partition("}")[0]
    )
    names = [name.strip() for name in body.split(",") if name.strip()]
    assert list(VIOLATIONS)[: len(names)] == names and len(names) > 10


def test_each_is_told_by_a_rule() -> None:
    told = {rule.name for rule in all_rules().values()}
    assert {violation.rule for violation in VIOLATIONS.values()} - told == set()


@pytest.mark.parametrize("name", VIOLATIONS)
def test_each_has_a_message_of_its_own(name: str) -> None:
    fields = {field for _, field, _, _ in Formatter().parse(VIOLATIONS[name].message) if field}
    assert fields <= {"subject", "other"}
    assert message_of(name, "a", "b")
    assert [other for other in VIOLATIONS if VIOLATIONS[other].message == VIOLATIONS[name].message] == [name]


def test_the_capturing_stream_itself_needs_no_explanation() -> None:
    assert message_of("stream_wait", "a", "a", itself=True) == ""
    assert message_of("stream_wait", "a", "b") == "`a` cannot be waited for while `b` is capturing"
