"""Memory: what a value's tensors are, who holds them, allocation and release.

One file: who holds a block decides when it is released, and both go by the same traversal of objects.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsafe.order import edges
from streamsafe.order.edges import Carrier, Edge
from streamsafe.order.symbolic import ALWAYS, HOST, Accesses, Guard, Made, Way, simplify
from streamsafe.static import element_keys, hints, parts
from streamsafe.static.facts import (
    AGAIN,
    AMBIENT,
    INITIAL,
    Assumed,
    Detail,
    Finding,
    Site,
)
from streamsafe.static.state import State
from streamsafe.static.values import (
    NONE,
    PLAIN,
    STATE,
    Const,
    Container,
    Instance,
    Name,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    led_to,
    union,
)

if TYPE_CHECKING:
    from streamsafe.order.symbolic import Carriers
    from streamsafe.static.source import FunctionUnit


_LEADING = frozenset({Union, Tensor, Opaque, Tuple, Container, Instance})
"""Values that stand for tensors, or hold some."""


TAKEN = "@left"
"""Of what container one of the objects of a name has been taken out, and where the objects had been used by then."""


NEXT = "@left next"
"""The same of another one, taken out while somebody still held the one before."""


PRESUMED = "@presumed"
"""Under this it is kept that the stream on which memory was allocated is supposed."""

KEPT = "@kept"
"""Noted of a tensor that was put into a list which nobody reads: it keeps alive what is put there, however much."""


class Release(NamedTuple):
    """Where a block was allocated and released: the part of a pooled access."""

    notes: tuple[tuple[str, Site], ...]
    buffer: Name
    later: bool = False
    """By another call of a method than the one that used it."""


class Memory:
    """Memory: what a value's tensors are, who holds them, allocation and release."""

    # declared here, implemented further down the chain
    threads: int
    beside: bool
    carriers: Carriers
    loaded: set[Name]
    plain: set[Name]
    settings: set[Name]
    holders: set[Name]
    libraries: dict[Name, str]
    sites_of: dict[Name, Site]
    candidates: list[Name]
    inherited: set[Made]
    waiting: dict[FunctionUnit, Value | None]
    ended: set[Name]
    table: Any
    entry: str
    recorded_siblings: set[tuple[Name, Name]]
    made_here: set[Name]
    closed: set[Name]
    results: set[Name]
    tensor_rows: set[Name]

    def reuses_captured(self, st: State, buffer: Name, library: str) -> None: ...

    def streams(self, st: State, library: str, stream: Value | None = None) -> list[tuple[Stream, Guard]]: ...

    def report(self, st: State, finding: Finding, way: Guard = ALWAYS) -> None: ...

    def timeline_text(self, timeline: Carrier) -> str: ...

    def explain(self, st: State, site: Site, text: str) -> None: ...

    def _streams_text(self, st: State, library: str, stream: Value | None) -> str: ...

    def describe(self, value: Value) -> str: ...

    def named_since(self, value: Value, before: str) -> str: ...

    def are_defaults(self, first: Carrier, second: Carrier) -> bool: ...

    def noted_in_thread(self, buffer: Name) -> None: ...

    def frames(self) -> Iterator[Name]: ...

    def suspended(self) -> Iterator[Value]: ...

    def lost_input(self, st: State, name: Name, site: Site, alive: set[Name]) -> None: ...

    # -- memory --------------------------------------------------------------------------------------------------

    def tensors(self, st: State, value: Value) -> list[tuple[Object, Guard]]:
        """The tensors a value stands for or holds, each with the guard it needs."""
        found: list[tuple[Object, Guard]] = []
        if type(value) in _LEADING:
            self._collect(st, value, ALWAYS, 0, found)
        return found

    def _collect(
        self, st: State, value: Value, under: Guard, depth: int, found: list[tuple[Object, Guard]]
    ) -> None:
        kind = type(value)
        if kind is Const:
            return
        if kind is Union:
            path = st.path
            for inner, guard in value.alternatives:  # type: ignore[attr-defined]
                if not path.contradicts(guard):
                    self._collect(st, inner, under & guard, depth, found)
        elif kind is Tensor:
            replaced = self.replaced(st, value) if depth < 4 else None
            if replaced is not None:  # its memory was replaced
                self._collect(st, replaced, under, depth + 1, found)
            else:
                found.append((value, under))  # type: ignore[arg-type]
        elif kind is Opaque:
            if not self.is_plain(value.name):  # type: ignore[attr-defined]
                found.append((value, under))  # type: ignore[arg-type]
                whole = self._result_of(st, value)  # type: ignore[arg-type]
                if whole is not None:
                    found.append((whole, under))
                holder = value
                if value.name.site == STATE and value.name.parent is not None:  # type: ignore[attr-defined]
                    holder = Opaque(value.name.parent)  # type: ignore[attr-defined]
                if depth == 0 and (holder.name in st.store.objects or holder.name.base() in self.holders):  # type: ignore[attr-defined]
                    rounds = parts.rounds(value.part)  # type: ignore[attr-defined]
                    reached = self._held(st, holder)  # type: ignore[arg-type]
                    found.extend((element_keys.in_rounds(held, rounds), under) for held in reached)  # type: ignore[misc]
        elif kind is Tuple:
            if depth < 4:
                for item in value.items:  # type: ignore[attr-defined]
                    self._collect(st, item, under, depth + 1, found)
        elif (kind is Container or kind is Instance) and depth < 3:
            rounds = parts.rounds(value.part)  # type: ignore[attr-defined]
            for key, inner in st.store.of(value.name).items():  # type: ignore[attr-defined]
                if type(inner) in _LEADING and (type(key) is not str or key[:1] != "@"):
                    self._collect(st, element_keys.in_rounds(inner, rounds), under, depth + 1, found)

    def _result_of(self, st: State, value: Opaque) -> Opaque | None:
        """What an operation returned, if an object still is the part of it that it was then."""
        name, whole = value.name, value.name.root()
        if name is whole or whole.base() not in self.results:
            return None
        if type(name.site) is int:  # a row may be a handle: one that is used as a tensor is none
            if name.base() not in self.tensor_rows:
                return None
        elif type(name.site) is not str:
            return None
        if any(link.parent is not None and (link.parent, link.site) in st.store for link in name.chain()):
            return None
        return Opaque(whole, part=parts.field(next(n.site for n in name.chain() if n.parent is whole)))

    @staticmethod
    def replaced(st: State, value: Value) -> Value | None:
        """What was assigned to the ``.data`` of a tensor, None where nothing was; a view keeps the memory it has."""
        if not isinstance(value, (Tensor, Opaque)) or (isinstance(value, Tensor) and value.view):
            return None
        return st.store.get((value.name, "data"))

    def view(self, st: State, value: Value, depth: int = 0) -> Value:
        """A view of the memory that tensors have now, whatever is assigned to their ``.data`` later."""
        found: list[tuple[Value, Guard]] = []
        for inner, guard in alternatives(value, st.path):
            replaced = self.replaced(st, inner) if depth < 4 else None
            if replaced is not None:
                inner = self.view(st, replaced, depth + 1)
            elif isinstance(inner, Tensor) and not inner.view:
                inner = replace(inner, view=True)
            elif isinstance(inner, Opaque):
                inner = self._result_of(st, inner) or inner
                inner = Tensor(inner.name, part=inner.part, view=True)
            found.append((inner, guard))
        return union(found)

    def is_plain(self, name: Name) -> bool:
        """Whether an object is known to be no tensor: an index, a key, a parameter that is annotated so."""
        site = name.site
        if isinstance(site, tuple) and len(site) == 2 and site[1] in ("index", "key"):
            return True
        if name.parent is not None and (name.site == "shape" or name.parent.site in ("shape", "size()")):
            return True  # a shape, or how many a group's ``size()`` says there are
        return name.base() in self.plain or self.is_setting(name)

    def is_setting(self, name: Name) -> bool:
        """Whether an object is what an option of a command line was set to."""
        return name.parent is not None and name.parent.base() in self.settings

    def _held(self, st: State, opaque: Opaque) -> Iterator[Object]:
        """What is known to be reached from an object that is not seen made."""
        seen = set()
        name = opaque.name
        tables = [st.store.of(name)]
        newest = name.newest()
        deep = name.base() in self.holders
        if deep:
            tables += [
                t
                for o, t in st.store.objects.items()
                if o.parent is not None and o is not name and newest in o.family() and name in o.chain()
            ]
        for table in tables:
            for key, held in list(table.items()):
                if isinstance(key, str) and key.startswith("@"):
                    continue
                for inner in iterate(held):
                    if isinstance(inner, (Tensor, Opaque)) and inner.name not in seen:
                        seen.add(inner.name)
                        yield inner
        for buffer in list(st.order.made) if deep else ():
            if (
                type(buffer) is Name
                and buffer.parent is not None
                and newest in buffer.family()
                and buffer is not name
                and buffer not in seen
            ):
                if name in buffer.chain() and self.belongs(st, buffer):
                    yield Opaque(buffer)

    def holds(self, name: Name) -> None:
        """Something is known of a part of an object: whoever has the whole has it too."""
        parent = name.parent
        while parent is not None:
            base = parent.base()
            if base in self.holders:
                return
            self.holders.add(base)
            parent = parent.parent

    def belongs(self, st: State, buffer: Name) -> bool:
        """Whether an attribute or element still is what its parent holds: nothing else was assigned to it."""
        name = buffer
        while name.parent is not None:
            held = st.store.get((name.parent, name.site))
            if held is not None and not any(isinstance(v, Object) and v.name == name for v in iterate(held)):
                return False
            name = name.parent
        return True

    def place(self, st: State, target: Value) -> str:
        """``device``, ``pinned``, ``pageable`` or nothing."""
        found = st.store.get((target.name, "@place")) if isinstance(target, Object) else None
        if isinstance(found, Const):
            if st.capture is not None and isinstance(target, Object):
                # whoever makes a module sets the default, and this is captured
                return "device" if (target.name, "@by default") in st.store else str(found.value)
            return str(found.value)
        if isinstance(target, Tensor) and target.numpy:
            return "host"
        if not isinstance(target, Object):
            return ""
        if self.loaded and target.name.root().base() in self.loaded:
            return "pageable"
        if target.name.parent is not None and any(
            st.store.get((name, "@place")) == Const("pageable") for name in target.name.parent.chain()
        ):
            return "pageable"  # a table of what lies on the host
        return "host" if hints.names_host(target.name.site) else ""

    def set_place(self, st: State, target: Value, place: str) -> None:
        """Where a buffer lies is known from now on."""
        if isinstance(target, Object):
            st.store[(target.name, "@place")] = Const(place)

    def allocate(
        self, st: State, buffer: Name, library: str, site: Site, stream: Value | None = None
    ) -> None:
        """A block is taken from the pool of the current stream (TL-01, CS-20): its next life begins."""
        st.store[(buffer, "@allocated")] = union(self.streams(st, library, stream))
        base = buffer.base()
        self.libraries[base] = library
        self.sites_of[base] = site
        self.candidates.append(buffer)
        self.reuses_captured(st, buffer, library)
        self.noted_in_thread(buffer)
        for s, guard in self.streams(st, library, stream):
            self.taken_from_pool(st, s, guard, library, site)

    def presume_allocated(self, st: State, buffer: Name) -> None:
        """What is given back by hand and was not seen made was allocated where no stream had been entered.

        Memory of the host is none of that: copies are seen to come from there.
        """
        seen_made = buffer.parent is None and not self.is_external(buffer)
        if (
            seen_made
            or (buffer, "@allocated") in st.store
            or self.place(st, Opaque(buffer)) not in ("", "device")
        ):
            return
        if not any(made.detail.tags & {"h2d", "h2d?"} for made in st.order.accesses(buffer)):  # type: ignore[attr-defined]
            st.store[(buffer, "@allocated")] = Stream(AMBIENT)
            st.store[(buffer, PRESUMED)] = PLAIN

    def taken_from_pool(self, st: State, stream: Stream, guard: Guard, library: str, site: Site) -> None:
        """The next life of what a stream's pool has got back begins at a place."""
        pool = ("pool", stream.name)
        if pool not in st.order.made:
            return
        st.order.obey(edges.launch(stream.name, HOST, self.table), guard)
        for made, way in st.order.conflicts(pool, None, True, stream.name, st.path & guard):
            detail: Detail = made.detail  # type: ignore[assignment]
            extra = Assumed.METHODS if detail.entry != self.entry else Assumed.NOTHING
            if st.current.get("device") == PLAIN and self.are_defaults(made.timeline, stream.name):
                extra |= Assumed.POSSIBLE  # of two devices that may be one
            released = made.part
            self.report(
                st,
                Finding(
                    kind="reuse",
                    second=made.site,  # type: ignore[arg-type]
                    operation=detail.operation,
                    writes=made.writes,
                    timeline=self.timeline_text(made.timeline),
                    first=made,
                    first_timeline=self.timeline_text(stream.name),
                    memory=detail.memory,
                    assumed=detail.assumed
                    | extra
                    | (Assumed.BLIND if detail.assumed & Assumed.UNMODELLED else Assumed.NOTHING),
                    tags=detail.tags
                    | {f"library:{library}"}
                    | ({AGAIN} if isinstance(released, Release) and released.later else frozenset()),
                    notes=[
                        *(released.notes if isinstance(released, Release) else ()),
                        ("the next allocation on that stream may take its memory", site),
                    ],
                    entry=self.entry,
                    streams=(made.timeline, stream.name),
                    buffer=released.buffer if isinstance(released, Release) else None,
                ),
                way,
            )
            st.order.obey([Edge(stream.name, made.timeline)], guard & way)

    def record_stream(self, st: State, value: Value, stream: Value, library: str, site: Site) -> None:
        """``tensor.record_stream(stream)``: a later free waits for what that stream has by then (TL-03)."""
        names = [s for s, _ in self.streams(st, library, stream)]
        self.recorded_on(st, value, names)
        for target, _ in self.tensors(st, value):
            for s in names:
                if target.name.parent is not None:
                    self.recorded_siblings.add((target.name.parent.base(), s.name))
        self.explain(st, site, f"record_stream({self._streams_text(st, library, stream)})")

    def recorded_on(self, st: State, value: Value, streams: list[Stream]) -> None:
        """The allocator waits for these streams before it hands out again what is freed."""
        for target, _ in self.tensors(st, value):
            key = (target.name, "@recorded on")
            before = [s for r in iterate(st.store.get(key, NONE)) if isinstance(r, Tuple) for s in r.items]
            st.store[key] = Tuple(tuple(dict.fromkeys([*before, *streams])))

    @staticmethod
    def covering(st: State, buffer: Name) -> set[Name]:
        """The streams that a block is recorded on."""
        recorded = st.store.get((buffer, "@recorded on"), NONE)
        tuples = [r.items for r in iterate(recorded) if isinstance(r, Tuple)]
        return {s.name for items in tuples for s in items if isinstance(s, Stream)}

    def release_unreachable(self, st: State, site: Site, keep: Iterable[Value] = ()) -> None:
        """Blocks whose last name is gone go back to their pool."""
        if not self.candidates:
            return
        candidates, self.candidates = self.candidates, []
        inputs = {name for name in self.ended if any(name in used for used in st.graphs.values())}
        self.ended = set()
        concerned = []
        for name in dict.fromkeys(candidates):
            allocated = st.store.get((name, "@allocated"))
            pinned = st.store.get((name, "@place")) == Const("pinned")
            if name in inputs and (pinned or allocated is not None):
                concerned.append(name)
            if allocated is None:
                continue
            if name not in st.order.made:
                continue
            own = {s.name for s in iterate(allocated) if isinstance(s, Stream)}
            if any(made.timeline not in own for made in st.order.made[name]):
                concerned.append(name)
        if not concerned:
            return
        keep = list(keep)
        alive = self.reachable(st, keep)
        for name in dict.fromkeys(concerned):
            if name not in alive:
                self.lost_input(st, name, site, alive)
                self.release(st, name, site)
                continue
            self._release_taken(st, name, site, keep)
            if any(way.guard is not ALWAYS for ways in st.order.accesses(name).values() for way in ways):
                kept = {ALWAYS} if self.is_external(name) else self.kept_where(st, name, alive, keep)
                if ALWAYS not in kept:
                    self.release(st, name, site, kept)

    def _release_taken(self, st: State, name: Name, site: Site, keep: list[Value]) -> None:
        """One of the objects of a name was taken out of what holds the others, and is held no more."""
        choices = alternatives(st.store.get((name, TAKEN), NONE), st.path)
        following = st.store.get((name, NEXT), NONE)
        for taken, guard in choices:
            if not isinstance(taken, Tuple) or (
                following == NONE and any(v == NONE and not g.contradicts(guard) for v, g in choices)
            ):
                continue  # on these paths it may as well be where it was
            container, before = taken.items
            assert isinstance(container, Container)
            assert isinstance(before, Const)
            gone = name not in self.reachable(st, keep, container.name)
            if gone or (following != NONE and self._holders(st, name, container, keep) == 1):
                st.store[(name, TAKEN)] = NONE if gone else following
                st.store[(name, NEXT)] = NONE
                # what a key picks may have been waited for where it was picked before
                over = before.value if container.kind == "dict" else frozenset()
                self.release(st, name, site, only=(guard, over))

    def _holders(self, st: State, name: Name, container: Container, keep: Iterable[Value]) -> int:
        """How many names there are for the objects of a name, beside the container that holds the others."""
        alive = self.reachable(st, keep, container.name)
        held = [
            value
            for owner, table in st.store.settled().items()
            if owner in alive and owner is not container.name and name in table.leads()
            for key, value in table.items()
            if not (type(key) is str and key[:1] == "@")
        ]
        return sum(name in led_to((value,)) for value in (*held, *keep))

    @staticmethod
    def kept_where(st: State, name: Name, alive: set[Name], keep: Iterable[Value]) -> set[Guard]:
        """On which paths an object that is still reached has a name."""
        held = [
            value
            for owner, table in st.store.settled().items()
            if owner in alive
            for key, value in table.items()
            if type(value) is not Const and not (type(key) is str and key[:1] == "@")
        ]
        return {
            guard
            for value in (*held, *keep)
            for inner, guard in (value.alternatives if isinstance(value, Union) else ((value, ALWAYS),))
            if any(name in found.chain() for found in led_to((inner,)))
        } | ({ALWAYS} if name.parent in alive else set())

    def release(
        self,
        st: State,
        buffer: Name,
        site: Site,
        kept: Collection[Guard] = (),
        only: tuple[Guard, frozenset[Hashable]] | None = None,
    ) -> None:
        """A block goes back to the pool of the stream it was allocated on; uses that were recorded are waited for.

        Args:
            st: changed in place.
            buffer: the block.
            site: where it lost its last name.
            kept: the paths on which it has not.
            only: one of the blocks of this name is released, on these paths; others are still held, and so it may be
                one of those that what was done at these places was done to.
        """
        allocated = st.store.get((buffer, "@allocated"))
        if allocated is None:
            return
        if st.capture is None and (buffer, "@captured") in st.store:
            st.order.drop(buffer)  # the graph's own pool keeps it
            return
        covered = self.covering(st, buffer)
        library = self.libraries.get(buffer.base())
        if library == "cupy":
            covered = set()
        # what a recorded stream has waited for by now is waited for, too: its event is recorded at the release (TL-03)
        behind = 0
        for name in covered:
            behind |= self.carriers.bit(name)
        made_at = self.sites_of.get(buffer.base())
        table = dict(st.order.accesses(buffer))
        for stream, guard in alternatives(allocated, st.path):
            if not isinstance(stream, Stream) or (only is not None and guard.contradicts(only[0])):
                continue
            guard = guard & only[0] if only is not None else guard
            notes: list[tuple[str, Site]] = []
            if made_at is not None:
                notes.append((f"allocated on {self.describe(stream)}", made_at))
            notes.append(("released here, while that use may still run", site))
            release = Release(tuple(notes), buffer)
            for made in table:
                if made.timeline == stream.name or made.timeline in covered:
                    continue
                if only is not None and made.site in only[1]:
                    continue
                if "kept alive" in made.detail.tags:  # type: ignore[attr-defined]
                    continue
                if made.writes and made.site == made_at and library != "cupy":
                    continue  # what makes it runs where it is allocated, whichever of several streams that is
                pool = ("pool", stream.name)
                ways = [
                    Way(w.carriers, w.guard & guard)
                    for w in table[made]
                    if not w.carriers & behind
                    and not w.guard.contradicts(guard)
                    and all(map(w.guard.contradicts, kept))
                ]
                if ways:  # it ran while the block was of this stream's pool
                    # it has aged since, where this call has made another one
                    later = not {made, made._replace(buffer=buffer.newest())}.isdisjoint(self.inherited)
                    part = release._replace(later=later)
                    detail: Detail = made.detail  # type: ignore[assignment]
                    if (buffer, PRESUMED) in st.store:
                        detail = detail._replace(assumed=detail.assumed | Assumed.METHODS)
                    pooled = made._replace(buffer=pool, part=part, writes=True, detail=detail)
                    bit = self.carriers.bit(stream.name)
                    if INITIAL in detail.tags and not all(way.carriers & bit for way in ways):
                        self._not_recorded(st, pooled, release)
                    st.order.made[pool] = Accesses({**st.order.accesses(pool), pooled: simplify(ways)})
        if kept:
            left = {
                made: tuple(w for w in ways if not all(map(w.guard.contradicts, kept)))
                for made, ways in table.items()
            }
            st.order.made[buffer] = Accesses({made: ways for made, ways in left.items() if ways})
        if kept or only is not None:
            return
        st.order.drop(buffer)
        del st.store[(buffer, "@allocated")]

    def _not_recorded(self, st: State, pooled: Made, release: Release) -> None:
        """An initial gradient is released while backward() may still read it: no next allocation need be seen."""
        detail: Detail = pooled.detail  # type: ignore[assignment]
        stream: Name = pooled.buffer[1]  # type: ignore[index]
        self.report(
            st,
            Finding(
                kind="reuse",
                second=pooled.site,  # type: ignore[arg-type]
                operation=detail.operation,
                writes=True,
                timeline=self.timeline_text(pooled.timeline),
                first=pooled,
                first_timeline=self.timeline_text(stream),
                memory=detail.memory,
                assumed=detail.assumed | Assumed.UNMODELLED,
                tags=detail.tags | {"library:torch"},
                notes=list(release.notes),
                entry=detail.entry,  # that nobody records it is no matter between two calls
                streams=(pooled.timeline, stream),
                buffer=release.buffer,
            ),
        )

    def prune(self, st: State, keep: Iterable[Value] = ()) -> None:
        """Forget objects that nothing leads to any more."""
        alive = self.reachable(st, keep)
        for owner in list(st.store.objects):
            if owner not in alive and self.is_own(owner):
                st.store.drop(owner)
        for order in (st.order, st.eager):
            for buffer in list(order.made) if order is not None else ():
                gone = isinstance(buffer, Name) and buffer not in alive and self.is_own(buffer)
                timed = isinstance(buffer, tuple) and buffer[0] == "timing" and buffer[1] not in alive
                if order is not None and (gone or timed):
                    del order.made[buffer]

    def is_own(self, name: Name) -> bool:
        """Whether an object is made in what is analysed."""
        root = name.root()
        if root.age:  # an argument of a call that is over, or made in a round that is
            return True
        return root in self.made_here or (root.base() in self.closed and not isinstance(root.site, str))

    def is_external(self, name: Name) -> bool:
        """Whether an object is not seen made, or is of one that is not."""
        root = name if name.parent is None else name.root()
        return not root.age and root not in self.made_here and root.base() not in self.closed

    def taken_out(self, st: State, container: Container, value: Value) -> None:
        """An element of which only a summary is known has left its container: what goes with it nobody else holds.

        What was done to it before, an event beside it may tell: which one that is is not known.
        """
        taken = [t for t, _ in self.tensors(st, value) if (t.name, "@allocated") in st.store]
        if not taken or self.threads or self.beside:
            return  # whoever put it there may have kept it, and wait for what is done to it here
        others = self.reachable(st, self.suspended(), container.name)
        for target in taken:
            note = TAKEN
            if target.name in others:
                if not self._was_taken(st, target.name, container):
                    continue
                note = NEXT
            before = frozenset(made.site for made in st.order.accesses(target.name))
            st.store[(target.name, note)] = Tuple((container, Const(before)))

    @staticmethod
    def _was_taken(st: State, name: Name, container: Container) -> bool:
        """Whether one of the objects of a name was taken out of a container and is not in it again."""
        rows = iterate(st.store.get((name, TAKEN), NONE))
        return any(isinstance(row, Tuple) and row.items[0] == container for row in rows)

    def put_back(self, st: State, value: Value, into: Object | None = None, but: Value = NONE) -> None:
        """What has been taken out of a container is in it again, or was not taken out, but for this.

        What another container holds is reached through that one.
        """
        for target, _ in self.tensors(st, value):
            taken = st.store.get((target.name, TAKEN))
            if taken is None or target.name in {t.name for t, _ in self.tensors(st, but)}:
                continue
            containers = {row.items[0] for row in iterate(taken) if isinstance(row, Tuple)}
            if into is None or any(isinstance(v, Object) and v.name == into.name for v in containers):
                st.store[(target.name, TAKEN)] = NONE

    def reachable(self, st: State, keep: Iterable[Value] = (), without: Name | None = None) -> set[Name]:
        """Every object that some live name leads to; not through a container without which it is asked for."""
        external: set[Name] = set()
        children: dict[Name, list[Name]] = {}
        tables = st.store.settled()
        for owner in tables:
            if self.is_external(owner) or (self.waiting and "@waiting" in tables[owner]):
                external.add(owner)  # somebody who is not seen holds it, or it is a thread that runs
            if owner.parent is not None:
                children.setdefault(owner.parent, []).append(owner)
        seen: set[Name] = set()
        stack = [*self.frames(), *external, *led_to(keep)]
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name is without:
                continue
            table = tables.get(name)
            if table is not None:
                stack.extend(table.leads())
            stack.extend(children.get(name, ()))
            if name.parent is not None:
                stack.append(name.parent)
        return seen
