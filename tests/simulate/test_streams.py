"""Streams, events, host functions: order, handles, flags and errors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

TIMEOUT_S = 20.0


class Gate:
    """A host function that waits until the test opens it, so that work behind it stays unfinished."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.seen: list[Any] = []

    def __call__(self, argument: Any) -> None:
        assert self.opened.wait(TIMEOUT_S)
        self.seen.append(argument)


@pytest.fixture
def gate() -> Any:
    made = Gate()
    yield made
    made.opened.set()


@pytest.mark.parametrize("non_blocking", [False, True])
def test_flags_and_priority(cupy: Any, non_blocking: bool) -> None:
    runtime = cupy.cuda.runtime
    stream = cupy.cuda.Stream(non_blocking=non_blocking)
    assert runtime.streamGetFlags(stream.ptr) == int(non_blocking)
    assert runtime.streamGetPriority(stream.ptr) == 0
    for asked, given in ((-1, -1), (-99, -5), (7, 0)):
        handle = runtime.streamCreateWithPriority(1, asked)
        assert runtime.streamGetPriority(handle) == given
        runtime.streamDestroy(handle)


def test_a_destroyed_handle_is_reused_and_a_stale_one_refused(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    handles = [runtime.streamCreate() for _ in range(3)]
    assert len(set(handles)) == 3
    runtime.streamDestroy(handles[0])
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
        runtime.streamSynchronize(handles[0])
    again = runtime.streamCreateWithFlags(runtime.streamNonBlocking)
    assert again <= handles[0]
    for handle in (again, *handles[1:]):
        runtime.streamDestroy(handle)
    for handle in (0, 1, 2):
        with pytest.raises(runtime.CUDARuntimeError):
            runtime.streamDestroy(handle)


def test_host_functions_run_in_order_and_before_what_follows(cupy: Any, gate: Gate) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    order: list[str] = []
    stream.launch_host_func(gate, "first")
    stream.launch_host_func(order.append, "second")
    stream.add_callback(lambda _stream, status, argument: order.append(f"{argument}:{status}"), "third")
    event = stream.record()
    assert not stream.done
    assert not event.done
    assert order == []
    gate.opened.set()
    stream.synchronize()
    assert gate.seen == ["first"]
    assert order == ["second", "third:0"]
    assert stream.done
    assert event.done


def waits_on_event(cupy: Any, first: Any, second: Any) -> None:
    second.wait_event(first.record())


def nothing(cupy: Any, first: Any, second: Any) -> None:
    pass


def host_waits(cupy: Any, first: Any, second: Any) -> None:
    first.synchronize()


# (flags of the stream that is busy, flags of the stream that copies, edge, does the copy wait)
ORDER: dict[str, tuple[str, str, Callable[[Any, Any, Any], None], bool]] = {
    "same stream": ("a", "a", nothing, True),
    "CS-06 two non-blocking": ("nb", "nb2", nothing, False),
    "CS-06 two blocking": ("b", "b2", nothing, False),
    "CS-06 blocking and non-blocking": ("b", "nb", nothing, False),
    "CS-02 blocking then null": ("b", "null", nothing, True),
    "CS-03 null then blocking": ("null", "b", nothing, True),
    "CS-04 null then non-blocking": ("null", "nb", nothing, False),
    "CS-05 non-blocking then null": ("nb", "null", nothing, False),
    "CS-08 per-thread then null": ("ptds", "null", nothing, True),
    "CS-08 per-thread then blocking": ("ptds", "b", nothing, False),
    "CS-11 event": ("nb", "nb2", waits_on_event, True),
    "CS-11 event across kinds": ("b", "nb", waits_on_event, True),
}


@pytest.mark.parametrize("name", ORDER)
def test_order(cupy: Any, gate: Gate, name: str) -> None:
    first_kind, second_kind, edge, waits = ORDER[name]
    kinds = {
        "nb": cupy.cuda.Stream(non_blocking=True),
        "nb2": cupy.cuda.Stream(non_blocking=True),
        "b": cupy.cuda.Stream(),
        "b2": cupy.cuda.Stream(),
        "null": cupy.cuda.Stream.null,
        "ptds": cupy.cuda.Stream.ptds,
    }
    kinds["a"] = kinds["nb"]
    first, second = kinds[first_kind], kinds[second_kind]
    source, target = cupy.asarray(numpy.arange(8.0)), cupy.zeros(8)
    first.launch_host_func(gate, None)
    edge(cupy, first, second)
    target.data.copy_from_device_async(source.data, source.nbytes, second)
    assert cupy.cuda.runtime.streamQuery(second.ptr) == (600 if waits else 0)
    gate.opened.set()
    first.synchronize()
    second.synchronize()
    assert target.get(stream=second).tolist() == list(range(8))


def test_an_event_is_a_snapshot(cupy: Any, gate: Gate) -> None:
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    early = first.record()
    first.launch_host_func(gate, None)
    second.wait_event(early)
    assert second.done
    early.record(first)  # overwritten after the wait: the wait keeps what it saw (TS-14)
    assert second.done
    assert not early.done


def test_unrecorded_events_order_nothing(cupy: Any) -> None:
    event, stream = cupy.cuda.Event(), cupy.cuda.Stream(non_blocking=True)
    assert event.done
    event.synchronize()
    stream.wait_event(event)
    assert stream.done


@pytest.mark.parametrize(
    ("disable_timing", "records", "error"),
    [
        (False, 2, None),
        (True, 2, "cudaErrorInvalidResourceHandle"),
        (False, 1, "cudaErrorInvalidResourceHandle"),
    ],
)
def test_elapsed_time(cupy: Any, disable_timing: bool, records: int, error: str | None) -> None:
    start, end = (cupy.cuda.Event(disable_timing=disable_timing) for _ in range(2))
    for event in (start, end)[:records]:
        event.record()
    if error is None:
        assert cupy.cuda.get_elapsed_time(start, end) >= 0
    else:
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=error):
            cupy.cuda.get_elapsed_time(start, end)


