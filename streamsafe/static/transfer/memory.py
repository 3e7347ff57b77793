"""Accesses to memory: on a stream, by the host; allocation, and the end of a block's life."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from streamsafe.order.hazard import Span
from streamsafe.static.domain import access as tag
from streamsafe.static.domain import limits
from streamsafe.static.domain.access import Access, access
from streamsafe.static.domain.atoms import (
    CURRENT,
    DEFAULT,
    GRADIENTS,
    HOST,
    MAYBE,
    NONE,
    UNKNOWN,
    Array,
    Atom,
    Const,
    New,
    Path,
    Pool,
    Tuple,
    Value,
    new,
    ordered,
    path,
    pool,
    rank,
    value,
)
from streamsafe.static.domain.extents import TURNED, WHOLE, apart
from streamsafe.static.domain.guards import ALWAYS, IS_CPU, IS_NONE, Guard, Literal, contradicts, decided
from streamsafe.static.domain.order import ORDERED, memory
from streamsafe.static.domain.places import (
    DEVICE,
    EACH,
    MEMBERS,
    PAGEABLE,
    PINNED,
    can_meet,
    is_blocking,
    overlap,
    same_queue,
)
from streamsafe.static.domain.state import State, names_streams
from streamsafe.static.domain.values import reachable

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

UNSURE = tag.UNSEEN_CALL | tag.WEAK | tag.METHOD_CALL
"""Accesses that no lifetime is judged by."""


# -- what a value touches ---------------------------------------------------------------------------------------------


def buffers(a: Analysis, s: State, values: Value, depth: int = limits.ELEMENTS) -> list[Atom]:
    """The memory that a value is, or holds in containers."""
    out: list[Atom] = []
    for atom in values if len(values) < 2 else ordered(values):
        if isinstance(atom, New):
            role = a.role(atom)
            if role == "tensor":
                out.append(atom)
            elif role == "container" and depth:
                out.extend(_elements(a, s, atom, depth))
            elif atom.kind is MAYBE:
                out.append(atom)
        elif isinstance(atom, Path):
            if _may_be_memory(a, s, atom):
                out.append(atom)
        elif isinstance(atom, Tuple):
            if depth:
                for item in atom.items:
                    out.extend(buffers(a, s, item, depth - 1))
        elif isinstance(atom, Array):
            out.extend(buffers(a, s, atom.of, depth))
        elif atom is GRADIENTS:
            out.append(atom)
    return out


def kept_in(a: Analysis, s: State, values: Value) -> Value:
    """A value, and the memory that objects of it hold in their fields."""
    if not any(isinstance(atom, New) and a.role(atom) in ("object", "container", "other") for atom in values):
        return values
    more = held_by(s, [values])
    return values | frozenset(
        atom for atom in more if isinstance(atom, New | Path) and a.role(atom) == "tensor"
    )


def _elements(a: Analysis, s: State, container: Atom, depth: int) -> Iterable[Atom]:
    for field in s_fields(s, container):
        yield from buffers(a, s, s.heap[container, field], depth - 1)


def s_fields(s: State, owner: Atom) -> list[str]:
    """The fields of an object that the state knows, sorted."""
    return sorted(s.heap.fields(owner))


def _may_be_memory(a: Analysis, s: State, atom: Path) -> bool:
    if s.guard and Literal(IS_NONE, atom, None, True) in s.guard:
        return False
    role = a.role(atom)
    if role or not atom.fields:
        return role in ("", "tensor", "container")
    last = atom.fields[-1]
    if last == "grad" or last.startswith("["):
        return True
    if last in a.engine.models.metadata:
        return False
    return (
        a.role(path(atom.root, *atom.fields[:-1])) != "tensor"
    )  # an attribute of a tensor: its shape, its dtype


def place_of(a: Analysis, s: State, atom: Atom) -> str:
    """Where a buffer lies: device, pinned, pageable, or "" where that is not known."""
    found = s.places.get(atom)
    if found is not None:
        if found == DEVICE and s.guard and any(is_host(s, on) for on in s.heap.get((atom, ON), UNKNOWN)):
            return PAGEABLE
        return found
    if not isinstance(atom, Path):
        return ""
    place = a.fact(atom).place
    return place if place or not atom.fields else _of_moved_module(s, atom)


LIES: Final = "lies"
"""The field of a module that says where its parameters lie: it was moved there."""


def _of_moved_module(s: State, atom: Path) -> str:
    """Where a parameter of a module lies that was moved."""
    for number, step in enumerate(atom.fields):
        if step in MEMBERS:
            (place,) = s.heap.get((path(atom.root, *atom.fields[:number]), LIES)) or (NONE,)
            return place.value if isinstance(place, Const) and place is not NONE else ""
    return ""


ON: Final = "on"
"""The field of memory that names the device on which it was made, as a path."""


def is_host(s: State, device: Atom) -> bool:
    """Whether a device has turned out to be the host."""
    return bool(decided(IS_CPU, None, device)) or Literal(IS_CPU, device, None, True) in s.guard


def on_devices(s: State, buffer: Atom) -> Guard:
    """What must hold for work on some memory to be a device's: that what it was made on is one."""
    return frozenset(
        Literal(IS_CPU, device, None, False)
        for device in s.heap.get((buffer, ON), UNKNOWN)
        if isinstance(device, Path)
    )


