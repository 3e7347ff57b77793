"""The rows themselves: each call once, each proof in the semantics table, each operator's row against its schema."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamsafe.apis import effects, names, table
from streamsafe.apis import torch as torch_rows
from streamsafe.toolchain import torch_operators

SEMANTICS = Path(__file__).resolve().parents[2] / "docs" / "semantics.md"
CONSTANTS = {value for name, value in vars(effects).items() if name.isupper() and isinstance(value, str)}


def test_each_call_has_one_row() -> None:
    assert [name for name, rows in Counter(call.name for call in table.ROWS).items() if rows > 1] == []


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"waits": "stream"}, {"a"}),
        ({"waits": "*"}, {"a", "b"}),
        ({"waits": "*", "reads": "x"}, {"b"}),
        ({}, {"a", "b", "c"}),
    ],
)
def test_calls_by_their_effects(asked: dict[str, str], found: set[str]) -> None:
    rows = [
        effects.Call("owner.a", waits="stream"),
        effects.Call("owner.b", waits="device", reads="x"),
        effects.Call("owner.c", reads="x"),
        effects.Call("other.d", waits="stream", reads="x"),
    ]
    assert effects.named(rows, "owner", **asked) == found


def test_each_row_is_found_by_the_name_under_which_programs_have_it() -> None:
    assert [call.name for call in table.ROWS if table.find(call.name) is not call] == []


def test_each_proof_is_a_row_of_the_semantics_table() -> None:
    rows = set(re.findall(r"^\| ([A-Z]{2}-\w+) \|", SEMANTICS.read_text(encoding="utf-8"), re.MULTILINE))
    assert {call.row for call in table.ROWS if call.row} - rows == set()


def test_words_that_are_constants_are_in_the_vocabulary() -> None:
    said = {
        word
        for call in table.ROWS
        for text in (
            call.result,
            call.waits,
            call.on,
            call.edge,
            call.captures,
            call.forbidden,
            call.allocates,
        )
        for word in text.split()
        if word.isupper()
    }
    assert said - CONSTANTS == set()


def test_operators_are_in_one_row() -> None:
    rows: dict[str, set[str]] = {}
    for call in table.ROWS:
        for operator in effects.operators(call):
            rows.setdefault(operator, set()).add(call.last)
    assert {operator for operator, calls in rows.items() if len(calls) > 1} == set()


def test_a_method_of_tensors_is_a_method_of_tensors_by_name_as_well() -> None:
    plain = {
        call.last for call in torch_rows.ROWS if call.owner == "torch.Tensor" and not call.last.endswith("_")
    }
    assert plain - names.TENSOR_METHODS - {"new_empty_strided"} == set()


@pytest.mark.parametrize(
    "macro", ["METADATA", "FRESH", "WRITTEN", "SYNCHRONIZING", "CALLED", "OWN", "COLLECTIVE"]
)
def test_the_header_for_the_collector_has_lines_for_each_list(macro: str) -> None:
    assert f"#ifdef {macro}\n{macro}(" in torch_operators.text()


def test_the_lines_of_a_row() -> None:
    lines = torch_operators.lines()
    assert len(set(lines)) == len(lines)
    for line in (
        ("COPIES", "aten::copy_"),
        ("CALLED", "aten::_to_copy", "to"),
        ("SYNCHRONIZING", "aten::nonzero", ""),
        ("FRESH", "aten::empty_like"),
        ("METADATA", "aten::zeros_like"),
        ("WRITTEN", "aten::native_batch_norm", "running_mean"),
        ("COLLECTIVE", "c10d::allreduce_", "tensors", "BOTH"),
        ("COLLECTIVE", "c10d::allreduce_", "sparse_indices", "READ"),
        ("OWN", "c10d"),
    ):
        assert line in lines
    assert not {line[1] for line in lines if line[0] == "CALLED"} & {"aten::copy_", "aten::nonzero"}
    assert "WRITTEN" not in {line[0] for line in lines if line[1] == "aten::copy_"}  # its schema says so


def test_operators_and_their_arguments_are_those_of_torch(torch: Any) -> None:
    schemas: dict[str, set[str]] = {}
    for schema in torch._C._jit_get_all_schemas():
        schemas.setdefault(schema.name, set()).update(argument.name for argument in schema.arguments)
    missing = []
    for macro, operator, *more in torch_operators.lines():
        if macro in ("OWN", "CALLED") or not operator.startswith("aten::"):
            continue
        arguments = schemas.get(operator, set())
        missing += [(operator, each) for each in more if each and arguments and each not in arguments]
    assert missing == []
