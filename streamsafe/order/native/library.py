"""The core's C functions (``abi.hpp``), called without the GIL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

_INT, _ID, _KEY, _LONG, _POINTER = (
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_void_p,
)
_LONGS = ctypes.POINTER(_LONG)

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "new": (_POINTER, (_INT,)),
    "delete": (None, (_POINTER,)),
    "stream": (_ID, (_POINTER, _INT, _INT)),
    "destroy_stream": (None, (_POINTER, _ID)),
    "host_function": (_ID, (_POINTER, _ID, _KEY)),
    "event": (None, (_POINTER, _KEY)),
    "destroy_event": (None, (_POINTER, _KEY)),
    "record": (None, (_POINTER, _KEY, _ID, _KEY, _ID, _INT)),
    "wait": (_INT, (_POINTER, _ID, _KEY, _KEY, _ID, _INT, _INT)),
    "synchronize_stream": (_INT, (_POINTER, _ID, _KEY, _ID)),
    "synchronize_event": (_INT, (_POINTER, _KEY, _KEY, _ID)),
    "synchronize_device": (_INT, (_POINTER, _INT, _KEY, _ID)),
    "host_edge": (None, (_POINTER, _KEY, _KEY)),
    "forget_carrier": (None, (_POINTER, _KEY)),
    "access": (_INT, (_POINTER, _ID, _LONGS, _LONG, _ID, _ID, _KEY, _INT)),
    "allocate": (None, (_POINTER, _INT, _KEY, _KEY, _ID, _INT, _ID, _ID, _INT, _KEY)),
    "free": (None, (_POINTER, _INT, _KEY, _ID)),
    "record_stream": (None, (_POINTER, _INT, _KEY, _ID)),
    "release_block": (None, (_POINTER, _INT, _KEY, _KEY)),
    "freed_blocks": (_LONG, (_POINTER, _LONGS, _LONG)),
    "capture_begin": (_INT, (_POINTER, _ID, _INT, _INT, _KEY, _ID)),
    "manage_graph": (None, (_POINTER,)),
    "capture_end": (_ID, (_POINTER, _ID, _ID)),
    "replay": (_INT, (_POINTER, _ID, _ID, _ID, _ID, _KEY, _INT)),
    "capturing": (_INT, (_POINTER, _ID)),
    "recorded": (_INT, (_POINTER, _KEY)),
    "captured": (_INT, (_POINTER, _KEY)),
    "waited": (_INT, (_POINTER, _KEY, _KEY)),
    "epoch": (_KEY, (_POINTER, _ID)),
    "passed": (_INT, (_POINTER, _ID, _KEY, _KEY)),
    "finish": (None, (_POINTER,)),
    "reports": (_LONG, (_POINTER, _ID, _LONGS, _LONG)),
    "state": (_LONG, (_POINTER, ctypes.POINTER(_KEY), _LONG, _LONGS, _LONG)),
    "capture_sites": (_LONG, (_POINTER, _LONGS, _LONG)),
    "tape": (None, (_POINTER, _INT)),
    "take_tape": (_LONG, (_POINTER, _LONGS, _LONG)),
    "size": (_LONG, (_POINTER, _INT)),
}


class Library:
    """The functions of one shared object, by their names without ``ss_``.

    Args:
        path: a library that exports them: the core's own, or one that it is part of.

    Raises:
        OSError: it cannot be loaded, or is none.
    """

    def __init__(self, path: str) -> None:
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(loaded, f"ss_{name}")
            except AttributeError:
                raise OSError(f"{path} has no function ss_{name}") from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)


def integers(values: Sequence[int]) -> Any:
    """A C array of them."""
    return (_LONG * len(values))(*values)


def keys(values: Sequence[int]) -> Any:
    """A C array of unsigned ones."""
    return (_KEY * len(values))(*values)


def answer(function: Callable[..., int], *arguments: Any) -> list[int]:
    """What a function writes that takes a buffer and its length last, and returns the length that it needs."""
    room = 256
    while True:
        buffer = (_LONG * room)()
        size = function(*arguments, buffer, room)
        if size <= room:
            return list(buffer[:size])
        room = size
