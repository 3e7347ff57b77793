"""Values, containers and operators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from streamsafe.static.domain import access as tag
from streamsafe.static.domain import limits, values
from streamsafe.static.domain.atoms import (
    CURRENT,
    FALSE,
    HOST,
    TRUE,
    UNKNOWN,
    Array,
    Atom,
    Bound,
    Class,
    Const,
    Function,
    New,
    Partial,
    Path,
    Symbol,
    Tuple,
    Value,
    compared,
    const,
    ordered,
    path,
    tuple_of,
    value,
)
from streamsafe.static.domain.counts import above, counts, is_above, plus
from streamsafe.static.domain.guards import comparable
from streamsafe.static.domain.places import DEVICE, EACH, PAGEABLE, PINNED
from streamsafe.static.domain.state import State, splits
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import (
    asks,
    captures,
    gradients,
    objects,
    outputs,
    protocols,
    replays,
    rounds,
    threads,
    timing,
)
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.objects import ANY
from streamsafe.static.transfer.registry import transfer

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

_LONGEST = 8
_CAPTURABLE = value(const("capturable"))
SLICE = const(slice(None).__repr__())
_OF_TENSORS = ("*", "/", "@", "+", "-", "**")
HOST_PLACES = (PINNED, PAGEABLE)


@transfer(ir.Const)
def load_const(a: Analysis, s: State, i: ir.Const) -> list[State] | None:
    """dst = a literal."""
    s.env[i.dst] = value(const(i.value))
    return None


@transfer(ir.Move)
def move(a: Analysis, s: State, i: ir.Move) -> list[State] | None:
    """dst = src"""
    held = s.get(i.src)
    old = s.env.get(i.dst, UNKNOWN)
    outputs.moved(a, s, i.dst, i.src, held)
    s.set_local(i.dst, s.env.get(i.src, UNKNOWN))
    if isinstance(i.dst, str):
        if i.dst in a.tested and any(is_above(atom) for atom in held):
            s.choices[i.dst] = held
        if old and old != held:
            replays.rebinds_local(a, s, a.span(i.at), old, held)
            mem.unbind(a, s, old)
        for atom in held:
            if isinstance(atom, New) and not atom.age and not atom.calls:
                a.engine.names.setdefault(atom.place, i.dst)
    return None


@transfer(ir.Opaque, ir.Catch)
def unknown(a: Analysis, s: State, i: ir.Opaque | ir.Catch) -> list[State] | None:
    """dst = something of which nothing is known; an exception has ended the capture that it comes from."""
    if isinstance(i, ir.Catch) and s.capture is not None:
        captures.leave_region(s)
    s.set_local(i.dst, UNKNOWN)
    return None


@transfer(ir.Del)
def delete(a: Analysis, s: State, i: ir.Del) -> list[State] | None:
    """A local variable is unbound."""
    old = s.env.get(i.name, UNKNOWN)
    s.set_local(i.name, UNKNOWN)
    if old:
        replays.rebinds_local(a, s, a.span(i.at), old, UNKNOWN)
        mem.unbind(a, s, old)
    return None


@transfer(ir.Slice)
def make_slice(a: Analysis, s: State, i: ir.Slice) -> list[State] | None:
    """dst = slice(...): the host needs the bounds."""
    for bound in (i.lower, i.upper, i.step):
        if bound is not None:
            asks.ask(a, s, a.span(i.at), s.get(bound), "a bound of a slice")
    s.env[i.dst] = value(SLICE)
    return None


# -- containers -------------------------------------------------------------------------------------------------------


def spread(a: Analysis, s: State, held: Value) -> list[Value]:
    """The elements of ``*held``: one each where its length is known, else one for all."""
    if len(held) == 1:
        (atom,) = held
        if isinstance(atom, Tuple):
            return list(atom.items)
    return [objects.step_into(a, s, held, EACH)]


def registers(parts: tuple[ir.Reg | ir.Star, ...]) -> list[ir.Reg]:
    """The registers of elements or arguments."""
    return [part.reg if isinstance(part, ir.Star) else part for part in parts]


def operands(a: Analysis, s: State, parts: tuple[ir.Reg | ir.Star, ...]) -> list[Value]:
    """The values of elements or arguments, stars spread."""
    out: list[Value] = []
    for part in parts:
        if isinstance(part, ir.Star):
            out += spread(a, s, s.get(part.reg))
        else:
            out.append(s.get(part))
    return out


@transfer(ir.Build)
def build(a: Analysis, s: State, i: ir.Build) -> list[State] | None:
    """dst = a new container."""
    items = operands(a, s, i.elements)
    outputs.held_together(a, s, a.span(i.at), i.dst, registers(i.elements))
    if i.kind == "tuple" and len(items) <= _LONGEST:
        s.env[i.dst] = value(tuple_of(*items))
        return None
    container = mem.allocate(a, s, a.span(i.at), "builtins.dict" if i.kind == "dict" else "builtins.list")
    keyed = len(items) <= _LONGEST and not any(isinstance(part, ir.Star) for part in i.elements)
    for position, held in enumerate(items):
        step: str | None = None
        if i.kind == "dict":
            key = i.keys[position] if position < len(i.keys) else None
            step = objects.step_of(s.get(key)) if key is not None else None
        elif keyed:
            step = f"[{position}]"
        objects.put_element(s, container, held, step)
    s.env[i.dst] = value(container)
    return None


@transfer(ir.Add)
def add(a: Analysis, s: State, i: ir.Add) -> list[State] | None:
    """A comprehension's container gains an element."""
    for atom in ordered(s.get(i.container)):
        replays.keeps(a, s, a.span(i.at), atom, s.get(i.value))
        objects.put_element(s, atom, s.get(i.value))
    return None


