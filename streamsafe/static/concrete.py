"""Walks over concrete syntax that skip what is only layout, and what is asked of a piece again and again."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence, Set
from functools import lru_cache

import libcst as cst

from streamsafe.static import apis
from streamsafe.static.nodes import FIELDS

_ORDERS = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)
_INNER: dict[type[cst.CSTNode], tuple[str, ...]] = {
    kind: tuple(reversed(fields)) for kind, fields in FIELDS.items()
}


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


def walks_devices(node: cst.For) -> bool:
    """Whether a loop takes what it walks as devices, or waits with or for each: where streams matter there is one."""
    walked = names_in(node.target)
    for call in walk(node.body):
        if type(call) is not cst.Call:
            continue
        taker = _called(call)
        meant = [a.value for a in call.args[:1]] if taker in apis.DEVICE_TAKERS | apis.ORDERING else []
        if type(call.func) is cst.Attribute and taker in apis.ORDERING:
            meant.append(call.func.value)
        if any(type(value) is cst.Name and value.value in walked for value in meant):
            return True
    return False


@lru_cache(maxsize=2048)
def maps_elements(node: cst.For) -> bool:
    """Whether all that a loop does is to put under each key what is made of the element there: as a comprehension does.

    ``for k, v in batch.items(): batch[k] = v.to(device)``: no round touches what another one does.
    """
    return any(type(inner) is cst.Assign for inner in walk(node.body)) and _maps(
        node.body.body, names_in(node.target)
    )


def _maps(statements: Sequence[cst.CSTNode], met: frozenset[str]) -> bool:
    """Whether every statement makes something of what this round has met, in the place of that."""
    for statement in statements:
        if isinstance(statement, (cst.SimpleStatementLine, cst.Else)):
            inner = statement.body if isinstance(statement, cst.SimpleStatementLine) else statement.body.body
            if not _maps(inner, met):
                return False
        elif isinstance(statement, cst.If):
            otherwise = [statement.orelse] if statement.orelse is not None else []
            if not _maps([*statement.body.body, *otherwise], met):
                return False
        elif isinstance(statement, cst.Assign):
            if not all(_is_place(t.target, met) for t in statement.targets) or not _of(statement.value, met):
                return False
        elif isinstance(statement, cst.Expr):
            if not (isinstance(statement.value, cst.Call) and _of(statement.value, met)):
                return False
        elif not isinstance(statement, (cst.Pass, cst.Continue)):
            return False
    return True


def _is_place(node: cst.BaseExpression, met: frozenset[str]) -> bool:
    """Whether an expression is the element under a key that a round has met."""
    index = node.slice[0].slice if type(node) is cst.Subscript and len(node.slice) == 1 else None
    return type(index) is cst.Index and type(index.value) is cst.Name and index.value.value in met


def _of(value: cst.BaseExpression, met: frozenset[str]) -> bool:
    """Whether all calls of an expression are those of methods of what a round has met."""
    inner = {name for n in walk(value) if type(n) is cst.CompFor for name in names_in(n.target)}
    for call in walk(value):
        if type(call) is not cst.Call:
            continue
        root: cst.BaseExpression = call.func
        while type(root) is cst.Attribute or type(root) is cst.Call:
            root = root.value if type(root) is cst.Attribute else root.func  # type: ignore[union-attr]
        own = type(root) is cst.Name and root.value in met | inner
        if root is call.func or not (own or _is_place(root, met)):
            return False
    return True


@lru_cache(maxsize=2048)
def drops_gradients(node: cst.BaseSuite) -> bool:
    """Whether a body sets gradients to None: ``p.grad = None``."""
    return any(
        type(inner) is cst.Assign
        and type(inner.value) is cst.Name
        and inner.value.value == "None"
        and any(type(t.target) is cst.Attribute and t.target.attr.value == "grad" for t in inner.targets)
        for inner in walk(node)
    )


@lru_cache(maxsize=2048)
def notes_failure(node: cst.ExceptHandler | cst.ExceptStarHandler) -> bool:
    """Whether a handler writes down what has happened, and goes on: ``result.error = e``."""
    statements = [
        s
        for line in node.body.body
        for s in (getattr(line, "body", ()) if type(line) is cst.SimpleStatementLine else (line,))
    ]
    return any(type(s) is cst.Assign for s in statements) and not isinstance(
        statements[-1], (cst.Raise, cst.Return, cst.Break, cst.Continue)
    )


@lru_cache(maxsize=2048)
def takes_turns(node: cst.BaseSuite) -> bool:
    """Whether an index of a body is computed anew from itself alone, as in ``slot = 1 - slot``."""
    turning = set()
    for inner in walk(node):
        if type(inner) is cst.Assign and len(inner.targets) == 1:
            target, value = inner.targets[0].target, inner.value
            if type(target) is cst.Name and names_in(value) == {target.value} and target is not value:
                turning.add(target.value)
        elif type(inner) is cst.AugAssign and type(inner.target) is cst.Name:
            if not names_in(inner.value) and isinstance(inner.operator, (cst.BitXorAssign, cst.ModuloAssign)):
                turning.add(inner.target.value)
    return bool(turning) and any(
        not turning.isdisjoint(names_in(element))
        for inner in walk(node)
        if type(inner) is cst.Subscript
        for element in inner.slice
    )


def _slice_bounds(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The bounds of a slice, written ``a:b`` or ``slice(a, b)``."""
    if type(node) is cst.Slice:
        return [bound for bound in (node.lower, node.upper, node.step) if bound is not None]
    if type(node) is cst.Call and type(node.func) is cst.Name and node.func.value in ("slice", "range"):
        return [argument.value for argument in node.args]
    return []


