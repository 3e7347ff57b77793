"""PyTorch's front end, as :class:`streamsafe.runtime.library.FrontEnd` describes it.

``collect.cpp`` sees operators, streams and memory, :mod:`streamsafe.runtime.torch.hooks` what
has no hook in C++, and :mod:`streamsafe.runtime.torch.watch` joins them to the session.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from streamsafe.runtime.library import UnsupportedError
from streamsafe.runtime.patches import Patches

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


__all__ = [
    "NAME",
    "PACKAGES",
    "begin",
    "install",
    "refuse",
    "stream_handle",
]
