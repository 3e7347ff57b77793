"""Copies whose kind follows from the places of their ends, and where a call makes its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.atoms import (
    FALSE,
    HOST,
    MAYBE,
    NONE,
    TRUE,
    UNKNOWN,
    Array,
    Atom,
    Bound,
    Const,
    Library,
    New,
    Path,
    Tuple,
    Value,
    array,
    const,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.extents import WHOLE, is_scattered
from streamsafe.static.domain.guards import (
    ALWAYS,
    IS_CPU,
    IS_NONE,
    IS_TRUE,
    Literal,
    asks_for_host,
    decided,
    device_of,
)
from streamsafe.static.domain.places import DEVICE, PAGEABLE, PINNED
from streamsafe.static.domain.state import HostWork, State
from streamsafe.static.models.rows import Copy, Place, Row
from streamsafe.static.transfer import asks, library, streams
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis

UNCHANGED = "unchanged"
HOST_PLACES = (PINNED, PAGEABLE)


def copy(a: Analysis, s: State, c: CallSite, row: Row) -> list[State]:
    """A copy; a state for each way in which what it hangs on may be decided."""
    assert row.copy is not None
    out: list[State] = []
    for t in _by_flag(a, _by_device(a, s, c, row), c, row):
        t.env[c.dst] = _copy(a, t, c, row)
        out.append(t)
    return out


def _by_device(a: Analysis, s: State, c: CallSite, row: Row) -> list[State]:
    """Partitions by whether the device that an argument names is the CPU, where that is not known."""
    place = row.result.place
    if place is None or place.kind != "target":
        return [s]
    device = _target(c, place)
    if len(device) != 1:
        return [s]
    (atom,) = device
    if not isinstance(atom, Path) or a.role(atom) not in ("", "device"):
        return [s]
    literal = Literal(IS_CPU, device_of(atom), None, True)
    if literal in s.guard or literal.negated() in s.guard:
        return [s]
    other = s.fork()
    s.guard = s.guard | {literal.negated()}
    other.guard = other.guard | {literal}
    return [s, other]


def _by_flag(a: Analysis, states: list[State], c: CallSite, row: Row) -> list[State]:
    """Partitions by whether a flag that a path decides is set."""
    assert row.copy is not None
    flag = c.given.get(row.copy.flag, UNKNOWN) if row.copy.flag else UNKNOWN
    if len(flag) != 1:
        return states
    (atom,) = flag
    if not isinstance(atom, Path):
        return states
    literal = Literal(IS_NONE, atom, None, True)
    out: list[State] = []
    for s in states:
        if literal in s.guard or literal.negated() in s.guard:
            out.append(s)
            continue
        other = s.fork()
        s.guard = s.guard | {literal.negated()}
        other.guard = other.guard | {literal}
        out += [s, other]
    return out


def asynchronous(s: State, c: CallSite, row: Row) -> bool:
    """Whether the host goes on at once."""
    copy = row.copy
    assert copy is not None
    held = c.given.get(copy.flag, UNKNOWN) if copy.flag else UNKNOWN
    given = copy.flag in c.given
    if not given:
        return copy.default
    truths: set[bool] = set()
    for atom in held:
        asked = asks_for_host(IS_TRUE, atom, None)
        on_host = None if asked is None else decided_by(s, asked[0])
        if isinstance(atom, Const):
            truths.add(bool(atom.value))
        elif asked is not None and on_host is not None:
            truths.add(on_host is asked[1])
        elif Literal(IS_NONE, atom, None, True) in s.guard:
            truths.add(False)
        else:
            truths.add(True)
    flag = truths != {False}
    return not flag if copy.inverted else flag


def decided_by(s: State, atom: Atom) -> bool | None:
    """Whether a device is the host, as far as the path says."""
    known = decided(IS_CPU, None, atom)
    if known is not None:
        return known
    literal = Literal(IS_CPU, atom, None, True)
    return True if literal in s.guard else False if literal.negated() in s.guard else None


@special("move_module")
def move_module(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``module.cuda()``, ``module.to(device)``: where its parameters lie from here on, as far as that is known."""
    device = c.given.get("device", UNKNOWN)
    place: str = PAGEABLE if c.operation == "cpu" else DEVICE
    if c.operation in ("to", "to_empty"):
        known = {decided_by(s, atom) for atom in device if isinstance(atom, Const) and atom.type == "str"}
        place = PAGEABLE if known == {True} else DEVICE if known == {False} else ""
    for atom in c.receiver:
        if isinstance(atom, Path):
            s.heap[atom, mem.LIES] = value(const(place)) if place else UNKNOWN
    return None


