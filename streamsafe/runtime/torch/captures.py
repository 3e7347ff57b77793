"""Captures of CUDA graphs: what they forbid, said before CUDA loses them, and what their graphs launch."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, finalize, ref

from streamsafe.order.captures import VIOLATIONS, CaptureMode, Graph, message_of
from streamsafe.order.hazard import Conflict
from streamsafe.runtime import places as sites
from streamsafe.runtime.marks import FOUND, written
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.host_access import span
from streamsafe.runtime.torch.hooks.streams import event_of, handle_of
from streamsafe.runtime.torch.kept_outputs import Kept, Output
from streamsafe.runtime.torch.objects import Base

BEGINNINGS = {
    "cuBLAS": "`cublasCreate(handle)`",
    "cuSOLVER": "`cusolverDnCreate(handle)`",
    "cuSPARSE": "`cusparseCreate(handle)`",
    "cuFFT": "cuFFT error: CUFFT_INTERNAL_ERROR",
}
"""What torch's errors say when a library is first used in a capture (torch 2.11, one H100; cuDNN begins in it)."""


class Capture(NamedTuple):
    """A capture in progress: the stream that it began on, the thread that began it, and whether somebody else sees to
    the launches of its graph."""

    stream: Hashable
    mode: CaptureMode
    thread: int
    managed: bool = False


class _Waiting(threading.local):
    """Whether the calling thread waits for the device."""

    inside = False


class _Collection:
    """Python's collection of cycles, which is held off while a capture lasts.

    The sanitizer's own objects make it come earlier and more often. A graph that is destroyed in it, as one of
    ``make_graphed_callables`` is, makes CUDA lose the capture.
    """

    def __init__(self) -> None:
        self._held = False

    def hold(self, on: bool) -> None:
        """Hold it off, or let it come again if this held it off."""
        if on and not self._held and gc.isenabled():
            self._held = True
            gc.disable()
        elif not on and self._held:
            self._held = False
            gc.enable()


