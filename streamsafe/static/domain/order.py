"""Who knows what: the order relation of a function and the ways in which its accesses are known.

An edge "x learns from y" (:mod:`streamsafe.order.edges`) adds x to every carrier set that holds y. The map distributes
over union, so what a function does to order is one Boolean relation over carriers, and relations compose:

* ``knows[x]``: the carriers at entry whose knowledge x has now. Absent: x itself. ``ALL`` among them: everybody's.
* an access has *ways*: the antichain of carrier sets that may know it now, one for each class of paths.
* an access A with a way w and then an access B that comes after ``before`` are ordered exactly when w and ``before``
  have a carrier in common.

Whatever is enqueued comes after what the host knows, so a way that holds the host is ordered before everything that
follows: it is dropped, and an access without ways can no longer conflict as the earlier one.

Accesses that are known in the same ways share a *token*: an edge is applied once to a token, not to each access.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import count
from typing import Final

from streamsafe.order.edges import Edge
from streamsafe.static.domain import limits
from streamsafe.static.domain.access import Access
from streamsafe.static.domain.atoms import ALL, GRADIENTS, HOST, Atom, Path, rank
from streamsafe.static.domain.places import is_of_module

Carriers = frozenset[Atom]
Ways = frozenset[Carriers]
"""An antichain of carrier sets, none of which holds the host; empty: the host knows on every path."""

ORDERED: Final[Ways] = frozenset()
KNOWN: Final = 0
"""The token of accesses that nothing later can conflict with."""

_tokens = count(1)
_stepped: dict[tuple[Ways, Atom, Atom, bool], Ways] = {}
_MOST_STEPPED: Final = 1 << 16
_MOST_TOKENS: Final = 24


def antichain(ways: Iterable[Carriers]) -> Ways:
    """The minimal sets: every edge is monotone, so the smaller one is exposed whenever the larger is."""
    every = frozenset(ways)
    if len(every) < 2:
        return every
    kept: list[Carriers] = []
    for way in sorted(every, key=len):
        if not any(other <= way for other in kept):
            kept.append(way)
    if len(kept) > limits.WAYS:
        kept.sort(key=_exposure)
        del kept[limits.WAYS :]
    return frozenset(kept)


def _exposure(way: Carriers) -> tuple[int, list[str]]:
    return len(way), sorted(map(rank, way))


def _step(ways: Ways, learner: Atom, source: Atom, forget: bool) -> Ways:
    """The ways after one edge."""
    key = (ways, learner, source, forget)
    found = _stepped.get(key)
    if found is None:
        if learner is HOST:
            found = frozenset(way for way in ways if source not in way)
        else:
            found = antichain(
                (way | {learner} if source in way else way - {learner} if forget else way) for way in ways
            )
        if len(_stepped) > _MOST_STEPPED:
            _stepped.clear()
        _stepped[key] = found
    return found


def memory(buffer: Atom) -> Hashable:
    """Accesses to buffers whose memories differ by this key never overlap."""
    if isinstance(buffer, Path):
        fields = buffer.fields
        if fields and fields[-1] == "grad":
            return GRADIENTS
        if is_of_module(fields[:1]):
            return (buffer.root, "parameters()")
        return (buffer.root, fields[0]) if fields and not fields[0].startswith("[") else buffer.root
    return buffer


class Order:
    """The relation and the accesses at one point of a function, on the paths of one partition.

    ``made`` holds the accesses by the memory they touch: its inner tables are shared between copies until one changes.
    """

    __slots__ = ("_owned", "_relation", "knows", "made", "ways")

    def __init__(self) -> None:
        self.knows: dict[Atom, Carriers] = {}
        self.made: dict[Hashable, dict[Access, int]] = {}
        self.ways: dict[int, Ways] = {KNOWN: ORDERED}
        self._owned: set[Hashable] = set()
        self._relation: frozenset[tuple[Atom, Carriers]] | None = None

    def fork(self) -> Order:
        """An independent copy."""
        if len(self.ways) > _MOST_TOKENS:
            self._compact()
        twin = Order.__new__(Order)
        twin.knows = dict(self.knows)
        twin.made = dict(self.made)
        twin.ways = dict(self.ways)
        twin._owned = set()
        self._owned = set()
        twin._relation = self._relation
        return twin

    @property
    def relation(self) -> frozenset[tuple[Atom, Carriers]]:
        """The relation as a value: what keeps two partitions apart."""
        if self._relation is None:
            self._relation = frozenset(self.knows.items())
        return self._relation

    # -- edges ---------------------------------------------------------------------------------------------------

    def known_by(self, carrier: Atom) -> Carriers:
        """The carriers at entry whose knowledge a carrier has."""
        known = self.knows.get(carrier)
        return frozenset((carrier,)) if known is None else known

    def before(self, stream: Atom) -> Carriers:
        """What an operation enqueued on a stream now, or done by the host, comes after."""
        if HOST not in self.knows or stream is HOST:
            return self.known_by(stream)
        return self.known_by(stream) | self.knows[HOST]

    def obey(self, edges: Iterable[Edge]) -> None:
        """Apply edges in their order."""
        for learner, source, forget in edges:
            self.learn(learner, source, forget)  # type: ignore[arg-type]

    def learn(self, learner: Atom, source: Atom, forget: bool = False) -> None:
        """``learner`` learns what ``source`` knows; with ``forget`` it first forgets what it knew."""
        if learner is source or (source is HOST and HOST not in self.knows):
            return
        mine = self.known_by(source)
        if not forget:
            mine = mine | self.known_by(learner)
        if self.known_by(learner) != mine:
            self.knows[learner] = mine
            self._relation = None
        for token, ways in self.ways.items():
            if ways:
                self.ways[token] = _step(ways, learner, source, forget)

    def set_row(self, carrier: Atom, known: Carriers) -> None:
        """What a carrier knows is something else from here on; accesses made before stay known to it."""
        self.knows[carrier] = known
        self._relation = None

    def learn_all(self, learner: Atom) -> None:
        """``learner`` learns what anybody knows."""
        self.knows[learner] = self.known_by(learner) | {ALL}
        self._relation = None
        for token, ways in self.ways.items():
            if ways:
                self.ways[token] = ORDERED if learner is HOST else antichain(way | {learner} for way in ways)

    # -- accesses ------------------------------------------------------------------------------------------------

    def add(self, access: Access) -> None:
        """An access is made now: its own stream knows of it, and nobody else."""
        if access.stream is HOST:
            self.put(access, ORDERED)
        else:
            self.put(access, frozenset((frozenset((access.stream,)),)))

    def put(self, access: Access, ways: Ways) -> None:
        """An access that is known in these ways, in addition to those that it has."""
        table = self._table(memory(access.buffer))
        token = table.get(access)
        if token is not None:
            ways = (
                antichain(ways | self.ways[token]) if ways and self.ways[token] else ways or self.ways[token]
            )
        table[access] = self._token(ways)

    def merge(self, key: Hashable, table: dict[Access, int]) -> None:
        """Take over a whole table of accesses, whose tokens are ours."""
        if key in self.made:
            for access, token in table.items():
                self.put(access, self.ways[token])
        else:
            self.made[key] = table

    def drop(self, access: Access) -> None:
        """Forget an access."""
        self._table(memory(access.buffer)).pop(access, None)

    def rename_buffers(self, names: Mapping[Atom, Atom]) -> None:
        """Give other names to objects that are memory and nothing else."""
        for old, new in names.items():
            table = self.made.pop(old, None)
            self._owned.discard(old)
            for access, token in table.items() if table else ():
                self.put(access.replace(buffer=new), self.ways[token])

    def settle(self, access: Access) -> None:
        """Nothing later can conflict with an access: its memory is gone."""
        self._table(memory(access.buffer))[access] = KNOWN

    def accesses(self) -> Iterator[Access]:
        """Every access that is known."""
        for table in self.made.values():
            yield from table

    def near(self, buffer: Atom) -> Iterable[Access]:
        """The accesses to memory that may be that of a buffer."""
        return self.made.get(memory(buffer), ())

    def ways_of(self, access: Access) -> Ways:
        """The ways in which an access is known."""
        return self.ways[self.made[memory(access.buffer)][access]]

    def exposed(self, access: Access, before: Carriers) -> bool:
        """Whether on some path an operation that comes after ``before`` (carriers now) is not after the access."""
        ways = self.ways[self.made[memory(access.buffer)][access]]
        return ALL not in before and any(way.isdisjoint(before) for way in ways)

    def assume_ordered(self, access: Access, stream: Atom) -> None:
        """A stream is taken to have waited for an access: one missing edge is one hazard."""
        table = self._table(memory(access.buffer))
        ways = self.ways[table[access]]
        table[access] = self._token(ORDERED if stream is HOST else antichain(way | {stream} for way in ways))

    def _table(self, key: Hashable) -> dict[Access, int]:
        """The accesses to some memory, to be changed."""
        if key in self._owned:
            return self.made[key]
        self._owned.add(key)
        table = self.made[key] = dict(self.made.get(key, ()))
        return table

    def _compact(self) -> None:
        used = {token for table in self.made.values() for token in table.values()}
        self.ways = {token: ways for token, ways in self.ways.items() if token in used or token == KNOWN}

    def _token(self, ways: Ways) -> int:
        if not ways:
            return KNOWN
        for token, known in self.ways.items():
            if known == ways:
                return token
        token = next(_tokens)
        self.ways[token] = ways
        return token

    # -- composition ---------------------------------------------------------------------------------------------

    def compose(self, relation: Mapping[Atom, Carriers]) -> None:
        """What a callee did to order: our accesses and our relation pass through its relation.

        Args:
            relation: the callee's ``knows`` in our names; the carriers of its values are ours at the call.
        """
        if not relation:
            return
        through: dict[Ways, Ways] = {}
        for token, ways in self.ways.items():
            if ways:
                found = through.get(ways)
                if found is None:
                    found = through[ways] = _through(ways, relation)
                self.ways[token] = found
        mine = {learner: self.entry(sources) for learner, sources in relation.items()}
        for learner, known in mine.items():
            if self.known_by(learner) != known:
                self.knows[learner] = known
        self._relation = None

    def entry(self, sources: Carriers) -> Carriers:
        found: frozenset[Atom] = frozenset()
        for source in sources:
            found = found | (frozenset((ALL,)) if source is ALL else self.known_by(source))
        return found

    # -- join ----------------------------------------------------------------------------------------------------

    def join(self, other: Order) -> bool:
        """Take in the paths of another partition; whether anything changed.

        With equal relations nothing is lost. Otherwise a carrier knows what it knows on both sides: an access made
        from here on may be taken to come after too little.
        """
        changed = False
        mine_ways = self.ways
        apart = {token for token, ways in other.ways.items() if mine_ways.get(token) != ways}
        pairs: dict[tuple[int | None, int], int] = {}
        for key, theirs in other.made.items():
            mine = self.made.get(key)
            if mine is None or mine != theirs or not apart.isdisjoint(theirs.values()):
                changed |= self._join_accesses(key, theirs, other.ways, pairs)
        if self.knows != other.knows:
            for carrier in dict.fromkeys((*self.knows, *other.knows)):
                known = self.known_by(carrier)
                both = _both(known, other.known_by(carrier))
                if both != known:
                    self.knows[carrier] = both
                    changed = True
                    self._relation = None
        return changed

    def _join_accesses(
        self,
        key: Hashable,
        theirs: Mapping[Access, int],
        their_ways: Mapping[int, Ways],
        pairs: dict[tuple[int | None, int], int],
    ) -> bool:
        mine = self.made.get(key, {})
        updates: dict[Access, int] = {}
        for access, their in theirs.items():
            token = mine.get(access)
            joined = pairs.get((token, their))
            if joined is None:
                joined = pairs[token, their] = self._joined_token(token, their_ways[their])
            if joined != token:
                updates[access] = joined
        if updates:
            self._table(key).update(updates)
        return bool(updates)

    def _joined_token(self, token: int | None, ways: Ways) -> int:
        if token is None:
            return self._token(ways)
        mine = self.ways[token]
        if ways == mine or not ways:
            return token
        both = antichain(ways | mine)
        return token if both == mine else self._token(both)


def _both(mine: Carriers, yours: Carriers) -> Carriers:
    if ALL in mine and ALL in yours:
        return mine | yours
    if ALL in mine:
        return yours
    if ALL in yours:
        return mine
    return mine & yours


def _through(ways: Ways, relation: Mapping[Atom, Carriers]) -> Ways:
    made = []
    for way in ways:
        after = {carrier for carrier in way if carrier not in relation}
        for learner, sources in relation.items():
            if ALL in sources or not sources.isdisjoint(way):
                after.add(learner)
        if HOST not in after:
            made.append(frozenset(after))
    return antichain(made)
