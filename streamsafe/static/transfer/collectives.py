"""Collectives: on the current stream, or, asked to be asynchronous, on the stream of the group (TD-01 to TD-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.atoms import (
    COMMUNICATION,
    FALSE,
    HOST,
    NONE,
    TRUE,
    UNKNOWN,
    Const,
    New,
    Path,
    Value,
    value,
)
from streamsafe.static.domain.guards import IS_NONE, Literal
from streamsafe.static.domain.places import PAGEABLE, PINNED
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import library, streams
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis


@special("collective")
def collective(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``dist.all_reduce(x, async_op=True)``: its stream comes after the current one; ``work.wait()`` after it.

    The work keeps the memory alive until it is done (TD-07), and all collectives of a group run in one queue.
    """
    row = c.row
    assert row is not None
    _shows_group(a, s, c)
    flag = c.given.get("async_op", value(FALSE)) if "async_op" in row.params else UNKNOWN
    if flag == value(FALSE):
        return None
    if len(flag) == 1:
        (atom,) = flag
        if isinstance(atom, Path):
            return _by_flag(a, s, c, atom)
        if isinstance(atom, Const) and not atom.value:
            return None
    return _asynchronous(a, s, c)


OF_DEVICES: Final = "of devices"
"""The field of a process group that a collective over the memory of devices shows to be one of devices."""


def _shows_group(a: Analysis, s: State, c: CallSite) -> None:
    row = c.row
    assert row is not None
    for group in c.given.get("group", UNKNOWN):
        touched = (
            library.memory_of(a, s, c, (*row.reads, *row.writes)) if isinstance(group, Path | New) else ()
        )
        if any(mem.place_of(a, s, buffer) not in (PINNED, PAGEABLE) for buffer in touched):
            s.heap[group, OF_DEVICES] = value(TRUE)


@special("barrier")
def barrier(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``dist.barrier(group=g)``: of hosts, and then legal in a capture, unless something shows that g is of devices."""
    group = c.given.get("group", value(NONE))
    if group == value(NONE) or any((atom, OF_DEVICES) in s.heap for atom in group):
        return None
    assert c.row is not None
    return library.effects(a, s, c, c.row)


def _by_flag(a: Analysis, s: State, c: CallSite, flag: Path) -> Value | list[State] | None:
    """A caller decides whether it is asynchronous."""
    literal = Literal(IS_NONE, flag, None, True)
    if literal in s.guard:
        return None
    if literal.negated() in s.guard:
        return _asynchronous(a, s, c)
    other = s.fork()
    s.guard = s.guard | {literal.negated()}
    other.guard = other.guard | {literal}
    s.env[c.dst] = _asynchronous(a, s, c)
    assert c.row is not None
    other.env[c.dst] = library.effects(a, other, c, c.row)
    return [s, other]


def _asynchronous(a: Analysis, s: State, c: CallSite) -> Value:
    row = c.row
    assert row is not None
    span = a.span(c.at)
    s.order.learn(COMMUNICATION, HOST)
    s.order.learn(COMMUNICATION, s.current)
    for names, writes in ((row.reads, False), (row.writes, True)):
        for buffer in library.memory_of(a, s, c, names):
            if mem.place_of(a, s, buffer) not in (PINNED, PAGEABLE):
                mem.touch(a, s, span, buffer, writes, COMMUNICATION, c.operation, tag.RECORDED)
    work = mem.allocate(a, s, span, row.result.type)
    streams.record(a, s, span, work, COMMUNICATION)
    return value(work)
