"""From a conflict to an error: its code, the sessions that are told, what is raised now and what later."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streamsafe.order.hazard import Access, Conflict, Facts, Hazard, Memory, Note
from streamsafe.order.memory import Space
from streamsafe.rule import code_for
from streamsafe.runtime import places as sites
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.marks import FOUND, IMPORTED, NAMED, SUPPRESSED, interop, names_of, places, written
from streamsafe.runtime.memory_names import Names
from streamsafe.runtime.repeats import Repeats
from streamsafe.runtime.session import Session


def coded(conflict: Conflict) -> Hazard:
    """The conflict under its rule's code; the rules are loaded at the first conflict."""
    return code_for(conflict)


def reconsider(conflict: Conflict, hazard: Hazard) -> None:
    """At the end of the program: the hazard of a conflict, under the code that it has by then."""
    if conflict.recheck_at_end is not None and conflict.recheck_at_end():
        now = coded(replace(conflict.refined(ineffective_wait=False), notes=()))
        hazard.code, hazard.name, hazard.message = now.code, now.name, now.message
        hazard.notes, hazard.help = now.notes, now.help


class Judge:
    """Judges the conflicts of a program, from every watcher.

    Attributes:
        sessions: those that are open, the innermost last.
        deferred: whether a hazard waits to be raised.
        imported: memory that came in with no handshake while something was pending on it.
        refine: adds to a conflict what a front end knows of it, before it is judged.
        mark: writes into the trace what the engine does not know.
        repeats: counts what comes again.
    """

    def __init__(self, mark: Callable[[str, Any], None] | None = None) -> None:
        self.mark = mark
        self.sessions: list[Session] = []
        self.deferred = False
        self.imported: list[tuple[Space, int, int]] = []
        self.refine: Callable[[Conflict], Conflict] = lambda conflict: conflict
        self.repeats = Repeats()
        self._open: list[tuple[Conflict, Hazard]] = []
        self._memory_names = Names()

    def report(self, conflicts: Sequence[Conflict], *, may_raise: bool = True) -> None:
        """Reports conflicts whose operation cannot be vetoed by the engine.

        Raises:
            StreamHazardError: the innermost session raises.
        """
        hazard = self.judge(conflicts, may_raise)
        if hazard is not None:
            raise StreamHazardError(hazard)

    def violation(
        self,
        name: str,
        operation: str,
        message: str = "",
        *,
        timeline: str = "the host",
        may_raise: bool = True,
        facts: Facts | None = None,
    ) -> None:
        """An operation that is illegal where it stands, told by the rule of that name.

        Args:
            facts: what else the rule may ask.

        Raises:
            StreamHazardError: the innermost session raises.
        """
        second = Access(operation, timeline, "reads", stack=sites.frames(sites.capture(2)))
        notes = (Note(message),) if message else ()
        facts = replace(facts or Facts(), violation=name)
        self.found(
            Conflict(second=second, first=None, memory=Memory(""), facts=facts, notes=notes),
            may_raise=may_raise,
        )

    def found(self, conflict: Conflict, *, may_raise: bool = True) -> None:
        """A conflict that the front end found by itself, without the engine.

        Raises:
            StreamHazardError: the innermost session raises.
        """
        if self.mark is not None:
            self.mark(FOUND, written(conflict))
        self.report([conflict], may_raise=may_raise)

    def came_in(self, space: Space, start: int, stop: int) -> None:
        """Memory was taken from another library with no handshake, while something was pending on it."""
        self.imported.append((space, start, stop))
        self.repeats.forget()
        if self.mark is not None:
            self.mark(IMPORTED, (space, start, stop))

    def judge(self, conflicts: Sequence[Conflict], may_raise: bool) -> Hazard | None:
        """Gives conflicts their codes and tells the sessions; returns the hazard to raise, if any."""
        chosen: Hazard | None = None
        for conflict in conflicts:
            hazard = coded(self._named(interop(self.refine(conflict), self.imported)))
            silent = sum(session.suppressed for session in self.sessions)
            new = [session for session in self.sessions if session.take(hazard) is not None]
            if self.mark is None and not self.imported:  # a trace has each, and what came in has another code
                self.repeats.settle(conflict.again, hazard, self.sessions)
            elif self.mark is not None and silent != sum(session.suppressed for session in self.sessions):
                self.mark(SUPPRESSED, places(hazard))
            if new and conflict.recheck_at_end is not None:
                self._open.append((conflict, hazard))
            if self.sessions and self.sessions[-1] in new:
                due = self.sessions[-1].decide(hazard, may_raise=may_raise and chosen is None)
                chosen = chosen or due
        self.deferred = any(session.waiting for session in self.sessions)
        return chosen

    def _named(self, conflict: Conflict) -> Conflict:
        """With the name that the program has for the memory, and the module of a model in which it runs."""
        name, module = self._memory_names.give(conflict)
        if (name, module) == (conflict.memory.name, ""):
            return conflict
        if self.mark is not None:
            self.mark(NAMED, names_of(conflict, name, module))
        memory = replace(conflict.memory, name=name)
        return replace(conflict, memory=memory, second=replace(conflict.second, module=module))

    def error(self, conflicts: Sequence[Conflict], may_raise: bool) -> StreamHazardError | None:
        """As :meth:`judge`, for a watcher that raises by itself."""
        hazard = self.judge(conflicts, may_raise)
        return StreamHazardError(hazard) if hazard is not None else None

    def due(self) -> StreamHazardError | None:
        """What could not be raised where it was found, and can be in this thread now."""
        session = self.sessions[-1] if self.sessions else None
        hazard = session.due() if session is not None else None
        self.deferred = any(session.waiting for session in self.sessions)
        return StreamHazardError(hazard) if hazard is not None else None

    def raise_due(self) -> None:
        """Raises it.

        Raises:
            StreamHazardError: there is one.
        """
        error = self.due()
        if error is not None:
            raise error

    def reconsider(self) -> None:
        """The program ends: waits show what they were for."""
        for conflict, hazard in self._open:
            reconsider(conflict, hazard)


class Verdict:
    """The veto given to the engine: it judges the conflicts while the operation can still be refused.

    One serves all usual operations: it is used under the lock.
    """

    __slots__ = ("_judge", "by_host", "hazard", "may_raise")

    def __init__(self, judge: Judge, may_raise: bool = True, by_host: bool = False) -> None:
        self._judge = weakref.ref(judge)  # which keeps the usual one
        self.may_raise = may_raise
        self.by_host = by_host
        self.hazard: Hazard | None = None

    def __call__(self, conflicts: list[Conflict]) -> bool:
        if self.by_host:
            conflicts = [conflict.refined(host=conflict.second.reads_or_writes) for conflict in conflicts]
        judge = self._judge()
        assert judge is not None
        self.hazard = judge.judge(conflicts, self.may_raise)
        return self.hazard is not None

    def take(self) -> Hazard | None:
        """The hazard to raise, once."""
        hazard, self.hazard = self.hazard, None
        return hazard
