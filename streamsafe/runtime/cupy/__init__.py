"""CuPy's front end, as :class:`streamsafe.runtime.library.FrontEnd` describes it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Hashable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from streamsafe.runtime.blocks import device_blocks
from streamsafe.runtime.library import UnsupportedError
from streamsafe.runtime.patches import Patches

if TYPE_CHECKING:
    from streamsafe.order.checker import Checker
    from streamsafe.runtime.monitor import Monitor

NAME = "CuPy"
PACKAGES = ("cupy", "cupyx", "cupy_backends")

SUPPORTED = ((13, 6), (14, 99))
"""The first and the last supported (major, minor)."""

_LAYERS = (
    "streams",
    "memory",
    "pinned",
    "graphs",
    "kernels",
    "kernels_before",
    "runtime_calls",
    "library_calls",
    "interop",
)


_beginnings: list[Callable[[Monitor, Patches], None]] = []
"""What each layer does when a session begins."""


def install(patches: Patches) -> None:
    """Puts all hooks in place.

    Raises:
        UnsupportedError: this version of CuPy is not supported.
    """
    check_version(sys.modules["cupy"])
    compiled = importlib.import_module(f"{__name__}.compiled")
    compiled.hooks.load()
    layers = {layer: importlib.import_module(f"{__name__}.{layer}") for layer in _LAYERS}
    compiled.configure(**layers)
    for layer in layers.values():
        layer.install(patches)
    every = (*layers.values(), _state())
    _beginnings[:] = [layer.begin for layer in every if hasattr(layer, "begin")]


def refuse() -> None:
    """A session cannot begin inside a capture: what was captured before is unknown.

    Raises:
        RuntimeError: the calling thread's current stream is being captured.
    """
    _state().refuse_capture()


def engine() -> Checker | None:
    """The core inside the compiled hooks, where these are there."""
    found: Checker | None = sys.modules[f"{__name__}.compiled"].hooks.engine()
    return found


def begin(monitor: Monitor, patches: Patches) -> None:
    """A new stream program begins."""
    for begins in _beginnings:
        begins(monitor, patches)


def _state() -> Any:
    """The module that the hooks share: it needs CuPy."""
    return sys.modules[f"{__name__}.state"]


def stream_handle(value: object) -> int | None:
    """The raw handle of a CuPy stream."""
    kind = getattr(sys.modules.get("cupy.cuda.stream"), "_BaseStream", None)
    return int(value.ptr) if kind is not None and isinstance(value, kind) else None


def timeline(monitor: Monitor, device: int | None, handle: int | None) -> Hashable:
    """The timeline of a raw handle on a device; None for the calling thread's current one."""
    state = _state()
    if handle is None:
        found: Hashable = state.timeline(monitor)
        return found
    state.count_devices(monitor)
    on = state.get_device_id() if device is None else device
    found = state.timeline_on(monitor, on, handle)
    return found


def extent(value: object) -> tuple[int | None, int, int] | None:
    """Device, address and bytes of a ``cupy.ndarray``, from the first to the last one that it touches."""
    kind = getattr(sys.modules.get("cupy"), "ndarray", None)
    if kind is None or not isinstance(value, kind):
        return None
    array: Any = value
    low, high = sys.modules["cupy"].byte_bounds(array)
    return int(array.device.id), int(low), int(high - low)


def block(address: int) -> tuple[int, int, int] | None:
    """Device, first and last byte (exclusive) of the live block that holds an address; None: there is none."""
    found = device_blocks.holding(address)
    if found is None or not isinstance(found.space, int):
        return None
    return found.space, found.start, found.stop


def parts(value: object) -> Iterator[tuple[str, object]] | None:
    """No object of CuPy's has arrays by name."""
    return None


def forward(frame: FrameType | None) -> tuple[object, str, FrameType | None] | None:
    """CuPy has no models."""
    return None


def check_version(cupy: Any) -> None:
    """Refuses a CuPy whose internals are not known.

    Raises:
        UnsupportedError: see there.
    """
    match = re.match(r"(\d+)\.(\d+)", cupy.__version__)
    version = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    if not SUPPORTED[0] <= version <= SUPPORTED[1]:
        raise UnsupportedError(
            f"CuPy {cupy.__version__} cannot be watched: streamsafe supports 13.6 and 14.x"
        )
    if getattr(cupy.cuda.runtime, "is_hip", False):
        raise UnsupportedError("CuPy for ROCm cannot be watched: streamsafe supports CUDA")


__all__ = ["NAME", "PACKAGES", "UnsupportedError", "begin", "engine", "install", "refuse", "stream_handle"]
