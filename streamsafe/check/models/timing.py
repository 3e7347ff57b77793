"""Clocks of the host and events with timing."""

from __future__ import annotations

from ..program import NOTHING, Access, Hazard
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


class Timing(Accesses):
    """Clocks of the host and events with timing."""

    def timed(self, begin: Clock, end: Clock, node: Node) -> Sym:
        """The time between two readings: a finding where it is more than compared or slept for."""
        seconds = self.m.fresh("<seconds>", "host")
        last = next((x for x in reversed(self.m.launches) if begin.seq < x[0] < end.seq), None)
        if last is None or self.last_unknown_between(last[0], end.seq) or self.not_on_cuda():
            return seconds
        seq, t, at, site = last
        if self.clock_known.get(end.seq, NOTHING).get(t, 0) < at:
            h = Hazard(
                "SS311",
                Access(t, at, True, None, site, "launch"),
                Access(self.order.host, 0, False, None, end.site, "clock"),
                None,
                self.supposed.get(seq, ()),
            )
            self.m.measured[seconds] = h
        return seconds

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
                self.violation("SS312", n, "elapsed_time()", [("never recorded", e.site)])
                return
        if isinstance(end, Event) and not end.unknown and end.of is not None:
            self.asked_too_early(end, n)

    def asked_too_early(self, e: Event, n: Node) -> None:
        """SS312: the host has not waited for the end that it asks for."""
        recorded, host = e.snapshot or NOTHING, self.order.host
        if recorded.get(e.of, 0) <= self.order.known(host).get(e.of, 0):
            return
        assumed: tuple[str, ...] = ()
        if self.m.boundaries and e.when <= self.m.boundaries[-1]:  # its caller may wait
            waits = any(t is host and of is e.of for t, of, *_ in self.order.waits)
            assumed = ("methods", "waits") if waits else ("methods",)
        self.violation("SS312", n, "elapsed_time()", [("recorded", e.recorded)], assumed)
        self.order.wait(host, recorded)  # or it has raised
