"""Accesses: what a summary says of one touch of memory. Interned like atoms."""

from __future__ import annotations

from typing import Any, Final

from streamsafe.order.hazard import Span
from streamsafe.static.domain.atoms import CURRENT, HOST, Atom, Pool, rank
from streamsafe.static.domain.extents import WHOLE, Extent
from streamsafe.static.domain.extents import sort_key as by_extent
from streamsafe.static.domain.guards import Guard, sort_key

# Tags: named facts and assumptions, one bit each; `confidence.py` weighs them.
D2H: Final = 1 << 0
"""Written by a copy from the device that the host does not wait for."""
H2D: Final = 1 << 1
"""Read by a copy to the device that the host does not wait for."""
GRADIENT: Final = 1 << 2
"""The gradients that a backward pass writes."""
INITIAL: Final = 1 << 3
"""A gradient given to a backward pass."""
MODULE_CALL: Final = 1 << 4
"""By an object held in a field or a parameter that is called with a tensor."""
UNSEEN_CALL: Final = 1 << 5
"""By a function that is not seen."""
WEAK: Final = 1 << 6
"""Nothing shows that what is touched is a tensor."""
HANDED_OUT: Final = 1 << 7
"""By whoever consumes a generator."""
STORED: Final = 1 << 8
"""Known under a path at which it was stored: what happens to it is the next life of what lay there."""
REPLACED: Final = 1 << 9
"""The object that lay at the path at entry has been replaced."""
PLACE_UNKNOWN: Final = 1 << 10
"""Nothing shows where the memory lies."""
BUDGET: Final = 1 << 11
"""Rests on a budget that was hit."""
NAME_HINT: Final = 1 << 12
"""A name says what the stream, the event or the tensor is."""
UNEXCHANGED: Final = 1 << 13
"""Handed between libraries by a path that exchanges no stream."""
ALLOCATION: Final = 1 << 14
"""The access that makes the buffer."""
LEAVES: Final = 1 << 15
"""The memory leaves the function while a copy to it is pending."""
BACKWARD: Final = 1 << 16
"""By a backward pass."""
METHOD_CALL: Final = 1 << 17
"""By a method that is not seen of an object that holds or is the memory."""
RECORDED: Final = 1 << 20
"""The block is recorded on the stream of the access: the allocator waits for it."""
IF_DEVICE: Final = 1 << 21
"""Made only where the memory lies on the device."""
CAPTURED: Final = 1 << 22
"""Made while a capture is under way: it runs at the replays, and meets no access of the program outside."""
RECORD: Final = 1 << 23
"""A record: of an event, by its stream."""
ELAPSED: Final = 1 << 24
"""The host asks how much time lies between two events."""
ON_SOME_PATH: Final = 1 << 25
"""Holds on some path, of what can be seen."""
PUT_THERE: Final = 1 << 26
"""By a call that is not seen and stands under another stream: it is put there for the work that it enqueues."""
SHOWN: Final = 1 << 27
"""The program shows that the memory lies on the host: it takes a NumPy view of it."""
PARAMETERS: Final = 1 << 28
"""By a module that is called, of its parameters: whoever writes them later is taken to know when it is done."""
FAR: Final = 1 << 29
"""Several calls below, each of which may come to it, or not, as nobody in sight decides."""
CUPY: Final = 1 << 19
"""Of a pool: the block is CuPy's."""
WHERE_IT_LIES: Final = 1 << 33
"""By the processor whose memory it is, which a caller may know; the host has waited for nothing before."""
UNKNOWN_SOURCE: Final = 1 << 18
"""Nothing shows whether the copy's other side is where this needs it to be."""


class Access:
    """One access of a function.

    Attributes:
        buffer: the memory.
        writes: whether it writes.
        stream: the stream it runs on, or the host.
        span: where it is written.
        before: the carriers at entry of which one must know an earlier access for this one to come after it.
        tags: facts and assumptions, as bits.
        guard: the literals under which it happens.
        operation: what the program called.
        extent: which part of the memory it touches.
    """

    __slots__ = (
        "_key",
        "before",
        "buffer",
        "extent",
        "guard",
        "operation",
        "span",
        "stream",
        "tags",
        "writes",
    )

    buffer: Atom
    writes: bool
    stream: Atom
    span: Span
    before: frozenset[Atom]
    tags: int
    guard: Guard
    operation: str
    extent: Extent
    _key: tuple[Any, ...] | None

    def replace(self, **changes: Any) -> Access:
        """The same access with other parts."""
        parts = {name: getattr(self, name) for name in _PARTS}
        parts.update(changes)
        return access(**parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return access, tuple(getattr(self, name) for name in _PARTS)

    def __repr__(self) -> str:
        what = "W" if self.writes else "R"
        return f"<{self.span.row} {what} {self.buffer} on {self.stream} before {set(self.before)}>"

    def sort_key(self) -> tuple[Any, ...]:
        """The same order in every run."""
        if self._key is None:
            self._key = self._sort_key()
        return self._key

    def _sort_key(self) -> tuple[Any, ...]:
        return (
            self.span,
            self.writes,
            rank(self.buffer),
            rank(self.stream),
            self.tags,
            sorted(map(rank, self.before)),
            sort_key(self.guard),
            by_extent(self.extent),
        )


_CONCERNS: Final = D2H | H2D | RECORD | ELAPSED | CAPTURED


def concerns(access: Access) -> bool:
    """Whether an access is on another stream than the current one, or goes on while the host does.

    An allocation does not count: it matters to those that release blocks used on other streams.
    """
    if access.stream is CURRENT or access.stream is HOST:
        return bool(access.tags & _CONCERNS)
    return not (access.writes and isinstance(access.buffer, Pool))


_PARTS: Final = ("buffer", "writes", "stream", "span", "before", "tags", "guard", "operation", "extent")
_TABLE: dict[tuple[Any, ...], Access] = {}


def access(
    buffer: Atom,
    writes: bool,
    stream: Atom,
    span: Span,
    before: frozenset[Atom],
    tags: int,
    guard: Guard,
    operation: str,
    extent: Extent = WHOLE,
) -> Access:
    """The access with these parts; there is one."""
    key = (buffer, writes, stream, span, before, tags, guard, operation, extent)
    found = _TABLE.get(key)
    if found is None:
        found = Access.__new__(Access)
        found.buffer, found.writes, found.stream, found.span = buffer, writes, stream, span
        found._key = None
        found.before, found.tags, found.guard, found.operation = before, tags, guard, operation
        found.extent = extent
        _TABLE[key] = found
    return found
