"""Loops: to a fixpoint, or slot by slot where a count picks the slots of a ring; the states that their rounds leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import concrete, element_keys, fields, sequences
from streamsafe.static.numbers import SLOT_ROUNDS
from streamsafe.static.state import State
from streamsafe.static.transfer.iterables import UNROLLED
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.paths import exchanged, says
from streamsafe.static.values import (
    EACH,
    GRAPHED,
    Api,
    Const,
    Container,
    Function,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Picks,
    Tensor,
    Tuple,
    Union,
    Value,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


ROUNDS = 8


@dataclass(eq=False)
class Loop:
    """The states that leave a loop's body early."""

    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)


class Loops(Part):
    """Runs loops: to a fixpoint, or round by round where their number is known."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.loops_with_streams: dict[int, bool] = {}
        """By node, whether a loop holds stream code."""

    def loop(
        self,
        st: State,
        enter: Callable[[State], State | None],
        body: Callable[[State], None],
        *,
        at_least_once: bool = False,
        node: cst.CSTNode | None = None,
    ) -> None:
        """Interpret a body until nothing new is learnt.

        Args:
            st: the state before; the state after, in place.
            enter: prepares a round (test or next element) and returns the state that leaves instead, or None.
            body: one round.
            at_least_once: there is no way round the body.
            node: the loop; where it holds no stream code one round stands for all.
        """
        if node is not None and not self.holds_stream_code(node) and not self.uses_lasting(node, st):
            self.one_round(st, enter, body, at_least_once=at_least_once)
            return
        for _, bit, value in self.paths.flag_conditions(st):
            if not (isinstance(value, Union) and says(value, bit)):
                st.forget(bit)  # the name has been given something else since
        head = st.copy()
        leaves: list[State | None] = []
        left: list[State | None] = []
        period = 1
        self.run.fixpoints += 1
        self.run.rounds.append(set())
        stable = False
        allowed = self._rounds_allowed()
        for round_ in range(allowed + 1):
            if round_ == allowed and not self._has_released(st, head):
                break
            left = []
            current: State | None = head.copy()
            for _ in range(period):
                if current is None:
                    break
                current = self._round(current, enter, body, left)
            if current is not None:
                self.paths.track_rounds(current)
                self.paths.track_elements(current)
                self.paths.track_indices(current)
                self.objects.age_round(current, node)
            if round_ == 0:
                # the first round stands by itself: what it starts from is not mixed with what a round leaves
                leaves = left
                if current is None:
                    left, stable = [], True
                    break
                head = current
                continue
            if round_ == 1 and current is not None and exchanged(head, current):
                period = 2
            self.paths.track_indices(head, current)
            new_head = self.paths.join(head.copy(), current)
            if new_head is None or new_head.same(head):
                stable = True
                break
            if period == 2 and round_ == 1:
                continue
            head = new_head
        if not stable:
            left.append(enter(head.copy()))
        self.run.fixpoints -= 1
        self.runs_when_timed(leaves[0], leaves[1:], left)
        leaves = leaves[1:] if at_least_once else leaves
        self.paths.track_after_loop([*leaves, *left])
        self.paths.track_indices(*leaves, *left)
        before, result = st.copy(), None
        for state in (*leaves, *left):
            result = self.paths.join_rounds(result, state, before)
        self.paths.settle(st, result)
        self.iterables.leave_rounds(st)

    def runs_when_timed(
        self, without: State | None, early: Sequence[State | None], others: Sequence[State | None]
    ) -> None:
        """Between two readings of a clock a loop runs: who times it gives it something to do (SS311).

        Args:
            without: how the loop is left when it has no round; changed in place.
            early: how the first round leaves it; changed in place where it has enqueued and awaited nothing.
            others: how else it is left.
        """
        if without is None or not without.clocks:
            return
        untouched = [
            state
            for state in early
            if state is not None
            and all(
                state.order.accesses(since) == without.order.accesses(since)
                for since in (("since", clock) for clock in without.clocks)
            )
        ]
        if any(state is not None and not state.dead for state in (*early, *others)):
            for state in (without, *untouched):
                self.clocks.untimed(state)

    def one_round(
        self,
        st: State,
        enter: Callable[[State], State | None],
        body: Callable[[State], None],
        *,
        at_least_once: bool,
    ) -> None:
        """One round stands for all."""
        left: list[State | None] = []
        self.run.rounds.append(set())
        end = self._round(st.copy(), enter, body, left)
        self.runs_when_timed(left[0], left[1:], [end])
        self.paths.settle(st, self.paths.joined([*(left[1:] if at_least_once else left), end]))
        self.iterables.leave_rounds(st)

    def holds_stream_code(self, node: cst.CSTNode) -> bool:
        """Whether a loop mentions streams, copies or clocks, or a function of the file that does.

        What the consumer of a generator does with each element is done in the generator's loop.
        """
        consumer = self.call_stack.activation.consumer
        return self._mentions_streams(node) or (
            consumer is not None
            and self._mentions_streams(consumer)
            and any(
                isinstance(inner, cst.Yield) for inner in concrete.walk(node, (cst.FunctionDef, cst.Lambda))
            )
        )

    def _mentions_streams(self, node: cst.CSTNode) -> bool:
        known = self.loops_with_streams.get(id(node))
        if known is None:
            names = concrete.names_in(node)
            if self._calls_its_elements(node):
                names |= {"__call__", "forward"}
            known = self.loops_with_streams[id(node)] = self.run.is_stream_code(names)
        return known or (self.run.hooks_run_streams and self._calls_its_elements(node))

    @staticmethod
    def _calls_its_elements(node: cst.CSTNode) -> bool:
        return isinstance(node, cst.For) and concrete.calls_one_of(node.body, concrete.names_in(node.target))

    def uses_lasting(self, node: cst.CSTNode, st: State) -> bool:
        """Whether a loop names what the next round may overwrite or take the memory of, pinned memory, a graphed
        callable's outputs or a queue that a thread fills, or a function with stream code by another name.
        """
        frame = self.call_stack.activation.frame
        owner = st.store.get((frame, "self"))
        scopes = [frame, owner.name] if isinstance(owner, Instance) else [frame]
        for name in concrete.names_in(node):
            for scope in scopes:
                held = st.store.get((scope, name))
                called = held.function if isinstance(held, Partial) else held
                if isinstance(called, Instance):
                    # ``layer(x)`` of a module runs its ``forward``
                    own = self.class_members.find_method(
                        called.unit, "__call__"
                    ) or self.class_members.find_method(called.unit, "forward")
                    called = Function(own) if own is not None else None
                if isinstance(called, Function) and self.functions.is_relevant(called.unit):
                    return True
                if isinstance(held, Tensor) and st.store.get((held.name, fields.PLACE)) == Const("pinned"):
                    return True
                if isinstance(held, Object) and (held.name, fields.GRAPHED_CALLABLE) in st.store:
                    return True
                if isinstance(held, Partial) and held.function == GRAPHED:
                    return True
                if self.run.produced and held is not None and self.threads.is_produced(st, held):
                    return True
        return False

    def _rounds_allowed(self) -> int:
        """Fewer for loops inside loops, whose bodies are interpreted again in each round outside."""
        if self.calls.is_exhausted():
            return 1
        return max(2, ROUNDS >> (len(self.run.rounds) - 1))

    def _has_released(self, before: State, after: State) -> bool:
        """Whether rounds have let go of what others may still use: one round more is given it."""
        pools = [b for b in after.order.made if isinstance(b, tuple) and b[0] == "pool"]
        return any(set(after.order.made[b]) - set(before.order.accesses(b)) for b in pools) and not (
            self.calls.is_exhausted()
        )

    def _round(
        self,
        current: State,
        enter: Callable[[State], State | None],
        body: Callable[[State], None],
        left: list[State | None],
    ) -> State | None:
        """One round; the states that leave the loop are added to ``left``, how it would have ended before it first."""
        loop = Loop()
        self.call_stack.activation.loops.append(loop)
        left.append(enter(current))
        if not current.dead:
            body(current)
        self.call_stack.activation.loops.pop()
        left.extend(loop.breaks)
        end = self.paths.joined([current, *loop.continues])
        return end.copy() if end is not None else None

    def while_statement(self, node: cst.While, st: State) -> None:
        """``while test:``."""

        def enter(current: State) -> State | None:
            standing = (
                current.copy() if self.run.threads or self.run.beside or concrete.awaits(node.body) else None
            )
            outcomes = self.predicates.test(node.test, current, track=False)
            leaves = current.copy()
            self.paths.enter_branch(node.test, outcomes, True, current)
            self.paths.enter_branch(node.test, outcomes, False, leaves)
            if leaves.dead and standing is not None:
                leaves = standing  # who has started it goes on beside it, and so do other tasks
                self._changed_by_threads(node.test, leaves)
            return None if leaves.dead else leaves

        if not self._drained(node, st):
            taking = self.run.taking and bool(self.run.threads)
            self.loop(
                st,
                enter,
                lambda current: self.statements.suite(node.body, current),
                at_least_once=taking,
                node=node,
            )
        if node.orelse is not None and not st.dead:
            self.statements.suite(node.orelse.body, st)

    def _changed_by_threads(self, test: cst.BaseExpression, st: State) -> None:
        """What a thread polls is not what it was when another one has changed it."""
        for read in concrete.walk(test):
            if isinstance(read, cst.Attribute) and isinstance(self.expressions.eval(read, st), Const):
                self.assignments.assign(read, Opaque(Name(("changed", id(read)))), st, read)

    def _drained(self, node: cst.While, st: State) -> bool:
        """Interpret rounds one by one where lists whose length is known say when the loop ends; whether it did."""
        endless = isinstance(node.test, (cst.Name, cst.Integer))
        if endless and not concrete.leaves_early(node.body) and not (self.run.threads or self.run.beside):
            return False
        trial = st.copy()
        before = sequences.lengths(trial)
        if not before:
            return False
        loop = Loop()
        returns, blocked = len(self.call_stack.activation.returns), len(self.run.blocked)
        self.call_stack.activation.loops.append(loop)
        ended = False
        for number in range(UNROLLED):
            outcomes = self.predicates.test(node.test, trial, track=False)
            ended = trial.dead
            if ended or len(outcomes) != 1:
                break
            ended = not outcomes[0][0]
            if ended:
                break
            loop.continues.clear()
            with self.iterables.round_apart(node, number, 2):
                self.statements.suite(node.body, trial)
            self.paths.settle(trial, self.paths.joined([trial, *loop.continues]))
            ended = trial.dead
            if ended or sequences.lengths(trial) == before:
                break
        self.call_stack.activation.loops.pop()
        if not ended:
            del self.call_stack.activation.returns[returns:]
            del self.run.blocked[blocked:]
            return False
        self.paths.settle(trial, self.paths.joined([trial, *loop.breaks]))
        st.become(trial)
        return True

    # -- counts that pick slots ----------------------------------------------------------------------------------

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
            st.store[(round_, fields.ROUND_NUMBER)] = Const(number)
            with self.iterables.round_apart(node, number, SLOT_ROUNDS):
                item = self._numbered_item(number, iterable, round_, st, node)
                body(item_in_round(item, iterable, ((round_.base(), round_),)), st)
            ended = self.leave_after_last(round_, st)
            self.paths.settle(st, self.paths.joined([st, *loop.continues]))
            early = early if number else [*loop.breaks]
            if st.dead:
                st.become(before)
                break
            self.paths.track_indices(st)
            self.objects.age(st, {round_, *(name for name in self.run.rounds[-1] if name.site == EACH)})
        self.call_stack.activation.loops.pop()
        if ended and loop.breaks:
            loop.breaks.reverse()  # those that went together the longest meet first
            st.become(loop.breaks.pop(0))
        self.run.late_rounds = late
        self.runs_when_timed(skipped, early, [st, *loop.breaks])
        self.paths.track_indices(st, *loop.breaks, skipped)
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
            if is_reversed_range(iterable):
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
    return is_reversed_range(iterable)


def is_cycle(iterable: Value) -> bool:
    return isinstance(iterable, Container) and iterable.kind == "cycle"


def item_in_round(item: Value, iterable: Value, rounds: Picks) -> Value:
    """No two iterations have the same element, except of what goes round."""
    if isinstance(iterable, Partial) and isinstance(item, Tuple) and any(map(is_cycle, iterable.args)):
        if len(item.items) == len(iterable.args):
            columns = zip(item.items, iterable.args, strict=True)
            return Tuple(tuple(v if is_cycle(a) else element_keys.in_rounds(v, rounds) for v, a in columns))
    return item if is_cycle(iterable) else element_keys.in_rounds(item, rounds)


def is_reversed_range(iterable: Partial) -> bool:
    """Whether a loop has the numbers of a range from the last to the first."""
    counted = iterable.args[0] if len(iterable.args) == 1 else None
    return (
        iterable.function == Api("builtins.reversed")
        and isinstance(counted, Partial)
        and counted.function == Api("builtins.range")
    )
