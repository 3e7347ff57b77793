"""What a conflict says: names, ranges, stacks, notes, the missing edge; and the actions' smaller promises."""

from __future__ import annotations

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.memory import HOST, Region, Use
from streamsafe.order.operations import run
from tests.order.language import translate

X = Use(Region(0, 4096, 4160, (16,), None, 4), "x", "float32")
PART = Use(Region(0, 4112, 4120, (2,), None, 4), "x[4:6]", "float32")
PINNED = Use(Region(HOST, 4096, 4160), "staging")


def checker(*, threads: bool = False) -> Checker:
    made = Checker(threads=threads, render=lambda site: (Frame(str(site), 1, "f"),))
    for key in "AB":
        made.stream(key, name=f"stream_{key.lower()}")
    return made


def only(conflicts: list[Conflict]) -> Conflict:
    (conflict,) = conflicts
    return conflict


def test_both_sides_the_bytes_and_the_missing_edge() -> None:
    c = checker()
    c.access("A", [], [X], operation="fill", site="first.py")
    conflict = only(c.access("B", [PART], [], operation="sum", site="second.py"))
    assert conflict.first is not None and conflict.missing is not None
    assert (conflict.first.operation, conflict.first.timeline, conflict.first.reads_or_writes) == (
        "fill",
        "stream_a",
        "writes",
    )
    assert (conflict.second.operation, conflict.second.timeline) == ("sum", "stream_b")
    assert conflict.first.stack == (Frame("first.py", 1, "f"),)
    assert conflict.second.stack == (Frame("second.py", 1, "f"),)
    memory = conflict.memory
    assert (memory.name, memory.shape, memory.dtype, memory.start, memory.stop) == (
        "x[4:6]",
        (2,),
        "float32",
        4112,
        4120,
    )
    assert conflict.missing.fix == "stream_b.wait_event(stream_a.record())"


def test_nothing_is_rendered_without_a_conflict() -> None:
    def never(site: object) -> tuple[Frame, ...]:
        raise AssertionError("rendered")

    c = Checker(render=never)
    c.stream("A")
    for _ in range(3):
        c.access("A", [X], [X], operation="add", site=object())


def test_a_range_that_many_cells_remember_is_one_range() -> None:
    c = checker()
    c.access("A", [], [X], operation="fill")
    for start in range(4096, 4160, 8):
        c.access("A", [], [Use(Region(0, start, start + 4))], operation="part")
    conflict = only(c.access("B", [X], [], operation="sum"))
    assert conflict.first is not None and conflict.memory.start is not None
    assert conflict.first.operation == "part"


@pytest.mark.parametrize(
    ("program", "notes", "edges"),
    [
        (
            "A: record e; A: write x; B: wait e; B: read x",
            ["was recorded before", "too early"],
            1,
        ),
        ("A: write x; B: wait e; B: read x", ["never recorded"], 0),
        ("A: write x; B: wait e; A: record e; B: read x", ["before it is recorded", "recorded only here"], 0),
        (
            "A: write x; C: record e; B: wait e; B: read x",
            ["`B` waits for `C`, but `write` runs on `A`", "recorded here"],
            0,
        ),
        (
            "A: write x; A: record e; C: record e; B: wait e; B: read x",
            ["on `A` and then again", "recorded again here, on"],
            0,
        ),
        (
            "A: write x; A: record e; C: record e; D: record e; B: wait e; B: read x",
            ["on `A` and then again", "recorded again here, on"],
            0,
        ),
        ("A: write x; B: wait e; C: record e; B: read x", [], 0),
        ("A: write x; A: wait_stream B; B: read x", ["the wrong way round", "recorded here"], 0),
        ("A: write x; host: sync N; B: read x", ["the host waits for `N`"], 0),
        ("A: write x; host: sync device1; B: read x", ["the host waits for device 1"], 0),
        ("A: write y; B: wait_stream A; B: read y; A: write x; B: read x", [], 1),
        ("A: write y; host: sync A; A: write x; B: read x", [], 1),
        ("A: write y; host: sync device; A: write x; B: read x", [], 1),
        (
            "A: talloc x; B: read x; free x; A: talloc y=x; A: write y",
            ["allocated on `A`", "the last reference to `x`", "reused on `A`"],
            0,
        ),
    ],
)
def test_notes_and_nearest_edges(program: str, notes: list[str], edges: int) -> None:
    conflict = only(run(translate(program)))
    assert len(conflict.notes) == len(notes)
    for note, expected in zip(conflict.notes, notes, strict=True):
        assert expected in note.message
    assert len(conflict.edges) == edges


