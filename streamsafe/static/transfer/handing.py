"""Memory that is handed to another thread of the host, by a queue, a future or a call on a pool: a read (SS301)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.atoms import HOST, Path, Value
from streamsafe.static.domain.places import PINNED
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


def hand_over(a: Analysis, s: State, at: int, operation: str, given: list[Value]) -> None:
    """Another thread gets pinned memory that a copy may still be writing: it cannot know when the copy is done.

    Not so where an event that was recorded after the copy, or its stream, is handed over with it or is kept beside it.
    """
    found = mem.held_by(s, given)
    span = a.span(at)
    for held in given:
        for buffer in mem.buffers(a, s, mem.kept_in(a, s, held)):
            if mem.place_of(a, s, buffer) != PINNED:
                continue
            for copy in list(s.order.near(buffer)):
                if copy.buffer is not buffer or not copy.tags & tag.D2H:
                    continue
                with_it = any(
                    c in found or (isinstance(c, Path) and a.role(c) == "event")
                    for way in s.order.ways_of(copy)
                    for c in way
                )
                if not with_it:
                    mem.touch(a, s, span, buffer, False, HOST, operation, tag.LEAVES)
                    break


@special("hand_over", "future_set")
def give(a: Analysis, s: State, c: CallSite) -> None:
    """``queue.put(x)``, ``future.set_result(x)``: stored there, besides."""
    hand_over(a, s, c.at, c.operation, c.values())
