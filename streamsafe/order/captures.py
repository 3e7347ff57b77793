"""Captures: a stream program of its own, which calls it does not survive, and what is said of each of these."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple, Protocol

from streamsafe.order.clocks import Timeline
from streamsafe.order.hazard import Conflict, Mode, quoted
from streamsafe.order.memory import Block, CapturedAccess, Graph, Region, Space, Use

CaptureMode = Literal["global", "thread_local", "relaxed"]
Subject = Literal["captured", "eager", "device"]


class Violation(NamedTuple):
    """An operation that is illegal in a capture, or that its graph would not repeat.

    Attributes:
        rule: the name of the rule that tells of it.
        operation: what the program called; empty: what the front end says.
        message: ``{subject}`` is the stream or host thread that does it, ``{other}`` the capturing stream.
        plain: where the subject is the capturing stream itself, nothing more is to be said.
    """

    rule: str
    operation: str
    message: str
    plain: bool = False


VIOLATIONS: dict[str, Violation] = {
    "wait_outside": Violation(
        "unjoined-capture-stream",
        "wait",
        "{subject} is capturing, the event was recorded by work that is not captured",
    ),
    "legacy_joins": Violation(
        "unjoined-capture-stream", "wait", "the default stream cannot take part in a capture"
    ),
    "other_capture": Violation("concurrent-capture", "wait", "{subject} takes part in another capture"),
    "stream_wait": Violation(
        "sync-in-capture",
        "synchronize",
        "{subject} cannot be waited for while {other} is capturing",
        plain=True,
    ),
    "device_wait": Violation(
        "sync-in-capture",
        "synchronize",
        "no device can be waited for while {other} is capturing",
        plain=True,
    ),
    "begin_on_legacy": Violation(
        "capture-on-default-stream", "capture_begin", "the default stream cannot be captured"
    ),
    "begin_twice": Violation("concurrent-capture", "capture_begin", "{subject} is captured already"),
    "implicit_wait": Violation("sync-in-capture", "", "{subject} would wait for {other}, which is capturing"),
    "end_elsewhere": Violation(
        "unjoined-capture-stream", "capture_end", "the capture began on {other} (GC-24)"
    ),
    "unjoined": Violation(
        "unjoined-capture-stream",
        "capture_end",
        "{subject} was brought into the capture and {other} never waits for it again",
    ),
    "generator": Violation("capture-rng", "", "the generator is not registered with the graph"),
    "host_work": Violation(
        "host-work-in-capture", "", "the graph copies this memory to the device at each replay"
    ),
    "unforked": Violation(
        "unjoined-capture-stream",
        "",
        "{subject} takes no part in the capture: its work runs at once, and the graph does not have it",
    ),
    # from here on: what front ends see, and the engine does not
    "event_wait": Violation("sync-in-capture", "synchronize", "the event was recorded in the capture"),
    "other_thread": Violation("concurrent-capture", "synchronize", "another thread captures meanwhile"),
    "host_copy": Violation(
        "sync-in-capture",
        "",
        "the stream is capturing: nothing can be copied between host and device until the graph is launched",
    ),
    "first_use": Violation("missing-capture-warmup", "", "its capture failed"),
    "generator_state": Violation("capture-rng", "", "the state of a generator is not part of a graph"),
    "host_steps": Violation("uncapturable-step", "step", "the optimizer was made without capturable=True"),
    "scaler_steps": Violation(
        "uncapturable-step", "scaler.step", "the scaler decides on the host whether the optimizer steps"
    ),
}
"""By name; the first ones in the order of ``Violation`` in ``native/core.hpp``."""


def message_of(violation: str, subject: str = "", other: str = "", *, itself: bool = False) -> str:
    """What is said of a violation.

    Args:
        violation: its name in :data:`VIOLATIONS`.
        subject, other: the names of the streams, or of the host.
        itself: the subject is the capturing stream.
    """
    known = VIOLATIONS[violation]
    if known.plain and itself:
        return ""
    return known.message.format(subject=quoted(subject), other=quoted(other))


class Branches(Protocol):
    """The stream program inside a capture: the engine, as far as captures call it."""

    def stream(
        self,
        key: Hashable,
        *,
        device: Space = 0,
        kind: Literal["non-blocking"] = "non-blocking",
        name: str = "",
    ) -> None:
        """Registers a stream."""

    def timeline(self, key: Hashable) -> Timeline:
        """The stream registered under a key."""

    def record(self, event: Hashable, stream: Hashable, *, site: object = None) -> list[Conflict]:
        """An event is recorded."""

    def wait(self, stream: Hashable, event: Hashable, *, site: object = None) -> list[Conflict]:
        """A stream waits for an event."""

    def access(
        self,
        stream: Hashable,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        operation: str = "",
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        """One operation becomes a node of the graph."""

    def handed_out(self, block: Block, stream: Hashable) -> None:
        """A block begins a life."""


class Capture:
    """A capture in progress.

    Attributes:
        origin: the stream it began on. mode, host: as ``cudaStreamBeginCapture`` was called.
        program: a checker of its own; its streams are all non-blocking, its events those recorded in it.
        members: the streams it takes, the origin first.
    """

    __slots__ = ("_accesses", "_filled", "graph", "host", "members", "mode", "origin", "program")

    def __init__(
        self, graph: Graph, program: Branches, origin: Timeline, mode: CaptureMode, host: Hashable
    ) -> None:
        self.graph = graph
        self.program = program
        self.origin = origin
        self.mode = mode
        self.host = host
        self.members: list[Timeline] = []
        self._accesses: dict[tuple[Mode, Region], CapturedAccess] = {}
        self._filled: dict[tuple[Hashable, Block | None], list[tuple[int, int]]] = {}
        self.join(origin)

    def join(self, stream: Timeline) -> None:
        """A stream's operations belong to this capture from now on (a fork, GM-fork_join)."""
        stream.capture = self
        self.members.append(stream)
        self.program.stream(stream.key, device=stream.device, kind="non-blocking", name=stream.name)

    def add(self, use: Use, mode: Mode, operation: str, site: object, block: Block | None) -> None:
        """An access the graph will make when launched. What it reads after it has written it, it has from itself."""
        region = use[0]
        space, start, stop, _, strides, _ = region
        filled = self._filled.setdefault((space, block), [])
        if start >= stop or (mode == "reads" and any(low <= start and stop <= high for low, high in filled)):
            return
        self._accesses[mode, region] = CapturedAccess(use, mode, operation, site, block)
        if mode == "writes" and strides is None and use[3] and (start, stop) not in filled:
            filled.append((start, stop))

    def unjoined(self) -> list[Timeline]:
        """The members whose last operation the origin does not come after: CUDA refuses such a capture."""
        inner = self.program.timeline
        origin = inner(self.origin.key)
        tips = [(member, inner(member.key)) for member in self.members[1:]]
        return [member for member, tip in tips if not origin.knows(tip, tip.count)]

    def end(self) -> Graph:
        """Let the members go; what they did is the graph's."""
        for member in self.members:
            member.capture = None
        self.graph.accesses = list(self._accesses.values())
        return self.graph

    def forbids(self, subject: Subject, host: Hashable) -> bool:
        """Whether waiting for or querying something is illegal while this capture lasts.

        ``captured``: a stream or event of a capture, never legal. ``device``: in no mode, from no thread
        (GM-dev_sync, GM-thr_dev_sync). ``eager``: another stream or event is "potentially unsafe", which the mode
        decides (GM-ev_query_pre, GM-ev_sync_pre, GM-side_stream_sync, GM-thr_ev_query).
        """
        if subject != "eager":
            return True
        if self.mode == "global":
            return True
        return self.mode == "thread_local" and host == self.host


__all__ = [
    "VIOLATIONS",
    "Branches",
    "Capture",
    "CaptureMode",
    "CapturedAccess",
    "Graph",
    "Subject",
    "Violation",
    "message_of",
]
