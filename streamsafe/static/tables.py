"""What one object holds, under names and keys, and what it may hold after two paths have joined."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import element_keys
from streamsafe.static.fields import ASSUMED_CLASS, FIELDS, ITEMS_REMOVED, KEYS, LAST_ITEM, LENGTH, Field
from streamsafe.static.values import (
    Const,
    Container,
    Event,
    Function,
    Instance,
    Name,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    conditions_in,
    either,
    iterate,
    led_to,
    union,
)


class Table(dict[Hashable, Value]):
    """What one object holds."""

    __slots__ = ("_conditions", "_leads", "known_mentioned")

    _conditions: int
    _leads: frozenset[Name]
    known_mentioned: frozenset[Name]

    def conditions(self) -> int:
        """The conditions on which it depends what is held; the table must not change any more."""
        try:
            return self._conditions
        except AttributeError:
            found = 0
            for value in self.values():
                if type(value) is Union or type(value) is Tuple:
                    found |= conditions_in(value)
            self._conditions = found
            return found

    def leads(self) -> frozenset[Name]:
        """The objects that what is held leads to, fields apart that hold none and are no functions to be called later;
        the table must not change any more.
        """
        try:
            return self._leads
        except AttributeError:
            held = (
                v
                for k, v in self.items()
                if type(v) is not Const and (type(k) is not Field or k.holds or _is_called(v))
            )
            self._leads = frozenset(led_to(held))
            return self._leads

    def mentioned(self, owner: Name) -> frozenset[Name]:
        """The newest of every name that its owner's and the values speak of; the table must not change any more."""
        try:
            return self.known_mentioned
        except AttributeError:
            names = set(owner.family())

            def note(name: Name) -> Name:
                names.update(name.family())
                return name

            left = [value for value in self.values() if type(value) is not Const]
            while left:
                value = left.pop()
                if type(value) is Union:
                    left.extend([inner for inner, _ in value.alternatives])
                elif type(value) is Tuple:
                    left.extend(value.items)
                elif type(value) in _SPANS and value.part is None:  # type: ignore[attr-defined]
                    names |= value.name.family()  # type: ignore[attr-defined]
                elif type(value) is not Const:
                    value.rename(note)
            for key in self:
                if type(key) is tuple:
                    names.update(name.newest() for name in element_keys.mentioned(key))
            self.known_mentioned = frozenset(names)
            return self.known_mentioned


_SPANS = (Opaque, Tensor, Container, Instance)


def _is_called(value: Value) -> bool:
    """Whether a field is of functions that somebody will call, of hooks for one."""
    return any(type(v) in (Function, Partial) for v in iterate(value))


def _along(value: Value, path: Guard) -> Value:
    """What a value may be on a path; what the path has settled its guards need not say."""
    if type(value) is not Union or path == ALWAYS:
        return value
    return union((v, g.without(path)) for v, g in value.alternatives if not path.contradicts(g))


def _kept_to(table: Table, path: Guard) -> Table:
    """What an object of which one path alone knows may hold: nothing that is so on the other one only."""
    if not table.conditions() & (path.true | path.false):
        return table
    kept = {
        key: union((v, g) for v, g in value.alternatives if not path.contradicts(g))
        for key, value in table.items()
        if type(value) is Union and any(path.contradicts(g) for _, g in value.alternatives)
    }
    return Table({**table, **kept}) if kept else table


EMPTY = Table()

_OF_A_PATH = frozenset(each for each in FIELDS.values() if each.everywhere) | {ITEMS_REMOVED}
"""Fields of which not all that they say holds when paths have joined."""


def _stays(owner: Name, alone: Table, is_opaque: Callable[[Name], bool]) -> bool:
    """Whether an object of which one path knows holds the same when the paths have joined."""
    if not _OF_A_PATH.isdisjoint(alone):
        return False
    if ASSUMED_CLASS in alone or not is_opaque(owner):
        return True
    return not any(isinstance(key, str) and key[:1] not in ("*", "[") for key in alone)


def _other_event(table: Table) -> Value | None:
    """The event that a container gives for a key on a path which has put it under what may be the same key."""
    held = [v for k, value in table.items() if k == "*" or type(k) is tuple for v in iterate(value)]
    if KEYS in table or not held or not all(type(v) is Event for v in held):
        return None
    return union((v, ALWAYS) for v in held)


def _is_spread(one: Table, other: Table) -> bool:
    """Whether a list has known places on one path, and on the other one any element may stand at any."""
    return LENGTH in one and "*" in other and LENGTH not in other


def joined(
    owner: Name,
    left: Table,
    right: Table,
    left_only: Guard,
    right_only: Guard,
    path: Guard,
    is_opaque: Callable[[Name], bool],
) -> Table:
    """What one object may hold when either path was taken; one of the tables itself where it has all there is.

    Args:
        owner: the object.
        left, right: what it holds on either path.
        left_only, right_only: what tells a path from the other one.
        path: what both have settled.
        is_opaque: whether an object is one of which not everything is known.
    """
    if not (left and right) and _stays(owner, alone := left or right, is_opaque):
        return _kept_to(alone, left_only if left else right_only)
    unlike = [key for key, one in left.items() if one is not (other := right.get(key)) and one != other]
    unlike += [key for key in right if key not in left]
    if not unlike:
        return left
    known = ASSUMED_CLASS in left or ASSUMED_CLASS in right
    opaque = not known and is_opaque(owner)
    taken = (ITEMS_REMOVED in left and LENGTH in left) or (ITEMS_REMOVED in right and LENGTH in right)
    taken = taken or _is_spread(left, right) or _is_spread(right, left)
    table = Table(left)
    loose: list[tuple[Value, Guard]] = []
    for key in unlike:
        one, other = left.get(key), right.get(key)
        if taken and type(key) is int and (one is None or other is None):
            loose.append((one, left_only) if one is not None else (other, right_only))  # type: ignore[arg-type]
            table.pop(key, None)
            continue  # where it has left, another one may come to stand
        if one is None or other is None:
            default: Value | None = None
            if type(key) is Field:
                if key.everywhere or (key.where_known and left and right):
                    table.pop(key, None)
                    continue  # not known on both paths; what was made on one of them is what it is there
                default = key.default if left and right else None
                if key is LAST_ITEM and (left if one is None else right).get(LENGTH) == Const(0):
                    default = None  # an empty list has no last one
            elif opaque and isinstance(key, str) and key[:1] not in ("*", "["):
                default = Opaque(owner.child(key))  # what it is before anything is assigned to it
            if isinstance(one or other, Stream) and default == Opaque((one or other).name):  # type: ignore[union-attr]
                default = None  # made on first use: it is this one, whoever was the first
            may_be_same = type(key) is not Field and not (isinstance(key, str) and key[:1] == "*")
            if default is None and left and right and may_be_same:
                default = _other_event(right if other is None else left)
            if default is None or default in (one, other):
                table[key] = one if one is not None else other  # type: ignore[assignment]
                continue
            one, other = one or default, other or default
        elif type(key) is Field and key.agreed:
            del table[key]
            continue
        table[key] = either(_along(one, path), left_only, _along(other, path), right_only)
    if loose:
        rest = table.get("*")
        table["*"] = union([*([(rest, ALWAYS)] if rest is not None else []), *loose])
    return table
