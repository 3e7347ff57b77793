"""Plain arrays in pinned memory, which only their contents can give away: samples of what asynchronous copies read."""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Hashable
from functools import lru_cache
from typing import Protocol

from streamsafe.order.checker import Epoch
from streamsafe.order.hazard import Access, Conflict, Facts, Memory, Missing
from streamsafe.runtime import places as sites
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.places import Site

_SAMPLE = 1024
_LIMIT = 1024
"""How many copies of one stream may be pending: of more, the oldest are not looked at again."""


class _Source:
    """Plain pinned memory that a stream copies from, kept from one copy to the next.

    Attributes:
        start, stop: its addresses.
        stream: where it is copied from.
        pending: whether the host has not waited for the last copy, and no write to the memory was seen since.
        value: the sampled bytes when that copy was enqueued.
        number: which copy that was.
        epoch: its place on the stream, for :meth:`streamsafe.order.checker.Checker.passed`.
        site: where it was enqueued.
    """

    __slots__ = ("epoch", "number", "pending", "site", "start", "stop", "stream", "value")

    epoch: Epoch
    site: Site
    number: int
    value: bytes

    def __init__(self, start: int, stop: int, stream: Hashable) -> None:
        self.start = start
        self.stop = stop
        self.stream = stream
        self.pending = False


class Compiled(Protocol):
    """Who keeps the prints in place of this module, with methods like those of :class:`Fingerprints`."""

    def watch(self, monitor: Monitor, stream: Hashable, address: int, size: int) -> None: ...

    def look_again(self) -> None: ...

    def forget(self, start: int, stop: int) -> None: ...


class Fingerprints:
    """Samples of copies' sources: one that changed before the host waited for the copy was overwritten (likely).

    A wait looks at the oldest pending copy of each stream and a write at the copies near its bytes, however many are
    pending.

    Attributes:
        count: how many copies are pending; while compiled hooks keep the prints, 1.
    """

    def __init__(self) -> None:
        self.count = 0
        self._compiled: Compiled | None = None
        self._lock = threading.RLock()  # a finalizer may call `forget` at any time
        self._numbers = 0
        self._queues: dict[Hashable, deque[tuple[_Source, int]]] = {}
        self._at: dict[int, list[_Source]] = {}
        self._starts: list[int] = []
        self._longest = 0

    def hand_over(self, compiled: Compiled | None) -> None:
        """From now on compiled hooks keep the prints; None: no more."""
        if self._compiled is None:
            self.clear()
        self._compiled = compiled
        self.count = int(compiled is not None)

    def watch(self, monitor: Monitor, stream: Hashable, address: int, size: int) -> None:
        """The monitor has just been given a copy from plain pinned memory: takes its print."""
        if self._compiled is not None:
            self._compiled.watch(monitor, stream, address, size)
            return
        stop = address + size
        epoch = monitor.checker.epoch(stream)
        with self._lock:
            self.count += 1  # a write that comes from now on waits in `forget`
            value = b"".join(_samples(address, size))
            for source in self._at.get(address, ()):
                # the same bytes again: the copy before is done when this one is
                if (
                    (not source.pending or source.value == value)
                    and source.stop == stop
                    and source.stream == stream
                ):
                    break
            else:
                source = self._add(address, stop, stream)
            self._numbers = number = self._numbers + 1
            source.value, source.number, source.site, source.epoch = value, number, monitor.site, epoch
            if source.pending:
                self.count -= 1
            source.pending = True
            queue = self._queues.get(stream)
            if queue is None:
                queue = self._queues[stream] = deque()
            elif len(queue) >= _LIMIT:
                self._shorten(queue)
            queue.append((source, number))

    def check(self, monitor: Monitor) -> None:
        """The host has waited for something: looks again at the sources of copies that are now complete."""
        if self._compiled is not None:
            self._compiled.look_again()
            return
        if not self.count:
            return
        changed: list[tuple[int, int, Site]] = []
        with self._lock:
            passed, host = monitor.checker.passed, monitor.thread
            for queue in self._queues.values():
                while queue:
                    source, number = queue[0]
                    if source.number == number and source.pending:
                        if not passed(source.epoch, host):
                            break
                        source.pending = False
                        self.count -= 1
                        size = source.stop - source.start
                        if b"".join(_samples(source.start, size)) != source.value:
                            changed.append((source.start, size, source.site))
                    queue.popleft()
        for start, size, site in changed:
            overwritten(monitor, start, size, site)

    def forget(self, start: int, stop: int) -> None:
        """The memory goes back to its pool, or a write to it was seen: its contents may change."""
        if self._compiled is not None:
            self._compiled.forget(start, stop)
            return
        if not self.count:
            return
        with self._lock:
            starts = self._starts
            low = bisect_right(starts, start - self._longest)
            high = bisect_left(starts, stop, low)
            if low < high:
                for begin in starts[low:high]:
                    for source in self._at[begin]:
                        if source.pending and start < source.stop:
                            source.pending = False
                            self.count -= 1

    def clear(self) -> None:
        """Nothing is pending."""
        if not self._at:
            return
        with self._lock:
            self._queues.clear()
            self._at.clear()
            self._starts.clear()
            self._longest = self.count = 0

    def _add(self, start: int, stop: int, stream: Hashable) -> _Source:
        if len(self._starts) >= _LIMIT:
            for each in list(self._at):
                kept = [source for source in self._at[each] if source.pending]
                if kept:
                    self._at[each] = kept
                else:
                    del self._at[each]
            self._starts = sorted(self._at)
        source = _Source(start, stop, stream)
        if start not in self._at:
            insort(self._starts, start)
        self._at.setdefault(start, []).append(source)
        self._longest = max(self._longest, stop - start)
        return source

    def _shorten(self, queue: deque[tuple[_Source, int]]) -> None:
        """Leaves the pending copies of a stream in its queue, and of many of these the younger half."""
        kept = [(source, number) for source, number in queue if source.pending and source.number == number]
        queue.clear()
        if len(kept) > _LIMIT // 2:
            for source, _ in kept[: -_LIMIT // 2]:
                source.pending = False
                self.count -= 1
            kept = kept[-_LIMIT // 2 :]
        queue.extend(kept)


@lru_cache(maxsize=_LIMIT)
def _samples(address: int, size: int) -> tuple[memoryview, ...]:
    """Where a print looks. They keep no memory alive: one looks there only while the memory is pinned."""
    whole = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    if size <= 3 * _SAMPLE:
        return (whole,)
    return tuple(whole[offset : offset + _SAMPLE] for offset in (0, size // 2, size - _SAMPLE))


def overwritten(monitor: Monitor, address: int, size: int, site: Site) -> None:
    """The source of a copy, made at a site, was overwritten before the host waited for it."""
    stack = sites.frames(site)
    first = Access("copy from host", "the copy's stream", "reads", stack=stack)
    second = Access("a write by the host", "the host", "writes", stack=stack)
    conflict = Conflict(
        second=second,
        first=first,
        memory=Memory("the pinned source", "pinned", start=address, stop=address + size),
        facts=Facts(host="writes"),
        missing=Missing("the copy's stream", "the host", "stream.synchronize()"),
        confidence="likely",
    )
    monitor.found(conflict, may_raise=False)


fingerprints = Fingerprints()