# -- accesses ---------------------------------------------------------------------------------------------------------


NO_ACCESSES: dict[Access, int] = {}


def touch(
    a: Analysis,
    s: State,
    span: Span,
    buffer: Atom,
    writes: bool,
    stream: Atom,
    operation: str,
    tags: int = 0,
    guard: Guard = ALWAYS,
) -> None:
    """One access: checked against those before it, then remembered.

    Args:
        guard: what must hold for it, beside what holds here.
    """
    if stream is not HOST:
        if place_of(a, s, buffer) == PAGEABLE:
            return
        launch(s, stream)
        if tags & tag.WEAK and stream is s.current and may_be_tensor(buffer):
            tags |= put_there(stream)
    if s.recorded and is_recorded(s, buffer, stream):
        tags |= tag.RECORDED
    if s.capture is not None:
        tags |= tag.CAPTURED
    if s.capturing.overlaid and not writes:
        from streamsafe.static.transfer import pools, replays

        pools.uses(a, s, replays.graphs(a, s), value(buffer))
    before = s.order.before(stream)
    extent = s.parts.get(buffer, WHOLE) if s.parts else WHOLE
    extent = WHOLE if extent == TURNED else extent
    one = access(buffer, writes, stream, span, before, tags, s.guard | guard, operation, extent)
    check(a, s, one)
    s.order.add(one)
    a.remember_waits(one, s.waits)
    if s.capture is not None and stream is not HOST:
        from streamsafe.static.transfer import captures

        captures.used(a, s, one)
    elif a.engine.timed:
        from streamsafe.static.transfer import timing

        timing.launch(a, s, one)


def may_be_tensor(buffer: Atom) -> bool:
    """Whether what nothing shows to be a tensor is a parameter, or computed from one: attributes are numbers, too."""
    return isinstance(buffer, New) or (isinstance(buffer, Path) and not buffer.fields)


def put_there(stream: Atom) -> int:
    """The tag of what stands under another stream: it is there for the work that it enqueues."""
    return 0 if stream is CURRENT or stream is DEFAULT else tag.PUT_THERE


def launch(s: State, stream: Atom) -> None:
    """The legacy default stream's barrier, where blocking streams are in play."""
    if stream is CURRENT or stream is DEFAULT:
        for other in [carrier for carrier in s.order.knows if is_blocking(carrier)]:
            s.order.learn(stream, other)
    elif is_blocking(stream):
        s.order.learn(stream, CURRENT)
        s.order.learn(stream, DEFAULT)


def check(a: Analysis, s: State, second: Access) -> None:
    """Report the earlier accesses that nothing orders before this one."""
    order = s.order
    found = []
    for first, token in order.made.get(memory(second.buffer), NO_ACCESSES).items():
        if not token or first.stream is second.stream or not (first.writes or second.writes):
            continue
        if not any(second.stream not in way for way in order.ways[token]):
            continue
        if not overlap(first.buffer, second.buffer) or same_queue(first.stream, second.stream):
            continue
        if not can_meet(first.tags, second.tags, second.stream is HOST):
            continue
        if first.extent and second.extent and apart(first.extent, second.extent):
            continue
        if not contradicts(first.guard, second.guard):
            found.append(first)
    for first in found:
        if isinstance(second.buffer, Pool):
            a.reuse(first, second, s)
        else:
            a.pair(first, second, s.waits)
        order.assume_ordered(first, second.stream)


