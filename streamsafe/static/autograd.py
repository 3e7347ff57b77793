"""A custom function's ``backward``: what autograd gives it, and what becomes of what it returns."""

from __future__ import annotations

import libcst as cst

from streamsafe.order.symbolic import Made
from streamsafe.static.concrete import walk
from streamsafe.static.facts import AUTOGRAD, HOOK, Assumed, Detail
from streamsafe.static.interpreter import Interpreter
from streamsafe.static.source import FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.transfer.call_stack import Activation
from streamsafe.static.values import Const, Event, Name, Opaque, Tensor, Value, Work, iterate, under

GRADIENT_MADE = Detail(
    "backward()", "the gradient", Assumed.NOTHING, frozenset({"backward", "hook"}), "autograd"
)
"""A gradient that autograd gives a function has been written on the stream on which it calls it (TA-01, TA-06)."""


def incoming(interpreter: Interpreter, unit: FunctionUnit, st: State) -> list[Value]:
    """A context, and for each output of the forward pass its gradient, ready on the node's stream."""
    context, *outputs = [p.name.value for p in unit.head.params.params] or ["ctx"]
    given: list[Value] = [Opaque(Name(context, (id(unit.node),)))]
    interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
    site = interpreter.call_stack.site(unit.node)
    for name in outputs:
        gradient = Tensor(Name(name, (id(unit.node),)))
        st.store[(gradient.name, "@place")] = Const("device")
        st.order.add(Made(site, gradient.name, None, True, HOOK, GRADIENT_MADE))
        given.append(gradient)
    interpreter.run.stack = []
    return given


def outgoing(interpreter: Interpreter, unit: FunctionUnit, result: Value, st: State) -> None:
    """Autograd reads what ``backward`` returns on the node's stream: it hands it on, or adds it to a gradient.

    An event that was handed in and is recorded here is for somebody to wait for: a hook of the node that receives it.
    So is an event or a work that is kept in what was handed in.
    """
    returns = [node for node in walk(unit.node) if isinstance(node, cst.Return)]
    if not returns:
        return
    interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
    for stream in interpreter.streams.awaitable_by_others(st):
        for current, guard in interpreter.effects.possible_streams(st, "torch", None):
            st.order.learn(current.name, stream.name, guard=guard)
    for handle in _kept_handles(st):
        for current, guard in interpreter.effects.possible_streams(st, "torch", None):
            st.order.learn(current.name, handle, guard=guard)
    for value, guard in interpreter.memory.tensors_in(st, result):
        if not interpreter.tensors.is_host(st, value):
            site = interpreter.call_stack.site(returns[-1])
            interpreter.accesses.access(st, under(value, guard), site, AUTOGRAD, writes=False)
    interpreter.run.stack = []


def _kept_handles(st: State) -> list[Name]:
    """The events and works that are kept in an object which the function was given, or in a part of one."""
    return [
        value.name
        for owner, table in st.store.objects.items()
        if isinstance(owner.root().site, str)
        for held in table.values()
        for value in iterate(held)
        if isinstance(value, (Event, Work))
    ]
