"""Functions and classes of the file: found, called, instantiated.

One file: a call is resolved, bound, run and remembered in one sequence, with one stack of scopes.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import libcst as cst

from streamsafe.order.symbolic import HOST
from streamsafe.static import apis, concrete, element_keys, hints, sequences, stream_terms
from streamsafe.static.contexts import DEPTH
from streamsafe.static.expressions import MODULE
from streamsafe.static.facts import AMBIENT, COPIES, EXHAUSTED
from streamsafe.static.methods import Methods
from streamsafe.static.source import ClassUnit, Definition, FunctionUnit, MethodSlice, Slice
from streamsafe.static.state import State
from streamsafe.static.stream_terms import COMMON_METHODS, last_name
from streamsafe.static.tensor_methods import HOOK_REGISTRATIONS
from streamsafe.static.tensors import UNNAMED_REST, UNPLACED, Call
from streamsafe.static.unknown_objects import LIBRARY_METHODS
from streamsafe.static.values import (
    HOST_FUNCTION,
    NONE,
    UNKNOWN,
    Class,
    Const,
    Container,
    Function,
    Generator,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
    deeper,
    iterate,
    union,
)

HANDING_DEPTH = 3
"""So many calls deeper than others: what it hands on is not to look like something that it has worked out."""
"""The key, for a constructor's parameter, of the first object that was given the shared argument."""


class Scope:
    """Interpret something in another scope, then come back."""

    def __init__(self, interpreter: Functions, slice_: Slice, frame: Name, unit: FunctionUnit | None) -> None:
        from streamsafe.static.interpreter import Activation

        self._interpreter = interpreter
        outer = interpreter.stack[-1].path if interpreter.stack else ()
        self._activation = Activation(frame, unit, slice_, outer)

    def __enter__(self) -> None:
        self._interpreter.stack.append(self._activation)

    def __exit__(self, *_: object) -> None:
        self._interpreter.stack.pop()


_SIMPLE = (cst.Name, cst.BaseNumber, cst.SimpleString, cst.UnaryOperation)
"""Expressions that give the same whenever they are evaluated."""

_CONTAINERS = frozenset(
    """List list Sequence Iterable Iterator Tuple tuple Dict dict Mapping MutableMapping Deque deque Set
    Collection Generator""".split()
)


