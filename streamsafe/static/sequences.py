"""Lists of which every position is known, dicts of which every key is; where that is lost, a summary is left."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields
from streamsafe.static.values import UNKNOWN, Const, Container, Name, Value, alternatives, union

if TYPE_CHECKING:
    from streamsafe.static.state import State

LIMIT = 12
"""A longer list is known by its summary alone."""

FEW = 4
"""Of how many streams at most it is known which one is picked."""


def length(st: State, container: Container) -> int | None:
    """How many elements there are; None where that is not known."""
    found = st.store.one(container.name, fields.LENGTH)
    return found.value if found is not None and isinstance(found.value, int) else None


def is_fixed(st: State, container: Container) -> bool:
    """Whether there are as many elements as there were when it was made, how many it may be."""
    return st.store.marked(container.name, fields.LENGTH_UNCHANGED)


def items(st: State, container: Container) -> list[Value] | None:
    """The elements in their order; None where that is not known."""
    count = length(st, container)
    if count is None:
        return None
    found = []
    for position in range(count):
        value = st.store.get((container.name, position))
        if value is None:
            return None
        found.append(value)
    return found


def put(st: State, container: Container, values: list[Value]) -> None:
    """A list has these elements from now on."""
    held = st.store.of(container.name)
    for position in [key for key in held if type(key) is int and key >= len(values)]:
        del st.store[(container.name, position)]
    for position, value in enumerate(values):
        st.store[(container.name, position)] = value
    st.store[(container.name, fields.LENGTH)] = Const(len(values))
    st.store[(container.name, fields.HAS_ITEMS)] = Const(bool(values))
    set_end(st, container, fields.FIRST_ITEM, values[0] if values else None)
    set_end(st, container, fields.LAST_ITEM, values[-1] if values else None)


def _changed(st: State, container: Container) -> None:
    """Something was added or taken out, or may have been."""
    for noted in (fields.LENGTH_UNCHANGED, fields.SYMBOLIC_LENGTH):
        st.store.pop((container.name, noted), None)


def set_some(st: State, container: Container, value: Value | None) -> None:
    """Whether a list holds something, on the paths on which it does; None where that is not known."""
    _changed(st, container)
    if value is None:
        st.store.pop((container.name, fields.HAS_ITEMS), None)
    else:
        st.store[(container.name, fields.HAS_ITEMS)] = value


def some(st: State, container: Container) -> list[tuple[bool, Guard]]:
    """Whether there is an element, with the paths on which there is or is not; nothing where that is not known."""
    found = st.store.get((container.name, fields.HAS_ITEMS))
    if found is None:
        return []
    return [(v.value is True, g) for v, g in alternatives(found, st.path) if isinstance(v, Const)]


def at_end(st: State, container: Container, end: fields.Field[Value]) -> Value | None:
    """The element at one end of a list or queue, which nothing has moved from there since."""
    found = st.store.get((container.name, end))
    here = alternatives(found, st.path) if found is not None else []
    return union(here) if here and all(v != UNKNOWN for v, _ in here) else None


def set_end(st: State, container: Container, end: fields.Field[Value], value: Value | None) -> None:
    """This element is at that end; any, or none, where it is None."""
    _changed(st, container)
    if value is None:
        st.store.pop((container.name, end), None)
    else:
        st.store[(container.name, end)] = value


def ends(st: State, container: Container) -> dict[fields.Field[Value], Value | None]:
    """The elements at both ends, as far as they are known."""
    known = items(st, container)
    if known:
        return {fields.FIRST_ITEM: known[0], fields.LAST_ITEM: known[-1]}
    return {end: st.store.get((container.name, end)) for end in (fields.FIRST_ITEM, fields.LAST_ITEM)}


def moved(st: State, container: Container) -> None:
    """Any element may be at either end."""
    _changed(st, container)
    for end in (fields.FIRST_ITEM, fields.LAST_ITEM):
        st.store.pop((container.name, end), None)


def blur(st: State, container: Container) -> None:
    """Which element stands where is no longer known."""
    set_some(st, container, None)
    moved(st, container)
    if st.store.pop((container.name, fields.LENGTH), None) is not None:
        scatter(st, container)


def scatter(st: State, container: Container) -> None:
    """What stood at known positions may stand at any."""
    held = [(key, value) for key, value in st.store.of(container.name).items() if type(key) is int]
    for key, _ in held:
        del st.store[(container.name, key)]
    old = st.store.get((container.name, "*"))
    values = [value for _, value in held] + ([old] if old is not None else [])
    if values:
        st.store[(container.name, "*")] = union((value, ALWAYS) for value in values)


def keys(st: State, container: Container) -> frozenset[Hashable] | None:
    """The keys of a dict; None where they are not known."""
    found = st.store.one(container.name, fields.KEYS)
    return found.value if found is not None else None


def set_keys(st: State, container: Container, known: Iterable[Hashable] | None) -> None:
    """A dict has these keys from now on, or any."""
    if known is None:
        st.store.pop((container.name, fields.KEYS), None)
    else:
        st.store[(container.name, fields.KEYS)] = Const(frozenset(known))


def open_to_others(st: State, owner: Name, counts: Set[str]) -> None:
    """An object was made elsewhere: whoever has it may have filled the dicts that its constructor left empty.

    And may have counted: of the attributes of these names the number is not known.
    """
    for key, value in list(st.store.of(owner).items()):
        empty = isinstance(value, Container) and value.kind == "dict" and keys(st, value) == frozenset()
        if empty or (key in counts and isinstance(value, Const) and type(value.value) is int):
            del st.store[(owner, key)]


def lengths(st: State) -> dict[Name, Value]:
    """The lengths that are known, by list."""
    found = ((owner, table.get(fields.LENGTH)) for owner, table in st.store.objects.items())
    return {owner: value for owner, value in found if value is not None}
