"""PyTorch's front end, as :class:`streamsafe.runtime.frontend.FrontEnd` describes it.

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
    from streamsafe.runtime.torch.watch import Watch

NAME = "PyTorch"
PACKAGES = ("torch", "triton")

_watch: Watch | None = None


def install(patches: Patches) -> None:
    """Puts the hooks in place; torch is imported."""
    global _watch
    watch = importlib.import_module(f"{__name__}.watch")
    _watch = watch.Watch(patches)
    _watch.install()


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
