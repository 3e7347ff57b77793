"""Every way to enqueue work is seen; nothing is left behind."""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.monitor import current
from tests.runtime.helpers import Program, codes
from tests.runtime.test_bad_input import SIMULATED, python

np = pytest.importorskip("numpy")

RAW = 'extern "C" __global__ void k(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }'
HANDED_ON = """
__device__ float at(float* p) { return p[0]; }
extern "C" __global__ void k(float* a, float* b) { b[0] = at(a); }
"""


def twice_and_one(a: Any) -> Any:
    return a * 2 + 1


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "operator": lambda cp, x: x + 1,
    "ufunc": lambda cp, x: cp.sqrt(x),
    "numpy ufunc": lambda cp, x: np.add(x, 1),
    "elementwise": lambda cp, x: cp.ElementwiseKernel("T a", "T b", "b = a", "mine")(x),
    "reduction": lambda cp, x: cp.ReductionKernel("T a", "T b", "a", "a + b", "b = a", "0", "my_sum")(x),
    "raw kernel": lambda cp, x: cp.RawKernel(RAW, "k")((1,), (1,), (x, cp.empty_like(x))),
    "raw module": lambda cp, x: cp.RawModule(code=RAW).get_function("k")((1,), (1,), (x, cp.empty_like(x))),
    "fuse": lambda cp, x: cp.fuse()(twice_and_one)(x),
    "sum": lambda cp, x: x.sum(),
    "sum of an axis": lambda cp, x: x.reshape(64, 64).sum(axis=0),
    "max": lambda cp, x: x.max(),
    "mean": lambda cp, x: x.mean(),
    "argmax": lambda cp, x: x.argmax(),
    "cumsum": lambda cp, x: cp.cumsum(x),
    "copy": lambda cp, x: x.copy(),
    "contiguous slice": lambda cp, x: x[8:16].copy(),
    "strided slice": lambda cp, x: x[::2].copy(),
    "transposed": lambda cp, x: x.reshape(64, 64).T.copy(),
    "astype": lambda cp, x: x.astype("f8"),
    "concatenate": lambda cp, x: cp.concatenate([x, x]),
    "where": lambda cp, x: cp.where(x > 0, x, 0),
    "fancy index": lambda cp, x: x[cp.zeros(3, "i8")],
    "take": lambda cp, x: x.take(cp.zeros(3, "i8")),
    "get": lambda cp, x: x.get(),
    "asnumpy": lambda cp, x: cp.asnumpy(x),
    "matmul": lambda cp, x: x.reshape(64, 64) @ cp.zeros((64, 64), "f4"),
    "fft": lambda cp, x: cp.fft.rfft(x),
    "sort": lambda cp, x: cp.sort(x),
    "solve": lambda cp, x: cp.linalg.cholesky(x.reshape(64, 64)),
    "memcpyAsync": lambda cp, x: cp.cuda.runtime.memcpyAsync(cp.empty_like(x).data.ptr, x.data.ptr, 64, 3, 0),
    "memcpy": lambda cp, x: cp.cuda.runtime.memcpy(cp.empty_like(x).data.ptr, x.data.ptr, 64, 3),
    "pointer copy": lambda cp, x: cp.empty_like(x).data.copy_from_device_async(x.data, 64),
    "pointer of one's own": lambda cp, x: cp.cuda.MemoryPointer(
        cp.empty_like(x).data.mem, 0
    ).copy_from_device(x.data, 64),
}

WRITERS: dict[str, Callable[[Any, Any], Any]] = {
    "fill": lambda cp, x: x.fill(1),
    "in place": lambda cp, x: x.__iadd__(1),
    "assignment": lambda cp, x: x.__setitem__(slice(None), 3),
    "out": lambda cp, x: cp.add(1, 2, out=x),
    "copyto": lambda cp, x: cp.copyto(x, cp.ones_like(x)),
    "set": lambda cp, x: x.set(np.zeros(4096, "f4")),
    "scatter": lambda cp, x: cp.add.at(x, cp.zeros(3, "i8"), 1),
    "memsetAsync": lambda cp, x: cp.cuda.runtime.memsetAsync(x.data.ptr, 0, 64, 0),
    "memset": lambda cp, x: x.data.memset(0, 64),
    "sort": lambda cp, x: x.sort(),
    "sum out": lambda cp, x: cp.sum(cp.zeros((4, 4096), "f4"), axis=0, out=x),
}


