"""The memory of a process by address, whichever library handed it out: device blocks, and pinned host memory.

Addresses are unique in a process, over all devices and the host (CUDA's unified addressing), so an address alone finds
a block. Both indexes outlive sessions: what a program allocated in an earlier one it may still use.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable

from streamsafe.order.memory import Block
from streamsafe.order.pools import Blocks

_SWEEP = 4096
"""How many blocks may be remembered, at least, before the freed ones are forgotten."""


class DeviceBlocks:
    """The blocks of device memory that were handed out: the live ones, and freed ones of pools.

    No two overlap: a block takes the place of those whose bytes it has. All look-ups take O(log n).

    Attributes:
        released: takes a block whose memory is gone. Safe in a finalizer: nothing else happens there.
        changes: how often another block came to be at some address, or its memory went: while the number is the same,
            an address is in the block that it was in, which may be free.
    """

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._gone: deque[Block] = deque()
        self._lock = threading.RLock()
        self._sweep_at = _SWEEP
        self.changes = 0
        self.released = self._gone.append
        self.at: Callable[[int], Block | None] = self._blocks.at

    def add(self, block: Block) -> None:
        """A block was handed out, maybe as it was the last time."""
        with self._lock:
            self._drain()
            if self._blocks.at(block.start) is block:
                return
            self._blocks.add(block)
            self.changes += 1
            if len(self._blocks) > self._sweep_at:
                self.forget_freed()
                self._sweep_at = max(_SWEEP, 2 * len(self._blocks))

    def holding(self, address: int) -> Block | None:
        """The live block that holds an address."""
        with self._lock:
            self._drain()
            block, _ = self._blocks.owner(address)
        return None if block is None or block.freed else block

    def forget_freed(self) -> None:
        """Forget the blocks that lie free in their pools."""
        with self._lock:
            self._drain()
            for block in self._blocks.freed():
                self._blocks.discard(block)
            self.changes += 1

    def _drain(self) -> None:
        gone = self._gone
        while gone:
            self._blocks.discard(gone.popleft())
            self.changes += 1


class PinnedBlocks:
    """The pinned host memory that programs hold, by address.

    Attributes:
        sizes: in bytes, by start.
        changed: called whenever an address may have become pinned, or ceased to be.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.changed: list[Callable[[], None]] = []
        self._starts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.sizes)

    def add(self, start: int, size: int) -> None:
        """``size`` bytes from ``start`` are pinned."""
        if start not in self.sizes:
            insort(self._starts, start)
        self.sizes[start] = size
        self._changed()

    def discard(self, start: int) -> None:
        """What begins at ``start`` is pinned no more."""
        if self.sizes.pop(start, None) is not None:
            self._starts.remove(start)
            self._changed()

    def holding(self, address: int) -> int | None:
        """The start of the block that holds an address."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        start = self._starts[index]
        return start if address < start + self.sizes[start] else None

    def _changed(self) -> None:
        for each in self.changed:
            each()


device_blocks = DeviceBlocks()
pinned_blocks = PinnedBlocks()


def _forked() -> None:
    """Another thread may have held the lock: nobody gives it back in the child."""
    device_blocks._lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