def _target(c: CallSite, place: Place) -> Value:
    return c.given.get(place.arg, UNKNOWN)


def place_of(a: Analysis, s: State, c: CallSite, place: Place, row: Row) -> str:
    """Where the memory lies that a call makes; "" where that is not known."""
    if place.kind in ("device", "pinned", "pageable"):
        return place.kind
    if place.kind == "named":
        return _named(a, s, c, row)
    if place.kind == "like":
        named = _named(a, s, c, row, default="")
        if named:
            return named
        found = {mem.place_of(a, s, b) for b in mem.buffers(a, s, library.argument(a, s, c, place.arg))}
        known = found - {""}
        if len(known) == 1:
            (only,) = known
            return PAGEABLE if only == PINNED else only
        return (
            DEVICE if found and not known else ""
        )  # what is like a tensor follows its use: work on a device
    if place.kind == "target":
        found_place = target_place(a, s, c, place)
        return found_place if found_place != UNCHANGED else ""
    return ""


def _named(a: Analysis, s: State, c: CallSite, row: Row, default: str | None = None) -> str:
    """As ``device=`` and ``pin_memory=`` say."""
    pinned = c.given.get("pin_memory", UNKNOWN)
    if "pin_memory" in c.given and pinned != value(FALSE):
        return PINNED
    device = c.given.get("device", UNKNOWN)
    given = "device" in c.given and device != value(NONE)
    if not given:
        if default is not None:
            return default
        return DEVICE if row.library == "cupy" else PAGEABLE
    if _defaults_to_cpu(a, s, device):
        return ""
    return device_place(a, s, device)


def _of_device(atom: Atom) -> Atom | None:
    """The memory whose device an atom is: ``x.device``."""
    if isinstance(atom, Path) and atom.fields[-1:] == ("device",):
        return path(atom.root, *atom.fields[:-1])
    if isinstance(atom, Bound) and atom.name == "device" and len(atom.owner) == 1:
        return next(iter(atom.owner))
    return None


def _defaults_to_cpu(a: Analysis, s: State, device: Value) -> bool:
    """Whether a device is a parameter that is the CPU unless a caller says otherwise."""
    defaults = {p.name: p.default for p in a.fn.params if p.has_default and isinstance(p.default, str)}
    return any(
        isinstance(atom, Path)
        and not atom.fields
        and defaults.get(atom.root) == "cpu"
        and Literal(IS_CPU, device_of(atom), None, False) not in s.guard
        for atom in device
    )


def device_place(a: Analysis, s: State, device: Value) -> str:
    """Where memory on a device lies; "" of what may be the host or an accelerator.

    A device that is not known is taken to be an accelerator.
    """
    on_host = {_is_host(a, s, atom) for atom in device}
    if len(on_host) > 1:
        return ""
    return PAGEABLE if True in on_host else DEVICE


def _is_host(a: Analysis, s: State, device: Atom) -> bool:
    owner = _of_device(device)
    if owner is not None and mem.place_of(a, s, owner) in HOST_PLACES:
        return True
    if isinstance(device, Const) and isinstance(device.value, str):
        return device.value.partition(":")[0] in ("cpu", "meta")
    return Literal(IS_CPU, device_of(device), None, True) in s.guard


def lies_on(a: Analysis, s: State, made: New, device: Value) -> None:
    """Memory is made on a device that a path names: where it turns out to be the host, the memory lies there."""
    if len(device) == 1 and s.places.get(made) == DEVICE:
        (atom,) = device
        if isinstance(atom, Path) and a.role(atom) in ("", "device"):
            s.heap[made, mem.ON] = value(device_of(atom))


