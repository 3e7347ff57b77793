"""Expressions: the dispatch over their kinds, names, comparisons and conditional expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import concrete, fields, operators
from streamsafe.static.source import ClassUnit, FunctionUnit
from streamsafe.static.state import State, is_falsy
from streamsafe.static.transfer.part import Part
from streamsafe.static.values import (
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Device,
    Function,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Tensor,
    Text,
    Value,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState


MODULE = Name("module")

FAILING = 2
"""In how many ways a conjunction may fail before one condition says whether it does."""


class Expressions(Part):
    """Evaluates expressions."""

    handlers: dict[type[cst.CSTNode], Callable[..., Value]]
    """By kind of expression, the method that evaluates it."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.lambdas: dict[int, FunctionUnit] = {}
        """By node, the functions that lambdas make."""
        self.globals_under_way: set[str] = set()
        """Module-level names whose values are being computed."""
        self.unsure: int = 0
        """How many expressions under way are evaluated only if something holds."""

    def connected(self) -> None:
        """Builds the table of handlers."""
        self.handlers = {
            cst.Name: self._name,
            cst.Integer: self._literal,
            cst.Float: self._literal,
            cst.SimpleString: self._literal,
            cst.FormattedString: self._formatted,
            cst.Tuple: self.containers.tuple_display,
            cst.List: self.containers.list_display,
            cst.Set: self.containers.list_display,
            cst.Dict: self.containers.dict_display,
            cst.Subscript: self.subscripts.subscript,
            cst.Attribute: self.attributes.attribute_expression,
            cst.BinaryOperation: self.arithmetic.binary_operation,
            cst.UnaryOperation: self.arithmetic.unary_operation,
            cst.Comparison: self._comparison,
            cst.BooleanOperation: self._boolean,
            cst.IfExp: self._conditional,
            cst.NamedExpr: self._named,
            cst.Await: self._await,
            cst.Lambda: self._lambda,
            cst.Call: self.calls.call,
            cst.ListComp: self.comprehensions.comprehension,
            cst.SetComp: self.comprehensions.comprehension,
            cst.GeneratorExp: self.comprehensions.comprehension,
            cst.DictComp: self.comprehensions.comprehension,
            cst.Yield: self.comprehensions.yield_expression,
        }

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """Evaluate something that a program evaluates only if something else holds."""
        self.unsure += 1
        try:
            yield
        finally:
            self.unsure -= 1

    def assume_not_none(self, choices: list[tuple[Value, Guard]], st: State) -> None:
        """None has no attributes: where the program goes on the value is something else.

        What stood under ``if x is not None`` has then been done. A handler goes on with what was known before.
        """
        if self.unsure:
            return
        there = [guard for value, guard in choices if value != NONE]
        if 0 < len(there) < len(choices):
            st.assume(*there)
        elif len(choices) == 1 and isinstance(choices[0][0], Opaque):
            known = self.run.conditions.get(("none", choices[0][0].name))
            if known is not None and not st.path.true & known:
                st.assume(Guard(0, known))

    # -- names ---------------------------------------------------------------------------------------------------

    def lookup(self, name: str, st: State) -> Value:
        """What a name means here."""
        frame: Name | None = self.run.stack[-1].frame
        if name in self.run.stack[-1].outer:
            frame = self.run.closures.get(frame) if frame else None
        objects = st.store.objects
        while frame is not None:
            table = objects.get(frame)
            if table is not None and name in table:
                return table[name]
            frame = self.run.closures.get(frame)
        return self.lookup_global(name, st)

    def lookup_global(self, name: str, st: State) -> Value:
        """A module-level name: a definition, an import, an assignment that is interpreted when first asked for."""
        found = st.store.get((MODULE, name))
        if found is not None:
            return found
        unit = self.definitions.unit(name)
        if isinstance(unit, FunctionUnit):
            return self.definitions.function_value(unit, name, st)
        if isinstance(unit, ClassUnit):
            return Class(unit)
        if name in self.run.file.imports:
            return Api(apis.canonical(self.run.file.imports[name]))
        bindings = self.run.file.bindings.get(name, [])
        if bindings and name not in self.globals_under_way:
            if len(bindings) == 1 and isinstance(bindings[0], (ast.Assign, ast.AnnAssign)):
                self.globals_under_way.add(name)
                try:
                    self.definitions.interpret_global(bindings[0], st)
                finally:
                    self.globals_under_way.discard(name)
                found = st.store.get((MODULE, name))
                if isinstance(found, Instance) and name in self.run.file.set_by_functions:
                    # another one of that class, which a function has put there since
                    found = st.store[(MODULE, name)] = self.instances.materialized(
                        Opaque(Name(name)), found.unit, st
                    )
                elif isinstance(found, Instance):
                    self.set_up_later(name, found, st)
                    self.definitions.register_with(name, st)
                if found is not None:
                    if isinstance(found, Container):
                        self.fill_global(name, st)
                    if isinstance(found, Opaque) and name.isupper():
                        self.run.plain.add(found.name.base())  # a constant, as PEP 8 writes them
                    return found
            return Opaque(Name(name))
        if name in apis.BUILTINS:
            return Api(f"builtins.{name}")
        starred = self.run.file.imports.get("*") if not bindings else None  # nothing else can have bound it
        return Api(apis.canonical(f"{starred[:-1]}{name}")) if starred else Opaque(Name(name))

    def set_up_later(self, name: str, instance: Instance, st: State) -> None:
        """An object of the module: what is None or false as the module is loaded, some function may have set since."""
        classes = {unit.name for unit in self.class_members.ancestry(instance.unit)}
        for key, value in list(st.store.of(instance.name).items()):
            if isinstance(key, str) and is_falsy(value) and self.run.file.may_set(name, classes, key):
                st.store[(instance.name, key)] = Opaque(instance.name.child(key))

    def fill_global(self, name: str, st: State) -> None:
        """What a container of the module is given as the module is loaded, by its statements and by decorators."""
        for statement in self.run.file.fills.get(name, ()):
            self.definitions.interpret_global(statement, st)
        self.definitions.register_with(name, st)

    # -- evaluation ----------------------------------------------------------------------------------------------

    def eval(self, node: cst.BaseExpression, st: State) -> Value:
        """What an expression stands for; what it does happens to ``st``."""
        handler = self.handlers.get(type(node))
        return handler(node, st) if handler is not None else UNKNOWN

    def _name(self, node: cst.Name, st: State) -> Value:
        if node.value in _CONSTANTS:
            return _CONSTANTS[node.value]
        if self.run.renamed and st.graphs and node is not self.run.identified:
            self.replays.reads_name(st, (self.run.stack[-1].frame, node.value), self.call_stack.site(node))
        value = self.lookup(node.value, st)
        self.threads.read_by_starter(st, value)
        return value

    def _literal(self, node: cst.BaseExpression, _: State) -> Value:
        return operators.constant(node)

    def _formatted(self, node: cst.FormattedString, st: State) -> Value:
        parts: list[Value] = []
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                value = self.eval(part.expression, st)
                if self.builtin_functions.converted(value, "format", part, st) is None:
                    self.tensors.read_on_host(st, value, self.call_stack.site(part), "formatting")
                parts.append(_shown(value, part))
            elif isinstance(part, cst.FormattedStringText):
                parts.append(Const(part.value))
        known = [p.value for p in parts if isinstance(p, Const) and isinstance(p.value, str)]
        return Const("".join(known)) if len(known) == len(parts) else Text(tuple(parts))

    # -- operators -----------------------------------------------------------------------------------------------

    def _comparison(self, node: cst.Comparison, st: State) -> Value:
        operands = [self.eval(node.left, st), *(self.eval(c.comparator, st) for c in node.comparisons)]
        if len(operands) == 2 and type(node.comparisons[0].operator) in (cst.Is, cst.IsNot):
            one_module = self.predicates.same_module(*operands)
            if one_module is not None:
                return Const(one_module is (type(node.comparisons[0].operator) is cst.Is))
        if len(operands) == 2 and type(node.comparisons[0].operator) in (cst.Equal, cst.NotEqual):
            one_stream = self.predicates.same_stream(*operands)
            if one_stream is not None:
                return Const(one_stream is (type(node.comparisons[0].operator) is cst.Equal))
            test = self.devices.is_of_kind(*operands)
            if test is not None:
                return test if type(node.comparisons[0].operator) is cst.Equal else test.denied()
        if len(operands) == 2 and type(node.comparisons[0].operator) in (cst.In, cst.NotIn):
            test = self.devices.is_of_kind(operands[1], operands[0])
            if test is not None:
                return test if type(node.comparisons[0].operator) is cst.In else test.denied()
        identity = all(type(c.operator) in (cst.Is, cst.IsNot, cst.In, cst.NotIn) for c in node.comparisons)
        flat = [v for o in operands for v in iterate(o)]
        if type(node.comparisons[0].operator) in (cst.In, cst.NotIn):
            for value in iterate(operands[1]):
                if isinstance(value, Tensor):  # one element after another
                    self.tensors.read_on_host(st, value, self.call_stack.site(node), "in")
        if node is self.run.masking and not identity and st.capture is not None:
            # what was counted up by a number is an array if what it is compared to has methods
            atoms = {a for v in flat if isinstance(v, Number) for a in v.form.atoms()}
            given = (a for a in atoms if isinstance(a, Name) and isinstance(a.root().site, str))
            counted = [Opaque(a) for a in sorted(given, key=lambda a: [str(n.site) for n in a.chain()])]
            operands, flat = [*operands, *counted], [*flat, *counted]
            first = next(
                (v for v in flat if isinstance(v, Opaque) and not self.memory.is_plain(v.name)), None
            )
            if first is not None:
                self.tensors.mark_tensor(st, first)
        if not identity and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v)) for v in flat
        ):
            return self.arithmetic.mask(
                st, self.tensors.operation(st, operands, self.call_stack.site(node), "comparison")
            )
        if len(operands) == 2:
            operands = [*self.predicates.over_rounds(node.comparisons[0].operator, *operands)]
        if all(isinstance(o, Const) and o.value is not ... for o in operands) and len(operands) == 2:
            outcome = operators.compare(node.comparisons[0].operator, operands[0].value, operands[1].value)  # type: ignore[attr-defined]
            if outcome is not None:
                return Const(outcome)
        if len(operands) == 2 and isinstance(operands[1], (Container, Opaque)):
            contained = self.elements.contains(operands[1], operands[0], st)
            operator = node.comparisons[0].operator
            if contained is not None and type(operator) in (cst.In, cst.NotIn):
                return Const(contained is (type(operator) is cst.In))
        if len(operands) == 2 and all(map(_is_simple, (node.left, node.comparisons[0].comparator))):
            outcomes = self.predicates.test_comparison(node, st, True) or []
            # what is kept in a name is what the same test says elsewhere
            if outcomes and (len(outcomes) == 1 or all(g != ALWAYS for _, g in outcomes)):
                return union((Const(outcome), guard) for outcome, guard in outcomes)
        question = self.predicates.question(node, operands, st)
        if question is not None and self.run.tracking:
            outcomes = self.predicates.outcomes_of(question, st, True)
            if any(guard != ALWAYS for _, guard in outcomes) or len(outcomes) == 1:
                return union((Const(outcome), guard) for outcome, guard in outcomes)
        return self.conditions.unknown_flag(node, st)

    def _boolean(self, node: cst.BooleanOperation, st: State) -> Value:
        left = self.eval(node.left, st)
        with self.perhaps():
            right = self.eval(node.right, st)
        outcomes = self.predicates.truth(left, st, node.left)
        keeps_left = type(node.operator) is cst.Or
        found: list[tuple[Value, Guard]] = []
        for outcome, guard in outcomes:
            found.append((left, guard) if outcome is keeps_left else (right, guard))
        if not found:
            return UNKNOWN
        if not keeps_left and all(isinstance(v, (Const, Opaque)) for v in iterate(right)):
            return self.one_flag(found, right, node, st)
        return union(found)

    def one_flag(
        self, found: list[tuple[Value, Guard]], right: Value, node: cst.BooleanOperation, st: State
    ) -> Value:
        """What a conjunction comes to; where it fails in more ways than are tracked, one condition says whether."""
        outcomes = self.predicates.truth(union(found), st, node)
        if sum(1 for outcome, _ in outcomes if not outcome) <= FAILING:
            return union(found)
        flag = self.conditions.unknown_flag(node, st)
        truth = dict(self.conditions.condition(("truth", flag.name), (flag.name,), st, True))
        if ALWAYS in truth.values():
            return union(found)
        holds = [
            (v, guard & g & truth[True])
            for value, guard in found
            if value is right
            for v, g in alternatives(value)
            if v != Const(False) and not guard.contradicts(g)
        ]
        return union([*holds, (Const(False), truth[False])])

    def _conditional(self, node: cst.IfExp, st: State) -> Value:
        outcomes = self.predicates.test(node.test, st)
        other = st.copy()
        self.paths.enter_branch(node.test, outcomes, True, st)
        yes = self.eval(node.body, st) if not st.dead else None
        self.paths.enter_branch(node.test, outcomes, False, other)
        no = self.eval(node.orelse, other) if not other.dead else None
        yes_guard, no_guard = st.path, other.path
        dead, other_dead = st.dead, other.dead
        joined = self.paths.join(st, other)
        if joined is None:
            st.dead = True
            return UNKNOWN
        if joined is not st:
            st.become(joined)
        if yes is None or dead:
            return no if no is not None else UNKNOWN
        if no is None or other_dead:
            return yes
        chosen = union([(yes, yes_guard.without(st.path)), (no, no_guard.without(st.path))])
        return self.conditions.exclusive(
            st, chosen
        )  # "not both" is no guard: which of them it is, one condition says

    def _named(self, node: cst.NamedExpr, st: State) -> Value:
        value = self.eval(node.value, st)
        self.assignments.assign(node.target, value, st, node)
        return value

    def _await(self, node: cst.Await, st: State) -> Value:
        return self.eval(node.expression, st)

    def is_tensor(self, st: State, value: Object) -> bool:
        """Whether an object of unknown kind has been used as a tensor."""
        return (value.name, fields.PLACE) in st.store or value.name.base() in self.run.tensorish

    def _lambda(self, node: cst.Lambda, _: State) -> Value:
        frame = self.run.stack[-1].frame
        self.capture_names(node)
        unit = FunctionUnit("<lambda>", "<lambda>", node, self.run.stack[-1].slice)
        return Function(self.lambdas.setdefault(id(node), unit), frame)

    def capture_names(self, node: cst.Lambda | cst.FunctionDef) -> None:
        """A function made in another one keeps those of that one's names that it mentions."""
        mentioned = {inner.value for inner in concrete.walk(node) if type(inner) is cst.Name}
        self.run.captured_frames.setdefault(self.run.stack[-1].frame, set()).update(mentioned)


def _is_simple(node: cst.BaseExpression) -> bool:
    """Whether an expression is a name, an attribute of one, or a constant: evaluated twice it does nothing twice."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, (cst.Name, cst.SimpleString, cst.BaseNumber))


def _shown(value: Value, part: cst.FormattedStringExpression) -> Value:
    """What of a value a formatted string shows: all of it, where that is known and nothing else is asked for."""
    if part.format_spec is not None or part.conversion is not None:
        return PLAIN
    if isinstance(value, Const) and isinstance(value.value, (str, int)):
        return Const(str(value.value))
    return value if isinstance(value, (Opaque, Device)) else PLAIN


_HANDLES = ("event", "work")

_ORDERING = (*_HANDLES, "stream")

_CONSTANTS: dict[str, Value] = {
    "None": NONE,
    "True": Const(True),
    "False": Const(False),
    "__debug__": Const(True),
}
