"""What the Python hooks report, and to whom.

Every method is called in the thread that does the work. Where it says "may raise", the method may raise the session's
error: the hook lets it through, and the work is then not done.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol


class Use(NamedTuple):
    """Bytes that one operation reads or writes.

    Attributes:
        address: of the first byte.
        size: bytes from the first to the last one touched.
        write: whether it writes them; an in-place operation has one use of each kind.
        tensor: the tensor, for its name, shape and strides; None where there is only an address.
        certain: False when the direction is not known: the use then makes at most *possible* hazards.
    """

    address: int
    size: int
    write: bool
    tensor: Any = None
    certain: bool = True


class Collector(Protocol):
    """Receives what the hooks see. Streams and events are raw CUDA handles, devices are indexes."""

    def thread_begins(self) -> None:
        """A Python thread runs its first line: its operations are to be seen from here."""

    def thread_ends(self) -> None:
        """The thread has run its last line."""

    def launch(self, operation: str, uses: Sequence[Use], device: int, stream: int) -> None:
        """A kernel that no dispatcher operator covers is about to be enqueued on ``stream``. May raise.

        Semantics rows TS-02 to TS-05: an operation on the queue it was launched on.
        """

    def block(self, address: int) -> tuple[int, int, int] | None:
        """Device, first and last byte (exclusive) of the live block that holds an address; None: there is none."""

    def host_access(self, operation: str, uses: Sequence[Use]) -> None:
        """The host is about to read or write memory (``tolist``, ``numpy``). May raise. Rows TM-01, TM-05, TM-06."""

    def exported(self, tensor: Any, interface: str, stream: int | None) -> None:
        """A tensor's memory is about to be handed out by ``"numpy"``, ``"dlpack"`` or ``"array_interface"``.

        For ``"numpy"`` the array is a view of host memory that is used later, unseen; for the others ``stream`` is the
        consumer's stream as it was asked for, None when the export orders nothing. Rows CI-03, CI-07. May raise.
        """

    def numpy_made(self, tensor: Any, array: Any) -> Any:
        """The NumPy array of a CPU tensor has been made; returns what the program is given: it or a view of it."""

    def pack_begins(self, tensor: Any) -> bool:
        """A hook is about to pack ``tensor``, which an operator of the calling thread saves. May raise.

        Returns:
            whether :meth:`pack_ends` is to be called.
        """

    def pack_ends(self) -> None:
        """The hook has packed the tensor."""

    def learn(self) -> None:
        """A record or a wait is about to be called: the trace will ask for its line where no Python may run."""

    def external(self, on: bool) -> None:
        """Whether the event that the calling thread is about to record or wait for is an external one."""

    def trace_replaced(self) -> None:
        """Another tool has put itself where torch tells of streams and events."""

    def waits(self, stream: Any, event: Any) -> None:
        """A stream is about to wait for an event that was recorded. May raise: not every wait is legal in a capture."""

    def synchronizing(self, what: Any) -> AbstractContextManager[None]:
        """While the host waits for a stream, an event, or a device (None). May raise in a capture."""

    def event_done(self, event: int) -> None:
        """``query()`` of an event answered True: its record is ordered before the host (rows TS-16, TS-17).

        A handle of 0 is an event that was never recorded.
        """

    def stream_done(self, device: int, stream: int) -> None:
        """``query()`` of a stream answered True (row TS-20)."""

    def stream_destroyed(self, stream: int) -> None:
        """A stream of ``torch.cuda.cudart()`` is about to be destroyed: another one may have its handle."""

    def waits_for_nothing(self, device: int, stream: int) -> None:
        """A stream waits for an event that was never recorded, which CUDA is not asked for (row TS-12)."""

    def host_waits_for_nothing(self) -> None:
        """The host waits for an event that was never recorded (row TS-17)."""

    def elapsed_time(self, start: int, end: int, timed: tuple[bool, bool]) -> None:
        """``start.elapsed_time(end)`` is about to be called; ``timed``: which were made with timing. May raise.

        A handle of 0 is an event that was never recorded. Row TX-01.
        """

    def capture_on_default(self, device: int, stream: int) -> None:
        """A capture is about to begin on the default stream, which CUDA refuses (row GC-01). May raise."""

    def capture_nears(self) -> None:
        """A capture is about to begin: :meth:`capture_begins` follows, or :meth:`capture_fails`."""

    def capture_fails(self) -> None:
        """A capture that was about to begin does not."""

    def capture_begins(
        self, graph: Hashable, pool: tuple[int, int] | None, mode: str, device: int, stream: int
    ) -> None:
        """A capture has begun on ``stream``: operations belong to the graph, until :meth:`capture_ends`.

        Args:
            graph: stands for the ``CUDAGraph``; the same for all calls about one graph, alive as long as the graph.
            pool: the private pool that was asked for, or None: the graph's own.
            mode: ``"global"``, ``"thread_local"`` or ``"relaxed"``.
            device: of the stream.
            stream: the capturing one.
        """

    def capture_managed(self) -> None:
        """The capture that has just begun is of somebody who sees to the order of the launches (row GC-07) himself."""

    def capture_ends(
        self,
        graph: Hashable,
        pool: tuple[int, int] | None,
        failed: bool,
        error: BaseException | None = None,
    ) -> None:
        """The capture is over.

        Args:
            pool: the one it used.
            failed: CUDA gave it up, the graph is empty.
            error: what was raised in it before.
        """

    def replay(self, graph: Hashable, device: int, stream: int) -> None:
        """The graph is about to be launched on ``stream`` (rows GC-08, GC-13). May raise."""

    def graph_reset(self, graph: Hashable) -> None:
        """The graph gives up its executable and its pool (rows GC-22, GC-23)."""

    def own_work(self) -> AbstractContextManager[None]:
        """While torch does something of its own, which is no work of the program's."""

    def generator_registered(self, graph: Hashable, generator: Any) -> None:
        """A graph keeps the state of a generator: its captures may draw from it."""

    def unrepeatable(self, violation: str, operation: str = "") -> None:
        """Something is about to be called that a capture does not allow, if the current stream is captured. May raise.

        Args:
            violation: by its name in :data:`streamsafe.order.captures.VIOLATIONS`.
            operation: what is called, where the violation does not say it.
        """

    def imported(self, tensor: Any) -> None:
        """A device tensor was made over another library's memory by a way that exchanges no stream (row CI-07)."""

    def storage_resized(self, address: int, size: int, new_address: int, new_size: int) -> None:
        """``untyped_storage().resize_`` has moved a device storage; its bytes were copied on the current stream."""

    def note(self, key: str, text: str) -> None:
        """Something is not seen from here on: one sentence for the session's summary, once for each ``key``."""
