"""Memory as byte ranges: what an operation touches, the shadow that remembers who touched it, exact overlap of views."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

Space = Hashable
"""An address space: a device, or ``"host"``."""

HOST: Space = "host"


class Region(NamedTuple):
    """Some bytes: a range, or the elements of a strided view inside it. A plain tuple of the same layout will do.

    Attributes:
        space: the device whose memory it is (the same value as the streams' ``device``), or ``"host"``.
        start, stop: lowest byte address, and one past the highest; equal for an empty array, which touches nothing.
        shape: of the view, in elements; only reported when ``strides`` is None.
        strides: in bytes, one for each dimension, or None when the elements fill the whole range.
        itemsize: bytes of one element.
    """

    space: Space
    start: int
    stop: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    itemsize: int = 1


class Use(NamedTuple):
    """One array an operation reads or writes. A plain tuple of the same layout will do.

    Attributes:
        region: the bytes.
        name: the array as the user knows it, or empty.
        dtype: its element type, for reports.
        certain: False when it is not known that the operation does this (a parameter of unknown direction): conflicts
            are *possible*, and the access hides no earlier one.
    """

    region: Region
    name: str = ""
    dtype: str | None = None
    certain: bool = True
