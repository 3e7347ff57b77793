"""The functions and classes of a file, found by name and behind their decorators."""

from __future__ import annotations

import ast
from bisect import bisect_right
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.static import concrete
from streamsafe.static.source import ClassUnit, FunctionUnit, MethodSlice, Slice
from streamsafe.static.state import State
from streamsafe.static.stream_terms import COMMON_METHODS
from streamsafe.static.transfer.call_stack import MODULE, Activation
from streamsafe.static.transfer.functions import _text
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.run_state import RunState
from streamsafe.static.transfer.tensor_methods import HOOK_REGISTRATIONS
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.transfer.unknown_objects import LIBRARY_METHODS
from streamsafe.static.values import HOST_FUNCTION, UNKNOWN, Class, Function, Name, Partial, Value

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


class Scope:
    """Interpret something in another scope, then come back."""

    def __init__(self, run: RunState, slice_: Slice, frame: Name, unit: FunctionUnit | None) -> None:
        self._run = run
        outer = run.stack[-1].path if run.stack else ()
        self._activation = Activation(frame, unit, slice_, outer)

    def __enter__(self) -> None:
        self._run.stack.append(self._activation)

    def __exit__(self, *_: object) -> None:
        self._run.stack.pop()


class Definitions(Part):
    """Functions and classes of the file, as units."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._owners: dict[str, list[str]] = {}
        """By name of a method, the classes that have it."""
        self._method_owners: dict[str, list[ClassUnit]] | None = None
        """By name of a method, the units of these classes; None until it is asked for."""

    # -- units ---------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> FunctionUnit | ClassUnit | None:
        """A top-level function or class of the file, or a class in the body of one."""
        if name in self.run.file.nested:
            outer, _, inner = name.rpartition(".")
            owner = self.unit(outer)
            return owner.classes.get(inner) if isinstance(owner, ClassUnit) else None
        name = name.rpartition(".")[2]
        if name in self.run.units:
            return self.run.units[name]
        self.run.units[name] = None
        statement = self.run.file.functions.get(name) or self.run.file.classes.get(name)
        if statement is not None:
            holder = self.run.file.statements[bisect_right(self.run.file.first_rows, statement.lineno) - 1]
            slice_ = self.run.file.slice(holder)
            node = self.find(slice_.module, name)
            if isinstance(node, cst.FunctionDef):
                self.run.units[name] = self.function_unit(node, slice_, name)
            elif isinstance(node, cst.ClassDef):
                self.run.units[name] = self.class_unit(node, slice_, name)
        return self.run.units[name]

    def find(self, node: cst.CSTNode, name: str) -> cst.CSTNode | None:
        """The definition of a name in a block of statements."""
        body = getattr(node, "body", None)
        statements = body if isinstance(body, (list, tuple)) else getattr(body, "body", ())
        found: cst.CSTNode | None = None
        for statement in statements or ():
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                if statement.name.value == name:
                    found = statement
                continue
            for inner in (statement, getattr(statement, "orelse", None), *getattr(statement, "handlers", ())):
                if isinstance(inner, cst.CSTNode) and not isinstance(inner, cst.SimpleStatementLine):
                    found = found or (self.find(inner, name) if inner is not node else None)
        return found

    def function_unit(
        self,
        node: cst.FunctionDef,
        slice_: Slice,
        qualname: str,
        owner: ClassUnit | None = None,
        apart: MethodSlice | None = None,
    ) -> FunctionUnit:
        """What is needed of a function to call it."""
        definitions = self.run.file.definitions.get(qualname, [])
        generator = any(d.generator for d in definitions) if definitions else _yields(node)
        decorators = tuple(map(_dotted, node.decorators))
        return FunctionUnit(
            node.name.value, qualname, node, apart or slice_, owner, generator, decorators, apart
        )

    def class_unit(self, node: cst.ClassDef, slice_: Slice, qualname: str) -> ClassUnit:
        """What is needed of a class to make instances of it."""
        bases = tuple(_text(a.value) for a in node.bases)
        unit = ClassUnit(
            node.name.value,
            node,
            slice_,
            bases,
            decorators=tuple(map(_dotted, node.decorators)),
            qualname=qualname,
        )
        apart = slice_.methods if "." not in qualname else {}
        own = {name: iter(slices) for name, slices in apart.items()}
        for statement in node.body.body:
            for inner in _statements(statement):
                if isinstance(inner, cst.FunctionDef):
                    name = inner.name.value
                    hollow = inner is statement and isinstance(inner.body, cst.IndentedBlock)
                    body = next(own[name]) if hollow and name in own else None
                    method = self.function_unit(inner, slice_, f"{qualname}.{name}", unit, body)
                    if any(d.endswith(".setter") for d in method.decorators):
                        unit.setters[name] = method
                        continue
                    unit.methods[name] = method
                elif isinstance(inner, cst.ClassDef):
                    name = inner.name.value
                    unit.classes[name] = self.class_unit(inner, slice_, f"{qualname}.{name}")
                elif isinstance(inner, cst.Assign) and isinstance(inner.targets[0].target, cst.Name):
                    unit.attributes[inner.targets[0].target.value] = inner.value
                elif isinstance(inner, cst.AnnAssign) and isinstance(inner.target, cst.Name):
                    unit.annotations[inner.target.value] = inner.annotation.annotation
                    unit.attributes[inner.target.value] = inner.value or cst.Ellipsis()
        for name, expression in unit.attributes.items():
            other = self._method_of(expression, unit, f"{qualname}.{name}")
            if other is not None:
                unit.methods.setdefault(name, other)
        return unit

    @staticmethod
    def _method_of(expression: cst.BaseExpression, unit: ClassUnit, qualname: str) -> FunctionUnit | None:
        """``name = method``, ``name = property(method)`` in a class: the method that is called by this name."""
        wrapper: tuple[str, ...] = ()
        if isinstance(expression, cst.Call) and isinstance(expression.func, cst.Name) and expression.args:
            if expression.func.value not in ("property", "staticmethod", "classmethod"):
                return None
            wrapper, expression = (expression.func.value,), expression.args[0].value
        if isinstance(expression, cst.Lambda):
            name = qualname.rpartition(".")[2]
            return FunctionUnit(name, qualname, expression, unit.slice, unit, decorators=wrapper)
        found = unit.methods.get(expression.value) if isinstance(expression, cst.Name) else None
        return replace(found, decorators=(*found.decorators, *wrapper)) if found is not None else None

    def nested_function(self, node: cst.FunctionDef, st: State) -> Value:
        """A function defined inside another one."""
        activation = self.run.stack[-1]
        unit = self.run.nested.get(node)
        if unit is None:
            outer = activation.unit.qualname if activation.unit else ""
            qualname = f"{outer}.{node.name.value}" if outer else node.name.value
            unit = self.run.nested[node] = self.function_unit(node, activation.slice, qualname)
        assert isinstance(unit, FunctionUnit)
        self.expressions.capture_names(node)
        value: Value = Function(unit, activation.frame)
        for decorator in node.decorators:
            value = self.decorated(decorator.decorator, value, st)
        return self.behind(unit, value, st)

    def function_value(self, unit: FunctionUnit, name: str, st: State) -> Value:
        """A top-level function, behind its decorators: they are called once."""
        value: Value = Function(unit)
        decorated = self.behind(unit, value, st) if unit.decorators else value
        if decorated is not value:
            st.store[(MODULE, name)] = decorated
        return decorated

    def register_with(self, name: str, st: State) -> None:
        """What decorators put into a container of the module, of an object of it or of a class, as it is loaded."""
        for registered in dict.fromkeys(self.run.file.registered.get(name, ())):
            unit = self.unit(registered)
            if isinstance(unit, FunctionUnit):
                self.behind(unit, Function(unit), st, registering=True)
            elif isinstance(unit, ClassUnit):
                self.behind(unit, Class(unit), st, registering=True)
                self._inherited(unit, st)

    def _inherited(self, unit: ClassUnit, st: State) -> None:
        """What the base of a class does as the class is defined, in ``__init_subclass__``."""
        bases = [base for base in map(self.unit, unit.bases) if isinstance(base, ClassUnit)]
        found = next(
            filter(None, (self.class_members.find_method(b, "__init_subclass__") for b in bases)), None
        )
        if found is None:
            return
        with self.scope(unit.slice, MODULE, None):
            given = {
                a.keyword.value: self.expressions.eval(a.value, st) for a in unit.node.keywords if a.keyword
            }
            self.functions.call_function(Function(found, None, Class(unit)), [], given, st, unit.node)

    def behind(
        self, unit: FunctionUnit | ClassUnit, value: Value, st: State, *, registering: bool = False
    ) -> Value:
        """What the decorators of a function make of it, those that are functions of the file.

        Args:
            unit: the function.
            value: the function as a value.
            st: what is known; changed in place.
            registering: they are called for what they do; else those that have nothing to do with streams are not.
        """
        local = isinstance(value, Function) and value.frame is not None
        for node in reversed(getattr(unit.node, "decorators", ())):
            expression = node.decorator
            target = expression.func if isinstance(expression, cst.Call) else expression
            if _text(target).rpartition(".")[2] in apis.HOST_FUNCTIONS:
                value = Partial(HOST_FUNCTION, (value,), ())
                continue
            made_by = self.unit(target.value) if isinstance(target, cst.Name) else None
            if local and isinstance(target, cst.Name):
                found = self.expressions.eval(target, st)
                made_by = found.unit if isinstance(found, Function) else made_by
            if registering and isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name):
                with self.scope(unit.slice, MODULE, None):
                    found = self.expressions.eval(target, st)
                made_by = found.unit if isinstance(found, Function) else None
            if (
                not isinstance(made_by, FunctionUnit)
                or made_by.generator
                or not (registering or made_by.qualname in self.run.relevant or st.capture is not None)
            ):
                continue
            rounds, self.run.rounds = self.run.rounds, []
            try:
                # of a function within another one they are asked for there, and elsewhere in the module
                with nullcontext() if local else self.scope(unit.slice, MODULE, None):
                    call = Call(expression, self.call_stack.site(expression), [value])
                    result = self.calls.call_value(self.expressions.eval(expression, st), call, st)
            finally:
                self.run.rounds = rounds
            if isinstance(result, (Function, Partial)):
                value = result
        return value

    def decorated(self, decorator: cst.BaseExpression, value: Value, st: State) -> Value:
        """A decorator that registers a function lets it be seen; what it returns is taken to be the function."""
        if isinstance(decorator, cst.Attribute) and decorator.attr.value in HOOK_REGISTRATIONS:
            self.hooks.register_hook(value, decorator.attr.value, st)
        return value

    def nested_class(self, node: cst.ClassDef) -> Value:
        """A class defined inside a function."""
        unit = self.run.nested.get(node)
        if unit is None:
            unit = self.run.nested[node] = self.class_unit(node, self.run.stack[-1].slice, node.name.value)
        assert isinstance(unit, ClassUnit)
        return Class(unit)

    def interpret_global(self, statement: ast.stmt, st: State) -> None:
        """Interpret a module-level assignment, in the module's scope."""
        slice_ = self.run.file.slice(statement)
        rounds, self.run.rounds = (
            self.run.rounds,
            [],
        )  # it is made once, although a loop may be the first to ask for it
        try:
            with self.scope(slice_, Name("module"), None):
                self.statements.block(slice_.module.body, st)
        finally:
            self.run.rounds = rounds

    def class_level(self, found: tuple[Slice, cst.BaseExpression], st: State) -> Value:
        """The value of a class-level assignment."""
        slice_, expression = found
        if isinstance(expression, cst.Ellipsis):
            return UNKNOWN
        with self.scope(slice_, Name("module"), None):
            return self.expressions.eval(expression, st)

    def scope(self, slice_: Slice, frame: Name, unit: FunctionUnit | None) -> Scope:
        """Interpret in another scope."""
        return Scope(self.run, slice_, frame, unit)

    # -- functions of the file -----------------------------------------------------------------------------------

    def class_of_method(self, name: str, call: Call) -> ClassUnit | None:
        """The one class of the file that has a method of this name, if the call fits it."""
        if self._method_owners is None:
            owners: dict[str, list[str]] = {}
            for class_name, statement in self.run.file.classes.items():
                for inner in statement.body:
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        owners.setdefault(inner.name, []).append(class_name)
            self._owners = owners
            self._method_owners = {}
        if name.startswith("__") or name in COMMON_METHODS or name in LIBRARY_METHODS:
            return None
        names = self._owners.get(name, [])
        if len(names) != 1 or f"{names[0]}.{name}" not in self.run.relevant:
            return None
        if any(
            a.unit is not None and a.unit.owner is not None and a.unit.owner.name == names[0]
            for a in self.run.stack
        ):
            return None  # within the class its objects are known by ``self``
        unit = self.unit(names[0])
        if not isinstance(unit, ClassUnit):
            return None
        fits = call.starred or unit.methods[name].takes(len(call.args), call.kwargs)
        return unit if fits else None


def _yields(node: cst.FunctionDef) -> bool:
    return any(type(inner) is cst.Yield for inner in concrete.walk(node.body, (cst.FunctionDef, cst.Lambda)))


def _dotted(decorator: cst.Decorator) -> str:
    return _text(decorator.decorator)


def _statements(statement: cst.CSTNode) -> list[cst.CSTNode]:
    if isinstance(statement, cst.SimpleStatementLine):
        return list(statement.body)
    if isinstance(statement, cst.If):
        return [s for inner in statement.body.body for s in _statements(inner)]
    return [statement]
