"""Paths: how states join, which conditions keep them apart, and which goes on where a test came out in one way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from streamsafe.order.forks import differing
from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields
from streamsafe.static.state import Key, State, distinguished, is_falsy
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Const,
    Container,
    Event,
    Name,
    Object,
    Opaque,
    Stream,
    Tensor,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    union,
)

MAX_FLAGS = 4
"""How many attributes of an object may keep the calls of its methods apart."""

MAX_LED = 2
"""Through how many objects that are kept is gone to one that holds what is true of it together."""

MOST_SLOTS = 4

MOST_KEYS = 8
"""Of how many numbers and handles conditions say which they are."""


def split(st: State, owner: Name) -> Iterator[tuple[Key, Union]]:
    """What an object or a scope holds that is false or not, and conditions say which."""
    for name, value in list(st.store.of(owner).items()):
        if not isinstance(value, Union) or (type(name) is fields.Field and name is not fields.HAS_ITEMS):
            continue
        empty, full = ([g for v, g in value.alternatives if is_falsy(v) is w] for w in (True, False))
        if empty and full and all(a.contradicts(b) for a in empty for b in full):
            yield (owner, name), value


def says(value: Union, bit: int, *, turned: bool = False) -> bool:
    """Whether the guards of a value's alternatives already say by a condition which of them is false.

    Args:
        value: what an attribute may be.
        bit: the condition.
        turned: it says which of them is not.
    """
    return all((g.true if is_falsy(v) is not turned else g.false) & bit for v, g in value.alternatives)


def false_in_one(first: State, second: State) -> list[Key]:
    """Attributes that are a false constant in one of two states and something else in the other."""
    found: list[Key] = []
    for owner in differing(first.store.objects, second.store.objects):
        table, other = first.store.of(owner), second.store.of(owner)
        if not table or not other or other is table:
            continue
        for key, value in table.items():
            against = other.get(key)
            if against is None or against is value or type(key) is fields.Field:
                continue
            if {is_falsy(v) for v in iterate(value)} ^ {is_falsy(v) for v in iterate(against)} == {
                True,
                False,
            }:
                found.append((owner, key))
    return found


def exchanged(before: State, after: State) -> dict[Key, Value]:
    """The names that exchange what they hold on the way from one state to another, with what they held."""
    moved = {
        (owner, key): value
        for owner in differing(before.store.objects, after.store.objects)
        if (table := after.store.of(owner)) is not (old := before.store.of(owner))
        for key, value in old.items()
        if (new := table.get(key, value)) is not value
        and new != value
        and all(isinstance(v, (Tensor, Opaque, Stream, Event)) for v in iterate(value))
    }
    return {
        key: value
        for key, value in moved.items()
        for other_key, other in moved.items()
        if key != other_key and after.store.get(key) == other and after.store.get(other_key) == value
    }


class Paths(Part):
    """Joins states where paths meet, makes the conditions that keep them apart, and takes one way of a branch."""

    def join(self, first: State | None, second: State | None) -> State | None:
        """Two paths meet."""
        if first is not None and second is not None and not (first.dead or second.dead):
            if first.current != second.current:
                first, second = first.copy(), second.copy()
                # where none was set the one at entry still is current; few rounds stand for many, of which one sets it
                again = self.run.fixpoints or self.run.counting
                unset = ({*first.current} ^ {*second.current}) - {"device"}
                for st, other in ((first, second), (second, first)):
                    for library in unset - {*st.current}:
                        if not again:
                            st.current[library] = self.effects.current(st, library)
                        elif isinstance(before := self.effects.current(st, library), Stream):
                            # the one that is set stands for the one at entry, too
                            for later in iterate(other.current[library]):
                                if isinstance(later, Stream):
                                    st.order.learn(later.name, before.name)
                if not distinguished(first, second):
                    self.conditions.track_current([first, second])
        return State.join(first, second, self.objects.is_opaque)

    def joined(self, states: Sequence[State | None]) -> State | None:
        """Many paths meet."""
        result: State | None = None
        for state in states:
            result = self.join(result, state)
        return result

    @staticmethod
    def settle(st: State, result: State | None) -> None:
        """``st`` becomes the joined state, or ends here."""
        if result is None:
            st.dead = True
        elif result is not st:
            st.become(result)

    def enter_branch(
        self, test: cst.BaseExpression, outcomes: list[tuple[bool, Guard]], wanted: bool, st: State
    ) -> None:
        """Go where a test came out as ``wanted``."""
        guards = [guard for outcome, guard in outcomes if outcome is wanted]
        if not guards:
            st.dead = True
            return
        st.assume(*guards)
        if not st.dead:
            self.narrowing.narrow(test, st, wanted)

    # -- conditions that keep joined paths apart -----------------------------------------------------------------

    def join_rounds(self, first: State | None, end: State | None, before: State) -> State | None:
        """Join ways out of a loop: an attribute that a round assigns first tells whether there was one, as a call's."""
        if first is None or end is None or not self.run.protocol_roots:
            return self.join_apart(first, end)
        return self.join_calls(first, end.copy(), before)

    def join_apart(self, first: State | None, second: State | None) -> State | None:
        """Join two ways on; where names are exchanged, a condition keeps the two apart: which of them holds what."""
        if first is not None and second is not None:
            pairs = exchanged(first, second)
            for key, value in pairs.items():
                if isinstance(value, Object) and not any(("holds", k) in self.run.conditions for k in pairs):
                    self.conditions.new_condition(("holds", key), (value.name,))
                    self.run.exchanged[key] = value
            tracked = [k for k in self.run.exchanged if ("holds", k) in self.run.conditions]
            if tracked:
                first, second = first.copy(), second.copy()
                for key in tracked:
                    self._track(first, key)
                    self._track(second, key)
        return self.join(first, second)

    def _track(self, st: State, key: Key) -> None:
        """Bind the condition to whether a name holds in a state what the condition says, as it stands there now."""
        bit, meant, value = self.run.conditions[("holds", key)], self.run.exchanged[key], st.store.get(key)
        if isinstance(value, Union):
            if any(v == meant and g.false & bit for v, g in value.alternatives):
                st.flip(bit)
            return
        st.forget(bit)
        if value is not None:
            st.assume(Guard(bit, 0) if value == meant else Guard(0, bit))

    def join_calls(self, first: State | None, end: State, before: State) -> State | None:
        """Join what calls of an object's methods leave; where an attribute is None, false or empty after one and not
        after another, a condition that stands for it keeps the two apart.

        Args:
            first: what other calls left.
            end: what this one left.
            before: what each of them started from.
        """
        self.track_indices(first, end)
        if first is not None:
            for key in false_in_one(first, end):
                if (
                    key in self.run.flags
                    or key[1] in self.run.file.turning
                    or len(self.run.flags) >= MAX_FLAGS
                ):
                    continue
                bit = self.conditions.new_condition(("falsy", key), ())
                if bit is not None:
                    self.run.flags[key] = bit
                    first = first.copy()
                    self._decide(first, key, before)
        for key, bit in self.run.flags.items():
            self._decide(end, key, before)
            if first is not None and not (first.path.true | first.path.false) & bit:
                first = first.copy()  # it may be newer than what the calls before have left
                self._decide(first, key, before)
        return self.join_apart(first, end)

    def track_flags(self, st: State, owner: Name) -> None:
        """Before what a call has asked is forgotten: a condition takes its place where it says whether an attribute, or
        an element of a list that is one, is None, false or empty.
        """
        self.track_indices(st)
        holders = [owner]
        if not self.run.file.turning:  # else conditions say which slot is filled
            holders += [
                v.name for v in st.store.of(owner).values() if isinstance(v, Container) and v.kind == "list"
            ]
        for key, value in (pair for holder in holders for pair in split(st, holder)):
            if key[1] in self.run.file.turning:
                continue
            bit = self.run.flags.get(key)
            if bit is None:
                bit = (
                    self.conditions.new_condition(("falsy", key), ())
                    if len(self.run.flags) < MAX_FLAGS
                    else None
                )
                if bit is None:
                    continue
                self.run.flags[key] = bit
            elif says(value, bit) or says(value, bit, turned=True):
                continue
            st.track(key, bit)
        for key, value in (pair for made in self._made_and_kept(st, owner) for pair in split(st, made)):
            bit = self.run.conditions.get(("falsy", key)) or self.conditions.new_condition(("falsy", key), ())
            if bit is not None and not says(value, bit):
                st.track(key, bit)

    def _made_and_kept(self, st: State, owner: Name) -> list[Name]:
        """Objects of the file's classes that a call has made, and that its object keeps by itself or in a list."""
        found = border = {owner}
        for _ in range(MAX_LED):
            border = {name for held in border for name in st.store.leads(held)} - found
            found = found | border
        new = self.run.rounds[-1] if self.run.rounds else set()
        made = [n for n in st.store.objects if n in found and n.newest() in new and _is_instance(n)]
        return sorted(made, key=lambda name: -name.age)  # a condition goes over to the next one

    def track_rounds(self, st: State) -> None:
        """Before what a round has asked is forgotten: a condition takes its place where it says how a flag stands."""
        for key, value in split(st, self.call_stack.activation.frame):
            if key[1] not in self.run.file.flags:
                continue
            bit = self.run.conditions.get(("falsy", key)) or self.conditions.new_condition(("falsy", key), ())
            if bit is not None and not says(value, bit):
                st.track(key, bit)

    def track_elements(self, st: State) -> None:
        """Before what a round has asked is forgotten: where that tells what it added to a list, a condition says it of
        the element that stands for all, so that lists which rounds fill side by side are iterated side by side.
        """
        bits = 0
        for value in st.store.of(self.call_stack.activation.frame).values():
            if isinstance(value, Container):
                for key, element in st.store.of(value.name).items():
                    if isinstance(element, Union) and (key == "*" or type(key) is int):
                        for _, (true, false) in element.alternatives:
                            bits |= true | false
        bits = bits and bits & self.objects.conditions_about(self.run.rounds[-1])
        for kind, bit in list(self.run.conditions.items()) if bits else ():
            if bit & bits:
                new = self.run.conditions.get(("round", kind)) or self.conditions.new_condition(
                    ("round", kind), ()
                )
                if new is not None:
                    st.exchange(bit, new)

    def flag_conditions(self, st: State) -> Iterator[tuple[Key, int, Value]]:
        """The flags of this scope that conditions stand for, and what they hold here."""
        frame = self.call_stack.activation.frame
        for kind, bit in list(self.run.conditions.items()):
            if type(kind) is tuple and kind[0] == "falsy" and kind[1][0] == frame:
                value = st.store.get(kind[1])
                if value is not None:
                    yield kind[1], bit, value

    def track_after_loop(self, states: Sequence[State | None]) -> None:
        """On each way out of a loop the conditions say how the flags stand there that an iteration has set."""
        self._flags_of_rounds(states)
        for st in states:
            if st is None or st.dead:
                continue
            self.track_rounds(st)
            for _, bit, value in self.flag_conditions(st):
                if not isinstance(value, Union):
                    st.forget(bit)
                    st.assume(Guard(bit, 0) if is_falsy(value) else Guard(0, bit))

    def _flags_of_rounds(self, states: Sequence[State | None]) -> None:
        """What is None, false or empty where there was no round, and is not after one, tells whether there was one."""
        frame = self.call_stack.activation.frame
        live = [st for st in states if st is not None and not st.dead]
        for name in sorted(map(str, live[0].store.of(frame).keys() & self.run.file.flags)) if live else ():
            key = (frame, name)
            held = [st.store[key] for st in live if key in st.store]
            kinds = {is_falsy(v) for value in held for v in iterate(value)}
            if {True, False} <= kinds and ("falsy", key) not in self.run.conditions:
                self.conditions.new_condition(("falsy", key), ())

    def _decide(self, st: State, key: Key, before: State) -> None:
        """In a state the condition that stands for an attribute gets its outcome; unchanged it stands as it did."""
        value, bit = st.store.get(key), self.run.flags[key]
        if isinstance(value, Union) and says(value, bit, turned=True):
            st.flip(bit)
            return
        if value is None or (
            isinstance(value, Union) and (value == before.store.get(key) or says(value, bit))
        ):
            return
        st.forget(bit)
        kinds = {is_falsy(v) for v in iterate(value)}
        if kinds in ({True}, {False}):
            st.assume(Guard(bit, 0) if kinds == {True} else Guard(0, bit))

    # -- which slot of a ring, and whether there is a handle -----------------------------------------------------

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
        for note in (fields.RECORDED_ON, fields.RECORD_SITE, fields.EVER_RECORDED_ON):
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
        bits = (
            self.objects.conditions_about(self.run.rounds[-1]) if self.run.rounds and self.run.handles else 0
        )
        for st in states:
            for owner, table in st.store.objects.items() if turning else ():
                if not turning.isdisjoint(table):
                    keys.update(((owner, name), None) for name in turning if name in table)
                if fields.LENGTH in table and len(keys) < MOST_KEYS:
                    keys.update(
                        ((owner, n), None) for n, v in table.items() if type(n) is int and _holds_handle(v)
                    )
            for key, value in st.store.leaning(bits) if bits else ():
                alone = type(key[1]) is str and key[1][:1] not in "*"
                if not alone and not (type(key[1]) is int and (key[0], fields.LENGTH) in st.store):
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


def _is_instance(name: Name) -> bool:
    """Whether a call of a class of the file has made an object."""
    return type(name.site) is tuple and str(name.site[-1]).endswith("()")


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
    bits = beside = 0
    for guard in said.values():
        bits |= guard.true | guard.false
    renamed = [(v, guard & st.path, said[kind]) for v, guard, kind in choices]
    if renamed and all(guard & new == guard for _, guard, new in renamed):
        return  # they say so already
    if len({new for _, _, new in renamed}) < 2:
        st.forget(bits)
        if renamed:
            st.assume(renamed[0][2])
        return
    for _, (true, false), _ in renamed:
        beside |= true | false
    st.substitute([(guard, new) for _, guard, new in renamed], bits, beside)
    alone = len({v for v, _, _ in choices}) == len({kind for _, _, kind in choices})
    st.store[key] = union((v, new if alone else guard.forget(bits) & new) for v, guard, new in renamed)
