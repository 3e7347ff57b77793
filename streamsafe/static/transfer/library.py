"""Calls of libraries: what the rows of the models say, and the defaults where there is no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import access as tag
from streamsafe.static.domain import limits, values
from streamsafe.static.domain.atoms import (
    CURRENT,
    DEFAULT,
    FALSE,
    HOST,
    LOST,
    MADE,
    MAYBE,
    NONE,
    NULL_CONTEXT,
    TRUE,
    UNKNOWN,
    Atom,
    Const,
    Library,
    New,
    Path,
    Value,
    array,
    capture,
    const,
    context,
    library,
    ordered,
    partial,
    path,
    tuple_of,
    value,
)
from streamsafe.static.domain.extents import TURNED, WHOLE
from streamsafe.static.domain.guards import IS_CPU, decided
from streamsafe.static.domain.places import DEVICE, EACH, PAGEABLE, PINNED
from streamsafe.static.domain.state import State
from streamsafe.static.domain.values import reachable
from streamsafe.static.models.rows import Arg, Result, Row
from streamsafe.static.transfer import (
    asks,
    captures,
    copies,
    extents,
    gradients,
    objects,
    pools,
    protocols,
    replays,
    streams,
    timing,
)
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import SPECIALS, CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis


def call(a: Analysis, s: State, c: CallSite, name: str) -> list[State]:
    """A call of a library's function or class."""
    if "generator" in c.keywords:
        captures.takes_generator(a, s, c)
    row = a.engine.row(name)
    if row is not None:
        if c.args and not c.receiver and a.engine.role(name.rpartition(".")[0]) in _UNBOUND:
            c.receiver, c.args = c.args[0], c.args[1:]  # a method, called as a function of its type
        return apply(a, s, c, row)
    kind = a.engine.types.get(name)
    if kind is not None:
        s.env[c.dst] = make(a, s, c, name)
        return [s]
    s.env[c.dst] = _default(a, s, c, name)
    return [s]


_UNBOUND = frozenset(("tensor", "stream", "event"))


def make(a: Analysis, s: State, c: CallSite, type: str) -> Value:
    """A new object of a library's type."""
    if a.engine.role(type) == "stream" and c.keywords.get("non_blocking") == value(TRUE):
        type = a.engine.non_blocking(type)
    made = mem.allocate(a, s, a.span(c.at), type)
    if a.engine.role(type) == "event":
        timing.keeps_time(s, c, type, made)
        captures.makes_event(s, c, made)
    return value(made)


def _default(a: Analysis, s: State, c: CallSite, name: str) -> Value:
    """What no row says: a function of a tensor library reads its arguments and makes new memory."""
    last = name.rpartition(".")[2]
    span = a.span(c.at)
    works = a.engine.models.works(name)
    if a.engine.models.is_module(name):
        return make(a, s, c, "torch.nn.Module")
    if works == "work":
        if last[:1].isupper() or last.startswith("_"):
            return UNKNOWN
        given = [*c.args, *(held for keyword, held in c.keywords.items() if keyword != "out")]
        touched = [buffer for held in given for buffer in mem.buffers(a, s, held)]
        device = False
        for buffer in touched:
            place = mem.place_of(a, s, buffer)
            device = device or place not in (PINNED, PAGEABLE)
            weak = 0 if place or a.role(buffer) == "tensor" else tag.WEAK
            mem.read_one(a, s, span, buffer, s.current, last, weak)
        out = c.keywords.get("out")
        if out:
            for buffer in mem.buffers(a, s, out):
                mem.write_one(a, s, span, buffer, s.current, last)
            return out
        if not touched:
            return UNKNOWN
        kind = "cupy.ndarray" if name.startswith("cupy") else ""
        made = mem.result(a, s, span, last, DEVICE if device else PAGEABLE, kind=kind)
        mem.derive(s, made, touched)
        return made
    if works == "host":
        c.operation = last
        out = c.keywords.pop("out", UNKNOWN)
        for held in c.values():
            mem.host_touch(a, s, span, known_memory(a, s, held), last)
        mem.host_touch(a, s, span, known_memory(a, s, out), last, writes=True)
        return out or _made_by(name)
    if works == "plain":
        return UNKNOWN
    from streamsafe.static.transfer.calls import unseen

    c.operation = last
    return unseen(a, s, c, tag.UNSEEN_CALL)


