"""What the analysis of a file comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamsafe.order.hazard import Conflict


@dataclass(slots=True)
class Analysis:
    """What was found in a file.

    Attributes:
        conflicts: in the order of their places.
        explanation: for the line that was asked about, what is known there.
        notes: the functions of which a limit cut the analysis short, and which limit.
        entered: the first and the last row of each function that was followed.
    """

    conflicts: list[Conflict] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    entered: list[tuple[int, int]] = field(default_factory=list)
