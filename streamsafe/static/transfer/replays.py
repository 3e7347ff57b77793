"""Replays: a graph reads and writes the addresses of its capture, and its outputs are written anew each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from streamsafe.order.hazard import Span
from streamsafe.static.domain import access as tag
from streamsafe.static.domain import limits
from streamsafe.static.domain.atoms import (
    FALSE,
    GRADIENTS,
    HOST,
    TRUE,
    UNKNOWN,
    Atom,
    Const,
    New,
    Path,
    Tuple,
    Value,
    const,
    ordered,
    path,
    value,
)
from streamsafe.static.domain.capturing import Graph, Kept
from streamsafe.static.domain.guards import IS_NONE, Literal
from streamsafe.static.domain.places import DEVICE, EACH, is_element, is_gradient, overlap
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer import pools
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.domain.access import Access
    from streamsafe.static.summary.analyse import Analysis
    from streamsafe.static.summary.instantiate import Rename
    from streamsafe.static.summary.model import Exit


PARAMETERS: Final = "parameters()"
"""The step from a module to its parameters."""

EXTERNAL: Final = "external"
"""The field of an event that says whether a graph may record it for the outside."""


# -- what a graph uses ------------------------------------------------------------------------------------------------


def uses(a: Analysis, s: State, one: Access, made: bool = False) -> None:
    """The capture under way uses memory: its own, or that of before."""
    graph, buffer = s.capturing.under_way, one.buffer
    if graph is None or not (isinstance(buffer, New | Path) or buffer is GRADIENTS):
        return
    if made or buffer in graph.outputs:
        if buffer not in graph.outputs:
            s.capturing.under_way = graph._replace(outputs=graph.outputs | {buffer})
    elif buffer not in graph.inputs and (
        not isinstance(buffer, Path) or buffer.fields or not one.tags & ~_SURE_USE
    ):
        s.capturing.under_way = graph._replace(inputs=graph.inputs | {buffer})


_SURE_USE: Final = tag.CAPTURED | tag.MODULE_CALL | tag.WHERE_IT_LIES


def uses_module(a: Analysis, s: State, span: Span, c: CallSite) -> None:
    """A module is called: its parameters are read; by a graph that is captured, at their addresses."""
    module, graph = c.module, s.capturing.under_way
    if not isinstance(module, Path) or len(module.fields) >= limits.FIELDS:
        return
    parameters = path(module.root, *module.fields, PARAMETERS)
    if a.engine.moves and len(parameters.fields) < limits.FIELDS:
        each = path(module.root, *parameters.fields, EACH)
        mem.touch(a, s, span, each, False, s.current, c.operation, tag.PARAMETERS)
    if graph is not None:
        s.capturing.under_way = graph._replace(inputs=graph.inputs | {parameters})


def holds(gone: Atom, kept: Atom) -> bool:
    """Whether who lets go of an object, or of what lies at a path, lets go of some memory."""
    if gone is kept:
        return True
    if is_gradient(gone) or is_gradient(kept):
        return overlap(gone, kept)
    if not isinstance(gone, Path) or not isinstance(kept, Path) or gone.root != kept.root:
        return False
    if kept.fields[-1:] == (PARAMETERS,):
        return gone.fields == kept.fields
    if len(gone.fields) > len(kept.fields) and not all(map(is_element, gone.fields[len(kept.fields) :])):
        return False
    return all(
        mine == yours or (is_element(mine) and is_element(yours) and EACH in (mine, yours))
        for mine, yours in zip(gone.fields, kept.fields, strict=False)
    )


def is_parameter(gone: Atom, kept: Atom) -> bool:
    """Whether what lies at a path may be a parameter of a module that a graph uses."""
    if not isinstance(gone, Path) or not isinstance(kept, Path) or kept.fields[-1:] != (PARAMETERS,):
        return False
    module = kept.fields[:-1]
    return (
        gone.root == kept.root
        and gone.fields[: len(module)] == module
        and len(gone.fields) > len(module)
        and gone.fields[-1] != PARAMETERS
    )


def makes(s: State, buffer: Atom) -> None:
    """Memory is made while a capture is under way."""
    graph = s.capturing.under_way
    if graph is not None:
        s.capturing.under_way = graph._replace(
            outputs=graph.outputs | {buffer}, inputs=graph.inputs - {buffer}
        )


def begins(s: State, span: Span, graph: Value) -> None:
    """A graph is captured, or captured again: what it used before does not matter."""
    s.capturing.under_way = Graph(span)
    s.capturing.rebound = frozenset(each for each in s.capturing.rebound if each[0] not in graph)


def ends(s: State, graph: Atom | None) -> None:
    """The capture is over."""
    if graph is not None and s.capturing.under_way is not None:
        s.capturing.graphs[graph] = pools.captured(s, graph, s.capturing.under_way)
    s.capturing.under_way = None


def graphs(a: Analysis, s: State) -> Mapping[Atom, Graph]:
    """The graphs that are known here: those captured on the way, and those that ``__init__`` captures."""
    return {**of_init(a), **s.capturing.graphs}


def of_init(a: Analysis) -> Mapping[Atom, Graph]:
    """The graphs that the class of a method captures when it is made, by their fields."""
    cls = a.fn.cls
    if not a.fn.is_method or cls is None or a.fn.name == "__init__":
        return {}
    fid = a.engine.index.method(cls, "__init__")
    if fid is None:
        return {}
    found: dict[Atom, Graph] = {}
    for exit in a.engine.summary(fid).exits:
        found.update({graph: one for graph, one in exit.graphs.items() if isinstance(graph, Path)})
    return found


# -- rebinding --------------------------------------------------------------------------------------------------------


def stores(a: Analysis, s: State, span: Span, owner: Atom, field: str, old: Value, held: Value) -> None:
    """A field or an element is given something else: an input that was there is let go of (GC-04, GC-06)."""
    at = path(owner.root, *owner.fields, field) if isinstance(owner, Path) else None
    if not old and at is not None:
        if Literal(IS_NONE, at, None, True) in s.guard:
            return
        old = frozenset((at,))
    if at is not None and at in held:
        is_back(a, s, at)
    lets_go(a, s, span, old, held)
    _in_capture(s, span, old - held)


def _in_capture(s: State, span: Span, gone: Value) -> None:
    """A capture puts something in the place of its own input: each replay reads what the first one has read."""
    graph, made = s.capturing.under_way, s.capture
    if graph is None or made is None or made.graph is None:
        return
    if any(holds(atom, each) for atom in gone for each in graph.inputs):
        s.capturing.rebound = s.capturing.rebound | {(made.graph, span)}


def is_back(a: Analysis, s: State, at: Atom) -> None:
    """What was let go of is there again."""
    s.capturing.rebound = frozenset(
        (graph, span)
        for graph, span in s.capturing.rebound
        if not any(holds(at, each) or is_parameter(at, each) for each in _inputs(a, s, graph))
    )


def _inputs(a: Analysis, s: State, graph: Atom) -> frozenset[Atom]:
    known = graphs(a, s).get(graph)
    return known.inputs if known is not None else frozenset()


def lets_go(a: Analysis, s: State, span: Span, old: Value, held: Value, *, parameters: bool = False) -> None:
    """What a name or a field held it holds no longer.

    Args:
        parameters: whether what is let go of may be parameters of modules.
    """
    if not old or old == held:
        return
    known = graphs(a, s)
    if not known:
        return
    still = mem.held_by(s, [held])
    gone = [atom for atom in mem.held_by(s, [old]) if atom not in still]
    for graph, one in known.items():
        if any(holds(atom, graph) for atom in gone):
            continue  # the graph goes with it
        if any(
            holds(atom, each) or (parameters and is_parameter(atom, each))
            for atom in gone
            if isinstance(atom, New | Path) or atom is GRADIENTS
            for each in one.inputs
        ):
            s.capturing.rebound = s.capturing.rebound | {(graph, span)}


def rebinds_local(a: Analysis, s: State, span: Span, old: Value, held: Value) -> None:
    """A local variable gets another tensor: the graph goes on with the one that it has captured."""
    if not s.capturing.graphs and s.capturing.under_way is None:
        return
    if old and old != held and not mem.is_named(s, old):
        gone = frozenset(atom for atom in old if isinstance(atom, New))
        lets_go(a, s, span, gone, held)
        _in_capture(s, span, gone - held)


@special("replay")
def replay(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``graph.replay()``: with the memory of its capture; a capture takes no other graph in."""
    span = a.span(c.at)
    a.host_work(s, span, "launches a graph", "concurrent-capture")
    row = c.row
    stream = s.current
    if row is not None and row.stream != "current":
        given = [atom for atom in ordered(c.given.get(row.stream, UNKNOWN)) if a.role(atom) == "stream"]
        stream = given[0] if given else s.current
    for graph in ordered(c.receiver):
        launch(a, s, span, graph, stream)
    return UNKNOWN