class Functions(Methods):
    """Functions and classes of the file: found, called, instantiated."""

    # declared here, implemented further down the chain
    nested: dict[cst.CSTNode, FunctionUnit | ClassUnit]
    with_calls: dict[str, bool]
    new_parameters: bool
    element_types: dict[Name, cst.BaseExpression]
    _own_names: frozenset[str]
    _makes: dict[str, bool]
    _method_owners: dict[str, list[ClassUnit]] | None
    _owners: dict[str, list[str]]

    def block(self, statements: Sequence[cst.CSTNode], st: State) -> None: ...

    def given_away(self, value: Value, st: State) -> None: ...

    def hands_over(self, function: Function, args: list[Value], st: State) -> bool: ...

    # -- units ---------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> FunctionUnit | ClassUnit | None:
        """A top-level function or class of the file, or a class in the body of one."""
        if name in self.file.nested:
            outer, _, inner = name.rpartition(".")
            owner = self.unit(outer)
            return owner.classes.get(inner) if isinstance(owner, ClassUnit) else None
        name = name.rpartition(".")[2]
        if name in self.units:
            return self.units[name]
        self.units[name] = None
        statement = self.file.functions.get(name) or self.file.classes.get(name)
        if statement is not None:
            holder = self.file.statements[bisect_right(self.file.first_rows, statement.lineno) - 1]
            slice_ = self.file.slice(holder)
            node = self.find(slice_.module, name)
            if isinstance(node, cst.FunctionDef):
                self.units[name] = self.function_unit(node, slice_, name)
            elif isinstance(node, cst.ClassDef):
                self.units[name] = self.class_unit(node, slice_, name)
        return self.units[name]

    def find(self, node: cst.CSTNode, name: str) -> cst.CSTNode | None:
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
        definitions = self.file.definitions.get(qualname, [])
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
        activation = self.stack[-1]
        unit = self.nested.get(node)
        if unit is None:
            outer = activation.unit.qualname if activation.unit else ""
            qualname = f"{outer}.{node.name.value}" if outer else node.name.value
            unit = self.nested[node] = self.function_unit(node, activation.slice, qualname)
        assert isinstance(unit, FunctionUnit)
        self.capture_names(node)
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

    def behind(self, unit: FunctionUnit, value: Value, st: State, *, registering: bool = False) -> Value:
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
                found = self.eval(target, st)
                made_by = found.unit if isinstance(found, Function) else made_by
            if (
                not isinstance(made_by, FunctionUnit)
                or made_by.generator
                or not (registering or made_by.qualname in self.relevant or st.capture is not None)
            ):
                continue
            rounds, self.rounds = self.rounds, []
            try:
                # of a function within another one they are asked for there, and elsewhere in the module
                with nullcontext() if local else self.scope(unit.slice, MODULE, None):
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
        rounds, self.rounds = (
            self.rounds,
            [],
        )  # it is made once, although a loop may be the first to ask for it
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
        if unit.qualname in self.file.translated:
            return self.unmodelled(function, Call(node, self.site(node), list(args), dict(kwargs)), st)
        if unit.generator:
            generator = Generator(function, tuple(args), tuple(kwargs.items()), node)
            st.store.pop(self.standing(generator), None)
            self.begun.pop(generator, None)
            return generator
        if unit.is_memoized:
            return self.remembered(function, args, kwargs, st, node)
        return self.follow(function, args, kwargs, st, node, starred=starred)

    def follow(
        self,
        function: Function,
        args: list[Value],
        kwargs: dict[str, Value],
        st: State,
        node: cst.CSTNode,
        *,
        starred: bool = False,
    ) -> Value:
        """Follow a call, or take it for a careful one where it does not matter, or leads too deep."""
        unit = function.unit
        if self.is_exhausted():  # what is not followed any more may well order everything there is
            self.cut_short.setdefault(self.entry, EXHAUSTED)
            st.order.learn_everything(HOST)
            for value in (*args, *kwargs.values(), function.receiver or UNKNOWN):
                self.given_away(value, st)
            return UNKNOWN
        deep = len(self.stack) > DEPTH + (HANDING_DEPTH if self.makes(unit) else 0)
        given = function.frame is not None or self.hands_over(function, [*args, *kwargs.values()], st)
        plain = not given and not self.threads and not self.is_relevant(unit) and not self.makes(unit)
        if not deep and plain and self.calls_something(unit) and self.is_quiet(st):
            deep = True  # nothing is under way that it could meet, and it starts nothing
        counted = any(isinstance(v, Const) and type(v.value) is int for v in (*args, *kwargs.values()))
        if sum(a.unit is unit for a in self.stack) > (DEPTH if counted else 1):
            return UNKNOWN  # what a recursion does it has done one call further up
        if deep:
            return self.unmodelled(function, Call(node, self.site(node), list(args), dict(kwargs)), st)
        result = self.run_function(function, args, kwargs, st, node, starred=starred)
        self.stack[-1].temporaries.append(result)
        return result

    def calls_something(self, unit: FunctionUnit) -> bool:
        """Whether a function calls anything: one that only asks, or builds a dict, say, is soon followed."""
        known = self.with_calls.get(unit.qualname)
        if known is None:
            nodes = (n for d in self.file.definitions.get(unit.qualname, ()) for n in ast.walk(d.node))
            known = self.with_calls[unit.qualname] = any(
                isinstance(n, ast.Call) and last_name(n.func) not in _ASKING for n in nodes
            )
        return known

    def remembered(
        self, function: Function, args: list[Value], kwargs: dict[str, Value], st: State, node: cst.CSTNode
    ) -> Value:
        """What a memoized function gave for these arguments, or gives now; no round of a loop makes it anew, but for
        the element of that iteration.
        """
        memo = Container(MODULE.child(("memo", id(function.unit.node), "dict")), "dict")
        words = [v for name, value in kwargs.items() for v in (Const(name), value)]
        key = args[0] if len(args) == 1 and not words else Tuple((*args, *words))
        index = element_keys.key_of(key)
        sure = not element_keys.is_unsure(index)
        held = st.store.of(memo.name)
        first = element_keys.first_of(key, st)
        if first is not None and element_keys.under(held, element_keys.key_of(first)) is not None:
            self.store_element(memo, key, self.element(memo, first, st), st)
        if sure and element_keys.under(st.store.of(memo.name), index) is not None:
            return self.element(memo, key, st)
        other = (MODULE, (memo.name.site, *args, *kwargs.items()))
        found = None if sure else st.store.get(other)
        if found is not None:
            return found
        rounds, self.rounds = self.rounds, self.rounds if element_keys.rounds_of(key) else []
        try:
            found = self.follow(function, args, kwargs, st, node)
        finally:
            self.rounds = rounds
        if st.dead:
            return found
        if not sure:
            st.store[other] = found
            return found
        self.closed.add(memo.name)
        self.store_element(memo, key, found, st)
        return self.element(memo, key, st)

    def is_relevant(self, unit: FunctionUnit) -> bool:
        """Whether a function holds stream code, calls some, or uses what other methods' stream code leaves."""
        return unit.qualname in self.relevant or unit.qualname not in self.file.definitions

    def makes(self, unit: FunctionUnit) -> bool:
        """Whether a plain function starts a thread, calls a library, fills something, brings something to a device,
        or gives back what it has.
        """
        known = self._makes.get(unit.qualname)
        if known is None:
            known = self._makes[unit.qualname] = any(
                not d.calls.isdisjoint(apis.HANDS)
                or not d.calls.isdisjoint(self.file.imports)
                or _fills(d.node)
                or self._hands_on(d.node)
                or ("append" in d.calls and stream_terms.gathers(d.node))
                or (_returns(d.node) and self._brings(d))
                or self._puts(d)
                for d in self.file.definitions.get(unit.qualname, ())
            )
        return known

    def _brings(self, definition: Definition) -> bool:
        """Whether a function brings something to a device, or a function of the file that it calls does."""
        called = [d for name in definition.calls for d in self.file.definitions.get(name, ())]
        return any(not d.calls.isdisjoint(_BRINGING) for d in (definition, *called))

    def _puts(self, definition: Definition, depth: int = 2) -> bool:
        """Whether a function puts something into a queue, or one that it calls of its class, or of the module, does:
        who takes it from there gets what was put in, and nothing has read it.
        """
        if not definition.calls.isdisjoint(_PUTTING):
            return True
        owner = definition.qualname.rpartition(".")[0]
        called = (
            d
            for name in definition.calls
            for d in self.file.definitions.get(f"{owner}.{name}" if owner else name, ())
        )
        return depth > 0 and any(self._puts(d, depth - 1) for d in called)

    def _hands_on(self, function: ast.AST) -> bool:
        """Whether a function returns something that it was given or found, or what another one of the file gives."""
        for node in stream_terms.walk(function):
            if not isinstance(node, ast.Return):
                continue
            value = node.value
            while isinstance(value, (ast.Attribute, ast.Subscript)):
                value = value.value
            if isinstance(value, (ast.Name, ast.Tuple, ast.IfExp, ast.BoolOp)):
                return True
            if isinstance(value, ast.Call):
                called = (
                    value.func.attr
                    if isinstance(value.func, ast.Attribute)
                    else getattr(value.func, "id", "")
                )
                if called in _TAKING or called in self._own_names:
                    return True
        return False

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
        if not self.silent:  # what was found without a report is still to be judged
            self.entered.add(unit)
        outer = self.stack[-1].path if self.stack else ()
        path = deeper(outer, id(node))
        frame = Name((id(unit.node), "frame"), path)
        self.closed.add(frame)
        if function.frame is not None:
            self.closures[frame] = function.frame
        st.store.drop(frame)
        consumer = None
        if on_yield is not None:  # of a generator that hands on to another one it is that one's
            consumer = self.stack[-1].consumer if type(node) is cst.Yield else node
        activation = Activation(frame, unit, unit.slice, path, on_yield=on_yield, consumer=consumer)
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
        ends = activation.returns
        result = self.join_values(ends, st)
        for value in result.items if isinstance(result, Tuple) else (result,):
            self.given_by(value, node, st)
        captured = self.captured_frames.get(frame, ())
        for name, value in list(st.store.of(frame).items()):
            if name in captured or (captured and not isinstance(name, str)):
                continue
            self.lose(st, value)
            if st.graphs:
                kept = [v for v in iterate(value) if isinstance(v, (Tensor, Tuple, Container, Instance))]
                self.ended.update(t.name for v in kept for t, _ in self.tensors(st, v))
            del st.store[(frame, name)]
        return result

    def given_by(self, value: Value, node: cst.CSTNode, st: State) -> None:
        """A call has given a tensor, or an object that holds some, to who made it."""
        held = st.store.of(value.name).values() if isinstance(value, Instance) else (value,)
        for tensor in held if self.stack else ():
            if isinstance(tensor, Tensor):
                self.given_at[tensor.name.base()] = self.site(node)

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
        unplaced, unnamed = rest.pop(UNPLACED, None), rest.pop(UNNAMED_REST, None)
        last = [p for p in positional if p.name.value not in rest]
        exact = type(parameters.star_arg) is not cst.Param and all(p.default is None for p in last)
        if isinstance(unplaced, Tuple) and exact:  # all are given, so that these are the last ones
            rest |= {p.name.value: v for p, v in zip(reversed(last), reversed(unplaced.items), strict=False)}
        named = [*positional, *parameters.kwonly_params]
        for position, parameter in enumerate(named):
            name = parameter.name.value
            if name in rest:
                value = rest.pop(name)
            elif position < len(positional) and position < len(given):
                value = given[position]
            elif parameter.default is not None and not starred:
                value = self.default_of(function, parameter, st)
            elif unnamed is not None and position >= len(parameters.posonly_params):
                value = self.element(unnamed, Const(name), st)
            else:
                value = self.parameter(function, parameter, st)
            if isinstance(value, (Opaque, Union)):
                said = [(v, self.annotated(v, parameter.annotation, st), g) for v, g in alternatives(value)]
                if any(old is not new for old, new, _ in said):
                    value = union((new, g) for _, new, g in said)
            st.store[(frame, name)] = value
        star = parameters.star_arg
        if type(star) is cst.Param:
            extra = tuple(given[len(positional) :])
            st.store[(frame, star.name.value)] = (
                Tuple(extra) if not starred else Opaque(Name(star.name.value, (id(unit.node),)))
            )
            if starred and not extra:
                st.store[(frame, star.name.value)] = Opaque(Name(star.name.value, (id(unit.node),)))
            for value in iterate(st.store[(frame, star.name.value)]):
                if isinstance(value, Opaque):
                    st.store[(value.name, "@kind")] = Const("builtins.tuple")
        if parameters.star_kwarg is not None:
            keywords = Name((id(unit.node), "kwargs"), frame.path)
            self.closed.add(keywords)
            for key, value in rest.items():
                st.store[(keywords, key)] = value
            if not starred and unnamed is None:
                sequences.set_keys(st, Container(keywords, "dict"), rest)
            st.store[(frame, parameters.star_kwarg.name.value)] = Container(keywords, "dict")

    def default_of(self, function: Function, parameter: cst.Param, st: State) -> Value:
        """A parameter's default: evaluated once, where the function is defined."""
        scope = function.frame or MODULE
        key = (scope, ("default", id(parameter)))
        found = st.store.get(key)
        if found is None:
            assert parameter.default is not None
            rounds, self.rounds = self.rounds, []
            try:
                with self.scope(function.unit.slice, scope, None):
                    found = self.eval(parameter.default, st)
            finally:
                self.rounds = rounds
            if not isinstance(parameter.default, _SIMPLE):
                st.store[key] = found
        return found

    def parameter(self, function: Function, parameter: cst.Param, st: State) -> Value:
        """A parameter nobody is seen to give: its annotation may tell what it is.

        What an object that was made elsewhere was given is its own, but for what a whole program shares.
        """
        word = parameter.name.value
        name = Name(word, (id(function.unit.node),))
        owner = function.receiver
        if (
            isinstance(owner, Instance)
            and function.unit.name == "__init__"
            and hints.SHARED.fullmatch(word) is None
        ):
            kind = st.store.get((owner.name, "@materialized"))
            above = [st.store.get((n, "@materialized")) for n in owner.name.chain()][1:]
            if (
                kind is not None and kind not in above
            ):  # an object of its own kind inside it stands for all further
                name = owner.name.child(word)
        if self.new_parameters:
            for names in self.rounds:
                names.add(name)
        self.texts.setdefault(name, parameter.name.value)
        if isinstance(parameter.default, cst.SimpleString):
            if str(parameter.default.evaluated_value).partition(":")[0] == "cuda":
                self.cuda_devices.add(name.base())  # what it is given by default it is meant for
        return Opaque(name)

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
        unit = self.unit(self.file.implementations.get(text, text)) if text.isidentifier() else None
        if isinstance(unit, ClassUnit):
            # a TypedDict is a dict: its class has no say in what it holds
            is_dict = any(base.rpartition(".")[2] == "TypedDict" for base in unit.bases)
            return value if is_dict else self.materialized(value, unit, st)
        tail = text.rpartition(".")[2]
        if tail in ("int", "float", "bool", "str", "dtype", "Size", "Callable"):
            self.plain.add(value.name.base())
            return value
        if text in ("argparse.Namespace", "Namespace"):
            self.settings.add(value.name.base())
            return value
        cupy = self.file.imports.get(text.partition(".")[0], "").partition(".")[0] == "cupy"
        if tail in ("Stream", "CUstream", "cudaStream_t"):
            return self.as_stream(value, "cupy" if cupy or self.default_library == "cupy" else "torch")
        if tail in ("Tensor", "ndarray") and not text.startswith(("np.", "numpy.")):
            self.mark_tensor(st, value)
            if cupy or tail == "Tensor":
                self.libraries.setdefault(value.name.base(), "cupy" if cupy else "torch")
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
        rounds, self.rounds = self.rounds, []  # what it holds was made elsewhere: no round makes it anew
        self.silent += 1  # and before: what was done to it then conflicts with nothing now
        try:
            self.initialize(
                instance, unit, Call(unit.node, self.site_in(unit.slice, unit.node)), st, known=False
            )
        finally:
            self.rounds = rounds
            self.silent -= 1
        sequences.open_to_others(st, instance.name, self.file.counts - self.file.turning)
        return instance

    def instantiate(self, unit: ClassUnit, call: Call, st: State) -> Value:
        """``Class(...)``."""
        if unit.is_enumeration:
            return Opaque(self.fresh(call.node, st, "member"))
        new = self.find_method(unit, "__new__")
        if new is not None and not any(a.unit is new for a in self.stack):
            made = self.call_function(Function(new), [Class(unit), *call.args], call.kwargs, st, call.node)
        else:
            made = self.new_object(unit, call, st)
        if isinstance(made, Instance):
            self.initialize(made, unit, call, st, known=True)
            self.given_by(made, call.node, st)
        return made

    def new_object(self, unit: ClassUnit, call: Call, st: State) -> Instance:
        """An object of a class that nothing has been done to."""
        name = self.fresh(call.node, st, f"{unit.name}()")
        self.closed.add(name)
        return Instance(name, unit)

    def do_new_object(self, call: Call, st: State) -> Value:
        """``object.__new__(cls)``."""
        given = call.args[0] if call.args else UNKNOWN
        return self.new_object(given.unit, call, st) if isinstance(given, Class) else UNKNOWN

    def initialize(self, instance: Instance, unit: ClassUnit, call: Call, st: State, *, known: bool) -> None:
        """Run ``__init__``, or fill a dataclass's fields."""
        init = self.find_method(unit, "__init__")
        if init is not None:
            if any(a.unit is init for a in self.stack) or len(self.stack) > DEPTH:
                return
            outer = self.stack[-1].path if self.stack else ()
            if self.stack and not known:
                self.stack[-1].path = deeper(outer, instance.name)
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
        container = self.as_container(instance)
        if isinstance(container, Container):
            if container.kind == "dict":
                sequences.set_keys(st, container, ())
                for given in call.args:
                    self.add_items(container, given, st)
                for key, value in call.kwargs.items():
                    self.store_element(container, Const(key), value, st)
            elif known:
                sequences.put(st, container, [])
                for given in call.args:
                    self.extend_container(st, container, given)
            return
        if not known:
            return
        fields = list(self.fields(unit))
        for position, field in enumerate(fields):
            filled = call.get(position, field)
            if filled is None:
                found = self.find_class_attribute(unit, field)
                with self.called_from(call.node):  # what one instance is given is not what another is
                    filled = self.class_level(found, st) if found is not None else UNKNOWN
            st.store[(instance.name, field)] = filled
        post = self.find_method(unit, "__post_init__")
        if post is not None:
            self.run_function(Function(post, None, instance), [], {}, st, call.node)

    @contextmanager
    def called_from(self, node: cst.CSTNode) -> Iterator[None]:
        """What is made meanwhile is made through this call."""
        activation = self.stack[-1]
        outer = activation.path
        activation.path = deeper(outer, id(node))
        try:
            yield
        finally:
            activation.path = outer

    def fields(self, unit: ClassUnit) -> list[str]:
        """The fields of a dataclass or a named tuple, its bases' first."""
        found: list[str] = []
        for owner in reversed(list(self.ancestry(unit))):
            if owner.is_dataclass or any("NamedTuple" in b for b in owner.bases):
                found.extend(name for name in owner.attributes if name not in found)
        return found

    def do_make_named_tuple(self, call: Call, st: State) -> Value:
        """``collections.namedtuple("Name", fields)``: a class."""
        word, fields = (*call.args, UNKNOWN, UNKNOWN)[:2]
        names = self.known_items(fields, st)
        if isinstance(fields, Const) and isinstance(fields.value, str):
            names = [Const(name) for name in fields.value.replace(",", " ").split()]
        words = [n.value for n in names or () if isinstance(n, Const) and isinstance(n.value, str)]
        if not words or len(words) < len(names or ()):
            return UNKNOWN
        unit = self.nested.get(call.node)
        if unit is None:
            title = str(word.value) if isinstance(word, Const) else "namedtuple"
            unit = ClassUnit(title, call.node, self.stack[-1].slice, ("NamedTuple",))  # type: ignore[arg-type]
            unit.attributes.update((name, cst.Ellipsis()) for name in words)
            self.nested[call.node] = unit
        return Class(unit)  # type: ignore[arg-type]

    def class_of_method(self, name: str, call: Call) -> ClassUnit | None:
        """The one class of the file that has a method of this name, if the call fits it."""
        if self._method_owners is None:
            owners: dict[str, list[str]] = {}
            for class_name, statement in self.file.classes.items():
                for inner in statement.body:
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        owners.setdefault(inner.name, []).append(class_name)
            self._owners = owners
            self._method_owners = {}
        if name.startswith("__") or name in COMMON_METHODS or name in LIBRARY_METHODS:
            return None
        names = self._owners.get(name, [])
        if len(names) != 1 or f"{names[0]}.{name}" not in self.relevant:
            return None
        if any(
            a.unit is not None and a.unit.owner is not None and a.unit.owner.name == names[0]
            for a in self.stack
        ):
            return None  # within the class its objects are known by ``self``
        unit = self.unit(names[0])
        if not isinstance(unit, ClassUnit):
            return None
        fits = call.starred or unit.methods[name].takes(len(call.args), call.kwargs)
        return unit if fits else None


def _fills(function: ast.AST) -> bool:
    """Whether a function writes in place: by a method such as ``mul_``, item by item, or to an object's attributes."""
    return any(
        (isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Attribute) and node.attr.endswith("_") and not node.attr.startswith("_"))
        for node in stream_terms.walk(function)
    )


def _returns(function: ast.AST) -> bool:
    """Whether a function gives something back."""
    return any(isinstance(n, ast.Return) and n.value is not None for n in stream_terms.walk(function))


_BRINGING = frozenset({"to", "cuda"})
"""Methods that bring a tensor to a device."""
_ASKING = frozenset({"startswith", "any", "all", "len", "min", "max", "int", "abs", "divmod"})
"""Calls that ask something, or compute a number, and do nothing."""
_PUTTING = frozenset({"put", "put_nowait"})
"""Methods of queues that take something in."""
_TAKING = frozenset({"get", "pop", "popleft", "setdefault", "getattr", "cls"})
"""Methods that give what a container holds."""


def _yields(node: cst.FunctionDef) -> bool:
    return any(type(inner) is cst.Yield for inner in concrete.walk(node.body, (cst.FunctionDef, cst.Lambda)))


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
