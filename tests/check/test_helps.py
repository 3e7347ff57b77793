"""The help of each finding in the fixtures is code or a sentence; code that no repair makes is put where it says."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.check.evalfiles import FIXTURES, EvalFile, report, report_of_fixtures, write_tree

SHARE = 0.65
"""So many are cured at least; the others need more than a line, or a name that only a reader knows (of all: 74 %)."""
PARTS = 6
SENTENCE = re.compile(r"[a-z].* .*")


def code_of(text: str) -> str:
    """The line of code of a help; empty for a sentence."""
    code = text.partition("  # ")[0]
    try:
        ast.parse(f"{code}\n    pass" if code.endswith(":") else code)
    except SyntaxError:
        return ""
    return code


def test_a_help_is_code_or_a_sentence() -> None:
    helps = {each["help"] for each in report_of_fixtures()}
    assert len(helps) > 150
    assert [text for text in helps if not code_of(text) and not SENTENCE.fullmatch(text)] == []
    assert [text for text in helps if "..." in code_of(text)] == []


def place_of(tree: ast.Module, row: int, comment: str) -> ast.stmt:
    """The statement before which a help goes."""
    named = re.search(r"before line (\d+)", comment)
    row = int(named[1]) if named else row
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= row <= (node.end_lineno or 0)
    ]
    around.sort(key=lambda node: node.lineno)
    entered = [
        node for node in around if isinstance(node, ast.With) and "stream" in ast.unparse(node.items[0])
    ]
    return entered[0] if "becomes current" in comment and entered else around[-1]


def counted(file: EvalFile, findings: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((file.definition_at(each["location"]["row"]), each["code"]) for each in findings)


def test_a_help_that_is_no_repair_cures_its_finding(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The first of each definition, put before the statement that it names, in every sixth file, or in all."""
    by_file: dict[str, list[dict[str, Any]]] = {}
    for each in report_of_fixtures():
        if each["confidence"] != "possible" and Path(each["filename"]).parent == FIXTURES.resolve():
            by_file.setdefault(Path(each["filename"]).name, []).append(each)
    texts: dict[str, str] = {}
    put: dict[str, dict[str, str]] = {}
    for name in sorted(by_file)[:: 1 if pytestconfig.getoption("--all") else PARTS]:
        file = EvalFile(FIXTURES / name, (FIXTURES / name).read_text(encoding="utf-8"))
        tree, rows = ast.parse(file.text), {}
        for each in by_file[name]:
            code = code_of(each["help"])
            definition = file.definition_at(each["location"]["row"])
            if (
                each.get("fix") is None
                and code
                and each["code"] < "SS312"
                and definition not in put.get(name, {})
            ):
                node = place_of(tree, each["location"]["row"], each["help"].partition("  # ")[2])
                rows[node.lineno] = " " * node.col_offset + code
                put.setdefault(name, {})[definition] = each["code"]
        lines = file.text.splitlines()
        for row in sorted(rows, reverse=True):
            lines.insert(row - 1, rows[row])
        texts[name] = "\n".join(lines) + "\n"
        ast.parse(texts[name])
    after: dict[str, list[dict[str, Any]]] = {}
    for each in report(write_tree(tmp_path, {name: texts[name] for name in put})):
        if each["confidence"] != "possible":
            after.setdefault(Path(each["filename"]).name, []).append(each)
    cured = left = 0
    for name, definitions in put.items():
        before = counted(
            EvalFile(FIXTURES / name, (FIXTURES / name).read_text(encoding="utf-8")), by_file[name]
        )
        now = counted(EvalFile(tmp_path / name, texts[name]), after.get(name, []))
        for key in definitions.items():
            cured += now[key] < before[key]
            left += now[key] >= before[key]
    assert cured >= SHARE * (cured + left), (cured, left)