@transfer(ir.Iter)
def iterate(a: Analysis, s: State, i: ir.Iter) -> list[State] | None:
    """dst = iter(src); what certainly has an element has no loop without a round."""
    held = s.get(i.src)
    made = protocols.iterate(a, s, i.at, i.dst, held)
    if made is not None:
        return made
    s.env[i.dst] = held
    rounds.start(a, s, values.union(_next(a, s, held)))
    items = objects.items_of(s, held)
    if 0 < len(items) <= limits.UNROLLED and _names_carriers(a, items):
        s.choices["at", i.dst] = value(const(0))  # type: ignore[index]
        return None
    for atom in held:
        first = s.heap.get((atom, objects.FIRST))
        if first is not None and len(held) == 1:
            s.choices["round", i.dst] = first  # type: ignore[index]
    threads.pins_memory(a, s, held, a.span(i.at))
    if len(held) == 1:
        (atom,) = held
        if (isinstance(atom, Tuple) and atom.items) or (
            isinstance(atom, New) and (atom, "[0]") in s.heap and not atom.age
        ):
            s.choices["more", i.dst] = value(TRUE)  # type: ignore[index]
        elif (atom, objects.COUNT) in s.heap:
            s.choices["more", i.dst] = s.heap[atom, objects.COUNT]  # type: ignore[index]
        elif _has_members(atom) or _holds_what_counts(a, s, held) or i.dst in _waiting_loops(a).all:
            s.choices["more", i.dst] = value(TRUE)  # type: ignore[index]
    return None


def _has_members(atom: Atom) -> bool:
    """Whether an atom is what a module, or an optimizer, certainly has: its parameters, its groups of them."""
    if isinstance(atom, Path):
        return atom.fields[-1:] in ((replays.PARAMETERS,), (objects.GROUPS,))
    return isinstance(atom, Bound) and atom.name == objects.GROUPS


def _holds_what_counts(a: Analysis, s: State, container: Value) -> bool:
    """Whether the elements are streams, events or works, or memory made here.

    Where there are no streams, nothing was given to them; where there is no memory, it was not made.
    """
    elements = _next(a, s, container)
    return any(
        isinstance(atom, New) and a.role(atom) == "tensor" for held in elements for atom in held
    ) or any(
        a.role(atom) in ("stream", "event", "work")
        for atom in values.reachable(elements)
        if isinstance(atom, New | Path)
    )


class WaitingLoops(NamedTuple):
    """The iterators each of whose elements is waited for: ``given`` to the call that waits, or that waits itself."""

    given: frozenset[ir.Reg]
    all: frozenset[ir.Reg]


