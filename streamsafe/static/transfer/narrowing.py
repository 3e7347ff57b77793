"""Narrowing: what a test that came out in one way tells of the values it asks about."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, HOST
from streamsafe.static import concrete, element_keys, fields, parts, sequences
from streamsafe.static.operators import count_test
from streamsafe.static.state import Key, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    Api,
    Const,
    Container,
    Event,
    Function,
    Instance,
    Name,
    Object,
    Opaque,
    Span,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    led_to,
    union,
)


class Narrowing(Part):
    """Learns from the outcome of a test."""

    def _grouped(self, tested: cst.BaseExpression, by: cst.BaseExpression, st: State) -> None:
        """What an inner loop picks by the element of the outer loop's iteration belongs to that iteration, too."""
        if not isinstance(by, cst.Name):
            return
        frame = self.run.stack[-1].frame
        outer = st.store.get((frame, by.value))
        rounds = parts.rounds(outer.part) if isinstance(outer, Span) else ()
        for name in sorted(concrete.names_in(tested)) if rounds else ():
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
                    isinstance(other, cst.Attribute) and other.attr.value not in apis.DEVICE_QUERIES
                ):
                    found = {o for o, _ in self.predicates.test(other, st, track=False)}
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
                    return outcome or not self.containers.held(v, st)
                return outcome or not isinstance(v, (Stream, Event, Work, Tensor, Function, Instance))

            target = node
        if isinstance(target, cst.Subscript):
            self._narrow_rows(target, st, keeps)
            return
        if not isinstance(target, (cst.Name, cst.Attribute)):
            return
        key = self.store_key(target, st)
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
        if len(node.args) != 2 or self.expressions.eval(node.func, st) != Api("builtins.isinstance"):
            return
        target, kinds = node.args[0].value, self.expressions.eval(node.args[1].value, st)
        key = self.store_key(target, st) if isinstance(target, (cst.Name, cst.Attribute)) else None
        several = st.store.get(key) if key is not None else None
        if key is not None and isinstance(several, Union):
            other = Const(not outcome)
            kept = [
                (v, g)
                for v, g in alternatives(several, st.path)
                if self.builtin_functions.is_instance(v, kinds, st) != other
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
            for value in iterate(self.expressions.eval(target, st)):
                if isinstance(value, Opaque):
                    st.store.mark(value.name, fields.COLLECTION)

    def _narrow_rows(self, target: cst.Subscript, st: State, keeps: Callable[[Value], bool]) -> None:
        """What a test of ``row[1]`` tells about which of several rows it is."""
        key = self.store_key(target.value, st)
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
            self.lifetimes.put_back(st, rows, but=st.store[key])

    def none_pending(self, st: State, value: Value | None) -> None:
        """A list of handles is empty: of what is not waited for through it, nothing is under way."""
        for inner in iterate(value) if value is not None else ():
            for event in self.assumed_order.parts_of(st, inner) if isinstance(inner, Container) else ():
                if isinstance(event, (Event, Work)):
                    st.order.learn(HOST, event.name)
                    for s, guard in self.effects.possible_streams(st, "torch"):
                        st.order.learn(s.name, event.name, guard=guard)

    def _counted(self, node: cst.BaseExpression, st: State) -> tuple[cst.BaseExpression, bool] | None:
        """Of ``len(x)``, ``len(x) > 0`` and their like, what is counted, and whether they ask for something in it."""
        some = True
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            operator, number = node.comparisons[0].operator, node.comparisons[0].comparator
            if not isinstance(number, (cst.Integer, cst.Name)):
                return None
            bound = self.expressions.eval(number, st)
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
        if not isinstance(value, Container) or self.run.threads or st.threads:
            return
        if value.kind == "list":
            st.store.pop((value.name, "*"), None)
            sequences.put(st, value, [])
        elif value.kind == "dict":
            for key in [k for k in st.store.of(value.name) if type(k) is not fields.Field]:
                st.store.pop((value.name, key), None)
            sequences.set_keys(st, value, ())

    def _one_emptied(self, st: State, key: Key) -> None:
        """One of several lists is found empty: the others, where nothing else leads to them, are needed no more."""
        elsewhere = led_to(v for o, t in st.store.objects.items() for k, v in t.items() if (o, k) != key)
        for value in iterate(st.store[key]):
            if isinstance(value, Container) and value.name not in elsewhere:
                self._emptied(st, value)

    def store_key(self, node: cst.BaseExpression, st: State) -> tuple[Name, Hashable] | None:
        """Where the store keeps what a name or an attribute of a known object holds."""
        if isinstance(node, cst.Name):
            frame: Name | None = self.run.stack[-1].frame
            while frame is not None:
                if (frame, node.value) in st.store:
                    return (frame, node.value)
                frame = self.run.closures.get(frame)
            return None
        if isinstance(node, cst.Attribute):
            if isinstance(node.value, (cst.Name, cst.Attribute)):
                base = self.expressions.eval(node.value, st)
                if isinstance(base, Object):
                    return (base.name, node.attr.value)
        return None
