"""Streams, events and devices: what orders what. An edge is recorded after CUDA has accepted the call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal

import cupy
import cupy.cuda.stream as stream_module
from cupy.cuda.stream import Event, Stream, _BaseStream

from streamsafe.order.checker import Kind
from streamsafe.order.hazard import Facts
from streamsafe.runtime import places as sites
from streamsafe.runtime import stream_names
from streamsafe.runtime.cupy import pinned
from streamsafe.runtime.cupy.compiled import hooks
from streamsafe.runtime.cupy.state import order_lock, state, timeline
from streamsafe.runtime.monitor import PER_THREAD, Monitor
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.pinned.contents import fingerprints

Wrapped = Callable[..., Any]

_untimed: set[int] = set()
"""Events made with timing disabled."""


def begin(monitor: Monitor, patches: Patches) -> None:
    """Nothing is known of earlier events."""
    _new.clear()


def install(patches: Patches) -> None:
    """Wraps the methods of CuPy's stream, event and device classes."""
    _untimed.clear()
    patches.wrap(Stream, "__init__", _stream_init)
    patches.wrap(Stream, "__del__", _stream_del)
    patches.wrap(_BaseStream, "synchronize", hooks.in_front("stream_synchronize", _stream_synchronize))
    patches.wrap(_BaseStream, "done", hooks.in_front("stream_done", _stream_done))
    patches.wrap(_BaseStream, "record", hooks.in_front("stream_record", _stream_record))
    patches.wrap(_BaseStream, "wait_event", hooks.in_front("wait_event", _wait_event))
    patches.wrap(_BaseStream, "launch_host_func", _launch_host_func)
    patches.wrap(_BaseStream, "add_callback", _add_callback)
    patches.wrap(Event, "__init__", hooks.in_front("event_init", _event_init))
    patches.wrap(Event, "__del__", hooks.in_front("event_del", _event_del))
    patches.wrap(Event, "record", hooks.in_front("event_record", _event_record))
    patches.wrap(Event, "synchronize", hooks.in_front("event_synchronize", _event_synchronize))
    patches.wrap(Event, "done", hooks.in_front("event_done", _event_done))
    patches.wrap(cupy.cuda.Device, "synchronize", _device_synchronize)
    for module in (cupy.cuda, stream_module):
        patches.wrap(module, "get_elapsed_time", _get_elapsed_time)


# -- edges, also for direct calls of the runtime ---------------------------------------------------------------------


def recorded(monitor: Monitor, event: int, queue: Hashable, *, by_cupy: bool = False) -> None:
    """An event was recorded on a timeline."""
    if by_cupy:
        pinned.recorded_here(monitor, queue, event)
    elif pinned.internal_events:
        pinned.internal_events.discard(event)
    monitor.order(monitor.checker.record, event, queue, above=4)


def wait_for(monitor: Monitor, method: Callable[..., Any], subject: Hashable, call: Callable[[], Any]) -> Any:
    """The host waits for a stream, an event or a device. While something is captured, it is asked first if it may."""
    if monitor.capturing:
        monitor.order(method, subject)
        return call()
    result = call()
    waited_for(monitor, method, subject)
    return result


def waited_for(monitor: Monitor, method: Callable[..., Any], subject: Hashable) -> None:
    """The host has waited for a stream, an event or a device."""
    monitor.order(method, subject)
    if fingerprints.count:
        fingerprints.check(monitor)


def poll(
    monitor: Monitor, method: Callable[..., Any], subject: Hashable, call: Callable[[], bool], captured: bool
) -> bool:
    """The host asks whether a stream or event is done: an edge when it is, and the end of a capture it belongs to."""
    if captured:
        monitor.order(method, subject)
        return call()
    answer = call()
    if answer:
        waited_for(monitor, method, subject)
    return answer


