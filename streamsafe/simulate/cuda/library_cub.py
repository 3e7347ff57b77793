"""CUB, Thrust and the random ``Generator``: compiled into CuPy with a CUDA runtime of their own.

They are replaced where CuPy looks them up as attributes, so a wrapper put there later sees the same calls.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from streamsafe.simulate.cuda.libraries import Recorder

_DTYPES = "bBhHiIlLqQfdFD"
_SUM_DTYPES = "lLqQfdFD"
_SUM, _ARGMIN, _ARGMAX, _PROD = 0, 3, 4, 7


def replace_cub(cupy: ModuleType, recorder: Recorder) -> None:
    """Replace the entry points of ``cupy.cuda.cub``: same arguments, same results' shapes, nothing computed."""
    cub = cupy.cuda.cub
    internal_empty = cupy.empty

    def reducible(array: Any, op: int, dtype: Any) -> bool:
        wanted = array.dtype if dtype is None else cupy.dtype(dtype)
        if op in (cub.CUPY_CUB_SUM, cub.CUPY_CUB_PROD):
            return bool(array.dtype.char in _SUM_DTYPES and wanted == array.dtype)
        if op in (cub.CUPY_CUB_ARGMIN, cub.CUPY_CUB_ARGMAX):
            return bool(array.dtype.char in _DTYPES and (dtype is None or wanted.char in "lq"))
        return bool(array.dtype.char in _DTYPES and wanted == array.dtype)

    def cub_reduction(
        arr: Any, op: int, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        if (
            arr.size == 0
            or not (arr.flags.c_contiguous or arr.flags.f_contiguous)
            or not reducible(arr, op, dtype)
        ):
            return None
        axes = tuple(range(arr.ndim)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        reduced = {a % arr.ndim for a in axes} if arr.ndim else set()
        kept = [a for a in range(arr.ndim) if a not in reduced]
        if kept:
            # Segmented reduction: only along the axes that are contiguous in memory, and not for arg-reductions.
            inner = kept[-1] < min(reduced) if arr.flags.c_contiguous else kept[0] > max(reduced)
            if not reduced or not inner or op in (cub.CUPY_CUB_ARGMIN, cub.CUPY_CUB_ARGMAX):
                return None
        shape = tuple(
            1 if a in reduced else n for a, n in enumerate(arr.shape) if keepdims or a not in reduced
        )
        kind = "q" if op in (cub.CUPY_CUB_ARGMIN, cub.CUPY_CUB_ARGMAX) else arr.dtype
        result = internal_empty(shape, kind)
        recorder.call(
            "cub.device_segmented_reduce" if kept else "cub.device_reduce", [arr.data.ptr], [result.data.ptr]
        )
        if out is None:
            return result
        if out.shape != shape:
            raise ValueError("output array has the wrong shape")
        out[...] = result
        return out

    def cub_scan(arr: Any, op: int) -> Any:
        if arr.dtype.char not in _DTYPES or not arr.flags.c_contiguous:
            return None
        if arr.size:
            recorder.call("cub.device_scan", [], [arr.data.ptr])
        return arr

    def cub_histogram(x: Any, y: Any, bins: Any) -> Any:
        reads = [x.data.ptr] + ([bins.data.ptr] if hasattr(bins, "data") else [])
        recorder.call("cub.device_histogram", reads, [y.data.ptr])
        return y

    def device_csrmv(
        n_rows: int, n_cols: int, nnz: int, values: Any, indptr: Any, indices: Any, x: Any
    ) -> Any:
        y = internal_empty((n_rows,), values.dtype)
        reads = [a.data.ptr for a in (values, indptr, indices, x)]
        recorder.call("cub.device_csrmv", reads, [y.data.ptr])
        return y

    _swap(cub, cub_reduction, cub_scan, cub_histogram)
    if hasattr(cub, "device_csrmv"):
        _swap(cub, device_csrmv)


def replace_thrust(cupy: ModuleType, recorder: Recorder) -> None:
    """Replace the entry points of ``cupy.cuda.thrust``. They wait for their stream, as Thrust does (cupy#9126)."""

    def sort(dtype: Any, data_start: int, keys_start: int, shape: Any) -> None:
        writes = [pointer for pointer in (data_start, keys_start) if pointer]
        recorder.call("thrust.sort", [], writes, synchronizes=True)

    def lexsort(dtype: Any, idx_start: int, keys_start: int, k: int, n: int) -> None:
        recorder.call("thrust.lexsort", [keys_start], [idx_start], synchronizes=True)

    def argsort(dtype: Any, idx_start: int, data_start: int, keys_start: int, shape: Any) -> None:
        writes = [pointer for pointer in (idx_start, data_start, keys_start) if pointer]
        recorder.call("thrust.argsort", [], writes, synchronizes=True)

    _swap(cupy.cuda.thrust, sort, lexsort, argsort)


def _swap(module: ModuleType, *functions: Callable[..., Any]) -> None:
    for function in functions:
        function.__module__ = module.__name__
        function.__qualname__ = function.__name__
        setattr(module, function.__name__, function)


def replace_generators(cupy: ModuleType, recorder: Recorder) -> None:
    """Log the kernels of the random ``Generator`` and of its bit generators, which fail silently without a GPU."""
    api = importlib.import_module("cupy.random._generator_api")
    for name, method in list(vars(api.Generator).items()):
        if callable(method) and not name.startswith("_"):
            setattr(api.Generator, name, _logged(name, method, recorder, cupy.ndarray))
    bits = importlib.import_module("cupy.random._bit_generator")
    bits._cuRANDGenerator.__init__ = _seeded(bits._cuRANDGenerator.__init__, recorder)


def _logged(name: str, method: Callable[..., Any], recorder: Recorder, array: type) -> Callable[..., Any]:
    @functools.wraps(method)
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        if isinstance(result, array):
            state = self.bit_generator.state()
            recorder.call(f"curand.Generator.{name}", [], [state, result.data.ptr])  # type: ignore[attr-defined]
        return result

    return draw


def _seeded(init: Callable[..., None], recorder: Recorder) -> Callable[..., None]:
    @functools.wraps(init)
    def seed(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        recorder.call("curand.init_state", [], [self.state()])

    return seed
