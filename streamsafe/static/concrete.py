"""Walks over concrete syntax that skip what is only layout, and what is asked of a piece again and again."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Set
from functools import lru_cache

import libcst as cst

from streamsafe.apis import names as apis
from streamsafe.static.nodes import FIELDS

_INNER: dict[type[cst.CSTNode], tuple[str, ...]] = {
    kind: tuple(reversed(fields)) for kind, fields in FIELDS.items()
}
_ORDERS = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)


def walk(node: cst.CSTNode, closed: Collection[type[cst.CSTNode]] = ()) -> Iterator[cst.CSTNode]:
    """A node and everything in it, outer ones first; what is inside nodes of ``closed`` kinds is left out."""
    stack: list[object] = [node]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is list or kind is tuple:
            stack.extend(reversed(item))  # type: ignore[call-overload]
            continue
        yield item  # type: ignore[misc]
        for name in _INNER.get(kind, ()) if kind not in closed else ():  # type: ignore[arg-type]
            inner = getattr(item, name)
            if inner is not None and type(inner) is not str:
                stack.append(inner)


def same(one: object, other: object) -> bool:
    """Whether two pieces of syntax are spelled alike."""
    if type(one) is not type(other):
        return False
    if isinstance(one, cst.CSTNode):
        return all(same(getattr(one, name), getattr(other, name)) for name in FIELDS.get(type(one), ()))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def spelled(pattern: re.Pattern[str], name: str) -> bool:
    """Whether a name as a whole is spelled like this; the patterns are those of modules."""
    known = _SPELLED[id(pattern)]  # to hash a pattern costs more than to match it
    found = known.get(name)
    if found is None:
        found = known[name] = pattern.fullmatch(name) is not None
    return found


_SPELLED: defaultdict[int, dict[str, bool]] = defaultdict(dict)
"""By a pattern's identity, the names that it was asked about."""


@lru_cache(maxsize=2048)
def names_in(node: cst.CSTNode) -> frozenset[str]:
    """Every identifier in a piece of syntax."""
    return frozenset(n.value for n in walk(node) if type(n) is cst.Name)


@lru_cache(maxsize=2048)
def awaits(node: cst.CSTNode) -> bool:
    """Whether a body lets other tasks go on."""
    return any(type(n) is cst.Await for n in walk(node))


@lru_cache(maxsize=2048)
def leaves_early(node: cst.CSTNode) -> bool:
    """Whether a body holds a ``break`` or a ``return``."""
    return any(isinstance(n, (cst.Break, cst.Return)) for n in walk(node))


@lru_cache(maxsize=2048)
def indexed_by(node: cst.BaseSuite, number: str, most: int) -> bool:
    """Whether a count, or what is computed from it, is an index in a body.

    Args:
        node: the body.
        number: the name of the count.
        most: a remainder by more than this is no index but says "now and then": which rounds these are does not matter.
    """
    names = {number}
    for inner in walk(node):
        if isinstance(inner, cst.Assign):
            targets = inner.targets
            if (
                len(targets) == 1
                and isinstance(targets[0].target, cst.Name)
                and not names.isdisjoint(names_in(inner.value))
            ):
                names.add(targets[0].target.value)
        elif isinstance(inner, cst.BinaryOperation) and isinstance(inner.operator, cst.Modulo):
            if isinstance(inner.right, cst.Integer) and int(inner.right.value, 0) > most:
                return False
    return any(
        (
            isinstance(inner, cst.Subscript)
            and any(not names.isdisjoint(names_in(element)) for element in inner.slice)
        )
        or (_chooses(inner) and _is_remainder(inner.test, names))  # type: ignore[attr-defined]
        for inner in walk(node)
    ) or (
        is_argument(node, number)
        and any(isinstance(inner, cst.Arg) and _is_neighbour(inner.value, names) for inner in walk(node))
    )


def _chooses(node: cst.CSTNode) -> bool:
    """Whether one of two things is chosen by a test."""
    return type(node) is cst.IfExp or (type(node) is cst.If and node.orelse is not None)


def _is_remainder(test: cst.BaseExpression, names: set[str]) -> bool:
    """Whether a test asks for the remainder of one of these numbers: this round or the other."""
    return any(
        type(inner) is cst.BinaryOperation
        and type(inner.operator) is cst.Modulo
        and type(inner.left) is cst.Name
        and inner.left.value in names
        for inner in walk(test)
    )


