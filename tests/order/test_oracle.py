"""The concrete engine against a brute-force oracle, on random programs: equal both ways."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsafe.order.checker import Checker
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import Region, Use
from tests.order.oracle import Access, Oracle

STREAMS = {"A": "non-blocking", "B": "non-blocking", "P": "blocking", "Q": "blocking", "N": "legacy"}
BASE, SLOT, SLOTS = 4096, 12, 2

streams = st.sampled_from(sorted(STREAMS))
slots = st.integers(0, SLOTS - 1)
events = st.sampled_from(["e", "f"])


@st.composite
def regions(draw: st.DrawFn) -> tuple[Region, frozenset[int]]:
    """A few bytes of a slot: all of it, a range, or a strided view; with the bytes as a set."""
    base = BASE + SLOT * draw(slots)
    shape = draw(st.sampled_from(["all", "all", "range", "strided"]))
    if shape == "all":
        return Region(0, base, base + SLOT), frozenset(range(base, base + SLOT))
    start = draw(st.integers(0, SLOT - 2))
    if shape == "range":
        stop = draw(st.integers(start, SLOT))
        return Region(0, base + start, base + stop), frozenset(range(base + start, base + stop))
    step, size = draw(st.sampled_from([(2, 1), (3, 1), (3, 2)]))
    count = draw(st.integers(1, max(1, (SLOT - start - size) // step + 1)))
    stop = start + (count - 1) * step + size
    if stop > SLOT:
        return Region(0, base, base), frozenset()
    region = Region(0, base + start, base + stop, (count, size), (step, 1))
    return region, frozenset(base + start + i * step + j for i in range(count) for j in range(size))


FIXED = [(0, SLOT), (SLOT, 2 * SLOT), (0, SLOT // 2)]
"""Offsets of a few ranges: both slots, and half of the first."""


@st.composite
def fixed_regions(draw: st.DrawFn) -> tuple[Region, frozenset[int]]:
    """One of a few ranges: programs touch the same bytes again and again, as real ones do, which is the fast path."""
    start, stop = draw(st.sampled_from([FIXED[0], FIXED[0], FIXED[1], FIXED[1], FIXED[2]]))
    return Region(0, BASE + start, BASE + stop), frozenset(range(BASE + start, BASE + stop))


uses = st.lists(st.tuples(regions(), st.booleans()), min_size=1, max_size=2)
fixed_uses = st.lists(st.tuples(fixed_regions(), st.booleans()), min_size=1, max_size=2)
syncs = st.one_of(
    st.tuples(st.just("stream"), streams),
    st.tuples(st.just("event"), events),
    st.tuples(st.just("device"), st.just(0)),
)
order_steps = [
    st.tuples(st.just("record"), events, streams),
    st.tuples(st.just("wait"), streams, events),
    st.tuples(st.just("sync"), syncs),
]
# Each is a strategy of its own: ``one_of`` takes the same one given twice for one.
access_steps = [st.tuples(st.just("access"), streams, uses) for _ in range(3)]
fixed_access_steps = [st.tuples(st.just("access"), streams, fixed_uses) for _ in range(8)]
pool_steps = [
    st.tuples(st.just("allocate"), slots, streams),
    st.tuples(st.just("free"), slots),
    st.tuples(st.just("record_stream"), slots, streams),
    st.tuples(st.just("destroy"), st.sampled_from(["A", "B", "P"])),
]
host_steps = [st.tuples(st.just("host_access"), uses)]
fixed_host_steps = [st.tuples(st.just("host_access"), fixed_uses)]


class Pair:
    """The engine and the oracle, told the same; every verdict compared."""

    def __init__(self, *, threads: bool = False, torch: bool = False) -> None:
        self.checker = Checker(threads=threads)
        self.oracle = Oracle()
        self.torch = torch
        self.number = 0
        for key in STREAMS:
            self.open(key)

    def open(self, key: str) -> None:
        self.checker.stream(key, kind=STREAMS[key], name=key)  # type: ignore[arg-type]
        self.oracle.stream(key, 0, STREAMS[key])

    def step(self, step: tuple[Any, ...], host: object = None) -> None:
        action, *rest = step
        checker, oracle = self.checker, self.oracle
        if action == "record":
            event, stream = rest
            checker.record(event, stream, host=host)
            oracle.record(event, stream, host)
        elif action == "wait":
            stream, event = rest
            checker.wait(stream, event, host=host)
            oracle.wait(stream, event, host)
        elif action == "sync":
            kind, name = rest[0]
            getattr(checker, f"synchronize_{kind}")(name, host)
            oracle.synchronize(host, kind, name)
        elif action == "host_edge":
            checker.host_edge(*rest)
            oracle.host_edge(*rest)
        elif action == "destroy":
            checker.destroy_stream(rest[0])
            oracle.destroy(rest[0])
            self.open(rest[0])
        elif action == "allocate":
            start = BASE + SLOT * rest[0]
            if start not in oracle.blocks:
                owner = "torch" if self.torch else "cupy"
                checker.allocate(0, start, SLOT, stream=rest[1], owner=owner, host=host)  # type: ignore[arg-type]
                oracle.allocate(start, frozenset(range(start, start + SLOT)), rest[1], host)
        elif action == "free":
            start = BASE + SLOT * rest[0]
            if start in oracle.blocks:
                checker.free(0, start)
                oracle.free(start, self.torch)
        elif action == "record_stream":
            checker.record_stream(BASE + SLOT * rest[0], rest[1], space=0)
            oracle.record_stream(BASE + SLOT * rest[0], rest[1])
        elif action == "access":
            self.access(rest[0], host, rest[1])
        else:
            self.access(None, host, rest[0])

    def access(
        self, stream: str | None, host: object, uses: list[tuple[tuple[Region, frozenset[int]], bool]]
    ) -> None:
        self.number += 1
        name = f"operation {self.number}"
        reads = [Use(region) for (region, _), writes in uses if not writes]
        writes = [Use(region) for (region, _), writes in uses if writes]
        if stream is None:
            found = self.checker.host_access(reads, writes, operation=name, host=host)
        else:
            expected = self.checker.check_access(stream, reads, writes, operation=name, host=host)
            found = self.checker.access(stream, reads, writes, operation=name, host=host)
            assert expected == found, "check and commit differ"
        must, may = self.oracle.access(
            stream, host, [(touched, writes) for (_, touched), writes in uses], name
        )
        self.compare(found, must, may)

    def compare(self, found: list[Conflict], must: list[Access], may: list[Access]) -> None:
        by_name = {access.name: access for access in may}
        reported = set()
        for conflict in found:
            assert conflict.first is not None and conflict.confidence == "certain"
            assert conflict.first.operation in by_name, f"false alarm: {conflict}"
            reported.add(by_name[conflict.first.operation].line)
        missed = {access.line for access in must} - reported
        assert not missed, f"missed: {[access for access in must if access.line in missed]}"
        self.oracle.assume(reported)


def run(steps: list[tuple[Any, ...]], **kind: bool) -> None:
    pair = Pair(**kind)
    for step in steps:
        pair.step(step)


# Hypothesis draws lists of about five where no least size is given: too few for a range to be touched three times.
slow = settings(max_examples=3 * settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(st.lists(st.one_of(*order_steps, *access_steps, *host_steps), max_size=25))
def test_order_and_ranges(steps: list[tuple[Any, ...]]) -> None:
    run(steps)


@slow
@given(st.lists(st.one_of(*order_steps, *access_steps, *host_steps, *pool_steps), max_size=30), st.booleans())
def test_pools(steps: list[tuple[Any, ...]], torch: bool) -> None:
    run([("allocate", 0, "A"), ("allocate", 1, "N"), *steps], torch=torch)


@slow
@given(st.lists(st.one_of(*order_steps, *fixed_access_steps, *fixed_host_steps), min_size=12, max_size=40))
def test_the_same_ranges_again(steps: list[tuple[Any, ...]]) -> None:
    run(steps)


@slow
@given(
    st.lists(
        st.one_of(*order_steps, *fixed_access_steps, *fixed_host_steps, *pool_steps), min_size=12, max_size=40
    ),
    st.booleans(),
)
def test_pools_of_the_same_ranges(steps: list[tuple[Any, ...]], torch: bool) -> None:
    run([("allocate", 0, "A"), ("allocate", 1, "N"), *steps], torch=torch)


hosts = st.sampled_from([1, 2])


edges_of_hosts = st.tuples(st.tuples(st.just("host_edge"), hosts, hosts), hosts)


@slow
@given(
    st.lists(
        st.one_of(st.tuples(st.one_of(*order_steps, *access_steps, *host_steps), hosts), edges_of_hosts),
        max_size=25,
    )
)
def test_threads(steps: list[tuple[tuple[Any, ...], int]]) -> None:
    pair = Pair(threads=True)
    for step, host in steps:
        pair.step(step, host)


@slow
@given(
    st.lists(
        st.one_of(
            st.tuples(st.one_of(*order_steps, *fixed_access_steps, *fixed_host_steps), hosts), edges_of_hosts
        ),
        min_size=12,
        max_size=40,
    )
)
def test_threads_of_the_same_ranges(steps: list[tuple[tuple[Any, ...], int]]) -> None:
    pair = Pair(threads=True)
    for step, host in steps:
        pair.step(step, host)
