"""Calls of functions of the file: bound, run, summarized and remembered."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import HOST
from streamsafe.static import element_keys, fields, hints, sequences, stream_terms
from streamsafe.static.facts import AMBIENT, COPIES, EXHAUSTED
from streamsafe.static.source import Definition, FunctionUnit
from streamsafe.static.state import State
from streamsafe.static.stream_terms import last_name
from streamsafe.static.transfer.call_stack import MODULE, Activation
from streamsafe.static.transfer.comprehensions import DEPTH
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.run_state import RunState
from streamsafe.static.transfer.tensors import UNNAMED_REST, UNPLACED, Call
from streamsafe.static.values import (
    NONE,
    UNKNOWN,
    Const,
    Container,
    Function,
    Generator,
    Instance,
    Name,
    Opaque,
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

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


HANDING_DEPTH = 3
"""So many calls deeper than others: what it hands on is not to look like something that it has worked out."""
"""The key, for a constructor's parameter, of the first object that was given the shared argument."""

_SIMPLE = (cst.Name, cst.BaseNumber, cst.SimpleString, cst.UnaryOperation)
"""Expressions that give the same whenever they are evaluated."""


class Functions(Part):
    """Calls functions of the file."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.with_calls: dict[str, bool] = {}
        """By name, whether a function calls anything."""
        self._own_names: frozenset[str] = frozenset(
            q.rpartition(".")[2] for q in run.file.definitions
        ) | frozenset(run.file.classes)
        """The names of the functions and classes of the file."""
        self._makes: dict[str, bool] = {}
        """By qualified name, whether a function makes anything that outlives the call."""

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
        if unit.qualname in self.run.file.translated:
            return self.unseen.unmodelled(
                function, Call(node, self.call_stack.site(node), list(args), dict(kwargs)), st
            )
        if unit.generator:
            generator = Generator(function, tuple(args), tuple(kwargs.items()), node)
            st.store.pop(self.comprehensions.standing(generator), None)
            self.run.begun.pop(generator, None)
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
        if self.calls.is_exhausted():  # what is not followed any more may well order everything there is
            self.run.cut_short.setdefault(self.run.entry, EXHAUSTED)
            st.order.learn_everything(HOST)
            for value in (*args, *kwargs.values(), function.receiver or UNKNOWN):
                self.assumed_order.passed_to_unseen(value, st)
            return UNKNOWN
        deep = len(self.run.stack) > DEPTH + (HANDING_DEPTH if self.makes(unit) else 0)
        given = function.frame is not None or self.calls.may_start_work(
            function, [*args, *kwargs.values()], st
        )
        plain = not given and not self.run.threads and not self.is_relevant(unit) and not self.makes(unit)
        if not deep and plain and self.calls_something(unit) and self.is_quiet(st):
            deep = True  # nothing is under way that it could meet, and it starts nothing
        counted = any(isinstance(v, Const) and type(v.value) is int for v in (*args, *kwargs.values()))
        if sum(a.unit is unit for a in self.run.stack) > (DEPTH if counted else 1):
            return UNKNOWN  # what a recursion does it has done one call further up
        if deep:
            return self.unseen.unmodelled(
                function, Call(node, self.call_stack.site(node), list(args), dict(kwargs)), st
            )
        result = self.run_function(function, args, kwargs, st, node, starred=starred)
        self.run.stack[-1].temporaries.append(result)
        return result

    def calls_something(self, unit: FunctionUnit) -> bool:
        """Whether a function calls anything: one that only asks, or builds a dict, say, is soon followed."""
        known = self.with_calls.get(unit.qualname)
        if known is None:
            nodes = (n for d in self.run.file.definitions.get(unit.qualname, ()) for n in ast.walk(d.node))
            known = self.with_calls[unit.qualname] = any(
                isinstance(n, ast.Call) and last_name(n.func) not in _PURE for n in nodes
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
            self.elements.store_element(memo, key, self.elements.element(memo, first, st), st)
        if sure and element_keys.under(st.store.of(memo.name), index) is not None:
            return self.elements.element(memo, key, st)
        other = (MODULE, (memo.name.site, *args, *kwargs.items()))
        found = None if sure else st.store.get(other)
        if found is not None:
            return found
        rounds, self.run.rounds = self.run.rounds, self.run.rounds if element_keys.rounds_of(key) else []
        try:
            found = self.follow(function, args, kwargs, st, node)
        finally:
            self.run.rounds = rounds
        if st.dead:
            return found
        if not sure:
            st.store[other] = found
            return found
        self.run.closed.add(memo.name)
        self.elements.store_element(memo, key, found, st)
        return self.elements.element(memo, key, st)

    def is_relevant(self, unit: FunctionUnit) -> bool:
        """Whether a function holds stream code, calls some, or uses what other methods' stream code leaves."""
        return unit.qualname in self.run.relevant or unit.qualname not in self.run.file.definitions

    def makes(self, unit: FunctionUnit) -> bool:
        """Whether a plain function starts a thread, calls a library, fills something, brings something to a device,
        or gives back what it has.
        """
        known = self._makes.get(unit.qualname)
        if known is None:
            known = self._makes[unit.qualname] = any(
                not d.calls.isdisjoint(apis.STARTS_THREADS)
                or not d.calls.isdisjoint(self.run.file.imports)
                or _fills(d.node)
                or self._returns_argument(d.node)
                or ("append" in d.calls and stream_terms.gathers(d.node))
                or (_returns(d.node) and self._moves_to_device(d))
                or self._puts(d)
                for d in self.run.file.definitions.get(unit.qualname, ())
            )
        return known

    def _moves_to_device(self, definition: Definition) -> bool:
        """Whether a function brings something to a device, or a function of the file that it calls does."""
        called = [d for name in definition.calls for d in self.run.file.definitions.get(name, ())]
        return any(not d.calls.isdisjoint(_MOVES_TO_DEVICE) for d in (definition, *called))

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
            for d in self.run.file.definitions.get(f"{owner}.{name}" if owner else name, ())
        )
        return depth > 0 and any(self._puts(d, depth - 1) for d in called)

    def _returns_argument(self, function: ast.AST) -> bool:
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
        unit = function.unit
        self.run.followed += 1
        if not self.run.silent:  # what was found without a report is still to be judged
            self.run.entered.add(unit)
        outer = self.run.stack[-1].path if self.run.stack else ()
        path = deeper(outer, id(node))
        frame = Name((id(unit.node), "frame"), path)
        self.run.closed.add(frame)
        if function.frame is not None:
            self.run.closures[frame] = function.frame
        st.store.drop(frame)
        consumer = None
        if on_yield is not None:  # of a generator that hands on to another one it is that one's
            consumer = self.run.stack[-1].consumer if type(node) is cst.Yield else node
        activation = Activation(frame, unit, unit.slice, path, on_yield=on_yield, consumer=consumer)
        self.bind_arguments(function, frame, args, kwargs, st, starred or root)
        self.run.stack.append(activation)
        try:
            if isinstance(unit.node, cst.Lambda):
                activation.returns.append((st, self.expressions.eval(unit.node.body, st)))
            else:
                self.statements.block(unit.node.body.body, st)
                if not st.dead:
                    activation.returns.append((st.copy(), NONE))
        finally:
            self.run.stack.pop()
        ends = activation.returns
        result = self.calls.join_values(ends, st)
        for value in result.items if isinstance(result, Tuple) else (result,):
            self.returned_values(value, node, st)
        captured = self.run.captured_frames.get(frame, ())
        if captured and st.graphs and not st.dead and frame not in self.lifetimes.reachable(st, [result]):
            captured = ()  # the functions that were defined here, and hold its names, are gone
        for name, value in list(st.store.of(frame).items()):
            if name in captured or (captured and not isinstance(name, str)):
                continue
            self.containers.lose(st, value)
            if st.graphs:
                kept = [v for v in iterate(value) if isinstance(v, (Tensor, Tuple, Container, Instance))]
                self.run.ended.update(t.name for v in kept for t, _ in self.memory.tensors_in(st, v))
            del st.store[(frame, name)]
        return result

    def returned_values(self, value: Value, node: cst.CSTNode, st: State) -> None:
        """A call has given a tensor, or an object that holds some, to who made it."""
        held = st.store.of(value.name).values() if isinstance(value, Instance) else (value,)
        for tensor in held if self.run.stack else ():
            if isinstance(tensor, Tensor):
                self.run.returned_at[tensor.name.base()] = self.call_stack.site(node)

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
                value = self.elements.element(unnamed, Const(name), st)
            else:
                value = self.parameter(function, parameter, st)
            if isinstance(value, (Opaque, Union)):
                said = [
                    (v, self.instances.annotated(v, parameter.annotation, st), g)
                    for v, g in alternatives(value)
                ]
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
                    st.store[(value.name, fields.BUILTIN_TYPE)] = Const("builtins.tuple")
        if parameters.star_kwarg is not None:
            keywords = Name((id(unit.node), "kwargs"), frame.path)
            self.run.closed.add(keywords)
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
            rounds, self.run.rounds = self.run.rounds, []
            try:
                with self.definitions.scope(function.unit.slice, scope, None):
                    found = self.expressions.eval(parameter.default, st)
            finally:
                self.run.rounds = rounds
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
            kind = st.store.get((owner.name, fields.ASSUMED_CLASS))
            above = [st.store.get((n, fields.ASSUMED_CLASS)) for n in owner.name.chain()][1:]
            if (
                kind is not None and kind not in above
            ):  # an object of its own kind inside it stands for all further
                name = owner.name.child(word)
        if self.run.new_parameters:
            for names in self.run.rounds:
                names.add(name)
        self.run.texts.setdefault(name, parameter.name.value)
        if isinstance(parameter.default, cst.SimpleString):
            if str(parameter.default.evaluated_value).partition(":")[0] == "cuda":
                self.run.cuda_devices.add(name.base())  # what it is given by default it is meant for
        return Opaque(name)


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


_MOVES_TO_DEVICE = frozenset({"to", "cuda"})
"""Methods that bring a tensor to a device."""

_PURE = frozenset({"startswith", "any", "all", "len", "min", "max", "int", "abs", "divmod"})
"""Calls that ask something, or compute a number, and do nothing."""

_PUTTING = frozenset({"put", "put_nowait"})
"""Methods of queues that take something in."""

_TAKING = frozenset({"get", "pop", "popleft", "setdefault", "getattr", "cls"})
"""Methods that give what a container holds."""


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