def read(a: Analysis, s: State, span: Span, values: Value, operation: str, tags: int = 0) -> None:
    """The current stream reads whatever memory a value is."""
    for buffer in buffers(a, s, values):
        read_one(a, s, span, buffer, s.current, operation, tags)


def read_one(
    a: Analysis, s: State, span: Span, buffer: Atom, stream: Atom, operation: str, tags: int = 0
) -> None:
    """A stream reads a buffer; one that lies in the host's memory is read by the host."""
    place = place_of(a, s, buffer)
    if place in (PINNED, PAGEABLE):
        touch(a, s, span, buffer, False, HOST, operation, tags & ~tag.WEAK)
    else:
        touch(a, s, span, buffer, False, stream, operation, by_its_processor(s, place, tags))


def by_its_processor(s: State, place: str, tags: int) -> int:
    """The tags of what is done where the memory lies, which may not be known."""
    if place == DEVICE:
        return 0 if tags == tag.WEAK else tags
    return tags if HOST in s.order.knows else tags | tag.WHERE_IT_LIES


def write_one(
    a: Analysis, s: State, span: Span, buffer: Atom, stream: Atom, operation: str, tags: int = 0
) -> None:
    """A stream writes a buffer; one that lies in the host's memory is written by the host."""
    place = place_of(a, s, buffer)
    if place in (PINNED, PAGEABLE):
        touch(a, s, span, buffer, True, HOST, operation, tags & ~tag.WEAK)
    else:
        touch(a, s, span, buffer, True, stream, operation, by_its_processor(s, place, tags))


def host_touch(
    a: Analysis, s: State, span: Span, values: Value, operation: str, writes: bool = False, tags: int = 0
) -> None:
    """The host looks at, or changes, the contents of memory; device memory is copied, which waits for the stream."""
    for buffer in buffers(a, s, values):
        place = place_of(a, s, buffer)
        if place == DEVICE:
            touch(a, s, span, buffer, writes, s.current, operation, tags)
            host_waits(a, s, span, s.current)
        elif place:
            touch(a, s, span, buffer, writes, HOST, operation, tags)
        else:
            touch(a, s, span, buffer, writes, HOST, operation, tags | tag.PLACE_UNKNOWN)


def host_waits(a: Analysis, s: State, span: Span, source: Atom | None) -> None:
    """The host waits for a stream or an event; for all of them where there is none."""
    if source is None:
        s.order.learn_all(HOST)
        return
    if source is CURRENT or source is DEFAULT:
        launch(s, source)
    s.order.learn(HOST, source)


# -- allocation -------------------------------------------------------------------------------------------------------


def allocate(a: Analysis, s: State, span: Span, kind: str, place: str = "", discriminator: int = 0) -> New:
    """A new object at a site. What the site made before becomes *earlier*."""
    where = (span.filename, span.row, span.column + discriminator, (span.end_row, span.end_column))
    atom = new(kind, where)
    age(a, s, [atom])
    a.matters = a.matters or names_streams(atom)
    if place:
        s.places[atom] = place
    if s.capture is not None:
        from streamsafe.static.transfer import replays

        replays.makes(s, atom)
    if a.role(atom) == "tensor":
        s.homes[atom] = s.current
        if place == DEVICE and s.capture is None:
            _take_block(a, s, span, s.current)
    return atom


def _take_block(a: Analysis, s: State, span: Span, stream: Atom) -> None:
    """A block of the stream's pool is handed out: whoever still uses it must come before."""
    blocks = pool(stream)
    launch(s, stream)
    before = s.order.before(stream)
    one = access(
        blocks,
        True,
        stream,
        a.first_allocation(blocks, before, s.guard, span),
        before,
        0,
        s.guard,
        "the next allocation",
    )
    check(a, s, one)
    s.order.put(one, ORDERED)


