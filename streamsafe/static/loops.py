"""Loops to a fixpoint, and the states that their rounds leave.

One file: a fixpoint and the conditions that its iterations leave depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import Guard
from streamsafe.static import concrete, sequences
from streamsafe.static.contexts import UNROLLED
from streamsafe.static.path_differences import exchanged, false_in_one, says, split
from streamsafe.static.ring_indices import RingIndices
from streamsafe.static.state import Key, State, is_falsy
from streamsafe.static.values import (
    GRAPHED,
    Const,
    Container,
    Function,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Tensor,
    Union,
    Value,
    iterate,
)

if TYPE_CHECKING:
    from streamsafe.static.interpreter import Activation

ROUNDS = 8

MAX_FLAGS = 4
"""How many attributes of an object may keep the calls of its methods apart."""

MAX_LED = 2
"""Through how many objects that are kept is gone to one that holds what is true of it together."""


@dataclass(eq=False)
class Loop:
    """The states that leave a loop's body early."""

    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)


class Loops(RingIndices):
    """Loops: to a fixpoint, or round by round where their number is known."""

    # declared here, implemented further down the chain
    fixpoints: int
    exchanged: dict[Key, Value]
    loops_with_streams: dict[int, bool]
    is_stream_code: Callable[[Set[str]], bool]
    numbering: bool

    @property
    def activation(self) -> Activation: ...

    def suite(self, body: cst.BaseSuite, st: State) -> None: ...

    # -- loops ---------------------------------------------------------------------------------------------------

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
        for _, bit, value in self._flag_conditions(st):
            if not (isinstance(value, Union) and says(value, bit)):
                st.forget(bit)  # the name has been given something else since
        head = st.copy()
        leaves: list[State | None] = []
        left: list[State | None] = []
        period = 1
        self.fixpoints += 1
        self.rounds.append(set())
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
                self.track_rounds(current)
                self.track_elements(current)
                self.track_indices(current)
                self.age_round(current, node)
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
            self.track_indices(head, current)
            new_head = self.join(head.copy(), current)
            if new_head is None or new_head.same(head):
                stable = True
                break
            if period == 2 and round_ == 1:
                continue
            head = new_head
        if not stable:
            left.append(enter(head.copy()))
        self.fixpoints -= 1
        self._runs_when_timed(leaves[0], leaves[1:], left)
        leaves = leaves[1:] if at_least_once else leaves
        self._track_after_loop([*leaves, *left])
        self.track_indices(*leaves, *left)
        before, result = st.copy(), None
        for state in (*leaves, *left):
            result = self.join_rounds(result, state, before)
        self.settle(st, result)
        self.leave_rounds(st)

    def _runs_when_timed(
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
                self.untimed(state)

    def join_rounds(self, first: State | None, end: State | None, before: State) -> State | None:
        """Join ways out of a loop: an attribute that a round assigns first tells whether there was one, as a call's."""
        if first is None or end is None or not self.protocol_roots:
            return self.join_apart(first, end)
        return self.join_calls(first, end.copy(), before)

    def join_apart(self, first: State | None, second: State | None) -> State | None:
        """Join two ways on; where names are exchanged, a condition keeps the two apart: which of them holds what."""
        if first is not None and second is not None:
            pairs = exchanged(first, second)
            for key, value in pairs.items():
                if isinstance(value, Object) and not any(("holds", k) in self.conditions for k in pairs):
                    self.new_condition(("holds", key), (value.name,))
                    self.exchanged[key] = value
            tracked = [k for k in self.exchanged if ("holds", k) in self.conditions]
            if tracked:
                first, second = first.copy(), second.copy()
                for key in tracked:
                    self._track(first, key)
                    self._track(second, key)
        return self.join(first, second)

    def _track(self, st: State, key: Key) -> None:
        """Bind the condition to whether a name holds in a state what the condition says, as it stands there now."""
        bit, meant, value = self.conditions[("holds", key)], self.exchanged[key], st.store.get(key)
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
                if key in self.flags or key[1] in self.file.turning or len(self.flags) >= MAX_FLAGS:
                    continue
                bit = self.new_condition(("falsy", key), ())
                if bit is not None:
                    self.flags[key] = bit
                    first = first.copy()
                    self._decide(first, key, before)
        for key, bit in self.flags.items():
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
        if not self.file.turning:  # else conditions say which slot is filled
            holders += [
                v.name for v in st.store.of(owner).values() if isinstance(v, Container) and v.kind == "list"
            ]
        for key, value in (pair for holder in holders for pair in split(st, holder)):
            if key[1] in self.file.turning:
                continue
            bit = self.flags.get(key)
            if bit is None:
                bit = self.new_condition(("falsy", key), ()) if len(self.flags) < MAX_FLAGS else None
                if bit is None:
                    continue
                self.flags[key] = bit
            elif says(value, bit) or says(value, bit, turned=True):
                continue
            st.track(key, bit)
        for key, value in (pair for made in self._made_and_kept(st, owner) for pair in split(st, made)):
            bit = self.conditions.get(("falsy", key)) or self.new_condition(("falsy", key), ())
            if bit is not None and not says(value, bit):
                st.track(key, bit)

    def _made_and_kept(self, st: State, owner: Name) -> list[Name]:
        """Objects of the file's classes that a call has made, and that its object keeps by itself or in a list."""
        found = border = {owner}
        for _ in range(MAX_LED):
            border = {name for held in border for name in st.store.leads(held)} - found
            found = found | border
        new = self.rounds[-1] if self.rounds else set()
        made = [n for n in st.store.objects if n in found and n.newest() in new and _is_instance(n)]
        return sorted(made, key=lambda name: -name.age)  # a condition goes over to the next one

    def track_rounds(self, st: State) -> None:
        """Before what a round has asked is forgotten: a condition takes its place where it says how a flag stands."""
        for key, value in split(st, self.activation.frame):
            if key[1] not in self.file.flags:
                continue
            bit = self.conditions.get(("falsy", key)) or self.new_condition(("falsy", key), ())
            if bit is not None and not says(value, bit):
                st.track(key, bit)

    def track_elements(self, st: State) -> None:
        """Before what a round has asked is forgotten: where that tells what it added to a list, a condition says it of
        the element that stands for all, so that lists which rounds fill side by side are iterated side by side.
        """
        asked = 0
        for value in st.store.of(self.activation.frame).values():
            if isinstance(value, Container):
                for key, element in st.store.of(value.name).items():
                    if isinstance(element, Union) and (key == "*" or type(key) is int):
                        for _, (true, false) in element.alternatives:
                            asked |= true | false
        asked = asked and asked & self.asked_about(self.rounds[-1])
        for kind, bit in list(self.conditions.items()) if asked else ():
            if bit & asked:
                new = self.conditions.get(("round", kind)) or self.new_condition(("round", kind), ())
                if new is not None:
                    st.exchange(bit, new)

    def _flag_conditions(self, st: State) -> Iterator[tuple[Key, int, Value]]:
        """The flags of this scope that conditions stand for, and what they hold here."""
        frame = self.activation.frame
        for kind, bit in list(self.conditions.items()):
            if type(kind) is tuple and kind[0] == "falsy" and kind[1][0] == frame:
                value = st.store.get(kind[1])
                if value is not None:
                    yield kind[1], bit, value

    def _track_after_loop(self, states: Sequence[State | None]) -> None:
        """On each way out of a loop the conditions say how the flags stand there that an iteration has set."""
        self._flags_of_rounds(states)
        for st in states:
            if st is None or st.dead:
                continue
            self.track_rounds(st)
            for _, bit, value in self._flag_conditions(st):
                if not isinstance(value, Union):
                    st.forget(bit)
                    st.assume(Guard(bit, 0) if is_falsy(value) else Guard(0, bit))

    def _flags_of_rounds(self, states: Sequence[State | None]) -> None:
        """What is None, false or empty where there was no round, and is not after one, tells whether there was one."""
        frame = self.activation.frame
        live = [st for st in states if st is not None and not st.dead]
        for name in sorted(map(str, live[0].store.of(frame).keys() & self.file.flags)) if live else ():
            key = (frame, name)
            held = [st.store[key] for st in live if key in st.store]
            kinds = {is_falsy(v) for value in held for v in iterate(value)}
            if {True, False} <= kinds and ("falsy", key) not in self.conditions:
                self.new_condition(("falsy", key), ())

    def _decide(self, st: State, key: Key, before: State) -> None:
        """In a state the condition that stands for an attribute gets its outcome; unchanged it stands as it did."""
        value, bit = st.store.get(key), self.flags[key]
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
        self.rounds.append(set())
        end = self._round(st.copy(), enter, body, left)
        self._runs_when_timed(left[0], left[1:], [end])
        self.settle(st, self.joined([*(left[1:] if at_least_once else left), end]))
        self.leave_rounds(st)

    def holds_stream_code(self, node: cst.CSTNode) -> bool:
        """Whether a loop mentions streams, copies or clocks, or a function of the file that does.

        What the consumer of a generator does with each element is done in the generator's loop.
        """
        consumer = self.activation.consumer
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
            known = self.loops_with_streams[id(node)] = self.is_stream_code(names)
        return known or (self.hooks_run_streams and self._calls_its_elements(node))

    @staticmethod
    def _calls_its_elements(node: cst.CSTNode) -> bool:
        return isinstance(node, cst.For) and concrete.calls_one_of(node.body, concrete.names_in(node.target))

    def uses_lasting(self, node: cst.CSTNode, st: State) -> bool:
        """Whether a loop names what the next round may overwrite or take the memory of, pinned memory, a graphed
        callable's outputs or a queue that a thread fills, or a function with stream code by another name.
        """
        frame = self.activation.frame
        owner = st.store.get((frame, "self"))
        scopes = [frame, owner.name] if isinstance(owner, Instance) else [frame]
        for name in concrete.names_in(node):
            for scope in scopes:
                held = st.store.get((scope, name))
                called = held.function if isinstance(held, Partial) else held
                if isinstance(called, Instance):
                    # ``layer(x)`` of a module runs its ``forward``
                    own = self.find_method(called.unit, "__call__") or self.find_method(
                        called.unit, "forward"
                    )
                    called = Function(own) if own is not None else None
                if isinstance(called, Function) and self.is_relevant(called.unit):
                    return True
                if isinstance(held, Tensor) and st.store.get((held.name, "@place")) == Const("pinned"):
                    return True
                if isinstance(held, Object) and (held.name, "@graphed") in st.store:
                    return True
                if isinstance(held, Partial) and held.function == GRAPHED:
                    return True
                if self.produced and held is not None and self.is_produced(st, held):
                    return True
        return False

    def _rounds_allowed(self) -> int:
        """Fewer for loops inside loops, whose bodies are interpreted again in each round outside."""
        if self.is_exhausted():
            return 1
        return max(2, ROUNDS >> (len(self.rounds) - 1))

    def _has_released(self, before: State, after: State) -> bool:
        """Whether rounds have let go of what others may still use: one round more is given it."""
        pools = [b for b in after.order.made if isinstance(b, tuple) and b[0] == "pool"]
        return any(set(after.order.made[b]) - set(before.order.accesses(b)) for b in pools) and not (
            self.is_exhausted()
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
        self.activation.loops.append(loop)
        left.append(enter(current))
        if not current.dead:
            body(current)
        self.activation.loops.pop()
        left.extend(loop.breaks)
        end = self.joined([current, *loop.continues])
        return end.copy() if end is not None else None

    def _while(self, node: cst.While, st: State) -> None:
        def enter(current: State) -> State | None:
            standing = current.copy() if self.threads or self.beside or concrete.awaits(node.body) else None
            outcomes = self.test(node.test, current, track=False)
            leaves = current.copy()
            self.enter_branch(node.test, outcomes, True, current)
            self.enter_branch(node.test, outcomes, False, leaves)
            if leaves.dead and standing is not None:
                leaves = standing  # who has started it goes on beside it, and so do other tasks
                self._brought_by_others(node.test, leaves)
            return None if leaves.dead else leaves

        if not self._drained(node, st):
            taking = self.taking and bool(self.threads)
            self.loop(
                st, enter, lambda current: self.suite(node.body, current), at_least_once=taking, node=node
            )
        if node.orelse is not None and not st.dead:
            self.suite(node.orelse.body, st)

    def _brought_by_others(self, test: cst.BaseExpression, st: State) -> None:
        """What a thread polls is not what it was when another one has changed it."""
        for asked in concrete.walk(test):
            if isinstance(asked, cst.Attribute) and isinstance(self.eval(asked, st), Const):
                self.assign(asked, Opaque(Name(("brought", id(asked)))), st, asked)

    def _drained(self, node: cst.While, st: State) -> bool:
        """Interpret rounds one by one where lists whose length is known say when the loop ends; whether it did."""
        endless = isinstance(node.test, (cst.Name, cst.Integer))
        if endless and not concrete.leaves_early(node.body) and not (self.threads or self.beside):
            return False
        trial = st.copy()
        before = sequences.lengths(trial)
        if not before:
            return False
        loop = Loop()
        returns, blocked = len(self.activation.returns), len(self.blocked)
        self.activation.loops.append(loop)
        ended = False
        for number in range(UNROLLED):
            outcomes = self.test(node.test, trial, track=False)
            ended = trial.dead
            if ended or len(outcomes) != 1:
                break
            ended = not outcomes[0][0]
            if ended:
                break
            loop.continues.clear()
            with self.round_apart(node, number, 2):
                self.suite(node.body, trial)
            self.settle(trial, self.joined([trial, *loop.continues]))
            ended = trial.dead
            if ended or sequences.lengths(trial) == before:
                break
        self.activation.loops.pop()
        if not ended:
            del self.activation.returns[returns:]
            del self.blocked[blocked:]
            return False
        self.settle(trial, self.joined([trial, *loop.breaks]))
        st.become(trial)
        return True


def _is_instance(name: Name) -> bool:
    """Whether a call of a class of the file has made an object."""
    return type(name.site) is tuple and str(name.site[-1]).endswith("()")
