"""Which functions are worth running where they are called."""

from __future__ import annotations

from streamsafe.apis import names as apis

from .models.unknown_methods import COMMON
from .source import Class, Function
from .state import State
from .values import Event, Func, Graph, Stream, V, Work

_MAX_CHAIN = 3
_MAX_SIZE = 60
_OF_MAKERS = ("__init__", "__new__", "__del__")
"""What Python calls where an object is made or ends."""
_LIBRARIES = ("torch", "numpy", "cupy")


def reaches(fn: Function) -> bool:
    """Whether what a function calls, by name and as far as it is in sight, has to do with streams."""
    if fn.reach is None:
        fn.reach = False
        fn.reach = _reaches(fn, 0, set())
    return fn.reach


def _reaches(fn: Function, depth: int, seen: set[Function]) -> bool:
    if depth > _MAX_CHAIN or fn in seen:
        return False
    seen.add(fn)
    m = fn.module
    known = m.bound if fn.cls is None else m.bound | fn.cls.method_names
    for w in sorted(fn.words & known):
        made = m.globals.get(w)
        if made is not None and m.strong(made):
            return True
        unique = m.unique_methods.get(w) if w not in COMMON else None
        for called in (m.functions.get(w), fn.cls.method(w) if fn.cls else None, unique):
            if (
                called is not None
                and called is not fn
                and (called.strong or _reaches(called, depth + 1, seen))
            ):
                return True
        cls = m.classes.get(w)
        if cls is not None and (
            cls.about_graphs
            or (cls is not fn.cls and _uses_what_it_makes(cls, fn.words))
            or any(f.strong or _reaches(f, depth + 1, seen) for f in _called(cls, fn.words))
        ):
            return True
        full = m.imports.get(w)
        if full is not None and "." in full and not full.startswith(_LIBRARIES):
            found = m.project.lookup(full, m.path)
            callees = [found] if isinstance(found, Function) else _called(found, fn.words)
            if any(called.strong or _reaches(called, depth + 1, seen) for called in callees):
                return True
    return False


def _uses_what_it_makes(cls: Class, words: frozenset[str]) -> bool:
    """Whether the constructor of a class has to do with streams, and other methods are named, or called by Python."""
    init = cls.method("__init__")
    return (
        init is not None and init.strong and any(_is_special(name) or name in words for name in cls.methods)
    )


def _is_special(name: str) -> bool:
    """Whether Python calls a method, beside where an object is made or ends."""
    return name.startswith("__") and name.endswith("__") and name not in _OF_MAKERS


def _called(cls: Class | None, words: frozenset[str]) -> list[Function]:
    """The methods of a class that a function with these words may call, by name or as Python does in a loop."""
    if cls is None:
        return []
    return [
        f for c in cls.mro() for name, f in sorted(c.methods.items()) if name in words or _is_special(name)
    ]


class Relevance:
    """What a path adds: what functions are given, and which streams have work."""

    def __init__(self, state: State) -> None:
        self.m = state

    def matters(self, fn: Function, args: list[V], kwargs: dict[str, V]) -> bool:
        """Whether a function is worth following: it has to do with streams, with a pending copy, or with timed work."""
        if fn.strong or fn.size <= 5 or reaches(fn):
            return True
        for v in (*args, *kwargs.values()):
            if isinstance(v, (Stream, Event, Work, Graph)):
                return True
            if isinstance(v, Func) and v.function is not fn and v.function.strong:
                return True
            if any(a.kind == "d2h" for t in self.m.library.tensors_in(v) for a in t.block.accesses):
                return True
        if self.m.capture is not None or (not fn.words.isdisjoint(apis.FACTORIES) and fn.size <= 8):
            return True
        return fn.size <= _MAX_SIZE and (self._busy() or (self.m.timing and "backward" in fn.words))

    def _busy(self) -> bool:
        """Whether another stream than the caller's has work."""
        current = self.m.current
        return (
            any(t.origin not in ("ambient", "null", "host") for t in self.m.order.ticks)
            or current["torch"][-1].origin != "ambient"
            or current["cupy"][-1].origin != "null"
        )