def elapsed(monitor: Monitor, start: int, stop: int) -> None:
    """SS312: the time between events that carry none, were never recorded, or that the host has not waited for."""
    for event, which in ((start, "first"), (stop, "second")):
        timing: Literal["untimed", "unrecorded", "pending"]
        if event in _untimed:
            timing, message = "untimed", "was made with disable_timing=True"
        elif not monitor.checker.recorded(event):
            if event not in _new:
                continue  # made before the session: it may have been recorded then
            timing, message = "unrecorded", "was never recorded"
        elif not monitor.checker.waited(event, monitor.thread):
            timing, message = "pending", "is recorded, and the host has not waited for it"
        else:
            continue
        facts = Facts(timing=timing)
        monitor.violation(
            "event-timing-misuse", "get_elapsed_time", f"the {which} event {message}", facts=facts
        )
        return


_new: set[int] = set()
"""Events made in this session."""


# -- streams ---------------------------------------------------------------------------------------------------------


def _stream_init(original: Wrapped) -> Wrapped:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        monitor = state.monitor
        if monitor is not None and self.ptr > PER_THREAD:
            non_blocking = kwargs.get("non_blocking", args[1] if len(args) > 1 else False)
            monitor.destroy_stream(self.device_id, self.ptr)
            kind: Kind = "non-blocking" if non_blocking else "blocking"
            monitor.stream(
                self.device_id, self.ptr, kind=kind, name=stream_names.of_new_stream(sites.capture(2))
            )

    return __init__


def _stream_del(original: Wrapped) -> Wrapped:
    def __del__(self: Any, *args: Any, **kwargs: Any) -> None:
        monitor = state.monitor
        handle = getattr(self, "ptr", None)
        if (
            handle is None
        ):  # its making failed: there is nothing to destroy, and CuPy's own __del__ would fail
            return
        foreign = getattr(self, "_foreign_stream_ref", None) is not None
        device = getattr(self, "device_id", -1)
        if monitor is not None and handle > PER_THREAD and not foreign:
            monitor.destroy_stream(device, handle)
        original(self, *args, **kwargs)

    return __del__


def _stream_synchronize(original: Wrapped) -> Wrapped:
    def synchronize(self: Any) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self)
        elif monitor.capturing:
            method = monitor.checker.synchronize_stream
            wait_for(monitor, method, timeline(monitor, self), lambda: original(self))
        else:
            original(self)
            waited_for(monitor, monitor.checker.synchronize_stream, timeline(monitor, self))

    return synchronize


def _stream_done(original: property) -> property:
    def done(self: Any) -> bool:
        """True if all work on this stream has been done."""
        monitor = state.monitor
        query = original.fget
        assert query is not None
        if monitor is None:
            return bool(query(self))
        queue = timeline(monitor, self)
        if monitor.capturing:
            captured = monitor.checker.capturing(queue)
            return poll(monitor, monitor.checker.completed_stream, queue, lambda: bool(query(self)), captured)
        answer = bool(query(self))
        if answer:
            waited_for(monitor, monitor.checker.completed_stream, queue)
        return answer

    return property(done)


def _stream_record(original: Wrapped) -> Wrapped:
    def record(self: Any, event: Any = None) -> Any:
        monitor = state.monitor
        if monitor is None:
            return original(self, event)
        queue = timeline(monitor, self)
        with order_lock(queue):
            result = original(self, event)
            recorded(monitor, result.ptr, queue, by_cupy=event is None)
        return result

    return record


def _wait_event(original: Wrapped) -> Wrapped:
    def wait_event(self: Any, event: Any) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self, event)
            return
        # Told first: a wait on uncaptured work is explained before CUDA loses the capture.
        queue = timeline(monitor, self)
        with order_lock(queue):
            monitor.order(monitor.checker.wait, queue, event.ptr)
            original(self, event)

    return wait_event


def _launch_host_func(original: Wrapped) -> Wrapped:
    def launch_host_func(self: Any, callback: Any, arg: Any) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self, callback, arg)
            return
        queue = timeline(monitor, self)

        def run(value: Any) -> None:
            with monitor.calling(function):
                callback(value)

        with order_lock(queue):
            function = monitor.host_function(queue, "launch_host_func")
            original(self, run, arg)

    return launch_host_func


