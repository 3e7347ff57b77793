"""Pinned memory: whose it is, what copies do to it, and plain arrays in it, which only their contents can give away."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import cupy
import cupyx
import numpy
from cupy.cuda.pinned_memory import PinnedMemoryPointer

from streamsafe.order.memory import HOST
from streamsafe.order.pools import Block
from streamsafe.runtime import host
from streamsafe.runtime.cupy import uses
from streamsafe.runtime.cupy.state import called_here, state
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.patches import Patches


class Owner:
    """Dies with a pinned block."""

    __slots__ = ("__weakref__", "block", "freed")

    def __init__(self, monitor: Monitor, block: Block) -> None:
        self.freed = monitor.freed
        self.block = block

    def __del__(self) -> None:
        self.freed(self.block)
        start = self.block.start
        size = uses.pinned_blocks.sizes.get(start, 0)
        uses.pinned_blocks.discard(start)
        host.fingerprints.forget(start, start + size)


class TracedPinnedPointer(PinnedMemoryPointer):
    """The user's pinned memory; numpy arrays over it keep it alive, and so its owner."""

    __slots__ = ("owner",)


def region(monitor: Monitor, address: int, size: int) -> uses.Touch | None:
    """What a copy touches on the host: user's pinned memory, else nothing (pageable memory is staged or waited for)."""
    if not monitor.host or uses.pinned_blocks.holding(address) is None:
        return None
    return uses.of_bytes(HOST, address, size)


def holds(address: int) -> bool:
    """Whether an address is in the user's pinned memory."""
    return uses.pinned_blocks.holding(address) is not None


def register(monitor: Monitor, start: int, size: int) -> None:
    """The program pinned memory itself."""
    _pinned[start] = monitor.allocate(HOST, start, size, stream=None, owner="pinned")
    uses.pinned_blocks.add(start, size)


def unregister(monitor: Monitor, start: int) -> None:
    """The program's own pinned memory goes."""
    block = _pinned.pop(start, None)
    if block is not None:
        uses.pinned_blocks.discard(start)
        monitor.freed(block)


_pinned: dict[int, Block] = {}
"""Blocks that the program pinned itself, by address."""
_last_copy: tuple[int, int] = (0, 0)
_last_source: tuple[Hashable, int] | None = None
internal_events: set[int] = set()
"""Events that CuPy recorded for its own watch list: that one is done says nothing the user may rely on."""


def copied_here() -> None:
    """Remembers the instruction under which CuPy copied from the host (see :func:`recorded_here`)."""
    global _last_copy
    _last_copy = called_here(3)


def source(queue: Hashable, address: int, size: int) -> None:
    """A pinned block of the user's is the source of an asynchronous copy."""
    global _last_source
    _last_source = (queue, address)
    host.fingerprints.watch(queue, address, size)


def recorded_here(monitor: Monitor, queue: Hashable, event: int) -> None:
    """Tells an event that ``asarray`` recorded for its watch list from one of the user's.

    CuPy copies and records from one instruction of the caller's; the user cannot. The watch list keeps the source alive
    until the event is done (CS-19b), which is what ``record_stream`` means.
    """
    global _last_copy, _last_source
    if called_here(4) != _last_copy:
        internal_events.discard(event)
        return
    internal_events.add(event)
    if _last_source is not None and _last_source[0] == queue:
        monitor.checker.record_stream(_last_source[1], queue, space=HOST)
    _last_copy = (0, 0)
    _last_source = None


def hand_out(monitor: Monitor, pointer: PinnedMemoryPointer, size: int) -> PinnedMemoryPointer:
    """A pinned block goes to the user."""
    start = pointer.ptr
    if size == 0 or start == 0:
        return pointer
    traced = TracedPinnedPointer(pointer.mem, start - pointer.mem.ptr)
    traced.owner = Owner(monitor, monitor.allocate(HOST, start, pointer.size(), stream=None, owner="pinned"))
    uses.pinned_blocks.add(start, pointer.size())
    return traced


def begin() -> None:
    """Nothing is known of pinned memory handed out before."""
    uses.pinned_blocks.clear()
    _pinned.clear()
    internal_events.clear()
    host.fingerprints.pending.clear()


def install(patches: Patches) -> None:
    """Pinned arrays made from now on are watched."""
    plain_frombuffer = numpy.frombuffer

    def allocate(original: Callable[[int], PinnedMemoryPointer]) -> Callable[[int], PinnedMemoryPointer]:
        def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
            pointer = original(size)
            monitor = state.monitor
            if monitor is None or not monitor.host:
                return pointer
            return hand_out(monitor, pointer, size)

        return alloc_pinned_memory

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_pinned(*args: Any, **kwargs: Any) -> Any:
            array = original(*args, **kwargs)
            monitor = state.monitor
            if monitor is None or not monitor.host:
                return array
            return host.watched(array)

        make_pinned.__name__ = original.__name__
        make_pinned.__doc__ = original.__doc__
        return make_pinned

    def frombuffer(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        array = plain_frombuffer(buffer, *args, **kwargs)
        if isinstance(buffer, TracedPinnedPointer) and state.monitor is not None:
            return host.watched(array)
        return array

    for module in (cupy.cuda, cupy.cuda.pinned_memory):
        patches.wrap(module, "alloc_pinned_memory", allocate)
    for name in ("empty_pinned", "empty_like_pinned", "zeros_pinned", "zeros_like_pinned"):
        for module in (cupyx, cupyx._pinned_array):
            patches.wrap(module, name, watched)
    patches.attribute(numpy, "frombuffer", frombuffer)
    host.install(patches)