@pytest.mark.parametrize(
    ("program", "fix"),
    [
        ("A: copy x h; host: read h", "A.synchronize()"),
        ("A: talloc x; B: read x; free x; A: talloc y=x; A: write y", "x.record_stream(B)"),
        (
            "A: alloc x; B: read x; free x; A: alloc y=x; A: write y",
            "A.wait_event(B.record())  # after this use, before x is released",
        ),
        ("A: write x; B: read x", "B.wait_event(A.record())"),
        ("A: write x; N: read x", "cupy.cuda.Stream.null.wait_event(A.record())"),
        ("A: talloc x; B: read x; free x", "x.record_stream(B)"),
    ],
)
def test_fixes(program: str, fix: str) -> None:
    missing = only(run(translate(program))).missing
    assert missing is not None
    assert missing.fix == fix


def test_a_veto_leaves_no_access_but_takes_the_edge_for_granted() -> None:
    c = checker()
    c.access("A", [], [X], operation="fill")
    asked: list[list[Conflict]] = []

    def veto(conflicts: list[Conflict]) -> bool:
        asked.append(conflicts)
        return True

    found = c.access("B", [], [X], operation="scale", veto=veto)
    assert asked == [found]
    # B's write did not happen: A may read without waiting for it; B is taken to have waited for A
    assert c.access("A", [X], [], operation="sum") == []
    assert c.access("B", [PART], [], operation="sum") == []


def test_a_check_has_no_effect() -> None:
    c = checker()
    c.access("A", [], [X], operation="fill")
    assert len(c.check_access("B", [], [X], operation="scale")) == 1
    assert len(c.check_access("B", [], [X], operation="scale")) == 1
    assert len(c.access("B", [], [X], operation="scale")) == 1
    assert c.check_access("B", [], [X], operation="scale") == []


def test_one_missing_edge_one_conflict() -> None:
    c = checker()
    c.access("A", [], [X, PART], operation="fill")
    other = Use(Region(0, 8192, 8200))
    c.access("A", [], [other], operation="fill")
    assert len(c.access("B", [X, other], [PART], operation="add")) == 1
    assert c.access("B", [other], [], operation="sum") == []
    c.access("A", [X], [X], operation="add")
    assert len(c.access("B", [X], [], operation="sum")) == 2 - 1


def test_unknown_direction_is_possible_once_and_hides_nothing() -> None:
    c = checker()
    maybe = X._replace(certain=False)
    c.access("A", [], [X], operation="fill")
    assert only(c.access("B", [maybe], [maybe], operation="kernel")).confidence == "possible"
    assert c.access("B", [maybe], [maybe], operation="kernel") == []
    certain = only(c.access("B", [X], [], operation="sum"))
    assert certain.confidence == "certain"
    assert certain.first is not None and certain.first.operation == "fill"


def test_an_empty_array_touches_nothing() -> None:
    c = checker()
    empty = Use(Region(0, 4096, 4096, (0, 4), (16, 4), 4))
    c.access("A", [], [X, empty], operation="fill")
    assert c.access("B", [empty], [empty], operation="sum") == []


def test_plain_tuples_will_do() -> None:
    c = checker()
    use = ((0, 4096, 4160, None, None, 1), "x", None, True)
    c.access("A", [], [use], operation="fill")  # type: ignore[list-item]
    assert only(c.access("B", [use], [], operation="sum")).memory.name == "x"  # type: ignore[list-item]


def test_the_default_stream_of_a_device_is_one_queue_under_all_its_keys() -> None:
    c = checker()
    c.stream(0, kind="legacy", name="default")
    c.stream(1, kind="legacy")
    c.access(0, [], [X], operation="fill")
    assert c.access(1, [X], [], operation="sum") == []


def test_threads_have_clocks_of_their_own() -> None:
    for threads, expected in ((True, 1), (False, 0)):
        c = checker(threads=threads)
        c.access("A", [], [X], operation="fill", host=1)
        c.synchronize_stream("A", 1)
        assert len(c.access("B", [X], [], operation="sum", host=2)) == expected