def launch(a: Analysis, s: State, span: Span, graph: Atom, stream: Atom) -> None:
    """A graph is launched on a stream; launches of one graph follow each other (GC-13)."""
    every = graphs(a, s)
    known = every.get(graph)
    if s.capture is None:
        pools.launched(a, s, every, graph, span, stream)
    if known is not None and s.capture is None:
        s.order.learn(stream, graph)
        _runs(a, s, span, known, stream)
        s.order.learn(graph, stream)
    replayed(a, s, graph, span)


def _runs(a: Analysis, s: State, span: Span, graph: Graph, stream: Atom) -> None:
    """What was captured runs, as one operation on the stream of the launch (GC-08)."""
    for atom in ordered(graph.inputs):
        if atom is not GRADIENTS and not (isinstance(atom, Path) and atom.fields[-1:] == (PARAMETERS,)):
            mem.read_one(a, s, span, atom, stream, "replay()")
    for atom in ordered(graph.outputs):
        mem.write_one(a, s, span, atom, stream, "replay()")
    for event, cell in list(s.cells.items()):
        if cell.captured and s.heap.get((event, EXTERNAL)) == value(TRUE):  # recorded by each replay (GC-21)
            s.order.learn(event, stream, forget=True)


def replayed(a: Analysis, s: State, graph: Atom, span: Span) -> None:
    """A graph is replayed."""
    s.capturing.replays = s.capturing.replays | {(graph, span)}
    for rebound, where in sorted(s.capturing.rebound, key=lambda each: each[1]):
        if rebound is graph:
            report_rebound(a, s, where, span)
    known = graphs(a, s).get(graph)
    if known is not None:
        s.capturing.kept = frozenset(
            each._replace(stale=True) if each.output in known.outputs else each for each in s.capturing.kept
        )
        s.capturing.taken = frozenset(
            each._replace(stale=True) if each.output in known.outputs else each for each in s.capturing.taken
        )


