"""Which timelines and events learn from which: the one set of edge rules.

A *holder* has a clock, which says what is ordered before it: a stream, an event, a host thread, an executable graph.
"x learns from y" means that everything ordered before y's present is from now on ordered before x's next operation.
The engine obeys by merging vector clocks.

Sources: CUDA "Stream synchronization behavior" (legacy default stream), cudaEventRecord, cudaStreamWaitEvent,
cudaGraphLaunch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, Protocol

Holder = Hashable


class Edge(NamedTuple):
    """``learner`` learns what ``source`` knows; with ``forget`` it first forgets what it knew (an event cell)."""

    learner: Holder
    source: Holder
    forget: bool = False


class Topology(Protocol):
    """What the edge rules ask about streams; each engine answers from its own tables."""

    def is_legacy(self, stream: Holder) -> bool:
        """Whether this is the legacy default stream of its device."""

    def is_blocking(self, stream: Holder) -> bool:
        """Whether the legacy default stream of its device and this stream wait for each other."""

    def legacy_of(self, stream: Holder) -> Holder:
        """The legacy default stream of the device of ``stream``."""

    def blocking_of(self, stream: Holder) -> Iterable[Holder]:
        """The blocking streams of the device of ``stream``, without the legacy default stream."""

    def streams_of(self, device: Holder) -> Iterable[Holder]:
        """All streams of a device."""


def launch(stream: Holder, host: Holder, topology: Topology) -> Iterator[Edge]:
    """An operation is enqueued: launch order after the host, and the legacy default stream's barrier, both ways.

    A legacy operation waits for all blocking streams; a blocking stream's operation waits for the legacy stream
    (TS-28, CS-02 to CS-08).
    """
    yield Edge(stream, host)
    if topology.is_legacy(stream):
        for other in topology.blocking_of(stream):
            yield Edge(stream, other)
    elif topology.is_blocking(stream):
        yield Edge(stream, topology.legacy_of(stream))


def record(event: Holder, stream: Holder, host: Holder, topology: Topology) -> Iterator[Edge]:
    """The event is overwritten with what the stream knows now (TS-09, TS-10, TS-14, TS-15); a legacy action (CS-09)."""
    yield from launch(stream, host, topology)
    yield Edge(event, stream, forget=True)


def wait(stream: Holder, event: Holder, host: Holder, topology: Topology) -> Iterator[Edge]:
    """The stream learns what the event holds now; later records do not matter (TS-12, TS-13, TS-14)."""
    yield from launch(stream, host, topology)
    yield Edge(stream, event)


def synchronize_stream(host: Holder, stream: Holder, topology: Topology) -> Iterator[Edge]:
    """The host waits for the stream; for the legacy stream also for all blocking ones (TS-19, TS-28e, CS-09c)."""
    yield Edge(host, stream)
    if topology.is_legacy(stream):
        for other in topology.blocking_of(stream):
            yield Edge(host, other)


def synchronize_event(host: Holder, event: Holder) -> Iterator[Edge]:
    """The host waits for the event, or a query of it was true (TS-16, TS-17, TS-18)."""
    yield Edge(host, event)


def synchronize_device(host: Holder, device: Holder, topology: Topology) -> Iterator[Edge]:
    """The host waits for every stream of the device (TS-21, CS-25)."""
    for stream in topology.streams_of(device):
        yield Edge(host, stream)


def replay(graph: Holder, stream: Holder, host: Holder, topology: Topology) -> Iterator[Edge]:
    """One operation on the launching stream, also after the same executable's previous launch (GC-08, GC-13).

    The second half, ``Edge(graph, stream)``, is :func:`replayed`, to be obeyed once the replay's accesses are made.
    """
    yield from launch(stream, host, topology)
    yield Edge(stream, graph)


def replayed(graph: Holder, stream: Holder) -> Iterator[Edge]:
    """After the accesses of a replay: the next launch of this executable comes after them (GC-13)."""
    yield Edge(graph, stream)
