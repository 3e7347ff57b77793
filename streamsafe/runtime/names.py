"""What a stream is called: by its variable, or by where it was made or first used. Never by its raw handle."""

from __future__ import annotations

import sys
from collections.abc import Container
from types import FrameType

from streamsafe.order.hazard import Frame, quoted
from streamsafe.report.paths import shown
from streamsafe.runtime import sites
from streamsafe.runtime.frontend import loaded

DEPTH = 4
"""Modules looked at: the one whose line uses the stream, and those of its callers."""


def of_new_stream(site: sites.Site) -> str:
    """The variable that a stream is bound to where it is made, or that place in words; empty where none is known."""
    found = sites.frames(site)
    return sites.name_of(site) or (f"the stream made at {_place(found[0])}" if found else "")


def unique(name: str, taken: Container[str]) -> str:
    """The name, with a number where another stream has it already: ``the 2nd `side```."""
    if name not in taken:
        return name
    number = 2
    while (numbered := _numbered(name, number)) in taken:
        number += 1
    return numbered


def _numbered(name: str, number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"the {number}{ending} {quoted(name).removeprefix('the ')}"


def _place(frame: Frame) -> str:
    return f"{shown(frame.filename)}:{frame.line}"


def of_stream(handle: int) -> str:
    """The module-level variable that holds a stream, or where it is first used.

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
    found = sites.frames(sites.capture(1))
    return f"the stream first used at {_place(found[0])}" if found else "a stream of unknown origin"
