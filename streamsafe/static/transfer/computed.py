"""Host integers: how a number is computed, as far as it tells which elements of a tensor are meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import Guard
from streamsafe.static import concrete, fields, numbers, parts, sequences
from streamsafe.static.numbers import Derived, Form
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    ANY,
    EACH,
    PLAIN,
    UNKNOWN,
    Api,
    Const,
    Container,
    Method,
    Name,
    Number,
    Object,
    Opaque,
    Partial,
    Positive,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.tensors import Call


LENGTH = "len"
"""What the length of something that is not seen made, or has grown, is called."""

_OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "+",
    cst.AddAssign: "+",
    cst.Subtract: "-",
    cst.SubtractAssign: "-",
    cst.Multiply: "*",
    cst.MultiplyAssign: "*",
    cst.FloorDivide: "//",
    cst.FloorDivideAssign: "//",
    cst.Modulo: "%",
    cst.ModuloAssign: "%",
}


class Computed(Part):
    """How numbers are computed."""

    def form_of(self, value: Value, st: State) -> Form | None:
        """How a number is computed; None for what is none, or where it may be another one each time."""
        if isinstance(value, Number):
            return value.form
        if isinstance(value, Const):
            return numbers.number(value.value) if type(value.value) is int else None
        if isinstance(value, Union):
            return self._either(alternatives(value, st.path), st)
        if not isinstance(value, Opaque) or value.name.is_older():
            return None
        known = st.store.get((value.name, fields.NUMBER))
        if known is not None:
            return known.form if isinstance(known, Number) else None
        atom = self.atom(value.name, value)
        return numbers.of_atom(atom) if atom is not None else None

    def form_in_round(self, value: Value, st: State) -> Form | None:
        """How a number is computed that says where an element stands: a round whose number is known counts as that."""
        form = self.form_of(value, st)
        for atom in form.atoms() if form is not None else ():
            round_ = atom.args[0] if isinstance(atom, Derived) and atom.kind == "walk" else None
            if isinstance(round_, Name) and not round_.is_older():
                known = st.store.one(round_, fields.ROUND_NUMBER)
                if known is not None and form is not None:
                    form = form.replaced(atom, numbers.number(known.value))
        return form

    def _either(self, choices: list[tuple[Value, Guard]], st: State) -> Form | None:
        """One of a few numbers, of which conditions say which it is."""
        forms = [self.form_of(choice, st) for choice, _ in choices]
        known = [form for form in forms if form is not None]
        if len(known) < len(choices):
            return None
        if len(known) == 1:
            return known[0]
        guards = tuple(guard for _, guard in choices)
        if any(not one.contradicts(other) for n, one in enumerate(guards) for other in guards[:n]):
            return None
        return numbers.of_atom(Derived(f"either {guards}", tuple(known))).fits()

    def atom(self, name: Name, value: Object) -> Name | Derived | None:
        """What stands for a number that an object is, or is asked for; None where it stands for several."""
        rounds = tuple(which for _, which in parts.rounds(getattr(value, "part", None)))
        if not all(isinstance(which, Name) for which in rounds):
            return None  # of what stands at a place of a list: no round of a loop is named by that
        for link in name.chain():
            site = link.site
            if site == ANY or (site == EACH and not any(link in names for names in self.run.rounds)):
                return None
            if type(site) is tuple and site and site[0] == "[]" and not rounds:
                return None  # by a key: another one at another time
        return Derived("in rounds", (name, *rounds)) if rounds else name

    def numbered(
        self,
        operator: cst.CSTNode | None,
        left: Value,
        right: Value,
        result: Value,
        st: State,
    ) -> Value:
        """What arithmetic came to, with how it is computed."""
        sign = _OPERATORS.get(type(operator)) if operator is not None else None
        if sign is None or not isinstance(result, (Const, Opaque)):
            return result
        if sign == "%" and isinstance(result, Const) and result.value is not ...:
            if (
                not isinstance(right, Const)
                or type(right.value) is not int
                or right.value <= numbers.SLOT_ROUNDS
            ):
                return Const(result.value)  # a remainder that is known says which slot it is
        one, other = self.form_of(left, st), self.form_of(right, st)
        form = numbers.combined(sign, one, other) if one is not None and other is not None else None
        if isinstance(result, Opaque):
            if form is not None:
                st.store[(result.name, fields.NUMBER)] = Number(..., form)
            elif result.name.parent is not None:  # named by its operands: with others it is another number
                st.store[(result.name, fields.NUMBER)] = PLAIN
            return result
        return Number(result.value, form) if form is not None else result

    def least(self, first: Value, second: Value, st: State) -> Value | None:
        """``min(a, b)`` of two numbers."""
        forms = [self.form_of(v, st) for v in (first, second)]
        plain = all(
            isinstance(v, Const) or (isinstance(v, Opaque) and not self.expressions.is_tensor(st, v))
            for v in (first, second)
        )
        one, other = forms
        if (
            not plain
            or one is None
            or other is None
            or not (numbers.positive(one) or numbers.positive(other))  # what is left of a length is a size
        ):
            return None
        form = numbers.of_atom(Derived("min", (one, other))).fits()
        return Number(..., form) if form is not None else None

    def bound(self, value: Value, node: cst.BaseExpression, st: State) -> Value:
        """A bound of a slice, or an index: what is written with a minus is subtracted."""
        if isinstance(node, cst.UnaryOperation) and isinstance(value, Opaque):
            form = self.form_of(value, st) if isinstance(node.operator, cst.Minus) else None
            return Number(..., -form) if form is not None else PLAIN
        return value

    def identified_number(self, name: str, value: Value, st: State, node: cst.CSTNode) -> Value:
        """A number of which nothing is known, bound to a name that picks elements: from now on it is this one."""
        plain = type(value) in (Const, Positive) and value.value is ...  # type: ignore[attr-defined]
        # of something that is not known, an attribute with which is reckoned is no method
        unknown = (value.receiver if isinstance(value, Method) else value) is UNKNOWN
        unit = self.run.stack[-1].unit if self.run.stack and (plain or unknown) else None
        if unit is None:
            return value
        bounds, indices, operands = concrete.bounding(unit.node)
        if name not in bounds and name not in (indices if plain else operands):
            return value
        return Number(..., numbers.of_atom(self.objects.fresh(node, st, ("number", name))))

    def measure(self, receiver: Value, name: str, st: State) -> Value:
        """A number that a tensor is asked for: how many elements it has, how long it is."""
        if not isinstance(receiver, (Tensor, Opaque)) or parts.bare(receiver.part) is not None:
            return PLAIN
        if (
            name in ("numel", "nelement", "__len__", LENGTH)
            and (receiver.name, fields.ELEMENT_COUNT) in st.store
        ):
            return st.store[(receiver.name, fields.ELEMENT_COUNT)]
        atom = self.atom(receiver.name.child(f"{name.strip('_')}()"), receiver)
        return Number(..., numbers.of_atom(atom)) if atom is not None else PLAIN

    def length_of(self, value: Value, st: State) -> Value:
        """How long something is that is no tensor, and no list of which every element is known."""
        if isinstance(value, Opaque):
            return self.measure(value, LENGTH, st)
        if not isinstance(value, Container) or value.name.age or not sequences.is_fixed(st, value):
            return UNKNOWN
        atom = self.atom(value.name.child(f"{LENGTH}()"), value)
        if isinstance(atom, Name):
            self.run.lengths[atom.base()] = value.name.base()
        return Number(..., numbers.of_atom(atom)) if atom is not None else UNKNOWN

    def shape_of(self, tensor: Value) -> Value:
        """The shape of a tensor, or of a part of one: it is the same each time."""
        if isinstance(tensor, Opaque):
            return Opaque(tensor.name.child("shape"), part=tensor.part)
        if not isinstance(tensor, Tensor):
            return UNKNOWN
        bare = parts.bare(tensor.part)
        if not parts.is_fixed(bare):
            return UNKNOWN
        of = tensor.name if bare is None else tensor.name.child(("part", bare))
        return Opaque(of.child("shape"), part=parts.all_of(tensor.part))

    def size_of(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.size()`` and ``x.size(dim)``, as of ``x.shape``."""
        dim = call.get(0, "dim")
        shape = self.shape_of(receiver)
        return shape if dim is None else self.elements.element(shape, dim, st)

    def number_round(self, item: Value, iterable: Value, round_: Name, st: State, *, first: bool) -> None:
        """The numbers of one iteration of a loop differ from those of its others; the first ones are known."""
        for index, counted in columns(item, iterable):
            self._number_index(index, counted, round_, st, first=first)

    def _number_index(self, index: Value, iterable: Value, round_: Name, st: State, *, first: bool) -> None:
        form = self._round_index(iterable, round_, st) if isinstance(index, Opaque) else None
        if form is not None and isinstance(index, Opaque):
            st.store[(index.name, fields.NUMBER)] = Number(..., form)
            begin, _, step = self._steps(iterable, st)
            least = (begin + step).least() if begin is not None and step is not None else None
            begun = begin.constant() if begin is not None else None
            if first and begun is not None:
                st.store[(index.name, fields.BOUNDS)] = Const((begun, begun))
            elif not first and least is not None:
                st.store[(index.name, fields.BOUNDS)] = Const((least, None))

    def number_of(self, count: int, iterable: Value, round_: Name, st: State) -> Const:
        """The index that a round gives of which the count is known."""
        first, _, step = self._steps(iterable, st)
        form = self._round_index(iterable, round_, st)
        begin = first.constant() if first is not None else None
        by = step.constant() if step is not None else None
        if (
            begin is None and by is not None and by < 0
        ):  # it ends with the last of the rounds that stand for all
            return Const((count + 1 - numbers.SLOT_ROUNDS) * by)
        value = (begin or 0) + count * by if by is not None else ...
        return Number(value, form) if form is not None else Const(value)

    def number_down(self, count: int, iterable: Value, st: State) -> Const:
        """The index that a round of a reversed range gives: as many rounds as are followed stand for all."""
        first, stop, step = self._steps(iterable, st)
        begin, end, by = (form.constant() if form is not None else None for form in (first, stop, step))
        if begin is None or by is None or by <= 0:
            return PLAIN
        rounds = len(range(begin, end, by)) if end is not None else numbers.SLOT_ROUNDS
        return Const(begin + (rounds - 1 - count) * by)

    def _round_index(self, iterable: Value, round_: Name, st: State) -> Form | None:
        """How the index of a round is computed."""
        first, stop, step = self._steps(iterable, st)
        if first is None or step is None or not numbers.positive(step):
            return None
        upper = (stop - first).fits() if stop is not None and step == numbers.ONE else None
        return (first + step * numbers.of_atom(Derived("walk", (round_, upper)))).fits()

    def _steps(self, iterable: Value, st: State) -> tuple[Form | None, Form | None, Form | None]:
        """Where the indices of a loop begin, where they end, and what is between two of them."""
        name = (
            iterable.function.name
            if isinstance(iterable, Partial) and isinstance(iterable.function, Api)
            else ""
        )
        if name == "builtins.range" and isinstance(iterable, Partial):
            given = iterable.args if len(iterable.args) > 1 else (Const(0), *iterable.args)
            first, stop, step = (*given, Const(1))[:3]
            return self.form_of(first, st), self.form_of(stop, st), self.form_of(step, st)
        if name == "builtins.enumerate" and isinstance(iterable, Partial):
            begin = iterable.args[1] if len(iterable.args) > 1 else Const(0)
            start, counted = self.form_of(dict(iterable.kwargs).get("start", begin), st), iterable.args[0]
            count = self.form_of(self.length_of(counted, st), st)
            return start, start + count if start and count else None, numbers.ONE
        return None, None, numbers.ONE


def columns(item: Value, iterable: Value) -> Iterator[tuple[Value, Value]]:
    """The numbers that a round is given, and what counts each: ``enumerate`` and ``zip`` pass elements on."""
    name = (
        iterable.function.name if isinstance(iterable, Partial) and isinstance(iterable.function, Api) else ""
    )
    if isinstance(iterable, Partial) and isinstance(item, Tuple):
        if name == "builtins.enumerate" and len(item.items) == 2 and iterable.args:
            yield item.items[0], iterable
            yield from columns(item.items[1], iterable.args[0])
            return
        if name == "builtins.zip" and len(item.items) == len(iterable.args):
            for each, counted in zip(item.items, iterable.args, strict=True):
                yield from columns(each, counted)
            return
    yield item, iterable
