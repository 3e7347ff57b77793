"""Captures: who takes part, what may not happen in one, and what a graph's replay leans on.

One file: the checks share the state of the capture under way and of the graph's static inputs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from streamsafe.order import edges
from streamsafe.order.symbolic import ALWAYS, HOST, Accesses, Guard, Made, Way
from streamsafe.static.facts import AMBIENT, COPIES, GRADIENTS, PASS, Assumed, Detail, Finding, Site
from streamsafe.static.memory import KEPT
from streamsafe.static.replays import Replays, rows_used
from streamsafe.static.state import Capture, Rebound, State
from streamsafe.static.values import (
    EACH,
    NONE,
    PLAIN,
    Const,
    Container,
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
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.interpreter import Activation


class Captures(Replays):
    """What capturing adds to the verbs."""

    waits = 0
    """How many operations were found that a capture of another thread would not survive (GM-thr_item)."""

    # declared here, implemented further down the chain

    def is_opaque(self, name: Name) -> bool:
        """Whether attributes of this object exist although nothing was seen assigned to them."""

    def callers_hold(self) -> Iterable[Value]:
        """Values that nobody but callers and enclosing statements holds."""

    def held(self, container: Object, st: State, index: Hashable = None) -> list[Value]:
        """Everything a container is known to hold."""

    stack: list[Activation]

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
                self.violation(
                    st,
                    "concurrent-capture",
                    site,
                    "begins a capture in the global mode",
                    [("a thread that may call CUDA meanwhile is at work since here", place)],
                    tags=frozenset({"threads"}),
                )
        origin = tuple({s.name: None for s, _ in self.streams(st, library, stream)})
        name = graph.name if isinstance(graph, Object) else None
        st.capture = Capture(site, origin, frozenset(origin), name, mode, library, waits=st.waits)
        st.eager, st.order, st.waits = st.order, self.order(), {}
        self.explain(st, site, "a capture begins")

    def nested_capture(
        self, st: State, site: Site, operation: str, assumed: Assumed = Assumed.NOTHING
    ) -> None:
        """A capture takes no other graph in: neither one that is captured nor one that is launched."""
        assert st.capture is not None
        notes = [("another capture is under way since here", st.capture.site)]
        self.violation(
            st,
            "concurrent-capture",
            site,
            operation,
            notes,  # type: ignore[arg-type]
            assumed,
            tags=frozenset({"nested"}),
        )

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
            self.violation(
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
                and not all(way.carriers & self.carriers.bit(origin) for origin in capture.origin)
            ]
            # who waits for the last fork has waited for those before: its first operation is shown
            if lacking and (made.timeline not in unjoined or unjoined[made.timeline][1] != ways):
                unjoined[made.timeline] = made, ways
        for timeline, (made, _) in unjoined.items():
            detail: Detail = made.detail  # type: ignore[assignment]
            self.violation(
                st,
                "unjoined-capture-stream",
                made.site,  # type: ignore[arg-type]
                f"{detail.operation} on {self.timeline_text(timeline)}",
                [("the capture ends without waiting for that stream", capture.site)],  # type: ignore[list-item]
                tags=frozenset({"unjoined"}),
            )
        if capture.graph is not None:
            self.graph_reset(st, capture.graph)
            st.graphs[capture.graph] = self.inputs(st)
            st.store[(capture.graph, "@entry")] = Const(self.entry)
            st.store[(capture.graph, "@uses")] = self.uses(st)
            if capture.modules:
                st.store[(capture.graph, "@modules")] = Tuple(tuple(map(Opaque, capture.modules)))
            if any(a.unit is not None and a.unit.name == "__init__" for a in self.stack):
                st.store[(capture.graph, "@there from the start")] = PLAIN
            if capture.external:
                st.store[(capture.graph, "@records")] = Tuple(tuple(map(Event, capture.external)))
            self.freed_in_capture(st, capture)
            self.displaced_inputs(st, capture.graph, capture)
            self.join_pool(st, capture.graph)
        st.leave_capture()
        self.explain(st, site, "the capture ends")

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

    def freed_in_capture(self, st: State, capture: Capture) -> None:
        """CuPy's pool has the blocks back that a capture used in between: its graph goes on writing them (GP-13)."""
        if capture.graph is None or capture.library != "cupy":
            return
        alive = self.reachable(st)
        freed = [
            (stream, ALWAYS)
            for owner, table in st.store.objects.items()
            if table.get("@captured") == Const(capture.site) and owner not in alive
            for stream in iterate(table.get("@allocated", NONE))
            if isinstance(stream, Stream)
        ]
        if freed:
            st.store[(capture.graph, "@freed")] = union(freed)

    def reuses_captured(self, st: State, buffer: Name, library: str) -> None:
        """An array is made where a graph's temporaries were: it may get their memory."""
        if library != "cupy" or st.capture is not None:
            return
        own = {s.name for s in iterate(st.store[(buffer, "@allocated")]) if isinstance(s, Stream)}
        for graph in [g for g, table in st.store.objects.items() if "@freed" in table]:
            if any(s.name in own for s in iterate(st.store[(graph, "@freed")]) if isinstance(s, Stream)):
                taken = st.store.get((graph, "@taken"))
                new = [(Tensor(buffer), ALWAYS)]
                st.store[(graph, "@taken")] = union([(taken, ALWAYS), *new] if taken is not None else new)

    def overwrites_taken(self, st: State, graph: Name, site: Site) -> None:
        """A graph is launched while an array lives that was made where its temporaries were (GP-13)."""
        taken = st.store.pop((graph, "@taken"), None)
        if taken is None:
            return
        alive = self.reachable(st)
        for array in iterate(taken):
            if isinstance(array, Tensor) and array.name in alive:
                made_at = self.sites_of.get(array.name.base())
                self.report(
                    st,
                    Finding(
                        kind="captured",
                        second=site,
                        operation="the launch",
                        writes=True,
                        timeline="the graph",
                        memory=self.describe(array),
                        assumed=Assumed.UNMODELLED,
                        notes=[("made here, after the capture gave back what it used", made_at)]
                        if made_at
                        else [],
                        entry=self.entry,
                    ),
                )
                return

    def inputs(self, st: State) -> frozenset[Name]:
        """The memory from before that the capture under way uses: a replay uses the same addresses."""
        return frozenset(b for b in st.order.made if isinstance(b, Name) and self.is_input(st, b))

    def is_input(self, st: State, buffer: Name) -> bool:
        """Whether the capture under way has used memory from before."""
        return (
            buffer in st.order.made
            and buffer != GRADIENTS
            and buffer.base() in self.tensorish
            and not any((name, "@captured") in st.store for name in buffer.chain())
        )

    def graph_reset(self, st: State, graph: Name) -> None:
        """The graph holds nothing any more, or something else."""
        st.graphs.pop(graph, None)
        for key in (
            "@uses",
            "@freed",
            "@taken",
            "@records",
            "@modules",
            "@captures",
            "@there from the start",
            "@dropped",
        ):
            st.store.pop((graph, key), None)
        st.rebound = {r: None for r in st.rebound if r.graph != graph}

    def replay(self, st: State, graph: Value, stream: Value | None, library: str, site: Site) -> None:
        """One operation on the launching stream, after the same graph's last one, of all it captured (GC-08, GC-13)."""
        self.graph_replayed(st, graph, site)
        self.replays += 1
        for inner, way in alternatives(graph, st.path):
            if not isinstance(inner, Object):
                continue
            self.overwrites_taken(st, inner.name, site)
            for s, guard in self.streams(st, library, stream):
                if guard.contradicts(way) or st.path.contradicts(guard & way):
                    continue
                if st.capture is not None and self.takes_part(st.capture, s.name):
                    known = isinstance(inner, Graph)
                    self.nested_capture(
                        st, site, "launches a graph", Assumed.NOTHING if known else Assumed.UNMODELLED
                    )
                    return
                st.order.obey(edges.replay(inner.name, s.name, HOST, self.table), guard & way)
                self.share_pool(st, inner.name, s, guard & way, site)
                for use in iterate(st.store.get((inner.name, "@uses"), NONE)):
                    self._repeat(st, use, s, guard & way, site)
                st.order.obey(edges.replayed(inner.name, s.name), guard & way)
            for record in iterate(st.store.get((inner.name, "@records"), NONE)):
                for event in record.items if isinstance(record, Tuple) else ():
                    self.record(st, event, stream, library, site)  # type: ignore[arg-type]
        self.explain(st, site, f"a graph is launched on {self._streams_text(st, library, stream)}")

    def _repeat(self, st: State, uses: Value, stream: Stream, guard: Guard, site: Site) -> None:
        """The accesses of a capture happen, on the stream of the launch."""
        for tensor, writes, assumed, tags in sorted(rows_used(uses), key=lambda row: row[1]):
            target = tensor if tensor.name.base() in self.tensorish else Opaque(tensor.name)
            if writes and (target.name, "@captured") in st.store:
                self.output_replayed(st, target.name)
                if (target.name, "@kept") in st.store:
                    st.store[(target.name, "@replayed over")] = PLAIN
            self._touch(
                st, target, site, "replay()", writes, stream, guard, assumed, tags - PASS | {"replay"}
            )

    def keep_output(
        self, st: State, container: Object, held: Iterable[Value], value: Value, site: Site
    ) -> None:
        """What a graph computes is kept; its next replay overwrites it: kept twice, it is one tensor twice (GC-05)."""
        if st.capture is not None or (container.name, "@taken from") in st.store:
            return
        kept = list(self.leaves(value, st))
        if any(isinstance(v, Graph) for v in kept):
            return  # beside its graph it is where that writes, not what it has computed
        names = {inner.name for v in held for inner in self.leaves(v, st)}
        for inner in kept:
            made: Name | None = inner.name
            while made is not None and (made, "@captured") not in st.store:
                made = None if str(made.site).isidentifier() else made.parent  # an attribute may be a number
            if made is None:
                continue
            if inner.name in names and (made, "@replayed over") in st.store:
                self.stale_output(st, inner, site)
            st.store[(made, "@kept")] = PLAIN

    def leaves(self, value: Value, st: State, depth: int = 0) -> Iterator[Object]:
        """The objects that a value is or, as a row or a container, holds."""
        for inner, _ in alternatives(value, st.path):
            rows = inner.items if isinstance(inner, Tuple) else ()
            if isinstance(inner, Container):
                rows = tuple(self.held(inner, st))
            elif isinstance(inner, Object):
                yield inner
            for row in rows if depth < 3 else ():
                yield from self.leaves(row, st, depth + 1)

    def capture_access(
        self, st: State, target: Object, stream: Name, site: Site, operation: str, writes: bool
    ) -> None:
        """An access inside a capture: its stream must take part; what it reads from before is an input."""
        capture = st.capture
        if capture is None:
            return
        if capture.library == "cupy" and self.table.is_legacy(stream) and stream not in capture.members:
            # what the null stream is given runs at once; beside a blocking stream it would have to wait (GP-02, GP-03)
            if any(self.table.is_blocking(origin) for origin in capture.origin):
                self.sync_in_capture(st, site, f"{operation} on the null stream")
                return
            before = st.order.accesses(target.name)
            if not any(made.writes and made.timeline in capture.members for made in before):
                return  # else what was captured, and has not run, was meant to come first
        if not self.takes_part(capture, stream):
            self.violation(
                st,
                "unjoined-capture-stream",
                site,
                f"{operation} on {self.timeline_text(stream)}",
                [("the capture begins here", capture.site)],  # type: ignore[list-item]
                tags=frozenset({"not forked"}),
            )
            st.capture = replace(capture, members=capture.members | {stream})
            return
        if stream not in capture.origin:
            detail = Detail(operation, "", Assumed.NOTHING, frozenset(), self.entry)
            made = Made(site, ("captured", stream), None, True, stream, detail)
            st.order.add(made, covers=False)

    def capture_record(self, st: State, event: Name, stream: Name) -> None:
        """An event recorded on a capturing stream takes part; re-recorded elsewhere it no longer does."""
        if st.capture is None:
            st.store.pop((event, "@captured in"), None)
            return
        members = st.capture.members
        if (event, "@external") in st.store:  # each replay records it, for whoever waits outside (GC-21)
            if stream in members:
                others = (e for e in st.capture.external if e is not event)
                st.capture = replace(st.capture, external=(*others, event))
            return
        if stream in members and (event, "@may be external") not in st.store:
            st.store[(event, "@captured in")] = Const(self.entry)
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
                notes = [("the capture begins here", capture.site)]
                self.violation(
                    st,
                    "unjoined-capture-stream",
                    site,
                    f"{who} waits",
                    notes,  # type: ignore[arg-type]
                    assumed,
                    tags=frozenset({"isolation"}),
                )
            st.capture = replace(capture, members=capture.members | {stream})
            return
        if not is_stream and (source, "@external") in st.store:
            return
        if stream not in capture.members or source == stream:
            return
        if is_stream and self.is_foreign_stream(source):
            return
        if not is_stream and (source, "@recorded") not in st.store:
            return
        what = self.timeline_text(source) if is_stream else "an event recorded outside the capture"
        self.violation(
            st,
            "unjoined-capture-stream",
            site,
            f"waits for {what}",
            [("the capture begins here", capture.site)],  # type: ignore[list-item]
            tags=frozenset({"isolation"}),
        )

    def captured_event(self, st: State, events: Iterable[Name], site: Site, what: str) -> None:
        """Outside its capture an ordinary event that was recorded in it is none (GC-20)."""
        for event in events:
            if st.store.pop((event, "@captured in"), None) == Const(self.entry):
                self.violation(
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
        kept = self.members.get(parent.base(), ()) if carrier.site == EACH else ()
        return any(
            m.base() in kept
            or (m.parent is not None and m.parent.base() == parent.base() and EACH in (m.site, carrier.site))
            for m in capture.members
        )

    def is_default(self, stream: Name) -> bool:
        """Whether a stream is the default one, or was current before the capture began, which may well be that."""
        return stream == AMBIENT or self.table.is_legacy(stream)

    def is_foreign_stream(self, stream: Name) -> bool:
        """Whether a stream comes from code that is not seen, so that it may take part in a capture unseen."""
        if stream.parent is not None:
            return not self.members.get(stream.parent.base())
        if isinstance(stream.site, tuple):
            return stream.site[1:] != ("stream",)
        return bool(stream.path)  # a parameter

    def sync_in_capture(
        self, st: State, site: Site, operation: str, assumed: Assumed = Assumed.NOTHING
    ) -> None:
        """An operation that synchronizes, if a capture is under way."""
        self.waits += 1
        if st.capture is None:
            return
        self.violation(
            st,
            "sync-in-capture",
            site,
            operation,
            [("the capture begins here", st.capture.site)],  # type: ignore[list-item]
            assumed,
        )

    def wait_in_capture(self, st: State, site: Site, operation: str, names: Iterable[Name]) -> None:
        """The host waits for a stream or an event, or asks for it, if a capture is under way.

        The relaxed mode admits it for what takes no part (GM-ev_query_pre, GM-ev_sync_pre, GM-side_stream_sync).
        """
        capture = st.capture
        self.waits += capture is None
        if capture is None:
            self.captured_event(st, names, site, "asks" if operation == "query()" else "waits")
        lenient = capture is not None and capture.mode in ("relaxed", "unknown")
        if capture is None or (lenient and capture.members.isdisjoint(names)):
            return
        self.sync_in_capture(st, site, operation)

    def rng_in_capture(self, st: State, site: Site, operation: str) -> None:
        """Random state that replay cannot repeat (GM-gen_unreg, GC-16)."""
        if st.capture is None:
            return
        self.violation(
            st,
            "capture-rng",
            site,
            operation,
            [("the capture begins here", st.capture.site)],  # type: ignore[list-item]
        )

    def check_capture_stream(self, st: State, stream: Value | None, library: str, site: Site) -> bool:
        """A raw capture may not begin on the default stream (GC-01, GP-01): whether it does not."""
        for s, _ in self.streams(st, library, stream):
            if s.name == AMBIENT:
                self.violation(
                    st, "capture-on-default-stream", site, "begins a capture", assumed=Assumed.AMBIENT
                )
                return False
        return True

    # -- static inputs -------------------------------------------------------------------------------------------

    def rebound_elements(
        self, st: State, container: Container, value: Value, site: Site, *, every: bool = False
    ) -> None:
        """Some elements of a container become others, or all do: where each is a static input one was replaced.

        A container whose keys are not known may be given one more, unless ``every`` element is given anew.
        """
        if not st.graphs or st.capture is not None:
            return
        held = {key: v for key, v in st.store.of(container.name).items() if not str(key).startswith("@")}
        inputs = frozenset[Name]().union(*st.graphs.values())
        known = every or all(isinstance(key, (str, int)) and key != "*" for key in held)
        if known and all(
            v.name in inputs for old in held.values() for v in iterate(old) if isinstance(v, Tensor)
        ):
            for key in held:
                word = f"{self.describe(container)}[...]"
                self.rebound_input(st, (container.name, key), value, site, word)

    def rebound_input(
        self, st: State, key: tuple[Name, Hashable], value: Value, site: Site, word: str = ""
    ) -> None:
        """An assignment takes the last name of a static input away from every graph that uses it (GC-04, GC-06)."""
        if st.capture is None and not st.graphs:
            return
        before = st.store.get(key)
        old = (
            before if before is not None else Opaque(key[0].child(key[1])) if self.is_opaque(key[0]) else NONE
        )
        graphs = {v.name for v in iterate(old) if isinstance(v, Object)} & st.graphs.keys()
        there = union((v, g) for v, g in alternatives(old, st.path) if not self.known_missing(st, v))
        if st.capture is not None:  # whether another name is left is known when it ends
            moved = [t.name for t, _ in self.tensors(st, there) if self.is_input(st, t.name)]
            known = dict.fromkeys((*st.capture.displaced, *((name, _word(key[1]), site) for name in moved)))
            st.capture = replace(st.capture, displaced=tuple(known))
            return
        inputs = frozenset[Name]().union(*st.graphs.values())
        lost = {target.name: None for target, _ in self.tensors(st, there) if target.name in inputs}
        if not graphs and not lost:
            return
        st.store[key] = value
        alive = self.reachable(st, self.callers_hold())
        alive -= {name for name in lost if self.held_by_a_former_caller(st, name)}
        alive |= {name for name in lost if name.root() in alive and self.belongs(st, name)}
        if before is None:
            del st.store[key]
        else:
            st.store[key] = before
        st.graphs = {g: inputs for g, inputs in st.graphs.items() if g in alive or g not in graphs}
        st.rebound = {r: None for r in st.rebound if r.graph in st.graphs}
        made_again = {target.name.base() for target, _ in self.tensors(st, value)}
        for graph, used in st.graphs.items():
            gone = [n for n in lost if n in used and n not in alive and (n, KEPT) not in st.store]
            again = [name for name in gone if name.base() in made_again]
            if st.store.get((graph, "@entry")) == Const(self.entry):
                again = []
            elif value == NONE or not all(isinstance(name.root().site, str) for name in again):
                # a method that sets up what is captured later is not called again without another capture,
                # and one that lets go of it leaves nothing that the replaying method could fill
                continue
            for name in gone:
                st.store[(name, "@rebound")] = PLAIN
            if gone:  # what a method is given each time is set up for the replay of the same call at most
                st.rebound = st.rebound | {
                    Rebound(word or _word(key[1]), site, graph, passing=bool(again)): None
                }

    def displaced_inputs(self, st: State, graph: Name, capture: Capture) -> None:
        """What a captured step read lost its last name to what the step made: no replay goes on from there (GC-04)."""
        alive = self.reachable(st, self.callers_hold()) if capture.displaced else set()
        for name, word, site in capture.displaced:
            if name not in alive and not (name.root() in alive and self.belongs(st, name)):
                st.store[(name, "@rebound")] = PLAIN
                st.rebound = st.rebound | {Rebound(word, site, graph): None}

    def replaced_memory(self, st: State, owner: Name, value: Value, site: Site) -> None:
        """A tensor, or what a module holds, gets other memory: a graph reads what was there at its capture (GC-04).

        What another method does may come before the capture, unless an object has its graph from the start.
        """
        if st.capture is not None:
            return
        for graph, inputs in st.graphs.items():
            here = st.store.get((graph, "@entry")) == Const(self.entry)
            if not here and (graph, "@there from the start") not in st.store:
                continue
            called = st.store.get((graph, "@modules"))
            modules = (
                [m.name for m in called.items if isinstance(m, Opaque)] if isinstance(called, Tuple) else []
            )
            if owner in inputs or any(m in owner.chain() or owner in m.chain() for m in modules):
                memory = self.describe(Opaque(owner))
                if isinstance(value, Object) and value.name == owner:  # it is given back what it had
                    st.rebound = {r: None for r in st.rebound if (r.graph, r.memory) != (graph, memory)}
                else:
                    st.rebound = st.rebound | {Rebound(memory, site, graph): None}

    def held_by_a_former_caller(self, st: State, name: Name) -> bool:
        """Whether a tensor is an argument of a call that is over, which nothing that is seen holds any more."""
        if name.parent is not None or not isinstance(name.site, str) or not name.path:
            return False
        return not any(frame.path == name.path for frame in self.frames()) and not any(
            isinstance(inner, Object) and inner.name == name
            for table in st.store.objects.values()
            for key, value in table.items()
            if not (isinstance(key, str) and key.startswith("@"))
            for inner in iterate(value)
        )

    def lost_input(self, st: State, name: Name, site: Site, alive: set[Name]) -> None:
        """The last name of a static input is gone: every graph that lives on goes on using its memory (GC-06)."""
        # where the function that drops it has it from
        made_at = self.given_at.get(name.base()) or self.sites_of.get(name.base(), site)
        for graph, used in st.graphs.items():
            if name in used and graph in alive and not {"@rebound", KEPT} & st.store.of(name).keys():
                gone = Rebound(self.describe(Tensor(name)), made_at, graph, released=site)
                st.rebound = st.rebound | {gone: None}

    def moved_input(self, st: State, name: Name, site: Site) -> None:
        """A tensor has other memory from here on: graphs that were captured before use what it had."""
        for graph, used in st.graphs.items():
            if name in used and (st.capture is None or st.capture.graph != graph):
                st.rebound = st.rebound | {Rebound(self.describe(Tensor(name)), site, graph): None}

    def known_missing(self, st: State, value: Value) -> bool:
        """Whether an object of unknown kind was found to be None, or false, on this path."""
        if not isinstance(value, Opaque):
            return False
        none, truth = (
            self.conditions.get(("none", value.name), 0),
            self.conditions.get(("truth", value.name), 0),
        )
        return bool(st.path.true & none or st.path.false & truth)

    conditions: dict[Hashable, int]

    def graph_replayed(self, st: State, graph: Value, site: Site) -> None:
        """A replay reads the addresses that the capture saw."""
        for inner, _ in alternatives(graph, st.path):
            if not isinstance(inner, (Graph, Opaque)):
                continue
            dropped = st.store.get((inner.name, "@dropped"))
            if isinstance(dropped, Const):
                st.store[(GRADIENTS, "@stale")] = Const((dropped.value, site))
            for rebound in [
                r for r in st.rebound if r.graph == inner.name and not st.path.contradicts(r.guard)
            ]:
                st.rebound = {r: None for r in st.rebound if r != rebound}
                self.violation(
                    st,
                    "rebound-static-input",
                    rebound.site,  # type: ignore[arg-type]
                    "replaced" if rebound.released is None else "released",
                    [
                        *([("released here", rebound.released)] if rebound.released else []),  # type: ignore[list-item]
                        ("the replay still reads the tensor that was captured", site),
                    ],
                    memory=rebound.memory,
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


def _word(key: Hashable) -> str:
    """What an attribute, a name or an element of a container is called."""
    return key if isinstance(key, str) else f"element {key}" if isinstance(key, int) else "an element"
