"""Captures: where they begin and end, which streams take part, and what else is at work meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import access
from streamsafe.static.domain.atoms import (
    CAPTURING,
    CURRENT,
    DEFAULT,
    FALSE,
    GRADIENTS,
    HOST,
    LOST,
    TRUE,
    UNKNOWN,
    Atom,
    Const,
    New,
    Path,
    Test,
    Value,
    const,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.capturing import BRANCH, FORK, Graph
from streamsafe.static.domain.guards import IS_NONE, IS_TRUE, Literal, contradicts
from streamsafe.static.domain.order import Carriers, Ways
from streamsafe.static.domain.places import is_element
from streamsafe.static.domain.state import HostWork, Region, State
from streamsafe.static.domain.values import reachable
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer import pools, replays, threads
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.domain.access import Access
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.summary.instantiate import Rename
    from streamsafe.static.summary.model import Exit

BEGINS: Final = "begins a capture"

_NO_USE: Final = tag.UNSEEN_CALL | tag.METHOD_CALL | tag.HANDED_OUT
"""Accesses that do not show that a stream is used."""


@special("capturing")
def capturing(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``is_current_stream_capturing()``: known inside a capture, else the caller's to decide."""
    return value(TRUE) if s.capture is not None else value(CAPTURING)


def asks(a: Analysis) -> bool:
    """Whether a function asks if a capture is under way: what it does meanwhile, it does knowingly."""
    return any(
        isinstance(i, ir.Attr) and i.name == "is_current_stream_capturing"
        for block in a.fn.blocks
        for i in block.instrs
    )


# -- begin and end ----------------------------------------------------------------------------------------------------


def begin_region(a: Analysis, s: State, span: Span, stream: Atom, graph: Value, mode: Value) -> None:
    """A capture begins on a stream."""
    what = threads.BEGINS_GLOBAL if _is_global(mode) else BEGINS
    a.host_work(s, span, what, "concurrent-capture")
    if what == threads.BEGINS_GLOBAL:
        threads.others_at_work(a, s, span)
    if s.capture is None:
        made = access(FORK, True, stream, span, frozenset(), 0, frozenset(), "capture")
        s.order.put(made, frozenset((frozenset((stream,)),)))
    graphs = ordered(graph)
    relaxed = any(isinstance(atom, Const) and atom.value == "relaxed" for atom in mode)
    s.capture = Region(span, stream, graphs[0] if graphs else None, relaxed)
    replays.begins(s, span, graph)


def _is_global(mode: Value) -> bool:
    """The error mode of a capture is the global one unless something else is given."""
    return not mode or any(isinstance(atom, Const) and atom.value == "global" for atom in mode)


def end_region(a: Analysis, s: State) -> None:
    """A capture ends: every stream that was forked must have been joined (GM-fork_only)."""
    region = s.capture
    if region is None:
        return
    reported: set[Atom] = set()
    if any(wait.who is region.stream and _of_many(a, s, wait.whom) for wait in s.waits):
        return leave_region(s)  # it waits for some of several, for all that is known
    for one in sorted(s.order.near(BRANCH), key=lambda each: each.sort_key(), reverse=True):
        apart = any(region.stream not in way for way in s.order.ways_of(one))
        if apart and one.stream not in reported:
            reported.add(one.stream)
            notes = (("the capture that ends without waiting for that stream begins here", region.span),)
            a.violation("unjoined-capture-stream", one.span, one.operation, one.guard, notes, one.tags)
    leave_region(s)


def leave_region(s: State) -> None:
    """The capture is over: nothing of it is looked at any more."""
    for marker in (FORK, BRANCH):
        for one in list(s.order.near(marker)):
            s.order.drop(one)
    replays.ends(s, s.capture.graph if s.capture is not None else None)
    s.capture = None


