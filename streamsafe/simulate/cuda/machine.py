"""The simulated machine: its devices and everything they own, behind one lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from streamsafe.simulate.cuda.capture import Captures
from streamsafe.simulate.cuda.compute import Later
from streamsafe.simulate.cuda.errors import (
    INITIALIZATION_ERROR,
    INVALID_DEVICE,
    INVALID_HANDLE,
    NOT_PERMITTED,
    CudaError,
)
from streamsafe.simulate.cuda.kernels import Function, Module
from streamsafe.simulate.cuda.log import Log
from streamsafe.simulate.cuda.memory import AddressSpace
from streamsafe.simulate.cuda.queues import Event, Node, Stream, Task
from streamsafe.simulate.cuda.streams import Handles, Scheduler

CAPACITY = 64 << 30


class Machine:
    """Devices, streams, events, memory, modules and graphs of the simulation.

    Args:
        devices: number of devices.
        computes: whether kernels and library calls compute.
    """

    def __init__(self, devices: int, computes: bool = True) -> None:
        self.devices = devices
        self.computes = computes
        self.lock = threading.RLock()
        self.log = Log()
        self.later = Later(self.log)
        self.memory = AddressSpace(devices, CAPACITY, knows=computes)
        self.memory.before_free = self.later.flush
        self.scheduler = Scheduler(self.lock)
        self.captures = Captures()
        self.events: dict[int, Event] = {}
        self.event_handles = Handles(0x6000_0000)
        self.modules: dict[int, Module] = {}
        self.functions: dict[int, Function] = {}
        self.graphs: dict[int, list[Node]] = {}
        self.executables: dict[int, Executable] = {}
        self.handles = Handles(0x7000_0000)
        self.peers: set[tuple[int, int]] = set()
        self._current = threading.local()
        self._forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_parent)

    def _forget_parent(self) -> None:
        """In a forked child: CUDA is unusable, and no lock is held by a thread that does not exist here."""
        self._forked = True
        self.lock = threading.RLock()
        self.scheduler.abandon(self.lock)

    # -- devices

    @property
    def device(self) -> int:
        """Current device of the calling thread."""
        return getattr(self._current, "device", 0)

    @property
    def has_context(self) -> bool:
        """Whether the calling thread has made a CUDA call that binds a context."""
        return getattr(self._current, "bound", False)

    def bind(self) -> None:
        """Bind the current device's context to the calling thread."""
        self._current.bound = True

    def use(self, device: int) -> None:
        """Make ``device`` the calling thread's current one.

        Raises:
            CudaError: no such device.
        """
        self.check_device(device)
        self._current.device = device
        self.bind()

    def check_device(self, device: int) -> None:
        """Raise if there is no such device."""
        if not 0 <= device < self.devices:
            raise CudaError(INVALID_DEVICE)

    def permit(self) -> None:
        """Check that the calling thread may use CUDA at all.

        Raises:
            CudaError: inside a host function (row CS-23), or in a forked child.
        """
        self.bind()
        if self._forked:
            raise CudaError(INITIALIZATION_ERROR)
        if self.scheduler.in_callback:
            raise CudaError(NOT_PERMITTED)

    # -- lookups

    def stream(self, handle: int) -> Stream:
        """Return the stream behind a handle, for the calling thread and its current device."""
        return self.scheduler.stream(handle, self.device)

    def event(self, handle: int) -> Event:
        """Return the event behind a handle.

        Raises:
            CudaError: no such event.
        """
        found = self.events.get(handle)
        if found is None:
            raise CudaError(INVALID_HANDLE)
        return found

    # -- work

    def enqueue(
        self,
        name: str,
        handle: int,
        work: Callable[[], None],
        pointers: Iterable[int] = (),
        size: int = 0,
        *,
        on_host: bool = False,
        **detail: Any,
    ) -> Task | None:
        """Put one operation on a stream, or into the capture it takes part in, and log it.

        Args:
            name: call, as the log spells it.
            handle: raw stream handle.
            work: what happens when it runs; must not raise.
            pointers: addresses the call names.
            size: bytes.
            on_host: it is a host function.
            detail: further facts for the log.

        Returns:
            The task if it has not finished.

        Raises:
            CudaError: no such stream, or the capture refuses the call.
        """
        self.permit()
        stream = self.stream(handle)
        capture = self.captures.capturing(stream)
        self.log.note(
            name,
            self.device,
            handle,
            tuple(pointers),
            size,
            None if capture is None else capture.handle,
            **detail,
        )
        if capture is not None:
            capture.add(stream, work, on_host, detail.get("kernel", name))
            return None
        return self.scheduler.enqueue(stream, work, on_host=on_host)


class Executable:
    """An instantiated graph. Its launches come one after the other (row GC-13)."""

    __slots__ = ("last", "nodes")

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.last: Task | None = None
