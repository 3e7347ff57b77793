"""Streams, events and captures: what each of them holds."""

from __future__ import annotations

import threading
from collections.abc import Callable

LEGACY, LEGACY_ALIAS, PER_THREAD = 0, 1, 2
NON_BLOCKING = 1
Work = Callable[[], None]


class Task:
    """One operation that could not run at once, or a host function."""

    __slots__ = ("dependents", "device", "done", "missing", "on_host", "work")

    def __init__(self, work: Work, device: int, on_host: bool) -> None:
        self.work = work
        self.device = device
        self.on_host = on_host
        self.done = False
        self.missing = 0
        self.dependents: list[Task] = []


class Stream:
    """One queue of a device.

    Attributes:
        handle: raw handle; the default streams have theirs on every device.
        blocking: takes part in the legacy default stream's barrier.
        tail: last unfinished task, or None.
        capture: capture the stream takes part in, or None.
    """

    __slots__ = ("blocking", "capture", "destroyed", "device", "flags", "handle", "nodes", "priority", "tail")

    def __init__(self, handle: int, device: int, flags: int, priority: int) -> None:
        self.handle = handle
        self.device = device
        self.flags = flags
        self.priority = priority
        self.blocking = not flags & NON_BLOCKING
        self.destroyed = False
        self.tail: Task | None = None
        self.capture: Capture | None = None
        self.nodes: frozenset[Node] = frozenset()

    @property
    def legacy(self) -> bool:
        """Whether this is the device's legacy default stream."""
        return self.handle == LEGACY


class Event:
    """One event: a cell that a record overwrites.

    Attributes:
        task: unfinished work the last record covers, or None.
        recorded: whether it was ever recorded.
        at: time in seconds when the last record completed.
        capture: capture in which it was last recorded, or None.
        nodes: graph nodes the captured record stands for.
    """

    __slots__ = ("at", "capture", "device", "flags", "handle", "nodes", "recorded", "task")

    def __init__(self, handle: int, device: int, flags: int) -> None:
        self.handle = handle
        self.device = device
        self.flags = flags
        self.task: Task | None = None
        self.recorded = False
        self.at = 0.0
        self.capture: Capture | None = None
        self.nodes: frozenset[Node] = frozenset()


class Node:
    """One captured operation.

    Attributes:
        work: what it does when the graph runs.
        on_host: it is a host function.
        label: name of the call that made it.
        before: nodes it comes after.
    """

    __slots__ = ("before", "label", "on_host", "work")

    def __init__(self, work: Callable[[], None], on_host: bool, label: str, before: frozenset[Node]) -> None:
        self.work = work
        self.on_host = on_host
        self.label = label
        self.before = before


class Capture:
    """One capture under way.

    Attributes:
        origin: stream it began on.
        mode: which calls of which threads it forbids.
        thread: host thread that began it.
        valid: False once an illegal call has broken it.
        open: False once it has ended.
        nodes: captured operations, in the order of their calls: a topological order.
        streams: streams that take part.
    """

    def __init__(self, handle: int, origin: Stream, mode: int) -> None:
        self.handle = handle
        self.origin = origin
        self.mode = mode
        self.thread = threading.get_ident()
        self.valid = True
        self.open = True
        self.nodes: list[Node] = []
        self.streams: set[Stream] = {origin}

    def join(self, stream: Stream, nodes: frozenset[Node]) -> None:
        """Make ``stream`` part of the capture, its next operation after ``nodes``."""
        if stream.capture is None:
            stream.capture = self
            stream.nodes = frozenset()
            self.streams.add(stream)
        stream.nodes |= nodes

    def add(self, stream: Stream, work: Callable[[], None], on_host: bool, label: str) -> None:
        """Record one operation of ``stream``."""
        node = Node(work, on_host, label, stream.nodes)
        self.nodes.append(node)
        stream.nodes = frozenset((node,))

    @property
    def joined(self) -> bool:
        """Whether everything captured comes before the end of the origin stream."""
        reached: set[Node] = set()
        work = list(self.origin.nodes)
        while work:
            node = work.pop()
            if node not in reached:
                reached.add(node)
                work.extend(node.before)
        return len(reached) == len(self.nodes)

    def close(self) -> None:
        """Release the streams."""
        self.open = False
        for stream in self.streams:
            stream.capture = None
            stream.nodes = frozenset()
