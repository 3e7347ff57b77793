"""How sure a finding is: a function of the assumptions that its accesses and its pair name, and of nothing else."""

from __future__ import annotations

from typing import Final

from streamsafe.order.hazard import Confidence
from streamsafe.static.domain import access as tag
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import CURRENT, DEFAULT, HOST, Atom, New, Path
from streamsafe.static.domain.guards import IS_CPU
from streamsafe.static.summary.model import Pair

# Assumptions of a pair, beside the tags of its accesses.
ENTRIES: Final = 1 << 30
"""Two entries of a class or a module, called one after the other by a caller that is not seen."""
ORDERED_BETWEEN: Final = 1 << 31
"""Another entry, called between the two, would order them."""
NO_WITNESS: Final = 1 << 32
"""A block is released, and no next allocation is seen."""

STRONG: Final = (
    tag.UNSEEN_CALL | tag.METHOD_CALL | tag.PLACE_UNKNOWN | tag.BUDGET | tag.UNKNOWN_SOURCE | tag.FAR
)
"""Any of these alone makes a finding *possible*."""
NAMED: Final = (
    tag.MODULE_CALL | tag.PUT_THERE | tag.HANDED_OUT | tag.NAME_HINT | tag.LEAVES | tag.ON_SOME_PATH
)
"""Each of these is one named assumption."""
_UNSEEN: Final = tag.UNSEEN_CALL | tag.METHOD_CALL


def weigh(pair: Pair) -> Confidence:
    """``certain``: everything is in sight; ``likely``: one or two named assumptions; ``possible``: more."""
    accesses = [access for access in (pair.first, pair.second) if access is not None]
    tags = pair.tags
    weak = bool(accesses) and all(access.tags & tag.WEAK for access in accesses)
    put_there = False
    for access in accesses:
        tags |= access.tags & ~_UNSEEN if access.tags & tag.PUT_THERE else access.tags
        put_there = put_there or bool(access.tags & tag.PUT_THERE and (weak or access.tags & _UNSEEN))
    tags = tags | tag.PUT_THERE if put_there else tags & ~tag.PUT_THERE
    if any(_on_device(access) for access in accesses):
        tags &= ~tag.UNKNOWN_SOURCE  # the other access shows that the memory lies on the device
    shown = bool(tags & tag.SHOWN)
    unknown = shown and bool(tags & tag.PLACE_UNKNOWN)
    if shown:
        tags &= ~tag.PLACE_UNKNOWN  # on the host, pinned or not
    if tags & (STRONG | ORDERED_BETWEEN | NO_WITNESS) or (weak and not put_there):
        return "possible"
    if not shown and any(literal.kind == IS_CPU and literal.truth for literal in pair.guard):
        return "possible"  # no caller in sight decides what the device is
    steps = bin(tags & NAMED).count("1") + bool(tags & ENTRIES) + unknown
    for access in accesses:
        if isinstance(access.buffer, New) and access.buffer.age and pair.kind == "pair":
            steps += 1
            break
    streams = {access.stream for access in accesses}
    if CURRENT in streams and any(_is_parameter(stream) for stream in streams):
        steps += 1
    if CURRENT in streams and any(wait.source is DEFAULT for wait in pair.waits):
        steps += 1  # the stream that is current here is not the default one
    if tags & ENTRIES and any(_is_parameter(stream) for stream in streams):
        return "possible"  # no caller in sight says which stream it is
    if any(isinstance(a.buffer, Path) and a.buffer.fields[-1:] == ("[each]",) for a in accesses):
        steps += 1
    return "certain" if not steps else "likely" if steps < 3 else "possible"


def _on_device(access: Access) -> bool:
    """Whether an access shows that its memory lies on the device."""
    unsure = tag.UNKNOWN_SOURCE | tag.WEAK | tag.UNSEEN_CALL | tag.METHOD_CALL | tag.H2D | tag.D2H
    return access.stream is not HOST and not access.tags & unsure


def _is_parameter(stream: Atom) -> bool:
    return isinstance(stream, Path) and not stream.fields and not stream.root.startswith("module ")
