"""Which elements a kernel in CUDA C++ touches: its subscripts, worked out for one launch's grid, block and numbers.

Chunks of one array often differ by an argument (``kernel(array, offset)``), not by a view. The body is run once
with every number as a :class:`Span`, all values that any thread may have there. What is not understood (a cast, a
pointer that is handed on, a macro) leaves the array whole: a span may be too wide, never too narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import gcd
from typing import Any, NamedTuple, TypeAlias

from streamsafe.kernels.bodies import Node, assigned, names


class Span(NamedTuple):
    """Numbers: ``low``, ``low + step`` and so on up to ``high``; none when ``high`` is less than ``low``."""

    low: int
    high: int
    step: int = 1


class _Pointer(NamedTuple):
    """An address inside what a parameter points to."""

    parameter: str
    offset: Span | None


_Value: TypeAlias = "Span | _Pointer | None"
Spans: TypeAlias = "tuple[Span, ...] | None"
"""What is touched of one parameter, in elements; None: it may be all of it."""

_EMPTY = Span(1, 0)
_FAR = 1 << 62
_ZERO = Span(0, 0, 0)
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST = 4
"""How many spans of one parameter are kept apart."""


def _span(low: int, high: int, step: int) -> Span:
    """The numbers from ``low`` by ``step`` that are no more than ``high``, which is made one of them."""
    return Span(low, high - (high - low) % step if step and low <= high else high, step)


def _join(one: Span, other: Span) -> Span:
    if one.high < one.low or other.high < other.low:
        return other if one.high < one.low else one
    step = gcd(one.step, other.step, one.low - other.low)
    return Span(min(one.low, other.low), max(one.high, other.high), step)


def hull(spans: Iterable[Span]) -> Span:
    """Numbers among which all those of some spans are; none for no spans."""
    joined = _EMPTY
    for each in spans:
        joined = _join(joined, each)
    return joined


def _arithmetic(operator: str, a: Span, b: Span) -> Span | None:
    if a.high < a.low or b.high < b.low:
        return _EMPTY
    if operator == "+":
        return Span(a.low + b.low, a.high + b.high, gcd(a.step, b.step))
    if operator == "-":
        return Span(a.low - b.high, a.high - b.low, gcd(a.step, b.step))
    if operator == "<<" and b.low == b.high and 0 <= b.low < 63:
        operator, b = "*", Span(1 << b.low, 1 << b.low, 0)
    if operator == "*":
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        step = gcd(a.step * b.low, b.step * a.low, a.step * b.step)
        return Span(min(ends), max(ends), step)
    if a.low < 0 or b.low != b.high or b.low <= 0:
        return None
    by = b.low
    if operator == ">>":
        operator, by = "/", 1 << min(by, 63)
    if operator == "/":
        exact = a.low % by == 0 and a.step % by == 0
        return Span(a.low // by, a.high // by, a.step // by if exact else int(a.low // by != a.high // by))
    if operator == "%":
        return a if a.high < by else Span(0, by - 1)
    if operator == "&":
        return Span(0, min(a.high, by))
    return None


def _compared(operator: str, a: Span, b: Span) -> bool | None:
    """Whether every number of one stands so to every number of the other, or none does."""
    if operator in ("==", "!="):
        apart = a.high < b.low or b.high < a.low
        same = a.low == a.high == b.low == b.high
        return None if not apart and not same else same == (operator == "==")
    if operator in (">", "<="):
        a, b = b, a
    less = True if a.high < b.low else False if a.low >= b.high else None
    if operator in ("<=", ">="):
        return None if less is None else not less
    return less


def _truth(known: bool | None) -> Span:
    return Span(0, 1) if known is None else Span(int(known), int(known), 0)


def _decided(value: _Value) -> bool | None:
    """Whether a condition is true for every thread, or false for every thread."""
    if not isinstance(value, Span) or value.high < value.low:
        return None
    return _compared("!=", value, _ZERO)


class _Run:
    """One run through a body."""

    def __init__(self, numbers: Mapping[str, int], pointers: Sequence[str], body: Node) -> None:
        self.values: dict[str, _Value] = {name: Span(number, number, 0) for name, number in numbers.items()}
        self.values.update({name: _Pointer(name, _ZERO) for name in pointers})
        self.touched: dict[str, list[Span] | None] = {name: [] for name in pointers}
        self.used: set[str] = set()
        self.later: dict[str, Node] = {}
        self.bounds: dict[str, _Bounds] = {}
        self.loops = 0
        self.fixed = set(self.values)
        counts: dict[str, int] = {}
        for name in assigned(body):
            counts[name] = counts.get(name, 0) + 1
        self.fixed -= set(counts)
        self.once = {name for name, count in counts.items() if count == 1 and name not in self.values}

    # accesses

    def touch(self, pointer: _Pointer, index: _Value) -> None:
        spans = self.touched.get(pointer.parameter)
        if spans is None:
            return
        if not isinstance(index, Span) or pointer.offset is None:
            self.touched[pointer.parameter] = None
            return
        self.used.add(pointer.parameter)
        span = _arithmetic("+", pointer.offset, index)
        if span is None or span.high < span.low or span in spans:
            return
        spans.append(span)
        if len(spans) > _MOST:
            spans[:] = [hull(spans)]

    def escape(self, value: _Value) -> None:
        if isinstance(value, _Pointer):
            self.touched[value.parameter] = None

    # expressions

    def value(self, node: Node) -> _Value:
        kind = node[0]
        if kind == "number":
            return None if node[1] is None else Span(node[1], node[1], 0)
        if kind == "name":
            return self.named(node[1])
        if kind == "index":
            base, index = self.value(node[1]), self.value(node[2])
            if isinstance(base, _Pointer):
                self.touch(base, index)
            return None
        if kind == "unary":
            return self.unary(node[1], node[2])
        if kind == "call":
            return self.call(node[1], node[2])
        if kind == "member":
            self.escape(self.value(node[1]))
            return None
        if kind == "assign":
            return self.assign(node[1], node[2], node[3])
        if kind == "after":
            old = self.value(node[1][2])
            self.value(node[1])
            return old
        if kind == "choose":
            return self.either(node[1], node[2], node[3])
        if kind in ("&&", "||"):
            return self.both(kind == "&&", node[1], node[2])
        a, b = self.value(node[1]), self.value(node[2])
        if isinstance(a, _Pointer) or isinstance(b, _Pointer):
            if kind in ("+", "-") and isinstance(a, _Pointer) and not isinstance(b, _Pointer):
                offset = None if a.offset is None or b is None else _arithmetic(kind, a.offset, b)
                return _Pointer(a.parameter, offset)
            if kind == "+" and isinstance(b, _Pointer) and not isinstance(a, _Pointer):
                offset = None if b.offset is None or a is None else _arithmetic(kind, a, b.offset)
                return _Pointer(b.parameter, offset)
            self.escape(a)
            self.escape(b)
            return None
        if kind in _OPPOSITE:
            known = a is not None and b is not None and a.low <= a.high and b.low <= b.high
            return _truth(_compared(kind, a, b) if known else None)  # type: ignore[arg-type]
        return None if a is None or b is None else _arithmetic(kind, a, b)

    def named(self, name: str) -> _Value:
        node = self.later.get(name)
        value = self.values.get(name) if node is None else self.value(node)
        if name in self.bounds and isinstance(value, Span) and value.low <= value.high:
            low, high = self.bounds[name]
            step = value.step
            if low is not None and low > value.low:
                low = value.low - (value.low - low) // step * step if step else value.high + 1
                value = Span(low, value.high, step)
            if high is not None and high < value.high:
                value = _span(value.low, high, step)
            if value.low > value.high:
                return _EMPTY
        return value

    def unary(self, operator: str, node: Node) -> _Value:
        if operator == "&" and node[0] == "index":
            base, index = self.value(node[1]), self.value(node[2])
            if isinstance(base, _Pointer):
                known = isinstance(index, Span) and base.offset is not None
                return _Pointer(base.parameter, _arithmetic("+", base.offset, index) if known else None)  # type: ignore[arg-type]
            return None
        value = self.value(node)
        if operator == "*" and isinstance(value, _Pointer):
            self.touch(value, _ZERO)
            return None
        self.escape(value)
        if isinstance(value, Span):
            if operator == "-":
                return _arithmetic("-", _ZERO, value)
            if operator == "+":
                return value
            if operator == "!":
                decided = _decided(value)
                return _truth(None if decided is None else not decided)
        return None

    def call(self, name: str, arguments: list[Node]) -> _Value:
        values = [self.value(each) for each in arguments]
        element = name.startswith(("atomic", "__ldg", "__ldc", "__st"))
        for place, value in enumerate(values):
            if isinstance(value, _Pointer) and element and place == 0:
                self.touch(value, _ZERO)
            else:
                self.escape(value)
        if name in ("min", "max", "std::min", "std::max") and len(values) == 2:
            a, b = values
            if isinstance(a, Span) and isinstance(b, Span) and a.low <= a.high and b.low <= b.high:
                pick = min if name.endswith("min") else max
                low, high = pick(a.low, b.low), pick(a.high, b.high)
                return Span(low, high, int(low != high))
            return None
        if name in ("__mul24", "__umul24") and len(values) == 2:
            a, b = values
            return _arithmetic("*", a, b) if isinstance(a, Span) and isinstance(b, Span) else None
        return None

    def assign(self, operator: str, target: Node, node: Node) -> _Value:
        value = self.value(node)
        if target[0] != "name":
            self.value(target)
            self.escape(value)
            return None
        name = target[1]
        if self.loops and operator == "=" and isinstance(value, _Pointer):
            self.escape(value)  # what it is in the next iteration was decided before this one
        if operator != "=":
            value = self.value((operator[:-1], ("name", name), node))
        if name in self.values or name in self.later:
            self.later.pop(name, None)
            self.values[name] = value
            self.bounds.pop(name, None)
        else:
            self.escape(value)
        return value

    def both(self, all_of: bool, left: Node, right: Node) -> Span:
        """``&&``, or ``||``."""
        settles = not all_of
        first = _decided(self.value(left))
        if first is settles:
            self.leave_out(right)
            return _truth(settles)
        before = dict(self.bounds)
        self.narrow(left, all_of)
        second = _decided(self.value(right))
        self.bounds = before
        return _truth(second if second is settles or first is not None else None)

    def leave_out(self, node: Node) -> None:
        """No thread gets there: what is named there only is not touched."""
        self.used.update(name for name in names(node) if name in self.touched)

    def either(self, condition: Node, then: Node, other: Node) -> _Value:
        known = _decided(self.value(condition))
        if known is not None:
            self.leave_out(other if known else then)
            return self.value(then if known else other)
        before = dict(self.bounds)
        self.narrow(condition, True)
        a = self.value(then)
        self.bounds = dict(before)
        self.narrow(condition, False)
        b = self.value(other)
        self.bounds = before
        if isinstance(a, Span) and isinstance(b, Span):
            return _join(a, b)
        self.escape(a)
        self.escape(b)
        return None

    # conditions

    def narrow(self, node: Node, truth: bool) -> None:
        """What holds of the names in a condition where it is true, or false."""
        kind = node[0]
        if kind == "unary" and node[1] == "!":
            self.narrow(node[2], not truth)
        elif kind == "choose":
            known = _decided(self.value(node[1]))
            if known is not None:
                self.narrow(node[2] if known else node[3], truth)
        elif kind == ("&&" if truth else "||"):
            self.narrow(node[1], truth)
            self.narrow(node[2], truth)
        elif kind in ("&&", "||"):
            before = dict(self.bounds)
            self.narrow(node[1], truth)
            one, self.bounds = self.bounds, before
            self.narrow(node[2], truth)
            self.bounds = {name: _wider(one[name], two) for name, two in self.bounds.items() if name in one}
        elif kind in _OPPOSITE:
            relation = kind if truth else _OPPOSITE[kind]
            operators = {"==": ("<=", ">="), "!=": ()}.get(relation, (relation,))
            for operator in operators:
                self.limit(node[1], operator, node[2])
                self.limit(node[2], _TURNED[operator], node[1])

    def limit(self, node: Node, operator: str, than: Node) -> None:
        if any(not name for name in names(than)) or any(not name for name in names(node)):
            return
        value = self.value(than)
        if isinstance(value, Span) and value.low <= value.high:
            if operator.startswith("<"):
                self.bound(node, None, value.high - (operator == "<"))
            else:
                self.bound(node, value.low + (operator == ">"), None)

    def bound(self, node: Node, low: int | None, high: int | None) -> None:
        if node[0] == "name":
            name = node[1]
            old_low, old_high = self.bounds.get(name, (None, None))
            self.bounds[name] = (
                old_low if low is None else low if old_low is None else max(low, old_low),
                old_high if high is None else high if old_high is None else min(high, old_high),
            )
            if name in self.later:
                self.bound(self.later[name], low, high)
        elif node[0] in ("+", "-"):
            one, two = (self.value(each) for each in node[1:])
            sign = 1 if node[0] == "+" else -1
            if isinstance(two, Span) and two.low == two.high:
                by = -sign * two.low
                self.bound(node[1], None if low is None else low + by, None if high is None else high + by)
            if isinstance(one, Span) and one.low == one.high:
                ends = [None if end is None else sign * (end - one.low) for end in (low, high)]
                self.bound(node[2], *(ends if sign > 0 else reversed(ends)))

    # statements

    def run(self, node: Node) -> bool:
        """Whether what comes after it is reached."""
        kind = node[0]
        if kind == "several":
            return all(self.run(each) for each in node[1])
        if kind == "block":
            with self.scope(node[1]):
                return all(self.run(each) for each in node[1])
        if kind == "expression":
            self.value(node[1])
        elif kind == "declare":
            self.declare(node[1], node[2], node[3])
        elif kind == "if":
            return self.branch(node[1], node[2], node[3])
        elif kind == "for":
            with self.scope([node[1]]):
                self.run(node[1])
                self.loop(node[2], ("block", [node[4], *(("expression", each) for each in node[3])]))
        elif kind == "while":
            self.loop(node[1], node[2])
        elif kind == "leave":
            if node[2] is not None:
                self.escape(self.value(node[2]))
            return False
        return True

    @contextmanager
    def scope(self, statements: list[Node]) -> Iterator[None]:
        """Names that are declared inside hide those outside for as long."""
        hidden = {}
        for statement in statements:
            for each in statement[1] if statement[0] == "several" else [statement]:
                if each[0] == "declare":
                    hidden[each[1]] = self.values.get(each[1], _EMPTY), self.later.get(each[1])
        yield
        for name, (value, node) in hidden.items():
            self.later.pop(name, None)
            self.bounds.pop(name, None)
            if node is not None:
                self.later[name] = node
            if value is _EMPTY:
                self.values.pop(name, None)
            else:
                self.values[name] = value

    def declare(self, name: str, integer: bool, node: Node | None) -> None:
        self.bounds.pop(name, None)
        self.later.pop(name, None)
        value = None if node is None else self.value(node)
        if not integer:
            self.escape(value)
            value = None
        self.values[name] = value
        if node is None or not integer or name not in self.once or isinstance(value, _Pointer):
            return
        if all(used in self.fixed for used in names(node)):
            self.later[name] = node
            self.fixed.add(name)

    def branch(self, condition: Node, then: Node, other: Node) -> bool:
        known = _decided(self.value(condition))
        if known is not None:
            self.leave_out(other if known else then)
            return self.run(then if known else other)
        bounds, values = dict(self.bounds), dict(self.values)
        self.narrow(condition, True)
        reached = self.run(then)
        after, self.values, self.bounds = self.values, values, dict(bounds)
        self.narrow(condition, False)
        also = self.run(other)
        if reached and also:
            self.bounds = bounds
            for name in {**after, **self.values}:
                one, two = after.get(name), self.values.get(name)
                if one == two:
                    continue
                if isinstance(one, Span) and isinstance(two, Span):
                    self.values[name] = _join(one, two)
                else:
                    self.escape(one)
                    self.escape(two)
                    self.values[name] = None
                self.bounds.pop(name, None)
        elif reached:
            self.values, self.bounds = after, bounds
            self.narrow(condition, True)
        return reached or also

    def loop(self, condition: Node, body: Node) -> None:
        """A loop's body once, for all its rounds: what it changes is unknown, but for what only grows or shrinks."""
        changes: dict[str, list[Node]] = {}
        for each in _changes(body):
            changes.setdefault(each[2][1], []).append(each)
        inside = set(assigned(body))
        outer = dict(self.bounds)
        for name, nodes in changes.items():
            before = self.named(name)
            if isinstance(before, _Pointer):
                self.values[name] = _Pointer(before.parameter, None)
                continue
            self.later.pop(name, None)
            self.bounds.pop(name, None)
            self.values[name] = None
            signs = {each[1] for each in nodes}
            if isinstance(before, Span) and before.low <= before.high and len(signs) == 1:
                steps = [self._step(each[3], inside) for each in nodes]
                if all(steps):
                    step = gcd(
                        before.step, *(part for each in steps if each for part in (each.low, each.step))
                    )
                    if signs == {"+="}:
                        self.values[name] = _span(before.low, _FAR, step)
                    elif signs == {"-="}:
                        self.values[name] = Span(-_FAR, before.high, 1)
        kept = dict(self.values)
        self.value(condition)
        self.narrow(condition, True)
        self.loops += 1
        self.run(body)
        self.loops -= 1
        self.bounds = outer
        for name in changes:
            self.values[name] = kept[name] if isinstance(kept.get(name), _Pointer) else None
        for name in kept:
            if name not in changes and self.values.get(name) != kept[name]:
                self.values[name] = None
        for name in changes:
            self.bounds.pop(name, None)

    def _step(self, node: Node, changes: set[str]) -> Span | None:
        """By how much a name grows or shrinks in a round, when that is no less than zero and always the same."""
        if any(not name or name in changes for name in names(node)):
            return None
        step = self.value(node)
        return step if isinstance(step, Span) and 0 <= step.low <= step.high else None


