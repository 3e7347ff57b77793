"""Generic functions (``functools.singledispatch``): the type of the first argument says what is called."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from streamsafe.static.functions import Functions
from streamsafe.static.source import FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import Function, Value


class Generics(Functions):
    """Calls of generic functions."""

    # declared here, implemented further down the chain
    _generic: dict[FunctionUnit, list[tuple[cst.BaseExpression, FunctionUnit]]]

    def dispatched(self, function: Function, call: Call, st: State) -> Value:
        """A call of a generic function: each of its implementations where the argument is of its type."""
        ends: list[tuple[State, Value]] = []
        given = call.args[0]
        for written, unit in self._implementations(function.unit):
            if st.dead:
                break
            kind = self.class_level((unit.slice, written), st)
            answer = self.do_isinstance(Call(call.node, call.site, [given, kind]), st)
            outcomes = self.truth(answer, st, call.node)
            branch = st.copy()
            for state, wanted in ((branch, True), (st, False)):
                guards = [guard for outcome, guard in outcomes if outcome is wanted]
                if guards:
                    state.assume(*guards)
                else:
                    state.dead = True
            if not branch.dead:
                ends.append((branch, self._implementation(unit, function, call, branch)))
        if not st.dead:
            ends.append((st.copy(), self._implementation(function.unit, function, call, st)))
        return self.join_values([end for end in ends if not end[0].dead], st)

    def _implementation(self, unit: FunctionUnit, function: Function, call: Call, st: State) -> Value:
        chosen = Function(unit, function.frame, function.receiver)
        return self.call_function(chosen, call.args, call.kwargs, st, call.node, starred=call.starred)

    def _implementations(self, unit: FunctionUnit) -> list[tuple[cst.BaseExpression, FunctionUnit]]:
        """What is registered for a generic function or method, with the type it is registered for."""
        known = self._generic.get(unit)
        if known is None:
            registered = unit.implementations if unit.owner is not None else self._decorated_for(unit.name)
            known = [(kind, u) for u in registered for kind in _kinds(u)]
            known += self._given_to(unit.name) if unit.owner is None else ()
            self._generic[unit] = known
        return known

    def _decorated_for(self, name: str) -> Iterator[FunctionUnit]:
        """The top-level functions that are decorated with ``@name.register``."""
        for statement in dict.fromkeys(self.file.implementations.get(name, ())):
            if statement in self.file.statements:
                slice_ = self.file.slice(statement)
                node = self.find(slice_.module, statement.name)
                if isinstance(node, cst.FunctionDef):
                    yield self.function_unit(node, slice_, statement.name)

    def _given_to(self, name: str) -> Iterator[tuple[cst.BaseExpression, FunctionUnit]]:
        """``name.register(type, function)``."""
        for statement in self.file.fills.get(name, ()):
            for line in self.file.slice(statement).module.body:
                for part in getattr(line, "body", ()):
                    call = part.value if isinstance(part, cst.Expr) else None
                    if isinstance(call, cst.Call) and len(call.args) == 2:
                        given = call.args[1].value
                        unit = self.unit(given.value) if isinstance(given, cst.Name) else None
                        if isinstance(unit, FunctionUnit):
                            yield call.args[0].value, unit


def _kinds(unit: FunctionUnit) -> Iterator[cst.BaseExpression]:
    """The types that an implementation is registered for: they are written in the decorator, or annotated."""
    for node in getattr(unit.node, "decorators", ()):
        written = node.decorator
        if isinstance(written, cst.Call) and written.args:
            yield written.args[0].value
            continue
        positional = [*unit.node.params.posonly_params, *unit.node.params.params]
        first = positional[unit.owner is not None and not unit.is_static :][:1]
        if first and first[0].annotation is not None:
            yield first[0].annotation.annotation
