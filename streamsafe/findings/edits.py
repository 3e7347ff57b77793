"""Changes to the text of a file, made on its bytes: its encoding, its line ends and everything else stay."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Applicability = Literal["safe", "unsafe"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Text that replaces a range of a file; an insertion's range is empty.

    Attributes:
        row, column, end_row, end_column: from 1, in characters; the end is exclusive.
        content: what stands there afterwards, with ``\\n`` line ends.
    """

    row: int
    column: int
    end_row: int
    end_column: int
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair, all in one file.

    Attributes:
        applicability: ``safe`` where what the program does stays the same; ``unsafe`` where it waits more.
        message: what it does, in one line.
        edits: the changes.
    """

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


class EditError(Exception):
    """A file that cannot be changed; the message says why."""


def apply(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The bytes of a file after some edits, of which none overlaps another.

    Raises:
        EditError: the file cannot be decoded, or the new text not encoded.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, LookupError, ValueError) as error:
        raise EditError(f"cannot be decoded: {error}") from error
    lines = _LINE.findall(text)
    end = next((found[0] for line in lines if (found := re.search(r"\r\n|\r|\n", line))), "\n")
    for edit in sorted(edits, reverse=True):
        while len(lines) < edit.end_row:
            if lines and not lines[-1].endswith(("\r", "\n")):
                lines[-1] += end
            lines.append("")
        before = lines[edit.row - 1][: edit.column - 1]
        after = lines[edit.end_row - 1][edit.end_column - 1 :]
        content = edit.content.replace("\n", end)
        lines[edit.row - 1 : edit.end_row] = [f"{before}{content}{after}"]
    try:
        return "".join(lines).encode(encoding)
    except UnicodeEncodeError as error:
        raise EditError(f"the new text cannot be written in {encoding}: {error}") from error
