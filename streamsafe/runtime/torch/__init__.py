"""PyTorch's front end, as :class:`streamsafe.runtime.library.FrontEnd` describes it.

``collect.cpp`` sees operators, streams and memory, :mod:`streamsafe.runtime.torch.hooks` what
has no hook in C++, and :mod:`streamsafe.runtime.torch.watch` joins them to the session.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from streamsafe.runtime.patches import Patches

if TYPE_CHECKING:
    from streamsafe.runtime.monitor import Monitor
    from streamsafe.runtime.torch.fallback.watch import Fallback
    from streamsafe.runtime.torch.watch import Watch

NAME = "PyTorch"
PACKAGES = ("torch", "triton")

_watch: Watch | Fallback | None = None
_problem = ""
"""Why PyTorch is not watched though it has a device."""


def install(patches: Patches) -> None:
    """Puts the hooks in place, as far as this torch has a device; torch is imported.

    Where the native code cannot be had, what Python can see is watched.
    """
    global _watch
    if _watch is not None or not _has_device():
        return
    build = importlib.import_module("streamsafe.toolchain.compiler")
    watch = importlib.import_module(f"{__name__}.watch").Watch(patches)
    try:
        watch.install()
    except (build.BuildError, ImportError, OSError) as error:
        watch = _without_native_code(patches, str(error))
    _watch = watch


def _without_native_code(patches: Patches, reason: str) -> Fallback | None:
    """What Python alone can watch; None where this torch cannot be watched at all, which the summary says."""
    global _problem
    fallback = importlib.import_module(f"{__name__}.fallback.watch")
    trace = importlib.import_module(f"{__name__}.fallback.trace")
    try:
        watch: Fallback = fallback.Fallback(patches, reason)
        watch.install()
    except trace.NoTrace as error:
        patches.restore()
        _problem = f"PyTorch was not watched: {reason}; {error}"
        return None
    return watch


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
    elif _problem:
        monitor.sessions[-1].notes.append(_problem)


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
