"""The members of classes of a file, by Python's method resolution order."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from streamsafe.static.source import ClassUnit, FunctionUnit, Slice
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import Class, Container, Function, Instance, Name, Opaque, Super, Value


class ClassMembers(Part):
    """Looks up members of classes."""

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
            parents = [self.definitions.unit(base) for base in found.bases]
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
            value = st.store[(Name(f"class {unit.name}"), name)] = self.definitions.class_level(
                expression, st
            )
            if isinstance(value, Container):
                self.definitions.register_with(unit.name, st)
            return value
        return Opaque(Name(f"class {unit.name}").child(name))
