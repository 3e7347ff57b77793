"""Arrays handed between libraries: which ways exchange a stream, and which leave the order to luck."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import cupy
import cupy._core as core
import cupy._core.dlpack as dlpack
import numpy
from cupy import _util
from cupy.cuda.device import get_device_id

from streamsafe.runtime.cupy import memory, pinned
from streamsafe.runtime.cupy import touches as uses
from streamsafe.runtime.cupy.state import state, timeline, timeline_of_handle
from streamsafe.runtime.library import loaded
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.patches import Patches

Wrapped = Callable[..., Any]


def without_handshake(monitor: Monitor, touch: uses.Touch) -> None:
    """Memory comes in by a way that exchanges no stream.

    A hazard over it is interop's only if something is pending on it now: of what is written later no handshake at the
    import could have known (CI-12).
    """
    queue = timeline(monitor)
    with monitor.lock:
        pending = monitor.checker.check_access(queue, [touch], (), operation="import", host=monitor.thread)  # type: ignore[list-item]
    if pending:
        space, start, stop, *_ = touch[0]
        monitor.came_in(space, start, stop)


def take_interface(monitor: Monitor, source: Any) -> None:
    """CuPy takes an object by ``__cuda_array_interface__``: it makes the host wait for the stream in it (CI-08)."""
    interface = source.__cuda_array_interface__
    stream = interface.get("stream")
    if stream is not None and _util.CUDA_ARRAY_INTERFACE_SYNC:
        monitor.order(monitor.checker.synchronize_stream, timeline_of_handle(monitor, stream))
        return
    pointer = interface["data"][0]
    shape = tuple(interface["shape"])
    dtype = numpy.dtype(interface["typestr"])
    strides = interface.get("strides")
    if pointer and stream is None:
        if strides is None:
            size = dtype.itemsize
            for extent in shape:
                size *= extent
            touch = uses.of_bytes(get_device_id(), pointer, size)
        else:
            touch = uses.of_view(get_device_id(), pointer, shape, tuple(strides), dtype)
        without_handshake(monitor, touch)


def operand(monitor: Monitor, array: Any) -> None:
    """An array whose pointer is plain: CuPy has just made it of a foreign object that was passed as an operand."""
    owner = getattr(array.data.mem, "_owner", None)
    if owner is None or isinstance(owner, uses.array_type):
        return
    try:
        known = hasattr(owner, "__cuda_array_interface__")
    except Exception:
        return
    if known:
        take_interface(monitor, owner)


def _from_interface(original: Wrapped) -> Wrapped:
    @wraps(original)
    def convert(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if type(obj) is numpy.ndarray:
            pinned.watch_array(obj)
            return original(obj, *args, **kwargs)
        monitor = state.monitor
        if (
            monitor is not None
            and not isinstance(obj, (uses.array_type, numpy.ndarray, list, tuple, int, float, complex))
            and not hasattr(obj, "__cupy_get_ndarray__")
        ):
            try:
                known = hasattr(obj, "__cuda_array_interface__")
            except Exception:
                known = False
            if known:
                take_interface(monitor, obj)
                result = original(obj, *args, **kwargs)
                memory.convert(result)
                return result
        return original(obj, *args, **kwargs)

    return convert


def _from_dlpack(original: Wrapped) -> Wrapped:
    @wraps(original)
    def from_dlpack(array: Any, *args: Any, **kwargs: Any) -> Any:
        within.cupy = True
        try:
            result = original(array, *args, **kwargs)
        finally:
            within.cupy = False
        monitor = state.monitor
        if monitor is not None and isinstance(result, uses.array_type):
            memory.convert(result)
            if type(array).__name__ == "PyCapsule":
                without_handshake(monitor, uses.of_array(result))
        return result

    return from_dlpack


def _to_dlpack(original: Wrapped) -> Wrapped:
    def __dlpack__(self: Any, **kwargs: Any) -> Any:
        monitor = state.monitor
        if monitor is not None:
            stream = kwargs.get("stream")
            if stream == -1:
                without_handshake(monitor, uses.of_array(self))
            elif within.cupy or not isinstance(stream, int):
                pass  # between two parts of a program that both use CuPy nobody waits for anything
            elif timeline_of_handle(monitor, stream) == timeline(monitor):
                monitor.handshake(timeline(monitor))
            _handed_on(monitor)
        return original(self, **kwargs)

    return __dlpack__


def _capsule(original: Wrapped) -> Wrapped:
    def toDlpack(self: Any) -> Any:
        monitor = state.monitor
        if monitor is not None:
            without_handshake(monitor, uses.of_array(self))
            _handed_on(monitor)
        return original(self)

    return toDlpack


class _Within(threading.local):
    """Whether CuPy is taking an array itself."""

    cupy = False


within = _Within()
HANDED_ON = (
    "CuPy arrays were handed to other libraries, by __cuda_array_interface__ or DLPack ({} times): what these "
    "enqueue is not seen"
)


def _handed_on(monitor: Monitor) -> None:
    """An array goes to a library that is not watched."""
    if not within.cupy and not any(library.NAME != "CuPy" for library in loaded()):
        monitor.unseen[HANDED_ON] += 1


def _interface(original: Any) -> property:
    """The property that other libraries ask an array for."""

    def __cuda_array_interface__(self: Any) -> Any:
        """The array as the CUDA Array Interface describes it."""
        monitor = state.monitor
        if monitor is not None:
            _handed_on(monitor)
        return original.__get__(self)

    return property(__cuda_array_interface__)


def install(patches: Patches) -> None:
    """Wraps imports and exports."""
    for name in ("array", "ascontiguousarray", "asfortranarray"):
        patches.wrap(core, name, _from_interface)
    for module in (cupy, core, dlpack):
        for name in ("from_dlpack", "fromDlpack"):
            patches.wrap(module, name, _from_dlpack)
    patches.wrap(uses.array_type, "__dlpack__", _to_dlpack)
    patches.wrap(uses.array_type, "toDlpack", _capsule)
    patches.wrap(uses.array_type, "__cuda_array_interface__", _interface)
