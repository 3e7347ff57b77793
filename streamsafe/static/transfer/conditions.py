"""Conditions: bits that tell paths apart, each for one question about the program."""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import numbers
from streamsafe.static.comparisons import as_form, without_implied
from streamsafe.static.facts import CROWDED_PATHS
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import NONE, Const, Name, Opaque

Outcomes = list[tuple[bool, Guard]]

BOTH: Outcomes = [(True, ALWAYS), (False, ALWAYS)]

MAX_CONDITIONS = 128

MAX_DECIDED = 6
"""How many branches deep conditions are tracked; what an assertion or an early exit has settled does not count."""


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
        asked = st.store.get((names[0], "@asked")) if names else None
        if isinstance(asked, Const) and isinstance(key, tuple):
            # asked again within a call or a round, an unseen question has the same answer
            key, names = (key[0], asked.value, *key[2:]), (Name(asked.value),)
        if names and key == ("truth", names[0]) and (names[0], "@nonzero") in st.store:
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
        asked = [bit for bit in keys if bit & mentioned]
        names = tuple(dict.fromkeys(name for bit in asked for name in self.run.mentions.get(bit, ())))
        reasons = frozenset(
            without_implied(*(frozenset(keys[bit] for bit in asked if bits & bit) for bits in guard))
            for guard in ways[True]
        )
        answers = self.condition(("any of", reasons), names, st, True)
        return (
            [(o, g & way) for o, g in outcomes for t, way in answers if t is o]
            if answers != BOTH
            else outcomes
        )
