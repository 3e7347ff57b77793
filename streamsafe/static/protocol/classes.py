"""A class as a protocol: after ``__init__`` any entry may follow any other, and itself.

A method that other methods of the class call is no entry: it is part of what they do. Of two methods that one function
calls, that function shows the order: what callers do beats any guess. The stream that is current outside is
the same in all entries. Pairs are made of summaries; no method is analysed again. The functions of a module share its
variables in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from streamsafe.order.hazard import Span
from streamsafe.static import confidence
from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import (
    ALL,
    CURRENT,
    DEFAULT,
    HOST,
    Atom,
    New,
    Path,
    Pool,
    Test,
    Value,
    path,
    rank,
)
from streamsafe.static.domain.capturing import Graph
from streamsafe.static.domain.counts import counts
from streamsafe.static.domain.extents import apart
from streamsafe.static.domain.guards import ALWAYS, Guard, contradicts, decided
from streamsafe.static.domain.order import Ways
from streamsafe.static.domain.places import EACH, can_meet, overlap, same_queue
from streamsafe.static.domain.values import reachable
from streamsafe.static.summary.facts import MODULE, SELF
from streamsafe.static.summary.model import Exit, Pair
from streamsafe.static.summary.solve import Engine
from streamsafe.static.transfer import pools
from streamsafe.static.transfer.replays import holds

MOST_PAIRS = 4000
"""Pairs of accesses to one field that are tried."""


_NOTHING: Value = frozenset()

_EVENTS = tag.RECORD | tag.ELAPSED
"""Accesses to events: whoever asks for their time, at some time, may well have waited."""


class Entry(NamedTuple):
    """An access of an entry, with the ways in which it is known when the entry returns."""

    fid: str
    exit: Exit
    access: Access
    ways: Ways
    guard: Guard
    whole: Guard


def of_class(engine: Engine, cid: str) -> Iterator[Pair]:
    """Hazards between two entries of a class."""
    index = engine.index
    entries: dict[str, str] = {}
    for each in reversed(index.mro(cid)):
        entries.update(index.classes[each].methods)
    fids = sorted(
        {fid for name, fid in entries.items() if name != "__init__" and not engine.called_inside(fid, cid)}
    )
    own = set(index.classes[cid].methods.values())
    rebound = engine.facts.rebound(cid)
    yield from _rebound(engine, fids)
    made = index.method(cid, "__init__")
    yield from _pairs(engine, fids, SELF, rebound, own if index.mro(cid)[1:] else None, made)


def _rebound(engine: Engine, fids: list[str]) -> Iterator[Pair]:
    """An entry lets go of an input of a graph that another one replays."""
    exits = {fid: engine.summary(fid).exits for fid in fids}
    replayed: dict[Atom, Span] = {}
    for some in exits.values():
        for exit in some:
            replayed.update(
                (graph, span)
                for graph, span in sorted(exit.replays, key=_by_place)
                if isinstance(graph, Path)
            )
    for some in exits.values():
        for exit in some:
            for graph, span in sorted(exit.rebound, key=_by_place):
                if graph in replayed and not _given_anew(exit, graph):
                    yield _rebinds(span, replayed[graph], ALWAYS)
    yield from _stored_before_replays(exits)
    yield from _overlaid(exits)


def _by_place(each: tuple[Atom, Span]) -> tuple[Span, str]:
    return each[1], rank(each[0])


def _overlaid(exits: dict[str, tuple[Exit, ...]]) -> Iterator[Pair]:
    """An entry replays graphs that another one captures into one pool, and needs what they have overwritten."""
    captured: dict[Atom, Graph] = {}
    for some in exits.values():
        for exit in some:
            captured.update(exit.graphs)
    for some in exits.values():
        for exit in some:
            for over, buffer in sorted(exit.needed, key=lambda each: each[0].span):
                if pools.overlays(captured, over.graph, over.by) and buffer in captured[over.graph].outputs:
                    tags = confidence.ENTRIES
                    yield Pair(
                        "violation",
                        None,
                        None,
                        over.span,
                        guard=exit.guard,
                        tags=tags,
                        violation=pools.NAME,
                        what="replay()",
                    )


def _stored_before_replays(exits: dict[str, tuple[Exit, ...]]) -> Iterator[Pair]:
    """An entry stores something in the place of an input of a graph that another one captures, and replays it."""
    captured: dict[Atom, Graph] = {}
    for some in exits.values():
        for exit in some:
            for graph, used in exit.graphs.items():
                if isinstance(graph, Path):
                    captured[graph] = used.joined(captured.get(graph, used))
    for some in exits.values():
        for exit in some:
            for graph, span in sorted(exit.replays, key=_by_place):
                one = captured.get(graph)
                if one is None or graph in exit.graphs or _given_anew(exit, graph):
                    continue
                for (owner, field), where in sorted(exit.stored.items(), key=lambda each: each[1]):
                    at = path(owner.root, *owner.fields, field) if isinstance(owner, Path) else owner
                    if at in exit.heap.get((owner, field), _NOTHING) or _of_any_key(at, graph):
                        continue
                    if any(holds(at, each) for each in one.inputs):
                        yield _rebinds(where, span, exit.guard)


def _of_any_key(stored: Atom, graph: Atom) -> bool:
    """Whether both are elements under keys that are not known: a graph is kept beside what it uses."""
    return all(isinstance(atom, Path) and EACH in atom.fields for atom in (stored, graph))


def _rebinds(where: Span, replayed: Span, guard: Guard) -> Pair:
    """What an entry lets go of is an input of a graph that is replayed."""
    return Pair(
        "violation",
        None,
        None,
        where,
        guard=guard,
        tags=confidence.ENTRIES,
        violation="rebound-static-input",
        what="rebound",
        notes=(("the graph is replayed here, with what it has captured", replayed),),
    )


def _given_anew(exit: Exit, graph: Atom) -> bool:
    """Whether an entry lets go of the graph itself, too."""
    assert isinstance(graph, Path)
    return (path(graph.root, *graph.fields[:-1]), graph.fields[-1]) in exit.heap


def of_module(engine: Engine, module: str, entries: Set[str]) -> Iterator[Pair]:
    """Hazards between two functions that share a module's variables; ``entries``: those worth a look."""
    fids = sorted(
        definition.fid
        for definition in engine.index.definitions.values()
        if definition.module == module
        and definition.around is None
        and not engine.callers.get(definition.fid)
    )
    variables = MODULE + module
    analysed = [fid for fid in fids if fid in entries]
    if any(fid in engine.mattering and _touches(engine, fid, variables) for fid in analysed):
        yield from _pairs(engine, fids, variables, set(), None)
    for fid in analysed:
        roots = {
            stream.root
            for exit in engine.summary(fid).exits
            for access in exit.accesses
            for stream in (access.buffer.stream if isinstance(access.buffer, Pool) else ())
            if isinstance(stream, Path) and stream.fields and not stream.root.startswith(MODULE)
        }
        for root in sorted(roots):
            yield from _pairs(engine, [fid], root, set(), None)


