"""A simulated CUDA runtime, so that the real CuPy runs on a machine without a GPU."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("numpy") is None:
    raise ImportError(
        "the simulated runtime runs the real CuPy, which is not installed: pip install cupy-cuda12x"
    )

from streamsafe.runtime.simulate.errors import SimulationError, SimulationLimit, SimulationUnavailable
from streamsafe.runtime.simulate.log import Operation
from streamsafe.runtime.simulate.simulation import TESTED_VERSIONS, Simulation, Summary, install, is_active

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
