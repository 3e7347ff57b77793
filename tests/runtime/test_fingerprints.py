"""Sources of asynchronous copies that the host changes unseen: which are looked at again at a wait."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import HOST
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.pinned.contents import Fingerprints

SIZE = 4096


class Listening(Monitor):
    """A monitor that keeps what the front end found."""

    def __init__(self, into: list[Conflict]) -> None:
        super().__init__()
        self.into = into

    def found(self, conflict: Conflict, *, may_raise: bool = True) -> None:
        self.into.append(conflict)


class Copies:
    """A monitor with two streams, pinned memory, and copies from it; the host's writes are not seen."""

    def __init__(self, slots: int = 4) -> None:
        self.found: list[Conflict] = []
        self.monitor = Listening(self.found)
        self.streams = [self.monitor.stream(0, 0x100 * (i + 1), "non-blocking", "ab"[i]) for i in range(2)]
        self.memory = np.zeros(slots * SIZE, np.uint8)
        self.prints = Fingerprints()
        self.events = 0

    def address(self, slot: int) -> int:
        return int(self.memory.ctypes.data) + slot * SIZE

    def copy(self, slot: int, stream: int = 0, size: int = SIZE) -> int:
        """Copies a slot, and records an event behind it."""
        start = self.address(slot)
        touch = ((HOST, start, start + size, None, None, 1), "", None, True)
        self.monitor.access(self.streams[stream], [touch], (), "copy from host")
        self.prints.watch(self.monitor, self.streams[stream], start, size)
        self.events += 1
        self.monitor.order(self.monitor.checker.record, self.events, self.streams[stream])
        return self.events

    def overwrite(self, slot: int) -> None:
        self.memory[slot * SIZE : (slot + 1) * SIZE] += 1

    def wait(self, event: int) -> list[tuple[int, str]]:
        """The host waits; the slots that were overwritten before, and how sure that is."""
        self.monitor.order(self.monitor.checker.synchronize_event, event)
        self.found.clear()
        self.prints.check(self.monitor)
        starts = [(each.memory.start or 0, each.confidence) for each in self.found]
        return [((start - self.address(0)) // SIZE, confidence) for start, confidence in starts]


def test_a_source_that_changed_before_the_wait() -> None:
    copies = Copies()
    event = copies.copy(1)
    copies.overwrite(1)
    assert copies.wait(event) == [(1, "likely")]
    assert copies.wait(event) == []


def test_a_source_that_changed_after_the_wait() -> None:
    copies = Copies()
    event = copies.copy(1)
    assert copies.wait(event) == []
    copies.overwrite(1)
    assert copies.wait(event) == [] and copies.prints.count == 0


def test_a_wait_for_another_copy_says_nothing() -> None:
    """Of an earlier one on the same stream, or of one on another."""
    copies = Copies()
    first, other, second = copies.copy(0), copies.copy(1, 1), copies.copy(2)
    copies.overwrite(2)
    assert copies.wait(first) == []
    assert copies.wait(other) == []
    assert copies.wait(second) == [(2, "likely")]


def test_the_same_bytes_again_are_pending_until_the_last_copy_is_done() -> None:
    copies = Copies()
    first = copies.copy(0)
    between = copies.copy(1)
    second = copies.copy(0)
    assert copies.prints.count == 2
    copies.overwrite(1)
    assert copies.wait(first) == []
    assert copies.wait(between) == [(1, "likely")]
    copies.overwrite(0)
    assert copies.wait(second) == [(0, "likely")]


def test_each_content_counts() -> None:
    copies = Copies()
    copies.copy(0)
    copies.overwrite(0)
    event = copies.copy(0)
    assert copies.wait(event) == [(0, "likely")]


# (bytes of a write that is seen, relative to slot 1; whether the copy of slot 1 is forgotten)
SEEN = [
    ((0, SIZE), True),
    ((SIZE - 1, SIZE), True),
    ((-SIZE, 1), True),
    ((-SIZE, 0), False),
    ((SIZE, 2 * SIZE), False),
]


@pytest.mark.parametrize(("written", "forgotten"), SEEN)
def test_a_write_that_is_seen_makes_its_print_worthless(written: tuple[int, int], forgotten: bool) -> None:
    copies = Copies()
    event = copies.copy(1)
    start = copies.address(1)
    copies.prints.forget(start + written[0], start + written[1])
    copies.overwrite(1)
    assert copies.wait(event) == ([] if forgotten else [(1, "likely")])


@pytest.mark.parametrize("seed", range(6))
def test_against_a_list_of_all_copies(seed: int) -> None:
    """Many sources on two streams in any order: the same as when each copy is looked at again at each wait."""
    draw = random.Random(seed)
    copies = Copies(8)
    content = [0] * 8
    pending: dict[
        tuple[int, int, int], int
    ] = {}  # slot, stream, content: the event behind the last such copy
    found = 0
    for _ in range(600):
        slot, stream, action = draw.randrange(8), draw.randrange(2), draw.random()
        if action < 0.4:
            pending[slot, stream, content[slot]] = copies.copy(slot, stream)
        elif action < 0.6:
            copies.overwrite(slot)
            content[slot] += 1
        elif action < 0.7:
            copies.prints.forget(copies.address(slot), copies.address(slot) + SIZE)
            pending = {each: event for each, event in pending.items() if each[0] != slot}
        elif pending:
            (_, stream, _), event = draw.choice(list(pending.items()))
            done = [each for each, other in pending.items() if each[1] == stream and other <= event]
            for each in done:
                del pending[each]
            expected = [(slot, "likely") for slot, _, taken in done if taken != content[slot]]
            assert sorted(copies.wait(event)) == sorted(expected)
            found += len(expected)
    assert found


def test_of_very_many_pending_copies_the_oldest_are_left_alone() -> None:
    """Nothing grows without end; what was copied last is looked at still."""
    copies = Copies(3)
    for _ in range(3000):
        copies.copy(0)
        copies.overwrite(0)
    event = copies.copy(1)
    copies.overwrite(1)
    assert copies.prints.count <= 1025
    found = copies.wait(event)
    assert (1, "likely") in found and len(found) <= 1025
    assert copies.prints.count == 0
