"""What a session raises and what it warns with: a hazard as an exception, whose text is the full report."""

from __future__ import annotations

import warnings

from streamsafe.order.hazard import Hazard
from streamsafe.report.run_time import describe, frame_of


class StreamHazardError(RuntimeError):
    """A missing edge, found before the operation that completes the hazard was enqueued.

    Attributes:
        hazard: the hazard as data.
    """

    def __init__(self, hazard: Hazard) -> None:
        self.hazard = hazard
        super().__init__(describe(hazard))

    def __reduce__(self) -> tuple[type[StreamHazardError], tuple[Hazard]]:
        return type(self), (self.hazard,)


class StreamHazardWarning(RuntimeWarning):
    """A hazard in a session that warns."""


def warn(hazard: Hazard, shown: bool = False) -> None:
    """Warns of a hazard at the user's line that it stands on; at the caller's line where none is known.

    Args:
        shown: the hazard is shown in full elsewhere: one line is enough.
    """
    text = f"{hazard.code} {hazard.name}: {hazard.message}" if shown else describe(hazard)
    frame = frame_of(hazard)
    if frame is None:
        warnings.warn(StreamHazardWarning(text), stacklevel=2)
    else:
        warnings.warn_explicit(StreamHazardWarning(text), None, frame.filename, frame.line)
