"""``cupyx.cusolver``'s routines: CuPy's compiled module needs the library, so their structure is written out here.

Each allocates what the real one allocates, enqueues one operation and returns arrays of the right shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy

from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.kernels import view_of
from streamsafe.simulate.cuda.libraries import Recorder
from streamsafe.simulate.cuda.library_lapack import orthonormal


class Solver:
    """The functions of ``cupyx.cusolver``, as methods.

    Args:
        cupy: CuPy.
        recorder: where calls go.
    """

    def __init__(self, cupy: ModuleType, recorder: Recorder) -> None:
        self._cupy = cupy
        self._recorder = recorder

    def _call(self, name: str, *arrays: Any, computation: Computation) -> None:
        if self._recorder.capturing():
            raise NotImplementedError("calling cuSOLVER API during stream capture is currently unsupported")
        pointers = [array.data.ptr for array in arrays if array.size]
        self._recorder.call(f"cusolver.{name}", (), pointers, computation=computation)

    def check_availability(self, name: str) -> bool:
        return True

    def gesvdj(
        self, a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False
    ) -> Any:
        return self._svd("gesvdj", a, full_matrices, compute_uv)

    def _gesvdj_batched(self, a: Any, full_matrices: bool, compute_uv: bool, overwrite_a: bool) -> Any:
        return self._svd("gesvdjBatched", a, full_matrices, compute_uv)

    def gesvda(self, a: Any, compute_uv: bool = True) -> Any:
        return self._svd("gesvdaStridedBatched", a, False, compute_uv)

    def _svd(self, name: str, a: Any, full_matrices: bool, compute_uv: bool) -> Any:
        """Return u, s and v (not its transpose), as gesvdj does."""
        *batch, m, n = a.shape
        k = min(m, n)
        work = self._cupy.array(a, order="C", copy=True)
        s = self._cupy.empty((*batch, k), a.dtype.char.lower())
        if not compute_uv:

            def values_only(x: Any, out: Any) -> None:
                out[...] = numpy.linalg.svd(x, compute_uv=False)

            self._call(name, work, s, computation=_computed(values_only, [work], [s]))
            return s
        u = self._cupy.empty((*batch, m, m if full_matrices else k), a.dtype)
        v = self._cupy.empty((*batch, n, n if full_matrices else k), a.dtype)

        def compute(x: Any, values: Any, left: Any, right: Any) -> None:
            left[...], values[...], vt = numpy.linalg.svd(x, full_matrices=full_matrices)
            right[...] = vt.swapaxes(-2, -1).conj()

        self._call(name, work, s, u, v, computation=_computed(compute, [work], [s, u, v]))
        return u, s, v

    def _gesvd_batched(
        self, a: Any, a_dtype: str, full_matrices: bool, compute_uv: bool, overwrite_a: bool
    ) -> Any:
        result = self._svd("gesvd", a.astype(a_dtype), full_matrices, compute_uv)
        if not compute_uv:
            return result
        u, s, v = result
        return u, s, v.swapaxes(-2, -1)

    def syevj(self, a: Any, UPLO: str = "L", with_eigen_vector: bool = True) -> Any:
        if UPLO not in ("L", "U"):
            raise ValueError("UPLO argument must be 'L' or 'U'")
        return self._syevj_batched(a, UPLO, with_eigen_vector)

    def _syevj_batched(self, a: Any, UPLO: str, with_eigen_vector: bool) -> Any:
        dtype, out = self._cupy.linalg._util.linalg_common_type(a, reject_float16=False)
        v = self._cupy.array(a, dtype=dtype, order="C", copy=True)
        w = self._cupy.empty(a.shape[:-1], dtype.char.lower())

        half: Any = UPLO

        def compute(x: Any, values: Any, vectors: Any) -> None:
            values[...], vectors[...] = numpy.linalg.eigh(x, half)

        self._call("syevj", v, w, computation=_computed(compute, [v], [w, v]))
        w = w.astype(out.char.lower(), copy=False)
        return (w, v.astype(out, copy=False)) if with_eigen_vector else w

    def gesv(self, a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != a.shape[1] or a.shape[0] != b.shape[0]:
            raise ValueError(f"shape mismatch (a:{a.shape}, b:{b.shape}).")
        work, x = a.copy(order="F"), self._cupy.empty_like(b)

        def compute(matrix: Any, right: Any, out: Any) -> None:
            out[...] = numpy.linalg.solve(matrix, right)

        right = b.copy(order="F")
        self._call("gesv", work, right, x, computation=_computed(compute, [work, right], [x]))
        return x

    def gels(self, a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
            raise ValueError(f"shape mismatch (a:{a.shape}, b:{b.shape}).")
        x = self._cupy.empty((a.shape[1], *b.shape[1:]), a.dtype)

        def compute(matrix: Any, right: Any, out: Any) -> None:
            out[...] = numpy.linalg.lstsq(matrix, right, rcond=None)[0]

        left, right = a.copy(order="F"), b.copy(order="F")
        self._call("gels", left, right, x, computation=_computed(compute, [left, right], [x]))
        return x

    def csrlsvqr(self, A: Any, b: Any, tol: float = 0, reorder: int = 1) -> Any:
        x = self._cupy.empty(b.shape, A.dtype)

        def compute(data: Any, columns: Any, rows: Any, right: Any, out: Any) -> None:
            whole = numpy.zeros(A.shape, data.dtype)
            whole[numpy.repeat(numpy.arange(A.shape[0]), numpy.diff(rows)), columns] = data
            out[...] = numpy.linalg.solve(whole, right)

        self._call("csrlsvqr", x, computation=_computed(compute, [A.data, A.indices, A.indptr, b], [x]))
        return x

    def _geqrf_orgqr_batched(self, a: Any, mode: str) -> Any:
        dtype, out = self._cupy.linalg._util.linalg_common_type(a)
        batch, m, n = a.shape
        k = min(m, n)
        work = a.swapaxes(-2, -1).astype(dtype, order="C", copy=True)
        tau = self._cupy.empty((batch, k), dtype)

        def factorize(x: Any, _work: Any, factors: Any, *uppers: Any) -> None:
            for k in range(batch):
                x[k], factors[k] = numpy.linalg.qr(x[k].T, mode="raw")
                for upper in uppers:
                    upper[k] = numpy.triu(x[k].T)[: upper.shape[1]]

        def multiply(reflectors: Any, factors: Any, orthogonal: Any) -> None:
            for k in range(batch):
                orthogonal[k] = orthonormal(reflectors[k].T, factors[k], orthogonal.shape[2])

        if mode == "raw":
            self._call("geqrf", work, tau, computation=_computed(factorize, [work], [work, tau]))
            return work.astype(out, copy=False), tau.astype(out, copy=False)
        rows = m if mode == "complete" and m > n else k
        r = self._cupy.empty((batch, rows, n), out)
        self._call("geqrf", work, tau, computation=_computed(factorize, [work], [work, tau, r]))
        if mode == "r":
            return r
        q = self._cupy.empty((batch, m, rows), out)
        self._call("orgqr", q, r, computation=_computed(multiply, [work, tau], [q]))
        return q, r


def _computed(function: Callable[..., object], reads: Sequence[Any], writes: Sequence[Any]) -> Computation:
    return Computation(function, [view_of(each) for each in reads], [view_of(each) for each in writes])


def make_solver(name: str, cupy: ModuleType, recorder: Recorder) -> ModuleType:
    """Return a module that stands in for ``cupyx.cusolver`` or, where that is a wrapper, ``cupyx._cusolver``."""
    module = ModuleType(name, "Simulated cuSOLVER routines, by NumPy.")
    solver = Solver(cupy, recorder)
    for function in dir(solver):
        if not function.startswith(("__", "_call", "_cupy", "_recorder", "_svd")):
            setattr(module, function, getattr(solver, function))
    for table in ("_available_compute_capability", "_available_cuda_version", "_available_hip_version"):
        setattr(module, table, {})
    return module
