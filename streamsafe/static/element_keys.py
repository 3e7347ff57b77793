"""What identifies an element: a constant, or the object that holds the key and the iterations of loops it belongs to.

Each iteration (round) of a loop has another element. That element is a part of the whole (``parts.in_rounds``), and so
is what the iteration finds under a key of its own: two iterations of one loop never mean the same element; an iteration
and what comes before or after the loop may.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields, hints, parts
from streamsafe.static.values import (
    ANY,
    EACH,
    PAST,
    UNKNOWN,
    Api,
    Const,
    Device,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Picks,
    Renaming,
    Span,
    Tensor,
    Text,
    Tuple,
    Union,
    Value,
    all_newest,
    rename_picks,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.state import State

UNSURE = "?"
"""What a key begins with of which a part is not known."""

IDENTITY = "is"
"""What a key begins with that is an object made in sight: another object is another key."""

ROUND = "round"
"""What stands for one round of a loop."""

_OBJECTS = (("[]",), (IDENTITY,))


def key_of(value: Value) -> Hashable | None:
    """What an index is remembered by; None where that is not known."""
    if isinstance(value, Const) and value.value is not ... and isinstance(value.value, (int, str, bool)):
        return value.value
    if isinstance(value, Opaque):
        rounds = rounds_of(value)
        return ("[]", value.name, rounds) if rounds else ("[]", value.name)
    if isinstance(value, (Tensor, Instance)):  # by identity; a part of one is another object
        rounds = parts.rounds(value.part)
        if value.part is not None and not rounds:
            return None
        return (IDENTITY, value.name, rounds) if rounds else (IDENTITY, value.name)
    if isinstance(value, Union):  # whichever it is, it is the same where it is asked for again
        rounds = rounds_of(value)
        names: frozenset[Hashable] = frozenset(
            v.name if isinstance(v, Opaque) else ("constant", v.value)
            for v, _ in value.alternatives
            if isinstance(v, Opaque) or (isinstance(v, Const) and type(v.value) in (int, str))
        )
        if len(names) < len(value.alternatives):
            return None
        return ("[]", names, rounds) if rounds else ("[]", names)
    if isinstance(value, Api):
        return ("api", value.name)
    if (
        isinstance(value, Device) and value.kind != "cpu"
    ):  # that of a tensor: one, if nothing tells of another
        return ("[]", value.name) if value.name is not None else ("device",)
    if isinstance(value, (Tuple, Text)):
        keys = tuple(key_of(v) for v in (value.items if isinstance(value, Tuple) else value.parts))
        if isinstance(value, Text):
            keys = ("text", *keys)
        return (UNSURE, *keys) if any(map(is_unsure, keys)) else keys
    return None


def index_of(key: Value) -> Hashable:
    """What an element of an object of unknown kind is called by its index."""
    index = key_of(key)
    return ANY if is_unsure(index) else f"[{index!r}]" if isinstance(index, str) else index


def value_of(key: Hashable) -> Value:
    """What is remembered by a key, as far as it is known."""
    if type(key) is not tuple:
        return Const(key)
    if key[:1] == ("[]",) and isinstance(key[1], Name):
        return Opaque(key[1], part=parts.in_rounds(None, key[2]) if len(key) > 2 else None)
    if key[:1] == (IDENTITY,):
        return Tensor(key[1], part=parts.in_rounds(None, key[2]) if len(key) > 2 else None)
    if key[:1] == ("api",):
        return Api(key[1])
    return UNKNOWN


def is_unsure(key: Hashable | None) -> bool:
    """Whether a part of a key is not known: it may be equal to another that looks like it, and need not be."""
    return key is None or (type(key) is tuple and key[:1] == (UNSURE,))


def rounds_of(key: Value) -> Picks:
    """The iterations of loops that a key belongs to, or what distinguishes its loop's elements from those of others."""
    if isinstance(key, (Tuple, Text)):
        parts_ = key.items if isinstance(key, Tuple) else key.parts
        return tuple(dict(pick for v in parts_ for pick in rounds_of(v)).items())
    if isinstance(key, Union):
        # a list of constants takes the place of another where there is none: its rounds go by the same loop
        found = [rounds_of(v) for v, _ in key.alternatives if not isinstance(v, Const)]
        return tuple(pick for pick in found[0] if all(pick in other for other in found)) if found else ()
    if isinstance(key, (Tensor, Instance)):
        return parts.rounds(key.part)
    if not isinstance(key, Opaque) or key.part is None:
        return ()
    name, site = key.name, key.name.site
    first = site == 0 and name.parent is not None and name.parent.site == EACH
    iterated = site == EACH or _is_counted(site) or (type(site) is tuple and site[0] == "[]")
    return parts.rounds(key.part) if iterated or first or hints.identifies(site) else ()


