"""Captures: the streams that take part, what was begun and ended, and who else is at work meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from streamsafe.order.hazard import Span
from streamsafe.static.domain.atoms import NONE, Atom, Symbol, symbol

FORK: Final[Symbol] = symbol("fork")
"""Stands for the point where a capture begins: a stream takes part when it comes after it."""

BRANCH: Final[Symbol] = symbol("branch")
"""Stands for the work of a stream that was forked: the capturing stream must come after it at the end."""


class Graph(NamedTuple):
    """What a captured graph uses: where it was captured, memory from before, and memory that it made.

    Its temporaries are in a ``pool``, into which other graphs may have been captured before (``after``).
    """

    span: Span
    inputs: frozenset[Atom] = frozenset()
    outputs: frozenset[Atom] = frozenset()
    pool: Atom | None = None
    after: frozenset[Atom] = frozenset()

    def joined(self, first: Graph) -> Graph:
        """What the graph uses that was captured on either of two paths."""
        return first._replace(inputs=first.inputs | self.inputs, outputs=first.outputs | self.outputs)

    def renamed(self, names: Mapping[Atom, Atom]) -> Graph:
        """The same under other names."""
        return self.mapped(lambda atoms: frozenset(names.get(atom, atom) for atom in atoms))

    def mapped(self, rename: Callable[[Iterable[Atom]], frozenset[Atom]]) -> Graph:
        """The same with each set of atoms renamed; a pool that is None, or one of several, is of the graph alone."""
        pools = rename((self.pool,)) - {NONE} if self.pool is not None else frozenset()
        pool = next(iter(pools)) if len(pools) == 1 else None
        after = rename(self.after) if pool is not None else frozenset()
        return Graph(self.span, rename(self.inputs), rename(self.outputs), pool, after)


class Overlaid(NamedTuple):
    """A graph was replayed, and then another one (``by``), which may share its pool."""

    graph: Atom
    by: Atom
    span: Span


class Kept(NamedTuple):
    """An output is kept in a container; ``stale``: its graph has been replayed since."""

    container: Atom
    output: Atom
    stale: bool


class Taken(NamedTuple):
    """A register holds an output as one replay has left it; ``stale``: the graph has been replayed since."""

    reg: str | int
    output: Atom
    stale: bool


class Capturing:
    """What a path knows of captures, beside the one under way.

    Attributes:
        ended: where a capture of a caller was ended.
        begins: captures begun by hand on the stream that is current at entry.
        under_way: what the capture under way uses.
        graphs: graph -> what it uses.
        rebound: (graph, place): an input of the graph is let go of.
        replays: (graph, place).
        overlaid: replays that another one may have been put over, and not repeated since.
        needed: memory that is used afterwards, of graphs that are captured elsewhere.
        kept: outputs in containers.
        taken: outputs in registers.
        stored: (object of the caller, field) -> where it was last stored.
        threads: threads and futures of the host that may still be at work -> where they were started.
    """

    __slots__ = (
        "begins",
        "ended",
        "graphs",
        "kept",
        "needed",
        "overlaid",
        "rebound",
        "replays",
        "stored",
        "taken",
        "threads",
        "under_way",
    )

    def __init__(self) -> None:
        self.ended: Span | None = None
        self.begins: frozenset[Span] = frozenset()
        self.threads: dict[Atom, Span] = {}
        self.under_way: Graph | None = None
        self.graphs: dict[Atom, Graph] = {}
        self.rebound: frozenset[tuple[Atom, Span]] = frozenset()
        self.replays: frozenset[tuple[Atom, Span]] = frozenset()
        self.overlaid: frozenset[Overlaid] = frozenset()
        self.needed: frozenset[tuple[Overlaid, Atom]] = frozenset()
        self.kept: frozenset[Kept] = frozenset()
        self.taken: frozenset[Taken] = frozenset()
        self.stored: dict[tuple[Atom, str], Span] = {}

    def is_empty(self) -> bool:
        """Whether no capture, graph or other thread is known of."""
        return not (
            self.under_way
            or self.ended
            or self.begins
            or self.threads
            or self.graphs
            or self.rebound
            or self.replays
        )

    def fork(self) -> Capturing:
        """An independent copy."""
        twin = Capturing.__new__(Capturing)
        twin.ended, twin.begins, twin.threads = self.ended, self.begins, dict(self.threads)
        twin.under_way, twin.graphs = self.under_way, dict(self.graphs)
        twin.stored = dict(self.stored)
        twin.rebound, twin.replays, twin.kept = self.rebound, self.replays, self.kept
        twin.taken, twin.overlaid, twin.needed = self.taken, self.overlaid, self.needed
        return twin

    def join(self, other: Capturing) -> bool:
        """Take in the paths of another partition; whether anything changed."""
        changed = not other.begins <= self.begins or (self.ended is None and other.ended is not None)
        self.ended = self.ended or other.ended
        self.begins = self.begins | other.begins
        for atom, span in other.threads.items():
            if atom not in self.threads:
                self.threads[atom] = span
                changed = True
        for graph, one in other.graphs.items():
            both = one.joined(self.graphs.get(graph, one))
            if self.graphs.get(graph) != both:
                self.graphs[graph] = both
                changed = True
        for key, span in other.stored.items():
            self.stored.setdefault(key, span)
        sets = (self.rebound, self.replays, self.kept, self.taken, self.overlaid, self.needed)
        self.overlaid, self.needed = self.overlaid | other.overlaid, self.needed | other.needed
        self.rebound, self.replays = self.rebound | other.rebound, self.replays | other.replays
        self.kept, self.taken = self.kept | other.kept, self.taken | other.taken
        if other.under_way is not None:
            both = other.under_way.joined(self.under_way or other.under_way)
            changed, self.under_way = changed or both != self.under_way, both
        after = (self.rebound, self.replays, self.kept, self.taken, self.overlaid, self.needed)
        return changed or sets != after

    def rename(self, names: dict[Atom, Atom]) -> None:
        """Give objects other names."""
        if not self.threads.keys().isdisjoint(names):
            self.threads = {names.get(atom, atom): span for atom, span in self.threads.items()}
        if self.under_way is not None:
            self.under_way = self.under_way.renamed(names)
        if self.graphs:
            self.graphs = {names.get(atom, atom): one.renamed(names) for atom, one in self.graphs.items()}
        self.rebound = frozenset((names.get(graph, graph), span) for graph, span in self.rebound)
        self.replays = frozenset((names.get(graph, graph), span) for graph, span in self.replays)
        if self.overlaid:
            self.overlaid = frozenset(
                each._replace(graph=names.get(each.graph, each.graph), by=names.get(each.by, each.by))
                for each in self.overlaid
            )
        self.kept = frozenset(
            Kept(names.get(each.container, each.container), names.get(each.output, each.output), each.stale)
            for each in self.kept
        )
        self.taken = frozenset(
            each._replace(output=names.get(each.output, each.output)) for each in self.taken
        )
