"""Context managers, generators and comprehensions: code that runs inside other code.

One file: all of these run a block of code between two halves of another one, by the same continuations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import concrete, element_keys, hints, numbers, sequences
from streamsafe.static.computed import LENGTH
from streamsafe.static.containers import POOL
from streamsafe.static.facts import AMBIENT, LOADER, Assumed, Site
from streamsafe.static.numbers import SLOT_ROUNDS
from streamsafe.static.state import Ordered, State
from streamsafe.static.tensor_methods import TensorMethods
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    EACH,
    ITERATED,
    NONE,
    UNKNOWN,
    UNTIL,
    Api,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Generator,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Partial,
    Picks,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    deeper,
    iterate,
    least,
    under,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.interpreter import Activation

DEPTH = 7

UNROLLED = 16
"""Rounds of a loop that are interpreted one by one, where their number is known."""

MOST_ROUNDS = 32
"""The same for loops in loops."""


class Contexts(TensorMethods):
    """Context managers, generators and comprehensions: code that runs inside other code."""

    # declared here, implemented further down the chain
    paused: list[list[Activation]]
    begun: dict[Generator, tuple[tuple[Hashable, ...], dict[str, Value]]]

    def leave_stack(self, stack: Context, st: State, call: Call) -> None: ...

    followed: int
    unrolling: int
    protocol_roots: list[Name]

    def run_function(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        st: State,
        node: cst.CSTNode,
        *,
        starred: bool = False,
        on_yield: Callable[[Value, State], Value] | None = None,
        root: bool = False,
    ) -> Value: ...

    def join_values(self, ends: list[tuple[State, Value]], st: State) -> Value: ...

    def next_item(self, iterable: Value, st: State, node: cst.CSTNode) -> Value: ...

    @contextmanager
    def exits(self, on_exit: Callable[[State], None]) -> Iterator[None]: ...

    # -- generators, comprehensions, contexts --------------------------------------------------------------------

    def run_generator(
        self, generator: Generator, st: State, node: cst.CSTNode, consumer: Callable[[Value, State], Value]
    ) -> Value:
        """Interpret a generator; at each ``yield`` its consumer goes on."""
        function = generator.function
        if not isinstance(function, Function):
            return UNKNOWN
        if len(self.stack) > DEPTH or any(a.unit is function.unit for a in self.stack):
            consumer(UNKNOWN, st)
            return UNKNOWN
        depth = len(self.stack)

        def on_yield(value: Value, state: State) -> Value:
            inner, self.stack[depth:] = self.stack[depth:], []
            self.paused.append(inner)
            try:
                return consumer(value, state)
            finally:
                self.paused.pop()
                self.stack.extend(inner)

        return self.run_function(
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
        path, current = self.begun.setdefault(generator, (self.stack[-1].path, dict(st.current)))
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
                self.silent -= 1
                return sent
            if reached > before:
                if given is None:
                    given = (value, state.copy())
                state.dead = True
            return NONE

        outer, self.stack[-1].path = self.stack[-1].path, path
        silent = self.silent
        self.silent += before > 0
        try:
            self.run_generator(generator, running, generator.site, consumer)  # type: ignore[arg-type]
        finally:
            self.stack[-1].path, self.silent = outer, silent
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

    def _yield(self, node: cst.Yield, st: State) -> Value:
        if isinstance(node.value, cst.From):
            inner = self.eval(node.value.item, st)
            if isinstance(inner, Generator):
                return self.run_generator(inner, st, node, partial(self._yielded, node))
            self.iterate_over(inner, st, node, partial(self._yielded, node))
            return UNKNOWN
        return self._yielded(node, self.eval(node.value, st) if node.value is not None else NONE, st)

    def _yielded(self, node: cst.Yield, value: Value, st: State) -> Value:
        activation = self.stack[-1]
        if activation.on_yield is not None:
            return activation.on_yield(value, st)
        if activation.unit is not None and not activation.unit.is_contextmanager:
            self.consumed(st, value, self.site(node))
        return UNKNOWN

    def consumed(self, st: State, value: Value, site: Site) -> None:
        """What is yielded to a consumer who is not seen is read on the stream that is current there."""
        if any(isinstance(part, (Event, Work)) for part in self.parts_of(st, value)):
            return  # what to wait for is handed over along with it
        saved = st.current
        st.current = {}
        if isinstance(value, Tuple):
            value = Tuple(tuple(v for v in value.items if not self.is_receiver(v)))
        for target, guard in () if self.is_receiver(value) else self.tensors(st, value):
            if not self.is_host(st, target) and (isinstance(target, Tensor) or target.name in st.order.made):
                library = self.library_of(st, [target])
                self.access(
                    st,
                    under(target, guard),
                    site,
                    "the consumer",
                    writes=False,
                    library=library,
                    assumed=Assumed.UNMODELLED,
                    tags=frozenset({"method"}),
                )
        st.current = saved

    def is_receiver(self, value: Value) -> bool:
        """Whether a value is the object whose method runs: who calls it has it already."""
        return isinstance(value, Instance) and value.name in self.protocol_roots

    def _comprehension(
        self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp, st: State
    ) -> Value:
        kind = "dict" if isinstance(node, cst.DictComp) else "list"
        name = self.fresh(node, st, kind)
        self.closed.add(name)
        result = Container(name, kind)
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            sequences.put(st, result, [])
        elif isinstance(node, cst.DictComp):
            sequences.set_keys(st, result, ())
        self.stack[-1].temporaries.append(result)

        def element(state: State) -> None:
            if isinstance(node, cst.DictComp):
                key = self.eval(node.key, state)
                value = self.eval(node.value, state)
                if state.graphs and not isinstance(key, Const):
                    self.keep_output(state, result, self.held(result, state), value, self.site(node))
                self.store_element(result, key, value, state)
                if isinstance(key, Opaque) and key.name.site == EACH:
                    self.extend_container(state, result, Tuple((value,)))
            else:
                value = self.eval(node.elt, state)
                if state.graphs:
                    self.keep_output(state, result, self.held(result, state), value, self.site(node))
                self.extend_container(state, result, Tuple((value,)))

        frame = self.stack[-1].frame
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
                self.lose(st, last)
        return result

    def _one_for_all(self, made: Container, st: State) -> None:
        """Of events that rounds have made alike and nothing was done with, one stands for all of them."""
        for key, value in list(st.store.of(made.name).items()):
            events = [v for v in iterate(value) if isinstance(v, Event)]
            alike = (
                len({event.name.base() for event in events}) == 1 < len(events) == len(list(iterate(value)))
            )
            if alike and all(st.store.of(event.name).keys() <= {"@made"} for event in events):
                st.store[(made.name, key)] = min(events, key=lambda event: event.name.age)

    def _selected_by(self, conditions: Sequence[cst.CompIf], st: State) -> Picks:
        """What tells the elements that a comprehension takes from those that it leaves: how an attribute of each is."""
        found: dict[Hashable, str] = {}
        for condition in conditions:
            test, holds = condition.test, True
            while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
                test, holds = test.expression, not holds
            asked = self.eval(test, st) if isinstance(test, cst.Attribute) else NONE
            names = [v.name.base() for v in iterate(asked) if isinstance(v, Opaque)]
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
        iterable = self.eval(clause.iter, st)
        exact = True

        def body(item: Value, state: State) -> None:
            nonlocal exact
            self.assign(clause.target, item, state, clause)
            taken, skipped = state, None
            for condition in clause.ifs:
                outcomes = self.test(condition.test, taken, track=False)
                if not any(outcome for outcome, _ in outcomes):
                    return
                exact = exact and all(outcome for outcome, _ in outcomes)
                if any(guard != ALWAYS for outcome, guard in outcomes if not outcome):
                    skipped = skipped or taken.copy()
                    taken = taken.copy()
                    self.enter_branch(condition.test, outcomes, True, taken)
            selection = self._selected_by(clause.ifs, taken)
            if selection:
                self.assign(clause.target, element_keys.in_rounds(item, selection), taken, clause)
            if clause.inner_for_in is not None:
                exact = self._comp_for(clause.inner_for_in, taken, element) and exact
            else:
                element(taken)
            if skipped is not None:
                joined = self.join(taken, skipped)
                state.become(joined if joined is not None else taken)

        items = self.literal_items(iterable, st)
        if items is None and of is not None and of.base() in self.pool_sizes:
            if isinstance(iterable, Tensor) and not clause.ifs and clause.inner_for_in is None:
                rows = [self.picked(iterable.part, [Const(number)], st) for number in range(POOL.value)]
                items = [replace(iterable, part=row) for row in rows]
        if isinstance(iterable, Generator):
            self.run_generator(iterable, st, clause, _valueless(body))
        elif items is not None:
            for number, item in enumerate(items):
                with self.round_apart(clause, number, len(items)):
                    body(item, st)
            return exact
        elif isinstance(iterable, Instance):
            self.iterate_over(iterable, st, clause, body)
        else:
            before, slots = (self.followed, self.replays), self._numbers_in_turn(st)
            made: set[Name] = set()
            self.rounds.append(made)
            body(self.of_round(self.next_item(iterable, st, clause), clause, st), st)
            self.fills_pool(iterable, made, st)
            more = (self.followed, self.replays) != before
            for _ in range(1, SLOT_ROUNDS):
                if not more or st.dead:
                    break
                self.release_unreachable(st, self.site(clause), self.suspended())
                self.age_round(st, clause)
                slots, turned = self._numbers_in_turn(st), slots
                body(self.of_round(self.next_item(iterable, st, clause), clause, st), st)
                more = slots != turned
            self.leave_rounds(st)
        return False

    def _numbers_in_turn(self, st: State) -> list[Value]:
        """The numbers that select the slots of a ring in turn."""
        names = self.file.turning
        tables = st.store.objects.values() if names else ()
        return [table[name] for table in tables for name in names if name in table]

    def leave_rounds(self, st: State, *, again: bool = True) -> None:
        """A loop is over; what its rounds have made is made by the round that it stands in.

        Args:
            st: what is known after it; changed in place.
            again: another loop reaches the elements of this one; not where each iteration has a number.
        """
        made = self.rounds.pop()
        if again:
            self.gather_streams(st, made)
        iterated = {name for name in made if name.site == EACH} if again else set()
        if iterated:
            for value in st.store.gather(iterated):
                self.lose(st, value)
        element_keys.leave(st, made, iterated)
        self.keep_loop_waits(st, iterated)
        if self.rounds:
            self.rounds[-1] |= made - iterated

    def literal_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of something short whose length is known."""
        found = self.known_items(iterable, st)
        if found is None and isinstance(iterable, Container) and iterable.kind not in ("cycle", "dict"):
            found = self._words_held(iterable, st)
        if found is None or len(found) > UNROLLED or len(found) * self.unrolling > MOST_ROUNDS:
            return None
        return found

    def _words_held(self, container: Container, st: State) -> list[Value] | None:
        """The strings that a list holds, each of which may have been put in or not; None where it holds other things.

        As a rule they name devices or ways to go about something: each makes another round.
        """
        found = list(dict.fromkeys(v for held in self.held(container, st) for v in iterate(held)))
        words = all(isinstance(v, Const) and type(v.value) is str for v in found)
        return found if words and found else None

    def known_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of a tuple, a list, a range, or an enumeration of one; None where they are not known."""
        if isinstance(iterable, Tuple):
            return list(iterable.items)
        iterable = self.as_container(iterable)
        if isinstance(iterable, Container):
            if iterable.kind == "cycle":
                return None  # it has no end
            return sequences.items(st, iterable)
        if isinstance(iterable, Instance) and iterable.unit.is_named_tuple:
            names = self.fields(iterable.unit)
            return [self.attribute(iterable, name, st, iterable.unit.node) for name in names]
        if not (isinstance(iterable, Partial) and isinstance(iterable.function, Api) and iterable.args):
            return None
        name, args, options = iterable.function.name, iterable.args, dict(iterable.kwargs)
        if name == "builtins.range":
            bounds = [a.value if isinstance(a, Const) and type(a.value) is int else None for a in args]
            if None in bounds or 0 in bounds[2:] or len(range(*bounds)) > UNROLLED:  # type: ignore[arg-type]
                return None
            return [Const(number) for number in range(*bounds)]  # type: ignore[arg-type]
        if name == "builtins.items" and isinstance(args[0], Container):
            keys = sequences.keys(st, args[0])
            if keys is None or any((args[0].name, key) not in st.store for key in keys):
                return None
            held = [
                key for key in st.store.of(args[0].name) if key in keys
            ]  # in the order they were put there
            return [Tuple((element_keys.value_of(key), st.store[(args[0].name, key)])) for key in held]
        if name == "builtins.enumerate":
            start = options.get("start", args[1] if len(args) > 1 else Const(0))
            inner = self.known_items(args[0], st)
            if inner is None or not isinstance(start, Const) or type(start.value) is not int:
                return None
            return [Tuple((Const(number), item)) for number, item in enumerate(inner, start.value)]
        if name == "builtins.zip":
            shortest = min(
                (len(known) for a in args if (known := self.known_items(a, st)) is not None), default=0
            )
            columns = [self.column(a, shortest, st) for a in args]
            if None in columns:
                columns = self._beside_streams(args, columns, st)
            if None in columns:
                return None
            return [Tuple(row) for row in zip(*(c for c in columns if c is not None), strict=False)]
        if name == "builtins.reversed":
            inner = self.known_items(args[0], st)
            return None if inner is None else inner[::-1]
        return None

    def _beside_streams(
        self, iterated: Sequence[Value], columns: list[list[Value] | None], st: State
    ) -> list[list[Value] | None]:
        """What is iterated beside a few streams has an element for each of them."""
        known = [c for c in columns if c and any(isinstance(v, Stream) for v in c)]
        if not known:
            return columns
        found: list[list[Value] | None] = []
        for value, column in zip(iterated, columns, strict=True):
            numbers_ = [Const(number) for number in range(len(known[0]))]
            if column is None and isinstance(value, Tensor):
                column = [replace(value, part=self.picked(value.part, [n], st)) for n in numbers_]
            elif column is None and (
                isinstance(value, Opaque) or (isinstance(value, Container) and value.kind != "dict")
            ):
                column = [self.element(value, n, st) for n in numbers_]
            found.append(column)
        return found

    def column(self, iterable: Value, length: int, st: State) -> list[Value] | None:
        """The elements of one that is iterated beside others; of a cycle as many as these have."""
        if isinstance(iterable, Container) and iterable.kind == "cycle":
            known = sequences.items(st, iterable) or []
            return [known[n % len(known)] for n in range(length)] if known and length else None
        return self.known_items(iterable, st)

    @contextmanager
    def round_apart(self, node: cst.CSTNode, number: int, count: int) -> Iterator[None]:
        """What one of a few known rounds makes is not what another makes."""
        activation = self.stack[-1]
        outer, before = activation.path, self.unrolling
        activation.path = deeper(outer, (id(node), number))
        self.unrolling = before * max(count, 1)
        try:
            yield
        finally:
            activation.path, self.unrolling = outer, before

    def asked_until(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value | None:
        """What ``iter(f, last)`` gives next; None where it is the last."""
        function, last = iterable.args
        result = self.call_value(function, Call(node, self.site(node)), st)
        going_on = [(v, g) for v, g in alternatives(result, st.path) if v != last]
        return union(going_on) if going_on else None

    def next_of_call(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value:
        """The next element of ``zip``, ``enumerate`` and their like."""
        name = iterable.function.name if isinstance(iterable.function, Api) else ""
        if iterable.function == UNTIL:
            return self.asked_until(iterable, st, node) or UNKNOWN
        items = [self.next_item(a, st, node) for a in iterable.args]
        if name == "builtins.enumerate":
            index = Opaque(self.fresh(node, st, "index"))
            if len(iterable.args) == 1 and not iterable.kwargs and isinstance(iterable.args[0], Opaque):
                st.store[(index.name, "@of")] = iterable.args[0]
            return Tuple((index, items[0] if items else UNKNOWN))
        if name == "builtins.zip":
            return Tuple(tuple(items))
        if name == "builtins.range":
            index = Opaque(self.fresh(node, st, "index"))
            length = self._length_of(iterable)
            if length is not None and length.parent is not None:
                st.store[(index.name, "@of")] = Opaque(length.parent)
            return index
        if name == "builtins.items":
            mapping = iterable.args[0] if iterable.args else UNKNOWN
            key = self.tensor_keys(mapping, st) if isinstance(mapping, Container) else None
            return Tuple((key or Opaque(self.fresh(node, st, "key")), items[0] if items else UNKNOWN))
        if name == "builtins.map":
            result = self.next_item(iterable.args[1], st, node) if len(iterable.args) > 1 else UNKNOWN
            return self.call_value(iterable.args[0], Call(node, self.site(node), [result]), st)
        return items[0] if items else UNKNOWN

    def do_map_call(self, call: Call, st: State) -> Value:
        """``map(f, xs)``: the function runs for each element, now."""
        if len(call.args) < 2:
            return UNKNOWN
        if call.text.endswith("filter"):
            if call.args[0] != NONE:
                given = [self.next_item(call.args[1], st, call.node)]
                self.call_value(call.args[0], Call(call.node, call.site, given), st)
            known = self.known_items(call.args[1], st)
            if known is None or NONE not in known or call.args[0] != NONE:
                return call.args[1]
            return Tuple(tuple(item for item in known if item != NONE))
        name = self.fresh(call.node, st, "map")
        self.closed.add(name)
        result = Container(name, "list")

        def body(item: Value, state: State) -> None:
            given = list(item.items) if several and isinstance(item, Tuple) else [item]
            value = self.call_value(call.args[0], Call(call.node, call.site, given), state)
            self.extend_container(state, result, Tuple((value,)))

        several = len(call.args) > 2
        iterated = Partial(Api("builtins.zip"), tuple(call.args[1:]), ()) if several else call.args[1]
        if self.literal_items(iterated, st) is not None:
            sequences.put(st, result, [])
        if isinstance(call.args[0], (Function, Partial)):
            self.iterate_over(iterated, st, call.node, body, at_least_once=True)
        else:
            body(self.next_item(iterated, st, call.node), st)
        return result

    def do_tree_map(self, call: Call, st: State) -> Value:
        """``tree_map(f, tree)``: the function runs for each leaf; of what is not known it is taken to be a tree."""
        if len(call.args) < 2:
            return UNKNOWN
        function, tree = call.args[:2]
        if isinstance(tree, Opaque) and not self.is_tensor(st, tree):
            return self.tree_of([self.any_element(tree, st)], function, call, st)
        return self.mapped_tree(function, tree, call, st)

    def do_tree_map_only(self, call: Call, st: State) -> Value:
        """``tree_map_only(type, f, tree)``."""
        return self.do_tree_map(Call(call.node, call.site, call.args[1:], call.kwargs, call.text), st)

    def mapped_tree(self, function: Value, tree: Value, call: Call, st: State) -> Value:
        """What a function makes of every leaf, in the same places."""
        if isinstance(tree, Tuple):
            return Tuple(tuple(self.mapped_tree(function, item, call, st) for item in tree.items))
        if not isinstance(tree, Container):
            return self.call_value(function, Call(call.node, call.site, [tree]), st)
        items, keys = sequences.items(st, tree), sequences.keys(st, tree)
        if items is not None:
            result = Container(self.fresh(call.node, st, ("tree", tree.name)), "list")
            sequences.put(st, result, [self.mapped_tree(function, item, call, st) for item in items])
        elif keys is not None:
            result = Container(self.fresh(call.node, st, ("tree", tree.name)), "dict")
            for key, held in list(st.store.of(tree.name).items()):
                if key in keys:
                    st.store[(result.name, key)] = self.mapped_tree(function, held, call, st)
            sequences.set_keys(st, result, keys)
        else:
            return self.tree_of([self.any_value(tree, st)], function, call, st)
        self.closed.add(result.name)
        return result

    def tree_of(self, leaves: list[Value], function: Value, call: Call, st: State) -> Container:
        """A tree of which the leaves are known, and not where they are."""
        result = Container(self.fresh(call.node, st, "tree"), "list")
        self.closed.add(result.name)
        for leaf in leaves:
            self.extend_container(st, result, Tuple((self.mapped_tree(function, leaf, call, st),)))
        return result

    def never_empty(self, node: cst.BaseExpression, iterable: Value, st: State) -> bool:
        """Whether a loop surely has an iteration, or one over the same before must have had one, too."""
        if isinstance(iterable, Partial) and iterable.function == Api("builtins.range"):
            bounds = [a.value if isinstance(a, Const) else None for a in iterable.args]
            if len(bounds) == 1 and (least(iterable.args[0]) or 0) > 0:
                return True
            if len(bounds) >= 2 and isinstance(bounds[0], int) and isinstance(bounds[1], int):
                return bounds[1] > bounds[0]
            length = self._length_of(iterable)
            if length is not None:
                # what was put into a container is there
                return length.parent is None or self.has_known_elements(Opaque(length.parent), st)
            # a loop over a count that is a parameter is written for the case that it runs
            frame = self.stack[-1].frame
            return len(bounds) == 1 and any((frame, size) in self.sizes for size in concrete.sizes(node))
        counted = isinstance(iterable, Partial) and iterable.function in (_ENUMERATE, _ITEMS)
        whole = iterable.args[0] if counted and iterable.args else iterable  # type: ignore[attr-defined]
        iterated = [v for v in iterate(whole) if v != NONE]  # nobody iterates over None
        if iterated and all(isinstance(v, Container) and v.kind != "queue" for v in iterated):
            return True  # what was put into it is there
        if self.is_loader(iterable) or self.has_known_elements(iterable, st):
            return True
        return isinstance(node, (cst.List, cst.Tuple)) and bool(node.elements)

    @staticmethod
    def has_known_elements(iterable: Value, st: State) -> bool:
        """Whether something is known of the elements, or they are a module's parts: then there are some."""
        iterated = [
            v
            for v in (iterable.args if isinstance(iterable, Partial) else (iterable,))
            if isinstance(v, Opaque)
        ]
        if any((v.name, "@module") in st.store for v in iterated):
            return True
        elements = [v.name.child(EACH) for v in iterated]
        known = [e for e in elements if st.store.of(e) or e in st.order.made]
        return bool(known) or any(st.store.of(e.parent.child(ITERATED)) for e in elements if e.parent)

    @staticmethod
    def is_loader(iterable: Value) -> bool:
        """Whether something is made as a loader or named like one: none without a batch is ever iterated over."""
        while isinstance(iterable, Partial) and iterable.args:
            iterable = iterable.args[0]
        site = iterable.name.site if isinstance(iterable, Opaque) else None
        if isinstance(site, tuple):
            return bool(site[-1] == LOADER)
        return isinstance(site, str) and hints.names_loader(site)

    @staticmethod
    def _length_of(iterable: Partial) -> Name | None:
        """What stands for the length in ``range(len(x))``: a part of what is not seen made, or by itself."""
        bound = iterable.args[0] if len(iterable.args) == 1 else None
        if not isinstance(bound, Number) or len(atoms := bound.form.atoms()) != 1:
            return None
        whole = atoms.pop()
        atom = whole.args[0] if isinstance(whole, numbers.Derived) and whole.kind == "in rounds" else whole
        named = atom.site if isinstance(atom, Name) else None
        is_length = named == f"{LENGTH}()" or (isinstance(named, tuple) and named[-1] == LENGTH)
        return atom if is_length and bound.form == numbers.of_atom(whole) else None

    def counts_of(self, iterable: Value) -> Iterator[Opaque]:
        """The objects whose truth says whether a loop has a round."""
        if isinstance(iterable, Partial) and isinstance(iterable.function, Api):
            if iterable.function.name == "builtins.range":
                bounds, length = iterable.args, self._length_of(iterable)
                if length is not None and length.parent is not None:
                    yield from self.counts_of(Opaque(length.parent))
                elif len(bounds) == 1 and isinstance(bounds[0], Opaque):
                    yield bounds[0]
                return
            for each in iterable.args if iterable.function.name == "builtins.zip" else iterable.args[:1]:
                yield from self.counts_of(each)
        elif isinstance(iterable, Opaque) and not isinstance(iterable.name.root().site, tuple):
            yield iterable

    def holds_some(self, iterable: Value, st: State) -> list[tuple[bool, Guard]]:
        """Whether a loop over a list of the file's own has a round, on the paths on which it has one or has none."""
        if isinstance(iterable, Container):
            found = sequences.some(st, iterable)
            return found if {some for some, _ in found} == {True, False} else []
        if isinstance(iterable, Partial) and isinstance(iterable.function, Api):
            iterated = iterable.args if iterable.function.name == "builtins.zip" else iterable.args[:1]
            return next((found for each in iterated if (found := self.holds_some(each, st))), [])
        return []

    def iteration_starts(self, iterable: Value, st: State, site: Site) -> Ordered[object]:
        """A loader that pins memory is at work while a loop iterates over it."""
        added: Ordered[object] = dict.fromkeys(
            st.store[(v.name, "@pins")].value  # type: ignore[attr-defined]
            for v in iterate(self._loader(iterable))
            if isinstance(v, Opaque) and (v.name, "@pins") in st.store
        )
        st.threads = st.threads | added
        return added

    def _loader(self, iterable: Value) -> Value:
        while isinstance(iterable, Partial) and iterable.args:
            iterable = iterable.args[0]
        return iterable

    def within(
        self, manager: Value, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """``with manager: body``."""
        choices = alternatives(manager, st.path)
        kinds = [self._context(v) for v, _ in choices]
        if any(isinstance(v, Generator) for v in kinds):
            if len(kinds) == 1:
                generator = kinds[0]
                assert isinstance(generator, Generator)
                self._within_generator(generator, st, node, body)
                return
            self.each_way([(v, g, partial(self._within, v, node, body)) for v, g in choices], st)
            return
        contexts = [(v, g) for v, (_, g) in zip(kinds, choices, strict=True)]
        if len(contexts) == 1 and isinstance(contexts[0][0], Instance):
            self._within_instance(contexts[0][0], st, node, body)
            return
        if any(isinstance(v, Context) and v.kind in ("capture", "raises") for v, _ in contexts):
            if len(contexts) > 1:
                self.each_way([(v, g, partial(self._within, v, node, body)) for v, g in contexts], st)
            elif contexts[0][0].kind == "capture":  # type: ignore[attr-defined]
                self._within_capture(contexts[0][0], st, node, body)  # type: ignore[arg-type]
            else:
                failed = st.copy()
                self.silent += 1
                body(UNKNOWN, failed)
                self.silent -= 1
                if failed.capture is None:
                    st.leave_capture()
            return
        before, capturing = dict(st.current), st.capture is not None
        stack = any(isinstance(v, Context) and v.kind == "stack" for v, _ in contexts)
        if len(contexts) == 1 and isinstance(contexts[0][0], Context) and contexts[0][0].kind == "device":
            self.enter_device(contexts[0][0], st)
        self._enter_streams(contexts, st)
        value = self._entered_value(manager, contexts)
        entered = any(isinstance(v, Context) and v.kind in ("stream", "device", "stack") for v, _ in contexts)

        def leave(state: State) -> None:
            call = Call(node, self.site(node))
            left: dict[str, Value] = {}
            for context, _ in contexts:
                if isinstance(context, Context) and context.kind == "stack":
                    self.leave_stack(context, state, call)
                    left = {k: v for k, v in state.current.items() if k != "device"}
                elif isinstance(context, Context) and context.kind == "closing" and context.payload:
                    self.call_method(context.payload[0], "close", call, state)
                elif isinstance(context, Opaque) and (context.name, "@executor") in state.store:
                    self.call_method(context, "shutdown", call, state)
            if stack and not capturing and state.capture is not None:  # a capture was put on the stack
                self.capture_end(state, self.site(node))
            if entered:  # what any other context was left with stays: a stream that was set
                state.current = {**before, **left}
            for work, _ in contexts:
                if isinstance(work, Work) and (work.name, "@coalesces on") in state.store:
                    stream = state.store[(work.name, "@coalesces on")]
                    self.record(state, Event(work.name), stream, "torch", self.site(node))

        devices = [v for v, _ in contexts if isinstance(v, Device)]
        self.default_devices += devices[:1]
        self.inside += 1
        with self.exits(leave):
            body(value, st)
        self.inside -= 1
        del self.default_devices[len(self.default_devices) - len(devices[:1]) :]
        leave(st)

    def _within_generator(
        self, generator: Generator, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """Where every way through the block returns, what stands behind the ``yield`` runs before anybody goes on."""
        activation = self.stack[-1]
        left: list[Value] = []

        def consume(value: Value, state: State) -> Value:
            before, activation.returns = activation.returns, []
            body(value, state)
            returns, activation.returns = activation.returns, before
            if state.dead and returns:
                left.append(self.join_values(returns, state))
                activation.temporaries.append(left[-1])
            else:
                before.extend(returns)
            return UNKNOWN

        self.run_generator(generator, st, node, consume)
        if left and not st.dead:
            activation.returns.append((st.copy(), union((v, ALWAYS) for v in left)))
            st.dead = True

    def _within(
        self, manager: Value, node: cst.CSTNode, body: Callable[[Value, State], None], st: State
    ) -> Value:
        self.within(manager, st, node, body)
        return NONE

    def _context(self, value: Value) -> Value:
        if isinstance(value, Stream):
            return Context("stream", (value,))
        return value

    def _entered_value(self, manager: Value, contexts: list[tuple[Value, Guard]]) -> Value:
        first = contexts[0][0] if contexts else UNKNOWN
        if isinstance(first, Context):
            if first.kind in ("nothing", "closing") and first.payload:
                return first.payload[0]
            if first.kind in ("stack", "device"):
                return first
            if first.kind == "stream" and isinstance(manager, Stream):
                return manager
            return NONE
        return manager if isinstance(manager, Object) else UNKNOWN

    def _enter_streams(self, contexts: list[tuple[Value, Guard]], st: State) -> None:
        for library in ("torch", "cupy"):
            before = self.current(st, library)
            found: list[tuple[Value, Guard]] = []
            touched = False
            for context, guard in contexts:
                streams = (
                    list(alternatives(self.exclusive(st, context.payload[0]), st.path))
                    if isinstance(context, Context) and context.kind == "stream"
                    else []
                )
                own = [(s, g) for s, g in streams if isinstance(s, Stream) and s.library == library]
                other = [(s, g) for s, g in streams if not (isinstance(s, Stream) and s.library == library)]
                touched = touched or bool(own)
                found.extend((s, guard & g) for s, g in own if not guard.contradicts(g))
                found.extend((before, guard & g) for _, g in other if not guard.contradicts(g))
                if not streams:
                    found.append((before, guard))
            if touched:
                st.current[library] = self.exclusive(st, union(found))

    def _within_instance(
        self, instance: Instance, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        enter = self.find_method(instance.unit, "__enter__") or self.find_method(instance.unit, "__aenter__")
        leave_method = self.find_method(instance.unit, "__exit__") or self.find_method(
            instance.unit, "__aexit__"
        )
        stream = self.stream_of(instance) if enter is None else None
        if stream is not None:
            self.within(stream, st, node, body)
            return
        value: Value = instance
        if enter is not None:
            value = self.call_function(Function(enter, None, instance), [], {}, st, node)

        def leave(state: State) -> None:
            if leave_method is not None and not state.dead:
                self.call_function(
                    Function(leave_method, None, instance), [NONE, NONE, NONE], {}, state, node
                )

        with self.exits(leave):
            if not st.dead:
                body(value, st)
        leave(st)

    def _within_capture(
        self, context: Context, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        site = self.site(node)
        before = dict(st.current)
        self.enter_capture(context, st, site)

        def leave(state: State) -> None:
            self.capture_end(state, site)
            state.current = dict(before)

        self.inside += 1
        with self.exits(leave):
            body(context.payload[0], st)
        self.inside -= 1
        if not st.dead:
            leave(st)

    def enter_capture(self, context: Context, st: State, site: Site) -> None:
        """``torch.cuda.graph.__enter__``: on a stream of its own, if none is given."""
        graph, stream = context.payload[0], context.payload[1]
        mode = self.capture_mode(dict(context.options).get("mode"))
        if st.capture is None:
            self.host_learns_everything(st, site)  # it synchronizes the device (GC-18)
        side: Value = Stream(Name("the capture stream", ()))
        if stream != NONE and stream is not None:
            side = self.as_stream(stream, "torch")
            if isinstance(side, Union):  # whichever it is, it is one stream
                side = next((v for v in iterate(side) if isinstance(v, Stream) and v.name != AMBIENT), side)
        self.enter_stream(st, side, "torch")
        self.capture_begin(st, graph, None, mode, "torch", site)


_ENUMERATE, _ITEMS = Api("builtins.enumerate"), Api("builtins.items")


def _valueless(body: Callable[[Value, State], None]) -> Callable[[Value, State], Value]:
    """A body whose value nobody asks for."""

    def run(value: Value, st: State) -> Value:
        body(value, st)
        return NONE

    return run
