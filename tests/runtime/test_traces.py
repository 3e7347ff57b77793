"""A recorded run, checked and drawn without CuPy: the same hazards in the same places."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import streamsafe
from streamsafe.cli import main
from streamsafe.order.memory import Region, Use
from streamsafe.order.operations import (
    Access,
    CompletedEvent,
    HostAccess,
    HostEdge,
    Operation,
    Record,
    Stream,
    SynchronizeDevice,
    SynchronizeStream,
    Wait,
)
from streamsafe.order.trace import Trace, TraceError
from streamsafe.runtime.marks import places
from streamsafe.runtime.traces import replay
from streamsafe.view.page import page
from streamsafe.view.timeline import Timeline
from tests.runtime.helpers import Program
from tests.runtime.test_fixtures import PROGRAMS, header, load, missing
from tests.runtime.test_fixtures import ROOT as FIXTURES

SAMPLE = [path for path in PROGRAMS if path.parent.name == "rows"] + PROGRAMS[::6]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_verify_agrees(path: Path, cp: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
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
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"the host", "the null stream"} < set(names.values())
    assert len(set(names.values())) == len(names) == 4
    slices = [event for event in events if event["ph"] == "X"]
    assert all(names[event["tid"]] and event["dur"] > 0 for event in slices)
    marked = [event for event in slices if event["cat"] == "hazard"]
    assert [event["name"] for event in marked] == ["SS101: fill", "SS101: copy"]
    assert marked[0]["tid"] != marked[1]["tid"]
    begin, end = (next(event for event in events if event["ph"] == phase) for phase in "be")
    assert begin["name"] == "SS101 unordered-read" and begin["id2"] == end["id2"]
    assert (begin["ts"], end["ts"]) == (marked[0]["ts"], marked[1]["ts"] + marked[1]["dur"])
    json.dumps(events)


def test_the_flows_bind_to_slices(recorded: Path) -> None:
    """A flow belongs to the slice of its track that is open at its time (the format's binding point "e")."""
    events = Timeline.of(str(recorded)).events()["traceEvents"]

    def enclosing(flow: dict[str, Any]) -> str:
        (name,) = [
            event["name"]
            for event in events
            if event["ph"] == "X" and event["tid"] == flow["tid"]
            if event["ts"] <= flow["ts"] <= event["ts"] + event["dur"]
        ]
        return str(name)

    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys() and starts
    assert all(starts[number]["ts"] < ends[number]["ts"] for number in starts)
    pairs = {(enclosing(starts[number]), enclosing(ends[number])) for number in starts}
    assert ("record", "wait") in pairs and ("copy", "synchronize device") in pairs
    assert not any(start.startswith("SS101") and end.startswith("SS101") for start, end in pairs)


STREAMS = [Stream(key=key, name="s") for key in ("a", "b")]
X: Use = Use(Region(0, 0, 64))


@pytest.mark.parametrize(
    ("operations", "edges"),
    [
        ([*STREAMS, Record(event=1, stream="a"), Wait(stream="b", event=1)], [("s record", "s (2) wait")]),
        ([*STREAMS, Wait(stream="b", event=1)], []),
        (
            [
                *STREAMS,
                Access(stream="a", operation="fill", writes=(X,)),
                SynchronizeStream(stream="a"),
                SynchronizeStream(stream="b"),
            ],
            [("s fill", "the host synchronize")],
        ),
        (
            [
                *STREAMS,
                Stream(key="c", device=1, name="s"),
                Access(stream="a", operation="fill", writes=(X,)),
                Access(stream="c", operation="fill", writes=(Use(Region(1, 0, 64)),)),
                SynchronizeDevice(device=1),
            ],
            [("s (3) fill", "the host synchronize device")],
        ),
        (
            [
                Stream(key="n", kind="legacy", name="null"),
                Stream(key="a", kind="blocking", name="a"),
                Stream(key="b", name="b"),
                *(
                    Access(stream=key, operation="fill", writes=(X,))
                    for key in ("a", "a", "n", "n", "b", "a")
                ),
            ],
            [("a fill", "null fill"), ("null fill", "a fill")],
        ),
        (
            [
                *STREAMS,
                Record(event=1, stream="a"),
                CompletedEvent(event=1, host=7),
                HostEdge(source=7, target="lock"),
                HostEdge(source="lock", target=8),
                HostAccess(operation="index", reads=(Use(Region("host", 0, 8)),), host=8),
            ],
            [
                ("s record", "the host (thread 7) query: done"),
                ("the host (thread 7) query: done", "the host (thread 8) index"),
            ],
        ),
    ],
    ids=["event", "never recorded", "stream", "device", "legacy barrier", "threads"],
)
def test_lanes_and_edges(tmp_path: Path, operations: list[Operation], edges: list[tuple[str, str]]) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("w", encoding="utf-8") as file:
        trace = Trace(file, threads=True)
        for operation in operations:
            trace.write(operation)
    timeline = Timeline.of(str(path))
    shown = [f"{timeline.lanes[step.lane].label} {step.name}" for step in timeline.steps]
    assert [(shown[source], shown[target]) for source, target in timeline.edges] == edges


def pictures(text: str, kind: str) -> list[ElementTree.Element]:
    """The drawings of a page in one layout."""
    return [
        ElementTree.fromstring(drawn)
        for drawn in re.findall(rf'<svg class="{kind}".*?</svg>', text, flags=re.DOTALL)
    ]


@pytest.mark.parametrize("kind", ["wide", "tall"])
def test_the_page(recorded: Path, kind: str) -> None:
    timeline = Timeline.of(str(recorded))
    text = page(timeline)
    (picture,) = pictures(text, kind)
    said = [element.text or "" for element in picture.iter("text")]
    lanes = [
        (element.get("x"), element.get("y"))
        for element in picture.iter("text")
        if element.get("class") == "lane"
    ]
    assert len(set(lanes)) == 3
    assert [element.get("class") for element in picture.iter("path")] == ["gap"]
    assert "no edge" in said and "fill" in said and "copy" in said
    roles = [element.get("class") for element in picture.iter("g")]
    assert roles.count("first") == roles.count("second") == 1
    assert text.count('<span class="here">') == 2 and "http" not in text and "{{" not in text
    with pytest.raises(LookupError, match="only 1"):
        page(timeline, 2)


def test_both_accesses_and_the_gap_fit_a_phone(recorded: Path) -> None:
    """The tall picture is scaled to the screen: with three lanes its letters keep three quarters of their size."""
    (picture,) = pictures(page(Timeline.of(str(recorded))), "tall")
    assert "min-width:0" in (picture.get("style") or "")
    assert int((picture.get("viewBox") or "").split()[2]) <= 3 * 150 + 20


def test_an_index_of_several(program: Program, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with trace.open("w", encoding="utf-8") as file, streamsafe.sanitize("collect", trace=file):
        program.race()
        program.settle()
        program.read()
        program.write()
        program.settle()
    timeline = Timeline.of(str(trace))
    text = page(timeline)
    assert [found.hazard.code for found in timeline.found] == ["SS101", "SS102"]
    assert re.findall(r'<a href="#(hazard-\d)">(\w+)', text) == [("hazard-1", "SS101"), ("hazard-2", "SS102")]
    assert re.findall(r'<article id="(hazard-\d)">', text) == ["hazard-1", "hazard-2"]
    assert len(pictures(text, "wide")) == len(pictures(text, "tall")) == 2
    only = page(timeline, 2)
    assert "<nav>" not in only and "SS101" not in only and "hazard 2 of 2" in only


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("programs/async_pool_reuse_racy", ("allocate", "no edge")),
        ("programs/batch_list_cleared_latent", ("still to come", "no edge")),
        ("programs/async_checkpoint_read_too_early", ("the host", "no edge")),
        ("programs/graph_scratch_by_a_helper_temporary", ("launch", "same memory")),
        ("rows/gp02_null_kernel_while_blocking_captures", ("capture begins", "Here:")),
        ("programs/pipeline_three_stage_wrong_event", ('class="edge cited"', "no edge")),
    ],
    ids=["reuse", "latent", "host", "captured", "violation", "ineffective wait"],
)
def test_a_page_of_each_kind(cp: Any, tmp_path: Path, program: str, expected: tuple[str, ...]) -> None:
    trace = tmp_path / "trace.jsonl"
    with (
        trace.open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(io.StringIO()),
        streamsafe.sanitize("collect", trace=file),
    ):
        load(FIXTURES / f"{program}.py").main()
    text = page(Timeline.of(str(trace)))
    assert [part for part in expected if part not in text] == []


@pytest.mark.parametrize(
    ("outputs", "status", "said"),
    [
        ((), 2, "name an output: -o FILE, --html FILE or both"),
        (("-o", "events.json"), 0, ""),
        (("--html", "page.html"), 0, ""),
        (("-o", "events.json", "--html", "page.html", "--hazard", "1"), 0, ""),
        (("--html", "page.html", "--hazard", "9"), 2, "there is only 1 hazard"),
        (("-o", "."), 2, "cannot open .: Is a directory"),
    ],
)
def test_the_command(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, outputs: tuple[str, ...], status: int, said: str
) -> None:
    monkeypatch.chdir(recorded.parent)
    done = CliRunner().invoke(main, ["trace", *outputs, recorded.name])
    assert (done.exit_code, said in done.stderr) == (status, True), done.stderr
    written = [each for each in outputs[1::2] if "." in each and not status]
    assert all(Path(each).stat().st_size for each in written)


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
