"""What a path has decided about conditions of which nothing is known, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable

from .numbers import Numbers
from .program import Program, Reach
from .values import Key


class Decisions:
    """The decisions of one path.

    Args:
        numbers: the unknowns of the path.
        order: told what the host knows where a query is true.
        flips: by the number of a decision, how it comes out.
        turned: told how a decision of these comes out.
        guards: asked whether the statement that is run guards a wait.
        place: asked for the statement that is run.

    Attributes:
        conds: how each condition came out, by its key; of ("is", v): the constant that v is.
        taken: the decisions that may be turned round, in order, whether they guard waits (`guards`), and what of the
            source they decide (`places`).
        among, never: which constants a value may be, and which it is not.
        falsy: what was false as a condition: it is no constant that is true.
        joins: what ``|`` has joined, by the key of the result: that is false where both are.
        queries: by a query of the host: what it knows where that is true.
        quiet: whether decisions are not to be turned round.
    """

    def __init__(
        self,
        numbers: Numbers,
        order: Program,
        flips: dict[int, bool],
        turned: Callable[[bool], None],
        guards: Callable[[], bool],
        place: Callable[[], object],
    ) -> None:
        self.numbers, self.order, self.flips, self.turned = numbers, order, flips, turned
        self.conds: dict[Key, Key] = {}
        self.taken: list[tuple[Key, bool]] = []
        self.among: dict[Key, set[Key]] = {}
        self.never: dict[Key, set[Key]] = {}
        self.falsy: set[Key] = set()
        self.joins: dict[Key, tuple[Key, Key]] = {}
        self.queries: dict[Key, Reach] = {}
        self.quiet = False
        self.guarding = guards
        self.guards: list[bool] = []
        self.place = place
        self.places: list[object] = []

    def decide(self, key: Key, default: bool, flip: bool = True, node: object = None) -> bool:
        """How a condition comes out of which nothing is known: the same way each time on one path.

        Args:
            default: how it comes out on the first path.
            flip: whether another path is to try the other way.
            node: the condition in the source; None for the statement that is run.
        """
        got: bool | None = self.conds.get(key)
        if got is None and key[0] == "cmp" and key[1] == "Lt":
            got = self.numbers.less(key[2], key[3])
        if got is None and key[0] == "truth" and any(map(self._holds, self.joins.get(key[1], ()))):
            got = True
        if got is not None:
            return got
        value = default
        if flip and not self.quiet:
            n = len(self.taken)
            value = self.flips.get(n, default)
            self.taken.append((key, value))
            self.guards.append(self.guarding())
            self.places.append(node or self.place())
            if n in self.flips:
                self.turned(value)
        self.conds[key] = value
        self.learned(key, value)
        return value

    def _holds(self, value: Key) -> bool:
        """Whether a value is known to be true."""
        return bool(value[2]) if value[0] == "c" else self.conds.get(("truth", value)) is True

    def learned(self, key: Key, value: bool) -> None:
        """A condition has come out: what else is known now."""
        kind = key[0]
        if kind == "cmp" and key[1] == "Lt":
            self.numbers.learn_less(key[2], key[3], value)
        elif kind == "eq" and value:
            self.conds[("is", key[1])] = key[2]
            if key[2][0] == "c":
                self.conds.setdefault(("truth", key[1]), bool(key[2][2]))
                self._equal(key[1], key[2])
        elif kind == "eq":
            self.never.setdefault(key[1], set()).add(key[2])
            self.numbers.learn_apart(key[1], key[2])
        elif kind == "truth" and not value:
            self.falsy.add(key[1])
            for part in self.joins.get(key[1], ()):
                if part[0] != "c" and ("truth", part) not in self.conds:
                    self.conds[("truth", part)] = False
                    self.learned(("truth", part), False)
        elif kind == "in" and key[2][0] == "q":
            if value:
                self.among[key[1]] = set(key[2][1])
            else:
                self.never.setdefault(key[1], set()).update(key[2][1])
        elif value and key in self.queries:
            self.order.wait(self.order.host, self.queries[key])

    def _equal(self, a: Key, constant: Key) -> None:
        """A value is a constant."""
        if constant[1] == "int":
            self.numbers.learn_less(a, constant, False)
            self.numbers.learn_less(constant, a, False)

    def is_among(self, a: Key, constants: set[Key]) -> bool | None:
        """Whether a value is one of some constants, as far as the path says it."""
        if ("is", a) in self.conds:
            return self.conds[("is", a)] in constants
        never = self.never.get(a, set())
        may = self.among.get(a)
        if may is not None:
            may = may - never
            return True if may <= constants else False if may.isdisjoint(constants) else None
        return False if constants <= never else None
