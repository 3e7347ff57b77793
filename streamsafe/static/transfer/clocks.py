"""Time measured on the host around work on the device, and streams and events that are asked whether they are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.order import edges
from streamsafe.order.symbolic import ALWAYS, HOST, Guard
from streamsafe.static import concrete
from streamsafe.static.facts import IS_CUDA, Assumed, Detail, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.conditions import Outcomes
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Clock,
    Const,
    Event,
    Generator,
    Name,
    Partial,
    Stream,
    Tuple,
    Union,
    Value,
    iterate,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamsafe.static.transfer.run_state import RunState


LAST = "last launch"
"""The streams on which the last work was enqueued since a clock was read."""


class Clocks(Part):
    """Clocks of the host, and queries of streams and events."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.clock_sites: dict[object, Site] = {}
        """By clock, where it was read."""

    def launched(
        self,
        st: State,
        site: Site,
        text: str,
        *,
        device: bool,
        library: str = "torch",
        stream: Value | None = None,
    ) -> None:
        """Work is enqueued while clocks run (SS311)."""
        if not device:
            return
        streams = self.effects.possible_streams(st, library, stream)
        for clock in st.clocks:
            st.store[(Name(clock), LAST)] = union((s, ALWAYS) for s, _ in streams)
            for s, guard in streams:
                detail = Detail(text, "", Assumed.NOTHING, frozenset({"launch"}), self.run.entry)
                made = self.made_launch(site, clock, s.name, detail)
                st.order.add(made, guard, covers=False)

    @staticmethod
    def made_launch(site: Site, clock: object, stream: Name, detail: Detail):  # type: ignore[no-untyped-def]
        """The access that stands for a launch since a clock was read."""
        from streamsafe.order.symbolic import Made

        return Made(site, ("since", clock), None, True, stream, detail)

    def read_clock(self, st: State, site: Site) -> Value:
        """A host clock is read: what was launched since each earlier reading and is not waited for."""
        key = (id(site.node), self.run.stack[-1].path)
        clock = Clock(frozenset((key,)))
        elsewhere = self.run.conditions.get(("truth", IS_CUDA), 0)  # without a device nothing is launched
        for other in st.clocks:
            # who waits for what was launched last has let what other streams do meanwhile run in the background
            last = {
                v.name for v in iterate(st.store.get((Name(other), LAST), UNKNOWN)) if isinstance(v, Stream)
            }
            pending = tuple(
                made
                for made, ways in st.order.accesses(("since", other)).items()
                if made.timeline in last and not all(way.guard.false & elsewhere for way in ways)
            )
            st.store[(Name(clock), ("since", other))] = Const(pending) if pending else NONE
        st.order.drop(("since", clock))
        st.clocks |= {clock}
        self.clock_sites[key] = site
        return clock

    @staticmethod
    def untimed(st: State) -> None:
        """On this path nobody measures: what was launched on it so far is of no concern to the clocks that run."""
        for clock in st.clocks:
            st.order.drop(("since", clock))

    @staticmethod
    def forget_clocks(st: State) -> None:
        """Readings that nothing holds any more are over: nothing will be subtracted from them."""
        if not st.clocks:
            return
        held = {clock for _, value in st.store.items() for clock in _clocks(value)}
        over = st.clocks - held
        st.clocks &= held
        for clock in over:
            st.order.drop(("since", clock))
            st.store.drop(Name(clock))
        for clock in st.clocks:
            for start in over:
                st.store.pop((Name(clock), ("since", start)), None)

    def duration(self, st: State, left: Value, right: Value, site: Site) -> None:
        """Two readings of a clock are subtracted: the work between them should have been waited for.

        A difference that is only held against a limit measures nothing: it says whether it is time to go on. Nor need
        anything be waited for where the time that the host takes is measured.
        """
        unit = self.run.stack[-1].unit
        for end in iterate(left):
            for start in iterate(right):
                if not (isinstance(end, Clock) and isinstance(start, Clock)):
                    continue
                if unit is not None and site.node in concrete.limits(unit.node):
                    return
                pending = st.store.get((Name(end), ("since", start)))
                if not isinstance(pending, Const) or not pending.value:
                    for inner in iterate(pending) if pending is not None else ():
                        if isinstance(inner, Const) and inner.value:
                            pending = inner
                            break
                    else:
                        continue
                made = pending.value[-1]
                detail: Detail = made.detail
                self.accesses.violation(
                    st,
                    "unsynchronized-timing",
                    min(
                        (read for key, read in self.clock_sites.items() if key in end.readings),
                        key=lambda read: read.slice.rows(read.node),
                    ),
                    "reads the clock",
                    [(f"{detail.operation} may still be running", made.site)],
                    assumed=detail.assumed,
                )

    def query_stream(self, st: State, stream: Stream, site: Site) -> Value:
        """A query that is true is an edge to the host (TS-20); where it is false nothing is known."""
        self.captures.wait_in_capture(st, site, "query()", (stream.name,))
        outcomes = self.asked(st, site)
        for outcome, guard in outcomes:
            if outcome:
                st.order.obey(edges.synchronize_stream(HOST, stream.name, self.run.table), guard)
        return self.guarded(outcomes)

    def query_event(self, st: State, choices: Sequence[tuple[Event, Guard]], site: Site) -> Value:
        """A query that is true is an edge to the host (TS-16), from that of several events which is asked."""
        self.captures.wait_in_capture(st, site, "query()", [event.name for event, _ in choices])
        outcomes = self.asked(st, site)
        recorded_on, at = self.effects.recorders(st, choices[0][0])
        for outcome, guard in outcomes:
            if outcome:
                before = self.effects.lacking(st, HOST, guard)
                for event, way in choices:
                    for source in self.effects.spread(event.name):
                        st.order.learn(HOST, source, guard=guard & way)
                self.effects.note_wait(st, HOST, site, at, recorded_on, before, guard)
        return self.guarded(outcomes)

    def asked(self, st: State, site: Site) -> Outcomes:
        """How a question to the device comes out this time: asked again it is another question."""
        flag = self.objects.fresh(site.node, st, "asked")
        return self.conditions.condition(("truth", flag), (flag,), st, True)

    @staticmethod
    def guarded(outcomes: list[tuple[bool, Guard]]) -> Value:
        """A boolean that is what its condition says."""
        return union((Const(outcome), guard) for outcome, guard in outcomes)


def _clocks(value: Value) -> Iterator[Clock]:
    """The readings of clocks that a value holds."""
    if isinstance(value, Clock):
        yield value
    elif isinstance(value, Union):
        for inner, _ in value.alternatives:
            yield from _clocks(inner)
    elif isinstance(value, Tuple):
        for inner in value.items:
            yield from _clocks(inner)
    elif isinstance(value, (Partial, Generator)):
        for inner in (*value.args, *(v for _, v in value.kwargs)):
            yield from _clocks(inner)
