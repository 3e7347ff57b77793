"""Captures: who takes part, what may not happen in one, and how they end in a graph that is replayed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from streamsafe.order import edges
from streamsafe.order.symbolic import HOST, Accesses, Guard, Made, Way
from streamsafe.static import fields
from streamsafe.static.facts import AMBIENT, COPIES, GRADIENTS, PASS, Assumed, Detail, Site
from streamsafe.static.state import Capture, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.replays import rows_used
from streamsafe.static.values import (
    EACH,
    Const,
    Event,
    Graph,
    Name,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    alternatives,
)


class Captures(Part):
    """Begins and ends captures, replays graphs, and checks what stands in a capture."""

    def capture_begin(
        self, st: State, graph: Value | None, stream: Value | None, mode: str, library: str, site: Site
    ) -> None:
        """A stream begins to capture: what is enqueued from now on does not run, it has an order of its own."""
        if st.capture is not None:
            st.capture = replace(st.capture, nested=st.capture.nested + 1)
            self.nested_capture(st, site, "begins a capture")
            return
        for thread in st.threads:
            if mode in ("", "global"):
                place = thread if isinstance(thread, Site) else site
                self.accesses.violation(
                    st,
                    "concurrent-capture",
                    site,
                    "begins a capture in the global mode",
                    [("a thread that may call CUDA meanwhile is at work since here", place)],
                    tags=frozenset({"threads"}),
                )
        origin = tuple({s.name: None for s, _ in self.effects.possible_streams(st, library, stream)})
        name = graph.name if isinstance(graph, Object) else None
        depth = len(self.run.stack)
        st.capture = Capture(
            site, origin, frozenset(origin), name, mode, library, waits=st.waits, depth=depth
        )
        st.eager, st.order, st.waits = st.order, self.effects.order(), {}
        self.effects.explain(st, site, "a capture begins")

    def nested_capture(
        self, st: State, site: Site, operation: str, assumed: Assumed = Assumed.NOTHING
    ) -> None:
        """A capture takes no other graph in: neither one that is captured nor one that is launched."""
        assert st.capture is not None
        notes = [("another capture is under way since here", st.capture.site)]
        tags = frozenset({"nested"})
        self.accesses.violation(st, "concurrent-capture", site, operation, notes, assumed, tags=tags)  # type: ignore[arg-type]

    def capture_end(self, st: State, site: Site) -> None:
        """The capture ends: every stream that was forked must have been joined."""
        capture = st.capture
        if capture is None:
            return
        if capture.nested:
            st.capture = replace(capture, nested=capture.nested - 1)
            return
        if capture.on_default:
            site_of: Site = capture.site  # type: ignore[assignment]
            self.accesses.violation(
                st, "capture-on-default-stream", site_of, "begins a capture", assumed=Assumed.AMBIENT
            )
        unjoined: dict[Hashable, tuple[Made, tuple[Way, ...]]] = {}
        for made, ways in st.order.iterate():
            if not (isinstance(made.buffer, tuple) and made.buffer[:1] == ("captured",)):
                continue
            lacking = [
                way
                for way in ways
                if not st.path.contradicts(way.guard)
                and not all(way.carriers & self.run.carriers.bit(origin) for origin in capture.origin)
            ]
            # who waits for the last fork has waited for those before: its first operation is shown
            if lacking and (made.timeline not in unjoined or unjoined[made.timeline][1] != ways):
                unjoined[made.timeline] = made, ways
        for timeline, (made, _) in unjoined.items():
            detail: Detail = made.detail  # type: ignore[assignment]
            self.accesses.violation(
                st,
                "unjoined-capture-stream",
                made.site,  # type: ignore[arg-type]
                f"{detail.operation} on {self.accesses.timeline_text(timeline)}",
                [("the capture ends without waiting for that stream", capture.site)],  # type: ignore[list-item]
                tags=frozenset({"unjoined"}),
            )
        if capture.graph is not None:
            self.graph_reset(st, capture.graph)
            st.graphs[capture.graph] = self.graph_memory.inputs(st)
            st.store[(capture.graph, fields.CAPTURED_BY)] = Const(self.run.entry)
            if self.run.entry in self.run.cut_short:  # what it replaces itself was not all seen
                st.store.mark(capture.graph, fields.PARTLY_SEEN)
            st.store[(capture.graph, fields.GRAPH_USES)] = self.uses(st)
            if capture.modules:
                st.store[(capture.graph, fields.CALLED_MODULES)] = Tuple(tuple(map(Opaque, capture.modules)))
            if any(a.unit is not None and a.unit.name == "__init__" for a in self.run.stack):
                st.store.mark(capture.graph, fields.CAPTURED_IN_INIT)
            if capture.external:
                st.store[(capture.graph, fields.EXTERNAL_RECORDS)] = Tuple(
                    tuple(map(Event, capture.external))
                )
            self.graph_memory.freed_in_capture(st, capture)
            self.graph_memory.displaced_inputs(st, capture.graph, capture)
            self.replays.join_pool(st, capture.graph)
        st.leave_capture()
        self.effects.explain(st, site, "the capture ends")

    def open_branches(self, st: State) -> dict[Hashable, Accesses]:
        """What stands for the forked streams: that one of them was not waited for somewhere makes it no less forked."""
        if st.capture is None:
            return {}
        return {b: t for b, t in st.order.made.items() if isinstance(b, tuple) and b[:1] == ("captured",)}

    def uses(self, st: State) -> Tuple:
        """What a replay of the capture under way will read and write, each once, with what the access assumed."""
        found: dict[tuple[Hashable, Hashable, bool], tuple[Assumed, frozenset[str]]] = {}
        for made, _ in st.order.iterate():
            if not isinstance(made.buffer, Name):
                continue
            detail: Detail = made.detail  # type: ignore[assignment]
            key = (made.buffer, made.part, made.writes)
            known = found.get(key)
            if known is None or detail.assumed.value < known[0].value:
                tags = detail.tags & (COPIES | PASS) | (known[1] if known else frozenset())
                found[key] = (detail.assumed, tags)
        return Tuple(
            tuple(
                Tuple((Tensor(buffer, part=part), Const(writes), Const(assumed), Const(tags)))  # type: ignore[arg-type]
                for (buffer, part, writes), (assumed, tags) in found.items()
            )
        )

    def graph_reset(self, st: State, graph: Name) -> None:
        """The graph holds nothing any more, or something else."""
        st.graphs.pop(graph, None)
        for key in (
            fields.GRAPH_USES,
            fields.FREED_MEMORY,
            fields.REUSED_MEMORY,
            fields.EXTERNAL_RECORDS,
            fields.CALLED_MODULES,
            fields.CAPTURE_ORDER,
            fields.CAPTURED_IN_INIT,
            fields.GRADIENTS_DROPPED,
            fields.PARTLY_SEEN,
        ):
            st.store.pop((graph, key), None)
        st.rebound = {r: None for r in st.rebound if r.graph != graph}

    def replay(self, st: State, graph: Value, stream: Value | None, library: str, site: Site) -> None:
        """One operation on the launching stream, after the same graph's last one, of all it captured (GC-08, GC-13)."""
        self.graph_replayed(st, graph, site)
        self.run.replays += 1
        for inner, way in alternatives(graph, st.path):
            if not isinstance(inner, Object):
                continue
            self.graph_memory.overwrites_taken(st, inner.name, site)
            for s, guard in self.effects.possible_streams(st, library, stream):
                if guard.contradicts(way) or st.path.contradicts(guard & way):
                    continue
                if st.capture is not None and self.takes_part(st.capture, s.name):
                    known = isinstance(inner, Graph)
                    self.nested_capture(
                        st, site, "launches a graph", Assumed.NOTHING if known else Assumed.UNMODELLED
                    )
                    return
                st.order.obey(edges.replay(inner.name, s.name, HOST, self.run.table), guard & way)
                self.replays.share_pool(st, inner.name, s, guard & way, site)
                for use in st.store.every(inner.name, fields.GRAPH_USES):
                    self._repeat(st, use, s, guard & way, site)
                st.order.obey(edges.replayed(inner.name, s.name), guard & way)
            for record in st.store.every(inner.name, fields.EXTERNAL_RECORDS):
                for event in record.items:
                    self.effects.record(st, event, stream, library, site)  # type: ignore[arg-type]
        self.effects.explain(
            st, site, f"a graph is launched on {self.effects.streams_text(st, library, stream)}"
        )

    def _repeat(self, st: State, uses: Tuple, stream: Stream, guard: Guard, site: Site) -> None:
        """The accesses of a capture happen, on the stream of the launch."""
        for tensor, writes, assumed, tags in sorted(rows_used(uses), key=lambda row: row[1]):
            target = tensor if tensor.name.base() in self.run.tensorish else Opaque(tensor.name)
            if writes and (target.name, fields.ALLOCATED_IN_CAPTURE) in st.store:
                self.replays.output_replayed(st, target.name)
                if st.store.marked(target.name, fields.KEPT_IN_CONTAINER):
                    st.store.mark(target.name, fields.OVERWRITTEN_BY_REPLAY)
            self.accesses.touch(
                st, target, site, "replay()", writes, stream, guard, assumed, tags - PASS | {"replay"}
            )

    def capture_access(
        self, st: State, target: Object, stream: Name, site: Site, operation: str, writes: bool
    ) -> None:
        """An access inside a capture: its stream must take part; what it reads from before is an input."""
        capture = st.capture
        if capture is None:
            return
        if capture.library == "cupy" and self.run.table.is_legacy(stream) and stream not in capture.members:
            # what the null stream is given runs at once; beside a blocking stream it would have to wait (GP-02, GP-03)
            if any(self.run.table.is_blocking(origin) for origin in capture.origin):
                self.sync_in_capture(st, site, f"{operation} on the null stream")
                return
            before = st.order.accesses(target.name)
            if not any(made.writes and made.timeline in capture.members for made in before):
                return  # else what was captured, and has not run, was meant to come first
        if not self.takes_part(capture, stream):
            text = f"{operation} on {self.accesses.timeline_text(stream)}"
            self.forbidden(st, "unjoined-capture-stream", site, text, tag="not forked")
            st.capture = replace(capture, members=capture.members | {stream})
            return
        if stream not in capture.origin:
            detail = Detail(operation, "", Assumed.NOTHING, frozenset(), self.run.entry)
            made = Made(site, ("captured", stream), None, True, stream, detail)
            st.order.add(made, covers=False)

    def capture_record(self, st: State, event: Name, stream: Name) -> None:
        """An event recorded on a capturing stream takes part; re-recorded elsewhere it no longer does."""
        if st.capture is None:
            st.store.pop((event, fields.CAPTURED_IN), None)
            return
        members = st.capture.members
        if st.store.marked(event, fields.EXTERNAL_EVENT):
            # each replay records it, for whoever waits outside (GC-21)
            if stream in members:
                others = (e for e in st.capture.external if e is not event)
                st.capture = replace(st.capture, external=(*others, event))
            return
        if stream in members and not st.store.marked(event, fields.MAYBE_EXTERNAL):
            st.store[(event, fields.CAPTURED_IN)] = Const(self.run.entry)
        if stream in members:
            st.capture = replace(st.capture, members=members | {event})
        elif event in members:
            st.capture = replace(st.capture, members=members - {event})

    def capture_wait(self, st: State, source: Name, stream: Name, site: Site, *, is_stream: bool) -> None:
        """A wait inside a capture forks, joins, or leans on work that is not captured (GM-wait_outside)."""
        capture = st.capture
        if capture is None:
            if not is_stream:
                self.captured_event(st, [source], site, "waits")
            return
        if self.takes_part(capture, source):
            if self.is_default(stream) and not self.takes_part(capture, stream):  # GM-default_waits_cap
                who = "the stream that was current before" if stream == AMBIENT else "the default stream"
                assumed = Assumed.AMBIENT if stream == AMBIENT else Assumed.NOTHING
                self.forbidden(st, "unjoined-capture-stream", site, f"{who} waits", assumed, tag="isolation")
            st.capture = replace(capture, members=capture.members | {stream})
            return
        if not is_stream and st.store.marked(source, fields.EXTERNAL_EVENT):
            return
        if stream not in capture.members or source == stream:
            return
        if is_stream and self.is_foreign_stream(source):
            return
        if not is_stream and (source, fields.RECORDED_ON) not in st.store:
            return
        what = self.accesses.timeline_text(source) if is_stream else "an event recorded outside the capture"
        self.forbidden(st, "unjoined-capture-stream", site, f"waits for {what}", tag="isolation")

    def captured_event(self, st: State, events: Iterable[Name], site: Site, what: str) -> None:
        """Outside its capture an ordinary event that was recorded in it is none (GC-20)."""
        for event in events:
            if st.store.pop((event, fields.CAPTURED_IN), None) == Const(self.run.entry):
                self.accesses.violation(
                    st,
                    "unjoined-capture-stream",
                    site,
                    f"{what} for an event that was recorded in a capture",
                    tags=frozenset({"event"}),
                )

    def takes_part(self, capture: Capture, carrier: Name) -> bool:
        """Whether a stream or an event is one of the capture's, or may be: another element of the same container."""
        if carrier in capture.members:
            return True
        parent = carrier.parent
        if parent is None:
            return False
        kept = self.run.members.get(parent.base(), ()) if carrier.site == EACH else ()
        return any(
            m.base() in kept
            or (m.parent is not None and m.parent.base() == parent.base() and EACH in (m.site, carrier.site))
            for m in capture.members
        )

    def is_default(self, stream: Name) -> bool:
        """Whether a stream is the default one, or was current before the capture began, which may well be that."""
        return stream == AMBIENT or self.run.table.is_legacy(stream)

    def is_foreign_stream(self, stream: Name) -> bool:
        """Whether a stream comes from code that is not seen, so that it may take part in a capture unseen."""
        if stream.parent is not None:
            return not self.run.members.get(stream.parent.base())
        if isinstance(stream.site, tuple):
            return stream.site[1:] != ("stream",)
        return bool(stream.path)  # a parameter

    def forbidden(
        self,
        st: State,
        kind: str,
        site: Site,
        operation: str,
        assumed: Assumed = Assumed.NOTHING,
        *,
        tag: str = "",
    ) -> None:
        """An operation that the capture under way does not admit."""
        assert st.capture is not None
        notes = [("the capture begins here", st.capture.site)]
        tags = frozenset({tag} if tag else ())
        self.accesses.violation(st, kind, site, operation, notes, assumed, tags=tags)  # type: ignore[arg-type]

    def sync_in_capture(
        self, st: State, site: Site, operation: str, assumed: Assumed = Assumed.NOTHING
    ) -> None:
        """An operation that synchronizes, if a capture is under way."""
        self.run.waits += 1
        if st.capture is not None:
            self.forbidden(st, "sync-in-capture", site, operation, assumed)

    def wait_in_capture(self, st: State, site: Site, operation: str, names: Iterable[Name]) -> None:
        """The host waits for a stream or an event, or asks for it, if a capture is under way.

        The relaxed mode admits it for what takes no part (GM-ev_query_pre, GM-ev_sync_pre, GM-side_stream_sync).
        """
        capture = st.capture
        self.run.waits += capture is None
        if capture is None:
            self.captured_event(st, names, site, "asks" if operation == "query()" else "waits")
        lenient = capture is not None and capture.mode in ("relaxed", "unknown")
        if capture is None or (lenient and capture.members.isdisjoint(names)):
            return
        self.sync_in_capture(st, site, operation)

    def rng_in_capture(self, st: State, site: Site, operation: str) -> None:
        """Random state that replay cannot repeat (GM-gen_unreg, GC-16)."""
        if st.capture is not None:
            self.forbidden(st, "capture-rng", site, operation)

    def check_capture_stream(self, st: State, stream: Value | None, library: str, site: Site) -> bool:
        """A raw capture may not begin on the default stream (GC-01, GP-01): whether it does not."""
        for s, _ in self.effects.possible_streams(st, library, stream):
            if s.name == AMBIENT:
                self.accesses.violation(
                    st, "capture-on-default-stream", site, "begins a capture", assumed=Assumed.AMBIENT
                )
                return False
        return True

    def graph_replayed(self, st: State, graph: Value, site: Site) -> None:
        """A replay reads the addresses that the capture saw."""
        for inner, _ in alternatives(graph, st.path):
            if not isinstance(inner, (Graph, Opaque)):
                continue
            dropped = st.store.one(inner.name, fields.GRADIENTS_DROPPED)
            if dropped is not None:
                st.store[(GRADIENTS, fields.STALE_GRADIENTS)] = Const((dropped.value, site))
            for rebound in [
                r for r in st.rebound if r.graph == inner.name and not st.path.contradicts(r.guard)
            ]:
                st.rebound = {r: None for r in st.rebound if r != rebound}
                self.accesses.violation(
                    st,
                    "rebound-static-input",
                    rebound.site,  # type: ignore[arg-type]
                    "replaced" if rebound.released is None else "released",
                    [
                        *([("released here", rebound.released)] if rebound.released else []),  # type: ignore[list-item]
                        ("the replay still reads the tensor that was captured", site),
                    ],
                    memory=rebound.memory,
                    assumed=Assumed.POSSIBLE
                    if st.store.marked(inner.name, fields.PARTLY_SEEN)
                    else Assumed.NOTHING,
                )

    def graph_of(self, st: State, value: Value) -> Value:
        """The graph a value stands for."""
        return (
            value if isinstance(value, Graph) else Graph(value.name) if isinstance(value, Opaque) else value
        )

    @staticmethod
    def capture_mode(value: Value | None) -> str:
        """The error mode a capture is asked for; empty when not known or left out (CUDA's is global)."""
        if isinstance(value, Const) and isinstance(value.value, str):
            return value.value
        return "global" if value is None else "unknown"
