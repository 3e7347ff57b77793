"""Which paths of an entry are run: its first one, then those with one or two decisions turned round."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Callable
from dataclasses import dataclass

from .machine import Machine
from .modules import Project
from .program import Hazard, Timeline, order_code
from .source import Function, Module, Site
from .state import Broke, Continued, Raised, Returned, Spent, StopGenerator

PATHS = 40
"""Paths of an entry."""
AT_STAKE = 2000
"""Statements of the paths of an entry, beside those of the first one, after which no other is begun."""
NOT_AT_STAKE = 300
"""The same, with those of the first path, where the order of nothing matters that this does: it takes the branches
that use streams."""
MAX_FILE_STEPS = 80_000
"""Statements and calls of all paths of a file."""
_PAIRS = frozenset(("SS101", "SS102", "SS103", "SS111", "SS112", "SS301", "SS302"))
ENDLESS = 1 << 60
_RELEASES = ("SS201", "SS202")
_WAITS = ("wait_stream", "wait_event")

Key = tuple[str, str, int, int]
Outcome = tuple[object, bool]
"""A condition of the source, and how it comes out."""


class Found:
    """What the paths of a file have shown.

    Attributes:
        hazards: by code and place: with the fewest assumptions. ranks: by which of two is kept, the smaller one.
        paths, cut, steps: how many paths were run, how many were cut short, and how many statements they had.
        firsts: by finding: where else is what is unordered with its second part.
        waiters: where streams were made that wait somewhere.
        further: by finding: those that the same missing edge leaves unordered, on some path.
    """

    def __init__(self) -> None:
        self.hazards: dict[Key, tuple[Hazard, tuple[str, ...]]] = {}
        self.ranks: dict[Key, tuple[int, bool]] = {}
        self.paths = self.cut = self.steps = 0
        self.entered: set[Function] = set()
        self.firsts: dict[Key, dict[ast.AST, Site]] = {}
        self.waiters: set[ast.AST] = set()
        self.further: dict[Key, set[Key]] = {}

    def settled(self, mod: Module) -> None:
        """The paths are run: drop what they exclude together, and note what else is unordered.

        What is found only where a stream never waits is no finding where it does on another path, or may in
        code that no
        path came to.
        """
        waits = False
        if any(h.never is not None for h, _ in self.hazards.values()):
            waits = any(
                isinstance(n, ast.Attribute) and n.attr in _WAITS and not isinstance(n.value, ast.Call)
                for n in ast.walk(mod.tree)
            )
        for key, (h, _) in list(self.hazards.items()):
            if h.code == "SS301":
                shown = h.first.site[1] if h.first is not None and h.first.site is not None else None
                h.notes += [
                    ("also", site)
                    for site in list(self.firsts.get(key, {}).values())[:4]
                    if site[1] is not shown
                ]
            if h.never is not None and (waits or h.never[1] in self.waiters):
                del self.hazards[key]
        self._one_for_each_edge()

    def _one_for_each_edge(self) -> None:
        """Drop what the edge that another finding asks for would order as well, where that one is as sure."""
        for key, others in self.further.items():
            if key not in self.hazards:
                continue
            h, assumptions = self.hazards[key]
            for other in others - {key}:
                if other in self.hazards and len(self.hazards[other][1]) < len(assumptions):
                    continue  # surer than this one
                self.hazards.pop(other, None)
                h.further += 1

    def add(self, h: Hazard, assumed: tuple[str, ...], turned: bool = False) -> None:
        """Keep a hazard, unless it is known with fewer assumptions.

        Of two with as many, a wait that does not cover the access counts for less where a decision was turned round:
        it is one of another call then.

        Args:
            assumed: what is assumed beside the assumptions of the hazard itself.
            turned: whether a decision of the path was turned round.
        """
        key = _place(h)
        assumptions = tuple(sorted({*h.assumptions, *assumed}))
        if h.first is not None and h.first.site is not None and len(assumptions) < 2:
            self.firsts.setdefault(key, {})[h.first.site[1]] = h.first.site
        known = self.hazards.get(key)
        rank = (len(assumptions), turned and h.code == "SS103")
        if known is None or rank < self.ranks[key]:
            self.hazards[key], self.ranks[key] = (h, assumptions), rank


class Exploration:
    """The paths of one entry: its first one, then those with decisions of it turned round.

    Those come first that turn a condition which guards a wait: where nobody waits is what is looked for. Every second
    path turns a condition, if there is one, that has not yet come out that way anywhere. Where the order of nothing
    matters that the first path does, only such conditions are turned: they may lead to what does.

    Args:
        start: given a machine, runs the entry.
        paths: how many at most.

    Attributes:
        at_stake: whether the order of anything matters that the first path does.
        todo: what to turn, and which condition that turns which way.
        asked: the conditions that paths have come to. came: how they have come out.
    """

    def __init__(
        self, project: Project, start: Callable[[Machine], None], found: Found, paths: int = PATHS
    ) -> None:
        self.project, self.start, self.found, self.paths = project, start, found, paths
        self.steps = self.budget = 0
        self.at_stake = False
        self.todo: list[tuple[dict[int, bool], Outcome | None]] = [({}, None)]
        self.came: set[Outcome] = set()
        self.seen: set[tuple[object, ...]] = set()
        self.asked: set[object] = set()

    def next(self) -> bool:
        """Run one path, if there is one left.

        Returns:
            Whether there was.
        """
        found = self.found
        if self.steps and not self.at_stake:
            self.todo = [each for each in self.todo if each[1] not in self.came]
        if not self.todo or self.paths <= 0 or found.steps >= MAX_FILE_STEPS or self.steps > self.budget:
            return False
        self.paths -= 1
        flips, _ = self.todo.pop(self._fresh() if self.paths % 2 else 0)
        m = _run(self.project, self.start, flips, found)
        self.steps += m.steps
        self.came.update((place, value) for place, (_, value) in zip(m.path.places, m.decisions, strict=True))
        if not flips:
            self.at_stake = m.at_stake
            self.budget = AT_STAKE + m.steps if m.at_stake else NOT_AT_STAKE
        signature = tuple(m.decisions)
        if signature not in self.seen:
            self.seen.add(signature)
            _collect(m, found)
            if len(flips) < 2:
                self._plan(m, flips)
        return True

    def _fresh(self) -> int:
        """The first of the paths to run that turns a condition to where no path has come; else the very first."""
        return next((i for i, (_, turned) in enumerate(self.todo) if turned not in self.came), 0)

    def _plan(self, m: Machine, flips: dict[int, bool]) -> None:
        """Which decisions of a path are to be turned round, and when."""
        first = max(flips, default=-1) + 1
        decisions, places = m.decisions, m.path.places
        opened = [i for i in range(first, len(decisions)) if flips and places[i] not in self.asked]
        opened = sorted(opened, key=lambda i: decisions[i][0][0] not in ("eq", "in"))[:3]
        self.asked.update(places)
        later = [i for i in range(first, len(decisions)) if i not in opened]
        later.sort(key=lambda i: not m.path.guards[i])
        self.todo[:0] = [self._turn(m, flips, i) for i in opened]  # what only this turn has come to
        self.todo += [self._turn(m, flips, i) for i in later]

    def _turn(self, m: Machine, flips: dict[int, bool], i: int) -> tuple[dict[int, bool], Outcome]:
        """A path with one more decision turned round."""
        other = not m.decisions[i][1]
        return {**flips, i: other}, (m.path.places[i], other)


def _run(project: Project, start: Callable[[Machine], None], flips: dict[int, bool], found: Found) -> Machine:
    """Run one path."""
    m = Machine(project, flips)
    found.paths += 1
    try:
        start(m)
        m.library.produce()
    except (Returned, Raised, Broke, Continued, StopGenerator):
        pass
    except (Spent, RecursionError):
        found.cut += 1
    m.library.views_left()
    m.close()
    found.steps += m.steps
    found.entered |= m.entered
    found.waiters |= {t.site[1] for t, *_ in m.order.waits if t.site is not None}
    return m


def _collect(m: Machine, found: Found) -> None:
    """Keep the hazards of a path."""
    for h in m.hazards:
        if h.missed is not None and h.missed.recheck_at_end is not None and h.missed.recheck_at_end():
            h.missed, h.code = None, order_code(h.second)  # the wait was for something else
    unordered = {
        h.first.site[1]
        for h in m.hazards
        if h.code < "SS113" and h.first is not None and h.first.site is not None
    }
    unordered |= {
        h.first.site[1]
        for h in m.hazards
        if h.code == "SS301" and h.first is not None and h.first.site is not None
    }
    filled = {h.second.site[1] for h in m.hazards if h.code == "SS112"}
    second_call = m.second_call_at
    edges: list[_Edge] = []
    for h in sorted(m.hazards, key=lambda h: h.code in _RELEASES):
        h.trail = m.trail
        release = h.code in _RELEASES
        if h.second.site[1] in (unordered if release else filled if h.code == "SS113" else ()):
            continue  # one missing wait
        extra: list[str] = []
        if release and m.function_entry and h.second.timeline.origin == "new":
            if len(h.notes) > 1 and second_call is not None and h.seq > second_call:
                extra += ["calls", "local"]
        built = h.first is not None and 0 < h.first.call <= m.built_at
        if h.first is not None and m.boundaries and not (built and h.code in _PAIRS):
            one, other = (bisect.bisect_left(m.boundaries, c) for c in (h.first.call, h.second.call))
            if one != other:
                extra.append("methods" if (other - one) % m.methods else "calls")
                if h.code in _PAIRS and _waited_elsewhere(m, h, {one, other}):
                    extra.append("waits")
        if h.code == "SS312" and h.assumptions and h.notes[0][1] in m.library.recorded_later:
            extra.append("records")
        if release and not h.seq and m.boundaries and _joined_elsewhere(m, h):
            extra.append("waits")
        if h.code in _PAIRS and built and m.built_at < h.second.call:
            extra.append("init")  # what the constructor enqueues is pending unless it waits
        if second_call is not None and h.first is not None and h.first.call <= second_call < h.second.call:
            extra.append("calls")
        edge = _Edge.of(h, frozenset((*h.assumptions, *extra)))
        if edge is not None:
            same = next((e for e in edges if e.orders(edge) and e.hazard.second.site != h.second.site), None)
            if same is not None:
                found.further.setdefault(_place(same.hazard), set()).add(_place(h))
                continue
            edges.append(edge)
        found.add(h, tuple(extra), bool(m.path.flips))


def _place(h: Hazard) -> Key:
    """What two findings have in common that are one."""
    module, node = h.second.site
    family = h.code[:4] if h.code < "SS104" else h.code
    return (family, module.path, node.lineno, node.col_offset)


@dataclass(slots=True)
class _Edge:
    """The edge that is missing on a path: from the first access, at the latest before the second.

    Attributes:
        source, target: who is to be waited for, and who waits. begin, end: the times of the two accesses.
    """

    hazard: Hazard
    source: Timeline
    target: Timeline
    begin: int
    end: int
    assumed: frozenset[str]

    @classmethod
    def of(cls, h: Hazard, assumed: frozenset[str]) -> _Edge | None:
        """That of a finding; None where it is about something else."""
        if h.first is None:
            return None
        if h.code in _RELEASES:  # the use is to come before the next life of the memory
            return cls(h, h.second.timeline, h.first.timeline, h.second.call, h.seq or ENDLESS, assumed)
        if h.code in _PAIRS and h.first.site is not None:
            return cls(h, h.first.timeline, h.second.timeline, h.first.call, h.second.call, assumed)
        return None

    def orders(self, other: _Edge) -> bool:
        """Whether it would order what another one is missing for: it stands between those two accesses."""
        if (
            self.source is not other.source
            or self.target is not other.target
            or not self.assumed <= other.assumed
        ):
            return False
        return other.begin <= self.end <= other.end


def _waited_elsewhere(m: Machine, h: Hazard, calls: set[int]) -> bool:
    """Whether another call makes the second timeline, or the host, wait for the first: the order of calls decides."""
    assert h.first is not None
    source, target = h.first.timeline, h.second.timeline
    return any(
        wait.of in (source, None)
        and wait.who in (target, m.order.host)
        and bisect.bisect_left(m.boundaries, wait.at) % m.methods not in {call % m.methods for call in calls}
        for wait in m.order.waits
    )


def _joined_elsewhere(m: Machine, h: Hazard) -> bool:
    """Whether a later call makes who allocated memory, or the host, wait for a use of it."""
    assert h.first is not None
    return any(
        wait.of is h.second.timeline
        and wait.who in (h.first.timeline, m.order.host)
        and wait.at > h.second.call
        for wait in m.order.waits
    )
