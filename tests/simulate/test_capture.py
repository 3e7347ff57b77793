"""Stream capture: every CuPy-reachable row of the hardware table, and CUDA's errors by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
MODES = {"global": GLOBAL, "thread_local": THREAD_LOCAL, "relaxed": RELAXED}
LEGAL, LOST, RAISES = "legal", "lost", "raises"


class Scene:
    """A capturing stream, a side stream, arrays and events for the operations of the table."""

    def __init__(self, cupy: Any) -> None:
        import cupyx

        self.cupy = cupy
        self.runtime = cupy.cuda.runtime
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.side = cupy.cuda.Stream(non_blocking=True)
        self.x = cupy.zeros(64, "f4")
        self.other = cupy.zeros(64, "f4")
        self.pinned = cupyx.zeros_pinned(64, "f4")
        self.x + 1
        self.before = cupy.cuda.Event()
        self.before.record(self.side)
        self.event = cupy.cuda.Event()
        self.held: list[int] = []

    def add(self, array: Any) -> None:
        self.cupy.add(array, 1, out=array)

    def on(self, stream: Any, body: Callable[[], Any]) -> None:
        with stream:
            body()

    def raw_malloc(self) -> None:
        self.held.append(self.runtime.malloc(1024))

    def in_thread(self, body: Callable[[], Any]) -> None:
        caught: list[BaseException] = []

        def run() -> None:
            try:
                body()
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if caught:
            raise caught[0]

    def raw_query_event(self, event: Any) -> None:
        status = self.runtime.eventQuery(event.ptr)
        if status not in (0, 600):
            raise self.runtime.CUDARuntimeError(status)

    def raw_query_stream(self, stream: Any) -> None:
        status = self.runtime.streamQuery(stream.ptr)
        if status not in (0, 600):
            raise self.runtime.CUDARuntimeError(status)

    def record_then(self, body: Callable[[], Any]) -> None:
        self.event.record(self.stream)
        body()

    def wait_outside(self) -> None:
        self.on(self.side, lambda: self.add(self.other))
        self.event.record(self.side)
        self.stream.wait_event(self.event)

    def fork(self, join: bool) -> None:
        self.event.record(self.stream)
        self.side.wait_event(self.event)
        self.on(self.side, lambda: self.add(self.other))
        if join:
            self.event.record(self.side)
            self.stream.wait_event(self.event)

    def memcpy_async(self, pinned: bool) -> None:
        import numpy

        source = self.pinned if pinned else numpy.zeros(64, "f4")
        self.runtime.memcpyAsync(self.x.data.ptr, source.ctypes.data, 256, 1, self.stream.ptr)


# name of the row's operation -> body
OPERATIONS: dict[str, Callable[[Scene], Any]] = {
    "none": lambda s: None,
    "stream_sync": lambda s: s.stream.synchronize(),
    "stream_query": lambda s: s.raw_query_stream(s.stream),
    "side_stream_sync": lambda s: s.side.synchronize(),
    "side_stream_query": lambda s: s.raw_query_stream(s.side),
    "dev_sync": lambda s: s.cupy.cuda.Device().synchronize(),
    "ev_query_pre": lambda s: s.raw_query_event(s.before),
    "ev_sync_pre": lambda s: s.before.synchronize(),
    "ev_query_cap": lambda s: s.record_then(lambda: s.raw_query_event(s.event)),
    "ev_sync_cap": lambda s: s.record_then(s.event.synchronize),
    "raw_malloc": Scene.raw_malloc,
    "wait_outside": Scene.wait_outside,
    "wait_precapture": lambda s: s.stream.wait_event(s.before),
    "fork_only": lambda s: s.fork(join=False),
    "fork_join": lambda s: s.fork(join=True),
    "side_launch": lambda s: s.on(s.side, lambda: s.add(s.other)),
    "default_launch": lambda s: s.on(s.cupy.cuda.Stream.null, lambda: s.add(s.other)),
    "default_waits_cap": lambda s: s.record_then(lambda: s.cupy.cuda.Stream.null.wait_event(s.event)),
    "thr_ev_query": lambda s: s.in_thread(lambda: s.raw_query_event(s.before)),
    "thr_raw_malloc": lambda s: s.in_thread(s.raw_malloc),
    "thr_item": lambda s: s.in_thread(lambda: s.other[0].item()),
    "thr_dev_sync": lambda s: s.in_thread(s.cupy.cuda.Device().synchronize),
    "thr_launch": lambda s: s.in_thread(lambda: s.add(s.other)),
    "event_new_record": lambda s: s.cupy.cuda.Event().record(),
    "timing_event": lambda s: s.cupy.cuda.Event(disable_timing=False).record(),
    "pinned_h2d_nb": lambda s: s.memcpy_async(pinned=True),
    "pageable_h2d_nb": lambda s: s.memcpy_async(pinned=False),
    "rng_none": lambda s: s.add(s.x),
}

# Semantics rows GM-<operation>-<mode>, as the hardware answered: legal or capture lost.
L, I = LEGAL, LOST  # noqa: E741
TABLE: dict[str, tuple[str, str, str]] = {
    # global, thread_local, relaxed
    "none": (L, L, L),
    "stream_sync": (I, I, I),
    "stream_query": (I, I, I),
    "side_stream_sync": (I, I, L),
    "side_stream_query": (I, I, L),
    "dev_sync": (I, I, I),
    "ev_query_pre": (I, I, L),
    "ev_sync_pre": (I, I, L),
    "ev_query_cap": (I, I, I),
    "ev_sync_cap": (I, I, I),
    "raw_malloc": (I, I, L),
    "wait_outside": (I, I, I),
    "wait_precapture": (I, I, I),
    "fork_only": (I, I, I),
    "fork_join": (L, L, L),
    "side_launch": (L, L, L),
    "default_launch": (L, L, L),
    "default_waits_cap": (I, I, I),
    "thr_ev_query": (I, L, L),
    "thr_raw_malloc": (I, L, L),
    "thr_item": (I, L, L),
    "thr_dev_sync": (I, I, I),
    "thr_launch": (L, L, L),
    "event_new_record": (L, L, L),
    "timing_event": (L, L, L),
    "pinned_h2d_nb": (L, L, L),
    "pageable_h2d_nb": (I, I, I),
    "rng_none": (L, L, L),
}


def capture(scene: Scene, body: Callable[[], Any], mode: int | None) -> tuple[str, BaseException | None, Any]:
    """Capture ``body`` and return the verdict, its own error and the end's result or error."""
    own: BaseException | None = None
    with scene.stream:
        scene.stream.begin_capture(mode)
        scene.add(scene.x)
        try:
            body()
        except Exception as error:
            own = error
        try:
            end: Any = scene.stream.end_capture()
        except scene.runtime.CUDARuntimeError as error:
            end = error
    if isinstance(end, Exception):
        return LOST, own, end
    return (LEGAL if own is None else RAISES), own, end


