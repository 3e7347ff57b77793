"""What the driver is asked to do, told by CUPTI's callbacks: every launch, copy and memset with its stream.

Sources: the CUPTI callback API (``cuptiSubscribe``, driver domain) and the parameter structures of
``generated_cuda_meta.h``. One subscriber only: no profiler can run beside it.
"""

from __future__ import annotations

import ctypes
import glob
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

_DRIVER_DOMAIN = 1
_ENTER = 0

# Function (without its version and per-thread suffix) -> byte offset of its stream among its parameters.
_STREAM_AT = {
    "cuLaunchKernel": 40,
    "cuLaunchCooperativeKernel": 40,
    "cuMemcpyAsync": 24,
    "cuMemcpyHtoDAsync": 24,
    "cuMemcpyDtoHAsync": 24,
    "cuMemcpyDtoDAsync": 24,
    "cuMemcpyPeerAsync": 40,
    "cuMemcpy2DAsync": 8,
    "cuMemcpy3DAsync": 8,
    "cuMemsetD8Async": 24,
    "cuMemsetD16Async": 24,
    "cuMemsetD32Async": 24,
    "cuMemsetD2D8Async": 40,
    "cuMemsetD2D16Async": 40,
    "cuMemsetD2D32Async": 40,
    "cuGraphLaunch": 8,
}
_CONFIG_STREAM_AT = 32
"""Of the stream in a ``CUlaunchConfig``, which ``cuLaunchKernelEx`` points to."""

_SYNCHRONOUS = ("cuMemcpy", "cuMemset")
"""Without ``Async`` in the name these use the default stream."""

_NOT_OPERATIONS = ("cuMemcpyBatch", "cuLaunchHostFunc")


class Operation(NamedTuple):
    """One operation given to the driver.

    Attributes:
        kind: ``launch``, ``copy``, ``memset`` or ``graph``.
        function: the driver's function. symbol: the kernel's, if it is one.
        stream: the raw handle, 0 for the legacy default stream; None: not known.
        target: the device address that is copied to from the host or filled, when that is what it does.
    """

    kind: str
    function: str
    symbol: str
    stream: int | None
    target: int | None = None


class _Data(ctypes.Structure):
    _fields_ = [
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
    ]


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_Data))


def library() -> ctypes.CDLL | None:
    """libcupti, from the loader's path, from NVIDIA's wheels or from a toolkit."""
    names = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"]
    for folder in sys.path:
        names += glob.glob(f"{folder}/nvidia/**/libcupti.so*", recursive=True)
    names += glob.glob("/usr/local/cuda*/**/libcupti.so*", recursive=True)
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _base(function: str) -> str:
    return function.removesuffix("_ptsz").removesuffix("_ptds").removesuffix("_v2").removesuffix("_v3")


def _pointer(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def _decode(function: str, data: Any) -> Operation | None:
    name = _base(function)
    if name.startswith("cuGraphLaunch"):
        kind = "graph"
    elif name.startswith("cuLaunch"):
        kind = "launch"
    elif name.startswith("cuMemcpy"):
        kind = "copy"
    elif name.startswith("cuMemset"):
        kind = "memset"
    else:
        return None
    if name.startswith(_NOT_OPERATIONS):
        return None
    symbol = (data.symbol or b"").decode(errors="replace") if kind == "launch" else ""
    stream: int | None = None
    if name == "cuLaunchKernelEx":
        stream = _pointer(_pointer(data.parameters) + _CONFIG_STREAM_AT)
    elif name in _STREAM_AT:
        stream = _pointer(data.parameters + _STREAM_AT[name])
    elif name.startswith(_SYNCHRONOUS) and "Async" not in name:
        stream = 0
    if stream is not None:
        if stream == 0 and function.endswith(("_ptsz", "_ptds")):
            stream = 2
        stream = 0 if stream == 1 else stream
    target = None
    if name.startswith(("cuMemcpyHtoD", "cuMemset")):
        target = _pointer(data.parameters)
    return Operation(kind, function, symbol, stream, target)


class Listener:
    """Calls ``heard`` with every operation that any thread gives to the driver, before it is enqueued.

    Raises:
        RuntimeError: there is no libcupti, or somebody else is subscribed.
    """

    def __init__(self, heard: Callable[[Operation], None]) -> None:
        cupti = library()
        if cupti is None:
            raise RuntimeError("there is no libcupti")
        self._cupti = cupti
        self._heard = heard
        self.errors: list[BaseException] = []
        self._callback = _Callback(self._called)
        self._subscriber = ctypes.c_void_p()
        status = cupti.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        if status:
            raise RuntimeError(f"cuptiSubscribe returned {status}")
        cupti.cuptiEnableDomain(1, self._subscriber, _DRIVER_DOMAIN)

    def _called(self, _user: Any, _domain: int, _cbid: int, data: Any) -> None:
        try:
            found = data[0]
            if found.site == _ENTER and found.function:
                operation = _decode(found.function.decode(), found)
                if operation is not None:
                    self._heard(operation)
        except BaseException as error:  # a C caller cannot take it
            self.errors.append(error)

    def close(self) -> None:
        self._cupti.cuptiEnableDomain(0, self._subscriber, _DRIVER_DOMAIN)
        self._cupti.cuptiUnsubscribe(self._subscriber)
