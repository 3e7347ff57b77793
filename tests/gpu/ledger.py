"""What the sanitizer was told against what the driver was asked to do.

An operation of the driver is attributed when the sanitizer was told of its cause before, on the same stream: a kernel
hook accounts for one launch, a copy or fill hook for one copy or memset, a library hook for all that the library does
until it returns, or until the next thing is told. What a library copies or fills in memory of its own (tables of a
plan, a work area) is counted apart.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from streamsafe.runtime.monitor import Monitor
from tests.gpu.cupti import Operation

_LIBRARIES = "libraries.py"
_MANY = 1 << 30
_QUOTA = {
    "kernels.py": (("launch",), 1),
    "memory.py": (("copy", "memset"), 1),
    "runtime_calls.py": (("copy", "memset"), 1),
    "graphs.py": (("graph",), 1),
    _LIBRARIES: (("launch", "copy", "memset"), _MANY),
}


class Ledger:
    """Listens to both sides while it is open.

    Attributes:
        seen: operations by kind. missed: the unattributed ones, in words.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        self.missed: list[str] = []
        self._running: dict[int, int] = {}
        self.open = False
        self._kinds: tuple[str, ...] = ()
        self._left = 0
        self._stream = -1
        self._told = "nothing"
        for name in ("access", "replay"):
            patch.setattr(Monitor, name, self._wrapped(getattr(Monitor, name), name))

    def _wrapped(self, original: Any, name: str) -> Any:
        def tell(monitor: Monitor, *args: Any, **kwargs: Any) -> Any:
            if self.open:
                self._tell(args, sys._getframe(1), name)
            return original(monitor, *args, **kwargs)

        return tell

    def _tell(self, args: tuple[Any, ...], caller: FrameType, name: str) -> None:
        key = args[1] if name == "replay" else args[0]
        file = os.path.basename(caller.f_code.co_filename)
        self._kinds, self._left = _QUOTA.get(file, ((), 0))
        self._stream = key[1]
        if file == _LIBRARIES:
            self._running[id(caller)] = self._stream
        self._told = "launch of a graph" if name == "replay" else args[3]

    def heard(self, operation: Operation) -> None:
        """The driver's side."""
        from streamsafe.runtime.cupy.memory import block_at

        if not self.open:
            return
        self.seen[operation.kind] += 1
        accounted = (
            self._left > 0 and operation.kind in self._kinds and operation.stream in (None, self._stream)
        )
        if accounted:
            self._left -= 1
        elif operation.target is not None and block_at(operation.target) is None:
            self.seen["inside libraries"] += 1
        elif not self._in_library(operation):
            what = operation.symbol[:60] or operation.function
            self.missed.append(
                f"{operation.kind} {what} on {operation.stream} (last told: {self._told} on {self._stream})"
            )

    def _in_library(self, operation: Operation) -> bool:
        """Whether a library call that was told is still running, on this stream."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if os.path.basename(frame.f_code.co_filename) == _LIBRARIES:
                stream = self._running.get(id(frame))
                if stream is not None and operation.stream in (None, stream):
                    return True
            frame = frame.f_back
        return False
