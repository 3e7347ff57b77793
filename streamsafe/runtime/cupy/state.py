"""What CuPy's hooks share: the monitor that is listening, and how a stream object becomes a timeline."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import cupy
from cupy.cuda.device import get_device_id
from cupy.cuda.stream import get_current_stream
from cupy_backends.cuda.api import driver, runtime

from streamsafe.order.checker import Kind
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.monitor import PER_THREAD, Monitor, current
from streamsafe.runtime.patches import Patches

MAJOR = int(cupy.__version__.split(".")[0])


state = current


plain_pointer: set[int] = set()
"""The threads whose next allocation is the work area of a CUB block reduction.

CuPy passes it to its table of argument types, which knows plain pointers only.
"""


class _UserAllocator(threading.local):
    """Whether an allocator of the user's is at work: its caller hands out what it takes from a pool."""

    running = False


user_allocator = _UserAllocator()


def call_user_allocator(allocator: Callable[[int], Any], size: int) -> Any:
    """What a user's allocator gives, while it is known to be at work."""
    before = user_allocator.running
    user_allocator.running = True
    try:
        return allocator(size)
    finally:
        user_allocator.running = before


OrderLock: TypeAlias = _thread.RLock

_order_locks: dict[Hashable, OrderLock] = {}


def order_lock(queue: Hashable) -> OrderLock:
    """The lock of a timeline for recording and enqueueing an operation: other threads' come before or after both.

    It is another one than the monitor's, and one for each timeline: CUDA may keep a caller waiting until the stream has
    room, for which a host function may have to end that accesses memory or that waits for another thread. Not to be
    held over a call that waits for the stream's work.
    """
    found = _order_locks.get(queue)
    return found if found is not None else _order_locks.setdefault(queue, _thread.RLock())


def timeline(monitor: Monitor, stream: Any = None) -> Hashable:
    """The timeline of a stream object; of the calling thread's current stream when there is none."""
    if stream is None:
        stream = get_current_stream(monitor.only_device)
    handle = stream.ptr
    found = monitor.by_handle.get(handle)
    if found is not None:
        return found
    count_devices(monitor)
    device = stream.device_id
    if device < 0 or handle <= PER_THREAD:
        device = get_device_id()
    return timeline_on(monitor, device, handle)


def timeline_of_handle(monitor: Monitor, handle: int) -> Hashable:
    """The timeline of a raw handle on the current device."""
    count_devices(monitor)
    return timeline_on(monitor, get_device_id(), handle)


def timeline_on(monitor: Monitor, device: int, handle: int) -> Hashable:
    """The timeline of a raw handle of a device.

    CUDA's handles 0 and 1 are the legacy default stream, 2 is the calling thread's own.
    """
    if handle > PER_THREAD:
        if monitor.known(device, handle):
            return device, handle
        return monitor.stream(device, handle, kind_of(handle))
    return monitor.thread_stream(device) if handle == PER_THREAD else monitor.null_stream(device)


_devices = 0


def count_devices(monitor: Monitor) -> None:
    """Lets the monitor know whether there is but one device.

    Not when a session begins: to ask would start CUDA, after which a program can neither choose its devices nor fork.
    """
    global _devices
    if not _devices:
        try:
            _devices = int(runtime.getDeviceCount())
        except runtime.CUDARuntimeError:  # no driver: nothing will be enqueued
            return
    if _devices == 1 and not monitor.one_device:
        monitor.one_device = True
        monitor.only_device = 0


def kind_of(handle: int) -> Kind:
    """Whether a stream made elsewhere waits for the legacy default stream: blocking when CUDA cannot say."""
    query = getattr(runtime, "streamGetFlags", None)
    if query is None:
        return "blocking"
    try:
        return "non-blocking" if query(handle) & runtime.streamNonBlocking else "blocking"
    except Exception:
        return "blocking"


def refuse_capture() -> None:
    """A session cannot begin inside a capture: what was captured before is unknown.

    Raises:
        RuntimeError: the calling thread's current stream is being captured.
    """
    try:
        stream = get_current_stream() if driver.ctxGetCurrent() else None
        captures = stream is not None and stream.ptr > 0 and stream.is_capturing()
    except Exception:  # CUDA has not been started
        return
    if captures:
        raise RuntimeError(
            "sanitize() was entered while the current stream is being captured: enter it before"
        )


def begin(monitor: Monitor, patches: Patches) -> None:
    """A new stream program begins: what is kept beside the engine starts anew. The last of all that hears of it.

    Args:
        patches: what lasts as long as the session.
    """
    _order_locks.clear()
    if _devices:
        count_devices(monitor)
    hooks.begin(monitor, patches)


def called_here(depth: int = 2) -> tuple[int, int]:
    """An instruction up the stack: two hooks entered from one instruction were called by CuPy, not by the user."""
    frame = sys._getframe(depth)
    return id(frame), frame.f_lasti
