"""A session: what the user holds. It collects hazards, raises or warns, and is put back as it was on exit."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from streamsafe.order.hazard import Hazard
from streamsafe.runtime.allow import Allowance, any_comment, covering, identity, meant
from streamsafe.runtime.coverage import Coverage
from streamsafe.runtime.errors import warn
from streamsafe.runtime.library import known
from streamsafe.runtime.patches import Patches

Mode = Literal["raise", "warn", "collect"]
MODES: tuple[Mode, ...] = ("raise", "warn", "collect")
Host = bool | Literal["deep"]


class Again(NamedTuple):
    """What a further coming of a hazard is.

    Attributes:
        add: counts so many of them.
        known: it is the hazard that was reported, whatever the program allows by then.
    """

    add: Callable[[int], None]
    known: bool


def _count(hazard: Hazard, times: int) -> None:
    hazard.count += times


class Session:
    """What one ``sanitize()`` has found.

    Attributes:
        mode: ``raise``, ``warn`` or ``collect``.
        hazards: each hazard once, in the order in which they were found; ``count`` says how often.
        suppressed: how many hazards a comment, an allowance or ``allow`` covered.
        limit: so many hazards are kept; 0 for all.
        beyond: how many more there were.
        notes: what the session could not see, in sentences.
        inner: whether another session was opened inside it, whose hazards it has, too.
        raised: the hazards that this session raised, or was to raise: a program that catches them has them still.
        complete: false for a trace that was not written to its end.
        coverage: what was watched; None where nobody counted.
        found: called with each new hazard.
        fault: what went wrong in the sanitizer itself, so that a conflict could not be told; "" if nothing did.
        spares_threads: a thread that the program has started goes on after a hazard: one that ends may leave others
            waiting for it for ever.
        recount: brings what is counted up to date.
    """

    def __init__(self, mode: Mode = "raise", allowances: Iterable[Allowance] = (), limit: int = 0) -> None:
        self.mode: Mode = mode
        self._hazards: list[Hazard] = []
        self._suppressed = 0
        self.limit = limit
        self.beyond = 0
        self._used: Counter[Allowance] = Counter()
        self.notes: list[str] = []
        self.allowances = tuple(allowances)
        self._known: dict[tuple[object, ...], Hazard] = {}
        self._pending: dict[int, list[Hazard]] = {}
        self.inner = False
        self.raised: list[Hazard] = []
        self.complete = True
        self.coverage: Coverage | None = None
        self.found: Callable[[Hazard], None] | None = None
        self.fault = ""
        self.spares_threads = False
        self.recount: Callable[[], None] | None = None
        self._patches = Patches()

    @property
    def hazards(self) -> list[Hazard]:
        if self.recount is not None:
            self.recount()
        return self._hazards

    @property
    def suppressed(self) -> int:
        if self.recount is not None:
            self.recount()
        return self._suppressed

    # -- called by the monitor ---------------------------------------------------------------------------------------

    def take(self, hazard: Hazard, *, suppressible: bool = True) -> Hazard | None:
        """Counts a hazard; returns it when it is new and not suppressed."""
        key = identity(hazard)
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            return None
        if suppressible:
            allowance = covering(hazard, self.allowances)
            if allowance is not None or any_comment(hazard) or meant(hazard):
                self._suppress(allowance, 1)
                return None
        if self.limit and len(self._hazards) >= self.limit:
            self.beyond += 1
            return None
        self._known[key] = hazard
        self._hazards.append(hazard)
        if self.found is not None:
            self.found(hazard)
        return hazard

    def again(self, hazard: Hazard) -> Again:
        """What is counted each time that a hazard comes which :meth:`take` has seen."""
        known = self._known.get(identity(hazard))
        if known is not None:
            return Again(partial(_count, known), True)
        allowance = covering(hazard, self.allowances)
        if allowance is not None or any_comment(hazard) or meant(hazard):
            return Again(partial(self._suppress, allowance), False)
        return Again(self._pass, False)

    def replayed_suppressed(self) -> None:
        """A trace says that a hazard was suppressed when it was recorded."""
        self._suppressed += 1

    def _suppress(self, allowance: Allowance | None, times: int) -> None:
        self._suppressed += times
        if allowance is not None:
            self._used[allowance] += times

    def _pass(self, times: int) -> None:
        self.beyond += times

    def decide(self, hazard: Hazard, *, may_raise: bool) -> Hazard | None:
        """Warns, or returns the hazard when it is to be raised now; keeps it for later where raising is not possible.

        An exception that is being handled or is on its way out is never replaced.
        """
        if self.mode == "warn" or (hazard.latent and self.mode == "raise"):
            warn(hazard, shown=self.found is not None)
            return None
        if self.mode != "raise" or hazard.confidence != "certain" or hazard.latent:
            return None
        if self.spares_threads and _started():
            return None
        self.raised.append(hazard)
        if may_raise and sys.exc_info()[1] is None:
            return hazard
        self._pending.setdefault(threading.get_ident(), []).append(hazard)
        return None

    def due(self) -> Hazard | None:
        """A hazard of this thread that could not be raised where it was found, and can be now."""
        if not self._pending or sys.exc_info()[1] is not None:
            return None
        waiting = self._pending.pop(threading.get_ident(), None)
        return waiting[0] if waiting else None

    @property
    def waiting(self) -> bool:
        """Whether some hazard has not been raised yet."""
        return bool(self._pending)

    def last_due(self) -> Hazard | None:
        """At the session's exit: the first hazard of any thread that was never raised."""
        waiting = [hazard for hazards in self._pending.values() for hazard in hazards]
        self._pending.clear()
        return waiting[0] if waiting else None

    @property
    def idle(self) -> bool:
        """Whether nothing was watched."""
        return self.coverage is not None and not self.coverage.operations

    def summary(self, elsewhere: int = 0) -> str:
        """What was found, in one or more lines.

        Args:
            elsewhere: how many hazards child processes have told of.
        """
        notes = [*([UNTOLD.format(self.fault)] if self.fault else []), *self.notes]
        if self.hazards:
            text = self._counted()
        elif not self.complete:
            text = "no hazards in the part of the trace that is there"
        elif self.idle:
            unseen = [note for note in notes if NOTHING in note]
            text = unseen[0] if unseen else _nothing_watched()
            notes = [note for note in notes if note not in unseen]
        else:
            text = "no hazards" if not self.fault else "no hazards that can be told"
        if elsewhere:
            text = f"{text if self.hazards else 'no hazards here'}, {elsewhere} in child processes"
        if self.suppressed:
            text += f", {self.suppressed} suppressed"
        notes += self._of_suppressions()
        return "\n".join([f"streamsafe: {text}", *(f"streamsafe: note: {note}" for note in notes)])

    def uses(self) -> dict[str, int]:
        """How many hazards each suppression of a file has covered, by where it is written."""
        return {each.source: self._used[each] for each in self.allowances if each.source}

    def _of_suppressions(self) -> Iterator[str]:
        """What the suppressions of a file have done, and which of them do nothing."""
        if self.beyond:
            yield f"the limit of {self.limit} is reached: {self.beyond} more were found and are not shown"
        for each in self.allowances:
            if not each.source:
                continue
            reason = f" ({each.reason})" if each.reason else ""
            if each.expired:
                yield f"{each.source}{reason} expired on {each.expires}: it suppresses nothing"
            elif self._used[each]:
                yield f"{each.source}{reason} suppressed {self._used[each]}"
            else:
                yield f"{each.source}{reason} is unused: nothing that was found fits it"

    def _counted(self) -> str:
        total = sum(hazard.count for hazard in self.hazards)
        codes = Counter(hazard.code for hazard in self.hazards)
        found = ", ".join(f"{code} x{count}" if count > 1 else code for code, count in sorted(codes.items()))
        plural = "s" if len(self.hazards) > 1 else ""
        times = f"; seen {total} times" if total > len(self.hazards) else ""
        return f"{len(self.hazards)} hazard{plural} ({found}{times})"


def _started() -> bool:
    """Whether the calling thread is one that the program has started, by `threading`."""
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    foreign = (threading._DummyThread, type(threading.main_thread()))
    return thread is not None and not isinstance(thread, foreign)


NOTHING = "nothing was watched"
UNTOLD = "streamsafe failed, and a hazard was found that it cannot tell of ({}): please report this"


def _nothing_watched() -> str:
    """No operation reached the front ends."""
    names = [library.NAME for library in known()]
    return f"{NOTHING}: the program enqueued no work through {' or '.join(names)}"
