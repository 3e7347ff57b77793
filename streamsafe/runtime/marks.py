"""Marks of a trace: what a front end knows beside the operations, written by a session and read by a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamsafe.order.hazard import Access, Conflict, Facts, Frame, Hazard, Memory, Missing, Note
from streamsafe.runtime.allow import accesses

IMPORTED = "imported"
"""Memory taken from another library with no handshake: (space, start, stop)."""
BY_HOST = "by host"
"""The next operation is a host function's."""
SUPPRESSED = "suppressed"
"""A finding that was not reported: see :func:`places`."""
FOUND = "found"
"""A conflict that the front end found by itself: see :func:`written`."""

NAMED = "named"
"""What the program calls the memory of conflicts: see :func:`names_of`."""


def names_of(conflict: Conflict, name: str, module: str) -> tuple[Any, ...]:
    """The places of a conflict with the name of its memory, and with the module of a model in which it is."""
    return (_of(conflict), name, module)


def _of(conflict: Conflict) -> tuple[Any, ...]:
    accesses = (conflict.first, conflict.second)
    lines = [
        (each.stack[0].filename, each.stack[0].line) if each and each.stack else None for each in accesses
    ]
    return (conflict.memory.name, conflict.second.operation, *lines)


def named(conflict: Conflict, names: dict[Any, tuple[str, str]]) -> Conflict:
    """The conflict with what :func:`names_of` has written of its places."""
    found = names.get(_of(conflict))
    if found is None:
        return conflict
    name, module = found
    memory, second = replace(conflict.memory, name=name), replace(conflict.second, module=module)
    return replace(conflict, memory=memory, second=second)


def places(hazard: Hazard) -> tuple[Any, ...]:
    """A hazard's code and the lines of its accesses: what a suppression in a trace is about."""
    lines = [
        (each.stack[0].filename, each.stack[0].line) if each.stack else None for each in accesses(hazard)
    ]
    return (hazard.code, *lines)


def written(conflict: Conflict) -> tuple[Any, ...]:
    """A conflict of the front end's, as data for a mark."""
    first = _written_access(conflict.first) if conflict.first is not None else None
    memory = conflict.memory
    return (
        first,
        _written_access(conflict.second),
        (memory.name, memory.owner, memory.start, memory.stop),
        conflict.facts.violation,
        conflict.facts.host,
        conflict.confidence,
        tuple(note.message for note in conflict.notes),
        conflict.missing and (conflict.missing.source, conflict.missing.target, conflict.missing.fix),
        conflict.facts.timing,
    )


def _written_access(access: Access) -> tuple[Any, ...]:
    stack = tuple((frame.filename, frame.line, frame.function) for frame in access.stack)
    return access.operation, access.timeline, access.reads_or_writes, stack


def read_conflict(data: tuple[Any, ...]) -> Conflict:
    first, second, memory, violation, host, confidence, notes, missing, *rest = data
    name, owner, start, stop = memory
    return Conflict(
        second=_access(second),
        first=_access(first) if first is not None else None,
        memory=Memory(name, owner, start=start, stop=stop),
        facts=Facts(violation=violation, host=host, timing=rest[0] if rest else None),
        notes=tuple(Note(message) for message in notes),
        missing=Missing(*missing) if missing else None,
        confidence=confidence,
    )


def _access(data: tuple[Any, ...]) -> Access:
    operation, timeline, mode, stack = data
    return Access(operation, timeline, mode, stack=tuple(Frame(*frame) for frame in stack))


def interop(conflict: Conflict, imported: list[tuple[Any, int, int]]) -> Conflict:
    """The conflict, as interop's when it is about memory that came in with no handshake."""
    start, stop = conflict.memory.start, conflict.memory.stop
    if start is None or stop is None or not any(low < stop and start < high for _, low, high in imported):
        return conflict
    return conflict.refined(interop=True)
