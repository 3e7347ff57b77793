"""What the simulated device does not have, and how much memory it says it has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NoReturn

from streamsafe.simulate.torch.device import Device

MEMORY = 8 << 30
"""Bytes that a device says it has."""


class NotSimulated(NotImplementedError):
    """The program uses something of CUDA that the simulated device does not have."""


def refuse(name: str) -> Callable[..., NoReturn]:
    """A function that says so."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise NotSimulated(f"{name} is not simulated")

    return refused


def numbers(device: Device, index: int) -> list[int]:
    """Bytes allocated, the most there were, bytes reserved, the most, allocations and frees of a device."""
    six = (ctypes.c_int64 * 6)()
    device.memory(index, six)
    return list(six)