def _made_by(name: str) -> Value:
    """Something that a library of the host makes: it reads, on the host, what its methods are given."""
    top = name.partition(".")[0]
    return UNKNOWN if top in _PLAIN_RESULTS else value(library(f"{top}.{MADE}"))


_PLAIN_RESULTS = frozenset("numpy math random statistics struct hashlib json zlib base64 binascii".split())
"""Libraries of the host that return arrays, numbers and texts."""


def known_memory(a: Analysis, s: State, held: Value) -> Value:
    """The part of a value that is certainly memory."""
    return frozenset(
        atom
        for atom in held
        if not isinstance(atom, Path) or mem.place_of(a, s, atom) or a.role(atom) == "tensor"
    )


def unknown_method(a: Analysis, s: State, c: CallSite, atom: Atom, type: str, name: str) -> list[State]:
    """A method without a row, of an object of a library's type."""
    role = a.engine.role(type)
    span = a.span(c.at)
    s.env[c.dst] = UNKNOWN
    if role == "tensor":
        place = mem.place_of(a, s, atom)
        for held in (value(atom), *c.values()):
            mem.read(a, s, span, known_memory(a, s, held), name)
        if name.endswith("_") and not name.endswith("__"):
            mem.write_one(a, s, span, atom, s.current, name)
            s.env[c.dst] = value(atom)
        elif place != PAGEABLE and place != PINNED:
            s.env[c.dst] = mem.result(a, s, span, name, kind=type)
            mem.derive(s, s.env[c.dst], mem.buffers(a, s, value(atom).union(*c.values())))
    elif role == "module":
        from streamsafe.static.transfer.calls import unseen

        s.env[c.dst] = unseen(a, s, c, tag.MODULE_CALL)
    elif role in ("other", "kernel", "thread", "executor", "queue", "future"):
        streams.handed_over(a, s, c.values())
    return [s]


def launch_kernel(a: Analysis, s: State, c: CallSite) -> list[State]:
    """A kernel reads the memory that it is given, and may write it."""
    span = a.span(c.at)
    name = c.operation or "a kernel"
    stream = s.current
    if c.keywords.get("stream", value(NONE)) != value(NONE):
        given = [atom for atom in ordered(c.keywords["stream"]) if a.role(atom) == "stream"]
        stream = given[0] if given else LOST
    for held in c.values():
        for buffer in mem.buffers(a, s, held):
            mem.read_one(a, s, span, buffer, stream, name)
            mem.write_one(a, s, span, buffer, stream, name, tag.UNSEEN_CALL)
    s.env[c.dst] = UNKNOWN
    return [s]


# -- rows -------------------------------------------------------------------------------------------------------------


def bind(c: CallSite, row: Row) -> None:
    """The row's parameters -> the call's arguments."""
    given = dict(zip(row.params, c.args, strict=False))
    given.update(c.keywords)
    extra = c.args[len(row.params) :]
    for number, held in enumerate(extra):
        given[f"*{number}"] = held
    c.given = given
    c.row = row


def argument(a: Analysis, s: State, c: CallSite, name: Arg, result: Value = UNKNOWN) -> Value:
    """What a name of a row stands for at a call."""
    if name == "self":
        return c.receiver
    if name == "current":
        return value(s.current)
    if name == "result":
        return result
    if name == "host":
        return value(HOST)
    if name == "*":
        return values.union(everything(c))
    return c.given.get(name, UNKNOWN)


def everything(c: CallSite) -> list[Value]:
    """The arguments that a row names nowhere else."""
    row = c.row
    assert row is not None
    named = {
        *row.reads,
        *row.writes,
        *row.host_reads,
        *row.host_writes,
        *row.pickles,
        row.stream,
        row.result.arg,
    }
    named |= {name for order in row.order for name in (order.who, order.whom)}
    for store in row.stores:
        named |= {store.container, store.value, store.key}
    return [held for name, held in c.given.items() if name not in named]


