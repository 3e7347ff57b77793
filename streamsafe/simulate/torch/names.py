"""The names that only a CUDA build has in ``torch._C``: with them, torch's own ``torch.cuda`` runs unchanged."""

from __future__ import annotations

import ctypes
import importlib
import types
from enum import IntEnum
from typing import Any

from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.graphs import graphs, memory
from streamsafe.simulate.torch.limits import MEMORY, numbers, refuse

CUDA = 1  # c10::DeviceType
CAPABILITY = (8, 0)


def complete(core: Any, device: Device) -> None:
    """Adds the names to ``torch._C``, which has just been loaded.

    Args:
        core: the module.
        device: the library.
    """
    streams(core, device)
    devices(core, device)
    graphs(core, device)
    memory(core, device)
    core._has_cuda = True


# -- streams and events ----------------------------------------------------------------------------------------------


def streams(core: Any, device: Device) -> None:
    class _CudaStreamBase(core.Stream):
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int = 0,
            device_index: int = 0,
            device_type: int = 0,
            stream_ptr: int = 0,
        ) -> Any:
            here = core._accelerator_getDeviceIndex()
            if stream_ptr:
                return super().__new__(cls, stream_id=stream_ptr, device_index=here, device_type=CUDA)
            if stream_id or device_index or device_type:
                return super().__new__(
                    cls, stream_id=stream_id, device_index=device_index, device_type=device_type
                )
            return super().__new__(cls, device=core.device("cuda", here), priority=priority)

        @property
        def cuda_stream(self) -> int:
            return int(device.handle(self.device_index, self.stream_id))

        @property
        def priority(self) -> int:
            return 0 if not 0 < self.stream_id <= 128 else -((self.stream_id - 1) // 32)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -3

    class _CudaEventBase(core.Event):
        def __new__(
            cls,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> Any:
            made = super().__new__(cls, "cuda", enable_timing=enable_timing, blocking=blocking)
            made._external = external
            made._timed = enable_timing
            return made

        @property
        def cuda_event(self) -> int:
            return int(self.event_id)

        def record(self, stream: Any) -> None:
            if not self._external:
                super().record(stream)
                return
            device.external_event(1)
            try:
                super().record(stream)
            finally:
                device.external_event(0)

        def elapsed_time(self, end: Any) -> float:
            if not (self._timed and end._timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if not (self.event_id and end.event_id):
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return float(device.elapsed_time(self.event_id, end.event_id))

        from_ipc_handle = classmethod(refuse("Event.from_ipc_handle"))
        ipc_handle = refuse("Event.ipc_handle")

    def stream_of(index: int, identifier: int) -> tuple[int, int, int]:
        return identifier, index, CUDA

    def current(index: int) -> tuple[int, int, int]:
        return stream_of(index, core._accelerator_getStream(index).stream_id)

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        # as the CUDA build does: the stream's device becomes the current one
        core._accelerator_setDeviceIndex(device_index)
        core._accelerator_setStream(
            core.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        )

    core._CudaStreamBase, core._CudaEventBase = _CudaStreamBase, _CudaEventBase
    core._cuda_getCurrentStream = current
    core._cuda_getDefaultStream = lambda index: stream_of(index, 0)
    core._cuda_getStreamFromExternal = lambda pointer, index: stream_of(index, pointer)
    core._cuda_getCurrentRawStream = lambda index: int(device.handle(index, current(index)[0]))
    core._cuda_setStream = set_stream
    core._cuda_sleep = lambda cycles: None
    core._cuda_isCurrentStreamCapturing = lambda: bool(
        device.is_capturing(core._accelerator_getDeviceIndex())
    )


# -- devices ---------------------------------------------------------------------------------------------------------


class Properties:
    """What ``torch.cuda.get_device_properties`` returns."""

    name = "streamsafe simulated device"
    major, minor = CAPABILITY
    total_memory = MEMORY
    multi_processor_count = 108
    is_integrated = is_multi_gpu_board = 0
    max_threads_per_multi_processor = 2048
    warp_size = 32
    L2_cache_size = 40 << 20
    shared_memory_per_block = 49152
    shared_memory_per_block_optin = 166912
    shared_memory_per_multiprocessor = 167936
    regs_per_multiprocessor = 65536
    gcnArchName = uuid = ""
    pci_bus_id = pci_device_id = pci_domain_id = 0

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties(name={self.name!r}, major={self.major}, minor={self.minor})"


class Error(IntEnum):
    """``cudaError_t``, as far as ``torch.cuda.check_error`` needs it."""

    success = 0


def runtime_library(core: Any, device: Device) -> types.ModuleType:
    """``torch.cuda.cudart()``."""
    module = types.ModuleType("torch._C._cudart")
    members = vars(module)

    def create(pointer: int) -> Error:
        ctypes.c_void_p.from_address(pointer).value = device.create_stream(0)
        return Error.success

    def destroy(handle: int) -> Error:
        device.destroy_stream(handle)
        return Error.success

    def register(address: int, size: int, flags: int) -> Error:
        device.pin(address, size)
        return Error.success

    def unregister(address: int) -> Error:
        device.unpin(address)
        return Error.success

    members.update(
        cudaError=Error,
        cudaGetErrorString=lambda error: "no error" if error == 0 else f"error {int(error)}",
        cudaStreamCreate=create,
        cudaStreamDestroy=destroy,
        cudaHostRegister=register,
        cudaHostUnregister=unregister,
        cudaMemGetInfo=lambda index: (MEMORY - numbers(device, index)[2], MEMORY),
        cudaProfilerStart=lambda: Error.success,
        cudaProfilerStop=lambda: Error.success,
    )
    return module


def devices(core: Any, device: Device) -> None:
    def initialize() -> None:
        torch: Any = importlib.import_module("torch")
        made = []
        for index in range(device.device_count()):
            generator = torch.Generator(device=f"cuda:{index}")
            device.use_default_generator(index, generator._cdata)
            made.append(generator)
        cuda = torch.cuda
        cuda.default_generators = tuple(made)
        cuda._get_device_properties = lambda index: Properties()
        cuda.has_magma = False
        cuda.has_half = True
        storages(torch, device)

    def synchronize() -> None:
        core._accelerator_synchronizeDevice(core._accelerator_getDeviceIndex())

    def exchange(index: int) -> int:
        before = int(core._accelerator_getDeviceIndex())
        if index >= 0:
            core._accelerator_setDeviceIndex(index)
        return before

    debug = [0]
    nvtx = types.ModuleType("torch._C._nvtx")
    for name in ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart"):
        setattr(nvtx, name, lambda *_: 0)
    values = {
        "_cuda_init": initialize,
        "_cuda_getDeviceCount": lambda: int(device.device_count()),
        "_cuda_getDevice": lambda: int(core._accelerator_getDeviceIndex()),
        "_cuda_setDevice": lambda index: core._accelerator_setDeviceIndex(index),
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": lambda index: exchange(index),  # dynamo tells the two functions apart
        "_cuda_synchronize": synchronize,
        "_cuda_canDeviceAccessPeer": lambda one, other: one != other,
        "_cuda_getArchFlags": lambda: "",
        "_cuda_isInBadFork": lambda: False,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_getCompiledVersion": lambda: 0,
        "_cuda_set_sync_debug_mode": lambda mode: debug.__setitem__(0, mode),
        "_cuda_get_sync_debug_mode": lambda: debug[0],
        "_CudaDeviceProperties": Properties,
        "_cudart": runtime_library(core, device),
        "_nvtx": nvtx,
        "_cuda_jiterator_compile_and_launch_kernel": refuse("torch.cuda.jiterator"),
        "_cuda_getCurrentBlasHandle": refuse("the cuBLAS handle"),
    }
    for name, value in values.items():
        setattr(core, name, value)


def storages(torch: Any, device: Device) -> None:
    """What a CPU build refuses of CUDA storages: making one, and ``untyped_storage().resize_()``."""
    plain, plain_new = torch.UntypedStorage.resize_, torch.UntypedStorage.__new__

    def new(cls: Any, *arguments: Any, device: Any = None, **named: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return plain_new(cls, *arguments, **named, **({} if device is None else {"device": device}))
        if arguments and not isinstance(arguments[0], int):
            source = torch.tensor(arguments[0], dtype=torch.uint8, device=device)
            return source.untyped_storage()
        size = arguments[0] if arguments else 0
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()

    def resize_(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return plain(self, size)
        device.attempt("resize_storage", self._cdata, size)
        return self

    torch.UntypedStorage.__new__ = new
    torch.UntypedStorage.resize_ = resize_
