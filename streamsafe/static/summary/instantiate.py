"""A callee's summary at a call: renamed into the caller, its accesses against the caller's, its order composed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streamsafe.order.hazard import Span
from streamsafe.static.domain import access as tag
from streamsafe.static.domain import guards, limits, values
from streamsafe.static.domain.access import Access, access
from streamsafe.static.domain.atoms import (
    ALL,
    CURRENT,
    GRADIENTS,
    HOST,
    LOST,
    MAYBE,
    UNKNOWN,
    Atom,
    Function,
    New,
    Path,
    Pool,
    Symbol,
    Value,
    const,
    generator,
    new,
    ordered,
    path,
    pool,
    ranks,
    value,
)
from streamsafe.static.domain.capturing import BRANCH, FORK
from streamsafe.static.domain.extents import WHOLE, Extent, apart
from streamsafe.static.domain.guards import ALWAYS, Guard, contradicts
from streamsafe.static.domain.order import Carriers, Ways, antichain, memory
from streamsafe.static.domain.places import (
    DEVICE,
    EACH,
    PAGEABLE,
    PINNED,
    SOME,
    can_meet,
    is_element,
    is_gradient,
    module_of,
    overlap,
    same_queue,
)
from streamsafe.static.domain.state import Cell, HostWork, State, Wait, names_streams
from streamsafe.static.domain.timing import LAUNCHES
from streamsafe.static.summary.exits import MARKERS
from streamsafe.static.summary.facts import MODULE, OUTER, UNDECORATED
from streamsafe.static.summary.model import Exit, Pair, Summary
from streamsafe.static.transfer import captures, extents, objects, outputs, replays, timing
from streamsafe.static.transfer import memory as mem

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.summary.solve import Given
    from streamsafe.static.syntax import ir

_MOST_WORK: Final = 40
MOST_UNSURE: Final = 2
"""Calls on the way to an operation that may come to it, or not: so many, and that it is reached is not shown."""
_BY_HOST: Final = frozenset((HOST,))
_UNCHECKED: Final = frozenset((LAUNCHES, FORK, BRANCH))


def instantiate(
    a: Analysis,
    s: State,
    at: int,
    dst: ir.Reg,
    fid: str,
    args: list[Value],
    keywords: Mapping[str, Value],
    closure: Mapping[str, Value] | None = None,
) -> list[State] | None:
    """Call a function of the tree. Returns None where there is no such function.

    Args:
        at: the call's index of its span.
        dst: the register of the result.
        args: positional arguments, the instance of a method first.
        closure: the values of the names that the function takes from the scope around it.
    """
    engine = a.engine
    fn = engine.function(fid)
    if fn is None:
        return None
    if fn.decorators and (closure is None or UNDECORATED not in closure):
        outer = engine.wrapper(fn)
        if outer is not None:
            return instantiate(a, s, at, dst, outer.fid, args, keywords, dict(outer.closure))
    engine.callers.setdefault(fid, set()).add(a.fn.fid)
    bind, defaults = _bind(fn, args, keywords)
    _bind_others(a, s, at, fn, keywords, bind)
    for parameter in fn.params:
        if parameter.default_name and parameter.name in defaults and fn.outer is None:
            defaults[parameter.name] = _computed_default(a, fn.module, parameter)
    given, extra = engine.specialise(a, s, fn, bind, closure or {})
    summary = engine.summary(fid, given)
    if engine.explanation is not None:
        engine.explanation.called(a, at, summary)
    roots = {
        **_roots(fn, bind),
        **(closure or {}),
        **extra,
        **_closures(a, s, {**bind, **(closure or {})}, given),
    }
    if fn.is_generator and _is_context(fn):
        atom = generator(fid, sorted({**roots, **defaults}.items(), key=_name))
        s.env[dst] = value(atom)
        return [s]
    if fn.is_generator:
        return _generator(a, s, at, dst, fn, summary, roots)
    return play(a, s, at, dst, fn, summary, roots, defaults)


def _bind(
    fn: ir.Function, args: list[Value], keywords: Mapping[str, Value]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Parameter -> argument, and the constant defaults of the others."""
    bind: dict[str, Value] = {}
    defaults: dict[str, Value] = {}
    names = {parameter.name for parameter in fn.params}
    required = [p for p in fn.params if p.kind in ("positional", "normal") and not p.has_default]
    missing = 0 if fn.decorators else sum(parameter.name not in keywords for parameter in required)
    rest = _spread(args, missing)
    for parameter in fn.params:
        if parameter.kind in ("positional", "normal"):
            if rest:
                bind[parameter.name] = rest.pop(0)
                continue
        elif parameter.kind == "vararg":
            from streamsafe.static.domain.atoms import tuple_of

            bind[parameter.name] = value(tuple_of(*rest))
            rest = []
            continue
        elif parameter.kind == "kwarg":
            continue
        if parameter.name in keywords:
            bind[parameter.name] = keywords[parameter.name]
        elif parameter.has_default:
            computed = parameter.default is ...
            defaults[parameter.name] = UNKNOWN if computed else value(const(parameter.default))
    for name, given in keywords.items():
        if name in names and name not in bind:
            bind[name] = given
    return bind, defaults