@lru_cache(maxsize=2048)
def bounding(node: cst.CSTNode) -> tuple[frozenset[str], frozenset[str]]:
    """The names of numbers that bound slices in a piece of syntax, or from which such numbers are computed; and those
    that are indices.
    """
    bounds: set[str] = set()
    indices: set[str] = set()
    assigned: list[tuple[cst.CSTNode, cst.BaseExpression]] = []
    for inner in walk(node):
        for bound in _slice_bounds(inner):
            bounds.update(_operands(bound))
        if type(inner) is cst.Index:
            indices.update(_operands(inner.value))
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
    return frozenset(bounds), frozenset(indices)


@lru_cache(maxsize=2048)
def bound_arithmetic(node: cst.CSTNode) -> frozenset[cst.CSTNode]:
    """The arithmetic of a function by which numbers are computed that bound slices."""
    names, _ = bounding(node)
    found: list[cst.BaseExpression] = []
    for inner in walk(node):
        found += _slice_bounds(inner)
        if type(inner) is cst.Assign and any(
            type(t.target) is cst.Name and t.target.value in names for t in inner.targets
        ):
            found.append(inner.value)
    return frozenset(n for value in found for n in _terms(value) if type(n) is cst.BinaryOperation)


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
def accumulated(node: cst.CSTNode) -> tuple[cst.AugAssign, ...]:
    """Where a body adds to a name that it assigns in no other way."""
    added: dict[str, list[cst.AugAssign]] = {}
    others: set[str] = set()
    for inner in walk(node):
        if type(inner) is cst.AugAssign and type(inner.target) is cst.Name:
            if type(inner.operator) is cst.AddAssign:
                added.setdefault(inner.target.value, []).append(inner)
            else:
                others.add(inner.target.value)
        elif type(inner) in (cst.AssignTarget, cst.AnnAssign, cst.NamedExpr, cst.For, cst.CompFor):
            others |= names_in(inner.target)  # type: ignore[attr-defined]
    return tuple(places[0] for name, places in added.items() if name not in others)


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
        asked: cst.CSTNode | None = None
        if type(inner) is cst.If or type(inner) is cst.IfExp:
            asked = inner.test
        elif type(inner) is cst.Try:
            kinds = {getattr(handler.type, "value", None) for handler in inner.handlers}
            asked = inner.body if kinds == {"AttributeError"} else None
        for part in walk(asked) if asked is not None else ():
            if type(part) is cst.Attribute:
                found.add(part.attr.value)
            elif type(part) is cst.Name:
                found.add(part.value)
            elif type(part) is cst.SimpleString:
                found.add(part.raw_value)
    return frozenset(found)


