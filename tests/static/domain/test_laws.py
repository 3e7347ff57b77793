"""The laws of the small lattices: what a join of two paths may be does not hang on their order."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from streamsafe.static.domain import values
from streamsafe.static.domain.atoms import (
    ANYTHING,
    CURRENT,
    NONE,
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
from streamsafe.static.domain.limits import ATOMS
from streamsafe.static.domain.places import EACH, overlap
from streamsafe.static.domain.state import State

names = st.sampled_from(["x", "y", "self"])
steps = st.sampled_from(["net", "first", "[0]", "[1]", EACH, "parameters()", "grad"])
paths = st.builds(lambda root, fields: path(root, *fields), names, st.lists(steps, max_size=4))
made = st.builds(lambda row: new("torch.Tensor", ("f.py", row, 1, (row, 9))), st.integers(1, 4))
atoms = st.one_of(paths, made, st.sampled_from([CURRENT, NONE]), st.builds(const, st.integers(0, 3)))
held = st.frozensets(atoms, max_size=ATOMS)
places = st.dictionaries(made, st.sampled_from(["device", "pinned", "pageable"]), max_size=3)


def state(places: dict[New, str], env: dict[str, Value]) -> State:
    made = State()
    for atom, place in places.items():
        made.places[atom] = place
    made.env.update(env)
    return made


def below(one: Value, other: Value) -> bool:
    """Whether a value says no more than another: nothing is known of the empty one."""
    return not other or one <= other or (not one and ANYTHING in other)


@given(held)
def test_join_of_values_is_idempotent(a: Value) -> None:
    assert values.joined(a, a) == a


@given(held, held)
def test_join_of_values_is_commutative(a: Value, b: Value) -> None:
    assert values.joined(a, b) == values.joined(b, a)


@given(held, held)
def test_a_value_is_below_its_join(a: Value, b: Value) -> None:
    assert below(a, values.joined(a, b))


@given(st.lists(st.frozensets(atoms, min_size=1, max_size=2), min_size=3, max_size=3))
def test_join_of_few_atoms_is_associative(parts: list[Value]) -> None:
    a, b, c = parts
    assert values.joined(values.joined(a, b), c) == values.joined(a, values.joined(b, c))


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
    assume(len(a | b) < ATOMS)  # over the budget a value is unknown, and the next join starts anew
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
