"""Whether a stream of text is shown in colour and with links."""

from __future__ import annotations

import os
from typing import TextIO


def wanted(file: TextIO) -> bool:
    """``NO_COLOR`` and ``FORCE_COLOR`` decide, else whether the output is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or file.isatty()


def links_wanted(file: TextIO) -> bool:
    """Whether a terminal is to be given hyperlinks: ``FORCE_HYPERLINK`` decides, else whether it is a real one."""
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced != "0"
    return wanted(file) and file.isatty() and os.environ.get("TERM") != "dumb"


def linked(text: str, url: str) -> str:
    """A text that a terminal shows as a link (OSC 8)."""
    return f"\033]8;;{url}\033\\{text}\033]8;;\033\\"
