"""torch's GPU trace, as Python listens to it: records, waits and synchronizes of the program and of torch itself.

Once it is switched on, torch calls Python for each piece of memory that is given back too, also while an exception is
on its way through the frames that held it; the exception is then lost, or the process (torch 2.6 to 2.13). So the
entries for memory, and for events that go, are taken out of the table of functions that the trace calls.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE = "_ZN3c104impl8GPUTrace13gpuTraceStateE"
"""``c10::impl::GPUTrace::gpuTraceState``: a pointer to a ``PyInterpreter``, which is a pointer to its table."""

SWITCH = "_ZN3c104impl8GPUTrace9haveStateE"
"""``c10::impl::GPUTrace::haveState``: whether torch asks for it."""

QUIET = ("event_creation", "event_deletion", "memory_allocation", "memory_deallocation", "stream_creation")
LISTENED = (
    "event_record",
    "event_wait",
    "event_synchronization",
    "stream_synchronization",
    "device_synchronization",
)

_kept: list[Any] = []


class NoTrace(Exception):
    """The trace cannot be listened to; the message says why."""


def listen(torch: Any, root: Path, callbacks: dict[str, Callable[..., None]]) -> Callable[[bool], None]:
    """Have torch call functions, which it has no way to take back.

    Args:
        root: torch's folder.
        callbacks: for each of ``LISTENED``; they get raw handles of events and streams, and may not raise.

    Returns:
        What switches the trace on and off. It is off at first, unless somebody else listens.

    Raises:
        NoTrace: this torch is not known well enough.
    """
    entries = methods(root)
    trace = __import__("torch.cuda._gpu_trace", fromlist=["torch"])
    try:
        library = ctypes.CDLL(str(root / "lib" / "libc10.so"))
        state, switch = ctypes.c_void_p.in_dll(library, STATE), ctypes.c_bool.in_dll(library, SWITCH)
    except (OSError, ValueError) as error:
        raise NoTrace(f"PyTorch's GPU trace is not found: {error}") from error
    others = switch.value
    torch._C._activate_gpu_trace()
    if not state.value:
        raise NoTrace("PyTorch's GPU trace is not there")
    table = ctypes.c_void_p.from_address(ctypes.c_void_p.from_address(state.value).value or 0).value or 0
    ours = (ctypes.c_void_p * len(entries))(*(ctypes.c_void_p * len(entries)).from_address(table))
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value  # any C function that does nothing
    for name in QUIET:
        ours[entries.index(f"trace_gpu_{name}")] = nothing
    table_of = ctypes.c_void_p(ctypes.addressof(ours))
    interpreter = ctypes.c_void_p(ctypes.addressof(table_of))
    _kept.extend((ours, table_of, interpreter))
    for name in LISTENED:
        getattr(trace, f"register_callback_for_{name}")(callbacks[name])
    state.value = ctypes.addressof(interpreter)

    def turn(on: bool) -> None:
        switch.value = on or others

    turn(False)
    atexit.register(setattr, switch, "value", False)  # later there is no Python to call
    return turn


def methods(root: Path) -> list[str]:
    """The entries of a ``PyInterpreterVTable``, up to the last one that the trace calls.

    Raises:
        NoTrace: the header is not there, or is not as expected.
    """
    if not sys.platform.startswith("linux"):
        raise NoTrace(f"PyTorch can be watched on Linux only, not on {sys.platform}")
    header = root / "include" / "c10" / "core" / "impl" / "PyInterpreter.h"
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise NoTrace(f"PyTorch's C++ headers are not in {root / 'include'}: its wheels have them") from error
    body = re.search(r"struct C10_API PyInterpreterVTable \{(.*?)\n\};", text, re.DOTALL)
    found = re.findall(r"^  virtual [^;]*?(~?\w+)\(", body[1] if body else "", re.MULTILINE)
    last = max((found.index(name) for name in found if name.startswith("trace_gpu_")), default=-1)
    wanted = {f"trace_gpu_{name}" for name in (*QUIET, *LISTENED)}
    if not found or not found[0].startswith("~") or not wanted <= set(found[: last + 1]):
        raise NoTrace(f"{header} is not as it is in a PyTorch that this version of streamsafe knows")
    return ["complete destructor", "deleting destructor", *found[1 : last + 1]]


__all__ = ["LISTENED", "NoTrace", "listen", "methods"]