def _computed_default(a: Analysis, module: str, parameter: ir.Param) -> Value:
    """A default that is a variable of the module, or a device."""
    if parameter.default_argument is None:
        return objects.global_name(a, module, parameter.default_name)
    symbol = a.engine.index.resolve(module, parameter.default_name)
    if symbol.kind == "library" and a.engine.role(a.engine.canonical(symbol.name)) == "device":
        return value(const(parameter.default_argument))
    return UNKNOWN


def _bind_others(
    a: Analysis, s: State, at: int, fn: ir.Function, keywords: Mapping[str, Value], bind: dict[str, Value]
) -> None:
    """``**others``: a dict of the keywords that are no parameters."""
    for parameter in fn.params:
        others = [name for name in keywords if name not in bind]
        if parameter.kind == "kwarg" and others:
            held = mem.allocate(a, s, a.span(at), "builtins.dict", discriminator=6)
            for name in others:
                s.heap[held, f"[{name}]"] = keywords[name]
            bind[parameter.name] = value(held)


def _spread(args: list[Value], required: int) -> list[Value]:
    """The arguments of a call: too few of them, the last an element of any number, are ``f(*elements)``."""
    last = next(iter(args[-1])) if args and len(args[-1]) == 1 else None
    if len(args) >= required:
        return list(args)
    if not isinstance(last, Path) or last.fields[-1:] != (EACH,):
        return [*args, *args[-1:] * (required - len(args))]
    at = (last.root, *last.fields[:-1])
    return [*args[:-1], *(value(path(*at, f"[{number}]")) for number in range(required - len(args) + 1))]


def _roots(fn: ir.Function, bind: Mapping[str, Value]) -> dict[str, Value]:
    """The roots of the callee's paths."""
    if not fn.is_method:
        return dict(bind)
    first = fn.params[0].name
    return {("self" if name == first else name): given for name, given in bind.items()}


def _closures(a: Analysis, s: State, bind: Mapping[str, Value], given: Given) -> dict[str, Value]:
    """What functions given as arguments take from the scopes around them: the callee sees it as their own."""
    found: dict[str, Value] = {}
    for name in given.held:
        for atom in ordered(values.reachable((bind.get(name, UNKNOWN),))):
            if isinstance(atom, Function):
                found.update(closure_of(a, s, atom))
    return found


def _name(item: tuple[str, Value]) -> str:
    return item[0]


def _is_context(fn: ir.Function) -> bool:
    """Whether a generator is a context manager."""
    return any(d.rpartition(".")[2] in ("contextmanager", "asynccontextmanager") for d in fn.decorators)


