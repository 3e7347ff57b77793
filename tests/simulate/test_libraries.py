"""Libraries run structurally: right shapes, one logged operation on the right stream, refused in a capture."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

# call -> (what is called with CuPy, a (4, 4) matrix and a vector; an operation it logs; shapes of its results)
FAMILIES: dict[str, tuple[Any, str, list[tuple[int, ...]]]] = {
    "matmul": (lambda c, a, v: a @ a, "cublas.gemm", [(4, 4)]),
    "matvec": (lambda c, a, v: a @ v, "cublas.", [(4,)]),
    "batched matmul": (lambda c, a, v: c.ones((3, 4, 4)) @ c.ones((3, 4, 2)), "cublas.", [(3, 4, 2)]),
    "dot": (lambda c, a, v: c.dot(v, v), "cub", [()]),
    "tensordot": (lambda c, a, v: c.tensordot(a, a, axes=1), "cublas.", [(4, 4)]),
    "einsum": (lambda c, a, v: c.einsum("ij,jk->ik", a, a), "cublas.", [(4, 4)]),
    "fft": (lambda c, a, v: c.fft.fft(a), "cufft.exec", [(4, 4)]),
    "rfft": (lambda c, a, v: c.fft.rfft(a), "cufft.exec", [(4, 3)]),
    "irfft": (lambda c, a, v: c.fft.irfft(a), "cufft.exec", [(4, 6)]),
    "fft2": (lambda c, a, v: c.fft.fft2(a), "cufft.exec", [(4, 4)]),
    "rfftn": (lambda c, a, v: c.fft.rfftn(a), "cufft.exec", [(4, 3)]),
    "solve": (lambda c, a, v: c.linalg.solve(a, v), "cusolver.", [(4,)]),
    "batched solve": (
        lambda c, a, v: c.linalg.solve(c.ones((3, 4, 4)), c.ones((3, 4, 2))),
        "cublas.",
        [(3, 4, 2)],
    ),
    "inv": (lambda c, a, v: c.linalg.inv(a), "cusolver.", [(4, 4)]),
    "svd": (lambda c, a, v: c.linalg.svd(a[:3]), "cusolver.", [(3, 3), (3,), (4, 4)]),
    "svd batched": (
        lambda c, a, v: c.linalg.svd(c.ones((2, 3, 4)), full_matrices=False),
        "cusolver.",
        [(2, 3, 3), (2, 3), (2, 3, 4)],
    ),
    "eigh": (lambda c, a, v: c.linalg.eigh(a), "cusolver.", [(4,), (4, 4)]),
    "qr": (lambda c, a, v: c.linalg.qr(a[:, :3]), "cusolver.", [(4, 3), (3, 3)]),
    "qr batched": (lambda c, a, v: c.linalg.qr(c.ones((2, 4, 3))), "cusolver.geqrf", [(2, 4, 3), (2, 3, 3)]),
    "cholesky": (lambda c, a, v: c.linalg.cholesky(a), "cusolver.", [(4, 4)]),
    "det": (lambda c, a, v: c.linalg.det(a), "cu", [()]),
    "pinv": (lambda c, a, v: c.linalg.pinv(a[:3]), "cusolver.", [(4, 3)]),
    "rand": (lambda c, a, v: c.random.rand(3, 2), "curand.", [(3, 2)]),
    "normal": (lambda c, a, v: c.random.normal(size=5), "curand.", [(5,)]),
    "permutation": (lambda c, a, v: c.random.permutation(5), "cu", [(5,)]),
    "generator": (lambda c, a, v: c.random.default_rng(0).random(3), "curand.Generator.random", [(3,)]),
    "generator integers": (
        lambda c, a, v: c.random.default_rng(0).integers(0, 9, 3),
        "curand.Generator.integers",
        [(3,)],
    ),
    "sort": (lambda c, a, v: c.sort(a), "thrust.sort", [(4, 4)]),
    "argsort": (lambda c, a, v: c.argsort(v), "thrust.argsort", [(4,)]),
    "lexsort": (lambda c, a, v: c.lexsort(a), "thrust.lexsort", [(4,)]),
    "sum": (lambda c, a, v: a.sum(), "cub.device_reduce", [()]),
    "sum axis": (lambda c, a, v: a.sum(axis=1), "cub.device_segmented_reduce", [(4,)]),
    "sum keepdims": (lambda c, a, v: a.sum(axis=1, keepdims=True), "cub.device_segmented_reduce", [(4, 1)]),
    "sum strided": (lambda c, a, v: a.sum(axis=0), "launchKernel", [(4,)]),
    "argmax": (lambda c, a, v: a.argmax(), "cub.device_reduce", [()]),
    "max": (lambda c, a, v: a.max(), "cub.device_reduce", [()]),
    "cumsum": (lambda c, a, v: c.cumsum(v), "cub.device_scan", [(4,)]),
    "median": (lambda c, a, v: c.median(a), "thrust.sort", [()]),
}


@pytest.fixture
def accelerated(cupy: Any) -> Any:
    """CuPy with the CUB accelerator on, as a user may set it."""
    core = cupy._core
    before = core.get_routine_accelerators(), core.get_reduction_accelerators()
    core.set_routine_accelerators(["cub"])
    yield cupy
    core.set_routine_accelerators(before[0])
    core.set_reduction_accelerators(before[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_families(accelerated: Any, simulation: Any, family: str) -> None:
    cupy = accelerated
    call, operation, shapes = FAMILIES[family]
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a, v = cupy.asarray(numpy.eye(4, dtype="f4")), cupy.asarray(numpy.ones(4, "f4"))
        before = len(simulation.log)
        result = call(cupy, a, v)
        made = [o for o in simulation.log[before:] if o.name.startswith(operation)]
    assert made, [o.name for o in simulation.log[before:]]
    assert {o.stream for o in made} == {stream.ptr}
    results = [*result] if isinstance(result, tuple) else [result]
    assert [array.shape for array in results] == shapes
    assert all(array.get(stream=stream).shape == array.shape for array in results)


def test_a_product_is_unknown_and_its_factors_are_not(cupy: Any) -> None:
    a = cupy.asarray(numpy.eye(4))
    b = cupy.asarray(numpy.ones((4, 4)))
    product = a @ b
    assert numpy.array_equal(a.get(), numpy.eye(4))
    assert numpy.array_equal(b.get(), numpy.ones((4, 4)))
    assert not product.get().any()


def test_sparse_products(cupy: Any, simulation: Any) -> None:
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    index, pointer = cupy.asarray([0, 1, 2], "i4"), cupy.asarray([0, 1, 2, 3], "i4")
    matrix = sparse.csr_matrix((cupy.ones(3), index, pointer), shape=(3, 3))
    before = len(simulation.log)
    assert (matrix @ cupy.ones(3)).shape == (3,)
    assert (matrix @ cupy.ones((3, 2))).shape == (3, 2)
    assert matrix.toarray().shape == matrix.T.tocsr().shape == (3, 3)
    assert any(o.name.startswith("cusparse.") for o in simulation.log[before:])


@pytest.mark.parametrize(
    ("title", "call"),
    [
        ("cuBLAS", lambda c, a: a @ a),
        ("cuSOLVER", lambda c, a: c.linalg.cholesky(a)),
        ("cuRAND", lambda c, a: c.random.random(100)),
    ],
)
def test_libraries_refuse_a_capture_in_cupys_words(cupy: Any, title: str, call: Any) -> None:
    a = cupy.zeros((4, 4))
    cupy.random.seed(1)
    call(cupy, a)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match=f"calling {title} API during stream capture"):
            call(cupy, a)
        stream.end_capture()


def test_thrust_waits_for_its_stream_and_so_breaks_a_capture(cupy: Any) -> None:
    a = cupy.zeros(8)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        cupy.sort(a)
        stream.begin_capture()
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="StreamCaptureUnsupported"):
            cupy.sort(a)
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Invalidated"):
            stream.end_capture()


def test_nccl_collectives(cupy: Any, simulation: Any) -> None:
    nccl = cupy.cuda.nccl
    communicator = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    a, b = cupy.asarray(numpy.ones(4)), cupy.asarray(numpy.ones(4))
    stream = cupy.cuda.Stream(non_blocking=True)
    communicator.allReduce(a.data.ptr, b.data.ptr, 4, nccl.NCCL_FLOAT64, nccl.NCCL_SUM, stream.ptr)
    last = simulation.log[-1]
    assert (last.name, last.stream, last.pointers) == ("nccl.allReduce", stream.ptr, (a.data.ptr, b.data.ptr))
    stream.synchronize()
    assert a.get().all()
    assert not b.get().any()


# kernel makers -> the launch that must be seen, by the start of its name
KERNELS: dict[str, tuple[Any, str]] = {
    "ufunc": (lambda c, x: c.sin(x), "cupy_sin__"),
    "elementwise": (lambda c, x: c.ElementwiseKernel("T x", "T y", "y = x", "mine")(x), "mine"),
    "reduction": (
        lambda c, x: c.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "fold")(x),
        "fold",
    ),
    "raw": (
        lambda c, x: c.RawKernel('extern "C" __global__ void raw_one(float* y) {}', "raw_one")(
            (2,), (8,), (x,)
        ),
        "raw_one",
    ),
    "module": (
        lambda c, x: c.RawModule(code='extern "C" __global__ void raw_two(const float* y) {}').get_function(
            "raw_two"
        )((2,), (8,), (x,)),
        "raw_two",
    ),
    "template": (
        lambda c, x: c.RawModule(
            code="template <typename T> __global__ void t(T* y) {}", name_expressions=["t<float>"]
        ).get_function("t<float>")((2,), (8,), (x,)),
        "t<float>",
    ),
    "fuse": (lambda c, x: c.fuse(kernel_name="fused")(lambda a: a * 2 + 1)(x), "fused"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_launches_are_logged(cupy: Any, simulation: Any, name: str) -> None:
    make, kernel = KERNELS[name]
    array = cupy.asarray(numpy.ones(8, "f4"))
    before = len(simulation.log)
    make(cupy, array)
    launches = [o for o in simulation.log[before:] if o.name == "launchKernel"]
    found = [o for o in launches if kernel in o.detail["kernel"]]
    assert found, [o.detail["kernel"] for o in launches]
    assert array.data.ptr in found[0].pointers
    assert all(len(found[0].detail[size]) == 3 for size in ("grid", "block"))


def test_a_missing_kernel_is_cudas_error(cupy: Any) -> None:
    module = cupy.RawModule(code='extern "C" __global__ void f(float* y) {}')
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_NOT_FOUND"):
        module.get_function("absent")
