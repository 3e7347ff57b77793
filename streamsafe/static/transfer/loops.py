"""Loops to a fixpoint, and the states that their rounds leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static import concrete, sequences
from streamsafe.static.path_differences import exchanged, says
from streamsafe.static.state import State
from streamsafe.static.transfer.iterables import UNROLLED
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    GRAPHED,
    Const,
    Function,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Tensor,
    Union,
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
        for _, bit, value in self.partitioning.flag_conditions(st):
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
                self.partitioning.track_rounds(current)
                self.partitioning.track_elements(current)
                self.ring_indices.track_indices(current)
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
            self.ring_indices.track_indices(head, current)
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
        self.partitioning.track_after_loop([*leaves, *left])
        self.ring_indices.track_indices(*leaves, *left)
        before, result = st.copy(), None
        for state in (*leaves, *left):
            result = self.partitioning.join_rounds(result, state, before)
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
                if isinstance(held, Tensor) and st.store.get((held.name, "@place")) == Const("pinned"):
                    return True
                if isinstance(held, Object) and (held.name, "@graphed") in st.store:
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
                self._brought_by_others(node.test, leaves)
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

    def _brought_by_others(self, test: cst.BaseExpression, st: State) -> None:
        """What a thread polls is not what it was when another one has changed it."""
        for asked in concrete.walk(test):
            if isinstance(asked, cst.Attribute) and isinstance(self.expressions.eval(asked, st), Const):
                self.assignments.assign(asked, Opaque(Name(("brought", id(asked)))), st, asked)

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
