"""Host integers as sums of products of names, and what intervals of them surely have nothing in common.

A number that is not written down is known by how it is computed: ``(i + 1) * n`` is the product ``i * n`` plus ``n``.
Its atoms are the names of host integers, and what only Python's own operators make of such: quotients, remainders, the
number of a loop's round. No atom is taken to be negative: it is an index or a
size; what counts from the end is written with a minus.

That a difference is not negative is shown by its signs alone, after at most a few atoms have been replaced by their
bounds: nothing is searched for, and what is not shown is not so.

One file: it is one algebra, whose forms and bounds refer to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Atom = Any
"""A name, or something derived."""
Monomial = tuple[Atom, ...]

SLOT_ROUNDS = 6
"""Rounds that stand for a count whose end is not known, where the number picks a slot: twice round three slots."""

OVER = "a round of a loop that is over"
"""What such a round is renamed to; one of many."""

MOST_TERMS = 6
MOST_FACTORS = 3
MOST_LAYERS = 3
_LARGEST = 1 << 62


class Derived(NamedTuple):
    """An atom that is more than a name.

    Attributes:
        kind: ``//``, ``%`` and ``min``; ``walk``, the number of a loop's round.
        args: two forms, the operands; the round's name, and what its number is below, None where that is not known.
    """

    kind: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A sum of products with whole factors; equal forms are equal numbers."""

    terms: frozenset[tuple[Monomial, int]]
    _names: tuple[Any, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __add__(self, other: Form) -> Form:
        return _summed([*self.terms, *other.terms])

    def __neg__(self) -> Form:
        return Form(frozenset((m, -c) for m, c in self.terms))

    def __sub__(self, other: Form) -> Form:
        return self + -other

    def __mul__(self, other: Form) -> Form:
        return _summed([(_product(m, n), c * d) for m, c in self.terms for n, d in other.terms])

    def constant(self) -> int | None:
        """The number, where no name is in it."""
        if not self.terms:
            return 0
        ((monomial, count),) = self.terms if len(self.terms) == 1 else (((None,), 0),)
        return None if monomial else count

    def offset(self) -> int:
        """What is added to the products."""
        return next((c for m, c in self.terms if not m), 0)

    def least(self) -> int | None:
        """What the number is at least, None where something is subtracted."""
        if any(count < 0 for monomial, count in self.terms if monomial):
            return None
        return self.offset()

    def atoms(self) -> set[Atom]:
        """The atoms of its products."""
        return {atom for monomial, _ in self.terms for atom in monomial}

    def names(self) -> tuple[Any, ...]:
        """The names in it, at any depth, each once."""
        known = self._names
        if known is None:
            found: dict[Any, None] = {}
            for atom in self.atoms():
                for arg in atom.args if isinstance(atom, Derived) else (atom,):
                    if isinstance(arg, Form):
                        found.update(dict.fromkeys(arg.names()))
                    elif arg is not None:
                        found[arg] = None
            known = tuple(found)
            object.__setattr__(self, "_names", known)
        return known

    def depth(self) -> int:
        """How deep derived atoms are nested."""
        return max((_depth(atom) for atom in self.atoms()), default=0)

    def fits(self) -> Form | None:
        """The form, None where it has grown too large to be of use."""
        if len(self.terms) > MOST_TERMS or self.depth() > MOST_LAYERS:
            return None
        small = all(len(m) <= MOST_FACTORS and abs(c) < _LARGEST for m, c in self.terms)
        return self if small else None

    def replaced(self, atom: Atom, by: Form) -> Form:
        """The form with another one in the place of an atom."""
        result = NOTHING
        for monomial, count in self.terms:
            product = Form(frozenset({((), count)}))
            for factor in monomial:
                product = product * (by if factor == atom else of_atom(factor))
            result = result + product
        return result

    def rename(self, renaming: Callable[[Any], Any]) -> Form | None:
        """The form after its names have aged; None where two of them are no longer distinguished."""
        names = self.names()
        change = _change(names, renaming)
        return self if change is _UNCHANGED else None if change is None else self.mapped(change.__getitem__)

    def mapped(self, change: Callable[[Any], Any]) -> Form:
        """The form with other names."""
        terms = frozenset((_ordered([_mapped(a, change) for a in m]), c) for m, c in self.terms)
        return Form(terms)


_UNCHANGED: dict[Any, Any] = {}


def _change(names: Iterable[Any], renaming: Callable[[Any], Any]) -> dict[Any, Any] | None:
    """What names become; None where they are no longer distinguished.

    Where a loop is over, which of its rounds it was is forgotten, but not between which numbers that is.
    """
    for name in names:
        if renaming(name) is not name:
            break
    else:
        return _UNCHANGED
    new = {name: renaming(name) for name in names}
    over = {name for name, renamed in new.items() if renamed.site == OVER and name.site != OVER}
    new.update((name, new[name].with_age(2)) for name in over)
    if len(set(new.values())) < len(new):
        return None
    if any(a not in over and (a.base() is not b.base() or _age(b) < _age(a)) for a, b in new.items()):
        return None
    return new


def number(value: int) -> Form:
    """A number that is written down."""
    return Form(frozenset({((), value)})) if value else NOTHING


def of_atom(atom: Atom) -> Form:
    """A number that is an atom."""
    return Form(frozenset({((atom,), 1)}))


NOTHING = Form(frozenset())
ONE = number(1)
END = Derived("end", ())
"""How long an axis is; not known, and long."""
_GAP = Derived("gap", ())
_LONG = 1 << 40


def combined(operator: str, left: Form, right: Form) -> Form | None:
    """What an operator makes of two numbers; None where that is not followed."""
    if operator == "+":
        return (left + right).fits()
    if operator == "-":
        return (left - right).fits()
    if operator == "*":
        return (left * right).fits() if len(left.terms) * len(right.terms) <= MOST_TERMS else None
    by = right.constant()
    if operator not in ("//", "%") or (by is not None and by <= 0) or (by is None and not positive(right)):
        return None
    if by is not None and all(c % by == 0 for _, c in left.terms):
        return Form(frozenset((m, c // by) for m, c in left.terms)) if operator == "//" else NOTHING
    if operator == "//" and not positive(left):
        return None
    return of_atom(Derived(operator, (left, right))).fits()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The positions along an axis from one number to another.

    Attributes:
        start: the first one; None where it is not known.
        stop: the one after the last; None up to the end.
        step: the distance between two of them; 0 where there is only one.
        name: the object that holds the index: of another iteration of a loop it is another one.
    """

    start: Form | None
    stop: Form | None
    step: int = 1
    name: Any = None

    def names(self) -> tuple[Any, ...]:
        """The names from which it is computed, each once."""
        ends = [end.names() for end in (self.start, self.stop) if end is not None]
        return tuple(dict.fromkeys(name for names in ends for name in names))

    def rename(self, renaming: Callable[[Any], Any]) -> Bounds | None:
        """The positions after names have aged; None where nothing is known of them any more."""
        name = renaming(self.name) if self.name is not None else None
        if self.start is None:
            return self if name is self.name else Bounds(None, None, self.step, name)
        change = _change(self.names(), renaming)
        if change is _UNCHANGED:
            return self if name is self.name else Bounds(self.start, self.stop, self.step, name)
        if change is None:
            return Bounds(None, None, self.step, name) if name is not None else None
        stop = self.stop.mapped(change.__getitem__) if self.stop is not None else None
        return Bounds(self.start.mapped(change.__getitem__), stop, self.step, name)


def apart(first: Bounds, second: Bounds) -> bool:
    """Whether two sets of positions of an axis surely have none in common."""
    if first.start is None or second.start is None:
        return False
    first, second = _resolved(first, _same), _resolved(second, _other)
    atoms, others = _atoms_of(first), _atoms_of(second)
    later = [_in_order(*pair) for pair in _rounds_of(atoms, others)]
    if _separate(first, second) or any(_separate_if(first, second, *fact) for fact in later):
        return True
    if first.step == second.step == 0:
        return _is_elsewhere(first.start, second.start, later) or _is_elsewhere(
            second.start, first.start, later
        )
    return False


def _is_elsewhere(place: Form | None, index: Form | None, later: list[tuple[Derived, Form]]) -> bool:
    """Whether a place on a ring is surely not at an index."""
    atoms = place.atoms() if place is not None else ()
    return index is not None and any(
        place == of_atom(atom) and _elsewhere(atom, index, later) for atom in atoms
    )


def _rounds_of(atoms: list[Atom], others: list[Atom]) -> Iterator[tuple[Derived, Derived]]:
    """The numbers of different rounds of a loop that are in these atoms, at any depth."""
    found, against = (dict.fromkeys(w for a in part for w in _round_indices(a)) for part in (atoms, others))
    for one in found:
        for other in against:
            if _of_two_rounds(one, other):
                yield one, other


def _round_indices(atom: Atom) -> Iterator[Derived]:
    if isinstance(atom, Derived):
        if atom.kind == "walk":
            yield atom
        for arg in atom.args:
            for inner in arg.atoms() if isinstance(arg, Form) else ():
                yield from _round_indices(inner)


def _in_order(one: Derived, other: Derived) -> tuple[Derived, Form]:
    """Of the numbers of two rounds the later one, and what it is at least."""
    later, earlier = (one, other) if _age(one.args[0]) < _age(other.args[0]) else (other, one)
    return later, of_atom(earlier) + ONE


def _of_two_rounds(one: Derived, other: Derived) -> bool:
    """Whether two atoms are of different rounds of one loop; of two older ones it is not known."""
    first, second = one.args[0], other.args[0]
    return first.base() is second.base() and _age(first) != _age(second)


def _separate_if(first: Bounds, second: Bounds, atom: Derived, least: Form) -> bool:
    """Whether they are separate where an atom is at least so much."""
    by = least + of_atom(_GAP)
    return _separate(_with(first, atom, by), _with(second, atom, by))


def _with(bounds: Bounds, atom: Atom, by: Form) -> Bounds:
    assert bounds.start is not None
    stop = bounds.stop.replaced(atom, by) if bounds.stop is not None else None
    return Bounds(bounds.start.replaced(atom, by), stop, bounds.step)


def _separate(first: Bounds, second: Bounds) -> bool:
    assert first.start is not None
    assert second.start is not None
    if _before(first.stop, second.start) or _before(second.stop, first.start):
        return True
    difference = second.start - first.start
    if _differ(difference, math.gcd(first.step, second.step)):
        if (first.step == second.step == 0) or (positive(first.start) and positive(second.start)):
            return True
    return False


def _differ(difference: Form, step: int) -> bool:
    """Whether a difference is surely no multiple of a step; of 0, whether it is not zero."""
    common = math.gcd(step, *(c for m, c in difference.terms if m))
    constant = difference.offset()
    return bool(constant % common if common else constant)


def _elsewhere(ring: Atom, index: Form, later: list[tuple[Derived, Form]]) -> bool:
    """Whether ``a % n`` is surely not an index: the two would differ by a multiple of ``n``.

    Args:
        ring: the remainder.
        index: the index.
        later: what numbers of rounds are at least.
    """
    if not isinstance(ring, Derived) or ring.kind != "%":
        return False
    of, by = ring.args
    for atom in index.atoms():  # another remainder of the same ring is as good as what it is the remainder of
        if isinstance(atom, Derived) and atom.kind == "%" and atom.args[1] == by:
            index = index.replaced(atom, atom.args[0])
    difference = of - index
    modulus = by.constant()
    if modulus is not None and _differ(difference, modulus):
        return True

    def shown(form: Form) -> bool:
        return positive(form) or any(positive(form.replaced(a, f + of_atom(_GAP))) for a, f in later)

    return any(shown(d - ONE) and shown(by - d - ONE) for d in (difference, -difference))


def _before(stop: Form | None, start: Form) -> bool:
    """Whether positions that end here come before those that begin there."""
    if stop is None:
        return False
    difference = start - stop
    if not difference.terms:
        return True
    from_end = {atom: max(2 * -start.offset(), 1) for atom in start.atoms() if _is_extent(atom)}
    for atom in from_end if len(start.terms) == 2 and start.offset() < 0 else ():
        # so far from the end is not as near to the beginning
        longer = of_atom(atom) + number(from_end[atom])
        if positive(difference.replaced(atom, longer)) and positive(stop):
            return True
    return positive(difference) and positive(stop)


def last_round(word: str, left: Form, right: Form) -> tuple[Any, bool] | None:
    """The round of which a comparison tells whether it is the last, and how it then comes out.

    Args:
        word: ``<`` or ``=``.
        left: the number that is compared; it, or ``right``, counts the rounds of a loop of which the end is known.
        right: the number that it is compared with.
    """
    difference = left - right
    for atom in difference.atoms():
        if not isinstance(atom, Derived) or atom.kind != "walk" or atom.args[1] is None:
            continue
        short = of_atom(atom) - atom.args[1] + ONE  # 0 in the last round, negative before
        if word == "=" and difference in (short, -short):
            return atom.args[0], True
        if word == "<" and difference == short:
            return atom.args[0], False
        if word == "<" and -difference == short + ONE:
            return atom.args[0], True
    return None


def later(form: Form, value: Any, rounds: Set[Any]) -> tuple[int, int | None] | None:
    """Between which numbers one is, from one of these rounds on; None where no later round makes it another one.

    Args:
        form: how it is computed.
        value: what it is in that round.
        rounds: the names of rounds.
    """
    if type(value) is not int or len(form.atoms()) != 1 or rounds.isdisjoint(form.names()):
        return None
    (atom,) = form.atoms()
    factor = dict(form.terms).get((atom,), 0)
    if factor <= 0 or not isinstance(atom, Derived):
        return None
    if atom.kind not in ("walk", "//"):
        return None
    end = atom.args[1].constant() if atom.kind == "walk" and atom.args[1] is not None else None
    return value, max(value, factor * (end - 1) + form.offset()) if end is not None else None


def positive(form: Form, depth: int = 2) -> bool:
    """Whether a number is surely not negative."""
    if all(count >= 0 for _, count in form.terms):
        return True
    return depth > 0 and any(positive(lower, depth - 1) for lower in _lower(form))


def _lower(form: Form) -> Iterator[Form]:
    """Forms that are no larger: with the bound of an atom that is subtracted in its place, or of one that is added."""
    for monomial, count in form.terms:
        for position, atom in enumerate(monomial):
            if not isinstance(atom, Derived):
                continue
            rest = Form(frozenset({((*monomial[:position], *monomial[position + 1 :]), count)}))
            without = form - Form(frozenset({(monomial, count)}))
            by = atom.args[1].constant() if atom.kind == "//" else None
            if count > 0:
                if atom == END:
                    yield without + rest * number(_LONG)
                elif by and count % by == 0:  # rounded up to what is aligned, it is no less
                    product = rest * (atom.args[0] - number(by - 1))
                    yield without + Form(frozenset((m, c // by) for m, c in product.terms))
            elif atom.kind in ("%", "walk") and atom.args[1] is not None:
                yield without + rest * (atom.args[1] - ONE)
            elif atom.kind == "min":
                yield from (without + rest * arg for arg in atom.args)
            elif by and count % by == 0:
                product = rest * atom.args[0]
                yield without + Form(frozenset((m, c // by) for m, c in product.terms))


def counts_rounds(form: Form) -> bool:
    """Whether a number tells the rounds of a loop apart by itself."""
    return any(isinstance(a, Derived) and a.kind == "walk" for a in form.atoms())


def _is_extent(atom: Atom) -> bool:
    """Whether this is how long an axis of a tensor is."""
    parent = None if isinstance(atom, Derived) else atom.parent
    return parent is not None and parent.site == "shape"


def _atoms_of(bounds: Bounds) -> list[Atom]:
    forms = [f for f in (bounds.start, bounds.stop) if f is not None]
    return list(dict.fromkeys(a for f in forms for a in f.atoms()))


class _Other(NamedTuple):
    """A number of some older round: not the one that another set of positions has from some older round."""

    of: Any

    def base(self) -> Any:
        """As of the name."""
        return self.of.base()

    @property
    def parent(self) -> Any:
        """As of the name."""
        return self.of.parent

    @property
    def age(self) -> int:
        """As of the name."""
        return int(self.of.age)

    def is_older(self) -> bool:
        """As of the name."""
        return False


def _same(name: Any) -> Any:
    return name


def _other(name: Any) -> Any:
    return _Other(name) if name.is_older() else name


def _resolved(bounds: Bounds, change: Callable[[Any], Any]) -> Bounds:
    """The positions, counted from the beginning; names of many objects are changed."""
    assert bounds.start is not None
    start = _from_start(bounds.start.mapped(change))
    stop = _from_start(bounds.stop.mapped(change)) if bounds.stop is not None else None
    return Bounds(start, stop, bounds.step)


def _from_start(form: Form) -> Form:
    """What is surely negative counts from the end."""
    return form + of_atom(END) if positive(-form - ONE) else form


def _age(name: Any) -> int:
    """How often names have aged."""
    total = 0
    while name is not None:
        total += name.age
        name = name.parent
    return total


def _summed(terms: list[tuple[Monomial, int]]) -> Form:
    counts: dict[Monomial, int] = {}
    for monomial, count in terms:
        counts[monomial] = counts.get(monomial, 0) + count
    return Form(frozenset((m, c) for m, c in counts.items() if c))


def _product(first: Monomial, second: Monomial) -> Monomial:
    return _ordered([*first, *second]) if first and second else first or second


def _ordered(factors: list[Atom]) -> Monomial:
    return tuple(sorted(factors, key=hash)) if len(factors) > 1 else tuple(factors)


def _mapped(atom: Atom, change: Callable[[Any], Any]) -> Atom:
    if not isinstance(atom, Derived):
        return change(atom)
    args = tuple(
        a.mapped(change) if isinstance(a, Form) else None if a is None else change(a) for a in atom.args
    )
    return Derived(atom.kind, args)


def _depth(atom: Atom) -> int:
    if not isinstance(atom, Derived):
        return 0
    return 1 + max((a.depth() for a in atom.args if isinstance(a, Form)), default=0)
