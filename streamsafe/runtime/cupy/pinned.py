"""Pinned memory: whose it is, what copies do to it, and plain arrays in it, which only their contents can give away."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable
from functools import partial, wraps
from types import BuiltinFunctionType
from typing import Any

import cupy
import cupyx
import numpy
import numpy.ctypeslib
from cupy.cuda.pinned_memory import PinnedMemoryPointer, PinnedMemoryPool, is_memory_pinned

from streamsafe.order.memory import HOST, Block
from streamsafe.runtime.blocks import pinned_blocks
from streamsafe.runtime.cupy import touches as uses
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.cupy.state import call_user_allocator, called_here, state, user_allocator
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.pinned import arrays as host
from streamsafe.runtime.pinned import assignments
from streamsafe.runtime.pinned import existing as adopt
from streamsafe.runtime.pinned import functions as numpy_functions
from streamsafe.runtime.pinned.contents import fingerprints
from streamsafe.runtime.places import capture
from streamsafe.toolchain.imports import after_import


class PinnedReleaseNotifier:
    """Dies with a pinned block. Outlives the session in which the block was handed out: the next one knows it still.

    Attributes:
        block: as the engine knows it; None when no session was open then.
    """

    __slots__ = ("__weakref__", "block", "freed", "start")

    def __init__(self, monitor: Monitor | None, start: int, size: int) -> None:
        self.start = start
        self.block: Block | None = None
        if monitor is not None:
            self.freed = monitor.freed
            self.block = monitor.allocate(HOST, start, size, stream=None, owner="pinned")
        pinned_blocks.add(start, size)

    def __del__(self) -> None:
        if self.block is not None:
            self.block.freed_site = capture(1)
            self.freed(self.block)
        _drop(self.start)


def _drop(start: int) -> None:
    size = pinned_blocks.sizes.get(start, 0)
    pinned_blocks.discard(start)
    fingerprints.forget(start, start + size)


class TracedPinnedPointer(PinnedMemoryPointer):
    """The user's pinned memory; numpy arrays over it keep it alive, and so its notifier."""

    __slots__ = ("notifier",)


def region(monitor: Monitor, address: int, size: int) -> uses.Touch | None:
    """What a copy touches on the host: user's pinned memory, else nothing (pageable memory is staged or waited for)."""
    return uses.of_hosted(address, size) if monitor.host else None


def holds(address: int) -> bool:
    """Whether an address is in the user's pinned memory."""
    return pinned_blocks.holding(address) is not None


def register(monitor: Monitor, start: int, size: int, *, used: bool = False) -> None:
    """The program pinned memory itself.

    Args:
        used: arrays may lie there already.
    """
    _pinned[start] = monitor.allocate(HOST, start, size, stream=None, owner="pinned")
    pinned_blocks.add(start, size)
    if used and monitor.host == "deep":
        for array in adopt.nearby(lambda value: start <= value.ctypes.data < start + size):
            adopt.adopt(array)


def unregister(monitor: Monitor, start: int) -> None:
    """The program's own pinned memory goes."""
    block = _pinned.pop(start, None)
    if block is not None:
        _drop(start)
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


def source(monitor: Monitor, queue: Hashable, address: int, size: int) -> None:
    """A pinned block of the user's is the source of an asynchronous copy."""
    global _last_source
    _last_source = (queue, address)
    fingerprints.watch(monitor, queue, address, size)


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


def hand_out(monitor: Monitor | None, pointer: PinnedMemoryPointer) -> PinnedMemoryPointer:
    """A pinned block goes to the user."""
    start, size = pointer.ptr, pointer.size()
    if size == 0 or start == 0:
        return pointer
    traced = TracedPinnedPointer(pointer.mem, start - pointer.mem.ptr)
    traced.notifier = PinnedReleaseNotifier(monitor, start, size)
    return traced


def begin(monitor: Monitor, patches: Patches) -> None:
    """A session begins. Of memory that the program pinned itself nothing is known any more.

    Args:
        patches: what lasts as long as the session.
    """
    if monitor.host:
        numpy_functions.begin(patches)
    if monitor.host == "deep":
        assignments.install(patches)
        _earlier()
        patches.call(adopt.release)
    for start in list(_pinned):
        pinned_blocks.discard(start)
    _pinned.clear()
    internal_events.clear()
    fingerprints.clear()


# -- arrays that were not made here ----------------------------------------------------------------------------------

_roots: dict[int, int] = {}
"""How many plain arrays of before the session lie over a block, by its address."""


def _gone(start: int) -> None:
    _roots[start] -= 1
    if _roots[start] == 0:
        del _roots[start]
        _drop(start)


def _known(array: Any, start: int, size: int) -> None:
    """A block under an array of the user's: pinned for as long as the array is."""
    held = adopt.root(array)
    if start not in pinned_blocks.sizes:
        pinned_blocks.add(start, size)
        _roots[start] = 0
    if start in _roots:
        _roots[start] += 1
        weakref.finalize(held, _gone, start).atexit = False


