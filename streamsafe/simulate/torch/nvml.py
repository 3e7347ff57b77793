"""``pynvml`` (the package ``nvidia-ml-py``) for the simulated machine: what programs ask of the driver.

The functions are those that programs ask for, with NVML's names and constants.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from streamsafe.simulate.hardware import Hardware
from streamsafe.simulate.torch.properties import COMPILED_VERSION, DRIVER, NAME, Uuid

Memory = Callable[[int], int]
"""Bytes in use of a device."""

_CONSTANTS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_CLOCK_GRAPHICS": 0,
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_P2P_CAPS_INDEX_READ": 0,
    "NVML_P2P_CAPS_INDEX_WRITE": 1,
    "NVML_P2P_CAPS_INDEX_NVLINK": 2,
    "NVML_P2P_STATUS_OK": 0,
    "NVML_FEATURE_DISABLED": 0,
    "NVML_FEATURE_ENABLED": 1,
    "NVML_NVLINK_MAX_LINKS": 18,
    "NVML_NVLINK_CAP_P2P_SUPPORTED": 0,
    "NVML_TOPOLOGY_SYSTEM": 50,
    "NVML_VALUE_NOT_AVAILABLE_ulonglong": 2**64 - 1,
}


ERRORS = {
    "Uninitialized": 1,
    "InvalidArgument": 2,
    "NotSupported": 3,
    "NoPermission": 4,
    "NotFound": 6,
    "DriverNotLoaded": 9,
    "LibraryNotFound": 12,
    "GpuIsLost": 15,
    "Unknown": 999,
}


class NVMLError(Exception):
    """An error of NVML; ``value`` is its number. One that is made from a number has that number's class."""

    number = 999
    value: int

    def __new__(cls, value: int | None = None) -> NVMLError:
        number = cls.number if value is None else value
        made = super().__new__(_CLASSES.get(number, cls) if cls is NVMLError else cls, number)
        made.value = number
        return made

    def __str__(self) -> str:
        return {2: "Invalid Argument", 3: "Not Supported", 6: "Not Found"}.get(
            self.value, f"Error {self.value}"
        )


_CLASSES: dict[int, type[NVMLError]] = {
    value: type(
        f"NVMLError_{name}",
        (NVMLError,),
        {"__doc__": f"NVML error {value}.", "number": value},
    )
    for name, value in ERRORS.items()
}


def functions(hardware: Hardware, used: Memory) -> dict[str, Any]:
    """The functions of NVML by name.

    Args:
        hardware: the machine.
        used: bytes in use of a device.
    """

    def by_index(index: int) -> int:
        if not 0 <= index < hardware.devices:
            raise NVMLError(2)
        return index

    def by_uuid(text: str | bytes) -> int:
        wanted = text.decode() if isinstance(text, bytes) else text
        for index in range(hardware.devices):
            if wanted == f"GPU-{Uuid(index)}":
                return index
        raise NVMLError(6)

    def memory(handle: int, version: int = 0) -> Any:
        there = used(handle)
        return SimpleNamespace(
            total=hardware.memory, used=there, free=hardware.memory - there, reserved=0, version=version
        )

    def near(handle: int, words: int) -> list[int]:
        """The processors of the host, in words of 64 bits: each is near to the device."""
        mask = (1 << (os.cpu_count() or 1)) - 1
        return [mask >> 64 * index & (1 << 64) - 1 for index in range(words)]

    def unsupported(*_: Any) -> Any:
        raise NVMLError(3)

    return {
        "nvmlInit": lambda: None,
        "nvmlInitWithFlags": lambda flags: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: DRIVER,
        "nvmlSystemGetNVMLVersion": lambda: f"12.{DRIVER}",
        "nvmlSystemGetCudaDriverVersion": lambda: COMPILED_VERSION,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: COMPILED_VERSION,
        "nvmlDeviceGetCount": lambda: hardware.devices,
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetIndex": lambda handle: handle,
        "nvmlDeviceGetMinorNumber": lambda handle: handle,
        "nvmlDeviceGetName": lambda handle: NAME,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{Uuid(handle)}",
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: hardware.capability,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=0, memory=0),
        "nvmlDeviceGetTemperature": lambda handle, sensor=0: 30,
        "nvmlDeviceGetPowerUsage": lambda handle: 60000,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 400000,
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 400000,
        "nvmlDeviceGetClockInfo": lambda handle, kind=0: 1410,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind=0: 1410,
        "nvmlDeviceGetFanSpeed": unsupported,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [],
        "nvmlDeviceGetCpuAffinity": near,
        "nvmlDeviceGetCpuAffinityWithinScope": lambda handle, words, scope: near(handle, words),
        "nvmlDeviceGetNvLinkState": lambda handle, link: 0,
        "nvmlDeviceGetP2PStatus": lambda one, other, index: 0,
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(
            bus=handle + 1, device=0, domain=0, busId=f"0000:{handle + 1:02x}:00.0"
        ),
        "nvmlDeviceGetMigMode": lambda handle: [0, 0],
        "nvmlDeviceGetPersistenceMode": lambda handle: 1,
        "nvmlDeviceGetNumGpuCores": lambda handle: 6912,
    }


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers ``import pynvml``, whether the package is installed or not.

    Args:
        hardware: the machine.
        used: bytes in use of a device.
    """

    def __init__(self, hardware: Hardware, used: Memory) -> None:
        self._functions = functions(hardware, used)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == "pynvml" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(
            {**_CONSTANTS, **self._functions, "NVMLError": NVMLError, "__version__": "12.0.0"}
        )
        vars(module).update({each.__name__: each for each in _CLASSES.values()})


def install(hardware: Hardware, used: Memory) -> None:
    """Puts the module in place."""
    sys.modules.pop("pynvml", None)
    sys.meta_path.insert(0, Finder(hardware, used))