def _waiting_loops(a: Analysis) -> WaitingLoops:
    known = a.engine.waiting_loops.get(a.fn.fid)
    if known is None:
        known = a.engine.waiting_loops[a.fn.fid] = _waited_for(a.fn, a.engine.waiting_words)
    return known


def _waited_for(fn: ir.Function, words: frozenset[str]) -> WaitingLoops:
    """The loops whose rounds call a method of some names: of an element, or with it."""
    element: dict[ir.Reg, ir.Reg] = {}
    waits: dict[ir.Reg, ir.Reg] = {}
    given: set[ir.Reg] = set()
    waiting: set[ir.Reg] = set()
    instructions = [instruction for block in fn.blocks for instruction in block.instrs]
    for i in instructions:
        if isinstance(i, ir.Next):
            element[i.dst] = i.iterator
    for i in instructions:
        if isinstance(i, ir.Move) and i.src in element:
            element[i.dst] = element[i.src]
        elif isinstance(i, ir.Attr) and i.name in words:
            waits[i.dst] = i.obj
    for i in instructions:
        if isinstance(i, ir.Call) and i.func in waits:
            given.update(element[reg] for reg in i.args if reg in element)
            if waits[i.func] in element:
                waiting.add(element[waits[i.func]])
    return WaitingLoops(frozenset(given), frozenset(given | waiting))


@transfer(ir.Next)
def next_element(a: Analysis, s: State, i: ir.Next) -> list[State] | None:
    """dst = the element of this round."""
    made = protocols.advance(a, s, i.at, i.dst, s.get(i.iterator))
    if made is not None:
        for t in made:
            t.set_local(i.dst, t.get(i.dst))
        return made
    one = _unrolled(s, i.iterator)
    if one is not None:
        s.set_local(i.dst, one)
        return None
    held = values.union(_next(a, s, s.get(i.iterator)))
    held = _counted(s, i.iterator, held)
    rounds.begins(a, s, held)
    choices = ordered(held)
    apart = all(splits(atom) for atom in choices) and i.iterator not in _waiting_loops(a).given
    if 1 < len(choices) <= limits.STREAMS and apart:
        out = []
        for atom in choices:  # what is kept together stays together: a state for each
            t = s.fork()
            t.set_local(i.dst, value(atom))
            out.append(t)
        return out
    s.set_local(i.dst, held)
    return None


def _unrolled(s: State, iterator: ir.Reg) -> Value | None:
    """The element of this round, of a loop that is run through one by one; None of other loops."""
    at = s.choices.get(("at", iterator))  # type: ignore[call-overload]
    items: tuple[Value, ...] = objects.items_of(s, s.get(iterator)) if at else ()
    for number in at or ():
        if isinstance(number, Const) and number.value < len(items):
            s.choices["at", iterator] = value(const(number.value + 1))  # type: ignore[index]
            position: int = number.value
            return items[position]
    return None


def _names_carriers(a: Analysis, items: Iterable[Value]) -> bool:
    """Whether streams, events or works are among some values."""
    return any(
        a.role(atom) in ("stream", "event", "work")
        for atom in values.reachable(items)
        if isinstance(atom, New | Path | Symbol)
    )


def _counted(s: State, iterator: ir.Reg, held: Value) -> Value:
    """The element of ``enumerate``: the first number in the first round, one above it in all others."""
    number = s.choices.get(("round", iterator), UNKNOWN)  # type: ignore[call-overload]
    if not number or len(held) != 1:
        return held
    (pair,), (count,) = held, number
    if not isinstance(pair, Tuple) or len(pair.items) != 2:
        return held
    if isinstance(count, Const):
        s.choices["round", iterator] = value(above(count.value))  # type: ignore[index]
    return value(tuple_of(number, pair.items[1]))


def _next(a: Analysis, s: State, held: Value) -> list[Value]:
    return [objects.step_into(a, s, value(atom), EACH) for atom in ordered(held)]


