"""The concrete engine: the checker's verbs, one for each thing that happens, and the conflicts they find."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal

from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.memory import Space, Use

Kind = Literal["legacy", "blocking", "non-blocking", "per-thread"]
Owner = Literal["cupy", "torch", "pinned", "driver"]
CaptureMode = Literal["global", "thread_local", "relaxed"]
Render = Callable[[object], tuple[Frame, ...]]
Veto = Callable[[list[Conflict]], bool]


class Graph:
    """What a capture left: its accesses as merged ranges and the blocks it holds. A token for :meth:`Checker.replay`.

    Attributes:
        conflicts: the missing edges between its branches, found once, at the end of the capture.
    """

    conflicts: list[Conflict]


class Checker:
    """A running stream program, checked as it comes.

    Keys of streams, events and threads are any hashable values the caller likes (for a trace: ints, strings, None and
    tuples of these). ``host`` is the calling thread's ident; it is ignored unless ``threads`` is true. ``site`` is
    anything; it is given to ``render`` only when a conflict is reported.

    Args:
        threads: one clock for each host thread, ordered by :meth:`host_edge`; else one clock for all.
        render: turns a site into stack frames, innermost first.
    """

    def __init__(self, *, threads: bool = False, render: Render | None = None) -> None: ...

    # -- streams and events ------------------------------------------------------------------------------------------

    def stream(self, key: Hashable, *, device: Space = 0, kind: Kind = "non-blocking", name: str = "") -> None:
        """Register a queue. Known already: only the name is updated. After ``destroy_stream``: a new generation."""

    def destroy_stream(self, key: Hashable) -> None:
        """The handle is gone; what was enqueued stays unordered until something orders it."""

    def event(self, key: Hashable) -> None:
        """Register an unrecorded event (optional: an unknown event is unrecorded). Known already: it is reset."""

    def destroy_event(self, key: Hashable) -> None:
        """Forget an event."""

    def record(
        self, event: Hashable, stream: Hashable, *, host: Hashable = None, site: object = None, external: bool = False
    ) -> list[Conflict]:
        """Record an event. Returns capture violations, as all verbs that return conflicts without accesses do."""

    def wait(
        self, stream: Hashable, event: Hashable, *, host: Hashable = None, site: object = None
    ) -> list[Conflict]:
        """A stream waits for an event's last record."""

    def synchronize_stream(self, stream: Hashable, host: Hashable = None, *, site: object = None) -> list[Conflict]:
        """The host waits for a stream."""

    def synchronize_event(self, event: Hashable, host: Hashable = None, *, site: object = None) -> list[Conflict]:
        """The host waits for an event's last record."""

    def synchronize_device(self, device: Space, host: Hashable = None, *, site: object = None) -> list[Conflict]:
        """The host waits for all streams of a device."""

    def completed_event(self, event: Hashable, host: Hashable = None, *, site: object = None) -> list[Conflict]:
        """A query of the event returned true."""

    def completed_stream(self, stream: Hashable, host: Hashable = None, *, site: object = None) -> list[Conflict]:
        """A query of the stream returned true."""

    def host_edge(self, source: Hashable, target: Hashable) -> None:
        """``target`` learns what ``source`` knows. Each is a thread ident or any other hashable (a lock, a queue item).

        Thread start: ``host_edge(parent, child)``; join: ``host_edge(child, parent)``; lock release:
        ``host_edge(thread, lock)``; acquire: ``host_edge(lock, thread)``. Nothing unless ``threads`` is true.
        """

    def forget_carrier(self, carrier: Hashable) -> None:
        """A thread that ended and was joined, or a sync object that is gone, is never mentioned again."""

    # -- accesses ----------------------------------------------------------------------------------------------------

    def access(
        self,
        stream: Hashable,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        *,
        operation: str,
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        """One operation is enqueued. Returns the conflicts it completes; usually none.

        ``veto`` is called with the conflicts when there are any; when it returns true the operation did not happen
        (the caller raises instead of enqueueing it) and leaves no access. The missing edges are taken to be there from
        then on in both cases. This one call replaces check-then-commit: call it just before the enqueue.
        """

    def check_access(
        self,
        stream: Hashable,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        *,
        operation: str,
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        """The conflicts that :meth:`access` would return, with no effect at all."""

    def host_access(
        self,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        *,
        operation: str,
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        """The host reads or writes memory now. As :meth:`access`."""

    def check_host_access(
        self,
        reads: Sequence[Use] = (),
        writes: Sequence[Use] = (),
        *,
        operation: str,
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        """The conflicts that :meth:`host_access` would return, with no effect at all."""

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(
        self,
        space: Space,
        start: int,
        size: int,
        *,
        stream: Hashable = None,
        owner: Owner,
        site: object = None,
        name: str = "",
        fresh: bool = False,
    ) -> None:
        """A block is handed out. ``stream`` is the one whose arena it is from (None: the host's, pinned memory).

        ``fresh`` (and owner ``driver``): new from the driver, so earlier uses of the addresses are forgotten.
        """

    def free(self, space: Space, start: int, *, site: object = None) -> None:
        """The block goes back to its arena (owner ``driver``: to the driver, as :meth:`release_block`)."""

    def record_stream(self, start: int, stream: Hashable, *, space: Space | None = None) -> None:
        """torch's ``Tensor.record_stream`` for the block that holds ``start``; TL-03 says what it covers."""

    def release_block(self, space: Space, start: int, size: int) -> None:
        """The pool returned the addresses to the driver: whatever was unordered there is clean."""

    # -- captures ----------------------------------------------------------------------------------------------------

    def capture_begin(
        self,
        stream: Hashable,
        mode: CaptureMode = "relaxed",
        *,
        private_pool: bool = False,
        host: Hashable = None,
        site: object = None,
    ) -> list[Conflict]:
        """A capture begins on a stream. ``private_pool``: its temporaries are nobody else's (torch)."""

    def capture_end(self, stream: Hashable, *, host: Hashable = None, site: object = None) -> Graph:
        """The capture that began on ``stream`` ends; look at ``conflicts`` of the result."""

    def capturing(self, stream: Hashable) -> bool:
        """Whether what is enqueued on the stream is captured."""

    def capture_violation(
        self, violation: str, stream: Hashable, *, operation: str, message: str = "", site: object = None
    ) -> Conflict:
        """The conflict for an operation that is illegal in a capture and that only the caller can recognize.

        ``violation`` is the name of the rule (``sync-in-capture``, ``capture-on-default-stream``, ...).
        """

    def replay(
        self,
        graph: Graph,
        stream: Hashable,
        *,
        operation: str = "launch",
        host: Hashable = None,
        site: object = None,
        veto: Veto | None = None,
    ) -> list[Conflict]:
        """A graph is launched: one operation that makes all its accesses. As :meth:`access`."""

    def finish(self) -> list[Conflict]:
        """The session ends: the latent conflicts: memory freed while a use was unordered."""