@pytest.mark.parametrize(
    ("operation", "mode"),
    [(operation, mode) for operation in TABLE for mode in MODES],
    ids=lambda value: str(value),
)
def test_legality(cupy: Any, operation: str, mode: str) -> None:
    scene = Scene(cupy)
    warm = OPERATIONS[operation]
    verdict, own, end = capture(scene, lambda: warm(scene), MODES[mode])
    assert verdict == TABLE[operation][MODES[mode]], (own, end)
    # Whatever happened, both streams are usable afterwards.
    for stream in (scene.stream, scene.side):
        assert not stream.is_capturing()
        with stream:
            scene.add(scene.x)
        stream.synchronize()


# (body, error of the call, error of the end)
ERRORS: dict[str, tuple[Callable[[Scene], Any], str, str]] = {
    "sync": (
        OPERATIONS["stream_sync"],
        "cudaErrorStreamCaptureUnsupported",
        "cudaErrorStreamCaptureInvalidated",
    ),
    "device": (
        OPERATIONS["dev_sync"],
        "cudaErrorStreamCaptureUnsupported",
        "cudaErrorStreamCaptureInvalidated",
    ),
    "isolation": (
        OPERATIONS["wait_outside"],
        "cudaErrorStreamCaptureIsolation",
        "cudaErrorStreamCaptureInvalidated",
    ),
    "captured event": (
        OPERATIONS["ev_sync_cap"],
        "cudaErrorCapturedEvent",
        "cudaErrorStreamCaptureInvalidated",
    ),
    "implicit": (
        OPERATIONS["default_waits_cap"],
        "cudaErrorStreamCaptureImplicit",
        "cudaErrorStreamCaptureInvalidated",
    ),
    "unjoined": (OPERATIONS["fork_only"], "", "cudaErrorStreamCaptureUnjoined"),
    "begin twice": (lambda s: s.stream.begin_capture(), "cudaErrorIllegalState", ""),
    "done is silent": (lambda s: s.stream.done, "", "cudaErrorStreamCaptureInvalidated"),
    "event done is silent": (
        lambda s: s.record_then(lambda: s.event.done),
        "",
        "cudaErrorStreamCaptureInvalidated",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_by_name(cupy: Any, name: str) -> None:
    body, call_error, end_error = ERRORS[name]
    scene = Scene(cupy)
    _, own, end = capture(scene, lambda: body(scene), None)
    assert (str(own).split(":")[0] if own else "") == call_error
    assert (str(end).split(":")[0] if isinstance(end, Exception) else "") == end_error


# Rows GP-04 to GP-12: what CuPy itself refuses before CUDA sees it, and what it lets through.
CUPY_ROWS: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "GP-04": (lambda s: s.x.get(), RAISES),
    "GP-05": (lambda s: s.x.get(out=s.pinned, blocking=False), RAISES),
    "GP-06": (lambda s: s.x.set(s.pinned), RAISES),
    "GP-07": (lambda s: s.cupy.asarray([1.0, 2.0]), RAISES),
    "GP-08": (lambda s: s.stream.synchronize(), LOST),
    "GP-09": (lambda s: float(s.x[0]), RAISES),
    "GP-10": (lambda s: s.cupy.empty((1 << 24,), "f4"), LEGAL),
    "GP-11": (lambda s: s.stream.done, LOST),
    "GP-12": (lambda s: s.stream.launch_host_func(lambda _: None, None), LEGAL),
}


@pytest.mark.parametrize("row", CUPY_ROWS)
def test_cupy_rows(cupy: Any, row: str) -> None:
    body, expected = CUPY_ROWS[row]
    scene = Scene(cupy)
    verdict, own, end = capture(scene, lambda: body(scene), None)
    assert verdict == expected, (own, end)


def test_gp01_the_legacy_stream_cannot_capture(cupy: Any) -> None:
    with pytest.raises(RuntimeError, match="legacy"):
        cupy.cuda.Stream.null.begin_capture()


@pytest.mark.parametrize(("non_blocking", "expected"), [(False, LOST), (True, LEGAL)], ids=["GP-02", "GP-03"])
def test_legacy_launch_beside_a_capture(cupy: Any, non_blocking: bool, expected: str) -> None:
    scene = Scene(cupy)
    scene.stream = cupy.cuda.Stream(non_blocking=non_blocking)
    verdict, own, end = capture(scene, lambda: OPERATIONS["default_launch"](scene), None)
    assert verdict == expected
    if expected == LOST:
        assert str(own).startswith("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT")
        assert str(end).startswith("cudaErrorStreamCaptureInvalidated")


def test_end_on_another_stream_and_merge(cupy: Any) -> None:
    scene = Scene(cupy)
    runtime = cupy.cuda.runtime
    scene.stream.begin_capture()
    scene.event.record(scene.stream)
    scene.side.wait_event(scene.event)
    assert scene.side.is_capturing()
    with pytest.raises(runtime.CUDARuntimeError, match="Unmatched"):
        runtime.streamEndCapture(scene.side.ptr)
    with pytest.raises(runtime.CUDARuntimeError, match="Invalidated"):
        scene.stream.end_capture()

    scene.stream.begin_capture()
    scene.side.begin_capture()
    scene.event.record(scene.side)
    with pytest.raises(runtime.CUDARuntimeError, match="Merge"):
        scene.stream.wait_event(scene.event)
    for stream in (scene.stream, scene.side):
        with pytest.raises(RuntimeError, match="invalidated the capture"):
            stream.is_capturing()
        with pytest.raises(runtime.CUDARuntimeError, match="Invalidated"):
            stream.end_capture()


def test_only_the_capturing_thread_ends_a_global_capture(cupy: Any) -> None:
    scene = Scene(cupy)
    scene.stream.begin_capture(GLOBAL)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="WrongThread"):
        scene.in_thread(lambda: cupy.cuda.runtime.streamEndCapture(scene.stream.ptr))
    scene.stream.end_capture()


