"""The core against the engine in Python: the same programs, the same conflicts, with all that is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.decide import Engine
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import Region, Use
from streamsafe.order.native.checker import NativeChecker
from streamsafe.order.native.library import Library
from streamsafe.order.operations import Operation, Program
from tests.native.programs import program
from tests.order.language import translate


def conflicts(operations: list[Operation], checker: NativeChecker | None, threads: bool) -> list[Conflict]:
    """In the order in which they are found; what is latent is found at the end, in no order."""
    running = Program(threads=threads)
    if checker is not None:
        running.checker = checker
    found = [conflict for operation in operations for conflict in running.apply(operation)]
    latent = [
        replace(each, memory=replace(each.memory, start=None, stop=None))  # any cell of several will do
        for each in found
        if each.latent
    ]
    certain = [each for each in found if not each.latent]
    return certain + sorted(latent, key=lambda each: repr((each.first, each.second)))


def native(library: Library, threads: bool = False) -> NativeChecker:
    return NativeChecker(
        library, threads=threads, render=lambda site: site if isinstance(site, tuple) else ()
    )


@pytest.mark.parametrize(
    ("length", "threads", "captures", "seeds"),
    [
        (12, False, False, 600),
        (40, False, False, 150),
        (40, True, False, 150),
        (40, False, True, 150),
        (100, True, True, 60),
        (150, False, True, 60),
    ],
)
def test_random_programs(library: Library, length: int, threads: bool, captures: bool, seeds: int) -> None:
    found = 0
    for seed in range(seeds):
        operations = program(seed, length, threads=threads, captures=captures)
        expected = conflicts(operations, None, threads)
        assert conflicts(operations, native(library, threads), threads) == expected, f"seed {seed}"
        found += len(expected)
    assert found > seeds  # the programs are worth comparing


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (10108, "a strided access that two earlier ones of the same bytes come before"),
        (10237, "a wait that only an edge which was missing makes useful"),
    ],
)
def test_programs_that_told_the_engines_apart(library: Library, seed: int, what: str) -> None:
    operations = program(seed, 100, threads=True, captures=True)
    assert conflicts(operations, native(library, True), True) == conflicts(operations, None, True), what


@pytest.mark.parametrize("seed", [10005, 10121, 10150])
def test_what_a_graph_of_the_same_pool_overwrote(library: Library, seed: int) -> None:
    """SS409, in random programs that have it."""
    operations = program(seed, 150, captures=True)
    expected = conflicts(operations, None, False)
    assert "shared-pool-replay-order" in [each.facts.violation for each in expected]
    assert conflicts(operations, native(library), False) == expected


@pytest.mark.parametrize(
    "text",
    [
        "A: write x; B: read x",
        "A: write x; A: record e; B: wait e; B: read x",
        "A: read x; B: write x; C: read x",
        "A: read x; B: read x; C: write x; host: read x",
        "A: write x[::2]; B: read x[1::2]; B: read x[0:1]",
        "N: write x; P: read x; A: read x",
        "A: talloc x; B: read x; x recorded B; free x; A: talloc y=x; A: write y",
        "A: talloc x; B: read x; free x; A: talloc y=x; A: write y",
        "A: talloc x; B: read x; free x",
        "A: write x; A: begin; A: read x; A: end G; B: launch G; A: launch G",
        "A: write hx; host: read hx; host: sync A; host: read hx",
    ],
)
def test_programs(library: Library, text: str) -> None:
    operations = translate(text)
    assert conflicts(operations, native(library), False) == conflicts(operations, None, False)


def test_every_method_is_the_cores() -> None:
    """Nothing is inherited from the Python engine, whose state the native one does not have."""
    assert not issubclass(NativeChecker, Engine)
    actions = {name for kind in (Checker, Engine) for name in vars(kind) if not name.startswith("_")}
    assert actions - set(vars(NativeChecker)) == {"handed_out"}  # a capture's program asks only itself


def test_reads_are_remembered(library: Library) -> None:
    """A fast path that does not look at readers passes for right until a write comes."""
    checker = native(library)
    use = Use(Region(0, 4096, 4160))
    for key in "ABC":
        checker.stream(key, name=key)
    checker.access("A", [use], [], "first")
    checker.access("B", [use], [], "second")
    (found, other) = checker.access("C", [], [use], "third")
    assert {found.first.operation, other.first.operation} == {"first", "second"}  # type: ignore[union-attr]


def test_nothing_is_kept_without_need(library: Library) -> None:
    """A loop over the same memory, streams and events keeps as many cells after 20,000 rounds as after two."""
    checker = native(library)
    checker.stream("A", name="A")
    checker.stream("B", name="B")
    kept = []
    for number in range(20_000):
        checker.allocate(0, 4096, 512, stream="A", owner="torch")
        checker.access("A", [], [Use(Region(0, 4096, 4496))], "fill")
        checker.record("e", "A")
        checker.wait("B", "e")
        checker.access("B", [Use(Region(0, 4096, 4496))], [], "sum")
        checker.record_stream(4096, "B", space=0)
        checker.free(0, 4096)
        if number in (1, 19_999):
            kept.append(checker.remembered())
    assert kept[0] == kept[1] < 4


def test_slices_and_the_whole(library: Library) -> None:
    """A cell for each slice that is touched by itself; one again when all of them are written at once."""
    checker = native(library)
    checker.stream("A", name="A")
    checker.allocate(0, 1 << 20, 8000 * 64, stream="A", owner="torch")
    for number in range(8000):
        low = (1 << 20) + number * 64
        checker.access("A", [], [Use(Region(0, low, low + 64))], "fill")
    assert checker.remembered() == 8000
    checker.access("A", [], [Use(Region(0, 1 << 20, (1 << 20) + 8000 * 64))], "fill")
    assert checker.remembered() == 1
