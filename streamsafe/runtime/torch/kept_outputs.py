"""Outputs of a graph that the program keeps from one launch to the next, which writes them again (SS412).

All names of an output are one tensor: which launch a name means shows only in when it was given, and in what the
function does next. Two names of one output that were given between different launches mean two results, where the
function still reads both. A name that is read after each launch means the present result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from streamsafe.order.hazard import Access, Conflict, Facts, Memory, Note
from streamsafe.runtime import places as sites
from streamsafe.runtime.pinned import variables as frames
from streamsafe.runtime.torch.later_uses import Later, Reference, after

FUNCTIONS = 4
"""Functions of the program that are looked at, from the one that launches on."""
LAUNCHES = 16
"""Launches from one place that are looked at."""
MOST = 1024
"""Running functions, lists and places that are remembered of one graph."""


class Output(NamedTuple):
    """Part of what a graph writes: its bytes, and the tensor."""

    start: int
    stop: int
    tensor: Any

    def meets(self, other: Output) -> bool:
        return self.start < other.stop and other.start < self.stop

    def covers(self, other: Output) -> bool:
        return self.start <= other.start and other.stop <= self.stop


class Found(NamedTuple):
    """An earlier result that is still needed: its name, the offset of its use, and what is said of it."""

    name: str
    output: Output
    read: int
    overwritten: str
    why: str


class _Seen(NamedTuple):
    """A running function since the first launch in it.

    Attributes:
        names: those that stood for outputs before it.
        results: what has launched and given its result a name.
    """

    code: CodeType
    names: set[str]
    results: dict[str, CodeType]


class Kept:
    """The names and lists that hold outputs of one graph.

    Args:
        output: what of the graph's outputs an object is; None: it is none.
    """

    def __init__(self, output: Callable[[object], Output | None]) -> None:
        self._output = output
        self._seen: dict[int, _Seen] = {}
        self._lengths: dict[int, int] = {}
        self._launched: dict[int, int] = {}
        self._told: set[tuple[int, int]] = set()

    def looks(self, place: int) -> bool:
        """Whether a launch from a place is to be looked at: a program does the same there each time."""
        launched = self._launched[place] = self._launched.get(place, 0) + 1
        if len(self._launched) > MOST:
            self._launched.clear()
        return launched <= LAUNCHES

    def launch(self, frame: FrameType | None) -> list[Conflict]:
        """The graph is about to be launched from a frame: what the program still needs of an earlier launch."""
        running: list[FrameType] = []
        while frame is not None and len(running) < FUNCTIONS:
            if not sites.internal(frame.f_code):
                running.append(frame)
            frame = frame.f_back
        if len(self._seen) > MOST:
            self._seen.clear()
        if len(self._lengths) > MOST:
            self._lengths.clear()
        conflicts: list[Conflict] = []
        called = None
        for each in running:
            found = self._in(each, called)
            if found is not None and (id(each.f_code), found.read) not in self._told:
                self._told.add((id(each.f_code), found.read))
                conflicts.append(_conflict(found, running, each))
            called = each.f_code
        return conflicts

    def _in(self, frame: FrameType, called: CodeType | None) -> Found | None:
        """What one function still needs; ``called``: the one that it has called."""
        later, variables = after(frame.f_code, frame.f_lasti), _Variables(frame)
        seen, found = self._seen.get(id(frame)), None
        if seen is None or seen.code is not frame.f_code:
            held = (name for name in later.live if self._output(variables.get(Reference(name))) is not None)
            seen = self._seen[id(frame)] = _Seen(frame.f_code, set(held), {})
        else:
            found = self._of_names(seen, later, variables, called)
        if later.result and called is not None:
            seen.results[later.result] = called
        return self._of_lists(later, variables) or found

    def _of_names(
        self, seen: _Seen, later: Later, variables: _Variables, called: CodeType | None
    ) -> Found | None:
        for name in later.reads.keys() - seen.names:
            output = self._output(variables.get(Reference(name)))
            if output is None:
                continue
            present = [other for other in later.others if other.name != name]
            present = [
                each for each in present if self._means(variables.get(each), output, later.others[each])
            ]
            if (
                later.result_read
                and later.result != name
                and called is not None
                and seen.results.get(name) is called
            ):
                present.append(Reference(later.result))
            if present:
                why = f"`{name}` is the result of an earlier replay, `{present[0]}` of this one: both are one memory"
                return Found(name, output, later.reads[name], f"`{name}`", why)
        return None

    def _means(self, value: object, output: Output, whole: bool) -> bool:
        """Whether a value has bytes of an output, whatever part of it is read."""
        other = self._output(value)
        return other is not None and output.meets(other) and (whole or output.covers(other))

    def _of_lists(self, later: Later, variables: _Variables) -> Found | None:
        found = None
        for each in later.appends:
            held = variables.get(each.list)
            if type(held) is not list:
                continue
            before, self._lengths[id(held)] = self._lengths.get(id(held)), len(held)
            new = self._output(held[before]) if before is not None and before < len(held) else None
            if before is None or new is None:
                continue
            last = before and self._output(held[before - 1])
            coming = self._output(variables.get(each.element)) if each.element is not None else None
            if (last and new.meets(last)) or (coming is not None and new.meets(coming)):
                why = f"`{each.list}` gets the result of each replay: all are one memory"
                found = Found(str(each.list), new, each.offset, f"what `{each.list}` has", why)
        return found


class _Variables:
    """The variables of a frame; no code of the program runs to read them."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._local: dict[str, Any] | None = None

    def get(self, reference: Reference) -> object:
        """What a reference stands for; None for nothing."""
        if self._local is None:
            self._local = dict(frames.named(self._frame))
        value = self._local.get(reference.name, self._frame.f_globals.get(reference.name))
        if not reference.attribute or value is None:
            return value
        try:
            held = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            return None
        return held.get(reference.attribute) if type(held) is dict else None


def _conflict(found: Found, running: list[FrameType], frame: FrameType) -> Conflict:
    callers = _pairs(running[running.index(frame) + 1 :])
    tensor = found.output.tensor
    memory = Memory(
        found.name,
        "torch",
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        found.output.start,
        found.output.stop,
    )
    read = Access("read", "", "reads", stack=sites.frames((frame.f_code, found.read, *callers)))
    launch = Note(f"this replay overwrites {found.overwritten}", stack=sites.frames(tuple(_pairs(running))))
    notes = (launch, Note(found.why))
    return Conflict(
        read, None, memory, Facts(violation="stale-replay-output"), notes=notes, confidence="likely"
    )


def _pairs(running: list[FrameType]) -> Iterator[CodeType | int]:
    for each in islice(running, FUNCTIONS):
        yield each.f_code
        yield each.f_lasti


__all__ = ["Kept", "Output"]
