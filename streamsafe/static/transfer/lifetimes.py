"""Lifetimes: which objects are reachable, and the release of a block when nothing holds it any more."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from streamsafe.order.symbolic import ALWAYS, Accesses, Guard, Made, Way, simplify
from streamsafe.static import fields
from streamsafe.static.facts import INITIAL, Assumed, Detail, Finding, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.memory import Release
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Const,
    Container,
    Name,
    Object,
    Stream,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    led_to,
)


class Lifetimes(Part):
    """Releases what nothing leads to."""

    @staticmethod
    def covering(st: State, buffer: Name) -> set[Name]:
        """The streams that a block is recorded on."""
        recorded = st.store.every(buffer, fields.RECORD_STREAM)
        return {s.name for row in recorded for s in row.items if isinstance(s, Stream)}

    def release_unreachable(self, st: State, site: Site, keep: Iterable[Value] = ()) -> None:
        """Blocks whose last name is gone go back to their pool."""
        if not self.run.candidates:
            return
        candidates, self.run.candidates = self.run.candidates, []
        inputs = {name for name in self.run.ended if any(name in used for used in st.graphs.values())}
        self.run.ended = set()
        concerned = []
        for name in dict.fromkeys(candidates):
            allocated = st.store.get((name, fields.ALLOCATED_ON))
            pinned = st.store.get((name, fields.PLACE)) == Const("pinned")
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
                self.graph_memory.lost_input(st, name, site, alive)
                self.release(st, name, site)
                continue
            self._release_taken(st, name, site, keep)
            if any(way.guard is not ALWAYS for ways in st.order.accesses(name).values() for way in ways):
                kept = {ALWAYS} if self.memory.is_external(name) else self.kept_where(st, name, alive, keep)
                if ALWAYS not in kept:
                    self.release(st, name, site, kept)

    def _release_taken(self, st: State, name: Name, site: Site, keep: list[Value]) -> None:
        """One of the objects of a name was taken out of what holds the others, and is held no more."""
        choices = alternatives(st.store.get((name, fields.TAKEN_FROM), NONE), st.path)
        following = st.store.get((name, fields.TAKEN_NEXT), NONE)
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
                st.store[(name, fields.TAKEN_FROM)] = NONE if gone else following
                st.store[(name, fields.TAKEN_NEXT)] = NONE
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
            if type(key) is not fields.Field
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
            if type(value) is not Const and type(key) is not fields.Field
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
        allocated = st.store.get((buffer, fields.ALLOCATED_ON))
        if allocated is None:
            return
        if st.capture is None and (buffer, fields.ALLOCATED_IN_CAPTURE) in st.store:
            st.order.drop(buffer)  # the graph's own pool keeps it
            return
        covered = self.covering(st, buffer)
        library = self.run.libraries.get(buffer.base())
        if library == "cupy":
            covered = set()
        # what a recorded stream has waited for by now is waited for, too: its event is recorded at the release (TL-03)
        behind = 0
        for name in covered:
            behind |= self.run.carriers.bit(name)
        made_at = self.run.sites_of.get(buffer.base())
        table = dict(st.order.accesses(buffer))
        for stream, guard in alternatives(allocated, st.path):
            if not isinstance(stream, Stream) or (only is not None and guard.contradicts(only[0])):
                continue
            guard = guard & only[0] if only is not None else guard
            notes: list[tuple[str, Site]] = []
            if made_at is not None:
                notes.append((f"allocated on {self.objects.describe(stream)}", made_at))
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
                    later = not {made, made._replace(buffer=buffer.newest())}.isdisjoint(self.run.inherited)
                    part = release._replace(later=later)
                    detail: Detail = made.detail  # type: ignore[assignment]
                    if st.store.marked(buffer, fields.PRESUMED_STREAM):
                        detail = detail._replace(assumed=detail.assumed | Assumed.METHODS)
                    pooled = made._replace(buffer=pool, part=part, writes=True, detail=detail)
                    bit = self.run.carriers.bit(stream.name)
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
        del st.store[(buffer, fields.ALLOCATED_ON)]

    def _not_recorded(self, st: State, pooled: Made, release: Release) -> None:
        """An initial gradient is released while backward() may still read it: no next allocation need be seen."""
        detail: Detail = pooled.detail  # type: ignore[assignment]
        stream: Name = pooled.buffer[1]  # type: ignore[index]
        self.accesses.report(
            st,
            Finding(
                kind="reuse",
                second=pooled.site,  # type: ignore[arg-type]
                operation=detail.operation,
                writes=True,
                timeline=self.accesses.timeline_text(pooled.timeline),
                first=pooled,
                first_timeline=self.accesses.timeline_text(stream),
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
        return root in self.run.made_here or (
            root.base() in self.run.closed and not isinstance(root.site, str)
        )

    def taken_out(self, st: State, container: Container, value: Value) -> None:
        """An element of which only a summary is known has left its container: what goes with it nobody else holds.

        What was done to it before, an event beside it may tell: which one that is is not known.
        """
        taken = [t for t, _ in self.memory.tensors_in(st, value) if (t.name, fields.ALLOCATED_ON) in st.store]
        if not taken or self.run.threads or self.run.beside:
            return  # whoever put it there may have kept it, and wait for what is done to it here
        others = self.reachable(st, self.call_stack.suspended(), container.name)
        for target in taken:
            note = fields.TAKEN_FROM
            if target.name in others:
                if not self._was_taken(st, target.name, container):
                    continue
                note = fields.TAKEN_NEXT
            before = frozenset(made.site for made in st.order.accesses(target.name))
            st.store[(target.name, note)] = Tuple((container, Const(before)))

    @staticmethod
    def _was_taken(st: State, name: Name, container: Container) -> bool:
        """Whether one of the objects of a name was taken out of a container and is not in it again."""
        return any(row.items[0] == container for row in st.store.every(name, fields.TAKEN_FROM))

    def put_back(self, st: State, value: Value, into: Object | None = None, but: Value = NONE) -> None:
        """What has been taken out of a container is in it again, or was not taken out, but for this.

        What another container holds is reached through that one.
        """
        for target, _ in self.memory.tensors_in(st, value):
            taken = st.store.every(target.name, fields.TAKEN_FROM)
            if not taken or target.name in {t.name for t, _ in self.memory.tensors_in(st, but)}:
                continue
            containers = {row.items[0] for row in taken}
            if into is None or any(isinstance(v, Object) and v.name == into.name for v in containers):
                st.store[(target.name, fields.TAKEN_FROM)] = NONE

    def reachable(self, st: State, keep: Iterable[Value] = (), without: Name | None = None) -> set[Name]:
        """Every object that some live name leads to; not through a container without which it is asked for."""
        external: set[Name] = set()
        children: dict[Name, list[Name]] = {}
        tables = st.store.settled()
        for owner in tables:
            if self.memory.is_external(owner) or (
                self.run.waiting and fields.WAITING_THREAD in tables[owner]
            ):
                external.add(owner)  # somebody who is not seen holds it, or it is a thread that runs
            if owner.parent is not None:
                children.setdefault(owner.parent, []).append(owner)
        seen: set[Name] = set()
        stack = [*self.call_stack.frames(), *external, *led_to(keep)]
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
