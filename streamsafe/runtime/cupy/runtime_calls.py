"""Direct calls of ``cupy.cuda.runtime``: raw pointers and handles. (CuPy's own calls are bound in C.)"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

from cupy.cuda.device import get_device_id
from cupy.cuda.pinned_memory import is_memory_pinned
from cupy_backends.cuda.api import driver
from cupy_backends.cuda.api import runtime as private

from streamsafe.apis import cuda_runtime as table
from streamsafe.apis import effects
from streamsafe.order.memory import HOST
from streamsafe.runtime.cupy import graphs, memory, pinned, streams
from streamsafe.runtime.cupy import touches as uses
from streamsafe.runtime.cupy.state import order_lock, state, timeline_of_handle
from streamsafe.runtime.monitor import NULL, PER_THREAD, Monitor
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.pinned.contents import fingerprints

Call = Callable[[], Any]
Hook = Callable[..., Any]
"""Takes the monitor, the call itself and its arguments; makes the call and returns its result."""

_HOST_SOURCES = (private.memcpyHostToHost, private.memcpyHostToDevice)
_HOST_TARGETS = (private.memcpyHostToHost, private.memcpyDeviceToHost)


def device_bytes(pointer: int, size: int) -> uses.Touch:
    """``size`` bytes of device memory from a raw address."""
    found = memory.block_at(pointer)
    return uses.of_bytes(found[0] if found else get_device_id(), pointer, size)


def _on_host(pointer: int, kind: int, sides: tuple[int, int]) -> bool:
    if kind == private.memcpyDefault:
        return memory.block_at(pointer) is None and (
            pinned.holds(pointer) or bool(is_memory_pinned(pointer)) or _unregistered(pointer)
        )
    return kind in sides


def _unregistered(pointer: int) -> bool:
    return int(private.pointerGetAttributes(pointer).type) == 0


def _rows(pointer: int, pitch: int, width: int, height: int, side: Callable[[int, int], Any]) -> Any:
    """A pitched rectangle: exact rows when it is on the device."""
    touch = side(pointer, pitch * (height - 1) + width if height else 0)
    if touch is None or height <= 1 or pitch == width:
        return touch
    (space, start, stop, *_), name, dtype, certain = touch
    return ((space, start, stop, (height, width), (pitch, 1), 1), name, dtype, certain)


def copy(
    monitor: Monitor,
    call: Call,
    target: int,
    source: int,
    size: int,
    kind: int,
    handle: int,
    *,
    synchronous: bool,
    rows: tuple[int, int, int, int] | None = None,
) -> Any:
    """A memcpy: what it touches by where its two ends are; the host waits when it is synchronous or pageable."""
    queue = timeline_of_handle(monitor, handle)
    reads: list[uses.Touch] = []
    writes: list[uses.Touch] = []
    waits = synchronous
    for pointer, sides, touched, index in (
        (source, _HOST_SOURCES, reads, 0),
        (target, _HOST_TARGETS, writes, 1),
    ):
        on_host = _on_host(pointer, kind, sides)

        def side(start: int, length: int, on_host: bool = on_host) -> uses.Touch | None:
            return pinned.region(monitor, start, length) if on_host else device_bytes(start, length)

        if rows is not None:
            found = _rows(pointer, rows[index], rows[2], rows[3], side)
        else:
            found = side(pointer, size)
        if found is not None:
            touched.append(found)
        elif index == 1 and not is_memory_pinned(pointer):
            waits = True
    if synchronous and monitor.checker.capturing(queue):
        memory.refuse_in_capture(monitor, queue, "memcpy")
    between = memory.between_devices(queue, reads, writes)
    for other in between:
        memory.wait_for_null(monitor, queue, (other, NULL))
    held = not waits and len(reads) + len(writes) == 2  # pageable memory may keep the caller waiting
    with order_lock(queue) if held else nullcontext():
        monitor.access(queue, reads, writes, "memcpy" if synchronous else "memcpyAsync")
        result = None if waits else call()
    for other in between:
        memory.wait_for_null(monitor, (other, NULL), queue)
    for (space, start, stop, *_), *_rest in writes:
        if space == HOST:
            fingerprints.forget(start, stop)
    if not waits:
        for (space, start, stop, *_), *_rest in reads:
            if space == HOST:
                pinned.source(monitor, queue, start, stop - start)
        return result
    result = call()
    if (reads or writes) and not (synchronous and _device_only(reads, writes)):
        monitor.order(monitor.checker.synchronize_stream, queue)
    return result


def _device_only(reads: list[uses.Touch], writes: list[uses.Touch]) -> bool:
    """A copy within the device does not make the host wait."""
    return len(reads) == len(writes) == 1 and reads[0][0][0] != HOST and writes[0][0][0] != HOST


def _fill(monitor: Monitor, call: Call, pointer: int, size: int, handle: int, operation: str) -> Any:
    touch = pinned.region(monitor, pointer, size) or device_bytes(pointer, size)
    queue = timeline_of_handle(monitor, handle)
    with order_lock(queue):
        monitor.access(queue, (), [touch], operation)
        return call()


def _by_row(row: effects.Call) -> Hook:
    """The hook of a copy or a fill, whose operands and stream its row names; ``on`` no parameter: the null stream's."""
    names = row.parameters.split()

    def hook(m: Monitor, call: Call, *args: int, **kwargs: int) -> Any:
        if len(args) + len(kwargs) != len(names):  # no call that CuPy takes either
            return call()
        given = dict(zip(names, args, strict=False), **kwargs)
        target, handle = given[row.writes], given.get(row.on, NULL)
        if not row.reads:
            return _fill(m, call, target, given["size"], handle, row.last)
        source, kind = given[row.reads], given.get("kind", private.memcpyDeviceToDevice)
        rows = None
        if "height" in given:
            rows = given["spitch"], given["dpitch"], given["width"], given["height"]
        size = given.get("size", 0)
        return copy(
            m, call, target, source, size, kind, handle, synchronous=row.on == effects.LEGACY, rows=rows
        )

    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kinds) for name in ("m", "call", *names)]
    hook.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return hook


