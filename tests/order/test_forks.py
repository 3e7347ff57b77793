"""Tables that fork and meet, against plain dicts compared key by key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamsafe.order.forks import Forked, differing, meeting

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 7), KEYS),
        st.tuples(st.just("del"), st.integers(0, 7), KEYS),
        st.tuples(st.just("fork"), st.integers(0, 7), KEYS),
        st.tuples(st.just("meet"), st.integers(0, 7), st.integers(0, 7)),
        st.tuples(st.just("retain"), st.integers(0, 7), KEYS),
    ),
    max_size=40,
)


def joined(first: Forked[int, object], second: Forked[int, object]) -> Forked[int, object]:
    """What a join does: a key of one side only stays, two values become a new one."""
    table, keys = meeting(first, second)
    for key in keys:
        if first.get(key) is not second.get(key):
            table[key] = object()
    return table


@given(STEPS)
def test_whatever_differs_is_told(steps: list[tuple[str, int, int]]) -> None:
    tables: list[Forked[int, object]] = [Forked()]
    for action, which, key in steps:
        table = tables[which % len(tables)]
        if action == "set":
            table[key] = object()
        elif action == "del":
            table.discard(key)
        elif action == "retain":
            table.retain({key})
        elif action == "fork":
            tables.append(table.fork())
        else:
            tables.append(joined(table, tables[key % len(tables)]))
    for first in tables:
        for second in tables:
            found = set(differing(first, second))
            for key in {*first, *second}:
                assert key in found or first.get(key) is second.get(key)


def test_what_neither_side_changes_is_not_told() -> None:
    table: Forked[str, int] = Forked()
    table["before"] = 1
    left, right = table.fork(), table.fork()
    left["left"] = 2
    right["right"] = 3
    assert list(differing(left, right)) == ["left", "right"]
    assert "before" in meeting(left, right)[0]
    unrelated: Forked[str, int] = Forked()
    unrelated["before"] = 1
    assert set(differing(left, unrelated)) == {"before", "left"}
