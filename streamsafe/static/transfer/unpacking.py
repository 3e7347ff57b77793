"""Unpacking: one value is assigned to several targets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Const,
    Container,
    Event,
    Generator,
    Graph,
    Instance,
    Name,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    union,
    up_to_date,
)

MOST_ROWS = 8
"""Of how many rows at most it is known which of them is unpacked."""

_ORDERING = (Stream, Event, Work, Graph)


def _holds_one_event(row: Sequence[Value]) -> bool:
    """Whether a row holds one event, and nothing else that orders."""
    ordering = [v for item in row for v in iterate(item) if isinstance(v, _ORDERING)]
    return len(ordering) == 1 and isinstance(ordering[0], Event)


def _by_flags(rows: Sequence[tuple[Value, Guard]]) -> list[tuple[Value, Guard]]:
    """Rows that say by a flag what they hold: those with the same flags are one; none where there are no flags."""
    if not rows or not all(isinstance(row, Tuple) for row, _ in rows):
        return []
    groups: dict[tuple[Value, ...], list[tuple[Tuple, Guard]]] = {}
    for row, guard in rows:
        assert isinstance(row, Tuple)
        flags = tuple(v if isinstance(v, Const) and type(v.value) is bool else UNKNOWN for v in row.items)
        groups.setdefault(flags, []).append((row, guard))
    lengths = {len(flags) for flags in groups}
    if len(groups) < 2 or len(lengths) > 1 or any(set(flags) == {UNKNOWN} for flags in groups):
        return []
    return [
        same[0]
        if len(same) == 1
        else (
            Tuple(tuple(union((row.items[n], guard) for row, guard in same) for n in range(len(flags)))),
            ALWAYS,
        )
        for flags, same in groups.items()
    ]


class Unpacking(Part):
    """Assigns the parts of a value."""

    def unpack(self, target: cst.Tuple | cst.List, value: Value, st: State, node: cst.CSTNode) -> None:
        """``a, b = value``."""
        value = union((_busy(v), guard) for v, guard in alternatives(self.one_row(value, st, target, Tuple)))
        if isinstance(value, (Partial, Generator, Instance)):
            value = self.listed(value, st, node)
        # what comes beside its graph is where that writes, not what it has computed
        naming, self.run.naming = (
            self.run.naming,
            not any(isinstance(v, Graph) for v in self.graph_memory.leaves(value, st)),
        )
        self.run.stack[-1].held.append(value)
        self._unpack_into(target, value, st, node)
        self.run.stack[-1].held.pop()
        self.run.naming = naming

    def one_row(
        self, value: Value, st: State, target: cst.CSTNode, kind: type[Tuple] | type[Instance]
    ) -> Value:
        """Of several rows it is one: what is taken from it, data and the event beside it, stays together."""
        if not isinstance(value, Union):
            return value
        choices = alternatives(value, st.path)
        flagged = _by_flags(choices)
        choices = flagged or (up_to_date(choices) if kind is Tuple else choices)
        if len(choices) == 1:
            return choices[0][0]
        kinds = (Instance, Opaque) if kind is Instance else kind
        if len(choices) < 2 or not all(isinstance(v, kinds) for v, _ in choices):
            return value
        held = [v.items if isinstance(v, Tuple) else list(st.store.of(v.name).values()) for v, _ in choices]  # type: ignore[attr-defined]
        orders = [any(isinstance(v, _ORDERING) for item in row for v in iterate(item)) for row in held]
        if not flagged and not any(orders):
            return value
        used = [
            {t.name for t, _ in self.memory.tensors_in(st, row) if t.name in st.order.made}
            for row, _ in choices
        ]
        idle = _idle(held, used) if kind is Tuple else []
        if any(idle):
            kept = [choice for choice, nothing in zip(choices, idle, strict=True) if not nothing]
            return self.one_row(union(kept), st, target, kind)
        if kind is Instance:  # what several objects share they may use as they like
            used = [{t.name for t, _ in self.memory.tensors_in(st, row)} for row, _ in choices]
        if kind is Tuple and all(map(_holds_one_event, held)) and not self._holds_memory(choices, st):
            return value  # no memory comes with the event: who goes over all of them waits for all
        if any(one & other for one, other in itertools.combinations(used, 2)):
            return value  # a buffer that goes round is in one row at a time: which one is not known
        if kind is Instance and all(
            a.contradicts(b) for n, (_, a) in enumerate(choices) for _, b in choices[:n]
        ):
            return value  # the guards say already which one it is
        # of those with nothing to wait for it makes no difference which one it is
        groups = [[c] for c, ordered in zip(choices, orders, strict=True) if ordered or flagged]
        rest = [c for c, ordered in zip(choices, orders, strict=True) if not ordered and not flagged]
        groups += [rest] if rest else []
        if not 2 <= len(groups) <= MOST_ROWS:
            return value
        bits = []
        for number in range((len(groups) - 1).bit_length()):
            key = ("row", id(target), number, self.run.stack[-1].path)
            bit = self.run.conditions.get(key) or self.conditions.new_condition(key, ())
            if bit is None:
                return value
            bits.append(bit)
        st.forget(sum(bits))  # it was another choice
        apart: list[tuple[Value, Guard]] = []
        for group, which in zip(groups, _halved(len(groups), bits), strict=True):
            for row, before in group:
                guard = before.forget(sum(bits))
                if not guard.contradicts(which):
                    apart.append((row, guard & which))
        return union(apart)

    def _holds_memory(self, choices: Sequence[tuple[Value, Guard]], st: State) -> bool:
        """Whether something in rows is known to be a tensor."""
        held = (t for row, _ in choices for t, _ in self.memory.tensors_in(st, row))
        return any(isinstance(t, Tensor) or self.expressions.is_tensor(st, t) for t in held)

    def listed(self, value: Value, st: State, node: cst.CSTNode) -> Value:
        """The elements that unpacking iterates over: of a generator what it yields."""
        if isinstance(value, Generator) or self.class_members.own_method(value, "__iter__"):
            return self.python_containers.drained(value, st, node)
        items = self.iterables.known_items(value, st)
        return value if items is None else Tuple(tuple(items))

    def _unpack_into(self, target: cst.Tuple | cst.List, value: Value, st: State, node: cst.CSTNode) -> None:
        last: int | None = None
        for position, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                after = len(target.elements) - position - 1
                self.assignments.assign(element.value, self._rest(value, position, after, st), st, node)
                last = after
                continue
            if last is not None:  # what comes after the starred one is counted from the end
                items = self.iterables.known_items(value, st)
                item = self.elements.element(value, Const(-last), st) if items is None else items[-last]
                self.assignments.assign(element.value, item, st, node)
                last -= 1
                continue
            item = self.elements.element(value, Const(position), st)
            if isinstance(value, (Tensor, Container)) and item == UNKNOWN:
                if isinstance(value, Tensor):
                    item = replace(value, part=self.subscripts.picked(value.part, [Const(position)], st))
                else:
                    item = self.containers.any_element(value, st)
            self.assignments.assign(element.value, item, st, node)

    def _rest(self, value: Value, before: int, after: int, st: State) -> Value:
        """What a starred name takes: the elements between those that the other names take."""
        items = self.iterables.known_items(value, st)
        if items is not None:
            return Tuple(tuple(items[before : len(items) - after]))
        if isinstance(value, (Tensor, Container)):
            return Tuple((value if isinstance(value, Tensor) else self.containers.any_element(value, st),))
        return UNKNOWN


def _busy(row: Value) -> Value:
    """What stands for many rows: where some of them hold a handle beside data, None beside it is of other data."""
    if not isinstance(row, Tuple) or not any(
        isinstance(v, Tensor) for item in row.items for v in iterate(item)
    ):
        return row
    items = []
    for item in row.items:
        handled = isinstance(item, Union) and any(isinstance(v, Work) for v, _ in item.alternatives)
        items.append(union((v, g) for v, g in alternatives(item) if v != NONE) if handled else item)
    return Tuple(tuple(items))


def _idle(rows: Sequence[Sequence[Value]], data: Sequence[Set[Name]]) -> list[bool]:
    """Which rows hold None where another one, of the same memory, holds what is to be waited for.

    Nothing is under way for what such a row holds; what is, is for another element that goes by the same name.
    """
    return [
        any(
            mine & others
            and len(row) == len(other)
            and any(a == NONE and isinstance(b, _ORDERING) for a, b in zip(row, other, strict=True))
            for other, others in zip(rows, data, strict=True)
        )
        for row, mine in zip(rows, data, strict=True)
    ]


def _halved(count: int, bits: Sequence[int], under: Guard = ALWAYS) -> Iterator[Guard]:
    """Guards of which one holds at a time: each condition halves what is left."""
    if count == 1:
        yield under
        return
    half = (count + 1) // 2
    yield from _halved(half, bits[1:], under & Guard(bits[0], 0))
    yield from _halved(count - half, bits[1:], under & Guard(0, bits[0]))
