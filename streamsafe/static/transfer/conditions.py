"""Conditions: bits that tell paths apart, each for one question about the program, or for a stream that is current."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields, numbers
from streamsafe.static.facts import CROWDED_PATHS
from streamsafe.static.operators import as_form, without_implied
from streamsafe.static.state import Ordered, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Name,
    Object,
    Opaque,
    Renaming,
    Stream,
    Union,
    Value,
    alternatives,
    iterate,
    union,
)

Outcomes = list[tuple[bool, Guard]]

BOTH: Outcomes = [(True, ALWAYS), (False, ALWAYS)]

MAX_CONDITIONS = 128

MAX_DECIDED = 6
"""How many branches deep conditions are tracked; what an assertion or an early exit has settled does not count."""

MOST_CURRENT = 5
"""For how many streams conditions say whether they are current."""


class Conditions(Part):
    """Makes conditions and keeps them few."""

    def unknown_flag(self, node: cst.CSTNode, st: State) -> Opaque:
        """A truth that is not known, but is one value: tested twice it comes out alike."""
        name = self.objects.fresh(node, st, "flag")
        self.run.plain.add(name.base())
        return Opaque(name)

    def new_condition(self, key: Hashable, names: tuple[Name, ...]) -> int | None:
        """The bit of a new condition; None where there are too many."""
        if len(self.run.conditions) >= MAX_CONDITIONS:
            self.run.cut_short.setdefault(self.run.entry, CROWDED_PATHS)
            return None
        taken = 0
        for bit in self.run.conditions.values():
            taken |= bit
        bit = self.run.conditions[key] = ~taken & (taken + 1)
        self.run.mentions[bit] = names
        return bit

    def forget_conditions(self, *states: State) -> None:
        """An entry begins: the conditions that no state, and no attribute that is kept apart, leans on are free."""
        used = 0
        for bit in self.run.flags.values():
            used |= bit
        for st in states:
            used |= st.conditions()
        self.run.conditions = {key: bit for key, bit in self.run.conditions.items() if bit & used}
        self.run.mentions = {bit: names for bit, names in self.run.mentions.items() if bit & used}

    def condition(self, key: Hashable, names: tuple[Name, ...], st: State, track: bool) -> Outcomes:
        """The two outcomes of a condition that may be tested again."""
        query = st.store.one(names[0], fields.QUERY) if names else None
        if query is not None and isinstance(key, tuple):
            # asked again within a call or a round, an unseen question has the same answer
            key, names = (key[0], query.value, *key[2:]), (Name(query.value),)
        if names and key == ("truth", names[0]) and st.store.marked(names[0], fields.NONZERO):
            return [(True, ALWAYS)]
        known = self.run.conditions.get(key)
        if known is not None:
            if st.path.true & known:
                return [(True, ALWAYS)]
            if st.path.false & known:
                return [(False, ALWAYS)]
        if not track:
            return BOTH
        if known is None:
            known = self.new_condition(key, names)
            if known is None:
                return BOTH
        if ((st.path.true | st.path.false) & self.run.branching).bit_count() >= MAX_DECIDED:
            return BOTH
        return [(True, Guard(known, 0)), (False, Guard(self._then(key, st), known))]

    def _then(self, key: Hashable, st: State) -> int:
        """What must hold where a condition does not: who is not before the last of several is not the first."""
        if type(key) is not tuple or key[0] not in ("<", "truth"):
            return 0
        bits = 0
        for other, bit in self.run.conditions.items():
            below, first = (key, other) if key[0] == "<" else (other, key)
            if type(below) is tuple and below[:1] == ("<",) and first == ("truth", below[1]):
                bits |= bit if self._is_several(below[2], st) else 0
        return bits

    def _is_several(self, side: Hashable, st: State) -> bool:
        """Whether a number is surely more than zero: ``n - 1`` is where ``n`` is known not to be one."""
        form = as_form(NONE, side)
        for atom in form.atoms() if form is not None else ():
            if form is not None and st.path.false & self.run.conditions.get(("==", atom, "1"), 0):
                form = form.replaced(atom, numbers.of_atom(atom) + numbers.number(2))
        return form is not None and numbers.positive(form - numbers.ONE)

    def as_one(self, outcomes: Outcomes, st: State) -> Outcomes:
        """A test that comes out one way for several reasons: its answer is a condition of its own.

        What is done on either path, and what was made there, then lean on that, whatever the reason was.
        """
        ways = {wanted: [g for o, g in outcomes if o is wanted] for wanted in (True, False)}
        if min(map(len, ways.values())) == 0 or max(map(len, ways.values())) == 1:
            return outcomes
        if reduce(Guard.common, ways[True]).contradicts(reduce(Guard.common, ways[False])):
            return outcomes
        keys = {bit: key for key, bit in self.run.conditions.items()}
        mentioned = reduce(int.__or__, (true | false for _, (true, false) in outcomes))
        about = [bit for bit in keys if bit & mentioned]
        names = tuple(dict.fromkeys(name for bit in about for name in self.run.mentions.get(bit, ())))
        reasons = frozenset(
            without_implied(*(frozenset(keys[bit] for bit in about if bits & bit) for bits in guard))
            for guard in ways[True]
        )
        answers = self.condition(("any of", reasons), names, st, True)
        return (
            [(o, g & way) for o, g in outcomes for t, way in answers if t is o]
            if answers != BOTH
            else outcomes
        )

    # -- which stream is current, where it differs from path to path ---------------------------------------------

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
            gone = forgotten
            for guard in guards.values():
                gone |= guard.true | guard.false
            for st, live in zip(states, choices, strict=True):
                st.substitute([(guard, guards[renamed[value]]) for value, guard in live], gone)
                st.current[library] = union((value, guards[renamed[value]]) for value, _ in live)

    def _currents(self, library: str, streams: Ordered[Value]) -> dict[Value, Guard]:
        """What says which stream is current: the first, or not that but the second, and so on."""
        kind = ("current", library, self.run.inside)
        known = {
            key[3]: bit for key, bit in self.run.conditions.items() if type(key) is tuple and key[:3] == kind
        }
        new = [stream for stream in streams if stream not in known]
        for value in sorted(new, key=lambda v: self.run.carriers.bit(v.name)):  # type: ignore[attr-defined]
            made = self.new_condition((*kind, value), ()) if len(known) < MOST_CURRENT else None
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
            outcomes = self.condition(("chosen", inner.name), (inner.name,), st, True)
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
        known = self.condition((kind, inner), names, st, True)
        if known == BOTH:
            return outcomes
        return [
            (outcome, guard & g)
            for outcome, guard in outcomes
            for o, g in known
            if o is (outcome is wanted) and not guard.contradicts(g) and not st.path.contradicts(guard & g)
        ]