def target_place(a: Analysis, s: State, c: CallSite, place: Place) -> str:
    """Where ``x.to(target)`` goes: a device, the place of another tensor, or no other place (a dtype)."""
    device = _target(c, place)
    if place.arg not in c.given or not device:
        return UNCHANGED if place.arg not in c.given else ""
    for atom in ordered(device):
        if isinstance(atom, Library):
            return UNCHANGED
        if isinstance(atom, New) and a.role(atom) == "tensor":
            return mem.place_of(a, s, atom)
        if isinstance(atom, Path) and a.role(atom) == "tensor":
            return mem.place_of(a, s, atom)
        if atom is NONE:
            return UNCHANGED
    return device_place(a, s, device)


def _copy(a: Analysis, s: State, c: CallSite, row: Row) -> Value:
    copy = row.copy
    assert copy is not None
    span = a.span(c.at)
    stream = library.stream_of(a, s, c, row.stream) if row.stream != "current" else s.current
    sources = mem.buffers(a, s, library.argument(a, s, c, copy.source))
    nonblocking = asynchronous(s, c, row)
    kind = "cupy.ndarray" if row.library == "cupy" else ""
    result = UNKNOWN
    if copy.destination == "result":
        where = _destination(a, s, c, row)
        if where == UNCHANGED:
            return _converted(a, s, c, sources, span, stream, kind)
        if where in HOST_PLACES and _stays(a, s, c, sources):
            return c.receiver
        if (
            where == PAGEABLE
            and nonblocking
            and (_from_device(a, s, sources) or _of_unseen(c, copy, sources))
        ):
            where = PINNED  # TM-05
        made = mem.allocate(a, s, span, kind or a.engine.tensor_type, where)
        if row.result.place is not None and row.result.place.kind == "target":
            lies_on(a, s, made, _target(c, row.result.place))
        destinations: list[Atom | None] = [made]
        result = value(made)
    elif copy.destination != "self" and c.given.get(copy.destination, value(NONE)) == value(NONE):
        made = mem.allocate(a, s, span, "numpy.ndarray", PAGEABLE)  # a new array of the host's
        destinations = [made]
        result = value(made)
        nonblocking = False
    else:
        destinations = [*mem.buffers(a, s, library.argument(a, s, c, copy.destination))]
        result = library.argument(a, s, c, row.result.arg) if row.result.arg else UNKNOWN
    if nonblocking and copy.flag and c.given.get(copy.flag) == value(TRUE):
        _advise(a, s, c, span, sources, destinations)
    for destination in destinations or [None]:
        _move(a, s, c, row, span, stream, sources, destination, nonblocking)
    return result


def _stays(a: Analysis, s: State, c: CallSite, sources: list[Atom]) -> bool:
    """Whether ``x.to("cpu")`` is ``x`` itself: it lies on the host, and is asked for as it is."""
    changed = "dtype" in c.given or c.given.get("copy", value(FALSE)) != value(FALSE)
    on_host = bool(sources) and not _from_device(a, s, sources)
    return bool(c.receiver) and on_host and not changed


def _advise(
    a: Analysis, s: State, c: CallSite, span: Span, sources: list[Atom], destinations: list[Atom | None]
) -> None:
    """A copy that is asked not to block, and does all the same: from pageable memory, or of what was pinned for it."""
    places = {mem.place_of(a, s, each) for each in destinations if each is not None}
    if not sources or places & {PINNED, PAGEABLE}:
        return
    if all(mem.place_of(a, s, source) == PAGEABLE for source in sources):
        a.violation("pageable-non-blocking", span, c.operation, s.guard)
    elif all((source, PINNED_FOR) in s.heap and not mem.is_named(s, value(source)) for source in sources):
        a.violation("pin-memory-then-copy", span, c.operation, s.guard)


PINNED_FOR: Final = "pinned copy"
"""The field of memory that ``pin_memory()`` has made."""


