"""Reads that no subclass hears of: ``out[i] = pinned`` copies out of a watched array into a plain one, all in C.

Since Python 3.12 the interpreter tells when a function begins, and where it is asked to when a line does
(``sys.monitoring``). A function that holds no such assignment is asked about once and never again. Of one that does
the lines are listened to, and the names of such a line are looked up beforehand, without running any code of the
program's: no property, no call, no index of a class of its own. No other code is instrumented line by line:
that slows it down.
"""

from __future__ import annotations

import ast
import atexit
import inspect
import linecache
import operator
import sys
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import numpy

from streamsafe.runtime import places as sites
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.pinned import variables as frames
from streamsafe.runtime.pinned.arrays import PinnedArray, host_reads

_NAME = "streamsafe"
_monitoring: Any = getattr(sys, "monitoring", None)
_VIEWS = frozenset(["reshape", "ravel", "view", "squeeze", "transpose", "swapaxes"])
_ATTRIBUTES = frozenset(["T", "real", "imag"])
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
}


class _Peek(numpy.ndarray):
    """A watched array, and what is a view of one, while it is only looked up: none of that is the program's doing."""

    __slots__ = ()


_CONTAINERS = (list, tuple, dict, deque, numpy.ndarray, _Peek)


class _Unknown(Exception):
    """The value cannot be told without running the program."""


class _Assignment(NamedTuple):
    """``container[...] = value``."""

    container: ast.expr
    value: ast.expr


_files: dict[str, dict[int, _Assignment]] = {}


def _assignments(filename: str) -> dict[int, _Assignment]:
    """The assignments to elements in a file, by the line where their value begins, if it is theirs alone."""
    found = _files.get(filename)
    if found is None:
        found = _files[filename] = {}
        linecache.checkcache(filename)
        try:
            tree = ast.parse("".join(linecache.getlines(filename)))
        except (SyntaxError, ValueError, RecursionError):
            return found
        statements: dict[int, int] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt):
                statements[node.lineno] = statements.get(node.lineno, 0) + 1
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Subscript) and statements[node.lineno] == 1:
                    found[node.value.lineno] = _Assignment(target.value, node.value)
    return found


def _look(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression of names, attributes, indices and views.

    Raises:
        _Unknown: it is none, or a part of it is the program's own doing.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _quiet(_named(node.id, frame))
    elif isinstance(node, ast.Attribute):
        return _attribute(_look(node.value, frame), node.attr)
    elif isinstance(node, ast.Subscript):
        value, index = _look(node.value, frame), _look(node.slice, frame)
        if type(value) in _CONTAINERS:
            found = value[index]
            if type(found) is not _Peek or numpy.may_share_memory(found, value):
                return _quiet(found)
    elif isinstance(node, ast.Slice):
        return slice(*(each and _look(each, frame) for each in (node.lower, node.upper, node.step)))
    elif isinstance(node, ast.Tuple):
        return tuple(_look(each, frame) for each in node.elts)
    elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        values = [_look(each, frame) for each in parts]
        if type(node.op) in _OPERATORS and all(type(value) is int for value in values):
            return _OPERATORS[type(node.op)](*values)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        value = _look(node.func.value, frame)
        if type(value) is _Peek and node.func.attr in _VIEWS:
            return getattr(value, node.func.attr)(*(_look(each, frame) for each in node.args))
    raise _Unknown


def _named(name: str, frame: FrameType) -> Any:
    """What a name stands for in a frame."""
    try:
        return frames.variable(frame, name)
    except NameError:
        if name in frame.f_globals:
            return frame.f_globals[name]
    raise _Unknown


def _attribute(value: Any, name: str) -> Any:
    if type(value) is _Peek and name in _ATTRIBUTES:
        return getattr(value, name)
    if isinstance(value, ModuleType):
        return _quiet(vars(value).get(name))
    try:
        found = inspect.getattr_static(value, name)
    except AttributeError:
        raise _Unknown from None
    if isinstance(found, MemberDescriptorType):
        return _quiet(getattr(value, name))
    if hasattr(type(found), "__get__"):
        raise _Unknown
    return _quiet(found)


def _quiet(value: Any) -> Any:
    return value.view(_Peek) if type(value) is PinnedArray else value


def _line(code: CodeType, line: int) -> Any:
    """A line of the program is about to run."""
    found = _assignments(code.co_filename).get(line)
    if found is None:
        return _monitoring.DISABLE
    frame = sys._getframe(1)
    try:
        container, value = _look(found.container, frame), _look(found.value, frame)
    except Exception:  # the line itself will say what is wrong with it
        return None
    if type(container) is numpy.ndarray and type(value) is _Peek:
        host_reads(value, "assign")
    return None


def _has_assignments(code: CodeType) -> bool:
    """Whether some line of a function of the program holds such an assignment."""
    if sites.internal(code):
        return False
    held = _assignments(code.co_filename)
    return bool(held) and any(line in held for *_, line in code.co_lines())


def install(patches: Patches) -> None:
    """Listens to lines that begin, where the interpreter tells of them and nobody else took the last free place."""
    tool = _monitoring and next((each for each in (4, 3) if _monitoring.get_tool(each) is None), None)
    if not tool:
        return
    events = _monitoring.events
    watched: set[CodeType] = set()

    def begins(code: CodeType, _: int) -> Any:
        """A function of the program is about to run, or to go on."""
        if code in watched:
            return None
        if not _has_assignments(code):
            return _monitoring.DISABLE
        watched.add(code)
        _monitoring.set_local_events(tool, code, events.LINE)
        return None  # in another session it is to be told again

    def stop() -> None:
        atexit.unregister(stop)
        _monitoring.set_events(tool, 0)
        for code in watched:
            _monitoring.set_local_events(tool, code, 0)
        for event in (events.LINE, events.PY_START, events.PY_RESUME):
            _monitoring.register_callback(tool, event, None)
        _monitoring.free_tool_id(tool)
        _files.clear()

    _monitoring.use_tool_id(tool, _NAME)
    _monitoring.register_callback(tool, events.LINE, _line)
    for event in (events.PY_START, events.PY_RESUME):
        _monitoring.register_callback(tool, event, begins)
    for frame in sys._current_frames().values():  # what runs already does not begin any more
        at: FrameType | None = frame
        while at is not None:
            begins(at.f_code, 0)
            at = at.f_back
    _monitoring.set_events(tool, events.PY_START | events.PY_RESUME)
    atexit.register(stop)
    patches.call(stop)
