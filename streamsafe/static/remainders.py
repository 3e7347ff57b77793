"""Which remainder a number has that is counted up, whatever else is known of it: ``slots[i % 2]``, ``i += 1``."""

from __future__ import annotations

from collections.abc import Iterable

from streamsafe.order.symbolic import Guard
from streamsafe.static.source import remainder
from streamsafe.static.state import Key, State
from streamsafe.static.values import UNKNOWN, Const, Name, Opaque, Value, alternatives, union


def keep(st: State, owner: Name, name: str, by: Iterable[int], value: Value) -> None:
    """A name or an attribute of which remainders are asked means this number from now on.

    Args:
        st: changed in place.
        owner: the scope or the object.
        name: what it is called there.
        by: by which numbers its remainders are asked.
        value: the number.
    """
    for number in by:
        _put(st, (owner, remainder(name, number)), _after(value, 0, number, st))


def after(st: State, owner: Name, name: str, by: Iterable[int], step: int) -> dict[int, Value]:
    """What the remainders will be when so much has been added, by what they are remainders of."""
    told = {number: st.store.get((owner, remainder(name, number))) for number in by}
    return {number: _after(value, step, number, st) for number, value in told.items() if value is not None}


def put(st: State, owner: Name, name: str, told: dict[int, Value]) -> None:
    """The remainders of what a name or an attribute means are these."""
    for number, value in told.items():
        _put(st, (owner, remainder(name, number)), value)


def tell(st: State, number: Name, told: dict[int, Value]) -> None:
    """The remainders of a number of which else nothing is known are these."""
    put(st, number, "", told)


def asked(st: State, owner: Name, name: str, by: int, ahead: int) -> Value | None:
    """What ``(name + ahead) % by`` is, where that is known."""
    return after(st, owner, name, [by], ahead).get(by)


def _after(value: Value, step: int, by: int, st: State) -> Value:
    found: list[tuple[Value, Guard]] = []
    for one, guard in alternatives(value, st.path):
        known = st.store.get((one.name, remainder("", by)), one) if isinstance(one, Opaque) else one
        for number, condition in alternatives(known, st.path):
            if not isinstance(number, Const) or type(number.value) is not int:
                return UNKNOWN
            found.append((Const((number.value + step) % by), guard & condition))
    return union(found)


def _put(st: State, key: Key, value: Value) -> None:
    if value == UNKNOWN:
        st.store.pop(key, None)
    else:
        st.store[key] = value
