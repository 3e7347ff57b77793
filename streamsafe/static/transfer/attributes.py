"""Reading attributes: of objects, classes, modules and tensors, and the parameters of modules."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, Accesses
from streamsafe.static import element_keys, fields, hints, parts
from streamsafe.static.concrete import spelled
from streamsafe.static.facts import GRADIENTS, MAIN_GRADIENTS
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    EACH,
    ITERATED,
    PARAMETERS,
    PLAIN,
    POINTER,
    UNKNOWN,
    Api,
    Class,
    Const,
    Device,
    Event,
    Function,
    Instance,
    Method,
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
    alternatives,
    iterate,
    union,
)


class Attributes(Part):
    """Reads attributes."""

    # -- attributes ----------------------------------------------------------------------------------------------

    def attribute_expression(self, node: cst.Attribute, st: State) -> Value:
        """``value.name``."""
        return self.attribute(self.expressions.eval(node.value, st), node.attr.value, st, node)

    def attribute(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        """``base.name``."""
        choices = alternatives(base, st.path)
        self.expressions.assume_not_none(choices, st)
        if name == "is_cuda" and len(choices) > 1 and self.devices.is_cuda_of_some(choices, st):
            return self.devices.on_cuda()
        found = [(self._attribute_in_round(inner, name, st, node), guard) for inner, guard in choices]
        if len(found) == 1 and (type(found[0][0]) is not Union or found[0][1] is ALWAYS):
            return found[0][0]
        return union(found) if found else UNKNOWN

    def _attribute_in_round(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        value = self._attribute_of(base, name, st, node)
        return element_keys.in_rounds(value, parts.rounds(base.part)) if isinstance(base, Span) else value

    def _attribute_of(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        if isinstance(base, Api):
            return self.calls.api_attribute(base, name, st, node)
        if isinstance(base, Tensor):
            return self.arrays.tensor_attribute(base, name, st, node)
        if isinstance(base, Instance):
            return self.instance_attribute(base, name, st, node)
        if isinstance(base, Opaque):
            held = st.store.get((base.name, name))
            if held is not None:
                return held
            if name == "grad":
                return self.gradients.gradient(base, st)
            if name == apis.MAIN_GRADIENT:
                return self.main_gradient(base)
            if name == "param_groups":  # where capturable may be set later
                st.store.pop((base.name, fields.NOT_CAPTURABLE), None)
            if name in apis.VIEW_ATTRIBUTES and (
                self.expressions.is_tensor(st, base) or name in ("data", "mT")
            ):
                return self.memory.view(st, base)
            if spelled(hints.PARAMETER, name):
                parameter = self.parameter_of(base.name, st)
                if parameter is not None:
                    return parameter
            if name == "device":
                return self.devices.device_of(base, st)
            if name == "is_cuda":
                return self.devices.is_cuda(base, st)
            part = base.name.child(name)
            if name in apis.METADATA_ATTRIBUTES:
                self.run.plain.add(part.base())
            return Opaque(part)
        if isinstance(base, Device):
            if name == "type":
                return Const(base.kind) if base.kind else base
            return PLAIN
        if isinstance(base, Class):
            return self.class_members.class_attribute(base.unit, name, st)
        if isinstance(base, (Stream, Event)) and name in ("ptr", "cuda_stream", "device", "stream_id"):
            return base if name in ("ptr", "cuda_stream") else PLAIN
        if isinstance(base, Stream) and name == "done":
            return self.clocks.query_stream(st, base, self.call_stack.site(node))
        if isinstance(base, Event) and name == "done":
            return self.clocks.query_event(st, [(base, ALWAYS)], self.call_stack.site(node))
        if isinstance(base, Object):
            held = st.store.get((base.name, name))
            if held is not None:
                return held
        if isinstance(base, Const):
            return PLAIN
        if isinstance(base, Function):
            held = st.store.get((self.class_members.function_name(base), name))
            return held if held is not None else Method(base, name)
        if isinstance(base, Partial) and base.function == POINTER:
            return base
        if name == "is_cuda":
            return self.devices.on_cuda()
        return Method(base, name)

    def plain_tensor_attribute(self, base: Tensor, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a tensor: a view, metadata, a gradient, or what was assigned to it."""
        held = st.store.get((base.name, name))
        if held is not None:
            return held
        if name == "grad":
            return self.gradients.gradient(base, st)
        if name == apis.MAIN_GRADIENT:
            return self.main_gradient(base)
        if name in apis.VIEW_ATTRIBUTES:
            return self.memory.view(st, base)
        if name in apis.RESULT_FIELDS:
            return base
        if name == "device":
            return self.devices.device_of(base, st)
        if name == "is_cuda":
            return self.devices.is_cuda(base, st)
        if name in apis.METADATA_ATTRIBUTES or name == "size":
            return PLAIN
        if name == "shape":
            return self.computed.shape_of(base)
        if name == "strides":
            return UNKNOWN
        return Method(base, name)

    def instance_attribute(self, base: Instance, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of an instance: assigned, or found in its class."""
        held = st.store.get((base.name, name))
        self.threads.read_by_starter(st, held, (base.name, name))
        if self.run.moved_parameters and (held is None or self.is_parameter(held, st)):
            parameter = self.parameter_of(base.name, st) if held or spelled(hints.PARAMETER, name) else None
            if parameter is not None:
                return parameter
        if held is not None:
            return held
        found = self.class_members.find_method(base.unit, name)
        if found is not None:
            base = self.class_members.bound_to(base)
            if found.is_property:
                value = self.functions.call_function(Function(found, None, base), [], {}, st, node)
                if found.is_kept and not st.dead:
                    st.store[(base.name, name)] = value
                return value
            if found.is_static:
                return Function(found)
            return Function(found, None, base)
        if (
            self.class_members.find_class_attribute(base.unit, name) is not None
            and name not in base.unit.annotations
        ):
            return self.class_members.class_attribute(base.unit, name, st)
        inner = self.class_members.find_inner_class(base.unit, name)
        if inner is not None:
            return inner
        if name == "__dict__":
            return self.builtin_functions.namespace(base, st)
        if name == "_fields" and base.unit.is_named_tuple:
            return Tuple(tuple(map(Const, self.instances.fields(base.unit))))
        if name == "grad":
            return self.gradients.gradient(base, st)
        if name in self.run.late.get(base.name, ()):
            st.dead = True  # it is not there yet
            return UNKNOWN
        dynamic = self.from_getattr(base, name, st, node)
        return dynamic if dynamic is not None else self.instances.typed_attribute(base, name, st)

    def from_getattr(self, base: Instance, name: str, st: State, node: cst.CSTNode) -> Value | None:
        """What an object's ``__getattr__`` gives for an attribute that it does not have."""
        own = self.class_members.own_method(base, "__getattr__") if not name.startswith("__") else None
        if own is None or any(a.unit is own.unit for a in self.run.stack):
            return None
        found = self.functions.call_function(own, [Const(name)], {}, st, node)
        return found if found != UNKNOWN and not st.dead else None

    def stored_gradient(self, owner: Object, st: State) -> Tensor:
        """The gradient of a parameter: what backward() wrote, the part of it that is this parameter's.

        Two parameters of one loop over the same list are not the same memory; another loop reaches them again. What
        was brought to the host has its gradient there, which no backward pass of the device writes.
        """
        if st.store.marked(owner.name, fields.COPIED_TO_HOST):
            there = Tensor(owner.name.child("gradient"))
            self.memory.set_place(st, there, "pageable")
            return there
        which = owner.part if isinstance(owner, Span) else None
        return Tensor(GRADIENTS, part=parts.of_object(owner.name, "gradient", which))

    def main_gradient(self, owner: Object) -> Tensor:
        """What a parameter's gradients are added to beside ``.grad``: only a loop shows which parameter's it is."""
        which = owner.part if isinstance(owner, Span) else None
        iterated = owner.name.site == EACH
        return Tensor(
            MAIN_GRADIENTS, part=parts.of_object(owner.name, "gradient", which) if iterated else None
        )

    # -- parameters of modules -----------------------------------------------------------------------------------

    def every_parameter(self, module: Name) -> Opaque:
        """A parameter that a loop over all parameters of a module has reached."""
        self.run.moved_parameters = True
        return Opaque(module.child(PARAMETERS).child(EACH))

    @staticmethod
    def is_parameter(value: Value, st: State) -> bool:
        """Whether a tensor was made a parameter."""
        return any(
            isinstance(v, Object) and st.store.marked(v.name, fields.MODULE_PARAMETER) for v in iterate(value)
        )

    def parameter_of(self, module: Name, st: State) -> Value | None:
        """A parameter of a module as loops over all of them have left it; None where none has changed them."""
        if not self.run.moved_parameters:
            return None
        for kept, touched in self.modules_around(module, st):
            data = st.store.get((kept.child(PARAMETERS).child(ITERATED), "data"))
            if data is not None:
                return data
            element = touched.child(PARAMETERS).child(EACH)
            if element in st.order.made:
                return Opaque(element)
        return None

    def reach_weights(self, module: Name, element: Name, st: State) -> None:
        """A loop over all parameters of a module also reaches those that were used by their names."""
        held = st.store.of(module).values()
        modules = {module, *(v.name for value in held for v in iterate(value) if isinstance(v, Object))}
        for buffer, table in list(st.order.made.items()):
            if not isinstance(buffer, Name) or buffer.parent is None or type(buffer.site) is not str:
                continue
            if not spelled(hints.PARAMETER, buffer.site):
                continue
            if any(name in modules for name, _ in self.modules_around(buffer.parent, st)):
                moved = ((made._replace(buffer=element), ways) for made, ways in table.items())
                st.order.made[element] = Accesses({**dict(moved), **st.order.accesses(element)})

    @staticmethod
    def modules_around(module: Name, st: State) -> Iterator[tuple[Name, Name]]:
        """A module and those it is a part of, and the elements of loops over their parts.

        Yields:
            Each by the name under which is kept what is known of it, and that of its memory.
        """
        seen: set[Name] = set()
        stack = [module]
        while stack:
            for name in stack.pop().chain():
                if name in seen:
                    continue
                seen.add(name)
                yield name, name
                for parts_ in ("modules()", "children()"):
                    yield name.child(parts_).child(ITERATED), name.child(parts_).child(EACH)
                holder = st.store.one(name, fields.PART_OF)
                if holder is not None:
                    stack.append(holder.name)
