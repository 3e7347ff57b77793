"""Whoever calls a module and is not seen: what is given to it, and what becomes of what it returns."""

from __future__ import annotations

import libcst as cst

from streamsafe.order.symbolic import Made
from streamsafe.static.facts import Assumed, Detail
from streamsafe.static.interpreter import Activation, Interpreter
from streamsafe.static.source import FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.syntax import walk
from streamsafe.static.values import Name, Value, under


def given(interpreter: Interpreter, unit: FunctionUnit, st: State) -> None:
    """Whoever calls a module has written its inputs on the stream that is current there."""
    interpreter.stack = [Activation(Name("caller"), None, unit.slice)]
    for parameter in unit.head.params.params[1:]:
        if parameter.default is None:
            word = parameter.name.value
            detail = Detail("the caller", word, Assumed.METHODS, frozenset(), unit.qualname)
            name = Name(word, (id(unit.node),))
            for stream, guard in interpreter.streams(st, "torch"):
                st.order.add(Made(interpreter.site(parameter), name, None, True, stream.name, detail), guard)
    interpreter.stack = []


def taken(interpreter: Interpreter, unit: FunctionUnit, result: Value, st: State) -> None:
    """Whoever calls a module reads what it returns on the stream that is current there.

    Where some other stream, an event or the host has heard of it, that is how it is meant to be waited for.
    """
    returns = [node for node in walk(unit.node) if isinstance(node, cst.Return)]
    if not returns:
        return
    interpreter.stack = [Activation(Name("caller"), None, unit.slice)]
    for value, guard in interpreter.tensors(st, result):
        if interpreter.is_host(st, value):
            continue
        for made, ways in list(st.order.iterate()):
            own = interpreter.carriers.bit(made.timeline)
            if made.buffer == value.name and made.writes and all(way.carriers == own for way in ways):
                site = interpreter.site(returns[-1])
                interpreter.access(st, under(value, guard), site, "the caller", writes=False)
                break
    interpreter.stack = []
