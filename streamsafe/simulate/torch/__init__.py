"""A simulated CUDA device under a CPU build of PyTorch, so that programs for a GPU run on a machine without one.

torch's dispatcher, autograd engine, Python API and GPU trace are the real ones. Operators compute, on host memory, in
the calling thread, when they are called: the values of a program never depend on a race, its order does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from streamsafe.simulate.hardware import Hardware
from streamsafe.simulate.torch import nvml, sharing, triton
from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.limits import NotSimulated
from streamsafe.simulate.torch.memory import reserved
from streamsafe.simulate.torch.names import complete, complete_types
from streamsafe.toolchain.imports import after_import
from streamsafe.toolchain.torch import SIMULATED_DEVICE, BuildError, build
from streamsafe.toolchain.torch_installed import NEWEST, OLDEST, TorchUnavailable, installed

MOST_DEVICES = 16


class SimulationUnavailable(RuntimeError):
    """There can be no simulated device in this process; the message says why."""


_active: Device | None = None


def is_active() -> bool:
    """Whether torch runs on the simulated device in this process."""
    return _active is not None


def unavailable() -> str | None:
    """Why the installed torch cannot be simulated; None where nothing is known that prevents it."""
    try:
        torch = installed()
    except TorchUnavailable as error:
        return str(error)
    if torch.cuda or torch.hip:
        release = re.fullmatch(r"(\d+\.\d+\.\d+)(?:\+.*)?", torch.version)
        if release and torch.supported:
            build = f"torch=={release[1]}+cpu"  # without "+cpu" pip keeps the build that is there
        else:
            build = f'"torch>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"'
        return (
            f"PyTorch {torch.version} is built for {'CUDA' if torch.cuda else 'ROCm'}: the simulated device needs "
            f"a CPU build (pip install {build} --index-url https://download.pytorch.org/whl/cpu)"
        )
    return None


def install(devices: int | Hardware = 1) -> Device:
    """Put a simulated CUDA device under torch. It must not have been imported; a second call returns the first device.

    Args:
        devices: how many devices the machine has, at most 16, or all of the machine.

    Raises:
        SimulationUnavailable: torch was imported before, is not installed, is a CUDA build, or the device cannot be
            built.
        ValueError: arguments out of range, or a second call that asks for more devices.
    """
    global _active
    hardware = devices if isinstance(devices, Hardware) else Hardware(devices=devices)
    if not 1 <= hardware.devices <= MOST_DEVICES:
        raise ValueError(f"the simulated machine has 1 to {MOST_DEVICES} devices, not {hardware.devices}")
    if _active is not None:
        if hardware.devices > _active.device_count():
            raise ValueError(
                f"the simulated device was installed with {_active.device_count()} device(s), not {hardware.devices}"
            )
        return _active
    if "torch" in sys.modules:
        raise SimulationUnavailable(
            "torch was imported before the simulated CUDA device: it must be installed first"
        )
    reason = unavailable()
    if reason is not None:
        raise SimulationUnavailable(reason)
    try:
        device = Device(build(SIMULATED_DEVICE), hardware)
    except BuildError as error:
        raise SimulationUnavailable(str(error)) from error
    device.set_device_count(hardware.devices)
    for name, finish in (
        ("torch._C", complete),
        ("torch", complete_types),
        ("torch.cuda", _count_devices),
        ("triton", triton.adapt),
    ):
        after_import(name, partial(_finish, finish, device), first=True)
    after_import("torch.multiprocessing.reductions", sharing.adapt, first=True)
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton asks for it at each kernel's definition
    nvml.install(hardware, lambda index: reserved(device, index))
    _active = device
    return device


def _finish(finish: Callable[[Any, Device], None], device: Device, module: ModuleType) -> None:
    finish(module, device)


def _count_devices(module: Any, device: Device) -> None:
    """``torch.cuda`` counts the simulated devices: it would ask the driver, and ``CUDA_VISIBLE_DEVICES``."""
    count = int(device.device_count())
    module._device_count_nvml = module._raw_device_count_nvml = lambda: (
        count
    )  # no ctypes function, as in memory.py
    module._parse_visible_devices = lambda: list(range(count))


__all__ = ["Device", "NotSimulated", "SimulationUnavailable", "install", "is_active", "unavailable"]
