"""What the documents say can be found: rows of the semantics table, links, files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CITED = re.compile(r"\b(?:T[ADGLMSX]-\d+|C[IS]-\d+|G[CP]-\d+|GM-[a-z_]+)")
TABLE = ROOT / "docs" / "semantics.md"
ROW = re.compile(rf"^\| ({CITED.pattern}) \|", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)\s]*)?\)|^\[\w+\]: (?!https?://)(\S+)$", re.MULTILINE)

SOURCES = sorted(
    path
    for folder in ("streamsafe", "rules", "docs", "tests", "fixtures", "benchmarks")
    for pattern in ("*.py", "*.md")
    for path in (ROOT / folder).rglob(pattern)
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "fixtures").rglob("*.md")])


def test_every_row_that_is_cited_is_in_the_table() -> None:
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows)), "a row stands twice"
    cited = {
        (row, path.relative_to(ROOT).as_posix())
        for path in SOURCES
        for row in CITED.findall(path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 200
    assert sorted(each for each in cited if each[0] not in rows) == []


def test_every_row_has_programs_or_is_cited() -> None:
    """The table has no row that nothing goes by."""
    said = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES if path != TABLE)
    names = {path.name.split("_")[0] for path in (ROOT / "fixtures" / "runtime" / "rows").glob("*.py")}
    for row in ROW.findall(TABLE.read_text(encoding="utf-8")):
        assert row in said or row.replace("-", "").lower() in names, row


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    dead = [
        target
        for match in LINK.finditer(text)
        if not (path.parent / (target := match[1] or match[2])).exists()
    ]
    assert dead == []
