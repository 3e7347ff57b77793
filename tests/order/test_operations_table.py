"""The operations as data: the engine, the trace, the core in C++ and its tape agree on names and fields."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.operations import OPERATIONS, TAPE

CORE = Path(__file__).resolve().parents[2] / "streamsafe" / "order" / "native" / "core.hpp"
MARKS = {"gradient"}
DATA = {"happened", "backward", "graph"}
"""Fields that are no parameters: what a veto said, and what a name carries; a graph is a number in a trace."""


def test_the_core_numbers_them_in_this_order() -> None:
    body = (
        CORE.read_text(encoding="utf-8")
        .partition("enum class TapeEntry")[2]
        .partition("{")[2]
        .partition("}")[0]
    )
    assert [name.strip() for name in body.split(",") if name.strip()] == list(TAPE)


@pytest.mark.parametrize("name", [name for name in TAPE if name not in ("access", "gradient")])
def test_the_core_writes_the_fields(name: str) -> None:
    text = CORE.read_text(encoding="utf-8")
    (arguments,) = re.findall(rf"say\(TapeEntry::{name}, (.*)\);", text)
    assert len(arguments.split(",")) == len(TAPE[name].split())


@pytest.mark.parametrize("name", [name for name in TAPE if name not in MARKS])
def test_the_tape_has_fields_of_the_operation(name: str) -> None:
    known = {field.name for field in fields(OPERATIONS[name])} | {"..."}
    assert set(TAPE[name].split()) - known - ({"graph"} if name == "capture_begin" else set()) == set()


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "mark"])
def test_the_engine_takes_the_fields(name: str) -> None:
    parameters = set(inspect.signature(getattr(Checker, name)).parameters)
    assert {field.name for field in fields(OPERATIONS[name])} - DATA - parameters == set()
