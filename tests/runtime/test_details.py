"""What a single small mistake in a hook would change: each test fails when the detail it names is dropped."""

from __future__ import annotations

from typing import Any

import pytest

import streamsafe
from tests.runtime.helpers import Program, codes

KERNEL = 'extern "C" __global__ void k(float* a) { a[threadIdx.x] %s 1.0f; }'


@pytest.mark.parametrize(
    ("statement", "first", "expected"),
    [
        ("+=", "write", "SS101"),  # an update reads what the other stream writes
        ("=", "write", "SS102"),
        ("+=", "read", "SS102"),
        ("=", "read", "SS102"),
    ],
)
def test_an_update_reads_and_writes(program: Program, statement: str, first: str, expected: str) -> None:
    cp = program.cp
    kernel = cp.RawKernel(KERNEL % statement, "k")
    with streamsafe.sanitize(mode="collect") as session:
        with program.writer:
            if first == "write":
                program.x.fill(7)
            else:
                cp.copyto(program.y, program.x)
        with program.reader:
            kernel((1,), (32,), (program.x,))
        program.settle()
    assert codes(session) == [expected]


@pytest.mark.parametrize("second", ["f4", "f8"])
def test_a_view_of_another_type_has_its_own_bytes(program: Program, second: str) -> None:
    """The same address and the same number of elements, twice as many bytes."""
    cp = program.cp
    source = 'extern "C" __global__ void k(const %s* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }'
    kernels = {kind: cp.RawKernel(source % name, "k") for kind, name in (("f4", "float"), ("f8", "double"))}
    with streamsafe.sanitize(mode="collect") as session:
        with program.reader:
            kernels["f4"]((1,), (64,), (program.x[:64], program.y))
        with program.writer:
            program.x[64:128].fill(1)  # bytes 256 to 512
        with program.reader:
            kernels[second]((1,), (64,), (program.x.view(second)[:64], program.y))
        program.settle()
    assert codes(session) == ([] if second == "f4" else ["SS101"])


class Foreign:
    """What exports a device array and names no stream."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": None}


@pytest.mark.parametrize("again", [False, True])
def test_memory_that_is_handed_out_again_was_not_imported(program: Program, again: bool) -> None:
    """A new array at the address of one that came in without a handshake is an array like any other."""
    cp = program.cp
    source = cp.zeros(4096, cp.float32)
    cp.cuda.Device().synchronize()
    with streamsafe.sanitize(mode="collect") as session:
        with program.writer:
            source.fill(1)
        imported = cp.asarray(Foreign(source))
        if again:
            program.settle()
            address = source.data.ptr
            del imported, source
            source = imported = cp.empty(4096, cp.float32)
            assert source.data.ptr == address
            with program.writer:
                source.fill(1)
        with program.reader:
            cp.copyto(program.y, imported)
        program.settle()
    assert codes(session) == (["SS101"] if again else ["SS501"])