def begin(st: State, round_: Name, *, first: bool) -> None:
    """A round of a loop begins."""
    if first:
        st.store.mark(round_, fields.FIRST_ROUND)
    else:
        st.store.pop((round_, fields.FIRST_ROUND), None)


def first_of(value: Value, st: State) -> Opaque | None:
    """The element of a loop's first iteration, as the first one of what is iterated over."""
    if not isinstance(value, Opaque) or value.name.site != EACH or value.name.parent is None:
        return None
    begins = any(
        isinstance(what, Name) and st.store.marked(what, fields.FIRST_ROUND) for _, what in rounds_of(value)
    )
    return Opaque(value.name.parent.child(0)) if begins else None


def is_iterated(value: Span) -> bool:
    """Whether a value is the element of some iteration."""
    return bool(parts.rounds(value.part)) or any(name.site == EACH for name in value.name.chain())


def in_rounds(value: Value, rounds: Picks) -> Value:
    """A value as an element of those iterations."""
    if not rounds:
        return value
    if isinstance(value, Span):
        return value.placed(value.name, parts.in_rounds(value.part, rounds))
    if isinstance(value, Tuple):
        return Tuple(tuple(in_rounds(v, rounds) for v in value.items))
    if isinstance(value, Partial):
        given = tuple(_given(v, rounds) for v in value.args)
        kwargs = tuple((k, _given(v, rounds)) for k, v in value.kwargs)
        return Partial(value.function, given, kwargs, value.grid and _given(value.grid, rounds))
    if isinstance(value, Union):
        return union((in_rounds(v, rounds), g) for v, g in value.alternatives)
    return value


def at_place(held_by: Object, place: parts.Picked) -> Picks:
    """What tells the element at a place of a list or dict from those at others, whatever stands for them."""
    return ((held_by.name.base().child("*"), place),)


def picked_by(value: Value, listed: Object, key: Hashable) -> Value:
    """A tensor that may be any of a list, with the key by which it was picked."""
    every = listed.name.base().child("*")
    if isinstance(value, Tensor) and not any(at is every for at, _ in parts.rounds(value.part)):
        return in_rounds(value, ((listed.name.base().child("key"), parts.ByKey(key)),))
    if isinstance(value, Union):
        return union((picked_by(v, listed, key), g) for v, g in value.alternatives)
    return value


def _given(value: Value, rounds: Picks) -> Value:
    """What a callable of those iterations was given: what was there before them, and is no element, they share."""
    shared = type(value) is Opaque and all(name.site not in (EACH, ANY) for name in value.name.chain())
    return value if shared else in_rounds(value, rounds)


def bare(key: Hashable) -> Hashable:
    """A key, whichever rounds it is of."""
    if type(key) is not tuple:
        return key
    return key[:2] if key[:1] in _OBJECTS else tuple(map(bare, key))


def apart(first: Hashable, second: Hashable) -> bool:
    """Whether two keys are of different rounds of one loop, or differ in what is known of both."""
    first, second = _settled(first), _settled(second)
    if isinstance(first, str) and isinstance(second, str):
        return first != second
    if type(first) is int and type(second) is int:
        return first != second and (first < 0) == (second < 0)  # others may count from the end
    if _is_text(first) or _is_text(second):
        return _begin_apart(first, second)
    if type(first) is not tuple or type(second) is not tuple or len(first) != len(second):
        return False
    if first[:1] == second[:1] and first[:1] in _OBJECTS:
        others = dict(second[2]) if len(second) > 2 else {}
        return len(first) > 2 and any(others.get(axis, what) is not what for axis, what in first[2])
    return any(map(apart, first, second))


