"""``sanitize()``: a session as a context manager and as a decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from streamsafe.runtime.allow import parse_allowance
from streamsafe.runtime.errors import StreamHazardError
from streamsafe.runtime.monitor import count
from streamsafe.runtime.opening import enter, leave
from streamsafe.runtime.session import MODES, UNTOLD, Host, Mode, Session
from streamsafe.runtime.suppressions import load

_Function = TypeVar("_Function", bound=Callable[..., Any])


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
        RuntimeError: on entering: CuPy's version is not supported, or the current stream is being captured. On leaving:
            a hazard was found, and the sanitizer failed before it could tell of it.
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
            self._allowances += load(suppressions)
        self._limit = limit
        self._open: list[Session] = []

    def __enter__(self) -> Session:
        session = Session(self.mode, self._allowances, self._limit)
        enter(session, threads=self._threads, host=self._host, trace=self._trace)
        self._open.append(session)
        return session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._open.pop()
        count(session)
        leave(session)
        hazard = session.last_due()
        if error is None and session.fault:
            raise RuntimeError(UNTOLD.format(session.fault))
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