# -- one hook for each other function; parameters are named as CuPy names them ----------------------------------------


def _malloc(m: Monitor, call: Call, size: int, flags: int = 0) -> Any:
    pointer = call()
    if pointer:
        memory.remember(m, pointer, size, get_device_id(), owner="driver", stream=timeline_of_handle(m, NULL))
    return pointer


def _malloc_async(m: Monitor, call: Call, size: int, stream: int) -> Any:
    pointer = call()
    if pointer:
        memory.remember(m, pointer, size, get_device_id(), owner="cupy", stream=timeline_of_handle(m, stream))
    return pointer


def _free(m: Monitor, call: Call, ptr: int, stream: int = 0) -> Any:
    memory.forget(m, ptr)
    return call()


def _host_alloc(m: Monitor, call: Call, size: int, flags: int) -> Any:
    pointer = call()
    if pointer and m.host:
        pinned.register(m, pointer, size)
    return pointer


def _host_register(m: Monitor, call: Call, ptr: int, size: int, flags: int) -> Any:
    result = call()
    if m.host:
        pinned.register(m, ptr, size, used=True)
    return result


def _host_free(m: Monitor, call: Call, ptr: int) -> Any:
    pinned.unregister(m, ptr)
    return call()


def _stream_create(m: Monitor, call: Call) -> Any:
    return _new_stream(m, call(), 0)


def _stream_create_with(m: Monitor, call: Call, flags: int, priority: int = 0) -> Any:
    return _new_stream(m, call(), flags)


def _new_stream(m: Monitor, handle: int, flags: int) -> int:
    device = get_device_id()
    m.destroy_stream(device, handle)
    m.stream(device, handle, kind="non-blocking" if flags & private.streamNonBlocking else "blocking")
    return handle


def _stream_destroy(m: Monitor, call: Call, stream: int) -> Any:
    if stream > PER_THREAD:
        m.destroy_stream(get_device_id(), stream)
    return call()


def _stream_synchronize(m: Monitor, call: Call, stream: int) -> Any:
    return streams.wait_for(m, m.checker.synchronize_stream, timeline_of_handle(m, stream), call)


def _stream_query(m: Monitor, call: Call, stream: int) -> Any:
    queue = timeline_of_handle(m, stream)
    return _query(m, m.checker.completed_stream, queue, call, m.checker.capturing(queue))


def _query(m: Monitor, method: Hook, subject: Any, call: Call, captured: bool) -> Any:
    status = None

    def done() -> bool:
        nonlocal status
        status = call()
        return bool(status == 0)

    streams.poll(m, method, subject, done, captured)
    return status


def _stream_wait_event(m: Monitor, call: Call, stream: int, event: int, flags: int = 0) -> Any:
    queue = timeline_of_handle(m, stream)
    with order_lock(queue):
        m.order(m.checker.wait, queue, event)
        return call()


def _event_create(m: Monitor, call: Call) -> Any:
    event = call()
    streams.created(m, event, timed=True)
    return event


def _event_create_with(m: Monitor, call: Call, flags: int) -> Any:
    event = call()
    streams.created(m, event, timed=not flags & private.eventDisableTiming)
    return event


def _event_destroy(m: Monitor, call: Call, event: int) -> Any:
    streams.destroyed(m, event)
    return call()


def _event_record(m: Monitor, call: Call, event: int, stream: int) -> Any:
    queue = timeline_of_handle(m, stream)
    with order_lock(queue):
        result = call()
        streams.recorded(m, event, queue)
    return result


def _event_synchronize(m: Monitor, call: Call, event: int) -> Any:
    return streams.wait_for(m, m.checker.synchronize_event, event, call)


