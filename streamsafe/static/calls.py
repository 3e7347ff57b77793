"""Calls: functions of the file are followed, library calls are looked up, anything else is taken to be careful."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.edges import Edge
from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import apis, sequences
from streamsafe.static.arrays import Arrays
from streamsafe.static.effects import AMBIENT, COPIES, EACH, GRADIENTS, HOOK, Assumed, Site
from streamsafe.static.expressions import MODULE
from streamsafe.static.source import ClassUnit, FunctionUnit, Slice, SourceFile
from streamsafe.static.state import State
from streamsafe.static.tensors import Call
from streamsafe.static.values import (
    FUTURE,
    NONE,
    PLAIN,
    POINTER,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Context,
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

if TYPE_CHECKING:
    from streamsafe.config import Models
    from streamsafe.static.interpreter import Activation

DEPTH = 7
UNROLLED = 16
"""Rounds of a loop that are interpreted one by one, where their number is known."""
MOST_ROUNDS = 32
"""The same for loops in loops."""
STEPS = 600
"""After how many statements of one entry calls are no longer followed."""
FILE_STEPS = 4_000
"""After how many statements of a file its further entries are looked at less deeply."""
LATE_STEPS = 100
"""The share of an entry in a file that has had its own."""
FACTORY_LINES = 8
"""A plain function of fewer lines is followed for what it returns."""
HOOK_REGISTRATIONS = frozenset(
    """register_hook register_post_accumulate_grad_hook register_full_backward_hook register_backward_hook
    register_full_backward_pre_hook register_multi_grad_hook""".split()
)


class Calls(Arrays):
    """Resolves and follows calls.

    Args:
        file: the source.
        models: the user's own wrappers.
    """

    def __init__(self, file: SourceFile, models: Models | None) -> None:
        super().__init__(file)
        self.models = models
        self.hooks: list[tuple[Function, State, bool]] = []
        self.own_events: set[Name] = set()
        self.event_sites: dict[Name, Site] = {}
        self.clock_sites: dict[object, Site] = {}
        self.lambdas: dict[int, FunctionUnit] = {}
        self.nested: dict[cst.CSTNode, FunctionUnit | ClassUnit] = {}
        self.entered: set[FunctionUnit] = set()
        self.captured_frames: set[Name] = set()
        self.steps = 0
        self.total_steps = 0
        self.unrolling = 1
        self.host_waits = False  # a thread has waited for another one
        self.followed = 0
        self.concerned: set[str] = set(file.definitions)  # by qualified name
        self.new_parameters = False  # each call of a method is taken to be given other objects
        self.paused: list[list[Activation]] = []
        self._owners: dict[str, list[str]] = {}
        self.element_types: dict[Name, cst.BaseExpression] = {}
        self._method_owners: dict[str, list[ClassUnit]] | None = None

    # -- units ---------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> FunctionUnit | ClassUnit | None:
        """A top-level function or class of the file."""
        name = name.rpartition(".")[2]
        if name in self.units:
            return self.units[name]
        self.units[name] = None
        statement = self.file.functions.get(name) or self.file.classes.get(name)
        if statement is not None:
            top = next((s for s in self.file.statements if s is statement), None)
            holder = top or next(
                s for s in self.file.statements if s.lineno <= statement.lineno <= (s.end_lineno or 0)
            )
            slice_ = self.file.slice(holder)
            node = self._find(slice_.module, name)
            if isinstance(node, cst.FunctionDef):
                self.units[name] = self.function_unit(node, slice_, name)
            elif isinstance(node, cst.ClassDef):
                self.units[name] = self.class_unit(node, slice_, name)
        return self.units[name]

    def _find(self, node: cst.CSTNode, name: str) -> cst.CSTNode | None:
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
                    found = found or (self._find(inner, name) if inner is not node else None)
        return found

    def function_unit(
        self, node: cst.FunctionDef, slice_: Slice, qualname: str, owner: ClassUnit | None = None
    ) -> FunctionUnit:
        """What is needed of a function to call it."""
        definitions = self.file.definitions.get(qualname, [])
        generator = any(d.generator for d in definitions) if definitions else _yields(node)
        return FunctionUnit(
            node.name.value, qualname, node, slice_, owner, generator, tuple(map(_dotted, node.decorators))
        )

    def class_unit(self, node: cst.ClassDef, slice_: Slice, qualname: str) -> ClassUnit:
        """What is needed of a class to make instances of it."""
        bases = tuple(_text(a.value) for a in node.bases)
        unit = ClassUnit(node.name.value, node, slice_, bases, decorators=tuple(map(_dotted, node.decorators)))
        for statement in node.body.body:
            for inner in _statements(statement):
                if isinstance(inner, cst.FunctionDef):
                    method = self.function_unit(inner, slice_, f"{qualname}.{inner.name.value}", unit)
                    if inner.name.value in unit.methods and any("setter" in d for d in method.decorators):
                        continue
                    unit.methods[inner.name.value] = method
                elif isinstance(inner, cst.Assign) and isinstance(inner.targets[0].target, cst.Name):
                    unit.attributes[inner.targets[0].target.value] = inner.value
                elif isinstance(inner, cst.AnnAssign) and isinstance(inner.target, cst.Name):
                    unit.annotations[inner.target.value] = inner.annotation.annotation
                    unit.attributes[inner.target.value] = inner.value or cst.Ellipsis()
        return unit

    def nested_function(self, node: cst.FunctionDef, st: State) -> Value:
        """A function defined inside another one."""
        activation = self.stack[-1]
        unit = self.nested.get(node)
        if unit is None:
            outer = activation.unit.qualname if activation.unit else ""
            qualname = f"{outer}.{node.name.value}" if outer else node.name.value
            unit = self.nested[node] = self.function_unit(node, activation.slice, qualname)
        assert isinstance(unit, FunctionUnit)
        self.captured_frames.add(activation.frame)
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

    def behind(self, unit: FunctionUnit, value: Value, st: State) -> Value:
        """What the decorators of a function make of it, those that are functions of the file."""
        for node in reversed(getattr(unit.node, "decorators", ())):
            expression = node.decorator
            target = expression.func if isinstance(expression, cst.Call) else expression
            made_by = self.unit(target.value) if isinstance(target, cst.Name) else None
            if not isinstance(made_by, FunctionUnit) or made_by.generator or made_by.qualname not in self.concerned:
                continue
            rounds, self.rounds = self.rounds, []
            try:
                with self.scope(unit.slice, MODULE, None):
                    call = Call(expression, self.site(expression), [value])
                    result = self.call_value(self.eval(expression, st), call, st)
            finally:
                self.rounds = rounds
            if isinstance(result, (Function, Partial)):
                value = result
        return value

    def decorated(self, decorator: cst.BaseExpression, value: Value, st: State) -> Value:
        """A decorator that registers a function lets it be seen; what it returns is taken to be the function."""
        if isinstance(decorator, cst.Attribute) and decorator.attr.value in HOOK_REGISTRATIONS:
            self.register_hook(value, decorator.attr.value, st)
        return value

    def nested_class(self, node: cst.ClassDef) -> Value:
        """A class defined inside a function."""
        unit = self.nested.get(node)
        if unit is None:
            unit = self.nested[node] = self.class_unit(node, self.stack[-1].slice, node.name.value)
        assert isinstance(unit, ClassUnit)
        return Class(unit)

    def interpret_global(self, statement: ast.stmt, st: State) -> None:
        """Interpret a module-level assignment, in the module's scope."""
        slice_ = self.file.slice(statement)
        rounds, self.rounds = self.rounds, []  # it is made once, although a loop may be the first to ask for it
        try:
            with self.scope(slice_, Name("module"), None):
                self.block(slice_.module.body, st)
        finally:
            self.rounds = rounds

    def class_level(self, found: tuple[Slice, cst.BaseExpression], st: State) -> Value:
        """The value of a class-level assignment."""
        slice_, expression = found
        if isinstance(expression, cst.Ellipsis):
            return UNKNOWN
        with self.scope(slice_, Name("module"), None):
            return self.eval(expression, st)

    def scope(self, slice_: Slice, frame: Name, unit: FunctionUnit | None) -> Scope:
        """Interpret in another scope."""
        return Scope(self, slice_, frame, unit)

    def block(self, statements: object, st: State) -> None:
        """Statements one after another."""
        raise AssertionError

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call, st: State) -> Value:
        receiver: Value | None = None
        name = ""
        if isinstance(node.func, cst.Attribute):
            receiver = self.eval(node.func.value, st)
            name = node.func.attr.value
        else:
            function = self.eval(node.func, st)
        call = Call(node, self.site(node))
        for argument in node.args:
            value = self.eval(argument.value, st)
            if argument.star == "*":
                if isinstance(value, Tuple):
                    call.args.extend(value.items)
                else:
                    call.starred = True
                    call.args.append(self.any_element(value, st) if isinstance(value, Container) else value)
            elif argument.star == "**":
                call.starred = True
                if isinstance(value, Container):
                    for key, held in list(st.store.of(value.name).items()):
                        if isinstance(key, str) and not key.startswith(("@", "*")):
                            call.kwargs[key] = held
                elif value != UNKNOWN and not isinstance(value, Const):
                    call.args.append(value)
            elif argument.keyword is not None:
                call.kwargs[argument.keyword.value] = value
            else:
                call.args.append(value)
        self.stack[-1].temporaries.extend(call.everything())
        if receiver is not None:
            return self.call_method(receiver, name, call, st)
        if isinstance(node.func, cst.Name):
            call.text = node.func.value
        return self.call_value(function, call, st)

    def call_value(self, function: Value, call: Call, st: State) -> Value:
        """Call anything; of a union each alternative under its guard."""
        choices = alternatives(function, st.path)
        if len(choices) == 1:
            return self._call_one(choices[0][0], call, st)
        return self.each_way([(v, g, lambda s, v=v: self._call_one(v, call, s)) for v, g in choices], st)

    def each_way(self, ways: list[tuple[Value, object, Callable[[State], Value]]], st: State) -> Value:
        """Do different things under different guards, and join."""
        ends: list[tuple[State, Value]] = []
        for _, guard, action in ways:
            branch = st.copy()
            branch.assume(guard)  # type: ignore[arg-type]
            if branch.dead:
                continue
            value = action(branch)
            if not branch.dead:
                ends.append((branch, value))
        return self.join_values(ends, st)

    def join_values(self, ends: list[tuple[State, Value]], st: State) -> Value:
        """Paths that end with a value meet; ``st`` becomes the joined state."""
        key = (Name("joined"), "value")
        joined: State | None = None
        for state, value in ends:
            state.store[key] = value
            joined = self.join(joined, state)
        if joined is None:
            st.dead = True
            return UNKNOWN
        if joined is not st:
            st.become(joined)
        return st.store.pop(key, UNKNOWN)

    def _call_one(self, function: Value, call: Call, st: State) -> Value:
        if isinstance(function, Function):
            compiled = self.compiled(function.unit)
            if compiled is not None:
                return self.launch_compiled(function.unit, compiled, call, st)
            call.kwargs.pop("@grid", None)
            return self.call_function(function, call.args, call.kwargs, st, call.node, starred=call.starred)
        if isinstance(function, Partial):
            if function.kwargs[:1] and function.kwargs[0][0] == "@grid":
                call.kwargs["@grid"] = function.kwargs[0][1]
                return self._call_one(function.function, call, st)
            merged = Call(
                call.node,
                call.site,
                [*function.args, *call.args],
                {**dict(function.kwargs), **call.kwargs},
                call.text,
                call.starred,
            )
            return self.call_value(function.function, merged, st)
        if isinstance(function, Class):
            return self.instantiate(function.unit, call, st)
        if isinstance(function, Api):
            return self.call_api(function.name, call, st)
        if isinstance(function, Method):
            return self.call_method(function.receiver, function.name, call, st)
        if isinstance(function, Instance):
            for name in ("__call__", "forward"):
                method = self.find_method(function.unit, name)
                if method is not None:
                    bound = Function(method, None, function)
                    return self.call_function(bound, call.args, call.kwargs, st, call.node, starred=call.starred)
        if isinstance(function, Opaque) and function.name.parent is not None and function.name.site in _LIBRARY_METHODS:
            return self._method(Opaque(function.name.parent), str(function.name.site), call, st)  # a bound method
        return self.unmodelled(function, call, st)

    def call_api(self, name: str, call: Call, st: State) -> Value:
        """A library function."""
        call.text = name
        model = self.models.get(name) if self.models else None
        if model is not None:
            return self.user_model(model, call, st)
        if name.startswith(".") or "." not in name:
            local = self.api_verb(name)
            if local is None:
                tail = name.rpartition(".")[2]
                if tail == "current_stream" and not call.args:
                    return self.do_current_stream(call, st)
                if tail in apis.FUNCTIONS or tail == "get_accelerator":
                    return self.verb(apis.FUNCTIONS[tail], call, st)
                return self.unmodelled(Api(name), call, st)
        if name.endswith(".get_accelerator"):
            return Api("torch.cuda")
        verb = self.api_verb(name)
        if verb is None and name.endswith(".current_stream") and not call.args:
            verb = "current_stream"  # of a device module that is not known
        if verb is None:
            return self.unmodelled(Api(name), call, st)
        return self.verb(verb, call, st)

    def api_attribute(self, base: Api, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a library's module."""
        full = apis.canonical(f"{base.name}.{name}")
        verb = apis.ATTRIBUTES.get(full)
        if verb is not None:
            return self.verb(verb, Call(node, self.site(node), text=full), st)
        return Api(full)

    # -- functions of the file -----------------------------------------------------------------------------------

    def call_function(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        st: State,
        node: cst.CSTNode,
        *,
        starred: bool = False,
    ) -> Value:
        """Follow a call; a generator or a context manager waits for its consumer."""
        unit = function.unit
        if unit.generator:
            return Generator(function, tuple(args), tuple(kwargs.items()), node)
        deep = len(self.stack) > DEPTH or self.is_exhausted()
        given = function.frame is not None or self.hands_over(function, [*args, *kwargs.values()], st)
        plain = not given and not self.threads and not self.is_concerned(unit) and not self.makes(unit)
        if not deep and plain and self.is_quiet(st):
            deep = True  # nothing is under way that it could meet, and it starts nothing
        if deep or any(a.unit is unit for a in self.stack):
            return self.unmodelled(function, Call(node, self.site(node), list(args), dict(kwargs)), st)
        result = self.run_function(function, args, kwargs, st, node, starred=starred)
        self.stack[-1].temporaries.append(result)
        return result

    def hands_over(self, function: Function, args: list[Value], st: State) -> bool:
        """Whether a call is given what it may do anything with: functions, streams, a method's object's streams."""
        if any(isinstance(v, _HANDED) for a in args for v in iterate(a)):
            return True
        if not isinstance(function.receiver, Instance):
            return False
        calls = [d.calls for d in self.file.definitions.get(function.unit.qualname, ())]
        return any(
            isinstance(key, str) and isinstance(v, _HANDED) and any(key in names for names in calls)
            for key, value in st.store.of(function.receiver.name).items()
            for v in iterate(value)
        )

    def is_exhausted(self) -> bool:
        """Whether this entry, or the whole file, has had its share of statements: calls are no longer followed."""
        return self.steps > (STEPS if self.total_steps < FILE_STEPS else LATE_STEPS)

    def is_concerned(self, unit: FunctionUnit) -> bool:
        """Whether a function holds stream code, calls some, or changes an object whose other methods do."""
        if unit.qualname in self.concerned or unit.qualname not in self.file.definitions:
            return True
        return unit.owner is not None and any(f"{unit.owner.name}.{m}" in self.concerned for m in unit.owner.methods)

    def makes(self, unit: FunctionUnit) -> bool:
        """Whether a plain function is a short one that a library is called in: what it returns matters."""
        definitions = self.file.definitions.get(unit.qualname, ())
        return any(
            (d.node.end_lineno or 0) - d.node.lineno < FACTORY_LINES and not d.calls.isdisjoint(self.file.imports)
            for d in definitions
        )

    def is_quiet(self, st: State) -> bool:
        """Whether nothing is under way that a plain function could meet: no capture, clock, side stream or copy."""
        if st.capture is not None or st.clocks or st.graphs:
            return False
        if any(v != Stream(AMBIENT, library) for library, v in st.current.items()):
            return False
        return not any(
            made.timeline != AMBIENT or getattr(made.detail, "tags", frozenset()) & COPIES
            for made, _ in st.order.iterate()
        )

    def run_function(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        st: State,
        node: cst.CSTNode,
        *,
        starred: bool = False,
        on_yield: Callable[[Value, State], Value] | None = None,
        root: bool = False,
    ) -> Value:
        """Interpret a function's body for these arguments; as a root nobody is seen to give any."""
        from streamsafe.static.interpreter import Activation

        unit = function.unit
        self.followed += 1
        self.entered.add(unit)
        outer = self.stack[-1].path if self.stack else ()
        path = (*outer, id(node))[-4:]
        frame = Name((id(unit.node), "frame"), path)
        self.closed.add(frame)
        if function.frame is not None:
            self.closures[frame] = function.frame
        st.store.drop(frame)
        activation = Activation(frame, unit, unit.slice, path, on_yield=on_yield)
        self.bind_arguments(function, frame, args, kwargs, st, starred or root)
        self.stack.append(activation)
        try:
            if isinstance(unit.node, cst.Lambda):
                activation.returns.append((st, self.eval(unit.node.body, st)))
            else:
                self.block(unit.node.body.body, st)
                if not st.dead:
                    activation.returns.append((st.copy(), NONE))
        finally:
            self.stack.pop()
        result = self.join_values(activation.returns, st)
        if frame not in self.captured_frames:
            for value in list(st.store.of(frame).values()):
                self.lose(st, value)
            st.store.drop(frame)
        return result

    def bind_arguments(
        self,
        function: Function,
        frame: Name,
        args: list[Value],
        kwargs: dict[str, Value],
        st: State,
        starred: bool,
    ) -> None:
        """Parameters take their arguments, defaults, or stand for themselves."""
        unit = function.unit
        parameters = unit.node.params
        positional = [*parameters.posonly_params, *parameters.params]
        given = list(args)
        if function.receiver is not None:
            given.insert(0, function.receiver)
        rest = dict(kwargs)
        named = [*positional, *parameters.kwonly_params]
        for position, parameter in enumerate(named):
            name = parameter.name.value
            if name in rest:
                value = rest.pop(name)
            elif position < len(positional) and position < len(given):
                value = given[position]
            elif parameter.default is not None and not starred:
                with self.scope(unit.slice, function.frame or Name("module"), None):
                    value = self.eval(parameter.default, st)
            else:
                value = self.parameter(unit, parameter, st)
            if isinstance(value, Opaque):
                value = self.annotated(value, parameter.annotation, st)
            st.store[(frame, name)] = value
        star = parameters.star_arg
        if isinstance(star, cst.Param):
            extra = tuple(given[len(positional) :])
            st.store[(frame, star.name.value)] = (
                Tuple(extra) if not starred else Opaque(Name(star.name.value, (id(unit.node),)))
            )
            if starred and not extra:
                st.store[(frame, star.name.value)] = Opaque(Name(star.name.value, (id(unit.node),)))
        if parameters.star_kwarg is not None:
            name = Name((id(unit.node), "kwargs"), frame.path)
            self.closed.add(name)
            for key, value in rest.items():
                st.store[(name, key)] = value
            st.store[(frame, parameters.star_kwarg.name.value)] = Container(name, "dict")

    def parameter(self, unit: FunctionUnit, parameter: cst.Param, st: State) -> Value:
        """A parameter nobody is seen to give: its annotation may tell what it is."""
        name = Name(parameter.name.value, (id(unit.node),))
        if self.new_parameters:
            for names in self.rounds:
                names.add(name)
        self.texts.setdefault(name, parameter.name.value)
        return self.annotated(Opaque(name), parameter.annotation, st)

    def annotated(self, value: Opaque, annotation: cst.Annotation | None, st: State) -> Value:
        """What an annotation says of an object of unknown kind."""
        if annotation is None:
            return value
        return self.described(value, annotation.annotation, st)

    def described(self, value: Opaque, annotation: cst.BaseExpression, st: State) -> Value:
        """What a type says of an object of unknown kind; of a container's, what its elements are."""
        if isinstance(annotation, cst.Subscript) and _text(annotation.value).rpartition(".")[2] in _CONTAINERS:
            last = annotation.slice[-1].slice
            if isinstance(last, cst.Index):
                self.element_types[value.name.base()] = last.value
            return value
        text = _text(annotation).strip("\"'")
        unit = self.unit(text) if text.isidentifier() else None
        if isinstance(unit, ClassUnit):
            return self.materialized(value, unit, st)
        tail = text.rpartition(".")[2]
        if tail in ("int", "float", "bool", "str", "dtype", "Size", "Callable"):
            self.plain.add(value.name.base())
            return value
        if tail == "Stream":
            return self.as_stream(value, "cupy" if self.default_library == "cupy" else "torch")
        if tail in ("Tensor", "ndarray") and not text.startswith(("np.", "numpy.")):
            self.mark_tensor(st, value)
            return value
        if text.startswith(("np.ndarray", "numpy.ndarray")):
            st.store[(value.name, "@place")] = Const("pageable")
            return Tensor(value.name, None, True)
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
        instance = Instance(value.name, unit)
        if (value.name, "@materialized") in st.store:
            return instance
        st.store[(value.name, "@materialized")] = PLAIN
        rounds, self.rounds = self.rounds, []  # what it holds was made elsewhere: no round makes it anew
        try:
            self.initialize(instance, unit, Call(unit.node, self.site_in(unit.slice, unit.node)), st, known=False)
        finally:
            self.rounds = rounds
        return instance

    def instantiate(self, unit: ClassUnit, call: Call, st: State) -> Value:
        """``Class(...)``."""
        name = self.fresh(call.node, st, f"{unit.name}()")
        self.closed.add(name)
        instance = Instance(name, unit)
        self.initialize(instance, unit, call, st, known=True)
        return instance

    def initialize(self, instance: Instance, unit: ClassUnit, call: Call, st: State, *, known: bool) -> None:
        """Run ``__init__``, or fill a dataclass's fields."""
        init = self.find_method(unit, "__init__")
        if init is not None:
            if any(a.unit is init for a in self.stack) or len(self.stack) > DEPTH:
                return
            outer = self.stack[-1].path if self.stack else ()
            if self.stack and not known:
                self.stack[-1].path = (*outer, instance.name)[-4:]  # type: ignore[assignment]
            try:
                self.run_function(
                    Function(init, None, instance),
                    call.args,
                    call.kwargs,
                    st,
                    call.node,
                    starred=call.starred,
                    root=not known,
                )
            finally:
                if self.stack:
                    self.stack[-1].path = outer
            return
        if not known:
            return
        fields = list(self.fields(unit))
        for position, field in enumerate(fields):
            value = call.get(position, field)
            if value is None:
                found = self.find_class_attribute(unit, field)
                value = self.class_level(found, st) if found is not None else UNKNOWN
            st.store[(instance.name, field)] = value
        post = self.find_method(unit, "__post_init__")
        if post is not None:
            self.run_function(Function(post, None, instance), [], {}, st, call.node)

    def fields(self, unit: ClassUnit) -> list[str]:
        """The fields of a dataclass or a named tuple, its bases' first."""
        found: list[str] = []
        for owner in reversed(list(self.ancestry(unit))):
            if owner.is_dataclass or any("NamedTuple" in b for b in owner.bases):
                found.extend(name for name in owner.attributes if name not in found)
        return found

    def class_of_method(self, name: str) -> ClassUnit | None:
        """The one class of the file that has a method of this name."""
        if self._method_owners is None:
            owners: dict[str, list[str]] = {}
            for class_name, statement in self.file.classes.items():
                for inner in statement.body:
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        owners.setdefault(inner.name, []).append(class_name)
            self._owners = owners
            self._method_owners = {}
        if name.startswith("__") or name in COMMON_METHODS or name in _LIBRARY_METHODS:
            return None
        names = self._owners.get(name, [])
        if len(names) != 1 or f"{names[0]}.{name}" not in self.concerned:
            return None
        if any(a.unit is not None and a.unit.owner is not None and a.unit.owner.name == names[0] for a in self.stack):
            return None  # within the class its objects are known by ``self``
        unit = self.unit(names[0])
        return unit if isinstance(unit, ClassUnit) else None

    # -- generators, comprehensions, contexts --------------------------------------------------------------------

    def run_generator(
        self, generator: Generator, st: State, node: cst.CSTNode, consumer: Callable[[Value, State], Value]
    ) -> Value:
        """Interpret a generator; at each ``yield`` its consumer goes on."""
        function = generator.function
        if not isinstance(function, Function):
            return UNKNOWN
        if len(self.stack) > DEPTH or any(a.unit is function.unit for a in self.stack):
            consumer(UNKNOWN, st)
            return UNKNOWN
        depth = len(self.stack)

        def on_yield(value: Value, state: State) -> Value:
            inner, self.stack[depth:] = self.stack[depth:], []
            self.paused.append(inner)
            try:
                return consumer(value, state)
            finally:
                self.paused.pop()
                self.stack.extend(inner)

        return self.run_function(
            function, list(generator.args), dict(generator.kwargs), st, node, on_yield=on_yield
        )

    def _yield(self, node: cst.Yield, st: State) -> Value:
        activation = self.stack[-1]
        if isinstance(node.value, cst.From):
            inner = self.eval(node.value.item, st)
            if isinstance(inner, Generator) and activation.on_yield is not None:
                return self.run_generator(inner, st, node, activation.on_yield)
            return UNKNOWN
        value = self.eval(node.value, st) if node.value is not None else NONE
        if activation.on_yield is not None:
            return activation.on_yield(value, st)
        if activation.unit is not None and not activation.unit.is_contextmanager:
            self.consumed(st, value, self.site(node))
        return UNKNOWN

    def consumed(self, st: State, value: Value, site: Site) -> None:
        """What is yielded to a consumer who is not seen is read on the stream that is current there."""
        saved = st.current
        st.current = {}
        for target, guard in self.tensors(st, value):
            if not self.is_host(st, target) and (isinstance(target, Tensor) or target.name in st.order.made):
                library = self.library_of(st, [target])
                self.access(
                    st, union([(target, guard)]), site, "the consumer", writes=False, library=library,
                    assumed=Assumed.UNMODELLED,
                )
        st.current = saved

    def _comprehension(self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp, st: State) -> Value:
        kind = "dict" if isinstance(node, cst.DictComp) else "list"
        name = self.fresh(node, st, kind)
        self.closed.add(name)
        result = Container(name, kind)
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            sequences.put(st, result, [])
        self.stack[-1].temporaries.append(result)

        def element(state: State) -> None:
            if isinstance(node, cst.DictComp):
                key = self.eval(node.key, state)
                value = self.eval(node.value, state)
                self.store_element(result, key, value, state)
                if isinstance(key, Opaque) and key.name.site == EACH:
                    self.extend_container(state, result, Tuple((value,)))
            else:
                self.extend_container(state, result, Tuple((self.eval(node.elt, state),)))

        if not self._comp_for(node.for_in, st, element):
            sequences.blur(st, result)
        return result

    def _comp_for(self, clause: cst.CompFor, st: State, element: Callable[[State], None]) -> bool:
        """Whether every round was made; else one stands for all: the elements of a comprehension are made alike."""
        iterable = self.eval(clause.iter, st)
        exact = True

        def body(item: Value, state: State) -> None:
            nonlocal exact
            self.assign(clause.target, item, state, clause)
            for condition in clause.ifs:
                outcomes = self.test(condition.test, state, track=False)
                if not any(outcome for outcome, _ in outcomes):
                    return
                exact = exact and all(outcome for outcome, _ in outcomes)
            if clause.inner_for_in is not None:
                exact = self._comp_for(clause.inner_for_in, state, element) and exact
            else:
                element(state)

        items = self.literal_items(iterable, st)
        if isinstance(iterable, Generator):
            self.run_generator(iterable, st, clause, lambda value, state: (body(value, state), NONE)[1])
        elif items is not None:
            for number, item in enumerate(items):
                with self.round_apart(clause, number, len(items)):
                    body(item, st)
            return exact
        else:
            before = self.followed
            made: set[Name] = set()
            self.rounds.append(made)
            body(self.next_item(iterable, st, clause), st)
            if self.followed != before and not st.dead:
                self.release_unreachable(st, self.site(clause), self.suspended())
                self.age(st, made)
                body(self.next_item(iterable, st, clause), st)
            self.rounds.pop()
            if self.rounds:
                self.rounds[-1] |= made
        return False

    def suspended(self) -> Iterable[Value]:
        """Values that callers still hold."""
        raise AssertionError

    def literal_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of something short whose length is known."""
        found = self.known_items(iterable, st)
        if found is None or len(found) > UNROLLED or len(found) * self.unrolling > MOST_ROUNDS:
            return None
        return found

    def known_items(self, iterable: Value, st: State) -> list[Value] | None:
        """The elements of a tuple, a list, a range, or an enumeration of one; None where they are not known."""
        if isinstance(iterable, Tuple):
            return list(iterable.items)
        if isinstance(iterable, Container):
            return sequences.items(st, iterable)
        if not (isinstance(iterable, Partial) and isinstance(iterable.function, Api) and iterable.args):
            return None
        name, args, options = iterable.function.name, iterable.args, dict(iterable.kwargs)
        if name == "builtins.range":
            bounds = [a.value if isinstance(a, Const) and type(a.value) is int else None for a in args]
            if None in bounds or 0 in bounds[2:] or len(range(*bounds)) > UNROLLED:  # type: ignore[arg-type]
                return None
            return [Const(number) for number in range(*bounds)]  # type: ignore[arg-type]
        if name == "builtins.enumerate":
            start = options.get("start", args[1] if len(args) > 1 else Const(0))
            inner = self.known_items(args[0], st)
            if inner is None or not isinstance(start, Const) or type(start.value) is not int:
                return None
            return [Tuple((Const(number), item)) for number, item in enumerate(inner, start.value)]
        if name == "builtins.zip":
            columns = [self.known_items(a, st) for a in args]
            if any(column is None for column in columns):
                return None
            return [Tuple(row) for row in zip(*columns)]  # type: ignore[arg-type]  # noqa: B905 - as short as the shortest
        if name == "builtins.reversed":
            inner = self.known_items(args[0], st)
            return None if inner is None else inner[::-1]
        return None

    @contextmanager
    def round_apart(self, node: cst.CSTNode, number: int, count: int) -> Iterator[None]:
        """What one of a few known rounds makes is not what another makes."""
        activation = self.stack[-1]
        outer, before = activation.path, self.unrolling
        activation.path = (*outer, (id(node), number))[-4:]  # type: ignore[assignment]
        self.unrolling = before * max(count, 1)
        try:
            yield
        finally:
            activation.path, self.unrolling = outer, before

    def iterate_over(
        self,
        iterable: Value,
        st: State,
        node: cst.CSTNode,
        body: Callable[[Value, State], object],
        *,
        at_least_once: bool = False,
    ) -> None:
        """Walk an iterable."""
        raise AssertionError

    def next_of_call(self, iterable: Partial, st: State, node: cst.CSTNode) -> Value:
        """The next element of ``zip``, ``enumerate`` and their like."""
        name = iterable.function.name if isinstance(iterable.function, Api) else ""
        items = [self.next_item(a, st, node) for a in iterable.args]
        if name == "builtins.enumerate":
            return Tuple((Opaque(self.fresh(node, st, "index")), items[0] if items else UNKNOWN))
        if name == "builtins.zip":
            return Tuple(tuple(items))
        if name == "builtins.range":
            return Opaque(self.fresh(node, st, "index"))
        if name == "builtins.items":
            return Tuple((Opaque(self.fresh(node, st, "key")), items[0] if items else UNKNOWN))
        if name == "builtins.map":
            result = self.next_item(iterable.args[1], st, node) if len(iterable.args) > 1 else UNKNOWN
            return self.call_value(iterable.args[0], Call(node, self.site(node), [result]), st)
        return items[0] if items else UNKNOWN

    def next_item(self, iterable: Value, st: State, node: cst.CSTNode) -> Value:
        """The next element of what a loop walks."""
        raise AssertionError

    def do_map_call(self, call: Call, st: State) -> Value:
        """``map(f, xs)``: the function runs for each element, now."""
        if len(call.args) < 2:
            return UNKNOWN
        if call.text.endswith("filter"):
            return call.args[1]
        name = self.fresh(call.node, st, "map")
        self.closed.add(name)
        result = Container(name, "list")

        def body(item: Value, state: State) -> None:
            value = self.call_value(call.args[0], Call(call.node, call.site, [item]), state)
            self.extend_container(state, result, Tuple((value,)))

        body(self.next_item(call.args[1], st, call.node), st)
        return result

    def never_empty(self, node: cst.BaseExpression, iterable: Value) -> bool:
        """Whether a loop surely has a round."""
        if isinstance(iterable, Partial) and iterable.function == Api("builtins.range"):
            bounds = [a.value if isinstance(a, Const) else None for a in iterable.args]
            if len(bounds) == 1 and isinstance(bounds[0], int):
                return bounds[0] > 0
            if len(bounds) >= 2 and isinstance(bounds[0], int) and isinstance(bounds[1], int):
                return bounds[1] > bounds[0]
            # a loop over a count that is a parameter is written for the case that it runs
            return False
        if all(isinstance(v, Container) and v.kind != "queue" for v in iterate(iterable)):
            return True  # what was put into it is there
        return isinstance(node, (cst.List, cst.Tuple)) and bool(node.elements)

    def count_of(self, iterable: Value) -> Opaque | None:
        """The object whose truth says whether a loop has a round."""
        if isinstance(iterable, Partial) and isinstance(iterable.function, Api):
            if iterable.function.name == "builtins.range":
                bounds = iterable.args
                return bounds[0] if len(bounds) == 1 and isinstance(bounds[0], Opaque) else None
            return self.count_of(iterable.args[0]) if iterable.args else None
        if isinstance(iterable, Opaque) and not isinstance(iterable.name.root().site, tuple):
            return iterable
        return None

    def iteration_starts(self, iterable: Value, st: State, site: Site) -> frozenset[object]:
        """A loader that pins memory is at work while it is walked."""
        added = frozenset(
            st.store[(v.name, "@pins")].value  # type: ignore[attr-defined]
            for v in iterate(self._loader(iterable))
            if isinstance(v, Opaque) and (v.name, "@pins") in st.store
        )
        st.threads |= added
        return added

    def _loader(self, iterable: Value) -> Value:
        while isinstance(iterable, Partial) and iterable.args:
            iterable = iterable.args[0]
        return iterable

    def within(
        self, manager: Value, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        """``with manager: body``."""
        choices = alternatives(manager, st.path)
        kinds = [self._context(v) for v, _ in choices]
        if any(isinstance(v, Generator) for v in kinds):
            if len(kinds) == 1:
                generator = kinds[0]
                assert isinstance(generator, Generator)
                self.run_generator(generator, st, node, lambda value, state: (body(value, state), NONE)[1])
                return
            self.each_way(
                [(v, g, lambda s, v=v: (self.within(v, s, node, body), NONE)[1]) for v, g in choices], st
            )
            return
        contexts = [(v, g) for v, (_, g) in zip(kinds, choices)]
        if len(contexts) == 1 and isinstance(contexts[0][0], Instance):
            self._within_instance(contexts[0][0], st, node, body)
            return
        if any(isinstance(v, Context) and v.kind in ("capture", "raises") for v, _ in contexts):
            if len(contexts) > 1:
                self.each_way(
                    [(v, g, lambda s, v=v: (self.within(v, s, node, body), NONE)[1]) for v, g in contexts], st
                )
            elif contexts[0][0].kind == "capture":  # type: ignore[attr-defined]
                self._within_capture(contexts[0][0], st, node, body)  # type: ignore[arg-type]
            else:
                failed = st.copy()
                self.silent += 1
                body(UNKNOWN, failed)
                self.silent -= 1
                if failed.capture is None:
                    st.leave_capture()
            return
        before = dict(st.current)
        if len(contexts) == 1 and isinstance(contexts[0][0], Context) and contexts[0][0].kind == "device":
            self.enter_device(contexts[0][0], st)
        self._enter_streams(contexts, st)
        value = self._entered_value(manager, contexts)

        def leave(state: State) -> None:
            state.current = dict(before)

        with self.exits(leave):
            body(value, st)
        leave(st)

    def _context(self, value: Value) -> Value:
        if isinstance(value, Stream):
            return Context("stream", (value,))
        return value

    def _entered_value(self, manager: Value, contexts: list[tuple[Value, object]]) -> Value:
        first = contexts[0][0] if contexts else UNKNOWN
        if isinstance(first, Context):
            if first.kind == "nothing" and first.payload:
                return first.payload[0]
            if first.kind == "stack":
                return first
            if first.kind == "stream" and isinstance(manager, Stream):
                return manager
            return NONE
        return manager if isinstance(manager, Object) else UNKNOWN

    def _enter_streams(self, contexts: list[tuple[Value, object]], st: State) -> None:
        for library in ("torch", "cupy"):
            before = self.current(st, library)
            found: list[tuple[Value, object]] = []
            touched = False
            for context, guard in contexts:
                streams = (
                    list(alternatives(context.payload[0], st.path))
                    if isinstance(context, Context) and context.kind == "stream"
                    else []
                )
                own = [(s, g) for s, g in streams if isinstance(s, Stream) and s.library == library]
                other = [(s, g) for s, g in streams if not (isinstance(s, Stream) and s.library == library)]
                touched = touched or bool(own)
                found.extend((s, guard & g) for s, g in own if not guard.contradicts(g))  # type: ignore[operator, attr-defined]
                found.extend((before, guard & g) for _, g in other if not guard.contradicts(g))  # type: ignore[operator, attr-defined]
                if not streams:
                    found.append((before, guard))
            if touched:
                st.current[library] = self.exclusive(st, union(found))  # type: ignore[arg-type]

    def exits(self, on_exit: Callable[[State], None]):  # type: ignore[no-untyped-def]
        """Run ``on_exit`` on every state that leaves a block early."""
        raise AssertionError

    def _within_instance(
        self, instance: Instance, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        enter = self.find_method(instance.unit, "__enter__") or self.find_method(instance.unit, "__aenter__")
        leave_method = self.find_method(instance.unit, "__exit__") or self.find_method(instance.unit, "__aexit__")
        value: Value = instance
        if enter is not None:
            value = self.call_function(Function(enter, None, instance), [], {}, st, node)

        def leave(state: State) -> None:
            if leave_method is not None and not state.dead:
                self.call_function(Function(leave_method, None, instance), [NONE, NONE, NONE], {}, state, node)

        with self.exits(leave):
            if not st.dead:
                body(value, st)
        leave(st)

    def _within_capture(
        self, context: Context, st: State, node: cst.CSTNode, body: Callable[[Value, State], None]
    ) -> None:
        graph, stream = context.payload[0], context.payload[1]
        site = self.site(node)
        mode = self.capture_mode(dict(context.options).get("mode"))
        if st.capture is None:
            self.host_learns_everything(st, site)  # __enter__ synchronizes the device (GC-18)
        before = dict(st.current)
        side: Value = Stream(Name("the capture stream", ()))
        if stream != NONE and stream is not None:
            side = self.as_stream(stream, "torch")
            if isinstance(side, Union):  # whichever it is, it is one stream
                side = next((v for v in iterate(side) if isinstance(v, Stream) and v.name != AMBIENT), side)
        self.enter_stream(st, side, "torch")
        self.capture_begin(st, graph, None, mode, "torch", site)

        def leave(state: State) -> None:
            self.capture_end(state, site)
            state.current = dict(before)

        with self.exits(leave):
            body(graph, st)
        if not st.dead:
            leave(st)

    # -- methods -------------------------------------------------------------------------------------------------

    def call_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """``receiver.name(...)``."""
        choices = alternatives(receiver, st.path)
        if len(choices) > 1:
            kinds = {type(v) for v, _ in choices}
            if kinds <= {Tensor, Opaque} or kinds <= {Stream} or kinds <= {Event}:
                return self._joint_method(receiver, choices[0][0], name, call, st)
            if Work in kinds and name in ("wait", "synchronize"):  # whichever it is, it is the one that was meant
                for work, _ in choices:
                    if work != NONE:
                        self._method(work, name, self.copied(call), st)
                return UNKNOWN
            return self.each_way(
                [(v, g, lambda s, v=v: self._method(v, name, self.copied(call), s)) for v, g in choices if v != NONE],
                st,
            )
        return self._method(choices[0][0] if choices else UNKNOWN, name, call, st)

    @staticmethod
    def copied(call: Call) -> Call:
        """The same call, for another alternative."""
        return Call(call.node, call.site, list(call.args), dict(call.kwargs), call.text, call.starred)

    def _joint_method(self, receiver: Value, first: Value, name: str, call: Call, st: State) -> Value:
        """A method of one of several streams, events or tensors: the verbs take guarded values as they are."""
        if isinstance(first, Stream) and name in apis.STREAM_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.STREAM_METHODS[name], call, st)
        if isinstance(first, Event) and name in apis.EVENT_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.EVENT_METHODS[name], call, st)
        return self.tensor_method(receiver, name, call, st)

    def _method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        if isinstance(receiver, Api):
            return self.call_api(apis.canonical(f"{receiver.name}.{name}"), call, st)
        if isinstance(receiver, Stream) and name in apis.STREAM_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.STREAM_METHODS[name], call, st)
        if isinstance(receiver, Stream) and name in ("__enter__", "__exit__"):
            receiver = Context("stream", (receiver,))
        if isinstance(receiver, Event) and name in apis.EVENT_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.EVENT_METHODS[name], call, st)
        if isinstance(receiver, Graph) and name in apis.GRAPH_METHODS:
            call.args.insert(0, receiver)
            return self.verb(apis.GRAPH_METHODS[name], call, st)
        if isinstance(receiver, Work):
            return self._work_method(receiver, name, call, st)
        if isinstance(receiver, Tensor):
            return self.tensor_method(receiver, name, call, st)
        if isinstance(receiver, Partial) and receiver.function == POINTER:
            return self.pointer_method(receiver, name, call, st)
        if isinstance(receiver, Partial) and receiver.function == FUTURE:
            return receiver.args[0] if name == "result" else PLAIN
        if isinstance(receiver, (Instance, Class)):
            return self._instance_method(receiver, name, call, st)
        if isinstance(receiver, Container):
            return self._container_method(receiver, name, call, st)
        if isinstance(receiver, Tuple):
            return UNKNOWN
        if isinstance(receiver, Context):
            return self._context_method(receiver, name, call, st)
        if isinstance(receiver, Generator) and name in ("__next__", "send", "close"):
            return UNKNOWN
        if isinstance(receiver, Opaque):
            return self.opaque_method(receiver, name, call, st)
        if isinstance(receiver, Device):
            return self.do_synchronize_device(call, st) if name == "synchronize" else PLAIN
        if isinstance(receiver, Const):
            for value in call.everything() if name in ("format", "join", "write") else ():
                self.read_on_host(st, value, call.site, f"{name}()")
            return PLAIN
        if isinstance(receiver, Function):
            return self.unmodelled(receiver, call, st)
        if type(receiver) is Value and name in ("wait", "synchronize", "item", "tolist"):
            self.host_learns_everything(st, call.site)  # of an object that is not known
            return UNKNOWN
        return self.unmodelled(receiver, call, st, name)

    def _work_method(self, work: Work, name: str, call: Call, st: State) -> Value:
        if name == "wait":
            self.wait_event(st, Event(work.name), None, "torch", call.site)  # comm -> cur, not the host (TD-02)
        elif name == "synchronize":
            self.wait_event(st, Event(work.name), None, "torch", call.site)
        return UNKNOWN

    def _context_method(self, context: Context, name: str, call: Call, st: State) -> Value:
        if name in ("enter_context", "__enter__", "push"):
            value = self._context(call.args[0]) if call.args else context
            if isinstance(value, Context) and value.kind == "stream":
                self.enter_stream(st, value.payload[0], self.stream_library(value.payload[0]))
            elif isinstance(value, Union):
                self._enter_streams([(self._context(v), g) for v, g in alternatives(value, st.path)], st)
            return UNKNOWN
        if name == "__exit__" and context.kind == "stream":
            st.current.pop(self.stream_library(context.payload[0]), None)
            return NONE
        if name == "synchronize" and context.kind == "device":
            return self.synchronize_one(context, call, st)
        if name == "use" and context.kind == "device":
            self.enter_device(context, st)
            return context
        return UNKNOWN

    def _instance_method(self, receiver: Instance | Class, name: str, call: Call, st: State) -> Value:
        if isinstance(receiver, Class):
            if name == "apply":
                forward = self.find_method(receiver.unit, "forward")
                if forward is not None:
                    context = Opaque(self.fresh(call.node, st, "ctx"))
                    return self.call_function(Function(forward), [context, *call.args], call.kwargs, st, call.node)
            attribute = self.class_attribute(receiver.unit, name, st)
            return self.call_value(attribute, call, st)
        held = st.store.get((receiver.name, name))
        if held is not None:
            return self.call_value(held, call, st)
        method = self.find_method(receiver.unit, name)
        if method is not None:
            bound: Value = Function(method, None, receiver)
            if method.decorators:
                plain: Value = Function(method)
                decorated = self.behind(method, plain, st)
                bound = bound if decorated is plain else Partial(decorated, (receiver,), ())
            if method.is_static:
                bound = Function(method)
            elif method.is_classmethod:
                bound = Function(method, None, Class(receiver.unit))
            return self.call_value(bound, call, st)
        if name in HOOK_REGISTRATIONS or name.startswith("register_forward"):
            return self.register_hooks(name, call, st)
        expression = self.find_class_attribute(receiver.unit, name)
        if expression is not None:
            return self.call_value(self.class_level(expression, st), call, st)
        if name in ("parameters", "named_parameters", "buffers", "modules", "children"):
            return Opaque(receiver.name.child(f"{name}()"))
        if name == "register_buffer" and len(call.args) >= 2 and isinstance(call.args[0], Const):
            self.set_attribute(receiver, str(call.args[0].value), call.args[1], st, call.node)
            return NONE
        if name in ("cuda", "to", "eval", "train", "half", "float", "requires_grad_", "__init__", "bfloat16"):
            if name in ("cuda", "to"):
                for target, _ in self.tensors(st, receiver):
                    if self.place(st, target) == "pageable":
                        self.set_place(st, target, "device")
            return receiver
        return self.unmodelled(receiver, call, st, name)

    def register_hooks(self, name: str, call: Call, st: State) -> Value:
        """Functions that autograd will call."""
        for value in call.everything():
            if name in HOOK_REGISTRATIONS:
                self.register_hook(value, name, st)
        return UNKNOWN

    def register_hook(self, value: Value, name: str, st: State) -> None:
        """A hook runs on its node's stream (TA-06): it is interpreted by itself, later."""
        for inner in iterate(value):
            arguments: tuple[Value, ...] = ()
            if isinstance(inner, Partial):
                arguments, inner = inner.args, inner.function
            if isinstance(inner, Function) and not any(f.unit is inner.unit for f, _, _ in self.hooks):
                self.entered.add(inner.unit)
                self.hooks.append((inner, st.copy(), name == "register_hook"))
                del arguments

    def _container_method(self, receiver: Container, name: str, call: Call, st: State) -> Value:
        if receiver.kind == "queue":
            if name in ("put", "put_nowait"):
                if not self.carries_event(call.args):
                    self.hand_to_host(st, call.args, call.site, "put()")
                self.extend_container(st, receiver, Tuple(tuple(call.args[:1])))
                return NONE
            if name in ("get", "get_nowait"):
                if sequences.length(st, receiver) == 0:
                    self.host_waits = True
                return self.take(receiver, 0, st)
            return UNKNOWN
        if name in ("append", "add", "appendleft", "insert", "put", "push"):
            known = sequences.items(st, receiver)
            at_front = name == "appendleft" or (name == "insert" and call.args[:1] == [Const(0)])
            if name not in ("append", "put", "push") and not (at_front and known is not None):
                sequences.blur(st, receiver)
            self.extend_container(st, receiver, Tuple(tuple(call.args[-1:])))
            grown = sequences.items(st, receiver)
            if at_front and grown is not None:
                sequences.put(st, receiver, [*grown[-1:], *grown[:-1]])
            return NONE
        if name == "rotate" and call.args and isinstance(call.args[0], Const) and type(call.args[0].value) is int:
            turned = sequences.items(st, receiver)
            if turned:
                by = -call.args[0].value % len(turned)
                sequences.put(st, receiver, [*turned[by:], *turned[:by]])
                return NONE
        if name in ("remove", "reverse", "sort", "rotate", "discard"):
            sequences.blur(st, receiver)
            return NONE
        if name in ("update", "setdefault", "pop", "popitem", "clear"):
            sequences.set_keys(st, receiver, () if name == "clear" and receiver.kind == "dict" else None)
        if name in ("extend", "update", "extendleft"):
            for value in call.args:
                self.extend_container(st, receiver, value)
            for key, value in call.kwargs.items():
                self.store_element(receiver, Const(key), value, st)
            return NONE
        if name in ("pop", "popleft", "popitem"):
            position = -1 if name == "pop" and not call.args else 0 if name == "popleft" else None
            if call.args and isinstance(call.args[0], Const) and type(call.args[0].value) is int:
                position = call.args[0].value
            if receiver.kind != "dict":
                value = self.take(receiver, position, st)
                self.lose(st, value)
                return value
            key = call.args[0] if call.args else UNKNOWN
            value = self._element(receiver, key, st)
            if name == "pop" and receiver.kind == "dict":
                self.drop_element(receiver, key, st)
            self.lose(st, value)
            return value
        if name in ("clear",):
            for value in self.held(receiver, st):
                self.lose(st, value)
            for key in [k for k in st.store.of(receiver.name) if not str(k).startswith("@")]:
                del st.store[(receiver.name, key)]
            if receiver.kind != "dict":
                st.store[(receiver.name, "@length")] = Const(0)
            return NONE
        if name == "items":
            return Partial(Api("builtins.items"), (receiver,), ())
        if name in ("values", "copy", "keys"):
            return receiver if name != "keys" else UNKNOWN
        if name in ("get", "setdefault") and call.args:
            found = self._element(receiver, call.args[0], st)
            return found if found != UNKNOWN or len(call.args) < 2 else call.args[1]
        return UNKNOWN

    def take(self, container: Container, position: int | None, st: State) -> Value:
        """An element leaves a list or a queue; some element where its position is not known."""
        known = sequences.items(st, container)
        if known is None or position is None or not -len(known) <= position < len(known):
            value = self.any_element(container, st)
            sequences.blur(st, container)
            return value
        value = known.pop(position)
        sequences.put(st, container, known)
        return value

    @staticmethod
    def carries_event(values: list[Value]) -> bool:
        """Whether something is handed over together with the event or stream to wait for."""
        flat = [v for value in values for v in iterate(value)]
        flat += [v for value in flat if isinstance(value, Tuple) for item in value.items for v in iterate(item)]
        return any(isinstance(v, (Event, Stream)) for v in flat)

    def drop_element(self, container: Container, key: Value, st: State) -> None:
        """An element leaves a dict."""
        if isinstance(key, Const):
            st.store.pop((container.name, key.value), None)

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensor_method(self, receiver: Value, name: str, call: Call, st: State) -> Value:
        """A method of a tensor or an array."""
        first = next((v for v in iterate(receiver) if isinstance(v, Object)), None)
        if first is None:
            return UNKNOWN
        library = self.library_of(st, [receiver])
        special = getattr(self, f"tensor_{name.strip('_')}", None) if name in _TENSOR_METHODS else None
        if special is not None:
            return special(receiver, call, st)  # type: ignore[no-any-return]
        if name in HOOK_REGISTRATIONS:
            return self.register_hooks(name, call, st)
        if name == "__dlpack__":
            return self.exported(receiver, call, st)
        if self.is_array(st, first):
            found = self.array_method(receiver, first, name, call, st)
            if found is not None:
                return found
        if name in apis.METADATA_METHODS:
            return PLAIN
        if name in apis.VIEW_METHODS or name in apis.NOT_IN_PLACE:
            if name in apis.STRIDING_METHODS:
                return union(
                    (replace(v, strided=True) if isinstance(v, Tensor) else v, g)
                    for v, g in alternatives(receiver, st.path)
                )
            if name in ("untyped_storage", "storage"):
                return union((Opaque(v.name.child("storage")), g) for v, g in alternatives(receiver, st.path) if isinstance(v, Object))
            return receiver
        if name in apis.SCALAR_METHODS:
            self.read_on_host(st, receiver, call.site, f"{name}()")
            if isinstance(receiver, Opaque) and not self.pending_copy(st, receiver) and not self.is_host(st, receiver):
                self.mark_tensor(st, receiver)
                self.blocking_read(st, receiver, call.site, f"{name}()")
            return PLAIN
        repeats = call.get(0, "repeats") if name == "repeat_interleave" else None
        counted = repeats is not None and "output_size" not in call.kwargs
        counted = counted and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v))
            for v in iterate(repeats or UNKNOWN)
        )
        if name in apis.BLOCKING_METHODS or counted:
            return self.blocking_operation(receiver, [receiver, *call.everything()], call, st, f"{name}()")
        if name.endswith("_") and not name.startswith("_"):
            self.check_generator(call, st)
            self.in_place(st, receiver, call.everything(), call.site, f"{name}()")
            return receiver
        if name.startswith("new_"):
            return self.new_tensor(st, call.site, f"{name}()", library=library, place=self.place(st, first))
        if isinstance(first, Tensor) and first.numpy:
            self.host_access(st, receiver, call.site, f"{name}()", writes=False)
            return Tensor(self.host_result(call, st), None, True)
        out = call.kwargs.get("out")
        operands = [receiver, *call.args, *(v for k, v in call.kwargs.items() if k != "out")]
        if out is not None:
            self.in_place(st, out, operands, call.site, f"{name}()")
            return out
        return self.operation(st, operands, call.site, f"{name}()", library=library)

    def host_result(self, call: Call, st: State) -> Name:
        """Fresh host memory."""
        name = self.fresh(call.node, st, "host result")
        st.store[(name, "@place")] = Const("pageable")
        return name

    def check_generator(self, call: Call, st: State) -> None:
        """A generator of the program's own must be registered with the graph (GM-gen_unreg)."""
        generator = call.kwargs.get("generator")
        if generator is None or generator == NONE or st.capture is None:
            return
        for inner in iterate(generator):
            if isinstance(inner, Object) and (inner.name, "@registered") not in st.store:
                self.rng_in_capture(st, call.site, "draws from a generator that is not registered with the graph")

    def blocking_operation(self, receiver: Value, operands: list[Value], call: Call, st: State, text: str) -> Value:
        """An operation whose result's shape or truth the host waits for (TM-10)."""
        library = self.library_of(st, [receiver])
        if any(self.is_host(st, v) for v in iterate(receiver) if isinstance(v, Object)):
            self.read_operands(st, operands, call.site, text)
            return Tensor(self.host_result(call, st))
        self.sync_in_capture(st, call.site, text)
        result = self.operation(st, operands, call.site, text, library=library)
        self.synchronize_stream(st, None, library, call.site)
        return result

    def masked(self, st: State, operands: list[Value], node: cst.CSTNode) -> Value:
        """``x[mask]``: how many elements there are, the host waits for (GM-mask_index)."""
        return self.blocking_operation(operands[0], operands, Call(node, self.site(node)), st, "mask indexing")

    def do_where(self, call: Call, st: State) -> Value:
        """``where(condition)`` is ``nonzero``; with three arguments it selects on the device."""
        if len(call.args) == 1 and not call.kwargs.keys() - {"condition"}:
            return self.do_blocking_operation(call, st)
        return self.operation(st, call.everything(), call.site, "where()", library=self.library_of(st, call.everything()))

    def do_counted(self, call: Call, st: State) -> Value:
        """Functions whose result's size depends on their values, unless it is given."""
        if "output_size" in call.kwargs or call.get(1, "num_classes") not in (None, Const(-1)):
            return self.do_torch_function(call, st)
        return self.do_blocking_operation(call, st)

    def do_graphed_callables(self, call: Call, st: State) -> Value:
        """``make_graphed_callables(callables, sample_args)``: each is captured, on a stream of its own (GC-25)."""
        callables, samples = call.get(0, "callables") or UNKNOWN, call.get(1, "sample_args") or UNKNOWN
        several = isinstance(callables, (Tuple, Container))
        for position, function in enumerate(self.tensor_results(st, callables)):
            given = self.element(samples, Const(position), st) if several else samples
            arguments = self.tensor_results(st, given) if isinstance(given, (Tuple, Container)) else [given]
            context = Context("capture", (Graph(self.fresh(call.node, st, "graph")), NONE))

            def body(_: Value, state: State, f: Value = function, args: list[Value] = arguments) -> None:
                self.call_value(f, Call(call.node, call.site, args), state)

            self._within_capture(context, st, call.node, body)
        return callables

    def do_blocking_operation(self, call: Call, st: State) -> Value:
        """A function that blocks the host."""
        name = f"{call.text}()"
        return self.blocking_operation(call.args[0] if call.args else UNKNOWN, call.everything(), call, st, name)

    def tensor_to(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.to(...)``."""
        target = call.kwargs.get("device")
        kind = self.device_kind(target) if target is not None else None
        if kind is None:
            for argument in call.args[:2]:
                kind = self.device_kind(argument)
                if kind is not None:
                    break
                if isinstance(argument, Tensor):
                    place = self.place(st, argument)
                    kind = {"device": "cuda", "pinned": "cpu", "pageable": "cpu"}.get(place, "")
                    break
        flag = call.kwargs.get("non_blocking")
        if flag is None and len(call.args) > 2:
            flag = call.args[2]
        if flag is None and len(call.args) == 2 and isinstance(call.args[1], Const) and call.args[1].value in (True, False):
            flag = call.args[1]
        outcomes = self.flag(flag, st, call.node)
        text = "to(non_blocking=True)" if any(o for o, _ in outcomes) else "to()"
        if kind is None and not call.starred:
            if flag is not None:
                return self.to_device(st, receiver, outcomes, call.site, text, "")
            opaque = all(isinstance(v, Opaque) and not self.is_tensor(st, v) for v in iterate(receiver))
            if opaque:
                return receiver
            return self.operation(st, [receiver], call.site, "to()")
        if kind == "cpu":
            return self.to_host(st, receiver, outcomes, call.site, text)
        opaque = all(isinstance(v, Opaque) and not self.is_tensor(st, v) for v in iterate(receiver))
        return self.to_device(st, receiver, outcomes, call.site, text, kind or "", opaque=opaque)

    def tensor_cuda(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.cuda(device=None, non_blocking=False)``."""
        outcomes = self.flag(call.get(1, "non_blocking"), st, call.node)
        opaque = all(isinstance(v, Opaque) and not self.is_tensor(st, v) for v in iterate(receiver))
        return self.to_device(st, receiver, outcomes, call.site, "cuda()", "cuda", opaque=opaque)

    def tensor_cpu(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.cpu()`` blocks (TM-08)."""
        return self.to_host(st, receiver, [(False, ALWAYS)], call.site, "cpu()")

    def tensor_numpy(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.numpy()`` is the same host memory."""
        found = []
        for value, guard in alternatives(receiver, st.path):
            if isinstance(value, (Tensor, Opaque)):
                part = value.part if isinstance(value, Tensor) else None
                found.append((Tensor(value.name, part, True), guard))
        return union(found) if found else UNKNOWN

    def tensor_copy(self, receiver: Value, call: Call, st: State) -> Value:
        """``a.copy_(b, non_blocking=False)``; NumPy's and CuPy's ``copy()`` make a fresh array."""
        source = call.get(0, "src")
        if source is None or isinstance(source, Const) or call.text == "copy":
            return self.operation(st, [receiver], call.site, "copy()", library=self.library_of(st, [receiver]))
        outcomes = self.flag(call.get(1, "non_blocking"), st, call.node)
        self.copy_into(st, receiver, source, outcomes, call.site, "copy_()")
        return receiver

    def tensor_pin_memory(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.pin_memory()``: a fresh pinned copy, made by the host."""
        self.hand_to_host(st, [receiver], call.site, "pin_memory()")
        if any(self.place(st, v) == "pinned" for v in iterate(receiver) if isinstance(v, Object)):
            return receiver
        name = self.fresh(call.node, st, "pinned copy")
        st.store[(name, "@place")] = Const("pinned")
        return Tensor(name)

    def tensor_record_stream(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.record_stream(s)``."""
        stream = call.get(0, "stream")
        if stream is not None:
            for inner in iterate(receiver):
                if isinstance(inner, Object):
                    self.mark_tensor(st, inner)
            self.record_stream(st, receiver, self.as_stream(stream, "torch"), "torch", call.site)
        return NONE

    def tensor_backward(self, receiver: Value, call: Call, st: State) -> Value:
        """``loss.backward(gradient=None)``."""
        gradient = call.get(0, "gradient")
        if gradient is None:
            gradient = call.kwargs.get("grad_tensors")
        self.backward(st, self._gradients(gradient, st), call.site, "backward()")
        return NONE

    def tensor_resize(self, receiver: Value, call: Call, st: State) -> Value:
        """A storage's ``resize_(0)`` gives the block back, ``resize_(n)`` takes one."""
        if call.args and call.args[0] == Const(0):
            for inner in iterate(receiver):
                if isinstance(inner, Object):
                    self.release(st, self.block_of(inner.name), call.site)
        elif call.args:
            for inner in iterate(receiver):
                if isinstance(inner, Object) and inner.name.site == "storage":
                    self.allocate(st, self.block_of(inner.name), self.library_of(st, [inner]), call.site)
        return receiver

    @staticmethod
    def block_of(name: Name) -> Name:
        """The tensor whose storage this is."""
        return name.parent if name.site == "storage" and name.parent is not None else name

    def tensor_clone(self, receiver: Value, call: Call, st: State) -> Value:
        """``x.clone()``: a fresh tensor in the same place."""
        return self.operation(st, [receiver], call.site, "clone()")

    def tensor_zero_grad(self, receiver: Value, call: Call, st: State) -> Value:
        """Gradients are given up or zeroed."""
        return NONE

    # -- library functions on tensors ----------------------------------------------------------------------------

    def do_torch_function(self, call: Call, st: State) -> Value:
        """A function of torch: a factory, or an operation on its arguments."""
        name = call.text.rpartition(".")[2]
        parts = call.text.split(".")
        if name in apis.FACTORIES and len(parts) == 2:
            return self.factory(name, call, st)
        if name[:1].isupper() or name in ("get_default_dtype", "device", "Size", "typename", "finfo", "iinfo"):
            return PLAIN if name[:1].islower() else UNKNOWN
        self.check_generator(call, st)
        if name.startswith("_foreach_") and name.endswith("_"):
            for value in call.args[:1]:
                self.in_place(st, union((v, ALWAYS) for v in self.tensor_results(st, value)), call.args[1:], call.site, f"{name}()")
            return NONE
        out = call.kwargs.get("out")
        operands = [*call.args, *(v for k, v in call.kwargs.items() if k != "out")]
        text = f"{name}()"
        if out is not None:
            for value in self.tensor_results(st, out):
                self.in_place(st, value, operands, call.site, text)
            return out
        if name in ("from_dlpack", "view_as_real", "view_as_complex", "unsqueeze", "squeeze", "transpose", "permute",
                    "reshape", "flatten", "chunk", "split", "narrow", "select", "unbind", "movedim", "diagonal", "t"):
            return call.args[0] if call.args else UNKNOWN
        if name.endswith("_") and call.args:
            self.in_place(st, call.args[0], call.args[1:], call.site, text)
            return call.args[0]
        if not any(True for o in operands for _ in self.tensors(st, o)):
            return UNKNOWN
        return self.operation(st, operands, call.site, text)

    def do_init_function(self, call: Call, st: State) -> Value:
        """``torch.nn.init``: fills in place."""
        if call.args:
            self.in_place(st, call.args[0], [], call.site, f"{call.text.rpartition('.')[2]}()")
            return call.args[0]
        return UNKNOWN

    def factory(self, name: str, call: Call, st: State) -> Value:
        """A fresh tensor: pinned, on a device, or in pageable memory."""
        text = f"{name}()"
        self.check_generator(call, st)
        if name in apis.SIZED_FACTORIES:
            for value in call.args[:1] if name == "full" else call.args:
                for size in self.tensor_results(st, value):
                    if isinstance(size, Tensor):
                        self.read_on_host(st, size, call.site, f"the size for {text}")
        pinned = call.kwargs.get("pin_memory")
        device = call.kwargs.get("device")
        like = name.endswith("_like")
        if pinned is not None and any(
            not (isinstance(v, Const) and v.value is False) and v != NONE for v in iterate(pinned)
        ):
            result = self.fresh(call.node, st, "pinned")
            st.store[(result, "@place")] = Const("pinned")
            if name == "tensor":
                self.hand_to_host(st, call.args, call.site, text)
            return Tensor(result)
        place = ""
        if device is not None and device != NONE:
            kind = self.device_kind(device)
            place = {"cpu": "pageable", "cuda": "device"}.get(kind or "", "")
        elif like and call.args:
            place = next((self.place(st, v) for v in iterate(call.args[0]) if isinstance(v, Object)), "")
            if place == "pinned":
                place = "pageable"
        elif not like:
            place = "pageable"
        if place == "pageable":
            return Tensor(self.host_result(call, st))
        if not place and self.on_side_stream(st, "torch"):
            place = "device"
        if name == "tensor" and device is not None:
            self.hand_to_host(st, call.args, call.site, text)
            self.sync_in_capture(st, call.site, "torch.tensor() on a device")
        written = not name.startswith("empty")
        tags = frozenset({"fill"}) if written else frozenset()
        made = self.new_tensor(st, call.site, text, library="torch", place=place, written=written, tags=tags)
        if name == "tensor" and device is not None:
            self.synchronize_stream(st, None, "torch", call.site)
        if like and name == "tensor":
            self.read_operands(st, call.args, call.site, text)
        return made

    def do_make_tensor(self, call: Call, st: State) -> Value:
        """``torch.tensor(data, device=, pin_memory=)``: on a device it blocks (TM-10)."""
        return self.factory("tensor", call, st)

    def do_as_tensor(self, call: Call, st: State) -> Value:
        """``torch.as_tensor``: shares, or copies to a device."""
        device = call.get(2, "device")
        source = call.args[0] if call.args else UNKNOWN
        if isinstance(source, Tensor) and self.place(st, source) == "device":
            if self.library_of(st, [source]) == "cupy":  # the interface's stream is not looked at (CI-07)
                return self.borrowed(source, "torch", exchanged=False)
            return source
        if device is not None and device != NONE:
            return self.factory("tensor", Call(call.node, call.site, call.args, {"device": device}), st)
        return self.do_share_host(call, st)

    def do_share_host(self, call: Call, st: State) -> Value:
        """``torch.from_numpy``: the same host memory."""
        value = call.args[0] if call.args else UNKNOWN
        found = []
        for inner, guard in alternatives(value, st.path):
            if isinstance(inner, Tensor):
                found.append((Tensor(inner.name, inner.part, False), guard))
            elif isinstance(inner, Opaque):
                found.append((inner, guard))
        if found:
            return union(found)
        return Tensor(self.host_result(call, st))

    def do_numpy_function(self, call: Call, st: State) -> Value:
        """NumPy reads its arguments on the host."""
        name = call.text.rpartition(".")[2]
        if name in ("frombuffer", "asarray", "ascontiguousarray", "reshape", "squeeze") and call.args:
            shared = [v for v in iterate(call.args[0]) if isinstance(v, Tensor)]
            if shared:
                return union((Tensor(v.name, v.part, True), ALWAYS) for v in shared)
        out = call.kwargs.get("out")
        targets = [out] if out is not None else call.args[:1] if name in ("copyto", "put", "place") else []
        reads = [v for v in call.everything() if not any(v is t for t in targets)]
        self.hand_to_host(st, reads, call.site, f"{name}()")
        for target in targets:
            for inner, _ in self.tensors(st, target):
                self.host_access(st, inner, call.site, f"{name}()", writes=True)
        return Tensor(self.host_result(call, st), None, True)

    # -- objects of unknown kind ---------------------------------------------------------------------------------

    def opaque_method(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """A method of an object of unknown kind: its name may tell what it is."""
        if name in apis.OPAQUE_STREAM_METHODS:
            if name in ("begin_capture", "end_capture") and self.default_library != "cupy":
                pass
            call.args.insert(0, Stream(receiver.name, self.default_library))
            self.table_known(receiver.name)
            return self.verb(apis.STREAM_METHODS[name], call, st)
        if name in ("capture_begin", "capture_end", "replay"):
            call.args.insert(0, Graph(receiver.name))
            return self.verb(apis.GRAPH_METHODS[name], call, st)
        if (receiver.name, "@optimizer") in st.store or _optimizer(receiver.name):
            if name == "step" or name in ("unscale_", "clip_grad_norm_"):
                self.use_of_gradients(st, call.site, f"{name}()")
                return UNKNOWN
            if name in ("zero_grad", "update", "state_dict", "load_state_dict", "add_param_group"):
                return UNKNOWN
            if name == "scale":
                return call.args[0] if call.args else UNKNOWN
        if (receiver.name, "@thread") in st.store:
            return self._thread_method(receiver, name, call, st)
        if name == "submit" and call.args and isinstance(call.args[0], (Function, Partial, Method)):
            self.hand_to_host(st, call.args[1:], call.site, "submit()")
            return Partial(FUTURE, (self.in_thread(call.args[0], call.args[1:], call.kwargs, call, st),), ())
        if (receiver.name, "@executor") in st.store and name == "submit":
            self.hand_to_host(st, call.args[1:], call.site, "submit()")
            return UNKNOWN
        if name in ("put", "put_nowait", "send", "send_bytes", "dump", "dumps", "write") and call.args:
            if not self.carries_event(call.args):
                self.hand_to_host(st, call.args, call.site, f"{name}()")
            return UNKNOWN
        if name in ("copy_from", "copy_to") and self.default_library == "cupy" and call.args:
            return self.texture_copy(receiver, name, call, st)
        if name in HOOK_REGISTRATIONS or name.startswith("register_forward"):
            return self.register_hooks(name, call, st)
        held = st.store.get((receiver.name, name))
        if held is not None:
            return self.call_value(held, call, st)
        if name in apis.DEVICE_MODULE_METHODS and self._is_device_module(receiver, name, call):
            return self.verb(apis.DEVICE_MODULE_METHODS[name], call, st)
        if name in apis.EVENT_METHODS and (receiver.name in self.carriers or (receiver.name, "@recorded") in st.store):
            if (receiver.name, "@recorded") in st.store:
                call.args.insert(0, Event(receiver.name))
                return self.verb(apis.EVENT_METHODS[name], call, st)
            if name in apis.STREAM_METHODS:
                call.args.insert(0, Stream(receiver.name, self.default_library))
                return self.verb(apis.STREAM_METHODS[name], call, st)
        if name == "record" and _event_like(receiver.name):
            call.args.insert(0, Event(receiver.name))
            return self.verb("event_record", call, st)
        if name in ("wait", "synchronize", "query") and _event_like(receiver.name):
            call.args.insert(0, Event(receiver.name))
            return self.verb(apis.EVENT_METHODS[name], call, st)
        if name in ("synchronize", "query") and _stream_like(receiver.name):
            call.args.insert(0, Stream(receiver.name, self.default_library))
            return self.verb(apis.STREAM_METHODS[name], call, st)
        unit = self.class_of_method(name)
        if unit is not None:
            instance = self.materialized(receiver, unit, st)
            return self.call_method(instance, name, call, st)
        if name in ("resize_",) and receiver.name.site == "storage":
            return self.tensor_resize(receiver, call, st)
        if name in _TENSOR_METHODS or name in apis.SCALAR_METHODS:
            if name in ("get", "set", "copy"):
                return self._mapping_or_array(receiver, name, call, st)
            return self.tensor_method(receiver, name, call, st)
        if name in apis.ARITHMETIC_METHODS and not self.is_plain(receiver.name):
            if call.args or name not in ("half", "float", "double", "bfloat16", "type", "int", "long", "bool"):
                self.mark_tensor(st, receiver)
            elif receiver.name in st.order.made:
                self.mark_tensor(st, receiver)
        if self.is_tensor(st, receiver) or (receiver.name in st.order.made and receiver.name.base() in self.results):
            return self.tensor_method(receiver, name, call, st)
        if name in ("size", "dim", "numel", "is_contiguous", "stride", "element_size", "data_ptr"):
            return PLAIN
        if name in apis.VIEW_METHODS and name not in ("split", "view", "select", "storage"):
            return Tensor(receiver.name)
        if name.endswith("_") and not name.startswith("_") and len(name) > 2:
            self.mark_tensor(st, receiver)
            return self.tensor_method(receiver, name, call, st)
        if name in ("save_for_backward", "mark_dirty", "mark_non_differentiable"):
            return NONE  # kept, not read
        if name in _PARTS:
            return receiver if name == "values" else Opaque(receiver.name.child(f"{name}()"))
        if name == "items":
            return Partial(Api("builtins.items"), (receiver,), ())
        if name in ("eval", "train", "requires_grad_", "half", "float", "bfloat16", "double") and not call.args:
            return receiver
        if name in ("append", "add", "appendleft", "insert"):
            for value in call.args[-1:]:
                old = st.store.get((receiver.name, "*"))
                st.store[(receiver.name, "*")] = union([*([(old, ALWAYS)] if old else []), (value, ALWAYS)])
            return NONE
        if name in ("pop", "popleft", "get", "get_nowait", "recv"):
            held = st.store.get((receiver.name, "*"))
            return held if held is not None else Opaque(self.fresh(call.node, st, name))
        if name in ("wait", "wait_for"):
            self.host_waits = True
        if name in apis.ORDERING_METHODS and not _text_method(receiver.name, name):
            self.host_learns_everything(st, call.site)
            return Opaque(self.fresh(call.node, st, name))
        return self.unmodelled(receiver, call, st, name)

    def table_known(self, name: Name) -> None:
        """A stream is met by this name."""
        self.carriers.bit(name)

    def _mapping_or_array(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        arrays = self.default_library == "cupy" and (
            call.kwargs.keys() & {"stream", "out", "blocking"} or self.is_tensor(st, receiver) or (name == "get" and not call.args)
        )
        if arrays:
            return self.tensor_method(receiver, name, call, st)
        if name == "get" and call.args:
            return self._element(receiver, call.args[0], st)
        if name == "copy":
            return receiver
        return self.unmodelled(receiver, call, st, name)

    def _is_device_module(self, receiver: Opaque, name: str, call: Call) -> bool:
        text = str(receiver.name.site).lower()
        if name in ("Stream", "current_stream", "default_stream", "set_stream", "StreamContext", "is_current_stream_capturing"):
            return True
        return any(word in text for word in ("device", "accelerator", "platform", "module", "backend", "cuda"))

    def _thread_method(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        if name == "start":
            target = st.store.get((receiver.name, "target"))
            arguments = st.store.get((receiver.name, "args"), Tuple(()))
            items = list(arguments.items) if isinstance(arguments, Tuple) else []
            self.hand_to_host(st, items, call.site, "start()")
            if target is not None:
                if self.would_wait(target, items, call, st):
                    st.store[(receiver.name, "@waiting")] = PLAIN
                    return NONE
                waits = self.waits
                result = self.in_thread(target, items, {}, call, st)
                if self.waits > waits:
                    st.threads |= {call.site}
                return result
        if name == "join":
            target = st.store.get((receiver.name, "target"))
            if st.store.pop((receiver.name, "@waiting"), None) is not None and target is not None:
                arguments = st.store.get((receiver.name, "args"), Tuple(()))
                items = list(arguments.items) if isinstance(arguments, Tuple) else []
                self.in_thread(target, items, {}, call, st)
            st.threads = frozenset(t for t in st.threads if not isinstance(t, Site))
        return NONE

    def would_wait(self, target: Value, arguments: list[Value], call: Call, st: State) -> bool:
        """Whether a thread that starts here waits for what others do: it goes on when it is joined."""
        before, self.host_waits = self.host_waits, False
        self.silent += 1
        explained, self.explained = self.explained, None
        self.in_thread(target, arguments, {}, call, st.copy())
        self.explained = explained
        self.silent -= 1
        waits, self.host_waits = self.host_waits, before
        return waits

    def unmodelled(self, function: Value, call: Call, st: State, name: str = "") -> Value:
        """A call whose code is not seen: a careful author wrote it.

        Given a stream or an event it orders what needs ordering; given tensors it reads them on the current stream
        and returns fresh ones written there; given neither it does nothing.
        """
        text = f"{name or _callable_text(function)}()"
        values = call.everything()
        if _CURRENT.fullmatch(text[:-2]) is not None:
            return self.do_current_cupy_stream(call, st) if self.default_library == "cupy" else self.do_current_stream(call, st)
        model = self.kernel_of(function, st)
        if model is not None:
            return self.launch_kernel(function, model, call, st, name)
        streams = [v for value in values for v in iterate(value) if isinstance(v, (Stream, Event, Context))]
        if any(isinstance(v, (Stream, Event)) for v in streams):
            for s, guard in self.streams(st, "torch"):
                st.order.learn_everything(s.name, guard)
            for v in streams:
                if isinstance(v, (Stream, Event)):
                    st.order.learn_everything(v.name)
        for value in values:
            for v in self.parts_of(st, value):
                if isinstance(v, Event):
                    st.store[(v.name, "@given")] = PLAIN
        for value in values:
            for inner in iterate(value):
                if isinstance(inner, Function) and inner.unit not in self.entered and len(self.stack) < 4:
                    pass
        if _constructs(name or _callable_text(function)):
            return self.do_make_module(call, st)  # it stores what it is given
        if _describes(name or _callable_text(function)):
            return PLAIN
        library = self.library_of(st, [*values, function])
        receiver = function.receiver if isinstance(function, Method) else function
        touched = [v for v in values if not isinstance(v, Const)]
        held = [receiver] if isinstance(receiver, (Opaque, Instance)) else []
        sure = any(
            isinstance(t, Tensor) or (isinstance(t, Opaque) and self.is_tensor(st, t))
            for v in touched
            for t, _ in self.tensors(st, v)
        )
        some = any(True for v in touched for _ in self.tensors(st, v))
        assumed = Assumed.UNMODELLED
        for value in touched:
            for target, guard in self.tensors(st, value):
                one = union([(target, guard)])
                if self.is_host(st, target):
                    if self.pending_copy(st, target):
                        self.host_access(
                            st, one, call.site, text, writes=False, assumed=Assumed.UNMODELLED | Assumed.PLACE
                        )
                elif isinstance(target, Tensor) or target.name in st.order.made or self.is_tensor(st, target):
                    self.access(st, one, call.site, text, writes=False, library=library, assumed=assumed)
        for value in held:
            for target, guard in self.tensors(st, value):
                if target is value or self.is_host(st, target):
                    continue
                if target.name in st.order.made:
                    self.access(
                        st, union([(target, guard)]), call.site, text, writes=False, library=library, assumed=assumed
                    )
        for v in streams:
            if isinstance(v, (Stream, Event)):  # what it did with them is ordered, too
                for s, guard in self.streams(st, "torch"):
                    st.order.obey([Edge(v.name, s.name)], guard)
        if not some:
            return Opaque(self.fresh(call.node, st, "result"))
        place = "device" if self.on_side_stream(st, library) and sure else ""
        made = self.new_tensor(st, call.site, text, library=library, place=place, assumed=assumed, opaque=True)
        if sure:
            self.mark_tensor(st, made)
        return made

    def parts_of(self, st: State, value: Value, depth: int = 0) -> Iterator[Value]:
        """A value and what it holds."""
        for inner in iterate(value):
            yield inner
            held = list(inner.items) if isinstance(inner, Tuple) else []
            if isinstance(inner, (Container, Instance)):
                held = self.held(inner, st)
            for part in held if depth < 3 else ():
                yield from self.parts_of(st, part, depth + 1)

    def user_model(self, model: object, call: Call, st: State) -> Value:
        """A wrapper that the user's configuration describes."""
        from streamsafe.static.modelled import apply_model

        return apply_model(self, model, call, st)


class Scope:
    """Interpret something in another scope, then come back."""

    def __init__(self, interpreter: Calls, slice_: Slice, frame: Name, unit: FunctionUnit | None) -> None:
        from streamsafe.static.interpreter import Activation

        self._interpreter = interpreter
        outer = interpreter.stack[-1].path if interpreter.stack else ()
        self._activation = Activation(frame, unit, slice_, outer)

    def __enter__(self) -> None:
        self._interpreter.stack.append(self._activation)

    def __exit__(self, *_: object) -> None:
        self._interpreter.stack.pop()


_HANDED = (Function, Partial, Class, Stream, Event, Context)
"""With one of these a plain function may start something."""

_CONTAINERS = frozenset(
    """List list Sequence Iterable Iterator Tuple tuple Dict dict Mapping MutableMapping Deque deque Set
    Collection Generator""".split()
)

_TENSOR_METHODS = frozenset(
    """to cuda cpu numpy get set copy_ copy pin_memory record_stream backward resize_ clone zero_grad""".split()
)

COMMON_METHODS = frozenset(
    """step forward run get put put_nowait wait to start stop close reset update append pop add clear copy items keys
    values join load save read write send recv call apply backward train eval cuda cpu numpy item query record
    synchronize result submit flush size shape view reshape replay capture setup build init process execute next
    state_dict load_state_dict parameters zero_grad scale""".split()
)


_PARTS = frozenset(
    """parameters named_parameters buffers named_buffers modules named_modules children named_children state_dict
    values""".split()
)

_LIBRARY_METHODS = frozenset(
    {*_TENSOR_METHODS, *apis.STREAM_METHODS, *apis.EVENT_METHODS, *apis.GRAPH_METHODS, *apis.VIEW_METHODS}
    | apis.METADATA_METHODS
    | apis.SCALAR_METHODS
    | apis.BLOCKING_METHODS
    | apis.ARITHMETIC_METHODS
)


def _yields(node: cst.FunctionDef) -> bool:
    found = False

    class Finder(cst.CSTVisitor):
        def visit_Yield(self, _: cst.Yield) -> bool:  # noqa: N802 - LibCST's name
            nonlocal found
            found = True
            return False

        def visit_FunctionDef(self, inner: cst.FunctionDef) -> bool:  # noqa: N802 - LibCST's name
            return inner is node

        def visit_Lambda(self, _: cst.Lambda) -> bool:  # noqa: N802 - LibCST's name
            return False

    node.visit(Finder())
    return found


def _text(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return f"{_text(node.value)}.{node.attr.value}"
    if isinstance(node, cst.Subscript):
        inner = _text(node.value)
        if inner.rpartition(".")[2] == "Optional" and isinstance(node.slice[0].slice, cst.Index):
            return _text(node.slice[0].slice.value)
        return inner
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value)
    if isinstance(node, cst.BinaryOperation):  # X | None
        return _text(node.left)
    if isinstance(node, cst.Call):
        return _text(node.func)
    return ""


def _dotted(decorator: cst.Decorator) -> str:
    return _text(decorator.decorator)


def _statements(statement: cst.CSTNode) -> list[cst.CSTNode]:
    if isinstance(statement, cst.SimpleStatementLine):
        return list(statement.body)
    if isinstance(statement, cst.If):
        return [s for inner in statement.body.body for s in _statements(inner)]
    return [statement]


def _callable_text(function: Value) -> str:
    if isinstance(function, Api):
        return function.name.rpartition(".")[2]
    if isinstance(function, Function):
        return function.unit.name
    if isinstance(function, Object) and isinstance(function.name.site, str):
        return function.name.site
    return "call"


def _constructs(name: str) -> bool:
    """Whether a callable is a class, by its name."""
    bare = name.lstrip("_")
    return (bare[:1].isupper() and bare.upper() != bare) or bare == "cls" or bare.endswith(("_class", "_cls"))


_CURRENT = re.compile(r"_*(?:get_)?current_(?:\w+_)?stream(?:_\w+)?")
"""A helper that gives the current stream, by its name."""
_METADATA = re.compile(
    r"_*(?:get|is|has|check|infer|compute)_(?:\w+_)?(?:dtypes?|shapes?|sizes?|numel|counts?|devices?|ranks?|strides?|names?|keys?|world_size)"
    r"|(?:\w+_)?(?:numel|nbytes|batch_size|dtype)"
)


def _describes(name: str) -> bool:
    """Whether a function asks for metadata only, by its name."""
    return _METADATA.fullmatch(name) is not None


def _last_word(name: Name) -> str:
    for part in name.chain():
        if isinstance(part.site, str) and part.site != EACH:
            return part.site.lower()
    return ""


def _optimizer(name: Name) -> bool:
    text = _last_word(name)
    return ("optim" in text or text in ("opt", "scaler", "grad_scaler")) and "scheduler" not in text


def _event_like(name: Name) -> bool:
    text = _last_word(name)
    return "event" in text or text.endswith(("_evt", "_done", "_ready")) or text in ("evt", "ev", "done", "ready")


def _stream_like(name: Name) -> bool:
    return "stream" in _last_word(name)


def _text_method(name: Name, method: str) -> bool:
    """``", ".join(...)`` and its like are no waits."""
    return method in ("join", "flush") and "thread" not in _last_word(name) and "process" not in _last_word(name)


__all__ = ["COMMON_METHODS", "GRADIENTS", "HOOK", "Calls"]