@pytest.mark.parametrize("key", [("lock", 7), "queue item", 3])
def test_threads_learn_by_edges(key: object) -> None:
    c = checker(threads=True)
    c.access("A", [], [X], operation="fill", host=1)
    c.synchronize_stream("A", 1)
    c.host_edge(1, key)  # release, put, start
    c.host_edge(key, 2)  # acquire, get
    c.forget_host(key)
    assert c.access("B", [X], [], operation="sum", host=2) == []


def test_an_edge_before_the_sync_is_too_early() -> None:
    c = checker(threads=True)
    c.access("A", [], [X], operation="fill", host=1)
    c.host_edge(1, "lock")
    c.synchronize_stream("A", 1)
    c.host_edge("lock", 2)
    assert len(c.access("B", [X], [], operation="sum", host=2)) == 1


def test_a_host_write_of_another_thread_meets_a_copy() -> None:
    c = checker(threads=True)
    c.host_access([], [PINNED], operation="fill", host=1)
    conflict = only(c.access("A", [PINNED], [], operation="copy", host=2))
    assert conflict.facts.host == "writes"
    assert conflict.first is not None and conflict.first.timeline == "the host (thread 1)"


def test_two_threads_on_one_stream_are_ordered_as_they_came() -> None:
    c = checker(threads=True)
    c.access("A", [], [X], operation="fill", host=1)
    assert c.access("A", [X], [X], operation="add", host=2) == []


EVEN, ODD = (
    Use(Region(0, start, start + 120, (8, 2), (16, 4), 4), "tiles", "float32") for start in (4096, 4104)
)
ALL = Use(Region(0, 4096, 4224), "tiles", "float32")


@pytest.mark.parametrize(
    ("used", "missed"), [(ALL, False), (ODD, True)], ids=["covers some of it", "covers none of it"]
)
def test_a_wait_for_strided_parts_is_for_those_that_are_used(used: Use, missed: bool) -> None:
    c = checker()
    c.stream("C", name="stream_c")
    c.access("A", [], [EVEN], operation="tile")
    c.access("B", [], [ODD], operation="tile")
    c.record("e", "A")
    c.wait("C", "e")
    assert only(c.access("C", [used], [], operation="sum")).facts.ineffective_wait is missed


@pytest.mark.parametrize(
    ("recorded_by", "meant_for_another"), [(None, False), ("A", False), ("C", True)], ids=str
)
def test_what_a_wait_was_for_shows_later(recorded_by: str | None, meant_for_another: bool) -> None:
    c = checker()
    c.stream("C", name="stream_c")
    c.access("A", [], [X], operation="fill")
    c.wait("B", "e")
    conflict = only(c.access("B", [X], [], operation="sum"))
    assert conflict.facts.ineffective_wait and conflict.recheck_at_end is not None
    if recorded_by is not None:
        c.record("e", recorded_by)
    assert conflict.recheck_at_end() is meant_for_another


@pytest.mark.parametrize("used", [True, False])
def test_a_wait_that_is_needed_after_the_hazard_was_for_that(used: bool) -> None:
    other = Use(Region(0, 8192, 8256), "y")
    c = checker()
    c.stream("C", name="stream_c")
    c.access("C", [], [other], operation="fill")
    c.access("A", [], [X], operation="fill")
    c.record("e", "C")
    c.wait("B", "e")
    conflict = only(c.access("B", [X], [], operation="sum"))
    assert conflict.facts.ineffective_wait and conflict.recheck_at_end is not None
    assert not conflict.recheck_at_end()
    if used:
        c.access("B", [other], [], operation="sum")
    assert conflict.recheck_at_end() is used


@pytest.mark.parametrize("released", ["x", "y", "z"])
def test_what_is_released_is_clean_and_its_neighbours_are_not(released: str) -> None:
    program = "A: new x; A: new y; A: new z; A: write x; A: write y; A: write z; "
    program += f"free {released}; release {released}; B: read x; B: read y; B: read z"
    conflicts = run(translate(program))
    reported = "x" if released != "x" else "y"
    assert [conflict.memory.name for conflict in conflicts] == [
        reported
    ]  # one edge is missing, and assumed from then on
    alone = run(
        translate(
            f"A: new {released}; A: write {released}; free {released}; release {released}; B: read {released}"
        )
    )
    assert alone == []
