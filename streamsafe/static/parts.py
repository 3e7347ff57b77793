"""Parts of an array: what slices and indices pick, and whether two of them have no element in common.

A part is a tuple of layers. Each layer says, for some axes of one shape of the buffer, which positions are picked; a
``reshape`` begins a new layer, because its axes are not those of the shape before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from streamsafe.static import numbers
from streamsafe.static.numbers import Bounds, Form
from streamsafe.static.values import EACH, NONE, Api, Const, Name, Opaque, Partial, Picks, Value

_END = 1 << 62
_WHOLE = range(_END)


class ByKey(NamedTuple):
    """The key by which an element was picked of a list that does not tell its elements apart."""

    key: Hashable


Picked = range | str | Name | Bounds | frozenset[Name] | ByKey

ELLIPSIS = Api("Ellipsis")
ALL = Partial(Api("builtins.slice"), (NONE, NONE, NONE), ())
"""``:``, all there is along an axis."""


POSITION = "position"
"""The axis along which the elements of a list differ by where they stand."""

MODULES = "modules"
"""The axis along which gradients differ by the modules whose parameters they are of."""

ELEMENTS = "elements"
"""The shape of memory as a kernel sees it."""

OVERLAPPING = "overlapping"
"""A shape of which two elements may be one: what is picked of it tells nothing."""


class Layer(NamedTuple):
    """What is picked of one shape.

    Attributes:
        shape: which shape: None for the one the buffer was made with, else what made it of the one before: a name and
            constants, or a syntax node.
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


def pick(part: Hashable | None, keys: list[Value], form: Callable[[Value], Form | None]) -> Part | None:
    """The part of a part that a subscript picks; None for all of the buffer, or where that is not known.

    Args:
        part: the part of the buffer.
        keys: what is between the brackets.
        form: how a number is computed, None for what is none.
    """
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    last = layers[-1]
    if last.shape == OVERLAPPING:
        return layers
    picked, dropped = dict(last.picked), set(last.dropped)
    for axis, key in _places(keys, last):
        if isinstance(key, Const) and isinstance(key.value, str):
            picked["field"] = key.value
            break
        found = _along(key, picked.get(axis), form)
        if found is None:
            if _is_slice(key):
                continue
            break  # a new axis, a mask: what follows stands on no known axis
        if found == _WHOLE and axis not in picked:
            continue
        picked[axis] = found
        if not _is_slice(key):
            dropped.add(axis)
    result = (*layers[:-1], Layer(last.shape, _sorted(picked), frozenset(dropped)))
    return None if result == (Layer(),) else result


def _places(keys: list[Value], layer: Layer) -> Iterator[tuple[int, Value]]:
    """Each index with its axis: counted from the first one, after an ellipsis from the last one, which is -1."""
    cut = next((n for n, key in enumerate(keys) if key == ELLIPSIS), len(keys))
    for given, axis, step in ((keys[:cut], 0, 1), (keys[:cut:-1], -1, -1)):
        for key in given:
            while axis in layer.dropped:
                axis += step
            if any(
                type(a) is int and (a < 0) != (axis < 0) and a not in layer.dropped for a, _ in layer.picked
            ):
                return  # it may be the same axis, of which something is picked already
            yield axis, key
            axis += step


def _is_slice(key: Value) -> bool:
    return isinstance(key, Partial) and key.function == Api("builtins.slice")


def in_rounds(part: Hashable | None, rounds: Picks) -> Part:
    """The part that certain rounds of loops have picked: another round of the same loop picks another one."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    first = layers[0]
    return (first._replace(picked=_sorted(dict(rounds) | dict(first.picked))), *layers[1:])


def keys(part: Hashable | None) -> Iterator[Hashable]:
    """The keys by which a buffer was picked."""
    for _, what in part[0].picked if type(part) is tuple and part else ():
        if type(what) is ByKey:
            yield what.key


def without_keys(part: Hashable | None) -> Hashable | None:
    """A part, by whichever key its buffer was picked."""
    if type(part) is not tuple or not any(type(what) is ByKey for _, what in part[0].picked):
        return part
    picked = tuple(pick for pick in part[0].picked if type(pick[1]) is not ByKey)
    return touched((part[0]._replace(picked=picked), *part[1:]))


def all_of(part: Hashable | None) -> Part | None:
    """All that the rounds of loops that have picked a part may have picked."""
    return in_rounds(None, rounds(part)) if rounds(part) else None


def rounds(part: Hashable | None) -> Picks:
    """The rounds of loops that have picked a part."""
    if type(part) is not tuple:
        return ()
    return tuple(pick for pick in part[0].picked if isinstance(pick[0], Name))


def bare(part: Hashable | None) -> Hashable | None:
    """A part, whichever rounds of loops have picked it."""
    if type(part) is not tuple:
        return part
    return touched((_without_rounds(part[0]), *part[1:]))


def component(part: Hashable | None, which: str) -> Part:
    """The real or the imaginary numbers of a part."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    last = layers[-1]
    picked = dict(last.picked) | {"component": which}
    return (*layers[:-1], last._replace(picked=_sorted(picked)))


