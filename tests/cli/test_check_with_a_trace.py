"""`streamsafe check --trace`: what a recorded run says of what the source shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from fixtures.runtime import variants
from tests.cli.helpers import Cli, findings

ROOT = Path(__file__).parents[2]
TOGETHER = sorted((ROOT / "fixtures" / "together").glob("*.py"))
PROGRAMS = variants.written() / "programs"
CONFIRMED = (
    "asnumpy_into_pinned_racy",
    "bincount_of_labels_racy",
    "columns_of_a_matrix_row",
    "in_place_host_update_racy",
    "in_flight_deque_newest",
    "pipeline_two_stage_racy",
    "pipeline_three_stage_wrong_event",
    "prefetcher_no_wait",
    "queue_producer_no_event",
)
"""Racy programs of the runtime's fixtures whose hazards the check names, too."""
RUN = "import sys; sys.path.insert(0, {folder!r}); import {name}; {name}.main()\n"

if find_spec("cupy") is None:  # not imported: where it has been, it cannot be simulated
    pytest.skip("the programs need CuPy: pip install cupy-cuda12x", allow_module_level=True)

Record = Callable[..., str]


@pytest.fixture(scope="module")
def record() -> Iterator[Record]:
    """Gives the trace of a program on the simulated runtime, from its folder and the command's arguments."""
    command = [sys.executable, "-m", "tests.cli.recorder"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=PIPE, stdout=PIPE) as recorder:
        assert recorder.stdin and recorder.stdout
        asked, answers = recorder.stdin, recorder.stdout

        def run(folder: Path, *program: str) -> str:
            trace = folder / "run.jsonl"
            arguments = ["--mode", "collect", "--trace", str(trace), *program]
            print(json.dumps([str(folder), *arguments]), file=asked, flush=True)
            answer = answers.readline()
            assert trace.exists(), f"exit code {answer}"
            return str(trace)

        yield run
        asked.close()


def expected(path: Path) -> list[str]:
    return re.findall(r"^# ordered: (.*)$", path.read_text(), re.MULTILINE)


def said(finding: dict[str, Any]) -> str:
    run = finding["run"]
    first, second = finding["related"][0]["location"]["row"], finding["location"]["row"]
    if finding["code"].startswith("SS2"):
        first, second = second, first
    edge = f" at {run['edge']['row']}" if run["edge"] else ""
    what = re.sub(r" \(\d+ times\)$| at [^,]*", "", run["message"].removeprefix("ordered in this run by "))
    return f"{finding['code']} {first} -> {second} by {what.split(',')[0]}{edge}"


@pytest.mark.parametrize("path", TOGETHER, ids=lambda path: path.stem)
def test_what_a_run_orders_is_marked_and_can_be_hidden(
    path: Path, cli: Cli, project: Path, record: Record
) -> None:
    shutil.copy(path, project)
    trace = record(project, path.name)
    result = cli("check", "--isolated", path.name, "--trace", trace, "--output-format", "json")
    assert result.exit_code == 1
    assert [finding["run"]["outcome"] for finding in findings(result)] == ["ordered"] * len(expected(path))
    assert sorted(map(said, findings(result))) == sorted(expected(path))
    assert all(
        Path(each["run"]["edge"]["filename"]) == project / path.name
        for each in findings(result)
        if each["run"]["edge"]
    )
    hidden = cli("check", "--isolated", path.name, "--trace", trace, "--hide-ordered")
    assert hidden.exit_code == 0
    assert f"({len(expected(path))} ordered in this run hidden)" in hidden.stdout


def test_there_are_enough_of_them() -> None:
    assert sum(len(expected(path)) for path in TOGETHER) >= 7


@pytest.mark.parametrize("name", CONFIRMED)
def test_what_a_run_shows_is_confirmed(name: str, cli: Cli, project: Path, record: Record) -> None:
    (project / "main.py").write_text(RUN.format(folder=str(PROGRAMS), name=name))
    trace = record(project, "main.py")
    source = str(PROGRAMS / f"{name}.py")
    result = cli("check", "--isolated", source, "--trace", trace, "--hide-ordered", "--output-format", "json")
    assert findings(result)
    assert {finding["run"]["outcome"] for finding in findings(result)} == {"confirmed"}


@pytest.fixture
def flagged(project: Path) -> str:
    """A program with a hazard that the run does not take, and the program's name."""
    shutil.copy(ROOT / "fixtures" / "together" / "wait_by_a_flag.py", project)
    return "wait_by_a_flag.py"


