"""Files to check, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamsafe.order.hazard import Access, Conflict, Facts, Memory, Span
from streamsafe.project.settings import Models


@dataclass(slots=True)
class Checked:
    """What came of one file.

    Attributes:
        conflicts: what the analysis found; a file that cannot be parsed has one violation, ``syntax-error``.
        explanation: what is known at the row asked for (`--explain-line`).
        crash: an internal error, in one sentence; the file was not checked.
        notes: why it was not run to its end, where a limit cut that short.
    """

    path: str
    conflicts: list[Conflict] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    crash: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to parse.

    Attributes:
        size: bytes.
        analyse: whether the analysis runs; else all that can be found is that the file does not parse.
        report_syntax: whether it is reported that the file does not parse.
    """

    path: str
    size: int
    models: Models
    analyse: bool = True
    report_syntax: bool = True


@dataclass(slots=True)
class Plan:
    """What is to be done, after every file was read once.

    Attributes:
        tasks: files to parse.
        mentions: files that may hold a suppression of ours.
        unread: files that cannot be read, with the reason.
        looked: all files that were read, and whether they have stream code.
        count: how many files are parsed.
        imports, digests: of all files that were read, their import statements and what stands for their contents.
    """

    tasks: list[Task] = field(default_factory=list)
    mentions: set[str] = field(default_factory=set)
    unread: list[Checked] = field(default_factory=list)
    looked: dict[str, bool] = field(default_factory=dict)
    count: int = 0
    imports: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


ADVICE = {"SS321": "pageable-non-blocking", "SS322": "pin-memory-then-copy"}
"""Rules that are off unless they are selected, and what they are about."""


def syntax_error(path: str, message: str, row: int = 1, column: int = 1) -> Conflict:
    """A file that cannot be parsed, as a violation."""
    span = Span(path, row, column, row, column + 1)
    return violation("syntax-error", message, span)


def violation(name: str, operation: str, span: Span) -> Conflict:
    """A finding on the text of a file rather than on what it does."""
    access = Access(operation, timeline="", reads_or_writes="reads", span=span)
    return Conflict(second=access, first=None, memory=Memory(""), facts=Facts(violation=name))