def unsupported(error: BaseException) -> bool:
    return type(error).__name__ in ("SimulationLimit", "SimulationError")


def attempt(do: Callable[[Any, Any], Any], program: Program) -> None:
    try:
        do(program.cp, program.x)
    except Exception as error:
        if not unsupported(error):
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_reads_are_seen(program: Program, read: Callable[[Any, Any], Any]) -> None:
    attempt(read, program)
    program.settle()
    with streamsafe.sanitize("collect") as racy:
        program.write()
        attempt(read, program)
        program.settle()
    with streamsafe.sanitize("collect") as ordered:
        program.write()
        program.settle()
        attempt(read, program)
        program.settle()
    assert (set(codes(racy)), codes(ordered)) == ({"SS101"}, [])


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_writes_are_seen(program: Program, write: Callable[[Any, Any], Any]) -> None:
    attempt(write, program)
    program.settle()
    with streamsafe.sanitize("collect") as racy:
        program.read()
        attempt(write, program)
        program.settle()
    with streamsafe.sanitize("collect") as ordered:
        program.read()
        program.settle()
        attempt(write, program)
        program.settle()
    assert (set(codes(racy)), codes(ordered)) == ({"SS102"}, [])


def test_kernels_and_arrays_made_before_are_seen(cp: Any) -> None:
    kernel = cp.ElementwiseKernel("T a", "T b", "b = a", "made_before")
    program = Program(cp)
    kernel(program.x, program.y)
    synchronize = cp.cuda.Device(0).synchronize
    with streamsafe.sanitize("collect") as racy:
        program.write()
        kernel(program.x, program.y)
        synchronize()
    with streamsafe.sanitize("collect") as ordered:
        program.write()
        synchronize()
        kernel(program.x, program.y)
        program.x.get()
        synchronize()
    assert (codes(racy), codes(ordered)) == (["SS101"], [])


def test_no_module_is_replaced(cp: Any) -> None:
    import cupy_backends.cuda.api.runtime as runtime

    before = cp.cuda.runtime
    pointer = cp.cuda.memory.MemoryPointer
    with streamsafe.sanitize():
        assert cp.cuda.runtime is before
        # Extension modules that are imported now look up the C type here.
        assert cp.cuda.memory.MemoryPointer is pointer
    assert runtime._getCUDAMajorVersion() == before._getCUDAMajorVersion()


def test_parameters_of_unknown_direction_are_possible(program: Program) -> None:
    kernel = program.cp.RawKernel(HANDED_ON, "k")

    def use() -> None:
        program.read()
        kernel((1,), (1,), (program.x, program.cp.empty_like(program.x)))

    with streamsafe.sanitize() as session:
        use()
        program.settle()
    assert [(hazard.code, hazard.confidence) for hazard in session.hazards] == [("SS102", "possible")]


def test_annotations_decide(program: Program) -> None:
    from streamsafe.runtime.annotations import annotated

    kernel = streamsafe.annotate(program.cp.RawKernel(HANDED_ON, "k"), reads=["a"], writes=[1])
    try:
        with streamsafe.sanitize("collect") as session:
            program.read()
            kernel((1,), (1,), (program.x, program.cp.empty_like(program.x)))
            program.settle()
        assert codes(session) == []
        streamsafe.annotate("k", writes=["a"])
        with streamsafe.sanitize("collect") as session:
            program.read()
            kernel((1,), (1,), (program.x, program.cp.empty_like(program.x)))
            program.settle()
        assert [(hazard.code, hazard.confidence) for hazard in session.hazards] == [("SS102", "certain")]
    finally:
        annotated.clear()
    with pytest.raises(TypeError, match="no kernel"):
        streamsafe.annotate(3)


