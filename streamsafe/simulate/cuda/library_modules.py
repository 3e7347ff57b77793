"""Installs the stand-ins of libraries that need CuPy to be imported first."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from streamsafe.simulate.cuda.libraries import Recorder, place
from streamsafe.simulate.cuda.library_cub import replace_cub, replace_generators, replace_thrust
from streamsafe.simulate.cuda.library_fft import make_cufft
from streamsafe.simulate.cuda.library_nccl import make_nccl
from streamsafe.simulate.cuda.library_solver import make_solver


def complete_libraries(cupy: ModuleType, recorder: Recorder, version: int) -> None:
    """Replace cuFFT, NCCL, CUB, Thrust, the generators and ``cupyx.cusolver``. Call right after ``import cupy``."""
    libs = sys.modules["cupy_backends.cuda.libs"]
    place(make_cufft(cupy, recorder, version), cupy.cuda)
    nccl = make_nccl("cupy_backends.cuda.libs.nccl", recorder)
    place(nccl, libs)
    sys.modules["cupy.cuda.nccl"] = cupy.cuda.nccl = nccl
    for name in ("cublas", "cusolver", "cusparse", "curand"):
        setattr(cupy.cuda, name, getattr(libs, name))
    replace_cub(cupy, recorder)
    replace_thrust(cupy, recorder)
    replace_generators(cupy, recorder)
    cupyx = importlib.import_module("cupyx")
    # Later CuPy wraps the compiled module in a Python one; before, it is the public module itself.
    wrapped = importlib.util.find_spec("cupyx._cusolver") is not None
    place(make_solver("cupyx._cusolver" if wrapped else "cupyx.cusolver", cupy, recorder), cupyx)
