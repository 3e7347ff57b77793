"""A session: what the user holds. It collects hazards, raises or warns, and is put back as it was on exit."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Literal, TypeVar

from streamsafe.order.hazard import Conflict, Hazard
from streamsafe.report.run_time import describe, frame_of
from streamsafe.runtime.allow import Allowance, any_comment, covering, identity, meant, parse_allowance
from streamsafe.runtime.patches import Patches

Mode = Literal["raise", "warn", "collect"]
MODES: tuple[Mode, ...] = ("raise", "warn", "collect")
Host = bool | Literal["deep"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class StreamHazardError(RuntimeError):
    """A missing edge, found before the operation that completes the hazard was enqueued.

    Attributes:
        hazard: the hazard as data.
    """

    def __init__(self, hazard: Hazard) -> None:
        self.hazard = hazard
        super().__init__(describe(hazard))

    def __reduce__(self) -> tuple[type[StreamHazardError], tuple[Hazard]]:
        return type(self), (self.hazard,)


class StreamHazardWarning(RuntimeWarning):
    """A hazard in a session that warns."""


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
        operations: how many operations were watched; None where nobody counted.
        found: called with each new hazard.
    """

    def __init__(self, mode: Mode = "raise", allowances: Iterable[Allowance] = (), limit: int = 0) -> None:
        self.mode: Mode = mode
        self.hazards: list[Hazard] = []
        self.suppressed = 0
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
        self.operations: int | None = None
        self.found: Callable[[Hazard], None] | None = None
        self._patches = Patches()

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
                self.suppressed += 1
                self._used.update([] if allowance is None else [allowance])
                return None
        if self.limit and len(self.hazards) >= self.limit:
            self.beyond += 1
            return None
        self._known[key] = hazard
        self.hazards.append(hazard)
        if self.found is not None:
            self.found(hazard)
        return hazard

    def decide(self, hazard: Hazard, *, may_raise: bool) -> Hazard | None:
        """Warns, or returns the hazard when it is to be raised now; keeps it for later where raising is not possible.

        An exception that is being handled or is on its way out is never replaced.
        """
        if self.mode == "warn" or (hazard.latent and self.mode == "raise"):
            warn(hazard, shown=self.found is not None)
            return None
        if self.mode != "raise" or hazard.confidence != "certain" or hazard.latent:
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

    def summary(self) -> str:
        """What was found, in one or more lines."""
        notes = list(self.notes)
        if self.hazards:
            text = self._counted()
        elif not self.complete:
            text = "no hazards in the part of the trace that is there"
        elif self.operations == 0:
            unseen = [note for note in notes if NOTHING in note]
            text = unseen[0] if unseen else _nothing_watched()
            notes = [note for note in notes if note not in unseen]
        else:
            text = "no hazards"
        if self.suppressed:
            text += f", {self.suppressed} suppressed"
        notes += self._of_suppressions()
        return "\n".join([f"streamsafe: {text}", *(f"streamsafe: note: {note}" for note in notes)])

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


NOTHING = "nothing was watched"


def _nothing_watched() -> str:
    """No operation reached the front ends."""
    from streamsafe.runtime.library import known

    names = [library.NAME for library in known()]
    return f"{NOTHING}: the program enqueued no work through {' or '.join(names)}"


def warn(hazard: Hazard, shown: bool = False) -> None:
    """Warns of a hazard at the user's line that it stands on; at the caller's line where none is known.

    Args:
        shown: the hazard is shown in full elsewhere: one line is enough.
    """
    text = f"{hazard.code} {hazard.name}: {hazard.message}" if shown else describe(hazard)
    frame = frame_of(hazard)
    if frame is None:
        warnings.warn(StreamHazardWarning(text), stacklevel=2)
    else:
        warnings.warn_explicit(StreamHazardWarning(text), None, frame.filename, frame.line)


class sanitize:
    """Checks the order of CUDA work while a block, or a decorated function, runs.

    Work enqueued before counts as finished. A session inside another joins it: both see the hazards found while the
    inner one lasts, and the inner one's mode decides.

    Args:
        mode: ``raise`` raises :class:`StreamHazardError` before the operation that completes a hazard is enqueued,
            ``warn`` warns, ``collect`` does neither. The session's ``hazards`` has them all.
        threads: one clock for each host thread, ordered by what the ``threading`` and ``queue`` modules order; else a
            synchronize in any thread counts for all.
        host: whether accesses of the host to pinned arrays are checked: of those made in the session each access, of
            others that no copy's source changes too early. ``deep`` looks at each access to the others too: it gives
            them another type while the session lasts, searches all objects when it begins, and from Python 3.12 on
            looks at lines that assign to elements, which slows all code down.
        ignore: what is not reported: ``CODE``, ``CODE:FILE`` or ``CODE:FILE::FUNCTION``.
        suppressions: a suppression file (docs/guides/silence.md); "" for none.
        limit: keep so many hazards, and count the others; 0 for all.
        trace: a text file that the session is recorded in; that of a session inside another stays empty.

    Raises:
        ValueError: an unknown mode or ``host``, or an ``ignore`` entry that names no code.
        SuppressionError: the suppression file cannot be read, or an entry means nothing.
        RuntimeError: on entering: CuPy's version is not supported, or the current stream is being captured.
    """

    def __init__(
        self,
        mode: Mode = "raise",
        *,
        threads: bool = False,
        host: Host = True,
        ignore: Iterable[str] = (),
        suppressions: str = "",
        limit: int = 0,
        trace: Any = None,
    ) -> None:
        if callable(mode):
            raise TypeError("write @sanitize(), with parentheses")
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}: it must be raise, warn or collect")
        self.mode: Mode = mode
        if host not in (True, False, "deep"):
            raise ValueError(f"host is {host!r}: it must be True, False or 'deep'")
        self._threads = threads
        self._host = host
        self._trace = trace
        self._allowances = tuple(parse_allowance(text) for text in ignore)
        if suppressions:
            from streamsafe.runtime.suppressions import load

            self._allowances += load(suppressions)
        self._limit = limit
        self._open: list[Session] = []

    def __enter__(self) -> Session:
        from streamsafe.runtime.opening import enter

        session = Session(self.mode, self._allowances, self._limit)
        enter(session, threads=self._threads, host=self._host, trace=self._trace)
        self._open.append(session)
        return session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from streamsafe.runtime.monitor import count
        from streamsafe.runtime.opening import leave

        session = self._open.pop()
        count(session)
        leave(session)
        hazard = session.last_due()
        if hazard is not None and error is None:
            raise StreamHazardError(hazard)

    def __call__(self, function: _Function) -> _Function:
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def sanitized_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return sanitized_coroutine  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):
            raise TypeError("sanitize() cannot decorate a generator function: use `with` inside it")

        @wraps(function)
        def sanitized(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return sanitized  # type: ignore[return-value]


def coded(conflict: Conflict) -> Hazard:
    """The conflict under its rule's code; the rules are loaded at the first conflict."""
    from streamsafe.registry import code_for

    return code_for(conflict)


def reconsider(conflict: Conflict, hazard: Hazard) -> None:
    """At the end of the program: the hazard of a conflict, under the code that it has in hindsight."""
    if conflict.hindsight is not None and conflict.hindsight():
        now = coded(replace(refined(conflict, ineffective_wait=False), notes=()))
        hazard.code, hazard.name, hazard.message = now.code, now.name, now.message
        hazard.notes, hazard.help = now.notes, now.help


def refined(conflict: Conflict, **facts: Any) -> Conflict:
    """The conflict with facts that only the front end knows."""
    return replace(conflict, facts=replace(conflict.facts, **facts))
