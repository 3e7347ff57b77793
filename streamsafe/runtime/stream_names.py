"""What a stream is called: by its variable, or by where it was made or first used. Never by its raw handle."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Container, Iterator
from itertools import islice
from types import FrameType

from streamsafe.order.hazard import Frame, quoted
from streamsafe.runtime import places as sites
from streamsafe.runtime.library import loaded
from streamsafe.runtime.pinned import variables as frames

DEPTH = 4
"""Modules looked at: the one whose line uses the stream, and those of its callers."""


def of_new_stream(site: sites.Site) -> str:
    """The variable that a stream is bound to where it is made, or that place in words; empty where none is known."""
    return sites.name_of(site) or _made_at(site)


def _made_at(site: sites.Site) -> str:
    found = sites.frames(site)
    return f"the stream made at {_place(found[0])}" if found else ""


SCOPES = 4
"""Frames of the program in which a stream of no name is looked for when a hazard is reported."""
ELEMENTS = 64
"""Elements of a container, and attributes of an object, that are looked at."""


def in_scope(handle: int, taken: Container[str]) -> str:
    """What the running functions call a stream (``side``, ``self.side``, ``self.streams[1]``), or nothing.

    Reads only dictionaries, lists and tuples, so no code of the program runs.

    Args:
        handle: the raw handle.
        taken: what other streams are called.
    """
    for known in _scopes():
        for look in (_itself, _attributes, _elements, _elements_of_attributes):
            for name, value in known:
                for path, each in look(name, value):
                    if path not in taken and handle in _handles(each):
                        return path
    return ""


def means_another(name: str, handle: int) -> bool:
    """Whether a variable of the running functions that has this name holds another stream by now."""
    for known in _scopes():
        for variable, value in known:
            if variable == name:
                found = _handles(value)
                return bool(found) and handle not in found
    return False


def _scopes() -> Iterator[list[tuple[str, object]]]:
    """The variables of the running functions of the program, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    looked = 0
    while frame is not None and looked < SCOPES:
        if not sites.internal(frame.f_code):
            looked += 1
            yield [each for each in frames.named(frame) if each[0].isidentifier()]
        frame = frame.f_back


def _handles(value: object) -> list[int]:
    """The raw handle of a stream; none for anything else."""
    found = (library.stream_handle(value) for library in loaded())
    return [handle for handle in found if handle is not None]


def _globals_of_the_program() -> Iterator[tuple[str, object]]:
    """The variables of the modules that are neither installed packages nor of Python."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(_INSTALLED):
            yield from list(vars(module).items())


_INSTALLED = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

Paths = Iterator[tuple[str, object]]


def _itself(name: str, value: object) -> Paths:
    yield name, value


def _attributes(name: str, value: object) -> Paths:
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return
    if type(held) is dict:
        for key, each in islice(list(held.items()), ELEMENTS):
            yield f"{name}.{key}", each


def _elements(name: str, value: object) -> Paths:
    kind = type(value)
    if kind is list or kind is tuple:
        for index, each in enumerate(islice(value, ELEMENTS)):  # type: ignore[call-overload]
            yield f"{name}[{index}]", each
    elif kind is dict:
        for key, each in islice(list(value.items()), ELEMENTS):  # type: ignore[attr-defined]
            if isinstance(key, (str, int)):
                yield f"{name}[{key!r}]", each


def _elements_of_attributes(name: str, value: object) -> Paths:
    for path, each in _attributes(name, value):
        yield from _elements(path, each)


def unique(name: str, taken: Container[str]) -> str:
    """The name, with a number where another stream has it already: ``the 2nd `side```."""
    if name not in taken:
        return name
    number = 2
    while (numbered := _numbered(name, number)) in taken:
        number += 1
    return numbered


def _numbered(name: str, number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"the {number}{ending} {quoted(name).removeprefix('the ')}"


def _place(frame: Frame) -> str:
    return f"{os.path.basename(frame.filename)}:{frame.line}"


def of_stream(handle: int, made: sites.Site | None = None) -> str:
    """The module-level variable that holds a stream, or where it was made or is first used.

    Where no code of the program runs, as at the end of a test, the modules that are loaded are looked at.

    Local variables are not looked at: reading a frame's makes Python keep what they held alive, and with it memory.

    Args:
        handle: the raw handle.
        made: where it was made, if that is known.
    """
    libraries = list(loaded())
    frame: FrameType | None = sys._getframe(1) if libraries else None
    looked: list[int] = []
    while frame is not None and len(looked) < DEPTH:
        if not sites.internal(frame.f_code) and id(frame.f_globals) not in looked:
            looked.append(id(frame.f_globals))
            for name, value in list(frame.f_globals.items()):
                if any(library.stream_handle(value) == handle for library in libraries):
                    return name
        frame = frame.f_back
    found = sites.frames(sites.capture(1))
    if not found:
        for name, value in _globals_of_the_program():
            if any(library.stream_handle(value) == handle for library in libraries):
                return name
    if made is not None and (place := _made_at(made)):
        return place
    return f"the stream first used at {_place(found[0])}" if found else "a stream of unknown origin"
