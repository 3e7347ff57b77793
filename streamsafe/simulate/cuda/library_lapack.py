"""What the functions of cuSOLVER compute that CuPy's decompositions and solvers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.kernels import view_at
from streamsafe.simulate.cuda.library_blas import CUDA_TYPES, LETTERS, applied, matrix, of
from streamsafe.simulate.cuda.memory import AddressSpace

LOWER, UPPER = 0, 1


def _factorized(a: Any, pivots: Any) -> int:
    """L and U in place of a matrix, with the rows that were exchanged, counted from 1.

    Returns:
        0, or the number of the first pivot that is 0.
    """
    singular = 0
    for k in range(min(a.shape)):
        row = k + int(numpy.argmax(numpy.abs(a[k:, k])))
        pivots[k] = row + 1
        a[[k, row]] = a[[row, k]]
        if a[k, k] == 0:
            singular = singular or k + 1
            continue
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= numpy.outer(a[k + 1 :, k], a[k, k + 1 :])
    return singular


def _potrf(
    _memory: AddressSpace, name: str, _handle: int, uplo: int, n: int, a: int, lda: int, _work: int, _size: int,
    info: int,
) -> Computation:  # fmt: skip
    target = matrix(a, n, n, lda, LETTERS[name[0]])

    def compute(_before: Any, out: Any, status: Any) -> None:
        half = numpy.tril(out) if uplo == LOWER else numpy.triu(out)
        whole = half + half.conj().T
        numpy.fill_diagonal(whole, half.diagonal().real)
        try:
            lower = numpy.linalg.cholesky(whole)
        except numpy.linalg.LinAlgError:
            status[...] = 1
            return
        kept = numpy.triu(out, 1) if uplo == LOWER else numpy.tril(out, -1)
        out[...] = kept + (lower if uplo == LOWER else lower.conj().T)

    return Computation(compute, (target,), (target, view_at(info, (), "i4")))


def _getrf(
    _memory: AddressSpace, name: str, _handle: int, m: int, n: int, a: int, lda: int, _work: int, pivots: int,
    info: int,
) -> Computation:  # fmt: skip
    target = matrix(a, m, n, lda, LETTERS[name[0]])

    def compute(_before: Any, out: Any, rows: Any, status: Any) -> None:
        status[...] = _factorized(out, rows)

    return Computation(
        compute, (target,), (target, view_at(pivots, (min(m, n),), "i4"), view_at(info, (), "i4"))
    )


def _getrf_batched(
    memory: AddressSpace,
    name: str,
    _handle: int,
    n: int,
    a: int,
    lda: int,
    pivots: int,
    info: int,
    count: int,
) -> Computation:
    """cuBLAS's: of matrices whose addresses are in device memory."""
    t = LETTERS[name[0]]

    def compute(pointers: Any, rows: Any, status: Any) -> None:
        for k in range(count):
            view = matrix(int(pointers[k]), n, n, lda, t)
            if memory.unknown(*view.extent):
                raise ValueError("a matrix of it is unknown")
            status[k] = _factorized(view.array(), rows[k])

    return Computation(
        compute, (view_at(a, (count,), "u8"),), (view_at(pivots, (count, n), "i4"), view_at(info, (count,), "i4"))
    )  # fmt: skip


def _getri_batched(
    memory: AddressSpace, name: str, _handle: int, n: int, a: int, lda: int, pivots: int, c: int, ldc: int, info: int,
    count: int,
) -> Computation:  # fmt: skip
    """cuBLAS's: the inverses of matrices that are factorized."""
    t = LETTERS[name[0]]

    def compute(sources: Any, rows: Any, targets: Any, _status: Any) -> None:
        for k in range(count):
            view = matrix(int(sources[k]), n, n, lda, t)
            if memory.unknown(*view.extent):
                raise ValueError("a matrix of it is unknown")
            inverse = numpy.linalg.inv(_product(view.array(), rows[k]))
            matrix(int(targets[k]), n, n, ldc, t).array()[...] = inverse

    reads = (view_at(a, (count,), "u8"), view_at(pivots, (count, n), "i4"), view_at(c, (count,), "u8"))
    return Computation(compute, reads, (view_at(info, (count,), "i4"),))


def _product(factors: Any, rows: Any) -> Any:
    """The matrix that was factorized."""
    whole = (numpy.tril(factors, -1) + numpy.eye(rows.size, dtype=factors.dtype)) @ numpy.triu(factors)
    for k in reversed(range(rows.size)):
        whole[[k, rows[k] - 1]] = whole[[rows[k] - 1, k]]
    return whole


def _getrs(
    _memory: AddressSpace, name: str, _handle: int, trans: int, n: int, columns: int, a: int, lda: int, pivots: int,
    b: int, ldb: int, _info: int,
) -> Computation:  # fmt: skip
    t = LETTERS[name[0]]
    target = matrix(b, n, columns, ldb, t)

    def compute(factors: Any, rows: Any, _before: Any, out: Any) -> None:
        out[...] = numpy.linalg.solve(applied(_product(factors, rows), trans), out)

    return Computation(compute, (matrix(a, n, n, lda, t), view_at(pivots, (n,), "i4"), target), (target,))


