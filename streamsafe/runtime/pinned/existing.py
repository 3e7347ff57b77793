"""Plain NumPy arrays over pinned memory become watched ones where they stand, and plain again afterwards.

An array that ``numpy.ndarray(shape, dtype, buffer)`` lays over a pinned block, or one made before the session, has a
type that nobody can assign (``array.__class__ = ...`` refuses static types). Instances of
``PinnedArray`` are laid out as those of ``numpy.ndarray`` are, so the type pointer in the
object's head is exchanged, as CPython does it for classes that allow it. Where the layout is another nothing is
exchanged, and such arrays stay unseen.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from types import FrameType, ModuleType
from typing import Any

import numpy

from streamsafe.runtime.pinned import variables as frames
from streamsafe.runtime.pinned.arrays import COLLECTED, HEAP, PinnedArray

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_TYPE = object.__basicsize__ - _POINTER
"""Where an object's head has its type."""

_adopted: dict[int, weakref.ref[Any]] = {}


def _slot(value: object) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(id(value) + _TYPE)


def _possible() -> bool:
    probe = numpy.empty(0)
    return (
        sys.implementation.name == "cpython"
        and PinnedArray.__basicsize__ == numpy.ndarray.__basicsize__
        and not (numpy.ndarray.__flags__ | PinnedArray.__flags__) & COLLECTED
        and not numpy.ndarray.__flags__ & HEAP
        and bool(PinnedArray.__flags__ & HEAP)
        and _slot(probe).value == id(numpy.ndarray)
    )


def adopt(array: Any) -> None:
    """Makes a plain array a watched one. Its views made before stay as they are."""
    if type(array) is not numpy.ndarray or not _POSSIBLE:
        return
    key = id(array)
    _adopted[key] = weakref.ref(array, lambda _: _adopted.pop(key, None))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(PinnedArray))
    _slot(array).value = id(PinnedArray)


def release() -> None:
    """Gives every adopted array its type back."""
    for known in list(_adopted.values()):
        array = known()
        if type(array) is PinnedArray:
            _slot(array).value = id(numpy.ndarray)
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(PinnedArray))
    _adopted.clear()


def root(array: Any) -> Any:
    """The array that an array is a view of, itself when it is none."""
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    return array


def buffer_of(array: Any) -> Any:
    """What an array's memory belongs to, when that is no array."""
    found = root(array).base
    return found.obj if isinstance(found, memoryview) else found


def _held(values: Iterable[Any]) -> list[Any]:
    """What objects refer to.

    A module is left out: its variables are in a dictionary, which is an object as well. CPython 3.12's ``_asyncio``
    also shows what it keeps for use again, objects without an owner, and does not end when they were held once more.
    """
    return gc.get_referents(*[value for value in values if not issubclass(type(value), ModuleType)])


def arrays(wanted: Callable[[Any], bool]) -> list[Any]:
    """The plain arrays of the process that ``wanted`` is true of: in containers, objects and the frames that run."""
    found: dict[int, Any] = {}

    def look(values: Any) -> None:
        for value in values:
            if type(value) is numpy.ndarray and value.base is not None and wanted(value):
                found[id(value)] = value

    look(_held(gc.get_objects()))
    for frame in sys._current_frames().values():
        at: Any = frame
        while at is not None:
            look(frames.variables(at))
            at = at.f_back
    return list(found.values())


def nearby(wanted: Callable[[Any], bool]) -> list[Any]:
    """The plain arrays that ``wanted`` is true of and this thread's frames hold, or what they hold does."""
    found: dict[int, Any] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        held = frames.variables(frame)
        for value in [*held, *_held(held)]:
            if type(value) is numpy.ndarray and not value.dtype.hasobject and wanted(value):
                found[id(value)] = value
        frame = frame.f_back
    return list(found.values())


_POSSIBLE = _possible()