def watch_array(array: Any) -> None:
    """A plain array is about to be copied from or to: if its memory is pinned, the host's accesses to it count."""
    monitor = state.monitor
    if monitor is None or not monitor.host or array.size == 0:
        return
    address = array.ctypes.data
    if pinned_blocks.holding(address) is None:
        if not is_memory_pinned(address):
            return
        held = adopt.root(array)
        _known(array, held.ctypes.data, held.nbytes)
    if monitor.host == "deep":
        adopt.adopt(array)
        if array.base is not None:
            adopt.adopt(adopt.root(array))


def _earlier() -> None:
    """The arrays over pinned memory that exist already."""
    if not any(type(each) is PinnedMemoryPointer for each in gc.get_objects()):
        return
    for array in adopt.arrays(lambda value: isinstance(adopt.buffer_of(value), PinnedMemoryPointer)):
        pointer = adopt.buffer_of(array)
        if array.base is not None and not isinstance(array.base, numpy.ndarray):
            _known(array, pointer.ptr, pointer.size())
        adopt.adopt(array)


def _watching() -> bool:
    """Whether pinned arrays that are made now are watched."""
    monitor = state.monitor
    return state.holders > 0 if monitor is None else bool(monitor.host)


def install(patches: Patches) -> None:
    """Has pinned memory that is handed out from now on known, and arrays in it watched while a session is open."""
    methods: dict[Any, Any] = {}

    def allocate(original: Callable[[int], PinnedMemoryPointer]) -> Callable[[int], PinnedMemoryPointer]:
        def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
            pointer = original(size)
            monitor = state.monitor
            if monitor is not None and not monitor.host:
                return pointer
            return hand_out(monitor, pointer)

        return alloc_pinned_memory

    def malloc(original: Callable[..., PinnedMemoryPointer]) -> Callable[..., PinnedMemoryPointer]:
        @wraps(original)
        def malloc(self: Any, size: int) -> PinnedMemoryPointer:
            own = partial(original, self)
            return own(size) if user_allocator.running else allocate(own)(size)

        methods[malloc] = original
        return malloc

    def setter(original: Callable[..., None]) -> Callable[..., None]:
        def set_pinned_memory_allocator(allocator: Any = None) -> None:
            """CuPy asks the allocator for its own copies too: these blocks are not the user's."""
            wrapped = methods.get(getattr(allocator, "__func__", None))
            if wrapped is not None:
                allocator = wrapped.__get__(allocator.__self__)
            elif allocator is not None and not isinstance(allocator, BuiltinFunctionType):
                allocator = partial(call_user_allocator, allocator)
            original(*(() if allocator is None else (allocator,)))

        return set_pinned_memory_allocator

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_pinned(*args: Any, **kwargs: Any) -> Any:
            array = original(*args, **kwargs)
            return host.watched(array) if _watching() else array

        make_pinned.__name__ = original.__name__
        make_pinned.__doc__ = original.__doc__
        return make_pinned

    def laid_over(array: Any, args: Any, kwargs: Any) -> Any:
        if pinned_blocks and _watching() and holds(array.ctypes.data):
            return host.watched(array)
        return array

    def stand_in(original: Callable[..., Any]) -> Callable[..., Any]:
        return numpy_functions.Standin(original, laid_over)

    def set_(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def set(self: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
            if type(arr) is host.PinnedArray:
                arr = arr.view(numpy.ndarray)  # CuPy asks NumPy for a contiguous one, which takes longer
            elif type(arr) is numpy.ndarray:
                watch_array(arr)
            return original(self, arr, *args, **kwargs)

        return set

    def get_(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def get(
            self: Any, stream: Any = None, order: str = "C", out: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if type(out) is numpy.ndarray:
                watch_array(out)
            return original(self, stream, order, out, *args, **kwargs)

        return get

    for module in (cupy.cuda, cupy.cuda.pinned_memory):
        patches.wrap(module, "alloc_pinned_memory", allocate)
        patches.wrap(module, "set_pinned_memory_allocator", setter)
    patches.wrap(PinnedMemoryPool, "malloc", malloc)
    for name in ("empty_pinned", "empty_like_pinned", "zeros_pinned", "zeros_like_pinned"):
        for module in (cupyx, cupyx._pinned_array):
            patches.wrap(module, name, watched)
    patches.wrap(numpy, "frombuffer", stand_in)
    patches.wrap(numpy.ctypeslib, "as_array", stand_in)
    patches.wrap(cupy.ndarray, "set", hooks.in_front("array_set", set_))
    patches.wrap(cupy.ndarray, "get", hooks.in_front("array_get", get_))
    after_import("numpy.random", partial(numpy_functions.watch_generators, patches))
