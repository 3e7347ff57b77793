"""Delaying one side of a suspected hazard with a spin kernel, so that a missing edge shows as wrong data."""

from __future__ import annotations

from typing import Any

import cupy
import numpy

from streamsafe.runtime import places as sites
from streamsafe.runtime.cupy.state import state
from streamsafe.runtime.monitor import Monitor

DELAY_MS = 50

_SOURCE = r"""
extern "C" __global__ void streamsafe_delay(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""


def delay_at(places: frozenset[tuple[str, int]]) -> None:
    """Before every operation enqueued from one of these (file, line) places, its stream is kept busy for a while."""
    monitor = state.monitor
    if monitor is None:
        return
    kernel = cupy.RawKernel(_SOURCE, "streamsafe_delay")
    cycles = cupy.cuda.Device().attributes.get("ClockRate", 1_500_000) * DELAY_MS
    busy = False

    def delay(_: Monitor, stream: Any) -> None:
        nonlocal busy
        if busy:
            return
        busy = True
        state.monitor = None
        try:
            kernel((1,), (1,), (numpy.int64(cycles),), stream=stream)
        finally:
            state.monitor = monitor
            busy = False

    monitor.delay = (places, delay)


def delayed(monitor: Monitor, stream: Any) -> None:
    """Delays a stream if the user's line is one of the places."""
    assert monitor.delay is not None
    places, delay = monitor.delay
    stack = sites.frames(sites.capture(2))
    if stack and (stack[0].filename, stack[0].line) in places:
        delay(monitor, stream)
