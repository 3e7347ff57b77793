"""The names that only a CUDA build has in ``torch._C``: with them, torch's own ``torch.cuda`` runs unchanged."""

from __future__ import annotations

import ctypes
import importlib
import os
import types
from enum import IntEnum
from typing import Any

from streamsafe.simulate.torch.comm import comm
from streamsafe.simulate.torch.compile import without_inductor
from streamsafe.simulate.torch.device import Device
from streamsafe.simulate.torch.graphs import graphs
from streamsafe.simulate.torch.legacy import legacy_types
from streamsafe.simulate.torch.limits import refuse
from streamsafe.simulate.torch.memory import memory, reserved
from streamsafe.simulate.torch.nccl import process_groups
from streamsafe.simulate.torch.properties import COMPILED_VERSION, Properties, architectures, versions
from streamsafe.simulate.torch.sharing import refuse_sharing
from streamsafe.simulate.torch.surface import surface

CUDA = 1  # c10::DeviceType
CLOCK = 1.41
"""Cycles of a device in a nanosecond: what ``torch.cuda._sleep`` counts."""


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
    surface(core)
    comm(core)
    versions(core)
    process_groups(core, device)
    core._has_cuda = True


def complete_types(torch: Any, device: Device) -> None:
    """Has the types of ``torch``, which has just been loaded, make memory of the device.

    Args:
        torch: the module.
        device: the library.
    """
    storages(torch, device)
    legacy_types(torch)


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
            milliseconds = ctypes.c_double()
            device.attempt("elapsed_time", self.event_id, end.event_id, ctypes.byref(milliseconds))
            return milliseconds.value

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
    core._cuda_sleep = lambda cycles: device.sleep(core._accelerator_getDeviceIndex(), int(cycles / CLOCK))
    core._cuda_isCurrentStreamCapturing = lambda: bool(
        device.is_capturing(core._accelerator_getDeviceIndex())
    )


# -- devices ---------------------------------------------------------------------------------------------------------


class Error(IntEnum):
    """``cudaError_t``, as far as ``torch.cuda.check_error`` needs it."""

    success = 0
    invalidValue = 1
    memoryAllocation = 2
    notReady = 600


_ERRORS = {0: "no error", 1: "invalid argument", 2: "out of memory", 600: "device not ready"}


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
        cudaGetErrorString=lambda error: _ERRORS.get(int(error), f"error {int(error)}"),
        cudaStreamCreate=create,
        cudaStreamDestroy=destroy,
        cudaHostRegister=register,
        cudaHostUnregister=unregister,
        cudaMemGetInfo=lambda index: (
            device.hardware.memory - reserved(device, index),
            device.hardware.memory,
        ),
        cudaProfilerStart=lambda: Error.success,
        cudaProfilerStop=lambda: Error.success,
    )
    return module


_REQUIRES_INITIALIZATION = "_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"
"""``torch::utils::set_requires_device_init``, which a CUDA build calls in a forked child."""
_DEBUG = ("default", "warn", "error")


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
        found = [Properties(index, device.hardware) for index in range(device.device_count())]
        cuda._get_device_properties = lambda index: found[index]
        cuda.has_magma = False
        cuda.has_half = True
        without_inductor(torch)
        device.touch()

    def in_child() -> None:
        """In a forked child, torch asks again whether there is CUDA, and is told that it cannot be used."""
        if device.forked():
            library = os.path.join(os.path.dirname(core.__file__), "lib", "libtorch_python.so")
            ctypes.CDLL(library)[_REQUIRES_INITIALIZATION](CUDA, True)

    os.register_at_fork(after_in_child=in_child)

    def synchronize() -> None:
        core._accelerator_synchronizeDevice(core._accelerator_getDeviceIndex())

    def exchange(index: int) -> int:
        before = int(core._accelerator_getDeviceIndex())
        if index >= 0:
            core._accelerator_setDeviceIndex(index)
        return before

    debug = [0]

    def set_debug(mode: int | str) -> None:
        debug[0] = mode if isinstance(mode, int) else _DEBUG.index(mode)
        device.sync_debug(debug[0])

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
        "_cuda_getArchFlags": lambda: architectures(device.hardware),
        "_cuda_isInBadFork": lambda: bool(device.forked()),
        "_cuda_ipc_collect": lambda: None,
        "_cuda_getCompiledVersion": lambda: COMPILED_VERSION,
        "_cuda_set_sync_debug_mode": set_debug,
        "_cuda_get_sync_debug_mode": lambda: debug[0],
        "_CudaDeviceProperties": Properties,
        "_cudart": runtime_library(core, device),
        "_nvtx": nvtx,
    }
    for name, value in values.items():
        setattr(core, name, value)


def storages(torch: Any, device: Device) -> None:
    """What a CPU build refuses of CUDA storages: making one, and ``untyped_storage().resize_()``; and sending one."""
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

    torch.UntypedStorage._share_cuda_ = refuse_sharing
    torch.UntypedStorage.__new__ = new
    torch.UntypedStorage.resize_ = resize_
