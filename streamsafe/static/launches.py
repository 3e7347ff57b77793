"""Which elements a raw kernel's launch touches, where its numbers are known by how they are computed.

:mod:`streamsafe.kernels.elements` works it out for numbers. Here some are forms: the bounds are asked for at some
points, and taken to be sums of the numbers where they are at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from streamsafe.kernels.bodies import read
from streamsafe.kernels.elements import Span, hull, spans
from streamsafe.kernels.signatures import Signature
from streamsafe.static import numbers
from streamsafe.static.numbers import Bounds, Form

Shape = tuple[int, ...]
_ANY: Shape = (1 << 31, 1 << 16, 1 << 16)
"""A grid of which nothing is known."""
_FULL: Shape = (1024, 1024, 64)
_NEAR = 1 << 60
"""What lies beyond is bounded by nothing in the kernel."""
_STEPS = ((0,), (1,), (2, 0, 1), (0, 3, 1), (5, 1), (64, 4096, 7), (4096, 64, 1), (100_000, 3), (3, 100_000))
"""Where the bounds are looked at: the numbers in turn are these. A size may be 0, small, or larger than an offset."""


def reached(
    known: Signature, given: Sequence[Form | None], grid: Shape | None, block: Shape | None
) -> dict[str, range | Bounds]:
    """The elements of each pointer that a launch touches; a pointer that is missing may be touched anywhere.

    Args:
        known: the kernel.
        given: its arguments, in order; None for what is no known number.
        grid, block: of the launch, None where they are not known.
    """
    forms = {
        parameter.name: form
        for parameter, form in zip(known.parameters, given, strict=False)
        if form is not None and parameter.direction == "value"
    }
    fixed = {name: value for name, form in forms.items() if (value := form.constant()) is not None}
    free = {name: form for name, form in forms.items() if name not in fixed}
    if not forms or not known.body:
        return {}
    pointers = tuple(parameter.name for parameter in known.parameters if parameter.itemsize)
    found: dict[str, range | Bounds] = {}
    for shape in dict.fromkeys([(grid or _ANY, block or _FULL), (_ANY, block or _FULL)]):
        bounds = _bounds(known.body, pointers, tuple(sorted(fixed.items())), tuple(free), *shape)
        for name, (low, high, step) in bounds.items():
            if name not in found or _open(found[name]):
                picked = _picked(low, high, step, list(free.values()))
                if picked is not None:
                    found[name] = picked
    return found


def _open(picked: range | Bounds) -> bool:
    return isinstance(picked, Bounds) and picked.stop is None


def _picked(
    low: tuple[int, ...], high: tuple[int, ...] | None, step: int, forms: list[Form]
) -> range | Bounds | None:
    if high is not None and not any(low[1:]) and not any(high[1:]):
        start = low[0] if low[0] >= 0 else low[0] % step if step else 0
        return range(start, high[0] + 1, step or 1)
    start_form = _sum(low, forms)
    if start_form is None:
        return None
    stop = None if high is None else _sum(high, forms)
    return Bounds(start_form, None if stop is None else stop + numbers.ONE, step)


def _sum(factors: tuple[int, ...], forms: Iterable[Form]) -> Form | None:
    result = numbers.number(factors[0])
    for factor, form in zip(factors[1:], forms, strict=True):
        result = result + numbers.number(factor) * form
    return result.fits()


@lru_cache(maxsize=256)
def _bounds(
    body: str,
    pointers: tuple[str, ...],
    fixed: tuple[tuple[str, int], ...],
    free: tuple[str, ...],
    grid: Shape,
    block: Shape,
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...] | None, int]]:
    """For each pointer its lowest and highest element, as a constant and a factor for each free number; the step."""
    node = read(body)
    if node is None:
        return {}

    def at(point: Sequence[int]) -> Mapping[str, Span | None]:
        named = {**dict(fixed), **dict(zip(free, point, strict=True))}
        return {
            name: None if each is None else hull(each)
            for name, each in spans(node, named, pointers, grid, block).items()
        }

    middle = [1000 + 17 * place for place in range(len(free))]
    beside = [[n + (place == other) for other, n in enumerate(middle)] for place in range(len(free))]
    others = [[steps[place % len(steps)] for place in range(len(free))] for steps in _STEPS if free]
    seen = [(point, at(point)) for point in (middle, *beside, *others)]
    found = {}
    for name in pointers:
        there = [(point, span) for point, each in seen for span in [each.get(name)]]
        if any(span is None for _, span in there) or there[0][1].high < there[0][1].low:  # type: ignore[union-attr]
            continue
        known = [(point, span) for point, span in there if span is not None and span.low <= span.high]
        steps = {span.step for _, span in known if span.low < span.high}
        low = _linear(known, lambda span: span.low, len(free))
        if low is None or len(known) < len(free) + 1 or len(steps) > 1:
            continue
        high = _linear(known, lambda span: span.high, len(free))
        far = any(span.high >= _NEAR for _, span in known)
        found[name] = (low, None if far else high, steps.pop() if steps else 0)
    return found


def _linear(
    known: Sequence[tuple[Sequence[int], Span]], end: Callable[[Span], int], count: int
) -> tuple[int, ...] | None:
    """An end as a sum of the numbers; None where it is none at some point."""
    (middle, first), *rest = known
    if len(rest) < count:
        return None
    factors = [end(span) - end(first) for _, span in rest[:count]]
    constant = end(first) - sum(f * n for f, n in zip(factors, middle, strict=True))
    for point, span in rest[count:]:
        if end(span) != constant + sum(f * n for f, n in zip(factors, point, strict=True)):
            return None
    return (constant, *factors)
