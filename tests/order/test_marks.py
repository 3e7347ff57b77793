"""What the engine keeps beside the order itself: counts, histories, what a graph has from itself."""

from __future__ import annotations

from typing import Any

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.clocks import Timeline
from streamsafe.order.memory import HOST, PARTIAL_LIMIT, Block, Cell, Partial, Record, Region, Use, _joined
from streamsafe.order.views import View, _interleaved


def use(start: int, stop: int, **more: Any) -> Use:
    return Use(Region(0, start, stop, more.pop("shape", None), more.pop("strides", None)), "x", **more)


def streams(*names: str) -> Checker:
    checker = Checker()
    for name in names:
        checker.stream(name, name=name)
    return checker


def test_each_operation_counts_once() -> None:
    checker = streams("A", "B")
    pinned = Use(Region(HOST, 0, 10), "h")
    checker.access("A", [], [use(0, 10)])
    checker.access("A", [use(0, 10)], [pinned])
    checker.record("e", "A")
    checker.wait("B", "e")
    checker.synchronize_event("e")
    assert checker.operations == 5
    checker.host_access([pinned], [], operation="read")
    assert checker.operations == 6
    assert checker.host_in_order([], [pinned])
    assert checker.operations == 7


@pytest.mark.parametrize(
    ("written", "read", "of_its_own"),
    [
        (use(100, 200), use(100, 200), True),
        (use(100, 200), use(120, 180), True),
        (use(100, 200), use(99, 200), False),
        (use(100, 200), use(100, 201), False),
        (use(100, 200), use(200, 300), False),
        (use(100, 200, certain=False), use(120, 180), False),
        (use(100, 200, shape=(10,), strides=(10,)), use(120, 180), False),
    ],
)
def test_what_a_graph_reads_after_it_has_written_all_of_it_is_its_own(
    written: Use, read: Use, of_its_own: bool
) -> None:
    checker = streams("A")
    checker.capture_begin("A")
    for _ in range(2):
        checker.access("A", [], [written])
    checker.access("A", [read], [])
    graph = checker.capture_end("A")
    modes = [each.mode for each in graph.accesses]
    assert modes == ["writes"] if of_its_own else modes == ["writes", "reads"]


def test_what_a_graph_wrote_into_an_earlier_block_is_not_its_own() -> None:
    checker = streams("A")
    checker.allocate(0, 100, 100, stream="A", owner="cupy")
    checker.capture_begin("A")
    checker.access("A", [], [use(100, 200)])
    checker.free(0, 100)
    checker.allocate(0, 100, 100, stream="A", owner="cupy")
    checker.access("A", [use(120, 180)], [])
    assert [each.mode for each in checker.capture_end("A").accesses] == ["writes", "reads"]


@pytest.mark.parametrize(
    ("taker", "waits", "writer", "conflicts"),
    [
        ("A", False, "A", 1),
        ("A", True, "A", 0),
        ("A", True, "D", 0),  # to order its own uses is the new owner's affair
        ("B", False, "B", 0),
        ("C", False, "A", 1),  # not captured: nothing that was captured comes before it
    ],
)
def test_memory_that_is_handed_out_again_inside_a_capture(
    taker: str, waits: bool, writer: str, conflicts: int
) -> None:
    """A branch uses a block, which is freed and given to ``taker``: what uses it then has to come after."""
    checker = streams("A", "B", "C", "D")
    checker.capture_begin("A")
    checker.record("begun", "A")
    for branch in "BD":
        checker.wait(branch, "begun")
    checker.allocate(0, 100, 100, stream="B", owner="cupy")
    checker.access("B", [use(100, 200)], [], "read")
    checker.free(0, 100)
    checker.record("read", "B")
    if waits:
        checker.wait("A", "read")
    checker.allocate(0, 100, 100, stream=taker, owner="cupy")
    checker.access(writer, [], [use(100, 200)], "write")
    for branch in "BD":
        checker.record("end", branch)
        checker.wait("A", "end")
    assert len(checker.capture_end("A").conflicts) == conflicts


def test_a_launch_that_clobbers_an_array_names_its_last_use() -> None:
    checker = streams("A")
    checker.capture_begin("A")
    checker.allocate(0, 100, 100, stream="A", owner="cupy")
    checker.access("A", [], [use(100, 200)], "captured")
    checker.free(0, 100)
    graph = checker.capture_end("A")
    checker.allocate(0, 100, 50, stream="A", owner="cupy")
    checker.allocate(0, 150, 50, stream="A", owner="cupy")
    checker.access("A", [], [use(100, 150)], "first")
    checker.access("A", [use(100, 120)], [], "second")
    checker.access("A", [use(120, 150)], [], "third")
    checker.access("A", [], [use(150, 200)], "of the other array")
    (conflict,) = checker.replay(graph, "A")
    assert conflict.first is not None and conflict.first.operation == "third"
    assert (conflict.memory.start, conflict.memory.stop) == (100, 150)


def test_what_is_latent_is_found_behind_what_is_not() -> None:
    """A graph's launch and a possible access in a cell do not hide the use behind them."""
    checker = streams("A", "B")
    checker.allocate(0, 100, 100, stream="A", owner="cupy")
    checker.synchronize_device(0)
    checker.access("B", [use(100, 200, certain=False)], [], "maybe")
    checker.access("B", [use(100, 150, shape=(5,), strides=(10,))], [], "read")
    checker.free(0, 100)
    assert [conflict.first.operation for conflict in checker.finish() if conflict.first] == ["read"]


