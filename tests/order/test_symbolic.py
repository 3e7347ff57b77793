"""The symbolic engine: like the concrete one where there is one path, and exact where there are many.

Programs are trees of statements. The judge walks every path (all values of the conditions, all numbers of rounds of
every loop) and asks the brute-force oracle of each; the symbolic engine sees the program once. No missing edge is
assumed after a conflict, so that one verdict does not depend on another.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsafe.order import edges
from streamsafe.order.checker import Checker
from streamsafe.order.edges import Carrier
from streamsafe.order.memory import Region, Use
from streamsafe.order.symbolic import ALWAYS, HOST, MOST_WAYS, Carriers, Guard, Made, Order
from tests.order.judge import BUFFERS, KINDS, Step, judge, number

SIZE = 8


class Streams:
    """One device, as the edge rules ask for it."""

    def is_legacy(self, stream: Carrier) -> bool:
        return stream == "N"

    def is_blocking(self, stream: Carrier) -> bool:
        return stream in ("P", "Q")

    def legacy_of(self, stream: Carrier) -> Carrier:
        return "N"

    def blocking_of(self, stream: Carrier) -> Iterable[Carrier]:
        return ("P", "Q")

    def streams_of(self, device: Carrier) -> Iterable[Carrier]:
        return tuple(KINDS)


TOPOLOGY = Streams()

# A statement: a step, ("if", condition, body, otherwise), ("loop", body), ("choose", condition, step, step).


# -- the symbolic engine sees the program once ----------------------------------------------------------------


class Interpreter:
    """The least that drives the engine: branches with guards, joins, loops to the fixpoint."""

    def __init__(self) -> None:
        self.carriers = Carriers()
        self.found: set[int] = set()

    def run(self, program: list[Any]) -> set[int]:
        # what is found is named by its second access, so that any access may stand for a later read
        self.body(number(program), Order(self.carriers, stands_for=lambda *_: True), ALWAYS)
        return self.found

    def body(self, statements: list[Any], order: Order, path: Guard) -> Order:
        for statement in statements:
            order = self.statement(statement, order, path)
        return order

    def statement(self, statement: Any, order: Order, path: Guard) -> Order:
        action = statement[0]
        if action == "if":
            _, condition, body, otherwise = statement
            bit = 1 << condition
            sides: list[tuple[Order | None, Guard]] = []
            for guard, branch in ((Guard(bit, 0), body), (Guard(0, bit), otherwise)):
                if path.contradicts(guard):
                    sides.append((None, guard))
                    continue
                side = order.copy()
                only = guard.without(path)
                side.assume(only)
                sides.append((self.body(branch, side, path & guard), only))
            (first, first_only), (second, second_only) = sides
            if first is None or second is None:
                taken = first if second is None else second
                assert taken is not None
                return taken
            return Order.join(first, (first_only,), second, (second_only,))
        if action == "loop":
            head = order
            for _ in range(12):
                after = self.body(statement[1], head.copy(), path)
                joined = Order.join(head, (ALWAYS,), after, (ALWAYS,))
                if joined == head:
                    return head
                head = joined
            raise AssertionError("no fixpoint")
        if action == "choose":
            _, condition, first_step, second_step = statement
            bit = 1 << condition
            for guard, step in ((Guard(bit, 0), first_step), (Guard(0, bit), second_step)):
                if not path.contradicts(guard):
                    self.step(step, order, path, guard.without(path))
            return order
        self.step(statement, order, path, ALWAYS)
        return order

    def step(self, step: Any, order: Order, path: Guard, guard: Guard) -> None:
        action, site, *rest = step
        if action in ("read", "write"):
            stream, buffer = rest
            order.obey(edges.launch(stream, HOST, TOPOLOGY), guard)
            if order.conflicts(buffer, None, action == "write", stream, path & guard):
                self.found.add(site)
            order.add(Made(site, buffer, None, action == "write", stream), guard)
        elif action in ("host read", "host write"):
            if order.conflicts(rest[0], None, action == "host write", HOST, path & guard):
                self.found.add(site)
        elif action == "record":
            event, stream = rest
            order.obey(edges.record(event, stream, HOST, TOPOLOGY), guard)
        elif action == "wait":
            stream, event = rest
            order.obey(edges.wait(stream, event, HOST, TOPOLOGY), guard)
        elif rest[0] == "stream":
            order.obey(edges.synchronize_stream(HOST, rest[1], TOPOLOGY), guard)
        elif rest[0] == "event":
            order.obey(edges.synchronize_event(HOST, rest[1]), guard)
        else:
            order.obey(edges.synchronize_device(HOST, 0, TOPOLOGY), guard)


# -- one path: the two engines agree --------------------------------------------------------------------------

streams = st.sampled_from(sorted(KINDS))
few = st.sampled_from(["A", "B"])
buffers = st.sampled_from(sorted(BUFFERS))
events = st.sampled_from(["e", "f"])


def steps(stream: st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    return st.one_of(
        st.tuples(st.sampled_from(["read", "write"]), stream, buffers),
        st.tuples(st.sampled_from(["read", "write"]), stream, buffers),
        st.tuples(st.sampled_from(["host read", "host write"]), buffers),
        st.tuples(st.just("record"), events, stream),
        st.tuples(st.just("wait"), stream, events),
        st.tuples(st.just("sync"), st.just("stream"), stream),
        st.tuples(st.just("sync"), st.just("event"), events),
        st.tuples(st.just("sync"), st.just("device"), st.just(0)),
    )


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(steps(streams), max_size=25))
def test_one_path_both_engines_agree(program: list[Step]) -> None:
    """After a conflict both go on as if the second timeline had waited, for what the concrete engine names."""
    checker = Checker()
    for key, kind in KINDS.items():
        checker.stream(key, kind=kind, name=key)  # type: ignore[arg-type]
    symbolic, order = Interpreter(), Order(Carriers())
    for site, (action, *rest) in enumerate(program):
        if action == "record":
            checker.record(*rest)
        elif action == "wait":
            checker.wait(*rest)
        elif action == "sync":
            getattr(checker, f"synchronize_{rest[0]}")(rest[1])
        else:
            buffer, writes = rest[-1], action.endswith("write")
            use = [Use(Region(0, BUFFERS[buffer], BUFFERS[buffer] + SIZE), buffer)]
            both = ([], use) if writes else (use, [])
            line = HOST if action.startswith("host") else rest[0]
            if line == HOST:
                found = checker.host_access(*both, operation=action)
            else:
                found = checker.access(line, *both, operation=action)
                order.obey(edges.launch(line, HOST, TOPOLOGY))
            concrete = {conflict.missing.source for conflict in found if conflict.missing}
            expected = {made.timeline for made, _ in order.conflicts(buffer, None, writes, line)}
            assert concrete <= expected
            assert bool(concrete) == bool(expected)
            for source in sorted(concrete):
                order.learn(line, source)
            # an earlier read that a later one comes after needs no edge of its own: the concrete engine names the last
            assert not order.conflicts(buffer, None, writes, line)
            order.add(Made(site, buffer, None, writes, line))
            continue
        symbolic.step((action, site, *rest), order, ALWAYS, ALWAYS)


# -- many paths: the symbolic engine and the judge agree ------------------------------------------------------


def programs(depth: int, stream: st.SearchStrategy[str]) -> st.SearchStrategy[list[Any]]:
    step = steps(stream)
    choice = st.tuples(st.just("choose"), st.integers(0, 1), step, step)
    if depth == 0:
        return st.lists(st.one_of(step, step, choice), max_size=3)
    inner = programs(depth - 1, stream)
    return st.lists(
        st.one_of(
            step,
            step,
            choice,
            st.tuples(st.just("if"), st.integers(0, 1), inner, inner),
            st.tuples(st.just("loop"), inner),
        ),
        max_size=5,
    )


@settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs(1, few))
def test_branches_and_loops(program: list[Any]) -> None:
    assert Interpreter().run(program) == judge(program, 2, 3)


@settings(
    max_examples=settings().max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs(1, streams))
def test_branches_and_loops_with_the_default_stream(program: list[Any]) -> None:
    assert Interpreter().run(program) == judge(program, 2, 3)


ALPHABET: list[Step] = [
    ("write", "A", "x"),
    ("read", "B", "x"),
    ("record", "e", "A"),
    ("wait", "B", "e"),
    ("record", "e", "B"),
    ("wait", "A", "e"),
    ("sync", "stream", "A"),
]
SHAPES = {
    "straight": lambda a, b, c, d, e: [a, b, c, d, e],
    "correlated": lambda a, b, c, d, e: [("if", 0, [a], []), b, ("if", 0, [c], [d]), e],
    "opposed": lambda a, b, c, d, e: [("if", 0, [a], [b]), c, ("if", 0, [], [d]), e],
    "two conditions": lambda a, b, c, d, e: [("if", 0, [a], []), ("if", 1, [b], [c]), d, ("if", 0, [e], [])],
    "chosen": lambda a, b, c, d, e: [("choose", 0, a, b), c, ("choose", 0, d, e)],
    "nested": lambda a, b, c, d, e: [a, ("if", 0, [("if", 1, [b], []), c], [d]), ("if", 1, [e], [])],
    "loop": lambda a, b, c, d, e: [a, ("loop", [b, c, d]), e],
    "loop with a branch": lambda a, b, c, d, e: [a, ("loop", [b, ("if", 0, [c], [d])]), e],
    "branch with a loop": lambda a, b, c, d, e: [a, ("if", 0, [("loop", [b, c])], [d]), ("if", 0, [e], [])],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_short_program(shape: str) -> None:
    """All 16,807 fillings of a shape, but for those in which no two accesses can meet."""
    for filling in product(ALPHABET, repeat=5):
        if ALPHABET[0] in filling and ALPHABET[1] in filling:
            program = SHAPES[shape](*filling)
            assert Interpreter().run(program) == judge(program, 2, 3), program


def test_an_access_stands_in_a_bounded_number_of_ways() -> None:
    """Of more ways than are followed the most exposed stay: what no wait covers is still found."""
    order = Order(Carriers())
    order.add(Made("write", "x", None, True, "A"))
    for condition in range(12):
        order.learn(f"E{condition}", "A", guard=Guard(1 << condition, 0))
    (ways,) = order.accesses("x").values()
    assert len(ways) == MOST_WAYS
    assert min(way.carriers.bit_count() for way in ways) == 1
    assert order.conflicts("x", None, False, "B")
    order.learn("B", "A")
    assert not order.conflicts("x", None, False, "B")


def test_a_read_is_kept_once_until_somebody_learns_of_it() -> None:
    """An access stands for later reads of its stream; one that others know of stands for none."""
    order = Order(Carriers(), stands_for=lambda named, other: named == other)
    reads = [Made(f"read {n}", "x", None, False, "A", "same") for n in range(3)]
    order.add(reads[0])
    order.add(reads[1])
    assert list(order.accesses("x")) == reads[:1]
    order.learn("B", "A")
    order.add(reads[2])  # B knows of the first only
    assert list(order.accesses("x")) == [reads[0], reads[2]]
    assert [made for made, _ in order.conflicts("x", None, True, "B")] == [reads[2]]


@pytest.mark.parametrize(
    ("made", "guard", "alone"),
    [
        (Made("w", "x", None, True, "A", "same"), ALWAYS, True),
        (Made("r", "x", None, False, "B", "same"), ALWAYS, True),
        (Made("r", "x", None, False, "A", "other"), ALWAYS, True),
        (Made("r", "x", None, False, "A", "same"), ALWAYS, False),
    ],
)
def test_an_access_that_nothing_stands_for_is_kept(made: Made, guard: Guard, alone: bool) -> None:
    """A write, a read of another stream, one that leans on less, one of several memories."""
    order = Order(Carriers(), stands_for=lambda named, other: named == other)
    order.add(Made("first", "x", None, False, "A", "same"))
    order.add(made, guard, alone=alone)
    assert made in order.accesses("x")


def test_a_read_under_a_weaker_guard_is_kept() -> None:
    order = Order(Carriers(), stands_for=lambda named, other: True)
    order.add(Made("first", "x", None, False, "A"), Guard(1, 0))
    order.add(Made("inside", "x", None, False, "A"), Guard(3, 0))
    assert len(order.accesses("x")) == 1
    order.add(Made("always", "x", None, False, "A"))
    assert len(order.accesses("x")) == 2


def test_what_is_summed_up_of_a_table() -> None:
    """The sums by which tables are left alone say what going through the accesses says."""
    order = Order(Carriers())
    order.add(Made("first", "x", None, True, "A"), Guard(1, 0))
    order.add(Made("second", "x", None, False, "B"), Guard(0, 6))
    order.learn("C", "A")
    ways = [way for ways in order.accesses("x").values() for way in ways]
    some, every, conditions = order.accesses("x").summary
    assert some == ways[0].carriers | ways[1].carriers
    assert every == ways[0].carriers & ways[1].carriers
    assert conditions == order.conditions() == 7


@pytest.mark.parametrize(
    ("taken", "stays"),
    [
        ([Guard(0, 1)], False),
        ([Guard(0, 1), Guard(0, 3)], False),
        ([Guard(1, 0)], True),
        ([Guard(2, 0)], True),
        ([Guard(0, 1), Guard(1, 0)], True),
    ],
)
def test_what_contradicts_a_branch_has_not_happened_there(taken: list[Guard], stays: bool) -> None:
    order = Order(Carriers())
    order.add(Made("write", "x", None, True, "A"), Guard(1, 0))
    order.assume(*taken)
    assert bool(order.accesses("x")) is stays
