"""Files to check, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
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
        with_others: what shows together with definitions of other files.
        linked: these definitions: file, first and last row.
        entered: the functions of other files that it calls: file, first and last row.
        caller: whether it was checked only for what it does with the stream code of other files.
        looked: files and directories that were looked at for it, as far as this process had not done so before.
    """

    path: str
    conflicts: list[Conflict] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    crash: str | None = None
    notes: list[str] = field(default_factory=list)
    with_others: list[Conflict] = field(default_factory=list)
    linked: Sequence[tuple[str, int, int]] = ()
    entered: Sequence[tuple[str, int, int]] = ()
    caller: bool = False
    looked: frozenset[str] = frozenset()

    def reaches(self, span: Span) -> bool:
        """Whether a place lies in a function of another file that this one calls, directly or by others."""
        return any(path == span.filename and first <= span.row <= last for path, first, last in self.entered)


@dataclass(frozen=True, slots=True)
class Task:
    """A file to parse.

    Attributes:
        size: bytes.
        analyse: whether the analysis runs; else all that can be found is that the file does not parse.
        report_syntax: whether it is reported that the file does not parse.
        data: the bytes, where they cannot be read again (standard input).
        related: names of what has to do with streams in the project.
        caller: whether it is checked only for what it does with the stream code of other files.
        cache: where what it shows is kept; "" for nowhere.
        advice: whether advice is asked for.
    """

    path: str
    size: int
    models: Models
    analyse: bool = True
    report_syntax: bool = True
    data: bytes | None = None
    related: frozenset[str] = frozenset()
    caller: bool = False
    cache: str = ""
    advice: bool = True


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
