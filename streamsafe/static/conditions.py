"""Conditions: what holds on a path, and what a test says of values.

One file: every test gives its outcomes through the same table of conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import reduce

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, HOST, Guard
from streamsafe.static import apis, concrete, element_keys, numbers, parts, sequences
from streamsafe.static.comparisons import (
    ASKS,
    TURNED,
    Question,
    as_form,
    count_test,
    decided,
    without_implied,
)
from streamsafe.static.devices import Devices
from streamsafe.static.facts import CROWDED_PATHS
from streamsafe.static.state import Key, Ordered, State
from streamsafe.static.values import (
    NONE,
    NUMBER,
    Api,
    Asked,
    Class,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Renaming,
    Span,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    least,
    led_to,
    most,
    union,
)

Outcomes = list[tuple[bool, Guard]]

BOTH: Outcomes = [(True, ALWAYS), (False, ALWAYS)]

MAX_CONDITIONS = 128

BOUNDS = "@bounds"
"""Under this it is kept between which numbers one is, the second None where it has no end."""

MOST_CURRENT = 5
"""For how many streams conditions say whether they are current."""

MAX_DECIDED = 6
"""How many branches deep conditions are tracked; what an assertion or an early exit has settled does not count."""


def _is_there(value: Opaque, st: State) -> bool:
    """Whether an object is not None: a constructor has made it, or a call that left work on a side stream gave it."""
    site = value.name.site
    if type(site) is tuple and site[-1] in ("module", "generator", "pool", "namespace"):
        return True
    return any((link, "@there") in st.store for link in value.name.chain())


class Conditions(Devices):
    """Conditions: what holds on a path, and what a test says of values."""

    asking = True
    """Whether a question may be remembered; a loop asks its own each round anew."""

    inside = 0
    """How many contexts have been entered after which another stream is current again."""

    identified: cst.CSTNode | None = None
    """What is asked whether it is None, not what it holds."""

    # declared here, implemented further down the chain

    late_rounds: Set[Name]

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """Evaluate something that a program evaluates only if something else holds."""

    lasts: dict[Name, dict[Hashable, bool]]
    mentions: dict[int, tuple[Name, ...]]
    flags: dict[Key, int]
    branching: int
    closures: dict[Name, Name]

    def is_instance(self, value: Value, kind: Value, st: State) -> Value: ...

    def parts_of(self, st: State, value: Value, depth: int = 0) -> Iterator[Value]: ...

    def unknown_flag(self, node: cst.CSTNode, st: State) -> Opaque:
        """A truth that is not known, but is one value: tested twice it comes out alike."""
        name = self.fresh(node, st, "flag")
        self.plain.add(name.base())
        return Opaque(name)

    # -- conditions ----------------------------------------------------------------------------------------------

    def new_condition(self, key: Hashable, names: tuple[Name, ...]) -> int | None:
        """The bit of a new condition; None where there are too many."""
        if len(self.conditions) >= MAX_CONDITIONS:
            self.cut_short.setdefault(self.entry, CROWDED_PATHS)
            return None
        taken = 0
        for bit in self.conditions.values():
            taken |= bit
        bit = self.conditions[key] = ~taken & (taken + 1)
        self.mentions[bit] = names
        return bit

    def forget_conditions(self, *states: State) -> None:
        """An entry begins: the conditions that no state, and no attribute that is kept apart, leans on are free."""
        used = 0
        for bit in self.flags.values():
            used |= bit
        for st in states:
            used |= st.conditions()
        self.conditions = {key: bit for key, bit in self.conditions.items() if bit & used}
        self.mentions = {bit: names for bit, names in self.mentions.items() if bit & used}

    def condition(self, key: Hashable, names: tuple[Name, ...], st: State, track: bool) -> Outcomes:
        """The two outcomes of a condition that may be tested again."""
        asked = st.store.get((names[0], "@asked")) if names else None
        if isinstance(asked, Const) and isinstance(key, tuple):
            # asked again within a call or a round, an unseen question has the same answer
            key, names = (key[0], asked.value, *key[2:]), (Name(asked.value),)
        if names and key == ("truth", names[0]) and (names[0], "@nonzero") in st.store:
            return [(True, ALWAYS)]
        known = self.conditions.get(key)
        if known is not None:
            if st.path.true & known:
                return [(True, ALWAYS)]
            if st.path.false & known:
                return [(False, ALWAYS)]
        if not track:
            return BOTH
        if known is None:
            known = self.new_condition(key, names)
            if known is None:
                return BOTH
        if ((st.path.true | st.path.false) & self.branching).bit_count() >= MAX_DECIDED:
            return BOTH
        return [(True, Guard(known, 0)), (False, Guard(self._then(key, st), known))]

    def _then(self, key: Hashable, st: State) -> int:
        """What must hold where a condition does not: who is not before the last of several is not the first."""
        if type(key) is not tuple or key[0] not in ("<", "truth"):
            return 0
        bits = 0
        for other, bit in self.conditions.items():
            below, first = (key, other) if key[0] == "<" else (other, key)
            if type(below) is tuple and below[:1] == ("<",) and first == ("truth", below[1]):
                bits |= bit if self._is_several(below[2], st) else 0
        return bits

    def _is_several(self, side: Hashable, st: State) -> bool:
        """Whether a number is surely more than zero: ``n - 1`` is where ``n`` is known not to be one."""
        form = as_form(NONE, side)
        for atom in form.atoms() if form is not None else ():
            if form is not None and st.path.false & self.conditions.get(("==", atom, "1"), 0):
                form = form.replaced(atom, numbers.of_atom(atom) + numbers.number(2))
        return form is not None and numbers.positive(form - numbers.ONE)

    def as_one(self, outcomes: Outcomes, st: State) -> Outcomes:
        """A test that comes out one way for several reasons: its answer is a condition of its own.

        What is done on either path, and what was made there, then lean on that, whatever the reason was.
        """
        ways = {wanted: [g for o, g in outcomes if o is wanted] for wanted in (True, False)}
        if min(map(len, ways.values())) == 0 or max(map(len, ways.values())) == 1:
            return outcomes
        if reduce(Guard.common, ways[True]).contradicts(reduce(Guard.common, ways[False])):
            return outcomes
        keys = {bit: key for key, bit in self.conditions.items()}
        mentioned = reduce(int.__or__, (true | false for _, (true, false) in outcomes))
        asked = [bit for bit in keys if bit & mentioned]
        names = tuple(dict.fromkeys(name for bit in asked for name in self.mentions.get(bit, ())))
        reasons = frozenset(
            without_implied(*(frozenset(keys[bit] for bit in asked if bits & bit) for bits in guard))
            for guard in ways[True]
        )
        answers = self.condition(("any of", reasons), names, st, True)
        return (
            [(o, g & way) for o, g in outcomes for t, way in answers if t is o]
            if answers != BOTH
            else outcomes
        )

    # -- which stream is current ---------------------------------------------------------------------------------

    def track_current(
        self, states: Sequence[State], forgotten: int = 0, renaming: Renaming | None = None
    ) -> None:
        """Where one of several streams is current, which one it is tells the paths apart from now on.

        What was done on each path then stays with the stream that is current there, when the conditions that kept the
        paths apart are forgotten, or where none did.

        Args:
            states: the states that meet, or the one that goes on; changed in place.
            forgotten: the conditions that are about to be.
            renaming: how names are about to change.
        """
        for library in {library: None for st in states for library in st.current if library != "device"}:
            choices = [alternatives(self.current(st, library), st.path) for st in states]
            streams = {value: None for live in choices for value, _ in live}
            if not all(isinstance(value, Stream) for value in streams):
                continue
            renamed = {value: value.rename(renaming) if renaming else value for value in streams}
            guards = self._currents(library, dict.fromkeys(renamed.values()))
            asked = forgotten
            for guard in guards.values():
                asked |= guard.true | guard.false
            for st, live in zip(states, choices, strict=True):
                st.substitute([(guard, guards[renamed[value]]) for value, guard in live], asked)
                st.current[library] = union((value, guards[renamed[value]]) for value, _ in live)

    def _currents(self, library: str, streams: Ordered[Value]) -> dict[Value, Guard]:
        """What says which stream is current: the first, or not that but the second, and so on."""
        kind = ("current", library, self.inside)
        known = {
            key[3]: bit for key, bit in self.conditions.items() if type(key) is tuple and key[:3] == kind
        }
        for value in sorted((s for s in streams if s not in known), key=lambda v: self.carriers.bit(v.name)):  # type: ignore[attr-defined]
            made = self.new_condition((*kind, value), ()) if len(known) < MOST_CURRENT else None
            if made is None:
                break
            known[value] = made
        guards: dict[Value, Guard] = {}
        others = ALWAYS
        for value, bit in known.items():
            guards[value] = others & Guard(bit, 0)
            others &= Guard(0, bit)
        rest = [value for value in streams if value not in known]
        if not rest and guards:
            guards[value] = guards[value].forget(bit)  # it is the only one left
        return guards | dict.fromkeys(rest, others)

    def exclusive(self, st: State, value: Value) -> Value:
        """One of several streams is one of them at a time: alternatives whose guards do not say so get some."""
        if not isinstance(value, Union):
            return value
        live = alternatives(value, st.path)
        streams = [v for v, _ in live if isinstance(v, Stream)]
        if len(live) < 2 or not streams or len(live) > MOST_CURRENT:
            return value
        if all(a.contradicts(b) for i, (_, a) in enumerate(live) for _, b in live[i + 1 :]):
            return value
        # in the same order wherever they meet, so that the same conditions tell them apart
        live.sort(
            key=lambda item: self.carriers.bit(item[0].name) if isinstance(item[0], Stream) else 1 << 62
        )
        rest = ALWAYS
        found: list[tuple[Value, Guard]] = []
        for position, (inner, guard) in enumerate(live):
            if position == len(live) - 1 or not isinstance(inner, Stream):
                found.append((inner, guard & rest))
                continue
            outcomes = self.condition(("chosen", inner.name), (inner.name,), st, True)
            if outcomes == BOTH:
                return value
            yes = next((g for o, g in outcomes if o), None)
            no = next((g for o, g in outcomes if not o), None)
            if yes is not None and not rest.contradicts(yes):
                found.append((inner, guard & rest & yes))
            if no is None:
                break
            rest = rest & no
        return union((v, g) for v, g in found if not st.path.contradicts(g))

    def apart(
        self, kind: Hashable, wanted: bool, outcomes: Outcomes, value: Value, st: State, track: bool
    ) -> Outcomes:
        """A test of one of several values comes out one way at a time: where no guard says which, one does."""
        yes, no = ([g for o, g in outcomes if o is wanted], [g for o, g in outcomes if o is not wanted])
        if not track or not isinstance(value, Union) or not yes or not no:
            return outcomes
        if all(a.contradicts(b) for a in yes for b in no):
            return outcomes
        inner = frozenset(iterate(value))
        names = tuple(v.name for v in iterate(value) if isinstance(v, Object))
        known = self.condition((kind, inner), names, st, True)
        if known == BOTH:
            return outcomes
        return [
            (outcome, guard & g)
            for outcome, guard in outcomes
            for o, g in known
            if o is (outcome is wanted) and not guard.contradicts(g) and not st.path.contradicts(guard & g)
        ]

    def test(self, node: cst.BaseExpression, st: State, *, track: bool = True) -> Outcomes:
        """Evaluate a condition: how it may come out, and under which guards."""
        if type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
            return [(not outcome, guard) for outcome, guard in self.test(node.expression, st, track=track)]
        if type(node) is cst.BooleanOperation:
            return self._test_boolean(node, st, track)
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            found = self._test_comparison(node, st, track)
            if found is not None:
                return found
        outside, self.asking = self.asking, track
        value = self.eval(node, st)
        self.asking = outside
        if track and type(node) is cst.Name and type(value) is Union:
            value = self._flag_apart(node.value, value, st)
        return self.truth(value, st, node, track=track)

    def _flag_apart(self, name: str, value: Union, st: State) -> Value:
        """A flag that is set or not, and of which no condition says which, is one of the two from now on."""
        key = (self.stack[-1].frame, name)
        live = alternatives(value, st.path)
        kinds = {bool(v.value) if isinstance(v, Const) and type(v.value) is bool else None for v, _ in live}
        if kinds != {True, False} or st.store.get(key) != value:
            return value
        yes, no = ([g for v, g in live if isinstance(v, Const) and v.value is w] for w in (True, False))
        if all(a.contradicts(b) for a in yes for b in no):
            return value
        bit = self.conditions.get(("falsy", key)) or self.new_condition(("falsy", key), ())
        if bit is None:
            return value
        st.forget(bit)
        said = {True: Guard(0, bit), False: Guard(bit, 0)}
        flag = union((v, g.forget(bit) & said[v.value]) for v, g in live if isinstance(v, Const))
        st.store[key] = flag
        return flag

    def _test_boolean(self, node: cst.BooleanOperation, st: State, track: bool) -> Outcomes:
        stops = type(node.operator) is cst.Or
        found: Outcomes = []
        left = self.test(node.left, st, track=track)
        right: Outcomes | None = None
        for outcome, guard in left:
            if outcome is stops:
                found.append((outcome, guard))
                continue
            if right is None:
                with self.perhaps():
                    right = self.test(node.right, st, track=track)
            found.extend((o, guard & g) for o, g in right if not guard.contradicts(g))
        return found

    @staticmethod
    def same_stream(left: Value, right: Value) -> bool | None:
        """Whether two streams are one: were they, nothing would be unordered, so two names are taken to be two."""
        if not any(isinstance(v, Stream) for v in (left, right)):
            return None
        if not all(isinstance(v, (Stream, Opaque)) for v in (left, right)):
            return None
        return left.name == right.name  # type: ignore[attr-defined, no-any-return]

    def same_module(self, left: Value, right: Value) -> bool | None:
        """Whether two modules are one; None where one of them is none that the file imports."""
        if not (isinstance(left, Api) and isinstance(right, Api)):
            return None
        modules = self.file.imports.values()
        return left == right if left.name in modules and right.name in modules else None

    def _test_comparison(self, node: cst.Comparison, st: State, track: bool) -> Outcomes | None:
        operator, comparator = node.comparisons[0].operator, node.comparisons[0].comparator
        is_none = type(comparator) is cst.Name and comparator.value == "None"
        if is_none and isinstance(operator, (cst.Is, cst.IsNot, cst.Equal, cst.NotEqual)):
            wanted = isinstance(operator, (cst.Is, cst.Equal))
            found: Outcomes = []
            self.identified = node.left
            tested = self.exclusive(st, self.eval(node.left, st))
            for value, guard in alternatives(tested, st.path):
                if value == NONE:
                    found.append((wanted, guard))
                elif isinstance(value, Opaque) and not _is_there(value, st):
                    for outcome, g in self.condition(("none", value.name), (value.name,), st, track):
                        if not guard.contradicts(g):
                            found.append((outcome is wanted, guard & g))
                elif type(value) is Value:
                    found.extend((o, guard) for o in (True, False))
                else:
                    found.append((not wanted, guard))
            return self.apart("none", wanted, found, tested, st, track)
        if isinstance(comparator, cst.Integer):
            bounded = self._test_bounds(node, operator, int(comparator.value, 0), st)
            if bounded is not None:
                return bounded
        if isinstance(operator, (cst.In, cst.NotIn)) and isinstance(
            comparator, (cst.Tuple, cst.List, cst.Set)
        ):
            listed = self._test_membership(node.left, comparator, isinstance(operator, cst.In), st, track)
            if listed is not None:
                return listed
        if isinstance(operator, (cst.In, cst.NotIn)) and isinstance(node.left, cst.SimpleString):
            asked = self.is_of_kind(self.eval(comparator, st), self.eval(node.left, st))
            if asked is not None:
                return self.how_placed(asked if isinstance(operator, cst.In) else asked.denied(), st, track)
        constant = _is_constant(comparator)
        if isinstance(operator, (cst.Equal, cst.NotEqual)) or (
            constant and isinstance(operator, (cst.Is, cst.IsNot))
        ):
            left, right = self.eval(node.left, st), self.eval(comparator, st)
            if isinstance(right, Const) and type(right.value) is int:  # what goes by it is a number
                self.plain.update(
                    v.name.base()
                    for v in iterate(left)
                    if isinstance(v, Opaque) and not self.is_tensor(st, v)
                )
            wanted = isinstance(operator, (cst.Equal, cst.Is))
            if not isinstance(left, Union) or any(isinstance(v, (Tensor, Stream)) for v in iterate(left)):
                return self._test_equality(node, left, right, wanted, st, track)
            outcomes = [
                (outcome, guard & g)
                for value, guard in alternatives(left, st.path)
                for outcome, g in self._test_equality(node, value, right, wanted, st, track)
                if not guard.contradicts(g)
            ]
            return self.apart(("==", right), wanted, outcomes, left, st, track)
        if isinstance(comparator, cst.Integer) and (
            isinstance(node.left, (cst.Name, cst.Attribute, cst.Subscript))
        ):
            counted = count_test(operator, int(comparator.value, 0))
            left = self.eval(node.left, st)
            if counted is not None and isinstance(left, Opaque) and not self.is_tensor(st, left):
                return self._equals(left, counted[0], counted[1], st, track)
        return None

    def _test_membership(
        self,
        asked: cst.BaseExpression,
        listed: cst.Tuple | cst.List | cst.Set,
        wanted: bool,
        st: State,
        track: bool,
    ) -> Outcomes | None:
        """``x in ("a", "b")``: whether it is one of a few constants; None where something else is asked."""
        left = self.eval(asked, st) if isinstance(asked, (cst.Name, cst.Attribute)) else None
        if not isinstance(left, Opaque) or not 0 < len(listed.elements) <= MAX_LISTED:
            return None
        values = [self.eval(e.value, st) for e in listed.elements]
        constants = [v.value for v in values if isinstance(v, Const) and v.value not in (..., None)]
        if len(constants) < len(values):
            return None
        found: Outcomes = []
        rest = ALWAYS
        for constant in constants:
            outcomes = self._equals(left, constant, True, st, track)
            found += [(wanted, rest & g) for o, g in outcomes if o and not rest.contradicts(g)]
            others = [rest & g for o, g in outcomes if not o and not rest.contradicts(g)]
            if not others:
                return found
            rest = others[0]
        return [*found, (not wanted, rest)]

    def bounds_of(self, value: Value, st: State) -> tuple[int | None, int | None]:
        """Between which numbers one is, as far as that is known."""
        if isinstance(value, Number) and (later := numbers.later(value.form, value.value, self.late_rounds)):
            return later
        bounds = st.store.get((value.name, BOUNDS)) if isinstance(value, Opaque) else None
        return bounds.value if isinstance(bounds, Const) else (least(value), most(value))

    def _test_bounds(
        self, node: cst.Comparison, operator: cst.BaseCompOp, number: int, st: State
    ) -> Outcomes | None:
        """How a number compares with one that is written down; None where no alternative of it is known to."""
        found: Outcomes = []
        if not isinstance(node.left, (cst.Name, cst.Attribute)):
            return None
        for value, guard in alternatives(self.eval(node.left, st), st.path):
            outcome = decided(operator, number, *self.bounds_of(value, st))
            if outcome is None:
                return None
            found.append((outcome, guard))
        return found

    def over_rounds(self, operator: cst.BaseCompOp, left: Value, right: Value) -> tuple[Value, Value]:
        """What is compared; a number of a round that stands for later ones, too, is not known where it may come out
        otherwise there.
        """
        for number, other in ((left, right), (right, left)) if self.late_rounds else ():
            if not isinstance(number, Number) or not isinstance(other, Const) or type(other.value) is not int:
                continue
            later = numbers.later(number.form, number.value, self.late_rounds)
            turned = operator if number is left else TURNED.get(type(operator), operator)
            if later is not None and decided(turned, other.value, *later) is None:
                open_ = Number(..., number.form)
                return (open_, right) if number is left else (left, open_)
        return left, right

    def _test_equality(
        self, node: cst.Comparison, left: Value, right: Value, wanted: bool, st: State, track: bool
    ) -> Outcomes:
        """Whether one value equals, or is, another one."""
        constant = _is_constant(node.comparisons[0].comparator)
        if isinstance(left, Const) and not isinstance(right, Const):
            left, right = right, left
        left, right = self.over_rounds(node.comparisons[0].operator, left, right)
        if isinstance(left, Const) and isinstance(right, Const):
            if left.value is ... or right.value is ...:
                return self._asked_again(node, [left, right], st, track)
            return [((left.value == right.value) is wanted, ALWAYS)]
        same = self.same_module(left, right)
        if same is None:
            same = self.same_stream(left, right)
        if same is not None:
            return [(same is wanted, ALWAYS)]
        asked = self.is_of_kind(left, right)
        if asked is not None:
            return self.how_placed(asked if wanted else asked.denied(), st, track)
        if constant and right == NONE and (isinstance(left, Api) or _is_member(left)):
            return [(not wanted, ALWAYS)]
        if isinstance(left, Opaque) and isinstance(right, Const) and right.value is not ...:
            return self._equals(left, right.value, wanted, st, track)
        if isinstance(left, Opaque) and isinstance(right, Api):  # a constant of a library
            return self._equals(left, right, wanted, st, track)
        if constant and isinstance(left, Opaque) and isinstance(right, Opaque):
            if _is_member(left) and _is_member(right) and left.name.parent is right.name.parent:
                return [((left == right) is wanted, ALWAYS)]
            if not self.is_tensor(st, left):
                return self._equals(left, right, wanted, st, track)
        if (
            isinstance(left, Device)
            and isinstance(right, Const)
            and left.kind
            and isinstance(right.value, str)
        ):
            return [((left.kind == right.value.partition(":")[0]) is wanted, ALWAYS)]
        if isinstance(left, Device) and isinstance(right, Device) and left.kind and right.kind:
            # those without a name are the current ones
            if left.kind != right.kind or left.name is right.name:
                return [((left.kind == right.kind) is wanted, ALWAYS)]
        if any(isinstance(v, Tensor) for v in (left, right)):
            result = self.operation(st, [left, right], self.site(node), "comparison")
            return self.truth(result, st, node, track=track)
        return self._asked_again(node, [left, right], st, track)

    def _asked_again(
        self, node: cst.Comparison, operands: Sequence[Value], st: State, track: bool
    ) -> Outcomes:
        """How a comparison comes out of which only that is known: asked twice of the same values it comes out alike."""
        question = self.question(node, operands, st)
        if question is None:
            return self.truth(self.unknown_flag(node, st), st, node, track=track)
        return self.how_asked(question, st, track)

    def how_asked(self, question: Question, st: State, track: bool) -> Outcomes:
        """How a question comes out; one that tells a loop's last round from those before is kept to its end."""
        outcomes = self.condition(question.key, question.names, st, track)
        if len(outcomes) == 2:
            left, right = question.numbers
            last = numbers.last_round(question.key[0], left, right) if left and right else None
            if last is not None:
                self.lasts.setdefault(last[0], {})[question.key] = last[1]
        return [(outcome is question.wanted, guard) for outcome, guard in outcomes]

    def question(self, node: cst.Comparison, operands: Sequence[Value], st: State) -> Question | None:
        """What a comparison asks; None where the values are not known to be the same if they are asked for again."""
        asks = ASKS.get(type(node.comparisons[0].operator))
        if asks is None or len(operands) != 2:
            return None
        word, wanted, turned = asks
        names: list[Name] = []
        sides = [
            self._form(part, value, st, names)
            for part, value in zip((node.left, node.comparisons[0].comparator), operands, strict=True)
        ]
        if None in sides or not names:
            return None
        if word == "in" and not isinstance(node.comparisons[0].comparator, (cst.Tuple, cst.List, cst.Set)):
            return None  # what is put into it later is in it
        counts = [as_form(value, side) for value, side in zip(operands, sides, strict=True)]
        if turned:
            sides.reverse()
            counts.reverse()
        return Question((word, *sides), tuple(names), wanted, (counts[0], counts[1]))

    def _form(self, node: cst.BaseExpression, value: Value, st: State, names: list[Name]) -> Hashable | None:
        """An operand by what it is computed from; the objects that it mentions are added to ``names``."""
        if isinstance(value, Api) or (isinstance(value, Const) and value.value is not ...):
            return repr(value.name if isinstance(value, Api) else value.value)
        if isinstance(value, Number):
            names.extend(value.form.names())
            return value.form
        if isinstance(value, Opaque):
            number = st.store.get((value.name, NUMBER))
            if isinstance(number, Number) and not self.is_tensor(st, value):
                return self._form(node, number, st, names)
            names.append(value.name)
            return None if self.is_tensor(st, value) else value.name
        if isinstance(node, cst.BinaryOperation):
            parts_: tuple[cst.BaseExpression, ...] = (node.left, node.right)
            word: Hashable = type(node.operator).__name__
        elif isinstance(node, (cst.Tuple, cst.List, cst.Set)):
            parts_, word = tuple(element.value for element in node.elements), "elements"
        else:
            return None
        if not all(isinstance(part, _SIMPLE) for part in parts_):
            return None
        forms = tuple(self._form(part, self.eval(part, st), st, names) for part in parts_)
        return None if None in forms else (word, *forms)

    def _equals(self, left: Opaque, constant: object, wanted: bool, st: State, track: bool) -> Outcomes:
        """Whether an object equals a constant; a number that equals zero is one that is false."""
        zero = type(constant) is int and constant == 0
        key = ("truth", left.name) if zero else ("==", left.name, repr(constant))
        decided = (st.path.true | st.path.false) & self.conditions.get(key, 0)
        if not zero and not decided and self._equals_another(left, st):
            return [(not wanted, ALWAYS)]
        found: Outcomes = []
        for outcome, guard in self.condition(key, (left.name,), st, track):
            if not zero and outcome and guard.true:  # it equals nothing else, whatever else was asked before
                guard = Guard(guard.true, guard.false | self._other_equalities(left, key))
            found.append((outcome is (wanted is not zero), guard))
        return [(o, g) for o, g in found if not st.path.contradicts(g)] or found

    def _other_equalities(self, left: Opaque, key: Hashable) -> int:
        """The conditions that an object equals another constant than this one."""
        bits = 0
        for other, bit in self.conditions.items():
            if type(other) is tuple and other[:2] == ("==", left.name) and other != key:
                bits |= bit
        return bits

    def _equals_another(self, left: Opaque, st: State) -> bool:
        """Whether an object is known to equal another constant here."""
        return any(
            bit & st.path.true and type(key) is tuple and key[:2] == ("==", left.name)
            for key, bit in self.conditions.items()
        )

    def truth(self, value: Value, st: State, node: cst.CSTNode, *, track: bool = True) -> Outcomes:
        """How the truth of a value may come out; of a tensor it is a read by the host."""
        found: Outcomes = []
        for inner, guard in alternatives(self.exclusive(st, value), st.path):
            lower, upper = self.bounds_of(inner, st)
            if (lower is not None and lower > 0) or lower == upper == 0:
                found.append((lower != 0, guard))
            elif isinstance(inner, Asked):
                placed = self.how_placed(inner, st, track)
                found.extend((o, guard & g) for o, g in placed if not guard.contradicts(g))
            elif isinstance(inner, Const):
                if inner.value is ...:
                    found.extend((o, guard) for o in (True, False))
                else:
                    found.append((bool(inner.value), guard))
            elif isinstance(inner, Opaque):
                on_device = self.says_device(inner)
                if on_device is not None:
                    found.append((on_device, guard))
                    continue
                for outcome, g in self.condition(("truth", inner.name), (inner.name,), st, track):
                    if not guard.contradicts(g):
                        found.append((outcome, guard & g))
            elif isinstance(inner, Tensor):
                self.read_on_host(st, inner, self.site(node), "truth of a tensor")
                found.extend((o, guard) for o in (True, False))
            elif isinstance(inner, Instance) and (own := self.own_method(inner, "__bool__")) is not None:
                answer = self.call_function(own, [], {}, st, node)
                found.extend((o, guard & g) for o, g in self.truth(answer, st, node, track=track))
            elif isinstance(inner, (Stream, Event, Work, Function, Class, Context, Instance, Api)):
                found.append((True, guard))
            elif isinstance(inner, Tuple):
                found.append((bool(inner.items), guard))
            elif isinstance(inner, Container) and sequences.length(st, inner) is not None:
                found.append((bool(sequences.length(st, inner)), guard))
            elif isinstance(inner, Container) and sequences.keys(st, inner) is not None:
                found.append((bool(sequences.keys(st, inner)), guard))
            elif isinstance(inner, Container) and (known := sequences.some(st, inner)):
                found.extend((o, guard & g) for o, g in known if not guard.contradicts(g))
            else:
                found.extend((o, guard) for o in (True, False))
        return found

    def _grouped(self, asked: cst.BaseExpression, by: cst.BaseExpression, st: State) -> None:
        """What an inner loop picks by the element of the outer loop's iteration belongs to that iteration, too."""
        if not isinstance(by, cst.Name):
            return
        frame = self.stack[-1].frame
        outer = st.store.get((frame, by.value))
        rounds = parts.rounds(outer.part) if isinstance(outer, Span) else ()
        for name in sorted(concrete.names_in(asked)) if rounds else ():
            value = st.store.get((frame, name))
            if isinstance(value, Span) and value is not outer and element_keys.is_iterated(value):
                st.store[(frame, name)] = element_keys.in_rounds(value, rounds)

    def narrow(self, node: cst.BaseExpression, st: State, outcome: bool) -> None:
        """What a test tells about the value that was tested."""
        if type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
            self.narrow(node.expression, st, not outcome)
            return
        if type(node) is cst.BooleanOperation:
            if (type(node.operator) is cst.And) is outcome:
                self.narrow(node.left, st, outcome)
                self.narrow(node.right, st, outcome)
                return
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(other, cst.Name) or (
                    isinstance(other, cst.Attribute) and other.attr.value not in apis.ASKED_ANEW
                ):
                    found = {o for o, _ in self.test(other, st, track=False)}
                    if found == {not outcome}:  # it was not the other one
                        self.narrow(one, st, outcome)
            return
        counted = self._counted(node, st)
        if counted is not None:
            self.narrow(counted[0], st, outcome is counted[1])
            return
        if type(node) is cst.Call:
            self._narrow_kind(node, st, outcome)
            return
        keeps: Callable[[Value], bool]
        none = False
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            operator, comparator = node.comparisons[0].operator, node.comparisons[0].comparator
            if not (type(comparator) is cst.Name and comparator.value == "None"):
                if (
                    isinstance(operator, (cst.Equal, cst.NotEqual))
                    and (type(operator) is cst.Equal) is outcome
                ):
                    self._grouped(node.left, comparator, st)
                    self._grouped(comparator, node.left, st)
                return
            if not isinstance(operator, (cst.Is, cst.IsNot, cst.Equal, cst.NotEqual)):
                return
            none = isinstance(operator, (cst.Is, cst.Equal)) is outcome

            def keeps(v: Value) -> bool:
                return (v == NONE) is none or isinstance(v, Opaque) or type(v) is Value

            target = node.left
        else:

            def keeps(v: Value) -> bool:
                if isinstance(v, Const) and v.value is not ...:
                    return bool(v.value) is outcome
                if isinstance(v, Container):
                    return outcome or not self.held(v, st)
                return outcome or not isinstance(v, (Stream, Event, Work, Tensor, Function, Instance))

            target = node
        if isinstance(target, cst.Subscript):
            self._narrow_rows(target, st, keeps)
            return
        if not isinstance(target, (cst.Name, cst.Attribute)):
            return
        key = self._key_of(target, st)
        if key is not None and not outcome and target is node:
            self.none_pending(st, st.store.get(key))
            self._emptied(st, st.store.get(key))
        if key is None or not isinstance(st.store.get(key), Union):
            return
        if target is node and all(isinstance(v, Const) for v in iterate(st.store[key])):
            return  # a flag: its guards say what it is here, and go on to say it where paths meet
        kept = [(v, g) for v, g in alternatives(st.store[key], st.path) if keeps(v)]
        if none and any(v == NONE for v, _ in kept):
            kept = [(NONE, ALWAYS)]  # whatever else it might have been, here it is None
        if kept:
            st.store[key] = union(kept)
        elif not outcome and target is node:
            self._one_emptied(st, key)

    def _narrow_kind(self, node: cst.Call, st: State, outcome: bool) -> None:
        """What ``isinstance(x, dict)`` tells: which of several values it is; one of unknown kind is no tensor."""
        if len(node.args) != 2 or self.eval(node.func, st) != Api("builtins.isinstance"):
            return
        target, kinds = node.args[0].value, self.eval(node.args[1].value, st)
        key = self._key_of(target, st) if isinstance(target, (cst.Name, cst.Attribute)) else None
        several = st.store.get(key) if key is not None else None
        if key is not None and isinstance(several, Union):
            other = Const(not outcome)
            kept = [
                (v, g) for v, g in alternatives(several, st.path) if self.is_instance(v, kinds, st) != other
            ]
            if kept:
                st.store[key] = union(kept)
        if not outcome:
            return
        names = {
            k.name if isinstance(k, Api) else ""
            for k in (kinds.items if isinstance(kinds, Tuple) else (kinds,))
        }
        if all(map(apis.kinds_of, names)):
            for value in iterate(self.eval(target, st)):
                if isinstance(value, Opaque):
                    st.store[(value.name, "@collection")] = NONE

    def _narrow_rows(self, target: cst.Subscript, st: State, keeps: Callable[[Value], bool]) -> None:
        """What a test of ``row[1]`` tells about which of several rows it is."""
        key = self._key_of(target.value, st)
        rows = st.store.get(key) if key is not None else None
        index = target.slice[0].slice
        if key is None or not isinstance(rows, Union) or not isinstance(index, cst.Index):
            return
        if len(target.slice) != 1 or not isinstance(index.value, cst.Integer):
            return
        number = int(index.value.value, 0)
        kept = [
            (row, guard)
            for row, guard in alternatives(rows, st.path)
            if not isinstance(row, Tuple)
            or (number < len(row.items) and any(map(keeps, iterate(row.items[number]))))
        ]
        if kept:
            st.store[key] = union(kept)
            self.put_back(st, rows, but=st.store[key])

    def none_pending(self, st: State, value: Value | None) -> None:
        """A list of handles is empty: of what is not waited for through it, nothing is under way."""
        for inner in iterate(value) if value is not None else ():
            for event in self.parts_of(st, inner) if isinstance(inner, Container) else ():
                if isinstance(event, (Event, Work)):
                    st.order.learn(HOST, event.name)
                    for s, guard in self.streams(st, "torch"):
                        st.order.learn(s.name, event.name, guard=guard)

    def _counted(self, node: cst.BaseExpression, st: State) -> tuple[cst.BaseExpression, bool] | None:
        """Of ``len(x)``, ``len(x) > 0`` and their like, what is counted, and whether they ask for something in it."""
        some = True
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            operator, number = node.comparisons[0].operator, node.comparisons[0].comparator
            if not isinstance(number, (cst.Integer, cst.Name)):
                return None
            bound = self.eval(number, st)
            if not isinstance(bound, Const) or type(bound.value) is not int:
                return None
            if isinstance(operator, (cst.Equal, cst.NotEqual)):
                count, none = bound.value, isinstance(operator, cst.Equal)
            else:
                count, none = count_test(operator, bound.value) or (-1, False)
            if count != 0:
                return None
            node, some = node.left, not none
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "len":
            return (node.args[0].value, some) if len(node.args) == 1 and not node.args[0].star else None
        return None

    def _emptied(self, st: State, value: Value | None) -> None:
        """A list or a mapping that a test finds empty holds nothing of what was taken out of it any more."""
        if not isinstance(value, Container) or self.threads or st.threads:
            return
        if value.kind == "list":
            st.store.pop((value.name, "*"), None)
            sequences.put(st, value, [])
        elif value.kind == "dict":
            for key in [k for k in st.store.of(value.name) if type(k) is not str or k[:1] != "@"]:
                st.store.pop((value.name, key), None)
            sequences.set_keys(st, value, ())

    def _one_emptied(self, st: State, key: Key) -> None:
        """One of several lists is found empty: the others, where nothing else leads to them, are needed no more."""
        elsewhere = led_to(v for o, t in st.store.objects.items() for k, v in t.items() if (o, k) != key)
        for value in iterate(st.store[key]):
            if isinstance(value, Container) and value.name not in elsewhere:
                self._emptied(st, value)

    def _key_of(self, node: cst.BaseExpression, st: State) -> tuple[Name, Hashable] | None:
        if isinstance(node, cst.Name):
            frame: Name | None = self.stack[-1].frame
            while frame is not None:
                if (frame, node.value) in st.store:
                    return (frame, node.value)
                frame = self.closures.get(frame)
            return None
        if isinstance(node, cst.Attribute):
            if isinstance(node.value, (cst.Name, cst.Attribute)):
                base = self.eval(node.value, st)
                if isinstance(base, Object):
                    return (base.name, node.attr.value)
        return None


MAX_LISTED = 3
"""Of so many constants at most it is known which one it is."""

_SIMPLE = (cst.Name, cst.Attribute, cst.BinaryOperation, cst.BaseNumber, cst.SimpleString)


def _is_member(value: Value) -> bool:
    """Whether an object is by its name a constant of its class: the member of an enumeration."""
    return isinstance(value, Opaque) and isinstance(value.name.site, str) and value.name.site.isupper()


def _is_constant(node: cst.BaseExpression) -> bool:
    """Whether an expression is by its name a constant: the member of an enumeration."""
    return isinstance(node, cst.Attribute) and node.attr.value.isupper()