def age(a: Analysis, s: State, atoms: list[New]) -> None:
    """Sites are about to allocate again: what they made is *earlier* from here on."""
    again = sorted(present(s, atoms), key=rank) if len(atoms) > 1 else present(s, atoms)
    if not again:
        return
    memory_of = [atom for atom in again if a.role(atom) == "tensor" and used_elsewhere(s, atom)]
    if memory_of:
        held = referenced(s)
        for atom in memory_of:
            if atom not in held:
                release(a, s, atom)
    s.rename({atom: new(atom.kind, atom.place, atom.calls, 1) for atom in again})


def present(s: State, atoms: list[New]) -> list[New]:
    """The objects among some that a state knows of."""
    rest = {a for a in atoms if a not in s.places and a not in s.homes and a not in s.cells}
    if not rest:
        return atoms
    held: set[Atom] = set()
    for kept in s.env.values():
        if not rest.isdisjoint(kept):
            held |= kept
    for owner, fields in s.heap.objects():
        held.add(owner)
        for kept in fields.values():
            if not rest.isdisjoint(kept):
                held |= kept
    rest -= held
    return [a for a in atoms if a not in rest]


def used_elsewhere(s: State, atom: Atom) -> bool:
    """Whether a block is used on another stream than its own, in a way that is not known to the host."""
    home = s.homes.get(atom)
    if home is None or s.places.get(atom) != DEVICE:
        return False
    table = s.order.made.get(atom, NO_ACCESSES)
    return any(token and one.stream is not home for one, token in table.items())


def referenced(s: State, *more: Value) -> set[Atom]:
    """The objects that a local, an object or a container still holds, and those of more values."""
    held = [value for reg, value in s.env.items() if isinstance(reg, str)]
    return held_by(s, [*held, *held_at_paths(s), *more])


def held_at_paths(s: State) -> Iterable[Value]:
    """What the fields of a caller's objects hold."""
    for owner, fields in s.heap.objects():
        if isinstance(owner, Path):
            yield from fields.values()


def held_by(s: State, roots: Iterable[Value]) -> set[Atom]:
    """What values hold, directly and through the objects of the heap."""
    found = reachable(roots)
    todo = list(found)
    while todo:
        more = reachable(s.heap.fields(todo.pop()).values()) - found
        found |= more
        todo += more
    return found


def is_named(s: State, held: Value) -> bool:
    """Whether another name or a field still means a value."""
    names = (value for reg, value in s.env.items() if isinstance(reg, str))
    return not held.isdisjoint(reachable([*names, *s.heap.values()]))


def unbind(a: Analysis, s: State, old: Value) -> None:
    """A name or a field no longer holds a value: blocks that nobody else holds are released."""
    gone = [atom for atom in ordered(old) if isinstance(atom, New) and used_elsewhere(s, atom)]
    gone += [
        atom
        for owner in ordered(old)
        if isinstance(owner, New) and a.role(owner) in ("object", "container")
        for atom in ordered(held_by(s, [value(owner)]))
        if isinstance(atom, New) and used_elsewhere(s, atom)
    ]
    if gone:
        held = referenced(s)
        for atom in gone:
            if atom not in held:
                release(a, s, atom)


def record(a: Analysis, s: State, atom: Atom, stream: Atom) -> None:
    """``record_stream``: the block is not handed out before its uses on the stream are done."""
    s.recorded = s.recorded | {(atom, stream)}
    for use in [one for one in s.order.near(atom) if one.stream is stream]:
        if not use.tags & tag.RECORDED and is_recorded(s, use.buffer, stream):
            retag(a, s, use, tag.RECORDED)


def is_recorded(s: State, buffer: Atom, stream: Atom) -> bool:
    """Whether a block, or each element of what is used as a whole, is recorded on a stream."""
    if (buffer, stream) in s.recorded:
        return True
    return isinstance(buffer, Path) and (path(buffer.root, *buffer.fields, EACH), stream) in s.recorded


def retag(a: Analysis, s: State, one: Access, tags: int) -> None:
    """More is known of an access that was made."""
    ways = s.order.ways_of(one)
    after = one.replace(tags=one.tags | tags)
    s.order.drop(one)
    s.order.put(after, ways)
    a.remember_waits(after, a.waits_before(one))


