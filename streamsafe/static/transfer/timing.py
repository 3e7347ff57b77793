"""Timing: clocks of the host around launches, and the time between events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import access
from streamsafe.static.domain.atoms import (
    ALL,
    FALSE,
    GRADIENTS,
    HOST,
    TRUE,
    UNKNOWN,
    Atom,
    New,
    Path,
    Value,
    ordered,
    ranks,
    value,
)
from streamsafe.static.domain.guards import contradicts
from streamsafe.static.domain.order import Carriers, Ways
from streamsafe.static.domain.places import DEVICE, is_gradient
from streamsafe.static.domain.state import State
from streamsafe.static.domain.timing import CLOCK, LAUNCHES, Clock, Late
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.domain.access import Access
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.summary.instantiate import Rename
    from streamsafe.static.summary.model import Exit

UNSURE: Final = (
    tag.WEAK | tag.UNSEEN_CALL | tag.METHOD_CALL | tag.HANDED_OUT | tag.IF_DEVICE | tag.PLACE_UNKNOWN
)
"""Accesses that show no launch."""

_KEPT: Final = tag.MODULE_CALL | tag.NAME_HINT | tag.BUDGET
"""The assumptions of a launch."""


# -- launches and clocks ----------------------------------------------------------------------------------------------


def is_launch(a: Analysis, s: State, one: Access) -> bool:
    """Whether an access shows that something was launched. Gradients lie where the launches before them were."""
    if one.stream is HOST or one.tags & UNSURE or s.capture is not None:
        return False
    if one.tags & tag.ALLOCATION and not a.type_of(one.buffer).startswith("cupy"):
        return False  # where new memory lies is often assumed
    if one.buffer is GRADIENTS or (one.tags & tag.GRADIENT and is_gradient(one.buffer)):
        return bool(s.order.near(LAUNCHES))
    return mem.place_of(a, s, one.buffer) == DEVICE


def launch(a: Analysis, s: State, one: Access) -> None:
    """An access of a stream is a launch: of those of its stream the last one counts."""
    if not a.engine.timed or not is_launch(a, s, one):
        return
    guard = s.guard | mem.on_devices(s, one.buffer)
    made = access(LAUNCHES, True, one.stream, one.span, frozenset(), one.tags & _KEPT, guard, one.operation)
    for old in [each for each in s.order.near(LAUNCHES) if each.stream is one.stream and each is not made]:
        s.order.drop(old)
    s.order.drop(made)
    s.order.add(made)
    s.timing.launched(one.span)


def launch_below(a: Analysis, s: State, one: Access, ways: Ways) -> None:
    """An access of a callee is a launch, now that its caller says where the memory lies."""
    if is_launch(a, s, one):
        guard = s.guard | mem.on_devices(s, one.buffer)
        made = access(
            LAUNCHES, True, one.stream, one.span, frozenset(), one.tags & _KEPT, guard, one.operation
        )
        s.order.put(made, ways)
        s.timing.launched(one.span)


def read_clock(a: Analysis, s: State, c: CallSite) -> Value:
    """A clock of the host is read: what is pending now is late."""
    span = a.span(c.at)
    atom = mem.allocate(a, s, span, CLOCK)
    _pending(a, s, atom, frozenset())
    s.timing.clocks[atom] = Clock(span, s.order.before(HOST))
    return value(atom)


def _pending(a: Analysis, s: State, now: Atom, before: Carriers) -> None:
    """Launches that nothing orders before a reading that comes after ``before`` (carriers now)."""
    late = set(s.timing.late)
    for one in s.order.near(LAUNCHES):
        if not s.order.exposed(one, before) or contradicts(one.guard, s.guard):
            continue
        late.add(Late(None, now, one.span, one.tags))
        for then, clock in s.timing.clocks.items():
            if then is not now and one.span in clock.since:
                late.add(Late(then, now, one.span, one.tags))
    s.timing.late = frozenset(late)


def is_clock(a: Analysis, atom: Atom) -> bool:
    """Whether an atom is what a clock gave."""
    return isinstance(atom, New | Path) and a.type_of(atom) == CLOCK


def subtract(a: Analysis, s: State, now: Value, then: Value) -> None:
    """``now - then``, of two readings of a clock, where at least one of them is certainly one."""
    if not any(is_clock(a, atom) for atom in now):
        return
    for later in ordered(now):
        for earlier in ordered(then):
            _difference(a, s, later, earlier)


def _difference(a: Analysis, s: State, now: Atom, then: Atom) -> None:
    clocks = s.timing.clocks
    if now in clocks and then in clocks:
        found = [late for late in s.timing.late if late.now is now and late.then is then]
        for late in sorted(found, key=lambda each: (bool(each.tags), each.launch, each.tags))[:1]:
            notes = (("launched here, and the host has not waited for it", late.launch),)
            a.violation("unsynchronized-timing", clocks[now].span, "the clock", s.guard, notes, late.tags)
    elif isinstance(now, Path) or isinstance(then, Path):
        if (now in clocks or isinstance(now, Path)) and (then in clocks or isinstance(then, Path)):
            s.timing.elapsed = s.timing.elapsed | {(then, now)}


def converted(a: Analysis, s: State, held: Value) -> Value:
    """A reading in another unit: still a reading."""
    return frozenset(atom for atom in held if atom in s.timing.clocks)


def before_call(a: Analysis, s: State, exit: Exit, rename: Rename) -> dict[Atom, Clock]:
    """The readings of a callee, in the caller's names, before its order is composed: what was pending is late."""
    found: dict[Atom, Clock] = {}
    for atom, clock in exit.clocks.items():
        for image in ordered(rename.atom(atom)):
            before = rename.carriers(clock.before) | {HOST}
            found[image] = Clock(clock.span, s.order.entry(before), clock.since)
            _pending(a, s, image, before)
    return found


