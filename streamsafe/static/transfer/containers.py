"""Containers: displays, what a container holds, and its growth."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import element_keys, fields, parts, sequences
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    EACH,
    PLAIN,
    UNKNOWN,
    Const,
    Container,
    Event,
    Instance,
    Name,
    Object,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    iterate,
    union,
)

PLACE = ("[]", Name("a place"))
"""What a handle is remembered by at a number that is not known."""


class Containers(Part):
    """Makes containers and tells what they hold."""

    def tuple_display(self, node: cst.Tuple, st: State) -> Value:
        """``(a, b)``."""
        if any(isinstance(e, cst.StarredElement) for e in node.elements):
            items: list[Value] = []
            for element in node.elements:
                value = self.expressions.eval(element.value, st)
                if isinstance(element, cst.StarredElement):
                    if isinstance(value, Tuple):
                        items.extend(value.items)
                        continue
                    return self.container(node, st, "list", [*items, self.any_element(value, st)])
                items.append(value)
            return Tuple(tuple(items))
        return Tuple(tuple(self.expressions.eval(e.value, st) for e in node.elements))

    def list_display(self, node: cst.List | cst.Set, st: State) -> Value:
        """``[a, b]`` or ``{a, b}``."""
        items = []
        exact = True
        given: list[tuple[Value, int]] = []
        for element in node.elements:
            value = self.expressions.eval(element.value, st)
            if st.graphs:
                given.append((value, self.run.replays))
            if isinstance(element, cst.StarredElement):
                exact = False
                value = self.any_element(value, st)
            items.append(value)
        if len(given) > 1:
            self.replays.computed_twice(st, given, self.call_stack.site(node))
        return self.container(node, st, "list", items, exact=exact)

    def dict_display(self, node: cst.Dict, st: State) -> Value:
        """``{key: value}``."""
        name = self.objects.fresh(node, st, "dict")
        self.run.closed.add(name)
        sequences.set_keys(st, Container(name, "dict"), ())
        for element in node.elements:
            value = self.expressions.eval(element.value, st)
            if isinstance(element, cst.DictElement):
                key = self.expressions.eval(element.key, st)
                self.elements.store_element(Container(name, "dict"), key, value, st)
            else:
                self.python_containers.add_items(Container(name, "dict"), value, st)
        return Container(name, "dict")

    def container(
        self, node: cst.CSTNode, st: State, kind: str, items: list[Value], *, exact: bool = True
    ) -> Container:
        """A list with these elements."""
        name = self.objects.fresh(node, st, kind)
        self.run.closed.add(name)
        if exact:
            for position, value in enumerate(items):
                st.store[(name, position)] = value
            st.store[(name, fields.LENGTH)] = Const(len(items))
            sequences.set_some(st, Container(name, kind), Const(bool(items)) if kind != "dict" else None)
            if items:
                sequences.set_end(st, Container(name, kind), fields.FIRST_ITEM, items[0])
                sequences.set_end(st, Container(name, kind), fields.LAST_ITEM, items[-1])
            self.joins(Container(name, kind), items)
        elif items:
            st.store[(name, "*")] = union((v, ALWAYS) for v in items)
        return Container(name, kind)

    # -- elements ------------------------------------------------------------------------------------------------

    def held(self, container: Object, st: State, index: Hashable = None) -> list[Value]:
        """Everything a container is known to hold, or what of it may be held under a key."""
        held = [(k, v) for k, v in st.store.of(container.name).items() if type(k) is not fields.Field]
        return [v for k, v in held if index is None or k == "*" or not element_keys.apart(k, index)]

    def any_element(self, value: Value, st: State) -> Value:
        """Some element."""
        if isinstance(value, Union):
            return union((self.any_element(v, st), g) for v, g in alternatives(value, st.path))
        if isinstance(value, Tuple):
            return union((v, ALWAYS) for v in value.items) if value.items else UNKNOWN
        if isinstance(value, Container) and value.kind == "dict":
            return PLAIN  # one of its keys
        if isinstance(value, Container):
            found = self.held(value, st)
            return union((v, ALWAYS) for v in found) if found else UNKNOWN
        if isinstance(value, Opaque):
            return self.instances.typed_element(value, Opaque(value.name.child(EACH)), st)
        return UNKNOWN

    def any_value(self, value: Value, st: State) -> Value:
        """Some value of a mapping."""
        if isinstance(value, Union):
            return union((self.any_value(v, st), g) for v, g in alternatives(value, st.path))
        return self.any_element(replace(value, kind="list") if isinstance(value, Container) else value, st)

    def duplicate(self, container: Container, node: cst.CSTNode, st: State) -> Container:
        """Another container with the same elements."""
        made = Container(self.objects.fresh(node, st, "copy"), container.kind)
        for key, value in list(st.store.of(container.name).items()):
            st.store[(made.name, key)] = value
        if container.name in self.run.closed:
            self.run.closed.add(made.name)
        if container.name.base() in self.run.members:
            self.run.members[made.name.base()] = set(self.run.members[container.name.base()])
        return made

    def with_unplaced(self, container: Container, index: Hashable, known: Value, st: State) -> Value:
        """What is at a place, or the handles of works that have been put at one of which the number is not known."""
        if type(index) is not int or container.kind == "dict":
            return known
        table = st.store.of(container.name)
        put = [v for k, v in table.items() if type(k) is tuple and k[:1] == ("[]",) and k != PLACE]
        works = [v for v in put if self.holds_works(v, st)]
        return union([(known, ALWAYS), *((v, ALWAYS) for v in works)]) if works else known

    def holds_works(self, value: Value, st: State) -> bool:
        """Whether this is the handle of a work, or a list of such."""
        return any(
            isinstance(v, Work)
            or (
                isinstance(v, Container)
                and any(isinstance(w, Work) for h in self.held(v, st) for w in iterate(h))
            )
            for v in iterate(value)
        )

    def place_of(self, key: Value, st: State) -> parts.Picked | None:
        """Where an element of a list or dict stands, as far as two places can be told apart by their keys."""
        if isinstance(key, Const) and isinstance(key.value, str):
            return key.value
        return parts.place(key, lambda value: self.computed.form_in_round(value, st))

    def joins(self, container: Object, items: list[Value]) -> None:
        """Remember the streams and events that a container has held."""
        for item in items:
            for member in iterate(item):
                if isinstance(member, (Stream, Event)):
                    self.run.members.setdefault(container.name.base(), set()).add(member.name.base())
                if isinstance(member, Stream):
                    for iterated in self.run.stack[-1].held:
                        self.stream_pools.fills_pool(iterated, {member.name})

    # -- pools of streams ----------------------------------------------------------------------------------------

    def extend_container(self, st: State, base: Value, added: Value) -> None:
        """Elements join a container, at its end as long as its length is known."""
        for inner in iterate(base):
            if not isinstance(inner, Container):
                continue
            exact = list(added.items) if isinstance(added, Tuple) else None
            if isinstance(added, Container):
                exact = sequences.items(st, added)
            new = exact if exact is not None else [self.any_value(added, st)]
            for value in new:
                self.lifetimes.put_back(st, value, inner)
            self.joins(inner, new)
            known = sequences.items(st, inner) if base is inner and exact is not None else None
            bounded = st.store.marked(inner.name, fields.MAXLEN)
            if known is not None and not bounded and len(known) + len(new) <= sequences.LIMIT:
                sequences.put(st, inner, [*known, *new])
                continue
            held = st.store.get((inner.name, fields.HAS_ITEMS))
            front = new[0] if known == [] else sequences.ends(st, inner)[fields.FIRST_ITEM]
            sequences.blur(st, inner)
            sequences.set_some(st, inner, Const(True) if exact else held if exact == [] else None)
            old = st.store.get((inner.name, "*"))
            st.store[(inner.name, "*")] = union(
                [*([(old, ALWAYS)] if old is not None else []), *((v, ALWAYS) for v in new)]
            )
            sequences.set_end(st, inner, fields.FIRST_ITEM, None if bounded else front)
            sequences.set_end(st, inner, fields.LAST_ITEM, new[-1] if base is inner and exact else None)

    def lose(self, st: State, value: Value) -> None:
        """These objects may have lost their last name."""
        for inner in iterate(value):
            if isinstance(inner, (Tensor, Opaque)):
                self.run.candidates.append(inner.name)
                if inner.name.parent is not None:
                    self.run.candidates.append(inner.name.root())  # a result goes with the last of its rows
            if isinstance(inner, (Tuple, Container, Instance, Opaque)):
                self.run.candidates.extend(target.name for target, _ in self.memory.tensors_in(st, inner))

    def holds_something(self, whole: Value, st: State) -> None:
        """Who had, or replaced, an element of it by a number has not raised: there is one."""
        if isinstance(whole, Opaque):
            st.store.mark(whole.name, fields.NONZERO)
        elif isinstance(whole, Container) and sequences.length(st, whole) is None:
            st.store[(whole.name, fields.HAS_ITEMS)] = Const(True)
            times = st.store.one(whole.name, fields.REPEATS)
            if times is not None:
                st.store.mark(times.name, fields.NONZERO)


MOST_WAYS_TO_PICK = 3
"""On how many paths at most the bounds of a slice are kept apart."""


def _one_of_few(key: Value, st: State) -> list[tuple[Value, Guard]]:
    """An index, or each of the numbers that it may be."""
    choices = alternatives(key, st.path)
    if all(isinstance(v, Const) and type(v.value) in (int, bool) for v, _ in choices):
        return choices
    return [(key, ALWAYS)]
