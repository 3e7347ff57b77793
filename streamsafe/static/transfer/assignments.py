"""Assignment to names, attributes and elements, and their deletion."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import element_keys, fields, hints, parts, sequences
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import GRADIENTS
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Context,
    Event,
    Function,
    Graph,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Span,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    is_iterated_parameter,
    iterate,
    union,
)

WHOLE = Partial(Api("builtins.slice"), (NONE, NONE, NONE), ())
"""``[:]``."""


class Assignments(Part):
    """Assigns to targets and deletes them."""

    def assign(self, target: cst.BaseExpression, value: Value, st: State, node: cst.CSTNode) -> None:
        """``target = value``."""
        if type(target) is cst.Name:
            value = self.computed.identified_number(target.value, value, st, node)
            value = self.unpacking.one_row(value, st, target, Instance)
            if hints.names_host(target.value):
                self.from_unseen_call(value, st)
            if isinstance(value, Object):
                self.objects.call_it(value.name, target.value)
            elif isinstance(value, Union):
                for inner in iterate(value):
                    if isinstance(inner, Object):
                        self.objects.call_it(inner.name, target.value)
            self.graph_memory.rebound_input(
                st,
                (self.statements.scope_of(target.value, st), target.value),
                value,
                self.call_stack.site(node),
            )
            self.statements.bind(target.value, value, st)
        elif isinstance(target, (cst.Tuple, cst.List)):
            self.unpacking.unpack(target, value, st, node)
        elif type(target) is cst.Attribute:
            self.assign_attribute(target, value, st, node)
        elif type(target) is cst.Subscript:
            self._assign_subscript(target, value, st)
        elif type(target) is cst.StarredElement:
            self.assign(target.value, UNKNOWN, st, node)

    def from_unseen_call(self, value: Value, st: State) -> None:
        """What a call that is not seen gave is memory of the host if it is named so."""
        if (
            isinstance(value, Opaque)
            and value.name.base() in self.run.results
            and not self.memory.place(st, value)
        ):
            self.memory.set_place(st, value, "pageable")

    def assign_attribute(self, target: cst.Attribute, value: Value, st: State, node: cst.CSTNode) -> None:
        """``base.name = value``: on a tensor ``.data`` and ``.grad`` hand over the memory."""
        base = self.expressions.eval(target.value, st)
        name = target.attr.value
        self.set_attribute(base, name, value, st, node)
        if isinstance(value, Object):
            self.objects.call_it(value.name, self._target_text(target))

    def set_attribute(self, base: Value, name: str, value: Value, st: State, node: cst.CSTNode) -> None:
        """An object's attribute means this value from now on."""
        many = isinstance(base, Union)
        if name == "shape" and isinstance(value, Tuple) and Const(-1) in value.items:
            rest = self.objects.fresh(node, st, "size")  # what is left
            self.run.plain.add(rest.base())
            value = Tuple(tuple(Opaque(rest) if size == Const(-1) else size for size in value.items))
        for inner, guard in alternatives(base, st.path):
            owner = Name(f"class {inner.unit.name}") if isinstance(inner, Class) else None
            if isinstance(inner, Function):
                owner = self.class_members.function_name(inner)
            if isinstance(inner, Object):
                owner = inner.name
                setter = (
                    self.class_members.find_setter(inner.unit, name) if isinstance(inner, Instance) else None
                )
                if setter is not None and not any(a.unit is setter for a in self.run.stack):
                    self.functions.call_function(Function(setter, None, inner), [value], {}, st, node)
                    continue
            if owner is None:
                continue
            if name == "data" and is_iterated_parameter(owner):  # of which there is none but tensors
                for held in (v for v in iterate(value) if isinstance(v, Object)):
                    self.tensors.mark_tensor(st, held)
            whose = parts.object_of(inner.part) if isinstance(inner, Tensor) and name == "data" else None
            key = (owner, name) if whose is None else (whose, "grad")
            self.graph_memory.rebound_input(st, key, value, self.call_stack.site(node))
            if st.graphs and isinstance(value, Object):
                if name == "data":
                    self.graph_memory.replaced_memory(st, owner, value, self.call_stack.site(node))
                elif isinstance(inner, Opaque) and spelled(hints.PARAMETER, name):
                    self.graph_memory.replaced_memory(
                        st, owner.child(name), value, self.call_stack.site(node)
                    )
            old = st.store.get(key)
            if name == "grad" and (old is None or self._may_be_of_another(old, inner)):
                old = self.gradients.gradient(inner, st) if isinstance(inner, Object) else None
            if old is None and isinstance(inner, Tensor) and name == "data":
                old = replace(inner, view=True)
            if old is not None:
                self.containers.lose(st, old)
            if isinstance(old, Tensor) and old.name == GRADIENTS and value == NONE:
                if self._keeps_gradient(key, st):
                    taken = self.objects.fresh(node, st, "taken")
                    st.rename(lambda name, new=taken: new if name is GRADIENTS else name, {GRADIENTS})  # type: ignore[misc]
                elif (GRADIENTS, fields.ALLOCATED_ON) in st.store:
                    self.lifetimes.release(st, GRADIENTS, self.call_stack.site(node))
                elif isinstance(inner, Span) and element_keys.is_iterated(inner):
                    st.order.drop(GRADIENTS)  # as that of the element before
            if many and old is not None:
                value_here = union([(value, guard), (old, ALWAYS)])
            else:
                value_here = value
            st.store[key] = value_here
            self.run.assigns_gradients |= name == "grad" and value != NONE
            self.memory.holds(owner)
            if (
                isinstance(inner, Instance)
                and isinstance(value, (Instance, Opaque))
                and not value.name.parent
            ):
                st.store[(value.name, fields.PART_OF)] = inner

    def _keeps_gradient(self, owner: tuple[Name, Hashable], st: State) -> bool:
        """Whether a name still means the gradient that an attribute is about to lose: no later pass writes that one."""
        frame = self.run.stack[-1].frame
        return any(
            isinstance(held, Tensor) and held.name == GRADIENTS and (frame, key) != owner
            for key, value in st.store.of(frame).items()
            for held in iterate(value)
        )

    @staticmethod
    def _may_be_of_another(gradient: Value, owner: Value) -> bool:
        """Whether only the gradients of others that the same loop reaches are known to be gone."""
        if not (isinstance(owner, Span) and element_keys.is_iterated(owner)):
            return False
        unset = (NONE, Opaque(owner.name.child("grad")))
        return all(v in unset or (isinstance(v, Tensor) and v.name == GRADIENTS) for v in iterate(gradient))

    @staticmethod
    def _target_text(target: cst.BaseExpression) -> str:
        parts = []
        while isinstance(target, cst.Attribute):
            parts.append(target.attr.value)
            target = target.value
        if isinstance(target, cst.Name):
            parts.append(target.value)
        return ".".join(reversed(parts))

    def _assign_subscript(self, target: cst.Subscript, value: Value, st: State) -> None:
        base = self.expressions.eval(target.value, st)
        keys = self.subscripts.keys_of(target, st)
        if len(keys) > 1 and all(map(self.subscripts.is_mapping, iterate(base))):
            keys = [Tuple(tuple(keys))]
        tensors = [
            (v, g)
            for v, g in alternatives(base, st.path)
            if (isinstance(v, Tensor) and (v.numpy or not self.subscripts.is_named(keys)))
            or (
                isinstance(v, Opaque)
                and not st.store.marked(v.name, fields.COLLECTION)
                and (self.looks_like_tensor(keys) or self.subscripts.is_indexed(st, v, base, keys))
            )
        ]
        if tensors and not _only_objects(value):
            for picked, _ in tensors:
                if not (isinstance(picked, Tensor) and picked.numpy):
                    self.subscripts.picks_by_list(st, picked, keys, self.call_stack.site(target))
            views = union(
                (
                    replace(v, part=self.subscripts.picked(v.part, keys, st))
                    if isinstance(v, Tensor)
                    else Tensor(v.name, part=self.subscripts.picked(v.part, keys, st)),
                    g,
                )
                for v, g in tensors
            )
            self.tensors.in_place(st, views, [value, *keys], self.call_stack.site(target), "item assignment")
        elif any(self.class_members.own_method(v, "__setitem__") for v in iterate(base)):
            key = keys[0] if len(keys) == 1 else Tuple(tuple(keys))
            for inner in iterate(base):
                own = self.class_members.own_method(inner, "__setitem__")
                if own is not None:
                    self.functions.call_function(own, [key, value], {}, st, target)
        elif keys == [WHOLE] and isinstance(base, Container) and base.kind == "list":
            for old in self.containers.held(base, st):
                self.containers.lose(st, old)
            sequences.put(st, base, [])
            self.containers.extend_container(st, base, value)
        elif len(keys) == 1:
            for inner in iterate(base):
                index = element_keys.key_of(keys[0])
                if isinstance(inner, Container) and isinstance(index, int) and index < 0:
                    index += sequences.length(st, inner) or 0
                if (
                    isinstance(inner, (Container, Opaque))
                    and isinstance(keys[0], (Const, Tuple))
                    and not element_keys.is_unsure(index)
                ):
                    named = f"[{index!r}]" if isinstance(inner, Opaque) and isinstance(index, str) else index
                    self.graph_memory.rebound_input(
                        st, (inner.name, named), value, self.call_stack.site(target)
                    )
                elif isinstance(inner, Container) and inner.kind != "set":
                    self.graph_memory.rebound_elements(st, inner, value, self.call_stack.site(target))
                if st.graphs and isinstance(inner, Container) and self.arithmetic.is_of_round(keys[0]):
                    self.graph_memory.keep_output(
                        st, inner, self.containers.held(inner, st), value, self.call_stack.site(target)
                    )
            self.elements.store_element(base, keys[0], value, st)

    @staticmethod
    def looks_like_tensor(keys: list[Value]) -> bool:
        """Whether a subscript is of the kind that only arrays take: a slice or several indices."""
        return len(keys) > 1 or any(isinstance(k, Partial) for k in keys)

    def delete(self, target: cst.BaseExpression, st: State, node: cst.CSTNode) -> None:
        """``del target``."""
        if isinstance(target, cst.Name):
            self.graph_memory.rebound_input(
                st, (self.run.stack[-1].frame, target.value), NONE, self.call_stack.site(node)
            )
            old = st.store.pop((self.run.stack[-1].frame, target.value), None)
            if old is not None:
                self.containers.lose(st, old)
        elif isinstance(target, cst.Attribute):
            base = self.expressions.eval(target.value, st)
            for inner in iterate(base):
                if isinstance(inner, Object):
                    self.graph_memory.rebound_input(
                        st, (inner.name, target.attr.value), NONE, self.call_stack.site(node)
                    )
                    old = st.store.get((inner.name, target.attr.value))
                    st.store[(inner.name, target.attr.value)] = NONE
                    if old is not None:
                        self.containers.lose(st, old)
        elif isinstance(target, cst.Subscript):
            base = self.expressions.eval(target.value, st)
            for inner in iterate(base):
                if isinstance(inner, Container):
                    index = target.slice[0].slice
                    key_value = (
                        self.expressions.eval(index.value, st) if isinstance(index, cst.Index) else UNKNOWN
                    )
                    if self.remove(inner, key_value, st):
                        continue
                    sequences.blur(st, inner)
                    sequences.set_keys(st, inner, None)
                    for key, old in list(st.store.of(inner.name).items()):
                        if type(key) is not fields.Field:
                            self.containers.lose(st, old)
                            del st.store[(inner.name, key)]

    def remove(self, container: Container, key: Value, st: State) -> bool:
        """Take one element out of a list or dict that is known well enough; whether it was."""
        known = sequences.items(st, container)
        if known is not None and isinstance(key, Const) and type(key.value) is int:
            if -len(known) <= key.value < len(known):
                self.containers.lose(st, known.pop(key.value))
                sequences.put(st, container, known)
                return True
        names = sequences.keys(st, container)
        index = element_keys.key_of(key)
        if names is not None and index in names:
            sequences.set_keys(st, container, names - {index})
            self.containers.lose(st, st.store.pop((container.name, index), NONE))
            return True
        return False


def _only_objects(value: Value) -> bool:
    """Whether no array holds this: what takes it for an element is a container, whatever else it seems to be."""
    return all(
        isinstance(v, (Event, Stream, Graph, Work, Function, Class, Context))
        or (isinstance(v, Const) and (v.value is None or type(v.value) is str))
        for v in iterate(value)
    )
