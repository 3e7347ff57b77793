"""Conflicts that come again, and what is forgotten, in the native core alone."""

from __future__ import annotations

import pytest

from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import Region, Use
from streamsafe.order.native.checker import NativeChecker
from streamsafe.order.native.library import Library

X = Use(Region(0, 4096, 8192))


def two_streams(library: Library) -> NativeChecker:
    checker = NativeChecker(library)
    checker.stream("a")
    checker.stream("b")
    return checker


def race(checker: NativeChecker, place: str = "here") -> list[Conflict]:
    """Conflicts of a write on one stream and then on the other."""
    return [
        conflict
        for stream in "ab"
        for conflict in checker.access(stream, (), [X], "add_", site=(place, stream))
    ]


def test_what_was_judged_is_counted(library: Library) -> None:
    checker = two_streams(library)
    (first,) = race(checker)
    (second,) = race(checker)[:1]  # `a` after `b`
    assert first.again != second.again and all((*first.again, *second.again))
    assert checker.judged(first.again[0]) and checker.judged(second.again[0])
    for _ in range(10):
        assert not race(checker)
    assert dict(checker.repeats()) == {first.again[0]: 11 - 1, second.again[0]: 10}
    assert not checker.repeats()
    assert len(race(checker, "elsewhere")) == 2  # other places
    checker.forget_judged()
    assert len(race(checker)) == 2


def test_the_state_is_the_same_as_if_it_had_been_reported(library: Library) -> None:
    """The operation is done, and the missing edge counts from then on."""
    told, counted = two_streams(library), two_streams(library)
    for _ in range(2):
        for conflict in race(counted):
            counted.judged(conflict.again[0])
        race(told)
    for _ in range(5):
        race(told)
        assert not race(counted)
        for checker in (told, counted):
            checker.record("event", "b")
            checker.wait("a", "event")
        assert [len(each.access("a", [X], (), "read")) for each in (told, counted)] == [0, 0]
        assert [each.operations for each in (told, counted)] == [told.operations] * 2


def test_a_wait_that_misses_makes_another_number(library: Library) -> None:
    checker = two_streams(library)
    checker.record("early", "a")

    def conflict(*, waits: bool) -> Conflict:
        checker.access("a", (), [X], "add_", site="first")
        if waits:
            checker.wait("b", "early", site="wait")
        (found,) = checker.access("b", (), [X], "mul_", site="second")
        checker.synchronize_device(0)
        checker.record("early", "a", site="record")
        return found

    plain, again, missed = conflict(waits=False), conflict(waits=False), conflict(waits=True)
    assert plain.again == again.again
    assert plain.again[0] == missed.again[0]
    assert plain.again[1] != missed.again[1]


def test_what_is_allowed_makes_another_number(library: Library) -> None:
    checker = two_streams(library)
    race(checker)
    (plain, _) = race(checker)
    assert library.allow(5) == 0
    (allowed, _) = race(checker)
    assert library.allow(0) == 5
    (again, _) = race(checker)
    assert plain.again == again.again
    assert allowed.again[0] == plain.again[0] and allowed.again[1] != plain.again[1]


def test_too_many_numbers(library: Library) -> None:
    checker = two_streams(library)
    assert all(checker.judged(number) for number in range(1, 4097))
    assert not checker.judged(5000)


def test_threads_that_end_are_forgotten(library: Library) -> None:
    checker = NativeChecker(library, threads=True)
    checker.stream("a")
    for number in range(100, 3100):
        checker.host_edge(1, ("start", number))
        checker.host_edge(("start", number), number)
        checker.forget_host(("start", number))
        checker.access("a", (), [X], "add_", host=number)
        checker.synchronize_stream("a", host=number)
        checker.host_edge(number, ("end", number))
        checker.forget_host(number)
        checker.host_edge(("end", number), 1)
        checker.forget_host(("end", number))
    kept = checker.sizes()
    assert kept["timelines"] < 600 and kept["hosts_and_locks"] < 5 and kept["keys"] == 0


def test_streams_that_are_destroyed_are_forgotten(library: Library) -> None:
    """Each comes after the one before; nobody waits for the last one, or for the device."""
    checker = NativeChecker(library)
    checker.stream(0)
    for number in range(1, 3000):
        checker.stream(number)
        checker.record("event", number - 1)
        checker.wait(number, "event")
        assert not checker.access(number, (), [X], "add_")
        checker.destroy_stream(number - 1)
    assert checker.sizes()["timelines"] < 600


@pytest.mark.parametrize("waits", [True, False])
def test_what_a_destroyed_stream_knew_is_not_forgotten(library: Library, waits: bool) -> None:
    """The host that waits for its device knows of the work on another one that it had waited for."""
    checker = NativeChecker(library)
    y = Use(Region(1, 4096, 8192))
    checker.stream("other", device=1)
    checker.access("other", (), [y], "add_")
    checker.record("event", "other")
    checker.stream("here", device=0)
    checker.wait("here", "event")
    checker.destroy_stream("here")
    for number in range(1000):  # enough that what is gone is looked for
        checker.stream(number, device=0)
        checker.destroy_stream(number)
    if waits:
        checker.synchronize_device(0)
    assert bool(checker.host_access([y])) is not waits


def test_graphs_that_are_dropped_are_forgotten(library: Library) -> None:
    checker = two_streams(library)
    for _ in range(2000):
        checker.capture_begin("a")
        checker.access("a", (), [X], "add_")
        graph = checker.capture_end("a")
        assert not checker.replay(graph, "a")
        checker.drop_graph(graph)
    assert checker.sizes()["graphs"] < 600
