"""What a loop iterates over: generators, counts, lists, objects that give one element after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import concrete, element_keys, sequences
from streamsafe.static.numbers import SLOT_ROUNDS
from streamsafe.static.state import State
from streamsafe.static.transfer.conditions import Outcomes
from streamsafe.static.transfer.iterables import MOST_ROUNDS, UNROLLED
from streamsafe.static.transfer.loops import Loop, is_cycle, is_reversed_range, item_in_round
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.paths import MOST_SLOTS
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    UNTIL,
    Api,
    Const,
    Container,
    Function,
    Generator,
    Instance,
    Opaque,
    Partial,
    Tuple,
    Value,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


class Iteration(Part):
    """Runs loops over iterables."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.numbering: bool = False
        """A consumer that picks slots counts the rounds of a generator."""

    def for_statement(self, node: cst.For, st: State) -> None:
        """``for target in iterable:``."""
        iterable = self.expressions.eval(node.iter, st)

        def body(item: Value, current: State) -> None:
            self.assignments.assign(node.target, item, current, node)
            self.statements.suite(node.body, current)

        runs = self.iterables.never_empty(node.iter, iterable, st)
        runs = runs or (self.loops.holds_stream_code(node) and concrete.iterates_devices(node))
        self.iterate_over(iterable, st, node, body, at_least_once=runs)
        if node.orelse is not None and not st.dead:
            self.statements.suite(node.orelse.body, st)

    def iterate_over(
        self,
        iterable: Value,
        st: State,
        node: cst.CSTNode,
        body: Callable[[Value, State], object],
        *,
        at_least_once: bool = False,
    ) -> None:
        """Walk an iterable: a generator of the file runs up to each yield, anything else gives elements."""
        driver = _driver(iterable)
        if driver is not None:
            self._driven(driver, iterable, st, node, body)
            return
        if isinstance(iterable, Partial) and iterable.function == UNTIL:
            self._until(iterable, st, node, body)
            return
        if isinstance(iterable, Instance):
            self._walk_instance(iterable, st, node, body)
            return
        if isinstance(iterable, Partial):
            self._begin_instances(iterable, st, node)
        items = self.iterables.literal_items(iterable, st) if _index_matters(node, iterable) else None
        if items is not None:
            self.call_stack.activation.held.append(Tuple(tuple(items)))
            self._unrolled(items, st, node, body)
            self.call_stack.activation.held.pop()
            return
        threads = self.iterables.iteration_starts(iterable, st, self.call_stack.site(node))

        # a loop over several side by side has an iteration where each of them has an element
        counts = dict.fromkeys(self.iterables.counts_of(iterable))
        answers = [
            sequences.some(st, Container(count.name, "list"))
            or self.conditions.condition(("truth", count.name), (count.name,), st, True)
            for count in counts
        ]
        answers = [outcomes for outcomes in answers or [self.iterables.holds_some(iterable, st)] if outcomes]
        outcomes = self.conditions.as_one(_all_of(answers), st)
        at_least_once = at_least_once and not self.iterables.is_empty_on_some_paths(iterable, st)

        first = True

        def enter(current: State) -> State | None:
            nonlocal first
            if ended and not first:
                return None  # it is left by the round that is the last
            leaves = current.copy()
            if first and answers:
                current.assume(*(guard for outcome, guard in outcomes if outcome))
                leaves.assume(*(guard for outcome, guard in outcomes if not outcome))
            first = False
            return None if leaves.dead else leaves

        marked = self.loops.holds_stream_code(node) or self.loops.uses_lasting(node, st)
        begun = ended = False

        def round_(current: State) -> None:
            nonlocal begun, ended
            item = self.statements.next_item(iterable, current, node)
            if marked:
                round_ = self.elements.round_name(node, current)
                self.computed.number_round(item, iterable, round_, current, first=not begun)
                element_keys.begin(current, round_, first=not begun)
                begun = True
                item = item_in_round(item, iterable, ((round_.base(), round_),))
            if not current.dead:
                body(item, current)
            if marked:
                ended = self.loops.leave_after_last(round_, current)

        self.call_stack.activation.held.append(iterable)
        if (
            self.numbering or self._picks_slots(node, iterable)
        ) and self.run.unrolling * SLOT_ROUNDS <= MOST_ROUNDS:
            self.loops.numbered_rounds(iterable, st, node, enter, body, at_least_once=at_least_once)
        else:
            self.loops.loop(st, enter, round_, at_least_once=at_least_once, node=node)
        self.call_stack.activation.held.pop()
        st.threads = {thread: None for thread in st.threads if thread not in threads}

    def _driven(
        self,
        driver: Generator,
        iterable: Value,
        st: State,
        node: cst.CSTNode,
        body: Callable[[Value, State], object],
    ) -> None:
        """A generator of the file runs up to each yield; what is iterated beside it is asked there for its next one.

        ``enumerate`` gives numbers that are known as long as the generator's own rounds are.
        """
        loops, loop = self.run.fixpoints, Loop()
        count = 0

        def item_of(part: Value, value: Value, state: State) -> Value:
            if part is driver:
                return value
            if isinstance(part, Generator):
                item = self.comprehensions.advance(part, state)
                state.dead |= item is None
                return item or UNKNOWN
            if not isinstance(part, Partial) or part.function not in (_ENUMERATE, _ZIP):
                return self.statements.next_item(part, state, node)
            items = tuple(
                item_of(p, value, state) for p in part.args[: 1 if part.function == _ENUMERATE else None]
            )
            if part.function == _ZIP:
                return Tuple(items)
            known = self.run.fixpoints == loops and len(part.args) == 1
            return Tuple(
                (Const(count) if known else Opaque(self.objects.fresh(node, state, "index")), *items)
            )

        def consumer(value: Value, current: State) -> Value:
            nonlocal count
            loop.continues.clear()
            item = item_of(iterable, value, current)
            count += 1
            inner, self.numbering = self.numbering, False
            if not current.dead:
                body(item, current)
            self.numbering = inner
            self.paths.settle(current, self.paths.joined([current, *loop.continues]))
            return NONE

        numbering = self.numbering
        if iterable is not driver:
            self.numbering = self._picks_slots(node, iterable)
        self.call_stack.activation.loops.append(loop)
        self.comprehensions.run_generator(driver, st, node, consumer)
        self.call_stack.activation.loops.pop()
        self.numbering = numbering
        self.paths.settle(st, self.paths.joined([st, *loop.breaks]))

    def _picks_slots(self, node: cst.CSTNode, iterable: Value) -> bool:
        if any(map(is_cycle, iterable.args if isinstance(iterable, Partial) else (iterable,))):
            return True
        return _picks_slots(node, iterable, passed=self.run.file.picks_by_remainder)

    def _begin_instances(self, iterable: Partial, st: State, node: cst.CSTNode) -> None:
        """What is iterated beside others, or counted, makes itself ready; those that are their own iterators do."""
        for given in iterable.args:
            if isinstance(given, Partial):
                self._begin_instances(given, st, node)
            elif self.class_members.own_method(given, "__next__") is not None:
                begin = self.class_members.own_method(given, "__iter__")
                if begin is not None and not any(a.unit is begin.unit for a in self.run.stack):
                    self.functions.call_function(begin, [], {}, st, node)

    def _walk_instance(
        self, instance: Instance, st: State, node: cst.CSTNode, body: Callable[[Value, State], object]
    ) -> None:
        """``for x in instance``: the loop takes what ``__iter__`` gives, or calls ``__next__`` until it raises."""
        enter = self.class_members.find_method(instance.unit, "__iter__")
        following = self.class_members.find_method(instance.unit, "__next__")
        if enter is not None and not any(a.unit is enter for a in self.run.stack):
            given = self.functions.call_function(Function(enter, None, instance), [], {}, st, node)
            if given != instance:
                if not st.dead:
                    self.iterate_over(given, st, node, body)
                return

        def following_one(current: State) -> Value:
            if following is None:
                return UNKNOWN
            return self.functions.call_function(Function(following, None, instance), [], {}, current, node)

        self.call_stack.activation.held.append(instance)
        self._rounds_from(following_one, st, node, body)
        self.call_stack.activation.held.pop()

    def _rounds_from(
        self,
        following: Callable[[State], Value],
        st: State,
        node: cst.CSTNode,
        body: Callable[[Value, State], object],
    ) -> None:
        """Rounds for whose element somebody is asked; where there is no other, asking for it ends the state."""

        def round_(current: State) -> None:
            value = following(current)
            if not current.dead:
                body(value, current)

        if not self._exhausted(st, node, following, body):
            self.loops.loop(st, lambda current: current.copy(), round_)

    def _until(
        self, iterable: Partial, st: State, node: cst.CSTNode, body: Callable[[Value, State], object]
    ) -> None:
        """``for x in iter(f, last)``."""

        def following(current: State) -> Value:
            value = self.iterables.next_until(iterable, current, node)
            current.dead |= value is None
            return value or UNKNOWN

        self._rounds_from(following, st, node, body)

    def _exhausted(
        self,
        st: State,
        node: cst.CSTNode,
        following: Callable[[State], Value],
        body: Callable[[Value, State], object],
    ) -> bool:
        """Walk round by round where lists whose length is known say when there is no other element, or a round leaves
        the loop; whether it came to that.
        """
        trial = st.copy()
        loop = Loop()
        blocked = len(self.run.blocked)
        self.call_stack.activation.loops.append(loop)
        ended = False
        stalled = 0
        for number in range(UNROLLED):
            before = trial.copy()
            loop.continues.clear()
            with self.iterables.round_apart(node, number, 2):
                value = following(trial)
                if trial.dead:
                    loop.breaks.append(before)
                else:
                    body(value, trial)
            self.paths.settle(trial, self.paths.joined([trial, *loop.continues]))
            ended = trial.dead
            if ended:
                break
            stalled = stalled + 1 if sequences.lengths(trial) == sequences.lengths(before) else 0
            if stalled > 1:
                break
        self.call_stack.activation.loops.pop()
        if ended:
            self.paths.settle(st, self.paths.joined(loop.breaks))
        else:
            del self.run.blocked[blocked:]
        return ended

    def _unrolled(
        self, items: Sequence[Value], st: State, node: cst.CSTNode, body: Callable[[Value, State], object]
    ) -> None:
        loop = Loop()
        self.call_stack.activation.loops.append(loop)
        for number, item in enumerate(items):
            if st.dead:
                break
            loop.continues.clear()
            with self.iterables.round_apart(node, number, len(items)):
                body(item, st)
            self.paths.settle(st, self.paths.joined([st, *loop.continues]))
        self.call_stack.activation.loops.pop()
        self.paths.settle(st, self.paths.joined([st, *loop.breaks]))


