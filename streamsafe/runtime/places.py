"""Where an operation was enqueued: captured as code-object and offset pairs, turned into text only when asked for."""

from __future__ import annotations

import dis
import itertools
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TypeAlias

from streamsafe.order.hazard import Frame
from streamsafe.runtime.library import loaded
from streamsafe.runtime.positions import columns_of

Site: TypeAlias = tuple[CodeType | int, ...]
"""Code object, instruction offset, code object, instruction offset, ..., innermost first."""

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TOOLS = ("numpy", "contextlib", "threading", "pytest", "_pytest", "pluggy", "xdist", "execnet", "runpy")

# Keyed by file name: to hash a code object is to hash its instructions.
_inside: dict[str, bool] = {}
_FILES = 1 << 14
"""Names that are kept: a program may give each piece of code that it compiles a name of its own."""

_below: set[CodeType] = set()
_below_tests: set[tuple[CodeType, int]] = set()
_PYTEST = ("pytest", "_pytest", "pluggy")


def begin_program() -> None:
    """Frames that are on the stack now are below the program: no stack shows them (``streamsafe run``)."""
    _below.update(frame.f_code for frame in _callers(sys._getframe(1)))


def begin_tests() -> None:
    """Calls on the stack below pytest's outermost frame are below the tests: no stack shows them.

    Such are the script that a shell starts as ``pytest`` and whatever runs it (``coverage run -m pytest``). A test that
    runs pytest itself is above that frame.
    """
    below: list[tuple[CodeType, int]] = []
    for frame in _callers(sys._getframe(1)):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _PYTEST:
            below.clear()
        else:
            below.append((frame.f_code, frame.f_lasti))
    _below_tests.update(below)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def internal(code: CodeType) -> bool:
    """Whether a code object belongs to this tool or to a library whose lines say nothing to the user."""
    filename = code.co_filename
    try:
        return _inside[filename]
    except KeyError:
        if len(_inside) >= _FILES:
            _inside.clear()
        answer = _inside[filename] = _is_internal(filename)
        return answer


def _is_internal(filename: str) -> bool:
    if filename.startswith((_HERE, "<frozen")):
        return True
    libraries = [package for library in loaded() for package in library.PACKAGES]
    for name in (*_TOOLS, *libraries):
        found = getattr(sys.modules.get(name), "__file__", None)
        if found is None:
            continue
        package, file = os.path.split(found)
        if filename == found or (file == "__init__.py" and filename.startswith(package + os.sep)):
            return True
    return False


def _user_frame(skip: int) -> FrameType | None:
    """The first frame outside the libraries, from ``skip`` frames up."""
    frame: FrameType | None
    try:
        frame = sys._getframe(skip)
    except ValueError:  # the user's line is the outermost one
        frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        inside = _inside.get(code.co_filename)
        if inside is None:
            inside = internal(code)
        if not inside:
            return frame
        frame = frame.f_back
    return None


def capture(skip: int = 1) -> Site:
    """The stack above the caller: the first frame outside the libraries, from ``skip`` frames up, and three callers."""
    frame = _user_frame(skip + 1)
    if frame is None:
        return ()
    code = frame.f_code
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


def raised(error: BaseException) -> Site:
    """Where an error was raised: the innermost frame outside the libraries, and three callers."""
    found: list[tuple[CodeType, int]] = []
    traceback = error.__traceback__
    while traceback is not None:
        found.insert(0, (traceback.tb_frame.f_code, traceback.tb_lasti))
        traceback = traceback.tb_next
    program = itertools.dropwhile(lambda pair: internal(pair[0]), found)
    return tuple(itertools.chain.from_iterable(itertools.islice(program, 4)))


def line(skip: int = 1) -> Site:
    """The line above the caller, without its callers: for what is done often and seldom shown (records and waits)."""
    frame = _user_frame(skip + 1)
    return () if frame is None else (frame.f_code, frame.f_lasti)


