"""Calls for which the GPU trace has no callback: queries, waits for events never recorded, ``elapsed_time``."""

from __future__ import annotations

from collections.abc import Callable
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
    """Reports queries that answer True, waits that CUDA is not asked for, and calls of ``elapsed_time``."""

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

    def event_wait(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def wait(self: Any, stream: Any = None) -> None:
            if not event_of(self):
                waiter = torch.cuda.current_stream() if stream is None else stream
                collector.waits_for_nothing(waiter.device_index, handle_of(torch, waiter))
            original(self, stream)

        return wait

    def event_synchronize(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def synchronize(self: Any) -> None:
            if not event_of(self):
                collector.host_waits_for_nothing()
            original(self)

        return synchronize

    def elapsed(original: Callable[..., float]) -> Callable[..., float]:
        @wraps(original)
        def elapsed_time(self: Any, end_event: Any) -> float:
            if isinstance(end_event, torch.cuda.Event):
                timed = (_timed(self), _timed(end_event))
                collector.elapsed_time(event_of(self), event_of(end_event), timed)
            return original(self, end_event)

        return elapsed_time

    def remember(original: Callable[..., Any]) -> Callable[..., Any]:
        def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(cls, *args, **kwargs)
            made._streamsafe_timed = bool(kwargs.get("enable_timing", args[0] if args else False))
            return made

        return __new__

    patches.wrap(torch.cuda.Event, "query", event_query)
    patches.wrap(torch.cuda.Stream, "query", stream_query)
    patches.wrap(torch.Event, "query", event_query)
    patches.wrap(torch.Stream, "query", stream_query)
    patches.wrap(torch.cuda.Event, "wait", event_wait)
    patches.wrap(torch.cuda.Event, "synchronize", event_synchronize)
    patches.wrap(torch.cuda.Event, "elapsed_time", elapsed)
    original = torch.cuda.Event.__dict__.get("__new__")
    if original is not None:
        function = getattr(original, "__func__", original)
        patches.attribute(torch.cuda.Event, "__new__", staticmethod(remember(function)))


def _timed(event: Any) -> bool:
    """Whether an event was made with timing; an event made before the hooks is taken to be."""
    return bool(getattr(event, "_streamsafe_timed", True))
