"""What autograd gives a custom function's ``backward``, and what packs the tensors that it saves; what becomes of what
these return.
"""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from streamsafe.order.symbolic import Made
from streamsafe.static import fields
from streamsafe.static.concrete import walk
from streamsafe.static.facts import AMBIENT, AUTOGRAD, HOOK, Assumed, Detail, Site
from streamsafe.static.interpreter import Interpreter
from streamsafe.static.source import ClassUnit, FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.transfer.call_stack import Activation
from streamsafe.static.values import (
    Const,
    Event,
    Function,
    Name,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    Work,
    iterate,
    under,
)

GRADIENT_MADE = Detail(
    "backward()", "the gradient", Assumed.NOTHING, frozenset({"backward", "hook"}), "autograd"
)
"""A gradient that autograd gives a function has been written on the stream on which it calls it (TA-01, TA-06)."""


def incoming(interpreter: Interpreter, unit: FunctionUnit, st: State) -> list[Value]:
    """A context, and for each output of the forward pass its gradient, ready on the node's stream."""
    _, *outputs = [p.name.value for p in unit.head.params.params] or ["ctx"]
    given: list[Value] = [context(unit)]
    interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
    site = interpreter.call_stack.site(unit.node)
    for name in outputs:
        gradient = Tensor(Name(name, (id(unit.node),)))
        st.store[(gradient.name, fields.PLACE)] = Const("device")
        st.order.add(Made(site, gradient.name, None, True, HOOK, GRADIENT_MADE))
        given.append(gradient)
    for value in st.store.of(context(unit).name).values():
        for kept, _ in interpreter.memory.tensors_in(st, value):
            _recorded_here(st, kept.name)
    interpreter.run.stack = []
    return given


def context(unit: FunctionUnit) -> Opaque:
    """What a function's ``forward`` keeps for its ``backward``: both are given the same object."""
    owner = unit.owner
    assert owner is not None
    return Opaque(Name("ctx", (id(owner.node),)))


def keep(unit: FunctionUnit, instance: Name, st: State) -> None:
    """The graph keeps the context of a pass: nobody else does."""
    st.store[(instance, fields.AUTOGRAD_CONTEXT)] = context(unit)


def is_function(unit: ClassUnit) -> bool:
    """Whether a class is a function of autograd."""
    return any("Function" in base for base in unit.bases)


def keeps(method: FunctionUnit) -> bool:
    """Whether a method is the ``forward`` of a function of autograd, which keeps things for its ``backward``."""
    owner = method.owner
    return owner is not None and is_function(owner) and method.name == "forward" and method.is_static


def renew(forward: FunctionUnit, st: State) -> None:
    """Another forward pass is given a context of its own: what the one before has kept stands for no other."""
    st.store.drop(context(forward).name)


def _recorded_here(st: State, kept: Name) -> None:
    """What ``forward`` has recorded on its stream is recorded on the stream of the node: that is the same one."""
    recorded = st.store.one(kept, fields.RECORD_STREAM)
    if recorded is not None and any(s.name == AMBIENT for s in recorded.items if isinstance(s, Stream)):
        st.store[(kept, fields.RECORD_STREAM)] = Tuple((*recorded.items, Stream(HOOK)))


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
    _drop(interpreter, context(unit), interpreter.call_stack.site(returns[-1]), st)
    interpreter.run.stack = []


def _drop(interpreter: Interpreter, kept: Opaque, site: Site, st: State) -> None:
    """The pass is over: the graph lets go of what the forward pass has kept."""
    for key, value in list(st.store.of(kept.name).items()):
        del st.store[(kept.name, key)]
        interpreter.containers.lose(st, value)
    interpreter.lifetimes.release_unreachable(st, site)


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


def pack(
    interpreter: Interpreter, function: Function, st: State, run: Callable[[list[Value]], Value]
) -> None:
    """A tensor is saved, which a function packs; what is allocated next may be where it was.

    Args:
        interpreter: knows what unpacks it.
        function: what packs.
        st: changed in place.
        run: gives it arguments.
    """
    unit = function.unit
    interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
    site = interpreter.call_stack.site(unit.node)
    saved = interpreter.hooks.saved_tensor(st, interpreter.objects.fresh(unit.node, st, "saved"), site)
    packed = run([saved])
    if not st.dead:
        interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
        interpreter.memory.allocate(st, Name("the next tensor"), "torch", site)
        unpacking = interpreter.run.unpacked_by.get(function)
        if isinstance(unpacking, Function):
            interpreter.hooks.keep_packed(st, unpacking, packed)
    interpreter.run.stack = []


def unpack(interpreter: Interpreter, function: Function, st: State) -> None:
    """What was saved is needed, where the function that unpacks it ends."""
    unit = function.unit
    interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
    returns = [node for node in walk(unit.node) if isinstance(node, cst.Return)]
    site = interpreter.call_stack.site((*returns, unit.node)[0])
    interpreter.hooks.unpack_saved(st, site, "backward()")
    interpreter.run.stack = []
