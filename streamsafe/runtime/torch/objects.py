"""What the sanitizer knows of a torch program without its operators: streams' names, polls, arrays of other libraries.

Captures are in :mod:`streamsafe.runtime.torch.captures`; :mod:`streamsafe.runtime.torch.watch` builds on both: its
extension in C++ sees operators, streams and memory.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from streamsafe.order.memory import Region, Use
from streamsafe.runtime import places as sites
from streamsafe.runtime.monitor import Monitor, current
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.host_access import span

NEVER = "never recorded"
"""The key of the events that were never recorded, of which CUDA is not asked: nothing tells one from another."""


class Base:
    """The part of :class:`streamsafe.runtime.torch.hooks.interface.Collector` that needs no operators.

    Args:
        patches: takes the hooks away.
    """

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._monitor: Monitor | None = None
        self._streams: dict[tuple[int, int], sites.Site] = {}
        self._noted: set[str] = set()

    # -- for the class that sees operators ---------------------------------------------------------------------------

    def learn(self) -> None:
        """The lines on the calling thread's stack may be asked for soon, where no Python may run."""

    def include(self, on: bool) -> None:
        """Whether the calling thread's operators are seen."""

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
        """See :meth:`streamsafe.runtime.library.FrontEnd.refuse`."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a session cannot begin while the current stream is being captured")

    def _forget_program(self) -> None:
        self._noted.clear()

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

    def made_at(self, device: int, handle: int) -> sites.Site | None:
        """Where the program made a stream."""
        return self._streams.get((device, handle))

    # -- what the Python hooks see (streamsafe.runtime.torch.hooks.interface.Collector) -----------------------------

    def stream_destroyed(self, stream: int) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        for device in range(sys.modules["torch"].cuda.device_count()):
            monitor.destroy_stream(device, stream)
            with monitor.lock:
                monitor.drain()  # before another stream has the handle
                monitor.checker.destroy_stream((device, stream))
            self._streams.pop((device, stream), None)

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
        return importlib.import_module("streamsafe.runtime.pinned.arrays").watched(array)

    def event_done(self, event: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.completed_event, event or NEVER, above=1)

    def stream_done(self, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.completed_stream, self._key(device, stream), above=1)

    def waits_for_nothing(self, device: int, stream: int) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.wait, self._key(device, stream), NEVER, above=1)

    def host_waits_for_nothing(self) -> None:
        monitor = self._monitor
        if monitor is not None:
            monitor.order(monitor.checker.synchronize_event, NEVER, above=1)

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


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether it is a device tensor with memory of its own, and does not stand for others (vmap, grad)."""
    if type(tensor) is not torch.Tensor or not tensor.is_cuda:
        return False
    try:
        tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return False
    return True


__all__ = ["Base"]
