"""The control-flow graph of a function, as an analysis walks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from streamsafe.static.syntax import ir
from streamsafe.static.syntax.ir import Function, Instr, Reg, Star


@dataclass(frozen=True, slots=True)
class Graph:
    """What an analysis of a function needs of its graph.

    Attributes:
        order: the blocks that matter in reverse postorder, the entry first: those from which a ``Return`` can be
            reached. A handler that only cleans up and raises again is not among them.
        position: block -> its place in ``order``.
        successors: block -> targets of its edges among ``order``, and its handler, if that matters.
        heads: targets of back edges: loop heads.
        live: block -> temporaries whose values a later block reads; all others die at the block's end.
    """

    order: tuple[int, ...]
    position: dict[int, int]
    successors: dict[int, tuple[int, ...]]
    heads: frozenset[int]
    live: dict[int, frozenset[int]]


def graph(fn: Function) -> Graph:
    """Order the blocks of a function and find its loop heads and what lives across blocks."""
    wanted = _returning(fn)
    successors: dict[int, tuple[int, ...]] = {}
    for i, block in enumerate(fn.blocks):
        targets = [e.target for e in block.edges if _is_usual(e)]
        if block.handler is not None and block.instrs:
            targets.append(block.handler)
        successors[i] = tuple(dict.fromkeys(t for t in targets if t in wanted))
    order = _reverse_postorder(successors)
    heads = frozenset(e.target for i in order for e in fn.blocks[i].edges if e.back)
    return Graph(
        tuple(order), {b: i for i, b in enumerate(order)}, successors, heads, _liveness(fn, order, successors)
    )


def avoidable(fn: Function, graph: Graph, taken: Mapping[int, Collection[int]], block: int) -> bool:
    """Whether some way from the entry to a return avoids a block.

    Args:
        taken: block -> the targets of those of its edges that control takes.
        block: which. A loop is left only after a round.
    """
    seen: set[int] = set()
    todo = [0]
    while todo:
        number = todo.pop()
        if number in seen or number == block:
            continue
        seen.add(number)
        instrs = fn.blocks[number].instrs
        if instrs and isinstance(instrs[-1], ir.Return):
            return True
        for edge in fn.blocks[number].edges:
            if edge.target in taken.get(number, ()) and not _ends(edge):
                todo += (
                    [e.target for e in fn.blocks[edge.target].edges if _ends(e)]
                    if edge.back
                    else [edge.target]
                )
    return False


def _ends(edge: ir.Edge) -> bool:
    """Whether an edge leaves a loop that has no round left."""
    return edge.assume is not None and edge.assume.kind == "more" and not edge.assume.truth


def _is_usual(edge: ir.Edge) -> bool:
    """Whether control takes the edge in programs whose context managers swallow no exception."""
    return edge.assume is None or edge.assume.kind != "swallow" or not edge.assume.truth


def _returning(fn: Function) -> set[int]:
    """Blocks from which a ``Return`` is reached; the entry always."""
    before: dict[int, list[int]] = {}
    todo = []
    for i, block in enumerate(fn.blocks):
        for edge in block.edges:
            if _is_usual(edge):
                before.setdefault(edge.target, []).append(i)
        if block.handler is not None:
            before.setdefault(block.handler, []).append(i)
        if block.instrs and isinstance(block.instrs[-1], ir.Return):
            todo.append(i)
        elif any(isinstance(instr, ir.Yield) for instr in block.instrs):
            todo.append(i)  # a generator need not be run to its end
    found = {0, *todo}
    while todo:
        for previous in before.get(todo.pop(), ()):
            if previous not in found:
                found.add(previous)
                todo.append(previous)
    return found


def _reverse_postorder(successors: dict[int, tuple[int, ...]]) -> list[int]:
    seen = {0}
    out: list[int] = []
    stack = [(0, iter(successors[0]))]
    while stack:
        block, rest = stack[-1]
        for target in rest:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(successors[target])))
                break
        else:
            out.append(block)
            stack.pop()
    out.reverse()
    return out


# -- registers ---------------------------------------------------------------------------------------------------------
def written(instr: Instr) -> tuple[Reg, ...]:
    """The registers that an instruction sets."""
    if isinstance(instr, ir.Unpack):
        return instr.dsts
    dst = getattr(instr, "dst", None)
    return () if dst is None else (dst,)


_PLAIN = {
    ir.Move: ("src",),
    ir.SetGlobal: ("src",),
    ir.SetOuter: ("src",),
    ir.Attr: ("obj",),
    ir.SetAttr: ("obj", "src"),
    ir.Item: ("obj", "key"),
    ir.SetItem: ("obj", "key", "src"),
    ir.DelAttr: ("obj",),
    ir.DelItem: ("obj", "key"),
    ir.Add: ("container", "value", "key"),
    ir.Slice: ("lower", "upper", "step"),
    ir.Unpack: ("src",),
    ir.Binary: ("left", "right"),
    ir.InPlace: ("left", "right"),
    ir.Unary: ("operand",),
    ir.Compare: ("left", "right"),
    ir.Host: ("src",),
    ir.Shape: ("subject",),
    ir.MatchArg: ("subject", "cls"),
    ir.Iter: ("src",),
    ir.Next: ("iterator",),
    ir.Return: ("src",),
    ir.Raise: ("src", "cause"),
    ir.Yield: ("src",),
    ir.Await: ("src",),
    ir.Enter: ("context",),
    ir.Exit: ("context", "exception"),
    ir.Decorate: ("decorator", "target"),
}
_GETTERS: dict[type, Callable[[Instr], tuple[Reg | None, ...]]] = {}


def _getter(fields: tuple[str, ...]) -> Callable[[Instr], tuple[Reg | None, ...]]:
    return lambda instr: tuple(getattr(instr, name) for name in fields)


_GETTERS.update({kind: _getter(fields) for kind, fields in _PLAIN.items()})


def read(instr: Instr) -> list[Reg]:
    """The registers that an instruction uses."""
    getter = _GETTERS.get(type(instr))
    if getter is not None:
        return [r for r in getter(instr) if r is not None]
    if isinstance(instr, ir.Call):
        return [instr.func, *map(_plain, instr.args), *(r for _, r in instr.keywords)]
    if isinstance(instr, ir.Build):
        return [*map(_plain, instr.elements), *(k for k in instr.keys if k is not None)]
    if isinstance(instr, ir.Format):
        return list(instr.parts)
    if isinstance(instr, ir.Closure):
        return [*(r for _, r in instr.defaults), *instr.captured]
    if isinstance(instr, ir.MakeClass):
        return [*map(_plain, instr.bases), *(r for _, r in instr.keywords), *(r for _, r in instr.members)]
    return []


def _plain(part: Reg | Star) -> Reg:
    return part.reg if isinstance(part, Star) else part


def _liveness(
    fn: Function, order: Iterable[int], successors: dict[int, tuple[int, ...]]
) -> dict[int, frozenset[int]]:
    """Temporaries that are read after the end of a block (by its edges' assumptions, too)."""
    order = list(order)
    uses: dict[int, set[int]] = {}
    sets: dict[int, set[int]] = {}
    tested: dict[int, set[int]] = {}
    for b in order:
        used: set[int] = set()
        made: set[int] = set()
        for instr in fn.blocks[b].instrs:
            used.update(r for r in read(instr) if isinstance(r, int) and r not in made)
            made.update(r for r in written(instr) if isinstance(r, int))
        at_end: set[int] = set()
        for edge in fn.blocks[b].edges:
            if edge.assume is not None:
                at_end.update(r for r in (edge.assume.reg, edge.assume.other) if type(r) is int)
        uses[b], sets[b], tested[b] = used, made, at_end
    entry: dict[int, set[int]] = {b: set(uses[b]) for b in order}
    after: dict[int, set[int]] = {b: set() for b in order}
    changed = True
    while changed:
        changed = False
        for b in reversed(order):
            out = set().union(*(entry[s] for s in successors[b])) | tested[b]
            if out != after[b]:
                after[b] = out
                grown = uses[b] | (out - sets[b])
                if grown != entry[b]:
                    entry[b] = grown
                    changed = True
    return {b: frozenset(after[b]) for b in order}


# -- the call graph ----------------------------------------------------------------------------------------------------
N = TypeVar("N", bound=Hashable)


def components(nodes: Iterable[N], successors: Callable[[N], Iterable[N]]) -> list[list[N]]:
    """Strongly connected components, callees before callers; the order follows that of ``nodes`` (Tarjan)."""
    index: dict[N, int] = {}
    low: dict[N, int] = {}
    on_stack: set[N] = set()
    stack: list[N] = []
    out: list[list[N]] = []
    for root in nodes:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(successors(root)))]
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(successors(target))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[N] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    component.reverse()
                    out.append(component)
    return out
