"""The shape of the interpreter: parts that know each other by one table, and inherit from none of the others."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import streamsafe.static
from streamsafe.apis import names as apis
from streamsafe.static.interpreter import PARTS, VERBS, Interpreter
from streamsafe.static.source import SourceFile
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensor_methods import _TENSOR_METHODS

STATIC = Path(streamsafe.static.__path__[0])
FILES = sorted(STATIC.rglob("*.py"))
MOST_METHODS = 40
MOST_LINES = 500


def dotted(path: Path) -> str:
    return ".".join(("streamsafe", "static", *path.relative_to(STATIC).with_suffix("").parts))


def test_one_table_names_the_parts() -> None:
    table = next(
        n
        for n in ast.parse((STATIC / "transfer" / "part.py").read_text()).body
        if isinstance(n, ast.ClassDef)
    )
    rows = [ast.unparse(n) for n in table.body if isinstance(n, ast.AnnAssign)]
    assert rows == [f"{name}: interpreter.{part.__name__}" for name, part in PARTS.items()]


def test_all_parts_of_the_package_are_connected() -> None:
    modules = {path.stem for path in (STATIC / "transfer").glob("*.py")}
    assert modules - PARTS.keys() == {"__init__", "part", "run_state"}
    interpreter = Interpreter(SourceFile("", "empty.py"))
    assert all(part.run is interpreter.run for part in interpreter.parts.values())
    assert interpreter.parts["methods"].calls is interpreter.parts["calls"]


def test_no_part_inherits_from_another() -> None:
    assert {part.__bases__ for part in PARTS.values()} == {(Part,)}


def test_every_operation_of_the_tables_is_a_method() -> None:
    assert {*apis.FUNCTIONS.values(), *apis.PREFIXES.values()} <= VERBS.keys()
    assert Interpreter(SourceFile("", "empty.py")).parts["tensor_methods"].special.keys() == _TENSOR_METHODS  # type: ignore[attr-defined]


def test_no_class_has_more_methods_than_a_reader_can_hold() -> None:
    classes = [
        n for path in FILES for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)
    ]
    counts = {n.name: sum(isinstance(m, ast.FunctionDef) for m in n.body) for n in classes}
    assert not {name: count for name, count in counts.items() if count > MOST_METHODS}


@pytest.mark.parametrize(
    "path", [p for p in FILES if len(p.read_text().splitlines()) > MOST_LINES], ids=dotted
)
def test_a_long_file_says_why(path: Path) -> None:
    assert "One file:" in (ast.get_docstring(ast.parse(path.read_text())) or "")


def test_modules_import_each_other_in_one_direction() -> None:
    """Imports for types alone do not count: they are not run."""
    modules = {dotted(path): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = graph[name] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        found.intersection_update(modules)
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules)
