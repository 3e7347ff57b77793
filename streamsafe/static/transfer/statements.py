"""Statements: runs them forward over a state, with the real exits of each; rules never follow control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import concrete, fields
from streamsafe.static.facts import Site
from streamsafe.static.state import State
from streamsafe.static.transfer.call_stack import MODULE
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Clock,
    Const,
    Container,
    Instance,
    Name,
    Object,
    Opaque,
    Partial,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    union,
)

CROWDED = 120
"""How many objects there may be before those that nothing leads to are forgotten."""


class Statements(Part):
    """Runs statements."""

    handlers: dict[type[cst.CSTNode], Callable[..., None]]
    """By kind of statement, the method that runs it."""

    # -- blocks --------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[cst.CSTNode], st: State) -> None:
        """Statements one after another."""
        for statement in statements:
            for small in statement.body if type(statement) is cst.SimpleStatementLine else (statement,):
                if st.dead:
                    return
                self.statement(small, st)

    def suite(self, body: cst.BaseSuite, st: State) -> None:
        """The body of a compound statement."""
        self.block(body.body, st)

    def statement(self, node: cst.CSTNode, st: State) -> None:
        """One statement; whatever it leaves without a name is released."""
        self.run.steps += 1
        self.run.total_steps += 1
        if self.accesses.is_spent():
            return  # one entry may not take the time of all the others
        handler = self.handlers.get(type(node))
        if handler is None:
            return
        handler(node, st)
        self.run.stack[-1].temporaries.clear()
        if st.dead:
            return
        if self.run.candidates:
            self.lifetimes.release_unreachable(st, self.call_stack.site(node), self.call_stack.suspended())
        if len(self.run.stack) <= 3 and len(st.store.objects) > max(CROWDED, self.run.crowded):
            self.lifetimes.prune(st, self.call_stack.suspended())
            self.run.crowded = max(CROWDED, 2 * len(st.store.objects))

    def connected(self) -> None:
        """Builds the table of handlers."""
        self.handlers = {
            cst.Expr: self._expr,
            cst.Assign: self._assign,
            cst.AnnAssign: self._annotated,
            cst.AugAssign: self._augmented,
            cst.Return: self._return,
            cst.Raise: self._raise,
            cst.Break: self._break,
            cst.Continue: self._continue,
            cst.Assert: self._assert,
            cst.Del: self._del,
            cst.Global: self._global,
            cst.Nonlocal: self._global,
            cst.FunctionDef: self._function,
            cst.ClassDef: self._class,
            cst.If: self._if,
            cst.Match: self.unpacking.match_statement,
            cst.While: self.loops.while_statement,
            cst.For: self.iteration.for_statement,
            cst.Try: self._try,
            cst.TryStar: self._try,
            cst.With: self._with,
        }

    # -- simple statements ---------------------------------------------------------------------------------------

    def _expr(self, node: cst.Expr, st: State) -> None:
        self.run.alone = node.value
        self.expressions.eval(node.value, st)

    def _assign(self, node: cst.Assign, st: State) -> None:
        value = self._to_keep(node.value, node.targets[-1].target, st)
        for inner in iterate(value) if type(node.value) is cst.Attribute else ():
            if isinstance(inner, Opaque) and inner.name.parent and inner.name.site in apis.VIEW_METHODS:
                self.run.non_tensors.add(inner.name.parent.base())  # whose functions get names is a module
        for target in node.targets:
            self.assignments.assign(target.target, value, st, node)

    def _to_keep(self, node: cst.BaseExpression, target: cst.BaseExpression, st: State) -> Value:
        """What is assigned: a stream that is made there may be known by what it is assigned to."""
        if type(node) is not cst.Call and type(node) is not cst.IfExp:
            return self.expressions.eval(node, st)
        name = self.objects.filled_by(target, st)
        outside, self.run.kept_under = (
            self.run.kept_under,
            (self.call_stack.activation, name) if name is not None else None,
        )
        value = self.expressions.eval(node, st)
        self.run.kept_under = outside
        return value

    def _annotated(self, node: cst.AnnAssign, st: State) -> None:
        if node.value is not None:
            self.assignments.assign(node.target, self._to_keep(node.value, node.target, st), st, node)

    def _augmented(self, node: cst.AugAssign, st: State) -> None:
        """``target += value`` and its like."""
        target = self.expressions.eval(node.target, st)
        value = self.expressions.eval(node.value, st)
        if any(isinstance(v, Clock) for v in (*iterate(target), *iterate(value))):
            return
        if isinstance(node.operator, cst.BitOrAssign):
            either = self.arithmetic.either(target, value, node, st)
            if either is not None:
                self.assignments.assign(node.target, either, st, node)
                return
        if any(isinstance(v, (Tensor, Opaque)) for v in iterate(target)):
            kinds = [v for v in iterate(target) if isinstance(v, (Tensor, Opaque))]
            if any(isinstance(v, Tensor) or self.expressions.is_tensor(st, v) for v in kinds):
                whole = union((v, ALWAYS) for v in kinds)
                self.tensors.in_place(
                    st, whole, [whole, value], self.call_stack.site(node), "in-place arithmetic"
                )
                return
            if any(isinstance(v, Tensor) for v in iterate(value)):
                self.tensors.read_operands(
                    st, [target, value], self.call_stack.site(node), "in-place arithmetic"
                )
                return
            if isinstance(node.target, cst.Subscript):
                return
            whole = self.computed.numbered(node.operator, target, value, PLAIN, st)
            unknown = PLAIN if isinstance(value, Const) else UNKNOWN
            self.assignments.assign(node.target, whole if whole != PLAIN else unknown, st, node)
            return
        if any(isinstance(v, Container) for v in iterate(target)):
            if isinstance(target, Container) and target.kind == "dict":
                self.python_containers.add_items(target, value, st)
            else:
                self.containers.extend_container(st, target, value)
            return
        number = self.arithmetic.computed_number(node, target, value, st)
        if number is None:
            number = self.computed.numbered(
                node.operator, target, value, self.arithmetic.binary(target, value, node, st), st
            )
        if st.capture is not None and isinstance(target, Const) and isinstance(node.target, cst.Attribute):
            self._counts_in_capture(
                st,
                self.expressions.eval(node.target.value, st),
                node.target.attr.value,
                self.call_stack.site(node),
            )
        self.assignments.assign(node.target, number, st, node)

    def _counts_in_capture(self, st: State, owner: Value, name: str, site: Site) -> None:
        """A number on an object changes once, at the capture: no replay brings it up to date for its readers (GC-03).

        What some method sets anew is no count of passes but the bookkeeping of one. A function that asks whether a
        capture is under way counts in one because it wants to.
        """
        assert st.capture is not None
        unit = self.call_stack.activation.unit
        if not isinstance(owner, Instance) or unit is None:
            return
        if not apis.CAPTURE_QUERIES.isdisjoint(concrete.names_in(unit.node)):
            return
        readers, setters = self.run.file.owners.users(owner.unit.qualname, name)
        if readers - {unit.qualname} and not setters - {unit.qualname, f"{owner.unit.name}.__init__"}:
            self.captures.forbidden(st, "host-work-in-capture", site, "the host's count")

    def _return(self, node: cst.Return, st: State) -> None:
        if self.run.kept_under is not None and type(node.value) is cst.Call:
            activation, name = self.run.kept_under
            if len(self.run.stack) > 1 and activation is self.run.stack[-2]:
                self.run.kept_under = (self.call_stack.activation, name)  # the caller keeps what is made here
        value = self.expressions.eval(node.value, st) if node.value is not None else NONE
        if self.run.pooled:
            for target, guard in self.memory.tensors_in(st, value):
                self.replays.reads_overlaid(st, target.name, self.call_stack.site(node), guard)
        self.call_stack.activation.returns.append((st.copy(), value))
        st.dead = True

    def _raise(self, node: cst.Raise, st: State) -> None:
        if node.exc is not None:
            self.expressions.eval(node.exc, st)
        st.dead = True

    def _break(self, _: cst.Break, st: State) -> None:
        if self.call_stack.activation.loops:
            self.call_stack.activation.loops[-1].breaks.append(st.copy())
        st.dead = True

    def _continue(self, _: cst.Continue, st: State) -> None:
        if self.call_stack.activation.loops:
            self.call_stack.activation.loops[-1].continues.append(st.copy())
        st.dead = True

    def _assert(self, node: cst.Assert, st: State) -> None:
        outcomes = self.predicates.test(node.test, st)
        self.paths.enter_branch(node.test, outcomes, True, st)

    def _del(self, node: cst.Del, st: State) -> None:
        targets = (
            [e.value for e in node.target.elements] if isinstance(node.target, cst.Tuple) else [node.target]
        )
        for target in targets:
            self.assignments.delete(target, st, node)

    def _global(self, node: cst.Global | cst.Nonlocal, st: State) -> None:
        self.call_stack.activation.outer.update(item.name.value for item in node.names)

    def _function(self, node: cst.FunctionDef, st: State) -> None:
        self.bind(node.name.value, self.definitions.nested_function(node, st), st)

    def _class(self, node: cst.ClassDef, st: State) -> None:
        self.bind(node.name.value, self.definitions.nested_class(node), st)

    # -- branches ------------------------------------------------------------------------------------------------

    def _if(self, node: cst.If, st: State) -> None:
        outcomes = self.conditions.as_one(self.predicates.test(node.test, st), st)
        otherwise = st.copy()
        outside = self.run.branching
        waits = len(self.run.foreign_waits)
        for _, guard in outcomes:
            self.run.branching |= guard.true | guard.false
        self.paths.enter_branch(node.test, outcomes, True, st)
        if not st.dead:
            lazily = concrete.fills_gap(node)
            self.run.lazily += lazily
            self.suite(node.body, st)
            self.run.lazily -= lazily
        self.paths.enter_branch(node.test, outcomes, False, otherwise)
        if node.orelse is not None and not otherwise.dead:
            if type(node.orelse) is cst.If:
                self._if(node.orelse, otherwise)
            else:
                self.suite(node.orelse.body, otherwise)
        self.run.branching = outside
        self.streams.none_to_wait_for(otherwise, self.run.foreign_waits[waits:])
        self.paths.settle(st, self.paths.join(st, otherwise))

    # -- try and with --------------------------------------------------------------------------------------------

    def _try(self, node: cst.Try | cst.TryStar, st: State) -> None:
        final = node.finalbody.body if node.finalbody is not None else None

        def finish(state: State) -> None:
            if final is not None and not state.dead:
                self.suite(final, state)

        with self.call_stack.exits(finish):
            capturing, current = st.capture is not None, dict(st.current)
            ordering = concrete.leading_waits(node.body)
            self.block(node.body.body[:ordering], st)  # these do not fail
            self.call_stack.activation.tried += 1
            caught: State | None = st.copy()  # a handler is taken to begin with what held before
            if self.run.file.turning:
                self._track_raised(node, st, caught)
            sure = self.run.sure_lookups
            self.block(node.body.body[ordering:], st)
            self.call_stack.activation.tried -= 1
            if sure < self.run.sure_lookups and concrete.looks_up(node):
                caught = None  # it was there
            if caught is not None:
                if not capturing or (st.capture is None and not st.dead):
                    caught.leave_capture()  # the exception that gets here has ended it
                caught.current = current  # and has left the contexts it was raised in
            if node.orelse is not None and not st.dead:
                self.suite(node.orelse.body, st)
            ends: list[State | None] = [st.copy()]
            for handler in node.handlers:
                if caught is None:
                    break
                branch = caught.copy()
                self.clocks.untimed(branch)  # a run that has failed is not what is timed
                if handler.name is not None and isinstance(handler.name.name, cst.Name):
                    raised = Opaque(self.objects.fresh(handler, branch, "exception"))
                    branch.store.mark(raised.name, fields.NEVER_NONE)
                    self.bind(handler.name.name.value, raised, branch)
                self.suite(handler.body, branch)
                ends.append(branch)
            self.paths.settle(st, self.paths.joined(ends))
        finish(st)

    def _track_raised(self, node: cst.Try | cst.TryStar, st: State, caught: State | None) -> None:
        """A condition says whether this has been left by an exception.

        That matters where an index goes round a ring and may not have moved on.
        """
        name = self.objects.fresh(node, st, "raised")
        bit = self.conditions.new_condition(("raised", name), (name,))
        if bit is not None and caught is not None:
            caught.assume(Guard(bit, 0))
            st.assume(Guard(0, bit))

    def _with(self, node: cst.With, st: State) -> None:
        self._with_items(list(node.items), node, st)

    def _with_items(self, items: list[cst.WithItem], node: cst.With, st: State) -> None:
        if not items:
            self.suite(node.body, st)
            return
        item = items[0]
        manager = self.expressions.eval(item.item, st)

        def body(value: Value, state: State) -> None:
            if item.asname is not None:
                self.assignments.assign(item.asname.name, value, state, item)
            self._with_items(items[1:], node, state)

        held = self.call_stack.activation.held
        held.append(manager)
        self.contexts.within(manager, st, item.item, body)
        held.pop()

    # -- names ---------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Value, st: State) -> None:
        """A name of the current scope means this value from now on."""
        key = (self.scope_of(name, st), name)
        self.rebinding(st, key, value)
        if st.graphs and self.run.naming:
            self.replays.name_output(st, key, value)
        st.store[key] = value

    def scope_of(self, name: str, st: State) -> Name:
        """The scope in which a name is bound here."""
        activation = self.run.stack[-1]
        return self.owner_of(name, st) or MODULE if name in activation.outer else activation.frame

    def owner_of(self, name: str, st: State) -> Name | None:
        """The enclosing scope that holds a name."""
        frame = self.run.closures.get(self.call_stack.activation.frame)
        while frame is not None:
            if (frame, name) in st.store:
                return frame
            frame = self.run.closures.get(frame)
        return None

    def rebinding(self, st: State, key: tuple[Name, object], value: Value) -> None:
        """Whatever a name held may have lost its last name."""
        old = st.store.get(key)
        if old is not None and old is not value:
            self.containers.lose(st, old)

    # -- elements ------------------------------------------------------------------------------------------------

    def next_item(self, iterable: Value, st: State, node: cst.CSTNode) -> Value:
        """The next element of what a loop iterates over."""
        found = []
        for inner, guard in alternatives(iterable, st.path):
            found.append((self._next(inner, st, node), guard))
        return union(found) if found else UNKNOWN

    def _next(self, iterable: Value, st: State, node: cst.CSTNode) -> Value:
        if isinstance(iterable, Tuple):
            return union((item, ALWAYS) for item in iterable.items)
        if isinstance(iterable, Partial):
            return self.iterables.next_of_call(iterable, st, node)
        if isinstance(iterable, Container) and iterable.kind == "cycle":
            return self.python_containers.turned(iterable, st)
        following = self.class_members.own_method(iterable, "__next__")
        if following is not None:
            return self.functions.call_function(following, [], {}, st, node)
        if isinstance(iterable, Object):
            return self.elements.each(iterable, st, node)
        return UNKNOWN