def memory_of(
    a: Analysis, s: State, c: CallSite, names: tuple[Arg, ...], *, whole: bool = False
) -> list[Atom]:
    """The memory of some arguments; ``whole``: also what their objects hold in fields."""
    found: list[Atom] = []
    for name in names:
        for held in everything(c) if name == "*" else [argument(a, s, c, name)]:
            found += mem.buffers(a, s, mem.kept_in(a, s, held) if whole else held)
    return list(dict.fromkeys(found))


def stream_of(a: Analysis, s: State, c: CallSite, name: Arg) -> Atom:
    """The stream that an argument names; the current one where it is None or not given."""
    held = argument(a, s, c, name)
    roles = ("stream",) if c.weak else ("stream", "")
    found = [atom for atom in streams.carriers(a, s, held) if a.role(atom) in roles]
    return found[0] if found else s.current


def apply(a: Analysis, s: State, c: CallSite, row: Row, weak: bool = False) -> list[State]:
    """What a row says of a call."""
    bind(c, row)
    c.operation = c.operation or row.name.rpartition(".")[2]
    s.env[c.dst] = UNKNOWN
    if weak and row.weak and not _maybe_memory(a, s, c):
        return [s]
    c.tags, c.weak = tag.WEAK if weak and not row.copy else 0, weak
    if weak and "out" in c.keywords and row.result.kind == "host":
        from streamsafe.static.transfer.calls import unseen

        s.env[c.dst] = unseen(a, s, c, tag.METHOD_CALL)
        return [s]
    if row.clock:
        s.env[c.dst] = timing.read_clock(a, s, c)
        return [s]
    for name in row.asks:
        for held in everything(c) if name == "*" else [argument(a, s, c, name)]:
            asks.ask(a, s, a.span(c.at), held, c.operation, not weak and name != "*")
    if row.special:
        handler = SPECIALS.get(row.special)
        if handler is not None:
            found = handler(a, s, c)
            if isinstance(found, list):
                return found
            if found is not None:
                s.env[c.dst] = found
                return [s]
    if row.capture is not None and row.capture.kind != "legal" and row.copy is None and not weak:
        if _touches_device(a, s, c, row) and not _beside(s, c, row):
            a.host_work(s, a.span(c.at), c.operation, _violation(row))
    states = copies.copy(a, s, c, row) if row.copy is not None else [s]
    for t in states:
        if row.copy is None:
            t.env[c.dst] = effects(a, t, c, row)
    if row.calls:
        from streamsafe.static.transfer import callbacks

        states = [out for t in states for out in callbacks.run(a, t, c, row)]
        for t in states:
            for order in row.order:
                if order.kind == "sync":  # the host waits for what was called, too
                    _order(a, t, c, a.span(c.at), order.kind, order.who, order.whom, UNKNOWN)
    return states


def _beside(s: State, c: CallSite, row: Row) -> bool:
    """Whether what a capture forbids concerns another stream only, in a mode that allows it (GM-side_stream_sync)."""
    if s.capture is None or not s.capture.relaxed or row.capture is None or row.capture.kind != "thread":
        return False
    return bool(c.receiver) and not any(
        atom is s.capture.stream or captures.takes_part(s, atom) for atom in c.receiver
    )


def _maybe_memory(a: Analysis, s: State, c: CallSite) -> bool:
    return bool(mem.buffers(a, s, c.receiver, 0))


def _violation(row: Row) -> str:
    from streamsafe.static.transfer.codes import NAMES

    assert row.capture is not None
    return NAMES.get(row.capture.code, "sync-in-capture")


def _touches_device(a: Analysis, s: State, c: CallSite, row: Row) -> bool:
    """Whether what would be illegal in a capture concerns a device at all."""
    names = (*row.host_reads, *row.pickles, *row.reads)
    if not names:
        return True
    touched = memory_of(a, s, c, names)
    return any(mem.place_of(a, s, buffer) not in (PINNED, PAGEABLE) for buffer in touched)


