"""The end of a function: what is released, what callers can see, and the partitions that return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from streamsafe.static.domain import access as tag
from streamsafe.static.domain import limits
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.access import access as touch
from streamsafe.static.domain.atoms import (
    CAPTURING,
    CURRENT,
    GRADIENTS,
    HOST,
    MAYBE,
    Array,
    Atom,
    Capture,
    Context,
    Function,
    New,
    Path,
    Pool,
    Tuple,
    Value,
    ordered,
    path,
    pool,
    rank,
    ranks,
)
from streamsafe.static.domain.capturing import BRANCH, FORK
from streamsafe.static.domain.extents import WHOLE, lasting
from streamsafe.static.domain.guards import IS_CPU, Guard
from streamsafe.static.domain.order import Ways, antichain, memory
from streamsafe.static.domain.places import EACH, PINNED, is_element, joined_place
from streamsafe.static.domain.state import State, joined
from streamsafe.static.domain.timing import LAUNCHES
from streamsafe.static.domain.values import reachable
from streamsafe.static.summary.model import Exit, Summary
from streamsafe.static.transfer import captures, pools, replays, returned, rounds
from streamsafe.static.transfer import memory as mem

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

MARKERS = frozenset((GRADIENTS, LAUNCHES, FORK, BRANCH))
"""Buffers that every function shares."""

_MOST_RETURNS = 24

Fields = dict[Atom, list[tuple[str, Value]]]
"""Object -> what its fields hold."""


def summarise(a: Analysis) -> Summary:
    """The summary of a function whose states have settled."""
    captures.report_cold(a)
    found: list[Exit] = []
    for s, result, at in a.returned[:_MOST_RETURNS]:
        a.return_span = a.span(at)
        returned.calls_again(a, s, result, at)
        found.append(_exit(a, s, result))
    kept = _merged(found, lambda exit: exit.guard)
    if len(kept) > limits.EXITS:
        kept = _merged(found, _deciding)
    if len(kept) > limits.EXITS:
        a.notes.add("exits dropped")
        kept = kept[: limits.EXITS]
    notes = tuple(sorted(a.notes))
    pairs = tuple(pair._replace(tags=pair.tags | a.budget()) for pair in a.pairs.values())
    return Summary(a.fn.fid, tuple(kept), pairs, a.yielded, notes, _made(kept))


def is_open(exit: Exit) -> bool:
    """Whether what comes after a function may race with what it did: it leaves more than order and work in order."""
    if exit.current is not CURRENT or exit.capture is not None or exit.ended is not None or exit.begins:
        return True
    if exit.graphs or exit.replays or exit.threads or exit.needed or exit.rebound:
        return True
    if any(map(tag.concerns, exit.accesses)) or PINNED in exit.places.values():
        return True
    kept = (exit.result, *exit.heap.values())
    return any(isinstance(atom, Capture | Context) for atom in reachable(kept))


def open_fields(exit: Exit) -> set[str]:
    """The names of the attributes through which other methods of a class get at what may race with it."""
    racing: set[Atom] = {access.buffer for access in exit.accesses if tag.concerns(access)}
    racing.update(atom for atom, place in exit.places.items() if place == PINNED)
    racing.update(exit.graphs, exit.threads)
    racing.update(atom for atom, _ in exit.rebound | exit.replays)
    names = {field for atom in racing if isinstance(atom, Path) for field in atom.fields}
    for (owner, field), held in exit.heap.items():
        atoms = reachable((held,))
        if not racing.isdisjoint(atoms) or any(isinstance(a, Capture | Context | Function) for a in atoms):
            names.add(field)
            if isinstance(owner, Path):
                names.update(owner.fields)
    return names


def _made(exits: list[Exit]) -> tuple[New, ...]:
    """The objects that a function makes and that its callers see, but for those that calls no longer keep apart."""
    found: set[Atom] = set()
    for exit in exits:
        found |= reachable([exit.result, *exit.heap.values()])
        found.update(access.buffer for access in exit.accesses)
    made = [atom for atom in found if isinstance(atom, New) and not atom.age]
    return tuple(sorted((atom for atom in made if len(atom.calls) < limits.CALLS), key=rank))


def _merged(exits: list[Exit], guard: Callable[[Exit], Guard]) -> list[Exit]:
    """Exits with equal relation, current stream, result and guard are one."""
    merged: dict[object, Exit] = {}
    for exit in exits:
        key = (frozenset(exit.knows.items()), exit.current, guard(exit), exit.result, exit.capture)
        known = merged.get(key)
        merged[key] = exit if known is None else _joined(known, exit)
    return list(merged.values())


def _deciding(exit: Exit) -> Guard:
    """The literals that keep partitions apart: on devices and captures."""
    return frozenset(literal for literal in exit.guard if literal.kind == IS_CPU or literal.atom is CAPTURING)


def _exit(a: Analysis, s: State, result: Value) -> Exit:
    rounds.end(a, s)
    if s.capturing.overlaid:
        pools.uses(a, s, replays.graphs(a, s), result)
    _leaves(a, s, result)
    _release(a, s, result)
    _siblings(a, s)
    stored: list[tuple[Path, str, Value]] = [
        (owner, EACH if field == "[]" else field, held)
        for (owner, field), held in s.heap.items()
        if isinstance(owner, Path)
    ]
    _mark_replaced(a, s, stored)
    fields: Fields = {}
    for (holder, field), held in s.heap.items():
        fields.setdefault(holder, []).append((field, held))
    for owner, field, held in stored:
        _publish(a, s, fields, path(owner.root, *owner.fields, field), held)
    live = _live(s, result)
    s.capturing.rebound = s.capturing.rebound | replays.outlived(a, s, live)
    graphs, rebound = replays.published(s)
    read = live.union(*s.timing.elapsed)
    accesses = {
        access: s.order.ways[token]
        for table in s.order.made.values()
        for access, token in table.items()
        if isinstance(access.buffer, Path | Pool) or access.buffer in MARKERS or access.buffer in live
    }
    accesses = _one_of_each(_in_all_calls(s, accesses))
    if len(accesses) > limits.ACCESSES:
        a.notes.add("accesses dropped")
        accesses = dict(sorted(accesses.items(), key=_importance)[: limits.ACCESSES])
    if a.budget():
        accesses = {one.replace(tags=one.tags | a.budget()): ways for one, ways in accesses.items()}
    return Exit(
        guard=s.guard,
        knows={
            carrier: known for carrier, known in s.order.knows.items() if _visible(carrier, live, accesses)
        },
        accesses=accesses,
        heap=_stored(a, s, live, result),
        places={atom: place for atom, place in s.places.items() if atom in live},
        homes={atom: home for atom, home in s.homes.items() if atom in live},
        result=result,
        current=s.current,
        waits=s.waits,
        cells={event: cell for event, cell in s.cells.items() if event in live or isinstance(event, Path)},
        recorded=s.recorded,
        work=frozenset(work._replace(open=a.is_conditional(work.block)) for work in s.work),
        waited={access: a.waits_before(access) for access in accesses} if s.waits else {},
        clocks={atom: clock for atom, clock in s.timing.clocks.items() if atom in read},
        late=frozenset(late for late in s.timing.late if late.now in read),
        elapsed=s.timing.elapsed,
        capture=s.capture,
        ended=s.capturing.ended,
        begins=s.capturing.begins,
        threads=dict(s.capturing.threads),
        graphs=graphs,
        rebound=rebound,
        replays=s.capturing.replays,
        stored=s.capturing.stored,
        needed=s.capturing.needed,
    )


def _leaves(a: Analysis, s: State, result: Value) -> None:
    """A NumPy view leaves the function while a copy to its memory is pending: who reads it cannot know.

    Not so where an event that was recorded after the copy, or its stream, leaves with it or is kept beside it.
    """
    made = frozenset(atom for atom in result if not isinstance(atom, Path))
    found = mem.held_by(s, (made,)) | reachable((result,))
    arrays = [atom for atom in found if isinstance(atom, Array)]
    for atom in sorted(arrays, key=rank):
        for buffer in mem.buffers(a, s, atom.of):
            for copy in list(s.order.near(buffer)):
                if copy.buffer is not buffer or not copy.tags & tag.D2H or copy.tags & tag.PLACE_UNKNOWN:
                    continue
                for way in s.order.ways_of(copy):
                    with_it = HOST in way or any(
                        c in found or (isinstance(c, Path) and a.role(c) == "event") for c in way
                    )
                    if not with_it:
                        before = s.order.before(HOST)
                        read = touch(buffer, False, HOST, a.return_span, before, tag.LEAVES, s.guard, "numpy")
                        a.pair(copy, read, s.waits)
                        break


def _in_all_calls(s: State, accesses: dict[Access, Ways]) -> dict[Access, Ways]:
    """Accesses with what of their extents means the same to every caller."""
    if not any(access.extent for access in accesses):
        return accesses
    found: dict[Access, Ways] = {}
    for access, ways in accesses.items():
        extent = WHOLE if access.buffer in s.blurred else lasting(access.extent)
        one = access if extent == access.extent else access.replace(extent=extent)
        known = found.get(one)
        found[one] = ways if known is None else antichain(known | ways) if known and ways else known or ways
    return found


def _one_of_each(accesses: dict[Access, Ways]) -> dict[Access, Ways]:
    """Of accesses that are equal but for their site, the first read and the last write."""
    found: dict[tuple[object, ...], Access] = {}
    for access, ways in accesses.items():
        kind = (access.buffer, access.extent, access.writes, access.stream, access.tags)
        key = (*kind, access.before, access.guard, ways)
        known = found.get(key)
        if known is None or (access.span < known.span) is not access.writes:
            found[key] = access
    if len(found) == len(accesses):
        return accesses
    return {access: accesses[access] for access in found.values()}


def _visible(carrier: Atom, live: set[Atom], accesses: Iterable[Access]) -> bool:
    """Whether a row of the relation can matter to a caller: an event that nobody can reach is gone."""
    return not isinstance(carrier, New) or carrier in live or carrier.kind != "torch.cuda.Event"


def _live(s: State, result: Value) -> set[Atom]:
    """The objects that a caller can reach: the result, and what is stored at its own objects."""
    return mem.held_by(s, [result, *mem.held_at_paths(s)])


def _stored(a: Analysis, s: State, live: set[Atom], result: Value) -> dict[tuple[Atom, str], Value]:
    """What callers can see of the heap: first the fields of what they know or get, then what these hold, and so on."""
    seen = {key: held for key, held in s.heap.items() if isinstance(key[0], Path) or key[0] in live}
    if len(seen) <= limits.STORED:
        return seen
    a.notes.add("fields dropped")
    fields: Fields = {}
    for (owner, field), held in seen.items():
        fields.setdefault(owner, []).append((field, held))
    kept: dict[tuple[Atom, str], Value] = {}
    level = [owner for owner in fields if isinstance(owner, Path) or owner in result]
    reached = set(level)
    while level:
        held_there: list[Atom] = []
        for owner in level:
            if len(kept) + len(fields[owner]) > limits.STORED:
                continue
            for field, held in fields[owner]:
                kept[owner, field] = held
                held_there += [atom for atom in ordered(held) if atom in fields and atom not in reached]
            reached.update(held_there)
        level = list(dict.fromkeys(held_there))
    return kept


def _importance(item: tuple[Access, Ways]) -> tuple[object, ...]:
    access, _ = item
    return (
        not isinstance(access.buffer, Path),
        bool(access.tags & tag.WEAK),
        access.stream is CURRENT,
        access.sort_key(),
    )


def _of_each(recorded: frozenset[tuple[Atom, Atom]]) -> frozenset[tuple[Atom, Atom]]:
    """Records of the elements of a container: a loop without a round has no element that lacks its record."""
    return frozenset(
        (buffer, stream)
        for buffer, stream in recorded
        if isinstance(buffer, Path) and buffer.fields and is_element(buffer.fields[-1])
    )


def _joined(one: Exit, other: Exit) -> Exit:
    accesses = dict(one.accesses)
    for access, ways in other.accesses.items():
        known = accesses.get(access)
        accesses[access] = (
            ways if known is None else antichain(known | ways) if known and ways else known or ways
        )
    return Exit(
        guard=one.guard & other.guard,
        knows=one.knows,
        accesses=accesses,
        heap={**one.heap, **other.heap},
        places=joined(one.places, other.places, joined_place),
        homes={**one.homes, **other.homes},
        result=one.result,
        current=one.current,
        waits=one.waits | other.waits,
        cells={**one.cells, **other.cells},
        recorded=one.recorded & other.recorded | _of_each(one.recorded ^ other.recorded),
        work=one.work | other.work,
        waited={**one.waited, **other.waited},
        clocks={**one.clocks, **other.clocks},
        late=one.late | other.late,
        elapsed=one.elapsed | other.elapsed,
        capture=one.capture,
        ended=one.ended or other.ended,
        begins=one.begins | other.begins,
        threads={**one.threads, **other.threads},
        graphs=joined(one.graphs, other.graphs, lambda first, graph: graph.joined(first)),
        rebound=one.rebound | other.rebound,
        replays=one.replays | other.replays,
        stored={**one.stored, **other.stored},
        needed=one.needed | other.needed,
    )


def _release(a: Analysis, s: State, result: Value) -> None:
    """What nobody keeps is given back to its allocation stream's pool at the end of the function."""
    candidates = [buffer for buffer in s.homes if isinstance(buffer, New) and mem.used_elsewhere(s, buffer)]
    if candidates:
        live = _live(s, result)
        for buffer in candidates:
            if buffer not in live:
                mem.release(a, s, buffer)


