"""Clocks of the host: which were read, what was launched since, and what was still pending at a later reading."""

from __future__ import annotations

from typing import Final, NamedTuple

from streamsafe.order.hazard import Span
from streamsafe.static.domain.atoms import Atom, Symbol, symbol
from streamsafe.static.domain.order import Carriers

LAUNCHES: Final[Symbol] = symbol("launches")
"""Stands for the memory that every launch writes and every reading of a clock reads."""

CLOCK: Final = "time.clock"
"""The type of what a clock gave."""


class Clock(NamedTuple):
    """A reading: where, what the host knew (carriers at entry), and the launches made since."""

    span: Span
    before: Carriers
    since: frozenset[Span] = frozenset()


class Late(NamedTuple):
    """A launch between two readings that the host had not waited for at the second.

    ``then`` is None for a reading made before the function was entered, whichever it is.
    """

    then: Atom | None
    now: Atom
    launch: Span
    tags: int


class Timing:
    """What a path knows of clocks.

    Attributes:
        clocks: reading -> what is known of it.
        late: launches that were pending at a reading.
        elapsed: (then, now): differences of which one side is the caller's.
    """

    __slots__ = ("clocks", "elapsed", "late")

    def __init__(self) -> None:
        self.clocks: dict[Atom, Clock] = {}
        self.late: frozenset[Late] = frozenset()
        self.elapsed: frozenset[tuple[Atom, Atom]] = frozenset()

    def fork(self) -> Timing:
        """An independent copy."""
        twin = Timing.__new__(Timing)
        twin.clocks, twin.late, twin.elapsed = dict(self.clocks), self.late, self.elapsed
        return twin

    def launched(self, *spans: Span) -> None:
        """Something is launched: it comes after every clock read so far."""
        for atom, clock in self.clocks.items():
            if not clock.since.issuperset(spans):
                self.clocks[atom] = clock._replace(since=clock.since.union(spans))

    def join(self, other: Timing) -> bool:
        """Take in the paths of another partition; whether anything changed."""
        changed = not (other.late <= self.late and other.elapsed <= self.elapsed)
        if changed:
            self.late, self.elapsed = self.late | other.late, self.elapsed | other.elapsed
        for atom, clock in other.clocks.items():
            known = self.clocks.get(atom)
            both = clock if known is None else _both(known, clock)
            if both != known:
                self.clocks[atom] = both
                changed = True
        return changed

    def rename(self, names: dict[Atom, Atom]) -> None:
        """Give readings other names."""
        if self.clocks.keys().isdisjoint(names):
            return
        clocks: dict[Atom, Clock] = {}
        for atom, clock in self.clocks.items():
            image = names.get(atom, atom)
            clocks[image] = _both(clocks[image], clock) if image in clocks else clock
        self.clocks = clocks
        self.late = frozenset(
            late._replace(
                then=names.get(late.then, late.then) if late.then else None, now=names.get(late.now, late.now)
            )
            for late in self.late
        )
        self.elapsed = frozenset((names.get(a, a), names.get(b, b)) for a, b in self.elapsed)


def _both(one: Clock, other: Clock) -> Clock:
    return Clock(one.span, one.before & other.before, one.since | other.since)
