"""What a recorded run says of a hazard that was found in the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["confirmed", "ordered", "not-reached"]

MARKS: dict[str, str] = {
    "confirmed": "confirmed",
    "ordered": "ordered in this run",
    "not-reached": "not reached",
}
"""Each outcome in a word or three."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What runs say of one hazard.

    Attributes:
        outcome: ``confirmed``: at least once the two accesses touched common memory with no order; ``ordered``: both
            happened, and were always ordered; ``not-reached``: anything else.
        count: how often the pair was seen with this outcome; 0 where it was not reached.
        text: the outcome in words, with what ordered the accesses, or what did not happen.
        edge: where the edge that ordered them stands, as file and line; None where it has no line, or there is none.
    """

    outcome: Outcome
    count: int
    text: str
    edge: tuple[str, int] | None = None

    @property
    def mark(self) -> str:
        """The outcome in a word or three."""
        return MARKS[self.outcome]