def effects(a: Analysis, s: State, c: CallSite, row: Row) -> Value:
    """What a row says of the call's accesses and edges."""
    span = a.span(c.at)
    for order in row.order:
        if order.kind == "wait":
            _order(a, s, c, span, order.kind, order.who, order.whom, UNKNOWN)
    stream = stream_of(a, s, c, row.stream) if row.stream != "current" else s.current
    for buffer in memory_of(a, s, c, row.reads):
        mem.read_one(a, s, span, buffer, stream, c.operation, _weak(a, s, c, buffer))
    for buffer in memory_of(a, s, c, row.writes):
        mem.write_one(a, s, span, buffer, stream, c.operation, _weak(a, s, c, buffer))
    if row.gradient in ("read", "write", "both"):
        gradients.use(a, s, c, span, stream, row.gradient != "read")
    elif row.gradient == "release":
        gradients.release(a, s, c, span, stream)
    elif row.gradient == "cut":
        for atom in c.receiver:
            s.heap.pop(
                (atom, mem.THROUGH), None
            )  # one name of two tensors: which modules is not known any more
    if row.result.kind == "fresh" and "out" not in row.writes:
        for buffer in mem.buffers(a, s, c.keywords.get("out", UNKNOWN)):
            mem.write_one(a, s, span, buffer, stream, c.operation)
    syncs = any(order.kind == "sync" for order in row.order)
    for buffer in memory_of(a, s, c, row.host_reads):
        _host(a, s, span, c, buffer, False, stream, syncs)
    for buffer in memory_of(a, s, c, row.pickles, whole=True):
        _host(a, s, span, c, buffer, False, stream, syncs)
    for buffer in memory_of(a, s, c, row.host_writes):
        _host(a, s, span, c, buffer, True, stream, syncs)
    result = _result(a, s, c, row, stream)
    if row.truth:
        asks.mark_mask(s, result)
    for order in row.order:
        if order.kind == "query":
            asked = streams.carriers(a, s, argument(a, s, c, order.whom))
            result = asks.question(asked[0], span) if len(asked) == 1 else result
        elif order.kind != "wait":
            _order(a, s, c, span, order.kind, order.who, order.whom, result)
    for frees in row.frees:
        for buffer in mem.buffers(a, s, argument(a, s, c, frees)):
            replays.lets_go(a, s, span, value(buffer), UNKNOWN)
            mem.release(a, s, buffer)
    for memory, on in row.records:
        for target in streams.carriers(a, s, argument(a, s, c, on)) or [s.current]:
            for buffer in mem.buffers(a, s, argument(a, s, c, memory)):
                mem.record(a, s, buffer, target)
    if row.sets_current:
        held = [x for x in streams.carriers(a, s, argument(a, s, c, row.sets_current)) if x is not NONE]
        if held:
            s.current = held[0]
    for store in row.stores:
        held_value = argument(a, s, c, store.value)
        if store.spread:
            held_value = objects.step_into(a, s, held_value, EACH)
        step = objects.step_of(argument(a, s, c, store.key)) if store.key else None
        for atom in ordered(argument(a, s, c, store.container)):
            if isinstance(atom, New | Path):
                replays.keeps(a, s, span, atom, held_value)
                if isinstance(atom, Path) and store.spread:
                    replays.stores(a, s, span, atom, EACH, UNKNOWN, held_value)
                    replays.note_store(s, atom, EACH, span)
                objects.put_element(s, atom, held_value, step)
    return result


def _weak(a: Analysis, s: State, c: CallSite, buffer: Atom) -> int:
    """A tag where nothing shows that what is touched is memory at all."""
    if a.role(buffer) == "tensor" or mem.place_of(a, s, buffer):
        return 0
    if isinstance(buffer, New) and buffer.kind is not MAYBE:
        return 0
    row = c.row
    if row is not None and not c.tags and row.library in ("torch", "cupy") and not row.weak:
        return 0
    return tag.WEAK if row is None or row.weak or buffer not in c.receiver else 0