@transfer(ir.Unpack)
def unpack(a: Analysis, s: State, i: ir.Unpack) -> list[State] | None:
    """dsts = src, element by element; what is kept together stays together: a state for each."""
    held = s.get(i.src)
    if 1 < len(held) <= limits.STREAMS and all(isinstance(atom, Tuple) for atom in held):
        if any(splits(atom) for atom in held):
            out = []
            for atom in ordered(held):
                t = s.fork()
                t.env[i.src] = value(atom)
                unpack(a, t, i)
                out.append(t)
            return out
    for position, target in enumerate(i.dsts):
        step = f"[{position}]" if i.star is None or position < i.star else EACH
        if i.star is not None and position > i.star:
            step = f"[{position - len(i.dsts)}]"
        s.env[target] = objects.step_into(a, s, held, step)
        outputs.moved(a, s, target, i.src, s.env[target])
    return None


@transfer(ir.Item)
def load_item(a: Analysis, s: State, i: ir.Item) -> list[State] | None:
    """dst = obj[key]: an element, a view, or (under a device index) a gather that makes new memory."""
    held, key = s.get(i.obj), s.get(i.key)
    made = protocols.invoke(a, s, i.at, i.dst, held, "__getitem__", key)
    if made is not None:
        return made
    step = objects.step_of(key)
    found: list[Value] = []
    span = a.span(i.at)
    for atom in ordered(held):
        memory = (
            isinstance(atom, Array)
            or (isinstance(atom, New) and a.role(atom) == "tensor")
            or (isinstance(atom, Path) and (a.role(atom) == "tensor" or mem.place_of(a, s, atom) != ""))
        )
        if a.role(atom) == "kernel":
            found.append(value(atom))  # a kernel with its grid
        elif memory:
            if _device_index(a, s, key) or asks.compares(key):
                if asks.is_mask(s, key) or asks.compares(key):
                    a.host_work(s, span, "an index by a mask")
                elif mem.place_of(a, s, atom) == DEVICE and _on_host(a, s, key):
                    a.host_work(s, span, "an index that lies in the memory of the host")
                mem.read(a, s, span, value(atom), "[]")
                mem.read(a, s, span, key, "[]")
                found.append(mem.result(a, s, span, "[]"))
            else:
                found.append(value(atom))
        elif isinstance(atom, Path) and SLICE in key:
            found.append(value(atom))
        else:
            element = objects.step_into(a, s, value(atom), step or EACH)
            if isinstance(atom, Path) and not a.role(atom) and any(isinstance(k, Path) for k in key):
                mem.read(a, s, span, element, "[]", tag.WEAK)
                mem.read(a, s, span, key, "[]", tag.WEAK)
            if asks.is_mask(s, key):
                a.host_work(s, span, "an index by a mask")
            elif asks.compares(key, atom):
                a.host_work(s, span, "an index by a mask", guard=asks.on_device(atom))
            found.append(element)
            rounds.is_keyed(a, element, key)
    s.env[i.dst] = values.union(found)
    return None


def _device_index(a: Analysis, s: State, key: Value) -> bool:
    """Whether an index is a tensor: indexing then is a gather, which makes new memory."""
    return any(
        isinstance(buffer, New)
        or mem.place_of(a, s, buffer) == DEVICE
        or (a.role(buffer) == "tensor" and not mem.place_of(a, s, buffer))
        for buffer in mem.buffers(a, s, key)
    )


def _on_host(a: Analysis, s: State, key: Value) -> bool:
    """Whether an index lies in the memory of the host: it is copied to the device, and the host waits."""
    return any(mem.place_of(a, s, buffer) in HOST_PLACES for buffer in mem.buffers(a, s, key))