def test_elapsed_time_before_completion(cupy: Any, gate: Gate) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    start = stream.record(cupy.cuda.Event())
    stream.launch_host_func(gate, None)
    end = stream.record(cupy.cuda.Event())
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorNotReady"):
        cupy.cuda.get_elapsed_time(start, end)


@pytest.mark.parametrize("call", ["streamSynchronize", "malloc", "deviceSynchronize", "launch"])
def test_cuda_calls_in_a_host_function_are_refused(cupy: Any, call: str) -> None:
    """Row CS-23."""
    runtime = cupy.cuda.runtime
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(4)
    array + array
    bodies: dict[str, Callable[[], Any]] = {
        "streamSynchronize": stream.synchronize,
        "malloc": lambda: runtime.malloc(512),
        "deviceSynchronize": runtime.deviceSynchronize,
        "launch": lambda: cupy.add(array, array, out=array),
    }
    caught: list[str] = []

    def body(_: Any) -> None:
        try:
            bodies[call]()
        except RuntimeError as error:
            caught.append(str(error))

    stream.launch_host_func(body, None)
    stream.synchronize()
    assert len(caught) == 1
    assert "not permitted" in caught[0]


def test_an_exception_in_a_host_function_is_reported_and_dropped(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))
    stream.launch_host_func(lambda _: [].pop(), None)
    stream.synchronize()
    assert reported == [IndexError]
    assert stream.done


def test_a_pageable_source_is_staged_and_a_pinned_one_is_not(cupy: Any, gate: Gate) -> None:
    """Rows TM-03 and CS-17b: what the host writes after the call."""
    import cupyx

    stream = cupy.cuda.Stream(non_blocking=True)
    pageable, pinned = numpy.ones(16), cupyx.empty_pinned(16)
    pinned[...] = 1
    targets = cupy.zeros(16), cupy.zeros(16)
    stream.launch_host_func(gate, None)
    for target, source in zip(targets, (pageable, pinned), strict=True):
        target.set(source, stream=stream)
        source[...] = 2
    gate.opened.set()
    stream.synchronize()
    assert targets[0].get(stream=stream).tolist() == [1.0] * 16
    assert targets[1].get(stream=stream).tolist() == [2.0] * 16


def test_d2h_waits_for_a_pageable_destination_only(cupy: Any, gate: Gate) -> None:
    """Rows CS-14 and CS-14b."""
    import cupyx

    stream = cupy.cuda.Stream(non_blocking=True)
    array, pinned = cupy.asarray(numpy.ones(16)), cupyx.zeros_pinned(16)
    stream.launch_host_func(gate, None)
    array.get(stream=stream, out=pinned, blocking=False)
    assert pinned.tolist() == [0.0] * 16
    threading.Timer(0.02, gate.opened.set).start()
    pageable = array.get(stream=stream, blocking=False)
    assert pageable.tolist() == [1.0] * 16
    stream.synchronize()
    assert pinned.tolist() == [1.0] * 16


def test_devices_have_their_own_streams_and_barriers(cupy: Any, gate: Gate) -> None:
    runtime = cupy.cuda.runtime
    with cupy.cuda.Device(1):
        other = cupy.cuda.Stream()
        other.launch_host_func(gate, None)
        busy = other.record()
        assert not cupy.cuda.Stream.null.done
    assert cupy.cuda.Stream.null.done
    cupy.cuda.Device(0).synchronize()
    mine = cupy.cuda.Stream(non_blocking=True)
    mine.wait_event(busy)  # legal across devices (TG-07)
    assert not mine.done
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidResourceHandle"):
        runtime.eventRecord(busy.ptr, mine.ptr)
    gate.opened.set()
    cupy.cuda.Device(1).synchronize()
    assert other.done
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidDevice"):
        runtime.setDevice(7)


def test_many_threads(cupy: Any, simulation: Any) -> None:
    """Threads have their own device, current stream and per-thread default stream; nothing is lost between them."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            cupy.cuda.Device(number % 2).use()
            with cupy.cuda.Stream(non_blocking=True) as stream:
                for step in range(40):
                    array = cupy.asarray(numpy.full(32, step, "f4"))
                    event = stream.record()
                    stream.launch_host_func(lambda _: None, None)
                    cupy.cuda.Stream.ptds.wait_event(event)
                    assert array.get().tolist() == [step] * 32
                    assert cupy.cuda.runtime.getDevice() == number % 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert failures == []


def test_events_reuse_handles_and_refuse_stale_ones(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    event = runtime.eventCreateWithFlags(2)
    runtime.eventDestroy(event)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidResourceHandle"):
        runtime.eventSynchronize(event)
    assert runtime.eventQuery(event) == 400
    assert runtime.eventCreate() <= event