class Captures(Base):
    """The part of :class:`streamsafe.runtime.torch.hooks.interface.Collector` that is about captures."""

    def __init__(self, patches: Patches) -> None:
        super().__init__(patches)
        self._graphs: WeakKeyDictionary[Hashable, Graph] = WeakKeyDictionary()
        self._dropping: WeakKeyDictionary[Hashable, finalize[[ref[Monitor], Graph], Hashable]] = (
            WeakKeyDictionary()
        )
        self._capturing: dict[Hashable, Capture] = {}
        self._kept: WeakKeyDictionary[Hashable, Kept] = WeakKeyDictionary()
        self._generators: WeakKeyDictionary[Hashable, list[int]] = WeakKeyDictionary()
        self._collection = _Collection()
        self._waiting = _Waiting()
        self._explained = False  # something was reported that makes the capture in progress fail

    def _forget_program(self) -> None:
        super()._forget_program()
        self._graphs.clear()
        self._kept.clear()
        self._capturing.clear()
        self._collection.hold(False)

    # -- for the class that sees operators ---------------------------------------------------------------------------

    def set_capturing(self, capturing: bool, generators: list[int]) -> None:
        """Whether a capture is in progress, and the addresses of the generators that its graph keeps."""

    def set_refused(self, refused: bool) -> None:
        """Whether the calling thread waits for what a capture forbids, which is reported already."""

    # -- captures ------------------------------------------------------------------------------------------------------

    @property
    def capturing(self) -> bool:
        """Whether a capture is in progress."""
        return bool(self._capturing)

    @property
    def captures_here(self) -> bool:
        """Whether the calling thread has begun a capture."""
        own = threading.get_ident()
        return any(each.thread == own for each in list(self._capturing.values()))

    def waits(self, stream: Any, event: Any) -> None:
        """In a capture: a captured stream may wait for captured work only, another one for none of it."""
        monitor = self._monitor
        if monitor is None:
            return
        self.learn()
        if not self._capturing:
            return
        handle = event_of(event)
        key = self._key(stream.device_index, handle_of(sys.modules["torch"], stream))
        checker = monitor.checker
        if checker.capturing(key) and checker.recorded(handle) and not checker.captured(handle):
            self.violation(key, "wait_outside")

    @contextmanager
    def synchronizing(self, what: Any) -> Iterator[None]:
        """While the host waits for a stream, an event or a device (None). What a capture forbids is reported once.

        Raises:
            StreamHazardError: before CUDA loses the capture.
        """
        if self._monitor is None or self._waiting.inside:
            yield
            return
        self.learn()
        reported = bool(self._capturing) and self._refuses(what)
        self._waiting.inside = True  # one call of torch's may make another
        if reported:
            self.set_refused(True)
        try:
            yield
        finally:
            self._waiting.inside = False
            if reported:
                self.set_refused(False)

    def _refuses(self, what: Any) -> bool:
        """In a capture nothing of it may be waited for, and no device; in the global mode nothing by other threads."""
        monitor = self._monitor
        if monitor is None:
            return False
        checker = monitor.checker
        capture = next(iter(self._capturing.values()), None)
        if capture is None:  # another thread has just ended it
            return False
        key, violation = capture.stream, "stream_wait"
        other = capture.thread != threading.get_ident()
        if what is None:
            violation = "device_wait"
        elif hasattr(what, "cuda_stream") and checker.capturing(
            stream := self._key(what.device_index, what.cuda_stream)
        ):
            key = stream
        elif not hasattr(what, "cuda_stream") and checker.captured(event_of(what)):
            violation = "event_wait"
        elif not other or capture.mode != "global":
            return False
        self.violation(key, "other_thread" if other else violation, origin=capture.stream)
        return True

    def violation(
        self,
        key: Hashable,
        violation: str,
        operation: str = "",
        *,
        origin: Hashable = None,
        site: sites.Site | None = None,
    ) -> None:
        """An operation that is illegal where it stands.

        Args:
            key: the stream.
            violation: by its name in :data:`streamsafe.order.captures.VIOLATIONS`.
            operation: what the program called, where the violation does not say it.
            origin: the stream that captures.

        Raises:
            StreamHazardError: the session raises.
        """
        monitor = self._monitor
        if monitor is None:
            return
        if site is None:
            site = sites.capture()
        self._explained = True
        with monitor.lock:
            conflict = self._illegal(monitor, key, violation, operation, origin, site)
        if monitor.mark is not None:
            monitor.mark(FOUND, written(conflict))
        monitor.report([conflict])

    @staticmethod
    def _illegal(
        monitor: Monitor, key: Hashable, violation: str, operation: str, origin: Hashable, site: object
    ) -> Conflict:
        known = VIOLATIONS[violation]
        checker = monitor.checker
        other = checker.timeline(origin).name if origin is not None else ""
        message = message_of(violation, checker.timeline(key).name, other, itself=origin == key)
        return checker.capture_violation(
            known.rule, key, operation=known.operation or operation, message=message, site=site
        )

    def capture_on_default(self, device: int, stream: int) -> None:
        if self._monitor is not None:
            self.violation(self._key(device, stream), "begin_on_legacy")

    def generator_registered(self, graph: Hashable, generator: Any) -> None:
        self._generators.setdefault(graph, []).append(generator._cdata)

    def _captures_change(self) -> None:
        torch = sys.modules["torch"]
        kept = [each._cdata for each in torch.cuda.default_generators]
        for graph in self._capturing:
            kept += self._generators.get(graph, ())
        self.set_capturing(bool(self._capturing), kept)
        self._collection.hold(bool(self._capturing))

    def unrepeatable(self, violation: str, operation: str = "") -> None:
        monitor = self._monitor
        if monitor is None or not self._capturing:
            return
        stream = sys.modules["torch"].cuda.current_stream()
        key = self._key(stream.device_index, stream.cuda_stream)
        if monitor.checker.capturing(key):
            self.violation(key, violation, operation)

    def capture_nears(self) -> None:
        if self._monitor is not None:
            self._collection.hold(True)

    def capture_fails(self) -> None:
        self._collection.hold(bool(self._capturing))

    def capture_begins(
        self, graph: Hashable, pool: tuple[int, int] | None, mode: str, device: int, stream: int
    ) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        key = self._key(device, stream)
        capture_mode: CaptureMode = mode if mode in ("thread_local", "relaxed") else "global"  # type: ignore[assignment]
        with monitor.lock:
            conflicts = monitor.checker.capture_begin(
                key,
                capture_mode,
                pool=pool or ("graph", id(graph)),
                host=monitor.thread,
                site=sites.capture(2),
            )
        monitor.captured += 1
        self._capturing[graph] = Capture(key, capture_mode, threading.get_ident())
        self._explained = bool(conflicts)
        self._captures_change()
        if conflicts:
            monitor.report(conflicts)

    def capture_managed(self) -> None:
        if self._monitor is not None and self._capturing:
            with self._monitor.lock:
                self._monitor.checker.manage_graph()
            graph, capture = next(reversed(self._capturing.items()))
            self._capturing[graph] = capture._replace(managed=True)

    def capture_ends(
        self,
        graph: Hashable,
        pool: tuple[int, int] | None,
        failed: bool,
        error: BaseException | None = None,
    ) -> None:
        monitor = self._monitor
        capture = self._capturing.pop(graph, None)
        if failed and capture is not None:
            self._explain(capture, error)
        self._captures_change()
        if monitor is None or capture is None:
            return
        with monitor.lock:
            ended = monitor.checker.capture_end(capture.stream, host=monitor.thread, site=sites.capture(2))
        ended.managed = capture.managed
        if failed:
            monitor.checker.drop_graph(ended)
        else:
            self._replace(graph, ended)
        conflicts = ended.conflicts
        if failed and error is not None:  # what would have joined the streams was not reached
            conflicts = [each for each in conflicts if each.facts.violation != "unjoined-capture-stream"]
        if conflicts:
            monitor.report(conflicts, may_raise=not failed)

    def _explain(self, capture: Capture, error: BaseException | None) -> None:
        """CUDA has given up a capture, and nothing illegal was called: what it captures was not warmed up (GC-17).

        A library makes its handle, or cuFFT a plan, when it is first used. A backward pass waits for the stream on
        which the nodes of its gradients were made.
        """
        monitor = self._monitor
        if monitor is None or self._explained or not isinstance(error, RuntimeError):
            return
        library = _first_used(error)
        if not library and not _in_backward(error):
            return
        site = sites.raised(error)
        with monitor.lock:
            operation = f"the first use of {library}" if library else "backward()"
            conflict = self._illegal(monitor, capture.stream, "first_use", operation, None, site)
        monitor.report([conflict], may_raise=False)

    def replay(self, graph: Hashable, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        known = self._graphs.get(graph)
        if known is None:
            self.note(
                "graph", "a graph that was captured before the session was launched: its accesses are unknown"
            )
            return
        key = self._key(device, stream)
        if not known.managed:
            kept = self._kept.get(graph)
            if kept is None:
                kept = self._kept[graph] = Kept(partial(self._output, known.key))
            for conflict in kept.launch(sys._getframe(1)) if kept.looks(self.place()) else ():
                monitor.found(conflict)
        monitor.replay(known, key)

    def place(self) -> int:
        """A number for the lines on the calling thread's stack."""
        raise NotImplementedError

    def graph_of(self, address: int) -> int:
        """The number of the graph in whose capture the memory at an address was allocated; 0: of none."""
        raise NotImplementedError

    def _output(self, graph: int, value: object) -> Output | None:
        """What a graph has made, of an object; None: it is nothing of it."""
        torch = sys.modules["torch"]
        if not issubclass(type(value), torch.Tensor):
            return None
        tensor: Any = value
        with torch._C.DisableTorchFunctionSubclass():
            if not tensor.is_cuda or tensor.layout is not torch.strided:
                return None
            try:
                start, size = span(tensor)
            except RuntimeError:  # a tensor without memory of its own
                return None
        return Output(start, start + size, tensor) if size and self.graph_of(start) == graph else None

    def graph_reset(self, graph: Hashable) -> None:
        self._replace(graph, None)

    def _replace(self, graph: Hashable, ended: Graph | None) -> None:
        """Another capture stands for a graph, or none: of the one before no more is known."""
        dropping = self._dropping.pop(graph, None)
        if dropping is not None:
            dropping()
        self._graphs.pop(graph, None)
        self._kept.pop(graph, None)
        if ended is None or self._monitor is None:
            return
        self._graphs[graph] = ended
        self._dropping[graph] = finalize(graph, _drop, ref(self._monitor), ended)
        self._dropping[graph].atexit = False


def _drop(monitor: ref[Monitor], graph: Graph) -> None:
    """A graph is gone; safe in a finalizer."""
    found = monitor()
    if found is not None:
        found.later(partial(found.checker.drop_graph, graph))


def _first_used(error: BaseException) -> str:
    """The library that could not begin in a capture, as torch's error names it; empty for another error."""
    return next((name for name, words in BEGINNINGS.items() if words in str(error)), "")


def _in_backward(error: BaseException) -> bool:
    """Whether an error comes out of a backward pass."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "_engine_run_backward":
            return True
        traceback = traceback.tb_next
    return False


__all__ = ["Capture", "Captures"]