@special("pin_memory")
def pin_memory(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``x.pin_memory()``: another thread's capture in the global mode does not survive it (GM-thr_ev_query)."""
    assert c.row is not None
    result = library.effects(a, s, c, c.row)
    s.work = s.work | {HostWork("", "pins memory", a.span(c.at), s.guard, a.block)}
    for atom in result:
        if isinstance(atom, New):
            s.heap[atom, PINNED_FOR] = value(TRUE)
    return result


@special("from_numpy")
def from_numpy(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``torch.from_numpy(x)``: an array of NumPy lies in the memory of the host; who pinned it is seen."""
    data = c.given.get("data", UNKNOWN)
    buffers = mem.buffers(a, s, data)
    for buffer in buffers:
        if not mem.place_of(a, s, buffer):
            s.places[buffer] = PAGEABLE
    if not buffers:
        return value(mem.allocate(a, s, a.span(c.at), a.engine.tensor_type, PAGEABLE))
    found: set[Atom] = set()
    for atom in data:
        if isinstance(atom, Array):
            found |= atom.of  # it was a tensor before
        elif isinstance(atom, New):
            found.add(array(value(atom), a.engine.tensor_type))
        else:
            found.add(atom)
    return frozenset(found)


def _from_device(a: Analysis, s: State, sources: list[Atom]) -> bool:
    return any(mem.place_of(a, s, b) not in HOST_PLACES for b in sources)


def _of_unseen(c: CallSite, copy: Copy, sources: list[Atom]) -> bool:
    """Whether what is copied was made where it is not seen, and the program asks not to wait: it lies on the device."""
    return not sources and not c.receiver and bool(copy.flag) and c.given.get(copy.flag) == value(TRUE)


def _destination(a: Analysis, s: State, c: CallSite, row: Row) -> str:
    place = row.result.place
    if place is None:
        return ""
    if place.kind == "target":
        return target_place(a, s, c, place)
    return place_of(a, s, c, place, row)


def _converted(
    a: Analysis, s: State, c: CallSite, sources: list[Atom], span: Span, stream: Atom, kind: str
) -> Value:
    """``x.to(dtype)``: new memory at the same place, or the same memory."""
    place = ""
    for buffer in sources:
        place = mem.place_of(a, s, buffer)
        if place in HOST_PLACES:
            return c.receiver
        weak = 0 if place or a.role(buffer) == "tensor" else tag.WEAK
        mem.read_one(a, s, span, buffer, stream, c.operation, weak)
    return mem.result(a, s, span, c.operation, place or DEVICE, kind=kind) if sources else UNKNOWN


def _move(
    a: Analysis,
    s: State,
    c: CallSite,
    row: Row,
    span: Span,
    stream: Atom,
    sources: list[Atom],
    destination: Atom | None,
    nonblocking: bool,
) -> None:
    """One copy between memory whose places may be known."""
    to = mem.place_of(a, s, destination) if destination is not None else ""
    places = {mem.place_of(a, s, buffer) for buffer in sources}
    on_host = bool(places) and places <= {PINNED, PAGEABLE}
    if on_host and to in HOST_PLACES and destination is not None:
        for buffer in sources:
            mem.touch(a, s, span, buffer, False, HOST, c.operation)
        mem.touch(a, s, span, destination, True, HOST, c.operation)
        return
    if to in HOST_PLACES and destination is not None:
        _to_host(a, s, c, span, stream, sources, destination, to, nonblocking)
        return
    if (
        not to
        and not nonblocking
        and isinstance(destination, Path)
        and any(mem.place_of(a, s, b) == DEVICE for b in sources)
    ):
        host = frozenset(each.negated() for each in asks.on_device(destination))
        a.host_work(s, span, c.operation, guard=host)
    for buffer in sources:
        place = mem.place_of(a, s, buffer)
        if place == PINNED and nonblocking and is_scattered(s.parts.get(buffer, WHOLE)):
            mem.touch(a, s, span, buffer, False, HOST, c.operation)  # copied on the host first (TM-16)
        elif place == PINNED:
            mem.touch(a, s, span, buffer, False, stream, c.operation, tag.H2D if nonblocking else 0)
        elif place == PAGEABLE:
            mem.touch(a, s, span, buffer, False, HOST, c.operation)
        elif nonblocking and to == DEVICE:
            mem.touch(a, s, span, buffer, False, stream, c.operation, tag.H2D | _unsure(a, s, buffer))
        else:
            mem.touch(a, s, span, buffer, False, stream, c.operation, _unsure(a, s, buffer))
    if destination is not None:
        if not to and not isinstance(destination, New) and nonblocking and not on_host:
            tags = tag.D2H | tag.PLACE_UNKNOWN if DEVICE in places else 0
            mem.touch(a, s, span, destination, True, stream, c.operation, tags)
        else:
            allocation = (
                tag.ALLOCATION
                if isinstance(destination, New) and row.copy and row.copy.destination == "result"
                else 0
            )
            mem.touch(a, s, span, destination, True, stream, c.operation, allocation)
    if places & {PINNED, PAGEABLE} and (not nonblocking or PAGEABLE in places):
        a.host_work(s, span, "a copy from the host's memory")
        if not nonblocking:
            mem.host_waits(a, s, span, stream)


@special("from_host")
def from_host(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``torch.tensor([1, 2], device="cuda")``: pageable memory of the host is copied, and the host waits."""
    row = c.row
    data = c.given.get(row.params[0], UNKNOWN) if row is not None and row.params else UNKNOWN
    if row is None or not (_is_plain(a, s, data) or (row.copy is None and _may_be_plain(a, s, data))):
        return None
    where = (
        _destination(a, s, c, row)
        if row.copy is not None
        else place_of(a, s, c, row.result.place or _NAMED, row)
    )
    if where != DEVICE:
        return None
    span = a.span(c.at)
    a.host_work(s, span, "a copy from the host's memory")
    result = library.effects(a, s, c, row) if row.copy is None else _copy(a, s, c, row)
    mem.host_waits(a, s, span, s.current)
    return result


def _is_plain(a: Analysis, s: State, data: Value) -> bool:
    """Whether data is numbers of the host, or a container of them."""
    plain = bool(data) and all(
        isinstance(atom, Const | Tuple) or (isinstance(atom, New) and a.role(atom) == "container")
        for atom in data
    )
    return plain and not mem.buffers(a, s, data)


def _may_be_plain(a: Analysis, s: State, data: Value) -> bool:
    """Whether nothing shows data to be a tensor: ``torch.tensor`` is made for what is none, and warns of others."""
    return not any(a.role(atom) == "tensor" for atom in (*data, *mem.buffers(a, s, data)))


_NAMED: Final = Place("named")


def _unsure(a: Analysis, s: State, buffer: Atom) -> int:
    if isinstance(buffer, New) and buffer.kind is not MAYBE:
        return 0
    if mem.place_of(a, s, buffer) == DEVICE:
        return 0
    return tag.UNKNOWN_SOURCE if a.role(buffer) == "tensor" else tag.UNKNOWN_SOURCE | tag.WEAK


def _to_host(
    a: Analysis,
    s: State,
    c: CallSite,
    span: Span,
    stream: Atom,
    sources: list[Atom],
    destination: Atom,
    to: str,
    nonblocking: bool,
) -> None:
    """A copy from the device; one that the host does not wait for leaves its destination pending."""
    for buffer in sources:
        if mem.place_of(a, s, buffer) in HOST_PLACES:
            mem.touch(a, s, span, buffer, False, HOST, c.operation)
        else:
            mem.touch(a, s, span, buffer, False, stream, c.operation, _unsure(a, s, buffer) & tag.WEAK)
    if nonblocking and to == PINNED:
        guard = ALWAYS
        if len(sources) == 1 and isinstance(sources[0], Path) and not mem.place_of(a, s, sources[0]):
            guard = asks.on_device(sources[0])  # what lies on the host is not copied from the device
        tags = tag.D2H if sources else tag.D2H | tag.ON_SOME_PATH
        mem.touch(a, s, span, destination, True, stream, c.operation, tags, guard)
        return
    if not nonblocking or to == PAGEABLE:
        if any(mem.place_of(a, s, b) == DEVICE for b in sources):
            a.host_work(s, span, c.operation)
        if to == PINNED and sources and not any(mem.place_of(a, s, b) for b in sources):
            # a write of the host where the source lies there; a copy from the device comes after what its stream does
            mem.touch(a, s, span, destination, True, HOST, c.operation, tag.ON_SOME_PATH)
        if sources:
            mem.host_waits(a, s, span, stream)
    mem.touch(a, s, span, destination, True, HOST, c.operation)


__all__ = ["FALSE", "streams"]
