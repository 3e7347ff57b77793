"""The fields that the analysis keeps of objects: declared once, used, and the same in every process."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest

import streamsafe.static
from streamsafe.static import fields
from streamsafe.static.fields import FIELDS

FILES = sorted(Path(streamsafe.static.__path__[0]).rglob("*.py"))


def test_no_field_is_spelled_as_a_string() -> None:
    spelled = [
        (path.name, node.lineno, node.value)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value[:1] == "@" != node.value
    ]
    assert not spelled


def test_each_field_is_used() -> None:
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for path in FILES
        if path.stem != "fields"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Attribute, ast.Name))
    }
    assert not FIELDS.keys() - used


@pytest.mark.parametrize("field", [*FIELDS.values(), fields.STREAM_BEFORE.of("torch")], ids=repr)
def test_a_field_says_what_it_is_and_stays_the_same(field: fields.Field[object]) -> None:
    assert field.says[:1].isupper() and field.says.endswith(".")
    assert pickle.loads(pickle.dumps(field)) is field
    assert copy.deepcopy(field) is field
    assert field != str(field) and hash(field) == object.__hash__(field)
