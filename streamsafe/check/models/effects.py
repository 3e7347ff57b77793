"""Calls that do what their row of `streamsafe.apis` says: what they read and write, on which stream, who waits."""

from __future__ import annotations

from streamsafe.apis.effects import BEGINS, CURRENT, DEVICE, ENDS, EVENT, HOST, LEGACY, STREAM
from streamsafe.apis.effects import Call as Row

from ..program import Timeline
from ..values import NONE, Const, Event, Stream, Sym, Tensor, V
from .calls import Call
from .modules import Modules
from .state import HOSTS, handled
from .stream_functions import new_event, new_stream


def by_row(lib: Modules, row: Row, c: Call, receiver: Tensor | None = None) -> V | None:
    """Do what a row says; None where it says nothing of order or memory, or names what a path does not know."""
    given: dict[str, V] = {**dict(zip(row.parameters.split(), c.args, strict=False)), **c.kwargs}
    if receiver is not None:
        given["self"] = receiver
    if row.result == STREAM:
        flags = (getattr(v, "name", getattr(v, "value", None)) for v in c.values())
        return new_stream(
            lib, c, "cupy", not any(f == 1 or str(f).lower().endswith("streamnonblocking") for f in flags)
        )
    if row.result == EVENT:
        return new_event(lib, c, "cupy", None)
    if row.captures:
        return _body(lib, row, given)
    if not (row.reads or row.writes or row.edge or row.waits):
        return None
    t = _timeline(lib, row.on or CURRENT, given)
    if row.reads or row.writes:
        if t is None:
            return None
        _work(lib, row, c, given, t)
    if row.edge:
        return _edge(lib, row.edge, c, given)
    if row.waits:
        _wait(lib, row.waits, c, given)
    return NONE


def _body(lib: Modules, row: Row, given: dict[str, V]) -> V | None:
    """The body of a conditional node is captured on a stream of its own; other captures are not calls by row."""
    cap, t = lib.m.capture, _timeline(lib, "stream", given)
    if cap is None or t is None or t is cap.stream:
        return None
    if row.captures == BEGINS and "graph" in given:
        cap.begins_body(t, lib.cur())
        return NONE
    if row.captures == ENDS and t in cap.bodies:
        cap.ends_body(t)
        return NONE
    return None


def _work(lib: Modules, row: Row, c: Call, given: dict[str, V], t: Timeline) -> None:
    """The operation of a stream, or of one and the host."""
    reads, writes = (
        [x for name in names.split() for x in pointed(lib, given.get(name))]
        for names in (row.reads, row.writes)
    )
    if not all(_whole(lib, given, x) for x in (*reads, *writes)):
        part = (("u", lib.tick()),)
        reads, writes = ([x.of((*(x.part or ()), *part)) for x in each] for each in (reads, writes))
    for x in reads:
        if _pageable(x):
            lib.host(x, False, c.last, c.node)  # TM-03: it is staged before the call returns
    reads, writes = ([x for x in each if not _pageable(x)] for each in (reads, writes))
    pinned = "pinned"
    kind = "d2h" if any(x.block.place == pinned for x in writes) else ""
    kind = kind or ("h2d" if any(x.block.place == pinned for x in reads) else "")
    lib.launch(reads, writes, c.last, c.node, "cupy", kind, t=t)


def _pageable(x: Tensor) -> bool:
    return x.block.place != "pinned" and (x.numpy or x.block.place in HOSTS)


def _whole(lib: Modules, given: dict[str, V], x: Tensor) -> bool:
    """Whether an operation touches all that it is given the address of: as many bytes as that has, or no number."""
    if "width" in given:
        return False
    size = given.get("size")
    if size is None:
        return True
    return isinstance(size, Sym) and size.text == "nbytes"


def pointed(lib: Modules, v: V | None) -> list[Tensor]:
    """The memory that a value is, or whose address it is."""
    if isinstance(v, Sym) and v.vn in lib.pointers:
        return [lib.pointers[v.vn]]
    return lib.tensors_in(v) if v is not None else []


def _timeline(lib: Modules, name: str, given: dict[str, V]) -> Timeline | None:
    if name == LEGACY:
        return lib.m.null
    v = handled(given.get(name))
    if name == CURRENT or v is None or (isinstance(v, Const) and v.value is None):
        return lib.cur("cupy")
    if isinstance(v, Const):
        return lib.m.null if v.value == 0 else None
    return v.timeline if isinstance(v, Stream) else lib.stream(v, "cupy") if isinstance(v, Sym) else None


def _edge(lib: Modules, edge: str, c: Call, given: dict[str, V]) -> V:
    """``learner <- source``: of a stream and an event."""
    learner, _, source = edge.partition(" <- ")
    event = handled(given.get("event"))
    t = _timeline(lib, "stream", given)
    if learner == HOST:
        if source == "event" and isinstance(event, Event):
            return lib.event_method(event, "query", [], {}, c.node)
        return lib.stream_method(t, "query", [], {}, c.node, NONE) if t is not None else NONE
    if not isinstance(event, Event) or t is None:
        lib.everything(c.node)
    elif learner == "event":
        lib.record(event, t, c.node)
    else:
        lib.event_wait(t, event, c.node)
    return NONE


def _wait(lib: Modules, whom: str, c: Call, given: dict[str, V]) -> None:
    """The host waits."""
    if whom == DEVICE:
        lib.sync_host(None, c.node, f"{c.last}()")
        return
    event = handled(given.get("event"))
    if whom == "event" and isinstance(event, Event):
        lib.event_method(event, "synchronize", [], {}, c.node)
        return
    t = _timeline(lib, whom, given)
    if t is None or whom == "event":
        lib.everything(c.node)
    else:
        lib.sync_host(t, c.node, f"{c.last}()")
