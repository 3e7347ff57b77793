"""Arithmetic on host values and tensors: unary and binary operators."""

from __future__ import annotations

import libcst as cst

from streamsafe.order.symbolic import Guard
from streamsafe.static import concrete, element_keys, fields, operators, sequences
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    PLAIN,
    POSITIVE,
    UNKNOWN,
    Clock,
    Const,
    Container,
    Instance,
    Number,
    Object,
    Opaque,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)


class Arithmetic(Part):
    """Evaluates operators."""

    def binary_operation(self, node: cst.BinaryOperation, st: State) -> Value:
        """``left operator right``."""
        left = self.expressions.eval(node.left, st)
        replays = self.run.replays
        right = self.expressions.eval(node.right, st)
        if replays != self.run.replays:
            self.replays.computed_twice(
                st, [(left, replays), (right, self.run.replays)], self.call_stack.site(node)
            )
        number = self.computed_number(node, left, right, st)
        if number is not None:
            return number
        return self.computed.numbered(node.operator, left, right, self.binary(left, right, node, st), st)

    def computed_number(
        self, node: cst.BinaryOperation | cst.AugAssign, left: Value, right: Value, st: State
    ) -> Value | None:
        """A whole number, or one of a few; None where that is not known."""
        operator = node.operator
        found: list[tuple[Value, Guard]] = []
        for one, first in alternatives(left, st.path):
            for other, second in alternatives(right, st.path):
                number: Value | None = operators.computed(operator, one, other)
                if number is None or len(found) == MOST_NUMBERS:
                    return None
                if type(one) is Number or type(other) is Number:
                    number = self.computed.numbered(operator, one, other, number, st)
                if not first.contradicts(second):
                    found.append((number, first & second))
        if not found:
            return None
        return union(found)

    def binary(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """Arithmetic: on tensors an operation, on clocks a duration."""
        operator = type(getattr(node, "operator", None))
        for inner, other, prefix in ((left, right, "__"), (right, left, "__r")):
            word = operators.DUNDER.get(operator) if type(inner) is Instance else None  # type: ignore[arg-type]
            own = self.class_members.own_method(inner, f"{prefix}{word}__") if word else None
            if own is not None:
                return self.functions.call_function(own, [other], {}, st, node)
        if operator in (cst.Subtract, cst.SubtractAssign):
            self.clocks.duration(st, left, right, self.call_stack.site(node))
        if any(isinstance(v, Clock) for v in (*iterate(left), *iterate(right))):
            return PLAIN
        if operator is cst.Modulo and isinstance(left, Const) and isinstance(left.value, str):
            self.tensors.read_on_host(st, right, self.call_stack.site(node), "formatting")
            return PLAIN
        operands = [*iterate(left), *iterate(right)]
        if operator is cst.BitOr and (either := self.either(left, right, node, st)) is not None:
            return either
        if operator in (cst.Add, cst.AddAssign):
            if isinstance(left, Tuple) and isinstance(right, Tuple):
                return Tuple(left.items + right.items)
            if isinstance(left, Tuple) or isinstance(right, Tuple):
                return left if isinstance(left, Tuple) else right  # joined with what is not known
            if any(map(_is_list, (left, right))) and all(
                isinstance(v, (Container, Opaque)) for v in operands
            ):
                return self.concatenated(left, right, node, st)  # nothing but a list is added to a list
        if isinstance(right, Opaque) and operator in operators.DIVIDING:
            st.store.mark(right.name, fields.NONZERO)  # or this would have raised
        if any(isinstance(v, Tensor) for v in operands) or (
            any(isinstance(v, Opaque) and self.expressions.is_tensor(st, v) for v in operands)
        ):
            if operator in (cst.MatrixMultiply, cst.MatrixMultiplyAssign):
                for matrix in operands:
                    if isinstance(matrix, Opaque):
                        self.tensors.mark_tensor(st, matrix)
            result = self.tensors.operation(st, [left, right], self.call_stack.site(node), "arithmetic")
            both = operator in (cst.BitAnd, cst.BitOr, cst.BitXor)
            masks = both and self.is_mask(st, left) and self.is_mask(st, right)
            return self.mask(st, result) if masks else result
        if all(isinstance(v, Const) for v in operands):
            return (
                POSITIVE
                if operator in (cst.Add, cst.AddAssign) and operators.is_positive_sum(left, right)
                else PLAIN
            )
        if (
            operator is cst.BitOr
            and self.subscripts.is_mapping(left)
            and all(map(self.subscripts.is_mapping, iterate(right)))
        ):
            return self.merged(left, right, node, st)  # type: ignore[arg-type]
        if isinstance(left, Container) and operator is cst.Multiply:
            return self.repeated(left, right, node, st)
        if any(isinstance(v, (Container, Tuple)) for v in operands):
            return left
        unknown = [v for v in operands if isinstance(v, Opaque) and not self.memory.is_plain(v.name)]
        if unknown and (
            isinstance(getattr(node, "operator", None), operators.COUNTING)
            or any(map(self.counts, operands))
            or self.bounds(node)
        ):
            return self.counted(left, right, node, st)
        if unknown:
            made = self.tensors.unsure_operation(st, [left, right], self.call_stack.site(node), "arithmetic")
            if isinstance(made, Opaque):
                st.store.mark(made.name, fields.NEVER_NONE)
            return made
        return PLAIN if any(isinstance(v, Opaque) for v in operands) else UNKNOWN

    def concatenated(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """``[x] + [y]``: a list of the elements of both."""
        made = self.containers.container(node, st, "list", [])
        for part in (left, right):
            self.containers.extend_container(st, made, part)
        return made

    def merged(self, left: Container, right: Value, node: cst.CSTNode, st: State) -> Value:
        """``first | second``: a dict of what both hold."""
        made = self.containers.duplicate(left, node, st)
        self.run.closed.add(made.name)
        for mapping in iterate(right):
            self.python_containers.add_items(made, mapping, st)
        return made

    def repeated(self, values: Container, times: Value, node: cst.CSTNode, st: State) -> Value:
        """``[x] * n``: a list of the same elements, so many times."""
        known = sequences.items(st, values)
        times = self.stream_pools.sized(times, st)
        count = times.value if isinstance(times, Const) and type(times.value) is int else None
        if known is None or (count is None and any(v != NONE for v in known)):
            return values  # one stands for all; what fills places that are empty so far is not one
        made = Container(self.objects.fresh(node, st, "repeated"), values.kind)
        self.run.closed.add(made.name)
        if count is not None and len(known) * count <= sequences.LIMIT:
            sequences.put(st, made, known * count)
        else:
            sequences.put(st, made, known)
            sequences.blur(st, made)
            if isinstance(times, Opaque):
                st.store[(made.name, fields.REPEATS)] = times
        return made

    def counts(self, value: Value) -> bool:
        """Whether a value is a number or a set rather than a tensor: an index, a shape."""
        # what is scaled by a setting may well be a tensor
        return (
            isinstance(value, Opaque)
            and self.memory.is_plain(value.name)
            and not self.memory.is_setting(value.name)
        )

    def bounds(self, node: cst.CSTNode) -> bool:
        """Whether it is arithmetic by which a number is computed that bounds a slice."""
        unit = self.run.stack[-1].unit if self.run.stack else None
        return unit is not None and node in concrete.bound_arithmetic(unit.node)

    def counted(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """Arithmetic on what nothing shows to be a tensor: an unknown number, the same for the same operands."""
        operator = type(getattr(node, "operator", None)).__name__
        sides = [(left, right, "left"), (right, left, "right")]
        if self.is_of_round(right):  # what is of another round tells it from this one
            sides.reverse()
        for inner, other, side in sides:
            key = element_keys.bare(element_keys.key_of(other))
            if isinstance(inner, Opaque) and not element_keys.is_unsure(key):
                name = inner.name.child((operator, side, key))
                self.run.plain.add(name.base())
                return Opaque(name)
        return PLAIN

    def either(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value | None:
        """``moved |= x.is_cuda``: of two flags one is enough; None where these are no flags."""
        for value in (*iterate(left), *iterate(right)):
            known = isinstance(value, Const) and isinstance(value.value, bool)
            if not known and not (isinstance(value, Opaque) and self.memory.is_plain(value.name)):
                return None
        return union(
            (Const(one or other), guard & g)
            for one, guard in self.predicates.truth(left, st, node)
            for other, g in self.predicates.truth(right, st, node)
            if not guard.contradicts(g)
        )

    def is_of_round(self, value: Value) -> bool:
        """Whether an object was made in a round of a loop under way."""
        return isinstance(value, Object) and any(
            link in names for names in self.run.rounds for link in value.name.chain()
        )

    def unary_operation(self, node: cst.UnaryOperation, st: State) -> Value:
        """``operator value``."""
        if type(node.operator) is cst.Not:
            outcomes = self.predicates.test(node.expression, st)
            return union((Const(not outcome), guard) for outcome, guard in outcomes)
        value = self.expressions.eval(node.expression, st)
        if (
            isinstance(value, Const)
            and isinstance(value.value, (int, float))
            and type(node.operator) is cst.Minus
        ):
            return Const(-value.value)
        if isinstance(value, Number):
            return Number(..., -value.form) if type(node.operator) is cst.Minus else PLAIN
        if any(isinstance(v, Tensor) for v in iterate(value)):
            result = self.tensors.operation(st, [value], self.call_stack.site(node), "arithmetic")
            inverted = type(node.operator) is cst.BitInvert and self.is_mask(st, value)
            return self.mask(st, result) if inverted else result
        return value if isinstance(value, Opaque) else PLAIN

    @staticmethod
    def mask(st: State, value: Value) -> Value:
        """This tensor holds booleans: as an index it selects, and the host waits for how many (TM-10)."""
        for inner in iterate(value):
            if isinstance(inner, Object):
                st.store.mark(inner.name, fields.BOOLEAN_MASK)
        return value

    @staticmethod
    def is_mask(st: State, value: Value) -> bool:
        """Whether a tensor is known to hold booleans."""
        return any(
            isinstance(v, Object) and st.store.marked(v.name, fields.BOOLEAN_MASK) for v in iterate(value)
        )


MOST_NUMBERS = 4
"""Of how many numbers it is computed which of them a result is."""


def _is_list(value: Value) -> bool:
    return isinstance(value, Container) and value.kind == "list"
