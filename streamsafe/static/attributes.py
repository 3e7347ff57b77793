"""Attributes, and assignment to names, attributes and elements.

One file: reading and assigning an attribute or an element follow the same rules of aliases, in both directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Accesses, Guard
from streamsafe.static import apis, element_keys, hints, parts, sequences
from streamsafe.static.concrete import spelled
from streamsafe.static.containers import Containers
from streamsafe.static.facts import GRADIENTS, MAIN_GRADIENTS, Site
from streamsafe.static.source import ClassUnit, FunctionUnit, Slice
from streamsafe.static.state import State
from streamsafe.static.values import (
    EACH,
    ITERATED,
    NONE,
    PARAMETERS,
    PLAIN,
    POINTER,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Device,
    Event,
    Function,
    Generator,
    Graph,
    Instance,
    Method,
    Name,
    Object,
    Opaque,
    Partial,
    Span,
    Stream,
    Super,
    Tensor,
    Tuple,
    Union,
    Value,
    Work,
    alternatives,
    is_iterated_parameter,
    iterate,
    union,
    up_to_date,
)

MOST_ROWS = 8
"""Of how many rows at most it is known which of them is unpacked."""
_ORDERING = (Stream, Event, Work, Graph)
WHOLE = Partial(Api("builtins.slice"), (NONE, NONE, NONE), ())
"""``[:]``."""


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


class Attributes(Containers):
    """Attributes, and assignment to names, attributes and elements."""

    # declared here, implemented further down the chain

    @property
    def default_library(self) -> str: ...

    def identified_number(self, name: str, value: Value, st: State, node: cst.CSTNode) -> Value: ...

    def mark_tensor(self, st: State, value: Object) -> None: ...

    def device_of(self, base: Object, st: State) -> Value: ...

    def is_cuda(self, base: Object, st: State) -> Value: ...

    def is_cuda_of_some(self, choices: Sequence[tuple[Value, Guard]], st: State) -> bool: ...

    def on_cuda(self) -> Opaque: ...

    def shape_of(self, tensor: Tensor) -> Value: ...

    def goes_on(self, choices: list[tuple[Value, Guard]], st: State) -> None:
        """None has no attributes: where the program goes on the value is something else."""

    def new_condition(self, key: Hashable, names: tuple[Name, ...]) -> int | None: ...

    def api_attribute(self, base: Api, name: str, st: State, node: cst.CSTNode) -> Value: ...

    def fields(self, unit: ClassUnit) -> list[str]: ...

    def drained(self, value: Value, st: State, node: cst.CSTNode) -> Container: ...

    def query_stream(self, st: State, stream: Stream, site: Site) -> Value: ...

    def query_event(self, st: State, choices: Sequence[tuple[Event, Guard]], site: Site) -> Value: ...

    def namespace(self, instance: Instance, st: State) -> Container: ...

    def unit(self, name: str) -> FunctionUnit | ClassUnit | None: ...

    def class_level(self, found: tuple[Slice, cst.BaseExpression], st: State) -> Value: ...

    def bind(self, name: str, value: Value, st: State) -> None: ...

    def scope_of(self, name: str, st: State) -> Name: ...

    def call_it(self, name: Name, text: str) -> None: ...

    def in_place(
        self,
        st: State,
        target: Value,
        operands: list[Value],
        site: Site,
        text: str,
        tags: frozenset[str] = frozenset(),
    ) -> None: ...

    # -- attributes ----------------------------------------------------------------------------------------------

    def _attribute(self, node: cst.Attribute, st: State) -> Value:
        return self.attribute(self.eval(node.value, st), node.attr.value, st, node)

    def attribute(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        """``base.name``."""
        choices = alternatives(base, st.path)
        self.goes_on(choices, st)
        if name == "is_cuda" and len(choices) > 1 and self.is_cuda_of_some(choices, st):
            return self.on_cuda()
        found = [(self._attribute_in_round(inner, name, st, node), guard) for inner, guard in choices]
        if len(found) == 1 and (type(found[0][0]) is not Union or found[0][1] is ALWAYS):
            return found[0][0]
        return union(found) if found else UNKNOWN

    def _attribute_in_round(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        value = self._attribute_of(base, name, st, node)
        return element_keys.in_rounds(value, parts.rounds(base.part)) if isinstance(base, Span) else value

    def _attribute_of(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        if isinstance(base, Api):
            return self.api_attribute(base, name, st, node)
        if isinstance(base, Tensor):
            return self.tensor_attribute(base, name, st, node)
        if isinstance(base, Instance):
            return self.instance_attribute(base, name, st, node)
        if isinstance(base, Opaque):
            held = st.store.get((base.name, name))
            if held is not None:
                return held
            if name == "grad":
                return self.gradient(base, st)
            if name == apis.MAIN_GRADIENT:
                return self.main_gradient(base)
            if name == "param_groups":  # where capturable may be set later
                st.store.pop((base.name, "@uncapturable"), None)
            if name in apis.VIEW_ATTRIBUTES and (self.is_tensor(st, base) or name in ("data", "mT")):
                return self.view(st, base)
            if spelled(hints.PARAMETER, name):
                parameter = self.parameter_of(base.name, st)
                if parameter is not None:
                    return parameter
            if name == "device":
                return self.device_of(base, st)
            if name == "is_cuda":
                return self.is_cuda(base, st)
            part = base.name.child(name)
            if name in apis.METADATA_ATTRIBUTES:
                self.plain.add(part.base())
            return Opaque(part)
        if isinstance(base, Device):
            if name == "type":
                return Const(base.kind) if base.kind else base
            return PLAIN
        if isinstance(base, Class):
            return self.class_attribute(base.unit, name, st)
        if isinstance(base, (Stream, Event)) and name in ("ptr", "cuda_stream", "device", "stream_id"):
            return base if name in ("ptr", "cuda_stream") else PLAIN
        if isinstance(base, Stream) and name == "done":
            return self.query_stream(st, base, self.site(node))
        if isinstance(base, Event) and name == "done":
            return self.query_event(st, [(base, ALWAYS)], self.site(node))
        if isinstance(base, Object):
            held = st.store.get((base.name, name))
            if held is not None:
                return held
        if isinstance(base, Const):
            return PLAIN
        if isinstance(base, Function):
            held = st.store.get((self.function_name(base), name))
            return held if held is not None else Method(base, name)
        if isinstance(base, Partial) and base.function == POINTER:
            return base
        if name == "is_cuda":
            return self.on_cuda()
        return Method(base, name)

    def tensor_attribute(self, base: Tensor, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a tensor: a view, metadata, a gradient, or what was assigned to it."""
        held = st.store.get((base.name, name))
        if held is not None:
            return held
        if name == "grad":
            return self.gradient(base, st)
        if name == apis.MAIN_GRADIENT:
            return self.main_gradient(base)
        if name in apis.VIEW_ATTRIBUTES:
            return self.view(st, base)
        if name in apis.RESULT_FIELDS:
            return base
        if name == "device":
            return self.device_of(base, st)
        if name == "is_cuda":
            return self.is_cuda(base, st)
        if name in apis.METADATA_ATTRIBUTES or name == "size":
            return PLAIN
        if name == "shape":
            return self.shape_of(base)
        if name == "strides":
            return UNKNOWN
        return Method(base, name)

    def instance_attribute(self, base: Instance, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of an instance: assigned, or found in its class."""
        held = st.store.get((base.name, name))
        if self.moved_parameters and (held is None or self.is_parameter(held, st)):
            parameter = self.parameter_of(base.name, st) if held or spelled(hints.PARAMETER, name) else None
            if parameter is not None:
                return parameter
        if held is not None:
            return held
        found = self.find_method(base.unit, name)
        if found is not None:
            base = self.bound_to(base)
            if found.is_property:
                value = self.call_function(Function(found, None, base), [], {}, st, node)
                if found.is_kept and not st.dead:
                    st.store[(base.name, name)] = value
                return value
            if found.is_static:
                return Function(found)
            return Function(found, None, base)
        if self.find_class_attribute(base.unit, name) is not None and name not in base.unit.annotations:
            return self.class_attribute(base.unit, name, st)
        inner = self.find_inner_class(base.unit, name)
        if inner is not None:
            return inner
        if name == "__dict__":
            return self.namespace(base, st)
        if name == "_fields" and base.unit.is_named_tuple:
            return Tuple(tuple(map(Const, self.fields(base.unit))))
        if name == "grad":
            return self.gradient(base, st)
        if name in self.late.get(base.name, ()):
            st.dead = True  # it is not there yet
            return UNKNOWN
        asked = self.asked_for(base, name, st, node)
        return asked if asked is not None else self.typed_attribute(base, name, st)

    def asked_for(self, base: Instance, name: str, st: State, node: cst.CSTNode) -> Value | None:
        """What an object's ``__getattr__`` gives for an attribute that it does not have."""
        own = self.own_method(base, "__getattr__") if not name.startswith("__") else None
        if own is None or any(a.unit is own.unit for a in self.stack):
            return None
        found = self.call_function(own, [Const(name)], {}, st, node)
        return found if found != UNKNOWN and not st.dead else None

    def gradient(self, owner: Object, st: State) -> Tensor:
        """The gradient of a parameter: what backward() wrote, the part of it that is this parameter's.

        Two parameters of one loop over the same list are not the same memory; another loop reaches them again. What
        was brought to the host has its gradient there, which no backward pass of the device writes.
        """
        if (owner.name, "@brought") in st.store:
            there = Tensor(owner.name.child("gradient"))
            self.set_place(st, there, "pageable")
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
        self.moved_parameters = True
        return Opaque(module.child(PARAMETERS).child(EACH))

    @staticmethod
    def is_parameter(value: Value, st: State) -> bool:
        """Whether a tensor was made a parameter."""
        return any(isinstance(v, Object) and (v.name, "@parameter") in st.store for v in iterate(value))

    def parameter_of(self, module: Name, st: State) -> Value | None:
        """A parameter of a module as loops over all of them have left it; None where none has changed them."""
        if not self.moved_parameters:
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
                holder = st.store.get((name, "@part of"))
                if isinstance(holder, Object):
                    stack.append(holder.name)

    def typed_attribute(self, base: Instance, name: str, st: State) -> Value:
        """An attribute that is not seen assigned: its annotation in the class may tell what it is."""
        return Opaque(base.name.child(name))

    def ancestry(self, unit: ClassUnit) -> Iterator[ClassUnit]:
        """A class and its bases in the file, each once."""
        seen: set[int] = set()
        stack = [unit]
        while stack:
            found = stack.pop()
            if id(found) in seen:
                continue
            seen.add(id(found))
            yield found
            parents = [self.unit(base) for base in found.bases]
            stack.extend(p for p in reversed(parents) if isinstance(p, ClassUnit))

    def find_method(self, unit: ClassUnit, name: str) -> FunctionUnit | None:
        """A method of a class or of its bases in the file."""
        if name in unit.methods:
            return unit.methods[name]
        return next((u.methods[name] for u in self.ancestry(unit) if name in u.methods), None)

    @staticmethod
    def bound_to(value: Instance) -> Instance:
        """What a method gets that was found on an object: of ``super()`` the object itself."""
        return Instance(value.name, value.whole, part=value.part) if isinstance(value, Super) else value

    def find_setter(self, unit: ClassUnit, name: str) -> FunctionUnit | None:
        """What an assignment to a property calls."""
        if name in unit.setters:
            return unit.setters[name]
        return next((u.setters[name] for u in self.ancestry(unit) if name in u.setters), None)

    @staticmethod
    def function_name(function: Function) -> Name:
        """The object that a function is: attributes may be assigned to it."""
        return Name((id(function.unit.node), "function"), (), function.frame)

    def own_method(self, value: Value, name: str) -> Function | None:
        """A method of an instance of a class of the file, where it or a base defines one."""
        found = self.find_method(value.unit, name) if isinstance(value, Instance) else None
        return Function(found, None, value) if found is not None else None

    def find_class_attribute(self, unit: ClassUnit, name: str) -> tuple[Slice, cst.BaseExpression] | None:
        """A class-level assignment, in the class or its bases."""
        return next(
            ((u.slice, u.attributes[name]) for u in self.ancestry(unit) if name in u.attributes), None
        )

    def find_inner_class(self, unit: ClassUnit, name: str) -> Class | None:
        """A class that stands in the body of a class or of its bases."""
        return next((Class(u.classes[name]) for u in self.ancestry(unit) if name in u.classes), None)

    def class_attribute(self, unit: ClassUnit, name: str, st: State) -> Value:
        """``Class.name``."""
        method = self.find_method(unit, name)
        if method is not None:
            return Function(method, None, Class(unit) if method.is_classmethod else None)
        held = st.store.get((Name(f"class {unit.name}"), name))
        if held is not None:
            return held
        inner = self.find_inner_class(unit, name)
        if inner is not None:
            return inner
        expression = self.find_class_attribute(unit, name)
        if expression is not None and not unit.is_enumeration:
            value = st.store[(Name(f"class {unit.name}"), name)] = self.class_level(expression, st)
            return value
        return Opaque(Name(f"class {unit.name}").child(name))

    # -- assignment ----------------------------------------------------------------------------------------------

    def assign(self, target: cst.BaseExpression, value: Value, st: State, node: cst.CSTNode) -> None:
        """``target = value``."""
        if type(target) is cst.Name:
            value = self.identified_number(target.value, value, st, node)
            value = self.one_row(value, st, target, Instance)
            if hints.names_host(target.value):
                self.given_by_unseen(value, st)
            if isinstance(value, Object):
                self.call_it(value.name, target.value)
            elif isinstance(value, Union):
                for inner in iterate(value):
                    if isinstance(inner, Object):
                        self.call_it(inner.name, target.value)
            self.rebound_input(st, (self.scope_of(target.value, st), target.value), value, self.site(node))
            self.bind(target.value, value, st)
        elif isinstance(target, (cst.Tuple, cst.List)):
            self._unpack(target, value, st, node)
        elif type(target) is cst.Attribute:
            self.assign_attribute(target, value, st, node)
        elif type(target) is cst.Subscript:
            self._assign_subscript(target, value, st)
        elif type(target) is cst.StarredElement:
            self.assign(target.value, UNKNOWN, st, node)

    def given_by_unseen(self, value: Value, st: State) -> None:
        """What a call that is not seen gave is memory of the host if it is named so."""
        if isinstance(value, Opaque) and value.name.base() in self.results and not self.place(st, value):
            self.set_place(st, value, "pageable")

    def _unpack(self, target: cst.Tuple | cst.List, value: Value, st: State, node: cst.CSTNode) -> None:
        value = union((_busy(v), guard) for v, guard in alternatives(self.one_row(value, st, target, Tuple)))
        if isinstance(value, (Partial, Generator, Instance)):
            value = self.listed(value, st, node)
        # what comes beside its graph is where that writes, not what it has computed
        naming, self.naming = self.naming, not any(isinstance(v, Graph) for v in self.leaves(value, st))
        self.stack[-1].held.append(value)
        self._unpack_into(target, value, st, node)
        self.stack[-1].held.pop()
        self.naming = naming

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
        used = [{t.name for t, _ in self.tensors(st, row) if t.name in st.order.made} for row, _ in choices]
        idle = _idle(held, used) if kind is Tuple else []
        if any(idle):
            kept = [choice for choice, nothing in zip(choices, idle, strict=True) if not nothing]
            return self.one_row(union(kept), st, target, kind)
        if kind is Instance:  # what several objects share they may use as they like
            used = [{t.name for t, _ in self.tensors(st, row)} for row, _ in choices]
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
            key = ("row", id(target), number, self.stack[-1].path)
            bit = self.conditions.get(key) or self.new_condition(key, ())
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
        held = (t for row, _ in choices for t, _ in self.tensors(st, row))
        return any(isinstance(t, Tensor) or self.is_tensor(st, t) for t in held)

    def listed(self, value: Value, st: State, node: cst.CSTNode) -> Value:
        """The elements that unpacking iterates over: of a generator what it yields."""
        if isinstance(value, Generator) or self.own_method(value, "__iter__"):
            return self.drained(value, st, node)
        items = self.known_items(value, st)
        return value if items is None else Tuple(tuple(items))

    def _unpack_into(self, target: cst.Tuple | cst.List, value: Value, st: State, node: cst.CSTNode) -> None:
        last: int | None = None
        for position, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                after = len(target.elements) - position - 1
                self.assign(element.value, self._rest(value, position, after, st), st, node)
                last = after
                continue
            if last is not None:  # what comes after the starred one is counted from the end
                items = self.known_items(value, st)
                item = self.element(value, Const(-last), st) if items is None else items[-last]
                self.assign(element.value, item, st, node)
                last -= 1
                continue
            item = self.element(value, Const(position), st)
            if isinstance(value, (Tensor, Container)) and item == UNKNOWN:
                if isinstance(value, Tensor):
                    item = replace(value, part=self.picked(value.part, [Const(position)], st))
                else:
                    item = self.any_element(value, st)
            self.assign(element.value, item, st, node)

    def _rest(self, value: Value, before: int, after: int, st: State) -> Value:
        """What a starred name takes: the elements between those that the other names take."""
        items = self.known_items(value, st)
        if items is not None:
            return Tuple(tuple(items[before : len(items) - after]))
        if isinstance(value, (Tensor, Container)):
            return Tuple((value if isinstance(value, Tensor) else self.any_element(value, st),))
        return UNKNOWN

    def assign_attribute(self, target: cst.Attribute, value: Value, st: State, node: cst.CSTNode) -> None:
        """``base.name = value``: on a tensor ``.data`` and ``.grad`` hand over the memory."""
        base = self.eval(target.value, st)
        name = target.attr.value
        self.set_attribute(base, name, value, st, node)
        if isinstance(value, Object):
            self.call_it(value.name, self._target_text(target))

    def set_attribute(self, base: Value, name: str, value: Value, st: State, node: cst.CSTNode) -> None:
        """An object's attribute means this value from now on."""
        many = isinstance(base, Union)
        if name == "shape" and isinstance(value, Tuple) and Const(-1) in value.items:
            rest = self.fresh(node, st, "size")  # what is left
            self.plain.add(rest.base())
            value = Tuple(tuple(Opaque(rest) if size == Const(-1) else size for size in value.items))
        for inner, guard in alternatives(base, st.path):
            owner = Name(f"class {inner.unit.name}") if isinstance(inner, Class) else None
            if isinstance(inner, Function):
                owner = self.function_name(inner)
            if isinstance(inner, Object):
                owner = inner.name
                setter = self.find_setter(inner.unit, name) if isinstance(inner, Instance) else None
                if setter is not None and not any(a.unit is setter for a in self.stack):
                    self.call_function(Function(setter, None, inner), [value], {}, st, node)
                    continue
            if owner is None:
                continue
            if name == "data" and is_iterated_parameter(owner):  # of which there is none but tensors
                for held in (v for v in iterate(value) if isinstance(v, Object)):
                    self.mark_tensor(st, held)
            whose = parts.object_of(inner.part) if isinstance(inner, Tensor) and name == "data" else None
            key = (owner, name) if whose is None else (whose, "grad")
            self.rebound_input(st, key, value, self.site(node))
            if st.graphs and isinstance(value, Object):
                if name == "data":
                    self.replaced_memory(st, owner, value, self.site(node))
                elif isinstance(inner, Opaque) and spelled(hints.PARAMETER, name):
                    self.replaced_memory(st, owner.child(name), value, self.site(node))
            old = st.store.get(key)
            if name == "grad" and (old is None or self._may_be_of_another(old, inner)):
                old = self.gradient(inner, st) if isinstance(inner, Object) else None
            if old is None and isinstance(inner, Tensor) and name == "data":
                old = replace(inner, view=True)
            if old is not None:
                self.lose(st, old)
            if isinstance(old, Tensor) and old.name == GRADIENTS and value == NONE:
                if self._keeps_gradient(key, st):
                    taken = self.fresh(node, st, "taken")
                    st.rename(lambda name, new=taken: new if name is GRADIENTS else name, {GRADIENTS})  # type: ignore[misc]
                elif (GRADIENTS, "@allocated") in st.store:
                    self.release(st, GRADIENTS, self.site(node))
                elif isinstance(inner, Span) and element_keys.is_iterated(inner):
                    st.order.drop(GRADIENTS)  # as that of the element before
            if many and old is not None:
                value_here = union([(value, guard), (old, ALWAYS)])
            else:
                value_here = value
            st.store[key] = value_here
            self.gradients_given |= name == "grad" and value != NONE
            self.holds(owner)
            if (
                isinstance(inner, Instance)
                and isinstance(value, (Instance, Opaque))
                and not value.name.parent
            ):
                st.store[(value.name, "@part of")] = inner

    def _keeps_gradient(self, owner: tuple[Name, Hashable], st: State) -> bool:
        """Whether a name still means the gradient that an attribute is about to lose: no later pass writes that one."""
        frame = self.stack[-1].frame
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
        base = self.eval(target.value, st)
        keys = self.keys_of(target, st)
        if len(keys) > 1 and all(map(self.is_mapping, iterate(base))):
            keys = [Tuple(tuple(keys))]
        tensors = [
            (v, g)
            for v, g in alternatives(base, st.path)
            if (isinstance(v, Tensor) and (v.numpy or not self.is_named(keys)))
            or (
                isinstance(v, Opaque)
                and (v.name, "@collection") not in st.store
                and (self.looks_like_tensor(keys) or self.is_indexed(st, v, base, keys))
            )
        ]
        if tensors:
            for picked, _ in tensors:
                if not (isinstance(picked, Tensor) and picked.numpy):
                    self.picks_by_list(st, picked, keys, self.site(target))
            views = union(
                (
                    replace(v, part=self.picked(v.part, keys, st))
                    if isinstance(v, Tensor)
                    else Tensor(v.name, part=self.picked(v.part, keys, st)),
                    g,
                )
                for v, g in tensors
            )
            self.in_place(st, views, [value, *keys], self.site(target), "item assignment")
        elif any(self.own_method(v, "__setitem__") for v in iterate(base)):
            key = keys[0] if len(keys) == 1 else Tuple(tuple(keys))
            for inner in iterate(base):
                own = self.own_method(inner, "__setitem__")
                if own is not None:
                    self.call_function(own, [key, value], {}, st, target)
        elif keys == [WHOLE] and isinstance(base, Container) and base.kind == "list":
            for old in self.held(base, st):
                self.lose(st, old)
            sequences.put(st, base, [])
            self.extend_container(st, base, value)
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
                    self.rebound_input(st, (inner.name, named), value, self.site(target))
                elif isinstance(inner, Container) and inner.kind != "set":
                    self.rebound_elements(st, inner, value, self.site(target))
                if st.graphs and isinstance(inner, Container) and self.is_of_round(keys[0]):
                    self.keep_output(st, inner, self.held(inner, st), value, self.site(target))
            self.store_element(base, keys[0], value, st)

    def is_of_round(self, key: Value) -> bool:
        """Whether a key is one that each round of the loop has anew."""
        return bool(self.rounds) and isinstance(key, Opaque) and key.name.root().newest() in self.rounds[-1]

    @staticmethod
    def looks_like_tensor(keys: list[Value]) -> bool:
        """Whether a subscript is of the kind that only arrays take: a slice or several indices."""
        return len(keys) > 1 or any(isinstance(k, Partial) for k in keys)

    def delete(self, target: cst.BaseExpression, st: State, node: cst.CSTNode) -> None:
        """``del target``."""
        if isinstance(target, cst.Name):
            self.rebound_input(st, (self.stack[-1].frame, target.value), NONE, self.site(node))
            old = st.store.pop((self.stack[-1].frame, target.value), None)
            if old is not None:
                self.lose(st, old)
        elif isinstance(target, cst.Attribute):
            base = self.eval(target.value, st)
            for inner in iterate(base):
                if isinstance(inner, Object):
                    self.rebound_input(st, (inner.name, target.attr.value), NONE, self.site(node))
                    old = st.store.get((inner.name, target.attr.value))
                    st.store[(inner.name, target.attr.value)] = NONE
                    if old is not None:
                        self.lose(st, old)
        elif isinstance(target, cst.Subscript):
            base = self.eval(target.value, st)
            for inner in iterate(base):
                if isinstance(inner, Container):
                    index = target.slice[0].slice
                    key_value = self.eval(index.value, st) if isinstance(index, cst.Index) else UNKNOWN
                    if self.remove(inner, key_value, st):
                        continue
                    sequences.blur(st, inner)
                    sequences.set_keys(st, inner, None)
                    for key, old in list(st.store.of(inner.name).items()):
                        if not (isinstance(key, str) and key.startswith("@")):
                            self.lose(st, old)
                            del st.store[(inner.name, key)]

    def remove(self, container: Container, key: Value, st: State) -> bool:
        """Take one element out of a list or dict that is known well enough; whether it was."""
        known = sequences.items(st, container)
        if known is not None and isinstance(key, Const) and type(key.value) is int:
            if -len(known) <= key.value < len(known):
                self.lose(st, known.pop(key.value))
                sequences.put(st, container, known)
                return True
        names = sequences.keys(st, container)
        index = element_keys.key_of(key)
        if names is not None and index in names:
            sequences.set_keys(st, container, names - {index})
            self.lose(st, st.store.pop((container.name, index), NONE))
            return True
        return False


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
