"""The user's own wrappers: what ``[tool.streamsafe.models]`` says of a call, done to the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.facts import Assumed
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Const,
    Context,
    Event,
    Object,
    Opaque,
    Stream,
    Tensor,
    Value,
    iterate,
)

if TYPE_CHECKING:
    from streamsafe.config import Model
    from streamsafe.static.calls import Calls
    from streamsafe.static.state import State


def apply_model(interpreter: Calls, model: Model, call: Call, st: State) -> Value:
    """Do what a model says.

    Args:
        interpreter: who asks.
        model: what the configuration says of the callee.
        call: the call, its receiver first where ``self`` is meant.
        st: changed in place.
    """

    def argument(name: str) -> Value | None:
        if name in call.kwargs:
            return call.kwargs[name]
        if name in model.parameters:
            position = model.parameters.index(name)
            return call.args[position] if position < len(call.args) else None
        return None

    text = f"{call.text.rpartition('.')[2]}()"
    library = "cupy" if model.allocates == "cupy" else interpreter.default_library
    given = argument(model.stream) if model.stream != "current" else None
    stream = interpreter.as_stream(given, library) if given is not None and given != NONE else None

    for name in model.waits:
        for value in iterate(argument(name) or UNKNOWN):
            if isinstance(value, Event):
                interpreter.wait_event(st, value, stream, library, call.site)
            elif isinstance(value, (Stream, Opaque)):
                waiter = stream if stream is not None else interpreter.current(st, library)
                interpreter.wait_stream(st, waiter, interpreter.as_stream(value, library), library, call.site)
    for names, writes in ((model.reads, False), (model.writes, True)):
        for name in names:
            given_here = argument(name)
            if given_here is None:
                continue
            if model.host:
                interpreter.host_access(st, given_here, call.site, text, writes=writes)
            else:
                interpreter.access(
                    st, given_here, call.site, text, writes=writes, library=library, stream=stream
                )
    for name in model.records:
        for value in iterate(argument(name) or UNKNOWN):
            if isinstance(value, Event):
                interpreter.record(st, value, stream, library, call.site)
            elif isinstance(value, (Tensor, Opaque)):
                target = stream if stream is not None else interpreter.current(st, library)
                interpreter.record_stream(st, value, target, library, call.site)
    for name in model.synchronizes:
        if name == "device":
            interpreter.host_learns_everything(st, call.site)
            continue
        for value in iterate(argument(name) or UNKNOWN):
            if isinstance(value, Event):
                interpreter.synchronize_event(st, value, call.site)
            elif isinstance(value, (Stream, Opaque)):
                interpreter.synchronize_stream(st, interpreter.as_stream(value, library), library, call.site)
    return _returned(interpreter, model, call, st, text, library, stream, argument(model.returns))


def _returned(
    interpreter: Calls,
    model: Model,
    call: Call,
    st: State,
    text: str,
    library: str,
    stream: Value | None,
    named: Value | None,
) -> Value:
    """What the call gives back."""
    kind = model.returns
    if named is not None:
        return named
    if kind == "none":
        return NONE
    if kind == "stream":
        return Stream(interpreter.fresh(call.node, st, "stream"), library)
    if kind == "current-stream":
        return interpreter.current(st, library)
    if kind == "event":
        name = interpreter.fresh(call.node, st, "event")
        interpreter.own_events.add(name)
        return Event(name)
    if kind == "context":
        return Context("stream", (stream,)) if stream is not None else Context("nothing")
    if kind == "pinned":
        name = interpreter.fresh(call.node, st, "pinned")
        st.store[(name, "@place")] = Const("pinned")
        return Tensor(name)
    if kind == "tensor" or model.allocates is not None:
        made: Object = interpreter.new_tensor(st, call.site, text, library=library, stream=stream)
        return made
    return Opaque(interpreter.fresh(call.node, st, "result")) if Assumed.UNMODELLED else UNKNOWN