class Rename:
    """The callee's names in the caller's: parameter paths are the arguments, what the callee makes is this call's."""

    __slots__ = (
        "_a",
        "_cache",
        "_carrier",
        "_carriers",
        "_defaults",
        "_entries",
        "_guards",
        "_like",
        "_line",
        "_roots",
        "_s",
        "_ways",
    )

    def __init__(
        self,
        a: Analysis,
        s: State,
        roots: Mapping[str, Value],
        defaults: Mapping[str, Value],
        line: tuple[int, int],
        like: Mapping[New, Value] | None = None,
    ) -> None:
        self._a, self._s, self._roots, self._defaults, self._line = a, s, roots, defaults, line
        self._cache: dict[Atom, Value] = {CURRENT: value(s.current), HOST: value(HOST), ALL: value(ALL)}
        self._carrier: dict[Atom, Atom] = {}
        self._carriers: dict[Carriers, Carriers] = {}
        self._entries: dict[Carriers, Carriers] = {}
        self._ways: dict[Ways, Ways] = {}
        self._guards: dict[tuple[Guard, bool | None], Guard | None] = {}
        self._like = like or {}

    def atom(self, atom: Atom) -> Value:
        """The image of an atom."""
        found = self._cache.get(atom)
        if found is None:
            found = self._cache[atom] = self._image(atom)
        return found

    def _image(self, atom: Atom) -> Value:
        if isinstance(atom, Path):
            if is_gradient(atom) and module_of(atom) is not None:
                return self._path(atom) or value(GRADIENTS)  # of a module that has no name here
            return self._path(atom)
        if isinstance(atom, New):
            return value(self.made(atom))
        if isinstance(atom, Symbol):
            return value(atom)
        return value(values.inside(atom, self.value))

    def _path(self, atom: Path) -> Value:
        root = atom.root
        if root in self._roots:
            found = self._roots[root]
        elif root.startswith(MODULE):
            found = value(path(root))
        elif root.startswith(OUTER):
            return value(atom)
        elif root in self._defaults:
            found = self._defaults[root]
        else:
            return UNKNOWN
        for step in atom.fields:
            if is_element(step):
                found = objects.step_into(self._a, self._s, found, step)
            else:
                found = values.union(objects.load(self._a, self._s, each, step) for each in found)
        return found

    def made(self, atom: New) -> New:
        """An object that the callee makes, as this call's own; what may be memory is some where its sources are."""
        if atom.kind is MAYBE and atom in self._like and self._is_memory(self._like[atom]):
            calls = atom.calls if len(atom.calls) >= limits.CALLS else (*atom.calls, self._line)
            made = new(self._a.engine.tensor_type, atom.place, calls, atom.age if calls != atom.calls else 1)
            self._s.places.setdefault(made, DEVICE)
            return made
        if len(atom.calls) >= limits.CALLS:
            return new(atom.kind, atom.place, atom.calls, 1)
        return new(atom.kind, atom.place, (*atom.calls, self._line), atom.age)

    def _is_memory(self, sources: Value) -> bool:
        """Whether one of some values is memory that does not lie on the host."""
        for source in sources:
            for image in self.atom(source):
                if isinstance(image, New | Path):
                    place = mem.place_of(self._a, self._s, image)
                    if place == DEVICE or (self._a.role(image) == "tensor" and not place):
                        return True
        return False

    def value(self, held: Value) -> Value:
        """The image of a value."""
        return values.mapped(held, self.atom) if held else held

    def carrier(self, atom: Atom) -> Atom:
        """The image of a stream or an event, as one atom; ``LOST`` where it is not known."""
        found = self._carrier.get(atom)
        if found is None:
            found = self._carrier[atom] = self._carrier_of(atom)
        return found

    def _carrier_of(self, atom: Atom) -> Atom:
        images = self.atom(atom)
        if len(images) == 1:
            (image,) = images
            return image if _carries(self._a, image) else LOST
        for image in ordered(images):
            if _carries(self._a, image):
                return image
        return LOST

    def each(self, atom: Atom) -> tuple[Atom, ...]:
        """The images of a carrier: all of them where it stands for each element of a container."""
        if isinstance(atom, Path) and atom.fields and is_element(atom.fields[-1]):
            images = tuple(image for image in ordered(self.atom(atom)) if _carries(self._a, image))
            if len(images) > 1:
                return images[-1:] if atom.fields[-1] == SOME else images
        return (self.carrier(atom),)

    def carriers(self, atoms: Carriers) -> Carriers:
        """The images of carriers."""
        found = self._carriers.get(atoms)
        if found is None:
            found = frozenset(image for atom in ordered(atoms) for image in self.each(atom))
            self._carriers[atoms] = found
        return found

    def ways(self, ways: Ways) -> Ways:
        """The images of the ways in which an access is known."""
        found = self._ways.get(ways)
        if found is None:
            found = self._ways[ways] = antichain(map(self.carriers, ways))
        return found

    def entry(self, carriers: Carriers) -> Carriers:
        """What our carriers know at the call, in terms of the caller's entry."""
        found = self._entries.get(carriers)
        if found is None:
            found = self._entries[carriers] = self._s.order.entry(carriers)
        return found

    def _on_host(self, atom: Atom) -> bool | None:
        """Whether memory of the caller lies on the host, where that is known."""
        if isinstance(atom, New | Path):
            place = mem.place_of(self._a, self._s, atom)
            return place in (PINNED, PAGEABLE) if place else None
        return None

    def leaves_open(self, work: HostWork) -> bool:
        """Whether the caller leaves it open that the callee comes to what is illegal in a capture."""
        return work.open and not (work.guard and guards.settled(work.guard, self.atom))

    def guard(self, guard: Guard, capturing: bool | None) -> Guard | None:
        """The literals of a guard that the caller does not decide; None when it contradicts what the caller knows."""
        if not guard:
            return guard
        key = (guard, capturing)
        if key in self._guards:
            return self._guards[key]
        found = guards.renamed(guard, self.atom, capturing, self._a.is_instance, self._on_host)
        self._guards[key] = found
        return found


