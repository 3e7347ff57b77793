"""Kernels and libraries that compute: values against NumPy's, kernels with barriers, graphs, and what cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from streamsafe.simulate.cuda import SimulationError, SimulationLimit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def computing(cupy: Any, simulation: Any) -> Iterator[Any]:
    """CuPy with kernels that compute; memory of tests in which they do not is given back."""
    cupy.get_default_memory_pool().free_all_blocks()
    simulation.computes = True
    yield cupy
    simulation.computes = False


def reals(xp: Any) -> Any:
    return xp.asarray(numpy.linspace(-3, 3, 24).reshape(4, 6))


def counts(xp: Any) -> Any:
    return xp.asarray(numpy.array([3, 1, 2, 1, 0, 3, 3], "i4"))


def square(xp: Any) -> Any:
    return xp.asarray(
        numpy.linspace(0, 1, 16).reshape(4, 4) + numpy.linspace(0, 1, 16).reshape(4, 4).T
    ) + 4 * xp.eye(4)


def decides(xp: Any) -> Any:
    x, steps = reals(xp), 0
    while float((x * x).sum()) > 1:
        x, steps = x / 2, steps + 1
    return steps


def stored(xp: Any) -> Any:
    x = reals(xp)
    x[x > 1] = 0
    x[:, ::2] += 5
    return x


# The same program for CuPy and for NumPy.
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "ufuncs": lambda xp: xp.exp(reals(xp)) + xp.sqrt(xp.abs(reals(xp))) ** 2 - 1,
    "strided": lambda xp: reals(xp)[::2, ::-1].T * 2,
    "half": lambda xp: (reals(xp).astype("f2") * 3.7).astype("f4"),
    "complex": lambda xp: (reals(xp) + 1j * reals(xp)) ** 2,
    "integers": lambda xp: (counts(xp) // 2, counts(xp) % 2, counts(xp) << 1),
    "branch": decides,
    "mask": lambda xp: reals(xp)[reals(xp) > 1],
    "mask assigned": stored,
    "indices": lambda xp: reals(xp)[xp.asarray([2, 0]), 1],
    "where": lambda xp: xp.where(reals(xp) > 0, reals(xp), -1),
    "nonzero": lambda xp: xp.nonzero(counts(xp) == 3),
    "sums": lambda xp: (reals(xp).sum(), reals(xp).sum(0), reals(xp).sum(1), reals(xp)[:, ::2].mean(0)),
    "single precision": lambda xp: xp.full(1 << 16, 0.1, "f4")[::2].sum(),
    "extrema": lambda xp: (reals(xp).max(), reals(xp).argmax(1), reals(xp).T.argmin(0)),
    "cumulated": lambda xp: (xp.cumsum(counts(xp)), xp.cumprod(reals(xp), axis=1)),
    "sorted": lambda xp: (xp.sort(counts(xp)), xp.argsort(-reals(xp), axis=0), xp.unique(counts(xp))),
    "partition": lambda xp: xp.partition(xp.asarray(numpy.arange(20000) * 7919 % 20011), 9)[:10],
    "product": lambda xp: (reals(xp) @ reals(xp).T, xp.dot(reals(xp)[0], reals(xp)[1])),
    "batched product": lambda xp: xp.ones((3, 2, 4)) @ (reals(xp).reshape(3, 4, 2)),
    "einsum": lambda xp: xp.einsum("ij,kj->ik", reals(xp), reals(xp)),
    "histogram": lambda xp: (xp.histogram(reals(xp), bins=4)[0], xp.bincount(counts(xp))),
    "transform": lambda xp: (xp.fft.fft(reals(xp)), xp.fft.irfft(xp.fft.rfft(reals(xp))), xp.fft.ifft2(reals(xp))),
    "solved": lambda xp: xp.linalg.solve(square(xp), reals(xp)),
    "inverted": lambda xp: (xp.linalg.inv(square(xp)), xp.linalg.det(square(xp))),
    "factorized": lambda xp: (xp.linalg.cholesky(square(xp)), xp.abs(xp.linalg.qr(reals(xp), mode="r"))),
    "eigenvalues": lambda xp: (xp.linalg.eigvalsh(square(xp)), xp.linalg.svd(reals(xp), compute_uv=False)),
    "least squares": lambda xp: xp.linalg.pinv(reals(xp).T),
    "leaves its loop": lambda xp: xp.digitize(reals(xp), xp.asarray([-1.0, 0.5, 2])),
    "searched": lambda xp: xp.searchsorted(xp.sort(counts(xp)), counts(xp)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(computing: Any, name: str) -> None:
    found, expected = PROGRAMS[name](computing), PROGRAMS[name](numpy)
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected, strict=True):
        value = one.get() if isinstance(one, computing.ndarray) else one
        numpy.testing.assert_allclose(value, other, rtol=2e-3 if name == "half" else 1e-6, atol=1e-9)


REVERSE = r"""
extern "C" __global__ void reverse(const float* x, float* y) {
    extern __shared__ float part[];
    int i = threadIdx.x;
    part[i] = x[blockIdx.x * blockDim.x + i];
    __syncthreads();
    y[blockIdx.x * blockDim.x + i] = part[blockDim.x - 1 - i];
}
"""
SUM = r"""
template <typename T> __device__ T of_warp(T value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
    return value;
}
extern "C" __global__ void total(const double* x, int n, double* sum) {
    __shared__ double parts[8];
    double mine = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
    mine = of_warp(mine);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = of_warp(threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0);
        if (threadIdx.x == 0) atomicAdd(sum, mine);
    }
}
"""
LOCKED = r"""
__device__ int lock;
extern "C" __global__ void locked(int* count) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    *count += 1;
    __threadfence();
    atomicExch(&lock, 0);
}
"""
SCALED = r"""
#include <cuda_fp16.h>
#include <cuComplex.h>
struct Scale { float by; int plus; };
__constant__ float table[2];
template <typename T> __global__ void scale(T* y, const T* x, Scale s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(float(x[i]) * s.by + s.plus + table[i % 2]);
}
"""


def test_shared_memory_and_barriers(computing: Any) -> None:
    x, y = computing.arange(64, dtype="f4"), computing.zeros(64, "f4")
    computing.RawKernel(REVERSE, "reverse")((4,), (16,), (x, y), shared_mem=64)
    assert (y.get().reshape(4, 16) == x.get().reshape(4, 16)[:, ::-1]).all()


def test_warps_and_atomics(computing: Any) -> None:
    x, total = computing.arange(1000.0), computing.zeros(1)
    kernel = computing.RawKernel(SUM, "total")
    for _ in range(2):
        kernel((3,), (256,), (x, 1000, total))
    assert float(total[0]) == 6 * 499500


def test_a_lock(computing: Any) -> None:
    count = computing.zeros(1, "i4")
    computing.RawKernel(LOCKED, "locked")((2,), (64,), (count,))
    assert int(count[0]) == 128


@pytest.mark.parametrize("dtype", ["float", "half"])
def test_templates_structures_and_constants(computing: Any, dtype: str) -> None:
    name = f"scale<{dtype}>"
    module = computing.RawModule(code=SCALED, name_expressions=[name], options=("-std=c++17",))
    kind = {"float": "f4", "half": "f2"}[dtype]
    kernel, x = module.get_function(name), computing.arange(6, dtype=kind)
    table = computing.ndarray(2, "f4", module.get_global("table"))
    table[...] = computing.asarray([10, 20], "f4")
    y, scale = computing.zeros_like(x), numpy.array([(2.0, 1)], "f4,i4")[0]
    kernel((1,), (8,), (y, x, scale, 6))
    assert y.get().tolist() == [11, 23, 15, 27, 19, 31]


def test_a_graph_computes_at_each_launch(computing: Any) -> None:
    stream = computing.cuda.Stream(non_blocking=True)
    x, y = computing.zeros(3), computing.zeros(3)
    kernel = computing.RawKernel(
        'extern "C" __global__ void add(const double* x, double* y) { y[threadIdx.x] += 2 * x[threadIdx.x]; }', "add"
    )  # fmt: skip
    with stream:
        stream.begin_capture()
        kernel((1,), (3,), (x, y))
        y *= 10
        graph = stream.end_capture()
    stream.synchronize()
    seen = [y.get().tolist()]
    for value in (1, 2):
        x.fill(value)
        computing.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        seen.append(y.get().tolist())
    assert seen == [[0, 0, 0], [20, 20, 20], [240, 240, 240]]


def test_a_pinned_source_is_read_when_its_copy_runs(computing: Any) -> None:
    block = computing.cuda.alloc_pinned_memory(8)
    source, x = numpy.frombuffer(block, "f8", 1), computing.zeros(1)
    results = []
    for value in (1.0, 2.0):
        source[0] = value
        x.data.copy_from_host_async(block.ptr, 8, computing.cuda.Stream.null)
        results.append(x * 3)
        computing.cuda.Stream.null.synchronize()
    source[0] = 99
    assert [float(each[0]) for each in results] == [3, 6]


def test_random_numbers(computing: Any) -> None:
    drawn = []
    for _ in range(2):
        computing.random.seed(7)
        generator = computing.random.default_rng(7)
        drawn.append(
            [
                computing.random.rand(4000).get(),
                computing.random.randn(4000).get(),
                computing.random.randint(0, 10, 4000).get(),
                generator.random(4000).get(),
                generator.bit_generator.random_raw(4000).get(),
                generator.standard_normal(4000).get(),
                computing.random.permutation(4000).get(),
            ]
        )
    for first, again in zip(*drawn, strict=True):
        assert (first == again).all()
    uniform, normal, integers, second, raw, other, permuted = drawn[0]
    assert abs(uniform.mean() - 0.5) < 0.05 and abs(second.mean() - 0.5) < 0.05
    assert abs(normal.std() - 1) < 0.1 and abs(other.std() - 1) < 0.1
    assert set(integers.tolist()) == set(range(10)) and len(set(raw.tolist())) > 3990
    assert sorted(permuted.tolist()) == list(range(4000))


# source of a kernel "f" of one array -> what is said of it
CANNOT: dict[str, tuple[str, str]] = {
    "inline PTX": (
        '__global__ void f(int* y) { asm("mov.u32 %0, %%laneid;" : "=r"(y[0])); }',
        "f did not compute (it did not compile",
    ),
    "cooperative groups": (
        "#include <cooperative_groups.h>\n"
        "__global__ void f(int* y) { cooperative_groups::this_grid().sync(); y[0] = 1; }",
        "f did not compute (it did not compile",
    ),
    "half of the threads at a barrier": (
        "__global__ void f(int* y) { if (threadIdx.x < 16) __syncwarp(); else __syncthreads(); "
        "if (threadIdx.x < 16) __syncwarp(0xffff0000); y[0] = 1; }",
        "f did not compute (its threads wait for one another at barriers that not all of them reach)",
    ),
    "another block": (
        "__device__ int ready; __global__ void f(int* y) { if (blockIdx.x) atomicExch(&ready, 1);"
        " else while (atomicCAS(&ready, 1, 1) != 1) {} y[0] = 1; }",
        "f did not compute (a thread waits for another block, and blocks run one after the other)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_run_is_unknown_and_named(computing: Any, simulation: Any, name: str) -> None:
    source, said = CANNOT[name]
    log = simulation._machine.log
    log.uncomputed.clear()
    y = computing.zeros(4, "i4")
    computing.RawKernel(f'extern "C" {{ {source} }}' if "#" not in source else source, "f")((2,), (32,), (y,))
    with pytest.raises(SimulationLimit) as caught:
        int(y[0])
    assert said in str(caught.value), str(caught.value)
    with pytest.raises(SimulationLimit):
        int((y + 1)[0])  # nor is what is computed from it
    assert f"\n  f: {said.split('(')[1].rstrip(')')}" in str(simulation.summary())
    y[...] = 3
    assert int(y[0]) == 3
    log.uncomputed.clear()


# source -> the error
FAILS = {
    "outside of memory": ("y[1ll << 40] = 1;", "it accesses the address 0x"),
    "an assertion": ("assert(y[0] > 1);", "an assertion fails: y[0] > 1"),
    "a stack overrun": ("f(y); y[0] = 1;", "it accesses the address 0x"),
}


@pytest.mark.parametrize("name", FAILS)
def test_an_error_in_a_kernel_is_raised_where_a_value_is_asked_for(computing: Any, name: str) -> None:
    body, said = FAILS[name]
    head = "__global__ void f(int* y);" if "f(y)" in body else ""
    y, other = computing.zeros(1, "i4"), computing.zeros(1)
    computing.RawKernel(f'extern "C" {{ {head} __global__ void f(int* y) {{ {body} }} }}', "f")(
        (1,), (1,), (y,)
    )
    with pytest.raises(SimulationError, match=f"the kernel f stopped: {said[:20]}"):
        other.get()
    assert other.get().tolist() == [0]


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, env={**os.environ, **variables}
    )


NEWTON = """
import cupy
x, steps = cupy.full(3, 9.0), 0
while float(abs(x * x - 2).max()) > 1e-12:
    x, steps = (x + 2 / x) / 2, steps + 1
