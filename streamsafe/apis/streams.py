"""Streams, events, devices and graphs of PyTorch and CuPy (rows TS, TG, CS and GC of ``docs/semantics.md``)."""

from __future__ import annotations

from streamsafe.apis.effects import (
    BEGINS,
    CURRENT,
    DEVICE,
    ENDS,
    ERROR,
    EVENT,
    GRAPH,
    HOST,
    LEGACY,
    LOST,
    ONCE,
    REPLAYS,
    STREAM,
    Call,
    each,
)

_TORCH_STREAM = "torch.cuda.Stream torch.cuda.ExternalStream"
_CUPY_STREAM = "cupy.cuda.Stream cupy.cuda.ExternalStream"
_STREAMS = f"{_TORCH_STREAM} {_CUPY_STREAM}"
_EVENTS = "torch.cuda.Event cupy.cuda.Event"

STREAMS: tuple[Call, ...] = (
    Call("torch.cuda.Stream", result=STREAM, row="TS-01"),
    Call("torch.cuda.ExternalStream", result=STREAM, row="TS-27"),
    Call("cupy.cuda.Stream", result=STREAM, row="CS-01"),
    Call("cupy.cuda.ExternalStream", result=STREAM, row="CI-11"),
    Call("cupy.cuda.Stream.from_external", result=STREAM, row="CI-11"),
    Call("torch.cuda.default_stream", result=LEGACY, row="TS-03"),
    *each("torch.cuda", "current_stream", result=CURRENT, row="TS-22"),
    *each("cupy.cuda", "get_current_stream", result=CURRENT, row="CS-12"),
    *each("torch.cuda", "stream", on="stream", row="TS-04"),
    *each("torch.cuda", "set_stream", on="stream", row="TS-24"),
    *each("cupy.cuda.Stream", "use __enter__", on="self", row="CS-12"),
    *each(_TORCH_STREAM, "wait_stream", edge="self <- stream", row="TS-06"),
    *each(_TORCH_STREAM, "wait_event", edge="self <- event", row="TS-09"),
    *each(_CUPY_STREAM, "wait_event", edge="self <- event", row="CS-11"),
    *each(_TORCH_STREAM, "record_event", edge="event <- self", result=EVENT, row="TS-09"),
    *each(_CUPY_STREAM, "record", edge="event <- self", result=EVENT, row="CS-10"),
    *each(_STREAMS, "synchronize", waits="self", row="TS-19"),
    *each(_TORCH_STREAM, "query", edge="HOST <- self", result=HOST, forbidden=LOST, row="TS-20"),
    *each(_CUPY_STREAM, "done", edge="HOST <- self", result=HOST, forbidden=LOST, row="CS-24"),
    *each(_CUPY_STREAM, "launch_host_func add_callback", on="self", row="CS-23"),
    *each(_CUPY_STREAM, "begin_capture", captures=BEGINS, on="self", row="GC-02"),
    *each(_CUPY_STREAM, "end_capture", captures=ENDS, on="self", result=GRAPH, row="GC-24"),
)

EVENTS: tuple[Call, ...] = (
    *each("torch.cuda cupy.cuda", "Event", result=EVENT, row="TS-12"),
    Call("torch.cuda.Event.record", edge="self <- stream or CURRENT", row="TS-11"),
    Call("cupy.cuda.Event.record", edge="self <- stream or CURRENT", row="CS-10"),
    Call("torch.cuda.Event.wait", edge="stream or CURRENT <- self", row="TS-09"),
    *each(_EVENTS, "synchronize", waits="self", row="TS-18"),
    *each("torch.cuda.Event", "query", edge="HOST <- self", result=HOST, forbidden=LOST, row="TS-16"),
    *each("cupy.cuda.Event", "done", edge="HOST <- self", result=HOST, forbidden=LOST, row="CS-24"),
    *each("torch.cuda.Event", "elapsed_time", result=HOST, forbidden=ERROR, row="GC-20"),
    *each("cupy.cuda", "get_elapsed_time", result=HOST, forbidden=ERROR, row="GC-20"),
)

DEVICES: tuple[Call, ...] = (
    Call("torch.cuda.synchronize", waits=DEVICE, row="TS-21"),
    Call("cupy.cuda.Device.synchronize", waits=DEVICE, row="CS-25"),
    Call("torch.cuda.empty_cache", row="TL-09"),
    *each("torch.cuda", "device set_device", row="TG-02"),
    *each("cupy.cuda", "Device", row="CS-12"),
)

GRAPHS: tuple[Call, ...] = (
    Call("torch.cuda.CUDAGraph", result=GRAPH, row="GC-02"),
    Call("torch.cuda.graph", captures=BEGINS, waits=DEVICE, on="stream", row="GC-18"),
    Call("torch.cuda.CUDAGraph.capture_begin", captures=BEGINS, row="GC-18"),
    Call("torch.cuda.CUDAGraph.capture_end", captures=ENDS, row="GC-24"),
    Call("torch.cuda.CUDAGraph.replay", captures=REPLAYS, row="GC-08"),
    Call("cupy.cuda.Graph.launch", captures=REPLAYS, on="stream or CURRENT", row="GC-13"),
    Call("torch.cuda.CUDAGraph.reset", row="GC-23"),
    Call("torch.cuda.make_graphed_callables", captures=REPLAYS, result=GRAPH, row="GC-25"),
    *each(
        "torch.cuda torch.Generator",
        "manual_seed seed set_rng_state get_rng_state",
        forbidden=ONCE,
        row="GC-03",
    ),
)

ROWS: tuple[Call, ...] = (*STREAMS, *EVENTS, *DEVICES, *GRAPHS)
