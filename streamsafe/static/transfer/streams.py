"""Streams and events: waits, records, synchronizations, and what is handed to code that is not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain.atoms import (
    CURRENT,
    DEFAULT,
    HOST,
    LOST,
    UNKNOWN,
    Atom,
    Const,
    New,
    Path,
    Symbol,
    Value,
    new,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.guards import IS_NONE, Literal
from streamsafe.static.domain.places import is_element
from streamsafe.static.domain.state import Cell, State, Wait
from streamsafe.static.domain.values import reachable
from streamsafe.static.transfer import asks, captures, timing
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis

CARRIERS = ("stream", "event", "work", "future", "graph")
EVENTS = ("event", "work", "future")


def carriers(a: Analysis, s: State, held: Value) -> list[Atom]:
    """The streams, events and works that a value may be, or hold; what the guard says is None is none of them."""
    found: list[Atom] = []
    for atom in ordered(held):
        if s.guard and Literal(IS_NONE, atom, None, True) in s.guard:
            continue
        if isinstance(atom, Symbol):
            if a.role(atom) == "stream":
                found.append(atom)
        elif isinstance(atom, New | Path):
            role = a.role(atom)
            if role in CARRIERS or (role == "" and isinstance(atom, Path)):
                found.append(atom)
    return found


def wait(a: Analysis, s: State, span: Span, who: Atom, whom: Atom) -> None:
    """A stream waits for a stream, an event or a work; the host waits likewise.

    Who waits for one of several that are kept together is taken to wait for each of them, in turn.
    """
    for waiter in together(s, who):
        for source in together(s, whom):
            _wait(a, s, span, waiter, source)


def together(s: State, atom: Atom) -> tuple[Atom, ...]:
    """A carrier, and what else its site has made, where a container keeps both."""
    if not isinstance(atom, New):
        return (atom,)
    other = new(atom.kind, atom.place, atom.calls, 1 - atom.age)
    for (_, field), held in s.heap.items():
        if is_element(field) and len(held) > 1:
            inside = held if atom in held else reachable((held,))
            if atom in inside and other in inside:
                return (atom, other)
    return (atom,)


def _wait(a: Analysis, s: State, span: Span, who: Atom, whom: Atom) -> None:
    is_event = a.role(whom) in EVENTS
    source: Atom | None = whom
    cell = s.cells.get(whom) if is_event else None
    if is_event:
        source = cell.stream if cell is not None else None
    recorded, earlier = (cell.span, cell.earlier) if cell is not None else (None, frozenset())
    idle = source is not None and s.idle(source)
    known = s.order.known_by(whom)
    stated = bool(s.guard) and captures.is_stated(a, s)
    s.waits = s.waits | {Wait(who, whom, source, span, recorded, earlier, idle, known, stated)}
    captures.before_wait(a, s, span, who, whom)
    if who is HOST:
        mem.host_waits(a, s, span, whom)
        return
    if not is_event:
        mem.launch(s, whom)
    s.order.learn(who, HOST)
    s.order.learn(whom, HOST)
    s.order.learn(who, whom)


def record(a: Analysis, s: State, span: Span, event: Atom, stream: Atom) -> None:
    """An event is recorded on a stream: it forgets what it knew (TS-09, TS-15)."""
    mem.launch(s, stream)
    s.order.learn(stream, HOST)
    s.order.learn(event, stream, forget=not (isinstance(event, New) and bool(event.age)))
    timing.record_event(s, span, event, stream)
    known = s.cells.get(event)
    earlier = known.earlier | {known.stream} if known is not None else frozenset()
    s.cells[event] = Cell(stream, span, earlier, s.capture is not None)


def record_on(a: Analysis, s: State, span: Span, event: Atom, on: list[Atom]) -> None:
    """An event is recorded on one of several streams that a loop goes through: it is taken to be of each of them."""
    record(a, s, span, event, on[0])
    for stream in on[1:]:
        s.order.learn(event, stream)


def wait_for_all(a: Analysis, s: State, who: Atom) -> None:
    """A wait for something that is not seen: it is taken to cover what there is."""
    s.order.learn_all(who)


def handed_over(a: Analysis, s: State, given: list[Value]) -> None:
    """Code that is not seen is given a stream or an event: it is taken to order what needs ordering."""
    found = reachable(given)
    for atom in ordered(found):
        if isinstance(atom, New) and a.role(atom) == "container":
            found |= reachable(held for step, held in s.heap.fields(atom).items() if is_element(step))
    for atom in ordered(found):
        if isinstance(atom, New | Path) and a.role(atom) in ("stream", "event"):
            s.order.learn_all(atom)
            s.order.learn_all(s.current)


def of_unknown(a: Analysis, s: State, c: CallSite, owner: Value, name: str) -> bool:
    """A method with the name of one of a stream or an event, of an object whose type is not seen."""
    span = a.span(c.at)
    others = carriers(a, s, (c.args or [next(iter(c.keywords.values()), UNKNOWN)])[0])
    me = ordered(owner)[0] if len(owner) == 1 else None
    s.env[c.dst] = UNKNOWN
    if name in ("wait_stream", "wait_event"):
        if me is None:
            for other in others:
                if isinstance(other, New):
                    s.order.learn_all(other)
            wait_for_all(a, s, s.current)
        elif others:
            for other in others[:1]:
                wait(a, s, span, me, other)
        else:
            wait_for_all(a, s, me)
        return True
    if name == "record_event":
        if me is not None:
            event = others[0] if others else mem.allocate(a, s, span, "torch.cuda.Event")
            record(a, s, span, event, me)
            s.env[c.dst] = value(event)
        return True
    if name == "record" and me is not None and not c.keywords and len(c.args) <= 1:
        record(a, s, span, me, others[0] if others else s.current)
        return True
    if name == "query" and me is not None:
        s.env[c.dst] = asks.question(me, span)
        return True
    if name in ("wait", "synchronize", "query", "join", "result", "flush", "sync"):
        if name == "wait" and me is not None:
            wait(a, s, span, others[0] if others else s.current, me)
        elif me is not None and name == "synchronize":
            wait(a, s, span, HOST, me)
        if not isinstance(me, New):
            wait_for_all(a, s, HOST)
        return True
    return False


@special("external_stream")
def external_stream(a: Analysis, s: State, c: CallSite) -> Value:
    """``ExternalStream(handle)``: the queue with that handle (TS-27); a handle that nothing shows may be of any."""
    held = c.args[0] if c.args else c.given.get(c.row.params[0], UNKNOWN) if c.row is not None else UNKNOWN
    found: set[Atom] = set()
    for atom in held:
        if isinstance(atom, Const):
            found.add(DEFAULT if atom.value in (0, 1) else LOST)
        elif isinstance(atom, Path):
            found.add(_of_handle(a, atom))
        else:
            found.add(atom if a.role(atom) == "stream" else LOST)
    return frozenset(found) or value(LOST)


def _of_handle(a: Analysis, atom: Path) -> Path:
    """The stream whose handle lies at a path; a path of its own where nothing shows which."""
    row = a.engine.models.by_method(atom.fields[-1]) if atom.fields else None
    if row is not None and row.property and row.result.kind == "same":
        return path(atom.root, *atom.fields[:-1])
    return atom


@special("handle")
def handle(a: Analysis, s: State, c: CallSite) -> Value | None:
    """``int(stream)``, ``ctypes.c_void_p(stream.ptr)``: its handle."""
    held = c.args[0] if c.args else UNKNOWN
    return held if held and all(a.role(atom) == "stream" for atom in held) else None


__all__ = ["CURRENT", "DEFAULT"]
