"""What the program calls the memory of a hazard, and which module of a model runs: looked up when a hazard is found.

Only dictionaries, lists and tuples of running functions and of their modules are read, so no code of the program runs.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FrameType, ModuleType

from streamsafe.order.hazard import Access, Conflict, Frame
from streamsafe.runtime import places as sites
from streamsafe.runtime.library import FrontEnd, loaded
from streamsafe.runtime.pinned import variables as frames

SCOPES = 6
"""Functions of the program, and as many modules, whose variables are looked at."""
ELEMENTS = 256
"""Elements of one container, and attributes of one object, that are looked at."""
OBJECTS = 20_000
"""Objects that are looked at in one scope for a name."""
NEAR, STEPS = 2, 4
"""Attributes and elements of a name at most, without those inside one of a library's own objects; first the near ones
of all functions."""
PLAIN = frozenset((str, int, float, bool, bytes, type, type(None)))
"""Types of what holds no memory of a device: most of what a program has, so these are not looked at."""
CONTAINERS = frozenset((list, tuple, deque, dict))

Variables = dict[str, object]


class Names:
    """Names by the places of a hazard, which are looked up once."""

    LIMIT = 4096

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[str, str]] = {}

    def give(self, conflict: Conflict) -> tuple[str, str]:
        """The name of the conflict's memory, and the module whose forward runs; each empty where none is known.

        The memory keeps the name under which it was allocated, unless that stands for something else by now. What is
        reused too early is another's: who had it before is named by its allocation.
        """
        accesses = (conflict.first, conflict.second)
        places = (access.stack[0] if access is not None and access.stack else None for access in accesses)
        key = (conflict.memory.name, conflict.second.operation, *places)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self.LIMIT:
                self._known.clear()
            known = self._known[key] = self._find(conflict)
        return known

    def _find(self, conflict: Conflict) -> tuple[str, str]:
        running = [each for each in _stack(sys._getframe(1)) if not sites.internal(each.f_code)]
        memory = conflict.memory
        name = memory.name
        if memory.start is not None and memory.stop is not None and conflict.facts.reuse is None:
            scopes = list(_scopes(running or _of_other_threads(), conflict))
            name = _name(scopes, name, memory.start, memory.stop)
        return name, _module() if conflict.second.stack else ""


def _name(scopes: list[Variables], name: str, start: int, stop: int) -> str:
    libraries = list(loaded())
    if name and "." not in name and "[" not in name:
        meant = [scope[name] for scope in scopes if name in scope]
        if not meant or _holds(meant[0], start, stop, libraries):
            return name
    for steps in (NEAR, STEPS):
        seen: dict[int, int] = {}
        for scope in scopes:
            found = _in_scope(scope, start, stop, steps, seen, libraries)
            if found:
                return found
    return name


def _in_scope(
    scope: Variables, start: int, stop: int, most: int, seen: dict[int, int], libraries: list[FrontEnd]
) -> str:
    """The shortest path to what holds the bytes, the smallest of those as short.

    Args:
        seen: the objects that the scopes before this one lead to, and in how many steps; this one's are added.
    """
    named = ((name, value) for name, value in scope.items() if type(value) not in PLAIN)
    queue: deque[tuple[int, str, object]] = deque((0, *each) for each in named if each[0].isidentifier())
    found: list[tuple[int, str]] = []
    depth = 0
    limit = len(seen) + OBJECTS
    while queue and len(seen) < limit:
        steps, path, value = queue.popleft()
        if found and steps > depth:
            break
        depth = steps
        if seen.get(id(value), most + 1) <= steps:
            continue
        seen[id(value)] = steps
        size = _holds(value, start, stop, libraries)
        if size:
            found.append((size, path))
            continue
        if steps < most and not (
            steps and isinstance(value, ModuleType)
        ):  # what modules import leads everywhere
            parts = _parts(value, libraries)
            queue.extend((steps + 1, path + step, each) for step, each in parts if type(each) not in PLAIN)
    return min(found)[1] if found else ""


def _holds(value: object, start: int, stop: int, libraries: list[FrontEnd]) -> int:
    """The size of an array that holds the bytes; 0: it does not, or is none."""
    if type(value) in CONTAINERS or isinstance(value, (str, int, float, type)) or value is None:
        return 0
    for library in libraries:
        try:
            extent = library.extent(value)
        except RuntimeError:  # a tensor without memory of its own
            continue
        if extent is not None:
            _, address, size = extent
            return size if address <= start and stop <= address + size else 0
    return 0


def _parts(value: object, libraries: list[FrontEnd]) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if isinstance(value, type):
        return
    if kind is list or kind is tuple or kind is deque:
        for index, each in enumerate(islice(list(value), ELEMENTS)):  # type: ignore[call-overload]
            yield f"[{index}]", each
    elif kind is dict:
        for key, each in islice(list(value.items()), ELEMENTS):  # type: ignore[attr-defined]
            if isinstance(key, (str, int)):
                yield f"[{key!r}]", each
    else:
        for library in libraries:
            known = library.parts(value)
            if known is not None:
                yield from known
                return
        try:
            held = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            return
        if type(held) is dict:
            for key, each in islice(list(held.items()), ELEMENTS):
                yield f".{key}", each


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _of_other_threads() -> list[FrameType]:
    """The program's frames of all threads: a backward pass works in a thread that runs none."""
    found: list[FrameType] = []
    for frame in sys._current_frames().values():
        found.extend(each for each in _stack(frame) if not sites.internal(each.f_code))
    return found


def _scopes(running: list[FrameType], conflict: Conflict) -> Iterator[Variables]:
    """The variables of the running functions, the innermost first, of their modules, and of those of the accesses."""
    for frame in running[:SCOPES]:
        yield dict(frames.named(frame))
    modules: dict[int, Variables] = {}
    for frame in running[:SCOPES]:
        modules[id(frame.f_globals)] = frame.f_globals
    files = {frame.filename for access in (conflict.first, conflict.second) for frame in _shown(access)}
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) in files:
            modules[id(module.__dict__)] = module.__dict__
    for each in islice(modules.values(), SCOPES):
        yield {name: value for name, value in list(each.items()) if not name.startswith("__")}


def _shown(access: Access | None) -> tuple[Frame, ...]:
    return access.stack if access is not None else ()


def _module() -> str:
    """The module of a model whose forward runs, from the variable that holds the model on."""
    for library in loaded():
        found = library.forward(sys._getframe(1))
        if found is None:
            continue
        model, path, caller = found
        calling = [frame for frame in _stack(caller) if not sites.internal(frame.f_code)][:SCOPES]
        scopes = [dict(frames.named(frame)) for frame in calling] + [frame.f_globals for frame in calling]
        for scope in scopes:
            for name, value in list(scope.items()):
                if value is model:
                    return name + path
            held = getattr(scope.get("self"), "__dict__", None)
            for name, value in list(held.items()) if type(held) is dict else ():
                if value is model:
                    return f"self.{name}{path}"
        return type(model).__name__ + path
    return ""
