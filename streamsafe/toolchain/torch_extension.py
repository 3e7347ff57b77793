"""The extension that ``collect.cpp`` is built into: how it is built, and what it offers to Python.

Build:
    One translation unit, ``streamsafe/runtime/torch/collect.cpp``; :data:`streamsafe.toolchain.torch.COLLECTOR` has its
    folders and options. It exports the symbols of ``streamsafe/order/native/abi.hpp``, and must never be unloaded.

Without a GPU:
    A simulated device in a CPU build of torch fires torch's GPU trace, and its allocator calls
    :meth:`Extension.block_callback`:
    ``void (*)(uintptr_t address, size_t size, int device, uintptr_t stream, int what)`` with ``what`` 0: a
    block is handed out, 1: it is given back, 2: it is recorded on ``stream``, 3: it goes back to the driver. With
    ``what`` 0 the callback may throw a C++ exception, which the allocation lets through after taking the block back
    (the operator around it must not run).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

RawUse = tuple[int, int, bool, bool]
"""Address, bytes, whether it is written, whether that is certain."""


class Extension(Protocol):
    """The module. Devices are indexes, streams and events raw CUDA handles. All functions are safe in any thread."""

    def attach(self) -> None:
        """Put the hooks into torch: GPU trace, allocator tracker, front allocator. CUDA must be initialized.

        Once for the process; :meth:`start` and :meth:`stop` switch them.
        """

    def start(self, judge: Callable[..., Any], fresh: bool) -> None:
        """Watch from here on.

        Args:
            judge: called with the GIL for each conflict, as ``judge(report, operation, tensor)``; it returns None, or
                the exception to raise before the operation is enqueued. ``report``: integers, as
                :mod:`streamsafe.order.native.reports` reads them.
            fresh: begin a new program: all earlier work counts as finished.
        """

    def stop(self) -> None:
        """Stop watching: hooks only pass calls on."""

    def core(self) -> int:
        """Address of the core, for :class:`streamsafe.order.native.checker.NativeChecker`."""

    def include_thread(self, on: bool) -> None:
        """Whether operators of the calling thread are seen."""

    def launch(self, operation: str, uses: Sequence[RawUse], device: int, stream: int) -> None:
        """A kernel without a dispatcher operator is about to be enqueued. Raises what ``judge`` returned."""

    def host_access(self, operation: str, uses: Sequence[RawUse]) -> None:
        """The host is about to touch memory. Raises what ``judge`` returned."""

    def block_callback(self) -> int:
        """Address of the function that a simulated allocator calls."""

    def self_test(self) -> str:
        """Run a small program. Empty if its access, wait and conflict were seen; else what was missed."""

    def counters(self) -> dict[str, int]:
        """Numbers of what was seen since the process began, by kind."""
