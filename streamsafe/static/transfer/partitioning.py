"""Which paths stay apart where they join (trace partitioning).

Rounds of a loop, and calls of the methods of one object, leave states that differ in a flag or in which element they
use. A condition keeps these apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamsafe.order.symbolic import Guard
from streamsafe.static.path_differences import exchanged, false_in_one, says, split
from streamsafe.static.state import Key, State, is_falsy
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import Container, Name, Object, Union, Value, iterate

MAX_FLAGS = 4
"""How many attributes of an object may keep the calls of its methods apart."""

MAX_LED = 2
"""Through how many objects that are kept is gone to one that holds what is true of it together."""


class Partitioning(Part):
    """Makes the conditions that keep joined paths apart."""

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
        return self.paths.join(first, second)

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
        self.ring_indices.track_indices(first, end)
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
        self.ring_indices.track_indices(st)
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
        asked = 0
        for value in st.store.of(self.call_stack.activation.frame).values():
            if isinstance(value, Container):
                for key, element in st.store.of(value.name).items():
                    if isinstance(element, Union) and (key == "*" or type(key) is int):
                        for _, (true, false) in element.alternatives:
                            asked |= true | false
        asked = asked and asked & self.objects.asked_about(self.run.rounds[-1])
        for kind, bit in list(self.run.conditions.items()) if asked else ():
            if bit & asked:
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


def _is_instance(name: Name) -> bool:
    """Whether a call of a class of the file has made an object."""
    return type(name.site) is tuple and str(name.site[-1]).endswith("()")
