"""CUB, Thrust and the random ``Generator``: compiled into CuPy with a CUDA runtime of their own.

They are replaced where CuPy looks them up as attributes, so a wrapper put there later sees the same calls.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy

from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.kernels import view_at, view_of
from streamsafe.simulate.cuda.libraries import Recorder
from streamsafe.simulate.cuda.library_random import generator, seed

_DTYPES = "bBhHiIlLqQfdFD"
_SUM_DTYPES = "lLqQfdFD"


def replace_cub(cupy: ModuleType, recorder: Recorder) -> None:
    """Replace the entry points of ``cupy.cuda.cub``: same arguments, results by NumPy."""
    cub = cupy.cuda.cub
    internal_empty = cupy.empty
    names = ("SUM", "MIN", "MAX", "ARGMIN", "ARGMAX", "PROD")
    reductions = {getattr(cub, f"CUPY_CUB_{name}"): name.lower() for name in names}

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
            if not reduced:
                return None
            inner = kept[-1] < min(reduced) if arr.flags.c_contiguous else kept[0] > max(reduced)
            if not inner or op in (cub.CUPY_CUB_ARGMIN, cub.CUPY_CUB_ARGMAX):
                return None
        shape = tuple(
            1 if a in reduced else n for a, n in enumerate(arr.shape) if keepdims or a not in reduced
        )
        kind = "q" if op in (cub.CUPY_CUB_ARGMIN, cub.CUPY_CUB_ARGMAX) else arr.dtype
        result = internal_empty(shape, kind)
        reduce = getattr(numpy, reductions[op])
        along = tuple(sorted(reduced)) if kept else None

        def compute(array: Any, out: Any) -> None:
            out[...] = reduce(array, axis=along).reshape(shape)

        recorder.call(
            "cub.device_segmented_reduce" if kept else "cub.device_reduce",
            [arr.data.ptr],
            [result.data.ptr],
            computation=Computation(compute, [view_of(arr)], [view_of(result)]),
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
            accumulate = numpy.cumsum if op == cub.CUPY_CUB_CUMSUM else numpy.cumprod

            def compute(array: Any, out: Any) -> None:
                accumulate(array, dtype=array.dtype, out=out)

            flat = view_at(arr.data.ptr, (arr.size,), arr.dtype)
            recorder.call(
                "cub.device_scan", [], [arr.data.ptr], computation=Computation(compute, [flat], [flat])
            )
        return arr

    def cub_histogram(x: Any, y: Any, bins: Any) -> Any:
        reads = [x.data.ptr] + ([bins.data.ptr] if hasattr(bins, "data") else [])
        edges = [view_of(bins)] if hasattr(bins, "data") else []

        def compute(values: Any, *others: Any) -> None:
            bounds = others[0] if edges else numpy.arange(bins)
            places = numpy.searchsorted(bounds, values.ravel(), "right") - 1
            places = places[(places >= 0) & (places < bounds.size - 1)]
            others[-1][...] = numpy.bincount(places, minlength=bounds.size - 1)

        computation = Computation(compute, [view_of(x), *edges], [view_of(y)])
        recorder.call("cub.device_histogram", reads, [y.data.ptr], computation=computation)
        return y

    def device_csrmv(
        n_rows: int, n_cols: int, nnz: int, values: Any, indptr: Any, indices: Any, x: Any
    ) -> Any:
        y = internal_empty((n_rows,), values.dtype)
        reads = [a.data.ptr for a in (values, indptr, indices, x)]

        def compute(data: Any, rows: Any, columns: Any, vector: Any, out: Any) -> None:
            products = numpy.append(data * vector[columns], data.dtype.type(0))
            sums = numpy.add.reduceat(products, rows[:-1])
            out[...] = numpy.where(rows[:-1] == rows[1:], data.dtype.type(0), sums)

        views = [view_of(a) for a in (values, indptr, indices, x)]
        computation = Computation(compute, views, [view_of(y)])
        recorder.call("cub.device_csrmv", reads, [y.data.ptr], computation=computation)
        return y

    _swap(cub, cub_reduction, cub_scan, cub_histogram)
    if hasattr(cub, "device_csrmv"):
        _swap(cub, device_csrmv)


def replace_thrust(cupy: ModuleType, recorder: Recorder) -> None:
    """Replace the entry points of ``cupy.cuda.thrust``. They wait for their stream, as Thrust does (cupy#9126)."""

    def sort(dtype: Any, data_start: int, keys_start: int, shape: Any) -> None:
        writes = [pointer for pointer in (data_start, keys_start) if pointer]
        data = view_at(data_start, shape, dtype)

        def compute(array: Any, out: Any) -> None:
            array.sort(axis=-1)

        computation = Computation(compute, [data], [data])
        recorder.call("thrust.sort", [], writes, synchronizes=True, computation=computation)

    def lexsort(dtype: Any, idx_start: int, keys_start: int, k: int, n: int) -> None:
        def compute(keys: Any, out: Any) -> None:
            out[...] = numpy.lexsort(keys)

        computation = Computation(
            compute, [view_at(keys_start, (k, n), dtype)], [view_at(idx_start, (n,), "u8")]
        )
        recorder.call("thrust.lexsort", [keys_start], [idx_start], synchronizes=True, computation=computation)

    def argsort(dtype: Any, idx_start: int, data_start: int, keys_start: int, shape: Any) -> None:
        writes = [pointer for pointer in (idx_start, data_start, keys_start) if pointer]
        data, places = view_at(data_start, shape, dtype), view_at(idx_start, shape, "u8")

        def compute(array: Any, out: Any, _data: Any) -> None:
            out[...] = numpy.argsort(array, axis=-1, kind="stable")
            array.sort(axis=-1)

        computation = Computation(compute, [data], [places, data])
        recorder.call("thrust.argsort", [], writes, synchronizes=True, computation=computation)

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
    bits._cuRANDGenerator.random_raw = _raw(bits._cuRANDGenerator.random_raw, recorder)


def _logged(name: str, method: Callable[..., Any], recorder: Recorder, array: type) -> Callable[..., Any]:
    @functools.wraps(method)
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        if isinstance(result, array):
            state: int = self.bit_generator.state()
            given = inspect.signature(method).bind(self, *args, **kwargs)
            given.apply_defaults()
            words = {word: value for word, value in given.arguments.items() if word not in ("self", "out")}
            computation = _drawn(name, state, words, result, array)
            recorder.call(
                f"curand.Generator.{name}", [], [state, result.data.ptr],  # type: ignore[attr-defined]
                computation=computation,
            )  # fmt: skip
        return result

    return draw


_TYPED = ("integers", "random", "standard_exponential", "standard_gamma", "standard_normal")
"""Methods of NumPy's generator that take a dtype."""


def _drawn(name: str, state: int, words: dict[str, Any], result: Any, array: type) -> Computation:
    arrays = {word: value for word, value in words.items() if isinstance(value, array)}
    rest = {word: value for word, value in words.items() if word not in arrays}
    if rest.get("size") is None:
        rest["size"] = result.shape
    random = generator(state)
    take_dtype = rest.pop("dtype", None) is not None and name in _TYPED

    def compute(*given: Any) -> None:
        drawn = dict(rest, **dict(zip(arrays, given[:-1], strict=True)))
        if take_dtype:
            drawn["dtype"] = given[-1].dtype
        given[-1][...] = getattr(random, name)(**drawn)

    return Computation(compute, [view_of(each) for each in arrays.values()], [view_of(result)])


def _seeded(init: Callable[..., None], recorder: Recorder) -> Callable[..., None]:
    @functools.wraps(init)
    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        state = self.state()
        seed(state, int(self._seed))
        recorder.call("curand.init_state", [], [state], computation=Computation(lambda: None, (), ()))

    return start


def _raw(method: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(method)
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        random = generator(self.state())

        def compute(out: Any) -> None:
            out[...] = random.integers(0, 1 << 32, out.shape, "u4").view("i4")

        if result is not None:
            computation = Computation(compute, (), [view_of(result)])
            recorder.call("curand.random_raw", [], [self.state(), result.data.ptr], computation=computation)
        return result

    return draw
