"""The fields that the analysis keeps of objects: declared once, used, and the same in every process."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

import streamsafe.static
from streamsafe.cli import main
from streamsafe.static import fields
from streamsafe.static.fields import FIELDS, Field, Mark
from streamsafe.static.state import Key, Store
from streamsafe.static.values import PLAIN, Value, iterate
from tests.static.evalfiles import FIXTURES

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
def test_a_field_says_what_it_is_and_stays_the_same(field: Field[object]) -> None:
    assert field.says[:1].isupper() and field.says.endswith(".")
    assert pickle.loads(pickle.dumps(field)) is field
    assert copy.deepcopy(field) is field
    assert field != str(field) and hash(field) == object.__hash__(field)


@pytest.mark.parametrize("rule", ["ss102", "ss202", "ss311", "ss403", "ss412"])
def test_values_are_of_the_kind_that_a_field_declares(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = set()
    put = Store.__setitem__

    def checked(store: Store, key: Key, value: Value) -> None:
        field = key[1]
        if type(field) is Field:
            for v in iterate(value):
                if not (
                    v == PLAIN if field.kind is Mark else isinstance(v, field.kind) or v == field.default
                ):
                    wrong.add((field, v))
        put(store, key, value)

    monkeypatch.setattr(Store, "__setitem__", checked)
    paths = map(str, FIXTURES.glob(f"{rule}_*.py"))
    arguments = ["check", "--isolated", "--no-cache", "--jobs", "1", "--quiet", *paths]
    assert CliRunner().invoke(main, arguments).exit_code == 1
    assert not wrong
