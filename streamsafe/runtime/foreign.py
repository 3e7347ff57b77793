"""Launches by libraries that have no front end: Numba's kernels and those of cuda.core.

What the arguments of a launch are is known, what the kernel does with them is not: their memory counts as touched in
a direction that is not known, which makes at most *possible* hazards. Only memory of a watched library takes part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any

from streamsafe.order.memory import Region, Use
from streamsafe.runtime.library import FrontEnd, loaded
from streamsafe.runtime.monitor import Monitor, current
from streamsafe.runtime.patches import Patches
from streamsafe.toolchain.imports import after_import

FIRST = 1 << 20
"""A smaller number is no address."""

_Memory = tuple[FrontEnd, int, int, int]
"""Whose it is, its device, and its first and last byte (exclusive)."""


class _Thread(threading.local):
    inside = False  # Numba launches by cuda.core


_thread = _Thread()


def install(patches: Patches) -> None:
    """Reports launches, of each of the libraries when it is imported."""
    after_import("numba.cuda.dispatcher", lambda module: _wrap(patches, module, "_Kernel", "launch", _numba))
    for name in ("cuda.core", "cuda.core.experimental"):
        after_import(name, lambda module: _wrap(patches, module, "", "launch", _cuda_core))


def _wrap(
    patches: Patches,
    module: ModuleType,
    kind: str,
    name: str,
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    owner = getattr(module, kind, None) if kind else module
    if callable(getattr(owner, name, None)):
        patches.wrap(owner, name, make)


def _numba(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def launch(
        self: Any, args: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: Any = 0, **named: Any
    ) -> Any:
        function = getattr(self, "py_func", None)
        with _Launch(getattr(function, "__name__", "a Numba kernel"), args, stream):
            return original(self, args, griddim, blockdim, stream, sharedmem, **named)

    return launch


def _cuda_core(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def launch(stream: Any, config: Any, kernel: Any, *args: Any) -> Any:
        with _Launch("a kernel of cuda.core", args, stream):
            return original(stream, config, kernel, *args)

    return launch


class _Launch:
    """Reports what a kernel's arguments point to before it is launched; a launch inside another one reports nothing."""

    def __init__(self, operation: str, args: Iterable[Any], stream: Any) -> None:
        self._outer = _thread.inside
        monitor = current.monitor
        if monitor is None or self._outer:
            return
        memory = list(_within(args))
        if memory:
            library, device, _, _ = memory[0]
            uses = [Use(Region(at, start, stop), "", None, False) for _, at, start, stop in memory]
            monitor.access(_timeline(monitor, library, device, stream), (), uses, operation, above=4)

    def __enter__(self) -> None:
        _thread.inside = True

    def __exit__(self, *_: object) -> None:
        _thread.inside = self._outer


def _within(args: Iterable[Any]) -> Iterator[_Memory]:
    for value in args:
        if isinstance(value, (tuple, list)):
            yield from _within(value)
            continue
        found = _memory(value)
        if found is not None:
            yield found


def _memory(value: Any) -> _Memory | None:
    """The memory that an argument stands for: of an address, up to the end of its block."""
    libraries = list(loaded())
    for library in libraries:
        extent = library.extent(value)
        if extent is not None:
            device, start, size = extent
            return None if device is None or not size else (library, device, start, start + size)
    start, size = _address(value)
    for library in libraries if start >= FIRST else ():
        block = library.block(start)
        if block is not None:
            device, _, stop = block
            return library, device, start, min(stop, start + size) if size else stop
    return None


def _address(value: Any) -> tuple[int, int]:
    """The address of a number, a buffer or an array of another library, and how many bytes; 0: not known."""
    if type(value) is int:
        return value, 0
    described = getattr(value, "__cuda_array_interface__", None)
    if isinstance(described, dict):
        return int(described["data"][0]), 0
    handle, size = getattr(value, "handle", None), getattr(value, "size", None)
    if handle is not None and isinstance(size, int):  # a Buffer of cuda.core
        return int(handle), size
    return 0, 0


def _timeline(monitor: Monitor, library: FrontEnd, device: int, stream: Any) -> Hashable:
    handle: int | None = None
    for each in loaded():
        handle = each.stream_handle(stream)
        if handle is not None:
            break
    else:
        protocol = getattr(stream, "__cuda_stream__", None)
        if protocol is not None:
            handle = int(protocol()[1])
        else:
            handle = int(stream) if stream else 0
    return library.timeline(monitor, device, handle)
