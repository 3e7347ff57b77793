"""CuPy's front end: every hook of one installation, put in place together and taken away together."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from typing import Any

from streamsafe.runtime.patches import Patches

SUPPORTED = ((13, 6), (14, 99))
"""The first and the last supported (major, minor)."""

_LAYERS = ("streams", "memory", "pinned", "graphs", "kernels", "runtime_calls", "libraries", "interop")


class UnsupportedError(RuntimeError):
    """This CuPy cannot be watched; the message says which version can."""


def available() -> bool:
    """Whether CuPy is imported or can be."""
    return "cupy" in sys.modules or importlib.util.find_spec("cupy") is not None


def install(patches: Patches) -> None:
    """Puts all hooks in place.

    Raises:
        UnsupportedError: this version of CuPy is not supported.
    """
    cupy = importlib.import_module("cupy")
    check_version(cupy)
    layers = [importlib.import_module(f"{__name__}.{layer}") for layer in _LAYERS]
    for layer in layers:
        layer.install(patches)


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
