"""CuPy's memory: allocations and frees, copies and fills through pointers, and arrays made before the session.

``MemoryPointer`` is an extension class whose ``cpdef`` methods a Python subclass overrides, for callers in C too; the
allocator hands the subclass out, and views of an array keep it (``__add__``).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from threading import get_ident
from types import BuiltinFunctionType
from typing import Any, Literal

import cupy
import cupy.cuda.memory as memory_module
from cupy.cuda.memory import MemoryPointer, PooledMemory
from cupy.cuda.pinned_memory import PinnedMemoryPool, is_memory_pinned
from cupy_backends.cuda.api import runtime

from streamsafe.order.captures import VIOLATIONS
from streamsafe.order.memory import HOST, Block, Lease
from streamsafe.runtime.blocks import device_blocks, pinned_blocks
from streamsafe.runtime.cupy import pinned
from streamsafe.runtime.cupy import touches as uses
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.cupy.delay import delayed
from streamsafe.runtime.cupy.state import (
    call_user_allocator,
    order_lock,
    plain_pointer,
    state,
    timeline,
    timeline_of_handle,
    user_allocator,
)
from streamsafe.runtime.monitor import NULL, Monitor
from streamsafe.runtime.patches import Patches, StandIn
from streamsafe.runtime.pinned.contents import fingerprints
from streamsafe.runtime.places import capture

_plain_add = MemoryPointer.__add__
_plain = {
    name: getattr(MemoryPointer, name)
    for name in (
        "copy_from_device",
        "copy_from_device_async",
        "copy_from_host",
        "copy_from_host_async",
        "copy_to_host",
        "copy_to_host_async",
        "memset",
        "memset_async",
    )
}


class ReleaseNotifier:
    """Dies with a block that is of no pool of CuPy's, or of a program that is traced: it informs the monitor."""

    __slots__ = ("block", "freed")

    def __init__(self, freed: Callable[[Block], None], block: Block) -> None:
        self.freed = freed
        self.block = block

    def __del__(self) -> None:
        self.block.freed_site = capture(1)
        self.freed(self.block)
        device_blocks.released(self.block)


class PooledRelease:
    """Dies with an array of CuPy's pool, whose lease it holds: notes the line where that is, where it may matter.

    There is one for each array that is made: so it has no ``__init__``, which would take longer than the rest.
    """

    __slots__ = ("block", "lease")

    block: Block
    lease: Lease | None

    def __del__(self) -> None:
        block = self.block
        cell, own = block.cell, block.timeline
        if cell is not None and cell.readers is None and cell.partial is None:
            write, read = cell.write, cell.read
            if (write is None or write.timeline is own) and (read is None or read.timeline is own):
                return  # only its own stream has used it, which is given it again
        block.freed_site = capture(1)


def block_at(address: int) -> tuple[Any, int, int] | None:
    """(device, start, size) of the live block that holds an address."""
    block = device_blocks.holding(address)
    return None if block is None else (block.space, block.start, block.stop - block.start)


def begin(monitor: Monitor, patches: Patches) -> None:
    """Nothing is known of memory that the program got from the runtime before."""
    _raw.clear()


_raw: dict[int, Block] = {}
"""Blocks that the program asked the runtime for itself, by address."""


def remember(monitor: Monitor, start: int, size: int, device: int, *, owner: Any, stream: Hashable) -> None:
    """The program got memory straight from the runtime."""
    _raw[start] = monitor.allocate(device, start, size, stream=stream, owner=owner)


def forget(monitor: Monitor, start: int) -> None:
    """The program gave memory back to the runtime."""
    block = _raw.pop(start, None)
    if block is not None:
        monitor.freed(block)
        device_blocks.released(block)


def _address(memory: Any) -> int:
    return memory if isinstance(memory, int) else int(memory.value or 0)


def report_copy(
    monitor: Monitor,
    stream: Any,
    reads: list[uses.Touch],
    writes: list[uses.Touch],
    operation: str,
) -> Hashable:
    """A copy or fill on a stream; returns its timeline."""
    if monitor.delay is not None:
        delayed(monitor, stream)
    queue = timeline(monitor, stream)
    between = between_devices(queue, reads, writes)
    for other in between:
        wait_for_null(monitor, queue, (other, NULL))
    monitor.access(queue, reads, writes, operation)
    for other in between:
        wait_for_null(monitor, (other, NULL), queue)
    return queue


