"""Functions that make streams, events and graphs, and those that set or wait for streams."""

from __future__ import annotations

from ..program import Timeline
from ..values import NONE, Bound, Clock, Const, Ctx, Event, Graph, Stream, Sym, V
from .calls import FUNCTIONS, Call, models
from .modules import Modules

CAPTURE_ARGUMENTS = ("cuda_graph", "pool", "stream", "capture_error_mode")


# ---------------------------------------------------------------------- streams
def new_stream(lib: Modules, c: Call, kind: str, blocking: bool) -> Stream:
    t = Timeline(f"<stream {getattr(c.node, 'lineno', 0)}>", "new", lib.m.site(c.node), kind, blocking)
    t.born = lib.tick()
    lib.order.made += 1
    device = c.given("device", 0 if kind == "torch" else None)
    if isinstance(device, (Const, Sym)) and not (
        isinstance(device, Const) and device.value in (None, "cuda")
    ):
        t.device = lib.device_key(device)
    return Stream(t)


@models(FUNCTIONS, "torch.cuda.Stream")
def torch_stream(lib: Modules, c: Call) -> V:
    """TS-01: one that does not wait for the default stream."""
    return new_stream(lib, c, "torch", False)


@models(FUNCTIONS, "cupy.cuda.Stream numba.cuda.stream")
def cupy_stream(lib: Modules, c: Call) -> V:
    """CS-01: one that waits for the default stream, and it for this, unless asked otherwise."""
    asked = c.kwargs.get("non_blocking")
    return new_stream(lib, c, "cupy", not (isinstance(asked, Const) and asked.value))


@models(FUNCTIONS, "torch.cuda.current_stream")
def current_torch_stream(lib: Modules, c: Call) -> V:
    return Stream(lib.cur("torch"))


@models(FUNCTIONS, "cupy.cuda.get_current_stream")
def current_cupy_stream(lib: Modules, c: Call) -> V:
    return Stream(lib.cur("cupy"), "cupy")


@models(FUNCTIONS, "torch.cuda.default_stream")
def default_stream(lib: Modules, c: Call) -> V:
    s = Stream(lib.m.ambient["torch"])
    if not lib.m.quiet:
        lib.defaults.append(s)  # that it is the current one is supposed
    return s


@models(FUNCTIONS, "torch.cuda.stream")
def stream_context(lib: Modules, c: Call) -> V:
    v = c.args[0] if c.args else c.kwargs.get("stream")
    if isinstance(v, Sym):
        if lib.m.conds.setdefault(("truth", lib.m.key(v)), True) is False:
            return Ctx("plain")  # it is None
        return Ctx("stream", ("torch", lib.stream(v)))
    return Ctx("stream", ("torch", v.timeline)) if isinstance(v, Stream) else Ctx("plain")


@models(FUNCTIONS, "torch.cuda.set_stream")
def set_stream(lib: Modules, c: Call) -> V:
    t = lib.stream(c.args[0]) if c.args else None
    if t is not None:
        lib.m.current["torch"][-1] = t
    return NONE


@models(FUNCTIONS, "torch.cuda.synchronize cupy.cuda.runtime.deviceSynchronize numba.cuda.synchronize")
def synchronize(lib: Modules, c: Call) -> V:
    """TS-12: the host waits for all streams of the device."""
    lib.sync_host(None, c.node, "synchronize()")
    return NONE


@models(FUNCTIONS, "torch.cuda.ExternalStream cupy.cuda.ExternalStream")
def external_stream(lib: Modules, c: Call) -> V:
    """The handle of a stream is the stream: who is given the handle is given the stream."""
    v: V | None = c.first or NONE
    library = c.name.partition(".")[0]
    if isinstance(v, Stream):
        return Stream(v.timeline, library)
    if isinstance(v, Bound) and isinstance(v.receiver, Stream):
        return Stream(v.receiver.timeline, library)
    t = lib.timelines.get(v.vn) if isinstance(v, Sym) else None
    if t is None:
        t = Timeline("an external stream", "sym", lib.m.site(c.node))
        t.external = True
    while isinstance(v, Sym):
        lib.timelines[v.vn] = t
        v = lib.numbers.get(v.vn)
    return Stream(t, library)


# ---------------------------------------------------------------------- events and clocks
def new_event(lib: Modules, c: Call, kind: str, timing: bool | None) -> Event:
    e = Event("", timing, lib.m.site(c.node), kind)
    lib.m.timing |= bool(timing)
    e.born = lib.tick()
    unpacked = any(k.arg is None for k in getattr(c.node, "keywords", ()))
    e.external = lib.option(c.kwargs.get("external")) is not False or unpacked
    return e


@models(FUNCTIONS, "torch.cuda.Event")
def torch_event(lib: Modules, c: Call) -> V:
    return new_event(lib, c, "torch", lib.option(c.given("enable_timing", 0)))


@models(FUNCTIONS, "cupy.cuda.Event")
def cupy_event(lib: Modules, c: Call) -> V:
    d = c.given("disable_timing", 1)
    return new_event(lib, c, "cupy", None if isinstance(d, Sym) else not (isinstance(d, Const) and d.value))


@models(FUNCTIONS, "cupy.cuda.get_elapsed_time")
def elapsed_time(lib: Modules, c: Call) -> V:
    if len(c.args) > 1:
        lib.elapsed(c.args[0], c.args[1], c.node)
    return lib.m.fresh("<ms>", "host")


@models(
    FUNCTIONS,
    """time.time time.perf_counter time.perf_counter_ns time.monotonic time.monotonic_ns time.time_ns
    timeit.default_timer""",
)
def clock(lib: Modules, c: Call) -> V:
    reading = Clock(lib.tick(), lib.m.site(c.node))
    lib.clock_known[reading.seq] = lib.order.known(lib.order.host)
    lib.m.timing = True
    return reading


# ---------------------------------------------------------------------- graphs
@models(FUNCTIONS, "torch.cuda.CUDAGraph")
def new_graph(lib: Modules, c: Call) -> V:
    return Graph("")


@models(FUNCTIONS, "torch.cuda.graph")
def capture(lib: Modules, c: Call) -> V:
    given = {**dict(zip(CAPTURE_ARGUMENTS, c.args, strict=False)), **c.kwargs}
    return Ctx("capture", (given.pop("cuda_graph", None), given.pop("stream", None), given))


@models(FUNCTIONS, "torch.cuda.is_current_stream_capturing")
def is_capturing(lib: Modules, c: Call) -> V:
    return Const(lib.m.capture is not None)


# ---------------------------------------------------------------------- devices
@models(FUNCTIONS, "torch.device")
def device(lib: Modules, c: Call) -> V:
    a = c.first
    if isinstance(a, Sym) and "device" not in a.text:
        return lib.m.sym(lib.m.vn(("device", lib.m.key(a))), "device " + a.text, "device")
    if isinstance(a, Sym):
        lib.device_values.add(a.vn)
    return a if a is not None else Const("cuda")