def _add_callback(original: Wrapped) -> Wrapped:
    def add_callback(self: Any, callback: Any, arg: Any) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self, callback, arg)
            return
        queue = timeline(monitor, self)

        def run(stream: Any, status: int, value: Any) -> None:
            with monitor.calling(function):
                callback(stream, status, value)

        with order_lock(queue):
            function = monitor.host_function(queue, "add_callback")
            original(self, run, arg)

    return add_callback


# -- events ----------------------------------------------------------------------------------------------------------


def _event_init(original: Wrapped) -> Wrapped:
    def __init__(
        self: Any, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        original(self, block, disable_timing, interprocess)
        monitor = state.monitor
        if monitor is not None:
            created(monitor, self.ptr, timed=not disable_timing)

    return __init__


def created(monitor: Monitor, event: int, *, timed: bool) -> None:
    """An event exists, and nothing was recorded in it."""
    with monitor.lock:
        monitor.drain()
        monitor.checker.event(event)
    gone(event)
    _new.add(event)
    if not timed:
        _untimed.add(event)


def gone(event: int) -> None:
    """The handle of an event may mean another one from now on."""
    _untimed.discard(event)
    _new.discard(event)
    pinned.internal_events.discard(event)


def _event_del(original: Wrapped) -> Wrapped:
    def __del__(self: Any, *args: Any, **kwargs: Any) -> None:
        monitor = state.monitor
        handle = getattr(self, "ptr", 0)
        if monitor is not None and handle:
            destroyed(monitor, handle)
        original(self, *args, **kwargs)

    return __del__


def destroyed(monitor: Monitor, event: int) -> None:
    """An event is about to be destroyed: another thread's may have its handle at once."""
    monitor.destroy_event(event)
    gone(event)


def _event_record(original: Wrapped) -> Wrapped:
    def record(self: Any, stream: Any = None) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self, stream)
            return
        queue = timeline(monitor, stream)
        with order_lock(queue):
            original(self, stream)
            recorded(monitor, self.ptr, queue)

    return record


def _event_synchronize(original: Wrapped) -> Wrapped:
    def synchronize(self: Any) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self)
        elif monitor.capturing:
            wait_for(monitor, monitor.checker.synchronize_event, self.ptr, lambda: original(self))
        else:
            original(self)
            waited_for(monitor, monitor.checker.synchronize_event, self.ptr)

    return synchronize


def _event_done(original: property) -> property:
    def done(self: Any) -> bool:
        """True if the event is done."""
        monitor = state.monitor
        query = original.fget
        assert query is not None
        if monitor is None or self.ptr in pinned.internal_events:
            return bool(query(self))
        event = self.ptr
        if monitor.checker.captured(event):
            return poll(monitor, monitor.checker.completed_event, event, lambda: bool(query(self)), True)
        answer = bool(query(self))
        if answer:
            waited_for(monitor, monitor.checker.completed_event, event)
        return answer

    return property(done)


def _get_elapsed_time(original: Wrapped) -> Wrapped:
    def get_elapsed_time(start_event: Any, end_event: Any) -> float:
        monitor = state.monitor
        if monitor is not None:
            elapsed(monitor, start_event.ptr, end_event.ptr)
        return float(original(start_event, end_event))

    return get_elapsed_time


# -- devices ---------------------------------------------------------------------------------------------------------


def _device_synchronize(original: Wrapped) -> Wrapped:
    def synchronize(self: Any) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self)
        else:
            synchronize_device(monitor, self.id, lambda: original(self))

    return synchronize


def synchronize_device(monitor: Monitor, device: int, call: Callable[[], Any]) -> None:
    """The host waits for a device."""
    monitor.null_stream(device)
    wait_for(monitor, monitor.checker.synchronize_device, device, call)
