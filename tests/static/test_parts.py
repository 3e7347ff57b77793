"""Parts of a tensor that arithmetic distinguishes: a table, and against what NumPy picks for concrete numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsafe.static import numbers, parts
from streamsafe.static.numbers import Derived, Form
from streamsafe.static.values import Api, Const, Name, Number, Partial, Value, aging, rename_part

H, K, N = Name("h"), Name("k"), Name("n")
RANK = Name("rank")
ROUND = Name(("a loop", "round"))
LENGTH = 40
"""How long an axis is: longer than anything that is counted from its beginning or its end."""


def form(*terms: Any) -> Form:
    """A sum of numbers, atoms and products of these."""
    total = numbers.NOTHING
    for term in terms:
        factors = term if type(term) is tuple else (term,)
        product = numbers.ONE
        for factor in factors:
            product = product * (numbers.number(factor) if type(factor) is int else numbers.of_atom(factor))
        total = total + product
    return total


def value(given: Any) -> Value:
    """What stands between the brackets."""
    if given is None or type(given) is int:
        return Const(given)
    return Number(..., given if isinstance(given, Form) else form(given))


def cut(start: Any = None, stop: Any = None, step: int | None = None) -> Value:
    """``start:stop:step``."""
    return Partial(Api("builtins.slice"), (value(start), value(stop), value(step)), ())


def pick(*keys: Any, of: Any = None) -> Any:
    """The part that a subscript picks."""
    given = [key if isinstance(key, Value) else value(key) for key in keys]
    return parts.pick(of, given, read)


def read(number: Value) -> Form | None:
    """How a number is computed."""
    if isinstance(number, Number):
        return number.form
    return numbers.number(number.value) if isinstance(number, Const) and type(number.value) is int else None


def after_round(part: Any, name: Name) -> Any:
    """A part of the round before."""
    return rename_part(part, aging({name}))


SHAPE = Name("x").child("shape").child(0)
WALK = Derived("walk", (ROUND, None))
RING = Derived("walk", (ROUND, form(N, -1)))

TABLE: list[tuple[Any, Any, bool]] = [
    (pick(cut(None, H)), pick(cut(H)), True),
    (pick(cut(None, form(H, 1))), pick(cut(H)), False),
    (pick(cut(None, H)), pick(cut(form(H, 1))), True),
    (pick(cut(None, H)), pick(cut(K)), False),
    (pick(cut(1, form(H, 1))), pick(cut(None, 1)), True),
    (pick(cut(1, form(H, 1))), pick(cut(form(H, 1))), True),
    (pick(cut(1, form(H, 1))), pick(cut(H, form(H, 1))), False),
    (pick(cut(None, form((-1, H)))), pick(cut(form((-1, H)))), True),
    (pick(cut(None, H)), pick(cut(form((-1, H)))), False),  # from both ends, of any length
    (pick(cut(None, 1)), pick(cut(form(SHAPE, -1))), True),
    (pick(cut(None, 2)), pick(cut(form(SHAPE, -1))), False),
    (pick(cut(None, 1)), pick(cut(form(H, -1))), False),
    (pick(cut(H, form(H, N))), pick(cut(form(H, N), form(H, (2, N)))), True),
    (pick(cut(H, form(H, N))), pick(cut(form(H, K), form(H, K, N))), False),
    (pick(form((2, K))), pick(form((2, H), 1)), True),
    (pick(form((2, K))), pick(form((2, H), 2)), False),
    (pick(form((2, K))), pick(form((3, H), 1)), False),
    (pick(form(K)), pick(form(K, 1)), True),
    (pick(form(K)), pick(form(H)), False),
    (pick(cut(form((2, K)), None, 2)), pick(cut(form((2, H), 1), None, 2)), True),
    (pick(cut(form((2, K)), None, 2)), pick(cut(form((2, H), 1), None, 3)), False),
    (pick(cut(H), cut(None, K)), pick(cut(None, H), cut(K)), True),
    (pick(cut(H), cut(None, K)), pick(cut(H), cut(K)), True),
    (pick(parts.ELLIPSIS, cut(None, H)), pick(parts.ELLIPSIS, cut(H)), True),
    (pick(parts.ELLIPSIS, cut(None, H)), pick(cut(H)), False),
    (pick(cut(2), of=pick(cut(H))), pick(cut(None, form(H, 2))), True),
    (pick(cut(2), of=pick(cut(H))), pick(cut(None, form(H, 3))), False),
    (pick(form(Derived("%", (form(RANK, 1, RING), form(N))))), pick(form(RANK)), True),
    (pick(form(Derived("%", (form(RANK, RING), form(N))))), pick(form(RANK)), False),
    (pick(form(Derived("%", (form(K, 1), form(2))))), pick(form(Derived("%", (form(K), form(2))))), True),
    (pick(form(Derived("%", (form(K, 2), form(2))))), pick(form(Derived("%", (form(K), form(2))))), False),
    (pick(form(1, (-1, K))), pick(form(K)), True),
    (
        pick(cut(form(Derived("//", (form(N), form(2)))))),
        pick(cut(None, form(Derived("//", (form(N), form(2)))))),
        True,
    ),
]


@pytest.mark.parametrize(("first", "second", "expected"), TABLE, ids=range(len(TABLE)))
def test_table(first: Any, second: Any, expected: bool) -> None:
    """What is disjoint is so both ways; what overlaps for some numbers is not."""
    assert parts.disjoint(first, second) is expected
    assert parts.disjoint(second, first) is expected


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (form((WALK, N)), form((WALK, N), N), True),
        (form((WALK, N)), form((WALK, N), N, 1), False),
        (form(WALK), form(WALK, 2), False),
        (form((2, WALK)), form((2, WALK), 2), True),
        (form(WALK), form(WALK, 1), True),
        (form(H), form(H, 1), False),
    ],
)
def test_rounds_of_a_loop(start: Form, stop: Form, expected: bool) -> None:
    """Blocks of different rounds are disjoint, however many rounds ago; of two older rounds nothing is known."""
    now = pick(cut(start, stop))
    before = after_round(now, ROUND)
    older = after_round(before, ROUND)
    assert parts.disjoint(now, before) is expected
    assert parts.disjoint(older, now) is expected
    assert not parts.disjoint(older, older)
    assert not parts.disjoint(now, now)


def test_a_number_of_rounds_that_are_no_longer_distinguished_is_forgotten() -> None:
    """Two numbers that become one name are not taken to be equal."""
    name = Name("n", age=0)
    part = pick(cut(form(name.with_age(1)), form(name)))
    once = rename_part(part, aging({name}))
    assert once is None or not parts.disjoint(once, once)


# -- against concrete numbers ------------------------------------------------------------------------------------------

_ATOMS = [
    *(H, K, N, WALK),
    Derived("%", (form(H, 1), form(3))),
    Derived("//", (form(K), form(2))),
    Derived("min", (form(H), form(K, 2))),
]


def compute(number: Form, env: Mapping[Any, int]) -> int:
    """What a number is for given values of its names."""
    total = 0
    for monomial, count in number.terms:
        for atom in monomial:
            count *= _atom(atom, env)
        total += count
    return total


def _atom(atom: Any, env: Mapping[Any, int]) -> int:
    if not isinstance(atom, Derived):
        return env[atom]
    if atom.kind == "walk":
        return env[atom.args[0]]
    left, right = (compute(arg, env) for arg in atom.args)
    if atom.kind == "min":
        return min(left, right)
    return left % right if atom.kind == "%" else left // right


terms = st.lists(
    st.tuples(st.integers(-2, 3), st.lists(st.sampled_from(_ATOMS), max_size=2)), min_size=1, max_size=3
)
forms = terms.map(lambda found: form(*((count, *atoms) for count, atoms in found)))
constants = st.integers(-3, 6)
bounds = st.one_of(st.none(), constants, forms)
slices = st.tuples(bounds, bounds, st.sampled_from([None, 1, 2, 3]))
indices = st.one_of(constants, forms)
keys = st.lists(st.one_of(slices, indices), min_size=1, max_size=2)
chains = st.tuples(keys, st.one_of(st.none(), slices))


def _spelled(key: Any) -> Value:
    return cut(*key) if type(key) is tuple else value(key)


def _concrete(key: Any, env: Mapping[Any, int]) -> Any:
    if type(key) is tuple:
        return slice(*(compute(b, env) if isinstance(b, Form) else b for b in key))
    return compute(key, env) if isinstance(key, Form) else key


def _elements(chain: Any, env: Mapping[Any, int]) -> set[int] | None:
    """The elements that two subscripts, one after the other, pick; None where these numbers are not meant."""
    array = np.arange(LENGTH * LENGTH).reshape(LENGTH, LENGTH)
    found: Any = array
    given, then = chain
    for key in given:
        if type(key) is not tuple and isinstance(key, Form) and compute(key, env) < 0:
            return None  # an index that is computed is not meant to count from the end
    try:
        found = found[tuple(_concrete(key, env) for key in given)]
        if then is not None and found.ndim:
            found = found[_concrete(then, env)]
    except IndexError:
        return None
    return {int(element) for element in np.asarray(found).ravel()}


def _part(chain: Any, change: Any = None) -> Any:
    given, then = chain
    part = pick(*map(_spelled, given))
    if then is not None and not all(type(key) is not tuple for key in given * (3 - len(given))):
        part = pick(_spelled(then), of=part)
    return after_round(part, ROUND) if change else part


@settings(max_examples=400)
@given(first=chains, second=chains, again=st.booleans())
def test_disjoint_parts_have_no_element_in_common(first: Any, second: Any, again: bool) -> None:
    """Whatever the numbers are, and of another round where ``again`` is."""
    one, other = _part(first), _part(second, again)
    if not parts.disjoint(one, other):
        return
    for h, k, n in itertools.product((0, 1, 2, 5), repeat=3):
        for now, then in ((1, 0), (2, 0), (3, 1)) if again else ((1, 1), (2, 2)):
            env = {H: h, K: k, N: n}
            picked = _elements(first, env | {ROUND: now}), _elements(second, env | {ROUND: then})
            if picked[0] is not None and picked[1] is not None:
                assert not picked[0] & picked[1], (env, now, then)