def between_devices(queue: Hashable, reads: Sequence[uses.Touch], writes: Sequence[uses.Touch]) -> set[Any]:
    """The other devices of a copy on the null stream.

    Such a copy begins after everything issued to either device before, and whatever either is issued later begins
    after it (CUDA C++ Programming Guide, "Peer-to-Peer Memory Copy").
    """
    assert isinstance(queue, tuple)
    device, handle, *_ = queue
    if handle != NULL:
        return set()
    return {touch[0][0] for touch in (*reads, *writes)} - {device, HOST}


def wait_for_null(monitor: Monitor, waiting: Hashable, source: Hashable) -> None:
    """The null stream of one device waits for that of another."""
    for queue in (waiting, source):
        assert isinstance(queue, tuple)
        monitor.null_stream(queue[0])
    event = ("null", source)
    monitor.order(monitor.checker.record, event, source)
    monitor.order(partial(monitor.checker.wait, implicit=True), waiting, event)


def refuse_in_capture(monitor: Monitor, queue: Hashable, operation: str) -> None:
    """Host transfers are illegal on a capturing stream (GP-04 to GP-07): said before CuPy or CUDA refuses.

    Raises:
        StreamHazardError: the stream is capturing.
    """
    if monitor.checker.capturing(queue):
        known = VIOLATIONS["host_copy"]
        conflict = monitor.checker.capture_violation(
            known.rule, queue, operation=operation, message=known.message, site=capture(2)
        )
        monitor.report([conflict])


def host_to_device(
    monitor: Monitor, source: int, target: uses.Touch, size: int, stream: Any, operation: str, queue: Hashable
) -> None:
    """An asynchronous copy from the host: pinned memory of the user's is read while the copy runs."""
    if monitor.delay is not None:
        delayed(monitor, stream)
    if monitor.capturing:
        refuse_in_capture(monitor, queue, operation)
    touched = uses.of_hosted(source, size) if monitor.host else None
    if touched is None:
        monitor.access(queue, (), (target,), operation, above=4)
    else:
        monitor.access(queue, (touched,), (target,), operation, above=4)
        pinned.source(monitor, queue, source, size)


def device_to_host(
    monitor: Monitor, source: uses.Touch, target: int, size: int, stream: Any, operation: str, queue: Hashable
) -> bool:
    """An asynchronous copy to the host: pinned memory is written while the copy runs, pageable before it returns.

    Returns:
        whether the host has waited for the copy once the call returns (CS-14b).
    """
    if monitor.delay is not None:
        delayed(monitor, stream)
    if monitor.capturing:
        refuse_in_capture(monitor, queue, operation)
    touched = uses.of_hosted(target, size) if monitor.host else None
    if touched is not None:
        monitor.access(queue, (source,), (touched,), operation, above=4)
        if fingerprints.count:
            fingerprints.forget(target, target + size)
        return False
    monitor.access(queue, (source,), (), operation, above=4)
    return _is_pageable(target, size)


_HEAP = 1 << 16
"""Memory of up to so many bytes comes from the heap, which stays pageable: what is mapped for itself may go and return
as pinned memory of a library that is not watched."""
_pageable: set[int] = set()
"""Addresses of heap memory that CUDA has called pageable: asking it takes longer than the copy's check."""
pinned_blocks.changed.append(_pageable.clear)


def _is_pageable(address: int, size: int) -> bool:
    if address in _pageable and size <= _HEAP:
        return True
    if is_memory_pinned(address):
        return False
    if size <= _HEAP:
        if len(_pageable) >= 4096:
            _pageable.clear()
        _pageable.add(address)
    return True


def _order_lock(monitor: Monitor, queue: Hashable, address: int, size: int) -> AbstractContextManager[Any]:
    """The lock for recording and enqueueing a host copy: pageable memory may keep the caller waiting."""
    if not monitor.host or uses.of_hosted(address, size) is None:
        return _unordered
    return order_lock(queue)