@transfer(ir.SetItem)
def store_item(a: Analysis, s: State, i: ir.SetItem) -> list[State] | None:
    """obj[key] = src: a container's element, or a write to memory."""
    held, key, owners = s.get(i.src), s.get(i.key), s.get(i.obj)
    made = protocols.invoke(a, s, i.at, -1, owners, "__setitem__", key, held)
    if made is not None:
        return made
    span = a.span(i.at)
    if key == _CAPTURABLE:
        captures.is_set(s)
    for atom in ordered(owners):
        if isinstance(atom, New) and a.role(atom) == "container":
            step = objects.step_of(key)
            if step is not None:
                replays.stores(a, s, span, atom, step, s.heap.get((atom, step), UNKNOWN), held)
            elif not key or any(isinstance(k, Path) and EACH in k.fields for k in key):
                replays.keeps(a, s, span, atom, held)
            objects.put_element(s, atom, held, objects.step_of(key) if len(owners) == 1 else None)
            continue
        if isinstance(atom, Array):
            for buffer in mem.buffers(a, s, atom.of):
                mem.host_touch(a, s, span, held, "[]=")
                mem.write_one(a, s, span, buffer, s.current, "[]=", 0)
            continue
        if not isinstance(atom, New | Path):
            continue
        place, role = mem.place_of(a, s, atom), a.role(atom)
        if place in HOST_PLACES:
            mem.host_touch(a, s, span, held, "[]=")
            mem.touch(a, s, span, atom, True, HOST, "[]=")
        elif role == "tensor" or place or (_writes_memory(key) and not _is_no_number(held)):
            mem.read(a, s, span, key, "[]=")
            mem.read(a, s, span, held, "[]=")
            mem.write_one(a, s, span, atom, s.current, "[]=", 0 if role == "tensor" else tag.WEAK)
        elif isinstance(atom, Path):
            step = objects.step_of(key)
            replays.stores(a, s, span, atom, step or EACH, s.heap.get((atom, step or ANY), UNKNOWN), held)
            replays.note_store(s, atom, step or EACH, span)
            objects.store(a, s, atom, step or ANY, held, strong=step is not None)
    return None


def _is_no_number(held: Value) -> bool:
    """Whether a value is a tuple or a function: only a container takes it as an element."""
    return any(isinstance(atom, Tuple | Function | Partial | Class) for atom in held)


def _writes_memory(key: Value) -> bool:
    return any(
        atom is SLICE or isinstance(atom, Tuple) or (isinstance(atom, Const) and atom.value is None)
        for atom in key
    )


# -- operators --------------------------------------------------------------------------------------------------------


def compute(a: Analysis, s: State, at: int, dst: ir.Reg, operation: str, held: Value) -> None:
    """An operator over values: a kernel where one of them is device memory, the host's work where one is its."""
    touched = mem.buffers(a, s, held, 1)
    span = a.span(at)
    places = {mem.place_of(a, s, buffer) for buffer in touched}
    typed = any(a.role(b) == "tensor" and not mem.place_of(a, s, b) for b in touched)
    typed = typed or (operation.startswith("@") and bool(touched))  # nothing else is multiplied so
    if DEVICE in places or (typed and not places & {PINNED, PAGEABLE}):
        for buffer in touched:
            mem.read_one(a, s, span, buffer, s.current, operation)
        s.env[dst] = mem.result(a, s, span, operation, kind=_kind_of(a, touched))
        mem.derive(s, s.env[dst], touched)
    elif places & {PINNED, PAGEABLE}:
        mem.host_touch(a, s, span, held, operation)
        s.env[dst] = mem.result(a, s, span, operation, PAGEABLE, kind=_kind_of(a, touched))
    else:
        for buffer in touched:
            weak = 0 if a.role(buffer) == "tensor" else tag.WEAK
            tags = mem.by_its_processor(s, mem.place_of(a, s, buffer), weak)
            mem.touch(a, s, span, buffer, False, s.current, operation, tags)
        s.env[dst] = (
            mem.maybe(a, s, span, operation, touched) if _makes_memory(s, operation, held) else UNKNOWN
        )


def _makes_memory(s: State, operation: str, held: Value) -> bool:
    """Whether an operator is one of tensors: a number is added to a count, too, but not under another stream."""
    if operation not in _OF_TENSORS or s.current is not CURRENT:
        return operation in _OF_TENSORS
    return not (_whole(held) and operation in "+-" and all(isinstance(atom, Const | Path) for atom in held))


def _whole(held: Value) -> bool:
    """Whether a value may be a whole number that is written there: what counts."""
    return any(isinstance(atom, Const) and isinstance(atom.value, int) for atom in held)


