"""Finds CUDA stream bugs in Python: before the program runs, and while it runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from streamsafe.project.version import __version__

if TYPE_CHECKING:
    from streamsafe.runtime.allow import allow as allow
    from streamsafe.runtime.annotate import annotate as annotate
    from streamsafe.runtime.errors import StreamHazardError as StreamHazardError
    from streamsafe.runtime.errors import StreamHazardWarning as StreamHazardWarning
    from streamsafe.runtime.sanitize import sanitize as sanitize
    from streamsafe.runtime.session import Session as Session

_HOMES = {
    "Session": "session",
    "StreamHazardError": "errors",
    "StreamHazardWarning": "errors",
    "allow": "allow",
    "annotate": "annotate",
    "sanitize": "sanitize",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"streamsafe.runtime.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


__all__ = ["__version__", *_HOMES]

if os.environ.get("STREAMSAFE", "0") not in ("", "0"):
    from streamsafe.runtime.environment import open_session

    open_session()
