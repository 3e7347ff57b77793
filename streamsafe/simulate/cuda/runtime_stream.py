"""``cupy_backends.cuda.api.runtime``: streams, events, host functions, capture and graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from streamsafe.simulate.cuda.capture import RELAXED
from streamsafe.simulate.cuda.errors import (
    CAPTURED_EVENT,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    SUCCESS,
    CudaError,
)
from streamsafe.simulate.cuda.machine import Executable, Machine
from streamsafe.simulate.cuda.queues import PER_THREAD, Event, Stream
from streamsafe.simulate.cuda.streams import DISABLE_TIMING

_HIGHEST_PRIORITY = -5


class StreamCalls:
    """Streams, events and graphs; method names are CuPy's.

    Args:
        machine: the simulated machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    # -- streams

    def streamCreate(self) -> int:
        return self.streamCreateWithPriority(0, 0)

    def streamCreateWithFlags(self, flags: int) -> int:
        return self.streamCreateWithPriority(flags, 0)

    def streamCreateWithPriority(self, flags: int, priority: int) -> int:
        machine = self._machine
        with machine.lock:
            machine.permit()
            if flags not in (0, 1):
                raise CudaError(INVALID_VALUE)
            # CUDA clamps priorities to the device's range.
            stream = machine.scheduler.create(machine.device, flags, min(0, max(_HIGHEST_PRIORITY, priority)))
            machine.log.note("streamCreate", machine.device, stream.handle, flags=flags)
            return stream.handle

    def streamDestroy(self, stream: int) -> None:
        machine = self._machine
        with machine.lock:
            found = machine.stream(stream)
            if stream <= PER_THREAD:
                raise CudaError(INVALID_HANDLE)
            if found.capture is not None:
                machine.captures.synchronizing(found)
            machine.scheduler.destroy(found)
            machine.log.note("streamDestroy", machine.device, stream)

    def streamGetFlags(self, stream: int) -> int:
        with self._machine.lock:
            return self._machine.stream(stream).flags

    def streamGetPriority(self, stream: int) -> int:
        with self._machine.lock:
            return self._machine.stream(stream).priority

    def streamSynchronize(self, stream: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            found = machine.stream(stream)
            machine.captures.synchronizing(found)
            machine.log.note("streamSynchronize", machine.device, stream)
            machine.scheduler.wait(machine.scheduler.pending(found))

    def streamQuery(self, stream: int) -> int:
        machine = self._machine
        try:
            with machine.lock:
                machine.permit()
                found = machine.stream(stream)
                machine.captures.synchronizing(found)
                machine.log.note("streamQuery", machine.device, stream)
                return NOT_READY if machine.scheduler.pending(found) else SUCCESS
        except CudaError as error:
            return error.status  # CuPy's wrapper returns the status instead of raising it

    def streamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            found, source = machine.stream(stream), machine.event(event)
            captured = machine.captures.waits(found, source)
            capture = found.capture.handle if found.capture is not None else None
            machine.log.note("streamWaitEvent", machine.device, stream, capture=capture, event=event)
            if not captured and source.task is not None and not source.task.done:
                machine.scheduler.enqueue(found, _nothing, after=[source.task])

    def streamAddCallback(
        self, stream: int, callback: Callable[[int, int, Any], None], arg: Any, flags: int = 0
    ) -> None:
        machine = self._machine
        with machine.lock:
            found = machine.stream(stream)
            if found.capture is not None:
                machine.captures.synchronizing(found)
            machine.enqueue("streamAddCallback", stream, lambda: callback(stream, SUCCESS, arg), on_host=True)

    def launchHostFunc(self, stream: int, callback: Callable[[Any], None], arg: Any) -> None:
        machine = self._machine
        with machine.lock:
            machine.enqueue("launchHostFunc", stream, lambda: callback(arg), on_host=True)

    def _launchHostFuncUnmanaged(self, stream: int, func_arg: tuple[Callable[[Any], None], Any]) -> None:
        self.launchHostFunc(stream, *func_arg)

    # -- events

    def eventCreate(self) -> int:
        return self.eventCreateWithFlags(0)

    def eventCreateWithFlags(self, flags: int) -> int:
        machine = self._machine
        with machine.lock:
            machine.permit()
            event = Event(machine.event_handles.take(), machine.device, flags)
            machine.events[event.handle] = event
            machine.log.note("eventCreate", machine.device, event=event.handle, flags=flags)
            return event.handle

    def eventDestroy(self, event: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.event(event)
            del machine.events[event]
            machine.event_handles.give_back(event)
            machine.log.note("eventDestroy", machine.device, event=event)

    def eventRecord(self, event: int, stream: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            cell, found = machine.event(event), machine.stream(stream)
            if cell.device != found.device:
                raise CudaError(INVALID_HANDLE)
            capture = machine.captures.capturing(found)
            handle = None if capture is None else capture.handle
            machine.log.note("eventRecord", machine.device, stream, capture=handle, event=event)
            cell.recorded = True
            cell.capture = capture
            cell.nodes = found.nodes
            cell.task = None
            if capture is None:
                cell.task = machine.scheduler.enqueue(found, _Stamp(cell))

    def eventQuery(self, event: int) -> int:
        machine = self._machine
        try:
            with machine.lock:
                machine.permit()
                cell = machine.event(event)
                machine.captures.asks_event(cell)
                machine.log.note("eventQuery", machine.device, event=event)
                return NOT_READY if cell.task is not None and not cell.task.done else SUCCESS
        except CudaError as error:
            return error.status

    def eventSynchronize(self, event: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            cell = machine.event(event)
            machine.captures.asks_event(cell)
            machine.log.note("eventSynchronize", machine.device, event=event)
            if cell.task is not None:
                machine.scheduler.wait([cell.task])

    def eventElapsedTime(self, start: int, end: int) -> float:
        machine = self._machine
        with machine.lock:
            cells = machine.event(start), machine.event(end)
            if any(cell.flags & DISABLE_TIMING or not cell.recorded for cell in cells):
                raise CudaError(INVALID_HANDLE)
            if any(cell.capture is not None for cell in cells):
                raise CudaError(CAPTURED_EVENT)
            if any(cell.task is not None and not cell.task.done for cell in cells):
                raise CudaError(NOT_READY)
            return (cells[1].at - cells[0].at) * 1e3

    # -- capture and graphs

    def streamBeginCapture(self, stream: int, mode: int = RELAXED) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            capture = machine.captures.begin(machine.handles.take(), machine.stream(stream), mode)
            machine.log.note("streamBeginCapture", machine.device, stream, capture=capture.handle, mode=mode)

    def streamEndCapture(self, stream: int) -> int:
        machine = self._machine
        with machine.lock:
            machine.permit()
            capture = machine.captures.end(machine.stream(stream))
            machine.graphs[capture.handle] = capture.nodes
            machine.log.note("streamEndCapture", machine.device, stream, capture=capture.handle)
            return capture.handle

    def streamIsCapturing(self, stream: int) -> int:
        with self._machine.lock:
            status = self._machine.captures.status(self._machine.stream(stream))
        if status is None:
            # CuPy's own words for cudaStreamCaptureStatusInvalidated.
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return int(status)

    def graphInstantiate(self, graph: int) -> int:
        machine = self._machine
        with machine.lock:
            machine.captures.unsafe()
            if graph not in machine.graphs:
                raise CudaError(INVALID_VALUE)
            handle = machine.handles.take()
            machine.executables[handle] = Executable(machine.graphs[graph])
            machine.log.note("graphInstantiate", machine.device, graph=graph, executable=handle)
            return handle

    def graphDestroy(self, graph: int) -> None:
        machine = self._machine
        with machine.lock:
            if machine.graphs.pop(graph, None) is None:
                raise CudaError(INVALID_VALUE)
            machine.handles.give_back(graph)

    def graphExecDestroy(self, graphExec: int) -> None:
        machine = self._machine
        with machine.lock:
            if machine.executables.pop(graphExec, None) is None:
                raise CudaError(INVALID_VALUE)
            machine.handles.give_back(graphExec)

    def graphUpload(self, graphExec: int, stream: int) -> None:
        machine = self._machine
        with machine.lock:
            if graphExec not in machine.executables:
                raise CudaError(INVALID_VALUE)
            machine.enqueue("graphUpload", stream, _nothing, executable=graphExec)

    def graphLaunch(self, graphExec: int, stream: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            executable = machine.executables.get(graphExec)
            if executable is None:
                raise CudaError(INVALID_VALUE)
            found = machine.stream(stream)
            capture = machine.captures.capturing(found)
            machine.log.note(
                "graphLaunch",
                machine.device,
                stream,
                capture=None if capture is None else capture.handle,
                executable=graphExec,
                nodes=[node.label for node in executable.nodes],
            )
            if capture is not None:
                for node in executable.nodes:
                    capture.add(found, node.work, node.on_host, node.label)
                return
            self._run(executable, found)

    def _run(self, executable: Executable, stream: Stream) -> None:
        """Enqueue a graph: after the stream's work and after the same graph's previous launch (row GC-13)."""
        scheduler = self._machine.scheduler
        after = [executable.last] if executable.last is not None else []
        task = scheduler.enqueue(stream, _nothing, after=after)
        for node in executable.nodes:
            task = scheduler.enqueue(stream, node.work, on_host=node.on_host)
        executable.last = task

    def graphDebugDotPrint(self, graph: int, path: str, flags: int) -> None:
        machine = self._machine
        with machine.lock:
            if graph not in machine.graphs:
                raise CudaError(INVALID_VALUE)
            nodes = machine.graphs[graph]
        number = {node: index for index, node in enumerate(nodes)}
        kinds = {True: "\\nhost function", False: "\\ndevice work"} if flags else {True: "", False: ""}
        lines = [f'n{number[node]} [label="{node.label}{kinds[node.on_host]}"];' for node in nodes]
        lines += [f"n{number[earlier]} -> n{number[node]};" for node in nodes for earlier in node.before]
        with open(path, "w", encoding="utf-8") as file:
            file.write("digraph dot {\n" + "\n".join(lines) + "\n}\n")


class _Stamp:
    """The work of a record: note the time."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Event) -> None:
        self._cell = cell

    def __call__(self) -> None:
        self._cell.at = time.perf_counter()


def _nothing() -> None:
    """Work of an operation that only orders."""
