"""The simulated device's library, as Python calls it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from streamsafe.simulate.hardware import Hardware

_PREFIX = "streamsafe_simulated_"
_TEXT = ctypes.c_char_p  # what went wrong, or None
_INT, _I64, _U64, _POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "set_device_count": (None, [_INT]),
    "device_count": (_INT, []),
    "operators": (_U64, []),
    "handle": (_U64, [_INT, _I64]),
    "external_event": (None, [_INT]),
    "create_stream": (_U64, [ctypes.c_uint]),
    "destroy_stream": (None, [_U64]),
    "stream_flags": (_INT, [_U64]),
    "is_capturing": (_INT, [_INT]),
    "new_pool": (_U64, []),
    "capture_begin": (_TEXT, [_U64, _U64, _INT, ctypes.POINTER(_U64)]),
    "capture_end": (_TEXT, [_U64]),
    "replay": (_TEXT, [_U64]),
    "graph_size": (_U64, [_U64]),
    "forget_graph": (None, [_U64]),
    "register_generator": (None, [_U64, _POINTER]),
    "observe": (None, [_POINTER]),
    "use_default_generator": (None, [_INT, _POINTER]),
    "memory": (None, [_INT, ctypes.POINTER(_I64)]),
    "set_capacity": (None, [ctypes.c_size_t]),
    "set_fraction": (None, [_INT, ctypes.c_double]),
    "fraction": (ctypes.c_double, [_INT]),
    "forked": (_INT, []),
    "touch": (None, []),
    "reset_peak": (None, [_INT]),
    "reset_accumulated": (None, [_INT]),
    "host_memory": (None, [ctypes.POINTER(_I64)]),
    "reset_host_peak": (None, []),
    "reset_host_accumulated": (None, []),
    "empty_cache": (None, []),
    "observe_out_of_memory": (None, [_POINTER]),
    "blocks": (_I64, [ctypes.POINTER(ctypes.POINTER(_I64))]),
    "record_history": (None, [_INT, ctypes.c_size_t, _POINTER]),
    "clear_history": (None, []),
    "history": (_I64, [ctypes.POINTER(ctypes.POINTER(_I64))]),
    "sleep": (None, [_INT, _I64]),
    "sync_debug": (None, [_INT]),
    "collectives_on_cpu": (None, []),
    "allocate": (_TEXT, [ctypes.c_size_t, _INT, ctypes.POINTER(_POINTER)]),
    "free": (None, [_POINTER]),
    "hold_pool": (None, [_INT, _U64, _U64, _INT]),
    "route_to_pool": (None, [_INT, _U64, _U64, _INT]),
    "end_route": (None, [_INT, _U64, _U64]),
    "elapsed_time": (_TEXT, [_U64, _U64, ctypes.POINTER(ctypes.c_double)]),
    "resize_storage": (_TEXT, [_POINTER, ctypes.c_size_t]),
    "segment": (_INT, [_U64, ctypes.POINTER(_U64), ctypes.POINTER(_U64)]),
    "pin": (None, [_U64, ctypes.c_size_t]),
    "unpin": (None, [_U64]),
}


class Device:
    """Functions of the library by their names, without the prefix.

    Args:
        path: the library; torch's own libraries come with it.
        hardware: the machine that it simulates.
    """

    def __init__(self, path: Path, hardware: Hardware) -> None:
        self.hardware = hardware
        self.kept: list[Any] = []  # callbacks that the library has
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, _PREFIX + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.set_capacity(hardware.memory)

    def __getattr__(self, name: str) -> Any:  # for type checkers: functions are set above
        raise AttributeError(name)

    def memory_of(self, address: int) -> tuple[int, int, int] | None:
        """Start, bytes and device of the device memory that holds an address."""
        start, size = _U64(), _U64()
        index = self.segment(address, ctypes.byref(start), ctypes.byref(size))
        return None if index < 0 else (start.value, size.value, index)

    def used(self) -> bool:
        """Whether any operator ran on it."""
        return bool(self.operators())

    def summary(self) -> str:
        """What it did: text for the end of a run."""
        count = self.operators()
        return (
            f"simulated CUDA device under PyTorch: {count} operator{'' if count == 1 else 's'}, computed on the host "
            "at the call; values never show a race"
        )

    def rows(self, name: str, width: int) -> list[list[int]]:
        """What the library tells as rows of numbers.

        Args:
            name: of the function.
            width: numbers a row.
        """
        found = ctypes.POINTER(_I64)()
        count = int(getattr(self, name)(ctypes.byref(found)))
        return [found[at * width : (at + 1) * width] for at in range(count)]

    def attempt(self, name: str, *arguments: Any) -> None:
        """Calls a function that can fail.

        Raises:
            RuntimeError: with CUDA's message; where memory is missing, torch's OutOfMemoryError.
        """
        error = getattr(self, name)(*arguments)
        if error is None:
            return
        text = error.decode()
        raise sys.modules["torch"].OutOfMemoryError(text) if "out of memory" in text else RuntimeError(text)
