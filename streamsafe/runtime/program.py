"""The session of a whole program that asks for one in its environment, and of the processes that it starts."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import util
from typing import Any

from streamsafe.report.run_time import as_dict, portable, show
from streamsafe.runtime import processes
from streamsafe.runtime.children import Reporter, reporter
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.monitor import current
from streamsafe.runtime.options import asked
from streamsafe.runtime.sanitize import sanitize
from streamsafe.runtime.session import UNTOLD, Mode, Session
from streamsafe.runtime.suppressions import SuppressionError
from streamsafe.simulate import hardware
from streamsafe.simulate import install as simulations

SESSION = "STREAMSAFE_SESSION"
"""The variable that tells a child what its parent's session was asked for, as JSON."""


LONGEST = 80
"""Characters of a command that are shown."""


@dataclass(frozen=True)
class Inherited:
    """What a child's session takes from its parent's.

    Attributes:
        mode: of the session.
        simulate: whether CUDA is simulated.
        threads: one clock for each host thread.
        ignore: what is not reported.
        suppressions: a suppression file; "" for none.
    """

    mode: Mode = "raise"
    simulate: bool = False
    threads: bool = False
    ignore: tuple[str, ...] = ()
    suppressions: str = ""

    def variables(self) -> dict[str, str]:
        """What a child needs in its environment."""
        file = os.path.abspath(self.suppressions) if self.suppressions else ""
        session = {"threads": self.threads, "ignore": self.ignore, "suppressions": file}
        return {
            "STREAMSAFE": f"simulate,{self.mode}" if self.simulate else self.mode,
            SESSION: json.dumps(session),
        }


def from_variable(value: str) -> tuple[Mode, bool]:
    """The mode that the variable ``STREAMSAFE`` names, and whether CUDA is simulated.

    Raises:
        ValueError: another value.
    """
    return asked("raise" if value == "0" else value, "STREAMSAFE")


def watch_children() -> None:
    """Processes that this one starts are watched, and find in their environment what this one has."""
    processes.begin({name: text for name, text in os.environ.items() if name.startswith("STREAMSAFE")})
    util.register_after_fork(_forks, _Forks.child)


def from_environment(value: str) -> None:
    """``STREAMSAFE=1`` (or ``raise``, ``warn``, ``collect``, ``simulate``): one session until the interpreter ends.

    A process that a watched run has started tells that run what it finds.

    Raises:
        ValueError: another value.
        RuntimeError: the interpreter, or a library that is loaded, cannot be watched; where a watched run has started
            this process, that run says so, and this one goes on.
    """
    mode, simulated = from_variable(value)
    simulation = _simulate() if simulated else None
    told = reporter(os.environ)
    if told is not None:
        watch_children()
        told.begun(_command())
    opened = _open(mode, told)
    if opened is None:
        return
    manager, session = opened

    def finish() -> None:
        atexit.unregister(finish)
        if told is not None:
            _end(manager, session, told)
            if simulation is not None and simulation.used():
                told.used()
            return
        with contextlib.suppress(StreamHazardError):
            manager.__exit__(None, None, None)
        ended = getattr(sys, "last_value", None)  # the exception whose traceback Python has printed
        for hazard in session.hazards:
            if not (isinstance(ended, StreamHazardError) and ended.hazard is hazard):
                show(hazard, sys.stderr)
        if session.hazards:
            print(session.summary(), file=sys.stderr)

    _forks.opened = os.getpid(), finish
    atexit.register(finish)


def _command() -> str:
    """What this process runs, in so many words as tell it apart."""
    words = sys.orig_argv[1:]
    at = words.index(processes.CHILD) if processes.CHILD in words else -1
    text = " ".join(words[at + 1 :])
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _open(mode: Mode, told: Reporter | None) -> tuple[sanitize, Session] | None:
    """The session of this process; None where there can be none and the parent was told."""
    try:
        manager = sanitize(mode, **json.loads(os.environ.get(SESSION, "{}")))
        session = manager.__enter__()
    except (RuntimeError, SuppressionError) as error:
        if told is None:
            raise
        told.unwatched(str(error))
        return None
    session.spares_threads = True
    if told is not None:
        session.found = lambda hazard: told.hazard(portable(hazard) | {"data": as_dict(hazard)})
    return manager, session


def _end(manager: sanitize, session: Session, told: Reporter) -> None:
    with contextlib.suppress(StreamHazardError, RuntimeError):
        manager.__exit__(None, None, None)
    if session.coverage is not None:
        told.watched(session.coverage)
    if session.fault:
        told.unwatched(UNTOLD.format(session.fault))


class _Forks:
    """Processes that ``multiprocessing`` forks have a session of their own where their parent has not used CUDA.

    Where it has, CUDA cannot be used in them. They end without what ``atexit`` knows.

    Attributes:
        idle: whether the parent had not used CUDA at the last fork.
        opened: the process that opened a session by its environment, and what ends it.
    """

    def __init__(self) -> None:
        self.idle = True
        self.opened: tuple[int, Callable[[], None]] | None = None
        os.register_at_fork(before=self._ask)

    def _ask(self) -> None:
        monitor = current.monitor or current.parted
        self.idle = monitor is None or not monitor.checker.operations

    def child(self) -> None:
        """In the child, before it runs what it is for."""
        if self.opened is not None and self.opened[0] == os.getpid():  # while its arguments were read
            util.Finalize(None, self.opened[1], exitpriority=-100)
        told = reporter(os.environ)
        if not self.idle or told is None or current.monitor is not None:
            return
        told.begun("a process that multiprocessing has forked")
        opened = _open(from_variable(os.environ["STREAMSAFE"])[0], told)
        if opened is None:
            return
        manager, session = opened
        util.Finalize(None, _end, (manager, session, told), exitpriority=-100)


_forks = _Forks()


def _simulate() -> Any:
    return simulations.install(hardware.from_environment(os.environ))
