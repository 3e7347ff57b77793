"""Threads of the host: what they are given to do, on the default stream, and who is still at work (TS-22)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain import access as tag
from streamsafe.static.domain.atoms import (
    TRUE,
    UNKNOWN,
    Function,
    New,
    Value,
    ordered,
    value,
)
from streamsafe.static.domain.state import State
from streamsafe.static.transfer import memory as mem
from streamsafe.static.transfer.registry import CallSite, special

if TYPE_CHECKING:
    from streamsafe.order.hazard import Span
    from streamsafe.static.summary.analyse import Analysis

BEGINS_GLOBAL: Final = "begins a capture in the global mode"

ONCE: Final = "host-work-in-capture"
"""The code of work that waits for nothing, and that replays do not repeat."""

RESULT: Final = "its result"
"""The field of a future that holds what its function returns."""


def others_at_work(a: Analysis, s: State, span: Span) -> None:
    """Under the global mode what other threads do may break the capture (GM-thr_item)."""
    for _, started in sorted(s.capturing.threads.items(), key=lambda item: item[1])[:1]:
        notes = (("a thread that may call CUDA meanwhile is at work since here", started),)
        a.violation("concurrent-capture", span, BEGINS_GLOBAL, s.guard, notes, tag.ON_SOME_PATH)


GIVEN: Final = ("target", "args", "kwargs")
"""The fields of a thread that hold what it is made with."""


@special("thread")
def make_thread(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``threading.Thread(target=f)``"""
    made = mem.allocate(a, s, a.span(c.at), "threading.Thread")
    for name in GIVEN:
        s.heap[made, name] = c.given.get(name, UNKNOWN)
    return value(made)


def targets(a: Analysis, s: State, thread: New) -> list[str]:
    type = a.type_of(thread)
    if ":" in type:
        fid = a.engine.index.method(type, "run")
        return [fid] if fid is not None else []
    return [
        atom.fid for atom in ordered(s.heap.get((thread, "target"), UNKNOWN)) if isinstance(atom, Function)
    ]


def synchronizes(a: Analysis, fid: str) -> bool:
    """Whether a function does what a capture of another thread does not survive."""
    exits = a.engine.summary(fid).exits
    works = any(work.code != ONCE for exit in exits for work in exit.work)
    return works or not exits  # it works on and on


@special("thread_join", "future_result", "futures_wait")
def join_thread(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``thread.join()``, ``future.result()``"""
    if c.row is not None and c.row.special == "futures_wait":
        pool_done(a, s)
    for atom in c.receiver:
        s.capturing.threads.pop(atom, None)
    results = [s.heap.get((atom, RESULT)) for atom in ordered(c.receiver)]
    if results and None not in results:
        return UNKNOWN.union(*(held for held in results if held))
    return None


def pool_done(a: Analysis, s: State) -> None:
    """A pool has ended, or all that it was given is waited for."""
    for atom in [each for each in s.capturing.threads if a.role(each) == "future"]:
        del s.capturing.threads[atom]


def submitted(a: Analysis, s: State, function: Value, future: Value, span: Span) -> None:
    """A function runs on another thread until its future is waited for."""
    if any(isinstance(atom, Function) and synchronizes(a, atom.fid) for atom in function):
        for atom in ordered(future):
            s.capturing.threads[atom] = span


def pins_memory(a: Analysis, s: State, loader: Value, span: Span) -> None:
    """A loader that is iterated pins its batches on a thread of its own."""
    for atom in ordered(loader):
        if s.heap.get((atom, PINS)) == value(TRUE):
            s.capturing.threads[atom] = span


PINS: Final = "pin_memory"
"""The field of a loader that says whether it pins its batches."""


@special("loader")
def make_loader(a: Analysis, s: State, c: CallSite) -> Value | list[State] | None:
    """``DataLoader(..., pin_memory=True)``"""
    made = mem.allocate(a, s, a.span(c.at), LOADER)
    held = c.given.get("pin_memory", c.keywords.get("pin_memory"))
    if held:
        s.heap[made, PINS] = held
    return value(made)


LOADER: Final = "torch.utils.data.DataLoader"