_Bounds: TypeAlias = "tuple[int | None, int | None]"


def _wider(one: _Bounds, two: _Bounds) -> _Bounds:
    """What holds when the one or the other does."""
    low = None if one[0] is None or two[0] is None else min(one[0], two[0])
    high = None if one[1] is None or two[1] is None else max(one[1], two[1])
    return low, high


def _changes(node: Any) -> Iterator[Node]:
    if isinstance(node, tuple):
        if node and node[0] == "assign" and node[2][0] == "name":
            yield node
        for part in node:
            yield from _changes(part)
    elif isinstance(node, list):
        for part in node:
            yield from _changes(part)


def spans(
    body: Node,
    numbers: Mapping[str, int],
    pointers: Sequence[str],
    grid: tuple[int, ...],
    block: tuple[int, ...],
) -> dict[str, Spans]:
    """What one launch touches of each pointer.

    Args:
        body: as :func:`read` gives it.
        numbers: the values of the integer parameters; :data:`SIZE` among them for a generated kernel.
        pointers: the parameters that stand for memory.
        grid, block: of the launch.
    """
    run = _Run(numbers, pointers, body)
    known: dict[str, _Value] = {"warpSize": Span(32, 32, 0)}
    for axis, blocks, threads in zip("xyz", (*grid, 1, 1)[:3], (*block, 1, 1)[:3], strict=True):
        known[f"blockIdx.{axis}"] = Span(0, blocks - 1, int(blocks > 1))
        known[f"threadIdx.{axis}"] = Span(0, threads - 1, int(threads > 1))
        known[f"gridDim.{axis}"] = Span(blocks, blocks, 0)
        known[f"blockDim.{axis}"] = Span(threads, threads, 0)
    run.values.update(known)
    run.fixed |= set(known)
    try:
        run.run(body)
    except RecursionError:
        return {}
    return {
        name: None if found is None or name not in run.used else tuple(found)
        for name, found in run.touched.items()
    }
