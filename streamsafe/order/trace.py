"""Traces: a stream program as JSON lines, written while it runs, checked later or elsewhere.

The schema is documented in ``docs/trace-schema.md``.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TextIO

from streamsafe.order.backward import Backward, backward_of
from streamsafe.order.captures import Graph
from streamsafe.order.checker import Checker
from streamsafe.order.explain import Render, no_stack
from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.memory import Region, Use
from streamsafe.order.operations import OPERATIONS, Mark, Operation, Program, Stream

VERSION = 1


class TraceError(ValueError):
    """The input is not a trace this version can read; the message says which line and why."""


class Trace:
    """A trace that is being written: a header line, then one line for each operation.

    Args:
        file: where to; it is not closed.
        threads: as given to the checker.
        about: whatever else the header should say (versions, the command).
    """

    def __init__(self, file: TextIO, *, threads: bool = False, **about: object) -> None:
        self._file = file
        self._line({"streamsafe": "trace", "version": VERSION, "threads": threads, **about})
        file.flush()

    def write(self, operation: Operation) -> None:
        """One more line. Fields at their default are left out."""
        line: dict[str, object] = {"do": operation.method}
        for each in fields(operation):
            value = getattr(operation, each.name)
            if each.default is MISSING or value != each.default:
                line[each.name] = value
        self._line(line)

    def mark(self, name: str, data: Any = None) -> None:
        """A line that orders nothing, for a front end to find again."""
        self.write(Mark(name=name, data=data))

    def _line(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":"), default=_frame) + "\n")


class Recorder(Checker):
    """A checker that also hands every operation to ``write``, with its sites rendered."""

    def __init__(
        self, write: Callable[[Operation], None], *, threads: bool = False, render: Render = no_stack
    ) -> None:
        super().__init__(threads=threads, render=render)
        self._write = write
        self._render = render
        self._inside = False

    def name_stream(self, key: Hashable, name: str) -> None:
        super().name_stream(key, name)
        self._write(Stream(key=key, device=self.timeline(key).device, name=name))


def _frame(value: object) -> list[object]:
    if not isinstance(value, Frame):
        raise TypeError(f"a trace cannot hold {value!r}")
    place: list[object] = [value.filename, value.line, value.function]
    return [*place, value.column, value.end_line, value.end_column] if value.column else place


def _recorded(name: str, operation: type[Operation]) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(Checker, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def method(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        if self._inside:  # one method calls another
            return original(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        said = dict(bound.arguments)
        del said["self"]
        veto = said.pop("veto", None)
        happened = True
        if veto is not None:

            def asked(conflicts: list[Conflict]) -> bool:
                nonlocal happened
                happened = not veto(conflicts)
                return not happened

            bound.arguments["veto"] = asked
        self._inside = True
        try:
            result = original(*bound.args, **bound.kwargs)
        finally:
            self._inside = False
        if not happened:
            said["happened"] = False
        if isinstance(said.get("graph"), Graph):
            said["graph"] = said["graph"].key
        if said.get("site") is not None:
            said["site"] = self._render(said["site"])
        else:
            said.pop("site", None)
        for mode in ("reads", "writes"):
            if mode in said:
                said[mode] = tuple(said[mode])
        backward = backward_of(said["operation"]) if "operation" in said else None
        if backward is not None:
            said["operation"], said["backward"] = str(said["operation"]), backward
        self._write(operation(**said))
        return result

    return method


for _name, _operation in OPERATIONS.items():
    if _operation is not Mark:
        setattr(Recorder, _name, _recorded(_name, _operation))


def read(lines: Iterable[str]) -> tuple[dict[str, Any], Iterator[Operation]]:
    """The header of a trace and its operations, read as they are asked for.

    A last line that was not written to its end, in a run that died, is left out.

    Raises:
        TraceError: no trace, a newer version, an unknown operation or field, or a damaged line.
    """
    numbered = enumerate(lines, 1)
    _, first = next(numbered, (1, ""))
    try:
        header = _object(first, 1)
    except TraceError:
        header = {}
    if header.get("streamsafe") != "trace":
        raise TraceError("line 1: this is not a streamsafe trace")
    version = header.get("version")
    if version != VERSION:
        raise TraceError(f"line 1: trace version {version}; this streamsafe reads version {VERSION}")
    whole = ((number, line) for number, line in numbered if not (first.endswith("\n") and _torn(line)))
    return header, (_operation_of(_object(line, number), number) for number, line in whole)


def _torn(line: str) -> bool:
    """Whether a line of a file was not written to its end: it has no line end, and is no JSON."""
    if line.endswith("\n"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def verify(trace: str | Path | Iterable[str]) -> list[Conflict]:
    """Check a trace: the same conflicts, with the same stacks, as when it was recorded.

    Args:
        trace: a path, or the lines themselves.

    Raises:
        TraceError: see :func:`read`.
        OSError: the file cannot be read.
    """
    if isinstance(trace, (str, Path)):
        with open(trace, encoding="utf-8") as file:
            return verify(file)
    conflicts: list[Conflict] = []
    number = 1
    try:
        header, operations = read(trace)
        program = Program(threads=bool(header.get("threads")))
        for operation in operations:
            number += 1
            conflicts += program.apply(operation)
    except UnicodeDecodeError as error:
        raise TraceError(f"this is not text: {error}") from error
    except KeyError as error:
        raise TraceError(f"line {number}: it mentions {error}, which nothing introduced") from error
    except TraceError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        raise TraceError(f"line {number}: {error}") from error
    return conflicts


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise TraceError(f"line {number}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise TraceError(f"line {number}: not a JSON object")
    return value


def _operation_of(line: dict[str, Any], number: int) -> Operation:
    method = line.pop("do", None)
    operation = OPERATIONS.get(method) if isinstance(method, str) else None
    if operation is None:
        raise TraceError(f"line {number}: unknown operation {method!r}")
    try:
        return operation(**{name: _value(name, value) for name, value in line.items()})
    except (TypeError, ValueError) as error:
        raise TraceError(f"line {number}: {error}") from error


def _value(name: str, value: Any) -> Any:
    if name == "site":
        return tuple(Frame(*frame) for frame in value)
    if name == "backward":
        node, forward, caller = value
        return Backward(node, _value("site", forward), _value("site", caller))
    if name in ("reads", "writes"):
        return tuple(Use(Region(*_tuples(region)), *rest) for region, *rest in value)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value
