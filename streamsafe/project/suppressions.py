"""Suppressions in comments: `# noqa: SS101`, `# streamsafe: ignore[SS101] why`, `# streamsafe: ignore-file[SS101]`.

Only comments count, never the inside of a string. A comment on a line of its own covers the next line
of code, and the whole block where that is a `with`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

NOQA = re.compile(
    r"#\s*noqa\b(?:\s*:\s*(?P<codes>[a-z]+[0-9]+(?:(?:\s*,\s*|\s+)[a-z]+[0-9]+\b)*)|(?!\s*:))", re.IGNORECASE
)
OWN = re.compile(r"#\s*streamsafe:\s*(?P<kind>ignore(?:-file)?)\b\s*(?:\[(?P<codes>[^\]]*)\])?")
_MENTIONED = re.compile(rb"#\s*streamsafe:|#\s*(?i:noqa)\s*:[^\n]*?\bSS[0-9]")


@dataclass(eq=False, slots=True)
class Suppression:
    """One directive.

    Attributes:
        text: as written, without what follows it in the comment.
        row, column, end_column: where it stands, from 1, in characters.
        target: the row that it covers, or the first of them; None for the whole file.
        codes: codes and names as written; None for a bare `# noqa`.
        used: those of ``codes`` that suppressed something.
        last: the last row that it covers, where these are several: the block of a ``with``.
    """

    kind: Literal["noqa", "ignore", "ignore-file"]
    text: str
    row: int
    column: int
    end_column: int
    target: int | None
    codes: tuple[str, ...] | None
    used: set[str]
    last: int = 0

    def covers(self, code: str, name: str, rows: Iterable[int]) -> bool:
        """Whether it suppresses a finding of this rule on any of these rows; remembers that it did."""
        if self.target is not None and not self._on(rows):
            return False
        if self.codes is None:
            return True
        matching = [given for given in self.codes if given.upper() == code or given.lower() == name]
        self.used.update(matching)
        return bool(matching)

    def _on(self, rows: Iterable[int]) -> bool:
        first = self.target or 0
        return any(first <= row <= max(first, self.last) for row in rows)


def mentioned(source: bytes) -> bool:
    """Whether a file may hold a suppression of ours that names a code: cheap, on bytes."""
    return (b"streamsafe:" in source or b"SS" in source) and _MENTIONED.search(source) is not None


def find(source: str) -> list[Suppression]:
    """All suppressions of a source text, in the order of their rows. A text that does not tokenize has none."""
    if "noqa" not in source.lower() and "streamsafe:" not in source:
        return []
    found: list[Suppression] = []
    waiting: list[Suppression] = []
    for kind, text, row, column in _comments_and_code(source):
        if kind == "code":
            for suppression in waiting:
                suppression.target = row
                suppression.last = _end_of_with(source, row) if text in ("with", "async") else row
            waiting.clear()
            continue
        for suppression in _directives(text, row, column):
            found.append(suppression)
            if kind == "own line" and suppression.kind == "ignore":
                waiting.append(suppression)
    return found


def _end_of_with(source: str, row: int) -> int:
    """The last row of the block of the ``with`` that begins at a row; the row itself where none does."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return row
    kinds = (ast.With, ast.AsyncWith)
    found = (n for n in ast.walk(tree) if isinstance(n, kinds) and n.lineno == row)
    return max((node.end_lineno or row for node in found), default=row)


def _directives(comment: str, row: int, column: int) -> Iterator[Suppression]:
    for match in NOQA.finditer(comment):
        codes = match["codes"]
        yield Suppression(
            "noqa",
            match[0],
            row,
            column + match.start(),
            column + match.end(),
            row,
            tuple(re.split(r"[\s,]+", codes)) if codes else None,
            set(),
        )
    for match in OWN.finditer(comment):
        listed = [code.strip() for code in (match["codes"] or "").split(",")]
        yield Suppression(
            "ignore-file" if match["kind"] == "ignore-file" else "ignore",
            match[0].rstrip(),
            row,
            column + match.start(),
            column + match.start() + len(match[0].rstrip()),
            None if match["kind"] == "ignore-file" else row,
            tuple(code for code in listed if code),
            set(),
        )


def _comments_and_code(source: str) -> Iterator[tuple[Literal["comment", "own line", "code"], str, int, int]]:
    """Comments (kind, text, row, column from 1), and the first token of each line of code between them."""
    import io
    import tokenize

    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    last_code_row = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            row, column = token.start
            if token.type == tokenize.COMMENT:
                yield "comment" if last_code_row == row else "own line", token.string, row, column + 1
            elif token.type not in layout:
                if row != last_code_row:
                    yield "code", token.string, row, column + 1
                last_code_row = token.end[0]
    except (tokenize.TokenError, SyntaxError):
        return
