"""What the front ends share: the monitor's actions for memory of any library, and the index of blocks by address."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from streamsafe.order.memory import HOST, Block, Lease
from streamsafe.runtime import library as frontend
from streamsafe.runtime.blocks import DeviceBlocks, PinnedBlocks, device_blocks
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.session import Session

SIZE = 4096


class Library:
    """A library with two streams and a pool, as a front end tells the monitor of it."""

    def __init__(self) -> None:
        self.monitor = Monitor()
        self.session = Session("collect")
        self.monitor.sessions.append(self.session)
        self.main = self.monitor.stream(0, 0x100, "non-blocking", "main")
        self.side = self.monitor.stream(0, 0x200, "non-blocking", "side")

    def allocate(self, owner: Literal["torch", "cupy"], start: int = 1 << 20) -> Block:
        return self.monitor.allocate(0, start, SIZE, stream=self.main, owner=owner)

    def use(self, stream: Any, block: Block, operation: str = "kernel") -> None:
        touch = ((0, block.start, block.stop, None, None, 1), "", None, True)
        self.monitor.access(stream, (), [touch], operation)

    def free(self, block: Block) -> None:
        self.monitor.free(block)

    def codes(self) -> list[tuple[str, bool]]:
        self.monitor.finish()
        return [(hazard.code, hazard.latent) for hazard in self.session.hazards]


@pytest.fixture
def library() -> Iterator[Library]:
    yield Library()
    device_blocks.forget_freed()


# (owner, recorded: before the use, after it, or after the free), reused by another array, the codes
REUSES: list[tuple[Literal["torch", "cupy"], str, bool, list[tuple[str, bool]]]] = [
    ("torch", "", True, [("SS201", False)]),
    ("torch", "", False, [("SS201", True)]),
    ("torch", "before", True, []),
    ("torch", "after", True, []),
    ("torch", "after", False, []),
    ("torch", "freed", True, [("SS201", False)]),
    ("torch", "main", True, [("SS201", False)]),
    ("cupy", "", True, [("SS202", False)]),
    ("cupy", "", False, [("SS202", True)]),
    ("cupy", "after", True, [("SS202", False)]),
]


@pytest.mark.parametrize(("owner", "recorded", "reused", "expected"), REUSES)
def test_reuse_of_a_block(
    library: Library,
    owner: Literal["torch", "cupy"],
    recorded: str,
    reused: bool,
    expected: list[tuple[str, bool]],
) -> None:
    """TL-02, TL-03, CS-20, CI-13: what ``record_stream`` covers, by the owner of the block."""
    monitor = library.monitor
    block = library.allocate(owner)
    library.use(library.main, block, "fill")
    monitor.order(monitor.checker.record, 1, library.main)
    monitor.order(monitor.checker.wait, library.side, 1)
    if recorded == "before":
        monitor.record_stream(library.side, block)
    library.use(library.side, block, "read on side")
    if recorded in ("after", "main"):
        monitor.record_stream(library.side if recorded == "after" else library.main, block)
    library.free(block)
    if recorded == "freed":
        monitor.record_stream(library.side, block)
    if reused:
        library.use(library.main, library.allocate(owner), "next owner")
    assert library.codes() == expected


def test_a_use_after_the_free_is_not_covered(library: Library) -> None:
    block = library.allocate("torch")
    library.monitor.record_stream(library.side, block)
    library.free(block)
    library.use(library.side, block, "late")
    library.use(library.main, library.allocate("torch"), "next owner")
    assert library.codes() == [("SS201", False)]


def test_a_block_handed_out_again_is_recorded_on_no_stream(library: Library) -> None:
    """Also where the usual short way makes the same block of it."""
    block = library.allocate("torch")
    library.use(library.main, block, "fill")
    library.monitor.record_stream(library.side, block)
    library.free(block)
    again = library.allocate("torch")
    library.monitor.order(library.monitor.checker.record, 1, library.main)
    library.monitor.order(library.monitor.checker.wait, library.side, 1)
    library.use(library.side, again)
    library.free(again)
    library.use(library.main, library.allocate("torch"), "next owner")
    assert library.codes() == [("SS201", False)]


def test_the_release_is_shown(library: Library) -> None:
    block = library.allocate("torch")
    library.use(library.side, block)
    library.free(block)
    library.use(library.main, library.allocate("torch"))
    [hazard] = library.session.hazards
    released = [note for note in hazard.notes if note.role == "released"]
    assert [note.stack[0].function.rsplit(".", 1)[-1] for note in released] == ["test_the_release_is_shown"]


def test_one_registry_of_streams(library: Library) -> None:
    """Two libraries that use one stream by its raw handle use one timeline; the name that came first stays."""
    assert library.monitor.stream(0, 0x100, "blocking", "other") is library.main
    assert library.monitor.stream(1, 0x100, "non-blocking", "there") != library.main
    assert library.monitor.null_stream(0) == (0, 0)
    assert library.monitor.null_stream(0) is library.monitor.null_stream(0)


def test_blocks_of_all_libraries_are_found_by_address(library: Library) -> None:
    first, second = library.allocate("torch"), library.allocate("cupy", 1 << 21)
    pinned = library.monitor.allocate(HOST, 1 << 30, SIZE, stream=None, owner="pinned")
    assert device_blocks.holding(first.start + 5) is first
    assert device_blocks.holding(second.stop - 1) is second
    assert device_blocks.holding(second.stop) is None
    assert device_blocks.holding(pinned.start) is None
    library.free(first)
    assert device_blocks.holding(first.start + 5) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_index_under_churn(seed: int) -> None:
    """Against a plain search: blocks come, split, merge, go by notice or by their lease, and are asked for inside."""
    draw = random.Random(seed)
    index = DeviceBlocks()
    live: dict[int, Block] = {}
    leases: dict[int, Lease] = {}
    monitor = Monitor()
    main = monitor.stream(0, 0x100, "non-blocking", "main")
    for _ in range(3000):
        start = draw.randrange(64) * 512
        stop = start + draw.choice((512, 1024, 4096))
        action = draw.random()
        if action < 0.5:
            block = Block(0, start, stop, "cupy", monitor.checker.timeline(main), "", None)
            if draw.random() < 0.5:
                leases[start] = block.lease = Lease()
            for other in [each for each in live.values() if each.start < stop and start < each.stop]:
                del live[other.start]
            live[start] = block
            index.add(block)
        elif action < 0.75 and start in live:
            block = live.pop(start)
            if block.lease is not None:
                del leases[start]
            else:
                index.released(block)
        else:
            address = draw.randrange(1 << 16)
            holds = [block for block in live.values() if block.start <= address < block.stop]
            assert index.holding(address) is (holds[0] if holds else None)
        if draw.random() < 0.01:
            index.forget_freed()


def test_pinned_blocks_by_address() -> None:
    blocks, changes = PinnedBlocks(), []
    blocks.changed.append(lambda: changes.append(1))
    assert not blocks
    blocks.add(1000, 100)
    blocks.add(5000, 10)
    assert [blocks.holding(address) for address in (999, 1000, 1099, 1100, 5009)] == [
        None,
        1000,
        1000,
        None,
        5000,
    ]
    blocks.discard(1000)
    blocks.discard(1000)
    assert blocks.holding(1000) is None and len(changes) == 3


def test_a_front_end_is_a_module_of_that_shape() -> None:
    for module in frontend.known():
        assert isinstance(module.NAME, str) and all(isinstance(name, str) for name in module.PACKAGES)
        for name in ("install", "refuse", "begin", "stream_handle"):
            assert callable(getattr(module, name))
        assert module.stream_handle(object()) is None