def _event_query(m: Monitor, call: Call, event: int) -> Any:
    return _query(m, m.checker.completed_event, event, call, m.checker.captured(event))


def _event_elapsed(m: Monitor, call: Call, start: int, end: int) -> Any:
    streams.elapsed(m, start, end)
    return call()


def _device_synchronize(m: Monitor, call: Call) -> Any:
    return streams.synchronize_device(m, get_device_id(), call)


def _begin_capture(m: Monitor, call: Call, stream: int, mode: int = private.streamCaptureModeRelaxed) -> Any:
    return graphs.start_capture(m, timeline_of_handle(m, stream), mode, call)


def _end_capture(m: Monitor, call: Call, stream: int) -> Any:
    graph, captured = graphs.end(m, timeline_of_handle(m, stream), call)
    graphs.definitions[graph] = captured
    return graph


def _instantiate(m: Monitor, call: Call, graph: int) -> Any:
    executable = call()
    captured = graphs.definitions.get(graph)
    if captured is not None:
        graphs.executables[executable] = captured
    return executable


def _graph_launch(m: Monitor, call: Call, graphExec: int, stream: int) -> Any:
    queue = timeline_of_handle(m, stream)
    with order_lock(queue):
        graphs.launch(m, graphExec, queue)
        return call()


HOOKS: dict[str, Hook] = {
    **{row.last: _by_row(row) for row in table.RUNTIME if row.writes},
    "malloc": _malloc,
    "mallocManaged": _malloc,
    "mallocAsync": _malloc_async,
    "free": _free,
    "freeAsync": _free,
    "hostAlloc": _host_alloc,
    "hostRegister": _host_register,
    "hostUnregister": _host_free,
    "freeHost": _host_free,
    "streamCreate": _stream_create,
    "streamCreateWithFlags": _stream_create_with,
    "streamCreateWithPriority": _stream_create_with,
    "streamDestroy": _stream_destroy,
    "streamSynchronize": _stream_synchronize,
    "streamQuery": _stream_query,
    "streamWaitEvent": _stream_wait_event,
    "eventCreate": _event_create,
    "eventCreateWithFlags": _event_create_with,
    "eventDestroy": _event_destroy,
    "eventRecord": _event_record,
    "eventSynchronize": _event_synchronize,
    "eventQuery": _event_query,
    "eventElapsedTime": _event_elapsed,
    "deviceSynchronize": _device_synchronize,
    "streamBeginCapture": _begin_capture,
    "streamEndCapture": _end_capture,
    "graphInstantiate": _instantiate,
    "graphLaunch": _graph_launch,
}


_ORIGINAL = "_streamsafe_original"


def _plain(function: Any) -> Any:
    """A function without a hook of ours: a star import made while hooks were in place copies them."""
    return getattr(function, _ORIGINAL, function)


def _callback_hook(original: Any) -> Any:
    original = _plain(original)

    @wraps(original)
    def enqueue(stream: int, callback: Any, arg: Any, *flags: Any) -> Any:
        monitor = state.monitor
        if monitor is None:
            return original(stream, callback, arg, *flags)
        function = monitor.host_function(timeline_of_handle(monitor, stream), original.__name__)

        def run(*values: Any) -> None:
            with monitor.calling(function):
                callback(*values)

        return original(stream, run, arg, *flags)

    setattr(enqueue, _ORIGINAL, original)
    return enqueue


def _hooked(hook: Hook) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        original = _plain(original)
        parameters = inspect.signature(hook)

        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            monitor = state.monitor
            if monitor is None:
                return original(*args, **kwargs)
            if kwargs:
                try:
                    parameters.bind(monitor, None, *args, **kwargs)
                except TypeError:  # no call that CuPy takes either
                    return original(*args, **kwargs)
            return hook(monitor, lambda: original(*args, **kwargs), *args, **kwargs)

        setattr(called, _ORIGINAL, original)
        return called

    return make


BY_DRIVER = "kernels were launched through cupy.cuda.driver ({} times): what they read and write is not seen"


def _launched(original: Any) -> Any:
    @wraps(original)
    def launch(*args: Any, **kwargs: Any) -> Any:
        monitor = state.monitor
        if monitor is not None:
            monitor.unseen[BY_DRIVER] += 1
        return original(*args, **kwargs)

    return launch


def install(patches: Patches) -> None:
    """Wraps the functions in the module that ``cupy.cuda.runtime`` is, and in the one that importing it by name makes.

    The second is not imported here: that would replace the attribute of ``cupy.cuda``.
    """
    modules = {
        id(module): module for module in (private, sys.modules.get("cupy.cuda.runtime")) if module is not None
    }
    for module in modules.values():
        for name, hook in HOOKS.items():
            patches.wrap(module, name, _hooked(hook))
        for name in ("launchHostFunc", "streamAddCallback"):
            patches.wrap(module, name, _callback_hook)
    for name in ("launchKernel", "launchCooperativeKernel"):
        patches.wrap(driver, name, _launched)
