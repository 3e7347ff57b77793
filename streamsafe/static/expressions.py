"""Expressions: names, attributes, elements, operators, conditions.

One file: it is the dispatch over the kinds of expressions, and a kind rarely takes more than a few lines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

import libcst as cst

from streamsafe.order.symbolic import ALWAYS, Guard
from streamsafe.static import apis, concrete, element_keys, operators, sequences
from streamsafe.static.computed import Computed
from streamsafe.static.conditions import Outcomes
from streamsafe.static.facts import HOOK, Site
from streamsafe.static.source import ClassUnit, FunctionUnit, Slice, SourceFile
from streamsafe.static.state import State, is_falsy, leans
from streamsafe.static.suggestions import COMMUNICATION
from streamsafe.static.values import (
    EACH,
    EVERY,
    NONE,
    PLAIN,
    POSITIVE,
    UNKNOWN,
    Api,
    Class,
    Clock,
    Const,
    Container,
    Device,
    Function,
    Instance,
    Name,
    Number,
    Object,
    Opaque,
    Renaming,
    Stream,
    Tensor,
    Text,
    Tuple,
    Value,
    aging,
    aging_loops,
    alternatives,
    iterate,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.interpreter import Activation

MODULE = Name("module")
FAILING = 2
"""In how many ways a conjunction may fail before one condition says whether it does."""

UNNAMED = "a tensor"
"""What a tensor is called as long as nothing has been bound to it."""


class Expressions(Computed):
    """Evaluates expressions.

    Args:
        file: the source.
    """

    stack: list[Activation]
    masking: cst.CSTNode | None = None
    """A comparison of which a method is called: its result is an array, and in a capture one of the device's."""

    # declared here, implemented further down the chain

    def site_in(self, slice_: Slice, node: cst.CSTNode) -> Site:
        """A node of a slice, as a place."""

    def interpret_global(self, statement: ast.stmt, st: State) -> None:
        """Interpret a module-level assignment."""

    def behind(self, unit: FunctionUnit, value: Value, st: State, *, registering: bool = False) -> Value: ...

    def materialized(self, value: Opaque, unit: ClassUnit, st: State) -> Value: ...

    def function_value(self, unit: FunctionUnit, name: str, st: State) -> Value:
        """A top-level function, behind its decorators."""

    def enter_branch(self, test: cst.BaseExpression, outcomes: Outcomes, wanted: bool, st: State) -> None:
        """Go where a test came out as ``wanted``."""

    def join(self, first: State | None, second: State | None) -> State | None:
        """Two paths meet."""

    def unsure_operation(self, st: State, operands: list[Value], site: Site, text: str) -> Value:
        """An operation on objects of unknown kind: if they are tensors, a device operation."""

    def read_operands(self, st: State, operands: list[Value], site: Site, text: str) -> None:
        """Operands are read."""

    def mark_tensor(self, st: State, value: Object) -> None:
        """This object has been used as a tensor."""

    def converted(self, value: Value, text: str, node: cst.CSTNode, st: State) -> Value | None: ...

    def duration(self, st: State, left: Value, right: Value, site: Site) -> None:
        """Two readings of a clock are subtracted."""

    def _comprehension(
        self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp, st: State
    ) -> Value: ...

    def _call(self, node: cst.Call, st: State) -> Value: ...

    def _yield(self, node: cst.Yield, st: State) -> Value: ...

    def __init__(self, file: SourceFile) -> None:
        super().__init__()
        self.file = file
        self.closures: dict[Name, Name] = {}
        self.closed.add(MODULE)
        self.rounds: list[set[Name]] = []
        # the innermost loop, and the calls that lead to it, whose rounds make an object
        self.made_in: dict[Name, Hashable] = {}
        self.late_rounds: Set[Name] = frozenset()  # known by number, they stand for those that follow, too
        self.handles: set[Name] = set()  # events and works that rounds of a loop, or calls, make
        self.default_devices: list[Value] = []  # of the blocks ``with torch.device(...)`` that are under way
        self.conditions: dict[Hashable, int] = {}
        # by round: the questions that tell whether it is the last, and how they then come out
        self.lasts: dict[Name, dict[Hashable, bool]] = {}
        self.mentions: dict[int, tuple[Name, ...]] = {}
        self.units: dict[str, FunctionUnit | ClassUnit | None] = {}
        self.globals_under_way: set[str] = set()
        self.texts: dict[Name, str] = {}
        self.moved_parameters = False  # whether there was a loop over all of a module's
        # names of numbers that say how many elements some tensor has
        self.sizes: set[tuple[Name, str]] = set()
        self.found_pool_sizes: set[Name] = (
            set()
        )  # numbers that are the size of a pool of streams, and lists of as many
        self.lengths: dict[Name, Name] = {}  # by the name of a number, the list that it was counted of
        self.pool_sizes: set[Name] = set()  # those of them that are known from the first reading
        self.lazily = 0  # branches under way that make what is not there yet
        # where the value that is computed is kept, and which call computes it
        self.kept_under: tuple[Activation, Name] | None = None
        self.unsure = 0  # expressions under way that are evaluated only if something holds
        self.counting = (
            0  # loops under way whose count is not known, and of which a few rounds are interpreted
        )
        self.counting_down = 0  # those of them that end at a number which is known

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """Evaluate something that a program evaluates only if something else holds."""
        self.unsure += 1
        try:
            yield
        finally:
            self.unsure -= 1

    def goes_on(self, choices: list[tuple[Value, Guard]], st: State) -> None:
        """None has no attributes: where the program goes on the value is something else.

        What stood under ``if x is not None`` has then been done. A handler goes on with what was known before.
        """
        if self.unsure:
            return
        there = [guard for value, guard in choices if value != NONE]
        if 0 < len(there) < len(choices):
            st.assume(*there)
        elif len(choices) == 1 and isinstance(choices[0][0], Opaque):
            known = self.conditions.get(("none", choices[0][0].name))
            if known is not None and not st.path.true & known:
                st.assume(Guard(0, known))

    # -- objects -------------------------------------------------------------------------------------------------

    def fresh(self, node: cst.CSTNode, st: State, what: Hashable = "") -> Name:
        """The name of an object made here; an object made here before has aged."""
        name = Name((id(node), what), self.stack[-1].path if self.stack else ())
        lazily = self.lazily and what == "stream"
        if what == "stream" and self.kept_under is not None and self.kept_under[0] is self.stack[-1]:
            name, self.kept_under, lazily = self.kept_under[1], None, True
        if lazily:  # where there is one already none is made
            st.store[(name, "@made")] = PLAIN
            self.made_here.add(name)
            return name
        if (name, "@made") in st.store:
            self.age(st, {name})
        st.store[(name, "@made")] = PLAIN
        self.made_here.add(name)
        for names in self.rounds:
            names.add(name)
        if what in _HANDLES and self.rounds:
            self.handles.add(name)
        return name

    def filled_by(self, target: cst.BaseExpression, st: State) -> Name | None:
        """The name of an attribute, or of the module's, that is filled where it is found empty.

        Whoever finds it so makes that object, which goes by this name.
        """
        activation = self.stack[-1]
        word = ""
        if isinstance(target, cst.Attribute):
            word = target.attr.value
        elif isinstance(target, cst.Name) and target.value in activation.outer:
            word = target.value
        if not word or activation.unit is None or word not in concrete.looked_for(activation.unit.node):
            return None
        owner: Name | None = None
        if isinstance(target, cst.Attribute):
            base = self.eval(target.value, st)
            if isinstance(base, Class):
                owner = Name(f"class {base.unit.name}")
            elif isinstance(base, Object):
                owner = base.name
        elif self.scope_of(word, st) == MODULE:
            owner = MODULE
        if owner is None:
            return None
        held, name = st.store.get((owner, word)), Name(word) if owner == MODULE else owner.child(word)
        empty = held is None or all(v == NONE for v, _ in alternatives(held, st.path))
        return name if empty else None

    def asked_about(self, names: set[Name]) -> int:
        """The conditions that are about the newest objects of these names."""
        bits = 0
        for bit, mentioned in self.mentions.items():
            for name in mentioned:
                if not names.isdisjoint(name.family()):
                    bits |= bit
                    break
        return bits

    def age_round(self, st: State, loop: cst.CSTNode | None) -> None:
        """A round of a loop is over: what it has made is of the round before."""
        here = (loop, self.stack[-1].path)
        for name in self.rounds[-1]:
            self.made_in.setdefault(name, here)
        self._age_made(st, self.rounds[-1], here)

    def age_call(self, st: State, made: set[Name]) -> None:
        """A call is over: what it has made is of the call before."""
        self._age_made(st, made, None)

    def _age_made(self, st: State, made: set[Name], here: Hashable) -> None:
        """Keep memory that an inner loop has made distinct from what it makes when it runs again, whatever its rounds.

        Events and works stay together: whoever waits for the older ones waits for all of them.
        """
        inner = {
            name
            for name in made
            if self.made_in.get(name, here) != here
            and not element_keys.is_of_loop(name)
            and not _is_handle(name)
        }
        self.age(st, made - inner)
        self.age(st, inner, aging_loops)

    def age(self, st: State, names: set[Name], renaming_of: Callable[[set[Name]], Renaming] = aging) -> None:
        """The newest objects of these names become those of the round before."""
        if not names:
            return
        bits = self.asked_about(names)
        renaming = renaming_of(names)
        if any(leans(value, bits) for value in st.current.values()):
            self.track_current([st], bits, renaming)
        st.forget(bits)
        st.rename(renaming, names)
        self.candidates = [renaming(name) for name in self.candidates]
        self.ended = {renaming(name) for name in self.ended}
        for name in list(names):
            st.store.pop((name, "@made"), None)

    def is_opaque(self, name: Name) -> bool:
        """Whether attributes of this object exist although nothing was seen assigned to them."""
        if name == self.constructed:  # what a constructor assigns under a condition is this, or not there
            return False
        return name.base() not in self.closed and name not in self.late

    def describe(self, value: Value) -> str:
        """How a user would name an object."""
        if isinstance(value, Object):
            return self.name_text(value.name, "stream" if isinstance(value, Stream) else "")
        return "a value"

    def name_text(self, name: Name, kind: str = "") -> str:
        """How a user would write a name."""
        base = name.newest()
        if base in self.texts:
            return self.texts[base]
        if name.parent is not None:
            if name.site == EVERY:
                return self.name_text(name.parent, kind)
            parent = self.name_text(name.parent)
            if name.site == EACH:
                return f"an element of {parent}"
            if isinstance(name.site, str):
                return f"{parent}.{name.site}"
            return f"{parent}[...]"
        if name.site == "ambient":
            return "the current stream" if kind else "ambient"
        if name.site == COMMUNICATION and name.path:
            group = name.path[0]
            return f"{COMMUNICATION} of {self.name_text(group)}" if isinstance(group, Name) else COMMUNICATION
        if isinstance(name.site, str):
            return name.site.removeprefix("class ")
        return "a stream" if kind else UNNAMED

    def named_since(self, value: Value, before: str) -> str:
        """How a user would name what was described before it had a name."""
        return before if before and before != UNNAMED else self.describe(value)

    def call_it(self, name: Name, text: str) -> None:
        """Remember how a user names an object: its first name wins."""
        base = name.newest()
        if base.parent is None and not isinstance(base.site, str):
            self.texts.setdefault(base, text)

    # -- names ---------------------------------------------------------------------------------------------------

    def lookup(self, name: str, st: State) -> Value:
        """What a name means here."""
        frame: Name | None = self.stack[-1].frame
        if name in self.stack[-1].outer:
            frame = self.closures.get(frame) if frame else None
        objects = st.store.objects
        while frame is not None:
            table = objects.get(frame)
            if table is not None and name in table:
                return table[name]
            frame = self.closures.get(frame)
        return self.lookup_global(name, st)

    def lookup_global(self, name: str, st: State) -> Value:
        """A module-level name: a definition, an import, an assignment that is interpreted when first asked for."""
        found = st.store.get((MODULE, name))
        if found is not None:
            return found
        unit = self.unit(name)
        if isinstance(unit, FunctionUnit):
            return self.function_value(unit, name, st)
        if isinstance(unit, ClassUnit):
            return Class(unit)
        if name in self.file.imports:
            return Api(apis.canonical(self.file.imports[name]))
        bindings = self.file.bindings.get(name, [])
        if bindings and name not in self.globals_under_way:
            if len(bindings) == 1 and isinstance(bindings[0], (ast.Assign, ast.AnnAssign)):
                self.globals_under_way.add(name)
                try:
                    self.interpret_global(bindings[0], st)
                finally:
                    self.globals_under_way.discard(name)
                found = st.store.get((MODULE, name))
                if isinstance(found, Instance) and name in self.file.set_by_functions:
                    # another one of that class, which a function has put there since
                    found = st.store[(MODULE, name)] = self.materialized(Opaque(Name(name)), found.unit, st)
                elif isinstance(found, Instance):
                    self.set_up_later(name, found, st)
                if found is not None:
                    if isinstance(found, Container):
                        self.fill_global(name, st)
                    if isinstance(found, Opaque) and name.isupper():
                        self.plain.add(found.name.base())  # a constant, as PEP 8 writes them
                    return found
            return Opaque(Name(name))
        if name in apis.BUILTINS:
            return Api(f"builtins.{name}")
        starred = self.file.imports.get("*") if not bindings else None  # nothing else can have bound it
        return Api(apis.canonical(f"{starred[:-1]}{name}")) if starred else Opaque(Name(name))

    def set_up_later(self, name: str, instance: Instance, st: State) -> None:
        """An object of the module: what is None or false as the module is loaded, some function may have set since."""
        classes = {unit.name for unit in self.ancestry(instance.unit)}
        for key, value in list(st.store.of(instance.name).items()):
            if isinstance(key, str) and is_falsy(value) and self.file.may_set(name, classes, key):
                st.store[(instance.name, key)] = Opaque(instance.name.child(key))

    def fill_global(self, name: str, st: State) -> None:
        """What a container of the module is given as the module is loaded, by its statements and by decorators."""
        for statement in self.file.fills.get(name, ()):
            self.interpret_global(statement, st)
        for registered in dict.fromkeys(self.file.registered.get(name, ())):
            unit = self.unit(registered)
            if isinstance(unit, FunctionUnit):
                self.behind(unit, Function(unit), st, registering=True)

    # -- evaluation ----------------------------------------------------------------------------------------------

    def eval(self, node: cst.BaseExpression, st: State) -> Value:
        """What an expression stands for; what it does happens to ``st``."""
        handler = _EXPRESSIONS.get(type(node))
        return handler(self, node, st) if handler is not None else UNKNOWN

    def _name(self, node: cst.Name, st: State) -> Value:
        if node.value in _CONSTANTS:
            return _CONSTANTS[node.value]
        if self.renamed and st.graphs and node is not self.identified:
            self.reads_name(st, (self.stack[-1].frame, node.value), self.site(node))
        return self.lookup(node.value, st)

    def _literal(self, node: cst.BaseExpression, _: State) -> Value:
        return operators.constant(node)

    def _formatted(self, node: cst.FormattedString, st: State) -> Value:
        parts: list[Value] = []
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                value = self.eval(part.expression, st)
                if self.converted(value, "format", part, st) is None:
                    self.read_on_host(st, value, self.site(part), "formatting")
                parts.append(_shown(value, part))
            elif isinstance(part, cst.FormattedStringText):
                parts.append(Const(part.value))
        known = [p.value for p in parts if isinstance(p, Const) and isinstance(p.value, str)]
        return Const("".join(known)) if len(known) == len(parts) else Text(tuple(parts))

    # -- operators -----------------------------------------------------------------------------------------------

    def _binary(self, node: cst.BinaryOperation, st: State) -> Value:
        left = self.eval(node.left, st)
        replays = self.replays
        right = self.eval(node.right, st)
        if replays != self.replays:
            self.computed_twice(st, [(left, replays), (right, self.replays)], self.site(node))
        number = self.computed(node, left, right, st)
        if number is not None:
            return number
        return self.numbered(node.operator, left, right, self.binary(left, right, node, st), st)

    def computed(
        self, node: cst.BinaryOperation | cst.AugAssign, left: Value, right: Value, st: State
    ) -> Value | None:
        """A whole number, or one of a few; None where that is not known."""
        operator = node.operator
        found: list[tuple[Value, Guard]] = []
        for one, first in alternatives(left, st.path):
            for other, second in alternatives(right, st.path):
                number: Value | None = operators.computed(operator, one, other)
                if number is None or len(found) == MOST_NUMBERS:
                    return None
                if type(one) is Number or type(other) is Number:
                    number = self.numbered(operator, one, other, number, st)
                if not first.contradicts(second):
                    found.append((number, first & second))
        if not found:
            return None
        return union(found)

    def binary(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """Arithmetic: on tensors an operation, on clocks a duration."""
        operator = type(getattr(node, "operator", None))
        for inner, other, prefix in ((left, right, "__"), (right, left, "__r")):
            word = operators.DUNDER.get(operator) if type(inner) is Instance else None  # type: ignore[arg-type]
            own = self.own_method(inner, f"{prefix}{word}__") if word else None
            if own is not None:
                return self.call_function(own, [other], {}, st, node)
        if operator in (cst.Subtract, cst.SubtractAssign):
            self.duration(st, left, right, self.site(node))
        if any(isinstance(v, Clock) for v in (*iterate(left), *iterate(right))):
            return PLAIN
        if operator is cst.Modulo and isinstance(left, Const) and isinstance(left.value, str):
            self.read_on_host(st, right, self.site(node), "formatting")
            return PLAIN
        operands = [*iterate(left), *iterate(right)]
        if operator is cst.BitOr and (either := self.either(left, right, node, st)) is not None:
            return either
        if operator in (cst.Add, cst.AddAssign):
            if isinstance(left, Tuple) and isinstance(right, Tuple):
                return Tuple(left.items + right.items)
            if isinstance(left, Tuple) or isinstance(right, Tuple):
                return left if isinstance(left, Tuple) else right  # joined with what is not known
            if any(map(_is_list, (left, right))) and all(
                isinstance(v, (Container, Opaque)) for v in operands
            ):
                return self.concatenated(left, right, node, st)  # nothing but a list is added to a list
        if isinstance(right, Opaque) and operator in operators.DIVIDING:
            st.store[(right.name, "@nonzero")] = PLAIN  # or this would have raised
        if any(isinstance(v, Tensor) for v in operands) or (
            any(isinstance(v, Opaque) and self.is_tensor(st, v) for v in operands)
        ):
            if operator in (cst.MatrixMultiply, cst.MatrixMultiplyAssign):
                for matrix in operands:
                    if isinstance(matrix, Opaque):
                        self.mark_tensor(st, matrix)
            result = self.operation(st, [left, right], self.site(node), "arithmetic")
            both = operator in (cst.BitAnd, cst.BitOr, cst.BitXor)
            masks = both and self.is_mask(st, left) and self.is_mask(st, right)
            return self.mask(st, result) if masks else result
        if all(isinstance(v, Const) for v in operands):
            return (
                POSITIVE
                if operator in (cst.Add, cst.AddAssign) and operators.is_positive_sum(left, right)
                else PLAIN
            )
        if operator is cst.BitOr and self.is_mapping(left) and all(map(self.is_mapping, iterate(right))):
            return self.merged(left, right, node, st)  # type: ignore[arg-type]
        if isinstance(left, Container) and operator is cst.Multiply:
            return self.repeated(left, right, node, st)
        if any(isinstance(v, (Container, Tuple)) for v in operands):
            return left
        unknown = [v for v in operands if isinstance(v, Opaque) and not self.is_plain(v.name)]
        if unknown and (
            isinstance(getattr(node, "operator", None), operators.COUNTING)
            or any(map(self.counts, operands))
            or self.bounds(node)
        ):
            return self.counted(left, right, node, st)
        if unknown:
            made = self.unsure_operation(st, [left, right], self.site(node), "arithmetic")
            if isinstance(made, Opaque):
                st.store[(made.name, "@there")] = PLAIN  # never None
            return made
        return PLAIN if any(isinstance(v, Opaque) for v in operands) else UNKNOWN

    def concatenated(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """``[x] + [y]``: a list of the elements of both."""
        made = self.container(node, st, "list", [])
        for part in (left, right):
            self.extend_container(st, made, part)
        return made

    def merged(self, left: Container, right: Value, node: cst.CSTNode, st: State) -> Value:
        """``first | second``: a dict of what both hold."""
        made = self.duplicate(left, node, st)
        self.closed.add(made.name)
        for mapping in iterate(right):
            self.add_items(made, mapping, st)
        return made

    def repeated(self, values: Container, times: Value, node: cst.CSTNode, st: State) -> Value:
        """``[x] * n``: a list of the same elements, so many times."""
        known = sequences.items(st, values)
        times = self.sized(times, st)
        count = times.value if isinstance(times, Const) and type(times.value) is int else None
        if known is None or (count is None and any(v != NONE for v in known)):
            return values  # one stands for all; what fills places that are empty so far is not one
        made = Container(self.fresh(node, st, "repeated"), values.kind)
        self.closed.add(made.name)
        if count is not None and len(known) * count <= sequences.LIMIT:
            sequences.put(st, made, known * count)
        else:
            sequences.put(st, made, known)
            sequences.blur(st, made)
            if isinstance(times, Opaque):
                st.store[(made.name, sequences.TIMES)] = times
        return made

    def counts(self, value: Value) -> bool:
        """Whether a value is a number or a set rather than a tensor: an index, a shape."""
        # what is scaled by a setting may well be a tensor
        return isinstance(value, Opaque) and self.is_plain(value.name) and not self.is_setting(value.name)

    def bounds(self, node: cst.CSTNode) -> bool:
        """Whether it is arithmetic by which a number is computed that bounds a slice."""
        unit = self.stack[-1].unit if self.stack else None
        return unit is not None and node in concrete.bound_arithmetic(unit.node)

    def counted(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value:
        """Arithmetic on what nothing shows to be a tensor: an unknown number, the same for the same operands."""
        operator = type(getattr(node, "operator", None)).__name__
        sides = [(left, right, "left"), (right, left, "right")]
        if self.is_of_round(right):  # what is of another round tells it from this one
            sides.reverse()
        for inner, other, side in sides:
            key = element_keys.bare(element_keys.key_of(other))
            if isinstance(inner, Opaque) and not element_keys.is_unsure(key):
                name = inner.name.child((operator, side, key))
                self.plain.add(name.base())
                return Opaque(name)
        return PLAIN

    def either(self, left: Value, right: Value, node: cst.CSTNode, st: State) -> Value | None:
        """``moved |= x.is_cuda``: of two flags one is enough; None where these are no flags."""
        for value in (*iterate(left), *iterate(right)):
            known = isinstance(value, Const) and isinstance(value.value, bool)
            if not known and not (isinstance(value, Opaque) and self.is_plain(value.name)):
                return None
        return union(
            (Const(one or other), guard & g)
            for one, guard in self.truth(left, st, node)
            for other, g in self.truth(right, st, node)
            if not guard.contradicts(g)
        )

    def is_of_round(self, value: Value) -> bool:
        """Whether an object was made in a round of a loop under way."""
        return isinstance(value, Object) and any(
            link in names for names in self.rounds for link in value.name.chain()
        )

    def _unary(self, node: cst.UnaryOperation, st: State) -> Value:
        if type(node.operator) is cst.Not:
            outcomes = self.test(node.expression, st)
            return union((Const(not outcome), guard) for outcome, guard in outcomes)
        value = self.eval(node.expression, st)
        if (
            isinstance(value, Const)
            and isinstance(value.value, (int, float))
            and type(node.operator) is cst.Minus
        ):
            return Const(-value.value)
        if isinstance(value, Number):
            return Number(..., -value.form) if type(node.operator) is cst.Minus else PLAIN
        if any(isinstance(v, Tensor) for v in iterate(value)):
            result = self.operation(st, [value], self.site(node), "arithmetic")
            inverted = type(node.operator) is cst.BitInvert and self.is_mask(st, value)
            return self.mask(st, result) if inverted else result
        return value if isinstance(value, Opaque) else PLAIN

    def _comparison(self, node: cst.Comparison, st: State) -> Value:
        operands = [self.eval(node.left, st), *(self.eval(c.comparator, st) for c in node.comparisons)]
        if len(operands) == 2 and type(node.comparisons[0].operator) in (cst.Is, cst.IsNot):
            one_module = self.same_module(*operands)
            if one_module is not None:
                return Const(one_module is (type(node.comparisons[0].operator) is cst.Is))
        if len(operands) == 2 and type(node.comparisons[0].operator) in (cst.Equal, cst.NotEqual):
            one_stream = self.same_stream(*operands)
            if one_stream is not None:
                return Const(one_stream is (type(node.comparisons[0].operator) is cst.Equal))
            asked = self.is_of_kind(*operands)
            if asked is not None:
                return asked if type(node.comparisons[0].operator) is cst.Equal else asked.denied()
        if len(operands) == 2 and type(node.comparisons[0].operator) in (cst.In, cst.NotIn):
            asked = self.is_of_kind(operands[1], operands[0])
            if asked is not None:
                return asked if type(node.comparisons[0].operator) is cst.In else asked.denied()
        identity = all(type(c.operator) in (cst.Is, cst.IsNot, cst.In, cst.NotIn) for c in node.comparisons)
        flat = [v for o in operands for v in iterate(o)]
        if type(node.comparisons[0].operator) in (cst.In, cst.NotIn):
            for value in iterate(operands[1]):
                if isinstance(value, Tensor):  # one element after another
                    self.read_on_host(st, value, self.site(node), "in")
        if node is self.masking and not identity and st.capture is not None:
            # what was counted up by a number is an array if what it is compared to has methods
            atoms = {a for v in flat if isinstance(v, Number) for a in v.form.atoms()}
            given = (a for a in atoms if isinstance(a, Name) and isinstance(a.root().site, str))
            counted = [Opaque(a) for a in sorted(given, key=lambda a: [str(n.site) for n in a.chain()])]
            operands, flat = [*operands, *counted], [*flat, *counted]
            first = next((v for v in flat if isinstance(v, Opaque) and not self.is_plain(v.name)), None)
            if first is not None:
                self.mark_tensor(st, first)
        if not identity and any(
            isinstance(v, Tensor) or (isinstance(v, Opaque) and self.is_tensor(st, v)) for v in flat
        ):
            return self.mask(st, self.operation(st, operands, self.site(node), "comparison"))
        if len(operands) == 2:
            operands = [*self.over_rounds(node.comparisons[0].operator, *operands)]
        if all(isinstance(o, Const) and o.value is not ... for o in operands) and len(operands) == 2:
            outcome = operators.compare(node.comparisons[0].operator, operands[0].value, operands[1].value)  # type: ignore[attr-defined]
            if outcome is not None:
                return Const(outcome)
        if len(operands) == 2 and isinstance(operands[1], (Container, Opaque)):
            contained = self.contains(operands[1], operands[0], st)
            operator = node.comparisons[0].operator
            if contained is not None and type(operator) in (cst.In, cst.NotIn):
                return Const(contained is (type(operator) is cst.In))
        if len(operands) == 2 and all(map(_is_simple, (node.left, node.comparisons[0].comparator))):
            outcomes = self._test_comparison(node, st, True) or []
            # what is kept in a name is what the same test says elsewhere
            if outcomes and (len(outcomes) == 1 or all(g != ALWAYS for _, g in outcomes)):
                return union((Const(outcome), guard) for outcome, guard in outcomes)
        question = self.question(node, operands, st)
        if question is not None and self.asking:
            outcomes = self.how_asked(question, st, True)
            if any(guard != ALWAYS for _, guard in outcomes) or len(outcomes) == 1:
                return union((Const(outcome), guard) for outcome, guard in outcomes)
        return self.unknown_flag(node, st)

    def _boolean(self, node: cst.BooleanOperation, st: State) -> Value:
        left = self.eval(node.left, st)
        with self.perhaps():
            right = self.eval(node.right, st)
        outcomes = self.truth(left, st, node.left)
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
        outcomes = self.truth(union(found), st, node)
        if sum(1 for outcome, _ in outcomes if not outcome) <= FAILING:
            return union(found)
        flag = self.unknown_flag(node, st)
        truth = dict(self.condition(("truth", flag.name), (flag.name,), st, True))
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
        outcomes = self.test(node.test, st)
        other = st.copy()
        self.enter_branch(node.test, outcomes, True, st)
        yes = self.eval(node.body, st) if not st.dead else None
        self.enter_branch(node.test, outcomes, False, other)
        no = self.eval(node.orelse, other) if not other.dead else None
        yes_guard, no_guard = st.path, other.path
        dead, other_dead = st.dead, other.dead
        joined = self.join(st, other)
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
        return self.exclusive(st, chosen)  # "not both" is no guard: which of them it is, one condition says

    def _named(self, node: cst.NamedExpr, st: State) -> Value:
        value = self.eval(node.value, st)
        self.assign(node.target, value, st, node)
        return value

    def _await(self, node: cst.Await, st: State) -> Value:
        return self.eval(node.expression, st)

    def is_tensor(self, st: State, value: Object) -> bool:
        """Whether an object of unknown kind has been used as a tensor."""
        return (value.name, "@place") in st.store or value.name.base() in self.tensorish

    def api_attribute(self, base: Api, name: str, st: State, node: cst.CSTNode) -> Value:
        """An attribute of a library's module."""
        return Api(apis.canonical(f"{base.name}.{name}"))

    @staticmethod
    def mask(st: State, value: Value) -> Value:
        """This tensor holds booleans: as an index it selects, and the host waits for how many (TM-10)."""
        for inner in iterate(value):
            if isinstance(inner, Object):
                st.store[(inner.name, "@mask")] = PLAIN
        return value

    @staticmethod
    def is_mask(st: State, value: Value) -> bool:
        """Whether a tensor is known to hold booleans."""
        return any(isinstance(v, Object) and (v.name, "@mask") in st.store for v in iterate(value))

    def _lambda(self, node: cst.Lambda, _: State) -> Value:
        frame = self.stack[-1].frame
        self.capture_names(node)
        unit = FunctionUnit("<lambda>", "<lambda>", node, self.stack[-1].slice)
        return Function(self.lambdas.setdefault(id(node), unit), frame)

    def capture_names(self, node: cst.Lambda | cst.FunctionDef) -> None:
        """A function made in another one keeps those of that one's names that it mentions."""
        mentioned = {inner.value for inner in concrete.walk(node) if type(inner) is cst.Name}
        self.captured_frames.setdefault(self.stack[-1].frame, set()).update(mentioned)

    lambdas: dict[int, FunctionUnit]
    captured_frames: dict[Name, set[str]]


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


MOST_NUMBERS = 4
"""Of how many numbers it is computed which of them a result is."""

_HANDLES = ("event", "work")
_ORDERING = (*_HANDLES, "stream")


def _is_handle(name: Name) -> bool:
    return type(name.site) is tuple and name.site[-1] in _ORDERING


def _is_list(value: Value) -> bool:
    return isinstance(value, Container) and value.kind == "list"


_CONSTANTS: dict[str, Value] = {
    "None": NONE,
    "True": Const(True),
    "False": Const(False),
    "__debug__": Const(True),
}

_EXPRESSIONS: dict[type[cst.CSTNode], Callable[..., Value]] = {
    cst.Name: Expressions._name,
    cst.Integer: Expressions._literal,
    cst.Float: Expressions._literal,
    cst.SimpleString: Expressions._literal,
    cst.FormattedString: Expressions._formatted,
    cst.Tuple: Expressions._tuple,
    cst.List: Expressions._list,
    cst.Set: Expressions._list,
    cst.Dict: Expressions._dict,
    cst.Subscript: Expressions._subscript,
    cst.Attribute: Expressions._attribute,
    cst.BinaryOperation: Expressions._binary,
    cst.UnaryOperation: Expressions._unary,
    cst.Comparison: Expressions._comparison,
    cst.BooleanOperation: Expressions._boolean,
    cst.IfExp: Expressions._conditional,
    cst.NamedExpr: Expressions._named,
    cst.Await: Expressions._await,
    cst.Lambda: Expressions._lambda,
    cst.Call: lambda self, node, st: self._call(node, st),
    cst.ListComp: lambda self, node, st: self._comprehension(node, st),
    cst.SetComp: lambda self, node, st: self._comprehension(node, st),
    cst.GeneratorExp: lambda self, node, st: self._comprehension(node, st),
    cst.DictComp: lambda self, node, st: self._comprehension(node, st),
    cst.Yield: lambda self, node, st: self._yield(node, st),
}

__all__ = ["HOOK", "MODULE", "Expressions"]
