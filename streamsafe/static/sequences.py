"""Lists of which every position is known, dicts of which every key is; where that is lost, a summary is left."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static.values import UNKNOWN, Const, Container, Name, Value, alternatives, union

if TYPE_CHECKING:
    from streamsafe.static.state import State

LIMIT = 12
"""A longer list is known by its summary alone."""

SOME = "@some"
"""Under this a list keeps whether it holds something."""

FIXED = "@as many"
"""Under this a list notes that nothing was added or taken out since it was made of no one knows how many."""

COUNTED = "@counted"
"""Under this a list keeps what stands for its length, until something is added or taken out."""

TIMES = "@times"
"""Under this a list that was made by ``[x] * n`` keeps ``n``: where it has an element that is not 0."""

BOUNDED = "@bounded"
"""Under this a deque notes that it holds so many elements at most: what joins it at one end may push one out."""

FEW = 4
"""Of how many streams at most it is known which one is picked."""


def length(st: State, container: Container) -> int | None:
    """How many elements there are; None where that is not known."""
    found = st.store.get((container.name, "@length"))
    return found.value if isinstance(found, Const) and isinstance(found.value, int) else None


def is_fixed(st: State, container: Container) -> bool:
    """Whether there are as many elements as there were when it was made, how many it may be."""
    return (container.name, FIXED) in st.store


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
    st.store[(container.name, "@length")] = Const(len(values))
    st.store[(container.name, SOME)] = Const(bool(values))
    set_end(st, container, FRONT, values[0] if values else None)
    set_end(st, container, LAST, values[-1] if values else None)


def _changed(st: State, container: Container) -> None:
    """Something was added or taken out, or may have been."""
    for noted in (FIXED, COUNTED):
        st.store.pop((container.name, noted), None)


def set_some(st: State, container: Container, value: Value | None) -> None:
    """Whether a list holds something, on the paths on which it does; None where that is not known."""
    _changed(st, container)
    if value is None:
        st.store.pop((container.name, SOME), None)
    else:
        st.store[(container.name, SOME)] = value


def some(st: State, container: Container) -> list[tuple[bool, Guard]]:
    """Whether there is an element, with the paths on which there is or is not; nothing where that is not known."""
    found = st.store.get((container.name, SOME))
    if found is None:
        return []
    return [(v.value is True, g) for v, g in alternatives(found, st.path) if isinstance(v, Const)]


FRONT, LAST = "@front", "@last"
"""Under these it is kept which element was found at the head, and which one is the last, also where it is not known
how many there are.
"""


def at_end(st: State, container: Container, end: str) -> Value | None:
    """The element at one end of a list or queue, which nothing has moved from there since."""
    found = st.store.get((container.name, end))
    here = alternatives(found, st.path) if found is not None else []
    return union(here) if here and all(v != UNKNOWN for v, _ in here) else None


def set_end(st: State, container: Container, end: str, value: Value | None) -> None:
    """This element is at that end; any, or none, where it is None."""
    _changed(st, container)
    if value is None:
        st.store.pop((container.name, end), None)
    else:
        st.store[(container.name, end)] = value


def ends(st: State, container: Container) -> dict[str, Value | None]:
    """The elements at both ends, as far as they are known."""
    known = items(st, container)
    if known:
        return {FRONT: known[0], LAST: known[-1]}
    return {end: st.store.get((container.name, end)) for end in (FRONT, LAST)}


def moved(st: State, container: Container) -> None:
    """Any element may be at either end."""
    _changed(st, container)
    for end in (FRONT, LAST):
        st.store.pop((container.name, end), None)


def blur(st: State, container: Container) -> None:
    """Which element stands where is no longer known."""
    set_some(st, container, None)
    moved(st, container)
    if st.store.pop((container.name, "@length"), None) is not None:
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
    found = st.store.get((container.name, "@keys"))
    return found.value if isinstance(found, Const) else None


def set_keys(st: State, container: Container, known: Iterable[Hashable] | None) -> None:
    """A dict has these keys from now on, or any."""
    if known is None:
        st.store.pop((container.name, "@keys"), None)
    else:
        st.store[(container.name, "@keys")] = Const(frozenset(known))


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
    found = ((owner, table.get("@length")) for owner, table in st.store.objects.items())
    return {owner: value for owner, value in found if value is not None}
