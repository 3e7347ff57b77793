"""Calls: functions of the file are followed, library calls are looked up, anything else is taken to be careful."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import fields, hints, sequences
from streamsafe.static.concrete import spelled
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensors import UNNAMED_REST, UNPLACED, Call
from streamsafe.static.transfer.unseen import callable_text
from streamsafe.static.values import (
    GRAPHED,
    NONE,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Context,
    Event,
    Function,
    Instance,
    Method,
    Name,
    Opaque,
    Partial,
    Stream,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.project.settings import Model


STEPS, LINKED_STEPS = 600, 2_000
"""After how many statements of one entry calls are no longer followed; in a file that is read together with what it
imports an entry leads through several files."""

FILE_STEPS, LINKED_FILE_STEPS = 4_000, 6_000
"""After how many statements of a file, alone or with what it imports, its further entries are looked at less deeply."""

LATE_STEPS = 100
"""The share of an entry in a file that has had its own."""


class Calls(Part):
    """Resolves and follows calls."""

    def call(self, node: cst.Call, st: State) -> Value:
        """``function(*args, **kwargs)``: evaluates the callee and the arguments, and calls."""
        receiver: Value | None = None
        name = ""
        if type(node.func) is cst.Attribute:
            if type(node.func.value) is cst.Comparison:
                self.run.masking = node.func.value
            receiver = self.expressions.eval(node.func.value, st)
            name = node.func.attr.value
            if receiver == NONE and name in apis.TENSOR_METHODS:
                receiver = self.assigned_by_then(node.func.value, st)
        else:
            function = self.expressions.eval(node.func, st)
        call = Call(node, self.call_stack.site(node))
        placed, unplaced = call.args, list[Value]()
        given: list[tuple[Value, int]] = []
        for argument in node.args:
            value = self.expressions.eval(argument.value, st)
            if st.graphs:
                given.append((value, self.run.replays))
            if argument.star == "*":
                if rows := self.rows(value, st):
                    for position in range(max(len(row) for row, _ in rows)):
                        placed.append(union((row[position], g) for row, g in rows if position < len(row)))
                    known = len({len(row) for row, _ in rows}) == 1
                else:
                    placed.append(
                        self.containers.any_element(value, st) if isinstance(value, Container) else value
                    )
                    known = False
                if not known:
                    call.starred, placed = True, unplaced
            elif argument.star == "**":
                value = self.subscripts.as_container(value)
                call.starred = not (isinstance(value, Container) and sequences.keys(st, value) is not None)
                if isinstance(value, Container):
                    for key, held in list(st.store.of(value.name).items()):
                        if isinstance(key, str) and not key.startswith("*"):
                            call.kwargs[key] = held
                    if call.starred:
                        call.kwargs[UNNAMED_REST] = value
                elif value != UNKNOWN and not isinstance(value, Const):
                    call.kwargs[UNNAMED_REST] = value
            elif argument.keyword is not None:
                call.kwargs[argument.keyword.value] = value
            else:
                placed.append(value)
        if unplaced:
            call.kwargs[UNPLACED] = Tuple(tuple(unplaced))
        if len(given) > 1:
            self.replays.computed_twice(st, given, call.site)
        self.run.stack[-1].temporaries.extend(call.everything())
        if receiver is not None:
            result = self.methods.call_method(receiver, name, call, st)
            owner = () if isinstance(receiver, (Instance, Class)) else (receiver,)
            self.gradients.derive(st, result, (*owner, *call.everything()))
            return result
        if type(node.func) is cst.Name:
            call.text = node.func.value
        result = self.call_value(function, call, st)
        self.gradients.derive(st, result, call.everything())
        return result

    def assigned_by_then(self, node: cst.BaseExpression, st: State) -> Value:
        """An attribute that is None and used as a tensor: by then somebody has assigned it, a hook perhaps."""
        owner = self.expressions.eval(node.value, st) if type(node) is cst.Attribute else NONE
        if not isinstance(owner, Instance) or type(node) is not cst.Attribute:
            return NONE
        found = Opaque(owner.name.child(node.attr.value))
        st.store[(owner.name, node.attr.value)] = found
        return found

    def rows(self, value: Value, st: State) -> list[tuple[list[Value], Guard]]:
        """The elements of each sequence that a value may be, with its guard; none where some are not known."""
        choices = [(self.iterables.known_items(v, st), g) for v, g in alternatives(value, st.path)]
        rows = [(items, g) for items, g in choices if items is not None]
        return rows if len(rows) == len(choices) else []

    def call_value(self, function: Value, call: Call, st: State) -> Value:
        """Call anything; of a union each alternative under its guard."""
        choices = alternatives(function, st.path)
        if len(choices) == 1:
            return self._call_one(choices[0][0], call, st)
        choices = self._one_class(choices, call, st)
        return self.each_way([(v, g, partial(self._call_one, v, call)) for v, g in choices], st)

    def _one_class(
        self, choices: list[tuple[Value, Guard]], call: Call, st: State
    ) -> list[tuple[Value, Guard]]:
        """Several classes of which one is picked, nobody knows which: each on paths of its own.

        All that is done with the object is then done with one of that class.
        """
        classes = [(v, g) for v, g in choices if v != NONE]
        if not 1 < len(classes) <= MOST_CLASSES or not all(
            isinstance(v, Class) and g == ALWAYS for v, g in classes
        ):
            return choices
        found: list[tuple[Value, Guard]] = []
        rest = ALWAYS
        picked = self.conditions.unknown_flag(call.node, st).name
        for number, (value, _) in enumerate(classes[:-1]):
            flag = picked.child(number)
            outcomes = self.conditions.condition(("truth", flag), (flag,), st, True)
            if len(outcomes) != 2 or outcomes[0][1] == outcomes[1][1]:
                return choices
            (_, this), (_, other) = outcomes
            found.append((value, rest & this))
            rest = rest & other
        return [*found, (classes[-1][0], rest)]

    def each_way(self, ways: list[tuple[Value, Guard, Callable[[State], Value]]], st: State) -> Value:
        """Do different things under different guards, and join."""
        ends: list[tuple[State, Value]] = []
        for _, guard, action in ways:
            branch = st.copy()
            branch.assume(guard)
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
            joined = self.paths.join(joined, state)
        if joined is None:
            st.dead = True
            return UNKNOWN
        if joined is not st:
            st.become(joined)
        return st.store.pop(key, UNKNOWN)

    def _call_one(self, function: Value, call: Call, st: State) -> Value:
        if isinstance(function, Function):
            compiled = self.kernel_launches.compiled(function.unit, launched=call.grid is not None)
            if compiled is not None:
                return self.kernel_launches.launch_compiled(function.unit, compiled, call, st)
            return self.functions.call_function(
                function, call.args, call.kwargs, st, call.node, starred=call.starred
            )
        if isinstance(function, (Opaque, Instance)):
            captured = st.store.get((function.name, fields.GRAPHED_CALLABLE))
            if captured is not None:
                return self.tensor_functions.call_graphed(captured, call, st)
            if (referred := st.store.get((function.name, fields.REFERENT))) is not None:
                return referred
            if isinstance(function, Opaque):
                self.replays.module_called(st, function, call.site, rounds=self.rounds_around())
                self.replays.module_runs(st, function, call.everything(), call.site)
        if isinstance(function, Partial):
            if function.function == GRAPHED:
                return self.tensor_functions.call_graphed(function.args[0], call, st)
            if function.grid is not None:
                call.grid = function.grid
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
            return self.instances.instantiate(function.unit, call, st)
        if isinstance(function, Api):
            return self.call_api(function.name, call, st)
        if isinstance(function, Method):
            return self.methods.call_method(function.receiver, function.name, call, st)
        if isinstance(function, Instance):
            for name in ("__call__", "forward"):
                method = self.class_members.find_method(function.unit, name)
                if method is not None:
                    bound = Function(method, None, function)
                    self.replays.module_runs(st, function, call.everything(), call.site)
                    self.hooks.run_forward_hooks(fields.PRE_FORWARD_HOOKS, function, call, [], st)
                    result = self.functions.call_function(
                        bound, call.args, call.kwargs, st, call.node, starred=call.starred
                    )
                    self.hooks.run_forward_hooks(fields.FORWARD_HOOKS, function, call, [result], st)
                    self.gradients.called_for(st, function, result, call.everything())
                    return result
        if isinstance(function, Context) and function.kind == "nothing" and len(call.args) == 1:
            return call.args[0]  # as a decorator it gives a function that does the same
        if isinstance(function, Container) and self.torch_modules.is_row_of_modules(function, st):
            return self.call_in_turn(function, call, st)
        if (
            isinstance(function, Opaque)
            and function.name.parent is not None
            and self.unknown_objects.is_bound(function, st)
        ):
            return self.methods.method_of(Opaque(function.name.parent), str(function.name.site), call, st)
        if not isinstance(function, Opaque):
            return self.unseen.unmodelled(function, call, st)
        self.hooks.run_forward_hooks(fields.PRE_FORWARD_HOOKS, function, call, [], st)
        result = self.unseen.unmodelled(function, call, st)
        self.hooks.run_forward_hooks(fields.FORWARD_HOOKS, function, call, [result], st)
        self.gradients.called_for(st, function, result, call.everything())
        self.hooks.save_for_backward(st, call.site, f"{callable_text(function, call)}()")
        return result

    def call_in_turn(self, modules: Container, call: Call, st: State) -> Value:
        """``Sequential(...)(x)``: each module is given what the one before it has made."""
        handed = (self.run.stack[-1].frame, fields.PASSED_ON)
        st.store[handed] = call.args[0] if call.args else UNKNOWN

        def body(module: Value, state: State) -> None:
            given = state.store.get(handed, UNKNOWN)
            state.store[handed] = self.call_value(module, Call(call.node, call.site, [given]), state)

        self.iteration.iterate_over(modules, st, call.node, body, at_least_once=True)
        return st.store.pop(handed, UNKNOWN)

    def rounds_around(self) -> int | None:
        """How often what is interpreted runs in the loops that it stands in; None where that is not known."""
        known, count = 0, 1
        for activation in self.run.stack:
            for held in activation.held:
                if isinstance(held, Partial) and held.function == Api("builtins.range"):
                    items = [a.value for a in held.args if isinstance(a, Const) and type(a.value) is int]
                    if len(items) < len(held.args):
                        return None
                    known, count = known + 1, count * len(range(*items))
        return count if known + 1 >= len(self.run.rounds) else None

    def call_api(self, name: str, call: Call, st: State) -> Value:
        """A library function."""
        call.text = name
        model = self.run.models.get(name) if self.run.models else None
        if model is not None:
            return self.user_model(model, call, st)
        owner, _, tail = name.rpartition(".")
        if tail in apis.DEVICE_MODULE_METHODS and spelled(hints.DEVICE_MODULE, owner.rpartition(".")[2]):
            if self.library.api_verb(name) is None:  # the device module, as a package of the user's has it
                call.text = f"torch.cuda.{tail}"
                return self.library.verb(apis.DEVICE_MODULE_METHODS[tail], call, st)
        if name.startswith(".") or "." not in name:
            local = self.library.api_verb(name)
            if local is None:
                if tail == "current_stream" and not call.args:
                    return self.streams.do_current_stream(call, st)
                if tail in apis.FUNCTIONS or tail == "get_accelerator":
                    return self.library.verb(apis.FUNCTIONS[tail], call, st)
                return self.unseen.unmodelled(Api(name), call, st)
        if name.endswith(".get_accelerator"):
            return Api("torch.cuda")
        verb = self.library.api_verb(name)
        if verb is None and name.endswith(".current_stream") and not call.args:
            verb = "current_stream"  # of a device module that is not known
        if verb is None:
            return self.unseen.unmodelled(Api(name), call, st)
        return self.library.verb(verb, call, st)

    def api_attribute(self, base: Api, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a library's module."""
        full = apis.canonical(f"{base.name}.{name}")
        verb = apis.ATTRIBUTES.get(full)
        if verb is not None:
            return self.library.verb(verb, Call(node, self.call_stack.site(node), text=full), st)
        return Api(full)

    def may_start_work(self, function: Function, args: list[Value], st: State) -> bool:
        """Whether a call is given what it may do anything with: functions, streams, a method's object's streams."""
        if any(isinstance(v, _START_WORK) for a in args for v in iterate(a)):
            return True
        if isinstance(
            function.receiver, Class
        ):  # it may keep classes or functions that are registered with it
            return function.receiver.unit.name in self.run.file.registered
        if not isinstance(function.receiver, Instance):
            return False
        calls = [d.calls for d in self.run.file.definitions.get(function.unit.qualname, ())]
        return any(
            isinstance(key, str)
            and any(key in names for names in calls)
            and (isinstance(v, _START_WORK) or (isinstance(v, Container) and self._holds_callables(v, st)))
            for key, value in st.store.of(function.receiver.name).items()
            for v in iterate(value)
        )

    @staticmethod
    def _holds_callables(container: Container, st: State) -> bool:
        """Whether functions or classes are kept in a container: a registry."""
        held = st.store.of(container.name).values()
        return any(isinstance(v, (Function, Class)) for value in held for v in iterate(value))

    def is_exhausted(self) -> bool:
        """Whether this entry, or the whole file, has had its share of statements: calls are no longer followed."""
        steps, all_steps = (
            (STEPS, FILE_STEPS) if self.run.file.own is None else (LINKED_STEPS, LINKED_FILE_STEPS)
        )
        return self.run.steps > (steps if self.run.total_steps < all_steps else LATE_STEPS)

    def user_model(self, model: Model, call: Call, st: State) -> Value:
        """A wrapper that the user's configuration describes."""
        return self.library.apply_model(model, call, st)


MOST_CLASSES = 4
"""Of so many classes at most it is known which one was picked."""

_START_WORK = (Function, Partial, Class, Stream, Event, Context)
"""With one of these a plain function may start something."""
