"""The device that a benchmark of the sanitizer runs on, with the hooks built and installed."""

from __future__ import annotations

import contextlib
from typing import Any

import streamsafe


def ready(*, simulate: bool) -> Any:
    """torch, on a GPU or on the simulated device; the name of the device is printed."""
    if simulate:
        from streamsafe.simulate import torch as simulated

        simulated.install()
    import torch

    with contextlib.suppress(streamsafe.StreamHazardError), streamsafe.sanitize("collect"):
        torch.ones(1, device="cuda").add_(1)  # builds and installs
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    return torch
