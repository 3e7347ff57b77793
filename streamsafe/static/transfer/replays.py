"""What replays do to each other and to what was kept of them, what they do not repeat, and what they need before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from streamsafe.order.symbolic import ALWAYS, Guard, Made
from streamsafe.static import fields
from streamsafe.static.facts import GRADIENTS, Assumed, Detail, Site, constants
from streamsafe.static.state import Capture, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Const,
    Name,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


DDP_RUNS = 11
"""Eager iterations that DistributedDataParallel needs before a capture."""

_Names = frozenset[tuple[Name, str]]


class Use(NamedTuple):
    """What a graph reads or writes, what that assumed, and the tags of the access."""

    target: Tensor
    writes: bool
    assumed: Assumed
    tags: frozenset[str]


def rows_used(uses: Tuple) -> list[Use]:
    """What one capture of a graph uses.

    Of a graph that was captured in many places only the columns of a row may be known.
    """
    rows = [row.items for u in uses.items for row in iterate(u) if isinstance(row, Tuple)]
    return [
        Use(target, any(constants(writes)), reduce(or_, constants(assumed)), reduce(or_, constants(tags)))
        for targets, writes, assumed, tags in rows
        for target in iterate(targets)
        if isinstance(target, Tensor)
    ]


class Replays(Part):
    """What comes of replaying graphs one after the other."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.ran: set[tuple[str, Name]] = set()
        """Modules that have run outside captures, each with the entry that ran it."""
        self.cold: dict[tuple[str, Name], tuple[Capture, int, set[Name]]] = {}
        """Captures of modules that had not run before, the replays before each, and what it was given."""

    # -- pools ---------------------------------------------------------------------------------------------------

    @staticmethod
    def choose_pool(st: State, graph: Value, pool: Value | None) -> None:
        """A graph's memory comes from a pool of its own, or from the one that is named."""
        for inner in iterate(graph):
            if not isinstance(inner, Object):
                continue
            owner = inner.name.child("pool()")
            if isinstance(pool, Opaque):
                owner = pool.name
                if owner.site == "pool()" and owner.parent is not None:
                    # another graph's, or the one that graph shares
                    chosen = st.store.one(owner.parent, fields.MEMORY_POOL)
                    owner = chosen.name if chosen is not None else owner
            st.store[(inner.name, fields.MEMORY_POOL)] = Opaque(owner)

    def join_pool(self, st: State, graph: Name) -> None:
        """A graph has been captured: of those of its pool it is the last, unless a loop makes many of its kind."""
        pool = st.store.one(graph, fields.MEMORY_POOL)
        if pool is None or graph.is_older() or graph.is_unknown_element():
            return
        orders = self._orders(st, pool.name)
        mates = {mate for order in orders for mate in order}
        before = [mate for mate in max(orders, key=len, default=[]) if mate.newest() != graph.newest()]
        many = any(g != graph and g.newest() == graph.newest() and self._of_this_call(st, g) for g in mates)
        self.run.pooled = self.run.pooled or bool(before)
        order = before if many else [*before, graph]
        for owner in (pool.name, *order):  # the graphs may outlive what the pool is known by
            st.store[(owner, fields.CAPTURE_ORDER)] = Tuple(tuple(map(Opaque, order)))

    def _of_this_call(self, st: State, graph: Name) -> bool:
        """Whether a graph was captured by the call that is under way."""
        return st.store.get((graph, fields.CAPTURED_BY)) == Const(self.run.entry)

    @staticmethod
    def _orders(st: State, owner: Name) -> list[list[Name]]:
        """The graphs of a pool, or of a graph's pool, in the order of their captures, on each way here."""
        found = [v for v, _ in alternatives(st.store.get((owner, fields.CAPTURE_ORDER), NONE), st.path)]
        return [[g.name for g in v.items if isinstance(g, Opaque)] for v in found if isinstance(v, Tuple)]

    def share_pool(self, st: State, graph: Name, stream: Stream, guard: Guard, site: Site) -> None:
        """Graphs of one pool overlay each other's temporaries: they replay in the order of capture, one at a time."""
        pool = st.store.one(graph, fields.MEMORY_POOL)
        orders = [mates for mates in self._orders(st, graph) if len(mates) > 1 and graph in mates]
        if not orders or pool is None:
            return
        memory = ("graph pool", pool.name)
        own = str(graph)
        for made, _ in st.order.conflicts(memory, None, True, stream.name, st.path & guard):
            if made.detail.memory != own:  # type: ignore[attr-defined]
                self.accesses.violation(
                    st,
                    "shared-pool-replay-order",
                    site,
                    "replay()",
                    [("a graph that shares its pool may still run since here", made.site)],  # type: ignore[list-item]
                    tags=frozenset({"at once"}),
                )
                break
        detail = Detail("replay()", own, Assumed.NOTHING, frozenset(), self.run.entry)
        st.order.add(Made(site, memory, None, True, stream.name, detail), guard, covers=False)
        for later in {later: None for mates in orders for later in mates[mates.index(graph) + 1 :]}:
            if st.store.get((later, fields.REPLAYED_BY)) == Const(self.run.entry):
                for output in self._outputs(st, later):
                    st.store[(output, fields.OVERLAID_AT)] = (
                        Const(site) if guard == ALWAYS else union([(Const(site), guard), (NONE, ALWAYS)])
                    )
        st.store[(graph, fields.REPLAYED_BY)] = Const(self.run.entry)
        for output in self._outputs(st, graph):
            st.store[(output, fields.OVERLAID_AT)] = NONE

    @staticmethod
    def used_by(st: State, graph: Name) -> list[Use]:
        """What a replay of a graph uses."""
        return [use for uses in st.store.every(graph, fields.GRAPH_USES) for use in rows_used(uses)]

    def _outputs(self, st: State, graph: Name) -> list[Name]:
        return [
            use.target.name
            for use in self.used_by(st, graph)
            if use.writes and (use.target.name, fields.ALLOCATED_IN_CAPTURE) in st.store
        ]

    def reads_overlaid(self, st: State, buffer: Name, site: Site, guard: Guard = ALWAYS) -> None:
        """An output is needed that a replay out of order may have overwritten (GC-07)."""
        overlaid = st.store.get((buffer, fields.OVERLAID_AT), NONE)
        places = [place for place, _ in alternatives(overlaid, st.path & guard)]
        if NONE in places:
            return  # which graph it was, or whether one was replayed, is not known any more
        st.store.pop((buffer, fields.OVERLAID_AT), None)
        for place in places:
            self.accesses.violation(
                st,
                "shared-pool-replay-order",
                place.value,  # type: ignore[attr-defined]
                "replay()",
                [("what it may have overwritten is needed here", site)],
            )

    # -- outputs under several names -----------------------------------------------------------------------------

    @staticmethod
    def _names_of(st: State, buffer: Name) -> list[tuple[_Names, _Names]]:
        """The names of a graph's output since its last replay, and those from before it, on each way here."""
        return st.store.constants(buffer, fields.OUTPUT_NAMES) or [(frozenset(), frozenset())]

    @staticmethod
    def _keep_names(st: State, buffer: Name, ways: Iterable[tuple[_Names, _Names]]) -> None:
        st.store[(buffer, fields.OUTPUT_NAMES)] = union((Const(way), ALWAYS) for way in ways)

    def name_output(self, st: State, key: tuple[Name, str], value: Value) -> None:
        """A name means what a graph has computed in its last replay."""
        if st.capture is not None:
            return
        before = st.store.get(key)
        for inner in iterate(before) if before is not None else ():
            if isinstance(inner, Object) and (inner.name, fields.OUTPUT_NAMES) in st.store:
                ways = self._names_of(st, inner.name)
                self._keep_names(st, inner.name, ((named - {key}, old - {key}) for named, old in ways))
        for inner in iterate(value):
            if isinstance(inner, (Tensor, Opaque)) and st.store.marked(inner.name, fields.REPLAY_OUTPUT):
                ways = self._names_of(st, inner.name)
                self._keep_names(st, inner.name, ((named | {key}, old - {key}) for named, old in ways))

    def output_replayed(self, st: State, buffer: Name) -> None:
        """A replay writes an output anew: what was named before still means it."""
        st.store.mark(buffer, fields.REPLAY_OUTPUT)
        if (buffer, fields.OUTPUT_NAMES) in st.store:
            self.run.renamed = True
            ways = self._names_of(st, buffer)
            self._keep_names(st, buffer, ((frozenset(), named | old) for named, old in ways))

    def reads_name(self, st: State, key: tuple[Name, str], site: Site) -> None:
        """A name of an earlier replay's output is read where a later one has another name (GC-05)."""
        value = st.store.get(key)
        for inner in iterate(value) if value is not None else ():
            if isinstance(inner, Object) and (inner.name, fields.OUTPUT_NAMES) in st.store:
                ways = self._names_of(st, inner.name)
                if any(key in old and any(frame == key[0] for frame, _ in named) for named, old in ways):
                    self.stale_output(st, inner, site)

    def stale_output(self, st: State, output: Object, site: Site) -> None:
        """What a replay computed is used after the next one has overwritten it."""
        self.accesses.violation(
            st, "stale-replay-output", site, "keeps it", memory=self.objects.describe(output)
        )

    def computed_twice(self, st: State, values: Iterable[tuple[Value, int]], site: Site) -> None:
        """One output stands for two replays in one expression; each value comes with the replays before it."""
        seen: dict[Name, int] = {}
        for value, count in values:
            for inner in iterate(value):
                if isinstance(inner, (Tensor, Opaque)) and st.store.marked(inner.name, fields.REPLAY_OUTPUT):
                    if seen.setdefault(inner.name, count) != count:
                        self.stale_output(st, inner, site)
                        return

    # -- what is not repeated ------------------------------------------------------------------------------------

    def fills_in_capture(self, st: State, target: Object, site: Site) -> None:
        """The host writes memory from before the capture: it does so once (GC-03)."""
        if st.capture is not None and (target.name, fields.ALLOCATED_IN_CAPTURE) not in st.store:
            st.store[(target.name, fields.FILLED_IN_CAPTURE)] = Const((st.capture.site, site))

    def copies_filled(self, st: State, buffer: Name, site: Site) -> None:
        """The graph copies at each replay what the host has written at its capture (GC-19)."""
        assert st.capture is not None
        for captured, place in st.store.constants(buffer, fields.FILLED_IN_CAPTURE):
            if captured is st.capture.site:
                self.accesses.violation(
                    st,
                    "host-work-in-capture",
                    place,
                    "the host's write",
                    [("each replay copies what was written at the capture", site)],
                )

    # -- warm-ups ------------------------------------------------------------------------------------------------

    def module_called(self, st: State, module: Opaque, site: Site, *, rounds: int | None) -> None:
        """A module that is made in what is analysed runs, in as many rounds: before it is captured it should have."""
        if st.capture is not None:
            st.capture = replace(st.capture, modules=tuple(dict.fromkeys((*st.capture.modules, module.name))))
        made = st.store.get((module.name, fields.TORCH_MODULE))
        if made is None:
            return
        runs = frozenset().union(*st.store.constants(module.name, fields.WARMUP_RUNS))
        if st.capture is None:
            st.store[(module.name, fields.WARMUP_RUNS)] = Const(
                runs | {(site, DDP_RUNS if rounds is None else rounds)}
            )
            return
        needed = DDP_RUNS if st.store.marked(module.name, fields.DISTRIBUTED) else 1
        if made == Const(self.run.entry) and sum(count for _, count in runs) < needed and not st.capture.cold:
            what = f"after fewer than {DDP_RUNS} runs" if needed > 1 and runs else "what never ran before"
            st.capture = replace(st.capture, cold=(f"captures {what}", site))

    def module_runs(self, st: State, module: Object, given: Iterable[Value], site: Site) -> None:
        """A module is called; a run on a side stream of what was captured before, with the same, comes too late."""
        key = (self.run.entry, module.name)
        objects = {v.name for value in given for v in iterate(value) if isinstance(v, Object)}
        if st.capture is not None:
            if key not in self.ran:
                self.cold.setdefault(key, (st.capture, self.run.replays, objects))
            return
        self.ran.add(key)
        if key not in self.cold:
            return
        capture, replays, captured = self.cold.pop(key)
        beside = not any(
            self.run.table.is_legacy(s.name) for s, _ in self.effects.possible_streams(st, "torch")
        )
        if beside and replays == self.run.replays and not objects.isdisjoint(captured):
            notes = [("it is warmed up only here", site)]
            what = "captures what never ran before"
            self.accesses.violation(st, "missing-capture-warmup", capture.site, what, notes)  # type: ignore[arg-type]

    def pass_done(self, st: State, site: Site) -> None:
        """A backward pass: captured, all it needs should have run before, and not on the default stream alone."""
        key = (GRADIENTS, fields.BACKWARD_RUN)
        capture = st.capture
        if capture is None:
            if not all(
                self.run.table.is_legacy(s.name) for s, _ in self.effects.possible_streams(st, "torch")
            ):
                st.store[key] = NONE
            elif key not in st.store:
                st.store[key] = Const((self.run.entry, site, st.path))
            return
        cold = capture.cold
        passes = st.store.constants(*key)
        if cold is None and passes and all(p and p[0] == self.run.entry and p[2] == ALWAYS for p in passes):
            cold = ("captures a pass that has run on the default stream only", passes[0][1])
        if cold is not None:
            st.store[key] = NONE
            st.capture = replace(capture, cold=None)
            notes = [("this is what should be warmed up on a side stream", cold[1])]
            self.accesses.violation(st, "missing-capture-warmup", capture.site, cold[0], notes)  # type: ignore[arg-type]
