from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtime.helpers import Program, settle


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Any:
    """CuPy, on the simulated runtime with two devices, or with ``--gpu`` on a real one."""
    pytest.importorskip("numpy")
    if not request.config.getoption("--gpu"):
        from streamsafe.simulate import cuda as simulate

        try:
            simulate.install(devices=2, compute=False)
        except simulate.SimulationUnavailable as error:
            pytest.skip(str(error))
    import cupy

    return cupy


@pytest.fixture
def cp(backend: Any) -> Iterator[Any]:
    """CuPy with nothing pending, on device 0 and the null stream, with empty pools."""
    settle(backend)
    yield backend
    settle(backend)


@pytest.fixture
def program(cp: Any) -> Iterator[Program]:
    made = Program(cp)
    yield made
    made.settle()