def release(a: Analysis, s: State, atom: Atom) -> None:
    """A block goes back to the pool of its allocation stream, with the uses on other streams that nothing records."""
    home = s.homes.get(atom)
    if home is None or s.places.get(atom) != DEVICE:
        return
    cupy = tag.CUPY if a.type_of(atom).startswith("cupy") else 0
    recorded = frozenset(stream for buffer, stream in s.recorded if buffer is atom)
    for use, token in list(s.order.made.get(atom, NO_ACCESSES).items()):
        if not token or use.stream is home or use.stream is HOST or same_queue(home, use.stream):
            continue
        if use.tags & (UNSURE | tag.RECORDED) or contradicts(use.guard, s.guard):
            continue
        if recorded and not any(way.isdisjoint(recorded) for way in s.order.ways[token]):
            continue  # the allocator waits for a stream that has waited for it (TL-03)
        if use.tags & tag.INITIAL:
            after = access(
                pool(home), True, home, use.span, s.order.before(home), 0, s.guard, "the next allocation"
            )
            if any(home not in way for way in s.order.ways[token]) and not a.unordered_at(use):
                a.remember_release(use, atom)
                a.reuse(use, after, s, tag.LEAVES)
            continue
        pooled = use.replace(buffer=pool(home), writes=False, tags=use.tags | cupy)
        s.order.put(pooled, s.order.ways[token])
        a.remember_release(pooled, atom)


def result(
    a: Analysis, s: State, span: Span, operation: str, place: str = DEVICE, tags: int = 0, kind: str = ""
) -> Value:
    """Fresh memory that the current stream fills; in the host's memory it is the host's."""
    atom = allocate(a, s, span, kind or a.engine.tensor_type, place)
    if place == DEVICE:
        touch(a, s, span, atom, True, s.current, operation, tags | tag.ALLOCATION)
    return value(atom)


LIKE = "like"
"""The field of what may be memory that names the parameters that decide it."""


def maybe(a: Analysis, s: State, span: Span, operation: str, sources: Iterable[Atom]) -> Value:
    """What an operator makes of values that nothing shows to be tensors: memory if they are."""
    roots: set[Atom] = set()
    for atom in sources:
        if not may_be_tensor(atom) or (isinstance(atom, Path) and a.role(atom)):
            return UNKNOWN
        roots |= {atom} if isinstance(atom, Path) else s.heap.get((atom, LIKE), UNKNOWN)
    if not roots or len(roots) > limits.ATOMS:
        return UNKNOWN
    made = allocate(a, s, span, MAYBE)
    s.heap[made, LIKE] = frozenset(roots)
    s.homes[made] = s.current
    touch(a, s, span, made, True, s.current, operation, tag.WEAK | tag.ALLOCATION)
    return value(made)


THROUGH = "through"
"""The field of a tensor that names the modules whose parameters it was computed with."""


STRUCTURE = "structure"
"""The field of what a module that is not seen has given: a tensor, or something that has tensors under names."""

GRAD_FN = "grad_fn"
"""The field of a tensor that names the functions of the tree that a backward pass from it runs."""


def derive(s: State, made: Value, sources: Iterable[Atom], *modules: Atom) -> None:
    """New tensors were computed from others, and by modules: a backward pass from them writes those's gradients."""
    own = (atom if isinstance(atom, Path) else GRADIENTS for atom in modules)  # all, of one without a name
    through = frozenset(own).union(*(s.heap.get((atom, THROUGH), UNKNOWN) for atom in sources))
    if through and len(through) <= limits.ATOMS:
        for atom in ordered(made):
            if isinstance(atom, New):
                s.heap[atom, THROUGH] = through
    devices = {s.heap.get((atom, ON), UNKNOWN) for atom in sources}
    if len(devices) == 1 and UNKNOWN not in devices:
        for atom in ordered(made):
            if isinstance(atom, New):
                s.heap[atom, ON] = next(iter(devices))
    functions = UNKNOWN.union(*(s.heap.get((atom, GRAD_FN), UNKNOWN) for atom in sources))
    if functions and len(functions) <= limits.ATOMS:
        for atom in ordered(made):
            if isinstance(atom, New):
                s.heap[atom, GRAD_FN] = functions


def element(atom: Atom, step: str = EACH) -> Value:
    """An element of what lies at a path; unknown where the path would be too long."""
    if not isinstance(atom, Path) or len(atom.fields) >= limits.FIELDS:
        return UNKNOWN
    return value(path(atom.root, *atom.fields, step))
