"""Parts of an array: what slices and indices pick, and whether two of them have no element in common.

A part is a tuple of layers. Each layer says, for some axes of one shape of the buffer, which positions are picked; a
``reshape`` begins a new layer, because its axes are not those of the shape before.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from streamsafe.static.values import EACH, Api, Const, Name, Opaque, Partial, Picks, Value

_END = 1 << 62
Picked = range | str | Name


class Layer(NamedTuple):
    """What is picked of one shape.

    Attributes:
        shape: which shape: None for the one the buffer was made with, else the syntax node that made it.
        picked: for an axis the positions, the field, or the object that holds the index; for a loop, under the
            name of its rounds, the round.
        dropped: axes that an integer index took away.
    """

    shape: Hashable = None
    picked: tuple[tuple[Hashable, Picked], ...] = ()
    dropped: frozenset[int] = frozenset()

    def on(self, axis: Hashable) -> Picked | None:
        """What is picked along an axis; None for all of it, or not known."""
        return next((what for where, what in self.picked if where == axis), None)


Part = tuple[Layer, ...]


def pick(part: Hashable | None, keys: list[Value]) -> Part | None:
    """The part of a part that a subscript picks; None for all of the buffer, or where that is not known."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    last = layers[-1]
    picked, dropped = dict(last.picked), set(last.dropped)
    axis = -1
    for key in keys:
        axis += 1
        while axis in last.dropped:
            axis += 1
        if isinstance(key, Const) and isinstance(key.value, str):
            picked["field"] = key.value
            break
        found = _along(key, picked.get(axis))
        if found is None:
            if isinstance(key, Partial) and key.function == Api("builtins.slice"):
                continue
            break  # an ellipsis, a new axis, a mask: what follows stands on no known axis
        picked[axis] = found
        if not isinstance(key, Partial):
            dropped.add(axis)
    result = (*layers[:-1], Layer(last.shape, _sorted(picked), frozenset(dropped)))
    return None if result == (Layer(),) else result


def met_in(part: Hashable | None, rounds: Picks) -> Part:
    """The part that certain rounds of loops have picked: another round of the same loop picks another one."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    first = layers[0]
    return (first._replace(picked=_sorted(dict(rounds) | dict(first.picked))), *layers[1:])


def all_of(part: Hashable | None) -> Part | None:
    """All that the rounds of loops that have picked a part may have picked."""
    return met_in(None, rounds(part)) if rounds(part) else None


def rounds(part: Hashable | None) -> Picks:
    """The rounds of loops that have picked a part."""
    if type(part) is not tuple:
        return ()
    return tuple(pick for pick in part[0].picked if isinstance(pick[0], Name))


def component(part: Hashable | None, which: str) -> Part:
    """The real or the imaginary numbers of a part."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    last = layers[-1]
    picked = dict(last.picked) | {"component": which}
    return (*layers[:-1], last._replace(picked=_sorted(picked)))


def of_object(name: Name, what: Hashable) -> Part:
    """The part that belongs to an object, of memory that many objects share.

    Args:
        name: the object.
        what: what the memory is; parts of something else are not compared.
    """
    return (Layer(what, (("object", name),)),)


def object_of(part: Hashable | None) -> Name | None:
    """The object a part belongs to, None where it is none or a part of such a part."""
    layers = part if isinstance(part, tuple) else ()
    found = _without_rounds(layers[0]).picked if len(layers) == 1 else ()
    return next((what for axis, what in found if axis == "object"), None) if len(found) == 1 else None  # type: ignore[return-value]


def reshaped(part: Hashable | None, shape: Hashable) -> Part:
    """The same memory with other axes."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    return (*layers, Layer(shape))


def section(part: Hashable | None, shape: Hashable, position: int) -> Part:
    """One of the pieces into which ``split`` cuts a part."""
    return (
        *reshaped(part, shape)[:-1],
        Layer(shape, (("piece", range(position, position + 1)),)),
        Layer((shape, 0)),
    )


def disjoint(first: Hashable | None, second: Hashable | None) -> bool:
    """Whether two parts of a buffer surely have no element in common."""
    if not (isinstance(first, tuple) and isinstance(second, tuple)):
        return False
    for one, other in zip(first, second, strict=False):
        if one.shape != other.shape:
            return False
        for axis, picked in one.picked:
            across = other.on(axis)
            if across is not None and _apart(picked, across) and not (axis == "object" and _walked(picked)):
                return True
        if one != other and _without_rounds(one) != _without_rounds(other):
            return False
    return False


def _sorted(picked: Mapping[Hashable, Any]) -> tuple[tuple[Hashable, Picked], ...]:
    return tuple(sorted(picked.items(), key=_place)) if len(picked) > 1 else tuple(picked.items())


def _place(pick: tuple[Hashable, Any]) -> tuple[int, int, str]:
    """Some order, the same wherever the same is picked: of names, each of which there is once, any will do."""
    axis = pick[0]
    if isinstance(axis, Name):
        return (0, id(axis), "")
    return (1, axis, "") if isinstance(axis, int) else (2, 0, str(axis))


def _without_rounds(layer: Layer) -> Layer:
    return layer._replace(picked=tuple(p for p in layer.picked if not isinstance(p[0], Name)))


def _along(key: Value, before: Picked | None) -> Picked | None:
    within = before if isinstance(before, range) else range(_END)  # of an unknown length: long
    if before is not None and not isinstance(before, range):
        return before
    if isinstance(key, Const) and isinstance(key.value, int) and not isinstance(key.value, bool):
        if -len(within) <= key.value < len(within):
            return range(within[key.value], within[key.value] + 1)
        return None
    if isinstance(key, Opaque):
        return key.name
    if not (isinstance(key, Partial) and key.function == Api("builtins.slice")):
        return None
    bounds = [b.value if isinstance(b, Const) else ... for b in key.args]
    known = [b for b in bounds if b is None or (isinstance(b, int) and not isinstance(b, bool))]
    if len(known) == len(bounds) and all(step is None or step > 0 for step in known[2:]):
        return within[slice(*known)]
    if bounds[0] in (None, 0):
        return None  # however long it is, it begins where another such slice begins
    names = [b.name for b in key.args if isinstance(b, Opaque)]
    return names[0] if names and before is None else None


def _walked(picked: Picked) -> bool:
    """Whether an object is met in a walk: its rounds tell it from others, and another walk meets it again."""
    return isinstance(picked, Name) and any(name.site == EACH for name in picked.chain())


def _apart(first: Picked, second: Picked) -> bool:
    if isinstance(first, range) and isinstance(second, range):
        return not _meet(first, second)
    if isinstance(first, str) and isinstance(second, str):
        return first != second
    if isinstance(first, Name) and isinstance(second, Name):
        # the same expression in two rounds of a loop: a walk goes on, it does not come back
        return first != second and first.base() == second.base()
    return (isinstance(first, range) and not first) or (isinstance(second, range) and not second)


def _meet(first: range, second: range) -> bool:
    """Whether two arithmetic progressions share a number."""
    if not first or not second:
        return False
    low, high = max(first[0], second[0]), min(first[-1], second[-1])
    if low > high:
        return False
    common = math.gcd(first.step, second.step)
    if (second.start - first.start) % common:
        return False
    # the first number not below ``low`` that both have: steps of the first, at most one cycle of them
    number = first[0] + -(-(low - first[0]) // first.step) * first.step
    for _ in range(min(second.step // common, 4096)):
        if number > high:
            return False
        if (number - second.start) % second.step == 0:
            return True
        number += first.step
    return True
