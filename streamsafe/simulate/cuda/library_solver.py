"""``cupyx.cusolver``'s routines: CuPy's compiled module needs the library, so their structure is written out here.

Each allocates what the real one allocates, enqueues one operation and returns arrays of the right shapes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.libraries import Recorder


class Solver:
    """The functions of ``cupyx.cusolver``, as methods.

    Args:
        cupy: CuPy.
        recorder: where calls go.
    """

    def __init__(self, cupy: ModuleType, recorder: Recorder) -> None:
        self._cupy = cupy
        self._recorder = recorder

    def _call(self, name: str, *arrays: Any) -> None:
        if self._recorder.capturing():
            raise NotImplementedError("calling cuSOLVER API during stream capture is currently unsupported")
        self._recorder.call(f"cusolver.{name}", (), [array.data.ptr for array in arrays if array.size])

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
            self._call(name, work, s)
            return s
        u = self._cupy.empty((*batch, m, m if full_matrices else k), a.dtype)
        v = self._cupy.empty((*batch, n, n if full_matrices else k), a.dtype)
        self._call(name, work, s, u, v)
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
        self._call("syevj", v, w)
        w = w.astype(out.char.lower(), copy=False)
        return (w, v.astype(out, copy=False)) if with_eigen_vector else w

    def gesv(self, a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != a.shape[1] or a.shape[0] != b.shape[0]:
            raise ValueError(f"shape mismatch (a:{a.shape}, b:{b.shape}).")
        work, x = a.copy(order="F"), self._cupy.empty_like(b)
        self._call("gesv", work, b.copy(order="F"), x)
        return x

    def gels(self, a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
            raise ValueError(f"shape mismatch (a:{a.shape}, b:{b.shape}).")
        x = self._cupy.empty((a.shape[1], *b.shape[1:]), a.dtype)
        self._call("gels", a.copy(order="F"), b.copy(order="F"), x)
        return x

    def csrlsvqr(self, A: Any, b: Any, tol: float = 0, reorder: int = 1) -> Any:
        x = self._cupy.empty(b.shape, A.dtype)
        self._call("csrlsvqr", x)
        return x

    def _geqrf_orgqr_batched(self, a: Any, mode: str) -> Any:
        dtype, out = self._cupy.linalg._util.linalg_common_type(a)
        batch, m, n = a.shape
        k = min(m, n)
        work = a.swapaxes(-2, -1).astype(dtype, order="C", copy=True)
        tau = self._cupy.empty((batch, k), dtype)
        self._call("geqrf", work, tau)
        if mode == "raw":
            return work.astype(out, copy=False), tau.astype(out, copy=False)
        rows = m if mode == "complete" and m > n else k
        r = self._cupy.empty((batch, rows, n), out)
        if mode == "r":
            return r
        q = self._cupy.empty((batch, m, rows), out)
        self._call("orgqr", q, r)
        return q, r


def make_solver(name: str, cupy: ModuleType, recorder: Recorder) -> ModuleType:
    """Return a module that stands in for ``cupyx.cusolver`` or, where that is a wrapper, ``cupyx._cusolver``."""
    module = ModuleType(name, "Simulated cuSOLVER routines: logged, and computing nothing.")
    solver = Solver(cupy, recorder)
    for function in dir(solver):
        if not function.startswith(("__", "_call", "_cupy", "_recorder", "_svd")):
            setattr(module, function, getattr(solver, function))
    for table in ("_available_compute_capability", "_available_cuda_version", "_available_hip_version"):
        setattr(module, table, {})
    return module
