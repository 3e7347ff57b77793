"""The laws of the small lattices: what a join of two paths may be does not hang on their order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamsafe.order.hazard import Span
from streamsafe.static.domain import values
from streamsafe.static.domain.access import access
from streamsafe.static.domain.atoms import (
    ANYTHING,
    CURRENT,
    HOST,
    NONE,
    TOP,
    UNKNOWN,
    Atom,
    Const,
    New,
    Path,
    Value,
    const,
    new,
    path,
)
from streamsafe.static.domain.counts import above, counts
from streamsafe.static.domain.guards import IS_NONE, Literal
from streamsafe.static.domain.limits import ATOMS
from streamsafe.static.domain.places import EACH, overlap
from streamsafe.static.domain.state import State

names = st.sampled_from(["x", "y", "self"])
steps = st.sampled_from(["net", "first", "[0]", "[1]", EACH, "parameters()", "grad"])
paths = st.builds(lambda root, fields: path(root, *fields), names, st.lists(steps, max_size=4))
made = st.builds(lambda row: new("torch.Tensor", ("f.py", row, 1, (row, 9))), st.integers(1, 4))
atoms = st.one_of(paths, made, st.sampled_from([CURRENT, NONE]), st.builds(const, st.integers(0, 3)))
held = st.one_of(st.frozensets(atoms, max_size=ATOMS), st.just(TOP))
places = st.dictionaries(made, st.sampled_from(["device", "pinned", "pageable"]), max_size=3)


def state(places: dict[New, str], env: dict[str, Value]) -> State:
    made = State()
    for atom, place in places.items():
        made.places[atom] = place
    made.env.update(env)
    return made


def below(one: Value, other: Value) -> bool:
    """Whether a value is no more than another: the empty one is one that is not known."""
    return other == TOP or (one <= other and (bool(one) or not other or ANYTHING in other))


@given(held)
def test_join_of_values_is_idempotent(a: Value) -> None:
    assert values.joined(a, a) == a


@given(held, held)
def test_join_of_values_is_commutative(a: Value, b: Value) -> None:
    assert values.joined(a, b) == values.joined(b, a)


@given(held, held)
def test_a_value_is_below_its_join(a: Value, b: Value) -> None:
    assert below(a, values.joined(a, b))


@given(held, held, held)
def test_join_of_values_is_associative(a: Value, b: Value, c: Value) -> None:
    assert values.joined(values.joined(a, b), c) == values.joined(a, values.joined(b, c))


@given(held, held, held)
def test_join_of_values_is_monotone(a: Value, b: Value, c: Value) -> None:
    assert below(values.joined(a, c), values.joined(values.joined(a, b), c))


@given(held)
def test_nothing_is_above_the_top(a: Value) -> None:
    assert values.joined(a, TOP) == values.joined(TOP, a) == TOP
    assert values.read(TOP) == UNKNOWN


@given(st.lists(held, max_size=20))
def test_a_value_stops_changing(parts: list[Value]) -> None:
    """A chain of joins has no more steps than the budget has atoms, and two."""
    value, changes = parts[0] if parts else UNKNOWN, 0
    for part in parts:
        both = values.joined(value, part)
        changes += both != value
        value = both
    assert changes <= ATOMS + 2


@given(held, held)
def test_rename_commutes_with_join(a: Value, b: Value) -> None:
    def rename(atom: Atom) -> Value:
        return frozenset((path("z", *atom.fields) if isinstance(atom, Path) else atom,))

    if len(a | b) <= ATOMS and a and b:
        both = values.mapped(values.joined(a, b), rename)
        assert both == values.joined(values.mapped(a, rename), values.mapped(b, rename))


@given(atoms, atoms)
def test_overlap_is_symmetric(a: Atom, b: Atom) -> None:
    assert overlap(a, b) == overlap(b, a)
    assert overlap(a, a)


@given(places, places, held, held)
def test_join_of_states_says_when_it_changes(
    p: dict[New, str], q: dict[New, str], a: Value, b: Value
) -> None:
    one, other = state(p, {"v": a}), state(q, {"v": b})
    one.join(other)
    assert not one.join(other)
    twin = one.fork()
    assert not one.join(twin)
    assert all(below(held, one.env[reg]) for reg, held in other.env.items())


@given(places, places)
def test_join_of_places_is_commutative(p: dict[New, str], q: dict[New, str]) -> None:
    one, other = state(p, {}), state(q, {})
    one.join(state(q, {}))
    other.join(state(p, {}))
    assert one.places == other.places


@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(1, 4), st.sampled_from("> >= == != < <=".split()))
def test_what_is_said_of_a_count_holds(low: int, to: int, more: int, op: str) -> None:
    said = counts(op, frozenset((above(low),)), frozenset((const(to),)))
    number = low + more
    holds = {
        ">": number > to,
        ">=": number >= to,
        "==": number == to,
        "!=": number != to,
        "<": number < to,
        "<=": number <= to,
    }[op]
    assert said is None or said == holds
    assert isinstance(const(to), Const)


# -- states and order ---------------------------------------------------------------------------------------------

streams = st.sampled_from([path("a"), path("b"), path("c")])
carriers = st.one_of(streams, st.just(HOST))
events = st.one_of(
    st.tuples(st.just("learn"), carriers, streams, st.booleans()),
    st.tuples(st.just("access"), streams, made, st.booleans()),
    st.tuples(st.just("store"), made, st.sampled_from(["f", "[]"]), held),
    st.tuples(st.just("place"), made, st.sampled_from(["device", "pinned"]), st.none()),
    st.tuples(st.just("suppose"), names, st.booleans(), st.none()),
    st.tuples(st.just("age"), made, st.none(), st.none()),
)


def run(s: State, program: list[tuple[Any, ...]]) -> State:
    """Put a state through a few events."""
    for number, (verb, one, two, three) in enumerate(program):
        if verb == "learn":
            s.order.learn(one, two, three and one is not HOST)
        elif verb == "access":
            span = Span("f.py", number + 1, 1, number + 1, 9)
            s.order.add(access(two, three, one, span, s.order.before(one), 0, s.guard, "x"))
        elif verb == "store":
            s.heap[one, two] = three
        elif verb == "place":
            s.places[one] = two
        elif verb == "suppose":
            s.guard = s.guard | {Literal(IS_NONE, path(one), None, two)}
        else:
            s.rename({one: new(one.kind, one.place, (), 1)})
    return s


def seen(s: State) -> tuple[object, ...]:
    """All that a state says."""
    knows = {carrier: known for carrier, known in s.order.knows.items() if known != frozenset((carrier,))}
    ways = {one: s.order.ways_of(one) for one in s.order.accesses()}
    return knows, ways, dict(s.heap.items()), dict(s.env), dict(s.places), s.guard


def joined(*states: State) -> State:
    home = states[0].fork()
    for one in states[1:]:
        home.join(one.fork())
    return home


programs = st.lists(events, max_size=8)


@given(programs, programs, programs, programs)
def test_join_of_states_is_a_join(start: Any, p: Any, q: Any, r: Any) -> None:
    """Branches of one path: the order in which they are joined does not matter, and twice is once."""
    root = run(State(), start)
    a, b, c = (run(root.fork(), each) for each in (p, q, r))
    assert seen(joined(a, b)) == seen(joined(b, a))
    assert seen(joined(a, b, c)) == seen(joined(a, joined(b, c)))
    both = joined(a, b)
    assert not both.fork().join(both)
    assert not both.join(a)
    assert not both.join(b)
    assert seen(both) == seen(joined(a, b))


@given(programs, programs, programs)
def test_what_a_fork_does_does_not_show(start: Any, p: Any, q: Any) -> None:
    """Copies share what they do not change, and nothing else."""
    root = run(State(), start)
    before = seen(root)
    one, other = root.fork(), root.fork()
    run(one, p)
    assert seen(root) == before == seen(other)
    changed = seen(one)
    run(root, q)
    assert seen(one) == changed
    other.join(one)
    run(other, q)
    assert seen(one) == changed
    assert seen(root.fork()) == seen(root)


@given(programs, programs, st.lists(st.tuples(carriers, streams), max_size=4))
def test_edges_are_monotone(p: Any, q: Any, edges: list[tuple[Atom, Atom]]) -> None:
    """An access that some branch leaves exposed is exposed after the join and the same edges."""
    a, b = run(State(), p), run(State(), q)
    both = joined(a, b)
    for learner, source in edges:
        for s in (a, b, both):
            s.order.learn(learner, source)
    for s in (a, b):
        for one in s.order.accesses():
            kept = both.order.ways_of(one)
            assert all(any(each <= way for each in kept) for way in s.order.ways_of(one))