def _settled(key: Hashable) -> Hashable:
    """A key without the mark that a part of it is not known."""
    return key[1:] if type(key) is tuple and key[:1] == (UNSURE,) else key


def _is_text(key: Hashable) -> bool:
    return type(key) is tuple and key[:1] == ("text",)


def _begin_apart(first: Hashable, second: Hashable) -> bool:
    """Whether two strings, of which parts are not known, begin differently."""
    heads = [key[1] if _is_text(key) and len(key) > 1 else key for key in (first, second)]  # type: ignore[arg-type,index]
    if not all(isinstance(head, str) for head in heads):
        return False
    length = min(map(len, heads))  # type: ignore[arg-type]
    return bool(heads[0][:length] != heads[1][:length])  # type: ignore[index]


def under(table: Mapping[Hashable, Value], key: Hashable) -> Value | None:
    """What is held under a key: put there in the same round, or outside the loop."""
    if is_unsure(key):
        return None
    found = table.get(key)
    if found is not None or type(key) is not tuple:
        return found
    found = table.get(bare(key))
    return table.get(("[]", key[1])) if found is None and key[:1] == (IDENTITY,) else found


def refilled(table: Mapping[Hashable, Value], key: Hashable = None) -> Value | None:
    """What loops that are over have put under their keys, as far as it may be found under this one."""
    found = [v for k, v in table.items() if is_iterated_key(k) and not apart(k, key)]
    return union((v, ALWAYS) for v in found) if found else None


def is_iterated_key(key: Hashable) -> bool:
    """Whether a key belongs to the elements of a loop that is over."""
    name = key[1] if type(key) is tuple and key[:1] == ("[]",) and len(key) == 2 else None
    return isinstance(name, Name) and (name.site == EACH or _is_counted(name.site))


def _is_counted(site: Hashable) -> bool:
    return type(site) is tuple and site[-1] in ("index", "key")


def rename_key(key: Hashable, renaming: Renaming) -> Hashable:
    """A key after iterations have passed."""
    if type(key) is not tuple:
        return key
    if key[:1] not in _OBJECTS:
        new = tuple(rename_key(k, renaming) for k in key)
        return key if new == key else new
    name = key[1]
    if key[0] == IDENTITY:
        name = renaming(name)
        if name.age > 1:  # it stands for several
            return (UNSURE, name)
    if len(key) < 3:
        return key if name is key[1] else (key[0], name)
    rounds = rename_picks(key[2], renaming)
    return (key[0], name, rounds) if rounds else (key[0], name)


def mentioned(key: Hashable) -> Iterator[Name]:
    """The rounds that a key is of."""
    if type(key) is tuple:
        if key[:1] not in _OBJECTS:
            for inner in key:
                yield from mentioned(inner)
            return
        if key[0] == IDENTITY:
            yield key[1]
        if len(key) > 2:
            yield from (what for _, what in key[2] if isinstance(what, Name))  # not a place


def is_of_loop(name: Name) -> bool:
    """Whether a name stands for an iteration or its element, not for an object that the iteration makes."""
    return name.site == EACH or (type(name.site) is tuple and name.site[-1] == ROUND)


def leave(st: State, made: set[Name], iterated: set[Name]) -> None:
    """A loop is over: its elements are no longer distinguished, and another loop reaches them again.

    Args:
        st: what is known after it; changed in place.
        made: the objects that its rounds have made.
        iterated: the elements of what it has iterated over.
    """
    over = {name for name in made if name.site != EACH and is_of_loop(name)}
    if over or iterated:
        again = all_newest(iterated)
        st.rename(lambda name: PAST if name.base() in over else again(name), over | iterated)


def transplanted(name: Name, old: Name, new: Name) -> Name | None:
    """A part of one object as the same part of another; None for what is no part of it."""
    if name is old:
        return new
    if name.parent is None:
        return None
    parent = transplanted(name.parent, old, new)
    return Name(name.site, name.path, parent, name.age) if parent is not None else None
