"""Places as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.order.wording import shown

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.report.sources import Source


def location(span: Span, text: Source) -> str:
    """``file:row:column``, with the cell for a notebook."""
    cell, row = text.place(span.row)
    where = f"cell {cell}:{row}" if cell is not None else str(row)
    return f"{shown(span.filename)}:{where}:{span.column}"
