"""Which hazards a session keeps, which it raises, and when: modes, suppressions, duplicates."""

from __future__ import annotations

import datetime
import fnmatch
import inspect
import linecache
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import TracebackType
from typing import Any, TypeVar

from streamsafe.order.hazard import Access, Frame, Hazard
from streamsafe.order.native.library import Library, keys
from streamsafe.project.suppressions import Suppression, find

_Function = TypeVar("_Function", bound=Callable[..., Any])
_CODE = re.compile(r"[A-Z]{2,}[0-9]{0,3}")


@dataclass(frozen=True)
class Allowance:
    """What is not reported: hazards of which all that is named fits. Every name is a glob pattern, or None for any.

    Attributes:
        codes: codes or beginnings of codes; empty means all.
        file: the path of a frame on either access's stack.
        function: the name of that frame's function, whole or without its class.
        module: the dotted name of the module that the frame's file is; of the file's path as much counts as is given.
        operation: what either access calls.
        memory: the name of the memory.
        reason: why it is not reported.
        expires: the last day on which it counts.
        source: where it is written, for the summary; "" where it is not in a file.
    """

    codes: tuple[str, ...] = ()
    file: str | None = None
    function: str | None = None
    module: str | None = None
    operation: str | None = None
    memory: str | None = None
    reason: str = ""
    expires: datetime.date | None = None
    source: str = ""

    @property
    def expired(self) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and datetime.date.today() > self.expires

    def covers(self, hazard: Hazard) -> bool:
        """Whether the hazard is one of these."""
        if self.codes and not any(hazard.code.startswith(code) for code in self.codes):
            return False
        if self.memory is not None and not fnmatch.fnmatchcase(hazard.memory.name, self.memory):
            return False
        if self.operation is not None and not any(
            fnmatch.fnmatchcase(access.operation, self.operation) for access in accesses(hazard)
        ):
            return False
        if self.file is None and self.function is None and self.module is None:
            return True
        return any(self._place(frame) for access in accesses(hazard) for frame in access.stack)

    def _place(self, frame: Frame) -> bool:
        if self.file is not None:
            path = frame.filename.replace("\\", "/")
            if not (fnmatch.fnmatch(path, self.file) or fnmatch.fnmatch(path, f"*/{self.file}")):
                return False
        if self.module is not None and not _in_module(frame.filename, self.module):
            return False
        names = (frame.function, frame.function.rsplit(".", 1)[-1])
        return self.function is None or any(fnmatch.fnmatchcase(name, self.function) for name in names)


def _in_module(filename: str, pattern: str) -> bool:
    """Whether a file is a module of this name: ``src/mylib/metrics.py`` is ``mylib.metrics`` and ``metrics``."""
    path = filename.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")
    parts = path.split("/")
    return any(fnmatch.fnmatchcase(".".join(parts[at:]), pattern) for at in range(len(parts)))


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
    if not names_rules(code):
        raise ValueError(f"{text!r} names no code: write SS101, SS101:path/*.py or SS101:path/*.py::function")
    return Allowance((code,), file or None, function or None)


def names_rules(code: str) -> bool:
    """Whether some rule has this code, or one that begins so."""
    from streamsafe.rule import all_rules

    return bool(_CODE.fullmatch(code)) and any(known.startswith(code) for known in all_rules())


_racing: list[tuple[int, int]] = []
"""Ranges of addresses of which the program says that races over them are meant."""


@contextmanager
def racing(start: int, stop: int) -> Iterator[None]:
    """While the block runs, hazards of any thread over memory inside this range are not reported."""
    _racing.append((start, stop))
    _tell_ranges()
    try:
        yield
    finally:
        _racing.remove((start, stop))
        _tell_ranges()


def meant(hazard: Hazard) -> bool:
    """Whether the program says that the race over the hazard's memory is meant."""
    start, stop = hazard.memory.start, hazard.memory.stop
    if start is None or stop is None:
        return False
    return any(low <= start and stop <= high for low, high in _racing)


class _Allowed(threading.local):
    """What the blocks of one thread allow."""

    def __init__(self) -> None:
        self.stack: list[Allowance] = []

    def begin(self, allowance: Allowance) -> None:
        self.stack.append(allowance)
        self._tell()

    def end(self, allowance: Allowance) -> None:
        self.stack.remove(allowance)
        self._tell()

    @property
    def number(self) -> int:
        """The same for the same blocks, 0 for none."""
        return _numbers.setdefault(tuple(self.stack), len(_numbers))

    def _tell(self) -> None:
        for library in _libraries:
            library.allow(self.number)


_numbers: dict[tuple[Allowance, ...], int] = {(): 0}
_libraries: list[Library] = []
"""Native engines that tell hazards apart by what is allowed where they are found."""
_allowed = _Allowed()


def knows(library: Library) -> bool:
    """Whether a native engine knows what the calling thread allows, as it does from this call on."""
    new = library not in _libraries
    if new:
        _libraries.append(library)
        _tell_ranges()
    before = library.allow(_allowed.number)
    return bool(before == _allowed.number) and not (new and _racing)


def _tell_ranges() -> None:
    for library in _libraries:
        numbers = [number for each in _racing for number in each]
        library.meant(keys(numbers), len(_racing))


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
            scratch.fill(0)  # the last write may win
    """

    def __init__(self, *codes: str, file: str | None = None, function: str | None = None) -> None:
        upper = tuple(code.upper() for code in codes)
        for given, code in zip(codes, upper, strict=True):
            if not names_rules(code):
                raise ValueError(f"{given!r} names no code: write SS101, or SS1 for all that begin so")
        self._allowance = Allowance(upper, file, function)

    def __enter__(self) -> allow:
        _allowed.begin(self._allowance)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _allowed.end(self._allowance)

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


def any_comment(hazard: Hazard) -> bool:
    """Whether a comment on either access's line covers a hazard."""
    return any(access.stack and commented(access.stack[0], hazard) for access in accesses(hazard))


def covering(hazard: Hazard, allowances: Iterable[Allowance]) -> Allowance | None:
    """The first of these, or of the ``allow`` blocks of this thread, that covers a hazard and has not expired."""
    every = (*allowances, *_allowed.stack)
    return next((each for each in every if not each.expired and each.covers(hazard)), None)


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
