"""A recorded trace, replayed: the same hazards, with what the front end knew written into it as marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamsafe.order.captures import Graph
from streamsafe.order.checker import Checker
from streamsafe.order.hazard import Access, Conflict, Facts, Frame, Hazard, Memory, Missing, Note
from streamsafe.order.operations import Allocate, Finish, Mark, Operation
from streamsafe.order.trace import TraceError, read
from streamsafe.runtime.allow import accesses
from streamsafe.runtime.autograd import GRADIENT, Gradients, recorded
from streamsafe.runtime.session import Session, coded, reconsider, refined

IMPORTED = "imported"
"""Memory taken from another library with no handshake: (space, start, stop)."""
BY_HOST = "by host"
"""The next operation is a host function's."""
TORN = (
    "the trace breaks off: it has no end mark, so the run was killed, or is still going on; "
    "what came after its last line was not checked"
)
SUPPRESSED = "suppressed"
"""A finding that was not reported: see :func:`places`."""
FOUND = "found"
"""A conflict that the front end found by itself: see :func:`written`."""


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


def _conflict(data: tuple[Any, ...]) -> Conflict:
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


def steps(path: str) -> Iterator[tuple[Operation, list[Conflict]]]:
    """Each operation of a trace with the conflicts it completes, as the session saw them.

    Raises:
        streamsafe.order.trace.TraceError: no trace that this version reads.
        OSError: the file cannot be read.
    """
    with Path(path).open(encoding="utf-8") as file:
        try:
            header, operations = read(file)
            checker = Checker(threads=bool(header.get("threads")), render=_as_recorded)
            graphs: dict[int, Graph] = {}
            imported: list[tuple[Any, int, int]] = []
            gradients = Gradients()
            by_host = False
            for operation in operations:
                if isinstance(operation, Mark):
                    if operation.name == IMPORTED:
                        imported.append(operation.data)  # type: ignore[arg-type]
                    if operation.name == GRADIENT:
                        gradients.given(*operation.data)  # type: ignore[misc]
                    by_host = operation.name == BY_HOST
                    yield operation, [_conflict(operation.data)] if operation.name == FOUND else []  # type: ignore[arg-type]
                    continue
                if isinstance(operation, Allocate):
                    gradients.handed_out(operation.space, operation.start, operation.start + operation.size)
                found = [recorded(each, gradients) for each in operation.apply(checker, graphs)]
                if found and by_host:
                    found = [refined(each, host=each.second.reads_or_writes) for each in found]
                by_host = False
                yield operation, [interop(each, imported) for each in found]
        except UnicodeDecodeError as error:
            raise TraceError(f"this is not text: {error}") from error
        except KeyError as error:
            raise TraceError(f"an operation mentions {error}, which nothing introduced") from error


def _as_recorded(site: object) -> tuple[Frame, ...]:
    return site if isinstance(site, tuple) else ()


def interop(conflict: Conflict, imported: list[tuple[Any, int, int]]) -> Conflict:
    """The conflict, as interop's when it is about memory that came in with no handshake."""
    start, stop = conflict.memory.start, conflict.memory.stop
    if start is None or stop is None or not any(low < stop and start < high for _, low, high in imported):
        return conflict
    return refined(conflict, interop=True)


def header(path: str) -> dict[str, Any]:
    """The first line of a trace.

    Raises:
        streamsafe.order.trace.TraceError: no trace that this version reads.
        OSError: the file cannot be read.
    """
    with Path(path).open(encoding="utf-8") as file:
        try:
            return read(file)[0]
        except UnicodeDecodeError as error:
            raise TraceError(f"this is not text: {error}") from error


def replay(path: str) -> Session:
    """A session with the hazards of a trace.

    Raises:
        streamsafe.order.trace.TraceError: no trace that this version reads.
        OSError: the file cannot be read.
    """
    session = Session("collect")
    silent: set[tuple[Any, ...]] = set()
    taken: list[tuple[Conflict, Hazard]] = []
    session.complete = False
    for operation, conflicts in steps(path):
        session.complete |= isinstance(operation, Finish)
        if isinstance(operation, Mark) and operation.name == SUPPRESSED:
            silent.add(operation.data)  # type: ignore[arg-type]
        for conflict in conflicts:
            hazard = coded(conflict)
            if places(hazard) in silent:
                session.suppressed += 1
            elif session.take(hazard, suppressible=False) is not None:
                taken.append((conflict, hazard))
    for conflict, hazard in taken:
        reconsider(conflict, hazard)
    if not session.complete:
        session.notes.append(TORN)
    return session