@lru_cache(maxsize=2048)
def limits(node: cst.CSTNode) -> frozenset[cst.CSTNode]:
    """The differences in a function that are only held against a limit or slept away, also under names of their own.

    What is asserted of one is what was to be measured.
    """
    asserted = {n for a in walk(node) if type(a) is cst.Assert for n in walk(a)}
    compared = [n for n in walk(node) if type(n) is cst.Comparison and n not in asserted]
    spent = [
        side
        for n in compared
        if all(isinstance(c.operator, _ORDERS) for c in n.comparisons)
        for side in (n.left, *(c.comparator for c in n.comparisons))
    ]
    # who holds a rate sleeps for what is left of a round: ``time.sleep(1 / fps - spent)``
    spent += [a.value for n in walk(node) if type(n) is cst.Call and _called(n) == "sleep" for a in n.args]
    found = [n for side in spent for n in _terms(side)]
    uses = Counter(n.value for n in walk(node, (cst.Del,)) if type(n) is cst.Name)
    limited = Counter(n.value for n in found if type(n) is cst.Name)
    named = {
        target.value: assignment.value
        for assignment in walk(node)
        if type(assignment) is cst.Assign and type(target := assignment.targets[0].target) is cst.Name
    }
    while over := [name for name in named if 0 < limited[name] == uses[name] - 1]:
        for name in over:
            terms = list(_terms(named.pop(name)))
            found += terms
            limited.update(n.value for n in terms if type(n) is cst.Name)
    return frozenset(n for n in found if type(n) is cst.BinaryOperation)


def _called(node: cst.Call) -> str:
    """The last name of what is called."""
    function = node.func.attr if type(node.func) is cst.Attribute else node.func
    return function.value if type(function) is cst.Name else ""


