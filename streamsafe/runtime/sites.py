"""Where an operation was enqueued: captured as code-object and offset pairs, turned into text only when asked for."""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TypeAlias

from streamsafe.order.hazard import Frame

Site: TypeAlias = tuple[CodeType | int, ...]
"""Code object, instruction offset, code object, instruction offset, ..., innermost first."""

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TOOLS = ("cupy", "cupyx", "cupy_backends", "numpy", "contextlib", "threading", "_pytest", "pluggy", "runpy")

# Keyed by file name: to hash a code object is to hash its instructions.
_inside: dict[str, bool] = {}


def internal(code: CodeType) -> bool:
    """Whether a code object belongs to this tool or to a library whose lines say nothing to the user."""
    filename = code.co_filename
    try:
        return _inside[filename]
    except KeyError:
        answer = _inside[filename] = _is_internal(filename)
        return answer


def _is_internal(filename: str) -> bool:
    if filename.startswith((_HERE, "<frozen")):
        return True
    for name in _TOOLS:
        found = getattr(sys.modules.get(name), "__file__", None)
        if found is None:
            continue
        package, file = os.path.split(found)
        if filename == found or (file == "__init__.py" and filename.startswith(package + os.sep)):
            return True
    return False


def capture(skip: int = 1) -> Site:
    """The stack above the caller: the first frame outside the libraries, from ``skip`` frames up, and three callers."""
    try:
        frame: FrameType | None = sys._getframe(skip)
    except ValueError:  # the user's line is the outermost one
        frame = sys._getframe(1)
    known = _inside
    while frame is not None:
        code = frame.f_code
        inside = known.get(code.co_filename)
        if not (internal(code) if inside is None else inside):
            break
        frame = frame.f_back
    if frame is None:
        return ()
    second = frame.f_back
    if second is None:
        return (code, frame.f_lasti)
    third = second.f_back
    if third is None:
        return (code, frame.f_lasti, second.f_code, second.f_lasti)
    fourth = third.f_back
    if fourth is None:
        return (code, frame.f_lasti, second.f_code, second.f_lasti, third.f_code, third.f_lasti)
    return (
        code,
        frame.f_lasti,
        second.f_code,
        second.f_lasti,
        third.f_code,
        third.f_lasti,
        fourth.f_code,
        fourth.f_lasti,
    )


def frames(site: Site | None) -> tuple[Frame, ...]:
    """The frames of a site as text, innermost first, without the libraries' own."""
    if not site:
        return ()
    return tuple(
        Frame(
            code.co_filename,
            line_of(code, offset),
            getattr(code, "co_qualname", code.co_name),
        )
        for code, offset in pairs(site)
        if not internal(code)
    )


def pairs(site: Site) -> Iterator[tuple[CodeType, int]]:
    """The (code object, offset) pairs of a site."""
    entries = iter(site)
    for code, offset in zip(entries, entries, strict=True):
        assert isinstance(code, CodeType) and isinstance(offset, int)
        yield code, offset


def line_of(code: CodeType, offset: int) -> int:
    """The line of an instruction offset."""
    line = code.co_firstlineno
    for start, stop, number in code.co_lines():
        if start <= offset < stop and number is not None:
            return number
    return line


_assigned: dict[tuple[int, int], tuple[CodeType, str]] = {}
_LIMIT = 4096


def assigned(code: CodeType, offset: int) -> str:
    """The name to which the result of a call instruction is bound at once (``x``, ``self.stream``), or nothing."""
    instructions = [
        each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "NOP", "COPY")
    ]
    following = iter(each for each in instructions if each.offset > offset)
    owner = ""
    for instruction in following:
        name = instruction.opname
        if name.startswith("STORE_") and name not in ("STORE_SUBSCR", "STORE_SLICE", "STORE_ATTR"):
            value = instruction.argval
            return value if isinstance(value, str) and not owner else ""
        if name == "STORE_ATTR" and owner:
            return f"{owner}.{instruction.argval}"
        if name.startswith("LOAD_FAST") and not owner and isinstance(instruction.argval, str):
            owner = instruction.argval
            continue
        return ""
    return ""


def name_of(site: Site) -> str:
    """What the user's line calls what it makes (see :func:`assigned`)."""
    if len(site) < 2:
        return ""
    code, offset = site[0], site[1]
    assert isinstance(code, CodeType) and isinstance(offset, int)
    key = (id(code), offset)
    found = _assigned.get(key)
    if found is None or found[0] is not code:
        if len(_assigned) >= _LIMIT:
            _assigned.clear()
        found = _assigned[key] = (code, assigned(code, offset))
    return found[1]
