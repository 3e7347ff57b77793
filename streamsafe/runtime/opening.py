"""Opening and closing sessions. Nested sessions share one monitor; hooks ask for it at each call.

A library's hooks are installed once: when a session opens, or later when the library is imported. They stay installed.
Opening and closing a session only sets and clears the monitor.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from functools import partial
from types import ModuleType
from typing import Any

from streamsafe.order.checker import Checker
from streamsafe.order.trace import Recorder, Trace
from streamsafe.runtime import foreign
from streamsafe.runtime import threads as thread_edges
from streamsafe.runtime.library import FrontEnd, UnsupportedError, known
from streamsafe.runtime.monitor import Monitor, current, rendered
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.session import Host, Session
from streamsafe.toolchain.imports import after_import, imported

_lock = threading.RLock()
_hooked: list[FrontEnd] = []
_unhooked: list[FrontEnd] | None = None
"""The libraries whose hooks are not in place; None before the first session."""

FREE_THREADED = (
    "sanitize() cannot watch a free-threaded interpreter that runs without its global lock: set PYTHON_GIL=1"
)
SUBINTERPRETER = "sanitize() cannot watch a subinterpreter: open the session in the main one"


def hold() -> None:
    """Install the hooks, now or when a library is imported. Pinned arrays are watched from now on.

    Raises:
        streamsafe.runtime.library.UnsupportedError: a library is loaded in a version that is not supported.
        RuntimeError: the interpreter is not supported.
    """
    with _lock:
        _hook()
        current.holders += 1


def release() -> None:
    """End what :func:`hold` began. The hooks stay."""
    with _lock:
        current.holders -= 1


def _hook() -> None:
    """Install the hooks of the loaded libraries."""
    global _unhooked
    if _unhooked is None:
        refuse_interpreter()
        _unhooked = known()
        foreign.install(Patches())
        for library in _unhooked:
            if imported(library.PACKAGES[0]) is None:
                after_import(library.PACKAGES[0], partial(_imported, library))
    for library in list(_unhooked) if _unhooked else ():
        if imported(library.PACKAGES[0]) is not None:
            _install(library)


def _install(library: FrontEnd) -> None:
    if _unhooked is None or library not in _unhooked:
        return
    patches = Patches()
    try:
        library.install(patches)
    except BaseException:
        patches.restore()
        raise
    _unhooked.remove(library)
    _hooked.append(library)


def _imported(library: FrontEnd, module: ModuleType) -> None:
    """A library has just been imported, and nothing has used it yet."""
    with _lock:
        monitor = current.monitor
        try:
            _install(library)
        except UnsupportedError:
            if monitor is not None or current.holders:
                raise
            return
        if monitor is not None:
            library.begin(monitor, monitor.sessions[0]._patches)


def refuse_interpreter() -> None:
    """Refuse an interpreter in which the hooks do not work.

    Raises:
        RuntimeError: it is a subinterpreter, or runs without a global lock.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise RuntimeError(FREE_THREADED)
    here = ctypes.pythonapi.PyInterpreterState_Get
    main = ctypes.pythonapi.PyInterpreterState_Main
    here.restype = main.restype = ctypes.c_void_p
    if here() != main():
        raise RuntimeError(SUBINTERPRETER)


def enter(session: Session, *, threads: bool = False, host: Host = True, trace: Any = None) -> None:
    """Open a session, inside the open one if there is one.

    Raises:
        streamsafe.runtime.library.UnsupportedError: a library is loaded in a version that is not supported.
        RuntimeError: the current stream is being captured, or the interpreter is not supported.
    """
    with _lock:
        monitor = current.monitor
        if monitor is not None:
            for outer in monitor.sessions:
                outer.inner = True
            monitor.watch(session)
            return
        _hook()
        for library in _hooked:
            library.refuse()
        if trace is None:
            engine = None if threads else _engine()
            monitor = Monitor(threads=threads, host=host, checker=engine)
        else:
            recording = Trace(trace, threads=threads, directory=os.getcwd())
            recorder = Recorder(recording.write, threads=threads, render=rendered)
            monitor = Monitor(threads=threads, host=host, checker=recorder, mark=recording.mark)
        monitor.watch(session)
        try:
            for library in _hooked:
                library.begin(monitor, session._patches)
            thread_edges.begin(monitor, session._patches)
        except BaseException:
            session._patches.restore()
            raise
        current.monitor = monitor


def _engine() -> Checker | None:
    """The first library's own engine, if one has any."""
    for library in _hooked:
        engine = library.engine()
        if engine is not None:
            return engine
    return None


def leave(session: Session) -> None:
    """Close a session. Closing the outermost one ends the watched program."""
    with _lock:
        monitor = current.monitor
        if monitor is None or session not in monitor.sessions:
            session._patches.restore()  # a forked child leaves a session that its parent has entered
            return
        if len(monitor.sessions) == 1:
            for tell in monitor.ending:
                tell()
        session.notes.extend(text.format(count) for text, count in sorted(monitor.unseen.items()))
        if len(monitor.sessions) > 1:
            monitor.leave(session)
            return
        try:
            monitor.finish()
        finally:
            current.monitor = None
            monitor.leave(session)
            session._patches.restore()


def _forget() -> None:
    """Stop watching, in a forked child and when the interpreter ends."""
    global _lock
    _lock = threading.RLock()
    current.monitor = current.parted = None


def _fork_nears() -> None:
    """Stop watching while a process forks.

    In the child, code that runs before :func:`_forget` may take locks. A hook would then ask for a lock of the
    monitor, which another thread of the parent may have held at the fork.
    """
    current.parted = current.monitor
    current.monitor = None


def _forked() -> None:
    current.monitor, current.parted = current.parted, None


os.register_at_fork(before=_fork_nears, after_in_parent=_forked, after_in_child=_forget)
atexit.register(_forget)
