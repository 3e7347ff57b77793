"""Where interpretation starts: the module, functions nobody calls, hooks, and classes as protocols between methods.

One file: what is a root depends on which other roots have reached, in one order.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import partial

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import Made, Order
from streamsafe.static import autograd, callers, fields, sequences, stream_terms
from streamsafe.static.autograd import GRADIENT_MADE
from streamsafe.static.facts import (
    AGAIN,
    AMBIENT,
    GRADIENTS,
    HOOK,
    INITIAL,
    RETURNED_HANDLE,
    Assumed,
    Detail,
    Finding,
)
from streamsafe.static.initialization import late_attributes, reassigned_attributes
from streamsafe.static.interpreter import Interpreter
from streamsafe.static.relevance import DEFINITIONS, Relevance
from streamsafe.static.source import ClassUnit, FunctionUnit, SourceFile
from streamsafe.static.state import Ordered, State, Waited
from streamsafe.static.stream_terms import COMMON_METHODS
from streamsafe.static.transfer.arrays import PINNED_POOL
from streamsafe.static.transfer.call_stack import MODULE, Activation
from streamsafe.static.transfer.hooks import (
    ALL_FORWARD_HOOKS,
    PACKED_IN_A_ROW,
    bound_arguments,
    hook_arguments,
    hooked,
)
from streamsafe.static.transfer.memory import Release
from streamsafe.static.values import (
    EACH,
    NONE,
    PLAIN,
    UNKNOWN,
    Const,
    Container,
    Context,
    Device,
    Event,
    Function,
    Graph,
    Instance,
    Name,
    Opaque,
    Stream,
    Tensor,
    Tuple,
    Value,
    Work,
    iterate,
)

PROTOCOL_ROUNDS = 3
SET_UP = ("setUp", "asyncSetUp", "setup_method")


@dataclass(slots=True)
class _End:
    """How a call of a method ends.

    Attributes:
        state: what is known then.
        entry: the method, or the pass that calls hooks.
        instance: whose it is.
        made: the objects that it has made.
    """

    state: State
    entry: str
    instance: Instance
    made: set[Name]


class Roots:
    """Interprets whatever of a file is relevant.

    Args:
        interpreter: does the work.
        models: dotted names of the user's wrappers: a function that uses one is relevant.
    """

    def __init__(self, interpreter: Interpreter, models: Iterable[str] = ()) -> None:
        self.interpreter = interpreter
        self.file = interpreter.run.file
        relevance = Relevance(self.file, [name.rpartition(".")[2] for name in models])
        self.relevance = relevance
        self.relevant = relevance.functions
        interpreter.run.is_stream_code = relevance.speaks
        interpreter.run.relevant = relevance.followed | relevance.beside
        interpreter.run.one_stream = relevance.one_stream
        self.called = self._called()
        self.ends: dict[str, list[tuple[Order, Order]]] = {}
        self.kept: list[State] = []  # states beside the one of the entry under way
        self.unpacked: set[Function] = set()  # what unpacks for passes that are not seen
        self.called_by_modules: set[FunctionUnit] = (
            set()
        )  # defined in methods, registered with modules not seen called

    def run(self) -> None:
        """Interpret the module's own statements, then functions, then classes, then hooks."""
        if self.file.is_foreign or (self.relevance.idle and self.interpreter.run.explained is None):
            return
        self._module()
        entered = set(
            self.interpreter.run.entered
        )  # the module itself calls these: once, and with these arguments
        for name in list(self.file.functions):
            if not self._is_own(name):
                continue
            if (
                name in self.relevant
                and name not in self.called
                and self.interpreter.definitions.unit(name) not in entered
            ):
                self._function(name)
        classes = [
            n
            for n in (*self.file.classes, *self.file.nested)
            if self._is_own(n) and any(q.startswith(f"{n}.") for q in self.relevant)
        ]
        # the share of a large file goes first to where most stream code is
        classes.sort(key=lambda n: -self._weight(n))
        for name in classes:
            self._class(name, nobody=False)
        for name in classes:
            self._class(name, nobody=True)
        for name in self.file.functions:
            if name in self.relevant and self._is_own(name):
                unit = self.interpreter.definitions.unit(name)
                if isinstance(unit, FunctionUnit) and unit not in self.interpreter.run.entered:
                    self._function(name)
        self._hooks()

    def _is_own(self, name: str) -> bool:
        """Whether a function or class stands in the rows whose definitions are entries."""
        own = self.file.own
        if own is None:
            return True
        definition = self.file.functions.get(name) or self.file.classes.get(name) or self.file.nested[name]
        return definition.lineno in own

    def _weight(self, name: str) -> int:
        """How much stream code a class holds."""
        prefix = f"{name}."
        return sum(
            1
            for qualname, definitions in self.file.definitions.items()
            if qualname.startswith(prefix) and any(d.stream_terms & stream_terms.STREAM for d in definitions)
        )

    def _called(self) -> set[str]:
        """Top-level functions that a relevant function of the file, or the module, calls by name."""
        found: set[str] = set()
        for qualname, definitions in self.file.definitions.items():
            if qualname not in self.relevant:
                continue
            for d in definitions:
                found |= {name for name in d.calls if name in self.file.functions and name != qualname}
        return found

    # -- roots ---------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """A program's beginning."""
        return State(self.interpreter.effects.order())

    def _module(self) -> None:
        statements = [s for s in self.file.statements if not isinstance(s, DEFINITIONS)]
        names = {q.partition(".")[0] for q in self.relevant} | {q.rpartition(".")[2] for q in self.relevant}
        relevant = [
            s
            for s in statements
            if self.relevance.holds(s)
            or any(isinstance(n, ast.Name) and n.id in names for n in stream_terms.walk(s))
        ]
        # plain assignments alone are interpreted when they are asked for
        if not any(not isinstance(s, (ast.Assign, ast.AnnAssign)) for s in relevant):
            return
        interpreter = self.interpreter
        st = self.state()
        interpreter.run.entry = "the module"
        for statement in statements:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                continue
            slice_ = self.file.slice(statement)
            interpreter.run.stack = [Activation(MODULE, None, slice_)]
            interpreter.statements.block(slice_.module.body, st)
            if st.dead:
                break
        interpreter.run.stack = []

    def _function(self, name: str) -> None:
        interpreter = self.interpreter
        unit = interpreter.definitions.unit(name)
        if not isinstance(unit, FunctionUnit):
            return
        st = self.state()
        made: set[Name] = set()
        interpreter.run.rounds = [made]
        callers.begun(interpreter, unit, st)
        result = self._run(Function(unit), [], st, name)
        if not st.dead:
            callers.taken(interpreter, unit, result, st, recorded=True)
        pools = {
            b: t
            for b, t in st.order.made.items()
            # between two calls the host may well have waited; a stream for another one less so
            if isinstance(b, tuple) and b[0] == "pool" and b[1] != PINNED_POOL
        }
        if pools and not st.dead:
            # it may be called again: what it released then is handed out
            interpreter.objects.age_call(st, made)
            for buffer in list(st.order.made):
                if buffer not in pools:
                    del st.order.made[buffer]
            before = set(interpreter.run.findings)
            self._run(Function(unit), [], st, name)
            for key, finding in list(interpreter.run.findings.items()):
                if key in before:
                    continue
                if finding.kind != "reuse":  # what the calls do by themselves the first one has shown
                    del interpreter.run.findings[key]
                elif not self._lasts(finding, made):
                    finding.assumed |= Assumed.POSSIBLE  # that somebody calls it again is only supposed
        interpreter.run.rounds = []

    @staticmethod
    def _lasts(finding: Finding, made: set[Name]) -> bool:
        """Whether a stream of a pair outlives the call: it is on an object that somebody keeps to call again.

        An initial gradient needs no next allocation to be seen.
        """
        if INITIAL in finding.tags:
            return True
        names = [s for s in finding.streams if isinstance(s, Name) and s != AMBIENT]
        return any(name.root().base() not in made for name in names)

    def _run(self, function: Function, args: list[Value], st: State, entry: str) -> Value:
        """Interpret a function as somebody's entry into the file."""
        interpreter = self.interpreter
        interpreter.run.entry = entry
        interpreter.run.steps = 0
        interpreter.run.effort = 0
        interpreter.run.crowded = 0
        interpreter.conditions.forget_conditions(
            st, *self.kept, *(state for _, _, state, _ in interpreter.run.hooks)
        )
        interpreter.run.candidates.clear()
        interpreter.run.ended.clear()
        earlier = st.waits
        unit = function.unit
        interpreter.run.stack = [Activation(Name(f"caller of {unit.qualname}"), None, unit.slice)]
        try:
            called, given = self._decorated(function, args, st)
            result = interpreter.functions.run_function(called, given, {}, st, unit.node, root=True)
            interpreter.threads.go_on_waiting(st)
            callers.settle(interpreter, entry, st)
            self._returned(result, st)
            self._returned_handles(result, st)
            if not st.dead:
                self._unrecorded_siblings(st, entry)
                self._left_behind(st, entry, earlier)
                for graph in st.graphs:  # another call is another matter
                    st.store[(graph, fields.CAPTURED_BY)] = PLAIN
                    st.store.pop((graph, fields.REPLAYED_BY), None)
                st.rebound = {rebound: None for rebound in st.rebound if not rebound.passing}
                interpreter.lifetimes.release_unreachable(
                    st, interpreter.call_stack.site(unit.node), [result, function]
                )
        finally:
            interpreter.run.stack = []
        return result

    def _decorated(self, function: Function, args: list[Value], st: State) -> tuple[Function, list[Value]]:
        """What whoever calls a function of the file calls: what its decorators, if they are in the file, make of it."""
        plain = Function(function.unit, function.frame)
        made = (
            self.interpreter.definitions.behind(function.unit, plain, st)
            if function.unit.decorators
            else plain
        )
        if made == plain or not isinstance(made, Function):
            return function, args
        receiver = function.receiver
        return made, [*([receiver] if receiver is not None else []), *args]

    def _returned(self, result: Value, st: State) -> None:
        """Functions, and objects to be called, that a caller who is not seen is given: they are, and again."""
        interpreter = self.interpreter
        returned = [
            v for value in iterate(result) for v in (value.items if isinstance(value, Tuple) else (value,))
        ]
        for function in returned:
            if type(function) is Instance:
                method = interpreter.class_members.find_method(function.unit, "__call__")
                if method is None or method.qualname not in self.relevant:
                    continue
                function = Function(method, None, function)
            elif not isinstance(function, Function) or function.frame is None:
                continue
            if st.dead or function.unit in interpreter.run.entered:
                continue
            for _ in range(2):
                made: set[Name] = set()
                interpreter.run.rounds.append(made)
                end = st.copy()
                interpreter.functions.run_function(function, [], {}, end, function.unit.node, root=True)
                interpreter.run.rounds.pop()
                if end.dead:
                    break
                interpreter.objects.age_call(end, made)
                st.become(end)

    def _returned_handles(self, result: Value, st: State) -> None:
        """An event or a work that is returned is there to be waited for: whoever calls decides, and is not seen."""
        interpreter = self.interpreter
        bits = 0
        for value in interpreter.assumed_order.parts_of(st, result):
            if isinstance(value, (Event, Work)) or (
                isinstance(value, Opaque) and (value.name, fields.RECORDED_ON) in st.store
            ):
                bits |= interpreter.run.carriers.bit(value.name)
        known = {made for made, ways in st.order.iterate() if any(way.carriers & bits for way in ways)}

        def marked(made: Made) -> Made:
            if made not in known or not isinstance(made.detail, Detail):
                return made
            return made._replace(detail=made.detail._replace(tags=made.detail.tags | {RETURNED_HANDLE}))

        if known and not st.dead:
            st.order.rewrite(marked, [])

    def _unrecorded_siblings(self, st: State, entry: str) -> None:
        """A part of an object is recorded on a stream, another is used there and is not: its release is not seen."""
        interpreter = self.interpreter
        siblings = interpreter.run.recorded_siblings
        interpreter.run.recorded_siblings = set()
        for made, ways in list(st.order.iterate()):
            buffer = made.buffer
            if (
                not isinstance(buffer, Name)
                or made.timeline == AMBIENT
                or not isinstance(made.timeline, Name)
            ):
                continue
            given = INITIAL in made.detail.tags  # type: ignore[attr-defined]
            sibling = buffer.parent is not None and (buffer.parent.base(), made.timeline) in siblings
            if not given and not sibling:
                continue
            recorded = st.store.get((buffer, fields.RECORD_STREAM))
            on_host = interpreter.tensors.is_host(st, Opaque(buffer))
            if recorded is not None or on_host or (buffer, fields.ALLOCATED_ON) in st.store:
                continue
            bit = interpreter.run.carriers.bit(AMBIENT)
            if all(way.carriers & bit for way in ways):
                continue
            detail: Detail = made.detail  # type: ignore[assignment]
            interpreter.accesses.report(
                st,
                Finding(
                    kind="reuse",
                    second=made.site,  # type: ignore[arg-type]
                    operation=detail.operation,
                    writes=made.writes,
                    timeline=interpreter.accesses.timeline_text(made.timeline),
                    first=made,
                    first_timeline="its allocation stream",
                    memory=detail.memory,
                    assumed=detail.assumed | (Assumed.RELEASE if sibling else Assumed.POSSIBLE),
                    tags=detail.tags | {"library:torch"},
                    notes=[("another part of the same object is recorded on that stream", made.site)]  # type: ignore[list-item]
                    if sibling
                    else [],
                    entry=entry,
                    streams=(made.timeline, AMBIENT),
                    buffer=buffer,
                ),
            )

    def _left_behind(self, st: State, entry: str, earlier: Ordered[Waited]) -> None:
        """A wait that orders nothing, while what the call has begun and its caller will use is under way elsewhere."""
        interpreter = self.interpreter
        for waited in st.waits:
            if waited in earlier or waited.timeline != AMBIENT or not waited.useless:
                continue
            bit = interpreter.run.carriers.bit(AMBIENT)
            for made, ways in st.order.iterate():
                buffer = made.buffer
                if made.site not in waited.uncovered or not made.writes or not isinstance(buffer, Name):
                    continue
                if any(st.store.marked(n, fields.CREATED) and not _is_iterated(n) for n in buffer.chain()):
                    continue
                if buffer == GRADIENTS or all(way.carriers & bit for way in ways):
                    continue
                detail: Detail = made.detail  # type: ignore[assignment]
                if "d2h" in detail.tags or "kept alive" in detail.tags:
                    continue  # the host will read it, or whoever has the work waits for that
                if detail.entry != entry:
                    continue  # a wait at the end of a call is meant for what that call has begun
                interpreter.accesses.report(
                    st,
                    Finding(
                        kind="pair",
                        second=waited.site,  # type: ignore[arg-type]
                        operation="the caller",
                        writes=False,
                        timeline=interpreter.accesses.timeline_text(AMBIENT),
                        first=made,
                        first_timeline=interpreter.accesses.timeline_text(made.timeline),
                        memory=detail.memory,
                        assumed=detail.assumed | Assumed.METHODS,
                        entry=interpreter.run.entry,
                        streams=(made.timeline, AMBIENT),
                        buffer=buffer,
                        ineffective=waited,
                    ),
                )
                break

    # -- classes -------------------------------------------------------------------------------------------------

    def _class(self, name: str, *, nobody: bool) -> None:
        """Each method starts from what ``__init__`` and any other method may have left on ``self``.

        With ``nobody``: methods that are called by name somewhere but were never reached.
        """
        unit = self.interpreter.definitions.unit(name)
        if not isinstance(unit, ClassUnit):
            return
        methods = self._protocol_methods(unit, nobody=nobody)
        parts = self._protocol(unit, [*methods], nobody=nobody)
        unmet = (
            self._unreached([m for m in methods if m in self.interpreter.run.entered], unit) if parts else []
        )
        if unmet:  # nobody in sight fills what it waits for
            self._protocol(unit, unmet, nobody=nobody, brought=True)

    def _protocol(
        self, unit: ClassUnit, methods: list[FunctionUnit], *, nobody: bool, brought: bool = False
    ) -> bool:
        """What the methods of a class do one after the other.

        Args:
            unit: the class.
            methods: those that others call; changed in place.
            nobody: whether these were never reached.
            brought: whether others have put something into the lists that parts of the object are made with.

        Returns:
            Whether a part has such lists.
        """
        interpreter = self.interpreter
        name = unit.qualname
        init_unit = unit.methods.get("__init__")
        if not methods and (not nobody or init_unit is None or init_unit in interpreter.run.entered):
            return False
        self_name = Name(f"self of {name}")
        interpreter.run.texts[self_name] = "self"
        instance = Instance(self_name, unit)
        start = self.state()
        interpreter.run.protocol_roots = [self_name]
        interpreter.run.flags = {}
        interpreter.run.exchanged = {}
        late = late_attributes(self.file, interpreter.class_members.ancestry(unit))
        interpreter.run.late = {self_name: set()} if late is not None else {}
        init = interpreter.class_members.find_method(unit, "__init__")
        if init is not None:
            interpreter.run.constructed, interpreter.run.builds_module = self_name, self._is_module(unit)
            self._run(Function(init, None, instance), [], start, f"{name}.__init__")
            interpreter.run.constructed, interpreter.run.builds_module = None, False
        for name_ in SET_UP:
            prepare = interpreter.class_members.find_method(unit, name_)
            if prepare is not None and not start.dead:  # a test case: this comes before each test
                self._run(Function(prepare, None, instance), [], start, f"{name}.{name_}")
        if start.dead:
            start = self.state()
        parts = self._open_to_others(start, instance, brought=brought)
        for key, value in list(start.store.of(self_name).items()):
            if value == Device("cpu") and key in reassigned_attributes(
                self.file, interpreter.class_members.ancestry(unit)
            ):
                start.store[(self_name, key)] = Device("")  # where a module is made is not where it runs
        if late is not None:
            interpreter.run.late[self_name] = late - set(map(str, start.store.of(self_name)))
        made = start.copy()
        reached: set[FunctionUnit] = set()
        tests = [method for method in methods if _is_test(method, unit)]
        methods = [method for method in methods if method not in tests]
        for test in tests:  # each runs on an object of its own: nothing is left for another
            self.kept = [start]
            if self._method(test, instance, start) is not None:
                reached.add(test)
        carriers = len(interpreter.run.carriers.known())
        rounds = PROTOCOL_ROUNDS + bool(interpreter.run.late.get(self_name))
        switched = {  # one call more, and perhaps before any that leaves work under way
            attribute
            for owner in interpreter.class_members.ancestry(unit)
            for attribute in self.file.switched.get(owner.qualname, ())
        }
        rounds += bool(switched)
        # what a forward pass is given to keep, and a backward pass asks for, others move on between the two
        rounds += apis.PACKS in self._calls_of(name) or any(apis.PACKS in base for base in unit.bases)
        for round_ in range(rounds):
            # as with a loop, what the first calls start from is not mixed with what calls leave
            # a thread that waits for work goes on between the calls that bring it some
            methods += [m for m in unit.methods.values() if m in interpreter.run.waiting and m not in methods]
            merged: State | None = start.copy() if round_ or not methods else None
            ends: list[_End] = []
            for method, owner in [*((m, instance) for m in methods), *self._threads_of(unit, start)]:
                self.kept = [start, *([merged] if merged is not None else []), *(e.state for e in ends)]
                end = self._method(method, owner, start)
                if end is None:
                    continue
                reached.add(method)
                passed = self._passed(method, methods, owner, end)
                if passed is not None:
                    ends.append(passed)
                    if round_ < rounds - 1:
                        merged = interpreter.paths.join_calls(merged, self._left_to_next(ends.pop()), start)
                ends.append(end)
                if round_ < rounds - 1:
                    merged = interpreter.paths.join_calls(merged, self._left_to_next(ends.pop()), start)
            for hook in self._registered(name, start):
                self.kept = [start, *([merged] if merged is not None else []), *(e.state for e in ends)]
                end = self._forward_hook(hook, instance, start)
                if end is not None:
                    ends.append(end)
            end = self._pass(instance, start)
            if end is not None:
                ends.append(end)
            for end in self._packing(instance, start):
                ends.append(end)
                self.kept.append(end.state)
            if round_ == rounds - 1 and not any(map(_pools, (start, *(end.state for end in ends)))):
                break  # nobody uses what the last calls leave, but for what they have released
            for end in ends:
                merged = interpreter.paths.join_calls(merged, self._left_to_next(end), start)
            if merged is None or merged.same(start):
                break
            if interpreter.functions.is_quiet(merged) and not _appears(self_name, start, merged):
                # what is left to the ambient stream alone was there before
                alone = not merged.order.made or len(interpreter.run.carriers.known()) == carriers
                unchanged = not _leaves_new(self_name, start, merged, switched) and (
                    alone or _accesses(merged) <= _accesses(start)
                )
                if unchanged or self.relevance.quiet:
                    break  # no call leaves anything that another one could meet
            start = merged
        else:
            pools = _pools(start)
            if pools:  # what the last calls released is handed out by the next
                start.order.made.retain(pools)
                start.rebound, start.waits, start.graphs = {}, {}, {}
                for method in methods:
                    self._method(method, instance, start)
        for method in methods:
            if method.name in ("__next__", "next"):
                self._iterate(method, instance, made)
        if late:  # who assigns what the others need was not seen
            interpreter.run.late = {}
            for method in (*tests, *methods):
                if method not in reached:
                    self._method(method, instance, start)
        self.kept = []
        interpreter.run.protocol_roots = []
        self._between_methods(name)
        return parts

    def _open_to_others(self, start: State, instance: Instance, *, brought: bool) -> bool:
        """Whoever uses an object puts something into the lists and dicts that its constructor leaves empty.

        Those that its methods fill are left to these. Those of its parts may be filled by what others call of a part.

        Returns:
            Whether a part has lists that are empty.
        """
        found, owner = False, instance.name
        for key, value in list(start.store.of(owner).items()):
            for part in start.store.of(value.name).values() if type(value) is Instance else ():
                if isinstance(part, Container) and sequences.length(start, part) == 0:
                    found = True
                    if brought:
                        sequences.blur(start, part)
            if isinstance(value, Container) and sequences.length(start, value) == 0:
                if not self.file.owners.is_filled(instance.unit.qualname, str(key)):
                    sequences.blur(start, value)
                    if value.kind != "dict":
                        start.store[(value.name, "*")] = Opaque(owner.child(str(key)).child(EACH))
        return found

    def _iterate(self, method: FunctionUnit, instance: Instance, made: State) -> None:
        """A loop iterates over an object that gives one element after another."""
        interpreter = self.interpreter
        interpreter.run.entry = method.qualname
        interpreter.run.steps = interpreter.run.effort = interpreter.run.crowded = 0
        interpreter.conditions.forget_conditions(made)
        interpreter.run.candidates.clear()
        interpreter.run.rounds = [set()]
        callers.iterated(interpreter, instance, method, made)
        interpreter.run.rounds = []

    def _threads_of(self, unit: ClassUnit, start: State) -> Iterator[tuple[FunctionUnit, Instance]]:
        """What threads of other classes run that wait for what the methods of a class bring them."""
        for method, owner in self.interpreter.run.waiting.items():
            if method not in unit.methods.values() and isinstance(owner, Instance):
                if start.store.of(owner.name):
                    yield method, owner

    def _method(self, method: FunctionUnit, instance: Instance, start: State) -> _End | None:
        interpreter = self.interpreter
        st = start.copy()
        made: set[Name] = set()
        interpreter.run.rounds = [made]
        interpreter.run.new_parameters = True
        entry = method.qualname
        function = Function(method, None, None if method.is_static else instance)
        backward = method.name == "backward" and autograd.is_function(instance.unit)
        if backward:  # it runs on its forward's stream, whatever is current elsewhere by then (TA-01)
            st.current = {"torch": Stream(HOOK)}
            st.order.learn(HOOK, AMBIENT)
        before = st.order.copy()
        interpreter.run.inherited = {made for made, _ in before.iterate()}
        args = autograd.incoming(interpreter, method, st) if backward else []
        if autograd.keeps(method):
            args = [autograd.context(method)]
            autograd.keep(method, instance.name, st)
        called = method.name == "forward" and not method.is_static and self._is_module(instance.unit)
        iterated = method.name == "__next__"
        if called:
            callers.given(interpreter, method, st)
        elif method.name in self._forward_hooks(instance.unit.qualname):
            callers.given(interpreter, method, st, last=True)
        elif not backward:
            callers.begun(interpreter, method, st)
        interpreter.run.beside = method in interpreter.run.waiting
        try:
            result = self._run(function, args, st, entry)
            if backward and not st.dead:
                autograd.outgoing(interpreter, method, result, st)
            if not backward and not st.dead:
                callers.taken(interpreter, method, result, st, recorded=not (called or iterated))
        finally:
            interpreter.run.rounds = []
            interpreter.run.inherited = set()
            interpreter.run.new_parameters = interpreter.run.beside = False
        if st.dead:
            return None
        if backward:
            st.current = dict(start.current)
            st.order.learn(AMBIENT, HOOK)
        return self._ended(_End(st, entry, instance, made), before)

    def _passed(
        self, method: FunctionUnit, methods: list[FunctionUnit], instance: Instance, end: _End
    ) -> _End | None:
        """What a backward pass leaves that comes after this ``forward`` of autograd, with what that has kept for it."""
        backward = next((m for m in methods if m.name == "backward" and m.owner is method.owner), None)
        if not autograd.keeps(method) or backward is None:
            return None
        passed = self._method(backward, instance, end.state)
        if passed is not None:
            passed.made.update(end.made)
        autograd.renew(method, end.state)
        return passed

    def _registered(self, name: str, st: State) -> list[Value]:
        """Functions that methods of a class define and register with modules whose calls are not seen."""
        registered: dict[FunctionUnit, Value] = {}
        for table in st.store.objects.values():
            for value in (table[key] for key in ALL_FORWARD_HOOKS if key in table):
                for hook in iterate(value):
                    function = hooked(hook)
                    if function is None or function.frame is None:
                        continue  # a method is called as others are
                    unit = function.unit
                    own = unit.qualname.startswith(f"{name}.")
                    if own and (unit not in self.interpreter.run.entered or unit in self.called_by_modules):
                        registered[unit] = hook
        self.called_by_modules |= registered.keys()
        return list(registered.values())

    def _forward_hook(self, hook: Value, instance: Instance, start: State) -> _End | None:
        """A module that is not seen is called, and calls what was registered with it."""
        interpreter = self.interpreter
        function = hooked(hook)
        assert function is not None
        st = start.copy()
        made: set[Name] = set()
        interpreter.run.rounds = [made]
        interpreter.run.new_parameters = True
        before = st.order.copy()
        interpreter.run.inherited = {made for made, _ in before.iterate()}
        entry = function.unit.qualname
        try:
            self._run(function, bound_arguments(hook), st, entry)
        finally:
            interpreter.run.rounds = []
            interpreter.run.inherited = set()
            interpreter.run.new_parameters = False
        return None if st.dead else self._ended(_End(st, entry, instance, made), before)

    def _is_module(self, unit: ClassUnit) -> bool:
        return any(
            base.rpartition(".")[2] == "Module"
            for u in self.interpreter.class_members.ancestry(unit)
            for base in u.bases
        )

    def _pass(self, instance: Instance, start: State) -> _End | None:
        """Whoever uses an object that registered hooks runs a backward pass, which calls them."""
        interpreter = self.interpreter
        name = instance.unit.qualname
        units = [f.unit for f, *_ in interpreter.run.hooks if f.unit.qualname.startswith(f"{name}.")]
        if not units or self._runs_a_pass(name):
            return None
        st = start.copy()
        made: set[Name] = set()
        interpreter.run.rounds = [made]
        interpreter.run.entry = f"{name}.backward"
        interpreter.run.steps = interpreter.run.effort = interpreter.run.crowded = 0
        # what follows a pass is not seen
        st.order.retain(lambda made, _: _entry_of(made) != interpreter.run.entry)
        before = st.order.copy()
        interpreter.run.stack = [Activation(Name("autograd"), None, units[0].slice)]
        site = interpreter.call_stack.site(units[0].node)
        st.order.drop(GRADIENTS)  # what becomes of gradients between two passes is not seen
        st.order.add(Made(site, GRADIENTS, None, True, AMBIENT, GRADIENT_MADE))
        interpreter.hooks.run_gradient_hooks(st, site)
        st.order.drop(GRADIENTS)
        # what some path through a hook waits for is what the last hook of a pass waits for
        st.order.retain(
            lambda made, ways: (
                _entry_of(made) != interpreter.run.entry or len({way.carriers for way in ways}) == 1
            )
        )
        interpreter.run.stack = []
        interpreter.run.rounds = []
        return None if st.dead else self._ended(_End(st, interpreter.run.entry, instance, made), before)

    def _packing(self, instance: Instance, start: State) -> Iterator[_End]:
        """Passes that are not seen save a tensor and need it again: an object's own methods pack and unpack it."""
        interpreter = self.interpreter
        for function, _, _, registered in list(interpreter.run.hooks):
            unpack = interpreter.run.unpacked_by.get(function)
            if registered != apis.PACKS or function.receiver != instance or not isinstance(unpack, Function):
                continue
            if unpack in interpreter.run.unpacked and unpack not in self.unpacked:
                continue  # a pass is seen
            self.unpacked.add(unpack)
            for hook in (function, unpack):
                st = start.copy()
                made: set[Name] = set()
                interpreter.run.rounds = [made]
                before = st.order.copy()
                interpreter.run.inherited = {made for made, _ in before.iterate()}
                entry = interpreter.run.entry = hook.unit.qualname
                if hook is function:
                    autograd.pack(interpreter, function, st, partial(self._run, function, st=st, entry=entry))
                else:
                    interpreter.run.steps = interpreter.run.effort = interpreter.run.crowded = 0
                    autograd.unpack(interpreter, unpack, st)
                interpreter.run.rounds = []
                interpreter.run.inherited = set()
                if not st.dead:
                    yield self._ended(_End(st, entry, instance, made), before)

    def _ended(self, end: _End, before: Order) -> _End:
        """Note with what order a call began and ended."""
        end.state.leave_capture()  # that it ends in another method is seen from who calls both
        # before anything is forgotten: that is not to be ordered
        self.ends.setdefault(end.entry, []).append((before, end.state.order.copy()))
        return end

    def _left_to_next(self, end: _End) -> State:
        """What a call leaves to the next one."""
        interpreter, st = self.interpreter, end.state
        interpreter.run.rounds = [end.made]
        interpreter.paths.track_flags(st, end.instance.name)
        interpreter.run.rounds = []
        interpreter.accesses.forget_plain(st)
        interpreter.objects.age_call(st, end.made)
        interpreter.lifetimes.prune(
            st
        )  # the next call finds only what this one leaves on the object, or elsewhere
        interpreter.clocks.forget_clocks(st)
        return st

    def _protocol_methods(self, unit: ClassUnit, *, nobody: bool) -> list[FunctionUnit]:
        called: set[str] = set()
        others = [
            d for q, ds in self.file.definitions.items() if not q.startswith(f"{unit.qualname}.") for d in ds
        ]
        mentioned = any(unit.name in d.calls for d in others)
        for qualname, definitions in self.file.definitions.items():
            inside = qualname.startswith(f"{unit.qualname}.")
            if inside or qualname in self.relevant:
                for d in definitions:
                    names = {name for name in d.calls if name != d.node.name}
                    if inside:  # a list has a method ``append``, too
                        names -= (names & (apis.CONTAINER_METHODS | COMMON_METHODS)) - d.called_on_self
                    # where nobody else speaks of the class, a call of a common name is of something else
                    called |= names if inside or mentioned else names - COMMON_METHODS
        called -= self._forward_hooks(unit.qualname)
        methods = [
            m for m in unit.methods.values() if m.name not in ("__init__", "__new__", "__del__", "__repr__")
        ]
        shared = self.relevance.shared_by(unit.qualname)
        relevant = [m for m in methods if m.qualname in self.relevant or self._touches(m, shared)]
        own = self._calls_of(unit.qualname)
        inherited = {} if nobody else self._templates(unit)
        templates = [m for m in inherited if m.name not in called or (self._entry(m) and m.name not in own)]
        called = called.union(*(inherited[m] for m in templates))
        roots = [m for m in relevant if m.name not in called or (self._entry(m) and m.name not in own)]
        fresh = [m for m in roots if m not in self.interpreter.run.entered]
        if nobody:
            fresh = [m for m in relevant if m not in self.interpreter.run.entered]
            fresh = self._unreached([m for m in fresh if not m.name.startswith("_")] or fresh, unit)
        fresh += templates
        if f"{unit.qualname}.__init__" in self.relevant:
            return fresh
        if not any(m.qualname in self.relevant for m in fresh):
            return []
        return fresh

    def _unreached(self, methods: list[FunctionUnit], unit: ClassUnit) -> list[FunctionUnit]:
        """Those that lead to stream code which nothing has reached yet, and those that share attributes with it."""
        unmet = self.relevance.speaking - {u.qualname for u in self.interpreter.run.entered}
        reach = {m: self.relevance.reach(m.qualname) for m in methods}
        leading = [m for m in methods if not unmet.isdisjoint(reach[m])]
        if not leading and f"{unit.qualname}.__init__" not in unmet:
            return []
        shared = self.relevance.shared_by(unit.qualname, set().union(*(reach[m] for m in leading)))
        return [m for m in methods if m in leading or self._touches(m, shared)]

    def _calls_of(self, name: str) -> set[str]:
        """What the methods of a class call or mention, except themselves, by name."""
        own: set[str] = set()
        for qualname, definitions in self.file.definitions.items():
            if qualname.startswith(f"{name}."):
                own = own.union(*(d.calls - {d.node.name} for d in definitions))
        return own

    def _runs_a_pass(self, name: str) -> bool:
        """Whether a method of a class runs a backward pass, be it one that is called ``backward`` itself."""
        return any(
            "backward" in d.calls
            for qualname, definitions in self.file.definitions.items()
            if qualname.startswith(f"{name}.")
            for d in definitions
        )

    def _forward_hooks(self, name: str) -> set[str]:
        """Methods that a class registers with modules, or that make what it registers: who calls those calls them."""
        found: set[str] = set()
        statement = self.file.classes.get(name) or self.file.nested.get(name)
        if statement is None or "register_forward" not in self.file.segment(statement):
            return found
        for node in stream_terms.walk(statement):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr.startswith("register_forward"):
                # it may be bound to more by ``partial``, called by a lambda, or made by what is called
                for inner in (inner for argument in node.args[:1] for inner in stream_terms.walk(argument)):
                    if isinstance(inner, ast.Attribute) and getattr(inner.value, "id", "") == "self":
                        found.add(inner.attr)
        return found

    def _templates(self, unit: ClassUnit) -> dict[FunctionUnit, set[str]]:
        """Methods of bases that run stream code which a class supplies, each with what of the class it runs."""
        inherited: dict[str, FunctionUnit] = {}
        for base in self.interpreter.class_members.ancestry(unit):
            for name, method in base.methods.items():
                inherited.setdefault(name, method)
        definitions = {n: self.file.definitions.get(m.qualname, ()) for n, m in inherited.items()}
        found = {}
        for name in inherited.keys() - unit.methods.keys():
            if name.startswith("__") and name != "__call__":
                continue
            reached, added = {name}, {name}
            while added:
                calls = (d.called_on_self for n in added for d in definitions[n])
                added = (set().union(*calls) & inherited.keys()) - reached
                reached |= added
            supplied = reached & unit.methods.keys()
            if any(unit.methods[n].qualname in self.relevance.speaking for n in supplied):
                found[inherited[name]] = supplied
        return found

    @staticmethod
    def _entry(method: FunctionUnit) -> bool:
        return (
            method.name in ("forward", "__call__", "__iter__", "__next__", "backward")
            and not method.is_property
        )

    def _touches(self, method: FunctionUnit, shared: set[str]) -> bool:
        """Other public methods matter too: they read, write or rebind what stream code leaves on ``self``."""
        return (not method.name.startswith("__") or self._entry(method)) and any(
            d.calls & shared and "self" in d.calls for d in self.file.definitions.get(method.qualname, ())
        )

    def _between_methods(self, name: str) -> None:
        """A hazard between two methods that a third, called in between, would order is only possible."""
        findings = list(self.interpreter.run.findings.values())
        # where a hazard was found itself, the interpreter went on as if there had been an edge
        for finding in findings:
            first = finding.first
            if first is None or not finding.entry.startswith(f"{name}."):
                continue
            detail: Detail = first.detail  # type: ignore[assignment]
            within = detail.entry == finding.entry and AGAIN not in finding.tags
            if within or not detail.entry.startswith(f"{name}."):
                continue
            timeline = finding.streams[1]
            for entry, runs in self.ends.items():
                if entry in (finding.entry, detail.entry) or not entry.startswith(f"{name}."):
                    continue
                if (entry, first.site) in self.interpreter.run.unordered_accesses:
                    continue
                if any(
                    _orders(before, after, made, timeline)
                    for before, after in runs
                    for made in _before_its_release(first, before)
                ):
                    finding.assumed |= Assumed.POSSIBLE
                    break

    # -- hooks ---------------------------------------------------------------------------------------------------

    def _hooks(self) -> None:
        done: set[FunctionUnit] = set()
        interpreter = self.interpreter
        for function, bound, state, registered in interpreter.run.hooks:
            if function.unit in done:
                continue
            done.add(function.unit)
            st = state.copy()
            st.order = interpreter.effects.order()
            st.capture = None
            if registered == apis.PACKS:
                self._pack(function, st)
                continue
            st.current = {"torch": Stream(HOOK)}
            unit = function.unit
            interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
            site = interpreter.call_stack.site(unit.node)
            st.order.add(Made(site, GRADIENTS, None, True, HOOK, GRADIENT_MADE))
            st.store[(GRADIENTS, fields.ALLOCATED_ON)] = Stream(HOOK)
            args = [*bound, *hook_arguments(registered)]
            receiver = function.receiver
            if receiver is not None:
                interpreter.run.protocol_roots = (
                    [receiver.name] if isinstance(receiver, (Instance, Opaque)) else []
                )
            result = self._run(function, args, st, f"hook {unit.qualname}")
            if not st.dead:
                # autograd goes on to allocate gradients on that stream
                interpreter.run.stack = [Activation(Name("autograd"), None, unit.slice)]
                alive = interpreter.lifetimes.reachable(st, [result, *bound, function])
                kept = any(GRADIENTS in st.store.leads(owner) for owner in alive)
                if registered == "register_hook" and _is_another(result) and not kept:
                    interpreter.lifetimes.release(
                        st, GRADIENTS, site
                    )  # it takes the place of the one that was given
                interpreter.memory.allocate(st, Name("the next gradient"), "torch", site, Stream(HOOK))
                interpreter.run.stack = []
            interpreter.run.protocol_roots = []

    def _pack(self, function: Function, st: State) -> None:
        """A function is given each tensor that autograd saves: unless it keeps it, nobody does by the next one."""
        interpreter = self.interpreter
        st.current = {}
        if isinstance(function.receiver, (Instance, Opaque)):
            interpreter.run.protocol_roots = [function.receiver.name]
        unpack = interpreter.run.unpacked_by.get(function)
        for _ in range(PACKED_IN_A_ROW):
            entry = f"hook {function.unit.qualname}"
            autograd.pack(interpreter, function, st, partial(self._run, function, st=st, entry=entry))
            if st.dead:
                break
        if not st.dead and isinstance(unpack, Function) and unpack not in interpreter.run.unpacked:
            autograd.unpack(interpreter, unpack, st)
        interpreter.run.protocol_roots = []