def _siblings(a: Analysis, s: State) -> None:
    """Of an object's tensors some are recorded on a stream: the others that are used there are released with it.

    The fields of ``self`` live as long as it does.
    """
    for recorded, stream in sorted(s.recorded, key=ranks):
        if stream is CURRENT or not isinstance(recorded, Path) or not recorded.fields:
            continue
        owner = recorded.fields[:-1]
        if recorded.root == a.self_root and not owner:
            continue
        for use in list(s.order.accesses()):
            at = use.buffer
            if (
                not isinstance(at, Path)
                or at.root != recorded.root
                or not at.fields
                or at.fields[:-1] != owner
            ):
                continue
            if at is recorded or use.stream is not stream or use.tags & (mem.UNSURE | tag.RECORDED | tag.H2D):
                continue
            if a.role(at) == "tensor" and any(CURRENT not in way for way in s.order.ways_of(use)):
                before = s.order.before(CURRENT)
                after = touch(
                    pool(CURRENT), True, CURRENT, use.span, before, 0, s.guard, "the next allocation"
                )
                a.reuse(use, after, s, tag.LEAVES)


def _mark_replaced(a: Analysis, s: State, stored: list[tuple[Path, str, Value]]) -> None:
    """What lay at a path that is stored to is gone when the function ends: tag its accesses."""
    for owner, field, _ in stored:
        if field.startswith("["):
            continue
        at = path(owner.root, *owner.fields, field)
        depth = len(at.fields)
        table = s.order.made.get(memory(at))
        for access in list(table or ()):
            below = isinstance(access.buffer, Path) and access.buffer.fields[:depth] == at.fields
            if below and not access.tags & (tag.REPLACED | tag.STORED):
                ways = s.order.ways_of(access)
                s.order.drop(access)
                replaced = access.replace(tags=access.tags | tag.REPLACED)
                s.order.put(replaced, ways)
                a.remember_waits(replaced, a.waits_before(access))


