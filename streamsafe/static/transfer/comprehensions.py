"""Comprehensions, generators, and functions that are mapped over iterables or trees of containers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

import libcst as cst

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import concrete, element_keys, fields, sequences
from streamsafe.static.facts import Assumed, Site
from streamsafe.static.numbers import SLOT_ROUNDS
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.stream_pools import POOL
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    EACH,
    NONE,
    UNKNOWN,
    Api,
    Const,
    Container,
    Event,
    Function,
    Generator,
    Instance,
    Name,
    Opaque,
    Partial,
    Picks,
    Tensor,
    Tuple,
    Value,
    Work,
    iterate,
    under,
)

DEPTH = 7


class Comprehensions(Part):
    """Runs comprehensions, generators and mapped functions."""

    def comprehension(
        self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp, st: State
    ) -> Value:
        """A comprehension or a generator expression."""
        kind = "dict" if isinstance(node, cst.DictComp) else "list"
        name = self.objects.fresh(node, st, kind)
        self.run.closed.add(name)
        result = Container(name, kind)
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            sequences.put(st, result, [])
        elif isinstance(node, cst.DictComp):
            sequences.set_keys(st, result, ())
        self.run.stack[-1].temporaries.append(result)

        def element(state: State) -> None:
            if isinstance(node, cst.DictComp):
                key = self.expressions.eval(node.key, state)
                value = self.expressions.eval(node.value, state)
                if state.graphs and not isinstance(key, Const):
                    self.graph_memory.keep_output(
                        state, result, self.containers.held(result, state), value, self.call_stack.site(node)
                    )
                self.elements.store_element(result, key, value, state)
                if isinstance(key, Opaque) and key.name.site == EACH:
                    self.containers.extend_container(state, result, Tuple((value,)))
            else:
                value = self.expressions.eval(node.elt, state)
                if state.graphs:
                    self.graph_memory.keep_output(
                        state, result, self.containers.held(result, state), value, self.call_stack.site(node)
                    )
                self.containers.extend_container(state, result, Tuple((value,)))

        frame = self.run.stack[-1].frame
        outside = {bound: st.store.get((frame, bound)) for bound in concrete.targets(node.for_in)}
        if not self._comp_for(node.for_in, st, element, of=name):
            sequences.blur(st, result)
            sequences.set_keys(st, result, None)
            self._one_for_all(result, st)
        for bound, value in outside.items():  # its names are its own
            last = st.store.pop((frame, bound), None)
            if value is not None:
                st.store[(frame, bound)] = value
            elif last is not None:
                self.containers.lose(st, last)
        return result

    def _one_for_all(self, made: Container, st: State) -> None:
        """Of events that rounds have made alike and nothing was done with, one stands for all of them."""
        for key, value in list(st.store.of(made.name).items()):
            events = [v for v in iterate(value) if isinstance(v, Event)]
            alike = (
                len({event.name.base() for event in events}) == 1 < len(events) == len(list(iterate(value)))
            )
            if alike and all(st.store.of(event.name).keys() <= {fields.CREATED} for event in events):
                st.store[(made.name, key)] = min(events, key=lambda event: event.name.age)

    def _selected_by(self, conditions: Sequence[cst.CompIf], st: State) -> Picks:
        """What tells the elements that a comprehension takes from those that it leaves: how an attribute of each is."""
        found: dict[Hashable, str] = {}
        for condition in conditions:
            test, holds = condition.test, True
            while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
                test, holds = test.expression, not holds
            tested = self.expressions.eval(test, st) if isinstance(test, cst.Attribute) else NONE
            names = [v.name.base() for v in iterate(tested) if isinstance(v, Opaque)]
            if names and all(any(part.site == EACH for part in name.chain()) for name in names):
                found["where", frozenset(names)] = str(holds)
        return tuple(found.items())

    def _comp_for(
        self, clause: cst.CompFor, st: State, element: Callable[[State], None], of: Name | None = None
    ) -> bool:
        """Whether every round was made; else one stands for all: the elements of a comprehension are made alike.

        Args:
            clause: where the elements come from.
            st: what is known; changed in place.
            element: makes one.
            of: the list that is made.
        """
        iterable = self.expressions.eval(clause.iter, st)
        exact = True

        def body(item: Value, state: State) -> None:
            nonlocal exact
            self.assignments.assign(clause.target, item, state, clause)
            taken, skipped = state, None
            for condition in clause.ifs:
                outcomes = self.predicates.test(condition.test, taken, track=False)
                if not any(outcome for outcome, _ in outcomes):
                    return
                exact = exact and all(outcome for outcome, _ in outcomes)
                if any(guard != ALWAYS for outcome, guard in outcomes if not outcome):
                    skipped = skipped or taken.copy()
                    taken = taken.copy()
                    self.paths.enter_branch(condition.test, outcomes, True, taken)
            selection = self._selected_by(clause.ifs, taken)
            if selection:
                self.assignments.assign(clause.target, element_keys.in_rounds(item, selection), taken, clause)
            if clause.inner_for_in is not None:
                exact = self._comp_for(clause.inner_for_in, taken, element) and exact
            else:
                element(taken)
            if skipped is not None:
                joined = self.paths.join(taken, skipped)
                state.become(joined if joined is not None else taken)

        items = self.iterables.literal_items(iterable, st)
        if items is None and of is not None and of.base() in self.run.pool_sizes:
            if isinstance(iterable, Tensor) and not clause.ifs and clause.inner_for_in is None:
                rows = [
                    self.subscripts.picked(iterable.part, [Const(number)], st) for number in range(POOL.value)
                ]
                items = [replace(iterable, part=row) for row in rows]
        if isinstance(iterable, Generator):
            self.run_generator(iterable, st, clause, _valueless(body))
        elif items is not None:
            for number, item in enumerate(items):
                with self.iterables.round_apart(clause, number, len(items)):
                    body(item, st)
            return exact
        elif isinstance(iterable, Instance):
            self.iteration.iterate_over(iterable, st, clause, body)
        else:
            before, slots = (self.run.followed, self.run.replays), self._numbers_in_turn(st)
            made: set[Name] = set()
            self.run.rounds.append(made)
            body(self.elements.of_round(self.statements.next_item(iterable, st, clause), clause, st), st)
            self.stream_pools.fills_pool(iterable, made, st)
            more = (self.run.followed, self.run.replays) != before
            for _ in range(1, SLOT_ROUNDS):
                if not more or st.dead:
                    break
                self.lifetimes.release_unreachable(
                    st, self.call_stack.site(clause), self.call_stack.suspended()
                )
                self.objects.age_round(st, clause)
                slots, turned = self._numbers_in_turn(st), slots
                body(self.elements.of_round(self.statements.next_item(iterable, st, clause), clause, st), st)
                more = slots != turned
            self.iterables.leave_rounds(st)
        return False

    def _numbers_in_turn(self, st: State) -> list[Value]:
        """The numbers that select the slots of a ring in turn."""
        names = self.run.file.turning
        tables = st.store.objects.values() if names else ()
        return [table[name] for table in tables for name in names if name in table]

    def do_map_call(self, call: Call, st: State) -> Value:
        """``map(f, xs)``: the function runs for each element, now."""
        if len(call.args) < 2:
            return UNKNOWN
        if call.text.endswith("filter"):
            if call.args[0] != NONE:
                given = [self.statements.next_item(call.args[1], st, call.node)]
                self.calls.call_value(call.args[0], Call(call.node, call.site, given), st)
            known = self.iterables.known_items(call.args[1], st)
            if known is None or NONE not in known or call.args[0] != NONE:
                return call.args[1]
            return Tuple(tuple(item for item in known if item != NONE))
        name = self.objects.fresh(call.node, st, "map")
        self.run.closed.add(name)
        result = Container(name, "list")

        def body(item: Value, state: State) -> None:
            given = list(item.items) if several and isinstance(item, Tuple) else [item]
            value = self.calls.call_value(call.args[0], Call(call.node, call.site, given), state)
            self.containers.extend_container(state, result, Tuple((value,)))

        several = len(call.args) > 2
        iterated = Partial(Api("builtins.zip"), tuple(call.args[1:]), ()) if several else call.args[1]
        if self.iterables.literal_items(iterated, st) is not None:
            sequences.put(st, result, [])
        if isinstance(call.args[0], (Function, Partial)):
            self.iteration.iterate_over(iterated, st, call.node, body, at_least_once=True)
        else:
            body(self.statements.next_item(iterated, st, call.node), st)
        return result

    def do_tree_map(self, call: Call, st: State) -> Value:
        """``tree_map(f, tree)``: the function runs for each leaf; of what is not known it is taken to be a tree."""
        if len(call.args) < 2:
            return UNKNOWN
        function, tree = call.args[:2]
        if isinstance(tree, Opaque) and not self.expressions.is_tensor(st, tree):
            return self.tree_of([self.containers.any_element(tree, st)], function, call, st)
        return self.mapped_tree(function, tree, call, st)

    def do_tree_map_only(self, call: Call, st: State) -> Value:
        """``tree_map_only(type, f, tree)``."""
        return self.do_tree_map(Call(call.node, call.site, call.args[1:], call.kwargs, call.text), st)

    def mapped_tree(self, function: Value, tree: Value, call: Call, st: State) -> Value:
        """What a function makes of every leaf, in the same places."""
        if isinstance(tree, Tuple):
            return Tuple(tuple(self.mapped_tree(function, item, call, st) for item in tree.items))
        if not isinstance(tree, Container):
            return self.calls.call_value(function, Call(call.node, call.site, [tree]), st)
        items, keys = sequences.items(st, tree), sequences.keys(st, tree)
        if items is not None:
            result = Container(self.objects.fresh(call.node, st, ("tree", tree.name)), "list")
            sequences.put(st, result, [self.mapped_tree(function, item, call, st) for item in items])
        elif keys is not None:
            result = Container(self.objects.fresh(call.node, st, ("tree", tree.name)), "dict")
            for key, held in list(st.store.of(tree.name).items()):
                if key in keys:
                    st.store[(result.name, key)] = self.mapped_tree(function, held, call, st)
            sequences.set_keys(st, result, keys)
        else:
            return self.tree_of([self.containers.any_value(tree, st)], function, call, st)
        self.run.closed.add(result.name)
        return result

    def tree_of(self, leaves: list[Value], function: Value, call: Call, st: State) -> Container:
        """A tree of which the leaves are known, and not where they are."""
        result = Container(self.objects.fresh(call.node, st, "tree"), "list")
        self.run.closed.add(result.name)
        for leaf in leaves:
            self.containers.extend_container(st, result, Tuple((self.mapped_tree(function, leaf, call, st),)))
        return result

    # -- generators ----------------------------------------------------------------------------------------------

    def run_generator(
        self, generator: Generator, st: State, node: cst.CSTNode, consumer: Callable[[Value, State], Value]
    ) -> Value:
        """Interpret a generator; at each ``yield`` its consumer goes on."""
        function = generator.function
        if not isinstance(function, Function):
            return UNKNOWN
        if len(self.run.stack) > DEPTH or any(a.unit is function.unit for a in self.run.stack):
            consumer(UNKNOWN, st)
            return UNKNOWN
        depth = len(self.run.stack)

        def on_yield(value: Value, state: State) -> Value:
            inner, self.run.stack[depth:] = self.run.stack[depth:], []
            self.run.paused.append(inner)
            try:
                return consumer(value, state)
            finally:
                self.run.paused.pop()
                self.run.stack.extend(inner)

        return self.functions.run_function(
            function, list(generator.args), dict(generator.kwargs), st, node, on_yield=on_yield
        )

    def advance(self, generator: Generator, st: State, sent: Value = NONE) -> Value | None:
        """``next(generator)``: run on from where it stands to its next ``yield``; None where it ends.

        What it has done before is done again out of sight, to get where it stands; there what is known now takes over.
        """
        key = self.standing(generator)
        stands = st.store.get(key)
        # of several rounds of a loop one has advanced it furthest: no round begins it anew
        before = max(
            (v.value for v in iterate(stands or NONE) if isinstance(v, Const) and v.value), default=0
        )
        path, current = self.run.begun.setdefault(generator, (self.run.stack[-1].path, dict(st.current)))
        reached = 0
        given: tuple[Value, State] | None = None
        running = st.copy()
        if before:
            running.current = dict(current)

        def consumer(value: Value, state: State) -> Value:
            nonlocal reached, given
            reached += 1
            if reached == before:
                state.become(st.copy())
                self.run.silent -= 1
                return sent
            if reached > before:
                if given is None:
                    given = (value, state.copy())
                state.dead = True
            return NONE

        outer, self.run.stack[-1].path = self.run.stack[-1].path, path
        silent = self.run.silent
        self.run.silent += before > 0
        try:
            self.run_generator(generator, running, generator.site, consumer)  # type: ignore[arg-type]
        finally:
            self.run.stack[-1].path, self.run.silent = outer, silent
        if given is not None:
            st.become(given[1])
            st.store[key] = Const(before + 1)
            return given[0]
        if reached >= before and not running.dead:
            st.become(running)
        return None

    @staticmethod
    def standing(generator: Generator) -> tuple[Name, Hashable]:
        """Where it is kept how often a generator has yielded."""
        return Name("module"), ("yielded", generator)

    def yield_expression(self, node: cst.Yield, st: State) -> Value:
        """``yield value``: the consumer runs."""
        if isinstance(node.value, cst.From):
            inner = self.expressions.eval(node.value.item, st)
            if isinstance(inner, Generator):
                return self.run_generator(inner, st, node, partial(self._yielded, node))
            self.iteration.iterate_over(inner, st, node, partial(self._yielded, node))
            return UNKNOWN
        return self._yielded(
            node, self.expressions.eval(node.value, st) if node.value is not None else NONE, st
        )

    def _yielded(self, node: cst.Yield, value: Value, st: State) -> Value:
        activation = self.run.stack[-1]
        if activation.on_yield is not None:
            return activation.on_yield(value, st)
        if activation.unit is not None and not activation.unit.is_contextmanager:
            self.consumed(st, value, self.call_stack.site(node))
        return UNKNOWN

    def consumed(self, st: State, value: Value, site: Site) -> None:
        """An unknown consumer reads what is yielded on the stream that is current.

        Inside ``with torch.cuda.stream(s)`` that is ``s``: the context stays entered while the generator is suspended.
        """
        if any(isinstance(part, (Event, Work)) for part in self.assumed_order.parts_of(st, value)):
            return  # what to wait for is handed over along with it
        if isinstance(value, Tuple):
            value = Tuple(tuple(v for v in value.items if not self.is_receiver(v)))
        for target, guard in () if self.is_receiver(value) else self.memory.tensors_in(st, value):
            if not self.tensors.is_host(st, target) and (
                isinstance(target, Tensor) or target.name in st.order.made
            ):
                library = self.tensors.library_of(st, [target])
                self.accesses.access(
                    st,
                    under(target, guard),
                    site,
                    "the consumer",
                    writes=False,
                    library=library,
                    assumed=Assumed.UNMODELLED,
                    tags=frozenset({"method"}),
                )

    def is_receiver(self, value: Value) -> bool:
        """Whether a value is the object whose method runs: who calls it has it already."""
        return isinstance(value, Instance) and value.name in self.run.protocol_roots


def _valueless(body: Callable[[Value, State], None]) -> Callable[[Value, State], Value]:
    """A body whose value nobody asks for."""

    def run(value: Value, st: State) -> Value:
        body(value, st)
        return NONE

    return run
