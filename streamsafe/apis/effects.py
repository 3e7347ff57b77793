"""What a library call does to streams, events and memory, in twelve words: a row for each call, and no code.

A row is a :class:`Call`. Its words are texts that name the call's own parameters, so that each reader can bind them:
the check runs a row on the values of a path, the runtime's watchers on the arguments of a call, the C++ collector on
an operator's schema.

==============  =====================================================================================================
``reads``       parameters whose bytes the work reads; ``*`` is every tensor or array that is given
``writes``      parameters whose bytes it writes; a parameter in both is read, then written
``shape_of``    parameters of which it looks at shape and type only
``result``      what is given back: one of the constants below
``on``          the stream of the work: a parameter or a constant, :data:`CURRENT` where nothing is said
``edge``        ``learner <- source``: earlier work of the source comes before later work of the learner
``waits``       for what the host waits before the call returns: a constant or a parameter
``allocates``   from whose memory: :data:`DEVICE`, :data:`PINNED`
``keeps``       parameters whose memory is not reused before the work of the stream in ``on``
``captures``    :data:`BEGINS`, :data:`ENDS` or :data:`REPLAYS` a graph
``forbidden``   what a capture does with the call where that does not follow from ``waits``
==============  =====================================================================================================

A name of ``self`` is what a method is called on. ``a or B`` is the parameter where it is given and else the constant.
The engine's meaning of each word is that of ``streamsafe.order``; ``row`` names the row of ``docs/semantics.md`` that
says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

CURRENT = "CURRENT"
"""The calling thread's current stream."""
LEGACY = "LEGACY"
"""The default stream of the current device."""
COMMUNICATION = "COMMUNICATION"
"""The stream of a process group, which starts after the current one."""
DEVICE = "DEVICE"
"""Every stream of a device; as memory, the device's."""
PINNED = "PINNED"
"""Memory of the host that the device can reach."""
HOST = "HOST"
"""The calling thread of the host; as a result, a value of the host."""

NEW = "NEW"
"""A new tensor or array that the work writes."""
UNWRITTEN = "UNWRITTEN"
"""A new tensor or array that holds whatever was there."""
VIEW = "VIEW"
"""The same memory as what it is called on, or its first argument."""
PIECES = "PIECES"
"""Views that have no element in common."""
SAME = "SAME"
"""What it is called on, or its first argument."""
WORK = "WORK"
"""A handle: the stream that is current at its ``wait()`` waits for the work."""
CLOCK = "CLOCK"
"""The time at which the host came by."""
STREAM, EVENT, GRAPH = "STREAM", "EVENT", "GRAPH"

BEGINS, ENDS, REPLAYS = "BEGINS", "ENDS", "REPLAYS"

LOST = "LOST"
"""A capture is lost."""
ERROR = "ERROR"
"""The call fails, the capture goes on."""
ONCE = "ONCE"
"""It happens while the capture is made and at no replay."""


@dataclass(frozen=True, slots=True)
class Call:
    """One library call.

    Attributes:
        name: as users write it, after ``apis.names.canonical``; a method by its class. ``{t}`` stands for each of
            cuBLAS' type letters s, d, c and z.
        parameters: the names of the parameters, where rows are read by code that binds positions.
        aten, c10d: the operators of PyTorch's dispatcher by which it comes, without ``aten::`` or ``c10d::``.
        copy: the parameter that says whether the host waits for a copy between host and device.
        unless: parameters which, where they are given, spare the host its wait.
        schema: False where the operator's schema does not say what ``writes`` says.
    """

    name: str
    parameters: str = ""
    reads: str = ""
    writes: str = ""
    shape_of: str = ""
    result: str = ""
    on: str = ""
    edge: str = ""
    waits: str = ""
    unless: str = ""
    allocates: str = ""
    keeps: str = ""
    captures: str = ""
    forbidden: str = ""
    copy: str = ""
    aten: str = ""
    c10d: str = ""
    schema: bool = True
    row: str = ""

    @property
    def owner(self) -> str:
        """The module or class."""
        return self.name.rpartition(".")[0]

    @property
    def last(self) -> str:
        """The name without its module or class."""
        return self.name.rpartition(".")[2]


def each(owners: str, names: str, row: str = "", *, schema: bool = True, **effects: str) -> Iterator[Call]:
    """Rows of calls that do the same: every name of every owner.

    Args:
        owners: modules and classes.
        names: of functions and methods. ``aten="*"`` stands for the operator of the same name.
        row: of ``docs/semantics.md``.
        schema, effects: as :class:`Call` has them.
    """
    for owner in owners.split():
        for name in names.split():
            call = Call(f"{owner}.{name}", row=row, schema=schema, **effects)
            yield replace(call, aten=name) if call.aten == "*" else call


def named(rows: Iterable[Call], owner: str, **effects: str) -> frozenset[str]:
    """The last names of an owner's calls that have these effects; ``"*"`` as an effect: whatever it is."""
    return frozenset(
        call.last
        for call in rows
        if call.owner == owner
        and all(
            bool(getattr(call, key)) if value == "*" else getattr(call, key) == value
            for key, value in effects.items()
        )
    )


def operators(call: Call) -> list[str]:
    """The full names of the dispatcher's operators by which a call comes."""
    return [f"aten::{name}" for name in call.aten.split()] + [f"c10d::{name}" for name in call.c10d.split()]
