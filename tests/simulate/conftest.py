from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from streamsafe.simulate.cuda import Simulation

Log = Callable[[Callable[[], Any]], list[str]]


class WithoutNumpy(pytest.Module):
    """A module that cannot be imported, because numpy comes with CuPy and there is none."""

    def collect(self) -> NoReturn:
        pytest.skip("needs numpy", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if find_spec("numpy") is None:
        return WithoutNumpy.from_parent(parent, path=module_path)
    return None


@pytest.fixture(scope="session")
def simulation() -> Simulation:
    """The simulated runtime of this test process, with two devices; kernels do not compute, but in test_compute."""
    from streamsafe.simulate import cuda as simulate

    try:
        return simulate.install(devices=2, compute=False)
    except simulate.SimulationUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def cupy(simulation: Simulation) -> Iterator[Any]:
    """CuPy on the simulated runtime, on device 0 and the null stream."""
    import cupy

    yield cupy
    cupy.cuda.runtime.setDevice(0)
    cupy.cuda.Stream.null.use()
    simulation.values = "stop"


@pytest.fixture
def logged(simulation: Simulation) -> Log:
    """Return a function that runs a callable and returns the names of the operations it made."""

    def run(body: Callable[[], Any]) -> list[str]:
        before = len(simulation.log)
        body()
        return [operation.name for operation in simulation.log[before:]]

    return run
