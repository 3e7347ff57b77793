"""Whether an access races with what is unordered before it."""

from __future__ import annotations

from collections.abc import Hashable

from streamsafe.order.edges import Carrier, Edge
from streamsafe.order.symbolic import HOST, Guard, Made
from streamsafe.static import keyed
from streamsafe.static.facts import (
    AGAIN,
    AMBIENT,
    AUTOGRAD,
    CALLER,
    COPIES,
    ENTERED,
    HOOK,
    RETURNED_HANDLE,
    UNNUMBERED,
    Assumed,
    Detail,
    Finding,
    Site,
)
from streamsafe.static.parts import may_be_disjoint, owner
from streamsafe.static.state import State, Waited
from streamsafe.static.suggestions import COMMUNICATION
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import ANY, Name, Object, Tensor

_NO_TAGS: frozenset[str] = frozenset()


class RaceChecks(Part):
    """Compares an access with the accesses before it."""

    def check(
        self,
        st: State,
        buffer: Name,
        part: Hashable | None,
        writes: bool,
        timeline: Carrier,
        site: Site,
        operation: str,
        guard: Guard,
        assumed: Assumed,
        tags: frozenset[str],
        target: Object,
        keys: frozenset[Hashable],
    ) -> None:
        """Reports what an access races with."""
        path = st.path & guard
        conflicts = st.order.conflicts(buffer, part, writes, timeline, path)
        if not conflicts:
            return
        place = self.memory.place(st, target)
        by_stream: dict[Carrier, tuple[Made, Guard]] = {}
        for made, way in conflicts:
            # the host conflicts only with what touches host memory: copies, and functions that streams call
            if timeline == HOST and (place == "device" or not made.detail.tags & COPIES):  # type: ignore[attr-defined]
                continue
            if "backward" in tags and not made.writes and self.is_of_leaf(made.part):
                continue  # the leaf of another pass: its gradient is other memory
            if keys and self.effects.is_ordered_by_key(st, made, timeline, keys, path):
                continue
            best = by_stream.get(made.timeline)
            if best is None or _detail_rank(made, self.run.entry) > _detail_rank(best[0], self.run.entry):
                by_stream[made.timeline] = (made, way)
        for made, way in by_stream.values():
            detail: Detail = made.detail  # type: ignore[assignment]
            extra = Assumed.NOTHING
            if self.is_no_tensor(buffer, assumed | detail.assumed):
                continue
            if detail.entry != self.run.entry:
                extra |= Assumed.METHODS
                if self.run.beside and timeline != HOST and made.site not in self.run.before_signals:
                    extra |= Assumed.POSSIBLE  # it may come only when the thread is done
            if self.may_be_one(made.timeline, timeline, st) or may_be_disjoint(made.part, part):
                extra |= Assumed.POSSIBLE
            if UNNUMBERED in tags | detail.tags and self.are_defaults(made.timeline, timeline):
                extra |= Assumed.POSSIBLE  # of two devices that may be one
            if (
                operation == AUTOGRAD
                and isinstance(made.timeline, Name)
                and self._is_from_elsewhere(made.timeline)
            ):
                extra |= Assumed.POSSIBLE  # the node that is handed the gradient may wait for that stream
            if RETURNED_HANDLE in detail.tags:
                extra |= Assumed.POSSIBLE  # the caller may have waited in between
            repeated = (
                frozenset({AGAIN})
                if detail.entry == self.run.entry and made in self.run.inherited
                else _NO_TAGS
            )
            if assumed & detail.assumed & Assumed.FORGOTTEN:
                extra |= Assumed.POSSIBLE
            if assumed & detail.assumed & Assumed.UNMODELLED:
                extra |= Assumed.BLIND
            finding = Finding(
                kind="pair",
                second=site,
                operation=operation,
                writes=writes,
                timeline=self.accesses.timeline_text(timeline),
                first=made,
                first_timeline=self.accesses.timeline_text(made.timeline),
                memory=self.objects.named_since(target, detail.memory),
                assumed=assumed | detail.assumed | extra,
                tags=tags
                | repeated
                | {f"first:{t}" for t in detail.tags}
                | ({"host"} if timeline == HOST or "host function" in tags else set()),
                entry=self.run.entry,
                streams=(made.timeline, timeline),
                buffer=buffer,
            )
            if not writes and not made.writes:
                continue
            finding.ineffective = self._ineffective(st, made, timeline)
            if finding.ineffective is not None:
                if self._is_of_another(st, made, finding.ineffective, keys):
                    finding.assumed |= Assumed.POSSIBLE
            self.accesses.report(st, finding, way)
            if self.effects.is_doubtful(finding):
                continue  # what it leans on may not hold: it stands for no other
            # one missing edge, one finding: go on as if the second timeline had waited
            joins = self.captures.open_branches(st)
            st.order.obey([Edge(timeline, made.timeline)], guard & way)
            st.order.made.update(joins)

    def against_caller(
        self,
        st: State,
        target: Object,
        writes: bool,
        timeline: Name,
        site: Site,
        operation: str,
        guard: Guard,
        assumed: Assumed,
        tags: frozenset[str],
    ) -> None:
        """A parameter is used on a stream that is not ordered after what the caller did: see ``callers.settle``."""
        if tags & COPIES or not (isinstance(target, Tensor) or target.name.base() in self.run.tensorish):
            return
        for made, way in st.order.conflicts(ENTERED, None, True, timeline, st.path & guard):
            parameter = self.run.from_caller[target.name]
            memory = self.objects.describe(target)
            detail = Detail("the caller", memory, Assumed.METHODS, frozenset(), self.run.entry)
            finding = Finding(
                kind="pair",
                second=site,
                operation=operation,
                writes=writes,
                timeline=self.accesses.timeline_text(timeline),
                first=Made(parameter, target.name, None, True, AMBIENT, detail),
                first_timeline=self.accesses.timeline_text(AMBIENT),
                memory=memory,
                assumed=assumed | Assumed.METHODS,
                tags=tags,
                entry=self.run.entry,
                streams=(CALLER, timeline),
                buffer=target.name,
            )
            if self.may_be_one(AMBIENT, timeline, st):
                finding.assumed |= Assumed.POSSIBLE
            self.accesses.report(st, finding, way)
            st.order.learn(timeline, made.timeline, guard=guard & way)
            break

    def is_of_leaf(self, part: Hashable | None) -> bool:
        """Whether a part of all gradients is that of a tensor which was made a leaf for one pass."""
        leaf = owner(part)
        return leaf is not None and leaf.base() in self.run.leaf_tensors

    def is_no_tensor(self, buffer: Name | None, assumed: Assumed) -> bool:
        """Whether a call of unknown kind is all that is said to touch an object, and no tensor has the methods it has.

        A handle, a manager, a state: whoever is handed one does something else with it than read its memory.
        """
        if buffer is None or not assumed & Assumed.UNMODELLED:
            return False
        base = buffer.base()
        return base in self.run.non_tensors and (base not in self.run.tensorish or base in self.run.presumed)

    def may_be_one(self, first: Carrier, second: Carrier, st: State) -> bool:
        """Whether two streams may be ordered by what they are: one parameter of two calls, CuPy's default flavour, two
        that were picked by keys which may be the same.

        A CuPy stream whose making is not seen is as likely as not null or blocking, and then ordered with the
        default stream (CS-01 to CS-08).
        """
        if not (isinstance(first, Name) and isinstance(second, Name)):
            return False
        if first.base() == second.base() and isinstance(first.root().site, str):
            return True
        if keyed.may_be_one(first, second, st):
            return True
        other = (
            second if self.run.table.is_legacy(first) else first if self.run.table.is_legacy(second) else None
        )
        return other is not None and other.base() in self.run.table.unknown

    def are_defaults(self, first: Carrier, second: Carrier) -> bool:
        """Whether both are default streams: of two devices, then."""
        return bool(self.run.table.is_legacy(first) and self.run.table.is_legacy(second))

    def _ineffective(self, st: State, made: Made, timeline: Carrier) -> Waited | None:
        """The wait that was meant for an access: of several the last one, a wait of the timeline's own before all."""
        found = [w for w in reversed(st.waits) if w.timeline in (timeline, HOST) and made.site in w.uncovered]
        return max(found, key=lambda w: (w.timeline == timeline, w.recorded is not None)) if found else None

    def _is_of_another(self, st: State, made: Made, waited: Waited, keys: frozenset[Hashable]) -> bool:
        """Whether what was waited for may be another event or stream than it seems.

        The caller may have given the stream that is current. Or it was picked by a key of which nothing says that it is
        another one than the key of what is accessed.
        """
        if (
            made.timeline == AMBIENT
            and waited.awaited is not None
            and self._is_from_elsewhere(waited.awaited)
        ):
            return True
        event = waited.awaited
        if event is not None and event.site == ("one", ANY) and isinstance(made.timeline, Name):
            # one of the streams that are kept together, and nothing says which: it may be the one that did the work
            assert event.parent is not None
            return event.parent.newest() in made.timeline.family()
        if event is not None and event.parent is not None and keyed.is_key(event.site):
            owner, bits = (
                event.parent.base(),
                [way.carriers for way in st.order.accesses(made.buffer).get(made, ())],
            )
            recorded = [
                c.site
                for c in self.run.carriers.known()
                if isinstance(c, Name)
                and c is not event
                and c.parent is not None
                and c.parent.base() is owner
                and any(carriers & self.run.carriers.bit(c) for carriers in bits)
            ]
            if recorded and keyed.any_relation(keys or recorded, event.site, st) is None:
                return True
        return False

    @staticmethod
    def _is_from_elsewhere(stream: Name) -> bool:
        """Whether a stream is a parameter, or a part of one."""
        symbols = (AMBIENT, HOOK)
        return isinstance(stream.root().site, str) and stream not in symbols and stream.site != COMMUNICATION


def _detail_rank(made: Made, entry: str) -> tuple[bool, bool, bool]:
    """Which of one stream's accesses a hazard is reported with.

    A write before a read, a pass's before all, and one of the same call before one of an earlier call.
    """
    detail: Detail = made.detail  # type: ignore[assignment]
    return made.writes, "backward" in detail.tags, detail.entry == entry