_TEXT_METHODS = frozenset(
    """strip lstrip rstrip lower upper title capitalize casefold startswith endswith splitlines encode isdigit isalpha
    isspace removeprefix removesuffix rsplit zfill""".split()
)
"""Methods that texts have and no tensor."""
_PLAIN_TYPES = frozenset(("str", "int", "float"))
_HOLDERS = frozenset("list List tuple Tuple Sequence Optional".split())


@lru_cache(maxsize=2048)
def text_calls(node: cst.CSTNode) -> frozenset[int]:
    """The calls in a function whose results are texts or numbers: by an annotation, or as they are used."""
    returns = getattr(node, "returns", None)
    answers = returns is not None and _is_plain_type(returns.annotation)
    inside = list(walk(node))
    names: set[str] = set()
    found: set[int] = set()
    for inner in inside:
        used = (
            _behind(inner.value)
            if answers and isinstance(inner, cst.Return) and inner.value
            else _as_text(inner)
        )
        if isinstance(used, str):
            names.add(used)
        elif used is not None:
            found.add(id(used))
    copied = {
        inner.targets[0].target.value: inner.value.value
        for inner in inside
        if isinstance(inner, cst.Assign) and isinstance(inner.value, cst.Name)
        if isinstance(inner.targets[0].target, cst.Name)
    }
    while more := {source for name, source in copied.items() if name in names} - names:
        names |= more
    for inner in inside if names else ():
        targets = [t.target for t in inner.targets] if isinstance(inner, cst.Assign) else []
        if isinstance(inner, cst.AnnAssign):
            targets = [inner.target]
        for target in targets:
            if isinstance(target, cst.Name) and target.value in names:
                found.add(id(inner.value))  # type: ignore[attr-defined]
    return frozenset(found)


def _as_text(node: cst.CSTNode) -> str | cst.Call | None:
    """What is used as a text, or annotated as one or as a number: a name, or a call."""
    if type(node) is cst.AnnAssign:
        return _behind(node.target) if _is_plain_type(node.annotation.annotation) else None
    if type(node) is not cst.Call or type(node.func) is not cst.Attribute:
        return None
    word = node.func.attr.value
    worded = all(isinstance(a.value, cst.SimpleString) for a in node.args)
    if word in _TEXT_METHODS or (word in ("split", "replace") and worded):
        return _behind(node.func.value)
    return None


def _is_plain_type(node: cst.BaseExpression) -> bool:
    """Whether an annotation says that something is a text or a number, or a list of them."""
    if isinstance(node, cst.Name):
        return node.value in _PLAIN_TYPES
    if isinstance(node, cst.BinaryOperation):
        sides = [side for side in (node.left, node.right) if getattr(side, "value", "") != "None"]
        return bool(sides) and all(map(_is_plain_type, sides))
    if not isinstance(node, cst.Subscript):
        return False
    holder = node.value.attr if isinstance(node.value, cst.Attribute) else node.value
    inner = [e.slice.value for e in node.slice if isinstance(e.slice, cst.Index)]
    inner = [e for e in inner if not isinstance(e, cst.Ellipsis)]
    return getattr(holder, "value", "") in _HOLDERS and bool(inner) and all(map(_is_plain_type, inner))