def _touches(engine: Engine, fid: str, root: str) -> bool:
    """Whether a function touches memory that belongs to some root."""
    return any(
        _key(access.buffer, root) is not None
        for exit in engine.summary(fid).exits
        for access in exit.accesses
    )


def _pairs(
    engine: Engine,
    fids: list[str],
    root: str,
    rebound: set[str],
    own: set[str] | None,
    made: str | None = None,
) -> Iterator[Pair]:
    """Hazards between entries; ``made`` is a constructor, of which only the copies count that it leaves pending."""
    table: dict[object, list[Entry]] = defaultdict(list)
    exits: dict[str, tuple[Exit, ...]] = {}
    for fid in fids:
        summary = engine.summary(fid)
        exits[fid] = summary.exits
        for exit in summary.exits:
            for access, ways in exit.accesses.items():
                key = _key(access.buffer, root) if not access.tags & _EVENTS else None
                if key is not None:
                    whole = access.guard | exit.guard
                    guard = _lasting(whole, root, rebound, access.buffer)
                    table[key].append(Entry(fid, exit, access, ways, guard, whole))
    for exit in engine.summary(made).exits if made is not None else ():
        for access, ways in exit.accesses.items():
            key = _key(access.buffer, root)
            if access.tags & tag.D2H and access.writes and ways and key in table and made is not None:
                whole = access.guard | exit.guard
                guard = _lasting(whole, root, rebound, access.buffer)
                table[key].append(Entry(made, exit, access, ways, guard, whole))
    for key in sorted(table, key=repr):
        accesses = table[key]
        if not any(entry.access.writes for entry in accesses):
            continue
        if len({entry.access.stream for entry in accesses}) < 2:
            continue
        yield from _of_field(engine, accesses, exits, own, made)


