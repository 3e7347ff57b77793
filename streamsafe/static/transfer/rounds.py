"""Rounds of a loop over a container: the element of this round is none of those of the rounds before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import Atom, New, Path, Value, path
from streamsafe.static.domain.places import EACH, PAST, SOME, is_element
from streamsafe.static.domain.state import State
from streamsafe.static.domain.values import reachable

if TYPE_CHECKING:
    from streamsafe.static.summary.analyse import Analysis

_WITHIN: Final = frozenset((PAST, SOME))
"""Steps that mean something within a function only."""


def start(a: Analysis, s: State, element: Value) -> None:
    """A loop begins: its first element may be any of those of before."""
    _all(a, s, element, (EACH, PAST), SOME)


def begins(a: Analysis, s: State, element: Value) -> None:
    """A round begins: what was done to the element of the round before was done to another one."""
    _all(a, s, element, (EACH,), PAST)


def are_over(a: Analysis, s: State, element: Value) -> None:
    """A loop is over: the elements of its rounds may be any element."""
    _all(a, s, element, (PAST,), SOME)
    for atom in element:
        if isinstance(atom, Path) and atom.fields[-1:] == (EACH,):
            _last_recorded(s, atom)


def _last_recorded(s: State, stream: Path) -> None:
    """An event that was recorded on the stream of each round is of the last one; not so one that each round has."""
    last = path(stream.root, *stream.fields[:-1], SOME)
    for event, cell in s.cells.items():
        known = s.order.known_by(event)
        if cell.stream is stream and stream in known and not _of_a_round(s, event):
            s.order.set_row(event, known - {stream} | {last})


def _of_a_round(s: State, event: Atom) -> bool:
    """Whether an event is one of several: of each round, or kept with those of others."""
    if isinstance(event, Path):
        return any(map(is_element, event.fields))
    if isinstance(event, New) and event.age:
        return True
    return any(event in held for (_, field), held in s.heap.items() if is_element(field))


def end(a: Analysis, s: State) -> None:
    """The function returns out of its loops."""
    for one in list(s.order.accesses()):
        at = one.buffer
        if isinstance(at, Path) and not _WITHIN.isdisjoint(at.fields):
            _move(a, s, one, path(at.root, *(EACH if step in _WITHIN else step for step in at.fields)))


def is_keyed(a: Analysis, element: Value, key: Value) -> None:
    """Elements are looked up under a key: under the key of another round lies another element."""
    if len(key) != 1 or len(element) != 1:
        return
    (at,), (by,) = element, key
    if isinstance(at, Path) and isinstance(by, Path) and EACH in by.fields and at.fields[-1:] == (EACH,):
        a.keyed.setdefault(by, set()).add(at)


def _all(a: Analysis, s: State, element: Value, old: tuple[str, ...], step: str) -> None:
    if a.light:
        return
    for atom in reachable((element,)):
        if isinstance(atom, Path) and EACH in atom.fields:
            for at in (atom, *a.keyed.get(atom, ())):
                _rename(a, s, at, old, step)


def _rename(a: Analysis, s: State, element: Path, old: tuple[str, ...], step: str) -> None:
    last = len(element.fields) - 1 - element.fields[::-1].index(EACH)
    before = element.fields[:last]
    for one in list(s.order.near(element)):
        at = one.buffer
        if not isinstance(at, Path) or at.root != element.root or len(at.fields) <= last:
            continue
        if at.fields[:last] == before and at.fields[last] in old:
            _move(a, s, one, path(at.root, *before, step, *at.fields[last + 1 :]))


def _move(a: Analysis, s: State, one: Access, buffer: Path) -> None:
    ways = s.order.ways_of(one)
    if ways:
        moved = one.replace(buffer=buffer)
        s.order.drop(one)
        s.order.put(moved, ways)
        a.remember_waits(moved, a.waits_before(one))
