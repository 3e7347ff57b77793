"""What a program asks before it decides what to run: properties, versions of CUDA and cuDNN, architectures."""

from __future__ import annotations

import importlib
import types
import uuid
from typing import Any

from streamsafe.simulate.hardware import Hardware

CUDA_VERSION = "12.8"
COMPILED_VERSION = 12080
CUDNN_VERSION = (9, 10, 2)
ARCHITECTURES = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))
DRIVER = "570.124.06"
NAME = "streamsafe simulated device"

_UUIDS = uuid.UUID("5a7e5afe-0000-4000-8000-000000000000")


class Uuid:
    """``torch._C._CUuuid``: sixteen bytes, and their usual text."""

    def __init__(self, index: int) -> None:
        self.bytes = list((_UUIDS.int + index).to_bytes(16, "big"))

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=bytes(self.bytes)))

    __repr__ = __str__


class Properties:
    """What ``torch.cuda.get_device_properties`` returns.

    Args:
        index: of the device.
        hardware: the machine.
    """

    name = NAME
    is_integrated = is_multi_gpu_board = 0
    max_threads_per_multi_processor = 2048
    max_threads_per_block = 1024
    warp_size = 32
    clock_rate = 1410000
    memory_clock_rate = 1512000
    memory_bus_width = 5120
    shared_memory_per_block = 49152
    regs_per_multiprocessor = 65536
    gcnArchName = ""
    pci_device_id = pci_domain_id = 0

    def __init__(self, index: int, hardware: Hardware) -> None:
        self.major, self.minor = hardware.capability
        self.total_memory = hardware.memory
        self.uuid = Uuid(index)
        self.pci_bus_id = index + 1
        large = self.major >= 9
        self.multi_processor_count = 132 if large else 108
        self.L2_cache_size = (50 if large else 40) << 20
        self.shared_memory_per_multiprocessor = 233472 if large else 167936
        self.shared_memory_per_block_optin = 232448 if large else 166912

    def __repr__(self) -> str:
        memory = f"total_memory={self.total_memory // 1024**2}MB"
        counts = f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}"
        level = f"L2_cache_size={self.L2_cache_size // 1024**2}MB"
        numbers = f"major={self.major}, minor={self.minor}, {memory}, {counts}, pci_bus_id={self.pci_bus_id}"
        return f"_CudaDeviceProperties(name={self.name!r}, {numbers}, {level})"


def architectures(hardware: Hardware) -> str:
    """The architectures that ``torch.cuda.get_arch_list`` names: the device's own is among them."""
    return " ".join(f"sm_{major}{minor}" for major, minor in sorted({*ARCHITECTURES, hardware.capability}))


def versions(core: Any) -> None:
    """What torch says of CUDA and of cuDNN. Its own kernels stand for those of cuDNN."""
    importlib.import_module("torch.version").cuda = CUDA_VERSION  # type: ignore[attr-defined]
    major, minor, patch = CUDNN_VERSION
    cudnn = types.ModuleType("torch._C._cudnn")
    members = vars(cudnn)
    members["is_cuda"] = True
    members["getVersionInt"] = lambda: major * 10000 + minor * 100 + patch
    members["getRuntimeVersion"] = members["getCompileVersion"] = lambda: CUDNN_VERSION
    core._cudnn, core._has_cudnn = cudnn, True
