"""Fixtures with their expectations in comments, and one in-process run of `streamsafe check` over a tree.

`# expect: SS101 SS201` stands on the line of a finding, `# expect-possible: SS113` on the line of one that is shown
only at `--confidence possible`. `# expect-any: SS402` on several lines of one definition means one finding on one of
them, `# expect-any: SS101|SS103` of one of these codes. `# redundant: why` stands on an ordering statement without
which the definition is silent all the same, `# unchecked: why` on one where that is not known.
"""

from __future__ import annotations

import ast
import json
import re
import zlib
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from fixtures.runtime import variants
from streamsafe.cli import main
from streamsafe.repairs import repair
from tests.check import not_shown

FIXTURES = Path(__file__).parents[2] / "fixtures" / "static"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Found:
    """One finding: where it stands, and where its first access stands, if it has one."""

    row: int
    code: str
    confidence: str
    first_row: int | None = None


@dataclass(frozen=True)
class EvalFile:
    """A fixture and what it expects."""

    path: Path
    text: str = field(repr=False)

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def definitions(self) -> list[Definition]:
        """The functions and classes at the top of the file."""
        return [n for n in ast.parse(self.text).body if isinstance(n, Definition)]

    def definition_at(self, row: int) -> str:
        """The name of the definition that holds a row."""
        for node in self.definitions:
            if first_row(node) <= row <= (node.end_lineno or 0):
                return node.name
        return "<module>"

    def marked(self, marker: str) -> list[tuple[int, str]]:
        """Rows and codes of one marker."""
        pattern = re.compile(rf"# {marker}: ([^#]*)")
        return [
            (row, codes)
            for row, line in enumerate(self.lines, 1)
            for match in pattern.finditer(line)
            for codes in match[1].split()
        ]

    @cached_property
    def alternatives(self) -> dict[tuple[str, str], set[int]]:
        """(definition, codes) -> the rows of which one carries the finding."""
        rows: dict[tuple[str, str], set[int]] = defaultdict(set)
        for row, codes in self.marked("expect-any"):
            rows[self.definition_at(row), codes].add(row)
        return dict(rows)

    @cached_property
    def codes(self) -> set[str]:
        """Every code that is expected somewhere in the file."""
        marked = [m for marker in ("expect", "expect-any", "expect-possible") for m in self.marked(marker)]
        return {code for _, codes in marked for code in codes.split("|")}

    def variants(self) -> list[str]:
        """The library spellings that give the same verdict."""
        match = re.search(r"^# variants: (.*)$", self.text, re.MULTILINE)
        return [v.strip() for v in match[1].split(",")] if match else []

    def disagreements(self, found: list[Found]) -> list[str]:
        """What was found and not expected, and the other way round, as lines to read."""
        left = {(f.row, f.code) for f in found}
        wrong: list[str] = []
        for row, code in self.marked("expect"):
            if (row, code) in left:
                left.remove((row, code))
            else:
                wrong += self._line("missing alarm", row, code)
        for (_, codes), rows in self.alternatives.items():
            here = {(row, code) for row in rows for code in codes.split("|")} & left
            left -= here
            if len(here) != 1:
                wrong += self._line("one alarm too many" if here else "missing alarm", min(rows), codes)
        return wrong + [line for row, code in sorted(left) for line in self._line("false alarm", row, code)]

    def _line(self, what: str, row: int, code: str) -> list[str]:
        """A disagreement; none where `not_shown.txt` has it."""
        if not_shown.known(f"{self.place(row)} {code} {what}"):
            return []
        where = f"{self.path.name}:{row} {code} in {self.definition_at(row)}"
        return [f"# {what}: {where}\n#     {self.lines[row - 1].strip()}"]

    def place(self, row: int) -> str:
        """A row as its file, definition and distance to its first row; of a program of a test, with its text."""
        name, first, last = "<module>", 1, len(self.lines)
        for node in self.definitions:
            if first_row(node) <= row <= (node.end_lineno or 0):
                name, first, last = node.name, first_row(node), node.end_lineno or 0
        text = "\n".join(self.lines[first - 1 : last])
        mark = "" if self.path.parent == FIXTURES else f"#{zlib.crc32(text.encode()):08x}"
        return f"{self.path.name}{mark} {name}+{row - first}"


ADVICE = ("SS321", "SS322")
"""Rules that are off unless they are selected: here they count in the files that are about them."""
OF_ADVICE = ("ss321", "ss322")


def first_row(node: Definition) -> int:
    """The first row of a definition, decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def eval_files(prefixes: tuple[str, ...] = ("",)) -> list[EvalFile]:
    """The fixtures whose names begin with one of the prefixes; all of them without any."""
    paths = sorted(p for p in FIXTURES.glob("*.py") if p.name.startswith(prefixes))
    return [EvalFile(p, p.read_text(encoding="utf-8")) for p in paths]


def report(root: Path, *options: str, repairs: bool = True) -> list[dict[str, Any]]:
    """The JSON of one run of `streamsafe check`; without repairs it takes half the time."""
    selected = ("--extend-select", ",".join(ADVICE))
    if "--confidence" not in options:
        options = ("--confidence", "likely", *options)
    arguments = ["check", "--isolated", "--output-format", "json", *selected, *options, str(root)]
    with nullcontext() if repairs else patch.object(repair, "fix_of", return_value=None):
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return [f for f in found if f["code"] not in ADVICE or Path(f["filename"]).name.startswith(OF_ADVICE)]


def check_tree(root: Path, *options: str) -> dict[str, list[Found]]:
    """File name relative to the root -> findings, by one run of `streamsafe check`."""
    return by_file(report(root, *options, repairs=False), root)


def by_file(findings: list[dict[str, Any]], root: Path) -> dict[str, list[Found]]:
    """File name relative to the root -> findings of a report."""
    found: dict[str, list[Found]] = defaultdict(list)
    for finding in findings:
        related = finding["related"]
        name = Path(finding["filename"]).resolve().relative_to(root.resolve()).as_posix()
        first = related[0]["location"]["row"] if related else None
        found[name].append(Found(finding["location"]["row"], finding["code"], finding["confidence"], first))
    return found


def parameters_run(request: pytest.FixtureRequest, test: str) -> list[dict[str, Any]]:
    """The parameters with which a test of the asking module is run, in this session: analyse no more than these."""
    return [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and item.originalname == test
    ]


@cache
def report_of_fixtures() -> list[dict[str, Any]]:
    """Everything found in the fixtures: by far the longest run of them, so there is one in a process."""
    return report(FIXTURES, "--confidence", "possible")


@cache
def possible_in_fixtures() -> dict[str, list[Found]]:
    """The same by file."""
    return by_file(report_of_fixtures(), FIXTURES)


@cache
def report_of_programs() -> list[dict[str, Any]]:
    """What is shown by default of the programs of the runtime tests."""
    return report(variants.written())


def in_fixture(file: EvalFile) -> list[Found]:
    """What is shown of a fixture by default."""
    return [f for f in possible_in_fixtures().get(file.path.name, []) if f.confidence != "possible"]


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write sources under a root."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root
