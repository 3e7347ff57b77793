"""Opening and closing sessions: hooks in place while at least one is open, one monitor for all that are nested."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from streamsafe.order.trace import Recorder, Trace
from streamsafe.runtime.frontend import front_ends, nothing_installed
from streamsafe.runtime.monitor import Monitor, current, rendered
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.session import Session

_lock = threading.RLock()
_patches = Patches()
_holders = 0


def hold() -> bool:
    """Puts the hooks in place, or counts one more who needs them. False when there is nothing to hook.

    Raises:
        streamsafe.runtime.frontend.UnsupportedError: a library is installed in a version that is not supported.
    """
    global _holders
    with _lock:
        libraries = list(front_ends())
        if not libraries:
            return False
        if _holders == 0:
            try:
                for library in libraries:
                    library.install(_patches)
            except BaseException:
                _patches.restore()
                raise
        _holders += 1
        return True


def release() -> None:
    """Takes the hooks away when the last holder is gone."""
    global _holders
    with _lock:
        _holders -= 1
        if _holders == 0:
            _patches.restore()


def enter(session: Session, *, threads: bool = False, host: bool = True, trace: Any = None) -> None:
    """Opens a session, inside the open one if there is one.

    Raises:
        streamsafe.runtime.frontend.UnsupportedError: a library is installed in a version that is not supported.
        RuntimeError: the current stream is being captured.
    """
    with _lock:
        monitor = current.monitor
        if monitor is not None:
            monitor.sessions.append(session)
            session._held = False
            return
        if trace is None:
            monitor = Monitor(threads=threads, host=host)
        else:
            recording = Trace(trace, threads=threads)
            recorder = Recorder(recording.write, threads=threads, render=rendered)
            monitor = Monitor(threads=threads, host=host, checker=recorder, mark=recording.mark)
        monitor.sessions.append(session)
        current.monitor = monitor
        try:
            session._held = hold()
            if session._held:
                libraries = list(front_ends())
                for library in libraries:
                    library.refuse()
                for library in libraries:
                    library.begin(monitor)
        except BaseException:
            current.monitor = None
            if getattr(session, "_held", False):
                release()
            raise
        import streamsafe.runtime.threads as thread_edges

        session._threads = Patches()
        if threads:
            thread_edges.install(session._threads, monitor)
        else:
            thread_edges.install_answers(session._threads)
        if not session._held:
            session.notes.append(nothing_installed())


def leave(session: Session) -> None:
    """Closes a session; the outermost one ends the program and takes the hooks away."""
    with _lock:
        monitor = current.monitor
        if monitor is None or session not in monitor.sessions:
            return
        if len(monitor.sessions) > 1:
            monitor.sessions.remove(session)
            return
        try:
            monitor.finish()
        finally:
            current.monitor = None
            monitor.sessions.remove(session)
            if session._threads is not None:
                session._threads.restore()
            if session._held:
                release()


def _forget() -> None:
    """In a forked child, and when the interpreter ends: nothing listens any more."""
    global _lock
    _lock = threading.RLock()
    current.monitor = None


os.register_at_fork(after_in_child=_forget)
atexit.register(_forget)
