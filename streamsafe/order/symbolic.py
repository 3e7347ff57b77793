"""The symbolic engine: who knows of an access, on every path at once.

A count of operations means nothing after two paths join, so this engine keeps no clocks. For every access that may have
happened it keeps the *ways* it may stand: who knows it (a set of carriers, one bit each) and under which guard. An edge
"x learns from y" adds x wherever y is. An access on T conflicts with an earlier one to the same buffer when some way of
the earlier one, compatible with the path, lacks T.

There is one host clock, and whatever is enqueued comes after what the host knows. So what the host learns of is ordered
before everything that follows: such a way is dropped, and the host's own accesses need not be kept at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from streamsafe.order.edges import Carrier, Edge
from streamsafe.order.forks import Forked, meeting

HOST = "host"


_made = tuple.__new__  # what a named tuple's class does when it is called, without the call


class Guard(NamedTuple):
    """A partial assignment of tracked conditions: bit n of ``true`` or ``false`` decides condition n."""

    true: int = 0
    false: int = 0

    def __and__(self, other: Guard) -> Guard:
        """Both hold; meaningful only when they do not contradict each other."""
        if other is ALWAYS:
            return self
        if self is ALWAYS:
            return other
        return _made(Guard, (self.true | other.true, self.false | other.false))

    def contradicts(self, other: Guard) -> bool:
        """Whether no assignment satisfies both."""
        return bool((self.true & other.false) | (self.false & other.true))

    def implies(self, other: Guard) -> bool:
        """Whether every assignment that satisfies this one satisfies the other."""
        return not (other.true & ~self.true) and not (other.false & ~self.false)

    def without(self, other: Guard) -> Guard:
        """What this one decides and the other does not."""
        return _made(Guard, (self.true & ~other.true, self.false & ~other.false))

    def common(self, other: Guard) -> Guard:
        """What both decide, and decide alike."""
        return _made(Guard, (self.true & other.true, self.false & other.false))

    def forget(self, conditions: int) -> Guard:
        """The same, with those conditions undecided."""
        return _made(Guard, (self.true & ~conditions, self.false & ~conditions))

    def exchange(self, old: int, new: int) -> Guard:
        """The same, with one condition in the place of another, where that is not decided already."""
        rest = self.forget(old)
        if not (self.true | self.false) & old or (self.true | self.false) & new:
            return rest
        return Guard(rest.true | new, rest.false) if self.true & old else Guard(rest.true, rest.false | new)

    def flip(self, condition: int) -> Guard:
        """The same, after a condition has been turned into its opposite."""
        return Guard(
            self.true & ~condition | self.false & condition, self.false & ~condition | self.true & condition
        )


ALWAYS = Guard()


class Way(NamedTuple):
    """One way in which an access may stand: its carriers, one bit each, and the guard under which this is so."""

    carriers: int
    guard: Guard


class Made(NamedTuple):
    """An access that may have happened. Two with equal fields are one.

    Attributes:
        site: where in the source; any hashable.
        buffer: the memory.
        part: a known part of it (an index, a slice), None for all or unknown.
        writes: whether it writes.
        timeline: the stream it runs on.
        detail: what the front end wants to remember; part of the identity.
    """

    site: Hashable
    buffer: Hashable
    part: Hashable | None
    writes: bool
    timeline: Carrier
    detail: Hashable = None


def substituted(guard: Guard, pairs: Sequence[tuple[Guard, Guard]], asked: int) -> Iterator[Guard]:
    """A guard without those conditions, and with the second of each pair of which the first may hold with it."""
    for old, new in pairs:
        if not guard.contradicts(old):
            rest = (guard & old).forget(asked)
            if not rest.contradicts(new):
                yield rest & new


MOST_WAYS = 24
"""In how many ways an access may stand: of more, those that the fewest carriers know are kept."""


def simplify(ways: Iterable[Way]) -> tuple[Way, ...]:
    """Drop every way that another one covers: fewer carriers under the same or a weaker guard."""
    found = frozenset(ways)
    if len(found) > 2:
        return _simplified(found)
    return tuple(found) if len(found) == 1 else _of_two(found)


def _of_two(ways: Iterable[Way]) -> tuple[Way, ...]:
    """What :func:`_simplified` makes of two ways, or none: the most frequent case, and not worth remembering."""
    kept = sorted(ways, key=_exposure)
    return tuple(_placed(kept[:1], kept[1]) if kept else kept)


@lru_cache(maxsize=1 << 14)
def _simplified(ways: frozenset[Way]) -> tuple[Way, ...]:
    kept: list[Way] = []
    exposed = sorted([(way[0].bit_count(), way[1], way[0], way) for way in ways])  # as by _exposure
    for *_, way in exposed[: 4 * MOST_WAYS]:
        kept = _placed(kept, way)
    return tuple(kept[:MOST_WAYS])


def _exposure(way: Way) -> tuple[int, Guard, int]:
    carriers, guard = way
    return carriers.bit_count(), guard, carriers


def _placed(kept: list[Way], way: Way) -> list[Way]:
    """Ways none of which covers another, and one that is known to more, or as many, carriers."""
    carriers, (true, false) = way
    lacking, decided, not_true, not_false = ~carriers, true | false, ~true, ~false
    for position, (fewer, (asked, denied)) in enumerate(kept):
        if fewer & lacking:
            continue
        if not (asked & not_true or denied & not_false):
            return kept
        # the same carriers whichever way one condition goes: it does not matter
        if asked | denied == decided and fewer == carriers:
            difference = (asked ^ true) | (denied ^ false)
            if not difference & (difference - 1):
                merged = Way(carriers, Guard(true & ~difference, false & ~difference))
                rest = kept[:position] + kept[position + 1 :]
                start = bisect_left(rest, _exposure(merged), key=_exposure)
                kept = rest[:start]
                for other in (merged, *rest[start:]):
                    kept = _placed(kept, other)
                return kept[:MOST_WAYS]
    kept.append(way)
    return kept


class Carriers:
    """One bit for each stream and event of an analysis."""

    def __init__(self) -> None:
        self._bits: dict[Carrier, int] = {}
        self.work = 0  # how many ways edges have been tried on: what an analysis costs

    def bit(self, carrier: Carrier) -> int:
        """The bit of a carrier, given out on first use."""
        found = self._bits.get(carrier)
        if found is None:
            found = self._bits[carrier] = 1 << len(self._bits)
        return found

    def known(self) -> list[Carrier]:
        """Every carrier that has a bit."""
        return list(self._bits)

    def __contains__(self, carrier: Carrier) -> bool:
        return carrier in self._bits


class Summary(NamedTuple):
    """What holds of all accesses to a buffer.

    Attributes:
        some: carriers that know of some access on some way.
        every: carriers that know of every access on every way.
        conditions: those that a guard mentions.
    """

    some: int
    every: int
    conditions: int


class Accesses(dict[Made, "tuple[Way, ...]"]):
    """What may have happened to one buffer, with the ways each access may stand; shared, so never changed in place."""

    __slots__ = ("_mentioned", "_summary")
    _summary: Summary
    _mentioned: frozenset[Hashable]

    def mentioned(self, of: Callable[[Made], Iterable[Hashable]]) -> frozenset[Hashable]:
        """What the accesses speak of, worked out when it is first asked for, by a function that is always the same."""
        try:
            return self._mentioned
        except AttributeError:
            self._mentioned = frozenset(name for made in self for name in of(made))
            return self._mentioned

    @property
    def summary(self) -> Summary:
        """What holds of all of them, worked out when it is first asked for."""
        try:
            return self._summary
        except AttributeError:
            self._summary = self._summarize()
            return self._summary

    def _summarize(self) -> Summary:
        some, every, conditions = 0, -1, 0
        for ways in self.values():
            for carriers, (true, false) in ways:
                some |= carriers
                every &= carriers
                conditions |= true | false
        return Summary(some, every, conditions)


Disjoint = Callable[[Hashable | None, Hashable | None], bool]


def overlapping(_: Hashable | None, __: Hashable | None) -> bool:
    """Parts are not distinguished."""
    return False


StandsFor = Callable[[Hashable, Hashable], bool]


def nothing_stands_for(_: Hashable, __: Hashable) -> bool:
    """Every access is remembered."""
    return False


class Order:
    """What may have happened and who knows of it, at one point of the program.

    Args:
        carriers: shared by all states of an analysis.
        disjoint: tells whether two parts of a buffer have no byte in common.
        stands_for: tells by their details whether an access can be named in place of a later read of the same
            stream, as long as nobody else has learnt of it: until then nobody is ordered after one of them only.
    """

    __slots__ = ("_disjoint", "_stands_for", "carriers", "host", "made")

    def __init__(
        self,
        carriers: Carriers,
        disjoint: Disjoint = overlapping,
        stands_for: StandsFor = nothing_stands_for,
    ) -> None:
        self.carriers = carriers
        self._disjoint = disjoint
        self._stands_for = stands_for
        self.made: Forked[Hashable, Accesses] = Forked()
        self.host = 0
        """Which host thread runs: 0 for the one that starts, else the bit of a carrier. Of the first one what it knows
        need not be kept; what another one learns the first one does not know before it learns from that carrier."""

    def bit(self, carrier: Carrier) -> int:
        """The bit of a carrier; of the host that of the thread that runs."""
        return self.host if carrier == HOST else self.carriers.bit(carrier)

    def copy(self) -> Order:
        """An independent copy; the inner tables are shared until one side changes them."""
        twin = Order(self.carriers, self._disjoint, self._stands_for)
        twin.made = self.made.fork()
        twin.host = self.host
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self.made == other.made

    __hash__ = None  # type: ignore[assignment]

    # -- edges ---------------------------------------------------------------------------------------------------

    def obey(self, edges: Iterable[Edge], path: Guard = ALWAYS) -> None:
        """Apply edges in their order, under a guard: where it does not hold nothing is learnt."""
        for edge in edges:
            self.learn(edge.learner, edge.source, forget=edge.forget, guard=path)

    def learn(
        self, learner: Carrier, source: Carrier, *, forget: bool = False, guard: Guard = ALWAYS
    ) -> None:
        """``learner`` learns what ``source`` knows; with ``forget`` it forgets first."""
        bit, seen = self.bit(learner), self.bit(source)
        if not seen and not forget:
            return  # what the host knows is not kept: everything later comes after it
        if bit == seen and bit:
            return

        def step(carriers: int) -> int | None:
            knows = bool(carriers & seen)
            if forget:
                carriers &= ~bit
            if not knows:
                return carriers
            return carriers | bit if bit else None

        def concerns(table: Accesses) -> bool:
            some, every, _ = table.summary
            return bool(forget and some & bit) or bool(some & seen and not every & bit)

        self._rewrite(step, guard, concerns)

    def inherit(self, heir: Carrier, source: Carrier) -> None:
        """``heir`` knows from now on what ``source`` has learnt, but not what runs on that."""
        bit, seen = self.carriers.bit(heir), self.carriers.bit(source)

        def step(carriers: int) -> int:
            return carriers | bit if carriers & seen else carriers

        for buffer, table in list(self.made.items()):
            if table.summary.some & seen and not table.summary.every & bit:
                self.made[buffer] = Accesses(
                    (made, ways if made.timeline == source else _stepped(ways, step, ALWAYS))
                    for made, ways in table.items()
                )

    def learn_everything(self, learner: Carrier, guard: Guard = ALWAYS) -> None:
        """``learner`` learns of every access there is."""
        bit = self.bit(learner)
        self._rewrite(
            lambda carriers: carriers | bit if bit else None,
            guard,
            lambda table: not table.summary.every & bit,
        )

    def _rewrite(
        self, step: Callable[[int], int | None], guard: Guard, concerns: Callable[[Accesses], bool]
    ) -> None:
        known: dict[tuple[Way, ...], tuple[Way, ...]] = {}  # most accesses stand alike
        for buffer, table in list(self.made.items()):
            if not concerns(table):
                continue
            changed = Accesses()
            dirty = False
            for made, ways in table.items():
                new = known.get(ways)
                if new is None:
                    new = known[ways] = _stepped(ways, step, guard)
                    self.carriers.work += len(ways)
                dirty = dirty or new is not ways
                if new:
                    changed[made] = new
            if dirty:
                if changed:
                    self.made[buffer] = changed
                else:
                    del self.made[buffer]

    # -- accesses ------------------------------------------------------------------------------------------------

    def conflicts(
        self,
        buffer: Hashable,
        part: Hashable | None,
        writes: bool,
        timeline: Carrier,
        path: Guard = ALWAYS,
    ) -> list[tuple[Made, Guard]]:
        """The earlier accesses that an access on ``timeline`` is not ordered after, each with the guard it needs."""
        table = self.made.get(buffer)
        if not table:
            return []
        bit = self.bit(timeline) | self.host
        if table.summary.every & bit:
            return []  # all of it is known there
        found = []
        for made, ways in table.items():
            if not (writes or made.writes) or made.timeline == timeline:
                continue
            if part is not None and made.part is not None and self._disjoint(part, made.part):
                continue
            for way in ways:
                if not way.carriers & bit and not path.contradicts(way.guard):
                    found.append((made, way.guard))
                    break
        return found

    def add(self, made: Made, guard: Guard = ALWAYS, *, covers: bool = True, alone: bool = True) -> None:
        """The access happens.

        Args:
            made: the access.
            guard: the paths on which it happens.
            covers: it is of the whole buffer: a write stands for everything that it is ordered after.
            alone: the buffer is one memory, not several of which any may be meant: an access may stand for a
                later read.
        """
        if made.timeline == HOST:
            return
        table = self.made.get(made.buffer)
        bit = self.carriers.bit(made.timeline)
        if table and alone and not made.writes and self._repeats(made, guard, bit, table):
            return
        fresh = Accesses()
        if table:
            for old, ways in table.items():
                if (
                    made.writes
                    and covers
                    and guard == ALWAYS
                    and (made.part is None or made.part == old.part)
                ):
                    ways = tuple(way for way in ways if not way.carriers & bit)
                    if not ways:
                        continue
                fresh[old] = ways
        fresh[made] = simplify((*fresh.get(made, ()), Way(bit, guard)))
        self.made[made.buffer] = fresh

    def _repeats(self, made: Made, guard: Guard, bit: int, table: Accesses) -> bool:
        """Whether an earlier access of the same stream stands for a read: nobody else knows of that one yet."""
        for old, ways in table.items():
            if (
                old.timeline == made.timeline
                and (old.part is None or old.part == made.part)
                and any(w.carriers == bit and guard.implies(w.guard) for w in ways)
                and self._stands_for(old.detail, made.detail)
            ):
                return True
        return False

    def accesses(self, buffer: Hashable) -> Accesses:
        """What may have happened to a buffer."""
        return self.made.get(buffer, _NONE)

    def move(self, buffer: Hashable, target: Hashable, keep: Callable[[Made], bool]) -> None:
        """The accesses of one buffer that ``keep`` admits become accesses of another (release into a pool)."""
        table = self.made.get(buffer)
        if table is None:
            return
        del self.made[buffer]
        merged = Accesses(self.accesses(target))
        for made, ways in table.items():
            if keep(made):
                moved = made._replace(buffer=target)
                merged[moved] = simplify((*merged.get(moved, ()), *ways))
        if merged:
            self.made[target] = merged

    def repeat(self, buffer: Hashable, target: Hashable) -> None:
        """The accesses of one buffer are those of another, too, and are all that other one has."""
        self.made.discard(target)
        table = self.made.get(buffer)
        if table is not None:
            self.made[target] = Accesses((made._replace(buffer=target), ways) for made, ways in table.items())

    def share(self, buffer: Hashable, change: Callable[[Made], Made]) -> None:
        """The accesses of one buffer may be of another as well: ``change`` says what they are there."""
        for made, ways in list(self.accesses(buffer).items()):
            shared = change(made)
            merged = Accesses(self.accesses(shared.buffer))
            merged[shared] = simplify((*merged.get(shared, ()), *ways))
            self.made[shared.buffer] = merged

    def rewrite(
        self,
        renaming: Callable[[Made], Made],
        moves: list[tuple[int, int]],
        concerns: Callable[[Accesses], bool] = lambda _: True,
    ) -> None:
        """Objects age: accesses are renamed, and for each pair of bits the first's knowledge becomes the second's.

        Args:
            renaming: what becomes of an access.
            moves: pairs of bits.
            concerns: whether any access of a table is renamed.
        """
        rebuilt: list[tuple[Made, tuple[Way, ...]]] = []
        moved = 0
        for source, _ in moves:
            moved |= source
        for buffer, table in list(self.made.items()):
            touched = table.summary.some & moved
            if not touched and not concerns(table):
                continue
            changed = Accesses()
            dirty = False
            for made, ways in table.items():
                after = ways
                if touched and any(way.carriers & moved for way in ways):
                    after = simplify(Way(_moved(way.carriers, moves), way.guard) for way in ways)
                renamed = renaming(made)
                if renamed is made and after is ways:
                    changed[made] = ways
                    continue
                dirty = True
                rebuilt.append((renamed, after))
            if dirty:
                if changed:
                    self.made[buffer] = changed
                else:
                    del self.made[buffer]
        for made, ways in rebuilt:
            merged = Accesses(self.accesses(made.buffer))
            known = merged.get(made)
            merged[made] = ways if known is None else simplify((*known, *ways))
            self.made[made.buffer] = merged

    def drop(self, buffer: Hashable) -> None:
        """Nothing is known of this buffer any more."""
        self.made.discard(buffer)

    def retain(self, keep: Callable[[Made, tuple[Way, ...]], bool]) -> None:
        """Forget the accesses that ``keep`` does not admit."""
        for buffer, table in list(self.made.items()):
            kept = Accesses((made, ways) for made, ways in table.items() if keep(made, ways))
            if not kept:
                self.made.discard(buffer)
            elif len(kept) < len(table):
                self.made[buffer] = kept

    def iterate(self) -> Iterator[tuple[Made, tuple[Way, ...]]]:
        """Every access, with its ways."""
        for table in self.made.values():
            yield from table.items()

    # -- paths ---------------------------------------------------------------------------------------------------

    def assume(self, *guards: Guard) -> None:
        """Enter a branch that is taken under any of these guards: what contradicts all of them did not happen here."""
        if ALWAYS in guards:
            return
        asked = 0
        for true, false in guards:
            asked |= true | false
        known: dict[int, tuple[Way, ...]] = {}  # by identity: the tables that are iterated keep their ways
        for buffer, table in list(self.made.items()):
            if not table.summary.conditions & asked:
                continue
            changed = Accesses()
            dirty = False
            for made, ways in table.items():
                kept = known.get(id(ways))
                if kept is None:
                    kept = known[id(ways)] = _left(ways, guards)
                dirty = dirty or kept is not ways
                if kept:
                    changed[made] = kept
            if dirty:
                if changed:
                    self.made[buffer] = changed
                else:
                    del self.made[buffer]

    def conditions(self) -> int:
        """The conditions that some guard mentions."""
        found = 0
        for table in self.made.values():
            found |= table.summary.conditions
        return found

    def substitute(self, pairs: Sequence[tuple[Guard, Guard]], asked: int) -> None:
        """Where the first of a pair held the second takes its place; other guards stop mentioning those conditions."""
        known: dict[int, tuple[Way, ...]] = {}  # by identity: the tables that are iterated keep their ways
        for buffer, table in list(self.made.items()):
            for ways in table.values():
                if id(ways) not in known:
                    known[id(ways)] = simplify(
                        Way(way.carriers, guard)
                        for way in ways
                        for guard in substituted(way.guard, pairs, asked)
                    )
            changed = Accesses((made, new) for made, ways in table.items() if (new := known[id(ways)]))
            if changed:
                self.made[buffer] = changed
            else:
                del self.made[buffer]

    def reguard(self, conditions: int, change: Callable[[Guard], Guard]) -> None:
        """Every guard that mentions one of these conditions changes."""
        known: dict[int, tuple[Way, ...]] = {}  # by identity: the tables that are iterated keep their ways
        for buffer, table in list(self.made.items()):
            if not table.summary.conditions & conditions:
                continue
            for ways in table.values():
                if id(ways) not in known:
                    known[id(ways)] = simplify(Way(way.carriers, change(way.guard)) for way in ways)
            self.made[buffer] = Accesses((made, known[id(ways)]) for made, ways in table.items())

    @staticmethod
    def join(first: Order, first_only: Sequence[Guard], second: Order, second_only: Sequence[Guard]) -> Order:
        """What may have happened on either path; ``..._only`` is what holds on a path beyond the common part: any of
        these guards.
        """
        joined = Order(first.carriers, first._disjoint, first._stands_for)
        joined.host = first.host & second.host
        joined.made, differing = meeting(first.made, second.made)
        # by identity: to hash all ways would cost more than to join some twice; both orders keep theirs meanwhile
        known: dict[tuple[int, int], tuple[Way, ...]] = {}
        for buffer in differing:
            left, right = first.made.get(buffer, _NONE), second.made.get(buffer, _NONE)
            if left is right:
                continue
            alone = left or right
            if not (left and right) and ALWAYS in (first_only if left else second_only):
                dict.__setitem__(joined.made, buffer, alone)
                continue
            pairs = [
                (made, one, other)
                for made, one in left.items()
                if one is not (other := right.get(made, ())) and one != other
            ]
            pairs += [(made, (), ways) for made, ways in right.items() if made not in left]
            if not pairs:
                dict.__setitem__(joined.made, buffer, left)
                continue
            table = Accesses(left)
            for made, one, other in pairs:
                both = known.get((id(one), id(other)))
                if both is None:
                    both = known[(id(one), id(other))] = _joined(one, first_only, other, second_only)
                table[made] = both
            dict.__setitem__(joined.made, buffer, table)
        return joined


_NONE = Accesses()


def _left(ways: tuple[Way, ...], guards: Sequence[Guard]) -> tuple[Way, ...]:
    """The ways that do not contradict all of the guards; the same object where these are all."""
    kept = []
    for way in ways:
        true, false = way.guard
        for asked, denied in guards:
            if not (asked & false or denied & true):
                kept.append(way)
                break
    return ways if len(kept) == len(ways) else tuple(kept)


def _joined(
    one: tuple[Way, ...], one_only: Sequence[Guard], other: tuple[Way, ...], other_only: Sequence[Guard]
) -> tuple[Way, ...]:
    """The ways of an access on either of two paths."""
    if not (one and other):
        return simplify(_under(one, one_only) if one else _under(other, other_only))
    both = frozenset(one).intersection(other)  # these stand whichever path was taken
    if both:
        one, other = (tuple([way for way in ways if way not in both]) for ways in (one, other))
    return simplify([*both, *_under(one, one_only), *_under(other, other_only)])


def _under(ways: tuple[Way, ...], guards: Sequence[Guard]) -> Iterator[Way]:
    """The ways, on the paths on which one of the guards holds."""
    for way in ways:
        carriers, (true, false) = way
        for asked, denied in guards:
            if not (true & denied or false & asked):
                yield _made(Way, (carriers, _made(Guard, (true | asked, false | denied))))


def _moved(carriers: int, moves: list[tuple[int, int]]) -> int:
    added = 0
    for source, target in moves:
        if carriers & source:
            added |= target
    for source, _ in moves:
        carriers &= ~source
    return carriers | added


def _stepped(ways: tuple[Way, ...], step: Callable[[int], int | None], guard: Guard) -> tuple[Way, ...]:
    """The ways after an edge that holds under a guard; the same object where it changes nothing."""
    new: list[Way] = []
    touched = False
    for way in ways:
        after = way.carriers if guard.contradicts(way.guard) else step(way.carriers)
        if after == way.carriers:
            new.append(way)
            continue
        touched = True
        rest = guard.without(way.guard)
        if rest != ALWAYS:  # only partly under the guard: the other part stands as it was
            new.extend(_outside(way, rest))
        if after is not None:
            new.append(Way(after, way.guard & rest))
    return simplify(new) if touched else ways


def _outside(way: Way, rest: Guard) -> Iterator[Way]:
    """The way, on the assignments that do not satisfy ``rest``: one for each of its literals."""
    before = way.guard
    for position in range(max(rest.true.bit_length(), rest.false.bit_length())):
        bit = 1 << position
        if rest.true & bit:
            yield Way(way.carriers, before & Guard(0, bit))
            before = before & Guard(bit, 0)
        elif rest.false & bit:
            yield Way(way.carriers, before & Guard(bit, 0))
            before = before & Guard(0, bit)
