"""What is remembered of accesses, where they stand, and what is found; the streams there are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsafe.order.edges import Carrier
from streamsafe.order.symbolic import Made
from streamsafe.static.state import Ordered, Waited
from streamsafe.static.values import (
    Const,
    Name,
    Value,
    iterate,
)

if TYPE_CHECKING:
    import libcst as cst

    from streamsafe.static.source import Slice

AMBIENT = Name("ambient")
"""The current stream at entry, taken to be the default stream."""

LOADER = "loader"
"""What a data loader that is made in what is analysed is called."""

CALLER = Name("caller's stream")
"""The current stream as it was before the entry: what whoever calls a function has done there."""
ENTERED = ("entered",)
"""Stands for the memory in which the caller has done it."""

HOOK = Name("hook stream")
"""The stream on which autograd runs a hook: its node's (TA-06)."""

"""The stream of those nodes whose forward pass ran on a stream that the model entered for a part of itself."""

GRADIENTS = Name("gradients")
"""The gradients that backward passes leave in ``.grad``."""

PARAMETER = Name("a parameter")
"""The parameter that a hook is given."""

MAIN_GRADIENTS = Name("main gradients")
"""The gradients that a program accumulates beside ``.grad``, in an attribute of each parameter."""

BUCKET = Name("a bucket")
"""The bucket of gradients that a communication hook is given."""

IS_CUDA = Name("is_cuda")
"""Whether the tensors of a program are on a device, of which nothing else shows where they are."""

UNNUMBERED = "on a device of unknown number"
"""Tags an access of the default stream there: it is taken to be the first device's."""

AUTOGRAD = "autograd"
"""What reads the gradient that a custom function's ``backward`` returns."""

INITIAL = "consumes initial gradient"
"""Tags a backward pass's read of a gradient that it is given (TA-04)."""

AGAIN = "in another call"
"""Tags a finding of which the first access was made in an earlier call of the same method."""

RETURNED_HANDLE = "an event that covers it is handed out"
"""Tags an access of a call that has returned an event or a work to wait for to a caller who is not seen."""

EFFORT = 8_000
"""After how many accesses an entry is left as it stands."""
FILE_EFFORT = 60_000
"""After how many accesses of a file no further entry is looked at."""
ACCESSES_AN_ACCESS = 16
"""Earlier accesses to the same memory that count as one more of the file: each is gone through."""
SPENT = "too many accesses"
"""The note on an entry of which the rest is left out."""
EXHAUSTED = "too many statements"
"""The note on an entry whose later calls are not followed, and whose later hazards are only possible."""
CROWDED_PATHS = "too many conditions"
"""The note on an entry with more conditions than are kept apart: paths are joined."""
WAYS_AN_ACCESS = 100
"""Edges that are tried on so many ways count as much as an access: few accesses may stand in very many."""
PASS = frozenset({"backward"})
"""What a backward pass writes."""

COPIES = frozenset({"d2h", "d2h?", "h2d", "h2d?", "host function"})
"""Accesses of a stream to memory that the host may touch too."""


class Assumed(IntFlag):
    """What a finding leans on. The first two are ordinary, the others strong."""

    NOTHING = 0
    UNMODELLED = 1
    METHODS = 2
    AMBIENT = 4
    PLACE = 8
    OLDER = 16
    RELEASE = 32
    FORGOTTEN = 64
    ROUNDS = 128
    POSSIBLE = 256
    BLIND = 512
    """Both accesses are of calls whose code is not seen."""
    CHOICE = 1024
    """Which of several streams is meant is not known."""


_STRONG = (
    Assumed.AMBIENT,
    Assumed.PLACE,
    Assumed.OLDER,
    Assumed.RELEASE,
    Assumed.FORGOTTEN,
    Assumed.ROUNDS,
    Assumed.CHOICE,
)


class Site:
    """A syntax node and the slice it stands in; there is one for each node."""

    __slots__ = ("node", "slice")

    def __init__(self, slice_: Slice, node: cst.CSTNode) -> None:
        self.slice = slice_
        self.node = node


class Detail(NamedTuple):
    """What is remembered of an access besides what the engine needs.

    Attributes:
        keys: the keys by which the memory was picked from lists and mappings.
    """

    operation: str
    memory: str
    assumed: Assumed
    tags: frozenset[str]
    entry: str
    keys: frozenset[Hashable] = frozenset()


@dataclass(slots=True)
class Finding:
    """A pair of accesses (or one illegal operation) found on some path."""

    kind: str
    second: Site
    operation: str
    writes: bool
    timeline: str
    first: Made | None = None
    first_timeline: str = ""
    memory: str = ""
    assumed: Assumed = Assumed.NOTHING
    tags: frozenset[str] = frozenset()
    notes: list[tuple[str, Site]] = field(default_factory=list)
    ineffective: Waited | None = None
    entry: str = ""
    streams: tuple[Hashable, Hashable] = ("", "")
    buffer: Name | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Findings with the same key are one."""
        first = self.first.site if self.first else None
        return (self.kind, self.second, first)

    @property
    def strong(self) -> int:
        """How many strong assumptions it leans on."""
        return sum(1 for flag in _STRONG if self.assumed & flag)


def constants(value: Value) -> list[Any]:
    """The constants that a value may be."""
    return [v.value for v in iterate(value) if isinstance(v, Const)]


class StreamTable:
    """The topology of an analysis: which streams take part in the legacy barrier of which device."""

    def __init__(self) -> None:
        self.blocking: Ordered[Name] = {}
        self.unknown: set[Name] = set()  # CuPy streams of which it is not seen whether they are blocking
        self.devices: dict[Name, int] = {}  # streams of other devices than the first

    def device_of(self, stream: Carrier) -> int:
        """The device of a stream; the first as long as none is named."""
        return self.devices.get(stream.base(), 0) if isinstance(stream, Name) else 0

    def alike(self, stream: Name, other: Name) -> None:
        """A stream is of the kind and the device of another."""
        if other in self.blocking:
            self.blocking[stream] = None
        if other.base() in self.devices:
            self.devices[stream.base()] = self.devices[other.base()]

    def ambient_of(self, device: int) -> Name:
        """The default stream of a device."""
        if device == 0:
            return AMBIENT
        name = Name(AMBIENT.site, (device,))
        self.devices[name] = device
        return name

    def is_legacy(self, stream: Carrier) -> bool:
        """The ambient stream is taken to be the default stream."""
        return isinstance(stream, Name) and stream.site == AMBIENT.site and stream.parent is None

    def is_blocking(self, stream: Carrier) -> bool:
        """Streams made blocking (CuPy's ``Stream()``)."""
        return stream in self.blocking

    def legacy_of(self, stream: Carrier) -> Carrier:
        """The default stream of the same device."""
        return self.ambient_of(self.device_of(stream))

    def blocking_of(self, stream: Carrier) -> Iterable[Carrier]:
        """The blocking streams of the same device."""
        device = self.device_of(stream)
        return tuple(s for s in self.blocking if self.device_of(s) == device)

    def streams_of(self, device: Carrier) -> Iterable[Carrier]:
        """Not asked: a device synchronize is :meth:`Effects.host_learns_everything`."""
        return ()