def _behind(node: cst.BaseExpression) -> str | cst.Call | None:
    """The name or the call of which something is a part."""
    while isinstance(node, cst.Subscript):
        node = node.value
    return node.value if isinstance(node, cst.Name) else node if isinstance(node, cst.Call) else None


def fills_place(node: cst.If) -> cst.BaseExpression | None:
    """The key of an element that a branch makes where there is none yet: ``if key not in d: d[key] = ...``."""
    for test in _required(node.test):
        if not (isinstance(test, cst.Comparison) and len(test.comparisons) == 1):
            continue
        operator, holder = test.comparisons[0].operator, test.comparisons[0].comparator
        for target in assigned(node.body) if isinstance(operator, cst.NotIn) else ():
            if not (isinstance(target, cst.Subscript) and same(target.value, holder)):
                continue
            index = target.slice[0].slice
            if len(target.slice) == 1 and isinstance(index, cst.Index) and same(index.value, test.left):
                return test.left
    return None


def _required(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What has to hold, all of it, for a test to hold."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _required(test.left)
        yield from _required(test.right)
    else:
        yield test


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


def brings_to_device(body: cst.BaseSuite) -> bool:
    """Whether a block takes something to the device and begins what does not wait for it there."""
    calls = [inner for inner in walk(body) if type(inner) is cst.Call]
    brings = any(type(call.func) is cst.Attribute and call.func.attr.value == "cuda" for call in calls)
    return brings and any(
        a.keyword is not None and a.keyword.value == "async_op" and names_in(a.value) != {"False"}
        for call in calls
        for a in call.args
    )


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


@lru_cache(maxsize=2048)
def waits_once_round(node: cst.If, function: cst.CSTNode) -> bool:
    """Whether a branch does nothing but wait, and is taken once a count has gone round what it picks a slot of.

    Before that, the slots are fresh: ``if n >= depth: done[n % depth].synchronize()``.
    """
    test = node.test
    if node.orelse is not None or not isinstance(node.body, cst.IndentedBlock):
        return False
    if leading_waits(node.body) < len(node.body.body) or type(test) is not cst.Comparison:
        return False
    count, slots = _spelled(test.left), _spelled(test.comparisons[0].comparator)
    if len(test.comparisons) > 1 or type(test.comparisons[0].operator) is not cst.GreaterThanEqual:
        return False
    return bool(count and slots) and any(
        type(inner) is cst.BinaryOperation
        and type(inner.operator) is cst.Modulo
        and (_spelled(inner.left), _spelled(inner.right)) == (count, slots)
        for inner in walk(function)
    )


def _spelled(node: cst.BaseExpression) -> str:
    """A name, an attribute, a number or a length as it is written; nothing for anything else."""
    if isinstance(node, (cst.Name, cst.Integer)):
        return node.value
    if isinstance(node, cst.Attribute):
        owner = _spelled(node.value)
        return f"{owner}.{node.attr.value}" if owner else ""
    if (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value == "len"
        and node.args
    ):
        counted = _spelled(node.args[0].value)
        return f"len({counted})" if counted else ""
    return ""


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


def asks_kind_if_there(node: cst.BooleanOperation) -> bool:
    """Whether this is ``device is not None and device.type == "cuda"``: one question for the kind of a device."""
    subject, asked = node.left, node.right
    if type(subject) is cst.Comparison and len(subject.comparisons) == 1:
        target = subject.comparisons[0]
        none = type(target.comparator) is cst.Name and target.comparator.value == "None"
        if not (none and type(target.operator) in (cst.IsNot, cst.NotEqual)):
            return False
        subject = subject.left
    if type(subject) is not cst.Name or type(asked) is not cst.Comparison:
        return False
    of = asked.left
    if type(of) is not cst.Attribute or type(of.value) is not cst.Name or of.value.value != subject.value:
        return False
    return of.attr.value == "type" and type(asked.comparisons[0].operator) is cst.Equal
