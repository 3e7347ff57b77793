"""Unpacking: one value is assigned to several targets, or matched against patterns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import Call
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

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


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

    # -- the patterns of a match statement -----------------------------------------------------------------------

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.equalities: dict[cst.MatchValue, cst.Comparison] = {}
        """By pattern, the comparison that it asks."""

    def match_statement(self, node: cst.Match, st: State) -> None:
        """``match subject:``."""
        subject = self.expressions.eval(node.subject, st)
        ends: list[State | None] = []
        for case in node.cases:
            if st.dead:
                break
            branch = st.copy()
            fits = self._fits(case.pattern, subject, branch)
            if fits is None and type(case.pattern) is cst.MatchValue:
                outcomes = self.predicates.test(self._equality(node.subject, case.pattern), branch)
                self.paths.enter_branch(node.subject, outcomes, True, branch)
                self.paths.enter_branch(node.subject, outcomes, False, st)
            if fits is False or branch.dead:
                continue
            self.capture_pattern(case.pattern, subject, branch)
            if case.guard is not None:
                outcomes = self.predicates.test(case.guard, branch)
                otherwise = branch.copy()
                self.paths.enter_branch(case.guard, outcomes, True, branch)
                self.paths.enter_branch(case.guard, outcomes, False, otherwise)
                if fits:
                    self.paths.settle(st, None if otherwise.dead else otherwise)
            elif fits:
                st.dead = True  # no other case is looked at
            if not branch.dead:
                self.statements.suite(case.body, branch)
            ends.append(branch)
        self.paths.settle(st, self.paths.joined([*ends, st.copy()]))

    def _equality(self, subject: cst.BaseExpression, pattern: cst.MatchValue) -> cst.Comparison:
        """The comparison that a pattern stands for: it is the same each time."""
        made = self.equalities.get(pattern)
        if made is None:
            target = cst.ComparisonTarget(cst.Equal(), pattern.value)
            made = self.equalities[pattern] = cst.Comparison(subject, [target])
        return made

    def _fits(self, pattern: cst.CSTNode, subject: Value, st: State) -> bool | None:
        """Whether a value fits a pattern; None where that is not known."""
        if isinstance(pattern, cst.MatchAs):
            return True if pattern.pattern is None else self._fits(pattern.pattern, subject, st)
        if isinstance(pattern, cst.MatchOr):
            fits = [self._fits(inner.pattern, subject, st) for inner in pattern.patterns]
            return True if True in fits else None if None in fits else False
        if isinstance(pattern, (cst.MatchValue, cst.MatchSingleton)):
            value = self.expressions.eval(pattern.value, st)
            if (
                isinstance(value, Const)
                and isinstance(subject, Const)
                and ... not in (value.value, subject.value)
            ):
                return type(value.value) is type(subject.value) and bool(value.value == subject.value)
            if subject != UNKNOWN and value == NONE and not isinstance(subject, (Const, Opaque, Union)):
                return False
            return None
        if isinstance(pattern, cst.MatchClass):
            kind = self.expressions.eval(pattern.cls, st)
            answer = self.builtin_functions.do_isinstance(
                Call(pattern, self.call_stack.site(pattern), [subject, kind]), st
            )
            known = isinstance(answer, Const) and type(answer.value) is bool
            if known and not answer.value:  # type: ignore[attr-defined]
                return False
            return True if known and not (pattern.patterns or pattern.kwds) else None
        items = self.iterables.known_items(subject, st) if isinstance(pattern, cst.MatchSequence) else None
        if items is None:
            return None
        starred = any(isinstance(p, cst.MatchStar) for p in pattern.patterns)  # type: ignore[attr-defined]
        if not starred and len(items) != len(pattern.patterns):  # type: ignore[attr-defined]
            return False
        if starred:
            return None
        fits = [self._fits(p.value, item, st) for p, item in zip(pattern.patterns, items, strict=True)]  # type: ignore[attr-defined]
        return False if False in fits else None if None in fits else True

    def capture_pattern(self, pattern: cst.CSTNode, subject: Value, st: State) -> None:
        """Names that a pattern binds."""
        if isinstance(pattern, cst.MatchAs):
            if pattern.name is not None:
                self.statements.bind(pattern.name.value, subject, st)
            if pattern.pattern is not None:
                self.capture_pattern(pattern.pattern, subject, st)
            return
        items = getattr(pattern, "patterns", None) or getattr(pattern, "elements", None) or ()
        for position, item in enumerate(items):
            inner = getattr(item, "value", None) or getattr(item, "pattern", None)
            if isinstance(inner, cst.CSTNode):
                self.capture_pattern(inner, self.elements.element(subject, Const(position), st), st)
        for item in getattr(pattern, "kwds", ()):
            self.capture_pattern(
                item.pattern, self.attributes.attribute(subject, item.key.value, st, item), st
            )


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
