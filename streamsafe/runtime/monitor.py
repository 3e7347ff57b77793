"""What a program has, while a session is open: timelines by (device, raw handle), memory by address, the engine.

Nothing here knows a library: the front ends give the monitor what is enqueued, and the monitor asks the engine and
decides with the open sessions what is reported, raised or kept for later. All front ends share one monitor.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from streamsafe.order.checker import Checker, Graph, Kind, Owner
from streamsafe.order.clocks import Timeline
from streamsafe.order.hazard import Conflict
from streamsafe.order.memory import HOST, Block, Space, Use
from streamsafe.runtime import places as sites
from streamsafe.runtime import stream_names
from streamsafe.runtime.blocks import device_blocks
from streamsafe.runtime.coverage import Coverage
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.judge import Judge, Verdict
from streamsafe.runtime.marks import BY_HOST
from streamsafe.runtime.places import capture, line
from streamsafe.runtime.session import Host, Session

Uses = Sequence[Use | tuple[Any, ...]]

NULL = 0
"""The raw handle of a device's legacy default stream, in CUDA and in all libraries."""
HANDSHAKE = ("handshake",)
"""The key of the event of a handshake between libraries."""
PER_THREAD = 2
"""CUDA's ``cudaStreamPerThread``."""


class _Local(threading.local):
    """What belongs to one host thread.

    Attributes:
        queue: a number that no other thread has had, unlike a thread ident.
        callback: the timeline of the host function that this thread is running, or None.
        after: what is to be done when that has run.
    """

    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.queue = next(_Local.numbers)
        self.callback: Hashable = None
        self.after: list[Callable[[], None]] = []


local = _Local()


class Current:
    """The one thing that hooks look at.

    Attributes:
        monitor: the listener, or None: then every hook only passes on.
        holders: how many want pinned arrays to be watched also while no session is open.
        parted: the listener while the process forks.
    """

    __slots__ = ("holders", "monitor", "parted")

    def __init__(self) -> None:
        self.monitor: Monitor | None = None
        self.parted: Monitor | None = None
        self.holders = 0


current = Current()