print(steps, x.get().round(6).tolist())
"""


def test_a_program_that_decides_by_values(computing: Any, tmp_path: Path) -> None:
    ended = run(NEWTON, tmp_path)
    assert ended.stdout == "7 [1.414214, 1.414214, 1.414214]\n", ended.stderr
    assert ended.returncode == 0 and "do not compute" not in ended.stderr


UNASKED = "import cupy\nx = cupy.arange(4.0) + 1\ncupy.cuda.Device().synchronize()\nprint(x.shape)\n"


def test_a_program_that_asks_for_no_value_compiles_nothing(computing: Any, tmp_path: Path) -> None:
    ended = run(UNASKED, tmp_path, STREAMSAFE_CACHE=str(tmp_path / "cache"))
    assert ended.stdout == "(4,)\n", ended.stderr
    assert not [*(tmp_path / "cache").rglob("*.so")] or not [*(tmp_path / "cache").glob("kernels-*")]


PRINTS = """
import cupy
code = 'extern "C" __global__ void f(int n) { if (threadIdx.x == n) printf("thread %d\\\\n", threadIdx.x); }'
cupy.RawKernel(code, "f")((1,), (8,), (5,))
"""


def test_a_kernel_prints_without_being_asked_for_a_value(computing: Any, tmp_path: Path) -> None:
    ended = run(PRINTS, tmp_path)
    assert ended.stdout == "thread 5\n", ended.stderr


def test_without_a_compiler(computing: Any, tmp_path: Path) -> None:
    program = "import cupy\nx = cupy.arange(4.0) + 1\nprint(x.get().tolist())\nfloat(x[0])\n"
    ended = run(program, tmp_path, STREAMSAFE_CACHE=str(tmp_path / "cache"), CXX="no-such-compiler")
    assert ended.stdout == "[0.0, 0.0, 0.0, 0.0]\n", ended.stderr
    assert "SimulationLimit" in ended.stderr
    assert "there is no C++ compiler no-such-compiler" in ended.stderr
