"""Indices into a ring of a few slots, and handles that may be None: conditions say which it is in each iteration."""

from __future__ import annotations

from dataclasses import replace

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static.state import Key, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import NONE, Const, Event, Value, Work, alternatives, iterate, union

MOST_SLOTS = 4

MOST_KEYS = 8
"""Of how many numbers and handles conditions say which they are."""


class RingIndices(Part):
    """Indices into a ring of a few slots, and handles that may be None."""

    def track_indices(self, *states: State | None) -> None:
        """Before a join, or before the conditions of an iteration are forgotten: bind conditions to what is known.

        Where each path knows which of a few slots a number selects, or whether there is a handle, a condition says so
        of what holds the number or the handle.
        """
        live = [st for st in states if st is not None and not st.dead]
        for key in self._slot_keys(live):
            known = [(st, _slots(st.store.get(key), st)) for st in live]
            kinds = {kind for _, found in known for _, _, kind in found}
            said = self._slot_conditions(key, kinds)
            for st, found in known if said or kinds == {True} else ():
                self.one_handle(st, key, found)
                if said:
                    _set_conditions(st, key, found, said)

    def one_handle(self, st: State, key: Key, choices: list[tuple[Value, Guard, int]]) -> None:
        """What holds one handle or another gets one that knows what either would: nothing says how old that is."""
        handles = [(v, g) for v, g, _ in choices if isinstance(v, (Event, Work))]
        kind = type(handles[0][0]) if handles else None
        name = key[0].child(("held", key[1], "event"))
        if any(type(v) is not kind for v, _ in handles) or all(v.name == name for v, _ in handles):
            return
        if any(not a.contradicts(b) for n, (v, a) in enumerate(handles) for w, b in handles[:n] if v != w):
            return
        if any(name in st.store.leads(owner) for owner in list(st.store.objects) if owner is not key[0]):
            return  # who else has what was held here before is not to get another one
        for note in ("@recorded", "@record site", "@recorders"):
            known = [(n, g) for v, g in handles if (n := st.store.get((v.name, note))) is not None]
            if known:
                st.store[(name, note)] = union(known)
        for handle, guard in handles:
            if handle.name != name:
                st.order.learn(name, handle.name, forget=True, guard=guard)
        self.run.own_events.add(name)
        one = replace(handles[0][0], name=name)
        choices[:] = [(one if isinstance(v, (Event, Work)) else v, g, k) for v, g, k in choices]
        st.store[key] = union((v, g) for v, g, _ in choices)

    def _slot_keys(self, states: list[State]) -> dict[Key, None]:
        """What holds numbers that go round a few, and what holds a handle on some paths that are about to meet."""
        keys = {kind[1]: None for kind in self.run.conditions if type(kind) is tuple and kind[0] == "slot"}
        turning = self.run.file.turning
        asked = self.objects.asked_about(self.run.rounds[-1]) if self.run.rounds and self.run.handles else 0
        for st in states:
            for owner, table in st.store.objects.items() if turning else ():
                if not turning.isdisjoint(table):
                    keys.update(((owner, name), None) for name in turning if name in table)
                if "@length" in table and len(keys) < MOST_KEYS:
                    keys.update(
                        ((owner, n), None) for n, v in table.items() if type(n) is int and _holds_handle(v)
                    )
            for key, value in st.store.leaning(asked) if asked else ():
                alone = type(key[1]) is str and key[1][:1] not in "*@"
                if not alone and not (type(key[1]) is int and (key[0], "@length") in st.store):
                    continue
                if len(keys) < MOST_KEYS and _holds_handle(value):
                    keys[key] = None
        return keys

    def _slot_conditions(self, key: Key, kinds: set[int]) -> dict[int, Guard]:
        """What says which of these it is: the first, or not that but the second, and so on."""
        kind = ("slot", key)
        bits = {k[2]: bit for k, bit in self.run.conditions.items() if type(k) is tuple and k[:2] == kind}
        if not 1 < len(kinds | bits.keys()) <= MOST_SLOTS:
            return {}
        for new in sorted(kinds - bits.keys()):
            bit = self.conditions.new_condition((*kind, new), ())
            if bit is None:
                return {}
            bits[new] = bit
        said: dict[int, Guard] = {}
        others = ALWAYS
        for which, bit in bits.items():
            said[which] = others & Guard(bit, 0)
            others &= Guard(0, bit)
        return said


def _slots(value: Value | None, st: State) -> list[tuple[Value, Guard, int]]:
    """The few numbers that a value may be, or nothing and handles, of which guards say which it is."""
    choices = [(v, g, _kind(v)) for v, g in alternatives(value, st.path)] if value is not None else []
    kinds = {type(k) for _, _, k in choices}
    apart = all(
        k == other or a.contradicts(b) for n, (_, a, k) in enumerate(choices) for _, b, other in choices[:n]
    )
    return choices if apart and len(kinds) == 1 and kinds <= {int, bool} else []  # type: ignore[return-value]


def _holds_handle(value: Value) -> bool:
    """Whether there may be an event or a work."""
    return any(isinstance(v, (Event, Work)) for v in iterate(value))


def _kind(value: Value) -> int | None:
    """What tells one of a few numbers, or a handle from none."""
    if value == NONE or isinstance(value, (Event, Work)):
        return value != NONE
    return value.value if type(value) is Const and type(value.value) is int else None


def _set_conditions(
    st: State, key: Key, choices: list[tuple[Value, Guard, int]], said: dict[int, Guard]
) -> None:
    """From now on those conditions say which it is."""
    asked = beside = 0
    for guard in said.values():
        asked |= guard.true | guard.false
    renamed = [(v, guard & st.path, said[kind]) for v, guard, kind in choices]
    if renamed and all(guard & new == guard for _, guard, new in renamed):
        return  # they say so already
    if len({new for _, _, new in renamed}) < 2:
        st.forget(asked)
        if renamed:
            st.assume(renamed[0][2])
        return
    for _, (true, false), _ in renamed:
        beside |= true | false
    st.substitute([(guard, new) for _, guard, new in renamed], asked, beside)
    alone = len({v for v, _, _ in choices}) == len({kind for _, _, kind in choices})
    st.store[key] = union((v, new if alone else guard.forget(asked) & new) for v, guard, new in renamed)
