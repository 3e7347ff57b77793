"""Objects of the classes of a file: made and initialized by their constructors, or named by an annotation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static import fields, sequences
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import State
from streamsafe.static.transfer.comprehensions import DEPTH
from streamsafe.static.transfer.functions import _text
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.run_state import RunState
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    UNKNOWN,
    Class,
    Const,
    Container,
    Function,
    Instance,
    Name,
    Object,
    Opaque,
    Tensor,
    Value,
    deeper,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


_CONTAINERS = frozenset(
    """List list Sequence Iterable Iterator Tuple tuple Dict dict Mapping MutableMapping Deque deque Set
    Collection Generator""".split()
)


class Instances(Part):
    """Makes objects of the file's classes."""

    def instantiate(self, unit: ClassUnit, call: Call, st: State) -> Value:
        """``Class(...)``."""
        if unit.is_enumeration:
            return Opaque(self.objects.fresh(call.node, st, "member"))
        new = self.class_members.find_method(unit, "__new__")
        if new is not None and not any(a.unit is new for a in self.run.stack):
            made = self.functions.call_function(
                Function(new), [Class(unit), *call.args], call.kwargs, st, call.node
            )
        else:
            made = self.new_object(unit, call, st)
        if isinstance(made, Instance):
            self.initialize(made, unit, call, st, known=True)
            self.functions.returned_values(made, call.node, st)
        return made

    def new_object(self, unit: ClassUnit, call: Call, st: State) -> Instance:
        """An object of a class that nothing has been done to."""
        name = self.objects.fresh(call.node, st, f"{unit.name}()")
        self.run.closed.add(name)
        return Instance(name, unit)

    def do_new_object(self, call: Call, st: State) -> Value:
        """``object.__new__(cls)``."""
        given = call.args[0] if call.args else UNKNOWN
        return self.new_object(given.unit, call, st) if isinstance(given, Class) else UNKNOWN

    def initialize(self, instance: Instance, unit: ClassUnit, call: Call, st: State, *, known: bool) -> None:
        """Run ``__init__``, or fill a dataclass's fields."""
        init = self.class_members.find_method(unit, "__init__")
        if init is not None:
            if any(a.unit is init for a in self.run.stack) or len(self.run.stack) > DEPTH:
                return
            outer = self.run.stack[-1].path if self.run.stack else ()
            if self.run.stack and not known:
                self.run.stack[-1].path = deeper(outer, instance.name)
            try:
                self.functions.run_function(
                    Function(init, None, instance),
                    call.args,
                    call.kwargs,
                    st,
                    call.node,
                    starred=call.starred,
                    root=not known,
                )
            finally:
                if self.run.stack:
                    self.run.stack[-1].path = outer
            return
        container = self.subscripts.as_container(instance)
        if isinstance(container, Container):
            if container.kind == "dict":
                sequences.set_keys(st, container, ())
                for given in call.args:
                    self.python_containers.add_items(container, given, st)
                for key, value in call.kwargs.items():
                    self.elements.store_element(container, Const(key), value, st)
            elif known:
                sequences.put(st, container, [])
                for given in call.args:
                    self.containers.extend_container(st, container, given)
            return
        if not known:
            return
        fields = list(self.fields(unit))
        for position, field in enumerate(fields):
            filled = call.get(position, field)
            if filled is None:
                found = self.class_members.find_class_attribute(unit, field)
                with self.called_from(call.node):  # what one instance is given is not what another is
                    filled = self.definitions.class_level(found, st) if found is not None else UNKNOWN
            st.store[(instance.name, field)] = filled
        post = self.class_members.find_method(unit, "__post_init__")
        if post is not None:
            self.functions.run_function(Function(post, None, instance), [], {}, st, call.node)

    @contextmanager
    def called_from(self, node: cst.CSTNode) -> Iterator[None]:
        """What is made meanwhile is made through this call."""
        activation = self.run.stack[-1]
        outer = activation.path
        activation.path = deeper(outer, id(node))
        try:
            yield
        finally:
            activation.path = outer

    def fields(self, unit: ClassUnit) -> list[str]:
        """The fields of a dataclass or a named tuple, its bases' first."""
        found: list[str] = []
        for owner in reversed(list(self.class_members.ancestry(unit))):
            if owner.is_dataclass or any("NamedTuple" in b for b in owner.bases):
                found.extend(name for name in owner.attributes if name not in found)
        return found

    def do_make_named_tuple(self, call: Call, st: State) -> Value:
        """``collections.namedtuple("Name", fields)``: a class."""
        word, fields = (*call.args, UNKNOWN, UNKNOWN)[:2]
        names = self.iterables.known_items(fields, st)
        if isinstance(fields, Const) and isinstance(fields.value, str):
            names = [Const(name) for name in fields.value.replace(",", " ").split()]
        words = [n.value for n in names or () if isinstance(n, Const) and isinstance(n.value, str)]
        if not words or len(words) < len(names or ()):
            return UNKNOWN
        unit = self.run.nested.get(call.node)
        if unit is None:
            title = str(word.value) if isinstance(word, Const) else "namedtuple"
            unit = ClassUnit(title, call.node, self.run.stack[-1].slice, ("NamedTuple",))  # type: ignore[arg-type]
            unit.attributes.update((name, cst.Ellipsis()) for name in words)
            self.run.nested[call.node] = unit
        return Class(unit)  # type: ignore[arg-type]

    # -- objects that annotations name ---------------------------------------------------------------------------

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.element_types: dict[Name, cst.BaseExpression] = {}
        """By container, what an annotation says of its elements."""

    def annotated(self, value: Value, annotation: cst.Annotation | None, st: State) -> Value:
        """What an annotation says of an object of unknown kind."""
        if annotation is None or not isinstance(value, Opaque):
            return value
        return self.described(value, annotation.annotation, st)

    def described(self, value: Opaque, annotation: cst.BaseExpression, st: State) -> Value:
        """What a type says of an object of unknown kind; of a container's, what its elements are."""
        if (
            isinstance(annotation, cst.Subscript)
            and _text(annotation.value).rpartition(".")[2] in _CONTAINERS
        ):
            last = annotation.slice[-1].slice
            if isinstance(last, cst.Index):
                self.element_types[value.name.base()] = last.value
            return value
        text = _text(annotation).strip("\"'")
        unit = (
            self.definitions.unit(self.run.file.implementations.get(text, text))
            if text.isidentifier()
            else None
        )
        if isinstance(unit, ClassUnit):
            # a TypedDict is a dict: its class has no say in what it holds
            is_dict = any(base.rpartition(".")[2] == "TypedDict" for base in unit.bases)
            return value if is_dict else self.materialized(value, unit, st)
        tail = text.rpartition(".")[2]
        if tail in ("int", "float", "bool", "str", "dtype", "Size", "Callable"):
            self.run.plain.add(value.name.base())
            return value
        if text in ("argparse.Namespace", "Namespace"):
            self.run.settings.add(value.name.base())
            return value
        cupy = self.run.file.imports.get(text.partition(".")[0], "").partition(".")[0] == "cupy"
        if tail in ("Stream", "CUstream", "cudaStream_t"):
            return self.effects.as_stream(
                value, "cupy" if cupy or self.tensors.default_library == "cupy" else "torch"
            )
        if tail in ("Tensor", "ndarray") and not text.startswith(("np.", "numpy.")):
            self.tensors.mark_tensor(st, value)
            if cupy or tail == "Tensor":
                self.run.libraries.setdefault(value.name.base(), "cupy" if cupy else "torch")
            return value
        if text.startswith(("np.ndarray", "numpy.ndarray")):
            st.store[(value.name, fields.PLACE)] = Const("pageable")
            return Tensor(value.name, numpy=True)
        return value

    def typed_element(self, container: Object, element: Opaque, st: State) -> Value:
        """An element of a container whose annotation says what it holds."""
        annotation = self.element_types.get(container.name.base())
        return element if annotation is None else self.described(element, annotation, st)

    def typed_attribute(self, base: Instance, name: str, st: State) -> Value:
        """An attribute that is not seen assigned: its annotation in the class may tell what it is."""
        value = Opaque(base.name.child(name))
        annotation = base.unit.annotations.get(name)
        return value if annotation is None else self.described(value, annotation, st)

    def materialized(self, value: Opaque, unit: ClassUnit, st: State) -> Value:
        """An object of one of the file's classes that was made elsewhere: what ``__init__`` leaves is on it."""
        instance = Instance(value.name, unit, part=value.part)
        if (value.name, fields.ASSUMED_CLASS) in st.store:
            return instance
        st.store[(value.name, fields.ASSUMED_CLASS)] = Class(unit)
        rounds, self.run.rounds = (
            self.run.rounds,
            [],
        )  # what it holds was made elsewhere: no round makes it anew
        self.run.silent += 1  # and before: what was done to it then conflicts with nothing now
        try:
            self.initialize(
                instance,
                unit,
                Call(unit.node, self.call_stack.site_in(unit.slice, unit.node)),
                st,
                known=False,
            )
        finally:
            self.run.rounds = rounds
            self.run.silent -= 1
        counted = {
            str(name)
            for name in st.store.of(instance.name)
            if self.run.file.owners.is_counted(unit.qualname, str(name))
        }
        sequences.open_to_others(st, instance.name, counted - self.run.file.turning)
        return instance
