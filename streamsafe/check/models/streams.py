"""Streams and events."""

from __future__ import annotations

from ..program import NOTHING, Timeline, all_of, distinct
from ..values import (
    NONE,
    Const,
    Event,
    Graph,
    Seq,
    Stream,
    Sym,
    V,
)
from .copies import Copies
from .path import Args, Known, Kwargs, Node


class Streams(Copies):
    """Streams and events."""

    def stream_method(self, t: Timeline, name: str, args: Args, kwargs: Kwargs, n: Node, r: V) -> V:
        m = self.m
        lib = r.lib if isinstance(r, Stream) else t.lib
        a = args[0] if args else next(iter(kwargs.values()), None)
        if name == "wait_stream":
            other = self.stream(a) if a is not None else None
            cap = m.capture
            self.tick()
            if cap is not None and other is not None:
                cap.waited(t, other, n)
            if other is None or (other.origin == "sym" and other not in self.order.ticks):
                self.order.all_known(t)
                return NONE
            snap = self.order.snapshot(other)
            self.order.wait(t, snap, m.site(n), other)
            if any(a is s for s in self.defaults) and t is not other:
                self.only_default[t] = (m.site(n), len(self.order.waits))
            if other.origin == "sym":
                self.alias_wait(t, other)
            return NONE
        if name == "wait_event":
            if isinstance(a, Event):
                self.outside_its_capture(a, n)
            return self.event_wait(t, a, n)
        if name in ("record_event", "record"):
            ev = (
                a
                if isinstance(a, Event)
                else self.event_of(a)
                if isinstance(a, Sym)
                else Event("", None, m.site(n))
            )
            self.record(ev, t, n)
            return ev if not isinstance(a, Sym) else a
        if name == "synchronize":
            self.sync_host(t, n, "synchronize()")
            if t.origin in ("sym", "elem"):
                self.everything_host()
            return NONE
        if name in ("launch_host_func", "add_callback") and args:
            given = [Stream(t), NONE, *args[1:]] if name == "add_callback" else list(args[1:])
            self.host_function(t, args[0], given, {}, n)
            return NONE
        if name == "is_capturing":
            return Const(self.capturing(t) is not None)
        if name == "query":
            self.query("query()", t, n)
            return self.queried(self.order.snapshot(t))
        if name == "__enter__":
            m.current[lib].append(t)
            return r
        if name == "__exit__":
            if len(m.current[lib]) > 1:
                m.current[lib].pop()
            return NONE
        if name == "use":
            m.current[lib][-1] = t
            return r
        if name == "begin_capture":
            if t.origin == "null":  # it is refused (GP-01)
                self.violation("SS405", n, "begin_capture()")
                raise m.Raised
            self.begin_capture(None, r, n, "cupy", explicit=True, options=kwargs)
            return NONE
        if name == "end_capture":
            g = m.capture.graph if m.capture else Graph("graph")
            self.end_capture(n)
            return g
        return m.fresh(name)

    def alias_wait(self, t: Timeline, other: Timeline) -> None:
        """A stream of which nothing is known may be any other."""
        for u in list(self.order.ticks):
            if u is not t and distinct(u, other) in ("unknown",):
                self.order.learn(t, self.order.snapshot(u))

    def record(self, ev: Event, t: Timeline, n: Node) -> None:
        self.tick()
        for e in self.m.among_others.pop(self.m.uid(ev), ()):
            e.unknown = True
        ev.snapshot = self.order.record(ev.cell, t, self.m.site(n), bool(ev.timing))
        self.snapshots.append(ev.snapshot)
        if self.of_earlier_call(ev.born):
            self.recorded_later.add(ev.site)
        ev.recorded = self.m.site(n)
        ev.of, ev.when = t, self.m.seq
        ev.unknown, ev.captured = False, None
        cap = self.m.capture
        if cap is not None:
            cap.recorded(ev, t)

    def event_wait(self, t: Timeline, ev: V | None, n: Node) -> V:
        self.tick()
        if isinstance(ev, Sym):
            ev = self.events.get(ev.vn) or ev
        if not isinstance(ev, Event) or ev.unknown:
            self.order.all_known(t)
            return NONE
        cap = self.m.capture
        if cap is not None:
            cap.waited_event(t, ev, n)
        if ev.snapshot is not None:
            self.order.wait(t, ev.snapshot, self.m.site(n), ev.of, ev.cell)
        elif ev.unrecorded and cap is None:
            self.order.wait_for_nothing(t, ev.cell, self.m.site(n))
        return NONE

    def queried(self, snapshot: Known) -> V:
        """Whether something is done: where that is true, the host knows it."""
        v = self.m.fresh("query()", "host")
        self.m.queries[("truth", self.m.key(v))] = snapshot
        return v

    def all_queried(self, result: Sym, values: Seq) -> None:
        """``all(e.query() for e in events)``"""
        keys = [("truth", self.m.key(v)) for v in values.items]
        asked = [self.m.queries[key] for key in keys if key in self.m.queries]
        if asked:
            self.m.queries[("truth", self.m.key(result))] = all_of(asked)

    def event_method(self, ev: Event, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        m = self.m
        a = args[0] if args else kwargs.get("stream")
        if name in ("synchronize", "query", "wait"):
            self.outside_its_capture(ev, n)
        if name == "record":
            self.record(ev, self.stream(a, ev.lib) or self.cur(ev.lib), n)
            return NONE
        if name == "wait":
            return self.event_wait(self.stream(a, ev.lib) or self.cur(ev.lib), ev, n)
        if name == "synchronize":
            if m.capture is not None:
                self.violation("SS401", n, "synchronize()")
                return NONE
            self.tick()
            if ev.unknown or (ev.snapshot is None and ev.timing is None):
                self.order.all_known(self.order.host)
            elif ev.snapshot is not None:
                self.order.wait(self.order.host, ev.snapshot, m.site(n), ev.of, ev.cell)
            elif ev.unrecorded:
                self.order.wait_for_nothing(self.order.host, ev.cell, m.site(n))
            return NONE
        if name == "query":
            self.query("query()", ev.of, n)
            if ev.unrecorded:
                self.order.wait_for_nothing(self.order.host, ev.cell, m.site(n))
                return Const(True)  # TS-17: of the empty set of work, all is done
            if ev.unknown:
                self.order.all_known(self.order.host)
                return m.fresh("query()")
            return self.queried(ev.snapshot or NOTHING)
        if name == "elapsed_time":
            other = a if isinstance(a, Event) else self.events.get(a.vn) if isinstance(a, Sym) else None
            self.elapsed(ev, other, n)
            return m.fresh("<ms>", "host")
        return m.fresh(name)

    def event_of(self, r: Sym) -> Event:
        e = self.events.get(r.vn)
        if e is None:
            e = self.events[r.vn] = Event(r.text, None)
        return e

    def outside_its_capture(self, ev: Event, n: Node) -> None:
        """An event that was recorded in a capture is used where the capture is over."""
        if (
            ev.captured is not None
            and not ev.external
            and (self.m.capture is None or self.m.capture.graph is not ev.captured)
        ):
            self.violation("SS402", n, "an event of a capture")

    def graph_method(self, g: Graph, name: str, args: Args, kwargs: Kwargs, n: Node) -> V:
        if name in ("replay", "launch"):
            lib = "torch" if name == "replay" else "cupy"
            self.replay(g, n, lib, self.stream(args[0], lib) if args else None)
        elif name == "capture_begin":
            options = dict(kwargs)
            if args:
                options.setdefault("pool", args[0])
            self.begin_capture(g, None, n, explicit=True, options=options)
        elif name == "capture_end":
            self.end_capture(n)
        elif name == "pool":
            return self.pool_of(g)
        elif name == "register_generator_state" and args:
            g.generators.add(self.m.key(args[0]))
        else:
            return self.m.fresh(name)
        return NONE
