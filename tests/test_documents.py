"""What the documents say can be found: rows of the semantics table, links, files."""

from __future__ import annotations

import ast
import csv
import json
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner

from streamsafe.cli import COMMANDS, main
from streamsafe.project import settings as config
from streamsafe.rule import DOCUMENTATION, all_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def test_the_modules_of_the_page_on_architecture_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "streamsafe").rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert len(named) > 40
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


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


BLOCK = re.compile(r"^(````?)(\w+)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(path, match[2], match[3], id=f"{path.relative_to(ROOT).as_posix()}:{number}")
    for path in DOCUMENTS
    for number, match in enumerate(BLOCK.finditer(path.read_text(encoding="utf-8")), 1)
]
OTHERS = {"text", "console", "lua", "lisp", "vim", "c", "cpp", "diff"}
"""Languages of blocks that nothing here can read; what they show is checked elsewhere or by hand."""


@pytest.mark.parametrize(("path", "language", "text"), BLOCKS)
def test_blocks_are_what_they_say(path: Path, language: str, text: str) -> None:
    """Python parses, tables are what the configuration takes, commands have the options that they are given."""
    if language == "python" and path.stem != "syntax-error":
        ast.parse(text)
    elif language == "python":
        pass  # the rule's example is a file that does not parse
    elif language == "json":
        for part in [text] if text.startswith("{\n") else text.splitlines():
            json.loads(part)
    elif language == "yaml":
        yaml.safe_load(text)
    elif language == "toml":
        table = tomllib.loads(text)
        if "streamsafe" in table.get("tool", {}):
            own = dict(table["tool"]["streamsafe"])
            own.pop("extend", None)
            config.parse(own, "pyproject.toml")
    elif language == "sh":
        for line in text.splitlines():
            command(line)
    else:
        assert language in OTHERS


def command(line: str) -> None:
    """See that a line of shell gives our commands options that they have."""
    import click

    for part in re.split(r" && |; ", line.partition("  #")[0]):
        words = shlex.split(part, comments=True)
        while words and (re.fullmatch(r"[A-Z_]+=\S*", words[0]) or words[0] == "eval"):
            words.pop(0)
        if not words or words[0].rpartition("/")[2] != "streamsafe" or len(words) < 2 or words[1] == "|":
            continue
        assert words[1] in COMMANDS, line
        known = main.get_command(click.Context(main), words[1])
        assert known is not None
        known.make_context(words[1], [word for word in words[2:] if word != "-h"], resilient_parsing=False)


SOURCED = re.compile(r"<!-- source: (\S+) ((?:SS\d+ ?)*)-->\n```python\n(.*?)```", re.DOTALL)


def test_programs_of_the_pages_have_the_hazards_that_they_say(tmp_path: Path) -> None:
    found = 0
    for path in DOCUMENTS:
        for name, codes, source in SOURCED.findall(path.read_text(encoding="utf-8")):
            (tmp_path / name).write_text(source, encoding="utf-8")
            arguments = ["check", "--isolated", "--output-format", "json", str(tmp_path / name)]
            result = json.loads(CliRunner().invoke(main, arguments).stdout)
            assert [each["code"] for each in result] == codes.split(), path
            found += 1
    assert found


def test_programs_that_are_drawn_have_the_hazards_that_they_say(tmp_path: Path) -> None:
    """The programs of docs/streams.md, from source; `python docs/pictures.py` runs and draws them."""
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    programs = re.findall(r"<!-- run: (\S+) (SS\d+) -->\n```python\n(.*?)```", page, re.DOTALL)
    assert len(programs) == 4
    for name, code, source in programs:
        assert f"pictures/{name}.svg" in page
        svg = ElementTree.parse(ROOT / "docs" / "pictures" / f"{name}.svg").getroot()
        assert "no edge" in "".join(svg.itertext())
        (tmp_path / "program.py").write_text(source, encoding="utf-8")
        arguments = ["check", "--isolated", "--output-format", "json", str(tmp_path / "program.py")]
        result = json.loads(CliRunner().invoke(main, arguments).stdout)
        assert code in [each["code"] for each in result], name


def test_the_address_of_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"site_url: {DOCUMENTATION}\n" in site
    for rule in all_rules().values():
        assert f"      - {rule.code} {rule.name}: rules/{rule.name}.md\n" in site
        assert rule.url == f"{DOCUMENTATION}rules/{rule.name}/"


def test_every_page_is_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in site] == []


def test_counts_of_the_field_report() -> None:
    """The page's numbers are those of the data."""
    with (ROOT / "docs" / "field-batches.csv").open(encoding="utf-8", newline="") as file:
        batches = list(csv.DictReader(file))
    page = (ROOT / "docs" / "field-report.md").read_text(encoding="utf-8")

    def total(key: str, rows: list[dict[str, str]]) -> int:
        return sum(int(row[key]) for row in rows)

    for row in batches:
        assert int(row["read"]) == total("true", [row]) + total("arguable", [row]) + total("false", [row])
        assert f"| {row['batch']} | {row['trees']} | " in page
    later = batches[1:]
    read, true, arguable = total("read", later), total("true", later), total("arguable", later)
    assert f"{len(later)} batches of {total('trees', later)} trees" in page
    assert (
        f"{read:,}\n  findings were read: {true} true, {arguable} arguable, {total('false', later)} false"
        in page
    )
    assert f"{100 * (true + arguable) / read:.0f} % true or arguable" in page
    with (ROOT / "docs" / "field-report.csv").open(encoding="utf-8", newline="") as file:
        first = Counter((row["first_reader"], row["second_reader"]) for row in csv.DictReader(file))
    assert sum(first.values()) == int(batches[0]["read"])
    assert sum(count for (one, two), count in first.items() if one == two) == 78


def test_features_name_tests_that_exist() -> None:
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 30
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_bugs_found_are_those_of_the_programs() -> None:
    """Each program of a bug that was found is on the page, with its repair as it stands in its file."""
    folder, page = ROOT / "examples" / "found", (ROOT / "docs" / "found.md").read_text(encoding="utf-8")
    programs = {path.stem for path in folder.glob("*.py")} - {"own"}
    assert {path.stem for path in folder.glob("*.diff")} == programs
    listed = (folder / "README.md").read_text(encoding="utf-8")
    for name in programs:
        diff = (folder / f"{name}.diff").read_text(encoding="utf-8").rstrip()
        assert f"```diff\n{diff}\n```" in page, name
        assert f"examples/found/{name}.py" in page and f"`{name}.py`" in listed, name
