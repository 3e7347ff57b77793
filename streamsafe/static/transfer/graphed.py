"""``make_graphed_callables``: each callable is captured when it is made, and replayed by each of its calls (GC-25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain.atoms import UNKNOWN, Atom, New, Path, Tuple, Value, ordered, tuple_of, value
from streamsafe.static.domain.capturing import Graph
from streamsafe.static.domain.places import DEVICE
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import captures, replays
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.data import spread
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

GRAPH: Final = "its graph"
"""The field of a callable that holds the graph which a call of it replays."""

_OUTPUT: Final = "its output"


@special("graphed_callables")
def make(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``make_graphed_callables(f, (x,))``; of several callables, with a tuple of arguments for each of them."""
    callables, samples = c.given.get("callables", UNKNOWN), c.given.get("sample_args", UNKNOWN)
    several = next(iter(callables)) if len(callables) == 1 else None
    if not isinstance(several, Tuple):
        return _made(a, s, c, callables, samples, 0)
    given = spread(a, s, samples)
    given += [UNKNOWN] * (len(several.items) - len(given))
    each = enumerate(zip(several.items, given, strict=False))
    return value(tuple_of(*(_made(a, s, c, one, sample, number) for number, (one, sample) in each)))


def _made(a: Analysis, s: State, c: CallSite, callee: Value, sample: Value, number: int) -> Value:
    """A callable, captured: a module is the same object afterwards, a function is another one."""
    from streamsafe.static.transfer.calls import call_value

    span = a.span(c.at)
    graph = mem.allocate(a, s, span, "torch.cuda.CUDAGraph", discriminator=20 + number)
    t = s.fork()
    captures.begin_region(a, t, span, t.current, value(graph), UNKNOWN)
    call_value(a, t, CallSite(c.at, c.dst, spread(a, s, sample)), callee)  # for what is illegal in it
    output = mem.allocate(a, s, span, a.engine.tensor_type, DEVICE, discriminator=40 + number)
    s.heap[graph, _OUTPUT] = value(output)
    s.capturing.graphs[graph] = Graph(span, outputs=frozenset((output,)))
    found: set[Atom] = set()
    for atom in ordered(callee):
        kept = atom if isinstance(atom, Path | New) else graph
        s.heap[kept, GRAPH] = value(graph)
        found.add(kept)
    return frozenset(found)


def call(a: Analysis, s: State, c: CallSite, callee: Atom) -> list[State] | None:
    """A call of such a callable: its arguments are copied, and the graph is replayed. None of any other."""
    graphs = s.heap.get((callee, GRAPH), UNKNOWN)
    if len(graphs) != 1:
        return None
    (graph,) = graphs
    span = a.span(c.at)
    a.host_work(s, span, "launches a graph", "concurrent-capture")
    for given in c.values():
        mem.read(a, s, span, given, "a graphed callable")
    made = s.heap.get((graph, _OUTPUT), UNKNOWN)
    replays.launch(a, s, span, graph, s.current)
    mem.derive(s, made, [buffer for given in c.values() for buffer in mem.buffers(a, s, given)], callee)
    s.env[c.dst] = made
    return [s]
