"""Generators: what runs up to a ``yield``, and what the consumer does with the value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import libcst as cst

from streamsafe.static.facts import Assumed, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Const,
    Event,
    Function,
    Generator,
    Instance,
    Name,
    Tensor,
    Tuple,
    Value,
    Work,
    iterate,
    under,
)

DEPTH = 7


class Generators(Part):
    """Runs generators for their consumers."""

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
        """What is yielded to a consumer who is not seen is read on the stream that is current there."""
        if any(isinstance(part, (Event, Work)) for part in self.assumed_order.parts_of(st, value)):
            return  # what to wait for is handed over along with it
        saved = st.current
        st.current = {}
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
        st.current = saved

    def is_receiver(self, value: Value) -> bool:
        """Whether a value is the object whose method runs: who calls it has it already."""
        return isinstance(value, Instance) and value.name in self.run.protocol_roots