def test_timelines_forget_whom_they_needed_when_it_is_gone() -> None:
    checker = streams("A")
    line = checker.timeline("A")
    for number in range(2000):
        checker.stream(number)
        checker.access(number, [], [use(100, 200)])
        checker.record("e", number)
        checker.wait("A", "e")
        checker.access("A", [use(100, 200)], [])
        checker.synchronize_stream("A")
        checker.destroy_stream(number)
    assert len(line.served) < 1500


@pytest.mark.parametrize(
    ("second", "apart"),
    [
        (View(130, 10, ((5, 100),)), False),
        (View(135, 10, ((5, 100),)), False),
        (View(140, 10, ((5, 100),)), True),
        (View(110, 10, ((5, 100),)), True),
        (View(121, 10, ((5, 100),)), False),
        (View(10, 20, ((5, 100),)), True),
        (View(10, 21, ((5, 100),)), False),
        (View(125, 10, ((5, 100),)), False),
        (View(140, 90, ((5, 100),)), True),
        (View(140, 91, ((5, 100),)), False),
        (View(140, 10, ((3, 250), (5, 100))), False),
        (View(140, 10, ((3, 300), (5, 100))), True),
    ],
)
def test_views_that_take_turns(second: View, apart: bool) -> None:
    """Rows of 100 bytes, of which the first view has ten, beginning with the thirtieth."""
    first = View(30, 10, ((5, 100),))
    assert _interleaved(first, second) is apart


LINE, OTHER = (Timeline(name, 0, "non-blocking", name) for name in "AB")
BLOCKS = [Block(0, 0, 1000, "cupy", LINE, "", None) for _ in range(2)]


def column(
    start: int = 0,
    run: int = 10,
    *,
    dims: tuple[tuple[int, int], ...] = ((5, 100),),
    line: Timeline = LINE,
    count: int = 1,
    mode: Any = "reads",
    certain: bool = True,
    block: Block | None = BLOCKS[0],
) -> Partial:
    return Partial(Record(line, count, "f", None, 1), mode, View(start, run, dims), certain, block)


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        (column(10), (0, 20)),
        (column(5, 30), (0, 35)),
        (column(2, 3), (0, 10)),
        (column(0, 100), (0, 100)),
        (column(11), None),
        (column(10, 91), None),
        (column(10, dims=((6, 100),)), None),
        (column(10, line=OTHER), None),
        (column(10, count=2), None),
        (column(10, mode="writes"), None),
        (column(10, certain=False), None),
        (column(10, block=BLOCKS[1]), None),
        (column(10)._replace(view=None), None),
    ],
)
def test_columns_that_lie_side_by_side_are_one_access(
    second: Partial, joined: tuple[int, int] | None
) -> None:
    for pair in ((column(), second), (second, column())):
        found = _joined(*pair)
        view = found.view if found is not None else None
        assert (view and (view.start, view.run)) == joined


@pytest.mark.parametrize("views", [PARTIAL_LIMIT, PARTIAL_LIMIT + 1])
def test_so_many_views_of_a_cell_are_kept_apart(views: int) -> None:
    """One more, and two that stand for all are left, of which nothing is certain."""
    cell = Cell(0, 1000)
    for number in range(views):
        mode: Any = "reads" if number % 2 else "writes"
        cell.commit_partial(column(number, 1, dims=((2, 100 + number),), mode=mode, block=None))
    kept = cell.partial or []
    if views == PARTIAL_LIMIT:
        assert len(kept) == views and all(each.certain and each.view for each in kept)
    else:
        assert [(each.mode, each.view, each.certain) for each in kept] == [
            ("reads", None, False),
            ("writes", None, False),
        ]


@pytest.mark.parametrize(("start", "size", "again"), [(100, 100, True), (100, 99, False), (100, 101, False)])
def test_a_block_that_is_handed_out_as_it_was_is_the_same(start: int, size: int, again: bool) -> None:
    checker = streams("A")
    first = checker.allocate(0, 100, 100, stream="A", owner="cupy")
    checker.access("A", [], [use(100, 200)])
    checker.free(0, 100)
    assert (checker.allocate(0, start, size, stream="A", owner="cupy") is first) is again


@pytest.mark.parametrize(
    ("known", "kept"),
    [({}, "abc"), ({"a": 1}, "bc"), ({"a": 9}, "bc"), ({"b": 2}, "ac"), ({"a": 1, "b": 2}, "c")],
)
def test_reads_that_a_read_comes_after_are_forgotten(known: dict[str, int], kept: str) -> None:
    """A cell keeps one read for each timeline, without those that a later read is ordered after."""
    lines = {name: Timeline(name, 0, "non-blocking", name) for name in "abc"}
    for order in (("a", "b"), ("b", "a")):
        cell = Cell(0, 10)
        lines["c"].clock = {}
        cell.commit_read(Record(lines["c"], 1, "c", None, 1))
        for name in order:
            cell.commit_read(Record(lines[name], "ab".index(name) + 1, name, None, 2))
        lines["c"].clock = {lines[name].id: count for name, count in known.items()}
        cell.commit_read(Record(lines["c"], 2, "c", None, 3))
        assert cell.read is not None and cell.read.count == 2
        readers = [each.operation for each in (cell.readers or {}).values()]
        assert sorted(["c", *readers]) == list(kept)
        assert (cell.readers is None) is (kept == "c")
