"""PyTorch's front end, as :class:`streamsafe.runtime.library.FrontEnd` describes it.

``collect.cpp`` sees operators, streams and memory, :mod:`streamsafe.runtime.torch.hooks` what
has no hook in C++, and :mod:`streamsafe.runtime.torch.watch` joins them to the session.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Hashable
from typing import TYPE_CHECKING

from streamsafe.runtime.library import UnsupportedError
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.host_access import span
from streamsafe.runtime.torch.modules import forward, parts

if TYPE_CHECKING:
    from streamsafe.runtime.monitor import Monitor
    from streamsafe.runtime.torch.watch import Watch

NAME = "PyTorch"
PACKAGES = ("torch", "triton")

_watch: Watch | None = None


def install(patches: Patches) -> None:
    """Puts the hooks in place, as far as this torch has a device; torch is imported.

    Raises:
        UnsupportedError: the native code for this torch cannot be had; it says why and what to install.
    """
    global _watch
    if _watch is not None or not _has_device():
        return
    build = importlib.import_module("streamsafe.toolchain.compiler")
    watch: Watch = importlib.import_module(f"{__name__}.watch").Watch(patches)
    try:
        watch.install()
    except (build.BuildError, ImportError, OSError) as error:
        raise UnsupportedError(f"PyTorch cannot be watched: {error}") from error
    _watch = watch


def _has_device() -> bool:
    """Whether there is something to watch: a CUDA build with a device, or a simulated one."""
    simulate = sys.modules.get("streamsafe.simulate.torch")
    if simulate is not None and simulate.is_active():
        return True
    torch = sys.modules["torch"]
    return torch.version.cuda is not None and bool(torch.cuda.is_available())


def refuse() -> None:
    """A session cannot begin inside a capture: what was captured before is unknown.

    Raises:
        RuntimeError: the calling thread's current stream is being captured.
    """
    if _watch is not None:
        _watch.refuse()


def engine() -> None:
    """A session begins with any engine: :func:`begin` puts the extension's in its place."""


def begin(monitor: Monitor, patches: Patches) -> None:
    """A new stream program begins."""
    if _watch is not None:
        _watch.begin(monitor, patches)


def stream_handle(value: object) -> int | None:
    """The raw handle of a torch stream."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Stream", None)
    if kind is None or not isinstance(value, kind):
        return None
    handle = getattr(value, "cuda_stream", None)
    return int(handle) if handle is not None else None


def timeline(monitor: Monitor, device: int | None, handle: int | None) -> Hashable:
    """The timeline of a raw handle on a device; None for the calling thread's current one."""
    cuda = sys.modules["torch"].cuda
    on = cuda.current_device() if device is None else device
    raw = cuda.current_stream(on).cuda_stream if handle is None else handle
    if raw in (0, 1):
        return monitor.null_stream(on)
    return monitor.stream(on, raw, "non-blocking", _watch.name_of(on, raw) if _watch is not None else "")


def extent(value: object) -> tuple[int | None, int, int] | None:
    """Device, address and bytes of a strided tensor, from the first to the last one that it touches."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    with torch._C.DisableTorchFunctionSubclass():
        start, size = span(value)
    return (value.device.index if value.is_cuda else None), start, size


def block(address: int) -> tuple[int, int, int] | None:
    """Device, first and last byte (exclusive) of the live block that holds an address; None: there is none."""
    return _watch.block(address) if _watch is not None else None


__all__ = [
    "NAME",
    "PACKAGES",
    "begin",
    "block",
    "extent",
    "forward",
    "install",
    "parts",
    "refuse",
    "stream_handle",
    "timeline",
]
