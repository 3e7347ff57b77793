"""Lists of which every position is known, dicts of which every key is; where that is lost, a summary is left."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static.values import UNKNOWN, Const, Container, Name, Value, alternatives, union

if TYPE_CHECKING:
    from streamsafe.static.state import State

LIMIT = 12
"""A longer list is known by its summary alone."""

FEW = 4
"""So many streams of which one is picked are told apart by which it is."""


def length(st: State, container: Container) -> int | None:
    """How many elements there are; None where that is not known."""
    found = st.store.get((container.name, "@length"))
    return found.value if isinstance(found, Const) and isinstance(found.value, int) else None


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
    for position in range(len(values), length(st, container) or 0):
        st.store.pop((container.name, position), None)
    for position, value in enumerate(values):
        st.store[(container.name, position)] = value
    st.store[(container.name, "@length")] = Const(len(values))


def front(st: State, container: Container) -> Value | None:
    """The element that was found at the head of a list or queue, which nothing has taken from there since."""
    found = st.store.get((container.name, "@front"))
    known = found is not None and all(v != UNKNOWN for v, _ in alternatives(found, st.path))
    return found if known else None


def set_front(st: State, container: Container, value: Value | None) -> None:
    """This element is at the head, or any."""
    if value is None:
        st.store.pop((container.name, "@front"), None)
    else:
        st.store[(container.name, "@front")] = value


def blur(st: State, container: Container) -> None:
    """Which element stands where is no longer known."""
    if st.store.pop((container.name, "@length"), None) is None:
        return
    held = [(key, value) for key, value in st.store.of(container.name).items() if isinstance(key, int)]
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


def lengths(st: State) -> dict[Name, Value]:
    """The lengths that are known, by list."""
    found = ((owner, table.get("@length")) for owner, table in st.store.objects.items())
    return {owner: value for owner, value in found if value is not None}
