"""Which stream is current, where it differs from path to path."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static.state import Ordered, State
from streamsafe.static.transfer.conditions import BOTH, Outcomes
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import Object, Renaming, Stream, Union, Value, alternatives, iterate, union

MOST_CURRENT = 5
"""For how many streams conditions say whether they are current."""


class CurrentStreams(Part):
    """Keeps conditions for current streams that differ from path to path."""

    def track_current(
        self, states: Sequence[State], forgotten: int = 0, renaming: Renaming | None = None
    ) -> None:
        """Where one of several streams is current, which one it is tells the paths apart from now on.

        What was done on each path then stays with the stream that is current there, when the conditions that kept the
        paths apart are forgotten, or where none did.

        Args:
            states: the states that meet, or the one that goes on; changed in place.
            forgotten: the conditions that are about to be.
            renaming: how names are about to change.
        """
        for library in {library: None for st in states for library in st.current if library != "device"}:
            choices = [alternatives(self.effects.current(st, library), st.path) for st in states]
            streams = {value: None for live in choices for value, _ in live}
            if not all(isinstance(value, Stream) for value in streams):
                continue
            renamed = {value: value.rename(renaming) if renaming else value for value in streams}
            guards = self._currents(library, dict.fromkeys(renamed.values()))
            asked = forgotten
            for guard in guards.values():
                asked |= guard.true | guard.false
            for st, live in zip(states, choices, strict=True):
                st.substitute([(guard, guards[renamed[value]]) for value, guard in live], asked)
                st.current[library] = union((value, guards[renamed[value]]) for value, _ in live)

    def _currents(self, library: str, streams: Ordered[Value]) -> dict[Value, Guard]:
        """What says which stream is current: the first, or not that but the second, and so on."""
        kind = ("current", library, self.run.inside)
        known = {
            key[3]: bit for key, bit in self.run.conditions.items() if type(key) is tuple and key[:3] == kind
        }
        new = [stream for stream in streams if stream not in known]
        for value in sorted(new, key=lambda v: self.run.carriers.bit(v.name)):  # type: ignore[attr-defined]
            made = self.conditions.new_condition((*kind, value), ()) if len(known) < MOST_CURRENT else None
            if made is None:
                break
            known[value] = made
        guards: dict[Value, Guard] = {}
        others = ALWAYS
        for value, bit in known.items():
            guards[value] = others & Guard(bit, 0)
            others &= Guard(0, bit)
        rest = [value for value in streams if value not in known]
        if not rest and guards:
            guards[value] = guards[value].forget(bit)  # it is the only one left
        return guards | dict.fromkeys(rest, others)

    def exclusive(self, st: State, value: Value) -> Value:
        """One of several streams is one of them at a time: alternatives whose guards do not say so get some."""
        if not isinstance(value, Union):
            return value
        live = alternatives(value, st.path)
        streams = [v for v, _ in live if isinstance(v, Stream)]
        if len(live) < 2 or not streams or len(live) > MOST_CURRENT:
            return value
        if all(a.contradicts(b) for i, (_, a) in enumerate(live) for _, b in live[i + 1 :]):
            return value
        # in the same order wherever they meet, so that the same conditions tell them apart
        live.sort(
            key=lambda item: self.run.carriers.bit(item[0].name) if isinstance(item[0], Stream) else 1 << 62
        )
        rest = ALWAYS
        found: list[tuple[Value, Guard]] = []
        for position, (inner, guard) in enumerate(live):
            if position == len(live) - 1 or not isinstance(inner, Stream):
                found.append((inner, guard & rest))
                continue
            outcomes = self.conditions.condition(("chosen", inner.name), (inner.name,), st, True)
            if outcomes == BOTH:
                return value
            yes = next((g for o, g in outcomes if o), None)
            no = next((g for o, g in outcomes if not o), None)
            if yes is not None and not rest.contradicts(yes):
                found.append((inner, guard & rest & yes))
            if no is None:
                break
            rest = rest & no
        return union((v, g) for v, g in found if not st.path.contradicts(g))

    def apart(
        self, kind: Hashable, wanted: bool, outcomes: Outcomes, value: Value, st: State, track: bool
    ) -> Outcomes:
        """A test of one of several values comes out one way at a time: where no guard says which, one does."""
        yes, no = ([g for o, g in outcomes if o is wanted], [g for o, g in outcomes if o is not wanted])
        if not track or not isinstance(value, Union) or not yes or not no:
            return outcomes
        if all(a.contradicts(b) for a in yes for b in no):
            return outcomes
        inner = frozenset(iterate(value))
        names = tuple(v.name for v in iterate(value) if isinstance(v, Object))
        known = self.conditions.condition((kind, inner), names, st, True)
        if known == BOTH:
            return outcomes
        return [
            (outcome, guard & g)
            for outcome, guard in outcomes
            for o, g in known
            if o is (outcome is wanted) and not guard.contradicts(g) and not st.path.contradicts(guard & g)
        ]
