"""Whether a stream of text is shown in colour."""

from __future__ import annotations

import os
from typing import TextIO


def wanted(file: TextIO) -> bool:
    """``NO_COLOR`` and ``FORCE_COLOR`` decide, else whether the output is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or file.isatty()