def _kind_of(a: Analysis, touched: list[Atom]) -> str:
    for buffer in touched:
        type = a.type_of(buffer)
        if a.engine.role(type) == "tensor":
            return type
    return ""


@transfer(ir.Binary)
def binary(a: Analysis, s: State, i: ir.Binary) -> list[State] | None:
    """dst = left op right"""
    left, right = s.get(i.left), s.get(i.right)
    outputs.combined(a, s, a.span(i.at), (i.left, i.right))
    if i.op == "+" and _counts_up(a, s, i.at, i.dst, left, right):
        return None
    if i.op == "-":
        timing.subtract(a, s, left, right)
    compute(a, s, i.at, i.dst, i.op, left | right)
    if i.op in "&|^" and asks.is_mask(s, left) and asks.is_mask(s, right):
        asks.mark_mask(s, s.get(i.dst))
    if i.op == "%" and not s.get(i.dst) and any(isinstance(atom, Const) for atom in left):
        s.env[i.dst] = left if not mem.buffers(a, s, right) else UNKNOWN  # a text
    if i.op in "*/" and s.timing.clocks:
        s.env[i.dst] = timing.converted(a, s, left | right) or s.env[i.dst]
    return None


@transfer(ir.Unary)
def unary(a: Analysis, s: State, i: ir.Unary) -> list[State] | None:
    """dst = op operand"""
    held = s.get(i.operand)
    if i.op == "not":
        asks.look(a, s, a.span(i.at), held)
        known = {bool(atom.value) for atom in held if isinstance(atom, Const)}
        decided = len(known) == 1 and all(isinstance(atom, Const) for atom in held)
        s.env[i.dst] = value(FALSE if True in known else TRUE) if decided else UNKNOWN
        return None
    compute(a, s, i.at, i.dst, i.op, held)
    if i.op == "~" and asks.is_mask(s, held):
        asks.mark_mask(s, s.get(i.dst))
    return None


@transfer(ir.Compare)
def compare(a: Analysis, s: State, i: ir.Compare) -> list[State] | None:
    """dst = left op right"""
    if i.op in ("is", "is not", "in", "not in"):
        if i.op.endswith("in"):
            asks.look(a, s, a.span(i.at), s.get(i.right))
        s.env[i.dst] = asks.names_device(s.get(i.left), s.get(i.right)) if i.op == "in" else UNKNOWN
        return None
    left, right = s.get(i.left), s.get(i.right)
    known = counts(i.op, left, right)
    if known is None and i.op in ("==", "!=") and _are_streams(a, left, right):
        known = (left == right) is (i.op == "==")
    if known is not None:
        s.env[i.dst] = value(TRUE if known else FALSE)
        return None
    compute(a, s, i.at, i.dst, i.op, left | right)
    asks.mark_mask(s, s.get(i.dst))
    if not s.get(i.dst):
        test = compared(i.op, left, right)
        if comparable(test):
            s.env[i.dst] = value(test)
    return None


def _counts_up(a: Analysis, s: State, at: int, dst: ir.Reg, left: Value, right: Value) -> bool:
    """``count + 1``: some number above that of the round, or the call, before."""
    if len(left) != 1:
        return False
    (atom,) = left
    counted = isinstance(atom, Path) and a.fact(atom).counts
    if not counted and not isinstance(atom, Const | Symbol):
        return False
    after = plus(atom, right, counted)
    if after is None:
        return False
    if counted and isinstance(atom, Path) and atom.fields:
        owner = a.fact(path(atom.root, *atom.fields[:-1])).type
        if a.engine.facts.computed_with(owner, atom.fields[-1]) and not captures.asks(a):
            a.host_work(s, a.span(at), "the count", threads.ONCE)
    s.set_local(dst, value(after))
    if dst in a.tested:
        s.choices[dst] = value(after)
    return True


def _are_streams(a: Analysis, left: Value, right: Value) -> bool:
    """Whether two streams are compared, one of them with a name of its own: two names stand for two streams."""
    both = left | right
    alone = len(left) == len(right) == 1 and not all(isinstance(atom, Symbol) for atom in both)
    return alone and all(a.role(atom) == "stream" for atom in both)