@special("capture_begin")
def begin(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``graph.capture_begin()``, ``stream.begin_capture()``: it synchronizes nothing (GC-18).

    The default stream cannot be captured (GC-01, GP-01).
    """
    span = a.span(c.at)
    stream, graph = s.current, c.receiver
    mode = c.given.get("capture_error_mode", UNKNOWN)
    pools.is_given(s, graph, c.given.get("pool", UNKNOWN))
    row = c.row
    if row is not None and row.library == "cupy":
        found = [atom for atom in ordered(c.receiver) if a.role(atom) == "stream"]
        stream, graph, mode = (found[0] if found else LOST), UNKNOWN, value(const("relaxed"))
    if stream is DEFAULT:
        a.violation("capture-on-default-stream", span, c.operation, s.guard)
    elif stream is CURRENT:
        s.capturing.begins = s.capturing.begins | {span}
    begin_region(a, s, span, stream, graph, mode)
    return UNKNOWN


@special("capture_end")
def end(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``graph.capture_end()``, ``stream.end_capture()``"""
    if s.capture is None:
        s.capturing.ended = a.span(c.at)
    end_region(a, s)
    return None


# -- who takes part ---------------------------------------------------------------------------------------------------


def _fork(s: State) -> Ways | None:
    """The ways in which the capture's beginning is known; None where no capture is under way."""
    if s.capture is None:
        return None
    for one in s.order.near(FORK):
        return s.order.ways_of(one)
    return None


def takes_part(s: State, stream: Atom) -> bool:
    """Whether a stream or an event comes after the beginning of the capture under way."""
    fork = _fork(s)
    return fork is None or all(stream in way for way in fork)


def used(a: Analysis, s: State, one: Access) -> None:
    """A stream is used in a capture: it takes part, or it works eagerly beside it (GM-side_launch)."""
    replays.uses(a, s, one)
    replays.copies_what_host_wrote(a, s, one)
    fork = _fork(s)
    if fork is None:
        return
    _used(a, s, one, frozenset((one.stream,)), fork, frozenset((frozenset((one.stream,)),)))


def used_below(
    a: Analysis, s: State, t: State, one: Access, before: Carriers, after: Ways, made: bool
) -> None:
    """A callee uses a stream in the capture of its caller; ``before`` are carriers at the call."""
    if one.stream is not HOST:
        replays.uses(a, t, one, made)
    fork = _fork(s)
    if fork is not None and one.stream is not HOST:
        _used(a, t, one, before, fork, after)


def _used(a: Analysis, s: State, one: Access, before: Carriers, fork: Ways, after: Ways) -> None:
    region = s.capture
    if region is None or one.stream in (region.stream, LOST, HOST) or one.tags & _NO_USE:
        return
    if _of_many(a, s, one.stream) or any(_unseen_event(a, s, each) for each in before):
        return
    if all(not way.isdisjoint(before) for way in fork):
        _branch(s, one.stream, one.span, one.operation, after)
        return
    notes = (("the capture begins here", region.span),)
    a.violation(
        "unjoined-capture-stream", one.span, one.operation, s.guard, notes, one.tags & tag.MODULE_CALL
    )
    s.order.learn(one.stream, region.stream)  # one missing edge is one finding
    for branch in [each for each in s.order.near(BRANCH) if each.stream is one.stream]:
        s.order.drop(branch)


def _of_many(a: Analysis, s: State, atom: Atom) -> bool:
    """Whether a stream or an event is one of several under one name: which of them takes part is not told."""
    if isinstance(atom, Path):
        return any(map(is_element, atom.fields))
    if not isinstance(atom, New):
        return False
    return bool(atom.age) or any(
        is_element(field) and atom in reachable((held,)) for (_, field), held in s.heap.items()
    )


def _unseen_event(a: Analysis, s: State, atom: Atom) -> bool:
    """Whether an event was recorded where it is not seen: it may well come after the capture's beginning."""
    return isinstance(atom, Path) and a.role(atom) == "event" and atom not in s.cells


def _branch(s: State, stream: Atom, span: Span, operation: str, ways: Ways) -> None:
    for old in [each for each in s.order.near(BRANCH) if each.stream is stream]:
        s.order.drop(old)
    s.order.put(access(BRANCH, True, stream, span, frozenset(), 0, s.guard, operation), ways)


def before_wait(a: Analysis, s: State, span: Span, who: Atom, whom: Atom) -> None:
    """A wait: in a capture it takes the waiter in, or depends on work outside (GM-wait_outside, GM-wait_precapture)."""
    cell = s.cells.get(whom)
    if s.capture is None:
        if cell is not None and cell.captured and not _external(s, whom):
            notes = (("recorded in a capture here", cell.span),)
            a.violation("unjoined-capture-stream", span, "a wait", s.guard, notes)
        return
    fork = _fork(s)
    if fork is None or who is HOST:
        return
    known = frozenset((whom,))
    if all(not way.isdisjoint(known) for way in fork):
        if who is not s.capture.stream and not takes_part(s, who) and not _of_many(a, s, who):
            _branch(s, who, span, "wait", frozenset((frozenset((who,)),)))
    elif takes_part(s, who) and not is_stated(a, s):
        _outside(a, s, span, whom)


def _outside(a: Analysis, s: State, span: Span, whom: Atom) -> None:
    """What takes part in a capture waits for what does not, where that can be told."""
    assert s.capture is not None
    role = a.role(whom)
    if _of_many(a, s, whom):
        return
    if role == "event":
        if s.cells.get(whom) is None or _external(s, whom):
            return
    elif role != "stream" or whom is LOST or (isinstance(whom, Path) and _is_given(whom)):
        return
    notes = (("the capture begins here", s.capture.span),)
    a.violation("unjoined-capture-stream", span, "a wait", s.guard, notes)


def is_stated(a: Analysis, s: State) -> bool:
    """Whether a field is true, here, that methods of its object set: it says that there is something to wait for."""
    return any(literal.truth is (literal.kind == IS_TRUE) and _is_state(a, literal) for literal in s.guard)


def _is_state(a: Analysis, literal: Literal) -> bool:
    """Whether a literal asks for the truth of a field that methods of its object set, and which is no object itself."""
    atom = literal.atom
    if isinstance(atom, Test) and len(atom.left) == 1:
        (atom,) = atom.left
    if literal.kind not in (IS_NONE, IS_TRUE) or not isinstance(atom, Path) or not atom.fields:
        return False
    owner = a.fact(path(atom.root, *atom.fields[:-1])).type
    return ":" in owner and not a.fact(atom).type and atom.fields[-1] in a.engine.facts.rebound(owner)


def _is_given(stream: Path) -> bool:
    """Whether a caller that is not seen gives a stream: it may have forked it."""
    return not stream.fields and not stream.root.startswith("module ")


def _external(s: State, event: Atom) -> bool:
    """Whether an event may have been made to be used outside of captures (GC-21)."""
    return s.heap.get((event, replays.EXTERNAL)) != value(FALSE)


def makes_event(s: State, c: CallSite, event: Atom) -> None:
    """A new event is no external one, unless its arguments say so or are not known."""
    if c.spread:
        return
    s.heap[event, replays.EXTERNAL] = c.keywords.get("external", value(FALSE))


# -- calls ------------------------------------------------------------------------------------------------------------


def waits_below(a: Analysis, s: State, t: State, exit: Exit, rename: Rename) -> None:
    """The waits of a callee, in the capture of its caller."""
    fork = _fork(s)
    if fork is None or t.capture is None:
        return
    for wait in sorted(exit.waits, key=lambda each: each.span):
        if made_for_many(exit, wait.whom):
            continue
        who, whom = rename.carrier(wait.who), rename.carrier(wait.whom)
        if HOST in (who, whom) or LOST in (who, whom) or not wait.known or wait.stated:
            continue
        known = rename.carriers(wait.known)
        part = who is t.capture.stream or all(who in way for way in fork)
        if part and LOST not in known and not all(not way.isdisjoint(known) for way in fork):
            _outside(a, t, wait.span, whom)


def made_for_many(exit: Exit, stream: Atom) -> bool:
    """Whether a callee makes a stream and keeps it among others."""
    return isinstance(stream, New) and any(
        is_element(field) and stream in held for (_, field), held in exit.heap.items()
    )


def across_call(a: Analysis, t: State, exit: Exit, rename: Rename) -> None:
    """A callee ends its caller's capture."""
    if exit.ended is not None and t.capture is not None:
        end_region(a, t)
    elif exit.ended is not None:
        t.capturing.ended = exit.ended


def after_call(a: Analysis, t: State, exit: Exit, rename: Rename) -> None:
    """A callee begins a capture that its caller goes on with; threads that it starts are at work from here on."""
    if exit.capture is not None:
        graph = rename.atom(exit.capture.graph) if exit.capture.graph is not None else UNKNOWN
        graphs = ordered(graph)
        stream = rename.carrier(exit.capture.stream)
        t.capture = Region(exit.capture.span, stream, graphs[0] if graphs else None, exit.capture.relaxed)
        t.capturing.under_way = Graph(exit.capture.span)
    for span in sorted(exit.begins):
        if t.current is DEFAULT:
            a.violation("capture-on-default-stream", span, "capture_begin", t.guard)
        elif t.current is CURRENT:
            t.capturing.begins = t.capturing.begins | {span}
    if t.capturing.threads:
        for work in sorted(exit.work, key=HostWork.sort_key):
            if work.what == threads.BEGINS_GLOBAL:
                threads.others_at_work(a, t, work.span)
    replays.after_call(a, t, exit, rename)
    for atom, span in exit.threads.items():
        for image in ordered(rename.atom(atom)):
            t.capturing.threads[image] = span


# -- steps ------------------------------------------------------------------------------------------------------------


@special("make_optimizer")
def make_optimizer(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """An optimizer, which steps on the device when it is capturable, and takes a scale there when it is fused."""
    made = mem.allocate(a, s, a.span(c.at), c.row.result.type if c.row is not None else OPTIMIZER)
    for flag in ("capturable", "fused"):
        s.heap[made, flag] = UNKNOWN if c.spread else c.keywords.get(flag, value(FALSE))
    s.heap[made, "params"] = c.given.get("params", UNKNOWN)
    return value(made)


OPTIMIZER: Final = "torch.optim.Optimizer"
COUNTS_ON_HOST: Final = "torch.optim.Adam"
"""The type of optimizers that count their steps on the host unless they are made capturable."""


@special("optimizer_step")
def optimizer_step(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``optimizer.step()``: counted on the host, unless the optimizer is capturable; a closure is called first."""
    from streamsafe.static.transfer import library
    from streamsafe.static.transfer.calls import call_value

    if any(uncapturable(a, s, atom) for atom in c.receiver):
        a.host_work(s, a.span(c.at), c.operation, "uncapturable-step")
    closure = c.given.get("closure", UNKNOWN)
    if not closure or c.row is None:
        return None
    states = call_value(a, s, CallSite(c.at, c.dst, []), closure)
    for t in states:
        t.env[c.dst] = library.effects(a, t, c, c.row)
    return states


def is_set(s: State) -> None:
    """``group["capturable"] = ...``: of the optimizers that are known, one is made capturable, or not, afterwards."""
    for owner, field in [key for key in s.heap if key[1] == "capturable"]:
        s.heap[owner, field] = UNKNOWN


def uncapturable(a: Analysis, s: State, optimizer: Atom) -> bool:
    """Whether an optimizer is known to count its steps on the host."""
    if a.type_of(optimizer) != COUNTS_ON_HOST:
        return False
    if isinstance(optimizer, Path) and (optimizer, "capturable") not in s.heap:
        return a.fact(optimizer).uncapturable
    return s.heap.get((optimizer, "capturable")) == value(FALSE)


@special("scaler_step")
def scaler_step(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``scaler.step(optimizer)``: the host asks what was found, unless the optimizer does on the device."""
    optimizer = c.given.get("optimizer", UNKNOWN)
    if not optimizer:
        return None
    for atom in ordered(optimizer):
        type = a.type_of(atom)
        if ":" in type or a.engine.role(type) != "optimizer":
            return None
        if all(s.heap.get((atom, flag)) == value(TRUE) for flag in ("capturable", "fused")):
            return UNKNOWN
    a.host_work(s, a.span(c.at), c.operation, "uncapturable-step")
    return None


# -- random numbers and warm-ups --------------------------------------------------------------------------------------


REGISTERED: Final = "registered"
"""The field of a generator that a graph manages."""

OF_A_GENERATOR: Final = "a generator that no graph manages"


@special("register_generator")
def register_generator(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``graph.register_generator_state(generator)`` (GC-16)"""
    for atom in ordered(c.given.get("generator", UNKNOWN)):
        if isinstance(atom, New | Path):
            s.heap[atom, REGISTERED] = value(TRUE)
    return UNKNOWN


def takes_generator(a: Analysis, s: State, c: CallSite) -> None:
    """An operation is given a generator: in a capture its graph has to manage it (GM-gen_unreg)."""
    held = [atom for atom in c.keywords.get("generator", UNKNOWN) if isinstance(atom, New | Path)]
    if held and not any((atom, REGISTERED) in s.heap for atom in held) and not _registers_when_made(a):
        a.host_work(s, a.span(c.at), OF_A_GENERATOR, "capture-rng")


def _registers_when_made(a: Analysis) -> bool:
    """Whether the class of a method registers a generator when it is made."""
    cls = a.fn.cls
    fid = a.engine.index.method(cls, "__init__") if a.fn.is_method and cls is not None else None
    if fid is None or fid == a.fn.fid:
        return False
    return any(field == REGISTERED for exit in a.engine.summary(fid).exits for _, field in exit.heap)


def backward_in_capture(a: Analysis, s: State) -> None:
    """A pass is captured: it has run before, and not on the default stream alone (GC-17)."""
    region = s.capture
    if region is None:
        a.passes = True
        return
    passes = [
        one
        for one in s.order.near(GRADIENTS)
        if one.tags & tag.BACKWARD
        and one.writes
        and not one.tags & tag.CAPTURED
        and not contradicts(one.guard, s.guard)
    ]
    if passes and all(one.stream in (CURRENT, DEFAULT) for one in passes):
        notes = (("it has run on the default stream only, here", passes[0].span),)
        what = "captures a pass that has run on the default stream only"
        a.violation("missing-capture-warmup", region.span, what, s.guard, notes, tag.ON_SOME_PATH)
    elif not passes and _makes_a_module(a, s):
        a.cold.setdefault(region.span, s.guard)


def report_cold(a: Analysis) -> None:
    """Captures of passes that have run nowhere in the function."""
    for span, guard in () if a.passes else a.cold.items():
        what = "captures what never ran before"
        a.violation("missing-capture-warmup", span, what, guard, (), tag.ON_SOME_PATH)


def _makes_a_module(a: Analysis, s: State) -> bool:
    """Whether a module is made in this function."""
    held = (atom for reg, value in s.env.items() if isinstance(reg, str) for atom in value)
    return any(isinstance(atom, New) and not atom.calls and a.role(atom) == "module" for atom in held)