def _host(
    a: Analysis, s: State, span: Span, c: CallSite, buffer: Atom, writes: bool, stream: Atom, syncs: bool
) -> None:
    """The host reads or writes memory; that of the device it reads through a copy on the stream."""
    place = mem.place_of(a, s, buffer)
    if place == DEVICE or (
        syncs
        and not place
        and stream is not HOST
        and isinstance(buffer, Path)
        and not _host_known(a, s, buffer)
    ):
        mem.touch(a, s, span, buffer, writes, stream, c.operation, 0 if place else tag.WEAK | tag.IF_DEVICE)
        if place == DEVICE:
            mem.host_waits(a, s, span, stream)
            return
    if place != DEVICE:
        mem.touch(a, s, span, buffer, writes, HOST, c.operation, 0 if place else tag.PLACE_UNKNOWN)


def _host_known(a: Analysis, s: State, buffer: Atom) -> bool:
    return mem.place_of(a, s, buffer) in (PINNED, PAGEABLE)


def _order(
    a: Analysis, s: State, c: CallSite, span: Span, kind: str, who: Arg, whom: Arg, result: Value
) -> None:
    """One edge of a row."""
    if whom == "device":
        mem.host_waits(a, s, span, None)
        return
    sources = streams.carriers(a, s, argument(a, s, c, whom, result))
    if kind == "sync":
        if not sources and whom not in ("current", "self", "result"):
            sources = [s.current]
        places = (
            {
                mem.place_of(a, s, b)
                for b in (
                    *memory_of(a, s, c, (*c.row.host_reads, *c.row.reads)),
                    *memory_of(a, s, c, c.row.pickles, whole=True),
                )
            }
            if c.row
            else set()
        )
        if whom == "current" and places and not (DEVICE in places or _typed(a, s, c)):
            return
        if whom == "current" and c.row and "*" in c.row.host_reads and _only_constants(c):
            return
        if not sources:
            streams.wait_for_all(a, s, HOST)
        for source in sources[:1]:
            if whom == "current":
                mem.host_waits(a, s, span, source)
            else:
                streams.wait(a, s, span, HOST, source)
        return
    if kind == "record":
        on = sources or [s.current]
        for event in streams.carriers(a, s, argument(a, s, c, who, result))[:1]:
            streams.record_on(a, s, span, event, on)
        return
    if kind == "wait":
        waiters = streams.carriers(a, s, argument(a, s, c, who, result)) or [s.current]
        if not sources:
            if argument(a, s, c, whom) != value(NONE):
                streams.wait_for_all(a, s, waiters[0])
            return
        for source in sources:
            streams.wait(a, s, span, waiters[0], source)


def _only_constants(c: CallSite) -> bool:
    """Whether all arguments are literals: ``print("done")`` looks at no memory."""
    return bool(c.args) and all(held and all(isinstance(atom, Const) for atom in held) for held in c.args)


def _typed(a: Analysis, s: State, c: CallSite) -> bool:
    """Whether something that the host looks at is certainly memory, wherever it lies but on the host."""
    assert c.row is not None
    touched = memory_of(a, s, c, (*c.row.host_reads, *c.row.pickles, *c.row.reads))
    return any(a.role(b) == "tensor" and mem.place_of(a, s, b) not in (PINNED, PAGEABLE) for b in touched)


# -- results ----------------------------------------------------------------------------------------------------------


