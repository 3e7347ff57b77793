"""Clocks of the host and events with timing."""

from __future__ import annotations

from streamsafe.apis import names as apis

from ..assumptions import counted
from ..program import NOTHING, Access, Block, Hazard, Launch
from ..values import (
    Clock,
    Event,
    Map,
    Seq,
    Sym,
    V,
)
from .accesses import Accesses
from .path import Node

PLACES = frozenset(("place", "loaded", "target"))
"""What may have to be assumed of memory."""


def takes_time(launch: Launch) -> bool:
    """Whether a launch is a product of matrices, or a call of more than one operation: a model, a pass, a step."""
    return (
        launch.op in apis.MATRIX_PRODUCTS
        or launch.op == "replay"
        or (launch.op.endswith("()") and launch.op != "zero_grad()")
        or not {*launch.assumed} <= PLACES  # a call that is assumed to work
    )


class Timing(Accesses):
    """Clocks of the host and events with timing."""

    def timed(self, begin: Clock, end: Clock, node: Node) -> Sym:
        """The time between two readings: a finding where it is more than compared or slept for."""
        seconds = self.m.fresh("<seconds>", "host")
        pending = self.surest_pending(begin, end)
        if pending is None or self.not_on_cuda():
            return seconds
        notes = frozenset(pending.assumed)
        tail = ("tail",) if self.is_tail(begin, end) else ()
        self.m.measured[seconds] = Hazard(
            "SS311",
            Access(pending.timeline, pending.at, True, None, pending.site, pending.op, notes=notes),
            Access(self.order.host, 0, False, None, end.site, "clock"),
            Block("cuda", pending.memory) if notes else None,
            (*pending.assumed, *tail),
        )
        return seconds

    def is_tail(self, begin: Clock, end: Clock) -> bool:
        """Whether the host has waited for work between two readings, and nothing that takes time came later."""
        known = self.clock_known.get(end.seq, NOTHING)
        launches = [x for x in self.m.launches if begin.seq < x.seq < end.seq]
        waited = max((x.seq for x in launches if known.get(x.timeline, 0) >= x.at), default=0)
        if not waited or any(waited < seq < end.seq for seq in self.called_models):
            return False
        return not any(takes_time(x) for x in launches if known.get(x.timeline, 0) < x.at)

    def surest_pending(self, begin: Clock, end: Clock) -> Launch | None:
        """The last launch between two readings where nothing has waited for it, or a surer one before it.

        What the stream of the last launch has not done either, and for which less has to be assumed. A call that is
        not in sight may have waited for what was launched before it.
        """
        known = self.clock_known.get(end.seq, NOTHING)
        found, least = None, 0
        for x in reversed(self.m.launches):
            if x.seq >= end.seq:
                continue
            if (
                x.seq <= begin.seq
                or self.last_unknown_between(x.seq, end.seq)
                or known.get(x.timeline, 0) >= x.at
            ):
                break
            count = sum(counted("SS311", x.assumed).values())
            if found is None or (count < least and x.timeline is found.timeline):
                found, least = x, count
            if not least or not {*x.assumed} <= PLACES:
                break
        return found

    def not_on_cuda(self) -> bool:
        """Whether the path says that some device is none of CUDA's: what was timed may have run there."""
        cuda = ("c", "str", "cuda")
        return any(
            not value and ((key[0] == "eq" and cuda in key[1:3]) or (key[0] == "in" and key[1] == cuda))
            for key, value in self.m.conds.items()
        )

    def measured_from(self, v: V) -> Sym:
        """What is computed from a measured time."""
        s = self.m.fresh("<seconds>", "host")
        self.m.measured[s] = self.m.measured[v]
        return s

    def reported(self, v: V, depth: int = 0) -> None:
        """A measured time is reported or kept."""
        h = self.m.measured.get(v)
        if h is not None and h not in self.m.hazards:
            self.m.hazards.append(h)
        if isinstance(v, (Seq, Map)) and depth < 2 and self.m.measured:
            for i in v.items if isinstance(v, Seq) else list(v.items.values()):
                self.reported(i, depth + 1)

    def last_unknown_between(self, a: int, b: int) -> bool:
        return any(a < s < b for s in self.m.uncertain)

    def elapsed(self, begin: V, end: V | None, n: Node) -> None:
        for e in (begin, end):
            if not isinstance(e, Event):
                continue
            if e.timing is False:
                self.violation("SS312", n, "elapsed_time()", [("made", e.site)])
                return
            if (
                not e.unknown
                and e.snapshot is None
                and e.timing is True
                and e.born > getattr(self.m, "built_at", -1)
            ):
                assumed = self.of_earlier_call(e.born)
                self.violation("SS312", n, "elapsed_time()", [("never recorded", e.site)], assumed)
                return
        if isinstance(end, Event) and not end.unknown and end.of is not None:
            self.asked_too_early(end, n)

    def of_earlier_call(self, when: int) -> tuple[str, ...]:
        """What has to be assumed where another call was the last to use an event: its caller may wait or record it."""
        return ("methods",) if self.m.boundaries and when <= self.m.boundaries[-1] else ()

    def asked_too_early(self, e: Event, n: Node) -> None:
        """SS312: the host has not waited for the end that it asks for."""
        recorded, host = e.snapshot or NOTHING, self.order.host
        if recorded.get(e.of, 0) <= self.order.known(host).get(e.of, 0):
            return
        assumed = self.of_earlier_call(e.when)
        if assumed and any(t is host and of is e.of for t, of, *_ in self.order.waits):
            assumed = (*assumed, "waits")
        self.violation("SS312", n, "elapsed_time()", [("recorded", e.recorded)], assumed)
        self.order.wait(host, recorded)  # or it has raised
