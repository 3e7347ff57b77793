"""What the sanitizer asks of a library whose device work it watches, and which libraries it knows.

A front end is a package with the functions of :class:`FrontEnd` (``runtime/cupy/__init__.py`` is one). Its hooks give
the open :class:`~streamsafe.runtime.monitor.Monitor` what the library enqueues. All front ends of a process share one
monitor, hence one table of streams by (device, raw handle), one of events by raw handle, and one index of memory by
address (:mod:`streamsafe.runtime.blocks`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Hashable, Iterator
from types import FrameType
from typing import Any, Protocol, cast

from streamsafe.order.checker import Checker
from streamsafe.runtime.patches import Patches

MODULES = ("streamsafe.runtime.cupy", "streamsafe.runtime.torch")
"""The front ends, by the name of their package. Importing one imports no library."""


class UnsupportedError(RuntimeError):
    """This version of a library cannot be watched; the message says which can."""


class FrontEnd(Protocol):
    """A library that can be watched.

    Attributes:
        NAME: the library, as its users write it.
        PACKAGES: its import packages, first the one that is imported whenever the library is. Stacks leave out their
            frames.
    """

    NAME: str
    PACKAGES: tuple[str, ...]

    def install(self, patches: Patches) -> None:
        """Puts the hooks in place, once in a process. The library is imported. ``patches`` undoes a failed attempt.

        Raises:
            UnsupportedError: this version of the library cannot be watched.
        """

    def refuse(self) -> None:
        """Called before a session begins, with the hooks in place.

        Raises:
            RuntimeError: a session cannot begin now (the current stream is being captured).
        """

    def engine(self) -> Checker | None:
        """The engine that the library's hooks serve best, of a new program; None: any will do.

        Asked before a session that is not traced and has one clock for all threads.
        """

    def begin(self, monitor: Any, patches: Patches) -> None:
        """A session begins and ``monitor`` takes what the hooks see: forget what the last session left.

        Args:
            patches: what is put in place with it lasts as long as the session.
        """

    def stream_handle(self, value: object) -> int | None:
        """The raw handle of one of the library's stream objects; None for anything else. Imports nothing."""

    def timeline(self, monitor: Any, device: int | None, handle: int | None) -> Hashable:
        """The timeline of a raw handle on a device; None for the calling thread's current one."""

    def extent(self, value: object) -> tuple[int | None, int, int] | None:
        """Device (None for the host), address and bytes of one of the library's arrays; None for anything else."""

    def block(self, address: int) -> tuple[int, int, int] | None:
        """Device, first and last byte (exclusive) of the library's live block at an address; None: there is none."""

    def parts(self, value: object) -> Iterator[tuple[str, object]] | None:
        """What an object of the library holds, with ends of names (``[0].weight``); None for other objects."""

    def forward(self, frame: FrameType | None) -> tuple[object, str, FrameType | None] | None:
        """The model whose forward runs in a frame or its callers, the path of the innermost module in it
        (``.layers.3``), and the frame that calls the model.
        """


def known() -> list[FrontEnd]:
    """All front ends."""
    return [cast(FrontEnd, importlib.import_module(name)) for name in MODULES]


def loaded() -> Iterator[FrontEnd]:
    """The front ends whose library is imported."""
    for name in MODULES:
        front_end = sys.modules.get(name)
        if front_end is not None and any(each in sys.modules for each in front_end.PACKAGES):
            yield cast(FrontEnd, front_end)
