"""Accesses of streams and of the host to memory, and the reports of hazards."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from streamsafe.order import edges
from streamsafe.order.edges import Carrier
from streamsafe.order.symbolic import ALWAYS, HOST, Guard, Made
from streamsafe.static import element_keys, keyed, parts
from streamsafe.static.facts import (
    ACCESSES_AN_ACCESS,
    AMBIENT,
    COPIES,
    EFFORT,
    EXHAUSTED,
    FILE_EFFORT,
    GRADIENTS,
    HOOK,
    SPENT,
    UNNUMBERED,
    WAYS_AN_ACCESS,
    Assumed,
    Detail,
    Finding,
    Site,
)
from streamsafe.static.parts import touched
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    EACH,
    PARAMETERS,
    PLAIN,
    Name,
    Object,
    Opaque,
    Span,
    Stream,
    Tensor,
    Value,
)


class MemoryAccesses(Part):
    """Accesses to memory, and the hazards that they show."""

    def access(
        self,
        st: State,
        value: Value,
        site: Site,
        operation: str,
        *,
        writes: bool,
        library: str = "torch",
        stream: Value | None = None,
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """A device operation touches what a value stands for, on a stream; a clock that runs sees it as a launch."""
        streams = self.effects.possible_streams(st, library, stream)
        if (
            len(streams) > 1
            and any(
                not first.contradicts(second)
                for n, (_, first) in enumerate(streams)
                for _, second in streams[:n]
            )
        ):  # which of them it is hangs on something that is not followed: what else hangs on it is not known either
            assumed |= Assumed.FORGOTTEN
        for target, guard in self.memory.tensors_in(st, value):
            for s, stream_guard in streams:
                both = guard & stream_guard
                if guard.contradicts(stream_guard) or st.path.contradicts(both):
                    continue
                self.touch(st, target, site, operation, writes, s, both, assumed, tags)
        # what some object does with a tensor is no launch that is seen
        if st.clocks and "method" not in tags:
            device = any(self.memory.place(st, t) == "device" for t, _ in self.memory.tensors_in(st, value))
            self.clocks.launched(st, site, operation, device=device, library=library, stream=stream)

    def touch(
        self,
        st: State,
        target: Object,
        site: Site,
        operation: str,
        writes: bool,
        stream: Stream,
        guard: Guard,
        assumed: Assumed,
        tags: frozenset[str],
    ) -> None:
        """An access of one stream to one object, under one guard."""
        if self.is_spent():
            return  # one statement may touch thousands: the share counts here too
        buffer, part, keys = _picked(target)
        if isinstance(target, Tensor):
            self.run.tensorish.add(buffer.base())
            self.run.presumed.discard(buffer.base())
        if buffer.parent is not None:
            self.memory.holds(buffer)
        if (
            self.run.one_stream
            and stream.name is AMBIENT
            and not tags & COPIES
            and self.run.explained is None
        ):
            return  # what one stream does to memory of the device is ordered
        spent, self.run.carriers.work = divmod(self.run.carriers.work, WAYS_AN_ACCESS)
        self.run.effort += 1 + spent
        self.run.total_effort += 1 + spent + len(st.order.made.get(buffer, ())) // ACCESSES_AN_ACCESS
        if self.run.pooled and not writes:
            self.replays.reads_overlaid(st, buffer, site, guard)
        if st.capture is not None and tags & {"h2d", "h2d?"}:
            self.replays.copies_filled(st, buffer, site)
        one_of_many = buffer.is_older() or buffer.is_unknown_element() or self.is_some_element(buffer)
        if one_of_many:
            assumed |= Assumed.OLDER
        if stream.name.is_older() or stream.name.is_unknown_element():
            assumed |= Assumed.CHOICE
        if stream.name == HOOK:
            tags |= {"hook"}
        if isinstance(target, Tensor) and target.unexchanged:
            tags |= {"unexchanged"}
        if st.current.get("device") == PLAIN and self.run.table.is_legacy(stream.name):
            tags |= {UNNUMBERED}
        st.order.obey(edges.launch(stream.name, HOST, self.run.table), guard)
        self.race_checks.check(
            st, buffer, part, writes, stream.name, site, operation, guard, assumed, tags, target, keys
        )
        iterated = self.iterated_element(buffer)
        if iterated is not None and iterated in st.order.made:
            many = assumed | Assumed.OLDER
            self.race_checks.check(
                st, iterated, part, writes, stream.name, site, operation, guard, many, tags, target, keys
            )
        if buffer in self.run.from_caller:
            self.race_checks.against_caller(
                st, target, writes, stream.name, site, operation, guard, assumed, tags
            )
        memory = self.objects.describe(target)
        detail = Detail(operation, memory, assumed, tags, self.run.entry, keys)
        # a replay repeats every access of a capture, also those that a later one stands for
        alone = st.capture is None and not one_of_many
        covers = alone and part is None and not isinstance(target, Opaque)
        st.order.add(Made(site, buffer, part, writes, stream.name, detail), guard, covers=covers, alone=alone)
        self.captures.capture_access(st, target, stream.name, site, operation, writes)
        if self.run.explained is not None:
            text = (
                f"{operation} {'writes' if writes else 'reads'} {memory} on {self.objects.describe(stream)}"
            )
            self.effects.explain(st, site, text)

    def iterated_element(self, buffer: Name) -> Name | None:
        """The element of a loop that is over which stands for one that is picked by an unknown key."""
        if buffer.parent is None:
            return None
        for name in buffer.chain():
            if name.parent is not None and _is_picked(name.site):
                each = name.parent.child(EACH)
                if any(each in names for names in self.run.rounds):
                    return None  # it goes on: this may be another one than the round's
                return element_keys.transplanted(buffer, name, each)
        return None

    def reach_picked(self, st: State, element: Name) -> None:
        """A loop begins: it will reach the elements that have been picked before by unknown keys."""
        for buffer in list(st.order.made):
            if not isinstance(buffer, Name) or buffer.parent is None:
                continue
            picked = next(
                (n for n in buffer.chain() if n.parent is element.parent and _is_picked(n.site)), None
            )
            moved = element_keys.transplanted(buffer, picked, element) if picked is not None else None
            if moved is not None:
                st.order.share(buffer, partial(_on_buffer, moved))
                if buffer.base() in self.run.tensorish:
                    self.run.tensorish.add(moved.base())

    def is_some_element(self, buffer: Name) -> bool:
        """Whether it is some element of a loop that is over, not known which; a module needs all it has."""
        for name in buffer.chain():
            if name.site == EACH and name.parent is not None and name.parent.site != PARAMETERS:
                if not any(name in names for names in self.run.rounds):
                    return True
        return False

    def host_access(
        self,
        st: State,
        value: Value,
        site: Site,
        operation: str,
        *,
        writes: bool,
        assumed: Assumed = Assumed.NOTHING,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """The host touches memory; a host function does so on its stream's timeline."""
        if self.run.calling is not None:
            tags |= {"host function"}
            self.access(
                st, value, site, operation, writes=writes, stream=self.run.calling, assumed=assumed, tags=tags
            )
            return
        for target, guard in self.memory.tensors_in(st, value):
            _, part, keys = _picked(target)
            if writes and st.capture is not None:
                self.replays.fills_in_capture(st, target, site)
            elif self.run.pooled and not writes:
                self.replays.reads_overlaid(st, target.name, site, guard)
            self.race_checks.check(
                st, target.name, part, writes, HOST, site, operation, guard, assumed, tags, target, keys
            )
            self.effects.explain(
                st,
                site,
                f"the host {'writes' if writes else 'reads'} {self.objects.describe(target)} ({operation})",
            )

    def is_spent(self) -> bool:
        """Whether an entry, or the file, has made as many accesses as it may: the rest of the entry is left out."""
        if self.run.effort <= EFFORT and self.run.total_effort <= FILE_EFFORT:
            return False
        self.run.cut_short[self.run.entry] = SPENT
        return True

    def report(self, st: State, finding: Finding, way: Guard = ALWAYS) -> None:
        """Keep a finding; of two with the same places the one that assumes less."""
        if self.run.silent:
            self.run.unreported.add(finding.buffer)
            return
        if self.calls.is_exhausted() and finding.kind in ("pair", "reuse"):
            self.run.cut_short.setdefault(self.run.entry, EXHAUSTED)
            finding.assumed |= Assumed.POSSIBLE  # what was not followed any more may well order it
        if finding.first is not None:
            self.run.unordered_accesses.add((finding.entry, finding.first.site))
        old = self.run.findings.get(finding.key)
        if old is None or (finding.strong, finding.assumed.value) < (old.strong, old.assumed.value):
            self.run.findings[finding.key] = finding

    def violation(
        self,
        st: State,
        kind: str,
        site: Site,
        operation: str,
        notes: list[tuple[str, Site]] | None = None,
        assumed: Assumed = Assumed.NOTHING,
        memory: str = "",
        tags: frozenset[str] = frozenset(),
        first: Made | None = None,
    ) -> None:
        """An operation that is illegal where it stands; `first`: what is still under way there."""
        self.report(
            st,
            Finding(
                kind=kind,
                second=site,
                operation=operation,
                writes=False,
                timeline=self.effects.streams_text(st, "torch", None),
                notes=notes or [],
                assumed=assumed,
                entry=self.run.entry,
                memory=memory,
                tags=tags,
                first=first,
            ),
        )

    def forget_plain(self, st: State) -> None:
        """Between two calls nothing is kept of objects that nobody leads to, or that nothing shows to be tensors."""
        self.lifetimes.prune(st)
        for buffer in list(st.order.made):
            if isinstance(buffer, Name) and buffer != GRADIENTS and buffer.base() not in self.run.tensorish:
                if all(made.timeline == AMBIENT for made in st.order.made[buffer]):
                    del st.order.made[buffer]

    def timeline_text(self, timeline: Carrier) -> str:
        """How a user would name a timeline."""
        if timeline == HOST:
            return "the host"
        return self.objects.describe(Stream(timeline)) if isinstance(timeline, Name) else str(timeline)


def _picked(target: Object) -> tuple[Name, Hashable | None, frozenset[Hashable]]:
    """The buffer of an object, the part of it, and the keys by which it was picked."""
    part = touched(target.part) if isinstance(target, Span) else None
    keys = frozenset([*parts.keys(part), *keyed.keys_in(target.name)])
    return target.name, parts.without_keys(part), keys


def _is_picked(site: Hashable) -> bool:
    """Whether an element is one that a key has picked of which it is not known which it is."""
    return type(site) is tuple and site[:1] == ("[]",) and isinstance(site[1], Name)


def _on_buffer(buffer: Name, made: Made) -> Made:
    """The same access, to the element that a loop reaches."""
    detail: Detail = made.detail  # type: ignore[assignment]
    return made._replace(buffer=buffer, detail=detail._replace(assumed=detail.assumed | Assumed.OLDER))
