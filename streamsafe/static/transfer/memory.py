"""Memory: what a value's tensors are, where they are, allocation and ``record_stream``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from streamsafe.order import edges
from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import ALWAYS, HOST, Guard
from streamsafe.static import element_keys, fields, hints, parts
from streamsafe.static.facts import AGAIN, AMBIENT, Assumed, Detail, Finding, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
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
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


_LEADING = frozenset({Union, Tensor, Opaque, Tuple, Container, Instance})
"""Values that stand for tensors, or hold some."""


class Release(NamedTuple):
    """Where a block was allocated and released: the part of a pooled access."""

    notes: tuple[tuple[str, Site], ...]
    buffer: Name
    later: bool = False
    """By another call of a method than the one that used it."""


class Memory(Part):
    """Finds the tensors of a value, and where they were allocated."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.holders: set[Name] = set()
        """Objects of whose parts something is known."""

    def tensors_in(self, st: State, value: Value) -> list[tuple[Object, Guard]]:
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
                if type(inner) in _LEADING and type(key) is not fields.Field:
                    self._collect(st, element_keys.in_rounds(inner, rounds), under, depth + 1, found)

    def _result_of(self, st: State, value: Opaque) -> Opaque | None:
        """What an operation returned, if an object still is the part of it that it was then."""
        name, whole = value.name, value.name.root()
        if name is whole or whole.base() not in self.run.results:
            return None
        if type(name.site) is int:  # a row may be a handle: one that is used as a tensor is none
            if name.base() not in self.run.tensor_rows:
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
        return name.base() in self.run.plain or self.is_setting(name)

    def is_setting(self, name: Name) -> bool:
        """Whether an object is what an option of a command line was set to."""
        return name.parent is not None and name.parent.base() in self.run.settings

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
                if type(key) is fields.Field:
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
        found = st.store.one(target.name, fields.PLACE) if isinstance(target, Object) else None
        if found is not None:
            if st.capture is not None and isinstance(target, Object):
                # whoever makes a module sets the default, and this is captured
                return "device" if st.store.marked(target.name, fields.DEFAULT_DEVICE) else str(found.value)
            return str(found.value)
        if isinstance(target, Tensor) and target.numpy:
            return "host"
        if not isinstance(target, Object):
            return ""
        if self.run.loaded and target.name.root().base() in self.run.loaded:
            return "pageable"
        if target.name.parent is not None and any(
            st.store.get((name, fields.PLACE)) == Const("pageable") for name in target.name.parent.chain()
        ):
            return "pageable"  # a table of what lies on the host
        return "host" if hints.names_host(target.name.site) else ""

    def set_place(self, st: State, target: Value, place: str) -> None:
        """Where a buffer lies is known from now on."""
        if isinstance(target, Object):
            st.store[(target.name, fields.PLACE)] = Const(place)

    def allocate(
        self, st: State, buffer: Name, library: str, site: Site, stream: Value | None = None
    ) -> None:
        """A block is taken from the pool of the current stream (TL-01, CS-20): its next life begins."""
        st.store[(buffer, fields.ALLOCATED_ON)] = union(self.effects.possible_streams(st, library, stream))
        base = buffer.base()
        self.run.libraries[base] = library
        self.run.sites_of[base] = site
        self.run.candidates.append(buffer)
        self.graph_memory.reuses_captured(st, buffer, library)
        self.threads.noted_in_thread(buffer)
        for s, guard in self.effects.possible_streams(st, library, stream):
            self.taken_from_pool(st, s, guard, library, site)

    def presume_allocated(self, st: State, buffer: Name) -> None:
        """What is given back by hand and was not seen made was allocated where no stream had been entered.

        Memory of the host is none of that: copies are seen to come from there.
        """
        seen_made = buffer.parent is None and not self.is_external(buffer)
        if (
            seen_made
            or (buffer, fields.ALLOCATED_ON) in st.store
            or self.place(st, Opaque(buffer)) not in ("", "device")
        ):
            return
        if not any(made.detail.tags & {"h2d", "h2d?"} for made in st.order.accesses(buffer)):  # type: ignore[attr-defined]
            st.store[(buffer, fields.ALLOCATED_ON)] = Stream(AMBIENT)
            st.store.mark(buffer, fields.PRESUMED_STREAM)

    def taken_from_pool(self, st: State, stream: Stream, guard: Guard, library: str, site: Site) -> None:
        """The next life of what a stream's pool has got back begins at a place."""
        pool = ("pool", stream.name)
        if pool not in st.order.made:
            return
        st.order.obey(edges.launch(stream.name, HOST, self.run.table), guard)
        for made, way in st.order.conflicts(pool, None, True, stream.name, st.path & guard):
            detail: Detail = made.detail  # type: ignore[assignment]
            extra = Assumed.METHODS if detail.entry != self.run.entry else Assumed.NOTHING
            if st.current.get("device") == PLAIN and self.race_checks.are_defaults(
                made.timeline, stream.name
            ):
                extra |= Assumed.POSSIBLE  # of two devices that may be one
            released = made.part
            self.accesses.report(
                st,
                Finding(
                    kind="reuse",
                    second=made.site,  # type: ignore[arg-type]
                    operation=detail.operation,
                    writes=made.writes,
                    timeline=self.accesses.timeline_text(made.timeline),
                    first=made,
                    first_timeline=self.accesses.timeline_text(stream.name),
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
                    entry=self.run.entry,
                    streams=(made.timeline, stream.name),
                    buffer=released.buffer if isinstance(released, Release) else None,
                ),
                way,
            )
            st.order.obey([Edge(stream.name, made.timeline)], guard & way)

    def record_stream(self, st: State, value: Value, stream: Value, library: str, site: Site) -> None:
        """``tensor.record_stream(stream)``: a later free waits for what that stream has by then (TL-03)."""
        names = [s for s, _ in self.effects.possible_streams(st, library, stream)]
        self.recorded_on(st, value, names)
        for target, _ in self.tensors_in(st, value):
            for s in names:
                if target.name.parent is not None:
                    self.run.recorded_siblings.add((target.name.parent.base(), s.name))
        self.effects.explain(st, site, f"record_stream({self.effects.streams_text(st, library, stream)})")

    def recorded_on(self, st: State, value: Value, streams: list[Stream]) -> None:
        """The allocator waits for these streams before it hands out again what is freed."""
        for target, _ in self.tensors_in(st, value):
            before = [s for r in st.store.every(target.name, fields.RECORD_STREAM) for s in r.items]
            st.store[(target.name, fields.RECORD_STREAM)] = Tuple(tuple(dict.fromkeys([*before, *streams])))

    def is_external(self, name: Name) -> bool:
        """Whether an object is not seen made, or is of one that is not."""
        root = name if name.parent is None else name.root()
        return not root.age and root not in self.run.made_here and root.base() not in self.run.closed
