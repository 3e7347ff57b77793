"""Whether two parts of one block overlap, where indices and bounds may be unknown numbers.

A part is None (the whole block) or a tuple of steps, one a dimension, the outermost first:

* ``("i", index)``: one index;
* ``("s", low, high)`` or ``("s", low, high, step)``: a slice;
* ``("f", low, high, step)``: elements in the order of memory;
* ``("u", ...)``: a part that is not known.

A number is an int, a linear term ``("lin", ((unknown, factor), ...), constant)``, or any other hashable, which stands
for one unknown. Unknown bounds are sizes: they are positive.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

Part = Any
Answer = Literal["yes", "no", "unknown"]
ENDLESS = 1 << 60


def overlap(a: Part, b: Part) -> Answer:
    """Whether two parts of a block overlap."""
    if a is None or b is None or a == b:
        return "yes"
    found: Answer = "yes"
    for x, y in zip(a, b):  # noqa: B905 - the longer one only narrows the part further
        answer = _steps(x, y)
        if answer == "no":
            return "no"
        if answer == "unknown":
            found = "unknown"
            if x[0] != y[0]:
                break  # the steps after it are of different dimensions
    return found


def _sign(a: Hashable, b: Hashable) -> int | None:
    """The sign of a - b; unknown numbers are positive, as sizes are. None: it is not known."""
    p, q = _linear(a), _linear(b)
    if p is None or q is None:
        return None
    rest = {key: n for key in {*p[0], *q[0]} if (n := p[0].get(key, 0) - q[0].get(key, 0))}
    constant = p[1] - q[1]
    if not rest:
        return (constant > 0) - (constant < 0)
    if all(n > 0 for n in rest.values()) and constant >= 0:
        return 1
    if all(n < 0 for n in rest.values()) and constant <= 0:
        return -1
    return None


def _linear(number: Any) -> tuple[dict[Hashable, int], int] | None:
    """A number as a linear term: the factor of each unknown, and a constant."""
    if isinstance(number, int):
        return {}, number
    if isinstance(number, tuple) and number and number[0] == "lin":
        return dict(number[1]), number[2]
    if isinstance(number, tuple):
        return {number: 1}, 0
    return None


def _meet(a: Hashable, b: Hashable, c: Hashable, d: Hashable) -> Answer:
    """Whether the slices a:b and c:d overlap."""
    first = 1 if b is None else _sign(b, c or 0)  # the first ends after the second begins
    second = 1 if d is None else _sign(d, a or 0)
    if (first is not None and first <= 0) or (second is not None and second <= 0):
        return "no"
    return "yes" if first == 1 and second == 1 else "unknown"


def _steps(x: Any, y: Any) -> Answer:
    if x == y:
        return "yes"
    kinds = x[0], y[0]
    if kinds == ("f", "f"):
        return _elements(x, y)
    if kinds == ("i", "i"):
        return _indices(x[1], y[1])
    if kinds == ("s", "s"):
        return _slices(x, y)
    if set(kinds) == {"i", "s"}:
        return _index_in_slice(*((x, y) if x[0] == "i" else (y, x)))
    return "unknown"


def _elements(x: Any, y: Any) -> Answer:
    """Whether two ranges of elements overlap. Each is: first, end, and distance between elements."""
    (_, a, b, step), (_, c, d, other) = x, y
    if max(a, c) >= min(b, d):
        return "no"
    if step > 1 and step == other and (a - c) % step:
        return "no"
    return "yes"


def _indices(a: Hashable, b: Hashable) -> Answer:
    """Whether two indices name one element. One that counts from the end may name any."""
    if isinstance(a, int) and isinstance(b, int):
        return "no" if (a >= 0) == (b >= 0) else "unknown"
    p, q = _linear(a), _linear(b)
    if p is None or q is None or p[0] != q[0]:
        return "unknown"
    return "no" if p[1] != q[1] else "yes"


def _slices(x: Any, y: Any) -> Answer:
    (a, b), (c, d) = x[1:3], y[1:3]
    if x[3:] == y[3:] != () and isinstance(a, int | None) and isinstance(c, int | None):
        if ((a or 0) - (c or 0)) % x[3]:
            return "no"  # equal steps that start at different remainders
    if a in (None, 0) and c in (None, 0):
        return "yes"  # both from the start
    if b == d and isinstance(a, int | None) and isinstance(c, int | None):
        return "yes"  # both to the same end
    if (None not in (b, c) and b == c) or (None not in (d, a) and d == a):
        return "no"
    if a in (None, 0, 1) and c in (None, 0, 1) and not isinstance(b, int) and not isinstance(d, int):
        return "yes"
    if all(isinstance(v, int | None) for v in (a, b, c, d)):
        low, high = a or 0, ENDLESS if b is None else b
        other, end = c or 0, ENDLESS if d is None else d
        if min(low, high, other, end) >= 0:
            return "yes" if max(low, other) < min(high, end) else "no"
    if not any(_from_the_end(v) for v in (a, b, c, d)):
        return _meet(a, b, c, d)
    return "unknown"


def _from_the_end(bound: Any) -> bool:
    """Whether a bound may be negative: then it counts from the end."""
    if isinstance(bound, int):
        return bound < 0
    return isinstance(bound, tuple) and bound[0] == "lin" and any(n < 0 for _, n in bound[1])


def _index_in_slice(index: Any, piece: Any) -> Answer:
    if piece[1] in (None, 0) and piece[2] is None:
        return "yes"
    at = index[1]
    if isinstance(at, int) and at >= 0 and all(isinstance(v, int | None) for v in piece[1:3]):
        end = ENDLESS if piece[2] is None else piece[2]
        return "yes" if (piece[1] or 0) <= at < end else "no"
    return "unknown"
