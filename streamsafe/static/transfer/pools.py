"""Memory pools that graphs share: one graph may place its temporaries where a later one has its outputs (GC-07).

Safe is: one after the other, in the order of the captures; or another order, once the outputs are no longer needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import access
from streamsafe.static.domain.atoms import NONE, Atom, Path, Value, ordered, value
from streamsafe.static.domain.capturing import Graph, Overlaid
from streamsafe.static.domain.guards import ALWAYS
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis

POOL: Final = "its pool"
"""The field of a graph that holds the pool that its capture was given."""

NAME: Final = "shared-pool-replay-order"


def is_given(s: State, graphs: Value, pool: Value) -> None:
    """A capture of a graph is given a pool."""
    for graph in graphs:
        if pool:
            s.heap[graph, POOL] = pool


@special("graph_pool")
def of_graph(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``graph.pool()``: that of its capture; one of its own stands under the graph's name."""
    found: set[Atom] = set()
    for graph in ordered(c.receiver):
        found |= s.heap.get((graph, POOL), value(graph)) - {NONE} or {graph}
    return frozenset(found)


def captured(s: State, graph: Atom, one: Graph) -> Graph:
    """What a graph uses, with its pool and the graphs that were captured into the pool before."""
    given = s.heap.get((graph, POOL), value(graph)) - {NONE}
    pool = next(iter(given)) if len(given) == 1 else graph
    before = (other for other, known in s.capturing.graphs.items() if known.pool is pool)
    return one._replace(pool=pool, after=frozenset(before) - {graph})


def launched(
    a: Analysis, s: State, graphs: Mapping[Atom, Graph], graph: Atom, span: Span, stream: Atom
) -> None:
    """A graph is replayed: at once with others of its pool, or over the outputs of those captured after it."""
    known = graphs.get(graph)
    over = {each for each in s.capturing.overlaid if each.graph is not graph}
    for other in {each for each, _ in s.capturing.replays}:
        if other is graph:
            continue
        if may_overlay(graphs, other, graph):
            over.add(Overlaid(other, graph, span))
        if known is not None and _share(known, graphs.get(other)):
            _at_once(a, s, span, other, stream)
    s.capturing.overlaid = frozenset(over)
    if known is not None and any(_share(known, one) for one in graphs.values() if one is not known):
        mark = access(graph, True, stream, span, s.order.before(stream), tag.RECORD, ALWAYS, "replay()")
        s.order.put(mark, frozenset((frozenset((stream,)),)))


def _share(one: Graph, other: Graph | None) -> bool:
    """Whether two graphs have one pool."""
    return other is not None and one.pool is not None and one.pool is other.pool


def _at_once(a: Analysis, s: State, span: Span, other: Atom, stream: Atom) -> None:
    for mark in s.order.near(other):
        if mark.buffer is other and mark.stream is not stream:
            if s.order.exposed(mark, frozenset((stream,))):
                notes = (("replayed here, and not waited for", mark.span),)
                a.violation(NAME, span, "replay()", s.guard, notes)


def may_overlay(graphs: Mapping[Atom, Graph], old: Atom, new: Atom) -> bool:
    """Whether a replay of one graph may overwrite the outputs of another; also where a class has to say."""
    if old in graphs and new in graphs:
        return overlays(graphs, old, new)
    return all(graph in graphs or (isinstance(graph, Path) and bool(graph.fields)) for graph in (old, new))


def overlays(graphs: Mapping[Atom, Graph], old: Atom, new: Atom) -> bool:
    """Whether a replay of one graph may overwrite the outputs of another, which was captured after it."""
    return old in graphs and new in graphs and new in graphs[old].after


def uses(a: Analysis, s: State, graphs: Mapping[Atom, Graph], held: Value) -> None:
    """Memory is needed that a graph has written, of which another replay may have been put over it."""
    for buffer in mem.buffers(a, s, held):
        for each in sorted(s.capturing.overlaid, key=lambda one: one.span):
            if each.graph in graphs:
                if buffer in graphs[each.graph].outputs and overlays(graphs, each.graph, each.by):
                    report(a, s, each)
            elif isinstance(buffer, Path) and buffer.fields:
                s.capturing.needed = s.capturing.needed | {(each, buffer)}


def report(a: Analysis, s: State, over: Overlaid) -> None:
    """A replay was put over outputs that are still needed."""
    a.violation(NAME, over.span, "replay()", s.guard)