def _key(buffer: Atom, root: str) -> object:
    if isinstance(buffer, Path):
        return (root, buffer.fields[0]) if buffer.root == root and buffer.fields else None
    if isinstance(buffer, Pool):
        (stream,) = buffer.stream
        if stream is CURRENT or (isinstance(stream, Path) and stream.root == root):
            return buffer
    return None


def _lasting(guard: Guard, root: str, rebound: set[str], buffer: Atom) -> Guard:
    """The literals that hold in all entries or in none: those on fields that only ``__init__`` assigns.

    Those on the object that holds the memory hold as long as it is the same memory.
    """
    held_by = buffer.fields if isinstance(buffer, Path) else ()
    return frozenset(
        literal
        for literal in guard
        if isinstance(literal.atom, Path)
        and literal.atom.root == root
        and literal.atom.fields
        and (
            literal.atom.fields[0] not in rebound
            or (
                len(literal.atom.fields) > 1
                and held_by[: len(literal.atom.fields) - 1] == literal.atom.fields[:-1]
            )
        )
    )


def _of_field(
    engine: Engine,
    accesses: list[Entry],
    exits: dict[str, tuple[Exit, ...]],
    own: set[str] | None,
    made: str | None,
) -> Iterator[Pair]:
    seen: set[object] = set()
    waiters = {fid: some for fid, some in exits.items() if all(_only_orders(engine, exit) for exit in some)}
    firsts = [entry for entry in accesses if entry.ways and entry.access.stream is not HOST]
    callers: dict[str, set[str]] = {}
    tried = 0

    def above(fid: str) -> set[str]:
        """The functions that call it, and those that call these: one that is above both shows their order."""
        if fid not in callers:
            callers[fid] = engine.callers_of(fid)
        return callers[fid]

    for first in firsts:
        a = first.access
        for second in accesses:
            b = second.access
            if not (a.writes or b.writes) or a.stream is b.stream or second.fid == made:
                continue
            if first.fid == made and b.stream is not HOST:
                continue
            tried += 1
            if tried > MOST_PAIRS:
                return
            if own is not None and first.fid not in own and second.fid not in own:
                continue
            if not above(first.fid).isdisjoint(above(second.fid)):
                continue
            key = (a.span, b.span, a.writes, b.writes)
            if key in seen or not _meet(first, second):
                continue
            before = b.before | {HOST} | _handed_out(engine, first.exit)
            if ALL in before or _is_taken_for_current(first, second, before):
                continue
            if not any(way.isdisjoint(before) for way in first.ways):
                continue
            seen.add(key)
            yield _pair(first, second, waiters)


def _is_taken_for_current(first: Entry, second: Entry, before: Set[Atom]) -> bool:
    """Whether a block goes to the current stream, and the default stream, which an entry makes wait, is that one."""
    if not isinstance(first.access.buffer, Pool) or second.access.stream is not CURRENT:
        return False
    return all(DEFAULT in way for way in first.ways if way.isdisjoint(before))


def _handed_out(engine: Engine, exit: Exit) -> set[Atom]:
    """The works and events that an entry returns: its caller waits for them where that matters."""
    if not exit.result:
        return set()
    found = (atom for atom in reachable((exit.result,)) if isinstance(atom, New))
    return {atom for atom in found if engine.role(atom.kind) in ("work", "event")}


