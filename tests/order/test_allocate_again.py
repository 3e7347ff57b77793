"""A pool's block that is handed out as it was the last time takes a short way: what is found is the same."""

from __future__ import annotations

import random

import pytest

from streamsafe.order.checker import Checker
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import Block, Lease, Region, Use
from streamsafe.order.pools import UNTOUCHED

STARTS = [4096 * n for n in range(1, 4)]
SIZES = [1024, 1024, 1024, 2048, 6144]


class Pool:
    """A program on one checker that allocates through the short way where it may, or never."""

    def __init__(self, short: bool) -> None:
        self.checker = Checker()
        self.short = short
        self.taken = 0
        self.known: dict[int, Block] = {}
        for stream in range(2):
            self.checker.stream(stream)

    def allocate(self, start: int, size: int, stream: int) -> None:
        again = self.known.get(start)
        if self.short and again is not None and self.checker.allocate_again(again, size, stream):
            self.taken += 1
            return
        self.known[start] = self.checker.allocate(0, start, size, stream=stream, owner="cupy")

    def access(self, stream: int, start: int, size: int, write: bool, certain: bool) -> list[Conflict]:
        use = Use(Region(0, start, start + size), certain=certain)
        return self.checker.access(
            stream, [] if write else [use], [use] if write else [], operation="kernel", site=None
        )


@pytest.mark.parametrize("seed", range(60))
def test_same_conflicts(seed: int) -> None:
    chance = random.Random(seed)
    short, plain = Pool(True), Pool(False)
    found = 0
    for _ in range(400):
        what = chance.random()
        stream = chance.choice([0, 0, 0, 1])
        start = chance.choice(STARTS)
        if what < 0.4:
            # most are given to the stream that uses them, as large as the last time
            size = SIZES[0] if chance.random() < 0.8 else chance.choice(SIZES)
            for pool in (short, plain):
                pool.allocate(start, size, stream)
        elif what < 0.85:
            inside = chance.random() < 0.15
            begin, size = (start + 256, 512) if inside else (start, chance.choice([1000, 1000, 1024]))
            write, certain = chance.random() < 0.7, chance.random() < 0.9
            one, other = (pool.access(stream, begin, size, write, certain) for pool in (short, plain))
            assert one == other
            found += len(one)
        elif what < 0.92:
            for pool in (short, plain):
                pool.checker.record("event", stream)
                pool.checker.wait(1 - stream, "event")
        elif what < 0.96:
            for pool in (short, plain):
                pool.checker.synchronize_stream(stream)
        else:
            for pool in (short, plain):
                pool.checker.release_block(0, start, 1024)
    assert short.taken > 10
    assert found
    assert short.checker.remembered() == plain.checker.remembered()
    assert short.checker.finish() == plain.checker.finish()


def test_a_life_ends_with_its_last_holder() -> None:
    checker = Checker()
    checker.stream(0)
    block = checker.allocate(0, 4096, 1024, stream=0, owner="cupy")
    held = block.lease = Lease()
    other = [held]
    del held
    assert not block.freed
    other.clear()
    assert block.freed


def test_when_the_short_way_is_none() -> None:
    checker = Checker()
    for stream in range(2):
        checker.stream(stream)
    block = checker.allocate(0, 4096, 1024, stream=0, owner="cupy")
    assert block.cell is UNTOUCHED
    assert checker.allocate_again(block, 1024, 0)
    assert not checker.allocate_again(block, 512, 0), "another size"
    assert not checker.allocate_again(block, 1024, 1), "another stream"
    whole = Use(Region(0, 4096, 5120))
    checker.access(0, [], [whole], operation="fill")
    assert checker.allocate(0, 4096, 1024, stream=0, owner="cupy")
    assert not checker.allocate_again(block, 1024, 0), "another block has its place"
