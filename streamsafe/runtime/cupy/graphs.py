"""Captures and graphs: what a capture leaves is kept by the executable graph's handle, and replayed at its launch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from cupy.cuda.graph import Graph
from cupy.cuda.stream import _BaseStream
from cupy_backends.cuda.api import runtime

from streamsafe.order.checker import CaptureMode
from streamsafe.order.checker import Graph as CapturedGraph
from streamsafe.runtime import places as sites
from streamsafe.runtime.cupy.state import order_lock, state, timeline
from streamsafe.runtime.monitor import Monitor
from streamsafe.runtime.patches import Patches

_MODES: dict[int, CaptureMode] = {
    runtime.streamCaptureModeGlobal: "global",
    runtime.streamCaptureModeThreadLocal: "thread_local",
    runtime.streamCaptureModeRelaxed: "relaxed",
}

executables: dict[int, CapturedGraph] = {}
"""Handle of an executable graph -> what it does."""

definitions: dict[int, CapturedGraph] = {}
"""Handle of a graph that is not executable yet -> what it does (direct calls of the runtime)."""

UNKNOWN_GRAPH = "a graph captured before the session was launched: what it reads and writes is not known"


def begin(monitor: Monitor, patches: Patches) -> None:
    """Nothing is known of graphs that were captured before."""
    executables.clear()


def install(patches: Patches) -> None:
    """Wraps capture on streams and launches of graphs."""
    patches.wrap(_BaseStream, "begin_capture", _begin_capture)
    patches.wrap(_BaseStream, "end_capture", _end_capture)
    patches.wrap(Graph, "launch", _launch)


def start_capture(monitor: Monitor, queue: Hashable, mode: int, call: Callable[[], Any]) -> Any:
    """A capture begins on a timeline; on the default stream it is refused, which is said first."""
    if isinstance(queue, tuple) and queue[1] == 0:
        monitor.order(monitor.checker.capture_begin, queue, _MODES.get(mode, "relaxed"))
        return call()
    result = call()
    monitor.capturing.append(queue)
    monitor.captured += 1
    monitor.order(monitor.checker.capture_begin, queue, _MODES.get(mode, "relaxed"))
    return result


def end(monitor: Monitor, queue: Hashable, call: Callable[[], Any]) -> tuple[Any, CapturedGraph]:
    """A capture ends. CUDA's own state is always brought to an end too, before a hazard is raised."""
    with monitor.lock:
        monitor.drain()
        captured = monitor.checker.capture_end(queue, host=monitor.thread, site=sites.capture(2))
    if queue in monitor.capturing:
        monitor.capturing.remove(queue)
    hazard = monitor.error(captured.conflicts, True)
    try:
        result = call()
    except Exception as error:
        if hazard is not None:
            raise hazard from error
        raise
    if hazard is not None:
        raise hazard
    return result, captured


def launch(monitor: Monitor, executable: int, queue: Hashable) -> None:
    """An executable graph is launched on a timeline."""
    captured = executables.get(executable)
    if captured is None:
        for session in monitor.sessions:
            if UNKNOWN_GRAPH not in session.notes:
                session.notes.append(UNKNOWN_GRAPH)
        monitor.access(queue, (), (), "launch")
    else:
        monitor.replay(captured, queue)


def _begin_capture(original: Callable[..., Any]) -> Callable[..., Any]:
    def begin_capture(self: Any, mode: Any = None) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self, mode)
        else:
            number = runtime.streamCaptureModeRelaxed if mode is None else mode
            start_capture(monitor, timeline(monitor, self), number, lambda: original(self, mode))

    return begin_capture


def _end_capture(original: Callable[..., Any]) -> Callable[..., Any]:
    def end_capture(self: Any) -> Any:
        monitor = state.monitor
        if monitor is None:
            return original(self)
        graph, captured = end(monitor, timeline(monitor, self), lambda: original(self))
        before = executables.get(graph.graphExec)
        if before is not None:  # the handle of one that is gone
            monitor.checker.drop_graph(before)
        executables[graph.graphExec] = captured
        return graph

    return end_capture


def _launch(original: Callable[..., Any]) -> Callable[..., Any]:
    def launch_graph(self: Any, stream: Any = None) -> None:
        monitor = state.monitor
        if monitor is None:
            original(self, stream)
            return
        queue = timeline(monitor, stream)
        with order_lock(queue):
            launch(monitor, self.graphExec, queue)
            original(self, stream)

    launch_graph.__name__ = "launch"
    return launch_graph
