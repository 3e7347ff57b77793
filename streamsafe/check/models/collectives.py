"""Collective operations of torch.distributed and their works."""

from __future__ import annotations

from streamsafe.apis import names as apis
from streamsafe.order.hazard import quoted

from ..program import Timeline
from ..values import NONE, Const, Lib, Seq, Sym, V, Work
from .calls import Call
from .modules import Modules
from .state import HOSTS

POINT_TO_POINT = frozenset("isend irecv".split())
"""Give a work, whatever is asked for."""
COLLECTIVES = apis.COLLECTIVES | POINT_TO_POINT | {"all_gather_coalesced"}
WRITES_ALL = frozenset("all_reduce broadcast irecv recv reduce".split())
READS_AS_WELL = frozenset("all_reduce reduce".split())
READS_ALL = frozenset("isend send".split())
GROUPLESS = ("index", "host", "getter")


def distributed(lib: Modules, c: Call) -> V:
    """A function of torch.distributed."""
    if c.last in COLLECTIVES:
        return collective(lib, c.last, c)
    if c.last == "P2POp" and len(c.args) > 1:
        return Seq(list(c.args), "tuple")
    if c.last == "batch_isend_irecv" and isinstance(c.first, Seq):
        works: list[V] = [
            collective(lib, op.items[0].name.rpartition(".")[2], Call(c.name, [op.items[1]], {}, c.node))
            for op in c.first.items
            if isinstance(op, Seq) and len(op.items) > 1 and isinstance(op.items[0], Lib)
        ]
        for work in works:
            if isinstance(work, Work):
                work.snapshot = lib.order.snapshot(work.timeline)  # they are one operation
        return Seq(works, "list", c.first.more)
    if c.last in ("get_rank", "get_world_size"):
        return place_on_ring(lib, c)
    if c.last == "barrier":
        lib.everything(c.node)
        return NONE
    return lib.unmodelled(c.last, None, c.args, c.kwargs, c.node)


def place_on_ring(lib: Modules, c: Call) -> V:
    """A process's number in a group, which is less than how many there are."""
    group = lib.m.key(c.given("group", 0) or NONE)
    rank, size = (
        lib.m.sym(lib.m.vn((name, group)), f"{name}()", "getter") for name in ("get_rank", "get_world_size")
    )
    lib.m.numbers.learn_less(lib.m.key(rank), lib.m.key(size), True)
    lib.m.numbers.learn_less(lib.m.key(Const(0)), lib.m.key(size), True)
    return rank if c.last == "get_rank" else size


def collective(lib: Modules, last: str, c: Call) -> V:
    """One collective: on the current stream, or, where it gives a work, on one of its own that has waited for that."""
    named = (v for k, v in c.kwargs.items() if "tensor" in k or k in ("input", "output"))
    tensors = [t for v in (*c.args[:2], *named) for t in lib.tensors_in(v)]
    tensors += [
        lib.tensor(v)
        for v in c.args[:2]
        if isinstance(v, Sym) and not lib.tensorish(v) and v.hint not in GROUPLESS and "group" not in v.text
    ]
    if last in WRITES_ALL:
        writes, reads = tensors, []
    elif last in READS_ALL:
        writes, reads = [], tensors
    else:
        writes, reads = tensors[:1], tensors[1:]
    for t in tensors:
        if t.block.place in HOSTS or t.numpy:
            if t not in writes or last in READS_AS_WELL:
                lib.host(t, False, f"{last}()", c.node)
            if t in writes:
                lib.host(t, True, f"{last}()", c.node)
    reads, writes = ([t for t in ts if t.block.place not in HOSTS] for ts in (reads, writes))
    if not (lib.flag(c.kwargs.get("async_op")) or last in POINT_TO_POINT):
        lib.launch(reads, writes, last, c.node)
        return NONE
    stream = communication(lib, c.kwargs.get("group"))
    lib.order.learn(stream, lib.order.snapshot(lib.cur()))
    lib.launch(reads, writes, last, c.node, t=stream, kind="collective")
    return Work(lib.order.snapshot(stream), stream, Seq(list(tensors)))


def communication(lib: Modules, group: V | None) -> Timeline:
    """The stream of a process group (TD-01); that of the first one that a path names, where none is named."""
    if group is None or (isinstance(group, Const) and group.value is None):
        return lib.comm
    known = lib.groups
    if not known:
        known[lib.m.key(group)] = lib.comm
    key = lib.m.key(group)
    if key not in known:
        text = getattr(group, "text", "")
        known[key] = Timeline(f"the communication stream of {quoted(text) or 'another group'}", "comm")
        known[key].group = key
    return known[key]
