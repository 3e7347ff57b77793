"""The interpreter: runs statements forward, with joins, loops to a fixpoint and real exits.

Expressions, calls and what library calls mean are in the classes it is built from; rules never walk control flow.

One file: it is the dispatch over the kinds of statements, and the exits that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import apis, concrete
from streamsafe.static.facts import Site
from streamsafe.static.iteration import Iteration
from streamsafe.static.loops import Loop
from streamsafe.static.source import FunctionUnit, Slice, SourceFile
from streamsafe.static.state import Key, State, distinguished
from streamsafe.static.tensors import Call
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
    Stream,
    Tensor,
    Tuple,
    Union,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.config import Models

CROWDED = 120
"""How many objects there may be before those that nothing leads to are forgotten."""
MODULE = Name("module")


@dataclass(eq=False)
class Activation:
    """A call that is being interpreted.

    Attributes:
        frame: the scope of its names.
        path: the call sites that lead here.
        returns: the states and values with which it ends.
        temporaries: values of the statement under way that have no name yet.
        held: what enclosing statements hold on to: iterables, context managers.
        on_yield: what the consumer does with a yielded value, None when nobody is seen to consume.
        consumer: the loop or call that consumes.
    """

    frame: Name
    unit: FunctionUnit | None
    slice: Slice
    path: tuple[Hashable, ...] = ()
    returns: list[tuple[State, Value]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    tried: int = 0
    """How many ``try`` statements stand around."""
    on_yield: Callable[[Value, State], Value] | None = None
    consumer: cst.CSTNode | None = None
    outer: set[str] = field(default_factory=set)
    temporaries: list[Value] = field(default_factory=list)
    held: list[Value] = field(default_factory=list)


class Interpreter(Iteration):
    """Interprets the functions of one file.

    Args:
        file: the source.
        models: the user's own wrappers.
    """

    def __init__(self, file: SourceFile, models: Models | None = None) -> None:
        super().__init__(file, models)
        self.stack: list[Activation] = []
        self.protocol_roots: list[Name] = []
        self.fixpoints = 0  # loops under way of which a round stands for any
        self.numbering = False  # a generator's rounds are counted by a consumer who picks slots
        self.steps = 0
        self.branching = 0  # conditions that the enclosing branches have decided
        self.sites: dict[int, Site] = {}
        self.crowded = CROWDED
        self.loops_with_streams: dict[int, bool] = {}
        self.is_stream_code: Callable[[Set[str]], bool] = lambda _: True
        self.exchanged: dict[
            Key, Value
        ] = {}  # names that a loop exchanges: what the first held when a condition was made
        self.sure_lookups = 0  # subscripts that found what they asked for
        self.equalities: dict[cst.MatchValue, cst.Comparison] = {}  # what patterns ask
        self.flags: dict[Key, int] = {}  # attributes whose truth keeps the calls of an object's methods apart

    @property
    def activation(self) -> Activation:
        """The call being interpreted."""
        return self.stack[-1]

    def site(self, node: cst.CSTNode) -> Site:
        """A node of the current slice, as a place."""
        return self.site_in(self.stack[-1].slice, node)

    def site_in(self, slice_: Slice, node: cst.CSTNode) -> Site:
        """A node of a slice, as a place."""
        found = self.sites.get(id(node))
        if found is None:
            found = self.sites[id(node)] = Site(slice_, node)
        return found

    def frames(self) -> Iterator[Name]:
        """The scopes that are alive, and the objects that callers hold."""
        yield MODULE
        yield from self.protocol_roots
        for activation in self.live_activations():
            frame: Name | None = activation.frame
            while frame is not None:
                yield frame
                frame = self.closures.get(frame)

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

    def join(self, first: State | None, second: State | None) -> State | None:
        """Two paths meet."""
        if first is not None and second is not None and not (first.dead or second.dead):
            if first.current != second.current:
                first, second = first.copy(), second.copy()
                # where none was set the one at entry still is current; few rounds stand for many, of which one sets it
                again = self.fixpoints or self.counting
                unset = ({*first.current} ^ {*second.current}) - {"device"}
                for st, other in ((first, second), (second, first)):
                    for library in unset - {*st.current}:
                        if not again:
                            st.current[library] = self.current(st, library)
                        elif isinstance(before := self.current(st, library), Stream):
                            # the one that is set stands for the one at entry, too
                            for later in iterate(other.current[library]):
                                if isinstance(later, Stream):
                                    st.order.learn(later.name, before.name)
                if not distinguished(first, second):
                    self.track_current([first, second])
        return State.join(first, second, self.is_opaque)

    def joined(self, states: Sequence[State | None]) -> State | None:
        """Many paths meet."""
        result: State | None = None
        for state in states:
            result = self.join(result, state)
        return result

    @staticmethod
    def settle(st: State, result: State | None) -> None:
        """``st`` becomes the joined state, or ends here."""
        if result is None:
            st.dead = True
        elif result is not st:
            st.become(result)

    def statement(self, node: cst.CSTNode, st: State) -> None:
        """One statement; whatever it leaves without a name is released."""
        self.steps += 1
        self.total_steps += 1
        if self.is_spent():
            return  # one entry may not take the time of all the others
        handler = _STATEMENTS.get(type(node))
        if handler is None:
            return
        handler(self, node, st)
        self.stack[-1].temporaries.clear()
        if st.dead:
            return
        if self.candidates:
            self.release_unreachable(st, self.site(node), self.suspended())
        if len(self.stack) <= 3 and len(st.store.objects) > max(CROWDED, self.crowded):
            self.prune(st, self.suspended())
            self.crowded = max(CROWDED, 2 * len(st.store.objects))

    def suspended(self) -> Iterator[Value]:
        """Values that callers, and statements under way, still hold."""
        for activation in self.live_activations():
            yield from activation.temporaries
            yield from activation.held

    def callers_hold(self) -> Iterator[Value]:
        """Values that nobody but callers and enclosing statements holds."""
        for activation in self.live_activations():
            yield from activation.held
            if activation is not self.activation:
                yield from activation.temporaries

    def live_activations(self) -> Iterator[Activation]:
        """Calls under way, generators that wait for their consumer among them."""
        yield from self.stack
        for paused in self.paused:
            yield from paused

    # -- simple statements ---------------------------------------------------------------------------------------

    def _expr(self, node: cst.Expr, st: State) -> None:
        self.alone = node.value
        self.eval(node.value, st)

    def _assign(self, node: cst.Assign, st: State) -> None:
        value = self._to_keep(node.value, node.targets[-1].target, st)
        for inner in iterate(value) if type(node.value) is cst.Attribute else ():
            if isinstance(inner, Opaque) and inner.name.parent and inner.name.site in apis.VIEW_METHODS:
                self.asked_otherwise.add(inner.name.parent.base())  # whose functions get names is a module
        for target in node.targets:
            self.assign(target.target, value, st, node)

    def _to_keep(self, node: cst.BaseExpression, target: cst.BaseExpression, st: State) -> Value:
        """What is assigned: a stream that is made there may be known by what it is assigned to."""
        if type(node) is not cst.Call and type(node) is not cst.IfExp:
            return self.eval(node, st)
        name = self.filled_by(target, st)
        outside, self.kept_under = self.kept_under, (self.activation, name) if name is not None else None
        value = self.eval(node, st)
        self.kept_under = outside
        return value

    def _annotated(self, node: cst.AnnAssign, st: State) -> None:
        if node.value is not None:
            self.assign(node.target, self._to_keep(node.value, node.target, st), st, node)

    def _augmented(self, node: cst.AugAssign, st: State) -> None:
        """``target += value`` and its like."""
        target = self.eval(node.target, st)
        value = self.eval(node.value, st)
        if any(isinstance(v, Clock) for v in (*iterate(target), *iterate(value))):
            return
        if isinstance(node.operator, cst.BitOrAssign):
            either = self.either(target, value, node, st)
            if either is not None:
                self.assign(node.target, either, st, node)
                return
        if any(isinstance(v, (Tensor, Opaque)) for v in iterate(target)):
            kinds = [v for v in iterate(target) if isinstance(v, (Tensor, Opaque))]
            if any(isinstance(v, Tensor) or self.is_tensor(st, v) for v in kinds):
                whole = union((v, ALWAYS) for v in kinds)
                self.in_place(st, whole, [whole, value], self.site(node), "in-place arithmetic")
                return
            if any(isinstance(v, Tensor) for v in iterate(value)):
                self.read_operands(st, [target, value], self.site(node), "in-place arithmetic")
                return
            if isinstance(node.target, cst.Subscript):
                return
            whole = self.numbered(node.operator, target, value, PLAIN, st)
            unknown = PLAIN if isinstance(value, Const) else UNKNOWN
            self.assign(node.target, whole if whole != PLAIN else unknown, st, node)
            return
        if any(isinstance(v, Container) for v in iterate(target)):
            if isinstance(target, Container) and target.kind == "dict":
                self.add_items(target, value, st)
            else:
                self.extend_container(st, target, value)
            return
        number = self.computed(node, target, value, st)
        if number is None:
            number = self.numbered(node.operator, target, value, self.binary(target, value, node, st), st)
        if st.capture is not None and isinstance(target, Const) and isinstance(node.target, cst.Attribute):
            self._counts_in_capture(
                st, self.eval(node.target.value, st), node.target.attr.value, self.site(node)
            )
        self.assign(node.target, number, st, node)

    def _counts_in_capture(self, st: State, owner: Value, name: str, site: Site) -> None:
        """A number on an object changes once, at the capture: no replay brings it up to date for its readers (GC-03).

        What some method sets anew is no count of passes but the bookkeeping of one. A function that asks whether a
        capture is under way counts in one because it wants to.
        """
        assert st.capture is not None
        unit = self.activation.unit
        if not isinstance(owner, Instance) or unit is None:
            return
        if not apis.ASKS_FOR_CAPTURE.isdisjoint(concrete.names_in(unit.node)):
            return
        readers, setters = self.file.attribute_users.get(name, (set(), set()))
        if readers - {unit.qualname} and not setters - {unit.qualname, f"{owner.unit.name}.__init__"}:
            self.violation(
                st,
                "host-work-in-capture",
                site,
                "the host's count",
                [("the capture begins here", st.capture.site)],  # type: ignore[list-item]
            )

    def _return(self, node: cst.Return, st: State) -> None:
        if self.kept_under is not None and type(node.value) is cst.Call:
            activation, name = self.kept_under
            if len(self.stack) > 1 and activation is self.stack[-2]:
                self.kept_under = (self.activation, name)  # the caller keeps what is made here
        value = self.eval(node.value, st) if node.value is not None else NONE
        if self.pooled:
            for target, guard in self.tensors(st, value):
                self.wants_overlaid(st, target.name, self.site(node), guard)
        self.activation.returns.append((st.copy(), value))
        st.dead = True

    def _raise(self, node: cst.Raise, st: State) -> None:
        if node.exc is not None:
            self.eval(node.exc, st)
        st.dead = True

    def _break(self, _: cst.Break, st: State) -> None:
        if self.activation.loops:
            self.activation.loops[-1].breaks.append(st.copy())
        st.dead = True

    def _continue(self, _: cst.Continue, st: State) -> None:
        if self.activation.loops:
            self.activation.loops[-1].continues.append(st.copy())
        st.dead = True

    def _assert(self, node: cst.Assert, st: State) -> None:
        outcomes = self.test(node.test, st)
        self.enter_branch(node.test, outcomes, True, st)

    def _del(self, node: cst.Del, st: State) -> None:
        targets = (
            [e.value for e in node.target.elements] if isinstance(node.target, cst.Tuple) else [node.target]
        )
        for target in targets:
            self.delete(target, st, node)

    def _global(self, node: cst.Global | cst.Nonlocal, st: State) -> None:
        self.activation.outer.update(item.name.value for item in node.names)

    def _function(self, node: cst.FunctionDef, st: State) -> None:
        self.bind(node.name.value, self.nested_function(node, st), st)

    def _class(self, node: cst.ClassDef, st: State) -> None:
        self.bind(node.name.value, self.nested_class(node), st)

    # -- branches ------------------------------------------------------------------------------------------------

    def enter_branch(
        self, test: cst.BaseExpression, outcomes: list[tuple[bool, Guard]], wanted: bool, st: State
    ) -> None:
        """Go where a test came out as ``wanted``."""
        guards = [guard for outcome, guard in outcomes if outcome is wanted]
        if not guards:
            st.dead = True
            return
        st.assume(*guards)
        if not st.dead:
            self.narrow(test, st, wanted)

    def _if(self, node: cst.If, st: State) -> None:
        outcomes = self.as_one(self.test(node.test, st), st)
        otherwise = st.copy()
        outside = self.branching
        waits = len(self.foreign_waits)
        for _, guard in outcomes:
            self.branching |= guard.true | guard.false
        self.enter_branch(node.test, outcomes, True, st)
        if not st.dead:
            lazily = concrete.fills_gap(node)
            self.lazily += lazily
            self.suite(node.body, st)
            self.lazily -= lazily
        self.enter_branch(node.test, outcomes, False, otherwise)
        if node.orelse is not None and not otherwise.dead:
            if type(node.orelse) is cst.If:
                self._if(node.orelse, otherwise)
            else:
                self.suite(node.orelse.body, otherwise)
        self.branching = outside
        self.none_to_wait_for(otherwise, self.foreign_waits[waits:])
        self.settle(st, self.join(st, otherwise))

    def _match(self, node: cst.Match, st: State) -> None:
        subject = self.eval(node.subject, st)
        ends: list[State | None] = []
        for case in node.cases:
            if st.dead:
                break
            branch = st.copy()
            fits = self._fits(case.pattern, subject, branch)
            if fits is None and type(case.pattern) is cst.MatchValue:
                outcomes = self.test(self._equality(node.subject, case.pattern), branch)
                self.enter_branch(node.subject, outcomes, True, branch)
                self.enter_branch(node.subject, outcomes, False, st)
            if fits is False or branch.dead:
                continue
            self.capture_pattern(case.pattern, subject, branch)
            if case.guard is not None:
                outcomes = self.test(case.guard, branch)
                otherwise = branch.copy()
                self.enter_branch(case.guard, outcomes, True, branch)
                self.enter_branch(case.guard, outcomes, False, otherwise)
                if fits:
                    self.settle(st, None if otherwise.dead else otherwise)
            elif fits:
                st.dead = True  # no other case is looked at
            if not branch.dead:
                self.suite(case.body, branch)
            ends.append(branch)
        self.settle(st, self.joined([*ends, st.copy()]))

    def _equality(self, subject: cst.BaseExpression, pattern: cst.MatchValue) -> cst.Comparison:
        """The comparison that a pattern stands for: it is the same each time."""
        made = self.equalities.get(pattern)
        if made is None:
            target = cst.ComparisonTarget(cst.Equal(), pattern.value)
            made = self.equalities[pattern] = cst.Comparison(subject, [target])
        return made

    def _fits(self, pattern: cst.CSTNode, subject: Value, st: State) -> bool | None:
        """Whether a value fits a pattern; None where that is not known."""
        if isinstance(pattern, cst.MatchAs):
            return True if pattern.pattern is None else self._fits(pattern.pattern, subject, st)
        if isinstance(pattern, cst.MatchOr):
            fits = [self._fits(inner.pattern, subject, st) for inner in pattern.patterns]
            return True if True in fits else None if None in fits else False
        if isinstance(pattern, (cst.MatchValue, cst.MatchSingleton)):
            value = self.eval(pattern.value, st)
            if (
                isinstance(value, Const)
                and isinstance(subject, Const)
                and ... not in (value.value, subject.value)
            ):
                return type(value.value) is type(subject.value) and bool(value.value == subject.value)
            if subject != UNKNOWN and value == NONE and not isinstance(subject, (Const, Opaque, Union)):
                return False
            return None
        if isinstance(pattern, cst.MatchClass):
            kind = self.eval(pattern.cls, st)
            answer = self.do_isinstance(Call(pattern, self.site(pattern), [subject, kind]), st)
            known = isinstance(answer, Const) and type(answer.value) is bool
            if known and not answer.value:  # type: ignore[attr-defined]
                return False
            return True if known and not (pattern.patterns or pattern.kwds) else None
        items = self.known_items(subject, st) if isinstance(pattern, cst.MatchSequence) else None
        if items is None:
            return None
        starred = any(isinstance(p, cst.MatchStar) for p in pattern.patterns)  # type: ignore[attr-defined]
        if not starred and len(items) != len(pattern.patterns):  # type: ignore[attr-defined]
            return False
        if starred:
            return None
        fits = [self._fits(p.value, item, st) for p, item in zip(pattern.patterns, items, strict=True)]  # type: ignore[attr-defined]
        return False if False in fits else None if None in fits else True

    def capture_pattern(self, pattern: cst.CSTNode, subject: Value, st: State) -> None:
        """Names that a pattern binds."""
        if isinstance(pattern, cst.MatchAs):
            if pattern.name is not None:
                self.bind(pattern.name.value, subject, st)
            if pattern.pattern is not None:
                self.capture_pattern(pattern.pattern, subject, st)
            return
        items = getattr(pattern, "patterns", None) or getattr(pattern, "elements", None) or ()
        for position, item in enumerate(items):
            inner = getattr(item, "value", None) or getattr(item, "pattern", None)
            if isinstance(inner, cst.CSTNode):
                self.capture_pattern(inner, self.element(subject, Const(position), st), st)
        for item in getattr(pattern, "kwds", ()):
            self.capture_pattern(item.pattern, self.attribute(subject, item.key.value, st, item), st)

    # -- try and with --------------------------------------------------------------------------------------------

    @contextmanager
    def exits(self, on_exit: Callable[[State], None]) -> Iterator[None]:
        """Run ``on_exit`` on every state that leaves a block early."""
        activation = self.activation
        returns, activation.returns = activation.returns, []
        loop = activation.loops[-1] if activation.loops else None
        marks = (len(loop.breaks), len(loop.continues)) if loop else (0, 0)
        try:
            yield
        finally:
            left, activation.returns = activation.returns, returns
            for state, value in left:
                activation.temporaries.append(value)
                on_exit(state)
                if not state.dead:
                    activation.returns.append((state, value))
            if loop is not None:
                for states, mark in ((loop.breaks, marks[0]), (loop.continues, marks[1])):
                    for state in states[mark:]:
                        on_exit(state)

    def _try(self, node: cst.Try | cst.TryStar, st: State) -> None:
        final = node.finalbody.body if node.finalbody is not None else None

        def finish(state: State) -> None:
            if final is not None and not state.dead:
                self.suite(final, state)

        with self.exits(finish):
            capturing, current = st.capture is not None, dict(st.current)
            ordering = concrete.leading_waits(node.body)
            self.block(node.body.body[:ordering], st)  # these do not fail
            self.activation.tried += 1
            caught: State | None = st.copy()  # a handler is taken to begin with what held before
            if self.file.turning:
                self._track_raised(node, st, caught)
            sure = self.sure_lookups
            self.block(node.body.body[ordering:], st)
            self.activation.tried -= 1
            if sure < self.sure_lookups and concrete.looks_up(node):
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
                self.untimed(branch)  # a run that has failed is not what is timed
                if handler.name is not None and isinstance(handler.name.name, cst.Name):
                    raised = Opaque(self.fresh(handler, branch, "exception"))
                    branch.store[(raised.name, "@there")] = PLAIN
                    self.bind(handler.name.name.value, raised, branch)
                self.suite(handler.body, branch)
                ends.append(branch)
            self.settle(st, self.joined(ends))
        finish(st)

    def _track_raised(self, node: cst.Try | cst.TryStar, st: State, caught: State | None) -> None:
        """A condition says whether this has been left by an exception.

        That matters where an index goes round a ring and may not have moved on.
        """
        name = self.fresh(node, st, "raised")
        bit = self.new_condition(("raised", name), (name,))
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
        manager = self.eval(item.item, st)

        def body(value: Value, state: State) -> None:
            if item.asname is not None:
                self.assign(item.asname.name, value, state, item)
            self._with_items(items[1:], node, state)

        held = self.activation.held
        held.append(manager)
        self.within(manager, st, item.item, body)
        held.pop()

    # -- names ---------------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Value, st: State) -> None:
        """A name of the current scope means this value from now on."""
        key = (self.scope_of(name, st), name)
        self.rebinding(st, key, value)
        if st.graphs and self.naming:
            self.name_output(st, key, value)
        st.store[key] = value

    def scope_of(self, name: str, st: State) -> Name:
        """The scope in which a name is bound here."""
        activation = self.stack[-1]
        return self.owner_of(name, st) or MODULE if name in activation.outer else activation.frame

    def owner_of(self, name: str, st: State) -> Name | None:
        """The enclosing scope that holds a name."""
        frame = self.closures.get(self.activation.frame)
        while frame is not None:
            if (frame, name) in st.store:
                return frame
            frame = self.closures.get(frame)
        return None

    def rebinding(self, st: State, key: tuple[Name, object], value: Value) -> None:
        """Whatever a name held may have lost its last name."""
        old = st.store.get(key)
        if old is not None and old is not value:
            self.lose(st, old)

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
            return self.next_of_call(iterable, st, node)
        if isinstance(iterable, Container) and iterable.kind == "cycle":
            return self.turned(iterable, st)
        following = self.own_method(iterable, "__next__")
        if following is not None:
            return self.call_function(following, [], {}, st, node)
        if isinstance(iterable, Object):
            return self.each(iterable, st, node)
        return UNKNOWN


_STATEMENTS: dict[type[cst.CSTNode], Callable[..., None]] = {
    cst.Expr: Interpreter._expr,
    cst.Assign: Interpreter._assign,
    cst.AnnAssign: Interpreter._annotated,
    cst.AugAssign: Interpreter._augmented,
    cst.Return: Interpreter._return,
    cst.Raise: Interpreter._raise,
    cst.Break: Interpreter._break,
    cst.Continue: Interpreter._continue,
    cst.Assert: Interpreter._assert,
    cst.Del: Interpreter._del,
    cst.Global: Interpreter._global,
    cst.Nonlocal: Interpreter._global,
    cst.FunctionDef: Interpreter._function,
    cst.ClassDef: Interpreter._class,
    cst.If: Interpreter._if,
    cst.Match: Interpreter._match,
    cst.While: Interpreter._while,
    cst.For: Interpreter._for,
    cst.Try: Interpreter._try,
    cst.TryStar: Interpreter._try,
    cst.With: Interpreter._with,
}
