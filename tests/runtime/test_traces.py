"""A recorded run, checked and drawn without CuPy: the same hazards in the same places."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

import streamsafe
from streamsafe.order.trace import TraceError
from streamsafe.runtime.replay import places, replay
from streamsafe.runtime.timeline import Timeline
from tests.runtime.helpers import Program
from tests.runtime.test_fixtures import PROGRAMS, header, load, missing

SAMPLE = [path for path in PROGRAMS if path.parent.name == "rows"] + PROGRAMS[::6]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_verify_agrees(
    path: Path, cp: Any, hooks: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reason = missing(header(path).get("needs", []), cp, request.config.getoption("--gpu"))
    if reason:
        pytest.skip(reason)
    trace = tmp_path / "trace.jsonl"
    with (
        trace.open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(io.StringIO()),
        streamsafe.sanitize("collect", trace=file) as session,
    ):
        load(path).main()
    again = replay(str(trace))
    expected = [(places(hazard), hazard.message, hazard.count) for hazard in session.hazards]
    assert [(places(hazard), hazard.message, hazard.count) for hazard in again.hazards] == expected


@pytest.fixture
def recorded(program: Program, tmp_path: Path) -> Path:
    """The trace of a racy pair, of an ordered one, and of one that is ignored."""
    trace = tmp_path / "trace.jsonl"
    with (
        trace.open("w", encoding="utf-8") as file,
        streamsafe.sanitize("collect", trace=file, ignore=["SS101::ignored"]),
    ):
        program.ordered()
        program.settle()
        program.race()
        program.settle()
        ignored(program)
        program.settle()
    return trace


def ignored(program: Program) -> None:
    with program.writer:
        program.y.fill(1)
    with program.reader:
        program.cp.copyto(program.x, program.y)


def test_suppressions_are_in_the_trace(recorded: Path) -> None:
    session = replay(str(recorded))
    assert [hazard.code for hazard in session.hazards] == ["SS101"]
    assert session.suppressed == 1


def test_the_timeline(recorded: Path) -> None:
    timeline = Timeline.of(str(recorded))
    events = timeline.events()["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"the host", "the null stream"} < tracks and len(tracks) == 4
    slices = {event["ts"]: event for event in events if event["ph"] == "X"}
    marked = [event for event in slices.values() if event["cat"] == "hazard"]
    assert [event["name"] for event in marked] == ["fill", "copy"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    for number, start in starts.items():
        assert (
            start["ts"] < ends[number]["ts"]
            and start["ts"] - 1 in slices
            and ends[number]["ts"] - 1 in slices
        )
    missing_edges = [number for number, start in starts.items() if start["name"] == "missing edge"]
    assert len(missing_edges) == 1
    json.dumps(events)


def test_the_page(recorded: Path) -> None:
    page = Timeline.of(str(recorded)).page()
    assert "no edge" in page and page.count('class="first"') == page.count('class="second"') == 1
    assert "http" not in page.replace("http://www.w3.org", "") and "{{" not in page
    with pytest.raises(LookupError, match="only 1"):
        Timeline.of(str(recorded)).page(2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}\n",
        "not json\n",
        '{"streamsafe": "trace", "version": 99}\n',
        '{"streamsafe": "trace", "version": 1}\n{"do": "dance"}\n',
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError):
        replay(str(path))
    with pytest.raises(TraceError):
        Timeline.of(str(path))
