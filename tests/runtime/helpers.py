"""What the runtime tests share."""

from __future__ import annotations

from typing import Any

import streamsafe


def settle(cp: Any) -> None:
    cp.cuda.runtime.setDevice(0)
    cp.cuda.Stream.null.use()
    for device in range(cp.cuda.runtime.getDeviceCount()):
        with cp.cuda.Device(device) as current:
            current.synchronize()
    cp.get_default_memory_pool().free_all_blocks()
    cp.get_default_pinned_memory_pool().free_all_blocks()


class Program:
    """Two non-blocking streams and two arrays, with a write on one stream and a read on the other."""

    def __init__(self, cp: Any) -> None:
        self.cp = cp
        self.writer = cp.cuda.Stream(non_blocking=True)
        self.reader = cp.cuda.Stream(non_blocking=True)
        self.x = cp.zeros(4096, cp.float32)
        self.y = cp.zeros(4096, cp.float32)
        cp.cuda.Device().synchronize()

    def write(self) -> None:
        with self.writer:
            self.x.fill(7)

    def read(self) -> None:
        with self.reader:
            self.cp.copyto(self.y, self.x)

    def race(self) -> None:
        self.write()
        self.read()

    def ordered(self) -> None:
        self.write()
        self.reader.wait_event(self.writer.record())
        self.read()

    def settle(self) -> None:
        self.cp.cuda.Device().synchronize()


def codes(session: streamsafe.Session) -> list[str]:
    return [hazard.code for hazard in session.hazards]
