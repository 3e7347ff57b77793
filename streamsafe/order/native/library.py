"""The core's C functions (``abi.hpp``), called without the GIL but for the shortest."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streamsafe.order.operations import TAPE

_INT, _ID, _KEY, _LONG, _POINTER = (
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_void_p,
)
_LONGS = ctypes.POINTER(_LONG)

_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("stream", "site", "operation", "graph", "name"), _ID),
    **dict.fromkeys(("key", "event", "host", "source", "target", "start", "size"), _KEY),
    **dict.fromkeys(("device", "space", "kind", "owner", "mode"), _INT),
    **dict.fromkeys(("external", "implicit", "fresh", "private_pool", "force"), _INT),
}
"""The type of each column of :data:`streamsafe.order.operations.TAPE`."""

_GIVES: dict[str, tuple[Any, str]] = {
    "stream": (_ID, "key"),
    "host_function": (_ID, "function"),
    "capture_begin": (_INT, "graph"),
    "capture_end": (_ID, ""),
    **dict.fromkeys(
        ("wait", "synchronize_stream", "synchronize_event", "synchronize_device", "replay"), (_INT, "")
    ),
}
"""What the function of an operation returns, and the column that it does not take for that."""

_TAKES = {
    "allocate": "space start size stream owner site name fresh host",
    "replay": f"{TAPE['replay']} force",
}
"""Functions that take more than the columns: what is made there; whether it happens although it conflicts."""


def columns_of(operation: str) -> list[str]:
    """The columns of an operation that its function takes, in their order."""
    given = _GIVES.get(operation, (None, ""))[1]
    return [column for column in _TAKES.get(operation, TAPE[operation]).split() if column != given]


def _of_operations() -> Iterator[tuple[str, tuple[Any, tuple[Any, ...]]]]:
    for name in TAPE:
        if name not in ("access", "gradient"):
            result = _GIVES.get(name, (None, ""))[0]
            columns = (_COLUMNS[column] for column in columns_of(name))
            yield name, (result, (_POINTER, *columns))


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **dict(_of_operations()),
    "new": (_POINTER, (_INT,)),
    "delete": (None, (_POINTER,)),
    "access": (_INT, (_POINTER, _ID, _LONGS, _LONG, _ID, _ID, _KEY, _INT)),
    "freed_blocks": (_LONG, (_POINTER, _LONGS, _LONG)),
    "drop_graph": (None, (_POINTER, _ID)),
    "manage_graph": (None, (_POINTER,)),
    "capturing": (_INT, (_POINTER, _ID)),
    "recorded": (_INT, (_POINTER, _KEY)),
    "captured": (_INT, (_POINTER, _KEY)),
    "waited": (_INT, (_POINTER, _KEY, _KEY)),
    "epoch": (_KEY, (_POINTER, _ID)),
    "passed": (_INT, (_POINTER, _ID, _KEY, _KEY)),
    "finish": (None, (_POINTER,)),
    "reports": (_LONG, (_POINTER, _ID, _LONGS, _LONG)),
    "state": (_LONG, (_POINTER, ctypes.POINTER(_KEY), _LONG, _LONGS, _LONG)),
    "judged": (_INT, (_POINTER, _KEY)),
    "forget_judged": (None, (_POINTER,)),
    "repeats": (_LONG, (_POINTER, _LONGS, _LONG)),
    "allow": (_KEY, (_KEY,)),
    "meant": (None, (ctypes.POINTER(_KEY), _LONG)),
    "capture_sites": (_LONG, (_POINTER, _LONGS, _LONG)),
    "tape": (None, (_POINTER, _INT)),
    "take_tape": (_LONG, (_POINTER, _LONGS, _LONG)),
    "size": (_LONG, (_POINTER, _INT)),
}
"""The functions by name: their result and their arguments. Those of operations follow from the operations' table."""


_QUICK = ("host_edge", "allow")
"""Functions that cost less than to give the interpreter's lock away: the core waits for nobody who may want it."""


class Library:
    """The functions of one shared object, by their names without ``ss_``.

    Args:
        path: a library that exports them: the core's own, or one that it is part of.

    Raises:
        OSError: it cannot be loaded, or is none.
    """

    def __init__(self, path: str) -> None:
        loaded, held = ctypes.CDLL(path), ctypes.PyDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(held if name in _QUICK else loaded, f"ss_{name}")
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
