"""Stream capture: its graph, and the calls that CUDA refuses while it lasts.

The rules are those of the semantics rows GM-*, GC-* and GP-* (proved on hardware) and of the CUDA reference pages
of cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode. A refused call usually *invalidates* the capture:
everything on its streams then fails, up to and including its end.
"""

from __future__ import annotations

import threading

from streamsafe.simulate.cuda.errors import (
    CAPTURE_IMPLICIT,
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_MERGE,
    CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    CAPTURE_WRONG_THREAD,
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    INVALID_VALUE,
    CudaError,
)
from streamsafe.simulate.cuda.queues import Capture, Event, Stream

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


class Captures:
    """The captures under way, and the legality of calls beside them."""

    def __init__(self) -> None:
        self._open: list[Capture] = []

    def begin(self, handle: int, stream: Stream, mode: int) -> Capture:
        """Start a capture.

        Raises:
            CudaError: the stream is the legacy default one, or already captures.
        """
        if stream.legacy:
            raise CudaError(CAPTURE_UNSUPPORTED)
        if mode not in (GLOBAL, THREAD_LOCAL, RELAXED):
            raise CudaError(INVALID_VALUE)
        if stream.capture is not None:
            raise CudaError(ILLEGAL_STATE)
        capture = Capture(handle, stream, mode)
        stream.capture = capture
        stream.nodes = frozenset()
        self._open.append(capture)
        return capture

    def end(self, stream: Stream) -> Capture:
        """Finish the capture of ``stream``.

        Raises:
            CudaError: not capturing, not the origin, the wrong thread, broken, or with unjoined work.
        """
        capture = stream.capture
        if capture is None:
            raise CudaError(ILLEGAL_STATE)
        if stream is not capture.origin:
            capture.valid = False
            raise CudaError(CAPTURE_UNMATCHED)
        if capture.mode != RELAXED and capture.thread != threading.get_ident():
            raise CudaError(CAPTURE_WRONG_THREAD)
        self._open.remove(capture)
        joined = capture.joined
        capture.close()
        if not capture.valid:
            raise CudaError(CAPTURE_INVALIDATED)
        if not joined:
            raise CudaError(CAPTURE_UNJOINED)
        return capture

    # -- legality

    def unsafe(self) -> None:
        """A "potentially unsafe" call: illegal beside a global capture, or in a thread's own thread-local one.

        Raises:
            CudaError: illegal; the captures that forbid it are lost.
        """
        if not self._open:
            return
        thread = threading.get_ident()
        against = [
            capture
            for capture in self._open
            if capture.mode == GLOBAL or (capture.mode == THREAD_LOCAL and capture.thread == thread)
        ]
        self._refuse(against, CAPTURE_UNSUPPORTED)

    def synchronizing(self, stream: Stream) -> None:
        """The host waits for, or asks about, a stream.

        Raises:
            CudaError: the stream captures, or the call is unsafe.
        """
        if not self._open:
            return
        if stream.capture is not None:
            self._refuse([stream.capture], CAPTURE_UNSUPPORTED)
        self.implicit(stream)
        self.unsafe()

    def synchronizing_device(self, device: int) -> None:
        """The host waits for a device, in any thread.

        Raises:
            CudaError: a stream of the device captures.
        """
        self._refuse(
            [c for c in self._open if any(s.device == device for s in c.streams)], CAPTURE_UNSUPPORTED
        )

    def implicit(self, stream: Stream) -> None:
        """Work on ``stream``: the legacy default stream would come to depend on blocking streams that capture.

        Raises:
            CudaError: it would.
        """
        if stream.legacy and self._open:
            self._refuse(self._blocking(stream.device), CAPTURE_IMPLICIT)

    def _blocking(self, device: int) -> list[Capture]:
        return [c for c in self._open if any(s.blocking and s.device == device for s in c.streams)]

    def capturing(self, stream: Stream) -> Capture | None:
        """Return the capture that records what is enqueued on ``stream``, or None if it runs.

        Raises:
            CudaError: the capture is lost, or the enqueue is illegal.
        """
        self.implicit(stream)
        capture = stream.capture
        if capture is not None and not capture.valid:
            raise CudaError(CAPTURE_INVALIDATED)
        return capture

    def status(self, stream: Stream) -> bool | None:
        """``cudaStreamIsCapturing``: True, False, or None for a capture that is lost.

        Raises:
            CudaError: asked of the legacy stream while a blocking stream captures (breaks nothing).
        """
        if stream.legacy and self._blocking(stream.device):
            raise CudaError(CAPTURE_IMPLICIT)
        capture = stream.capture
        if capture is None:
            return False
        return True if capture.valid else None

    def asks_event(self, event: Event) -> None:
        """The host waits for, or asks about, an event.

        Raises:
            CudaError: the event was last recorded in a capture, or the call is unsafe.
        """
        if event.capture is not None:
            if not event.capture.open:
                raise CudaError(INVALID_VALUE)  # row GC-20
            self._refuse([event.capture], CAPTURED_EVENT)
        self.unsafe()

    def waits(self, stream: Stream, event: Event) -> bool:
        """``cudaStreamWaitEvent``: return True if the capture took the wait, False if it is an ordinary one.

        Raises:
            CudaError: it would tie captured work to work outside the capture, or two captures to each other.
        """
        capture, source = stream.capture, event.capture
        if not event.recorded:
            return capture is not None
        if source is not None and not source.open:
            raise CudaError(INVALID_VALUE)
        if source is not None and stream.legacy:
            self._refuse([source], CAPTURE_IMPLICIT)
        self.implicit(stream)
        if capture is None and source is None:
            return False
        if capture is not None and not capture.valid:
            raise CudaError(CAPTURE_INVALIDATED)
        if capture is not None and source is None:
            self._refuse([capture], CAPTURE_ISOLATION)
        if capture is not None and source is not capture and source is not None:
            self._refuse([capture, source], CAPTURE_MERGE)
        if source is not None:
            if not source.valid:
                raise CudaError(CAPTURE_INVALIDATED)
            source.join(stream, event.nodes)
        return True

    @staticmethod
    def _refuse(captures: list[Capture], status: int) -> None:
        for capture in captures:
            capture.valid = False
        if captures:
            raise CudaError(status)