def _terms(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """An expression, and what its arithmetic is done on."""
    yield node
    if type(node) is cst.BinaryOperation:
        yield from _terms(node.left)
        yield from _terms(node.right)
    elif type(node) is cst.Call and _called(node) in ("max", "min"):
        for arg in node.args:
            yield from _terms(arg.value)


@lru_cache(maxsize=2048)
def is_argument(node: cst.BaseSuite, name: str) -> bool:
    """Whether something is called with a name."""
    return any(
        isinstance(inner, cst.Arg) and isinstance(inner.value, cst.Name) and inner.value.value == name
        for inner in walk(node)
    )


def _is_neighbour(node: cst.BaseExpression, names: set[str]) -> bool:
    """Whether an expression is the number before or after a count: who is given it picks by it."""
    return (
        isinstance(node, cst.BinaryOperation)
        and isinstance(node.operator, (cst.Add, cst.Subtract))
        and isinstance(node.left, cst.Name)
        and node.left.value in names
        and isinstance(node.right, cst.Integer)
    )


def calls_one_of(node: cst.BaseSuite, names: Set[str]) -> bool:
    """Whether a body calls what one of these names stands for: ``layer(x)``."""
    return any(
        type(inner) is cst.Call and type(inner.func) is cst.Name and inner.func.value in names
        for inner in walk(node)
    )


def iterates_devices(node: cst.For) -> bool:
    """Whether a loop uses its elements as devices, or waits with or for each: where streams matter there is one."""
    targets = names_in(node.target)
    for call in walk(node.body):
        if type(call) is not cst.Call:
            continue
        taker = _called(call)
        meant = [a.value for a in call.args[:1]] if taker in apis.DEVICE_TAKERS | apis.ORDERING else []
        if type(call.func) is cst.Attribute and taker in apis.ORDERING:
            meant.append(call.func.value)
        if any(type(value) is cst.Name and value.value in targets for value in meant):
            return True
    return False


def _slice_bounds(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The bounds of a slice, written ``a:b`` or ``slice(a, b)``."""
    if type(node) is cst.Slice:
        return [bound for bound in (node.lower, node.upper, node.step) if bound is not None]
    if type(node) is cst.Call and type(node.func) is cst.Name and node.func.value in ("slice", "range"):
        return [argument.value for argument in node.args]
    return []


@lru_cache(maxsize=2048)
def bounding(node: cst.CSTNode) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The names of numbers that bound slices in a piece of syntax, or from which such numbers are computed; those
    that are indices; and those from which indices are computed by arithmetic.
    """
    bounds: set[str] = set()
    indices: set[str] = set()
    operands: set[str] = set()
    assigned: list[tuple[cst.CSTNode, cst.BaseExpression]] = []
    for inner in walk(node):
        for bound in _slice_bounds(inner):
            bounds.update(_operands(bound))
        if type(inner) is cst.Index:
            indices.update(_operands(inner.value))
            operands.update(_arithmetic(inner.value))
        elif type(inner) is cst.Assign:
            assigned.extend((target.target, inner.value) for target in inner.targets)
        elif type(inner) is cst.AugAssign:
            assigned.append((inner.target, inner.value))
    for found in (bounds, indices):
        before = -1
        while found and before != len(found):
            before = len(found)
            for target, value in assigned:
                if type(target) is cst.Name and target.value in found:
                    found.update(_operands(value))
                    if found is indices:
                        operands.update(_arithmetic(value))
    return frozenset(bounds), frozenset(indices), frozenset(operands)


@lru_cache(maxsize=2048)
def bound_arithmetic(node: cst.CSTNode) -> frozenset[cst.CSTNode]:
    """The arithmetic of a function by which numbers are computed that bound slices."""
    names, _, _ = bounding(node)
    found: list[cst.BaseExpression] = []
    for inner in walk(node):
        found += _slice_bounds(inner)
        if type(inner) is cst.Assign and any(
            type(t.target) is cst.Name and t.target.value in names for t in inner.targets
        ):
            found.append(inner.value)
    return frozenset(n for value in found for n in _terms(value) if type(n) is cst.BinaryOperation)


def _arithmetic(node: cst.BaseExpression) -> Iterator[str]:
    """The names that a sum, a product or a remainder is made of; none of a name by itself."""
    if type(node) is cst.BinaryOperation and type(node.operator) in (
        cst.Add,
        cst.Subtract,
        cst.Multiply,
        cst.FloorDivide,
        cst.Modulo,
    ):
        yield from _operands(node)


def _operands(node: cst.BaseExpression) -> Iterator[str]:
    """The names that arithmetic is done on."""
    stack = [node]
    while stack:
        inner = stack.pop()
        if type(inner) is cst.Name:
            yield inner.value
        elif type(inner) is cst.BinaryOperation:
            stack += [inner.left, inner.right]
        elif type(inner) is cst.UnaryOperation:
            stack.append(inner.expression)
        elif (
            type(inner) is cst.Call
            and type(inner.func) is cst.Name
            and inner.func.value in ("min", "max", "int")
        ):
            stack += [argument.value for argument in inner.args]


@lru_cache(maxsize=2048)
def fills_gap(node: cst.If) -> bool:
    """Whether a branch makes what is not there yet: ``if x is None: x = ...``."""
    test: cst.BaseExpression = node.test
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
        if not (isinstance(operator, cst.Is) and isinstance(other, cst.Name) and other.value == "None"):
            return False
        test = test.left
    elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test = test.expression
    else:
        return False
    return isinstance(test, (cst.Name, cst.Attribute)) and any(
        same(target, test) for target in assigned(node.body)
    )


@lru_cache(maxsize=2048)
def looked_for(node: cst.CSTNode) -> frozenset[str]:
    """The names and attributes of which a function asks whether they are there: in a test, or prepared for none."""
    found: set[str] = set()
    for inner in walk(node):
        tested: cst.CSTNode | None = None
        if type(inner) is cst.If or type(inner) is cst.IfExp:
            tested = inner.test
        elif type(inner) is cst.Try:
            kinds = {getattr(handler.type, "value", None) for handler in inner.handlers}
            tested = inner.body if kinds == {"AttributeError"} else None
        for part in walk(tested) if tested is not None else ():
            if type(part) is cst.Attribute:
                found.add(part.attr.value)
            elif type(part) is cst.Name:
                found.add(part.value)
            elif type(part) is cst.SimpleString:
                found.add(part.raw_value)
    return frozenset(found)


def assigned(body: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Whatever some statement of a body assigns to."""
    for inner in walk(body):
        if isinstance(inner, cst.Assign):
            yield from (target.target for target in inner.targets)


def looks_up(node: cst.Try | cst.TryStar) -> bool:
    """Whether a block does nothing but look something up, and is prepared for its not being there alone."""
    kinds = {getattr(handler.type, "value", None) for handler in node.handlers}
    if kinds != {"KeyError"} or len(node.body.body) != 1:
        return False
    statement = node.body.body[0]
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement
    value = getattr(small, "value", None)
    return isinstance(value, cst.Subscript) and isinstance(value.value, (cst.Name, cst.Attribute))


def leading_waits(body: cst.BaseSuite) -> int:
    """How many statements at the head of a block only order: if these fail, the device is lost."""
    count = 0
    for statement in body.body:
        inner = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        if not inner or not all(
            isinstance(s, cst.Expr)
            and isinstance(s.value, cst.Call)
            and isinstance(s.value.func, cst.Attribute)
            and s.value.func.attr.value in _WAITS
            for s in inner
        ):
            break
        count += 1
    return count


_WAITS = frozenset("synchronize wait_stream wait_event record_event record_stream".split())


def targets(clause: cst.CompFor) -> tuple[str, ...]:
    """The names that a comprehension binds, each once."""
    inner = clause.inner_for_in
    known = isinstance(clause.target, (cst.Name, cst.Tuple, cst.List))
    names = sorted(names_in(clause.target)) if known else []
    return tuple(dict.fromkeys((*names, *(targets(inner) if inner is not None else ()))))


def sizes(node: cst.CSTNode) -> Iterator[str]:
    """The names among the numbers that a shape, or a count, is given by: ``zeros((n, 3))``, ``range(n)``."""
    for argument in node.args if isinstance(node, cst.Call) else ():
        shape = argument.value if argument.keyword is None else None
        parts = [e.value for e in shape.elements] if isinstance(shape, (cst.Tuple, cst.List)) else [shape]
        yield from (part.value for part in parts if isinstance(part, cst.Name))