def test_annotations_of_no_parameter(program: Program) -> None:
    from streamsafe.runtime.annotations import annotated

    kernel = program.cp.RawKernel(HANDED_ON, "k")
    try:
        for wrong in ("nosuch", 2, -1):
            with pytest.raises(
                ValueError, match=f"kernel 'k' has no parameter {wrong!r}: its parameters are a, b"
            ):
                streamsafe.annotate(kernel, reads=[wrong])
        with pytest.raises(TypeError, match="neither the name nor the position"):
            streamsafe.annotate(kernel, reads=[None])  # type: ignore[list-item]
        assert not annotated
        streamsafe.annotate("k", reads="nosuch")
        y = program.cp.empty_like(program.x)
        with streamsafe.sanitize("collect"):
            with pytest.warns(UserWarning, match="has no parameter 'nosuch'"):
                kernel((1,), (1,), (program.x, y))
            program.settle()
    finally:
        annotated.clear()


def test_views_that_share_no_byte_are_independent(program: Program) -> None:
    with streamsafe.sanitize() as session:
        with program.writer:
            program.x[::2].fill(1)
            program.x[4000:4000].fill(1)
        with program.reader:
            program.x[1::2].fill(2)
            program.cp.broadcast_to(program.x[1:2], (8, 1)).copy()
        program.settle()
    assert codes(session) == []


def test_the_users_allocator_is_composed(program: Program) -> None:
    cp = program.cp
    calls: list[int] = []

    def allocate(size: int) -> Any:
        calls.append(size)
        return cp.get_default_memory_pool().malloc(size)

    with streamsafe.sanitize("collect") as session, cp.cuda.using_allocator(allocate):
        assert cp.cuda.get_allocator() is allocate
        with program.writer:
            a = cp.zeros(4096, "f4")
        with program.reader:
            a += 1
        program.settle()
    assert calls and codes(session) == ["SS101"]


@pytest.mark.parametrize("own", [False, True])
def test_a_pinned_allocator_is_asked_by_cupy_itself(program: Program, own: bool) -> None:
    """What CuPy stages is not the program's memory; what the program takes from the same pool is."""
    cp = program.cp
    pool = cp.cuda.PinnedMemoryPool()
    before = cp.get_default_pinned_memory_pool().malloc
    with streamsafe.sanitize("collect") as session:
        try:
            cp.cuda.set_pinned_memory_allocator(lambda size: pool.malloc(size))
            kept = []
            with program.writer:
                for _ in range(3):
                    if own:
                        staged = np.frombuffer(pool.malloc(4096), "f4", 1024)
                        staged[:] = 1
                        kept.append(cp.empty(1024, "f4"))
                        kept[-1].set(staged)
                        del staged
                    else:
                        kept.append(cp.asarray([1.0] * 1024))
            program.settle()
        finally:
            cp.cuda.set_pinned_memory_allocator(before)
    assert set(codes(session)) == ({"SS202"} if own else set())


def test_a_pools_method_stays_equal_as_an_allocator(program: Program) -> None:
    cp = program.cp
    pool = cp.cuda.MemoryPool()
    allocator = cp.cuda.get_allocator()
    with streamsafe.sanitize("collect"):
        cp.cuda.set_allocator(pool.malloc)
        assert cp.cuda.get_allocator() == pool.malloc
    assert cp.cuda.get_allocator() == pool.malloc
    cp.cuda.set_allocator(allocator)


HANDOVERS: dict[str, Callable[[Any], tuple[Callable[[], object], Callable[[], object]]]] = {
    "event": lambda m: (lambda e: (e.set, e.wait))(m.Event()),
    "semaphore": lambda m: (lambda e: (e.release, e.acquire))(m.Semaphore(0)),
    "barrier": lambda m: (lambda e: (e.wait, e.wait))(m.Barrier(2)),
    "queue": lambda m: (lambda e: (lambda: e.put(1), e.get))(queue.Queue[int]()),
    "simple queue": lambda m: (lambda e: (lambda: e.put(1), e.get))(queue.SimpleQueue[int]()),
    "condition": lambda m: _condition(m),
}


