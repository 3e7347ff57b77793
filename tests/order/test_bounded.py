"""Memory is bounded by live memory and streams, not by how much happens. Counts, no clocks on the wall."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.decide import FEW_CELLS, SWEEP_EVERY
from streamsafe.order.memory import Region, Use

OPERATIONS = 20_000
ARRAYS = [Use(Region(0, 4096 + 1024 * n, 4096 + 1024 * n + 1000)) for n in range(20)]


def checker() -> Checker:
    made = Checker()
    for key in range(4):
        made.stream(key)
    return made


def frozen_weights(c: Checker, n: int) -> None:
    """Everybody reads the same array for ever, and nobody waits for anybody."""
    c.access(n % 4, ARRAYS[:1], operation="matmul")


def ping_pong(c: Checker, n: int) -> None:
    """Two streams hand an array to and fro; the host never waits."""
    here, there = n % 2, 1 - n % 2
    c.access(here, ARRAYS[:2], ARRAYS[2:3], operation="step")
    c.record("e", here)
    c.wait(there, "e")


def slices(c: Checker, n: int) -> None:
    """Ranges that cut one another, on one stream."""
    start = 4096 + (n * 37) % 900
    c.access(0, [], [Use(Region(0, start, start + n % 91 + 1))], operation="slice")


def columns(c: Checker, n: int) -> None:
    """Columns of a matrix, in an order in which they never join."""
    start = 4096 + (n * 7) % 64
    c.access(0, [], [Use(Region(0, start, start + 64 * 15 + 1, (16,), (64,)))], operation="column")


def maybe(c: Checker, n: int) -> None:
    """Parameters of unknown direction."""
    c.access(n % 4, [], [ARRAYS[n % 3]._replace(certain=False)], operation="kernel")


def pool(c: Checker, n: int) -> None:
    """Blocks of many sizes come and go in one arena."""
    start = 4096 + 512 * ((n * 13) % 40)
    c.allocate(0, start, 512 * (n % 5 + 1), stream=0, owner="cupy")
    c.access(0, [], [Use(Region(0, start, start + 512))], operation="fill")
    c.free(0, start)


def short_lived_streams(c: Checker, n: int) -> None:
    """A stream for each step, ordered by an event, the host waiting now and then."""
    c.stream("side", name="side")
    c.record("e", 0)
    c.wait("side", "e")
    c.access("side", ARRAYS[:1], ARRAYS[1:2], operation="step")
    c.record("f", "side")
    c.wait(0, "f")
    c.access(0, ARRAYS[1:2], operation="use")
    c.destroy_stream("side")
    if n % 1000 == 0:
        c.synchronize_device(0)


def new_memory(c: Checker, n: int) -> None:
    """Ever new addresses, and a host that waits."""
    c.access(0, [], [Use(Region(0, n * 4096 + 4096, n * 4096 + 5000))], operation="fill")
    if n % 100 == 0:
        c.synchronize_stream(0)


@pytest.mark.parametrize(
    ("step", "limit"),
    [
        (frozen_weights, 4),
        (ping_pong, 6),
        (slices, 1000),
        (columns, 64 * 34),
        (maybe, 12),
        (pool, 60),
        (short_lived_streams, 2 * SWEEP_EVERY),
        (new_memory, SWEEP_EVERY + 200),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_records_are_bounded(step: Callable[[Checker, int], None], limit: int) -> None:
    c = checker()
    most = 0
    rounds = OPERATIONS if step in (frozen_weights, ping_pong) else OPERATIONS // 4
    for n in range(rounds):
        step(c, n)
        if n % 997 == 0:
            most = max(most, c.remembered())
    assert max(most, c.remembered()) <= limit


def test_clocks_forget_streams_that_are_gone() -> None:
    c = checker()
    for n in range(1000):
        short_lived_streams(c, n)
    c.synchronize_device(0)
    c._sweep()
    assert len(c.timeline(0).clock) <= 6
    assert len(c.timeline(0).served) <= 6
    assert all(len(event.clock) <= 6 for event in c._events.values())
    assert len(c._gone) == 0


def test_a_stream_that_is_gone_is_known_while_its_work_is_remembered() -> None:
    c = checker()
    c.stream("side")
    c.access("side", [], ARRAYS[:1], operation="fill")
    c.record("e", "side")
    c.wait(0, "e")
    c.destroy_stream("side")
    c._sweep()
    assert c.access(0, ARRAYS[:1], operation="use") == []
    (missed,) = c.access(1, ARRAYS[:1], operation="early")
    assert missed.first is not None and missed.first.operation == "fill"


@pytest.mark.parametrize(("parts", "kept"), [(FEW_CELLS, FEW_CELLS), (FEW_CELLS + 1, 1)])
def test_parts_of_an_array_become_one_again_when_they_are_many(parts: int, kept: int) -> None:
    """A few are kept apart: a loop that writes all of it and looks at a part does not cut and merge in each round."""
    c = checker()
    for part in range(parts):
        c.access(0, [Use(Region(0, part * 64, part * 64 + 64))], operation="part")
    c.access(0, [], [Use(Region(0, 0, parts * 64))], operation="whole")
    assert c.remembered() == kept
    c.access(0, [], [Use(Region(0, 0, parts * 64))], operation="whole again")
    assert c.remembered() == kept


@pytest.mark.parametrize("sure", [True, False])
def test_neighbours_of_unlike_certainty_stay_apart(sure: bool) -> None:
    """One epoch, side by side: what is only possible for one column is not for the other."""
    c = checker()
    c.allocate(0, 4096, 4096, stream=0, owner="cupy")
    first, second = (
        Use(Region(0, 4096 + at, 4096 + at + 15 * 256 + 4, (16, 1), (256, 4), 4)) for at in (0, 4)
    )
    c.access(0, [], [first._replace(certain=sure), second._replace(certain=not sure)], operation="kernel")
    for stream, column, certain in ((1, first, sure), (2, second, not sure)):
        (found,) = c.access(stream, [column], operation="read")
        assert found.confidence == ("certain" if certain else "possible")


@pytest.mark.parametrize("columns", [1, 3])
def test_views_of_an_array_lie_in_one_cell(columns: int) -> None:
    """Whatever their borders: each column of a matrix begins and ends elsewhere, and is looked at in one place."""
    c = checker()
    c.allocate(0, 4096, 4096, stream=0, owner="cupy")
    for column in range(0, 60, columns):
        start = 4096 + 4 * column
        hull = Region(0, start, start + 15 * 256 + 4 * columns, (16, columns), (256, 4), 4)
        c.access(0, [], [Use(hull)], operation="column")
    assert len(c._shadows[0].cells) == 1
    assert c.remembered() == 1  # neighbours of one epoch are one access