def report_rebound(a: Analysis, s: State, where: Span, span: Span) -> None:
    """An input was let go of before a replay."""
    notes = (("the graph is replayed here, with what it has captured", span),)
    a.violation("rebound-static-input", where, "rebound", s.guard, notes)


# -- outputs that are kept --------------------------------------------------------------------------------------------


def keeps(a: Analysis, s: State, span: Span, container: Atom, held: Value) -> None:
    """A container is given what a graph has computed: a second time it is the same memory (GC-05)."""
    if s.capture is not None:
        return
    outputs = {output for one in graphs(a, s).values() for output in one.outputs}
    for output in outputs.intersection(mem.buffers(a, s, held)):
        if Kept(container, output, True) in s.capturing.kept:
            a.violation("stale-replay-output", span, "keeps it", s.guard)
        s.capturing.kept = s.capturing.kept | {Kept(container, output, False)}


@special("take", "clear")
def takes_out(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """Something is taken out of a container: what is left there is not told."""
    if s.capturing.kept:
        s.capturing.kept = frozenset(each for each in s.capturing.kept if each.container not in c.receiver)
    return None


@special("parameter")
def make_parameter(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``nn.Parameter(data)``: it moves with its module, so data of the host says nothing of where it lies."""
    held = c.given.get("data", UNKNOWN)
    if held and all(mem.place_of(a, s, atom) in ("pageable", "pinned") for atom in held):
        return value(mem.allocate(a, s, a.span(c.at), "torch.nn.Parameter"))
    return None


@special("register_buffer")
def register_buffer(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``module.register_buffer("name", tensor)``: an attribute of the module."""
    held = c.args[1] if len(c.args) > 1 else c.keywords.get("tensor", c.keywords.get("param", UNKNOWN))
    for name in ordered(c.args[0]) if c.args else ():
        if isinstance(name, Const) and isinstance(name.value, str):
            if any(mem.place_of(a, s, atom) != DEVICE for atom in held):  # it moves with its module
                held = value(mem.allocate(a, s, a.span(c.at), a.engine.tensor_type, discriminator=5))
            for owner in ordered(c.receiver):
                if isinstance(owner, New | Path):
                    s.heap[owner, name.value] = held
    return None


def outlived(a: Analysis, s: State, live: set[Atom]) -> frozenset[tuple[Atom, Span]]:
    """The inputs that end with a function while their graph lives on (GC-06), by the place where they are made."""
    return frozenset(
        (graph, made_at(atom))
        for graph, one in s.capturing.graphs.items()
        if isinstance(graph, Path) or graph in live
        for atom in one.inputs
        if isinstance(atom, New) and not atom.age and not atom.calls and atom not in live
        if a.role(atom) == "tensor" and mem.place_of(a, s, atom) == DEVICE
    )


def made_at(atom: New) -> Span:
    """Where an object is made."""
    filename, row, column, (end_row, end_column) = atom.place
    return Span(filename, row, column, end_row, end_column)


# -- calls ------------------------------------------------------------------------------------------------------------


def published(s: State) -> tuple[dict[Atom, Graph], frozenset[tuple[Atom, Span]]]:
    """The graphs of a function and what is let go of, under the paths at which callers see them, too."""
    graphs_of, names = s.capturing.graphs, _paths(s)
    found = dict(graphs_of)
    for graph, one in graphs_of.items():
        if graph in names:
            found[names[graph]] = one.mapped(lambda atoms: frozenset(_seen(names, atom) for atom in atoms))
    rebound = s.capturing.rebound
    return found, rebound | {(names[graph], span) for graph, span in rebound if graph in names}


def _seen(names: Mapping[Atom, Atom], atom: Atom) -> Atom:
    """An object, or what lies below what a caller gave, as the object sees it at which it is stored."""
    if atom in names:
        return names[atom]
    if isinstance(atom, Path) and atom.fields:
        at = names.get(path(atom.root))
        if isinstance(at, Path) and len(at.fields) + len(atom.fields) <= limits.FIELDS:
            return path(at.root, *at.fields, *atom.fields)
    return atom


def _paths(s: State) -> dict[Atom, Atom]:
    """Objects made here, and what callers give -> the paths at which they are stored."""
    names: dict[Atom, Atom] = {}
    todo: list[tuple[Atom, str, Value]] = [
        (owner, field, held) for (owner, field), held in s.heap.items() if isinstance(owner, Path)
    ]
    while todo:
        owner, field, held = todo.pop()
        if field in (mem.THROUGH, pools.POOL):
            continue  # no part of the object
        assert isinstance(owner, Path)
        if len(owner.fields) >= limits.FIELDS:
            continue
        at = path(owner.root, *owner.fields, EACH if field == "[]" else field)
        for atom in ordered(held):
            if isinstance(atom, Tuple):
                todo += [(at, f"[{number}]", item) for number, item in enumerate(atom.items)]
            elif isinstance(atom, Path) and not atom.fields and atom.root != owner.root and atom not in names:
                names[atom] = at
            elif isinstance(atom, New) and atom not in names:
                names[atom] = at
                todo += [(at, inner, value) for inner, value in s.heap.fields(atom).items()]
    return names


def after_call(a: Analysis, t: State, exit: Exit, rename: Rename) -> None:
    """What a callee captured, let go of and replayed."""

    def one_of(atoms: Iterable[Atom]) -> frozenset[Atom]:
        images = (rename.atom(atom) for atom in atoms)
        return frozenset(part for held in images for part in (*held, *mem.buffers(a, t, held)))

    for graph, one in exit.graphs.items():
        for image in ordered(rename.atom(graph)):
            if isinstance(image, New | Path):
                t.capturing.graphs[image] = one.mapped(one_of)
                t.capturing.rebound = frozenset(each for each in t.capturing.rebound if each[0] is not image)
    for graph, span in exit.rebound:
        for image in rename.atom(graph):
            t.capturing.rebound = t.capturing.rebound | {(image, span)}
    for graph, span in sorted(exit.replays, key=lambda each: each[1]):
        for image in ordered(rename.atom(graph)):
            replayed(a, t, image, span)


def stored_below(a: Analysis, t: State, exit: Exit, rename: Rename) -> None:
    """What a callee stored in the objects of its caller, before it is stored there."""
    if not exit.stored:
        return
    for (owner, field), span in exit.stored.items():
        held = rename.value(exit.heap.get((owner, field), UNKNOWN))
        for image in ordered(rename.atom(owner)):
            if isinstance(image, New | Path):
                stores(a, t, span, image, field, t.heap.get((image, field), UNKNOWN), held)
                note_store(t, image, field, span)
            elif image is GRADIENTS:
                gives_back(a, t, span, [image])


def note_store(s: State, owner: Atom, field: str, span: Span) -> None:
    """Where a field of a caller's object that held something was stored, or its gradients were given back."""
    if isinstance(owner, Path):
        at = path(owner.root, *owner.fields, field)
        if Literal(IS_NONE, at, None, True) not in s.guard:
            s.capturing.stored[owner, field] = span
    elif owner is GRADIENTS:
        s.capturing.stored[owner, field] = span


def settles(s: State, gradients: Iterable[Atom]) -> None:
    """Gradients that were given back are others from here on."""
    for gradient in gradients:
        for one in [each for each in s.order.near(gradient) if overlap(each.buffer, gradient)]:
            s.order.settle(one)


def gives_back(a: Analysis, s: State, span: Span, gradients: Iterable[Atom]) -> None:
    """``zero_grad()``: the gradients are given back, and the next pass makes others."""
    for gradient in gradients:
        lets_go(a, s, span, value(gradient), UNKNOWN)
        if gradient is GRADIENTS:
            note_store(s, GRADIENTS, "grad", span)
        elif isinstance(gradient, Path):
            note_store(s, path(gradient.root, *gradient.fields[:-1]), "grad", span)


@special("resize")
def resize(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``x.resize_(n)``: its memory may be given back, for more elsewhere; ``resize_(0)`` gives it back (TL-12)."""
    span = a.span(c.at)
    freed = c.given.get("size", UNKNOWN) == value(const(0))
    for buffer in mem.buffers(a, s, c.receiver):
        lets_go(a, s, span, value(buffer), UNKNOWN)
        if freed:
            mem.release(a, s, buffer)
        elif not freed and isinstance(buffer, Path) and buffer.fields:
            note_store(s, path(buffer.root, *buffer.fields[:-1]), buffer.fields[-1], span)
    return None


@special("load_state")
def load_state(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``module.load_state_dict(state, assign=True)``: other tensors take the place of the parameters."""
    if c.given.get("assign", value(FALSE)) == value(TRUE):
        for atom in c.receiver:
            if isinstance(atom, Path) and len(atom.fields) < limits.FIELDS:
                parameters = path(atom.root, *atom.fields, PARAMETERS)
                lets_go(a, s, a.span(c.at), value(parameters), UNKNOWN)
    return None


# -- what the host does once ------------------------------------------------------------------------------------------


def copies_what_host_wrote(a: Analysis, s: State, copy: Access) -> None:
    """A captured copy reads what the host wrote in the capture: replays repeat the copy alone (GC-03, GC-19)."""
    graph = s.capturing.under_way
    if graph is None or not copy.tags & tag.H2D or copy.buffer in graph.outputs:
        return
    for written in list(s.order.near(copy.buffer)):
        once = written.stream is HOST and written.writes and bool(written.tags & tag.CAPTURED)
        if once and written.buffer is copy.buffer:
            notes = (("each replay copies what was written at the capture", copy.span),)
            a.violation("host-work-in-capture", written.span, "the host's write", s.guard, notes)
