"""The budgets of an analysis. They count semantic things: never lines, bytes, seconds or positions in a file.

A budget that is hit leaves a note on the function (see :data:`NOTES`), and what rests on it is at most *possible*.
"""

from __future__ import annotations

from typing import Final

FIELDS: Final = 4
"""Fields of an access path; what lies deeper is unknown."""

ATOMS: Final = 6
"""Atoms of a value; a larger value is unknown."""

PARTITIONS: Final = 12
"""Trace partitions of a block; the next one is joined into one with the same current stream."""

LARGE: Final = 200
"""Fields of objects from which a state is large: of such states a block has a quarter as many."""

WAYS: Final = 4
"""Carrier sets of an access; of more, the smallest are kept (sound for alarms on some path)."""

ACCESSES: Final = 96
"""Accesses of an exit."""

STORED: Final = 300
"""Fields of objects that an exit keeps, those nearest to what the caller knows first."""

EXITS: Final = 12
"""Exits of a summary."""

SPECIALISATIONS: Final = 8
"""Summaries of one function for different function-valued arguments."""

CALLS: Final = 3
"""Call sites in an atom; two calls that differ further up share it."""

VISITS: Final = 16
"""Visits of a block before its loop is left unfinished."""

FOOTPRINT_VISITS: Final = 4
"""Visits of a block where no more than a footprint of the function is needed."""

DEPTH: Final = 40
"""Calls below which a callee is taken to do nothing."""

ELEMENTS: Final = 3
"""Containers opened in search of the buffers of a value."""

UNROLLED: Final = 4
"""Elements of a container of streams or events whose loop is run through one by one."""

STREAMS: Final = 3
"""Streams of a value for which a method call makes a partition each."""

NOTES: Final = (
    "accesses dropped",
    "call too deep",
    "exits dropped",
    "fields dropped",
    "loop not finished",
    "partitions joined",
)

PATHS: Final = frozenset(("exits dropped", "loop not finished", "partitions joined"))
"""The budgets that keep paths apart: where one is hit, an order that holds on each path may be lost."""
