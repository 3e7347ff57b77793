"""Address spaces as the core numbers them: devices by their index, and what is no device apart."""

from __future__ import annotations

from streamsafe.order.memory import HOST, Space

TEXTURE = "texture"
"""Opaque CUDA arrays have an address space of their own."""

_OTHERS: dict[Space, int] = {HOST: -1, TEXTURE: 63}
_NAMES = {number: space for space, number in _OTHERS.items()}


def number(space: Space) -> int:
    """The core's number of an address space.

    Raises:
        TypeError: it is none.
    """
    if type(space) is int:
        return space
    try:
        return _OTHERS[space]
    except KeyError:
        raise TypeError(f"the core numbers address spaces: {space!r} is no device") from None


def space_of(number: int) -> Space:
    """The address space of a number."""
    return _NAMES.get(number, number)
