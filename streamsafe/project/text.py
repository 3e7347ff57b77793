"""Source text from bytes: encodings, line ends, and notebooks, whose code cells are checked as one module."""

from __future__ import annotations

import ast
import bisect
import codecs
import re
import sys
import warnings
from dataclasses import dataclass
from functools import cached_property

LIMIT = 10_000_000
"""Bytes; larger files are generated, and are not parsed."""


NESTED = "nested too deeply to be analysed"


class SourceError(Exception):
    """A file that is no Python source, or is more than can be parsed.

    Args:
        message: why, in one sentence.
        row: line, from 1.
        column: character, from 1.
    """

    def __init__(self, message: str, row: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.row = row
        self.column = column


@dataclass(frozen=True)
class Text:
    """The text of a file, with `\\n` line ends.

    Attributes:
        text: a notebook's is that of its code cells, one after the other.
        cells: for a notebook, (number of the cell, its first row in ``text``), in order; both from 1.
    """

    filename: str
    text: str
    cells: tuple[tuple[int, int], ...] = ()

    @cached_property
    def lines(self) -> list[str]:
        """The rows, without their ends."""
        return self.text.split("\n")

    def place(self, row: int) -> tuple[int | None, int]:
        """The notebook cell that a row stands in, and the row in it; None and the row itself in a plain file."""
        if not self.cells:
            return None, row
        number, first = self.cells[max(0, bisect.bisect_right(self.cells, row, key=lambda cell: cell[1]) - 1)]
        return number, row - first + 1


def read(data: bytes, filename: str) -> Text:
    """Decode a file.

    Raises:
        SourceError: it is too large, cannot be decoded, or is a notebook that makes no sense.
    """
    if len(data) > LIMIT:
        raise SourceError(f"not checked: larger than {LIMIT // 1_000_000} MB")
    if filename.endswith(".ipynb"):
        return _notebook(data, filename)
    return Text(filename, _decode(data))


def _decode(data: bytes) -> str:
    encoding = "utf-8"
    if data.startswith(codecs.BOM_UTF8):
        data = data[3:]
    else:
        encoding = _declared(data) or encoding
    try:
        text = data.decode(encoding)
    except (LookupError, ValueError) as error:
        if not isinstance(error, UnicodeDecodeError):
            raise SourceError(f"unknown encoding {encoding!r} is declared") from error
        before = data[: error.start].decode(encoding, "replace")
        row = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        message = f"not valid {encoding.upper()}: byte 0x{data[error.start]:02x}"
        raise SourceError(message, row, column) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _declared(data: bytes) -> str | None:
    """The encoding that one of the first two lines declares (PEP 263)."""
    for line in data.split(b"\n", 2)[:2]:
        match = re.match(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", line)
        if match:
            return match[1].decode("ascii", "replace")
        if not re.match(rb"[ \t\f]*(?:[#\r\n]|$)", line):
            return None
    return None


def _notebook(data: bytes, filename: str) -> Text:
    import json

    try:
        notebook = json.loads(data)
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        cells = notebook["cells"] if language == "python" else []
        sources = [
            (number, "".join(cell["source"]))
            for number, cell in enumerate(cells, 1)
            if cell["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError("not a Jupyter notebook") from error
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    row = 1
    for number, source in sources:
        text = _without_magics(source.replace("\r\n", "\n").replace("\r", "\n")).rstrip("\n") + "\n"
        places.append((number, row))
        parts.append(text)
        row += text.count("\n")
    return Text(filename, "".join(parts), tuple(places))


PYTHON_CELLS = ("%%capture", "%%debug", "%%prun", "%%pypy", "%%python", "%%python3", "%%time", "%%timeit")
_MAGIC = re.compile(r"(?P<indent>\s*)(?:[%!?]|[\w.]+\s*\?{1,2}\s*$|(?P<target>[\w., ]+?)\s*=\s*[%!])")


def _without_magics(source: str) -> str:
    """A cell as Python: IPython's magics become statements that do nothing, row by row."""
    if _parses(source):
        return source
    for line in filter(None, map(str.strip, source.split("\n"))):
        if not line.startswith("%%"):
            break  # what stands before the first other line says together what the cell is
        if not line.startswith(PYTHON_CELLS):
            return "\n" * source.count("\n")
    rows = []
    continued = False
    for line in source.split("\n"):
        match = _MAGIC.match(line)
        if continued:
            rows.append("")
        elif match:
            target = match["target"]
            rows.append(f"{match['indent']}{target.strip()} = None" if target else f"{match['indent']}pass")
        else:
            rows.append(line)
        continued = (continued or match is not None) and line.endswith("\\")
    return "\n".join(rows)


def parse(text: str) -> ast.Module:
    """The syntax tree of a text.

    Raises:
        SourceError: it does not parse; newer syntax than the interpreter's own is no mistake of its author, so the
            message says by which version it was read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        version = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        message = f"{error.msg or 'invalid syntax'} (parsed as {version})"
        raise SourceError(message, error.lineno or 1, max(1, error.offset or 1)) from error
    except (RecursionError, MemoryError) as error:
        raise SourceError(NESTED) from error
    except ValueError as error:  # a null byte, before Python 3.12
        raise SourceError(str(error)) from error


def _parses(source: str) -> bool:
    try:
        parse(source)
    except SourceError:
        return False
    return True