def field(key: Hashable) -> Part:
    """The part that is one attribute, or one element, of an object that holds several."""
    return (Layer(None, (("field", str(key)),)),)


def of_object(name: Name, what: Hashable, which: Hashable | None = None) -> Part:
    """The part that belongs to an object, of memory that many objects share.

    Args:
        name: the object.
        what: what the memory is; parts of something else are not compared.
        which: the part of all objects of that name that it is.
    """
    kept = () if type(which) is not tuple else tuple(p for p in which[0].picked if _distinguishes(p[0]))
    return (Layer(what, _sorted(dict(kept) | {"object": name})),)


def owner(part: Hashable | None) -> Name | None:
    """The object to which a part of memory that many share belongs."""
    found = part[0].on("object") if isinstance(part, tuple) and part else None
    return found if isinstance(found, Name) else None


def of_modules(part: Hashable | None, modules: frozenset[Name]) -> Part | None:
    """The part of all gradients that belongs to parameters of some modules; all of it where there are none."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer("gradient"),)
    if not modules:
        return None if part is None else layers
    return (layers[0]._replace(picked=_sorted(dict(layers[0].picked) | {MODULES: modules})), *layers[1:])


def distinguishing(part: Hashable | None) -> Picks:
    """What distinguishes the elements of a part of a list from others: their iterations, and where they stand."""
    if type(part) is not tuple:
        return ()
    at = part[0].on(0) if len(part) == 1 and part[0].shape is None else None
    return (*rounds(part), (POSITION, at)) if isinstance(at, (range, Bounds)) else rounds(part)


def _distinguishes(axis: Hashable) -> bool:
    """Whether what is picked along an axis tells an object from others of its name."""
    return axis in (POSITION, MODULES) or isinstance(axis, Name)


def object_of(part: Hashable | None) -> Name | None:
    """The object a part belongs to, None where it is none or a part of such a part."""
    layers = part if isinstance(part, tuple) else ()
    found = [p for p in layers[0].picked if not _distinguishes(p[0])] if len(layers) == 1 else []
    return found[0][1] if len(found) == 1 and found[0][0] == "object" else None


def reshaped(part: Hashable | None, shape: Hashable) -> Part:
    """The same memory with other axes."""
    layers: Part = part if isinstance(part, tuple) and part else (Layer(),)
    return (*layers, Layer(shape))


def elements(part: Hashable | None, itemsize: int, picked: range | Bounds) -> Part:
    """The elements of a part that a kernel touches, counted as they lie in memory."""
    shape = (ELEMENTS, itemsize)
    return (*reshaped(part, shape)[:-1], Layer(shape, ((0, picked),)))


def touched(part: Hashable | None) -> Hashable | None:
    """A part without the shapes of which nothing is picked; None for all of the buffer."""
    if type(part) is not tuple or part[-1].picked:
        return part
    left = len(part)
    while left and not part[left - 1].picked:
        left -= 1
    return part[:left] or None


def is_fixed(part: Hashable | None) -> bool:
    """Whether a part is the same each time: nothing in it depends on what a name holds."""
    return not isinstance(part, tuple) or all(
        (layer.shape is None or isinstance(layer.shape, (tuple, str)))
        and all(isinstance(what, (range, str)) for _, what in layer.picked)
        for layer in part
    )


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
            if (
                across is not None
                and _apart(picked, across)
                and not (axis == "object" and _is_iterated(picked))
            ):
                return True
        if one != other and _without_rounds(one) != _without_rounds(other):
            return False
    return False


def may_be_disjoint(first: Hashable | None, second: Hashable | None) -> bool:
    """Whether nothing says if two parts of a buffer, that slices and indices pick, have an element in common."""
    if not (isinstance(first, tuple) and isinstance(second, tuple)):
        return False
    for one, other in zip(first, second, strict=False):
        if one.shape != other.shape or (type(one.shape) is tuple and one.shape[0] == ELEMENTS):
            return False  # what kernels compute is compared as far as it can be
        for axis, picked in one.picked:
            across = other.on(axis)
            if isinstance(picked, (range, Bounds)) and isinstance(across, (range, Bounds)):
                if _unrelated(bounds_of(picked), bounds_of(across)):
                    return True
        if one != other:
            return False
    return False


def _unrelated(first: Bounds, second: Bounds) -> bool:
    """Whether nothing says where a slice lies to another one, or to an index; two indices may well be one."""
    if first == second or first.step == second.step == 0:
        return False
    if first.start is None or second.start is None:
        return True
    if first.start == second.start:
        return False
    one, other = (
        {name.base() if isinstance(name, Name) else name for name in bounds.names()}
        for bounds in (first, second)
    )
    return bool(one or other) and one.isdisjoint(other)


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


def _along(key: Value, before: Picked | None, form: Callable[[Value], Form | None]) -> Picked | None:
    """What an index or a slice picks along an axis, of what was picked of it before."""
    if before is not None and not isinstance(before, (range, Bounds)):
        return before
    is_slice = _is_slice(key)
    if not isinstance(before, Bounds):
        within = _WHOLE if before is None else before  # of an unknown length: long
        if isinstance(key, Const) and type(key.value) is int:
            at = within[key.value] if -len(within) <= key.value < len(within) else None
            return None if at is None else range(at, at + 1)
        given: list[Any] = [b.value if isinstance(b, Const) else ... for b in key.args] if is_slice else [...]  # type: ignore[attr-defined]
        if all(b is None or type(b) is int for b in given) and given[2:] != [0]:
            picked = within[slice(*given)]
            return picked if picked.step > 0 else picked[::-1]
    found = _slice(key, form) if is_slice else _index(key, form)  # type: ignore[arg-type]
    if before is None or found is None:
        return found if found is not None or before is None else before
    whole = bounds_of(before)
    if whole.start is None or whole.step != 1 or not numbers.positive(whole.start):
        return before
    if found.start is None or not numbers.positive(found.start):
        return before
    start, stop = (whole.start + found.start).fits(), whole.stop
    if found.stop is not None and numbers.positive(found.stop):
        stop = (whole.start + found.stop).fits()
    return Bounds(start, stop, found.step) if start is not None else before


def _index(key: Value, form: Callable[[Value], Form | None]) -> Bounds | None:
    name = key.name if isinstance(key, Opaque) else None
    start = form(key)
    if start is None:
        return Bounds(None, None, 0, name) if name is not None else None
    return Bounds(start, start + numbers.ONE, 0, name)


def place(key: Value, form: Callable[[Value], Form | None]) -> range | Bounds | None:
    """The position of one element that an index picks; None where nothing is known of it."""
    if isinstance(key, Const) and type(key.value) is int:
        return range(key.value, key.value + 1) if key.value >= 0 else None
    found = _index(key, form)
    return found if found is not None and found.start is not None else None


def _slice(key: Partial, form: Callable[[Value], Form | None]) -> Bounds | None:
    first, last, step = key.args
    by = 1 if step == NONE else step.value if isinstance(step, Const) and type(step.value) is int else 0
    start = numbers.NOTHING if first == NONE else form(first)
    stop = None if last == NONE else form(last)
    known = start is not None and (stop is not None or last == NONE) and by > 0
    names = [b.name for b in key.args if isinstance(b, Opaque)]
    # however long it is, what begins at the beginning begins where another such slice begins
    follows = (
        bool(names)
        and first not in (NONE, Const(0))
        and not (known and start is not None and numbers.counts_rounds(start))
    )
    name = names[0] if follows else None
    if known:
        return Bounds(start, stop, by, name)
    if start is not None and by > 0:  # where it begins is known
        return Bounds(start, None, by, name)
    return Bounds(None, None, 1, name) if name is not None else None


def bounds_of(picked: range | Bounds) -> Bounds:
    """Positions, as numbers."""
    if isinstance(picked, Bounds):
        return picked
    start = _position(picked[0]) if picked else numbers.NOTHING
    stop = _position(picked[-1] + 1) if picked and picked[-1] + 1 < _END else None
    return Bounds(start, stop, picked.step if len(picked) > 1 else 0)


def _position(number: int) -> Form:
    near = number < _END // 2
    return numbers.number(number) if near else numbers.of_atom(numbers.END) + numbers.number(number - _END)


def _is_iterated(picked: Picked) -> bool:
    """Whether an object is the element of a loop: its iterations distinguish it, and another loop reaches it again."""
    return isinstance(picked, Name) and any(name.site == EACH for name in picked.chain())


def _apart(first: Picked, second: Picked) -> bool:
    if isinstance(first, range) and isinstance(second, range):
        return not _intersect(first, second)
    if isinstance(first, str) and isinstance(second, str):
        return first != second
    if isinstance(first, Name) and isinstance(second, Name):
        return _of_other_rounds(first, second)
    if isinstance(first, frozenset) and isinstance(second, frozenset):
        return first.isdisjoint(second)
    if not (isinstance(first, (range, Bounds)) and isinstance(second, (range, Bounds))):
        return False
    if first == range(0) or second == range(0):  # there is nothing
        return True
    one, other = bounds_of(first), bounds_of(second)
    if one.name is not None and other.name is not None and _of_other_rounds(one.name, other.name):
        return True
    return numbers.apart(one, other)


def _of_other_rounds(first: Name, second: Name) -> bool:
    """Whether this is the same expression in two iterations of a loop: a loop goes on, it does not come back."""
    return first != second and first.base() == second.base()


def _intersect(first: range, second: range) -> bool:
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