def _pools(st: State) -> list[Hashable]:
    """The pools to which something was released that others may still use."""
    return [b for b in st.order.made if isinstance(b, tuple) and b[0] == "pool"]


def _accesses(st: State) -> set[tuple[Hashable, Hashable, bool]]:
    """What may have been done where and to what, whichever call has made that."""
    return {
        (made.site, made.buffer.base() if isinstance(made.buffer, Name) else made.buffer, made.writes)
        for made, _ in st.order.iterate()
    }


def _is_another(result: Value) -> bool:
    """Whether what a hook returns is a tensor, and not the gradient that it was given."""
    returned = [v for v in iterate(result) if v != NONE]
    return bool(returned) and all(isinstance(v, Tensor) and v.name != GRADIENTS for v in returned)


def _entry_of(made: Made) -> str:
    """In which entry into the file an access was made."""
    return made.detail.entry if isinstance(made.detail, Detail) else ""


def _is_test(method: FunctionUnit, unit: ClassUnit) -> bool:
    """Whether unittest or pytest call a method, each on a new object; its class may be a base that tests share."""
    named = "Test" in unit.name or any("Test" in base for base in unit.bases)
    return named and method.name.startswith("test")


def _is_iterated(name: Name) -> bool:
    """Whether a name was given to an element of a loop: what it stands for was there before."""
    return isinstance(name.site, tuple) and len(name.site) == 2 and name.site[1] in ("key", "index")