def _publish(a: Analysis, s: State, fields: Fields, at: Path, held: Value) -> None:
    """What is stored at a path is known under the path, too: the accesses to it and to what it holds."""
    if len(at.fields) > limits.FIELDS:
        return
    for atom in ordered(held):
        if isinstance(atom, Tuple):
            for number, item in enumerate(atom.items):
                _publish(a, s, fields, path(at.root, *at.fields, f"[{number}]"), item)
        if isinstance(atom, Path) and atom.root != at.root and not atom.fields:
            _copy_parameter(a, s, atom, at)
        if not isinstance(atom, New):
            continue
        role = a.role(atom)
        if role in ("stream", "event", "work"):
            s.order.learn(at, atom, forget=EACH not in at.fields)  # from here on the path names this one, too
            if atom in s.cells:
                s.cells[at] = s.cells[atom]
            _copy_accesses(a, s, atom, at)
            continue
        if role in ("tensor", "container") or atom.kind is MAYBE:
            for buffer in mem.buffers(a, s, frozenset((atom,))):
                if isinstance(buffer, New):
                    whole = buffer is atom or len(at.fields) >= limits.FIELDS
                    _copy_accesses(a, s, buffer, at if whole else path(at.root, *at.fields, EACH))
        elif role == "object":
            for field, inner in fields.get(atom, ()):
                _publish(a, s, fields, path(at.root, *at.fields, field), inner)


def _copy_parameter(a: Analysis, s: State, parameter: Path, at: Path) -> None:
    """A parameter is kept at a path: who finds it there comes after what goes on with it, on other streams."""
    for access in list(s.order.accesses()):
        buffer = access.buffer
        if isinstance(buffer, Path) and buffer.root == parameter.root and tag.concerns(access):
            fields = (*at.fields, *buffer.fields)
            if len(fields) <= limits.FIELDS and not access.tags & tag.STORED:
                stored = access.replace(buffer=path(at.root, *fields), tags=access.tags | tag.STORED)
                s.order.put(stored, s.order.ways_of(access))
                a.remember_waits(stored, a.waits_before(access))


def _copy_accesses(a: Analysis, s: State, buffer: Atom, at: Path) -> None:
    for access, token in list(s.order.made.get(buffer, {}).items()):
        stored = access.replace(buffer=at, tags=access.tags | tag.STORED)
        s.order.put(stored, s.order.ways[token])
        a.remember_waits(stored, a.waits_before(access))
