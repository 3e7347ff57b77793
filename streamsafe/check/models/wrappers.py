"""The user's own models (``[tool.streamsafe.models]``): what functions whose code is not in sight do with streams."""

from __future__ import annotations

from streamsafe.project.settings import Model

from ..values import NONE, Bound, Event, Lib, Tensor, V
from .calls import Call
from .modules import Modules


def wrapped(lib: Modules, model: Model, c: Call) -> V:
    """A call of a function that has a model.

    Args:
        model: what the function does, by the names of its parameters.
        c: the call.
    """
    n, op = c.node, c.name.rpartition(".")[2]
    given: dict[str, V] = {**dict(zip(model.parameters, c.args, strict=False)), **c.kwargs}
    current = lib.m.call_value(Lib("torch.cuda.current_stream"), [], {}, n)
    stream = given.get(model.stream, current)
    for name in model.waits:
        if (waited := given.get(name)) is not None:
            how = "wait_event" if isinstance(waited, Event) else "wait_stream"
            lib.m.call_value(Bound(stream, how), [waited], {}, n)
    reads = [lib.tensor(given[name]) for name in model.reads if name in given]
    writes = [lib.tensor(given[name]) for name in model.writes if name in given]
    if model.host:
        for tensor, write in (*((t, False) for t in reads), *((t, True) for t in writes)):
            lib.host(tensor, write, op, n)
    elif reads or writes:
        lib.launch(reads, writes, op, n, t=lib.stream(stream))
    for name in model.records:
        recorded = given.get(name)
        if isinstance(recorded, Event):
            lib.m.call_value(Bound(stream, "record_event"), [recorded], {}, n)
        elif recorded is not None:
            lib.m.call_value(Bound(lib.tensor(recorded), "record_stream"), [stream], {}, n)
    for name in model.synchronizes:
        if name == "device":
            lib.sync_host(None, n, op)
        elif name in given:
            lib.m.call_value(Bound(given[name], "synchronize"), [], {}, n)
    return _result(lib, model, given, stream, c)


def _result(lib: Modules, model: Model, given: dict[str, V], stream: V, c: Call) -> V:
    n, op = c.node, c.name.rpartition(".")[2]
    if model.allocates in ("torch", "cupy"):
        made: Tensor = lib.new(n, "cuda", model.allocates, op)
        return made
    if model.returns in given:
        return given[model.returns]
    if model.returns == "context":
        return lib.m.call_value(Lib("torch.cuda.stream"), [stream], {}, n)
    made_by = {
        "stream": "torch.cuda.Stream",
        "current-stream": "torch.cuda.current_stream",
        "event": "torch.cuda.Event",
        "pinned": "cupyx.empty_pinned",
    }
    known = made_by.get("pinned" if model.allocates == "pinned" else model.returns)
    if known is not None:
        return lib.m.call_value(Lib(known), [], {}, n)
    if model.returns == "tensor":
        return lib.new(n, "cuda", "torch", op)
    return NONE if model.returns == "none" else lib.m.fresh(op, "unmodelled")