def frames(site: Site | None) -> tuple[Frame, ...]:
    """The frames of a site as text, innermost first, without the libraries' own and those below the program."""
    if not site:
        return ()
    program = itertools.takewhile(
        lambda pair: pair[0] not in _below and pair not in _below_tests, pairs(site)
    )
    return tuple(
        Frame(
            code.co_filename,
            line_of(code, offset),
            getattr(code, "co_qualname", code.co_name),
            *columns_of(code, offset),
        )
        for code, offset in program
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


_IDLE = frozenset(["CACHE", "NOP", "KW_NAMES", "EXTENDED_ARG", "RESUME"])
_CALLS = frozenset(["PUSH_NULL", "LOAD_ATTR", "LOAD_METHOD", "PRECALL", "CALL", "CALL_KW"]) | {
    f"CALL_{kind}" for kind in ("FUNCTION", "FUNCTION_KW", "METHOD")
}


def assigned(code: CodeType, offset: int) -> str:
    """The name to which the result of a call instruction is bound at once, or nothing.

    ``x``, ``self.stream``, and in ``up, down = Stream(), Stream()`` the name that it is unpacked to: the result is
    followed on the interpreter's stack, past whatever else the statement makes.
    """
    above = 0  # how many values lie on the result
    unpacked = False
    owner = ""
    for each in dis.get_instructions(code):
        name, argument = each.opname, each.arg or 0
        if each.offset <= offset or name in _IDLE:
            continue
        if unpacked and name != "UNPACK_SEQUENCE":
            return ""
        owner, last = "", owner
        if name == "STORE_ATTR":
            if above == 1:
                return f"{last}.{each.argval}" if last else ""
            above -= 2
        elif name.startswith("STORE_") and name != "STORE_SUBSCR" and name != "STORE_SLICE":
            value = each.argval
            if name == "STORE_FAST_STORE_FAST":  # since Python 3.13
                if above < 2:
                    return str(value[above])
                above -= 2
            elif name == "STORE_FAST_LOAD_FAST":
                return str(value[0]) if above == 0 else ""
            elif above == 0:
                return value if isinstance(value, str) else ""
            else:
                above -= 1
        elif name == "SWAP":
            above = argument - 1 if above == 0 else 0 if above == argument - 1 else above
        elif name in ("ROT_TWO", "ROT_THREE", "ROT_FOUR"):  # until Python 3.10
            count = ("ROT_TWO", "ROT_THREE", "ROT_FOUR").index(name) + 2
            above = (above - 1) % count if above < count else above
        elif name in ("BUILD_TUPLE", "BUILD_LIST"):
            if above < argument:
                above, unpacked = argument - 1 - above, True
            else:
                above -= argument - 1
        elif name == "UNPACK_SEQUENCE" and unpacked:
            unpacked = False
        elif name.startswith("LOAD_") and name not in ("LOAD_ATTR", "LOAD_METHOD"):
            if name.startswith(("LOAD_FAST", "LOAD_DEREF")) and isinstance(each.argval, str):
                owner = each.argval
            above += dis.stack_effect(each.opcode, each.arg)
        elif name in ("COPY", "DUP_TOP"):
            above += above > 0  # of the result itself, the copy is as good
        elif name in _CALLS:
            effect = dis.stack_effect(each.opcode, each.arg)
            if above + effect < (name != "PUSH_NULL"):
                return ""  # the result is the call's own argument or function
            above += effect
        else:
            return ""
    return ""


def name_of(site: Site) -> str:
    """What the user's line calls what it makes (see :func:`assigned`)."""
    if not site:
        return ""
    found = _assigned.get((id(site[0]), site[1]))  # type: ignore[arg-type]
    if found is not None and found[0] is site[0]:
        return found[1]
    code, offset = site[0], site[1]
    assert isinstance(code, CodeType) and isinstance(offset, int)
    if len(_assigned) >= _LIMIT:
        _assigned.clear()
    name = assigned(code, offset)
    _assigned[id(code), offset] = (code, name)
    return name