def _before_its_release(made: Made, before: Order) -> list[Made]:
    """What an access to a block was called before that block was released; itself where none was."""
    if not isinstance(made.part, Release) or made in before.accesses(made.buffer):
        return [made]
    names = {made.part.buffer.with_age(age) for age in range(3)}
    return [
        m for n in names for m in before.accesses(n) if (m.site, m.timeline) == (made.site, made.timeline)
    ]


def _orders(before: Order, after: Order, made: Made, timeline: object) -> bool:
    """Whether a method that started with an access unordered ended with it known to a timeline."""
    table = before.accesses(made.buffer)
    if made not in table:
        return False
    if timeline == "host":
        return made not in after.accesses(made.buffer)
    bit = before.carriers.bit(timeline)
    if all(way.carriers & bit for way in table[made]):
        return False
    ways = after.accesses(made.buffer).get(made, ())
    return all(way.carriers & bit for way in ways)


__all__ = ["AMBIENT", "UNKNOWN", "Const", "Finding", "Roots", "SourceFile"]


def _appears(instance: Name, before: State, after: State) -> bool:
    """Whether calls leave something where there was None: who used it before did nothing with it."""
    old = before.store.of(instance)
    return any(
        old.get(key) == NONE and any(isinstance(v, (Tensor, Opaque)) for v in iterate(value))
        for key, value in after.store.of(instance).items()
        if isinstance(key, str)
    )


def _leaves_new(instance: Name, before: State, after: State, switched: Set[str]) -> bool:
    """Whether calls leave streams, events, graphs, contexts or tensors on an object or its parts, or in containers that
    these have, or have switched one of its flags.
    """
    parts = [instance]
    for part in parts:
        old = before.store.of(part)
        for key, value in after.store.of(part).items():
            if type(key) is fields.Field:
                continue
            changed = old.get(key) != value
            if changed and part is instance and key in switched:
                return True
            for v in iterate(value):
                if changed and isinstance(v, (Stream, Event, Graph, Context, Tensor, Container)):
                    return True
                if isinstance(v, Container) and before.store.of(v.name) != after.store.of(v.name):
                    return True
                if type(v) is Instance and v.name not in parts:
                    parts.append(v.name)
    return False
