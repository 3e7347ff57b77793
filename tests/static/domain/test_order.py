"""The order relation composes: summaries of calls, methods, branches and loops against the walk of all paths.

A program is a set of functions, each a tree of statements; functions call earlier ones with their streams permuted and
their conditions passed on. The walk inlines every call, on every path; the composed side sees each function once. Both
say which pairs of launches may be unordered, and must say the same, both ways.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsafe.order.hazard import Span
from streamsafe.static.domain.access import Access, access
from streamsafe.static.domain.atoms import HOST, Atom, path
from streamsafe.static.domain.guards import ALWAYS, IS_TRUE, Guard, Literal, contradicts
from streamsafe.static.domain.order import Carriers, Order, Ways, antichain

STREAMS = tuple(path("self", name) for name in ("a", "b", "c"))
EVENTS = tuple(path("self", name) for name in ("e", "f"))
FLAGS = tuple(path(name) for name in ("p", "q"))
BUFFER = path("buffer")
PROGRAMS = int(os.environ.get("STREAMSAFE_ORACLE", "200"))
ROUNDS = 4
MOST_PATHS = int(os.environ.get("STREAMSAFE_ORACLE_PATHS", "300"))

# A statement: ("launch", s) ("record", e, s) ("wait", s, e) ("host", carrier) ("host access",)
# ("call", function, streams, events, flags) ("if", flag, body, otherwise) ("maybe", body) ("loop", body)


# -- the walk of all paths ----------------------------------------------------------------------------------------


class Walk:
    """Every path of a function, calls inlined: the operations in their order, each with its site."""

    def __init__(self, functions: list[list[Any]]) -> None:
        self.functions = functions

    def paths(self, body: list[Any], site: tuple[Any, ...], names: dict[Any, Any]) -> list[tuple[Any, ...]]:
        """Sequences of steps (site, verb, carriers ...)."""
        found: list[tuple[Any, ...]] = [()]
        for number, statement in enumerate(body):
            tails = self.statement(statement, (*site, number), names)
            found = [head + tail for head in found for tail in tails]
            found = list(dict.fromkeys(found))
            if len(found) > MOST_PATHS:
                raise TooManyPaths
        return found

    def statement(self, s: Any, site: tuple[Any, ...], names: dict[Any, Any]) -> list[tuple[Any, ...]]:
        verb = s[0]
        if verb == "call":
            inner = dict(zip(STREAMS, (names[STREAMS[i]] for i in s[2]), strict=True))
            inner |= dict(zip(EVENTS, (names[EVENTS[i]] for i in s[3]), strict=True))
            inner |= {
                flag: (names[FLAGS[given]] if isinstance(given, int) and given >= 0 else given == -1)
                for flag, given in zip(FLAGS, s[4], strict=True)
            }
            return self.paths(self.functions[s[1]], (*site, s[1]), inner)
        if verb == "if":
            return self.paths(s[2] if names[FLAGS[s[1]]] else s[3], (*site, names[FLAGS[s[1]]]), names)
        if verb == "maybe":
            return [(), *self.paths(s[1], (*site, True), names)]
        if verb == "loop":
            rounds = self.paths(s[1], (*site, "round"), names)
            found: set[tuple[Any, ...]] = {()}
            last: set[tuple[Any, ...]] = {()}
            for _ in range(ROUNDS):
                last = {head + tail for head in last for tail in rounds}
                found |= last
                if len(found) > MOST_PATHS:
                    raise TooManyPaths
            return sorted(found, key=repr)
        return [((site, verb, *(names.get(x, x) for x in s[1:])),)]


class TooManyPaths(Exception):
    """A program that is too large to walk."""


def walked(functions: list[list[Any]], *entries: int) -> set[tuple[Any, Any]]:
    """Pairs of sites that are unordered on some path through the entries, one after another."""
    walk = Walk(functions)
    found: set[tuple[Any, Any]] = set()
    for flags in product((False, True), repeat=len(FLAGS)):
        names: dict[Any, Any] = {x: x for x in (*STREAMS, *EVENTS)} | dict(zip(FLAGS, flags, strict=True))
        bodies = [walk.paths(functions[entry], (place, entry), names) for place, entry in enumerate(entries)]
        for parts in product(*bodies):
            found |= _unordered([step for part in parts for step in part])
    return found


def _unordered(steps: list[Any]) -> set[tuple[Any, Any]]:
    """Reachability in the graph of what happens: each node is an operation with the set of operations before it."""
    before: list[frozenset[int]] = []
    last: dict[Any, int] = {}  # stream or host -> its last node
    cells: dict[Any, int | None] = {}  # event -> the node it holds; absent: what it held at entry
    accesses: list[tuple[int, Any]] = []
    found = set()

    def node(*after: int | None) -> int:
        ancestors: frozenset[int] = frozenset()
        for one in after:
            if one is not None:
                ancestors |= before[one] | {one}
        before.append(ancestors)
        return len(before) - 1

    for site, verb, *names in steps:
        if verb == "launch":
            now = last[names[0]] = node(last.get(names[0]), last.get(HOST))
        elif verb == "host access":
            now = last[HOST] = node(last.get(HOST))
        elif verb == "record":
            last[names[1]] = node(last.get(names[1]), last.get(HOST))
            cells[names[0]] = last[names[1]]
            continue
        elif verb == "wait":
            last[names[0]] = node(last.get(names[0]), last.get(HOST), cells.get(names[1]))
            continue
        else:
            carrier = names[0]
            last[HOST] = node(last.get(HOST), cells.get(carrier) if carrier in EVENTS else last.get(carrier))
            continue
        for earlier, other in accesses:
            if earlier not in before[now]:
                found.add((other, site))
        accesses.append((now, site))
    return found


# -- the composed side --------------------------------------------------------------------------------------------

Exit = tuple[Guard, Order]


class Compose:
    """One summary for each function; a call instantiates it. Partitions are keyed by relation and guard, unbounded."""

    def __init__(self, functions: list[list[Any]]) -> None:
        self.functions = functions
        self.done: dict[int, list[Exit]] = {}
        self.found: dict[int, set[tuple[Any, Any, Guard]]] = {}
        self.at = -1

    def summary(self, number: int) -> list[Exit]:
        if number not in self.done:
            outer, self.at = self.at, number
            self.found[number] = set()
            self.done[number] = self.body(self.functions[number], (), [(ALWAYS, Order())])
            self.at = outer
        return self.done[number]

    def body(self, body: list[Any], site: tuple[Any, ...], states: list[Exit]) -> list[Exit]:
        for number, statement in enumerate(body):
            states = merged(
                [out for state in states for out in self.statement(statement, (*site, number), state)]
            )
        return states

    def statement(self, s: Any, site: tuple[Any, ...], state: Exit) -> list[Exit]:
        guard, order = state
        verb = s[0]
        if verb == "if":
            out = []
            for truth, part in ((True, s[2]), (False, s[3])):
                taken = guard | {Literal(IS_TRUE, FLAGS[s[1]], None, truth)}
                if not contradicts(guard, taken):
                    out += self.body(part, (*site, truth), [(taken, order.fork())])
            return out
        if verb == "maybe":
            return [(guard, order.fork()), *self.body(s[1], (*site, True), [state])]
        if verb == "loop":
            head = [state]
            for _ in range(40):
                after = self.body(s[1], (*site, "round"), [(g, o.fork()) for g, o in head])
                joined = merged([*((g, o.fork()) for g, o in head), *after])
                if shape(joined) == shape(head):
                    return head
                head = joined
            raise AssertionError("no fixpoint")
        if verb == "call":
            return self.call(s, site, guard, order)
        order = order.fork()
        if verb == "launch":
            self.touch(order, guard, made(site, s[1], order.before(s[1]), guard))
        elif verb == "host access":
            self.touch(order, guard, made(site, HOST, order.before(HOST), guard))
        elif verb == "record":
            order.learn(s[2], HOST)
            order.learn(s[1], s[2], forget=True)
        elif verb == "wait":
            order.learn(s[1], HOST)
            order.learn(s[1], s[2])
        else:
            order.learn(HOST, s[1])
        return [(guard, order)]

    def touch(self, order: Order, guard: Guard, one: Access) -> None:
        now = order.fork()
        for earlier in list(now.accesses()):
            # what the operation comes after now: the ways hold the carriers of now
            after = frozenset((one.stream, HOST))
            if not contradicts(earlier.guard, guard) and order.exposed(earlier, after):
                self.found[self.at].add((earlier.operation, one.operation, guard))
        order.add(one)

    def call(self, s: Any, site: tuple[Any, ...], guard: Guard, order: Order) -> list[Exit]:
        exits = self.summary(s[1])
        names: dict[Atom, Atom] = {HOST: HOST}
        names |= dict(zip(STREAMS, (STREAMS[i] for i in s[2]), strict=True))
        names |= dict(zip(EVENTS, (EVENTS[i] for i in s[3]), strict=True))

        def renamed(inner: Guard) -> Guard | None:
            literals = set()
            for literal in inner:
                given = s[4][FLAGS.index(literal.atom)]
                if given < 0:
                    if (given == -1) is not literal.truth:
                        return None
                    continue
                literals.add(literal._replace(atom=FLAGS[given]))
            whole = frozenset(literals) | guard
            return None if any(literal.negated() in whole for literal in whole) else whole

        for first, second, inner in self.found[s[1]]:
            under = renamed(inner)
            if under is not None:
                self.found[self.at].add(((*site, s[1], *first), (*site, s[1], *second), under))
        out = []
        for inner_guard, callee in exits:
            under = renamed(inner_guard)
            if under is None:
                continue
            after = order.fork()
            arrived = []
            for one in callee.accesses():
                theirs = renamed(one.guard)
                if theirs is None:
                    continue
                before = frozenset(names[k] for k in one.before) | {HOST}
                place = (*site, s[1], *one.operation)
                for earlier in order.accesses():
                    if not contradicts(earlier.guard, theirs) and order.exposed(earlier, before):
                        self.found[self.at].add((earlier.operation, place, theirs))
                entry = order.entry(before)
                ways = frozenset(frozenset(names[k] for k in way) for way in callee.ways_of(one))
                arrived.append((made(place, names[one.stream], entry, theirs), ways))
            after.compose({names[x]: frozenset(names[k] for k in ks) for x, ks in callee.knows.items()})
            for one, ways in arrived:
                after.put(one, antichain(ways))
            out.append((under, after))
        return out

    def unordered(self, *entries: int) -> set[tuple[Any, Any]]:
        """Pairs inside each entry, and between each two (methods of one object: the carriers are the same)."""
        found = set()
        for place, entry in enumerate(entries):
            exits = self.summary(entry)
            found |= {((place, entry, *a), (place, entry, *b)) for a, b, _ in self.found[entry]}
            for other in range(place + 1, len(entries)):
                between = entries[place + 1 : other]
                assert not between, "two entries at most"
                for guard, order in exits:
                    for _, later in self.summary(entries[other]):
                        for first in order.accesses():
                            for second in later.accesses():
                                if contradicts(first.guard, second.guard) or contradicts(guard, second.guard):
                                    continue
                                if order.exposed(first, second.before | {HOST}):
                                    found.add(
                                        (
                                            (place, entry, *first.operation),
                                            (other, entries[other], *second.operation),
                                        )
                                    )
        return found


def made(site: Any, stream: Atom, before: Carriers, guard: Guard) -> Access:
    """A launch; ``operation`` carries its site."""
    return access(BUFFER, True, stream, Span("", 1, 1, 1, 1), before, 0, guard, site)


def merged(states: list[Exit]) -> list[Exit]:
    """Partitions with equal relation and guard are one."""
    found: dict[Any, Exit] = {}
    for guard, order in states:
        key = (guard, frozenset(order.knows.items()))
        if key in found:
            found[key][1].join(order)
        else:
            found[key] = (guard, order.fork())
    return list(found.values())


def shape(states: list[Exit]) -> set[Any]:
    """The states as a value."""
    return {
        (guard, frozenset(order.knows.items()), frozenset((a, order.ways_of(a)) for a in order.accesses()))
        for guard, order in states
    }


# -- programs -----------------------------------------------------------------------------------------------------


def some_program(rng: random.Random, control: bool) -> list[list[Any]]:
    """Two to four functions, later ones calling earlier ones."""
    functions: list[list[Any]] = []
    for number in range(rng.randint(2, 4)):
        depth = 2 if control else 0
        functions += [[some_statement(rng, number, depth) for _ in range(rng.randint(2, 5))]]
    return functions


def some_statement(rng: random.Random, number: int, depth: int) -> Any:
    verb = rng.choice(
        ["launch"] * 4
        + ["record", "wait"] * 2
        + ["host", "host access"]
        + (["call"] * 3 if number else [])
        + (["if", "if", "maybe", "loop"] if depth else [])
    )

    def body() -> list[Any]:
        return [some_statement(rng, number, depth - 1) for _ in range(rng.randint(0, 3))]

    if verb == "launch":
        return (verb, rng.choice(STREAMS))
    if verb == "record":
        return (verb, rng.choice(EVENTS), rng.choice(STREAMS))
    if verb == "wait":
        return (verb, rng.choice(STREAMS), rng.choice(EVENTS))
    if verb == "host":
        return (verb, rng.choice((*STREAMS, *EVENTS)))
    if verb == "call":
        streams, events = rng.sample(range(3), 3), rng.sample(range(2), 2)
        return (
            verb,
            rng.randrange(number),
            tuple(streams),
            tuple(events),
            tuple(rng.randint(-2, 1) for _ in FLAGS),
        )
    if verb == "if":
        return (verb, rng.randrange(2), body(), body())
    return (verb, body()) if verb in ("maybe", "loop") else (verb,)


def programs(seed: int, number: int, control: bool) -> Iterator[list[list[Any]]]:
    rng = random.Random(seed)
    for _ in range(number):
        yield some_program(rng, control)


@pytest.fixture(autouse=True)
def _unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamsafe.static.domain import limits

    monkeypatch.setattr(limits, "WAYS", 10_000)


@pytest.mark.parametrize("seed", range(4))
def test_calls_compose_as_if_inlined(seed: int) -> None:
    for functions in programs(seed, PROGRAMS, control=False):
        last = len(functions) - 1
        assert Compose(functions).unordered(last) == walked(functions, last), functions


@pytest.mark.parametrize("seed", range(4))
def test_branches_and_loops_compose_as_if_inlined(seed: int) -> None:
    compared = 0
    for functions in programs(100 + seed, PROGRAMS // 4, control=True):
        last = len(functions) - 1
        try:
            expected = walked(functions, last)
        except TooManyPaths:
            continue
        compared += 1
        assert Compose(functions).unordered(last) == expected, functions
    assert compared > PROGRAMS // 8


@pytest.mark.parametrize("seed", range(2))
def test_two_methods_compose_as_if_called_in_turn(seed: int) -> None:
    compared = 0
    for functions in programs(200 + seed, PROGRAMS // 8, control=True):
        last = len(functions) - 1
        try:
            expected = walked(functions, last, last - 1)
        except TooManyPaths:
            continue
        compared += 1
        assert Compose(functions).unordered(last, last - 1) == expected, functions
    assert compared > PROGRAMS // 32


# -- laws ---------------------------------------------------------------------------------------------------------

carriers = st.frozensets(st.sampled_from((*STREAMS, *EVENTS)), max_size=4)
ways = st.frozensets(carriers, max_size=5).map(antichain)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("launch"), st.sampled_from(STREAMS)),
        st.tuples(st.just("record"), st.sampled_from(EVENTS), st.sampled_from(STREAMS)),
        st.tuples(st.just("wait"), st.sampled_from(STREAMS), st.sampled_from(EVENTS)),
        st.tuples(st.just("host"), st.sampled_from((*STREAMS, *EVENTS))),
    ),
    max_size=6,
)


def run(statements: list[Any], order: Order | None = None) -> Order:
    order = order or Order()
    driver = Compose([[]])
    driver.at, driver.found[0] = 0, set()
    state: list[Exit] = [(ALWAYS, order)]
    for number, statement in enumerate(statements):
        state = driver.statement(statement, (number,), state[0])
        driver.at = 0
        driver.found[0] = set()
    return state[0][1]


@given(ways, ways, ways)
def test_ways_are_a_join_semilattice(a: Ways, b: Ways, c: Ways) -> None:
    def join(x: Ways, y: Ways) -> Ways:
        return antichain(x | y)

    assert join(a, a) == a
    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))
    assert all(any(kept <= way for kept in join(a, b)) for way in a)


@given(steps, steps)
@settings(max_examples=200)
def test_join_is_idempotent_and_an_upper_bound(left: list[Any], right: list[Any]) -> None:
    a, b = run(left), run(right)
    both = a.fork()
    both.join(b)
    again = both.fork()
    assert not again.join(a)
    assert not again.join(b)
    for side in (a, b):
        for one in side.accesses():
            assert all(any(kept <= way for kept in both.ways_of(one)) for way in side.ways_of(one))
        for carrier in both.knows:
            assert both.known_by(carrier) <= side.known_by(carrier)


@given(steps, steps)
@settings(max_examples=200)
def test_join_commutes(left: list[Any], right: list[Any]) -> None:
    one, other = run(left), run(right)
    other.join(run(left))
    one.join(run(right))
    assert {x: one.known_by(x) for x in (*STREAMS, *EVENTS, HOST)} == {
        x: other.known_by(x) for x in (*STREAMS, *EVENTS, HOST)
    }
    assert {a: one.ways_of(a) for a in one.accesses()} == {a: other.ways_of(a) for a in other.accesses()}


@given(steps, st.permutations(STREAMS))
@settings(max_examples=200)
def test_renaming_commutes_with_edges(statements: list[Any], permuted: list[Atom]) -> None:
    names: dict[Any, Any] = dict(zip(STREAMS, permuted, strict=True))
    plain = run(statements)
    renamed = run([tuple(names.get(x, x) for x in s) for s in statements])

    def name(x: Atom) -> Atom:
        found: Atom = names.get(x, x)
        return found

    assert {name(x): frozenset(map(name, ks)) for x, ks in plain.knows.items()} == renamed.knows


@given(steps)
def test_composing_with_the_identity_changes_nothing(statements: list[Any]) -> None:
    order = run(statements)
    before = shape([(ALWAYS, order)])
    order.compose({})
    order.compose({stream: frozenset((stream,)) for stream in STREAMS})
    after = order.fork()
    assert shape([(ALWAYS, after)]) == before
