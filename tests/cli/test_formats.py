"""Every output format: checked against its schema where there is one, for `check`, `run` and `verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from streamsafe.check.check import Files, Run
from streamsafe.report.formats import FORMATS, MACHINE, render
from streamsafe.rule import find_rule, rule_page
from tests.cli.helpers import BUG, BUG_ROW, CLEAN, Cli

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
FIRST_ROW = BUG_ROW - 1
NOTEBOOK = json.dumps(
    {
        "cells": [{"cell_type": "code", "source": BUG.splitlines(keepends=True)}],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
)


def written(cli: Cli, name: str, *more: str) -> str:
    return cli("check", "--output-format", name, *more).stdout


def sarif(text: str) -> dict[str, Any]:
    """A log that the schema allows."""
    log: dict[str, Any] = json.loads(text)
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    return log


def test_sarif(cli: Cli, project: Path) -> None:
    (project / "a b.py").write_text(BUG)
    (run,) = sarif(written(cli, "sarif"))["runs"]
    (described,) = run["tool"]["driver"]["rules"]
    assert (described["id"], described["helpUri"]) == ("SS101", rule_page("unordered-read"))
    assert "## Why is this bad?" in described["help"]["markdown"]
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("SS101", 0, "error")
    assert result["message"]["text"].endswith("Help: torch.cuda.current_stream().wait_stream(side)")

    def place(location: dict[str, Any]) -> tuple[str, int, int]:
        physical = location["physicalLocation"]
        artifact, region = physical["artifactLocation"], physical["region"]
        assert artifact["uriBaseId"] in run["originalUriBaseIds"]
        return artifact["uri"], region["startLine"], region["startColumn"]

    second, first = ("a%20b.py", BUG_ROW, 12), ("a%20b.py", FIRST_ROW, 9)
    assert [place(each) for each in result["locations"]] == [second]
    assert [place(each) for each in result["relatedLocations"]] == [first]
    assert [each["id"] for each in result["relatedLocations"]] == [1]
    assert (result["kind"], result["occurrenceCount"]) == ("fail", 1)
    properties = {key: result["properties"][key] for key in ("confidence", "precision", "latent")}
    assert properties == {"confidence": "certain", "precision": "very-high", "latent": False}
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    entered = ("a%20b.py", FIRST_ROW - 1, 10)
    assert [each for each in map(place, (step["location"] for step in flow)) if each[1] <= FIRST_ROW] == [
        entered,
        first,
    ]
    assert place(flow[-1]["location"]) == second
    assert [step["executionOrder"] for step in flow] == list(range(1, len(flow) + 1))
    assert [place(each["location"]) for each in flow if each["importance"] == "essential"] == [second]
    (change,) = result["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    assert replacement["insertedContent"]["text"].strip() == "torch.cuda.current_stream().wait_stream(side)"
    assert replacement["deletedRegion"]["startLine"] == BUG_ROW


def test_sarif_of_nothing_and_of_a_notebook(cli: Cli, project: Path) -> None:
    (project / "clean.py").write_text(CLEAN)
    assert sarif(written(cli, "sarif"))["runs"][0]["results"] == []
    (project / "book.ipynb").write_text(NOTEBOOK)
    (result,) = sarif(written(cli, "sarif"))["runs"][0]["results"]
    (location,) = result["locations"]
    assert "region" not in location["physicalLocation"], "rows of a cell are no rows of the file"
    assert location["logicalLocations"][0]["name"] == f"cell 1, row {BUG_ROW}"


@pytest.mark.parametrize("name", sorted(MACHINE))
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "whole"])
def test_no_format_is_silent_where_a_file_is_not_run_to_its_end(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, name: str, cut: bool
) -> None:
    """Where nothing is found, either: "nothing" of a part is not "nothing" of the whole."""
    (project / "many.py").write_text(CLEAN)
    real = Files.run

    def limited(self: Files, path: str, explain: int | None = None) -> Run:
        run = real(self, path, explain)
        run.notes += ["3 of 9 paths"] if cut else []
        return run

    monkeypatch.setattr(Files, "run", limited)
    done = cli("check", "--no-cache", "--output-format", name)
    assert done.exit_code == 0
    assert ("1 file not run to its end" in done.stderr + done.stdout) == cut
    if name == "sarif":
        said = "not run to its end: 3 of 9 paths"
        (run,) = sarif(done.stdout)["runs"]
        texts = [
            (each["message"]["text"], each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
            for invocation in run.get("invocations", ())
            for each in invocation["toolExecutionNotifications"]
        ]
        assert texts == ([(said, "many.py")] if cut else [])
    if name == "github":
        said = "::notice title=streamsafe,file=many.py::not run to its end: 3 of 9 paths"
        assert done.stdout.splitlines() == ([said] if cut else [])
    for option in ("--verbose", "--statistics"):
        done = cli("check", "--no-cache", option)
        assert ("many.py: not run to its end: 3 of 9 paths" in done.stderr + done.stdout) == cut


def test_the_flow_of_a_reuse_comes_to_the_use(cli: Cli, project: Path) -> None:
    reuse = find_rule("SS201")
    assert reuse is not None
    (project / "reuse.py").write_text(reuse.bad)
    (result,) = sarif(written(cli, "sarif"))["runs"][0]["results"]
    assert result["ruleId"] == "SS201"
    (use,) = result["locations"]
    flow = [
        step["location"]["physicalLocation"] for step in result["codeFlows"][0]["threadFlows"][0]["locations"]
    ]
    assert use["physicalLocation"] in flow[1:]


def test_fingerprints_stay_when_lines_move(cli: Cli, project: Path) -> None:
    def prints() -> list[str]:
        (run,) = json.loads(written(cli, "sarif"))["runs"]
        found = [result["partialFingerprints"]["streamsafe/v1"] for result in run["results"]]
        assert found == [issue["fingerprint"] for issue in json.loads(written(cli, "gitlab"))]
        return found

    twice = BUG + BUG[BUG.index("def total") :].replace("total", "again")
    (project / "bug.py").write_text(twice)
    before = prints()
    assert len(set(before)) == 2, "two findings of one kind are two"
    (project / "bug.py").write_text("\n\n" + twice)
    assert prints() == before


def test_github(cli: Cli, project: Path) -> None:
    (project / "a,b.py").write_text(BUG)
    (line,) = written(cli, "github").splitlines()
    properties, _, text = line.removeprefix("::error ").partition("::")
    given = dict(item.split("=", 1) for item in properties.split(","))
    assert given == {
        "title": "streamsafe (SS101 unordered-read)",
        "file": "a%2Cb.py",
        "line": str(BUG_ROW),
        "endLine": str(BUG_ROW),
        "col": "12",
        "endColumn": "19",
    }
    assert text.split("%0A")[1].startswith(f"a,b.py:{FIRST_ROW}:9: ")
    assert text.endswith("%0Ahelp: torch.cuda.current_stream().wait_stream(side)")


def test_gitlab(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    (issue,) = json.loads(written(cli, "gitlab"))
    assert issue["location"]["path"] == "bug.py"
    assert issue["location"]["lines"] == {"begin": BUG_ROW, "end": BUG_ROW}
    assert issue["other_locations"][0]["lines"]["begin"] == FIRST_ROW
    assert (issue["check_name"], issue["severity"]) == ("SS101", "critical")
    assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")


def test_junit(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG.replace("x.sum", "x.sum"))
    root = ElementTree.fromstring(written(cli, "junit"))
    assert (root.get("tests"), root.get("failures")) == ("1", "1")
    (case,) = root.iter("testcase")
    assert (case.get("classname"), case.get("line")) == ("bug.py", str(BUG_ROW))
    (failure,) = case
    assert failure.get("type") == "SS101"
    assert failure.text is not None
    assert f"bug.py:{FIRST_ROW}:9: " in failure.text
    (project / "bug.py").write_text(CLEAN)
    root = ElementTree.fromstring(written(cli, "junit"))
    assert (root.get("tests"), root.get("failures")) == ("1", "0")


def test_json_lines(cli: Cli, project: Path) -> None:
    (project / "a.py").write_text(BUG)
    (project / "b.py").write_text(BUG)
    assert [json.loads(line) for line in written(cli, "json-lines").splitlines()] == json.loads(
        written(cli, "json")
    )


def test_grouped(cli: Cli, project: Path) -> None:
    (project / "a.py").write_text(BUG)
    (project / "b.py").write_text(BUG)
    lines = written(cli, "grouped").splitlines()
    assert [line for line in lines if not line.startswith(" ")][:3] == ["a.py:", "", "b.py:"]
    assert lines[1].startswith(f"  {BUG_ROW}:12  SS101  `sum()` on the current stream")
    assert lines[-1] == "Found 2 hazards in 2 files."


def test_markdown(cli: Cli, project: Path) -> None:
    (project / "bug_1.py").write_text(BUG)
    lines = written(cli, "markdown").splitlines()
    assert lines[0] == "## 1 stream hazard"
    assert "### `bug_1.py`" in lines
    (item,) = (line for line in lines if line.startswith("- "))
    assert item.startswith(
        f"- **[SS101 unordered-read]({rule_page('unordered-read')})** line {BUG_ROW}: `sum()`"
    )
    assert lines[-1] == "  - help: `torch.cuda.current_stream().wait_stream(side)`"


@pytest.mark.parametrize("name", MACHINE)
def test_nothing_found(cli: Cli, project: Path, name: str) -> None:
    """A clean run writes a valid, empty report, and the exit status says it, too."""
    result = cli("check", "--output-format", name)
    assert result.exit_code == 0
    if name == "sarif":
        sarif(result.stdout)
    if name == "junit":
        ElementTree.fromstring(result.stdout)
    if name in ("json", "gitlab"):
        assert json.loads(result.stdout) == []


@pytest.mark.parametrize("name", FORMATS)
def test_output_file(cli: Cli, project: Path, name: str) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--output-format", name, "--output-file", "report")
    assert result.exit_code == 1
    assert result.stdout.endswith("Found 1 hazard in 1 file.\n")
    assert "SS101" in (project / "report").read_text(encoding="utf-8")
    assert "SS101" not in result.stdout


def test_output_file_that_cannot_be_written(cli: Cli, project: Path) -> None:
    (project / "bug.py").write_text(BUG)
    result = cli("check", "--output-file", "no/such/directory")
    assert result.exit_code == 2
    assert "no/such/directory: cannot be written" in result.stderr


def test_severities_and_confidences(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.streamsafe.rule-severity]\nSS1 = "advice"\n')
    (project / "bug.py").write_text(BUG)
    assert written(cli, "github").startswith("::notice ")
    assert json.loads(written(cli, "gitlab"))[0]["severity"] == "info"
    assert json.loads(written(cli, "sarif"))["runs"][0]["results"][0]["level"] == "note"


HAZARD: dict[str, Any] = {
    "code": "SS101",
    "name": "unordered-read",
    "message": "a & <b> read \x1b it",
    "filename": None,
    "location": None,
    "end_location": None,
    "related": [],
    "severity": "error",
    "confidence": "likely",
    "latent": True,
    "count": 7,
    "second": {},
    "help": None,
    "fix": None,
    "url": None,
}


@pytest.mark.parametrize("name", MACHINE)
def test_a_hazard_without_a_place(name: str) -> None:
    """At run time an access may have no frame in a file."""
    text = render(name, [HAZARD])
    assert "SS101" in text
    if name == "sarif":
        (result,) = sarif(text)["runs"][0]["results"]
        assert (result["occurrenceCount"], result["properties"]["latent"]) == (7, True)
    if name == "junit":
        ElementTree.fromstring(text)
