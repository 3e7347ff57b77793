"""What `findings.txt` pins of each finding in the fixtures: its line, code and confidence, and the lines it refers to.

A section for each fixture has a line for each finding, for example `bad_read+4 SS101 certain <- bad_read+2`: the
finding stands four lines below the first line of `bad_read`, the access that it races with two lines below it. Lines
are counted from their function or class, so that a change elsewhere in the file moves none of them. A `possible`
finding is there if the fixture expects it.

`python -m tests.check.findings` writes the file anew, `python -m tests.check.findings NAME ...` only the sections of
these fixtures.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.check.evalfiles import FIXTURES, EvalFile, eval_files, first_row, report, report_of_fixtures

TABLE = Path(__file__).with_suffix(".txt")


def place(file: EvalFile, row: int) -> str:
    """A row as its definition and the distance to its first row."""
    for node in file.definitions:
        if first_row(node) <= row <= (node.end_lineno or 0):
            return f"{node.name}+{row - first_row(node)}"
    return f"<module>+{row}"


def lines_of(file: EvalFile, findings: list[dict[str, Any]]) -> list[str]:
    """The section of a fixture, of all findings in it."""
    possible = set(file.marked("expect-possible"))
    lines = []
    for finding in sorted(findings, key=lambda f: (f["location"]["row"], f["code"], f["location"]["column"])):
        row, code, confidence = finding["location"]["row"], finding["code"], finding["confidence"]
        if confidence == "possible" and (row, code) not in possible:
            continue
        related = " ".join(place(file, each["location"]["row"]) for each in finding["related"])
        lines.append(f"{place(file, row)} {code} {confidence}" + (f" <- {related}" if related else ""))
    return lines


@cache
def found() -> dict[str, list[str]]:
    """Fixture -> its section as it is now."""
    return sections(report_of_fixtures(), eval_files())


def sections(findings: list[dict[str, Any]], files: list[EvalFile]) -> dict[str, list[str]]:
    by_name: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        assert all(each["filename"] == finding["filename"] for each in finding["related"])
        by_name.setdefault(Path(finding["filename"]).stem, []).append(finding)
    return {file.name: lines_of(file, by_name.get(file.name, [])) for file in files}


@cache
def pinned() -> dict[str, list[str]]:
    """Fixture -> its section in the file."""
    table: dict[str, list[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else ():
        if line.startswith("# "):
            section = table.setdefault(line.removeprefix("# "), [])
        elif line:
            section.append(line)
    return table


def write(table: dict[str, list[str]]) -> None:
    text = "\n\n".join("\n".join([f"# {name}", *table[name]]) for name in sorted(table) if table[name])
    TABLE.write_text(text + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    if not names:
        return write(found())
    names = [Path(name).stem for name in names]
    files = [file for file in eval_files() if file.name in names]
    new = sections(
        [f for file in files for f in report(FIXTURES / file.path.name, "--confidence", "possible")], files
    )
    kept = {name: lines for name, lines in pinned().items() if (FIXTURES / f"{name}.py").exists()}
    return write(kept | new)


if __name__ == "__main__":
    main(sys.argv[1:])
