"""Unknown numbers and which values are the same: the same expression on one path is the same unknown."""

from __future__ import annotations

from .values import Bound, Cls, Const, Func, Key, Lib, Obj, Range, Seq, Stream, Sym, Tensor, V

ZERO: Key = ("zero",)
"""Stands for the number 0 in differences."""
_ELEMENTS = ("item", "iter", "elem")
_FAR = float("inf")
_PLAIN = (int, str, float, bool, type(None), bytes)


class Numbers:
    """The unknowns of one path.

    Attributes:
        vns, got: the number of each unknown, by how it was got, and the other way round.
        syms: the unknown of each number.
        equal: unknowns that have the same value wherever they have the same key.
        sums: of a number by its key: the sum that it is.
        differences: of two numbers by their keys: the most by which the first one is greater.
    """

    def __init__(self) -> None:
        self.vns: dict[Key, int] = {}
        self.got: dict[int, Key] = {}
        self.syms: dict[int, Sym] = {}
        self.equal: dict[int, Key] = {}
        self.sums: dict[Key, tuple[dict[Key, int], int]] = {}
        self.differences: dict[tuple[Key, Key], int] = {}
        self._compared: set[Key] = set()
        self._uids = 0

    def vn(self, key: Key) -> int:
        """The number of what was got in some way."""
        n = self.vns.get(key)
        if n is None:
            n = self.vns[key] = len(self.vns) + 1
            self.got[n] = key
        return n

    def place(self, key: Key) -> Key:
        """Which element of what something is, where it is one with a known index; else its own key."""
        got = self.got.get(key[1]) if key[0] == "v" else None
        if got is None or got[0] not in _ELEMENTS:
            return key
        _, whole, index = got
        number = index[2] if isinstance(index, tuple) and index[:2] == ("c", "int") else index
        return ("of", whole, number) if isinstance(number, int) else key

    def taken_from(self, key: Key, attribute: str) -> int | None:
        """The unknown of whose attribute something is an element, at any depth; None where it is of none."""
        got = self.got.get(key[1]) if key[0] == "v" else None
        while got is not None and got[0] in _ELEMENTS:
            got = self.got.get(got[1][1]) if isinstance(got[1], tuple) and got[1][0] == "v" else None
        return got[1] if got is not None and got[0] == "attr" and got[2] == attribute else None

    def is_element(self, v: V) -> bool:
        """Whether an unknown is one of several: an element of something."""
        return isinstance(v, Sym) and self.got.get(v.vn, ("",))[0] in _ELEMENTS

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
    def less(self, a: Key, b: Key) -> bool | None:
        """Whether a is less than b, as far as it follows from how numbers compared before."""
        difference = self._difference(a, b)
        if difference is None:
            return None
        above, below, most = difference
        if self._most(above, below) <= most - 1:
            return True
        return False if self._most(below, above) <= -most else None

    def learn_less(self, a: Key, b: Key, less: bool) -> None:
        """a is less than b, or is not."""
        difference = self._difference(a, b)
        if difference is None:
            return
        above, below, most = difference
        pair, bound = ((above, below), most - 1) if less else ((below, above), -most)
        self.differences[pair] = min(bound, self.differences.get(pair, bound))
        self._compared.update(pair)

    def apart(self, a: Key, b: Key) -> bool | None:
        """Whether a and b differ, as far as it follows from how numbers compared before."""
        if not self.differences:
            return None
        less, greater = self.less(a, b), self.less(b, a)
        if less or greater:
            return True
        return False if less is greater is False else None

    def learn_apart(self, a: Key, b: Key) -> None:
        """a and b differ: of which it is known that it is not the greater one, that is less."""
        if self.differences:
            if self.less(b, a) is False:
                self.learn_less(a, b, True)
            elif self.less(a, b) is False:
                self.learn_less(b, a, True)

    def linear(self, key: Key) -> tuple[dict[Key, int], int]:
        """A number as a sum of unknowns, each so many times, and a constant."""
        if key[0] == "c":
            return {}, key[2]
        return self.sums.get(key) or ({key: 1}, 0)

    def distance(self, a: Key, b: Key) -> int | None:
        """By how much a is greater than b; None where that is not known."""
        difference = self._difference(a, b)
        if difference is None or difference[0] != difference[1]:
            return None
        return -difference[2]

    def _difference(self, a: Key, b: Key) -> tuple[Key, Key, int] | None:
        """``a < b`` as ``u - v < n``: u and v are unknowns or zero; None where it has another form."""
        if any(key[0] == "c" and key[1] != "int" for key in (a, b)):
            return None
        if a not in self.sums and b not in self.sums and (a[0] != "c" or b[0] != "c"):
            if a == b:
                return ZERO, ZERO, 0
            above, more = (ZERO, -a[2]) if a[0] == "c" else (a, 0)
            return (above, ZERO, b[2]) if b[0] == "c" else (above, b, more)
        (x, c), (y, d) = self.linear(a), self.linear(b)
        rest = {k: n for k in {*x, *y} if (n := x.get(k, 0) - y.get(k, 0))}
        if sorted(rest.values()) not in ([], [1], [-1], [-1, 1]):
            return None
        above = next((k for k, n in rest.items() if n == 1), ZERO)
        below = next((k for k, n in rest.items() if n == -1), ZERO)
        return above, below, d - c

    def _most(self, above: Key, below: Key) -> float:
        """The most that ``above - below`` is: the shortest path over all differences that are known."""
        if above == below:
            return 0
        if below not in self._compared or above not in self._compared:
            return _FAR
        reached: dict[Key, float] = {below: 0}
        for _ in range(len(self.differences)):
            changed = False
            for (u, v), bound in self.differences.items():
                if v in reached and reached[v] + bound < reached.get(u, _FAR):
                    reached[u] = reached[v] + bound
                    changed = True
            if not changed:
                break
        return reached.get(above, _FAR)