def test_legacy_status_query_breaks_nothing(cupy: Any) -> None:
    stream = cupy.cuda.Stream()
    stream.begin_capture()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Implicit"):
        cupy.cuda.Stream.null.is_capturing()
    stream.end_capture()


def test_a_capture_does_not_run_and_a_launch_does(cupy: Any) -> None:
    import numpy

    scene = Scene(cupy)
    calls: list[str] = []
    source = cupy.asarray(numpy.arange(64, dtype="f4"))

    def body() -> None:
        scene.x.data.copy_from_device_async(source.data, source.nbytes, scene.stream)
        scene.stream.launch_host_func(calls.append, "ran")

    _, _, graph = capture(scene, body, None)
    assert calls == []
    for launches in (1, 2):
        scene.x[...] = 0
        graph.launch(scene.stream)
        scene.stream.synchronize()
        assert calls == ["ran"] * launches
        assert scene.x.get().tolist() == source.get().tolist()


def test_an_event_of_a_capture_is_no_event_afterwards(cupy: Any) -> None:
    scene = Scene(cupy)
    capture(scene, lambda: scene.event.record(scene.stream), None)
    assert cupy.cuda.runtime.eventQuery(scene.event.ptr) == 1  # row GC-20: cudaErrorInvalidValue


def test_gp13_captured_temporaries_return_to_the_pool(cupy: Any) -> None:
    scene = Scene(cupy)
    addresses: list[int] = []

    def body() -> None:
        temporary = cupy.empty(5000, "f4")
        addresses.append(temporary.data.ptr)

    capture(scene, body, None)
    with scene.stream:
        assert cupy.empty(5000, "f4").data.ptr == addresses[0]
