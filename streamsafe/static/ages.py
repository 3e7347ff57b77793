"""The newest object of a site, where not every way makes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamsafe.static.state import State
from streamsafe.static.values import Name, Value, younger


def newest_alike(
    ends: list[tuple[State, Value]], made: set[Name], mentions: Mapping[int, tuple[Name, ...]]
) -> Iterator[tuple[State, Value]]:
    """Give the newest object of a site one name on all ways out of a call.

    A way that makes no object leaves the one of the call before as the newest; a way that makes one leaves that.
    What is kept "since the last time" is then one object when the ways meet, not one of two.

    Args:
        ends: the states a call ends with and what it returns; changed in place.
        made: the sites whose objects it may have made.
        mentions: the objects that each condition is about.
    """
    new = {name for name in made for state, _ in ends if (name, "@made") in state.store}
    for state, value in ends:
        kept = {name for name in new if (name, "@made") not in state.store}
        if not kept or state.dead:
            yield state, value
            continue
        renaming = younger(kept)
        bits = 0
        for bit, names in mentions.items():
            if any(renaming(name) is not name for name in names):
                bits |= bit
        state.forget(bits)
        state.rename(renaming, kept)
        yield state, value.rename(renaming)
