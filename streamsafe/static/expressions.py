"""Expressions: names, attributes, elements, operators, conditions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import apis, parts, sequences
from streamsafe.static.capture import Captures
from streamsafe.static.effects import ANY, EACH, GRADIENTS, HOOK, Assumed, Site
from streamsafe.static.source import ClassUnit, FunctionUnit, Slice, SourceFile
from streamsafe.static.state import State
from streamsafe.static.values import (
    NONE,
    PLAIN,
    POINTER,
    UNKNOWN,
    Api,
    Class,
    Clock,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Instance,
    Method,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    aging,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.interpreter import Activation

Outcomes = list[tuple[bool, Guard]]
BOTH: Outcomes = [(True, ALWAYS), (False, ALWAYS)]
MAX_CONDITIONS = 48
MAX_DECIDED = 6
MODULE = Name("module")


class Expressions(Captures):
    """Evaluates expressions.

    Args:
        file: the source.
    """

    stack: list[Activation]

    def __init__(self, file: SourceFile) -> None:
        super().__init__()
        self.file = file
        self.closures: dict[Name, Name] = {}
        self.closed.add(MODULE)
        self.rounds: list[set[Name]] = []
        self.conditions: dict[Hashable, int] = {}
        self.mentions: dict[int, tuple[Name, ...]] = {}
        self.units: dict[str, FunctionUnit | ClassUnit | None] = {}
        self.globals_under_way: set[str] = set()
        self.texts: dict[Name, str] = {}
        self.exhausted = 0
        self.counting = 0  # loops under way whose count is not known, and of which a few rounds are interpreted

    def site(self, node: cst.CSTNode) -> Site:
        """A node of the current slice, as a place."""
        raise AssertionError

    def site_in(self, slice_: Slice, node: cst.CSTNode) -> Site:
        """A node of a slice, as a place."""
        raise AssertionError

    # -- objects -------------------------------------------------------------------------------------------------

    def fresh(self, node: cst.CSTNode, st: State, what: Hashable = "") -> Name:
        """The name of an object made here; an object made here before has aged."""
        name = Name((id(node), what), self.stack[-1].path[-4:] if self.stack else ())
        if (name, "@made") in st.store:
            self.age(st, {name})
        st.store[(name, "@made")] = PLAIN
        self.made_here.add(name)
        for names in self.rounds:
            names.add(name)
        return name

    def age(self, st: State, names: set[Name]) -> None:
        """The newest objects of these names become those of the round before."""
        if not names:
            return
        bits = 0
        for bit, mentioned in self.mentions.items():
            if any(n._replace(age=0) in names for name in mentioned for n in name.chain()):
                bits |= bit
        st.forget(bits)
        renaming = aging(names)
        st.rename(renaming, lambda name: renaming(name) is not name)
        self.candidates = [renaming(name) for name in self.candidates]
        for name in list(names):
            st.store.pop((name, "@made"), None)

    def is_opaque(self, name: Name) -> bool:
        """Whether attributes of this object exist although nothing was seen assigned to them."""
        return name.base() not in self.closed

    def describe(self, value: Value) -> str:
        """How a user would name an object."""
        if isinstance(value, Object):
            return self.name_text(value.name, "stream" if isinstance(value, Stream) else "")
        return "a value"

    def name_text(self, name: Name, kind: str = "") -> str:
        """How a user would write a name."""
        base = name._replace(age=0)
        if base in self.texts:
            return self.texts[base]
        if name.parent is not None:
            parent = self.name_text(name.parent)
            if name.site == EACH:
                return f"an element of {parent}"
            if isinstance(name.site, str):
                return f"{parent}.{name.site}"
            return f"{parent}[...]"
        if name.site == "ambient":
            return "the current stream" if kind else "ambient"
        if isinstance(name.site, str):
            return name.site
        return "a stream" if kind else "a tensor"

    def call_it(self, name: Name, text: str) -> None:
        """Remember how a user names an object: its first name wins."""
        base = name._replace(age=0)
        if base.parent is None and not isinstance(base.site, str):
            self.texts.setdefault(base, text)

    # -- names ---------------------------------------------------------------------------------------------------

    def lookup(self, name: str, st: State) -> Value:
        """What a name means here."""
        frame: Name | None = self.stack[-1].frame
        if name in self.stack[-1].outer:
            frame = self.closures.get(frame) if frame else None
        while frame is not None:
            found = st.store.get((frame, name))
            if found is not None:
                return found
            frame = self.closures.get(frame)
        return self.lookup_global(name, st)

    def lookup_global(self, name: str, st: State) -> Value:
        """A module-level name: a definition, an import, an assignment that is interpreted when first asked for."""
        found = st.store.get((MODULE, name))
        if found is not None:
            return found
        unit = self.unit(name)
        if isinstance(unit, FunctionUnit):
            return self.function_value(unit, name, st)
        if isinstance(unit, ClassUnit):
            return Class(unit)
        if name in self.file.imports:
            return Api(apis.canonical(self.file.imports[name]))
        bindings = self.file.bindings.get(name, [])
        if bindings and name not in self.globals_under_way:
            if len(bindings) == 1 and isinstance(bindings[0], (ast.Assign, ast.AnnAssign)):
                self.globals_under_way.add(name)
                try:
                    self.interpret_global(bindings[0], st)
                finally:
                    self.globals_under_way.discard(name)
                found = st.store.get((MODULE, name))
                if found is not None:
                    return found
            return Opaque(Name(name))
        if name in apis.BUILTINS:
            return Api(f"builtins.{name}")
        return Opaque(Name(name))

    def interpret_global(self, statement: ast.stmt, st: State) -> None:
        """Interpret a module-level assignment."""
        raise AssertionError

    def function_value(self, unit: FunctionUnit, name: str, st: State) -> Value:
        """A top-level function, behind its decorators."""
        raise AssertionError

    def unit(self, name: str) -> FunctionUnit | ClassUnit | None:
        """A top-level function or class of the file."""
        raise AssertionError

    # -- evaluation ----------------------------------------------------------------------------------------------

    def eval(self, node: cst.BaseExpression, st: State) -> Value:
        """What an expression stands for; what it does happens to ``st``."""
        handler = _EXPRESSIONS.get(type(node))
        return handler(self, node, st) if handler is not None else UNKNOWN

    def _name(self, node: cst.Name, st: State) -> Value:
        if node.value in _CONSTANTS:
            return _CONSTANTS[node.value]
        return self.lookup(node.value, st)

    def _literal(self, node: cst.BaseExpression, _: State) -> Value:
        try:
            return Const(node.evaluated_value)  # type: ignore[attr-defined]
        except (ValueError, SyntaxError, AttributeError):
            return PLAIN

    def _formatted(self, node: cst.FormattedString, st: State) -> Value:
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                self.read_on_host(st, self.eval(part.expression, st), self.site(part), "formatting")
        return PLAIN

    def _concatenated(self, node: cst.ConcatenatedString, st: State) -> Value:
        self.eval(node.left, st)
        self.eval(node.right, st)
        return PLAIN

    def _tuple(self, node: cst.Tuple, st: State) -> Value:
        if any(isinstance(e, cst.StarredElement) for e in node.elements):
            items = []
            for element in node.elements:
                value = self.eval(element.value, st)
                if isinstance(element, cst.StarredElement):
                    if isinstance(value, Tuple):
                        items.extend(value.items)
                        continue
                    return self.container(node, st, "list", [*items, self.any_element(value, st)])
                items.append(value)
            return Tuple(tuple(items))
        return Tuple(tuple(self.eval(e.value, st) for e in node.elements))

    def _list(self, node: cst.List | cst.Set, st: State) -> Value:
        items = []
        exact = True
        for element in node.elements:
            value = self.eval(element.value, st)
            if isinstance(element, cst.StarredElement):
                exact = False
                value = self.any_element(value, st)
            items.append(value)
        return self.container(node, st, "list", items, exact=exact)

    def _dict(self, node: cst.Dict, st: State) -> Value:
        name = self.fresh(node, st, "dict")
        self.closed.add(name)
        sequences.set_keys(st, Container(name, "dict"), ())
        for element in node.elements:
            value = self.eval(element.value, st)
            if isinstance(element, cst.DictElement):
                key = self.eval(element.key, st)
                self.store_element(Container(name, "dict"), key, value, st)
            else:
                self.store_element(Container(name, "dict"), UNKNOWN, self.any_element(value, st), st)
        return Container(name, "dict")

    def container(
        self, node: cst.CSTNode, st: State, kind: str, items: list[Value], *, exact: bool = True
    ) -> Container:
        """A list with these elements."""
        name = self.fresh(node, st, kind)
        self.closed.add(name)
        if exact:
            for position, value in enumerate(items):
                st.store[(name, position)] = value
            st.store[(name, "@length")] = Const(len(items))
            self.joins(Container(name, kind), items)
        elif items:
            st.store[(name, "*")] = union((v, ALWAYS) for v in items)
        return Container(name, kind)

    # -- elements ------------------------------------------------------------------------------------------------

    def held(self, container: Object, st: State) -> list[Value]:
        """Everything a container is known to hold."""
        table = st.store.of(container.name)
        return [value for key, value in table.items() if not (isinstance(key, str) and key.startswith("@"))]

    def any_element(self, value: Value, st: State) -> Value:
        """Some element."""
        if isinstance(value, Tuple):
            return union((v, ALWAYS) for v in value.items) if value.items else UNKNOWN
        if isinstance(value, Container):
            found = self.held(value, st)
            return union((v, ALWAYS) for v in found) if found else UNKNOWN
        if isinstance(value, Opaque):
            return Opaque(value.name.child(EACH))
        if isinstance(value, Partial):
            return UNKNOWN
        return UNKNOWN

    def each(self, iterable: Object, st: State, node: cst.CSTNode) -> Value:
        """The element of this round of a walk over the whole."""
        name = iterable.name.child(EACH)
        for names in self.rounds:
            names.add(name)
        if isinstance(iterable, Container):
            found = self.held(iterable, st)
            value = union((v, ALWAYS) for v in found) if found else UNKNOWN
            if any(isinstance(v, Const) and v == PLAIN for v in found) and not found:
                return PLAIN
            return self.element_view(iterable, EACH, value, st)
        if isinstance(iterable, Tensor):
            return Tensor(iterable.name, None, iterable.numpy)
        if isinstance(iterable, Instance):
            return UNKNOWN
        held = st.store.get((iterable.name, EACH)) or st.store.get((iterable.name, "*"))
        if held is not None:
            return held
        return self.typed_element(iterable, Opaque(name), st)

    def typed_element(self, container: Object, element: Opaque, st: State) -> Value:
        """An element of a container whose annotation says what it holds."""
        return element

    def element_view(self, container: Object, key: Hashable, value: Value, st: State) -> Value:
        """An element of which only the container's summary is known: streams and events get a name by their key."""
        kinds = {type(v) for v in iterate(value)}
        if len(kinds) == 1 and isinstance(value, Union):
            first = value.alternatives[0][0]
            name = container.name.child(key)
            if isinstance(first, Stream):
                if first.name in self.table.blocking:
                    self.table.blocking.add(name)
                return Stream(name, first.library)
            if isinstance(first, Event) and key != EACH:
                return Event(name, first.timing)
        return value

    def element(self, base: Value, key: Value, st: State) -> Value:
        """``base[key]``."""
        found = []
        for inner, guard in alternatives(base, st.path):
            found.append((self._element(inner, key, st), guard))
        return union(found) if found else UNKNOWN

    def _element(self, base: Value, key: Value, st: State) -> Value:
        if isinstance(base, Tuple):
            if isinstance(key, Const) and isinstance(key.value, int) and -len(base.items) <= key.value < len(base.items):
                return base.items[key.value]
            return union((v, ALWAYS) for v in base.items) if base.items else UNKNOWN
        if isinstance(base, Container):
            index = _key(key)
            if index is not None and (base.name, index) in st.store:
                return st.store[(base.name, index)]
            if isinstance(index, int) and index < 0:
                length = st.store.get((base.name, "@length"))
                if isinstance(length, Const) and (base.name, length.value + index) in st.store:
                    return st.store[(base.name, length.value + index)]
            count = sequences.length(st, base)
            if self.counting and isinstance(index, int) and count is not None and index >= count > 0:
                st.dead = True  # the count that is not known ends before
                return UNKNOWN
            found = self.held(base, st)
            if not found:
                return UNKNOWN
            return self.element_view(base, index if index is not None else ANY, union((v, ALWAYS) for v in found), st)
        if isinstance(base, Opaque):
            index = _key(key)
            if index is None:
                index = ANY
            elif isinstance(index, str):
                index = f"[{index!r}]"
            held = st.store.get((base.name, index))
            return held if held is not None else self.typed_element(base, Opaque(base.name.child(index)), st)
        return UNKNOWN

    def store_element(self, base: Value, key: Value, value: Value, st: State) -> None:
        """``base[key] = value`` for containers and objects."""
        for inner in iterate(base):
            index = _key(key)
            if isinstance(inner, Container):
                known = sequences.keys(st, inner)
                if known is not None:
                    certain = index is not None and base is inner
                    sequences.set_keys(st, inner, known | {index} if certain else None)
                if index is not None:
                    self.lose(st, st.store.get((inner.name, index), NONE))
                    st.store[(inner.name, index)] = value
                else:
                    sequences.blur(st, inner)
                    self.extend_container(st, inner, Tuple((value,)))
            elif isinstance(inner, Opaque):
                if index is None:
                    index = ANY
                elif isinstance(index, str):
                    index = f"[{index!r}]"
                self.lose(st, st.store.get((inner.name, index), NONE))
                st.store[(inner.name, index)] = value
                self.holds(inner.name)

    def joins(self, container: Object, items: list[Value]) -> None:
        """Remember the streams and events that a container has held."""
        for item in items:
            for member in iterate(item):
                if isinstance(member, (Stream, Event)):
                    self.members.setdefault(container.name.base(), set()).add(member.name.base())

    def extend_container(self, st: State, base: Value, added: Value) -> None:
        """Elements join a container, at its end as long as its length is known."""
        for inner in iterate(base):
            if not isinstance(inner, Container):
                continue
            exact = list(added.items) if isinstance(added, Tuple) else None
            if isinstance(added, Container):
                exact = sequences.items(st, added)
            new = exact if exact is not None else [self.any_element(added, st)]
            self.joins(inner, new)
            known = sequences.items(st, inner) if base is inner and exact is not None else None
            if known is not None and len(known) + len(new) <= sequences.LIMIT:
                sequences.put(st, inner, [*known, *new])
                continue
            sequences.blur(st, inner)
            old = st.store.get((inner.name, "*"))
            st.store[(inner.name, "*")] = union(
                [*([(old, ALWAYS)] if old is not None else []), *((v, ALWAYS) for v in new)]
            )

    def lose(self, st: State, value: Value) -> None:
        """These objects may have lost their last name."""
        for inner in iterate(value):
            if isinstance(inner, (Tensor, Opaque)):
                self.candidates.append(inner.name)
            if isinstance(inner, (Tuple, Container, Instance, Opaque)):
                self.candidates.extend(target.name for target, _ in self.tensors(st, inner))

    def _subscript(self, node: cst.Subscript, st: State) -> Value:
        base = self.eval(node.value, st)
        if isinstance(base, Function):  # the grid of a compiled kernel
            return Partial(base, (), (("@grid", Tuple(tuple(self._slice(e.slice, st) for e in node.slice))),))
        if isinstance(base, (Class, Api)):
            for element in node.slice:
                if isinstance(element.slice, cst.Index):
                    self.eval(element.slice.value, st)
            return base
        keys = [self._slice(e.slice, st) for e in node.slice]
        for key in keys:
            self.read_index(st, key, base, node)
        found: list[tuple[Value, Guard]] = []
        for inner, guard in alternatives(base, st.path):
            if isinstance(inner, Tensor) or (isinstance(inner, Opaque) and self.is_tensor(st, inner)):
                found.append((self.view_of(inner, keys, st, node), guard))
            elif len(keys) == 1 and isinstance(keys[0], Partial):  # a slice of a sequence
                sliced = _sliced(inner, keys[0], st)
                if sliced is not None:
                    found.append((sliced, guard))
                    continue
                found.append((inner if isinstance(inner, (Container, Opaque)) else UNKNOWN, guard))
            elif len(keys) == 1:
                found.append((self._element(inner, keys[0], st), guard))
            elif isinstance(inner, Opaque):
                found.append((Tensor(inner.name), guard))
            else:
                found.append((UNKNOWN, guard))
        return union(found) if found else UNKNOWN

    def _slice(self, part: cst.BaseSlice, st: State) -> Value:
        if isinstance(part, cst.Index):
            return self.eval(part.value, st)
        bounds = []
        assert isinstance(part, cst.Slice)
        for bound in (part.lower, part.upper, part.step):
            value = NONE if bound is None else self.eval(bound, st)
            if bound is not None and any(isinstance(v, Tensor) for v in iterate(value)):
                self.read_on_host(st, value, self.site(bound), "a slice's bound")
            bounds.append(value)
        return Partial(Api("builtins.slice"), tuple(bounds), ())

    def view_of(self, base: Object, keys: list[Value], st: State, node: cst.CSTNode) -> Value:
        """A view, or a gathered copy, of a tensor."""
        numpy = isinstance(base, Tensor) and base.numpy
        gathered = any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v))
            for key in keys
            for v in iterate(key)
        )
        if gathered and not numpy and any(self.is_mask(st, key) for key in keys):
            return self.masked(st, [base, *keys], node)
        if gathered and not numpy:
            return self.operation(st, [base, *keys], self.site(node), "indexing")
        whole = base if isinstance(base, Tensor) else Tensor(base.name)
        return replace(whole, part=parts.pick(whole.part, keys))

    def read_index(self, st: State, key: Value, base: Value, node: cst.CSTNode) -> None:
        """An index that is itself a tensor is read."""

    # -- attributes ----------------------------------------------------------------------------------------------

    def _attribute(self, node: cst.Attribute, st: State) -> Value:
        return self.attribute(self.eval(node.value, st), node.attr.value, st, node)

    def attribute(self, base: Value, name: str, st: State, node: cst.CSTNode) -> Value:
        """``base.name``."""
        found = []
        for inner, guard in alternatives(base, st.path):
            found.append((self._attribute_of(inner, name, st, node), guard))
        return union(found) if found else UNKNOWN

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
            if name in ("grad",):
                return Tensor(GRADIENTS)
            if name in apis.VIEW_ATTRIBUTES and (self.is_tensor(st, base) or name in ("data", "mT")):
                return Tensor(base.name)
            if name == "device":
                return Device({"device": "cuda", "pinned": "cpu", "pageable": "cpu"}.get(self.place(st, base), ""))
            return Opaque(base.name.child(name))
        if isinstance(base, Device):
            if name == "type":
                return Const(base.kind) if base.kind else PLAIN
            return PLAIN
        if isinstance(base, Class):
            return self.class_attribute(base.unit, name, st)
        if isinstance(base, (Stream, Event)) and name in ("ptr", "cuda_stream", "device", "stream_id"):
            return base if name in ("ptr", "cuda_stream") else PLAIN
        if isinstance(base, Stream) and name == "done":
            return self.query_stream(st, base, self.site(node))
        if isinstance(base, Event) and name == "done":
            return self.query_event(st, base, self.site(node))
        if isinstance(base, Object):
            held = st.store.get((base.name, name))
            if held is not None:
                return held
        if isinstance(base, Const):
            return PLAIN
        if isinstance(base, Partial) and base.function == POINTER:
            return base
        return Method(base, name)

    def tensor_attribute(self, base: Tensor, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a tensor: a view, metadata, a gradient, or what was assigned to it."""
        held = st.store.get((base.name, name))
        if held is not None:
            return held
        if name == "grad":
            return Tensor(GRADIENTS)
        if name in apis.VIEW_ATTRIBUTES:
            return base
        if name == "device":
            place = self.place(st, base)
            return Device({"device": "cuda", "pinned": "cpu", "pageable": "cpu"}.get(place, ""))
        if name == "is_cuda":
            place = self.place(st, base)
            return Const(place == "device") if place else PLAIN
        if name in ("dtype", "layout", "itemsize", "ndim", "nbytes", "size", "requires_grad"):
            return PLAIN
        if name in ("shape", "strides"):
            return Tuple((PLAIN,)) if False else UNKNOWN
        return Method(base, name)

    def instance_attribute(self, base: Instance, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of an instance: assigned, or found in its class."""
        held = st.store.get((base.name, name))
        if held is not None:
            return held
        found = self.find_method(base.unit, name)
        if found is not None:
            if found.is_property:
                return self.call_function(Function(found, None, base), [], {}, st, node)
            if found.is_static:
                return Function(found)
            return Function(found, None, base)
        if self.find_class_attribute(base.unit, name) is not None and name not in base.unit.annotations:
            return self.class_attribute(base.unit, name, st)
        if name == "grad":
            return Tensor(GRADIENTS)
        return self.typed_attribute(base, name, st)

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

    def find_class_attribute(self, unit: ClassUnit, name: str) -> tuple[Slice, cst.BaseExpression] | None:
        """A class-level assignment, in the class or its bases."""
        return next(((u.slice, u.attributes[name]) for u in self.ancestry(unit) if name in u.attributes), None)

    def class_level(self, found: tuple[Slice, cst.BaseExpression], st: State) -> Value:
        """The value of a class-level assignment."""
        raise AssertionError

    def class_attribute(self, unit: ClassUnit, name: str, st: State) -> Value:
        """``Class.name``."""
        method = self.find_method(unit, name)
        if method is not None:
            return Function(method, None, Class(unit) if method.is_classmethod else None)
        held = st.store.get((Name(f"class {unit.name}"), name))
        if held is not None:
            return held
        expression = self.find_class_attribute(unit, name)
        if expression is not None:
            value = st.store[(Name(f"class {unit.name}"), name)] = self.class_level(expression, st)
            return value
        return Opaque(Name(f"class {unit.name}").child(name))

    # -- assignment ----------------------------------------------------------------------------------------------

    def assign(self, target: cst.BaseExpression, value: Value, st: State, node: cst.CSTNode) -> None:
        """``target = value``."""
        if isinstance(target, cst.Name):
            if isinstance(value, Object):
                self.call_it(value.name, target.value)
            elif isinstance(value, Union):
                for inner in iterate(value):
                    if isinstance(inner, Object):
                        self.call_it(inner.name, target.value)
            self.rebound_input(st, (self.stack[-1].frame, target.value), value, self.site(node))
            self.bind(target.value, value, st)
        elif isinstance(target, (cst.Tuple, cst.List)):
            self._unpack(target, value, st, node)
        elif isinstance(target, cst.Attribute):
            self.assign_attribute(target, value, st, node)
        elif isinstance(target, cst.Subscript):
            self._assign_subscript(target, value, st)
        elif isinstance(target, cst.StarredElement):
            self.assign(target.value, UNKNOWN, st, node)

    def bind(self, name: str, value: Value, st: State) -> None:
        """A name of the current scope means this value from now on."""
        raise AssertionError

    def _unpack(self, target: cst.Tuple | cst.List, value: Value, st: State, node: cst.CSTNode) -> None:
        self.stack[-1].held.append(value)
        self._unpack_into(target, value, st, node)
        self.stack[-1].held.pop()

    def _unpack_into(self, target: cst.Tuple | cst.List, value: Value, st: State, node: cst.CSTNode) -> None:
        for position, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                self.assign(element.value, UNKNOWN, st, node)
                continue
            item = self.element(value, Const(position), st)
            if isinstance(value, (Tensor, Container)) and item == UNKNOWN:
                item = value if isinstance(value, Tensor) else self.any_element(value, st)
            self.assign(element.value, item, st, node)

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
        for inner, guard in alternatives(base, st.path):
            owner = Name(f"class {inner.unit.name}") if isinstance(inner, Class) else None
            if isinstance(inner, Object):
                owner = inner.name
            if owner is None:
                continue
            key = (owner, name)
            self.rebound_input(st, key, value, self.site(node))
            old = st.store.get(key)
            if old is None and name == "grad":
                old = Tensor(GRADIENTS)
            if old is None and isinstance(inner, Tensor) and name == "data":
                old = inner
            if old is not None:
                self.lose(st, old)
            if old == Tensor(GRADIENTS) and value == NONE:
                self.release(st, GRADIENTS, self.site(node))
            if many and old is not None:
                value_here = union([(value, guard), (old, ALWAYS)])
            else:
                value_here = value
            st.store[key] = value_here
            self.holds(owner)

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
        keys = [self._slice(e.slice, st) for e in target.slice]
        tensors = [
            (v, g)
            for v, g in alternatives(base, st.path)
            if isinstance(v, Tensor)
            or (isinstance(v, Opaque) and (self.is_tensor(st, v) or self.looks_like_tensor(keys)))
        ]
        if tensors:
            views = union(
                (
                    replace(v, part=parts.pick(v.part, keys))
                    if isinstance(v, Tensor)
                    else Tensor(v.name, parts.pick(None, keys)),
                    g,
                )
                for v, g in tensors
            )
            self.in_place(st, views, [value, *keys], self.site(target), "item assignment")
        elif len(keys) == 1:
            for inner in iterate(base):
                index = _key(keys[0])
                if isinstance(inner, (Container, Opaque)) and isinstance(keys[0], Const) and index is not None:
                    named = f"[{index!r}]" if isinstance(inner, Opaque) and isinstance(index, str) else index
                    self.rebound_input(st, (inner.name, named), value, self.site(target))
            self.store_element(base, keys[0], value, st)

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
        index = _key(key)
        if names is not None and index in names:
            sequences.set_keys(st, container, names - {index})
            self.lose(st, st.store.pop((container.name, index), NONE))
            return True
        return False

    # -- operators -----------------------------------------------------------------------------------------------

    def _binary(self, node: cst.BinaryOperation, st: State) -> Value:
        left, right = self.eval(node.left, st), self.eval(node.right, st)
        number = _computed(node.operator, left, right)
        return number if number is not None else self.binary(left, right, node, st)

    def binary(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """Arithmetic: on tensors an operation, on clocks a duration."""
        if isinstance(getattr(node, "operator", None), (cst.Subtract, cst.SubtractAssign)):
            self.duration(st, left, right, self.site(node))
        if any(isinstance(v, Clock) for v in (*iterate(left), *iterate(right))):
            return PLAIN
        operands = [*iterate(left), *iterate(right)]
        if any(isinstance(v, Tensor) for v in operands) or (
            any(isinstance(v, Opaque) and self.is_tensor(st, v) for v in operands)
        ):
            result = self.operation(st, [left, right], self.site(node), "arithmetic")
            both = isinstance(getattr(node, "operator", None), (cst.BitAnd, cst.BitOr, cst.BitXor))
            masks = both and self.is_mask(st, left) and self.is_mask(st, right)
            return self.mask(st, result) if masks else result
        if all(isinstance(v, Const) for v in operands):
            return PLAIN
        if any(isinstance(v, (Container, Tuple)) for v in operands):
            return left
        unknown = [v for v in operands if isinstance(v, Opaque) and not self.is_plain(v.name)]
        if unknown and (isinstance(getattr(node, "operator", None), _COUNTING) or any(map(self.counts, operands))):
            return self.counted(left, right, node, st)
        if unknown:
            return self.unsure_operation(st, [left, right], self.site(node), "arithmetic")
        return PLAIN if any(isinstance(v, Opaque) for v in operands) else UNKNOWN

    def counts(self, value: Value) -> bool:
        """Whether a value is a number or a set rather than a tensor: an index, or by its name a count."""
        if not isinstance(value, Opaque):
            return False
        site = value.name.site
        return self.is_plain(value.name) or (isinstance(site, str) and _COUNT.fullmatch(site) is not None)

    def counted(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """Arithmetic on what nothing shows to be a tensor: a number that is not known, the same for the same operands."""
        operator = type(getattr(node, "operator", None)).__name__
        for inner, other, side in ((left, right, "left"), (right, left, "right")):
            if isinstance(inner, Opaque) and _key(other) is not None:
                name = inner.name.child((operator, side, _key(other)))
                self.plain.add(name.base())
                return Opaque(name)
        return PLAIN

    def _unary(self, node: cst.UnaryOperation, st: State) -> Value:
        if isinstance(node.operator, cst.Not):
            outcomes = self.test(node.expression, st)
            return union((Const(not outcome), guard) for outcome, guard in outcomes)
        value = self.eval(node.expression, st)
        if isinstance(value, Const) and isinstance(value.value, (int, float)) and isinstance(node.operator, cst.Minus):
            return Const(-value.value)
        if any(isinstance(v, Tensor) for v in iterate(value)):
            result = self.operation(st, [value], self.site(node), "arithmetic")
            inverted = isinstance(node.operator, cst.BitInvert) and self.is_mask(st, value)
            return self.mask(st, result) if inverted else result
        return value if isinstance(value, Opaque) else PLAIN

    def _comparison(self, node: cst.Comparison, st: State) -> Value:
        operands = [self.eval(node.left, st), *(self.eval(c.comparator, st) for c in node.comparisons)]
        identity = all(isinstance(c.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)) for c in node.comparisons)
        flat = [v for o in operands for v in iterate(o)]
        if not identity and any(isinstance(v, Tensor) for v in flat):
            return self.mask(st, self.operation(st, operands, self.site(node), "comparison"))
        if all(isinstance(o, Const) and o.value is not ... for o in operands) and len(operands) == 2:
            outcome = _compare(node.comparisons[0].operator, operands[0].value, operands[1].value)  # type: ignore[attr-defined]
            if outcome is not None:
                return Const(outcome)
        if len(operands) == 2 and isinstance(operands[1], Container):
            contained = self.contains(operands[1], operands[0], st)
            operator = node.comparisons[0].operator
            if contained is not None and isinstance(operator, (cst.In, cst.NotIn)):
                return Const(contained is isinstance(operator, cst.In))
        return self.unknown_flag(node, st)

    @staticmethod
    def contains(container: Container, key: Value, st: State) -> bool | None:
        """Whether a dict has a key; None where that is not known."""
        known, index = sequences.keys(st, container), _key(key)
        if known is None or index is None:
            return None
        if index in known:
            return True
        # of two objects that are told apart, neither's identity is the other's
        told_apart = isinstance(key, Const) or (isinstance(key, Opaque) and key.name.site == "identity")
        return False if told_apart else None

    def unknown_flag(self, node: cst.CSTNode, st: State) -> Value:
        """A truth that is not known, but is one value: tested twice it comes out alike."""
        name = self.fresh(node, st, "flag")
        self.plain.add(name.base())
        return Opaque(name)

    def _boolean(self, node: cst.BooleanOperation, st: State) -> Value:
        left = self.eval(node.left, st)
        right = self.eval(node.right, st)
        outcomes = self.truth(left, st, node.left)
        keeps_left = isinstance(node.operator, cst.Or)
        found: list[tuple[Value, Guard]] = []
        for outcome, guard in outcomes:
            found.append((left, guard) if outcome is keeps_left else (right, guard))
        return union(found) if found else UNKNOWN

    def _conditional(self, node: cst.IfExp, st: State) -> Value:
        outcomes = self.test(node.test, st)
        other = st.copy()
        self.enter_branch(node.test, outcomes, True, st)
        yes = self.eval(node.body, st) if not st.dead else None
        self.enter_branch(node.test, outcomes, False, other)
        no = self.eval(node.orelse, other) if not other.dead else None
        yes_guard, no_guard = st.path, other.path
        dead, other_dead = st.dead, other.dead
        joined = self.join(st, other)
        if joined is None:
            st.dead = True
            return UNKNOWN
        if joined is not st:
            st.become(joined)
        if yes is None or dead:
            return no if no is not None else UNKNOWN
        if no is None or other_dead:
            return yes
        return union([(yes, yes_guard.without(st.path)), (no, no_guard.without(st.path))])

    def _named(self, node: cst.NamedExpr, st: State) -> Value:
        value = self.eval(node.value, st)
        self.assign(node.target, value, st, node)
        return value

    def _await(self, node: cst.Await, st: State) -> Value:
        return self.eval(node.expression, st)

    # -- conditions ----------------------------------------------------------------------------------------------

    def enter_branch(self, test: cst.BaseExpression, outcomes: Outcomes, wanted: bool, st: State) -> None:
        """Go where a test came out as ``wanted``."""
        raise AssertionError

    def join(self, first: State | None, second: State | None) -> State | None:
        """Two paths meet."""
        raise AssertionError

    def condition(self, key: Hashable, names: tuple[Name, ...], st: State, track: bool) -> Outcomes:
        """The two outcomes of a condition that may be met again."""
        decided = st.path.true | st.path.false
        known = self.conditions.get(key)
        if known is not None:
            if st.path.true & known:
                return [(True, ALWAYS)]
            if st.path.false & known:
                return [(False, ALWAYS)]
        if not track:
            return BOTH
        if known is None:
            if len(self.conditions) >= MAX_CONDITIONS:
                return BOTH
            known = self.conditions[key] = 1 << len(self.conditions)
            self.mentions[known] = names
        if decided.bit_count() >= MAX_DECIDED:
            return BOTH
        return [(True, Guard(known, 0)), (False, Guard(0, known))]

    def exclusive(self, st: State, value: Value) -> Value:
        """One of several streams is one of them at a time: alternatives whose guards do not say so get some."""
        if not isinstance(value, Union):
            return value
        live = alternatives(value, st.path)
        streams = [v for v, _ in live if isinstance(v, Stream)]
        if len(live) < 2 or not streams or len(live) > 4:
            return value
        if all(a.contradicts(b) for i, (_, a) in enumerate(live) for _, b in live[i + 1 :]):
            return value
        live.sort(key=lambda item: not isinstance(item[0], Stream))
        rest = ALWAYS
        found: list[tuple[Value, Guard]] = []
        for position, (inner, guard) in enumerate(live):
            if position == len(live) - 1 or not isinstance(inner, Stream):
                found.append((inner, guard & rest))
                continue
            outcomes = self.condition(("chosen", inner.name), (inner.name,), st, True)
            if outcomes == BOTH:
                return value
            yes = next((g for o, g in outcomes if o), None)
            no = next((g for o, g in outcomes if not o), None)
            if yes is not None and not rest.contradicts(yes):
                found.append((inner, guard & rest & yes))
            if no is None:
                break
            rest = rest & no
        return union((v, g) for v, g in found if not st.path.contradicts(g))

    def test(self, node: cst.BaseExpression, st: State, *, track: bool = True) -> Outcomes:
        """Evaluate a condition: how it may come out, and under which guards."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return [(not outcome, guard) for outcome, guard in self.test(node.expression, st, track=track)]
        if isinstance(node, cst.BooleanOperation):
            return self._test_boolean(node, st, track)
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            found = self._test_comparison(node, st, track)
            if found is not None:
                return found
        return self.truth(self.eval(node, st), st, node, track=track)

    def _test_boolean(self, node: cst.BooleanOperation, st: State, track: bool) -> Outcomes:
        stops = isinstance(node.operator, cst.Or)
        found: Outcomes = []
        left = self.test(node.left, st, track=track)
        right: Outcomes | None = None
        for outcome, guard in left:
            if outcome is stops:
                found.append((outcome, guard))
                continue
            if right is None:
                right = self.test(node.right, st, track=track)
            found.extend((o, guard & g) for o, g in right if not guard.contradicts(g))
        return found

    def _test_comparison(self, node: cst.Comparison, st: State, track: bool) -> Outcomes | None:
        operator, comparator = node.comparisons[0].operator, node.comparisons[0].comparator
        is_none = isinstance(comparator, cst.Name) and comparator.value == "None"
        if is_none and isinstance(operator, (cst.Is, cst.IsNot, cst.Equal, cst.NotEqual)):
            wanted = isinstance(operator, (cst.Is, cst.Equal))
            found: Outcomes = []
            for value, guard in alternatives(self.exclusive(st, self.eval(node.left, st)), st.path):
                if value == NONE:
                    found.append((wanted, guard))
                elif isinstance(value, Opaque):
                    for outcome, g in self.condition(("none", value.name), (value.name,), st, track):
                        if not guard.contradicts(g):
                            found.append((outcome is wanted, guard & g))
                elif type(value) is Value:
                    found.extend((o, guard) for o in (True, False))
                else:
                    found.append((not wanted, guard))
            return found
        if isinstance(operator, (cst.Equal, cst.NotEqual)):
            left, right = self.eval(node.left, st), self.eval(comparator, st)
            if isinstance(left, Const) and not isinstance(right, Const):
                left, right = right, left
            wanted = isinstance(operator, cst.Equal)
            if isinstance(left, Const) and isinstance(right, Const):
                if left.value is ... or right.value is ...:
                    return self.truth(self.unknown_flag(node, st), st, node, track=track)
                return [((left.value == right.value) is wanted, ALWAYS)]
            on_device = self.asks_for_device(left, right)
            if on_device is not None:
                return [(on_device is wanted, ALWAYS)]
            if isinstance(left, Opaque) and isinstance(right, Const) and right.value is not ...:
                key = ("==", left.name, repr(right.value))
                return [(o is wanted, g) for o, g in self.condition(key, (left.name,), st, track)]
            if isinstance(left, Device) and isinstance(right, Const) and left.kind and isinstance(right.value, str):
                return [((left.kind == right.value.partition(":")[0]) is wanted, ALWAYS)]
            if any(isinstance(v, Tensor) for v in (left, right)):
                result = self.operation(st, [left, right], self.site(node), "comparison")
                return self.truth(result, st, node, track=track)
            return self.truth(self.unknown_flag(node, st), st, node, track=track)
        return None

    @staticmethod
    def asks_for_device(left: Value, right: Value) -> bool | None:
        """Whether a device that is not known is of this kind: where streams matter it is a CUDA device."""
        if not (isinstance(right, Const) and isinstance(right.value, str)):
            return None
        kind = right.value.partition(":")[0]
        if kind not in ("cuda", "cpu", "npu", "xpu", "mps", "hpu", "mlu", "meta"):
            return None
        unknown = isinstance(left, Device) and not left.kind
        if isinstance(left, Opaque):
            name, parent = left.name.site, left.name.parent
            named = isinstance(name, str) and re.fullmatch(r"_*(?:\w+_)?device(?:_type|_kind|_name)?|accelerator", name)
            unknown = bool(named) or (name == "type" and parent is not None)
        return kind == "cuda" if unknown else None

    def truth(self, value: Value, st: State, node: cst.CSTNode, *, track: bool = True) -> Outcomes:
        """How the truth of a value may come out; of a tensor it is a read by the host."""
        found: Outcomes = []
        for inner, guard in alternatives(self.exclusive(st, value), st.path):
            if isinstance(inner, Const):
                if inner.value is ...:
                    found.extend((o, guard) for o in (True, False))
                else:
                    found.append((bool(inner.value), guard))
            elif isinstance(inner, Opaque):
                for outcome, g in self.condition(("truth", inner.name), (inner.name,), st, track):
                    if not guard.contradicts(g):
                        found.append((outcome, guard & g))
            elif isinstance(inner, Tensor):
                self.read_on_host(st, inner, self.site(node), "truth of a tensor")
                found.extend((o, guard) for o in (True, False))
            elif isinstance(inner, (Stream, Event, Function, Class, Context, Instance, Api)):
                found.append((True, guard))
            elif isinstance(inner, Tuple):
                found.append((bool(inner.items), guard))
            elif isinstance(inner, Container) and sequences.length(st, inner) is not None:
                found.append((bool(sequences.length(st, inner)), guard))
            else:
                found.extend((o, guard) for o in (True, False))
        return found

    def narrow(self, node: cst.BaseExpression, st: State, outcome: bool) -> None:
        """What a test tells about the value that was tested."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            self.narrow(node.expression, st, not outcome)
            return
        if isinstance(node, cst.BooleanOperation):
            if isinstance(node.operator, cst.And) is outcome:
                self.narrow(node.left, st, outcome)
                self.narrow(node.right, st, outcome)
            return
        keeps: Callable[[Value], bool]
        none = False
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            operator, comparator = node.comparisons[0].operator, node.comparisons[0].comparator
            if not (isinstance(comparator, cst.Name) and comparator.value == "None"):
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
                    return outcome or not self.held(v, st)
                return outcome or not isinstance(v, (Stream, Event, Tensor, Function, Instance))

            target = node
        if not isinstance(target, (cst.Name, cst.Attribute)):
            return
        key = self._key_of(target, st)
        if key is None or not isinstance(st.store.get(key), Union):
            return
        kept = [(v, g) for v, g in alternatives(st.store[key], st.path) if keeps(v)]
        if none and any(v == NONE for v, _ in kept):
            kept = [(NONE, ALWAYS)]  # whatever else it might have been, here it is None
        if kept:
            st.store[key] = union(kept)

    def _key_of(self, node: cst.BaseExpression, st: State) -> tuple[Name, Hashable] | None:
        if isinstance(node, cst.Name):
            frame: Name | None = self.stack[-1].frame
            while frame is not None:
                if (frame, node.value) in st.store:
                    return (frame, node.value)
                frame = self.closures.get(frame)
            return None
        if isinstance(node, cst.Attribute):
            if isinstance(node.value, (cst.Name, cst.Attribute)):
                base = self.eval(node.value, st)
                if isinstance(base, Object):
                    return (base.name, node.attr.value)
        return None

    # -- supplied further down -----------------------------------------------------------------------------------

    def is_tensor(self, st: State, value: Opaque) -> bool:
        """Whether an object of unknown kind has been used as a tensor."""
        return (value.name, "@place") in st.store or value.name.base() in self.tensorish

    def api_attribute(self, base: Api, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a library's module."""
        return Api(apis.canonical(f"{base.name}.{name}"))

    @staticmethod
    def mask(st: State, value: Value) -> Value:
        """This tensor holds booleans: as an index it selects, and the host waits for how many (TM-10)."""
        for inner in iterate(value):
            if isinstance(inner, Object):
                st.store[(inner.name, "@mask")] = PLAIN
        return value

    @staticmethod
    def is_mask(st: State, value: Value) -> bool:
        """Whether a tensor is known to hold booleans."""
        return any(isinstance(v, Object) and (v.name, "@mask") in st.store for v in iterate(value))

    def masked(self, st: State, operands: list[Value], node: cst.CSTNode) -> Value:
        """``x[mask]``."""
        raise AssertionError

    def operation(
        self,
        st: State,
        operands: list[Value],
        site: Site,
        text: str,
        *,
        library: str = "",
        assumed: Assumed = Assumed.NOTHING,
    ) -> Value:
        """A device operation: reads its operands, returns a fresh tensor."""
        raise AssertionError

    def unsure_operation(self, st: State, operands: list[Value], site: Site, text: str) -> Value:
        """An operation on objects of unknown kind: if they are tensors, a device operation."""
        raise AssertionError

    def read_operands(self, st: State, operands: list[Value], site: Site, text: str) -> None:
        """Operands are read."""
        raise AssertionError

    def in_place(self, st: State, target: Value, operands: list[Value], site: Site, text: str) -> None:
        """A write into a tensor."""
        raise AssertionError

    def read_on_host(self, st: State, value: Value, site: Site, text: str) -> None:
        """The host needs a value."""
        raise AssertionError

    def duration(self, st: State, left: Value, right: Value, site: Site) -> None:
        """Two readings of a clock are subtracted."""
        raise AssertionError

    def query_stream(self, st: State, stream: Stream, site: Site) -> Value:
        """``stream.done``."""
        raise AssertionError

    def query_event(self, st: State, event: Event, site: Site) -> Value:
        """``event.done``."""
        raise AssertionError

    def call_function(
        self, function: Function, args: list[Value], kwargs: dict[str, Value], st: State, node: cst.CSTNode
    ) -> Value:
        """Call a function of the file."""
        raise AssertionError

    def _lambda(self, node: cst.Lambda, _: State) -> Value:
        frame = self.stack[-1].frame
        unit = FunctionUnit("<lambda>", "<lambda>", node, self.stack[-1].slice)
        return Function(self.lambdas.setdefault(id(node), unit), frame)

    lambdas: dict[int, FunctionUnit]

    def _comprehension(self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp, st: State) -> Value:
        raise AssertionError

    def _call(self, node: cst.Call, st: State) -> Value:
        raise AssertionError

    def _yield(self, node: cst.Yield, st: State) -> Value:
        raise AssertionError


def _key(value: Value) -> Hashable | None:
    """What an index is remembered by: a constant, or the object that holds it."""
    if isinstance(value, Const) and value.value is not ... and isinstance(value.value, (int, str, bool)):
        return value.value
    if isinstance(value, Opaque):
        return ("[]", value.name)
    if isinstance(value, Tuple):
        keys = tuple(_key(v) for v in value.items)
        return None if None in keys else keys
    return None


def _sliced(base: Value, key: Partial, st: State) -> Tuple | None:
    """A slice of a list or tuple whose elements are known."""
    items = list(base.items) if isinstance(base, Tuple) else None
    if isinstance(base, Container):
        items = sequences.items(st, base)
    bounds = [b.value if isinstance(b, Const) else ... for b in key.args]
    if items is None or not all(b is None or type(b) is int for b in bounds) or 0 in bounds[2:]:
        return None
    return Tuple(tuple(items[slice(*bounds)]))


def _computed(operator: cst.BaseBinaryOp, left: Value, right: Value) -> Const | None:
    """Whole numbers are computed: they index lists and bound slices."""
    if not (isinstance(left, Const) and isinstance(right, Const)):
        return None
    if type(left.value) is not int or type(right.value) is not int:
        return None
    function = _INTEGER_OPERATORS.get(type(operator))
    try:
        result = function(left.value, right.value) if function is not None else None
    except (ZeroDivisionError, ValueError):
        return None
    return Const(result) if isinstance(result, int) and abs(result) < 1 << 62 else None


_COUNTING = (cst.BitOr, cst.BitOrAssign, cst.Modulo, cst.ModuloAssign, cst.FloorDivide, cst.FloorDivideAssign, cst.LeftShift, cst.RightShift)
"""Operators that, where nothing is known of either side, count rather than compute."""
_COUNT = re.compile(
    r"_*(?:\w+_)?(?:idx|index|rank|world_size|numel|count|counter|size|len|length|num|steps?|epoch|iter|iteration|ct|ids"
    r"|keys|names?|nbytes|offset|stride|dim|ndim|seqlen|capacity|step_id|depth)|num_\w+|n_\w+|n"
)
"""Names of numbers."""

_INTEGER_OPERATORS: dict[type[cst.CSTNode], Callable[[int, int], int]] = {
    cst.Add: lambda a, b: a + b,
    cst.Subtract: lambda a, b: a - b,
    cst.Multiply: lambda a, b: a * b,
    cst.FloorDivide: lambda a, b: a // b,
    cst.Modulo: lambda a, b: a % b,
    cst.LeftShift: lambda a, b: a << b if 0 <= b < 62 else 0,
    cst.BitXor: lambda a, b: a ^ b,
    cst.BitAnd: lambda a, b: a & b,
}


def _compare(operator: cst.BaseCompOp, left: Any, right: Any) -> bool | None:
    try:
        if isinstance(operator, cst.Equal):
            return bool(left == right)
        if isinstance(operator, cst.NotEqual):
            return bool(left != right)
        if isinstance(operator, cst.Is):
            return left is right
        if isinstance(operator, cst.IsNot):
            return left is not right
        if isinstance(operator, cst.LessThan):
            return bool(left < right)
        if isinstance(operator, cst.GreaterThan):
            return bool(left > right)
        if isinstance(operator, cst.GreaterThanEqual):
            return bool(left >= right)
        if isinstance(operator, cst.LessThanEqual):
            return bool(left <= right)
    except TypeError:
        return None
    return None


_CONSTANTS: dict[str, Value] = {"None": NONE, "True": Const(True), "False": Const(False), "__debug__": Const(True)}

_EXPRESSIONS: dict[type[cst.CSTNode], Callable[..., Value]] = {
    cst.Name: Expressions._name,
    cst.Integer: Expressions._literal,
    cst.Float: Expressions._literal,
    cst.SimpleString: Expressions._literal,
    cst.ConcatenatedString: Expressions._concatenated,
    cst.FormattedString: Expressions._formatted,
    cst.Tuple: Expressions._tuple,
    cst.List: Expressions._list,
    cst.Set: Expressions._list,
    cst.Dict: Expressions._dict,
    cst.Subscript: Expressions._subscript,
    cst.Attribute: Expressions._attribute,
    cst.BinaryOperation: Expressions._binary,
    cst.UnaryOperation: Expressions._unary,
    cst.Comparison: Expressions._comparison,
    cst.BooleanOperation: Expressions._boolean,
    cst.IfExp: Expressions._conditional,
    cst.NamedExpr: Expressions._named,
    cst.Await: Expressions._await,
    cst.Lambda: Expressions._lambda,
    cst.Call: lambda self, node, st: self._call(node, st),
    cst.ListComp: lambda self, node, st: self._comprehension(node, st),
    cst.SetComp: lambda self, node, st: self._comprehension(node, st),
    cst.GeneratorExp: lambda self, node, st: self._comprehension(node, st),
    cst.DictComp: lambda self, node, st: self._comprehension(node, st),
    cst.Yield: lambda self, node, st: self._yield(node, st),
}

__all__ = ["HOOK", "MODULE", "Expressions"]
