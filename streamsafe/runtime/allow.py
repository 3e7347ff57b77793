"""Which hazards a session keeps, which it raises, and when: modes, suppressions, duplicates."""

from __future__ import annotations

import fnmatch
import inspect
import linecache
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import TracebackType
from typing import Any, TypeVar

from streamsafe.order.hazard import Access, Frame, Hazard
from streamsafe.project.suppressions import Suppression, find

_Function = TypeVar("_Function", bound=Callable[..., Any])
_CODE = re.compile(r"[A-Z]{2,}[0-9]{0,3}")


@dataclass(frozen=True)
class Allowance:
    """What is not reported: hazards that have one of the codes, in a file and in a function.

    Attributes:
        codes: codes or beginnings of codes; empty means all.
        file: a glob pattern for the path of either access, or None.
        function: the name of a function on either access's stack, or None.
    """

    codes: tuple[str, ...] = ()
    file: str | None = None
    function: str | None = None

    def covers(self, hazard: Hazard) -> bool:
        """Whether the hazard is one of these."""
        if self.codes and not any(hazard.code.startswith(code) for code in self.codes):
            return False
        if self.file is None and self.function is None:
            return True
        return any(self._place(frame) for access in accesses(hazard) for frame in access.stack)

    def _place(self, frame: Frame) -> bool:
        if self.file is not None:
            path = frame.filename.replace("\\", "/")
            if not (fnmatch.fnmatch(path, self.file) or fnmatch.fnmatch(path, f"*/{self.file}")):
                return False
        return self.function is None or self.function in (frame.function, frame.function.rsplit(".", 1)[-1])


def parse_allowance(text: str) -> Allowance:
    """``CODE``, ``CODE:FILE`` or ``CODE:FILE::FUNCTION``; ``ALL`` is every code, an empty FILE every file.

    Raises:
        ValueError: the code is none.
    """
    place, _, function = text.partition("::")
    code, _, file = place.partition(":")
    code = code.strip().upper()
    if code == "ALL":
        return Allowance((), file or None, function or None)
    if not _names_rules(code):
        raise ValueError(f"{text!r} names no code: write SS101, SS101:path/*.py or SS101:path/*.py::function")
    return Allowance((code,), file or None, function or None)


def _names_rules(code: str) -> bool:
    """Whether some rule has this code, or one that begins so."""
    from streamsafe.registry import all_rules

    return bool(_CODE.fullmatch(code)) and any(known.startswith(code) for known in all_rules())


class _Allowed(threading.local):
    def __init__(self) -> None:
        self.stack: list[Allowance] = []


_allowed = _Allowed()


class allow:
    """Hazards found while this block (or decorated function) runs are not reported.

    Args:
        codes: the codes, or beginnings of codes, that are allowed; none means all.
        file: only where an access is in a file that matches this glob pattern.
        function: only where an access is in (or under) a function of this name.

    Raises:
        ValueError: a code is none.
        TypeError: a generator function is decorated.

    Example::

        with streamsafe.allow("SS102"):
            scratch.fill(0)  # whoever comes last may win
    """

    def __init__(self, *codes: str, file: str | None = None, function: str | None = None) -> None:
        upper = tuple(code.upper() for code in codes)
        for given, code in zip(codes, upper, strict=True):
            if not _names_rules(code):
                raise ValueError(f"{given!r} names no code: write SS101, or SS1 for all that begin so")
        self._allowance = Allowance(upper, file, function)

    def __enter__(self) -> allow:
        _allowed.stack.append(self._allowance)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _allowed.stack.remove(self._allowance)

    def __call__(self, function: _Function) -> _Function:
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def allowed_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return allowed_coroutine  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):
            raise TypeError("allow() cannot decorate a generator function: use `with` inside it")

        @wraps(function)
        def allowed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return allowed  # type: ignore[return-value]


def suppressed(hazard: Hazard, allowances: Iterable[Allowance]) -> bool:
    """Whether an allowance, an ``allow`` block of this thread, or a comment on either access's line covers it."""
    if any(allowance.covers(hazard) for allowance in (*allowances, *_allowed.stack)):
        return True
    return any(access.stack and commented(access.stack[0], hazard) for access in accesses(hazard))


def accesses(hazard: Hazard) -> tuple[Access, ...]:
    """The accesses of a hazard, the first one first."""
    return (hazard.first, hazard.second) if hazard.first is not None else (hazard.second,)


def commented(frame: Frame, hazard: Hazard) -> bool:
    """Whether a comment on a frame's line (or above it, or for the file) suppresses the hazard's code."""
    return any(found.covers(hazard.code, hazard.name, (frame.line,)) for found in _comments(frame.filename))


@lru_cache(maxsize=256)
def _comments(filename: str) -> tuple[Suppression, ...]:
    return tuple(find("".join(linecache.getlines(filename))))


def identity(hazard: Hazard) -> tuple[object, ...]:
    """What makes two hazards one: the kind of bug and the two lines. Which kernels ran there does not matter."""
    places = (access.stack[0] if access.stack else access.operation for access in accesses(hazard))
    return (hazard.latent, hazard.code[:3] if hazard.first is not None else hazard.code, *places)
