from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

HOW = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Any:
    """torch, on the simulated device with two GPUs, or with ``--gpu`` on a real one."""
    if not request.config.getoption("--gpu"):
        from streamsafe.simulate import torch as simulate

        try:
            simulate.install(devices=2)
        except simulate.SimulationUnavailable as error:
            if "did not compile" in str(error):  # our own fault, and no reason to test nothing
                raise
            pytest.skip(f"{error} ({HOW})" if "not installed" not in str(error) else str(error))
    found = pytest.importorskip("torch", reason=HOW)
    if not found.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return found


def restore_generators(torch: Any) -> None:
    """A capture that was lost leaves PyTorch's generators inside: from then on they fail, without a sanitizer too."""
    if "simulated" in torch.cuda.get_device_name():
        return
    for generator in torch.cuda.default_generators:
        generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())


@pytest.fixture
def torch(backend: Any) -> Iterator[Any]:
    """torch with nothing pending, on device 0 and the default stream."""
    restore_generators(backend)
    yield backend
    backend.cuda.set_device(0)
    backend.cuda.set_stream(backend.cuda.default_stream())
    backend.cuda.synchronize()
