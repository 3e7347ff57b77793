"""Streams and events: what the GPU trace has no callback for, and what has to be known before CUDA is asked.

Records, waits and synchronizes are in torch's GPU trace, but after the fact and without the GIL. Here the line that
calls is made known, so that the trace can name it, and in a capture what CUDA refuses is said before CUDA loses the
capture. Queries, waits for events never recorded and ``elapsed_time`` are in no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from streamsafe.runtime.patches import Patches
from streamsafe.runtime.torch.hooks.interface import Collector

CUDA = 1  # c10::DeviceType


def handle_of(torch: Any, stream: Any) -> int:
    """The raw handle of a ``torch.cuda.Stream`` or a ``torch.Stream`` of a CUDA device."""
    handle = getattr(stream, "cuda_stream", None)
    if handle is None:
        handle = torch.cuda.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        ).cuda_stream
    return int(handle)


def event_of(event: Any) -> int:
    """The raw handle of a ``torch.cuda.Event`` or a ``torch.Event``; 0 while it was never recorded."""
    handle = getattr(event, "cuda_event", None)
    return int(event.event_id if handle is None else handle)


def install(torch: Any, patches: Patches, collector: Collector) -> None:
    """Wraps methods of streams and events, and the ``synchronize`` of ``torch.cuda`` and ``torch.accelerator``."""
    cuda = torch.cuda

    def learning(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            collector.learn()
            return original(self, *args, **kwargs)

        return call

    def event_record(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def record(self: Any, stream: Any = None) -> None:
            collector.learn()
            with at_each_launch(self):
                original(self, stream)

        return record

    def event_wait(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def wait(self: Any, stream: Any = None) -> None:
            waits(cuda.current_stream() if stream is None else stream, self)
            with at_each_launch(self):
                original(self, stream)

        return wait

    @contextmanager
    def at_each_launch(event: Any) -> Iterator[None]:
        """In a capture, such an event is recorded and waited for by the graph's launches (GC-21)."""
        if not getattr(event, "_streamsafe_external", False):
            yield
            return
        collector.external(True)
        try:
            yield
        finally:
            collector.external(False)

    def traced(original: Callable[[], None]) -> Callable[[], None]:
        @wraps(original)
        def activate() -> None:
            original()
            collector.trace_replaced()

        return activate

    def stream_wait_event(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def wait_event(self: Any, event: Any) -> None:
            if not isinstance(event, cuda.Event):  # such an event's own method is wrapped
                waits(self, event)
            original(self, event)

        return wait_event

    def waits(stream: Any, event: Any) -> None:
        if getattr(event, "_streamsafe_external", False):
            collector.learn()
        elif event_of(event):
            collector.waits(stream, event)
        else:
            collector.waits_for_nothing(stream.device_index, handle_of(torch, stream))

    def synchronizing(original: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(original)
        def synchronize(self: Any) -> None:
            if isinstance(self, cuda.Event) and not event_of(self):
                collector.host_waits_for_nothing()
            with collector.synchronizing(self):
                original(self)

        return synchronize

    def device(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def synchronize(*args: Any) -> None:
            with collector.synchronizing(None):
                original(*args)

        return synchronize

    def event_query(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
        @wraps(original)
        def query(self: Any) -> bool:
            done = original(self)
            if done:
                collector.event_done(event_of(self))
            return done

        return query

    def stream_query(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
        @wraps(original)
        def query(self: Any) -> bool:
            done = original(self)
            if done and self.device_type == CUDA:
                collector.stream_done(self.device_index, handle_of(torch, self))
            return done

        return query

    def destroy(original: Callable[[int], Any]) -> Callable[[int], Any]:
        @wraps(original)
        def cudaStreamDestroy(stream: int) -> Any:
            collector.stream_destroyed(stream)
            return original(stream)

        return cudaStreamDestroy

    def elapsed(original: Callable[..., float]) -> Callable[..., float]:
        @wraps(original)
        def elapsed_time(self: Any, end_event: Any) -> float:
            if isinstance(end_event, cuda.Event):
                timed = (_timed(self), _timed(end_event))
                collector.elapsed_time(event_of(self), event_of(end_event), timed)
            return original(self, end_event)

        return elapsed_time

    def remember(original: Callable[..., Any]) -> Callable[..., Any]:
        def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(cls, *args, **kwargs)
            made._streamsafe_timed = bool(kwargs.get("enable_timing", args[0] if args else False))
            made._streamsafe_external = bool(kwargs.get("external", args[3] if len(args) > 3 else False))
            return made

        return __new__

    for owner, name, make in (
        (cuda.Event, "record", event_record),
        (cuda.Event, "wait", event_wait),
        (cuda.Event, "synchronize", synchronizing),
        (cuda.Event, "query", event_query),
        (cuda.Event, "elapsed_time", elapsed),
        (cuda.Stream, "record_event", learning),
        (cuda.Stream, "wait_stream", learning),
        (cuda.Stream, "wait_event", stream_wait_event),
        (cuda.Stream, "synchronize", synchronizing),
        (cuda.Stream, "query", stream_query),
        (torch.Event, "query", event_query),
        (torch.Stream, "query", stream_query),
        # whatever names a program has for torch.cuda.synchronize and torch.accelerator.synchronize
        (torch._C, "_cuda_synchronize", device),
        (torch._C, "_accelerator_synchronizeDevice", device),
        (torch._C, "_activate_gpu_trace", traced),
    ):
        patches.wrap(owner, name, make)
    patches.wrap(getattr(cuda, "_cudart", None), "cudaStreamDestroy", destroy)
    original = cuda.Event.__dict__.get("__new__")
    if original is not None:
        function = getattr(original, "__func__", original)
        patches.attribute(cuda.Event, "__new__", staticmethod(remember(function)))


def _timed(event: Any) -> bool:
    """Whether an event was made with timing; an event made before the hooks is taken to be."""
    return bool(getattr(event, "_streamsafe_timed", True))
