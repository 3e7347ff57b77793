"""What a loop iterates over: generators, counts, lists, objects that give one element after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import concrete, element_keys, sequences
from streamsafe.static.conditions import Outcomes
from streamsafe.static.contexts import MOST_ROUNDS, UNROLLED
from streamsafe.static.loops import Loop, Loops
from streamsafe.static.numbers import SLOT_ROUNDS
from streamsafe.static.ring_indices import MOST_SLOTS
from streamsafe.static.state import State
from streamsafe.static.values import (
    EACH,
    NONE,
    UNKNOWN,
    UNTIL,
    Api,
    Const,
    Container,
    Function,
    Generator,
    Instance,
    Name,
    Opaque,
    Partial,
    Picks,
    Tuple,
    Value,
)


class Iteration(Loops):
    """Loops over iterables."""

    def _for(self, node: cst.For, st: State) -> None:
        iterable = self.eval(node.iter, st)

        def body(item: Value, current: State) -> None:
            self.assign(node.target, item, current, node)
            self.suite(node.body, current)

        runs = self.never_empty(node.iter, iterable, st)
        runs = runs or (self.holds_stream_code(node) and concrete.iterates_devices(node))
        self.iterate_over(iterable, st, node, body, at_least_once=runs)
        if node.orelse is not None and not st.dead:
            self.suite(node.orelse.body, st)

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
        items = self.literal_items(iterable, st) if _index_matters(node, iterable) else None
        if items is not None:
            self.activation.held.append(Tuple(tuple(items)))
            self._unrolled(items, st, node, body)
            self.activation.held.pop()
            return
        threads = self.iteration_starts(iterable, st, self.site(node))

        # a loop over several side by side has an iteration where each of them has an element
        counts = dict.fromkeys(self.counts_of(iterable))
        answers = [
            sequences.some(st, Container(count.name, "list"))
            or self.condition(("truth", count.name), (count.name,), st, True)
            for count in counts
        ]
        answers = [outcomes for outcomes in answers or [self.holds_some(iterable, st)] if outcomes]
        outcomes = self.as_one(_all_of(answers), st)

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

        marked = self.holds_stream_code(node) or self.uses_lasting(node, st)
        begun = ended = False

        def round_(current: State) -> None:
            nonlocal begun, ended
            item = self.next_item(iterable, current, node)
            if marked:
                round_ = self.round_name(node, current)
                self.number_round(item, iterable, round_, current, first=not begun)
                element_keys.begin(current, round_, first=not begun)
                begun = True
                item = item_in_round(item, iterable, ((round_.base(), round_),))
            if not current.dead:
                body(item, current)
            if marked:
                ended = self._leave_after_last(round_, current)

        self.activation.held.append(iterable)
        if (
            self.numbering or self._picks_slots(node, iterable)
        ) and self.unrolling * SLOT_ROUNDS <= MOST_ROUNDS:
            self._numbered(iterable, st, node, enter, body, at_least_once=at_least_once)
        else:
            self.loop(st, enter, round_, at_least_once=at_least_once, node=node)
        self.activation.held.pop()
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
        loops, loop = self.fixpoints, Loop()
        count = 0

        def item_of(part: Value, value: Value, state: State) -> Value:
            if part is driver:
                return value
            if isinstance(part, Generator):
                item = self.advance(part, state)
                state.dead |= item is None
                return item or UNKNOWN
            if not isinstance(part, Partial) or part.function not in (_ENUMERATE, _ZIP):
                return self.next_item(part, state, node)
            items = tuple(
                item_of(p, value, state) for p in part.args[: 1 if part.function == _ENUMERATE else None]
            )
            if part.function == _ZIP:
                return Tuple(items)
            known = self.fixpoints == loops and len(part.args) == 1
            return Tuple((Const(count) if known else Opaque(self.fresh(node, state, "index")), *items))

        def consumer(value: Value, current: State) -> Value:
            nonlocal count
            loop.continues.clear()
            item = item_of(iterable, value, current)
            count += 1
            inner, self.numbering = self.numbering, False
            if not current.dead:
                body(item, current)
            self.numbering = inner
            self.settle(current, self.joined([current, *loop.continues]))
            return NONE

        numbering = self.numbering
        if iterable is not driver:
            self.numbering = self._picks_slots(node, iterable)
        self.activation.loops.append(loop)
        self.run_generator(driver, st, node, consumer)
        self.activation.loops.pop()
        self.numbering = numbering
        self.settle(st, self.joined([st, *loop.breaks]))

    def _picks_slots(self, node: cst.CSTNode, iterable: Value) -> bool:
        if any(map(_goes_round, iterable.args if isinstance(iterable, Partial) else (iterable,))):
            return True
        return _picks_slots(node, iterable, handed_on=self.file.picks_by_remainder)

    def _begin_instances(self, iterable: Partial, st: State, node: cst.CSTNode) -> None:
        """What is iterated beside others, or counted, makes itself ready; those that are their own iterators do."""
        for given in iterable.args:
            if isinstance(given, Partial):
                self._begin_instances(given, st, node)
            elif self.own_method(given, "__next__") is not None:
                begin = self.own_method(given, "__iter__")
                if begin is not None and not any(a.unit is begin.unit for a in self.stack):
                    self.call_function(begin, [], {}, st, node)

    def _walk_instance(
        self, instance: Instance, st: State, node: cst.CSTNode, body: Callable[[Value, State], object]
    ) -> None:
        """``for x in instance``: the loop takes what ``__iter__`` gives, or calls ``__next__`` until it raises."""
        enter = self.find_method(instance.unit, "__iter__")
        following = self.find_method(instance.unit, "__next__")
        if enter is not None and not any(a.unit is enter for a in self.stack):
            given = self.call_function(Function(enter, None, instance), [], {}, st, node)
            if given != instance:
                if not st.dead:
                    self.iterate_over(given, st, node, body)
                return

        def following_one(current: State) -> Value:
            if following is None:
                return UNKNOWN
            return self.call_function(Function(following, None, instance), [], {}, current, node)

        self._ask(following_one, st, node, body)

    def _ask(
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
            self.loop(st, lambda current: current.copy(), round_)

    def _until(
        self, iterable: Partial, st: State, node: cst.CSTNode, body: Callable[[Value, State], object]
    ) -> None:
        """``for x in iter(f, last)``."""

        def following(current: State) -> Value:
            value = self.asked_until(iterable, current, node)
            current.dead |= value is None
            return value or UNKNOWN

        self._ask(following, st, node, body)

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
        blocked = len(self.blocked)
        self.activation.loops.append(loop)
        ended = False
        stalled = 0
        for number in range(UNROLLED):
            before = trial.copy()
            loop.continues.clear()
            with self.round_apart(node, number, 2):
                value = following(trial)
                if trial.dead:
                    loop.breaks.append(before)
                else:
                    body(value, trial)
            self.settle(trial, self.joined([trial, *loop.continues]))
            ended = trial.dead
            if ended:
                break
            stalled = stalled + 1 if sequences.lengths(trial) == sequences.lengths(before) else 0
            if stalled > 1:
                break
        self.activation.loops.pop()
        if ended:
            self.settle(st, self.joined(loop.breaks))
        else:
            del self.blocked[blocked:]
        return ended

    def _numbered(
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
        self.activation.loops.append(loop)
        self.rounds.append(set())
        down = _counts_down(iterable)
        self.counting += 1
        self.counting_down += down
        early: list[State | None] = []
        ended = False
        late = self.late_rounds
        for number in range(SLOT_ROUNDS):
            before = st.copy()
            loop.continues.clear()
            round_ = self.round_name(node, st)
            self.late_rounds = {*late, round_} if number == SLOT_ROUNDS - 1 else late
            element_keys.begin(st, round_, first=not number)
            st.store[(round_, element_keys.NUMBER_OF_ROUND)] = Const(number)
            with self.round_apart(node, number, SLOT_ROUNDS):
                item = self._numbered_item(number, iterable, round_, st, node)
                body(item_in_round(item, iterable, ((round_.base(), round_),)), st)
            ended = self._leave_after_last(round_, st)
            self.settle(st, self.joined([st, *loop.continues]))
            early = early if number else [*loop.breaks]
            if st.dead:
                st.become(before)
                break
            self.track_indices(st)
            self.age(st, {round_, *(name for name in self.rounds[-1] if name.site == EACH)})
        self.activation.loops.pop()
        if ended and loop.breaks:
            loop.breaks.reverse()  # those that went together the longest meet first
            st.become(loop.breaks.pop(0))
        self.late_rounds = late
        self._runs_when_timed(skipped, early, [st, *loop.breaks])
        self.track_indices(st, *loop.breaks, skipped)
        self.settle(st, self.joined([st, *loop.breaks, None if at_least_once else skipped]))
        self.counting -= 1
        self.counting_down -= down
        self.leave_rounds(st, again=False)

    def _numbered_item(
        self, number: int, iterable: Value, round_: Name, st: State, node: cst.CSTNode
    ) -> Value:
        """What a round is given of which the count is known."""
        if isinstance(iterable, Container) and iterable.kind == "list" and iterable.part is None:
            item = self.next_item(iterable, st, node)
            whole = sequences.length(st, iterable) is None
            place = range(number, number + 1)
            return element_keys.in_rounds(item, element_keys.at_place(iterable, place)) if whole else item
        if isinstance(iterable, Partial):
            if iterable.function == Api("builtins.range"):
                return self.number_of(number, iterable, round_, st)
            if _is_reversed_range(iterable):
                return self.number_down(number, iterable.args[0], st)
            if iterable.function == Api("builtins.enumerate") and iterable.args:
                each = self._numbered_item(number, iterable.args[0], round_, st, node)
                return Tuple((self.number_of(number, iterable, round_, st), each))
            if iterable.function == Api("builtins.zip"):
                return Tuple(
                    tuple(self._numbered_item(number, each, round_, st, node) for each in iterable.args)
                )
        return self.next_item(iterable, st, node)

    def _leave_after_last(self, round_: Name, st: State) -> bool:
        """No iteration follows one that a test shows to be the last, and one follows each other; whether one has."""
        loop = self.activation.loops[-1]
        last = before = ALWAYS
        for key, outcome in self.lasts.pop(round_, {}).items():
            bit = self.conditions.get(key)
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

    def _unrolled(
        self, items: Sequence[Value], st: State, node: cst.CSTNode, body: Callable[[Value, State], object]
    ) -> None:
        loop = Loop()
        self.activation.loops.append(loop)
        for number, item in enumerate(items):
            if st.dead:
                break
            loop.continues.clear()
            with self.round_apart(node, number, len(items)):
                body(item, st)
            self.settle(st, self.joined([st, *loop.continues]))
        self.activation.loops.pop()
        self.settle(st, self.joined([st, *loop.breaks]))


def _all_of(answers: Iterable[Outcomes]) -> Outcomes:
    """Whether each of some tests holds: on the paths on which they all do, or for one that does not."""
    every, one_not = [ALWAYS], []
    for outcomes in answers:
        every = [g & h for g in every for outcome, h in outcomes if outcome and not g.contradicts(h)]
        one_not += [guard for outcome, guard in outcomes if not outcome]
    return [*((True, guard) for guard in every), *((False, guard) for guard in one_not)]


def _goes_round(iterable: Value) -> bool:
    return isinstance(iterable, Container) and iterable.kind == "cycle"


def item_in_round(item: Value, iterable: Value, rounds: Picks) -> Value:
    """No two iterations have the same element, except of what goes round."""
    if isinstance(iterable, Partial) and isinstance(item, Tuple) and any(map(_goes_round, iterable.args)):
        if len(item.items) == len(iterable.args):
            columns = zip(item.items, iterable.args, strict=True)
            return Tuple(
                tuple(v if _goes_round(a) else element_keys.in_rounds(v, rounds) for v, a in columns)
            )
    return item if _goes_round(iterable) else element_keys.in_rounds(item, rounds)


_ENUMERATE, _ZIP = Api("builtins.enumerate"), Api("builtins.zip")


def _driver(iterable: Value) -> Generator | None:
    """The generator of the file that says when the rounds of a loop begin; of several the first."""
    if isinstance(iterable, Generator):
        return iterable
    if isinstance(iterable, Partial) and iterable.function in (_ENUMERATE, _ZIP):
        return next((found for part in iterable.args if (found := _driver(part)) is not None), None)
    return None


def _picks_slots(node: cst.CSTNode, iterable: Value, *, handed_on: bool) -> bool:
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
    elif iterable.function.name != "builtins.range" and not _is_reversed_range(iterable):
        return False
    if not isinstance(target, cst.Name):
        return False
    return concrete.indexed_by(node.body, target.value, MOST_SLOTS) or (
        handed_on and concrete.is_argument(node.body, target.value)
    )


def _counts_down(iterable: Value) -> bool:
    """Whether a loop gives numbers that begin at one which is not known."""
    if not isinstance(iterable, Partial):
        return False
    if iterable.function == Api("builtins.range"):
        step = iterable.args[2] if len(iterable.args) > 2 else None
        return isinstance(step, Const) and type(step.value) is int and step.value < 0
    return _is_reversed_range(iterable)


def _is_reversed_range(iterable: Partial) -> bool:
    """Whether a loop has the numbers of a range from the last to the first."""
    counted = iterable.args[0] if len(iterable.args) == 1 else None
    return (
        iterable.function == Api("builtins.reversed")
        and isinstance(counted, Partial)
        and counted.function == Api("builtins.range")
    )


def _index_matters(node: cst.CSTNode, iterable: Value) -> bool:
    """Whether the rounds of a count differ: its number is used, or each adds to a list what it makes."""
    if not (isinstance(node, cst.For) and isinstance(node.target, cst.Name)):
        return True
    if not (isinstance(iterable, Partial) and iterable.function == Api("builtins.range")):
        return True
    return not concrete.names_in(node.body).isdisjoint({node.target.value, "append", "appendleft"})
