"""Which files are worth parsing: a test on bytes, so that a file with no stream code costs its read and little more.

The terms are a superset of what the interpreter can report on: a file that has none of them has no finding, and
`--no-prefilter` changes nothing but the time. A term is a plain literal, found at the speed of memchr, and for a
common literal a pattern that begins with it: Python's `re` jumps to a literal prefix, and crawls on alternatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LIBRARIES = (b"torch", b"cupy", b"cuda", b"accelerator")
"""A file that names none of these (nor a model of the user's) is nobody's business."""

# literal -> pattern that begins with it, or None where the literal is enough
_TREAM = rb"""tream(?:
    (?:(?<=\bStream)|(?<=ExternalStream))\b   # the classes, however they are imported or passed on
  | (?<=Stream)Context\b
  | (?<=\bstream)\((?!["'])                     # torch.cuda.stream(s), under whatever name the module has
  | (?<=cuda\.stream)\b                        # the same, passed on or renamed
  | (?<=current_stream)(?!_capturing) | (?<=default_stream) | (?<=set_stream) | (?<=wait_stream) | (?<=record_stream)
)"""
# a third positional or last argument that may be non_blocking: x.to(device, dtype, True), y.copy_(x, True)
_TRUE = rb"\((?:[^()\n]|\([^()\n]*\))*,\s*True\s*[,)]"
_TERMS: tuple[tuple[bytes, bytes | None], ...] = (
    (b"tream", _TREAM),
    (b"blocking", rb"blocking(?:(?<=non_blocking)|\s*=\s*False)"),
    (b"_event", rb"_event(?:(?<=wait_event)|(?<=record_event))"),
    (b"elapsed_time", None),
    (b"CUDAGraph", None),
    (b"make_graphed", None),
    (b"cuda.graph", rb"cuda\.graph\b"),
    (b"capture", rb"capture(?:_begin|(?<=begin_capture))"),
    (b"cuda import", rb"cuda\ import\b[^\n]*(?:\(|\b(?:graph|stream|Event)\b)"),
    (b"async", rb"async(?:_op\s*=(?!\s*False\b)|(?<=device_async)|(?<=host_async))"),
    (b"cpyAsync", None),
    (b"isend", rb"isend\b"),
    (b"irecv", rb"irecv\b"),
    (b"pinned", rb"pinned(?:(?<=_pinned)\b|(?<=alloc_pinned)_memory)"),
    (b".to(", rb"\.to" + _TRUE),
    (b".cuda(", rb"\.cuda" + _TRUE),
    (b"copy_(", rb"copy_" + _TRUE),
)
CLOCKS = (
    b"perf_counter",
    b"time.time",
    b"time import",
    b"monotonic",
    b"default_timer",
    b".now(",
)
"""Host clocks (SS311), which matter beside `DEVICES` only: a launch has to be seen between two of them."""
DEVICES = (b"cuda", b"cupy", b"accelerator")
NUMBERED = re.compile(rb"device\s*=\s*\d|to\(\s*\d\s*[,)]")
"""A device that is named by its number alone."""


@dataclass(frozen=True, slots=True)
class _Term:
    literal: bytes
    pattern: re.Pattern[bytes] | None

    def search(self, source: bytes) -> bool:
        if self.literal not in source:
            return False
        return self.pattern is None or self.pattern.search(source) is not None


_COMPILED = tuple(_Term(literal, re.compile(p, re.VERBOSE) if p else None) for literal, p in _TERMS)


def names_streams(source: bytes) -> bool:
    """Whether a text names streams, events, captures or copies that do not block, whatever library it is about."""
    return any(term.search(source) for term in _COMPILED)


def reads_clocks(source: bytes) -> bool:
    """Whether a text may read a host clock."""
    return any(clock in source for clock in CLOCKS)


def names_devices(source: bytes) -> bool:
    """Whether a text names a device."""
    return any(device in source for device in DEVICES) or NUMBERED.search(source) is not None


def measures(source: bytes) -> bool:
    """Whether a text may time a device by a host clock."""
    return names_devices(source) and reads_clocks(source)


def relevant(source: bytes, models: Iterable[str] = ()) -> bool:
    """Whether a file may hold stream code.

    Args:
        source: the file's bytes.
        models: dotted names of the user's own wrappers; a file that holds the last part of one is relevant.
    """
    for model in models:
        if model.rpartition(".")[2].encode() in source:
            return True
    if not any(library in source for library in LIBRARIES):
        return False
    if any(term.search(source) for term in _COMPILED):
        return True
    return measures(source)
