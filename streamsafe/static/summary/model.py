"""What a function does, as its callers need it. Everything is relative to the function's entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streamsafe.order.hazard import Span
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import CURRENT, UNKNOWN, Atom, New, Value
from streamsafe.static.domain.capturing import Graph, Overlaid
from streamsafe.static.domain.guards import ALWAYS, Guard
from streamsafe.static.domain.order import Carriers, Ways
from streamsafe.static.domain.state import Cell, HostWork, Region, Wait
from streamsafe.static.domain.timing import Clock, Late

PairKind = Literal["pair", "reuse", "violation"]

Reason = Literal["untimed", "unrecorded", "pending"]
"""What is wrong with an event whose time is asked for."""


class Pair(NamedTuple):
    """A hazard before it has a code.

    Attributes:
        kind: two accesses with no edge between them; a use that the block's next life does not come after (``first``
            is the use); or one operation that is illegal where it stands.
        first, second: the accesses. ``second`` of a reuse is the next allocation where one is seen.
        waits: the waits made between the two.
        guard: the literals under which it happens.
        tags: assumptions of the pair itself, beside those of its accesses (:mod:`confidence`).
        violation: the name of the rule that is violated.
        what: what a violation is about.
        notes: further places.
        before: the waits made before both.
        reason: of several ways to violate a rule, which.
    """

    kind: PairKind
    first: Access | None
    second: Access | None
    span: Span
    waits: frozenset[Wait] = frozenset()
    guard: Guard = ALWAYS
    tags: int = 0
    violation: str = ""
    what: str = ""
    notes: tuple[tuple[str, Span], ...] = ()
    before: frozenset[Wait] = frozenset()
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """One partition that returns.

    Attributes:
        guard: literals over the callee's own paths.
        knows: the order relation, rows that are not the identity.
        accesses: the ways in which each is known at the exit; those of the host have none.
        heap: (path or returned object, field) -> value: what is stored where a caller can see it.
        places, homes: of buffers that a caller can reach.
        result: the value.
        current: the current stream at the exit.
        waits: who waits for whom.
        cells: event -> the stream it was recorded on, and where.
        recorded: (buffer, stream).
        work: what would be illegal in a capture.
        waited: access -> the waits made before it.
        capture: the capture that the caller goes on with.
        ended, begins, threads, graphs, rebound, replays, stored, needed: as in
            :class:`~streamsafe.static.domain.capturing.Capturing`.
        clocks, late, elapsed: as in :class:`~streamsafe.static.domain.timing.Timing`.
    """

    guard: Guard = ALWAYS
    knows: Mapping[Atom, Carriers] = field(default_factory=dict)
    accesses: Mapping[Access, Ways] = field(default_factory=dict)
    heap: Mapping[tuple[Atom, str], Value] = field(default_factory=dict)
    places: Mapping[Atom, str] = field(default_factory=dict)
    homes: Mapping[Atom, Atom] = field(default_factory=dict)
    result: Value = UNKNOWN
    current: Atom = CURRENT
    waits: frozenset[Wait] = frozenset()
    cells: Mapping[Atom, Cell] = field(default_factory=dict)
    recorded: frozenset[tuple[Atom, Atom]] = frozenset()
    work: frozenset[HostWork] = frozenset()
    waited: Mapping[Access, frozenset[Wait]] = field(default_factory=dict)
    clocks: Mapping[Atom, Clock] = field(default_factory=dict)
    late: frozenset[Late] = frozenset()
    elapsed: frozenset[tuple[Atom, Atom]] = frozenset()
    capture: Region | None = None
    ended: Span | None = None
    begins: frozenset[Span] = frozenset()
    threads: Mapping[Atom, Span] = field(default_factory=dict)
    graphs: Mapping[Atom, Graph] = field(default_factory=dict)
    rebound: frozenset[tuple[Atom, Span]] = frozenset()
    replays: frozenset[tuple[Atom, Span]] = frozenset()
    stored: Mapping[tuple[Atom, str], Span] = field(default_factory=dict)
    needed: frozenset[tuple[Overlaid, Atom]] = frozenset()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a caller needs of a function.

    Attributes:
        fid: the function.
        exits: one for each partition that returns.
        pairs: the hazards found inside.
        yields: what a generator hands out.
        notes: budgets that were hit.
        made: the objects that it makes and that callers see, as far as calls keep them apart.
    """

    fid: str
    exits: tuple[Exit, ...]
    pairs: tuple[Pair, ...] = ()
    yields: Value = UNKNOWN
    notes: tuple[str, ...] = ()
    made: tuple[New, ...] = ()


NOTHING = Summary("", (Exit(),))
"""What a function is taken to do that is not seen, or whose summary is being computed: nothing."""
