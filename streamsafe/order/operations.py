"""A stream program as data: one dataclass for each method of the checker. These are the lines of a trace.

The fields are the method's parameters under the same names. Keys of streams, events and threads must be ints, strings,
booleans, None or tuples of these; sites are stacks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from streamsafe.order.backward import Backward, Work
from streamsafe.order.captures import CaptureMode, Graph
from streamsafe.order.checker import Checker, Kind
from streamsafe.order.hazard import Conflict, Frame
from streamsafe.order.memory import Owner, Space, Use

Site = tuple[Frame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that happens. ``method`` is the method of :class:`Checker` that it calls, and its name in a trace."""

    method: ClassVar[str]

    def apply(self, checker: Checker, graphs: dict[int, Graph]) -> list[Conflict]:
        """Let it happen; ``graphs`` holds the graphs captured so far by their number."""
        arguments = self.arguments()
        if "graph" in arguments:
            arguments["graph"] = graphs[arguments["graph"]]
        if arguments.pop("happened", True) is False:
            arguments["veto"] = lambda _: True
        result = getattr(checker, self.method)(**arguments)
        if isinstance(result, Graph):
            graphs[result.key] = result
            return result.conflicts
        if isinstance(result, Conflict):
            return [result]
        return result if isinstance(result, list) else []

    def arguments(self) -> dict[str, Any]:
        """The fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Operation):
    method = "stream"
    key: Hashable
    device: Space = 0
    kind: Kind = "non-blocking"
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFunction(Operation):
    method = "host_function"
    stream: Hashable
    function: Hashable
    host: Hashable = None
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyStream(Operation):
    method = "destroy_stream"
    key: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Operation):
    method = "event"
    key: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyEvent(Operation):
    method = "destroy_event"
    key: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Operation):
    method = "record"
    event: Hashable
    stream: Hashable
    host: Hashable = None
    site: Site = ()
    external: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Operation):
    method = "wait"
    stream: Hashable
    event: Hashable
    host: Hashable = None
    site: Site = ()
    external: bool = False
    implicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizeStream(Operation):
    method = "synchronize_stream"
    stream: Hashable
    host: Hashable = None
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizeEvent(Operation):
    method = "synchronize_event"
    event: Hashable
    host: Hashable = None
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizeDevice(Operation):
    method = "synchronize_device"
    device: Space
    host: Hashable = None
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedStream(SynchronizeStream):
    method = "completed_stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedEvent(SynchronizeEvent):
    method = "completed_event"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEdge(Operation):
    method = "host_edge"
    source: Hashable
    target: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetHost(Operation):
    method = "forget_host"
    host: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccess(Operation):
    method = "host_access"
    reads: tuple[Use, ...] = ()
    writes: tuple[Use, ...] = ()
    operation: str
    host: Hashable = None
    site: Site = ()
    happened: bool = True
    backward: Backward | None = None

    def arguments(self) -> dict[str, Any]:
        arguments = Operation.arguments(self)
        backward = arguments.pop("backward")
        if backward is not None:
            arguments["operation"] = Work(self.operation, backward)
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(HostAccess):
    method = "access"
    stream: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate(Operation):
    method = "allocate"
    space: Space
    start: int
    size: int
    stream: Hashable = None
    owner: Owner
    host: Hashable = None
    site: Site = ()
    name: str = ""
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(Operation):
    method = "free"
    space: Space
    start: int
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStream(Operation):
    method = "record_stream"
    start: int
    stream: Hashable
    space: Space | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBlock(Operation):
    method = "release_block"
    space: Space
    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureBegin(Operation):
    method = "capture_begin"
    stream: Hashable
    mode: CaptureMode = "relaxed"
    private_pool: bool = False
    pool: Hashable = None
    host: Hashable = None
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureEnd(Operation):
    method = "capture_end"
    stream: Hashable
    host: Hashable = None
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureViolation(Operation):
    method = "capture_violation"
    violation: str
    stream: Hashable
    operation: str
    message: str = ""
    site: Site = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Operation):
    method = "replay"
    graph: int
    stream: Hashable
    operation: str = "launch"
    host: Hashable = None
    site: Site = ()
    happened: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Operation):
    method = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(Operation):
    """Something a front end wants to find again in a trace (a suppression, an annotation). It orders nothing."""

    method = "mark"
    name: str
    data: Literal[None] | bool | int | str | tuple[object, ...] = None

    def apply(self, checker: Checker, graphs: dict[int, Graph]) -> list[Conflict]:
        return []


OPERATIONS: dict[str, type[Operation]] = {
    each.method: each
    for each in (
        Stream,
        HostFunction,
        DestroyStream,
        Event,
        DestroyEvent,
        Record,
        Wait,
        SynchronizeStream,
        SynchronizeEvent,
        SynchronizeDevice,
        CompletedStream,
        CompletedEvent,
        HostEdge,
        ForgetHost,
        HostAccess,
        Access,
        Allocate,
        Free,
        RecordStream,
        ReleaseBlock,
        CaptureBegin,
        CaptureEnd,
        CaptureViolation,
        Replay,
        Finish,
        Mark,
    )
}
"""The operations by the name they have in a trace."""


TAPE: dict[str, str] = {
    "stream": "key device kind",
    "destroy_stream": "key",
    "host_function": "stream function host",
    "event": "key",
    "destroy_event": "key",
    "record": "event stream host site external",
    "wait": "stream event host site external implicit",
    "synchronize_stream": "stream host site",
    "synchronize_event": "event host site",
    "synchronize_device": "device host site",
    "host_edge": "source target",
    "forget_host": "host",
    "access": "stream operation site host ...",
    "allocate": "space start size stream owner site fresh host",
    "free": "space start site",
    "record_stream": "space start stream",
    "release_block": "space start size",
    "capture_begin": "stream mode private_pool host site graph",
    "capture_end": "stream site",
    "replay": "graph stream operation site host",
    "gradient": "space start stop",
}
"""The operations that the core in C++ records, in the order of its enumeration, with their fields as integers in the
order in which it writes them. After those of an access come its uses; ``gradient`` is a mark."""


class Program:
    """A stream program that is being run: a checker, and its graphs by number."""

    def __init__(self, *, threads: bool = False) -> None:
        self.checker = Checker(threads=threads, render=lambda site: site if isinstance(site, tuple) else ())
        self._graphs: dict[int, Graph] = {}

    def apply(self, operation: Operation) -> list[Conflict]:
        """Let one operation happen. Raises KeyError when it mentions a stream or graph that nothing introduced."""
        return operation.apply(self.checker, self._graphs)


def run(operations: Iterable[Operation], *, threads: bool = False) -> list[Conflict]:
    """All conflicts of a stream program, in the order in which they occur; the latent ones where it says finish."""
    program = Program(threads=threads)
    return [conflict for operation in operations for conflict in program.apply(operation)]
