"""A recorded trace, replayed: the same hazards, with what the front end knew written into it as marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamsafe.order.captures import Graph
from streamsafe.order.checker import Checker
from streamsafe.order.hazard import Conflict, Frame, Hazard
from streamsafe.order.operations import Allocate, Finish, Mark, Operation
from streamsafe.order.trace import TraceError, read
from streamsafe.runtime.autograd import GRADIENT, Gradients, recorded
from streamsafe.runtime.judge import coded, reconsider
from streamsafe.runtime.marks import (
    BY_HOST,
    FOUND,
    IMPORTED,
    NAMED,
    SUPPRESSED,
    interop,
    named,
    places,
    read_conflict,
)
from streamsafe.runtime.session import Session

TORN = (
    "the trace breaks off: it has no end mark, so the run was killed, or is still going on; "
    "what came after its last line was not checked"
)


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
            names: dict[Any, tuple[str, str]] = {}
            by_host = False
            for operation in operations:
                if isinstance(operation, Mark):
                    if operation.name == IMPORTED:
                        imported.append(operation.data)  # type: ignore[arg-type]
                    if operation.name == GRADIENT:
                        gradients.given(*operation.data)  # type: ignore[misc]
                    if operation.name == NAMED:
                        said: Any = operation.data
                        names[said[0]] = (said[1], said[2])
                    by_host = operation.name == BY_HOST
                    yield operation, [read_conflict(operation.data)] if operation.name == FOUND else []  # type: ignore[arg-type]
                    continue
                if isinstance(operation, Allocate):
                    gradients.handed_out(operation.space, operation.start, operation.start + operation.size)
                found = [recorded(each, gradients) for each in operation.apply(checker, graphs)]
                if found and by_host:
                    found = [each.refined(host=each.second.reads_or_writes) for each in found]
                by_host = False
                yield operation, [named(interop(each, imported), names) for each in found]
        except UnicodeDecodeError as error:
            raise TraceError(f"this is not text: {error}") from error
        except KeyError as error:
            raise TraceError(f"an operation mentions {error}, which nothing introduced") from error


def _as_recorded(site: object) -> tuple[Frame, ...]:
    return site if isinstance(site, tuple) else ()


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


def coded_steps(
    path: str,
) -> tuple[dict[str, Any], Iterator[tuple[Operation, list[tuple[Conflict, str]]]]]:
    """The first line of a trace, and its :func:`steps` with the codes of the conflicts.

    Raises:
        streamsafe.order.trace.TraceError: no trace that this version reads.
        OSError: the file cannot be read.
    """
    found = ((operation, [(each, coded(each).code) for each in new]) for operation, new in steps(path))
    return header(path), found


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
                session.replayed_suppressed()
            elif session.take(hazard, suppressible=False) is not None:
                taken.append((conflict, hazard))
    for conflict, hazard in taken:
        reconsider(conflict, hazard)
    if not session.complete:
        session.notes.append(TORN)
    return session
