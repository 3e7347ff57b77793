"""``cupy.cuda.runtime`` and NVIDIA's own bindings: raw pointers and handles."""

from __future__ import annotations

from streamsafe.apis.effects import (
    BEGINS,
    DEVICE,
    ENDS,
    EVENT,
    GRAPH,
    HOST,
    LEGACY,
    LOST,
    PINNED,
    REPLAYS,
    STREAM,
    UNWRITTEN,
    Call,
    each,
)

_RUNTIME = "cupy.cuda.runtime"
_BINDINGS = "cuda.bindings.runtime cuda.cudart"
_DRIVER = "cuda.bindings.driver cuda.cuda"

RUNTIME: tuple[Call, ...] = (
    Call(
        f"{_RUNTIME}.memcpy",
        "dst src size kind",
        reads="src",
        writes="dst",
        on=LEGACY,
        waits=LEGACY,
        row="CS-27",
    ),
    Call(
        f"{_RUNTIME}.memcpyAsync",
        "dst src size kind stream",
        reads="src",
        writes="dst",
        on="stream",
        row="CS-17",
    ),
    Call(
        f"{_RUNTIME}.memcpyPeer",
        "dst dstDevice src srcDevice size",
        reads="src",
        writes="dst",
        on=LEGACY,
        row="TG-02",
    ),
    Call(
        f"{_RUNTIME}.memcpyPeerAsync",
        "dst dstDevice src srcDevice size stream",
        reads="src",
        writes="dst",
        on="stream",
        row="TG-02",
    ),
    Call(
        f"{_RUNTIME}.memcpy2D",
        "dst dpitch src spitch width height kind",
        reads="src",
        writes="dst",
        on=LEGACY,
        waits=LEGACY,
        row="CS-27",
    ),
    Call(
        f"{_RUNTIME}.memcpy2DAsync",
        "dst dpitch src spitch width height kind stream",
        reads="src",
        writes="dst",
        on="stream",
        row="CS-17",
    ),
    Call(f"{_RUNTIME}.memset", "ptr value size", writes="ptr", on=LEGACY, row="CS-27"),
    Call(f"{_RUNTIME}.memsetAsync", "ptr value size stream", writes="ptr", on="stream", row="CS-27"),
    Call(f"{_RUNTIME}.malloc", "size", allocates=DEVICE, result=UNWRITTEN, row="CS-20"),
    Call(
        f"{_RUNTIME}.mallocAsync", "size stream", allocates=DEVICE, on="stream", result=UNWRITTEN, row="CS-22"
    ),
    Call(f"{_RUNTIME}.free", "ptr", waits=DEVICE, row="TL-09"),
    Call(f"{_RUNTIME}.freeAsync", "ptr stream", on="stream", row="CS-22"),
    Call(f"{_RUNTIME}.hostAlloc", "size flags", allocates=PINNED, row="CS-19"),
    Call(f"{_RUNTIME}.freeHost", "ptr", row="CS-19"),
    *each(
        _RUNTIME, "streamCreate streamCreateWithFlags streamCreateWithPriority", result=STREAM, row="CS-01"
    ),
    Call(f"{_RUNTIME}.streamSynchronize", "stream", waits="stream", row="TS-19"),
    Call(
        f"{_RUNTIME}.streamQuery", "stream", edge="HOST <- stream", result=HOST, forbidden=LOST, row="TS-20"
    ),
    Call(f"{_RUNTIME}.streamWaitEvent", "stream event", edge="stream <- event", row="TS-09"),
    Call(f"{_RUNTIME}.launchHostFunc", "stream callback arg", on="stream", row="CS-23"),
    *each(_RUNTIME, "eventCreate eventCreateWithFlags", result=EVENT, row="TS-12"),
    Call(f"{_RUNTIME}.eventRecord", "event stream", edge="event <- stream", row="TS-09"),
    Call(f"{_RUNTIME}.eventSynchronize", "event", waits="event", row="TS-18"),
    Call(f"{_RUNTIME}.eventQuery", "event", edge="HOST <- event", result=HOST, forbidden=LOST, row="TS-16"),
    Call(f"{_RUNTIME}.deviceSynchronize", waits=DEVICE, row="TS-21"),
    Call(f"{_RUNTIME}.streamBeginCapture", "stream mode", captures=BEGINS, on="stream", row="GC-02"),
    Call(f"{_RUNTIME}.streamEndCapture", "stream", captures=ENDS, on="stream", result=GRAPH, row="GC-24"),
    Call(f"{_RUNTIME}.graphLaunch", "graphExec stream", captures=REPLAYS, on="stream", row="GC-13"),
)

BINDINGS: tuple[Call, ...] = (
    *each(
        _BINDINGS,
        "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority",
        result=STREAM,
        row="CS-01",
    ),
    *each(_DRIVER, "cuStreamCreate cuStreamCreateWithPriority", result=STREAM, row="CS-01"),
    *each(_BINDINGS, "cudaStreamSynchronize", parameters="stream", waits="stream", row="TS-19"),
    *each(_DRIVER, "cuStreamSynchronize", parameters="stream", waits="stream", row="TS-19"),
    *each(_BINDINGS, "cudaDeviceSynchronize", waits=DEVICE, row="TS-21"),
    *each(_DRIVER, "cuCtxSynchronize", waits=DEVICE, row="TS-21"),
    *each(_BINDINGS, "cudaEventCreate cudaEventCreateWithFlags", result=EVENT, row="TS-12"),
    *each(_DRIVER, "cuEventCreate", result=EVENT, row="TS-12"),
    *each(_BINDINGS, "cudaEventRecord", parameters="event stream", edge="event <- stream", row="TS-09"),
    *each(_DRIVER, "cuEventRecord", parameters="event stream", edge="event <- stream", row="TS-09"),
    *each(_BINDINGS, "cudaEventSynchronize", parameters="event", waits="event", row="TS-18"),
    *each(_DRIVER, "cuEventSynchronize", parameters="event", waits="event", row="TS-18"),
    *each(_BINDINGS, "cudaStreamWaitEvent", parameters="stream event", edge="stream <- event", row="TS-09"),
    *each(_DRIVER, "cuStreamWaitEvent", parameters="stream event", edge="stream <- event", row="TS-09"),
    *each(
        _BINDINGS,
        "cudaStreamBeginCaptureToGraph",
        parameters="stream graph",
        captures=BEGINS,
        on="stream",
        row="GC-02",
    ),
    *each(
        _DRIVER,
        "cuStreamBeginCaptureToGraph",
        parameters="stream graph",
        captures=BEGINS,
        on="stream",
        row="GC-02",
    ),
    *each(_BINDINGS, "cudaStreamEndCapture", parameters="stream", captures=ENDS, on="stream", row="GC-24"),
    *each(_DRIVER, "cuStreamEndCapture", parameters="stream", captures=ENDS, on="stream", row="GC-24"),
)
"""Each call gives a tuple of an error and what it makes."""

ROWS: tuple[Call, ...] = (*RUNTIME, *BINDINGS)