def _condition(module: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    condition, ready = module.Condition(), []

    def give() -> None:
        with condition:
            ready.append(True)
            condition.notify()

    def take() -> None:
        with condition:
            condition.wait_for(lambda: ready)

    return give, take


@pytest.mark.parametrize("handover", [*HANDOVERS, "future", "join", "nothing"])
@pytest.mark.parametrize("threads", [False, True])
def test_threads(program: Program, threads: bool, handover: str) -> None:
    """A synchronize in another thread counts for all; with ``threads`` only along what orders the threads."""

    def work() -> None:
        program.write()
        program.writer.synchronize()

    with streamsafe.sanitize("collect", threads=threads) as session:
        if handover == "future":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(work).result()
        elif handover in HANDOVERS:
            give, take = HANDOVERS[handover](threading)

            def work_and_give() -> None:
                work()
                give()

            thread = threading.Thread(target=work_and_give)
            thread.start()
            take()
        else:
            thread = threading.Thread(target=work)
            thread.start()
            if handover == "join":
                thread.join()
            while thread.is_alive():
                time.sleep(0.001)
        program.read()
        if handover != "future":
            thread.join()
        program.settle()
    assert codes(session) == (["SS101"] if threads and handover == "nothing" else [])


def test_an_array_freed_in_another_thread(program: Program) -> None:
    cp = program.cp
    with streamsafe.sanitize() as session:
        held = [cp.zeros(4096, "f4") for _ in range(8)]
        program.settle()
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        cp.zeros(4096, "f4")
        gc.collect()
        program.settle()
    assert codes(session) == []


def test_a_pools_blocks_are_free_when_nothing_points_into_them(program: Program) -> None:
    """Also after the address was handed out anew, as it was the last time (which takes a short way)."""
    from streamsafe.runtime.cupy import memory

    cp = program.cp
    starts = set()
    with streamsafe.sanitize() as session, program.writer:
        for _ in range(5):
            array = cp.ones(1000)
            start = array.data.ptr
            starts.add(start)
            part = array[10:]
            inside = part.data.ptr
            del array
            assert memory.block_at(start) == memory.block_at(inside) == (0, start, 8192)
            del part
            assert memory.block_at(start) is None
            assert memory.block_at(inside) is None
        program.settle()
    assert codes(session) == []
    assert len(starts) == 1


def test_memory_is_bounded(program: Program) -> None:
    cp = program.cp
    with streamsafe.sanitize() as session:
        monitor = current.monitor
        assert monitor is not None
        sizes = []
        for _ in range(3):
            for _ in range(200):
                a = cp.zeros(64, "f4")
                with program.writer:
                    program.x += 1
                del a
            program.settle()
            sizes.append(monitor.checker.remembered())
    assert codes(session) == []
    assert sizes[2] <= sizes[0] + 8


ADDRESS = 'extern "C" __global__ void k(long long p, int n) { if (n) ((float*)p)[threadIdx.x] = 1; }'


def test_an_address_passed_as_a_number_is_possible(program: Program) -> None:
    kernel = program.cp.RawKernel(ADDRESS, "k")

    def use(address: int) -> list[tuple[str, str]]:
        with streamsafe.sanitize("collect") as session:
            program.write()
            with program.reader:
                kernel((1,), (1,), (np.int64(address), np.int32(1)))
            program.settle()
        return [(hazard.code, hazard.confidence) for hazard in session.hazards]

    assert use(program.x.data.ptr) == []  # made before the session: of such an address nothing is known
    with streamsafe.sanitize("collect") as session:
        x = program.cp.zeros(64, "f4")
        program.settle()
        with program.writer:
            x.fill(1)
        with program.reader:
            kernel((1,), (1,), (np.int64(x.data.ptr), np.int32(1)))
            kernel((1,), (1,), (12345, np.int32(0)))  # a number that is no address, and is not used as one
        program.settle()
    assert [(hazard.code, hazard.confidence) for hazard in session.hazards] == [("SS102", "possible")]


def test_what_cannot_be_seen_is_counted(program: Program) -> None:
    with streamsafe.sanitize("collect") as session:
        interface = program.x.__cuda_array_interface__
        program.cp.from_dlpack(program.x)
        program.settle()
    assert interface["data"][0] == program.x.data.ptr
    assert [note for note in session.notes if "handed to other libraries" in note and "(1 times)" in note]
    with streamsafe.sanitize("collect") as session:
        program.ordered()
    assert session.notes == []


def test_a_kernel_kept_from_before_is_seen(program: Program) -> None:
    """Its function, on an attribute and in a list, is the same object, and not one of ours."""
    code = (
        "kernel = cp.RawKernel(RAW, 'k')\n"
        "x, y = cp.zeros(64, 'f4'), cp.zeros(64, 'f4')\n"
        "kernel((1,), (64,), (x, y))\n"
        "class Holder:\n    pass\n"
        "Holder.kernel, functions = kernel.kernel, [kernel.kernel]\n"
        "plus = x + 1\n"
        "first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)\n"
        "def race(use):\n"
        "    cp.cuda.Device().synchronize()\n"
        "    with streamsafe.sanitize('collect') as session:\n"
        "        with first:\n            use()\n"
        "        with second:\n            y.fill(1)\n"
        "        cp.cuda.Device().synchronize()\n"
        "    print([(hazard.code, hazard.confidence) for hazard in session.hazards])\n"
        "race(lambda: functions[0]((1,), (64,), (x, y)))\n"
        "race(lambda: Holder.kernel((1,), (64,), args=(x, y), shared_mem=0))\n"
        "race(lambda: kernel((1,), (64,), (x, y)))\n"
        "race(lambda: functions[0].linear_launch(64, (x, y)))\n"
        "race(lambda: cp.add(x, y, out=x))\n"
        "print(functions[0] is Holder.kernel is kernel.kernel, type(functions[0]) is cp.cuda.Function)\n"
    )
    result = python(f"{SIMULATED}RAW = {RAW!r}\n{code}")
    assert result.stderr == ""
    assert result.stdout == "[('SS102', 'certain')]\n" * 5 + "True True\n"


def test_what_is_told_and_what_is_enqueued_is_one_step(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three threads launch on one stream: the engine is given them in the order in which CUDA is."""
    from streamsafe.runtime.cupy import kernels
    from streamsafe.runtime.cupy.compiled import hooks
    from streamsafe.runtime.cupy.state import order_lock, timeline

    told: list[int] = []
    enqueued: list[int] = []
    plain = kernels.plain_linear

    def launch(*args: Any) -> None:
        time.sleep(0.001)  # where another thread goes on
        enqueued.append(threading.get_ident())
        plain(*args)

    monkeypatch.setattr(hooks, "enabled", False)
    with pytest.MonkeyPatch.context() as patch, streamsafe.sanitize("collect") as session:
        monitor = current.monitor
        assert monitor is not None
        access = monitor.access

        def heard(*args: Any) -> None:
            told.append(threading.get_ident())
            access(*args)

        patch.setattr(kernels, "plain_linear", launch)
        patch.setattr(monitor, "access", heard)

        def work() -> None:
            with program.writer:
                for _ in range(20):
                    program.cp.add(program.x, 1, out=program.x)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        program.settle()
        free = order_lock(timeline(monitor, program.writer))
        assert free.acquire(blocking=False)
        free.release()
    assert told == enqueued and len(told) == 60
    assert codes(session) == []


@pytest.mark.parametrize("kind", ["Event", "Stream"])
def test_a_handle_ends_before_another_thread_can_get_it(program: Program, kind: str) -> None:
    """What the monitor hears of the end comes first: the object still has its handle then."""
    from streamsafe.runtime.cupy import streams

    wrapper = streams._event_del if kind == "Event" else streams._stream_del
    order: list[str] = []
    with pytest.MonkeyPatch.context() as patch, streamsafe.sanitize("collect"):
        monitor = current.monitor
        assert monitor is not None
        for name in ("destroy_event", "destroy_stream"):
            patch.setattr(monitor, name, lambda *_: order.append("monitor"))
        fake = SimpleNamespace(ptr=0x1234, device_id=0)
        wrapper(lambda _: order.append("CUDA"))(fake)
    assert order == ["monitor", "CUDA"]
