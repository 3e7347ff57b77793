"""How much a session has watched: without it "no hazards" says little."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class Coverage:
    """What was watched.

    Attributes:
        operations: kernels, copies, records, waits and synchronizes.
        streams: the streams that they used.
        captures: graphs that were captured.
        replays: launches of graphs.
    """

    operations: int = 0
    streams: int = 0
    captures: int = 0
    replays: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def as_dict(self) -> dict[str, int]:
        """By the names of the attributes, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [_count(self.operations, "operation") + " on " + _count(self.streams, "stream")]
        parts += [_count(self.captures, "capture")] if self.captures else []
        parts += [_count(self.replays, "replay")] if self.replays else []
        return ", ".join(parts)


def total(parts: Iterable[Coverage]) -> Coverage:
    """Of several processes together."""
    return sum(parts, Coverage())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
