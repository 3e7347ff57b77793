"""Subscripts: elements, slices and views."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields, parts, sequences
from streamsafe.static.facts import Assumed, Site
from streamsafe.static.state import State
from streamsafe.static.transfer.containers import MOST_WAYS_TO_PICK, _one_of_few
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Event,
    Function,
    Instance,
    Object,
    Opaque,
    Partial,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    union,
)


class Subscripts(Part):
    """Evaluates subscripts."""

    def subscript(self, node: cst.Subscript, st: State) -> Value:
        """``value[key]``."""
        base = self.expressions.eval(node.value, st)
        if isinstance(base, Function):  # the grid of a compiled kernel
            return Partial(base, (), (), Tuple(tuple(self._slice(e.slice, st) for e in node.slice)))
        if isinstance(base, Api) and base.name.rpartition(".")[2] in ("s_", "index_exp"):
            keys = self.keys_of(node, st)
            return keys[0] if len(keys) == 1 else Tuple(tuple(keys))
        if isinstance(base, (Class, Api)):
            for element in node.slice:
                if isinstance(element.slice, cst.Index):
                    self.expressions.eval(element.slice.value, st)
            return base
        keys = self.keys_of(node, st)
        found: list[tuple[Value, Guard]] = []
        key = keys[0] if len(keys) == 1 else Tuple(tuple(keys))
        holders = self.elements.holders_of(base, key, st)
        place = (
            self.narrowing.store_key(node.value, st)
            if isinstance(base, Union) and base != union(holders)
            else None
        )
        if place is not None:
            st.store[place] = union(holders)  # on goes who has not raised
        if isinstance(key, Const) and type(key.value) is int:
            self.containers.holds_something(base, st)
        for inner, guard in holders:
            if len(keys) > 1 and self.is_mapping(inner):  # ``d[a, b]``: the pair is the key
                keys = [Tuple(tuple(keys))]
            own = self.class_members.own_method(inner, "__getitem__")
            if own is None:
                inner = self.as_container(inner)
            if own is not None:
                found.append((self.functions.call_function(own, [key], {}, st, node), guard))
            elif isinstance(inner, Tensor) or (
                isinstance(inner, Opaque) and self.is_indexed(st, inner, base, keys)
            ):
                found.append((self.view_of(inner, keys, st, node), guard))
            elif isinstance(inner, Opaque) and any(
                self.arithmetic.is_mask(st, k) for k in keys
            ):  # a table, a frame
                self.counted_by(keys, st, self.call_stack.site(node))
                found.append((Opaque(self.objects.fresh(node, st, "rows")), guard))
            elif len(keys) == 1 and isinstance(keys[0], Partial):  # a slice of a sequence
                sliced = _sliced(inner, keys[0], st)
                if sliced is not None:
                    found.append((sliced, guard))
                    continue
                if isinstance(inner, Container):  # what is cut off stands for the whole
                    sequences.moved(st, inner)
                if isinstance(inner, (Container, Opaque)):  # where its elements stand tells them apart
                    inner = replace(inner, part=self.picked(inner.part, keys, st))
                    found.append((inner, guard))
                else:
                    found.append((UNKNOWN, guard))
            elif len(keys) == 1:
                factory = (
                    st.store.get((inner.name, fields.DEFAULT_FACTORY))
                    if isinstance(inner, Container)
                    else None
                )
                held = union(
                    (self.elements.element_of_one(inner, key, st), way)
                    for key, way in _one_of_few(keys[0], st)
                )
                if keys[0] == Const(0) and isinstance(inner, Container) and inner.kind != "dict":
                    held = self.front(inner, held, st, node)
                if self.is_mapping(inner) and factory is None and self.run.stack[-1].tried:
                    there = self.elements.contains(inner, keys[0], st)
                    self.run.sure_lookups += there is True
                    if there is False:
                        st.dead = True  # a handler goes on
                        return UNKNOWN
                if held == UNKNOWN and factory is not None:
                    held = self.python_containers.make_default(factory, node, st)
                    for event in iterate(held) if not isinstance(keys[0], Const) else ():
                        if isinstance(event, Event):  # it may be there, and others may have recorded it
                            st.store.mark(event.name, fields.MAYBE_RECORDED)
                    self.elements.store_element(inner, keys[0], held, st)
                found.append((held, guard))
            elif isinstance(inner, Opaque):
                found.append((Tensor(inner.name, part=self.picked(inner.part, keys, st)), guard))
            else:
                found.append((UNKNOWN, guard))
        return union(found) if found else UNKNOWN

    def front(self, container: Container, held: Value, st: State, node: cst.CSTNode) -> Value:
        """The first of a list or queue: until something else is there, it is the same one of those it may be."""
        if not isinstance(held, Union) or sequences.length(st, container) is not None:
            return held
        found = sequences.at_end(st, container, fields.FIRST_ITEM)
        if found is None:
            rows = type(held.alternatives[0][0])
            found = self.unpacking.one_row(held, st, node, Tuple if rows is Tuple else Instance)
            if found is not held:
                sequences.set_end(st, container, fields.FIRST_ITEM, found)
        return found

    def is_indexed(self, st: State, value: Object, among: Value, keys: list[Value]) -> bool:
        """Whether what is subscripted is a tensor: what may as well be a list that is made here is another list.

        ``x if isinstance(x, list) else [x]``: the ``x`` that is subscripted is not the one that a kernel was given.
        No tensor takes a string: that is a mapping.
        """
        return (
            not self.is_named(keys)
            and self.expressions.is_tensor(st, value)
            and not st.store.marked(value.name, fields.COLLECTION)
            and not any(isinstance(v, Container) for v in iterate(among))
        )

    def as_container(self, value: Value) -> Value:
        """An object whose class inherits from a container is one, too."""
        kind = (
            next((u.holds for u in self.class_members.ancestry(value.unit) if u.holds), "")
            if type(value) is Instance
            else ""
        )
        return Container(value.name, kind, part=value.part) if kind else value  # type: ignore[attr-defined]

    @staticmethod
    def is_mapping(value: Value) -> bool:
        """Whether it is a dict that is seen made."""
        return isinstance(value, Container) and value.kind == "dict"

    @staticmethod
    def is_named(keys: list[Value]) -> bool:
        """Whether a subscript is a string."""
        return len(keys) == 1 and isinstance(keys[0], Const) and isinstance(keys[0].value, str)

    def keys_of(self, node: cst.Subscript, st: State) -> list[Value]:
        """The indices between the brackets; one that is a tuple of slices (``numpy.s_``) stands for them."""
        keys = [self._slice(e.slice, st) for e in node.slice]
        if (
            len(keys) == 1
            and isinstance(keys[0], Tuple)
            and any(isinstance(k, Partial) for k in keys[0].items)
        ):
            return list(keys[0].items)
        return keys

    def _slice(self, part: cst.BaseSlice, st: State) -> Value:
        if isinstance(part, cst.Index):
            if isinstance(part.value, cst.Ellipsis):
                return parts.ELLIPSIS
            return self.computed.bound(self.expressions.eval(part.value, st), part.value, st)
        bounds = []
        assert isinstance(part, cst.Slice)
        for bound in (part.lower, part.upper, part.step):
            value = (
                NONE if bound is None else self.computed.bound(self.expressions.eval(bound, st), bound, st)
            )
            if bound is not None and any(isinstance(v, Tensor) for v in iterate(value)):
                self.tensors.read_on_host(st, value, self.call_stack.site(bound), "a slice's bound")
            bounds.append(value)
        return Partial(SLICE, tuple(bounds), ())

    def view_of(self, base: Object, keys: list[Value], st: State, node: cst.CSTNode) -> Value:
        """A view, or a gathered copy, of a tensor."""
        numpy = isinstance(base, Tensor) and base.numpy
        if not numpy:
            self.picks_by_list(st, base, keys, self.call_stack.site(node))
        gathered = any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.expressions.is_tensor(st, v))
            for key in keys
            for v in iterate(key)
        )
        if gathered and not numpy and any(self.arithmetic.is_mask(st, key) for key in keys):
            return self.tensor_methods.masked(st, [base, *keys], node)
        if gathered and not numpy:
            indices = [v for key in keys for v in iterate(key) if isinstance(v, Object)]
            if self.memory.place(st, base) == "device" and any(
                self.memory.place(st, v) == "pageable" for v in indices
            ):
                self.captures.sync_in_capture(st, self.call_stack.site(node), "indexing from pageable memory")
            if not self.tensors.is_host(st, base):  # where the indices lie tells nothing of what they pick
                brought = [v for v in indices if isinstance(v, Tensor) and self.tensors.is_host(st, v)]
                self.tensors.read_operands(st, list(brought), self.call_stack.site(node), "indexing")
                keys = [key for key in keys if key not in brought]
            return self.tensors.operation(st, [base, *keys], self.call_stack.site(node), "indexing")
        whole = self.memory.view(st, base)
        return union(
            (
                replace(v, part=self.picked(v.part, picked, st)) if isinstance(v, Tensor) else v,
                guard & way,
            )
            for v, guard in alternatives(whole)
            for picked, way in _ways_to_pick(keys, st)
            if not guard.contradicts(way)
        )

    def counted_by(self, masks: list[Value], st: State, site: Site) -> None:
        """How many rows of whatever it is a mask on the device picks, the host waits for (TM-10)."""
        if any(self.memory.place(st, v) == "device" for mask in masks for v in iterate(mask)):
            library = self.tensors.library_of(st, masks)
            self.tensors.read_operands(st, masks, site, "mask indexing")
            self.captures.sync_in_capture(st, site, "mask indexing")
            self.effects.synchronize_stream(st, None, library, site)

    def picked(self, part: Hashable | None, keys: list[Value], st: State) -> parts.Part | None:
        """The part of a part that a subscript picks."""
        return parts.pick(part, keys, lambda value: self.computed.form_in_round(value, st))

    def picks_by_list(self, st: State, base: Object, keys: list[Value], site: Site) -> None:
        """A list as an index of a tensor on the device is copied there: from pageable memory, and the host waits."""
        lists = [key for key in keys if all(self._lists_numbers(v, st) for v in iterate(key))]
        if st.capture is not None and lists and self.memory.place(st, base) in ("device", ""):
            assumed = Assumed.NOTHING if self.memory.place(st, base) else Assumed.PLACE
            self.captures.sync_in_capture(st, site, "indexing by a list", assumed)

    def _lists_numbers(self, value: Value, st: State) -> bool:
        """Whether this is a list of numbers; of slices a tuple is made before it is an index."""
        if not isinstance(value, Container) or value.kind != "list":
            return False
        held = [v for part in self.containers.held(value, st) for v in iterate(part)]
        return not any(isinstance(v, Partial) and v.function == SLICE for v in held)


SLICE = Api("builtins.slice")


def _ways_to_pick(keys: list[Value], st: State) -> list[tuple[list[Value], Guard]]:
    """A subscript on each of the paths on which its numbers are known, where these are few."""
    found: list[tuple[list[Value], Guard]] = [([], ALWAYS)]
    for key in keys:
        ways: list[tuple[Value, Guard]] = [(key, ALWAYS)]
        if isinstance(key, Partial):
            bounds: list[tuple[tuple[Value, ...], Guard]] = [((), ALWAYS)]
            for bound in key.args:
                bounds = [
                    ((*b, v), g & h)
                    for b, g in bounds
                    for v, h in alternatives(bound, st.path)
                    if not g.contradicts(h)
                ]
            ways = [(replace(key, args=b), g) for b, g in bounds]
        found = [([*k, v], g & h) for k, g in found for v, h in ways if not g.contradicts(h)]
        if not 0 < len(found) <= MOST_WAYS_TO_PICK:
            return [(keys, ALWAYS)]
    exclusive = all(a.contradicts(b) for n, (_, a) in enumerate(found) for _, b in found[:n])
    return found if exclusive else [(keys, ALWAYS)]


def _sliced(base: Value, key: Partial, st: State) -> Tuple | None:
    """A slice of a list or tuple whose elements are known."""
    items = list(base.items) if isinstance(base, Tuple) else None
    if isinstance(base, Container):
        items = sequences.items(st, base)
    bounds: list[Any] = [b.value if isinstance(b, Const) else ... for b in key.args]
    if items is None or not all(b is None or type(b) is int for b in bounds) or 0 in bounds[2:]:
        return None
    return Tuple(tuple(items[slice(*bounds)]))
