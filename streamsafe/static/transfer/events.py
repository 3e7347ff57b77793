"""Events of both libraries: records, waits, queries and elapsed times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS, HOST, Guard
from streamsafe.static import fields
from streamsafe.static.facts import Assumed, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import NONE, PLAIN, Const, Event, Name, Opaque, Value, alternatives, iterate

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


class Events(Part):
    """Verbs of events."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.event_sites: dict[Name, Site] = {}
        """By event, where it is made."""

    # -- streams -------------------------------------------------------------------------------------------------

    def event_of(self, value: Value | None) -> list[Event]:
        """The events a value stands for."""
        found = []
        for inner in iterate(value) if value is not None else ():
            if isinstance(inner, Event):
                found.append(inner)
            elif isinstance(inner, Opaque):
                found.append(Event(inner.name))
        return found

    def each_event(self, value: Value | None, st: State, action: Callable[[Event, State], object]) -> None:
        """Do something with an event; of several with known guards with each on the paths on which it is meant.

        Those under one guard are not: who waits for one of them is taken to wait for any.
        """
        choices = alternatives(value, st.path) if value is not None else []
        if len(choices) < 2 or any(guard == ALWAYS for _, guard in choices):
            for event in self.event_of(value):
                action(event, st)
            return

        def on(guard: Guard) -> Callable[[State], Value]:
            def way(branch: State) -> Value:
                for choice, when in choices:
                    for event in self.event_of(choice) if when == guard else ():
                        action(event, branch)
                return NONE

            return way

        meant = {guard: choice for choice, guard in choices if choice != NONE}
        self.calls.each_way([(choice, guard, on(guard)) for guard, choice in meant.items()], st)

    def wait_for(self, st: State, event: Event, stream: Value | None, library: str, site: Site) -> None:
        """A wait; an event of which no record and no making is seen is taken to cover everything."""
        if self.is_foreign(st, event):
            waiting = self.effects.possible_streams(st, library, stream)
            for s, guard in waiting:
                st.order.learn_everything(s.name, guard)
                self.captures.capture_wait(st, event.name, s.name, site, is_stream=False)
            self.run.foreign_waits.append((event.name, waiting))
            return
        self.effects.wait_event(st, event, stream, library, site)

    def is_foreign(self, st: State, event: Event) -> bool:
        """Whether an event comes from code that is not seen."""
        if (event.name, fields.RECORDED_ON) in st.store:
            return False
        if st.store.marked(event.name, fields.FOREIGN_EVENT):
            return True
        if st.store.marked(event.name, fields.CREATED):
            return False
        if event.name in self.run.own_events:
            return False
        for name in event.name.chain():
            if name.parent is not None and isinstance(name.site, str) and name.site.isidentifier():
                return True  # an attribute: had it been made here, it would be known by that
            if st.store.marked(name, fields.CREATED):
                return False
        return True

    # -- events --------------------------------------------------------------------------------------------------

    def do_make_event(self, call: Call, st: State) -> Value:
        """``torch.cuda.Event``: cannot time unless asked to."""
        timing = call.get(0, "enable_timing")
        known = bool(timing.value) if isinstance(timing, Const) and timing.value is not ... else None
        name = self.objects.fresh(call.node, st, "timer" if known else "event")
        self.run.own_events.add(name)
        if call.text.startswith("torch"):
            self.run.libraries[name] = "torch"
        self.event_sites[name] = call.site
        if call.get(3, "external") == Const(True):
            st.store.mark(name, fields.EXTERNAL_EVENT)
        elif call.starred:
            st.store.mark(name, fields.MAYBE_EXTERNAL)
        return Event(name, False if timing is None else known)

    def do_share_event(self, call: Call, st: State) -> Value:
        """``Event.from_ipc_handle``: whoever recorded it is another process."""
        name = self.objects.fresh(call.node, st, "event")
        st.store.mark(name, fields.FOREIGN_EVENT)
        return Event(name)

    def do_make_cupy_event(self, call: Call, st: State) -> Value:
        """``cupy.cuda.Event``: times unless ``disable_timing`` is set."""
        disabled = call.get(1, "disable_timing")
        known = not disabled.value if isinstance(disabled, Const) and disabled.value is not ... else None
        name = self.objects.fresh(call.node, st, "event")
        self.run.own_events.add(name)
        self.run.libraries[name] = "cupy"
        return Event(name, True if disabled is None else known)

    def do_make_event_handle(self, call: Call, st: State) -> Value:
        """An event by its handle; whether it times is in flags that are not read."""
        name = self.objects.fresh(call.node, st, "event")
        self.run.own_events.add(name)
        return Event(name, None)

    def do_event_record(self, call: Call, st: State) -> Value:
        """``e.record(stream=None)``: left out it is the current stream (TS-11, CS-10)."""
        stream = call.get(1, "stream")
        for event in self.event_of(call.args[0]):
            self.run.own_events.add(event.name)
            library = (
                self.streams.stream_library(stream)
                if stream not in (None, NONE)
                else self.tensors.library_of(st, [event])
            )
            value = self.effects.as_stream(stream, library) if stream is not None and stream != NONE else None
            self.effects.record(st, event, value, library, call.site)
        return NONE

    def do_event_wait(self, call: Call, st: State) -> Value:
        """``e.wait(stream=None)`` makes a stream wait, not the host."""
        stream = call.get(1, "stream")
        value = self.effects.as_stream(stream, "torch") if stream is not None and stream != NONE else None
        self.each_event(
            call.args[0], st, lambda event, way: self.wait_for(way, event, value, "torch", call.site)
        )
        return NONE

    def do_event_synchronize(self, call: Call, st: State) -> Value:
        """``e.synchronize()`` (TS-18)."""
        self.captures.wait_in_capture(
            st, call.site, "synchronize()", [e.name for e in self.event_of(call.args[0])]
        )

        def synchronize(event: Event, way: State) -> None:
            if self.is_foreign(way, event):
                self.effects.host_learns_everything(way, call.site)
            else:
                self.effects.synchronize_event(way, event, call.site)

        self.each_event(call.args[0], st, synchronize)
        return NONE

    def do_event_query(self, call: Call, st: State) -> Value:
        """``e.query()``: true is an edge to the host (TS-16)."""
        choices = [(e, g) for v, g in alternatives(call.args[0], st.path) for e in self.event_of(v)]
        return self.clocks.query_event(st, choices, call.site) if choices else PLAIN

    def do_event_elapsed_time(self, call: Call, st: State) -> Value:
        """``a.elapsed_time(b)`` needs timing and completion, and is no sync (TX-01)."""
        self._elapsed(st, [call.args[0], call.get(1, "end_event") or NONE], call.site)
        return PLAIN

    def do_elapsed_time_function(self, call: Call, st: State) -> Value:
        """``cupy.cuda.get_elapsed_time(a, b)``."""
        self._elapsed(st, call.args[:2], call.site)
        return PLAIN

    def _elapsed(self, st: State, given: list[Value], site: Site) -> None:
        """Once it has returned both events are known to be complete, or it would have raised (TX-01)."""
        self.check_elapsed(st, given, site)
        for value in given:
            for event, way in ((e, way) for v, way in alternatives(value, st.path) for e in self.event_of(v)):
                for source in (
                    self.effects.spread(event.name) if (event.name, fields.RECORDED_ON) in st.store else ()
                ):
                    st.order.learn(HOST, source, guard=way)

    def check_elapsed(self, st: State, given: list[Value], site: Site) -> None:
        """SS312: made without timing, never recorded, or not known to be complete."""
        choices = [
            (e, way) for value in given for v, way in alternatives(value, st.path) for e in self.event_of(v)
        ]
        events = [event for event, _ in choices]
        for event in events:
            if event.timing is False:
                made = self.event_sites.get(event.name.base())
                notes = [("made without enable_timing", made)] if made is not None else []
                self.accesses.violation(
                    st, "event-timing-misuse", site, "elapsed_time", notes, tags=frozenset({"no timing"})
                )
                return
        for event in events:
            if self.never_recorded(st, event):
                made = self.event_sites.get(event.name.base())
                notes = [("made here, and never recorded", made)] if made is not None else []
                self.accesses.violation(
                    st, "event-timing-misuse", site, "elapsed_time", notes, tags=frozenset({"not recorded"})
                )
                return
        for event, way in choices[-1:]:
            recorded = st.store.get((event.name, fields.RECORDED_ON))
            if recorded is None:
                continue
            pending = st.order.conflicts(("timing", event.name), None, True, HOST, st.path & way)
            if pending:
                self.accesses.violation(
                    st,
                    "event-timing-misuse",
                    site,
                    "elapsed_time",
                    [],
                    assumed=Assumed.UNMODELLED,
                    tags=frozenset({"not complete"}),
                    first=pending[0][0],
                )
                return

    def never_recorded(self, st: State, event: Event) -> bool:
        """Whether an event was made by this entry into the file, and neither recorded nor given to anybody since."""
        here = (
            bool(self.run.rounds)
            and event.name in self.run.rounds[0]
            and st.store.marked(event.name, fields.CREATED)
        )
        return here and not {fields.RECORDED_ON, fields.MAYBE_RECORDED} & st.store.of(event.name).keys()
