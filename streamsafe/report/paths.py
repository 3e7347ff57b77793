"""File names as they are shown: relative to the working directory where they lie below it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.report.sources import Source


def shown(path: str) -> str:
    """A path as a person reads it."""
    if not os.path.isabs(path):
        return path
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") else relative


def location(span: Span, text: Source) -> str:
    """``file:row:column``, with the cell for a notebook."""
    cell, row = text.place(span.row)
    where = f"cell {cell}:{row}" if cell is not None else str(row)
    return f"{shown(span.filename)}:{where}:{span.column}"