def _result(a: Analysis, s: State, c: CallSite, row: Row, stream: Atom) -> Value:
    result = row.result
    kind = result.kind
    held = argument(a, s, c, result.arg) if result.arg else UNKNOWN
    if kind == "fresh":
        return fresh(a, s, c, row, stream)
    if kind == "device_value":  # of a device, or its text
        return frozenset(
            atom
            for atom in held
            if isinstance(atom, Const) or (isinstance(atom, Path) and a.role(atom) != "tensor")
        )
    if kind == "view":
        extents.is_view(s, c.dst, TURNED if c.operation in extents.TURNS else WHOLE)
        return held
    if kind == "same":
        return held
    if kind == "true":
        return value(TRUE)
    if kind == "false":
        return value(FALSE)
    if kind == "none":
        return value(NONE)
    if kind == "current_stream":
        return value(s.current)
    if kind == "default_stream":
        return value(DEFAULT)
    if kind == "null_context":
        return value(NULL_CONTEXT)
    if kind == "stream_context":
        return value(NULL_CONTEXT) if held == value(NONE) else value(context(held))
    if kind == "capture_context":
        graph = argument(a, s, c, "graph") or argument(a, s, c, "cuda_graph")
        pools.is_given(s, graph, argument(a, s, c, "pool"))
        return value(
            capture(
                _streams_only(a, held),
                graph,
                argument(a, s, c, "capture_error_mode"),
            )
        )
    if kind == "library_module":
        return value(library(result.type))
    if kind == "object":
        return make(a, s, c, result.type)
    return _container(a, s, c, result, held)


def _streams_only(a: Analysis, held: Value) -> Value:
    return frozenset(atom for atom in held if a.role(atom) in ("stream", "") and atom is not NONE)


def _container(a: Analysis, s: State, c: CallSite, result: Result, held: Value) -> Value:
    """Results that are made of the elements of arguments."""
    kind = result.kind
    each = [objects.step_into(a, s, one, EACH) for one in (everything(c) if result.arg == "*" else [held])]
    if kind == "element":
        return values.union(each)
    if kind in ("elements", "list", "views", "zip", "enumerate", "items"):
        container = mem.allocate(a, s, a.span(c.at), "builtins.list", discriminator=2)
        if kind == "elements":
            content = values.union(each)
        elif kind == "zip":
            content = value(tuple_of(*(objects.step_into(a, s, one, EACH) for one in c.args)))
        elif kind == "enumerate" or kind == "items":
            content = value(tuple_of(UNKNOWN, values.union(each)))
            start = c.given.get("start", value(const(0)))
            if kind == "enumerate" and len(start) == 1 and isinstance(next(iter(start)), Const):
                s.heap[container, objects.FIRST] = start
        elif kind == "list":
            content = values.union(everything(c) if result.arg == "*" else [held])
        else:
            content = held
        s.heap[container, objects.ANY] = content
        if kind in ("zip", "enumerate", "elements"):
            iterated = c.args if kind == "zip" else c.args[:1] if result.arg == "*" else [held]
            protocols.goes_through(a, s, container, iterated, kind)
        if kind != "list":
            extents.blur(a, s, values.union([c.receiver, *c.values()]) & reachable((content,)))  # views of it
        return value(container)
    return UNKNOWN


def _item_by_item(s: State, c: CallSite, kind: str, held: Value) -> list[Value]:
    """The elements of ``zip(...)`` and ``enumerate(...)`` of few things that are known one by one."""
    if kind == "zip" and c.args:
        columns = [objects.items_of(s, one) for one in c.args]
        if all(columns) and min(map(len, columns)) <= limits.UNROLLED:
            return [value(tuple_of(*row)) for row in zip(*columns, strict=False)]
    if kind == "enumerate" and "start" not in c.given:
        items = objects.items_of(s, held)
        if len(items) <= limits.UNROLLED:
            return [value(tuple_of(value(const(number)), item)) for number, item in enumerate(items)]
    return []


def fresh(a: Analysis, s: State, c: CallSite, row: Row, stream: Atom) -> Value:
    """New memory, where the row's place says."""
    place = row.result.place
    kind = "cupy.ndarray" if row.library == "cupy" else "numpy.ndarray" if row.library == "numpy" else ""
    where: str = DEVICE
    if place is not None:
        where = copies.place_of(a, s, c, place, row) or ""
    span = a.span(c.at)
    made = mem.allocate(a, s, span, kind or a.engine.tensor_type, where)
    copies.lies_on(a, s, made, c.given.get("device", UNKNOWN))
    if (where == DEVICE or (not where and not place)) and not c.operation.startswith("empty"):
        mem.touch(a, s, span, made, True, stream, c.operation, tag.ALLOCATION)
    mem.derive(s, value(made), memory_of(a, s, c, row.reads))
    if "dtype" in c.keywords and asks.is_bool(c.keywords["dtype"]):
        asks.mark_mask(s, value(made))
    return value(made)