def _all_of(answers: Iterable[Outcomes]) -> Outcomes:
    """Whether each of some tests holds: on the paths on which they all do, or for one that does not."""
    every, one_not = [ALWAYS], []
    for outcomes in answers:
        every = [g & h for g in every for outcome, h in outcomes if outcome and not g.contradicts(h)]
        one_not += [guard for outcome, guard in outcomes if not outcome]
    return [*((True, guard) for guard in every), *((False, guard) for guard in one_not)]


_ENUMERATE, _ZIP = Api("builtins.enumerate"), Api("builtins.zip")


def _driver(iterable: Value) -> Generator | None:
    """The generator of the file that says when the rounds of a loop begin; of several the first."""
    if isinstance(iterable, Generator):
        return iterable
    if isinstance(iterable, Partial) and iterable.function in (_ENUMERATE, _ZIP):
        return next((found for part in iterable.args if (found := _driver(part)) is not None), None)
    return None


def _picks_slots(node: cst.CSTNode, iterable: Value, *, passed: bool) -> bool:
    """Whether a loop's number, or what is computed from it, is an index, as where slots are used in turn.

    Args:
        node: the loop.
        iterable: what it iterates over.
        handed_on: who is given the number may take it for an index.
    """
    if not (
        isinstance(node, cst.For) and isinstance(iterable, Partial) and isinstance(iterable.function, Api)
    ):
        return False
    target: cst.CSTNode = node.target
    if iterable.function.name == "builtins.enumerate" and isinstance(target, cst.Tuple) and target.elements:
        target = target.elements[0].value
    elif iterable.function.name != "builtins.range" and not is_reversed_range(iterable):
        return False
    if not isinstance(target, cst.Name):
        return False
    return concrete.indexed_by(node.body, target.value, MOST_SLOTS) or (
        passed and concrete.is_argument(node.body, target.value)
    )


def _index_matters(node: cst.CSTNode, iterable: Value) -> bool:
    """Whether the rounds of a count differ: its number is used, or each adds to a list what it makes."""
    if not (isinstance(node, cst.For) and isinstance(node.target, cst.Name)):
        return True
    if not (isinstance(iterable, Partial) and iterable.function == Api("builtins.range")):
        return True
    return not concrete.names_in(node.body).isdisjoint({node.target.value, "append", "appendleft"})
