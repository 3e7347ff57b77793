"""Captures and replays, beyond the rows of the table."""

from __future__ import annotations

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.memory import Region, Use
from streamsafe.order.operations import run
from tests.order.language import check, translate

PROGRAMS = [
    # a capture's operations are not made while it is recorded
    ("B: write x; A: begin; A: write x; A: end g", ""),
    ("A: begin; A: write x; A: end g; B: write x; C: read x", "RAW"),
    # the missing edge between branches is reported at the end, once, however often the graph is launched
    (
        "A: begin; A: record e; B: wait e; A: write x; B: read x; A: wait_stream B; A: end g; A: launch g; A: launch g",
        "RAW",
    ),
    ("A: begin; A: write x; A: record e; B: wait e; B: read x; A: wait_stream B; A: end g; A: launch g", ""),
    # a branch of a branch has to come back too, by whatever way
    (
        "A: begin; B: wait_stream A; C: wait_stream B; C: write x; A: wait_stream B; A: end g",
        "unjoined-capture-stream",
    ),
    (
        "A: begin; B: wait_stream A; C: wait_stream B; C: write x; B: wait_stream C; A: wait_stream B; A: end g",
        "",
    ),
    ("A: begin; B: wait_stream A; A: wait_stream B; B: write x; A: end g", "unjoined-capture-stream"),
    # after the end the streams are their own again
    ("A: begin; B: wait_stream A; B: write x; A: wait_stream B; A: end g; B: write x; A: read x", "RAW"),
    # a launch inside another capture becomes part of it
    ("A: begin; A: write x; A: end g; B: begin; B: launch g; B: end k; B: launch k; A: read x", "RAW"),
    # inputs refilled during a replay
    ("A: begin; A: copy x y; A: end g; A: launch g; B: write x", "WAR"),
    (
        "A: begin; A: copy x y; A: end g; A: launch g; host: sync A; B: write x; B: record e; A: wait e; A: launch g",
        "",
    ),
    ("A: begin; A: copy x y; A: end g; B: write x; A: launch g", "RAW"),
    # outputs on the host
    ("A: begin; A: copy x h; A: end g; A: launch g; A: record e; host: sync e; host: read h", ""),
    ("A: begin; A: copy x h; A: end g; A: record e; A: launch g; host: sync e; host: read h", "host-reads!"),
    # events of a capture order nothing outside, recorded anew outside they do
    ("A: begin; A: record e; A: end g; A: write x; B: wait e; B: read x", "RAW"),
    ("A: begin; A: record e; A: end g; A: write x; A: record e; B: wait e; B: read x", ""),
    # temporaries: reported once for each array they clobber; silent when that array is gone again
    (
        "A: begin; A: alloc x; A: write x; free x; A: end g; A: alloc y=x; A: launch g; A: launch g",
        "captured",
    ),
    ("A: begin; A: alloc x; A: write x; free x; A: end g; A: alloc y=x; free y; A: launch g", ""),
    (
        "A: begin; A: alloc x; A: write x; free x; A: alloc y=x; A: write y; A: end g; A: launch g; A: read y",
        "",
    ),
    ("A: begin; A: alloc x; A: write x; A: end g; free x; A: alloc y=x; A: launch g", "captured"),
    ("A: begin; A: alloc x; A: write x; free x; A: end g; A: launch g; host: sync A", ""),
    ("A: begin; A: alloc x; A: write x; free x; A: end g; A: launch g", ""),
    # two branches of a capture that are handed the same temporary
    (
        "A: begin; B: wait_stream A; A: alloc x; B: write x; free x; A: alloc y=x; A: write y; A: wait_stream B; "
        "A: end g",
        "reuse",
    ),
    # nested and doubled
    ("A: begin; A: begin; A: end g", "concurrent-capture"),
    ("A: begin; B: begin; A: record e; B: wait e; B: end k; A: end g", "concurrent-capture"),
    # a synchronize that the capture forbids has no effect
    ("C: copy x h; A: begin; host: sync device; A: end g; host: read h", "sync-in-capture host-reads"),
    ("C: copy x h; A: begin relaxed; host: sync C; A: end g; host: read h", ""),
    ("C: copy x h; A: begin thread_local; host: sync C; A: end g", "sync-in-capture"),
]


@pytest.mark.parametrize(("program", "expected"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_program(program: str, expected: str) -> None:
    assert " ".join(check(program)) == expected


def test_a_conflict_of_a_launch_says_what_was_captured() -> None:
    (conflict,) = run(translate("A: begin; A: copy x y; A: end g; B: write x; A: launch g"))
    assert conflict.second.operation == "launch"
    assert [note.message for note in conflict.notes] == ["captured here: copy reads it"]
    (conflict,) = run(translate("A: begin; A: copy x y; A: end g; A: launch g; B: read y"))
    assert [note.message for note in conflict.notes] == ["captured here: copy writes it"]


X = Use(Region(0, 4096, 4160), "x")


def two_streams() -> Checker:
    checker = Checker()
    checker.stream("A", name="A")
    checker.stream("B", name="B")
    return checker


def test_an_external_event_is_recorded_by_each_launch() -> None:
    checker = two_streams()
    checker.capture_begin("A")
    checker.access("A", [], [X], operation="fill")
    checker.record("e", "A", external=True)
    graph = checker.capture_end("A")
    checker.replay(graph, "A")
    checker.wait("B", "e")
    assert checker.access("B", [X], [], operation="sum") == []


def test_an_external_wait_is_made_by_each_launch() -> None:
    checker = two_streams()
    checker.capture_begin("A")
    checker.wait("A", "e", external=True)
    checker.access("A", [X], [], operation="sum")
    graph = checker.capture_end("A")
    checker.access("B", [], [X], operation="fill")
    checker.record("e", "B")
    assert checker.replay(graph, "A") == []
    checker.access("B", [], [Use(Region(0, 8192, 8200))], operation="other")


def test_a_private_pool_gives_temporaries_to_nobody_else() -> None:
    for private, expected in ((True, 0), (False, 1)):
        checker = two_streams()
        checker.capture_begin("A", private_pool=private)
        checker.allocate(0, 4096, 64, stream="A", owner="torch")
        checker.access("A", [], [X], operation="fill")
        checker.free(0, 4096)
        graph = checker.capture_end("A")
        checker.allocate(0, 4096, 64, stream="A", owner="torch")
        assert len(checker.replay(graph, "A")) == expected


def test_the_mode_and_the_thread_decide_about_other_streams() -> None:
    for mode, same, other in (("global", 1, 1), ("thread_local", 1, 0), ("relaxed", 0, 0)):
        checker = two_streams()
        checker.capture_begin("A", mode, host=1)  # type: ignore[arg-type]
        assert len(checker.synchronize_stream("B", 1)) == same
        assert len(checker.completed_stream("B", 2)) == other
        assert len(checker.synchronize_stream("A", 2)) == 1
        checker.capture_end("A", host=1)
        assert checker.synchronize_device(0, 1) == []


def test_a_violation_only_the_caller_sees() -> None:
    checker = two_streams()
    checker.capture_begin("A")
    conflict = checker.capture_violation("host-work-in-capture", "A", operation="item", message="why")
    assert conflict.first is None
    assert conflict.facts.violation == "host-work-in-capture"
    assert [note.message for note in conflict.notes] == ["why", "the capture begins here"]