def _meet(first: Entry, second: Entry) -> bool:
    a, b = first.access, second.access
    if same_queue(a.stream, b.stream) or not overlap(a.buffer, b.buffer):
        return False
    if a.extent and b.extent and apart(a.extent, b.extent):
        return False
    if not can_meet(a.tags, b.tags, b.stream is HOST):
        return False
    if contradicts(first.guard, second.guard) or _left_otherwise(first.exit, second.whole):
        return False
    if isinstance(a.buffer, Pool):
        return True
    if a.tags & tag.REPLACED and not b.tags & tag.STORED:
        return False  # the object that was there is gone when the entry returns
    if b.tags & tag.STORED:
        # a new object at the path is no access to the old one: at most its next life, of a block of the same stream
        homes = {
            one.stream for one in first.exit.accesses if one.buffer is a.buffer and one.tags & tag.ALLOCATION
        }
        if homes and b.stream not in homes:
            return False
        return b.writes and bool(b.tags & tag.ALLOCATION) and not a.tags & tag.RECORDED
    return True


def _left_at(exit: Exit, atom: Atom) -> Value:
    """What an exit leaves at a path."""
    if not isinstance(atom, Path) or not atom.fields:
        return _NOTHING
    return exit.heap.get((path(atom.root, *atom.fields[:-1]), atom.fields[-1]), _NOTHING)


def _left_otherwise(exit: Exit, guard: Guard) -> bool:
    """Whether what an entry leaves in the fields contradicts what another finds there."""
    for literal in guard:
        atom = literal.atom
        if isinstance(atom, Test) and len(atom.left) == 1:
            (of,) = atom.left
            held = _left_at(exit, of)
            verdict = counts(atom.op, held, atom.right) if held else None
            if verdict is not None and verdict is not literal.truth:
                return True
        if isinstance(atom, Path) and atom.fields:
            held = _left_at(exit, atom)
            if held:
                verdicts = {decided(literal.kind, literal.other, each) for each in held}
                if None not in verdicts and literal.truth not in verdicts:
                    return True
    return False


def _pair(first: Entry, second: Entry, exits: dict[str, tuple[Exit, ...]]) -> Pair:
    a, b = first.access, second.access
    tags = confidence.ENTRIES
    if _ordered_between(first, second, exits):
        tags |= confidence.ORDERED_BETWEEN
    guard = first.guard | second.guard
    if isinstance(a.buffer, Pool) or b.tags & tag.STORED:
        return Pair("reuse", a, b, a.span, guard=guard, tags=tags)
    waits = (first.exit.waits - first.exit.waited.get(a, frozenset())) | second.exit.waited.get(
        b, frozenset()
    )
    return Pair("pair", a, b, b.span, waits, guard, tags, before=first.exit.waits - waits)


def _ordered_between(first: Entry, second: Entry, exits: dict[str, tuple[Exit, ...]]) -> bool:
    """Whether another entry, called between the two, would order them.

    Only entries that do nothing else are asked: those that use memory wait for their own sake.
    """
    before = second.access.before | {HOST}
    for fid, some in exits.items():
        if fid in (first.fid, second.fid):
            continue
        for exit in some:
            if exit.knows and all(_reaches(way, exit, before) for way in first.ways):
                return True
    return False


def _only_orders(engine: Engine, exit: Exit) -> bool:
    """Whether an entry touches and replaces no memory: what it is there for is to wait."""
    if any(not access.tags & (tag.WEAK | _EVENTS) for access in exit.accesses):
        return False
    made = {atom.kind for held in exit.heap.values() for atom in held if isinstance(atom, New)}
    return all(engine.role(kind) in ("stream", "event") for kind in made)


def _reaches(way: frozenset[Atom], exit: Exit, before: frozenset[Atom]) -> bool:
    return any(
        learner in before and (ALL in known or not known.isdisjoint(way))
        for learner, known in exit.knows.items()
    )


def backward_of(engine: Engine, cid: str) -> str | None:
    """The ``backward`` of an ``autograd.Function``, which autograd calls; None for other classes."""
    bases = map(engine.canonical, engine.index.library_bases(cid))
    return engine.index.method(cid, "backward") if "torch.autograd.Function" in bases else None


def classes_of(engine: Engine, modules: Iterable[str]) -> list[str]:
    """The classes of modules, in an order that is the same in every run."""
    wanted = set(modules)
    return sorted(cid for cid, cls in engine.index.classes.items() if cls.module in wanted)
