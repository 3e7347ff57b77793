"""cuFFT: ``cupy.cuda.cufft`` without the library. Plans know their shapes; executing one is an operation."""

from __future__ import annotations

import math
import threading
from types import ModuleType
from typing import Any

import numpy

from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.errors import SimulationLimit
from streamsafe.simulate.cuda.kernels import view_of
from streamsafe.simulate.cuda.libraries import WORKSPACE_BYTES, Recorder

_CONSTANTS = {
    "CUFFT_R2C": 0x2A,
    "CUFFT_C2R": 0x2C,
    "CUFFT_C2C": 0x29,
    "CUFFT_D2Z": 0x6A,
    "CUFFT_Z2D": 0x6C,
    "CUFFT_Z2Z": 0x69,
    "CUFFT_FORWARD": -1,
    "CUFFT_INVERSE": 1,
    "CUFFT_CB_LD_COMPLEX": 0,
    "CUFFT_CB_LD_COMPLEX_DOUBLE": 1,
    "CUFFT_CB_LD_REAL": 2,
    "CUFFT_CB_LD_REAL_DOUBLE": 3,
    "CUFFT_CB_ST_COMPLEX": 4,
    "CUFFT_CB_ST_COMPLEX_DOUBLE": 5,
    "CUFFT_CB_ST_REAL": 6,
    "CUFFT_CB_ST_REAL_DOUBLE": 7,
}
_OUTPUTS = {0x2A: "F", 0x2C: "f", 0x29: "F", 0x6A: "D", 0x6C: "d", 0x69: "D"}
_FORWARD = -1
_TO_COMPLEX, _TO_REAL = (0x2A, 0x6A), (0x2C, 0x6C)


class CuFFTError(RuntimeError):
    """cuFFT's errors; never raised here, but named in ``except`` clauses."""


def make_cufft(cupy: ModuleType, recorder: Recorder, version: int) -> ModuleType:
    """Return a module that stands in for ``cupy.cuda.cufft``."""
    current = threading.local()

    class _Plan:
        """What every plan has: a workspace from CuPy's pool, and its use as a context manager."""

        gpus = None
        fft_type = 0

        _output_dtype_and_shape: Any  # of an input: the result's shape and dtype, each kind of plan its own

        def _allocate(self) -> None:
            self.work_area = cupy.cuda.alloc(WORKSPACE_BYTES)

        def __enter__(self) -> Any:
            current.plan = self
            return self

        def __exit__(self, *_: object) -> None:
            current.plan = None

        def fft(self, a: Any, out: Any, direction: int) -> None:
            """Transform ``a`` into ``out`` on the current stream."""
            # An out-of-place transform to real numbers destroys its input, as cuFFT's does.
            written = [out.data.ptr] if self.fft_type not in _TO_REAL else [a.data.ptr, out.data.ptr]
            reads, writes = view_of(a), view_of(out)

            def compute(array: Any, result: Any) -> None:
                result[...] = self._transformed(array, result.shape, direction)

            recorder.call(
                "cufft.exec",
                [a.data.ptr],
                written,
                computation=Computation(compute, [reads], [writes]),
                direction=direction,
            )

        def _transformed(self, array: Any, shape: tuple[int, ...], direction: int) -> Any:
            """Without a factor in either direction, as cuFFT's transforms are."""
            axes = self._axes(array.ndim)
            sizes = [shape[axis] for axis in axes]
            if self.fft_type in _TO_COMPLEX:
                return numpy.fft.rfftn(array, axes=axes)
            if self.fft_type in _TO_REAL:
                return numpy.fft.irfftn(array, sizes, axes) * math.prod(sizes)
            if direction == _FORWARD:
                return numpy.fft.fftn(array, axes=axes)
            return numpy.fft.ifftn(array, axes=axes) * math.prod(sizes)

        def _axes(self, ndim: int) -> tuple[int, ...]:
            return (ndim - 1,)

        def check_output_array(self, a: Any, out: Any) -> None:
            """Check that ``out`` fits the transform of ``a``."""
            if out is a:
                return
            shape, dtype = self._output_dtype_and_shape(a)
            if out.shape != shape:
                raise ValueError("output shape mismatch")
            if out.dtype.char != dtype:
                raise ValueError("output dtype mismatch")

    class Plan1d(_Plan):
        """One-dimensional batched transform."""

        def __init__(
            self,
            nx: int,
            fft_type: int,
            batch: int,
            *,
            devices: Any = None,
            out: Any = None,
            prealloc_plan: int = 0,
        ) -> None:
            if devices is not None:
                raise SimulationLimit("multi-GPU FFT plans are not simulated")
            self.nx, self.fft_type, self.batch = nx, fft_type, batch
            self._allocate()

        def _output_dtype_and_shape(self, a: Any) -> tuple[tuple[int, ...], str]:
            shape = list(a.shape)
            if self.fft_type in _TO_COMPLEX:
                shape[-1] = shape[-1] // 2 + 1
            elif self.fft_type in _TO_REAL:
                shape[-1] = self.nx
            return tuple(shape), _OUTPUTS[self.fft_type]

        def get_output_array(self, a: Any) -> Any:
            """Return a new array for the transform of ``a``."""
            return cupy.empty(*self._output_dtype_and_shape(a))

    class PlanNd(_Plan):
        """Multi-dimensional transform."""

        def __init__(
            self,
            shape: Any,
            inembed: Any,
            istride: int,
            idist: int,
            onembed: Any,
            ostride: int,
            odist: int,
            fft_type: int,
            batch: int,
            order: str,
            last_axis: int,
            last_size: int | None,
            *,
            prealloc_plan: int = 0,
        ) -> None:
            self.shape, self.fft_type, self.batch = tuple(shape), fft_type, batch
            self.order, self.last_axis, self.last_size = order, last_axis, last_size
            self._allocate()

        def _axes(self, ndim: int) -> tuple[int, ...]:
            """The last axis comes last: to real numbers it is the halved one."""
            count = len(self.shape)
            axes = range(ndim - count, ndim) if self.order == "C" else range(count)
            last = self.last_axis % ndim
            return (*(axis for axis in axes if axis != last), last)

        def _output_dtype_and_shape(self, a: Any) -> tuple[tuple[int, ...], str]:
            shape = list(a.shape)
            if self.fft_type in (*_TO_COMPLEX, *_TO_REAL):
                shape[self.last_axis] = self.last_size
            return tuple(shape), _OUTPUTS[self.fft_type]

        def get_output_array(self, a: Any, order: str = "C") -> Any:
            """Return a new array for the transform of ``a``."""
            shape, dtype = self._output_dtype_and_shape(a)
            return cupy.empty(shape, dtype, order=order)

    def get_current_plan() -> Any:
        return getattr(current, "plan", None)

    module = ModuleType("cupy.cuda.cufft", "Simulated cuFFT, by NumPy.")
    module.__dict__.update(_CONSTANTS)
    module.__dict__.update(
        CuFFTError=CuFFTError,
        Plan1d=Plan1d,
        PlanNd=PlanNd,
        get_current_plan=get_current_plan,
        getVersion=lambda: version,
        available=True,
    )
    return module
