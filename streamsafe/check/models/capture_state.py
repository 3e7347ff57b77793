"""A capture that is under way: its streams, the accesses it records, and the memory that a graph loses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..program import Block, Timeline, distinct
from ..values import Event, Graph, Sym, V
from .path import Node, Notes, Part, Site


@dataclass(slots=True)
class Captured:
    """One access of a captured operation."""

    block: Block
    part: Any
    write: bool
    site: Site
    notes: Notes = frozenset()


@dataclass(slots=True)
class Loss:
    """Where the program let go of memory that a graph uses."""

    site: Site
    seq: int
    assumptions: tuple[str, ...] = ()


@dataclass
class Capture:
    """A capture that is under way."""

    graph: Graph
    stream: Timeline
    mode: str
    site: Site
    lib: Any
    streams: set[Timeline] = field(default_factory=set)
    last: dict[Timeline, tuple[int, Site]] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    outside: set[int] = field(default_factory=set)
    filled: list[tuple[Block, Site]] = field(default_factory=list)
    blamed: set[Timeline] = field(default_factory=set)
    bodies: dict[Timeline, Timeline] = field(default_factory=dict)
    modules: dict[Any, V] = field(default_factory=dict)
    backward: bool = False
    first: int = 0
    blocks: dict[int, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.streams.add(self.stream)
        self.first = Block.count

    # ------------------------------------------------------------------ streams
    def joins(self, t: Timeline, n: Node) -> None:
        """A stream becomes part of the capture."""
        if t not in self.streams:
            self.streams.add(t)
            self.worked(t, self.lib.order.enqueue(t), n)

    def worked(self, t: Timeline, at: int, n: Node) -> None:
        if t is not self.stream and t not in self.bodies:
            self.last[t] = (at, self.lib.m.site(n))

    def waited(self, t: Timeline, other: Timeline, n: Node) -> None:
        """A stream waits for another one."""
        if other in self.streams:
            self.joins(t, n)
        elif (
            t in self.streams
            and other.origin in ("new", "ambient")
            and not any(distinct(u, other) == "unknown" for u in self.streams)
        ):
            self.lib.violation("SS402", n, "wait_stream()")

    def begins_body(self, t: Timeline, parent: Timeline) -> None:
        """A stream captures the body of a conditional node, which runs where the parent has the node."""
        self.streams.add(t)
        self.bodies[t] = parent
        self.lib.order.learn(t, self.lib.order.snapshot(parent))

    def ends_body(self, t: Timeline) -> None:
        if t in self.bodies:
            self.streams.discard(t)
            self.lib.order.learn(self.bodies[t], self.lib.order.snapshot(t))

    def recorded(self, ev: Event, t: Timeline) -> None:
        if t in self.streams:
            self.events[self.lib.m.uid(ev)] = ev
            ev.captured = self.graph
            if ev.external:
                self.graph.events.append(ev)

    def waited_event(self, t: Timeline, ev: Event, n: Node) -> None:
        if self.lib.m.uid(ev) in self.events and t.origin in ("ambient", "null"):
            self.lib.violation("SS402", n, "the default stream in a capture")
            self.blamed.add(t)
        elif self.lib.m.uid(ev) in self.events:
            self.joins(t, n)
        elif (
            t in self.streams
            and ev.snapshot is not None
            and ev.of is not None
            and ev.of not in self.streams
            and not ev.external
        ):
            self.lib.violation("SS402", n, "wait()")

    def unjoined(self) -> list[Site]:
        """Where the last work is of each stream that the capturing stream has not waited for."""
        known = self.lib.order.known(self.stream)
        return [site for t, (at, site) in self.last.items() if known.get(t, 0) < at and t.origin == "new"]

    # ------------------------------------------------------------------ memory
    def touch(self, block: Block, part: Part, write: bool, node: Node, notes: Notes) -> None:
        self.graph.nodes.setdefault(
            (block.uid, part, write), Captured(block, part, write, self.lib.m.site(node), notes)
        )
        if "private" not in block.notes and block.place != "pool":
            self.lib.m.captured[block.uid] = block

    def inside(self, block: Block) -> Block:
        """A block as the operations of the graph use it: what came before the capture is done at each launch."""
        known = self.blocks.get(block.uid)
        if known is None:
            known = self.blocks[block.uid] = Block(
                block.place, block.text, block.alloc, block.home, block.lib
            )
        return known

    def result(self, s: Sym, node: Node, notes: Notes) -> None:
        """What an unknown call gives is written by the graph, into memory of its own."""
        s.block = Block("cuda", s.text, self.stream, self.lib.m.site(node))
        s.block.notes.add("private")
        self.touch(s.block, None, True, node, notes)
