"""Predicates: how a test comes out, and under which guards."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Sequence
from functools import lru_cache

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields, numbers, sequences
from streamsafe.static.operators import COMPARISONS, TURNED, Question, as_form, count_test, decided
from streamsafe.static.state import State
from streamsafe.static.transfer.conditions import Outcomes
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Api,
    Class,
    Const,
    Container,
    Context,
    Device,
    DeviceTest,
    Event,
    Function,
    Instance,
    Name,
    Number,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    least,
    most,
    union,
)


def _is_never_none(value: Opaque, st: State) -> bool:
    """Whether an object is not None: a constructor has made it, or a call that left work on a side stream gave it."""
    site = value.name.site
    if type(site) is tuple and site[-1] in ("module", "generator", "pool", "namespace"):
        return True
    return any(st.store.marked(link, fields.NEVER_NONE) for link in value.name.chain())


class Predicates(Part):
    """Evaluates tests to outcomes under guards."""

    def test(self, node: cst.BaseExpression, st: State, *, track: bool = True) -> Outcomes:
        """Evaluate a condition: how it may come out, and under which guards."""
        if type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
            return [(not outcome, guard) for outcome, guard in self.test(node.expression, st, track=track)]
        if type(node) is cst.BooleanOperation:
            return self._test_boolean(node, st, track)
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            found = self.test_comparison(node, st, track)
            if found is not None:
                return found
        outside, self.run.tracking = self.run.tracking, track
        value = self.expressions.eval(node, st)
        self.run.tracking = outside
        if track and type(node) is cst.Name and type(value) is Union:
            value = self._flag_apart(node.value, value, st)
        return self.truth(value, st, node, track=track)

    def _flag_apart(self, name: str, value: Union, st: State) -> Value:
        """A flag that is set or not, and of which no condition says which, is one of the two from now on."""
        key = (self.run.stack[-1].frame, name)
        live = alternatives(value, st.path)
        kinds = {bool(v.value) if isinstance(v, Const) and type(v.value) is bool else None for v, _ in live}
        if kinds != {True, False} or st.store.get(key) != value:
            return value
        yes, no = ([g for v, g in live if isinstance(v, Const) and v.value is w] for w in (True, False))
        if all(a.contradicts(b) for a in yes for b in no):
            return value
        bit = self.run.conditions.get(("falsy", key)) or self.conditions.new_condition(("falsy", key), ())
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
        left = self._side(node.left, st, track)
        right: Outcomes | None = None
        for outcome, guard in left:
            if outcome is stops:
                found.append((outcome, guard))
                continue
            if right is None:
                with self.expressions.perhaps():
                    right = self._side(node.right, st, track)
            found.extend((o, guard & g) for o, g in right if not guard.contradicts(g))
        return found

    def _side(self, node: cst.BaseExpression, st: State, track: bool) -> Outcomes:
        """A side of ``and`` or ``or``: where it is tested again, beside others, it is the same condition."""
        found = self.test(node, st, track=track)
        return self.conditions.as_one(found, st) if track else found

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
        modules = self.run.file.imports.values()
        return left == right if left.name in modules and right.name in modules else None

    def test_comparison(self, node: cst.Comparison, st: State, track: bool) -> Outcomes | None:
        """How a comparison comes out, and under which guards."""
        operator, comparator = node.comparisons[0].operator, node.comparisons[0].comparator
        is_none = type(comparator) is cst.Name and comparator.value == "None"
        if is_none and isinstance(operator, (cst.Is, cst.IsNot, cst.Equal, cst.NotEqual)):
            wanted = isinstance(operator, (cst.Is, cst.Equal))
            found: Outcomes = []
            self.run.identified = node.left
            tested = self.conditions.exclusive(st, self.expressions.eval(node.left, st))
            for value, guard in alternatives(tested, st.path):
                if value == NONE:
                    found.append((wanted, guard))
                elif isinstance(value, Opaque) and not _is_never_none(value, st):
                    for outcome, g in self.conditions.condition(
                        ("none", value.name), (value.name,), st, track
                    ):
                        if not guard.contradicts(g):
                            found.append((outcome is wanted, guard & g))
                elif type(value) is Value:
                    found.extend((o, guard) for o in (True, False))
                else:
                    found.append((not wanted, guard))
            return self.conditions.apart("none", wanted, found, tested, st, track)
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
            test = self.devices.is_of_kind(
                self.expressions.eval(comparator, st), self.expressions.eval(node.left, st)
            )
            if test is not None:
                return self.devices.how_placed(
                    test if isinstance(operator, cst.In) else test.denied(), st, track
                )
        constant = _is_constant(comparator)
        if isinstance(operator, (cst.Equal, cst.NotEqual)) or (
            constant and isinstance(operator, (cst.Is, cst.IsNot))
        ):
            left, right = self.expressions.eval(node.left, st), self.expressions.eval(comparator, st)
            if isinstance(right, Const) and type(right.value) is int:  # what goes by it is a number
                self.run.plain.update(
                    v.name.base()
                    for v in iterate(left)
                    if isinstance(v, Opaque) and not self.expressions.is_tensor(st, v)
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
            return self.conditions.apart(("==", right), wanted, outcomes, left, st, track)
        if isinstance(comparator, cst.Integer) and (
            isinstance(node.left, (cst.Name, cst.Attribute, cst.Subscript))
        ):
            counted = count_test(operator, int(comparator.value, 0))
            left = self.expressions.eval(node.left, st)
            if counted is not None and isinstance(left, Opaque) and not self.expressions.is_tensor(st, left):
                return self._equals(left, counted[0], counted[1], st, track)
        return None

    def _test_membership(
        self,
        operand: cst.BaseExpression,
        listed: cst.Tuple | cst.List | cst.Set,
        wanted: bool,
        st: State,
        track: bool,
    ) -> Outcomes | None:
        """``x in ("a", "b")``: whether it is one of a few constants; None where something else is asked."""
        left = self.expressions.eval(operand, st) if isinstance(operand, (cst.Name, cst.Attribute)) else None
        if not isinstance(left, Opaque) or not 0 < len(listed.elements) <= MAX_LISTED:
            return None
        values = [self.expressions.eval(e.value, st) for e in listed.elements]
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
        if isinstance(value, Number) and (
            later := numbers.later(value.form, value.value, self.run.late_rounds)
        ):
            return later
        bounds = st.store.one(value.name, fields.BOUNDS) if isinstance(value, Opaque) else None
        return bounds.value if bounds is not None else (least(value), most(value))

    def _test_bounds(
        self, node: cst.Comparison, operator: cst.BaseCompOp, number: int, st: State
    ) -> Outcomes | None:
        """How a number compares with one that is written down; None where no alternative of it is known to."""
        found: Outcomes = []
        if not isinstance(node.left, (cst.Name, cst.Attribute)):
            return None
        for value, guard in alternatives(self.expressions.eval(node.left, st), st.path):
            outcome = decided(operator, number, *self.bounds_of(value, st))
            if outcome is None:
                return None
            found.append((outcome, guard))
        return found

    def over_rounds(self, operator: cst.BaseCompOp, left: Value, right: Value) -> tuple[Value, Value]:
        """What is compared; a number of a round that stands for later ones, too, is not known where it may come out
        otherwise there.
        """
        for number, other in ((left, right), (right, left)) if self.run.late_rounds else ():
            if not isinstance(number, Number) or not isinstance(other, Const) or type(other.value) is not int:
                continue
            later = numbers.later(number.form, number.value, self.run.late_rounds)
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
                return self._repeated_comparison(node, [left, right], st, track)
            return [((left.value == right.value) is wanted, ALWAYS)]
        same = self.same_module(left, right)
        if same is None:
            same = self.same_stream(left, right)
        if same is not None:
            return [(same is wanted, ALWAYS)]
        test = self.devices.is_of_kind(left, right)
        if test is not None:
            return self.devices.how_placed(test if wanted else test.denied(), st, track)
        if constant and right == NONE and (isinstance(left, Api) or _is_member(left)):
            return [(not wanted, ALWAYS)]
        if isinstance(left, Opaque) and isinstance(right, Const) and right.value is not ...:
            return self._equals(left, right.value, wanted, st, track)
        if isinstance(left, Opaque) and isinstance(right, Api):  # a constant of a library
            return self._equals(left, right, wanted, st, track)
        if constant and isinstance(left, Opaque) and isinstance(right, Opaque):
            if _is_member(left) and _is_member(right) and left.name.parent is right.name.parent:
                return [((left == right) is wanted, ALWAYS)]
            if not self.expressions.is_tensor(st, left):
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
            result = self.tensors.operation(st, [left, right], self.call_stack.site(node), "comparison")
            return self.truth(result, st, node, track=track)
        return self._repeated_comparison(node, [left, right], st, track)

    def _repeated_comparison(
        self, node: cst.Comparison, operands: Sequence[Value], st: State, track: bool
    ) -> Outcomes:
        """How a comparison comes out of which only that is known: asked twice of the same values it comes out alike."""
        question = self.question(node, operands, st)
        if question is None:
            return self.truth(self.conditions.unknown_flag(node, st), st, node, track=track)
        return self.outcomes_of(question, st, track)

    def outcomes_of(self, question: Question, st: State, track: bool) -> Outcomes:
        """How a question comes out; one that tells a loop's last round from those before is kept to its end."""
        outcomes = self.conditions.condition(question.key, question.names, st, track)
        if len(outcomes) == 2:
            left, right = question.numbers
            last = numbers.last_round(question.key[0], left, right) if left and right else None
            if last is not None:
                self.run.lasts.setdefault(last[0], {})[question.key] = last[1]
        return [(outcome is question.wanted, guard) for outcome, guard in outcomes]

    def question(self, node: cst.Comparison, operands: Sequence[Value], st: State) -> Question | None:
        """What a comparison asks; None where the values are not known to be the same if they are asked for again."""
        asks = COMPARISONS.get(type(node.comparisons[0].operator))
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
            number = st.store.get((value.name, fields.NUMBER))
            if isinstance(number, Number) and not self.expressions.is_tensor(st, value):
                return self._form(node, number, st, names)
            names.append(value.name)
            return None if self.expressions.is_tensor(st, value) else value.name
        if isinstance(node, cst.BinaryOperation):
            parts_: tuple[cst.BaseExpression, ...] = (node.left, node.right)
            word: Hashable = type(node.operator).__name__
        elif isinstance(node, (cst.Tuple, cst.List, cst.Set)):
            parts_, word = tuple(element.value for element in node.elements), "elements"
        else:
            return None
        if not all(isinstance(part, _SIMPLE) for part in parts_):
            return None
        forms = tuple(self._form(part, self.expressions.eval(part, st), st, names) for part in parts_)
        return None if None in forms else (word, *forms)

    def _equals(self, left: Opaque, constant: object, wanted: bool, st: State, track: bool) -> Outcomes:
        """Whether an object equals a constant; a number that equals zero is one that is false."""
        zero = type(constant) is int and constant == 0
        key = ("truth", left.name) if zero else ("==", left.name, repr(constant))
        decided = (st.path.true | st.path.false) & self.run.conditions.get(key, 0)
        if not zero and not decided and self._differs(left, constant, st):
            return [(not wanted, ALWAYS)]
        found: Outcomes = []
        for outcome, guard in self.conditions.condition(key, (left.name,), st, track):
            if not zero and outcome and guard.true:  # it equals nothing else, whatever else was asked before
                true = self.run.conditions.get(("truth", left.name), 0) if _as_true(repr(constant)) else 0
                guard = Guard(guard.true | true, guard.false | self._other_equalities(left, key))
            elif zero and not outcome and guard.false:
                guard = Guard(guard.true, guard.false | self._other_equalities(left, key))
            found.append((outcome is (wanted is not zero), guard))
        return [(o, g) for o, g in found if not st.path.contradicts(g)] or found

    def _other_equalities(self, left: Opaque, key: Hashable) -> int:
        """The conditions that an object equals another constant than this one."""
        bits = 0
        for other, bit in self.run.conditions.items():
            if type(other) is tuple and other[:2] == ("==", left.name) and other != key:
                bits |= bit
        return bits

    def _differs(self, left: Opaque, constant: object, st: State) -> bool:
        """Whether an object is known to equal another constant here, or to be false where the constant is true."""
        if _as_true(repr(constant)) and st.path.false & self.run.conditions.get(("truth", left.name), 0):
            return True
        return any(
            bit & st.path.true and type(key) is tuple and key[:2] == ("==", left.name)
            for key, bit in self.run.conditions.items()
        )

    def _is_truthy(self, value: Opaque, st: State, track: bool) -> Outcomes:
        """How the truth of an object comes out: what equals a constant is as true as that."""
        equal = {True: 0, False: 0}
        for key, bit in self.run.conditions.items():
            if (
                type(key) is tuple
                and key[:2] == ("==", value.name)
                and (true := _as_true(key[2])) is not None
            ):
                equal[true] |= bit
        for true in (True, False):
            if equal[true] & st.path.true:
                return [(true, ALWAYS)]
        outcomes = self.conditions.condition(("truth", value.name), (value.name,), st, track)
        return [(o, Guard(g.true, g.false | equal[not o]) if g != ALWAYS else g) for o, g in outcomes]

    def truth(self, value: Value, st: State, node: cst.CSTNode, *, track: bool = True) -> Outcomes:
        """How the truth of a value may come out; of a tensor it is a read by the host."""
        found: Outcomes = []
        for inner, guard in alternatives(self.conditions.exclusive(st, value), st.path):
            lower, upper = self.bounds_of(inner, st)
            if (lower is not None and lower > 0) or lower == upper == 0:
                found.append((lower != 0, guard))
            elif isinstance(inner, DeviceTest):
                placed = self.devices.how_placed(inner, st, track)
                found.extend((o, guard & g) for o, g in placed if not guard.contradicts(g))
            elif isinstance(inner, Const):
                if inner.value is ...:
                    found.extend((o, guard) for o in (True, False))
                else:
                    found.append((bool(inner.value), guard))
            elif isinstance(inner, Opaque):
                on_device = self.devices.says_device(inner)
                if on_device is not None:
                    found.append((on_device, guard))
                    continue
                found.extend(
                    (o, guard & g) for o, g in self._is_truthy(inner, st, track) if not guard.contradicts(g)
                )
            elif isinstance(inner, Tensor):
                self.tensors.read_on_host(st, inner, self.call_stack.site(node), "truth of a tensor")
                found.extend((o, guard) for o in (True, False))
            elif (
                isinstance(inner, Instance)
                and (own := self.class_members.own_method(inner, "__bool__")) is not None
            ):
                answer = self.functions.call_function(own, [], {}, st, node)
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


MAX_LISTED = 3
"""Of so many constants at most it is known which one it is."""

_SIMPLE = (cst.Name, cst.Attribute, cst.BinaryOperation, cst.BaseNumber, cst.SimpleString)


@lru_cache(maxsize=1024)
def _as_true(text: str) -> bool | None:
    """Whether a constant counts as true, by its ``repr``; None for one of a library."""
    try:
        return bool(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return None


def _is_member(value: Value) -> bool:
    """Whether an object is by its name a constant of its class: the member of an enumeration."""
    return isinstance(value, Opaque) and isinstance(value.name.site, str) and value.name.site.isupper()


def _is_constant(node: cst.BaseExpression) -> bool:
    """Whether an expression is by its name a constant: the member of an enumeration."""
    return isinstance(node, cst.Attribute) and node.attr.value.isupper()