def _carries(a: Analysis, atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return True
    if isinstance(atom, Path):
        return True
    return isinstance(atom, New) and a.role(atom) in ("stream", "event", "work", "graph")


def play(
    a: Analysis,
    s: State,
    at: int,
    dst: ir.Reg,
    fn: ir.Function,
    summary: Summary,
    roots: Mapping[str, Value],
    defaults: Mapping[str, Value],
) -> list[State]:
    """The exits of a summary that the caller does not contradict, a state each."""
    span = a.span(at)
    line = (span.row, span.column)
    _age_made(a, s, span, summary, line)
    out: list[State] = []
    alone = len(summary.exits) == 1
    like = {
        atom: held
        for exit in summary.exits
        for (atom, field), held in exit.heap.items()
        if field == mem.LIKE and isinstance(atom, New)
    }
    rename = Rename(a, s, roots, defaults, line, like)
    for exit in summary.exits:
        extra = rename.guard(exit.guard, _capturing(s))
        if extra is None or contradicts(extra, s.guard):
            continue
        t = s if alone else s.fork()
        result = rename.value(exit.result)
        if result and a.engine.facts.returns_scalar(fn):
            result = frozenset(atom for atom in result if not mem.buffers(a, s, value(atom)))
        _apply(a, s, t, span, exit, rename, extra)
        t.env[dst] = result
        if result and mem.buffers(a, t, result) and any(not result.isdisjoint(x) for x in roots.values()):
            extents.is_view(t, dst)
        outputs.returned(a, t, dst, exit, result)
        out.append(t)
    if alone:
        rename = Rename(a, s, roots, defaults, line, like)
    _undecided(a, s, summary, rename)
    if not out:
        s.env[dst] = UNKNOWN
        return [s]
    if len(out) > limits.PARTITIONS:
        few: list[State] = []
        a.merge(few, out, owned=True)
        return few
    return out


def _age_made(a: Analysis, s: State, span: Span, summary: Summary, line: tuple[int, int]) -> None:
    """What the callee makes is made again: what this call made before is *earlier*."""
    if not summary.made:
        return
    a.matters = a.matters or any(map(names_streams, summary.made))
    again = [new(atom.kind, atom.place, (*atom.calls, line), 0) for atom in summary.made]
    again += [new(a.engine.tensor_type, atom.place, atom.calls, 0) for atom in again if atom.kind is MAYBE]
    if again:
        mem.age(a, s, again)


def _apply(a: Analysis, s: State, t: State, span: Span, exit: Exit, rename: Rename, extra: Guard) -> None:
    """Play one exit in a state; ``extra``: what of its guard the caller does not know."""
    capturing = _capturing(s)
    before = s.capture
    if extra:
        t.guard = s.guard | extra
    waits = {wait: _renamed_wait(s, wait, rename) for wait in exit.waits}
    arrived = _accesses(a, s, t, exit, rename, capturing, waits)
    read = timing.before_call(a, t, exit, rename) if exit.clocks else {}
    relation: dict[Atom, Carriers] = {}
    for learner, known in exit.knows.items():
        knows = frozenset(image for one in ordered(known) for image in rename.each(one))
        for image in rename.each(learner):
            if image is not LOST:
                relation[image] = relation.get(image, frozenset()) | knows
    t.order.compose(relation)
    captures.across_call(a, t, exit, rename)
    for one, ways in arrived:
        if one.tags & tag.RECORD:
            timing.forget_records(t, one.buffer)
        elif a.engine.timed and ways and one.buffer not in _UNCHECKED:
            timing.launch_below(a, t, one, ways)
        t.order.put(one, ways)
    timing.after_call(a, t, exit, rename, read)
    if t.capture is not None and exit.waits:
        captures.waits_below(a, s, t, exit, rename)
    replays.stored_below(a, t, exit, rename)
    captures.after_call(a, t, exit, rename)
    if before is not None and t.capture is not None:
        for one, _ in arrived:
            replays.copies_what_host_wrote(a, t, one)
    stored = _stored(exit, rename)
    _facts(a, s, t, exit, rename, waits)
    _objects(t, exit, rename, stored)
    if before is not None and t.capture is not None:
        _in_capture(a, t, exit, span, rename)
    if exit.current is not CURRENT:
        t.current = rename.carrier(exit.current)


def _capturing(s: State) -> bool | None:
    return True if s.capture is not None else None


def _accesses(
    a: Analysis,
    s: State,
    t: State,
    exit: Exit,
    rename: Rename,
    capturing: bool | None,
    waits: Mapping[Wait, Wait],
) -> list[tuple[Access, Ways]]:
    """The callee's accesses, as the caller's: each is checked against what the caller did before."""
    out: list[tuple[Access, Ways]] = []
    for one, ways in exit.accesses.items():
        if one.tags & tag.STORED:
            continue  # for pairs of methods; here the object itself is in the heap
        extra = rename.guard(one.guard, capturing)
        if extra is None or contradicts(extra, s.guard):
            continue
        guard = t.guard | extra if extra else t.guard
        stream = HOST if one.stream is HOST else rename.carrier(one.stream)
        if stream is LOST:
            continue
        before = (
            rename.carriers(one.before) | {HOST, stream}
            if stream is not HOST
            else rename.carriers(one.before) | {HOST}
        )
        entry = rename.entry(before)
        after = rename.ways(ways) if ways else ways
        for buffer in _memory(a, s, rename, one.buffer, one.tags):
            mine = _in_place(a, t, one, buffer, stream, entry, guard)
            if mine is None:
                continue
            earlier = s.waits.union(waits[wait] for wait in exit.waited.get(one, ()) if wait in waits)
            if buffer not in _UNCHECKED:
                _check(a, s, mine, before if mine.stream is stream else _BY_HOST, earlier)
                if (
                    t.capture is not None
                    and mine.stream is stream
                    and not captures.made_for_many(exit, one.stream)
                ):
                    captures.used_below(a, s, t, mine, before, after, isinstance(one.buffer, New))
            a.remember_waits(mine, earlier)
            out.append((mine, after if mine.stream is stream else frozenset()))
    return out


def _memory(a: Analysis, s: State, rename: Rename, buffer: Atom, tags: int) -> list[Atom]:
    if buffer in MARKERS:
        return [buffer]
    if tags & (tag.RECORD | tag.ELAPSED):
        return timing.events_of(a, rename.atom(buffer))
    if isinstance(buffer, Pool):
        (home,) = buffer.stream
        image = rename.carrier(home)
        return [] if image is LOST else [pool(image)]
    return mem.buffers(a, s, rename.atom(buffer))


def _in_place(
    a: Analysis, t: State, one: Access, buffer: Atom, stream: Atom, entry: Carriers, guard: Guard
) -> Access | None:
    """The callee's access to a buffer of the caller, who may know where it lies; None when it is no such access."""
    tags = one.tags | (tag.CAPTURED if t.capture is not None else 0)
    place = mem.place_of(a, t, buffer)
    if t.recorded and mem.is_recorded(t, buffer, stream):
        tags |= tag.RECORDED
    if stream is not HOST:
        if tags & tag.WHERE_IT_LIES and place in (PINNED, PAGEABLE):
            stream, entry, tags = HOST, t.order.before(HOST), tags & ~tag.WEAK
        elif place == PAGEABLE or (place == PINNED and tags & tag.IF_DEVICE):
            return None
        elif place == DEVICE:
            tags &= ~(tag.WEAK | tag.IF_DEVICE)
        elif tags & tag.WEAK and one.stream is CURRENT and mem.may_be_tensor(buffer):
            tags |= mem.put_there(stream)
    elif tags & tag.PLACE_UNKNOWN and place:
        if place == DEVICE:
            return None
        tags &= ~tag.PLACE_UNKNOWN
    if place or HOST in t.order.knows:
        tags &= ~tag.WHERE_IT_LIES
    extent = _extent(t, one, buffer) if one.extent or t.parts else WHOLE
    return access(buffer, one.writes, stream, one.span, entry, tags, guard, one.operation, extent)


def _extent(t: State, one: Access, buffer: Atom) -> Extent:
    """Which part of the caller's buffer a callee's access touches: of an argument that is a view, what that is of."""
    at = one.buffer
    if buffer in t.blurred:
        return WHOLE
    if isinstance(at, Path):
        if not at.fields:
            return t.parts.get(buffer, one.extent)
        if isinstance(buffer, Path) and buffer.fields[-len(at.fields) :] != at.fields:
            return WHOLE  # another name of it
    return one.extent


def _check(a: Analysis, s: State, second: Access, before: Carriers, waits: frozenset[Wait]) -> None:
    """The caller's earlier accesses that nothing orders before a callee's. ``before`` are carriers at the call."""
    order = s.order
    for first, token in order.made.get(memory(second.buffer), mem.NO_ACCESSES).items():
        if not token or first.stream is second.stream or not (first.writes or second.writes):
            continue
        if ALL in before or not any(way.isdisjoint(before) for way in order.ways[token]):
            continue
        if not overlap(first.buffer, second.buffer) or same_queue(first.stream, second.stream):
            continue
        if not can_meet(first.tags, second.tags, second.stream is HOST):
            continue
        if first.extent and second.extent and apart(first.extent, second.extent):
            continue
        if not contradicts(first.guard, second.guard):
            if isinstance(second.buffer, Pool):
                a.reuse(first, second, s)
            else:
                a.pair(first, second, waits)


def _stored(exit: Exit, rename: Rename) -> list[tuple[Value, str, Value]]:
    """What the callee stored where, in the caller's names: all of them are of before the call."""
    return [(rename.atom(owner), field, rename.value(held)) for (owner, field), held in exit.heap.items()]


def _objects(t: State, exit: Exit, rename: Rename, stored: list[tuple[Value, str, Value]]) -> None:
    """What the callee stored, and what is known of it."""
    for images, field, new_value in stored:
        for image in ordered(images):
            if isinstance(image, Path | New):
                known = t.heap.get((image, field))
                many = len(images) > 1 or field == "[]"
                t.heap[image, field] = values.joined(known, new_value) if many and known else new_value
    for atom, place in exit.places.items():
        for image in ordered(rename.atom(atom)):
            if isinstance(image, New):
                t.places[image] = place
    for atom, home in exit.homes.items():
        for image in ordered(rename.atom(atom)):
            if isinstance(image, New):
                t.homes[image] = rename.carrier(home)


def _renamed_wait(s: State, wait: Wait, rename: Rename) -> Wait:
    return Wait(
        rename.carrier(wait.who),
        rename.carrier(wait.whom),
        _source(s, wait, rename),
        wait.span,
        wait.recorded,
        frozenset(map(rename.carrier, wait.earlier)),
        wait.idle,
        s.order.entry(rename.carriers(wait.known)),
        wait.stated,
    )


def _facts(a: Analysis, s: State, t: State, exit: Exit, rename: Rename, waits: Mapping[Wait, Wait]) -> None:
    """Waits, events, records and what a capture would forbid."""
    if waits:
        t.waits = t.waits.union(waits.values())
    for event, cell in exit.cells.items():
        image = rename.carrier(event)
        if image is not LOST:
            t.cells[image] = Cell(
                rename.carrier(cell.stream),
                cell.span,
                frozenset(map(rename.carrier, cell.earlier)),
                cell.captured,
            )
    for recorded, stream in sorted(exit.recorded, key=ranks):
        for buffer in mem.buffers(a, s, rename.atom(recorded)):
            mem.record(a, t, buffer, rename.carrier(stream))
    if exit.work and len(t.work) < _MOST_WORK:
        found = set()
        for work in exit.work:
            guard = rename.guard(work.guard, _capturing(s))
            if guard is not None:
                unsure = min(work.unsure + rename.leaves_open(work), MOST_UNSURE)
                found.add(HostWork(work.code, work.what, work.span, guard, a.block, False, unsure))
        t.work = t.work | found


def _source(s: State, wait: Wait, rename: Rename) -> Atom | None:
    if wait.source is not None:
        return rename.carrier(wait.source)
    cell = s.cells.get(rename.carrier(wait.whom))
    return cell.stream if cell is not None else None


def _in_capture(a: Analysis, t: State, exit: Exit, span: Span, rename: Rename) -> None:
    assert t.capture is not None
    for work in sorted(exit.work, key=HostWork.sort_key):
        guard = rename.guard(work.guard, True)
        if work.what == captures.OF_A_GENERATOR and any(field == captures.REGISTERED for _, field in t.heap):
            continue
        if guard is not None and work.code:
            notes = (("called here", span), ("the capture begins here", t.capture.span))
            unsure = work.unsure + rename.leaves_open(work)
            tags = (0, tag.ON_SOME_PATH)[unsure] if unsure < MOST_UNSURE else tag.FAR
            a.violation(work.code, work.span, work.what, guard | t.guard, notes, tags)


def _undecided(a: Analysis, s: State, summary: Summary, rename: Rename) -> None:
    """Hazards inside the callee that hang on what its caller decides: said again where the caller decides them."""
    for pair in summary.pairs:
        if not pair.guard:
            continue
        decided = rename.guard(pair.guard, _capturing(s))
        if decided is None or contradicts(decided, s.guard):
            continue
        if len(decided) < len(pair.guard):
            known = a.pairs.get(("decided", pair.kind, pair.span, pair.violation))
            if known is None:
                a.pairs["decided", pair.kind, pair.span, pair.violation] = _under(pair, decided | s.guard)


def _under(pair: Pair, guard: Guard) -> Pair:
    return pair._replace(
        guard=guard,
        first=pair.first.replace(guard=guard) if pair.first else None,
        second=pair.second.replace(guard=guard) if pair.second else None,
    )


def _generator(
    a: Analysis,
    s: State,
    at: int,
    dst: ir.Reg,
    fn: ir.Function,
    summary: Summary,
    roots: Mapping[str, Value],
) -> list[State]:
    """Calling a generator runs nothing yet; here it is taken to run at once, and to give its elements."""
    states = play(a, s, at, dst, fn, summary, roots, {})
    span = a.span(at)
    for t in states:
        rename = Rename(a, t, roots, {}, (span.row, span.column))
        container = mem.allocate(a, t, span, "builtins.list", discriminator=1)
        t.heap[container, "[]"] = rename.value(summary.yields)
        t.env[dst] = value(container)
    return states


def closure_of(a: Analysis, s: State, atom: Function) -> dict[str, Value]:
    """What a function takes from the scope around it: now, where that scope is the caller's, else when it was made."""
    found: dict[str, Value] = {}
    outer = None
    fn = a.engine.function(atom.fid)
    if fn is not None:
        outer = fn.outer
    for root, held in atom.closure:
        owner, _, name = root[len(OUTER) :].partition(" ")
        found[root] = s.env[name] if owner == a.fn.fid == outer and name in s.env else held
    return found


__all__ = ["ALWAYS", "closure_of", "instantiate", "path", "play"]
