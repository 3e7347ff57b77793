"""What the parts of the interpreter have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


class Part:
    """A group of transfer functions.

    A part names each other part that it uses by an annotation: the name of the attribute is that of its module. The
    interpreter sets these attributes. What the parts share is in ``run``; a part inherits from no other part.

    Args:
        run: the state of the analysis of one file.
    """

    def __init__(self, run: RunState) -> None:
        self.run = run

    def connected(self) -> None:
        """Build what needs the other parts: the interpreter calls this once, when all of them are set."""
