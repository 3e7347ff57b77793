from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamsafe.runtime import simulate

Log = Callable[[Callable[[], Any]], list[str]]


@pytest.fixture(scope="session")
def simulation() -> simulate.Simulation:
    """The simulated runtime of this test process, with two devices."""
    pytest.importorskip("numpy")
    try:
        return simulate.install(devices=2)
    except simulate.SimulationUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def cupy(simulation: simulate.Simulation) -> Iterator[Any]:
    """CuPy on the simulated runtime, on device 0 and the null stream."""
    import cupy

    yield cupy
    cupy.cuda.runtime.setDevice(0)
    cupy.cuda.Stream.null.use()
    simulation.values = "stop"


@pytest.fixture
def logged(simulation: simulate.Simulation) -> Log:
    """Return a function that runs a callable and returns the names of the operations it made."""

    def run(body: Callable[[], Any]) -> list[str]:
        before = len(simulation.log)
        body()
        return [operation.name for operation in simulation.log[before:]]

    return run
