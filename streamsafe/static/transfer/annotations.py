"""What annotations say of a value that is not seen made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.static import sequences
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import State
from streamsafe.static.transfer.functions import _text
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.run_state import RunState
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import Class, Const, Instance, Name, Object, Opaque, Tensor, Value

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


_CONTAINERS = frozenset(
    """List list Sequence Iterable Iterator Tuple tuple Dict dict Mapping MutableMapping Deque deque Set
    Collection Generator""".split()
)


class Annotations(Part):
    """Values of the type that an annotation names."""

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
            st.store[(value.name, "@place")] = Const("pageable")
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
        if (value.name, "@materialized") in st.store:
            return instance
        st.store[(value.name, "@materialized")] = Class(unit)
        rounds, self.run.rounds = (
            self.run.rounds,
            [],
        )  # what it holds was made elsewhere: no round makes it anew
        self.run.silent += 1  # and before: what was done to it then conflicts with nothing now
        try:
            self.instances.initialize(
                instance,
                unit,
                Call(unit.node, self.call_stack.site_in(unit.slice, unit.node)),
                st,
                known=False,
            )
        finally:
            self.run.rounds = rounds
            self.run.silent -= 1
        sequences.open_to_others(st, instance.name, self.run.file.counts - self.run.file.turning)
        return instance
