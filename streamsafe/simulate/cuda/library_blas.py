"""What the functions of cuBLAS compute that CuPy's products, norms and sums use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy

from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.kernels import View, view_at
from streamsafe.simulate.cuda.memory import AddressSpace, Kind

LETTERS = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
CUDA_TYPES = {0: "f4", 1: "f8", 2: "f2", 4: "c8", 5: "c16"}  # cudaDataType
_N, _T, _C = range(3)
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


def _scalar(memory: AddressSpace, pointer: int, dtype: Any) -> Callable[[], Any]:
    """A factor: on the host it is read at the call, on the device when the call runs."""
    view = view_at(pointer, (), dtype)
    block = memory.find(pointer)
    if block is not None and block.kind is Kind.DEVICE:
        return lambda: view.array()[()]
    value = view.array()[()].copy()
    return lambda: value


def _factor(dtype: str) -> str:
    return "f4" if dtype == "f2" else dtype


def matrix(pointer: int, rows: int, columns: int, leading: int, dtype: str) -> View:
    """A matrix whose columns follow one another."""
    size = numpy.dtype(dtype).itemsize
    return View(pointer, (rows, columns), (size, leading * size), numpy.dtype(dtype))


def _stored(pointer: int, operation: int, rows: int, columns: int, leading: int, dtype: str) -> View:
    """The matrix in memory whose product takes it as ``rows`` by ``columns``."""
    if operation != _N:
        rows, columns = columns, rows
    return matrix(pointer, rows, columns, leading, dtype)


def applied(array: Any, operation: int) -> Any:
    """A matrix, its transpose, or its conjugate transpose."""
    array = array if operation == _N else numpy.swapaxes(array, -1, -2)
    return array.conj() if operation == _C else array


def _vector(pointer: int, size: int, step: int, dtype: str) -> View:
    width = numpy.dtype(dtype).itemsize
    start = pointer if step >= 0 else pointer + (1 - size) * step * width
    return View(start, (size,), (step * width,), numpy.dtype(dtype))


def _sum(product: Any, alpha: Any, beta: Any, out: Any) -> None:
    # with a factor of 0 the old contents do not matter, not even a NaN
    out[...] = alpha * product if beta == 0 else alpha * product + beta * out


def _wide(array: Any) -> Any:
    """Half precision is summed in single precision."""
    return array.astype("f4") if array.dtype.char == "e" else array


def _product(
    memory: AddressSpace, operations: tuple[int, int], alpha: int, beta: int,
    a: View, b: View, c: View,
) -> Computation:  # fmt: skip
    assert c.dtype is not None
    dtype = _factor(c.dtype.str[1:])
    first, second = _scalar(memory, alpha, dtype), _scalar(memory, beta, dtype)

    def compute(x: Any, y: Any, *outputs: Any) -> None:
        product = applied(_wide(x), operations[0]) @ applied(_wide(y), operations[1])
        _sum(product, first(), second(), outputs[-1])

    return Computation(compute, (a, b), (c,))


def _batched(view: View, count: int, stride: int) -> View:
    assert view.dtype is not None
    return View(view.pointer, (count, *view.shape), (stride * view.dtype.itemsize, *view.strides), view.dtype)


def _gemm(
    memory: AddressSpace, name: str, _handle: int, ta: int, tb: int, m: int, n: int, k: int,
    alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int, ldc: int,
) -> Computation:  # fmt: skip
    t = LETTERS[name[0]]
    views = _stored(a, ta, m, k, lda, t), _stored(b, tb, k, n, ldb, t), matrix(c, m, n, ldc, t)
    return _product(memory, (ta, tb), alpha, beta, *views)


def _gemm_ex(
    memory: AddressSpace, _name: str, _handle: int, ta: int, tb: int, m: int, n: int, k: int,
    alpha: int, a: int, at: int, lda: int, b: int, bt: int, ldb: int, beta: int, c: int, ct: int, ldc: int, *_: Any,
) -> Computation | None:  # fmt: skip
    if not {at, bt, ct} <= CUDA_TYPES.keys():
        return None
    x, y, z = CUDA_TYPES[at], CUDA_TYPES[bt], CUDA_TYPES[ct]
    views = _stored(a, ta, m, k, lda, x), _stored(b, tb, k, n, ldb, y), matrix(c, m, n, ldc, z)
    return _product(memory, (ta, tb), alpha, beta, *views)


def _gemm_strided(
    memory: AddressSpace, name: str, handle: int, ta: int, tb: int, m: int, n: int, k: int,
    alpha: int, a: int, lda: int, sa: int, b: int, ldb: int, sb: int, beta: int, c: int, ldc: int, sc: int, count: int,
) -> Computation | None:  # fmt: skip
    kind = {letter: number for number, letter in CUDA_TYPES.items()}[LETTERS[name[0]]]
    return _gemm_strided_ex(
        memory, name, handle, ta, tb, m, n, k, alpha, a, kind, lda, sa, b, kind, ldb, sb, beta, c, kind, ldc, sc, count
    )  # fmt: skip


def _gemm_strided_ex(
    memory: AddressSpace, _name: str, _handle: int, ta: int, tb: int, m: int, n: int, k: int,
    alpha: int, a: int, at: int, lda: int, sa: int, b: int, bt: int, ldb: int, sb: int,
    beta: int, c: int, ct: int, ldc: int, sc: int, count: int, *_: Any,
) -> Computation | None:  # fmt: skip
    if not {at, bt, ct} <= CUDA_TYPES.keys():
        return None
    x, y, z = CUDA_TYPES[at], CUDA_TYPES[bt], CUDA_TYPES[ct]
    views = (
        _batched(_stored(a, ta, m, k, lda, x), count, sa),
        _batched(_stored(b, tb, k, n, ldb, y), count, sb),
        _batched(matrix(c, m, n, ldc, z), count, sc),
    )
    return _product(memory, (ta, tb), alpha, beta, *views)


def _gemm_batched(
    memory: AddressSpace, name: str, _handle: int, ta: int, tb: int, m: int, n: int, k: int,
    alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int, ldc: int, count: int,
) -> Computation:  # fmt: skip
    t = LETTERS[name[0]]
    first, second = _scalar(memory, alpha, t), _scalar(memory, beta, t)

    def compute(*pointers: Any) -> None:
        for x, y, z in zip(*pointers, strict=True):
            left, right = _stored(int(x), ta, m, k, lda, t), _stored(int(y), tb, k, n, ldb, t)
            if memory.unknown(*left.extent) or memory.unknown(*right.extent):
                raise ValueError("a matrix of it is unknown")
            product = applied(left.array(), ta) @ applied(right.array(), tb)
            _sum(product, first(), second(), matrix(int(z), m, n, ldc, t).array())

    return Computation(compute, [view_at(each, (count,), "u8") for each in (a, b, c)], ())


def _gemv(
    memory: AddressSpace, name: str, _handle: int, trans: int, m: int, n: int, alpha: int, a: int, lda: int,
    x: int, incx: int, beta: int, y: int, incy: int,
) -> Computation:  # fmt: skip
    t = LETTERS[name[0]]
    columns, rows = (n, m) if trans == _N else (m, n)
    first, second = _scalar(memory, alpha, t), _scalar(memory, beta, t)

    def compute(a: Any, vector: Any, out: Any) -> None:
        _sum(applied(a, trans) @ vector, first(), second(), out)

    reads = (matrix(a, m, n, lda, t), _vector(x, columns, incx, t))
    return Computation(compute, reads, (_vector(y, rows, incy, t),))


def _dot(
    _memory: AddressSpace, name: str, _handle: int, n: int, x: int, incx: int, y: int, incy: int, result: int
) -> Computation:
    t = LETTERS[name[0]]

    def compute(a: Any, b: Any, out: Any) -> None:
        out[...] = numpy.dot(a.conj() if name.endswith("dotc") else a, b)

    return Computation(compute, (_vector(x, n, incx, t), _vector(y, n, incy, t)), (view_at(result, (), t),))


def _to_real(function: Callable[[Any], Any]) -> Callable[..., Computation]:
    def make(
        _memory: AddressSpace, name: str, _handle: int, n: int, x: int, incx: int, result: int
    ) -> Computation:
        letter = name[1] if name[:2] in ("sc", "dz") else name[0]
        real = {"s": "f4", "c": "f4", "d": "f8", "z": "f8"}[letter]

        def compute(a: Any, out: Any) -> None:
            out[...] = function(a)

        return Computation(compute, (_vector(x, n, incx, LETTERS[letter]),), (view_at(result, (), real),))

    return make


def _asum(a: Any) -> Any:
    return numpy.abs(a.real).sum() + (numpy.abs(a.imag).sum() if a.dtype.kind == "c" else 0)


def _largest(choose: Callable[[Any], Any]) -> Callable[..., Computation]:
    def make(
        _memory: AddressSpace, name: str, _handle: int, n: int, x: int, incx: int, result: int
    ) -> Computation:
        def compute(a: Any, out: Any) -> None:
            size = numpy.abs(a.real) + (numpy.abs(a.imag) if a.dtype.kind == "c" else 0)
            out[...] = choose(size) + 1  # counted from 1

        return Computation(compute, (_vector(x, n, incx, LETTERS[name[1]]),), (view_at(result, (), "i4"),))

    return make


def _axpy(
    memory: AddressSpace, name: str, _handle: int, n: int, alpha: int, x: int, incx: int, y: int, incy: int
) -> Computation:
    t = LETTERS[name[0]]
    factor, target = _scalar(memory, alpha, t), _vector(y, n, incy, t)

    def compute(a: Any, _before: Any, out: Any) -> None:
        out[...] = factor() * a + out

    return Computation(compute, (_vector(x, n, incx, t), target), (target,))


def _scal(
    memory: AddressSpace, name: str, _handle: int, n: int, alpha: int, x: int, incx: int
) -> Computation:
    t = LETTERS[name[0]]
    factor, target = _scalar(memory, alpha, t), _vector(x, n, incx, t)

    def compute(_before: Any, out: Any) -> None:
        out[...] = factor() * out

    return Computation(compute, (target,), (target,))


def _ger(
    memory: AddressSpace, name: str, _handle: int, m: int, n: int, alpha: int, x: int, incx: int, y: int, incy: int,
    a: int, lda: int,
) -> Computation:  # fmt: skip
    t = LETTERS[name[0]]
    factor, target = _scalar(memory, alpha, t), matrix(a, m, n, lda, t)

    def compute(left: Any, right: Any, _before: Any, out: Any) -> None:
        out[...] = factor() * numpy.outer(left, right.conj() if name.endswith("c") else right) + out

    return Computation(compute, (_vector(x, m, incx, t), _vector(y, n, incy, t), target), (target,))


def _geam(
    memory: AddressSpace, name: str, _handle: int, ta: int, tb: int, m: int, n: int, alpha: int, a: int, lda: int,
    beta: int, b: int, ldb: int, c: int, ldc: int,
) -> Computation:  # fmt: skip
    t = LETTERS[name[0]]
    first, second = _scalar(memory, alpha, t), _scalar(memory, beta, t)

    def compute(x: Any, y: Any, out: Any) -> None:
        out[...] = first() * applied(x, ta) + second() * applied(y, tb)

    reads = (_stored(a, ta, m, n, lda, t), _stored(b, tb, m, n, ldb, t))
    return Computation(compute, reads, (matrix(c, m, n, ldc, t),))


def of(letters: str, name: str, function: Callable[..., Computation | None]) -> dict[str, Any]:
    """One function under the names of several types."""
    return {f"{letter}{name}": function for letter in letters.split()}


BLAS: dict[str, Callable[..., Computation | None]] = {
    "gemmEx": _gemm_ex,
    "sgemmEx": _gemm_ex,
    "gemmStridedBatchedEx": _gemm_strided_ex,
    **of("s d c z", "gemm", _gemm),
    **of("s d c z", "gemmStridedBatched", _gemm_strided),
    **of("s d c z", "gemmBatched", _gemm_batched),
    **of("s d c z", "gemv", _gemv),
    **of("s d", "dot", _dot),
    **of("c z", "dotu", _dot),
    **of("c z", "dotc", _dot),
    **of("s d sc dz", "nrm2", _to_real(numpy.linalg.norm)),
    **of("s d sc dz", "asum", _to_real(_asum)),
    **of("is id ic iz", "amax", _largest(numpy.argmax)),
    **of("is id ic iz", "amin", _largest(numpy.argmin)),
    **of("s d c z", "axpy", _axpy),
    **of("s d c z", "scal", _scal),
    **of("s d", "ger", _ger),
    **of("c z", "geru", _ger),
    **of("c z", "gerc", _ger),
    **of("s d c z", "geam", _geam),
}
"""By name: a function of the memory, the name and the arguments of a call, which says what the call computes."""
