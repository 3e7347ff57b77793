"""Routes: the guards under which the paths of one state were reached, kept few and short."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, reduce

from streamsafe.order.symbolic import MOST_WAYS, Guard, Way, simplify

MOST_ROUTES = 8
"""How many ways to a point are kept apart; of more, those that differ only in the oldest conditions are one."""

MOST_GUARDS = 4
"""How many guards may distinguish the paths that arrive from one side from those that arrive from the other."""


def entered(routes: tuple[Guard, ...], guards: Sequence[Guard]) -> tuple[Guard, ...]:
    """The routes on which one of the guards may hold, with that guard."""
    if len(guards) == 1:
        guard = guards[0]
        conditions = guard.true | guard.false
        left = [route for route in routes if not route.contradicts(guard)]
        if not any((true | false) & conditions for true, false in left):
            return tuple([route & guard for route in left])  # as distinct as they were
    return distinct(route & guard for route in routes for guard in guards if not route.contradicts(guard))


def distinct(routes: Iterable[Guard]) -> tuple[Guard, ...]:
    """The routes, without those that another one covers."""
    found = frozenset(routes)
    if len(found) != 2:
        return tuple(found) if len(found) < 2 else _uncovered(found)
    first, second = sorted(found)
    if second.implies(first):
        return (first,)
    apart = (first.true ^ second.true) | (first.false ^ second.false)
    if first.true | first.false == second.true | second.false and not apart & (apart - 1):
        return (first.forget(apart),)  # whichever way that condition goes
    return (first, second)


@lru_cache(maxsize=1 << 12)
def _uncovered(routes: frozenset[Guard]) -> tuple[Guard, ...]:
    kept = simplify(Way(0, route) for route in routes)
    while (
        len(routes) > MOST_WAYS <= len(kept)
    ):  # some may have been dropped: a path that is there must not be
        routes = _vaguer(routes)
        kept = simplify(Way(0, route) for route in routes)
    return tuple(way.guard for way in kept)


def _vaguer(routes: Collection[Guard]) -> frozenset[Guard]:
    """Routes without the oldest condition: what is asked anew is newer."""
    path = reduce(Guard.common, routes)
    conditions = reduce(int.__or__, (true | false for true, false in routes)) & ~(path.true | path.false)
    return frozenset(route.forget(conditions & -conditions) for route in routes)


def few(routes: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """The routes; where they are too many, without the oldest conditions."""
    while len(routes) > MOST_ROUTES:
        routes = distinct(_vaguer(routes))
    return routes


@lru_cache(maxsize=1 << 12)
def distinguishing(routes: tuple[Guard, ...], others: tuple[Guard, ...], only: Guard) -> tuple[Guard, ...]:
    """What distinguishes some routes from others: as few conditions as do, beside ``only``, which all of them have."""
    if len(routes) == len(others) == 1:
        return (only,)
    found = set()
    for route in routes:
        guard = only
        true, false = route
        left = [o for o in others if (true & o.false or false & o.true) and not guard.contradicts(o)]
        while left:
            against: dict[int, int] = {}  # how many each literal contradicts
            for other in left:
                for literal in _against(route, other):
                    against[literal] = against.get(literal, 0) + 1
            most = max(against, key=against.__getitem__)
            guard = guard & (Guard(most, 0) if most > 0 else Guard(0, -most))
            left = [other for other in left if not guard.contradicts(other)]
        found.add(guard)
    return distinct(found) if len(found) <= MOST_GUARDS else (only,)


def _against(guard: Guard, other: Guard) -> Iterator[int]:
    """The literals of a guard that contradict another one: their bits, negative where the condition is false."""
    true, false = guard.true & other.false, guard.false & other.true
    while true:
        yield true & -true
        true &= true - 1
    while false:
        yield -(false & -false)
        false &= false - 1
