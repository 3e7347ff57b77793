"""Views: which registers hold a part of some memory, and which part an instruction therefore touches.

A register with an entry in ``State.views`` holds a view, or a slice that makes one: what it is indexed with is no index
of the buffer. A view that is stored, returned or kept is a name of the buffer from then on, and no index of what has
that name says anything (``State.blurred``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from streamsafe.static.domain.atoms import Atom, Bound, Const, Path, Tuple, Value
from streamsafe.static.domain.extents import TURNED, WHOLE, Extent, Interval, end_of, index
from streamsafe.static.domain.state import State
from streamsafe.static.syntax import ir
from streamsafe.static.transfer import memory as mem

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

NO_PARTS: Final[Mapping[Atom, Extent]] = {}

STARTS: Final = frozenset((ir.Item, ir.Next, ir.SetItem, ir.Slice, ir.Unpack))
"""Instructions that make a view, or touch a part, where there was none before."""

_TURNED: Final = frozenset("T mT H mH".split())
"""Attributes whose indices are other indices of the memory."""


def touched(a: Analysis, s: State, i: ir.Instr) -> Mapping[Atom, Extent]:
    """The parts of buffers that an instruction can touch, those of which it can touch all left out."""
    views = s.views
    kept = _KEEPS.get(i.__class__)
    if kept is not None and views:
        for reg in kept(i):
            if reg in views:
                blur(a, s, s.get(reg))
    operands = _OPERANDS.get(i.__class__)
    if operands is None:
        return NO_PARTS
    regs = operands(i)
    extents = {reg: views[reg] for reg in regs if reg in views} if views else {}
    if i.__class__ is ir.SetItem and i.obj not in extents:
        extent = _of_key(s, i.key)
        if extent:
            extents[i.obj] = extent
    if not extents:
        return NO_PARTS
    found: dict[Atom, Extent] = {}
    for reg, extent in extents.items():
        for buffer in mem.buffers(a, s, _seen_through(s.get(reg))):
            known = found.setdefault(buffer, extent)
            if known != extent or buffer in s.blurred:
                found[buffer] = WHOLE
    others = mem.held_by(s, [_seen_through(s.get(reg)) for reg in regs if reg not in extents])
    for buffer in others & found.keys():
        found[buffer] = WHOLE
    return found


def settle(a: Analysis, s: State, i: ir.Instr) -> None:
    """After an instruction: what its target holds is a view, or is none any more."""
    parts, s.parts = s.parts, NO_PARTS
    if isinstance(i, ir.Unpack):
        for number, target in enumerate(i.dsts):
            extent = (index_of(number),) if i.star is None and i.src not in s.views else WHOLE
            _target(s, target, extent if _same_memory(a, s, target, i.src) else None)
        return
    made: ir.Reg | None = getattr(i, "dst", None)
    if made is None:
        return
    if i.__class__ in _VIEWS:
        _target(s, made, _view(a, s, i, made, parts))
    elif made in s.views:
        _target(s, made, None)
    if isinstance(i, ir.Call) and parts:
        for held in s.heap.values():
            for buffer in parts.keys() & held:
                blur(a, s, frozenset((buffer,)))


def index_of(number: int) -> Interval:
    """The interval of an index."""
    return (number, number + 1)


def _target(s: State, target: ir.Reg, extent: Extent | None) -> None:
    if extent is not None:
        s.views = {**s.views, target: extent}
    elif target in s.views:
        s.views = {reg: view for reg, view in s.views.items() if reg != target}


def _view(a: Analysis, s: State, i: ir.Instr, target: ir.Reg, parts: Mapping[Atom, Extent]) -> Extent | None:
    """Of which part a target is a view: None of what is no view, and of what is as good as the buffer itself."""
    if isinstance(i, ir.Slice):
        return _of_slice(s, i)
    if isinstance(i, ir.Build):
        return _of_tuple(s, i) if i.kind == "tuple" else None
    if isinstance(i, ir.Move):
        return s.views.get(i.src)
    if isinstance(i, ir.Item):
        if not _same_memory(a, s, target, i.obj):
            return None
        return s.views[i.obj] if i.obj in s.views else _of_key(s, i.key)
    if isinstance(i, ir.Attr):
        return s.views.get(target) if i.obj not in s.views else s.views[i.obj]
    if isinstance(i, ir.Next):
        return WHOLE if _same_memory(a, s, target, i.iterator) else None
    if isinstance(i, ir.Call):
        extents = {parts.get(buffer) for buffer in mem.buffers(a, s, s.get(target))} if parts else set()
        if len(extents) == 1 and None not in extents:
            return extents.pop()
        return s.views.get(target)
    return None


def is_view(s: State, target: ir.Reg, extent: Extent = WHOLE) -> None:
    """A call returns a view, whose indices are others than those of what it is a view of."""
    if s.views.get(target) != extent:
        s.views = {**s.views, target: extent}


TURNS: Final = frozenset("t transpose permute swapaxes swapdims movedim moveaxis".split())
"""Methods that give a view of all elements in another order."""


def of_dimension(dimension: Value, begin: Value, length: Value | None) -> Extent:
    """The extent of ``x.select(dim, index)``, and with a length that of ``x.narrow(dim, start, length)``."""
    number, first = end_of(dimension), end_of(begin)
    many = end_of(length) if length is not None else 1
    if not isinstance(number, int) or not isinstance(first, int) or not isinstance(many, int):
        return WHOLE
    return (*(None for _ in range(number)), (first, first + many))


_VIEWS: Final = frozenset((ir.Attr, ir.Build, ir.Call, ir.Item, ir.Move, ir.Next, ir.Slice))
"""Instructions whose target may hold a view."""


def _same_memory(a: Analysis, s: State, target: ir.Reg, source: ir.Reg) -> bool:
    """Whether a target holds memory that the source holds itself, not in a container."""
    held = s.get(target)
    return bool(held) and not held.isdisjoint(s.get(source))


def attribute(s: State, i: ir.Attr, held: Value, found: Value) -> None:
    """What an attribute is may have other indices than what it is an attribute of, or be another name of memory."""
    for atom in found:
        other_name = isinstance(atom, Path) and atom.fields[-1:] != (i.name,) and atom not in held
        turned = i.name in _TURNED and atom in held
        if other_name or turned:
            is_view(s, i.dst, TURNED if turned else WHOLE)
            return


def blur(a: Analysis, s: State, held: Value) -> None:
    """Views of some memory are kept: their indices are no indices of it."""
    buffers = mem.buffers(a, s, _seen_through(held))
    if not s.blurred.issuperset(buffers):
        s.blurred = s.blurred.union(buffers)


def _seen_through(held: Value) -> Value:
    """A value, and what the methods in it are methods of."""
    if not any(isinstance(atom, Bound) for atom in held):
        return held
    return frozenset().union(
        *(atom.owner if isinstance(atom, Bound) else frozenset((atom,)) for atom in held)
    )


# -- what keys say ----------------------------------------------------------------------------------------------------


def _of_key(s: State, key: ir.Reg) -> Extent:
    if key in s.views:
        return s.views[key]
    held = s.get(key)
    if len(held) == 1:
        (atom,) = held
        if isinstance(atom, Tuple):
            return _joined((index(item), item) for item in atom.items)
        return _joined(((index(held), held),))
    return WHOLE


def _of_slice(s: State, i: ir.Slice) -> Extent | None:
    if i.step is not None:
        step = end_of(s.get(i.step))
        if not isinstance(step, int) or step < 1:
            return None
    begin = end_of(s.get(i.lower)) if i.lower is not None else 0
    end = end_of(s.get(i.upper)) if i.upper is not None else None
    return None if begin in (0, None) and end is None else ((begin or 0, end),)


def _of_tuple(s: State, i: ir.Build) -> Extent | None:
    parts: list[tuple[Interval | None, Value]] = []
    for reg in i.elements:
        if isinstance(reg, ir.Star):
            break
        held = s.get(reg)
        part = s.views[reg][0] if len(s.views.get(reg, WHOLE)) == 1 and _is_slice(held) else index(held)
        parts.append((part, held))
    return _joined(parts) or None


def _joined(parts: Iterable[tuple[Interval | None, Value]]) -> Extent:
    """The intervals of dimensions, up to the first index that may stand for several dimensions, or for none."""
    found: list[Interval | None] = []
    for part, held in parts:
        if part is None and not _is_slice(held):
            break
        found.append(part)
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _is_slice(held: Value) -> bool:
    return len(held) == 1 and all(isinstance(atom, Const) and atom.value == SLICE for atom in held)


SLICE: Final = slice(None).__repr__()
"""What the constant is that stands for a slice."""


# -- the registers of instructions ------------------------------------------------------------------------------------


def _of_call(i: ir.Call) -> Collection[ir.Reg]:
    arguments = [each.reg if isinstance(each, ir.Star) else each for each in i.args]
    return [i.func, *arguments, *(reg for _, reg in i.keywords)]


def _of_build(i: ir.Build) -> Collection[ir.Reg]:
    return [element.reg if isinstance(element, ir.Star) else element for element in i.elements]


_OPERANDS: Final[dict[Any, Callable[[Any], Collection[ir.Reg]]]] = {
    ir.Call: _of_call,
    ir.SetItem: lambda i: (i.obj, i.key, i.src),
    ir.Item: lambda i: (i.obj, i.key),
    ir.Binary: lambda i: (i.left, i.right),
    ir.InPlace: lambda i: (i.left, i.right),
    ir.Compare: lambda i: (i.left, i.right),
    ir.Unary: lambda i: (i.operand,),
    ir.Host: lambda i: (i.src,),
    ir.Format: lambda i: i.parts,
    ir.Slice: lambda i: [reg for reg in (i.lower, i.upper, i.step) if reg is not None],
}
"""The registers whose memory an instruction can touch."""

_KEEPS: Final[dict[Any, Callable[[Any], Collection[ir.Reg]]]] = {
    ir.SetAttr: lambda i: (i.src,),
    ir.SetItem: lambda i: (i.src,),
    ir.SetGlobal: lambda i: (i.src,),
    ir.SetOuter: lambda i: (i.src,),
    ir.Build: _of_build,
    ir.Add: lambda i: (i.value,),
    ir.Closure: lambda i: i.captured,
    ir.Yield: lambda i: (i.src,),
    ir.Return: lambda i: (i.src,),
}
"""The registers whose values an instruction keeps under another name."""