_unordered: AbstractContextManager[Any] = nullcontext()
_copy_from_host_async = _plain["copy_from_host_async"]
_copy_to_host_async = _plain["copy_to_host_async"]


class TracedMemoryPointer(MemoryPointer, metaclass=StandIn):
    """A pointer whose copies and fills are reported to the monitor.

    Attributes:
        notifier: dies with the block, where the block itself cannot carry it.
    """

    __slots__ = ("notifier",)

    def __add__(self, offset: Any) -> MemoryPointer:
        moved = _plain_add(self, offset)
        memory = moved.mem
        traced = TracedMemoryPointer(memory, moved.ptr - memory.ptr)
        traced.notifier = getattr(self, "notifier", None)
        return traced

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        _report_device_copy(self, src, size, cupy.cuda.Stream.null)
        _plain["copy_from_device"](self, src, size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        monitor = state.monitor
        if monitor is None:
            _plain["copy_from_device_async"](self, src, size, stream)
            return
        with order_lock(timeline(monitor, stream)):
            _report_device_copy(self, src, size, stream)
            _plain["copy_from_device_async"](self, src, size, stream)

    def copy_from_host(self, mem: Any, size: int) -> None:
        _report_from_host_sync(self, mem, size)
        _plain["copy_from_host"](self, mem, size)
        _host_waits_for_legacy()

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        monitor = state.monitor
        if monitor is None or size <= 0:
            _copy_from_host_async(self, mem, size, stream)
            return
        address = _address(mem)
        queue = timeline(monitor, stream)
        with _order_lock(monitor, queue, address, size):
            host_to_device(
                monitor, address, uses.of_copied(self, size), size, stream, "copy from host", queue
            )
            pinned.copied_here()
            _copy_from_host_async(self, mem, size, stream)

    def copy_to_host(self, mem: Any, size: int) -> None:
        _report_to_host_sync(self, mem, size)
        _plain["copy_to_host"](self, mem, size)
        _host_waits_for_legacy()

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        monitor = state.monitor
        if monitor is None or size <= 0:
            _copy_to_host_async(self, mem, size, stream)
            return
        address = _address(mem)
        queue = timeline(monitor, stream)
        with _order_lock(monitor, queue, address, size):
            waits = device_to_host(
                monitor, uses.of_copied(self, size), address, size, stream, "copy to host", queue
            )
            _copy_to_host_async(self, mem, size, stream)
        if waits:
            monitor.order(monitor.checker.synchronize_stream, queue)

    def memset(self, value: int, size: int) -> None:
        _report_fill(self, size, cupy.cuda.Stream.null)
        _plain["memset"](self, value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        monitor = state.monitor
        if monitor is None:
            _plain["memset_async"](self, value, size, stream)
            return
        with order_lock(timeline(monitor, stream)):
            _report_fill(self, size, stream)
            _plain["memset_async"](self, value, size, stream)


def _report_device_copy(target: MemoryPointer, source: MemoryPointer, size: int, stream: Any) -> None:
    monitor = state.monitor
    if monitor is not None and size > 0 and isinstance(source, MemoryPointer):
        report_copy(monitor, stream, [uses.of_pointer(source, size)], [uses.of_pointer(target, size)], "copy")


def _report_fill(target: MemoryPointer, size: int, stream: Any) -> None:
    monitor = state.monitor
    if monitor is not None and size > 0:
        report_copy(monitor, stream, [], [uses.of_pointer(target, size)], "memset")


def _report_from_host_sync(target: MemoryPointer, mem: Any, size: int) -> None:
    monitor = state.monitor
    if monitor is not None and size > 0:
        host_to_device(
            monitor,
            _address(mem),
            uses.of_pointer(target, size),
            size,
            cupy.cuda.Stream.null,
            "copy_from_host",
            timeline_of_handle(monitor, NULL),
        )


def _report_to_host_sync(source: MemoryPointer, mem: Any, size: int) -> None:
    monitor = state.monitor
    if monitor is not None and size > 0:
        device_to_host(
            monitor,
            uses.of_pointer(source, size),
            _address(mem),
            size,
            cupy.cuda.Stream.null,
            "copy_to_host",
            timeline_of_handle(monitor, NULL),
        )


def _host_waits_for_legacy() -> None:
    monitor = state.monitor
    if monitor is not None:
        monitor.order(monitor.checker.synchronize_stream, timeline_of_handle(monitor, NULL))


# -- allocation ------------------------------------------------------------------------------------------------------


_methods: dict[Any, Any] = {}
"""The methods of pools that hand memory to the program, and what they were before."""


_PLAIN = "_streamsafe_plain"


def _plain_of(allocator: Any) -> Any:
    """What an allocator of ours wraps; any other as it is."""
    return getattr(allocator, _PLAIN, allocator)


def _wrap(plain: Callable[[int], MemoryPointer]) -> Callable[[int], MemoryPointer]:
    """A user's, or CuPy's, allocator whose blocks the monitor tracks."""
    plain = _plain_of(plain)
    given: Callable[[int], MemoryPointer] = unwrapped(plain)
    if not isinstance(given, BuiltinFunctionType):
        given = partial(call_user_allocator, plain)

    def allocate(size: int) -> MemoryPointer:
        return _track(given(size), size)

    setattr(allocate, _PLAIN, plain)
    if hooks.module is not None:
        return hooks.module.hook("allocate", given, allocate, "")  # type: ignore[no-any-return]
    return allocate


def _track(pointer: MemoryPointer, size: int) -> MemoryPointer:
    """Has the monitor track a block that is handed out; gives the pointer that the program gets."""
    start = pointer.ptr
    if start == 0 or type(pointer) is not MemoryPointer:
        return pointer
    monitor = state.monitor
    memory = pointer.mem
    offset = start - memory.ptr
    notifier = None
    if offset == 0 and monitor is not None:
        try:
            kind = type(memory)
            queue = timeline(monitor)
            extent = memory.size or size
            if kind is PooledMemory and monitor.mark is None:
                block = device_blocks.at(start)
                if block is None or block.lease is None or not monitor.allocate_again(block, extent, queue):
                    block = monitor.allocate(memory.device_id, start, extent, stream=queue, owner="cupy")
                    block.lease = block.lease or Lease()
                release = PooledRelease()
                release.block, release.lease = block, block.lease
                memory.__dict__["_streamsafe"] = release
            else:
                pool: Literal["driver", "cupy"] = "driver" if kind is memory_module.Memory else "cupy"
                block = monitor.allocate(memory.device_id, start, extent, stream=queue, owner=pool)
                notifier = ReleaseNotifier(monitor.freed, block)
                if kind is PooledMemory:
                    memory.__dict__["_streamsafe"] = notifier
                    notifier = None
        except Exception as error:  # an allocator is called from C++ that cannot take an exception
            monitor.sessions[-1].notes.append(f"an allocation was not tracked: {error}")
    if plain_pointer and get_ident() in plain_pointer:
        plain_pointer.discard(get_ident())
        return pointer
    traced = TracedMemoryPointer(memory, offset)
    if notifier is not None:
        traced.notifier = notifier
    return traced


def unwrapped(allocator: Any) -> Any:
    """The method of a pool as it was before; any other allocator as it is."""
    original = _methods.get(getattr(allocator, "__func__", None))
    return allocator if original is None else original.__get__(allocator.__self__)


def _direct(original: Any) -> Any:
    """A way to take memory from a pool without the current allocator: ``pool.malloc(size)``, ``malloc_async(size)``."""

    @wraps(original)
    def malloc(*args: Any, **kwargs: Any) -> MemoryPointer:
        pointer = original(*args, **kwargs)
        if user_allocator.running or state.monitor is None:
            return pointer
        return _track(pointer, args[-1] if args else kwargs["size"])

    _methods[malloc] = original
    return malloc


def _gone(address: int) -> bool:
    """Whether the driver has nothing at an address any more."""
    try:
        return int(runtime.pointerGetAttributes(address).type) == 0
    except runtime.CUDARuntimeError:
        return False


def _emptied(original: Callable[..., None]) -> Callable[..., None]:
    """A pool's ``free_all_blocks``: what the driver took back is clean."""

    @wraps(original)
    def free_all_blocks(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        monitor = state.monitor
        if monitor is not None:
            monitor.returned(_gone)

    return free_all_blocks


def install(patches: Patches) -> None:
    """Wraps the allocators, current and future ones, and the pointers of arrays that exist."""
    for pool in (memory_module.MemoryPool, PinnedMemoryPool):
        for name in ("free_all_blocks", "free_all_free"):
            patches.wrap(pool, name, _emptied)
    for pool in (memory_module.MemoryPool, getattr(memory_module, "MemoryAsyncPool", None)):
        if pool is not None:
            patches.wrap(pool, "malloc", _direct)
    for name in ("malloc_async", "malloc_managed"):
        for module in (memory_module, cupy.cuda):
            patches.wrap(module, name, _direct)
    for name, kind, operation in _COMPILED:
        hooks.replace(TracedMemoryPointer, name, kind, _plain.get(name, _plain_add), operation)
    if hooks.module is not None:
        TracedMemoryPointer.__radd__ = TracedMemoryPointer.__dict__["__add__"]
    _set_current(_wrap(plain_allocator()))
    patches.call(_methods.clear)
    patches.call(lambda: _set_current(unwrapped(plain_allocator())))

    def setter(original: Callable[..., None]) -> Callable[..., None]:
        def set_allocator(allocator: Any = None) -> None:
            original(_wrap(memory_module._malloc if allocator is None else allocator))

        return set_allocator

    def thread_setter(original: Callable[..., None]) -> Callable[..., None]:
        def set_thread_local_allocator(allocator: Any) -> None:
            original(None if allocator is None else _wrap(allocator))

        return set_thread_local_allocator

    def getter(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_allocator() -> Any:
            return _plain_of(original())

        return get_allocator

    for module in (memory_module, cupy.cuda):
        patches.wrap(module, "set_allocator", setter)
        patches.wrap(module, "get_allocator", getter)
    patches.wrap(memory_module, "_set_thread_local_allocator", thread_setter)
    for name, original in _plain.items():
        patches.attribute(MemoryPointer, name, _for_plain_pointers(original, name))
    # Not in cupy.cuda.memory: extension modules that are imported later take the type from there.
    patches.attribute(cupy.cuda, "MemoryPointer", TracedMemoryPointer)
    for array in gc.get_objects():
        if issubclass(
            type(array), uses.array_type
        ):  # `isinstance` would run code of proxies and lazy modules
            convert(array)


_COMPILED = (
    ("copy_from_host_async", "from_host", "copy from host"),
    ("copy_to_host_async", "to_host", "copy to host"),
    ("copy_from_device_async", "copy", "copy"),
    ("memset_async", "fill", "memset"),
    ("__add__", "pointer_add", ""),
)
"""The methods with a compiled hook in front: its kind, and what messages call the operation."""

_get_allocator = memory_module.get_allocator
_set_allocator = memory_module.set_allocator


def plain_allocator() -> Any:
    """The allocator that is current, without ours around it."""
    return _plain_of(_get_allocator())


def _set_current(allocator: Any) -> None:
    if memory_module._get_thread_local_allocator() is not None:
        memory_module._set_thread_local_allocator(allocator)
    else:
        _set_allocator(allocator)


def _for_plain_pointers(original: Any, name: str) -> Any:
    """What a plain pointer's method becomes for callers in Python: pointers made before the session, or by hand."""
    traced = TracedMemoryPointer.__dict__[name]

    def method(self: MemoryPointer, *args: Any, **kwargs: Any) -> None:
        if state.monitor is None or type(self) is not MemoryPointer:
            original(self, *args, **kwargs)
        else:
            stand_in = TracedMemoryPointer(self.mem, self.ptr - self.mem.ptr)
            traced(stand_in, *args, **kwargs)

    method.__name__ = name
    return method


def convert(array: Any) -> None:
    """Gives an array a pointer that is traced; nothing else about it changes."""
    pointer = array.data
    if type(pointer) is MemoryPointer and pointer.ptr:
        traced = TracedMemoryPointer(pointer.mem, pointer.ptr - pointer.mem.ptr)
        traced.notifier = None
        array._init((), array.dtype, traced, array.strides)
