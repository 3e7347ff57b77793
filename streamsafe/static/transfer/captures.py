"""Captures: where they begin and end, and whether one is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain.atoms import CAPTURING, TRUE, UNKNOWN, Value, ordered, value
from streamsafe.static.domain.state import Region, State
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


@special("capturing")
def capturing(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``is_current_stream_capturing()``: known inside a capture, else the caller's to decide."""
    return value(TRUE) if s.capture is not None else value(CAPTURING)


@special("capture_begin")
def begin(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``graph.capture_begin()``: on the current stream; it synchronizes nothing (GC-18)."""
    graphs = ordered(c.receiver)
    s.capture = Region(a.span(c.at), s.current, graphs[0] if graphs else None)
    return UNKNOWN


@special("capture_end")
def end(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``graph.capture_end()``"""
    s.capture = None
    return UNKNOWN
