"""Unknown numbers and which values are the same: the same expression on one path is the same unknown."""

from __future__ import annotations

from typing import Any

from .values import Bound, Cls, Const, Func, Key, Lib, Obj, Range, Seq, Stream, Sym, Tensor, V

_PLAIN = (int, str, float, bool, type(None), bytes)


class Numbers:
    """The unknowns of one path.

    Attributes:
        vns: the number of each unknown, by how it was got.
        syms: the unknown of each number.
        equal: unknowns that have the same value wherever they have the same key.
        bounds: the least and the most that an unknown number is, by its key; None where there is no such bound.
    """

    def __init__(self) -> None:
        self.vns: dict[Key, int] = {}
        self.syms: dict[int, Sym] = {}
        self.equal: dict[int, Key] = {}
        self.bounds: dict[Key, tuple[int | None, int | None]] = {}
        self._uids = 0

    def vn(self, key: Key) -> int:
        """The number of what was got in some way."""
        n = self.vns.get(key)
        if n is None:
            n = self.vns[key] = len(self.vns) + 1
        return n

    def sym(self, vn: int, text: str, hint: str = "") -> Sym:
        """The unknown with a number: one object on one path."""
        s = self.syms.get(vn)
        if s is None:
            s = self.syms[vn] = Sym(vn, text, hint)
        return s

    def fresh(self, text: str, hint: str = "") -> Sym:
        """An unknown that is like no other."""
        return self.sym(self.vn(("fresh", len(self.vns))), text, hint)

    def uid(self, v: V) -> int:
        """The number of a value that is one thing among others like it: a list, an event."""
        try:
            return v.uid
        except AttributeError:
            self._uids += 1
            v.uid = self._uids
            return self._uids

    def key(self, v: V) -> Key:
        """What the same values have in common."""
        if isinstance(v, Const):
            return ("c", type(v.value).__name__, v.value if isinstance(v.value, _PLAIN) else str(v.value))
        if isinstance(v, Sym):
            return self.equal.get(v.vn) or ("v", v.vn)
        if isinstance(v, (Obj, Range)):
            return ("o", v.vn)
        if isinstance(v, Tensor):
            return ("t", v.block.uid, v.part)
        if isinstance(v, Stream):
            return ("s", v.timeline.uid)
        if isinstance(v, Lib):
            return ("l", v.name)
        if isinstance(v, Cls):
            return ("k", v.cls.name)
        if isinstance(v, Func):
            return ("f", v.function.qualified, self.key(v.self_) if v.self_ else None)
        if isinstance(v, Bound):
            return ("b", self.key(v.receiver), v.name)
        if isinstance(v, Seq) and len(v.items) < 8 and v.kind == "tuple":
            return ("q", tuple(self.key(i) for i in v.items))
        return ("i", self.uid(v))

    # ------------------------------------------------------------------ bounds
    def bounded(self, a: Key, b: Key) -> bool | None:
        """Whether a is less than b, as far as the one that is unknown was compared with other numbers."""
        split = _split(a, b)
        if split is None:
            return None
        v, n, below = split
        low, high = self.bounds.get(v, (None, None))
        if below:  # v < n
            return True if high is not None and high < n else False if low is not None and low >= n else None
        return True if low is not None and low > n else False if high is not None and high <= n else None

    def bound(self, a: Key, b: Key, less: bool) -> None:
        """a is less than b, or is not."""
        split = _split(a, b)
        if split is None:
            return
        v, n, below = split
        low, high = self.bounds.get(v, (None, None))
        if below == less:  # v <= n - 1, or not n < v
            top = n - 1 if below else n
            high = top if high is None else min(high, top)
        else:
            bottom = n if below else n + 1
            low = bottom if low is None else max(low, bottom)
        self.bounds[v] = (low, high)


def _split(a: Key, b: Key) -> tuple[Key, int, bool] | None:
    """Of two keys the unknown, the number that the other one is, and whether the unknown stands first."""
    if (a[0] == "c") == (b[0] == "c"):
        return None
    unknown, constant, below = (b, a, False) if a[0] == "c" else (a, b, True)
    number: Any = constant[2]
    return (unknown, number, below) if constant[1] == "int" else None
