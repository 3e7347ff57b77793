"""Loops over a count that picks slots: a few rounds with known numbers stand for all."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import element_keys, sequences
from streamsafe.static.numbers import SLOT_ROUNDS
from streamsafe.static.state import State
from streamsafe.static.transfer.iteration import _is_reversed_range, item_in_round
from streamsafe.static.transfer.loops import Loop
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import EACH, Api, Const, Container, Name, Partial, Tuple, Value


class CountedLoops(Part):
    """Runs loops over counts, slot by slot."""

    def numbered_rounds(
        self,
        iterable: Value,
        st: State,
        node: cst.CSTNode,
        enter: Callable[[State], State | None],
        body: Callable[[Value, State], object],
        *,
        at_least_once: bool,
    ) -> None:
        """A count that picks slots goes round them: a few rounds with known numbers stand for all there are."""
        if not isinstance(iterable, Partial):
            iterable = Partial(Api("builtins.iter"), (iterable,), ())
        skipped = enter(st)
        loop = Loop()
        self.call_stack.activation.loops.append(loop)
        self.run.rounds.append(set())
        down = _counts_down(iterable)
        self.run.counting += 1
        self.run.counting_down += down
        early: list[State | None] = []
        ended = False
        late = self.run.late_rounds
        for number in range(SLOT_ROUNDS):
            before = st.copy()
            loop.continues.clear()
            round_ = self.elements.round_name(node, st)
            self.run.late_rounds = {*late, round_} if number == SLOT_ROUNDS - 1 else late
            element_keys.begin(st, round_, first=not number)
            st.store[(round_, element_keys.NUMBER_OF_ROUND)] = Const(number)
            with self.iterables.round_apart(node, number, SLOT_ROUNDS):
                item = self._numbered_item(number, iterable, round_, st, node)
                body(item_in_round(item, iterable, ((round_.base(), round_),)), st)
            ended = self.leave_after_last(round_, st)
            self.paths.settle(st, self.paths.joined([st, *loop.continues]))
            early = early if number else [*loop.breaks]
            if st.dead:
                st.become(before)
                break
            self.ring_indices.track_indices(st)
            self.objects.age(st, {round_, *(name for name in self.run.rounds[-1] if name.site == EACH)})
        self.call_stack.activation.loops.pop()
        if ended and loop.breaks:
            loop.breaks.reverse()  # those that went together the longest meet first
            st.become(loop.breaks.pop(0))
        self.run.late_rounds = late
        self.loops.runs_when_timed(skipped, early, [st, *loop.breaks])
        self.ring_indices.track_indices(st, *loop.breaks, skipped)
        self.paths.settle(st, self.paths.joined([st, *loop.breaks, None if at_least_once else skipped]))
        self.run.counting -= 1
        self.run.counting_down -= down
        self.iterables.leave_rounds(st, again=False)

    def _numbered_item(
        self, number: int, iterable: Value, round_: Name, st: State, node: cst.CSTNode
    ) -> Value:
        """What a round is given of which the count is known."""
        if isinstance(iterable, Container) and iterable.kind == "list" and iterable.part is None:
            item = self.statements.next_item(iterable, st, node)
            whole = sequences.length(st, iterable) is None
            place = range(number, number + 1)
            return element_keys.in_rounds(item, element_keys.at_place(iterable, place)) if whole else item
        if isinstance(iterable, Partial):
            if iterable.function == Api("builtins.range"):
                return self.computed.number_of(number, iterable, round_, st)
            if _is_reversed_range(iterable):
                return self.computed.number_down(number, iterable.args[0], st)
            if iterable.function == Api("builtins.enumerate") and iterable.args:
                each = self._numbered_item(number, iterable.args[0], round_, st, node)
                return Tuple((self.computed.number_of(number, iterable, round_, st), each))
            if iterable.function == Api("builtins.zip"):
                return Tuple(
                    tuple(self._numbered_item(number, each, round_, st, node) for each in iterable.args)
                )
        return self.statements.next_item(iterable, st, node)

    def leave_after_last(self, round_: Name, st: State) -> bool:
        """No iteration follows one that a test shows to be the last, and one follows each other; whether one has."""
        loop = self.call_stack.activation.loops[-1]
        last = before = ALWAYS
        for key, outcome in self.run.lasts.pop(round_, {}).items():
            bit = self.run.conditions.get(key)
            if bit is not None:  # else on no path is it known any more how that came out
                yes, no = Guard(bit, 0), Guard(0, bit)
                last, before = (last & yes, before & no) if outcome else (last & no, before & yes)
        if last == ALWAYS:
            return False
        for state in (st, *loop.continues):
            if not state.dead:
                leaving = state.copy()
                leaving.assume(last)
                if not leaving.dead:
                    loop.breaks.append(leaving)
                state.assume(before)
        return True


def _counts_down(iterable: Value) -> bool:
    """Whether a loop gives numbers that begin at one which is not known."""
    if not isinstance(iterable, Partial):
        return False
    if iterable.function == Api("builtins.range"):
        step = iterable.args[2] if len(iterable.args) > 2 else None
        return isinstance(step, Const) and type(step.value) is int and step.value < 0
    return _is_reversed_range(iterable)