def after_call(a: Analysis, t: State, exit: Exit, rename: Rename, read: Mapping[Atom, Clock]) -> None:
    """What a callee launched, and the differences that only its caller can judge."""
    callers = list(t.timing.clocks)
    made = {one.span for one in exit.accesses if one.buffer is LAUNCHES}
    if made:
        t.timing.launched(*made)
    t.timing.clocks.update(read)
    late = set(t.timing.late)
    for each in exit.late:
        for now in rename.atom(each.now):
            if each.then is None:
                late.update(
                    Late(then, now, each.launch, each.tags) for then in (None, *callers) if then is not now
                )
            else:
                late.update(Late(then, now, each.launch, each.tags) for then in rename.atom(each.then))
    t.timing.late = frozenset(late)
    for then, now in sorted(exit.elapsed, key=ranks):
        for later in ordered(rename.atom(now)):
            for earlier in ordered(rename.atom(then)):
                _difference(a, t, later, earlier)


# -- events -----------------------------------------------------------------------------------------------------------


TIMING: Final = "timing"
"""The field of an event that says whether it keeps time."""


def keeps_time(s: State, c: CallSite, type: str, event: Atom) -> None:
    """Whether a new event keeps time: PyTorch's does when asked to, CuPy's unless told otherwise."""
    if type.startswith("cupy"):
        held = c.keywords.get("disable_timing", c.args[1] if len(c.args) > 1 else value(FALSE))
        known = {value(TRUE): FALSE, value(FALSE): TRUE}.get(held)
    else:
        held = c.keywords.get("enable_timing", c.args[0] if c.args else value(FALSE))
        known = {value(TRUE): TRUE, value(FALSE): FALSE}.get(held)
    if known is not None:
        s.heap[event, TIMING] = value(known)


def record_event(s: State, span: Span, event: Atom, stream: Atom) -> None:
    """A record is an access of the stream to its event: whoever asks for the time comes after it."""
    made = access(event, True, stream, span, s.order.before(stream), tag.RECORD, s.guard, "record")
    forget_records(s, event)
    s.order.put(made, frozenset((frozenset((stream, event)),)))


def forget_records(s: State, event: Atom) -> None:
    """The event is recorded anew: its earlier records do not matter any more."""
    if not isinstance(event, New) or not event.age:
        for old in [each for each in s.order.near(event) if each.buffer is event and each.tags & tag.RECORD]:
            s.order.drop(old)


@special("elapsed_time")
def elapsed_time(a: Analysis, s: State, c: CallSite) -> Value | list[State]:
    """``start.elapsed_time(end)``: both events keep time, were recorded, and the host has waited for them (TX-01)."""
    span = a.span(c.at)
    events = [c.receiver, *c.args] if c.receiver else [*c.args, *c.keywords.values()]
    atoms = [atom for held in events[:2] for atom in ordered(held) if a.role(atom) == "event"]
    if any(_untimed(a, s, event) for event in atoms):
        a.misuse(span, c.operation, "untimed", s.guard)
        return UNKNOWN
    for event in atoms:
        if (
            isinstance(event, New)
            and not event.age
            and event not in s.cells
            and not _out_of_sight(a, s, event)
        ):
            a.misuse(span, c.operation, "unrecorded", s.guard, tags=tag.ON_SOME_PATH)
            return UNKNOWN
    before = s.order.before(HOST)
    for event in atoms:
        asked = access(event, False, HOST, span, before, tag.ELAPSED, s.guard, c.operation)
        mem.check(a, s, asked)
        s.order.add(asked)
    for event in atoms:
        s.order.learn(HOST, event)  # it raises where they have not happened
    return UNKNOWN


def _out_of_sight(a: Analysis, s: State, event: Atom) -> bool:
    """Whether somebody else may have recorded an event: it was handed on, or it lies in a container."""
    if ALL in s.order.known_by(event):
        return True
    return any(event in held and a.role(owner) == "container" for (owner, _), held in s.heap.items())


def _untimed(a: Analysis, s: State, event: Atom) -> bool:
    if s.heap.get((event, TIMING)) == value(FALSE):
        return True
    return isinstance(event, Path) and a.fact(event).untimed


def events_of(a: Analysis, images: Iterable[Atom]) -> list[Atom]:
    """The events among some atoms."""
    return [atom for atom in ordered(images) if a.role(atom) == "event"]
