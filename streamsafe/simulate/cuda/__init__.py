"""A simulated CUDA runtime, so that the real CuPy runs on a machine without a GPU."""

from __future__ import annotations

try:
    import numpy as _numpy  # noqa: F401 - it comes with CuPy
except ImportError as error:
    raise ImportError(
        "the simulated runtime runs the real CuPy, which is not installed: pip install cupy-cuda12x"
    ) from error

from streamsafe.simulate.cuda.errors import SimulationError, SimulationLimit, SimulationUnavailable
from streamsafe.simulate.cuda.installing import TESTED_VERSIONS, Simulation, Summary, install, is_active
from streamsafe.simulate.cuda.log import Operation

__all__ = [
    "TESTED_VERSIONS",
    "Operation",
    "Simulation",
    "SimulationError",
    "SimulationLimit",
    "SimulationUnavailable",
    "Summary",
    "install",
    "is_active",
]
