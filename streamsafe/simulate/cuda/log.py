"""What the simulated runtime was asked to do, and what it could not do."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# A test asks about the last few operations; a long pipeline must not fill the memory.
LOG_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the CUDA API or of a library.

    Attributes:
        name: name of the call as CuPy spells it (``memcpyAsync``, ``launchKernel``, ``cublas.sgemm``, ...).
        device: current device of the calling thread.
        stream: raw handle the call named, or None where it takes no stream. 0 and 1 are the legacy default
            stream, 2 the per-thread one.
        pointers: device and host addresses among the arguments, in order.
        size: bytes moved or allocated, 0 where meaningless.
        thread: identifier of the calling host thread.
        capture: handle of the capture that recorded the operation instead of running it, or None.
        detail: what else the call carried: ``kernel``, ``grid``, ``block``, ``event``, ``kind``, ``reads``,
            ``writes`` and the like.
    """

    name: str
    device: int
    stream: int | None
    pointers: tuple[int, ...] = ()
    size: int = 0
    thread: int = 0
    capture: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


class Log:
    """Operations in order of their calls, bounded, and complete counts.

    Attributes:
        operations: the latest operations, oldest first.
        counts: calls by name.
        kernels: launches by kernel name.
        dropped: operations that are no longer in the list.
        uncomputed: kernels and library calls that did not compute, and why.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.counts: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.dropped = 0
        self.arrays_copied_back = 0
        self.arrays_filled = 0
        self.bytes_filled = 0
        self.uncomputed: dict[str, str] = {}

    def did_not_compute(self, name: str, reason: str) -> None:
        """Note that a kernel or a library call left its results unknown."""
        self.uncomputed.setdefault(name, reason)

    def note(
        self,
        name: str,
        device: int,
        stream: int | None = None,
        pointers: tuple[int, ...] = (),
        size: int = 0,
        capture: int | None = None,
        **detail: Any,
    ) -> None:
        """Append an operation of the calling thread; the oldest half goes when the limit is reached."""
        self.counts[name] += 1
        if "kernel" in detail:
            self.kernels[detail["kernel"]] += 1
        if len(self.operations) >= LOG_LIMIT:
            half = LOG_LIMIT // 2
            del self.operations[:half]
            self.dropped += half
        self.operations.append(
            Operation(name, device, stream, pointers, size, threading.get_ident(), capture, detail)
        )

    def copied_back(self, total: int, filled: int) -> None:
        """Count one device-to-host copy of which ``filled`` of ``total`` bytes no kernel has computed."""
        self.arrays_copied_back += 1
        if filled:
            self.arrays_filled += 1
            self.bytes_filled += filled
