"""The variables of a frame that runs, looked at without a trace.

Until Python 3.12 a function's ``f_locals`` is a dict that stays with the frame: what it holds outlives the names that
held it, and it is the very dict that the program's own ``locals()`` gave out. From 3.12 on ``PyFrame_GetVar`` asks for
one name and keeps nothing.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from types import FrameType
from typing import Any

_get: Any = None
if sys.version_info >= (3, 12):
    _get = ctypes.pythonapi.PyFrame_GetVar
    _get.restype, _get.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.py_object)

_OURS = 3
"""How many references there are to a snapshot that only its frame holds: that one, a name's, an argument's."""


def variable(frame: FrameType, name: str) -> Any:
    """What a local name of a frame stands for. (A function's from Python 3.12 on.)

    Raises:
        NameError: nothing at present.
    """
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return _get(frame, name)
    if name not in frame.f_locals:
        raise NameError(name)
    return frame.f_locals[name]


def variable_of(frame: FrameType, name: str) -> Any:
    """What a local name of a frame stands for; None where it stands for nothing."""
    return next((value for each, value in named(frame) if each == name), None)


def variables(frame: FrameType) -> list[Any]:
    """What the local names of a frame stand for."""
    return [value for _, value in named(frame)]


def named(frame: FrameType) -> list[tuple[str, Any]]:
    """The local names of a frame and what they stand for."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return list(frame.f_locals.items())
    if _get is None:
        return _of_snapshot(frame)
    found = []
    for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        try:
            found.append((name, _get(frame, name)))
        except NameError:
            continue
    return found


def _of_snapshot(frame: FrameType) -> list[tuple[str, Any]]:
    """The items of ``f_locals``, which is emptied again unless the program holds it too."""
    snapshot = frame.f_locals
    items = list(snapshot.items())
    if sys.getrefcount(snapshot) <= _OURS:
        snapshot.clear()
    return items
