"""Which part of a line an instruction belongs to (PEP 657), for the carets under it."""

from __future__ import annotations

import linecache
from itertools import islice
from types import CodeType

Columns = tuple[int, int, int]
"""Column, end line, end column; characters from 1, the end exclusive. Column 0: not known."""

UNKNOWN: Columns = (0, 0, 0)
LIMIT = 4096

_known: dict[tuple[int, int], tuple[CodeType, Columns]] = {}


def columns_of(code: CodeType, offset: int) -> Columns:
    """Where the expression of an instruction stands in its line; Python keeps it from 3.11 on.

    Args:
        code: a code object.
        offset: of the instruction, in bytes.
    """
    found = _known.get((id(code), offset))
    if found is not None and found[0] is code:
        return found[1]
    if len(_known) >= LIMIT:
        _known.clear()
    columns = _columns(code, offset)
    _known[id(code), offset] = (code, columns)
    return columns


def _columns(code: CodeType, offset: int) -> Columns:
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return UNKNOWN
    line, end_line, start, end = next(islice(positions(), offset // 2, None), (None,) * 4)
    if line is None or end_line is None or start is None or end is None:
        return UNKNOWN
    return (
        _characters(code.co_filename, line, start),
        end_line,
        _characters(code.co_filename, end_line, end),
    )


def _characters(filename: str, line: int, column: int) -> int:
    """A column in UTF-8 bytes from 0, as a column in characters from 1."""
    text = linecache.getline(filename, line)
    if not text or text.isascii():
        return column + 1
    return len(text.encode()[:column].decode(errors="replace")) + 1