@transfer(ir.InPlace)
def in_place(a: Analysis, s: State, i: ir.InPlace) -> list[State] | None:
    """dst = left op= right"""
    left, right = s.get(i.left), s.get(i.right)
    if i.op == "+" and _counts_up(a, s, i.at, i.dst, left, right):
        return None
    span, operation = a.span(i.at), f"{i.op}="
    touched = mem.buffers(a, s, left, 1)
    places = {mem.place_of(a, s, buffer) for buffer in touched}
    certain = bool(places & {DEVICE, PINNED, PAGEABLE}) or any(a.role(b) == "tensor" for b in touched)
    for buffer in mem.buffers(a, s, right, 1):
        mem.read_one(a, s, span, buffer, s.current, operation, 0 if certain else tag.WEAK)
    for buffer in touched:
        if mem.place_of(a, s, buffer) or a.role(buffer) == "tensor":
            mem.write_one(a, s, span, buffer, s.current, operation)
        elif (mem.may_be_tensor(buffer) and not _whole(right)) or mem.buffers(a, s, right, 1):
            mem.write_one(a, s, span, buffer, s.current, operation, tag.WEAK)
    s.env[i.dst] = left
    return None


# -- the host looks ---------------------------------------------------------------------------------------------------


@transfer(ir.Host)
def condition(a: Analysis, s: State, i: ir.Host) -> list[State] | None:
    """A condition."""
    asks.look(a, s, a.span(i.at), s.get(i.src))
    return None


@transfer(ir.Format)
def format_text(a: Analysis, s: State, i: ir.Format) -> list[State] | None:
    """An f-string."""
    for part in i.parts:
        asks.look(a, s, a.span(i.at), s.get(part))
    s.env[i.dst] = UNKNOWN
    return None


@transfer(ir.Shape)
def shape(a: Analysis, s: State, i: ir.Shape) -> list[State] | None:
    """dst = whether a pattern's subject has a shape."""
    s.env[i.dst] = UNKNOWN
    return None


@transfer(ir.MatchArg)
def match_argument(a: Analysis, s: State, i: ir.MatchArg) -> list[State] | None:
    """dst = what a class pattern's sub-pattern matches."""
    s.env[i.dst] = objects.step_into(a, s, s.get(i.subject), EACH)
    return None


# -- the end ----------------------------------------------------------------------------------------------------------


@transfer(ir.Return)
def leave(a: Analysis, s: State, i: ir.Return) -> list[State] | None:
    """The function returns."""
    if a.given.part == "hook":
        gradients.hook_returns(a, s, a.span(i.at), s.get(i.src))
    a.returned.append((s.fork(), s.get(i.src), i.at))
    s.dead = True
    return None


@transfer(ir.Raise)
def fail(a: Analysis, s: State, i: ir.Raise) -> list[State] | None:
    """An exception is raised."""
    s.dead = True
    return None


@transfer(ir.Yield)
def hand_out(a: Analysis, s: State, i: ir.Yield) -> list[State] | None:
    """The consumer of a generator uses what it is given, on its own current stream."""
    held = s.get(i.src)
    if a.given.part == "enter":
        regs = a.registers()
        # where another `yield` lies in a context that was not entered here, leaving that changes nothing
        saved = [value(s.entered[reg][0] if reg in s.entered else s.current) for reg in regs]
        a.returned.append((s.fork(), value(tuple_of(held, *(s.get(r) for r in regs), *saved)), i.at))
        s.dead = True
        return None
    span = a.span(i.at)
    for buffer in mem.buffers(a, s, held):
        if isinstance(buffer, New) and mem.place_of(a, s, buffer) == DEVICE:
            mem.touch(a, s, span, buffer, False, CURRENT, "yield", tag.HANDED_OUT)
    more = objects.step_into(a, s, held, EACH) if i.delegated else held
    a.yielded = a.yielded | more if len(a.yielded | more) <= limits.ATOMS else UNKNOWN
    s.env[i.dst] = UNKNOWN
    return None


@transfer(ir.Await)
def wait_for(a: Analysis, s: State, i: ir.Await) -> list[State] | None:
    """dst = await src"""
    s.env[i.dst] = s.get(i.src)
    return None