def test_the_same_program_is_confirmed_where_its_run_does_not_wait(
    cli: Cli, project: Path, flagged: str, record: Record
) -> None:
    record(project, flagged, "--eager")
    (finding,) = findings(cli("check", flagged, "--trace", "run.jsonl", "--output-format", "json"))
    assert finding["run"] == {
        "outcome": "confirmed",
        "count": 2,
        "message": "confirmed: no edge ordered the accesses in this run (2 times)",
        "edge": None,
    }


def test_what_did_not_run_is_not_reached(cli: Cli, project: Path, flagged: str, record: Record) -> None:
    text = (project / flagged).read_text()
    (project / flagged).write_text(text.replace("    main()\n", "    pass\n"))
    record(project, flagged)
    (finding,) = findings(cli("check", flagged, "--trace", "run.jsonl", "--output-format", "json"))
    assert finding["run"]["outcome"] == "not-reached"
    assert re.fullmatch(
        r"not reached: line \d+ of wait_by_a_flag.py did no work .*", finding["run"]["message"]
    )
    assert cli("check", flagged, "--trace", "run.jsonl", "--hide-ordered").exit_code == 1


def test_several_runs_count_together(cli: Cli, project: Path, flagged: str, record: Record) -> None:
    shutil.move(record(project, flagged), "ordered.jsonl")
    shutil.move(record(project, flagged, "--eager"), "eager.jsonl")
    arguments = ("--trace", "ordered.jsonl", "--trace", "eager.jsonl", "--output-format", "json")
    (finding,) = findings(cli("check", flagged, *arguments))
    assert finding["run"]["outcome"] == "confirmed"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("full", "= run: ordered in this run by the wait at wait_by_a_flag.py:"),
        ("concise", "SS101 [ordered in this run] "),
        ("grouped", "SS101  [ordered in this run] "),
        ("json-lines", '"outcome": "ordered"'),
        ("sarif", '"outcome": "ordered"'),
        ("github", "[ordered in this run] "),
        ("gitlab", "[ordered in this run] "),
        ("junit", "[ordered in this run] "),
        ("markdown", "ordered in this run"),
    ],
)
def test_each_format_has_it(
    name: str, text: str, cli: Cli, project: Path, flagged: str, record: Record
) -> None:
    record(project, flagged)
    result = cli("check", flagged, "--trace", "run.jsonl", "--output-format", name)
    assert text in result.stdout
    assert text not in cli("check", flagged, "--output-format", name).stdout


def test_lines_are_found_from_another_directory(
    cli: Cli, project: Path, flagged: str, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = record(project, flagged)
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    (finding,) = findings(cli("check", f"../{flagged}", "--trace", trace, "--output-format", "json"))
    assert finding["run"]["outcome"] == "ordered"


def test_lines_are_found_in_another_checkout(
    cli: Cli, project: Path, flagged: str, record: Record, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("container")
    shutil.copy(project / flagged, elsewhere)
    trace = shutil.move(record(elsewhere, str(elsewhere / flagged)), project / "run.jsonl")
    shutil.rmtree(elsewhere)
    (finding,) = findings(cli("check", flagged, "--trace", str(trace), "--output-format", "json"))
    assert finding["run"]["outcome"] == "ordered"


def test_a_trace_that_breaks_off_and_a_file_that_is_newer_are_said(
    cli: Cli, project: Path, flagged: str, record: Record
) -> None:
    trace = Path(record(project, flagged))
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:-1]))
    os.utime(flagged, (trace.stat().st_mtime + 10,) * 2)
    result = cli("check", flagged, "--trace", "run.jsonl")
    assert "warning: run.jsonl breaks off" in result.stderr
    assert "warning: wait_by_a_flag.py is newer than the trace" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hide-ordered",), "--hide-ordered needs --trace FILE"),
        (("--trace", "none.jsonl"), "cannot read none.jsonl"),
        (("--trace", "wait_by_a_flag.py"), "this is not a streamsafe trace"),
        (("--trace", "none.jsonl", "--fix"), "--trace cannot be used with a repair"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, cli: Cli, flagged: str) -> None:
    result = cli("check", flagged, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_without_a_trace_there_is_no_key(cli: Cli, flagged: str) -> None:
    assert "run" not in json.loads(cli("check", flagged, "--output-format", "json").stdout)[0]
