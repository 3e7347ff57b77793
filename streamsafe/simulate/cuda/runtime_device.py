"""``cupy_backends.cuda.api.runtime``: versions, devices, peer access."""

from __future__ import annotations

from typing import Any

from streamsafe.simulate.cuda.errors import (
    INVALID_DEVICE,
    INVALID_VALUE,
    PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED,
    CudaError,
)
from streamsafe.simulate.cuda.machine import CAPACITY, Machine

# What the simulated device says of itself, by cudaDeviceAttr: a Hopper data-centre GPU. Others are 0.
ATTRIBUTES: dict[int, int] = {
    1: 1024,  # MaxThreadsPerBlock
    2: 1024,  # MaxBlockDimX
    3: 1024,  # MaxBlockDimY
    4: 64,  # MaxBlockDimZ
    5: 2**31 - 1,  # MaxGridDimX
    6: 65535,  # MaxGridDimY
    7: 65535,  # MaxGridDimZ
    8: 49152,  # MaxSharedMemoryPerBlock
    9: 65536,  # TotalConstantMemory
    10: 32,  # WarpSize
    11: 2**31 - 1,  # MaxPitch
    12: 65536,  # MaxRegistersPerBlock
    13: 1_980_000,  # ClockRate
    14: 512,  # TextureAlignment
    15: 1,  # GpuOverlap
    16: 132,  # MultiProcessorCount
    19: 1,  # CanMapHostMemory
    31: 1,  # ConcurrentKernels
    39: 2048,  # MaxThreadsPerMultiProcessor
    40: 3,  # AsyncEngineCount
    41: 1,  # UnifiedAddressing
    75: 9,  # ComputeCapabilityMajor
    76: 0,  # ComputeCapabilityMinor
    78: 1,  # StreamPrioritiesSupported
    81: 233472,  # MaxSharedMemoryPerMultiprocessor
    82: 65536,  # MaxRegistersPerMultiprocessor
    83: 1,  # ManagedMemory
    89: 1,  # ConcurrentManagedAccess
    95: 1,  # CooperativeLaunch
    97: 232448,  # MaxSharedMemoryPerBlockOptin
    106: 32,  # MaxBlocksPerMultiprocessor
    115: 1,  # MemoryPoolsSupported
}
_LAST_ATTRIBUTE = 150
_LIMITS = {0: 1024, 1: 1 << 20, 2: 8 << 20}

_PROPERTIES: dict[str, Any] = {
    "name": b"streamsafe simulated device",
    "totalGlobalMem": CAPACITY,
    "sharedMemPerBlock": ATTRIBUTES[8],
    "regsPerBlock": ATTRIBUTES[12],
    "warpSize": ATTRIBUTES[10],
    "maxThreadsPerBlock": ATTRIBUTES[1],
    "maxThreadsDim": (1024, 1024, 64),
    "maxGridSize": (2**31 - 1, 65535, 65535),
    "clockRate": ATTRIBUTES[13],
    "totalConstMem": ATTRIBUTES[9],
    "major": ATTRIBUTES[75],
    "minor": ATTRIBUTES[76],
    "textureAlignment": ATTRIBUTES[14],
    "multiProcessorCount": ATTRIBUTES[16],
    "maxThreadsPerMultiProcessor": ATTRIBUTES[39],
    "sharedMemPerMultiprocessor": ATTRIBUTES[81],
    "regsPerMultiprocessor": ATTRIBUTES[82],
    "sharedMemPerBlockOptin": ATTRIBUTES[97],
    "canMapHostMemory": 1,
    "concurrentKernels": 1,
    "unifiedAddressing": 1,
    "managedMemory": 1,
    "cooperativeLaunch": 1,
    "asyncEngineCount": ATTRIBUTES[40],
    "streamPrioritiesSupported": 1,
    "memoryBusWidth": 5120,
    "memoryClockRate": 2_619_000,
    "l2CacheSize": 50 << 20,
    "pciDomainID": 0,
    "pciDeviceID": 0,
    "integrated": 0,
    "ECCEnabled": 1,
    "computeMode": 0,
}


class DeviceCalls:
    """Versions, devices and their attributes; method names are CuPy's.

    Args:
        machine: the simulated machine.
        version: CUDA version of the wheel, as ``runtimeGetVersion`` gives it.
    """

    def __init__(self, machine: Machine, version: int) -> None:
        self._machine = machine
        self._version = version
        self._limits = dict(_LIMITS)

    def driverGetVersion(self) -> int:
        return self._version

    def _getLocalRuntimeVersion(self) -> int:
        return self._version

    def _ensure_context(self) -> None:
        self._machine.bind()

    def getDevice(self) -> int:
        return self._machine.device

    def setDevice(self, device: int) -> None:
        self._machine.use(device)

    def getDeviceCount(self) -> int:
        return self._machine.devices

    def deviceGetAttribute(self, attrib: int, device: int) -> int:
        self._machine.check_device(device)
        if not 0 < attrib < _LAST_ATTRIBUTE:
            raise CudaError(INVALID_VALUE)
        return ATTRIBUTES.get(attrib, 0)

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        self._machine.check_device(device)
        return {**_PROPERTIES, "pciBusID": device + 1, "uuid": device.to_bytes(16, "big"), "luid": b""}

    def deviceGetPCIBusId(self, device: int) -> str:
        self._machine.check_device(device)
        return f"0000:{device + 1:02X}:00.0"

    def deviceGetByPCIBusId(self, pci_bus_id: str) -> int:
        parts = pci_bus_id.split(":")
        try:
            device = int(parts[-2], 16) - 1
        except (ValueError, IndexError):
            raise CudaError(INVALID_VALUE) from None
        self._machine.check_device(device)
        return device

    def deviceGetLimit(self, limit: int) -> int:
        if limit not in self._limits:
            raise CudaError(INVALID_VALUE)
        return self._limits[limit]

    def deviceSetLimit(self, limit: int, value: int) -> None:
        if limit not in self._limits:
            raise CudaError(INVALID_VALUE)
        self._limits[limit] = value

    def deviceSynchronize(self) -> None:
        machine = self._machine
        with machine.lock:
            machine.permit()
            machine.captures.synchronizing_device(machine.device)
            machine.log.note("deviceSynchronize", machine.device)
            machine.scheduler.wait_all(machine.device)

    # -- peers

    def deviceCanAccessPeer(self, device: int, peerDevice: int) -> int:
        self._machine.check_device(device)
        self._machine.check_device(peerDevice)
        return int(device != peerDevice)

    def deviceEnablePeerAccess(self, peerDevice: int) -> None:
        machine = self._machine
        machine.check_device(peerDevice)
        pair = (machine.device, peerDevice)
        if peerDevice == machine.device:
            raise CudaError(INVALID_DEVICE)
        if pair in machine.peers:
            raise CudaError(PEER_ACCESS_ALREADY_ENABLED)
        machine.peers.add(pair)

    def deviceDisablePeerAccess(self, peerDevice: int) -> None:
        machine = self._machine
        pair = (machine.device, peerDevice)
        if pair not in machine.peers:
            raise CudaError(PEER_ACCESS_NOT_ENABLED)
        machine.peers.discard(pair)

    def _deviceEnsurePeerAccess(self, peerDevice: int) -> None:
        self._machine.check_device(peerDevice)
        self._machine.peers.add((self._machine.device, peerDevice))

    # -- profiler

    def profilerStart(self) -> None:
        self._machine.log.note("profilerStart", self._machine.device)

    def profilerStop(self) -> None:
        self._machine.log.note("profilerStop", self._machine.device)
