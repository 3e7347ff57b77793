"""Memory: what is copied is copied, what is not computed is not known, and pointers say what they are."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy
import pytest

from streamsafe.simulate.cuda.memory import Known


def test_known_ranges_against_a_bitmap() -> None:
    """Random additions and removals agree with one flag per byte, and ranges stay sorted, disjoint and merged."""
    chance = random.Random(7)
    for _ in range(200):
        known, bitmap = Known(), [False] * 64
        for _ in range(30):
            start = chance.randrange(64)
            end = chance.randrange(start, 65)
            value = chance.random() < 0.6
            (known.add if value else known.remove)(start, end)
            bitmap[start:end] = [value] * (end - start)
            ranges = known.ranges(0, 64)
            assert [any(a <= i < b for a, b in ranges) for i in range(64)] == bitmap
            assert all(b < c for (_, b), (c, _) in pairwise(ranges))
        start = chance.randrange(60)
        assert sum(b - a for a, b in known.ranges(start, start + 4)) == sum(bitmap[start : start + 4])


ROUND_TRIPS: dict[str, Any] = {
    "float": numpy.linspace(0, 1, 17),
    "2d": numpy.arange(12, dtype="i4").reshape(3, 4),
    "complex": numpy.arange(5) * 1j,
    "bool": numpy.array([True, False, True]),
    "empty": numpy.zeros((0, 3)),
    "scalar": numpy.array(2.5),
    "fortran": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_copies_alone_are_exact(cupy: Any, name: str) -> None:
    value = ROUND_TRIPS[name]
    there = cupy.asarray(value)
    assert numpy.array_equal(there.get(), value)
    again = cupy.empty(value.shape, value.dtype, order="F" if name == "fortran" else "C")
    again.data.copy_from_device_async(there.data, there.nbytes, cupy.cuda.Stream.null)
    assert numpy.array_equal(cupy.asnumpy(again), value)


def test_kernels_make_their_output_unknown_and_nothing_else(cupy: Any, simulation: Any) -> None:
    array = cupy.asarray(numpy.arange(8.0))
    neighbour = cupy.asarray(numpy.arange(8.0))
    before = simulation.summary()
    cupy.add(array[2:4], neighbour[2:4], out=array[2:4])
    assert array.get().tolist() == [0.0, 1.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0]
    assert neighbour.get().tolist() == list(range(8))
    after = simulation.summary()
    assert after.arrays_copied_back - before.arrays_copied_back == 2
    assert after.arrays_filled - before.arrays_filled == 1
    assert after.bytes_filled - before.bytes_filled == 16


def test_strided_outputs_cover_what_lies_between(cupy: Any) -> None:
    array = cupy.asarray(numpy.arange(10.0))
    cupy.negative(array[5:9], out=array[8:4:-1])
    assert array.get().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 9.0]
    element = cupy.asarray(numpy.arange(3.0))
    cupy.sum(array, out=element[1])
    assert element.get().tolist() == [0.0, 0.0, 2.0]


HOST = numpy.arange(12.0).reshape(3, 4)

# CuPy's copies, fills and conversions run: what is done to a copy of HOST, with CuPy and with NumPy.
MOVES: dict[str, Any] = {
    "slice": lambda x, xp: x[:, 1:3].copy(),
    "reversed": lambda x, xp: x[::-1, ::2].copy(),
    "transposed": lambda x, xp: xp.ascontiguousarray(x.T),
    "to int": lambda x, xp: x.astype("i2"),
    "to complex": lambda x, xp: x.astype("c16"),
    "full": lambda x, xp: xp.full((2, 3), 7, "f2"),
    "ones": lambda x, xp: xp.ones(5, "?"),
    "broadcast": lambda x, xp: xp.broadcast_to(x[1], (3, 4)).copy(),
    "zero-dimensional": lambda x, xp: x[1, 2].copy(),
}


def fill_strided(x: Any, xp: Any) -> Any:
    x[::2, 1::2] = -1
    return x


def assign_strided(x: Any, xp: Any) -> Any:
    x[:, ::2] = x[:, 1::2].astype("f4")
    return x


MOVES["fill strided"] = fill_strided
MOVES["assign strided"] = assign_strided


@pytest.mark.parametrize("name", MOVES)
def test_moves_are_exact(cupy: Any, simulation: Any, name: str) -> None:
    move = MOVES[name]
    filled = simulation.summary().arrays_filled
    there = move(cupy.asarray(HOST), cupy)
    assert numpy.array_equal(there.get(), move(HOST.copy(), numpy))
    assert simulation.summary().arrays_filled == filled


def test_a_move_of_unknown_values_stays_unknown(cupy: Any, simulation: Any) -> None:
    array = cupy.asarray(HOST) + 1
    filled = simulation.summary().arrays_filled
    assert not array[:, ::2].copy().get().any()
    assert simulation.summary().arrays_filled == filled + 1


def test_a_users_kernel_of_the_same_name_does_not_run(cupy: Any) -> None:
    kernel = cupy.ElementwiseKernel("T x", "T y", "y = x + 1", "cupy_fill")
    array = cupy.asarray(HOST)
    kernel(3.0, array)
    assert not array.get().any()


def test_memset_is_known(cupy: Any) -> None:
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        array = cupy.empty(4, "u1")
    array.data.memset_async(7, 3, cupy.cuda.Stream.null)
    assert array.get().tolist() == [7, 7, 7, 0]
    assert int(cupy.zeros(3)[1]) == 0


def test_raw_pointer_kernels(cupy: Any) -> None:
    """A plain pointer may be written up to the end of its allocation, a const one not at all."""
    source = 'extern "C" __global__ void f(const float* x, float *y, int n) {}'
    kernel = cupy.RawKernel(source, "f")
    x, y = (cupy.asarray(numpy.arange(4, dtype="f4")) for _ in range(2))
    kernel((1,), (4,), (x, y, 4))
    assert x.get().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert y.get().tolist() == [0.0] * 4


def test_pointer_attributes(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    pinned, managed = runtime.hostAlloc(64, 0), cupy.cuda.malloc_managed(64)
    with cupy.cuda.Device(1):
        remote = cupy.empty(8)
    pageable = numpy.empty(8)
    local = cupy.empty(8)
    table = {
        local.data.ptr: (runtime.memoryTypeDevice, 0),
        local.data.ptr + 63: (runtime.memoryTypeDevice, 0),
        remote.data.ptr: (runtime.memoryTypeDevice, 1),
        pinned: (runtime.memoryTypeHost, 0),
        managed.ptr: (runtime.memoryTypeManaged, 0),
        pageable.ctypes.data: (runtime.memoryTypeUnregistered, -2),
    }
    for pointer, (kind, device) in table.items():
        attributes = runtime.pointerGetAttributes(pointer)
        assert (attributes.type, attributes.device) == (kind, device)
        assert bool(attributes.devicePointer) == (kind != runtime.memoryTypeUnregistered)
        assert bool(attributes.hostPointer) == (kind != runtime.memoryTypeDevice)
    runtime.freeHost(pinned)
    runtime.hostRegister(pageable.ctypes.data, pageable.nbytes, 0)
    assert runtime.pointerGetAttributes(pageable.ctypes.data).type == runtime.memoryTypeHost
    with pytest.raises(runtime.CUDARuntimeError, match="AlreadyRegistered"):
        runtime.hostRegister(pageable.ctypes.data, 8, 0)
    runtime.hostUnregister(pageable.ctypes.data)
    with pytest.raises(runtime.CUDARuntimeError, match="NotRegistered"):
        runtime.hostUnregister(pageable.ctypes.data)


def test_invalid_copies_and_frees(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    array, host = cupy.zeros(8), numpy.zeros(1024)
    calls: list[Callable[[], Any]] = [
        lambda: runtime.memcpy(host.ctypes.data, array.data.ptr, 64, runtime.memcpyHostToDevice),
        lambda: runtime.memcpy(array.data.ptr, host.ctypes.data, 1 << 20, runtime.memcpyHostToDevice),
        lambda: runtime.memcpy(array.data.ptr, host.ctypes.data, 8, 9),
        lambda: runtime.memset(host.ctypes.data, 0, 8),
        lambda: runtime.free(host.ctypes.data),
        lambda: runtime.freeHost(array.data.ptr),
    ]
    for call in calls:
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
            call()


def test_out_of_memory_is_cupys_own_error(cupy: Any) -> None:
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty(1 << 50, "u1")
    assert cupy.zeros(4).get().tolist() == [0.0] * 4


def test_pool_reuse_and_accounting(cupy: Any) -> None:
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        array = cupy.empty(3000)
        address = array.data.ptr
        assert pool.used_bytes() == pool.total_bytes() == 24064
        del array
        again = cupy.empty(3000)
        assert again.data.ptr == address
        del again
    free, total = cupy.cuda.runtime.memGetInfo()
    pool.free_all_blocks()
    assert cupy.cuda.runtime.memGetInfo() == (free + 24064, total)


@pytest.mark.filterwarnings("ignore:cupy.cuda.MemoryAsyncPool is experimental:FutureWarning")
def test_async_pool(cupy: Any, logged: Any) -> None:
    pool = cupy.cuda.MemoryAsyncPool()
    stream = cupy.cuda.Stream(non_blocking=True)

    def use() -> None:
        with stream:
            memory = pool.malloc(512)
            memory.memset_async(3, 512, stream)
            del memory

    assert [name for name in logged(use) if name.endswith("Async")] == [
        "mallocAsync",
        "memsetAsync",
        "freeAsync",
    ]


def test_managed_memory_is_host_memory_too(cupy: Any) -> None:
    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        array = cupy.empty(4, "f4")
    view = numpy.ctypeslib.as_array((ctypes.c_float * 4).from_address(array.data.ptr))
    view[...] = [1, 2, 3, 4]
    assert array.get().tolist() == [1.0, 2.0, 3.0, 4.0]
    array += 1
    assert array.get().tolist() == [0.0] * 4


def test_peer_copies(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    source = cupy.asarray(numpy.arange(6.0))
    with cupy.cuda.Device(1):
        copied = cupy.asarray(source)
        assert copied.device.id == 1
        assert copied.get().tolist() == list(range(6))
    assert runtime.deviceCanAccessPeer(0, 1) == 1
    with suppress(runtime.CUDARuntimeError):
        runtime.deviceDisablePeerAccess(1)
    runtime.deviceEnablePeerAccess(1)
    with pytest.raises(runtime.CUDARuntimeError, match="PeerAccessAlreadyEnabled"):
        runtime.deviceEnablePeerAccess(1)
    runtime.deviceDisablePeerAccess(1)
    with pytest.raises(runtime.CUDARuntimeError, match="PeerAccessNotEnabled"):
        runtime.deviceDisablePeerAccess(1)


def test_pitched_copies(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    host = numpy.arange(24, dtype="u1").reshape(4, 6)
    device = cupy.zeros((4, 8), "u1")
    runtime.memcpy2D(device.data.ptr, 8, host.ctypes.data, 6, 5, 4, runtime.memcpyHostToDevice)
    expected = numpy.zeros((4, 8), "u1")
    expected[:, :5] = host[:, :5]
    assert numpy.array_equal(device.get(), expected)


@pytest.mark.parametrize("shape", [(16,), (5, 16), (3, 5, 16)])
def test_cuda_arrays(cupy: Any, shape: tuple[int, ...]) -> None:
    texture = cupy.cuda.texture
    channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, cupy.cuda.runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(channel, *reversed(shape))
    value = numpy.random.default_rng(0).random(shape, "f4")
    array.copy_from(cupy.asarray(value))
    back = cupy.zeros(shape, "f4")
    array.copy_to(back)
    assert numpy.array_equal(back.get(), value)
    host = numpy.zeros(shape, "f4")
    array.copy_to(host)
    assert numpy.array_equal(host, value)
