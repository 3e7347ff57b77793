"""Captures: the streams that take part, what was begun and ended, and who else is at work meanwhile."""

from __future__ import annotations

from typing import Final

from streamsafe.order.hazard import Span
from streamsafe.static.domain.atoms import Atom, Symbol, symbol

FORK: Final[Symbol] = symbol("fork")
"""Stands for the point where a capture begins: a stream takes part when it comes after it."""

BRANCH: Final[Symbol] = symbol("branch")
"""Stands for the work of a stream that was forked: the capturing stream must come after it at the end."""


class Capturing:
    """What a path knows of captures, beside the one under way.

    Attributes:
        ended: where a capture of a caller was ended.
        begins: captures begun by hand on the stream that is current at entry.
        threads: threads and futures of the host that may still be at work -> where they were started.
    """

    __slots__ = ("begins", "ended", "threads")

    def __init__(self) -> None:
        self.ended: Span | None = None
        self.begins: frozenset[Span] = frozenset()
        self.threads: dict[Atom, Span] = {}

    def fork(self) -> Capturing:
        """An independent copy."""
        twin = Capturing.__new__(Capturing)
        twin.ended, twin.begins, twin.threads = self.ended, self.begins, dict(self.threads)
        return twin

    def join(self, other: Capturing) -> bool:
        """Take in the paths of another partition; whether anything changed."""
        changed = not other.begins <= self.begins or (self.ended is None and other.ended is not None)
        self.ended = self.ended or other.ended
        self.begins = self.begins | other.begins
        for atom, span in other.threads.items():
            if atom not in self.threads:
                self.threads[atom] = span
                changed = True
        return changed

    def rename(self, names: dict[Atom, Atom]) -> None:
        """Give objects other names."""
        if not self.threads.keys().isdisjoint(names):
            self.threads = {names.get(atom, atom): span for atom, span in self.threads.items()}
