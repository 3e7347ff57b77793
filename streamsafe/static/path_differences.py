"""How the states of two paths differ: iterations of a loop, branches."""

from __future__ import annotations

from collections.abc import Iterator

from streamsafe.order.forks import differing
from streamsafe.static.sequences import SOME
from streamsafe.static.state import Key, State, is_falsy
from streamsafe.static.values import Event, Name, Opaque, Stream, Tensor, Union, Value, iterate


def split(st: State, owner: Name) -> Iterator[tuple[Key, Union]]:
    """What an object or a scope holds that is false or not, and conditions say which."""
    for name, value in list(st.store.of(owner).items()):
        if not isinstance(value, Union) or (isinstance(name, str) and name[0] == "@" and name != SOME):
            continue
        empty, full = ([g for v, g in value.alternatives if is_falsy(v) is w] for w in (True, False))
        if empty and full and all(a.contradicts(b) for a in empty for b in full):
            yield (owner, name), value


def says(value: Union, bit: int, *, turned: bool = False) -> bool:
    """Whether the guards of a value's alternatives already say by a condition which of them is false.

    Args:
        value: what an attribute may be.
        bit: the condition.
        turned: it says which of them is not.
    """
    return all((g.true if is_falsy(v) is not turned else g.false) & bit for v, g in value.alternatives)


def false_in_one(first: State, second: State) -> list[Key]:
    """Attributes that are a false constant in one of two states and something else in the other."""
    found: list[Key] = []
    for owner in differing(first.store.objects, second.store.objects):
        table, other = first.store.of(owner), second.store.of(owner)
        if not table or not other or other is table:
            continue
        for key, value in table.items():
            against = other.get(key)
            if against is None or against is value or (isinstance(key, str) and key.startswith("@")):
                continue
            if {is_falsy(v) for v in iterate(value)} ^ {is_falsy(v) for v in iterate(against)} == {
                True,
                False,
            }:
                found.append((owner, key))
    return found


def exchanged(before: State, after: State) -> dict[Key, Value]:
    """The names that exchange what they hold on the way from one state to another, with what they held."""
    moved = {
        (owner, key): value
        for owner in differing(before.store.objects, after.store.objects)
        if (table := after.store.of(owner)) is not (old := before.store.of(owner))
        for key, value in old.items()
        if (new := table.get(key, value)) is not value
        and new != value
        and all(isinstance(v, (Tensor, Opaque, Stream, Event)) for v in iterate(value))
    }
    return {
        key: value
        for key, value in moved.items()
        for other_key, other in moved.items()
        if key != other_key and after.store.get(key) == other and after.store.get(other_key) == value
    }
