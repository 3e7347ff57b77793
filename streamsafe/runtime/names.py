"""What the user calls a stream that was made before anything listened."""

from __future__ import annotations

import sys
from types import FrameType

from streamsafe.runtime import sites
from streamsafe.runtime.frontend import loaded

DEPTH = 4
"""Modules looked at: the one whose line uses the stream, and those of its callers."""


def of_stream(handle: int) -> str:
    """The module-level variable that holds a stream, or its raw handle in words.

    Local variables are not looked at: reading a frame's makes Python keep what they held alive, and with it memory.

    Args:
        handle: the raw handle.
    """
    libraries = list(loaded())
    frame: FrameType | None = sys._getframe(1) if libraries else None
    looked: list[int] = []
    while frame is not None and len(looked) < DEPTH:
        if not sites.internal(frame.f_code) and id(frame.f_globals) not in looked:
            looked.append(id(frame.f_globals))
            for name, value in list(frame.f_globals.items()):
                if any(library.stream_handle(value) == handle for library in libraries):
                    return name
        frame = frame.f_back
    return f"stream 0x{handle:x}"