def _geqrf(
    _memory: AddressSpace, name: str, _handle: int, m: int, n: int, a: int, lda: int, tau: int, *_: Any
) -> Computation:
    t = LETTERS[name[0]]
    target = matrix(a, m, n, lda, t)

    def compute(_before: Any, out: Any, factors: Any) -> None:
        reflectors, factors[...] = numpy.linalg.qr(out, mode="raw")
        out[...] = reflectors.T

    return Computation(compute, (target,), (target, view_at(tau, (min(m, n),), t)))


def orthonormal(reflectors: Any, factors: Any, columns: int) -> Any:
    """The orthonormal matrix that reflectors stand for, below the diagonal of a matrix."""
    q = numpy.eye(reflectors.shape[0], columns, dtype=reflectors.dtype)
    for i in reversed(range(factors.size)):
        v = reflectors[i:, i].copy()
        v[0] = 1
        q[i:] -= factors[i] * numpy.outer(v, v.conj() @ q[i:])
    return q


def _orgqr(
    _memory: AddressSpace,
    name: str,
    _handle: int,
    m: int,
    n: int,
    k: int,
    a: int,
    lda: int,
    tau: int,
    *_: Any,
) -> Computation:
    t = LETTERS[name[0]]
    target = matrix(a, m, n, lda, t)

    def compute(_before: Any, factors: Any, out: Any) -> None:
        out[...] = orthonormal(out, factors, n)

    return Computation(compute, (target, view_at(tau, (k,), t)), (target,))


def _gesvd(
    _memory: AddressSpace, name: str, _handle: int, job_u: int, job_vt: int, m: int, n: int, a: int, lda: int,
    s: int, u: int, ldu: int, vt: int, ldvt: int, *_: Any,
) -> Computation | None:  # fmt: skip
    t = LETTERS[name[0]]
    real = {"f4": "f4", "c8": "f4"}.get(t, "f8")
    rank = min(m, n)
    reads, values = matrix(a, m, n, lda, t), view_at(s, (rank,), real)
    if job_u == job_vt == ord("N"):

        def alone(x: Any, out: Any) -> None:
            out[...] = numpy.linalg.svd(x, compute_uv=False)

        return Computation(alone, (reads,), (values,))
    # "O": the vectors take the place of the matrix
    left = reads if job_u == ord("O") else matrix(u, m, m if job_u == ord("A") else rank, ldu, t)
    right = reads if job_vt == ord("O") else matrix(vt, n if job_vt == ord("A") else rank, n, ldvt, t)

    def compute(x: Any, out: Any, u: Any, vt: Any) -> None:
        found, out[...], rows = numpy.linalg.svd(x, full_matrices=ord("A") in (job_u, job_vt))
        u[:, : found.shape[1]], vt[: rows.shape[0]] = found[:, : u.shape[1]], rows[: vt.shape[0]]

    return Computation(compute, (reads,), (values, left, right))


def _eigen(n: int, vectors: int, uplo: int, dtype: str, a: int, lda: int, w: int) -> Computation:
    target, real = matrix(a, n, n, lda, dtype), {"f4": "f4", "c8": "f4"}.get(dtype, "f8")

    def compute(_before: Any, out: Any, values: Any) -> None:
        half: Any = "U" if uplo == UPPER else "L"
        if vectors:
            values[...], out[...] = numpy.linalg.eigh(out, half)
        else:
            values[...] = numpy.linalg.eigvalsh(out, half)

    return Computation(compute, (target,), (target, view_at(w, (n,), real)))


def _syevd(
    _memory: AddressSpace,
    name: str,
    _handle: int,
    vectors: int,
    uplo: int,
    n: int,
    a: int,
    lda: int,
    w: int,
    *_: Any,
) -> Computation:
    return _eigen(n, vectors, uplo, LETTERS[name[0]], a, lda, w)


def _xsyevd(
    _memory: AddressSpace, _name: str, _handle: int, _params: int, vectors: int, uplo: int, n: int, kind: int, a: int,
    lda: int, _kind: int, w: int, *_: Any,
) -> Computation | None:  # fmt: skip
    return _eigen(n, vectors, uplo, CUDA_TYPES[kind], a, lda, w) if kind in CUDA_TYPES else None


LAPACK: dict[str, Callable[..., Computation | None]] = {
    "xsyevd": _xsyevd,
    **of("s d c z", "potrf", _potrf),
    **of("s d c z", "getrf", _getrf),
    **of("s d c z", "getrs", _getrs),
    **of("s d c z", "geqrf", _geqrf),
    **of("s d", "orgqr", _orgqr),
    **of("c z", "ungqr", _orgqr),
    **of("s d c z", "gesvd", _gesvd),
    **of("s d", "syevd", _syevd),
    **of("c z", "heevd", _syevd),
}
"""As ``BLAS`` in :mod:`streamsafe.simulate.cuda.library_blas`."""

BATCHED: dict[str, Callable[..., Computation | None]] = {
    **of("s d c z", "getrfBatched", _getrf_batched),
    **of("s d c z", "getriBatched", _getri_batched),
}
"""Those of cuBLAS."""
