"""Streams, events and the order in which simulated work happens.

Work runs on the calling thread as soon as it is enqueued, unless something before it has not finished. The only
work that takes time is a host function: it runs in a thread of its own, as CUDA's does, and what is enqueued
behind it, on its stream or on one that waits for it, is kept until it returns. Order therefore is exactly what
streams, events and the legacy default stream give (semantics rows CS-01 to CS-25).
"""

from __future__ import annotations

import ctypes
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from streamsafe.simulate.cuda.errors import INVALID_HANDLE, CudaError
from streamsafe.simulate.cuda.queues import LEGACY, LEGACY_ALIAS, PER_THREAD, Stream, Task, Work

DISABLE_TIMING = 2
FIRST_HANDLE = 0x5000_0000
HANDLE_STEP = 0x40


# A host function cannot raise into CUDA. Through a C callback Python reports the exception as unraisable, which
# is what CuPy's own trampoline does.
_call_and_report = ctypes.PYFUNCTYPE(None, ctypes.py_object)(lambda work: work())


class Handles:
    """Numbers for streams, events, modules and graphs. A freed number is given out again, the lowest first."""

    def __init__(self, first: int = FIRST_HANDLE) -> None:
        self._next = first
        self._free: list[int] = []

    def take(self) -> int:
        """Return an unused handle."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += HANDLE_STEP
        return self._next - HANDLE_STEP

    def give_back(self, handle: int) -> None:
        """Allow ``handle`` to be taken again."""
        heapq.heappush(self._free, handle)


class Scheduler:
    """Runs work in the order streams and events give it.

    Args:
        lock: the simulation's lock; every method is called with it held.
    """

    def __init__(self, lock: threading.RLock) -> None:  # type: ignore[valid-type, unused-ignore]
        self._changed = threading.Condition(lock)
        self._unfinished: set[Task] = set()
        self._callbacks: deque[Task] = deque()
        self._worker: threading.Thread | None = None
        self._in_callback = threading.local()
        self.stream_table: dict[int, Stream] = {}
        self.defaults: dict[tuple[int, int, int], Stream] = {}
        self._handles = Handles()
        self.foreign: Callable[[int], int] | None = None
        """Streams of another simulated runtime: the flags of a handle, -1 for none."""

    def abandon(self, lock: threading.RLock) -> None:  # type: ignore[valid-type, unused-ignore]
        """Drop all unfinished work: in a forked child nothing will finish it."""
        self._changed = threading.Condition(lock)
        self._unfinished.clear()
        self._callbacks.clear()

    # -- streams

    def create(self, device: int, flags: int, priority: int) -> Stream:
        """Make a stream."""
        stream = Stream(self._handles.take(), device, flags, priority)
        self.stream_table[stream.handle] = stream
        return stream

    def destroy(self, stream: Stream) -> None:
        """Forget a stream: its work goes on, its handle may be reused."""
        stream.destroyed = True
        del self.stream_table[stream.handle]
        self._handles.give_back(stream.handle)

    def stream(self, handle: int, device: int) -> Stream:
        """Return the stream behind a handle for the calling thread.

        Raises:
            CudaError: no such stream.
        """
        if handle in (LEGACY, LEGACY_ALIAS):
            return self._default(device, LEGACY, 0)
        if handle == PER_THREAD:
            return self._default(device, PER_THREAD, threading.get_ident())
        found = self.stream_table.get(handle)
        if found is None:
            flags = self.foreign(handle) if self.foreign is not None else -1
            if flags < 0:
                raise CudaError(INVALID_HANDLE)
            found = self.stream_table[handle] = Stream(handle, device, flags, 0)
        return found

    def _default(self, device: int, handle: int, thread: int) -> Stream:
        key = (device, handle, thread)
        found = self.defaults.get(key)
        if found is None:
            found = self.defaults[key] = Stream(handle, device, 0, 0)
        return found

    def of_device(self, device: int) -> list[Stream]:
        """Return every stream of a device, default ones included."""
        every = [*self.stream_table.values(), *self.defaults.values()]
        return [stream for stream in every if stream.device == device]

    # -- order

    def _before(self, stream: Stream) -> list[Task]:
        """Return the unfinished work that the next operation of ``stream`` comes after."""
        if not self._unfinished:
            return []
        tails = {stream.tail}
        if stream.legacy:
            tails.update(other.tail for other in self.of_device(stream.device) if other.blocking)
        elif stream.blocking:
            tails.add(self._default(stream.device, LEGACY, 0).tail)
        return [task for task in tails if task is not None and not task.done]

    def enqueue(
        self, stream: Stream, work: Work, *, on_host: bool = False, after: Iterable[Task] = ()
    ) -> Task | None:
        """Run ``work`` on a stream, now if everything before it has finished.

        Args:
            stream: the queue.
            work: what happens; must not raise.
            on_host: it is a host function, run in the callback thread.
            after: further tasks it waits for.

        Returns:
            The task when it has not finished yet, else None.
        """
        before = self._before(stream)
        before.extend(task for task in after if not task.done)
        if not before and not on_host:
            work()
            return None
        task = Task(work, stream.device, on_host)
        task.missing = len(before)
        for earlier in before:
            earlier.dependents.append(task)
        self._unfinished.add(task)
        stream.tail = task
        if not before:
            self._start(task)
        return task

    def _start(self, task: Task) -> None:
        if not task.on_host:
            task.work()
            self._finish(task)
            return
        self._callbacks.append(task)
        if self._worker is None:
            self._worker = threading.Thread(
                target=self._run_callbacks, name="simulated-cuda-callbacks", daemon=True
            )
            self._worker.start()
        self._changed.notify_all()

    def _finish(self, task: Task) -> None:
        task.done = True
        self._unfinished.discard(task)
        for later in task.dependents:
            later.missing -= 1
            if not later.missing:
                self._start(later)
        task.dependents = []
        self._changed.notify_all()

    def _run_callbacks(self) -> None:
        self._in_callback.active = True
        while True:
            with self._changed:
                while not self._callbacks:
                    self._changed.wait()
                task = self._callbacks.popleft()
            _call_and_report(task.work)
            with self._changed:
                self._finish(task)

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is running a host function, where CUDA calls are illegal (row CS-23)."""
        return getattr(self._in_callback, "active", False)

    def pending(self, stream: Stream) -> list[Task]:
        """Return the unfinished work that synchronizing ``stream`` waits for (rows CS-09c, CS-09d for legacy)."""
        if stream.legacy:
            return self._before(stream)
        return [stream.tail] if stream.tail is not None and not stream.tail.done else []

    def wait(self, tasks: Iterable[Task]) -> None:
        """Block the calling thread, lock released, until every task has finished."""
        for task in tasks:
            while not task.done:
                self._changed.wait()

    def wait_all(self, device: int | None = None, timeout: float | None = None) -> bool:
        """Block until the work of one device, or of all, has finished; return whether it has."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if not any(device in (None, task.device) for task in self._unfinished):
                return True
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._changed.wait(left)