class Monitor(Judge):
    """One stream program, from the first ``sanitize()`` to the end of the last one inside it.

    Attributes:
        begun: the number of the host function that began last; they count up over all sessions.
        capturing: the streams on which a capture began.
        captured, replayed: how many captures have begun, and how many graphs were launched.
        ending: called when the program ends, before its summary is written.
        delay: places whose operations are delayed, and what delays them.
        forgotten: keys of threads and locks that are gone, of which the engine has not heard yet.
        freed: takes a block whose last reference is gone. Safe in a finalizer: the engine hears of it at
            the next operation.
        unseen: what was noticed and could not be watched, as a sentence with a place for the number of times.
        later: takes a call that is made, under the lock, before the next operation. Safe in a finalizer.
        one_device: whether a raw handle alone names a timeline, those of default streams too; ``by_handle`` has them.
        quick_edge: as :meth:`host_edge`, of an engine that has a lock of its own; while ``released`` is empty.
        released: what waits for the next operation.
        site: where the last operation was enqueued.
        only_device: the number of the one device; -1 where there are more.

    Args:
        threads: one host clock for each thread.
        host: whether host accesses are checked.
        checker: the engine; a recorder that writes a trace stands in for it.
        mark: writes into the trace what the engine does not know.
    """

    def __init__(
        self,
        *,
        threads: bool = False,
        host: Host = True,
        checker: Checker | None = None,
        mark: Callable[[str, Any], None] | None = None,
    ) -> None:
        super().__init__(mark)
        self.threads = threads
        self.host = host
        self.checker = checker or Checker(threads=threads, render=rendered, naming=named)
        self.lock = threading.RLock()
        self.delay: tuple[frozenset[tuple[str, int]], Callable[[Monitor, Any], None]] | None = None
        self.ending: list[Callable[[], None]] = []
        self.capturing: list[Hashable] = []
        self.captured = self.replayed = 0
        self.one_device = False
        self.only_device = -1
        self.by_handle: dict[int, Hashable] = {}
        self._streams: dict[tuple[int, int], Hashable] = {}
        self._names: dict[Hashable, str] = {}
        self.released: deque[Block | Callable[[], None]] = deque()
        self.freed: Callable[[Block], None] = self.released.append
        self.later: Callable[[Callable[[], None]], None] = self.released.append
        self.forgotten: list[int] = []
        self.begun = 0
        self.unseen: Counter[str] = Counter()
        self.site: sites.Site = ()
        self._calls: dict[Hashable, tuple[int, bool]] = {}
        self._verdict = Verdict(self)
        self.use(self.checker)

    def use(self, checker: Checker) -> None:
        """Check with another engine from here on. The streams are the same; what was enqueued counts as finished."""
        for key in self._streams.values():
            line = self.checker.timeline(key)
            if line.kind != "host" and line.kind != "function":
                checker.stream(key, device=line.device, kind=line.kind, name=line.name)
        self.checker = checker
        self.quick_edge: Callable[[int, int], None] | None = None
        self.repeats.use(checker)
        monitor = weakref.ref(self)  # no reference cycle: what a session leaves is gone at its end
        self.checker.ask_for_names(lambda line: _name(monitor(), line))
        self._access = self.checker.access
        self._allocate = self.checker.allocate
        self._allocate_again = self.checker.allocate_again

    # -- timelines ---------------------------------------------------------------------------------------------------

    def stream(self, device: int, handle: int, kind: Kind, name: str = "") -> Hashable:
        """The timeline of a raw handle, registered on first sight. One table serves all front ends.

        Args:
            device: the stream's device.
            handle: its raw handle; not that of a default stream, which :meth:`null_stream` and :meth:`thread_stream`
                are for.
            kind: whether it waits for the null stream (``blocking``) or not.
            name: what the program calls it; else it is looked for among the program's variables.
        """
        found = self._streams.get((device, handle))
        if found is None:
            found = self._register((device, handle), handle, kind, name or stream_names.of_stream(handle))
        return found

    def null_stream(self, device: int) -> Hashable:
        """The timeline of a device's legacy default stream."""
        found = self._streams.get((device, NULL))
        if found is None:
            name = "the null stream" if device == 0 else f"the null stream of device {device}"
            found = self._register((device, NULL), NULL, "legacy", name)
        return found

    def thread_stream(self, device: int) -> Hashable:
        """The timeline of the calling thread's default stream on a device."""
        found = self._streams.get((device, -local.queue))
        if found is None:
            key = device, PER_THREAD, local.queue
            found = self._register(key, -local.queue, "per-thread", "the per-thread default stream")
        return found

    def _register(self, key: tuple[int, ...], handle: int, kind: Kind, name: str) -> Hashable:
        self._streams[key[0], handle] = key
        with self.lock:
            self.drain()
            name = self._names[key] = stream_names.unique(name, self._names.values())
            self.checker.stream(key, device=key[0], kind=kind, name=name)
        if handle > PER_THREAD or (
            self.one_device and handle >= 0
        ):  # a stream's handle is unlike any other's
            self.by_handle[handle] = key
        return key

    def _call(self, line: Timeline) -> None:
        """A stream that no variable named when it was made may have a name where the hazard is."""
        key = line.key
        if line.gone or line.kind not in ("blocking", "non-blocking"):
            return
        if not isinstance(key, tuple) or len(key) != 2:
            return
        if " " in line.name or stream_names.means_another(line.name, key[1]):
            name = stream_names.in_scope(key[1], list(self._names.values()))
            if name:
                self._names[key] = name
                self.checker.name_stream(key, name)

    def known(self, device: int, handle: int) -> bool:
        """Whether a raw handle has a timeline."""
        return (device, handle) in self._streams

    def destroy_stream(self, device: int, handle: int) -> None:
        """The handle is about to be given back; a next stream that has it is another timeline. Safe in a finalizer."""
        self.by_handle.pop(handle, None)
        key = self._streams.pop((device, handle), None)
        if key is not None:
            self._names.pop(key, None)
            self.later(partial(self.checker.destroy_stream, key))

    def destroy_event(self, event: int) -> None:
        """The handle of an event is about to be given back. Safe in a finalizer."""
        self.later(partial(self.checker.destroy_event, event))

    @property
    def thread(self) -> Hashable:
        """The calling thread, as the engine names it."""
        return local.queue if self.threads else None

    # -- operations --------------------------------------------------------------------------------------------------

    def access(
        self,
        stream: Hashable,
        reads: Uses,
        writes: Uses,
        operation: str,
        may_raise: bool = True,
        by_host: bool = False,
        above: int = 3,
        site: sites.Site | None = None,
    ) -> None:
        """An operation is about to be enqueued.

        Args:
            stream: its timeline.
            reads, writes: what it touches.
            operation: as the user calls it.
            may_raise: false where an exception would be lost; the hazard is raised later.
            by_host: it is a host function's doing, on its stream's timeline.
            above: how many frames up the user's line may be: more when that many hooks are known to lie between.
            site: where it is enqueued, where the stack does not say it.

        Raises:
            StreamHazardError: it completes a hazard, and the innermost session raises.
        """
        lock = self.lock
        lock.acquire()  # a ``with`` takes three times as long
        try:
            if self.released:
                self.drain()
            if self.deferred and may_raise:
                self.raise_due()
            if by_host and self.mark is not None:
                self.mark(BY_HOST, None)
            verdict = self._verdict
            if not may_raise or by_host:
                verdict = Verdict(self, may_raise, by_host)
            if site is None:
                site = capture(above)
            self.site = site
            conflicts = self._access(
                stream,
                reads,  # type: ignore[arg-type]
                writes,  # type: ignore[arg-type]
                operation,
                local.queue if self.threads else None,
                site,
                verdict,
            )
            hazard = verdict.take() if conflicts else None
        finally:
            lock.release()
        if hazard is not None:
            raise StreamHazardError(hazard)

    def host_access(self, reads: Uses, writes: Uses, operation: str, site: sites.Site | None = None) -> None:
        """The host is about to read or write memory; inside a host function, its stream is.

        Args:
            site: where, where the stack does not say it.

        Raises:
            StreamHazardError: as :meth:`access`.
        """
        callback = local.callback
        if callback is not None:
            self.access(callback, reads, writes, operation, may_raise=False, by_host=True)
            return
        with self.lock:
            if self.released:
                self.drain()
            if self.deferred:
                self.raise_due()
            if self.mark is None and self.checker.host_in_order(reads, writes):  # type: ignore[arg-type]
                return
            verdict = self._verdict
            self.checker.host_access(
                reads,  # type: ignore[arg-type]
                writes,  # type: ignore[arg-type]
                operation=operation,
                host=self.thread,
                site=sites.capture(2) if site is None else site,
                veto=verdict,
            )
            hazard = verdict.take()
        if hazard is not None:
            raise StreamHazardError(hazard)

    def order(
        self,
        method: Callable[..., list[Conflict] | None],
        subject: Hashable,
        other: Hashable = None,
        *,
        above: int = 3,
    ) -> None:
        """A record, wait or synchronize: ``method`` is the engine's; its conflicts are illegal uses in a capture.

        Args:
            above: as for :meth:`access`.

        Raises:
            StreamHazardError: as :meth:`access`.
        """
        lock = self.lock
        lock.acquire()
        try:
            if self.released:
                self.drain()
            if self.deferred:
                self.raise_due()
            host = local.queue if self.threads else None
            # An edge is shown by its line alone; what a capture forbids is a hazard, and is shown with its callers.
            site = capture(above) if self.capturing else line(above)
            if other is None:
                conflicts = method(subject, host=host, site=site)
            else:
                conflicts = method(subject, other, host=host, site=site)
        finally:
            lock.release()
        if conflicts:
            self.report(conflicts)

    def handshake(self, stream: Hashable) -> None:
        """Two libraries exchange the stream that both use: a wait of it for itself, which orders nothing new."""
        with self.lock:
            self.drain()
            site = line(3)
            host = self.thread
            self.checker.record(HANDSHAKE, stream, host=host, site=site)
            self.checker.wait(stream, HANDSHAKE, host=host, site=site)

    def host_edge(self, source: int, target: int) -> None:
        """A thread, or what hands on to one what another knew, learns what another knows."""
        lock = self.lock
        lock.acquire()  # as for an access
        try:
            if self.released:
                self.drain()
            self.checker.host_edge(source, target)
        finally:
            lock.release()

    def host_function(self, stream: Hashable, operation: str) -> Hashable:
        """A host function is about to be enqueued; returns the timeline of what it does, for :meth:`calling`.

        Raises:
            StreamHazardError: as :meth:`access`.
        """
        self.access(stream, (), (), operation, above=4)
        with self.lock:
            if self.checker.capturing(stream):
                return stream
            function = ("function", next(_Local.numbers))
            self.checker.host_function(
                stream, function, host=local.queue if self.threads else None, site=sites.capture(3)
            )
        return function

    @contextmanager
    def calling(self, function: Hashable) -> Iterator[None]:
        """While a host function runs on this thread, its accesses are its own, and the stream's work before is done."""
        before = local.callback
        local.callback = function
        enqueued = isinstance(function, tuple) and function[0] == "function"
        if enqueued:
            number = self.begun = next(_Local.numbers)
            self._calls[function] = number, True
            self.answered(threads=True)
        try:
            yield
        finally:
            local.callback = before
            while local.after:
                local.after.pop()()
            if enqueued:
                self.answered(threads=True)
                self._calls[function] = number, False

    def answered(self, *, until: int | None = None, threads: bool = False) -> None:
        """Another thread has signalled this one: host functions begun before are ordered before it.

        Args:
            until: what :attr:`begun` was when the other thread signalled: it says nothing of later functions.
            threads: only with a clock for each thread: there a host function's thread knows it, and hands it on.
        """
        if not self._calls or threads is not self.threads:
            return
        with self.lock:
            for function, (number, running) in list(self._calls.items()):
                if until is not None and number > until:
                    break
                self.checker.synchronize_stream(function, host=local.queue if self.threads else None)
                if not running:
                    del self._calls[function]
                    self.checker.destroy_stream(function)

    def replay(self, graph: Graph, stream: Hashable) -> None:
        """A captured graph is launched.

        Raises:
            StreamHazardError: as :meth:`access`.
        """
        self.replayed += 1
        with self.lock:
            if self.released:
                self.drain()
            if self.deferred:
                self.raise_due()
            verdict = self._verdict
            self.checker.replay(graph, stream, host=self.thread, site=sites.capture(2), veto=verdict)
            hazard = verdict.take()
        if hazard is not None:
            raise StreamHazardError(hazard)

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(
        self, space: Space, start: int, size: int, *, stream: Hashable, owner: Owner, fresh: bool = False
    ) -> Block:
        """A block is handed out, and from now on :data:`~streamsafe.runtime.blocks.device_blocks` finds it by address.

        Its end comes by :meth:`free`, by :attr:`freed` where nothing may be locked, or by its lease.

        Args:
            space: its device, or ``"host"`` for pinned memory.
            start, size: its address, its size in bytes.
            stream: the timeline of the stream whose arena it is from; None for pinned memory.
            owner: whose pool: what may be reused, and when, is that library's rule.
            fresh: new from the driver.
        """
        lock = self.lock
        lock.acquire()
        try:
            if self.released:
                self.drain()
            if self.imported:
                end = start + size
                self.imported = [kept for kept in self.imported if not (kept[1] < end and start < kept[2])]
            site = capture(4)
            block = self._allocate(
                space,
                start,
                size,
                stream=stream,
                owner=owner,
                site=site,
                name=named(site) if self.mark is not None else "",
                fresh=fresh,
            )
            if space != HOST:
                device_blocks.add(block)
            return block
        finally:
            lock.release()

    def allocate_again(self, block: Block, size: int, stream: Hashable) -> bool:
        """A block is handed out as it was the last time. False: it is not that simple, :meth:`allocate` is needed."""
        lock = self.lock
        lock.acquire()
        try:
            if self.released:
                self.drain()
            if self.imported or not self._allocate_again(block, size, stream):
                return False
            block.site = capture(4)
            return True
        finally:
            lock.release()

    def free(self, block: Block, site: sites.Site | None = None) -> None:
        """A block goes back to its pool.

        The streams that :meth:`record_stream` named keep it there until what they have been given by now is done.

        Args:
            site: where; the program's present line when there is none.
        """
        with self.lock:
            if self.released:
                self.drain()
            if not block.freed:
                self.checker.free(block.space, block.start, site=capture(3) if site is None else site)
            block.ended = True  # also where it is of an earlier session, which this engine does not know

    def record_stream(self, stream: Hashable, block: Block) -> None:
        """torch's ``Tensor.record_stream``: the pool may not hand the block out again before what the stream has been
        given by the time of the free is done (TL-03). Nothing for a block that is free already, or is not torch's or
        pinned memory: CuPy's pool has no such rule (CI-13).
        """
        with self.lock:
            if self.released:
                self.drain()
            self.checker.record_stream(block.start, stream, space=block.space)

    def drain(self) -> None:
        """Tells the engine what finalizers left: the blocks that were freed, the handles that were given back."""
        released = self.released
        while released:
            item = released.popleft()
            if not isinstance(item, Block):
                item()
            elif not item.freed:
                self.checker.free(item.space, item.start, site=item.freed_site)

    def returned(self, gone: Callable[[int], bool]) -> None:
        """A pool gave free memory back to the driver; ``gone`` tells whether an address is no more."""
        with self.lock:
            self.drain()
            for block in self.checker.freed_blocks():
                if gone(block.start):
                    self.checker.release_block(block.space, block.start, block.stop - block.start)

    def watch(self, session: Session) -> None:
        """A session opens: it is told of what is found from here on."""
        with self.lock:
            self.repeats.forget()
            self.sessions.append(session)
        monitor = weakref.ref(self)
        session.recount = lambda: _recount(monitor())

    def leave(self, session: Session) -> None:
        """A session closes: it is told of nothing any more."""
        with self.lock:
            self.repeats.forget()
            self.sessions.remove(session)
        session.recount = None

    def recount(self) -> None:
        """Bring the counts of hazards up to date."""
        with self.lock:
            self.repeats.collect()

    def finish(self) -> None:
        """The program ends: what was freed while a use was unordered is latent."""
        self.recount()
        self.reconsider()
        with self.lock:
            self.drain()
            conflicts = self.checker.finish()
        if conflicts:
            self.judge(conflicts, False)


def _name(monitor: Monitor | None, line: Timeline) -> None:
    if monitor is not None:
        monitor._call(line)


def _recount(monitor: Monitor | None) -> None:
    if monitor is not None:
        monitor.recount()


def count(session: Session) -> None:
    """Says what the monitor saw so far: no operation means that nothing was watched."""
    monitor = current.monitor
    if monitor is not None and session in monitor.sessions:
        session.coverage = Coverage(
            monitor.checker.operations, monitor.checker.busy_streams, monitor.captured, monitor.replayed
        )


def rendered(site: object) -> tuple[Any, ...]:
    """The stack of a site."""
    return sites.frames(site)  # type: ignore[arg-type]


def named(site: object) -> str:
    """What the program calls what it allocates at a site."""
    return sites.name_of(site)  # type: ignore[arg-type]