@special("sized_by_data")
def sized_by_data(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """The size of the result is in the data, unless it is given: the host asks for it (TM-10)."""
    if not any(name in c.given for name in ("num_classes", "output_size")):
        counts = "repeats" if "repeats" in c.given else "input"
        asks.ask(a, s, a.span(c.at), c.given.get(counts, UNKNOWN), c.operation, certain=counts == "input")
    return None


@special("numpy_view")
def numpy_view(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``x.numpy()``: the same memory as an array of the host; reading it comes later.

    Memory of the device has no such view: where it lies is shown by the call.
    """
    for buffer in mem.buffers(a, s, c.receiver):
        if mem.place_of(a, s, buffer) == DEVICE and any(
            literal.kind == IS_CPU and not literal.truth for literal in s.guard
        ):
            s.dead = True
        for copy in [one for one in s.order.near(buffer) if one.buffer is buffer and one.tags & tag.D2H]:
            if not copy.tags & tag.SHOWN:
                mem.retag(a, s, copy, tag.SHOWN)
    return value(array(c.receiver, "numpy.ndarray"))


@special("part")
def part_of(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``x.narrow(dim, start, length)``, ``x.select(dim, index)``: a part of one dimension."""
    begin = c.given.get("start", UNKNOWN) or c.given.get("index", UNKNOWN)
    assert c.row is not None
    result = effects(a, s, c, c.row)
    extents.is_view(s, c.dst, extents.of_dimension(c.given.get("dim", UNKNOWN), begin, c.given.get("length")))
    return result


@special("load_file")
def load_file(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``torch.load(path, map_location="cpu")``: memory of the host, alone or in containers."""
    where = c.given.get("map_location", UNKNOWN)
    if not where or not all(decided(IS_CPU, None, atom) for atom in where):
        return None
    made = mem.allocate(a, s, a.span(c.at), a.engine.tensor_type, PAGEABLE)
    s.heap[made, mem.STRUCTURE] = value(TRUE)
    return value(made)


@special("record_event")
def record_event(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``stream.record_event(event)``: the event that is given, or a new one."""
    span = a.span(c.at)
    given = [atom for atom in streams.carriers(a, s, c.given.get("event", UNKNOWN)) if atom is not NONE]
    row = c.row
    kind = row.result.type if row is not None and row.result.type else "torch.cuda.Event"
    event = given[0] if given else mem.allocate(a, s, span, kind)
    for stream in ordered(c.receiver)[:1]:
        streams.record(a, s, span, event, stream)
    return value(event)


@special("members")
def members(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``module.parameters()``: a container at a path of its own."""
    for atom in ordered(c.receiver):
        if isinstance(atom, Path) and len(atom.fields) < limits.FIELDS:
            return value(path(atom.root, *atom.fields, f"{c.operation}()"))
    return UNKNOWN


@special("parameter")
def parameter(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``nn.Parameter(data)``: made on the host it moves with its module, so where it lies is not known."""
    held = c.given.get("data", UNKNOWN)
    for atom in held:
        if isinstance(atom, New) and mem.place_of(a, s, atom) == PAGEABLE:
            s.places[atom] = ""
    return held


@special("same_each")
def same_each(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``accelerator.prepare(model, optimizer)``: what is given, made ready."""
    return c.args[0] if len(c.args) == 1 else value(tuple_of(*c.args))


def partial_of(c: CallSite) -> Value:
    """``functools.partial(f, ...)``"""
    return value(partial(c.args[0], c.args[1:], c.keywords.items())) if c.args else UNKNOWN


__all__ = ["CURRENT", "Const", "Library", "ordered"]
