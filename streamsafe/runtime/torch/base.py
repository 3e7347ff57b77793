"""What the sanitizer knows of a torch program without its operators: streams' names, captures, polls, violations.

How operators, streams and memory are seen is for the classes that build on this one: by an extension in C++
(:mod:`streamsafe.runtime.torch.watch`), or in Python (:mod:`streamsafe.runtime.torch.fallback`).
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from streamsafe.order.capture import CaptureMode, Graph
from streamsafe.order.memory import Region, Use
from streamsafe.runtime import sites
from streamsafe.runtime.monitor import Monitor, current
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.replay import FOUND, written
from streamsafe.runtime.torch.hooks.host import span
from streamsafe.runtime.torch.hooks.streams import event_of, handle_of


class Capture(NamedTuple):
    """A capture in progress: the stream that it began on, and the thread that began it."""

    stream: Hashable
    mode: CaptureMode
    thread: int


class _Waiting(threading.local):
    """Whether the calling thread waits for the device."""

    inside = False


class Base:
    """The part of :class:`streamsafe.runtime.torch.hooks.interface.Collector` that is the same for both.

    Args:
        patches: takes the hooks away.
    """

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._monitor: Monitor | None = None
        self._streams: dict[tuple[int, int], sites.Site] = {}
        self._graphs: dict[Hashable, Graph] = {}
        self._capturing: dict[Hashable, Capture] = {}
        self._generators: WeakKeyDictionary[Hashable, list[int]] = WeakKeyDictionary()
        self._noted: set[str] = set()
        self._waiting = _Waiting()
        self._explained = False  # something was reported that makes the capture in progress fail

    # -- for the class that sees operators ---------------------------------------------------------------------------

    def learn(self) -> None:
        """The lines on the calling thread's stack may be asked for soon, where no Python may run."""

    def set_capturing(self, capturing: bool, generators: list[int]) -> None:
        """Whether a capture is in progress, and the addresses of the generators that its graph keeps."""

    def include(self, on: bool) -> None:
        """Whether the calling thread's operators are seen."""

    def set_refused(self, refused: bool) -> None:
        """Whether the calling thread waits for what a capture forbids, which is reported already."""

    def pack_begins(self, tensor: Any) -> bool:
        """See :class:`streamsafe.runtime.torch.hooks.interface.Collector`."""
        return False

    def pack_ends(self) -> None:
        """See :class:`streamsafe.runtime.torch.hooks.interface.Collector`."""

    def backward_begins(self, gradients: list[Any]) -> None:
        """The calling thread begins a backward pass, which is given these device tensors as gradients."""

    def backward_ends(self) -> None:
        """The pass that began last in the calling thread has ended."""

    # -- sessions ----------------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """See :meth:`streamsafe.runtime.frontend.FrontEnd.refuse`."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a session cannot begin while the current stream is being captured")

    def _forget_program(self) -> None:
        self._noted.clear()
        self._graphs.clear()
        self._capturing.clear()

    # -- streams and backward passes ---------------------------------------------------------------------------------

    def _install_names(self, torch: Any) -> None:
        """Streams are called what the line that makes them calls them."""

        def wrap(original: Any) -> Any:
            def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
                stream = original(cls, *args, **kwargs)
                if current.monitor is not None:
                    handle = getattr(stream, "cuda_stream", 0)
                    if handle:
                        self._streams[stream.device.index, handle] = sites.capture(2)
                return stream

            return __new__

        kind = torch.cuda.Stream
        original = kind.__dict__.get("__new__")
        if original is not None:
            function = getattr(original, "__func__", original)
            self._patches.attribute(kind, "__new__", staticmethod(wrap(function)))

    def _install_backward(self, torch: Any) -> None:
        """A backward pass is called by a line, and given gradients."""
        graph = sys.modules.get("torch.autograd.graph")

        def wrap(original: Any) -> Any:
            def _engine_run_backward(
                t_outputs: Any, grad_tensors: Any = (), *args: Any, **kwargs: Any
            ) -> Any:
                if current.monitor is None or self._monitor is None:
                    return original(t_outputs, grad_tensors, *args, **kwargs)
                self.backward_begins([each for each in grad_tensors if _is_plain(torch, each)])
                try:
                    return original(t_outputs, grad_tensors, *args, **kwargs)
                finally:
                    self.backward_ends()

            return _engine_run_backward

        for module in (graph, sys.modules.get("torch.autograd")):
            if module is not None and hasattr(module, "_engine_run_backward"):
                self._patches.wrap(module, "_engine_run_backward", wrap)

    def name_of(self, device: int, handle: int) -> str:
        """What the program calls a stream."""
        site = self._streams.get((device, handle))
        return sites.name_of(site) if site else ""

    # -- captures ------------------------------------------------------------------------------------------------------

    @property
    def capturing(self) -> bool:
        """Whether a capture is in progress."""
        return bool(self._capturing)

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
            self.violation(
                key, "unjoined-capture-stream", "wait", "the event was recorded by work that is not captured"
            )

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
        key, message = capture.stream, ""
        other = capture.thread != threading.get_ident()
        if what is None:
            message = "no device can be waited for meanwhile"
        elif hasattr(what, "cuda_stream") and checker.capturing(
            stream := self._key(what.device_index, what.cuda_stream)
        ):
            key = stream
        elif not hasattr(what, "cuda_stream") and checker.captured(event_of(what)):
            message = "the event was recorded in the capture"
        elif not other or capture.mode != "global":
            return False
        if other:
            message = "another thread captures meanwhile"
        self.violation(key, "concurrent-capture" if other else "sync-in-capture", "synchronize", message)
        return True

    def violation(
        self, key: Hashable, rule: str, operation: str, message: str, site: sites.Site | None = None
    ) -> None:
        """An operation that is illegal where it stands: reported under the name of its rule.

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
            conflict = monitor.checker.capture_violation(
                rule, key, operation=operation, message=message, site=site
            )
        if monitor.mark is not None:
            monitor.mark(FOUND, written(conflict))
        monitor.report([conflict])

    # -- what the Python hooks see (streamsafe.runtime.torch.hooks.interface.Collector) -----------------------------

    def exported(self, tensor: Any, interface: str, stream: int | None) -> None:
        """Where DLPack's two streams are the same, torch records nothing: it is a wait for that stream all the same."""
        monitor = self._monitor
        if monitor is None or interface != "dlpack" or stream is None:
            return
        device = tensor.device.index
        producer = sys.modules["torch"].cuda.current_stream(device).cuda_stream
        if producer == (0 if stream == 1 else stream):
            monitor.handshake(self._key(device, producer))

    def imported(self, tensor: Any) -> None:
        """A hazard over the memory is interop's only if something is pending on it now (CI-12)."""
        monitor = self._monitor
        if monitor is None or not tensor.numel():
            return
        device, (start, size) = tensor.device.index, span(tensor)
        queue = self._key(device, sys.modules["torch"].cuda.current_stream(device).cuda_stream)
        with monitor.lock:
            monitor.drain()
            pending = monitor.checker.check_access(
                queue, [Use(Region(device, start, start + size))], operation="import", host=monitor.thread
            )
        if pending:
            monitor.came_in(device, start, start + size)

    def numpy_made(self, tensor: Any, array: Any) -> Any:
        """The NumPy view of a CPU tensor: of pinned memory one whose reads and writes are seen."""
        monitor = self._monitor
        if monitor is None or not monitor.host or not tensor.is_pinned():
            return array
        return importlib.import_module("streamsafe.runtime.host").watched(array)

    def event_done(self, event: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.completed_event, event or "never recorded", above=1)

    def stream_done(self, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.completed_stream, self._key(device, stream), above=1)

    def waits_for_nothing(self, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.wait, self._key(device, stream), object(), above=1)

    def host_waits_for_nothing(self) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.synchronize_event, object(), above=1)

    def elapsed_time(self, start: int, end: int, timed: tuple[bool, bool]) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        if not all(timed):
            monitor.violation("event-timing-misuse", "elapsed_time", "an event was made without timing")
            return
        for event in (start, end):
            if not event or not monitor.checker.recorded(event):
                monitor.violation("event-timing-misuse", "elapsed_time", "an event was never recorded")
                return
            if not monitor.checker.waited(event, monitor.thread):
                message = "the host has not waited for an event"
                monitor.violation("event-timing-misuse", "elapsed_time", message)
                return

    def capture_on_default(self, device: int, stream: int) -> None:
        if self._monitor is not None:
            self.violation(self._key(device, stream), "capture-on-default-stream", "capture_begin", "")

    @contextmanager
    def own_work(self) -> Iterator[None]:
        if self._monitor is None:
            yield
            return
        self.include(False)
        try:
            yield
        finally:
            self.include(True)

    def generator_registered(self, graph: Hashable, generator: Any) -> None:
        self._generators.setdefault(graph, []).append(generator._cdata)

    def _captures_change(self) -> None:
        torch = sys.modules["torch"]
        kept = [each._cdata for each in torch.cuda.default_generators]
        for graph in self._capturing:
            kept += self._generators.get(graph, ())
        self.set_capturing(bool(self._capturing), kept)

    def unrepeatable(self, rule: str, operation: str, message: str) -> None:
        monitor = self._monitor
        if monitor is None or not self._capturing:
            return
        stream = sys.modules["torch"].cuda.current_stream()
        key = self._key(stream.device_index, stream.cuda_stream)
        if monitor.checker.capturing(key):
            self.violation(key, rule, operation, message)

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
        self._capturing[graph] = Capture(key, capture_mode, threading.get_ident())
        self._explained = bool(conflicts)
        self._captures_change()
        if conflicts:
            monitor.report(conflicts)

    def capture_managed(self) -> None:
        if self._monitor is not None and self._capturing:
            with self._monitor.lock:
                self._monitor.checker.manage_graph()

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
        if not failed:
            self._graphs[graph] = ended
        if ended.conflicts:
            monitor.report(ended.conflicts, may_raise=not failed)

    def _explain(self, capture: Capture, error: BaseException | None) -> None:
        """CUDA has given up a capture in a backward pass, and nothing illegal was called: it was not warmed up (GC-17).

        The pass waits for the stream on which the nodes of its gradients were made, and libraries create handles when
        they are first used.
        """
        monitor = self._monitor
        if (
            monitor is None
            or self._explained
            or not isinstance(error, RuntimeError)
            or not _in_backward(error)
        ):
            return
        site = sites.raised(error)
        with monitor.lock:
            conflict = monitor.checker.capture_violation(
                "missing-capture-warmup",
                capture.stream,
                operation="backward()",
                message="its capture failed",
                site=site,
            )
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
        monitor.replay(known, self._key(device, stream))

    def graph_reset(self, graph: Hashable) -> None:
        self._graphs.pop(graph, None)

    def storage_resized(self, address: int, size: int, new_address: int, new_size: int) -> None:
        pass

    def note(self, key: str, text: str) -> None:
        """One sentence for the session's summary, once for each key."""
        if self._monitor is not None and key not in self._noted:
            self._noted.add(key)
            self._monitor.sessions[0].notes.append(text)

    def _key(self, device: int, stream: int) -> Hashable:
        assert self._monitor is not None
        if stream in (0, 1):
            return self._monitor.null_stream(device)
        return self._monitor.stream(device, stream, "non-blocking", self.name_of(device, stream))


def _in_backward(error: BaseException) -> bool:
    """Whether an error comes out of a backward pass."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "_engine_run_backward":
            return True
        traceback = traceback.tb_next
    return False


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether it is a device tensor with memory of its own, and does not stand for others (vmap, grad)."""
    if type(tensor) is not torch.Tensor or not tensor.is_cuda:
        return False
    try:
        tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return False
    return True


__all__ = ["Base", "Capture"]
