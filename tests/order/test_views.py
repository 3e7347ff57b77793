"""Strided views: exact against sets of bytes, with NumPy and without, and honest when it is too much work."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsafe.order import views
from streamsafe.order.checker import Checker
from streamsafe.order.memory import Region, Use, pieces
from streamsafe.order.views import View, normalize, overlap, touches

BASE = 5000
many = settings(max_examples=3 * settings().max_examples)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Region, frozenset[int]]:
    """Any array: broadcast, reversed, transposed, overlapping itself; with the bytes it occupies."""
    itemsize = draw(st.sampled_from([1, 2, 4]))
    dims = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), max_size=3))
    shape, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    offsets = [0]
    for number, stride in dims:
        offsets = [offset + i * stride for offset in offsets for i in range(number)]
    start = BASE + draw(st.integers(0, 20))
    low = min(offsets)
    touched = frozenset(start + offset - low + byte for offset in offsets for byte in range(itemsize))
    return Region(0, start, max(touched) + 1, shape, strides, itemsize), touched


def bytes_of(region: Region) -> frozenset[int]:
    found: set[int] = set()
    for start, stop, view in pieces(region):
        for begin, end in view.runs() if view else [(start, stop)]:
            found.update(range(begin, end))
    return frozenset(found)


def view_of(region: Region) -> View:
    assert region.shape is not None and region.strides is not None
    base = normalize(region.shape, region.strides, region.itemsize)
    return View(region.start, base.run, base.dims)


@many
@given(arrays())
def test_normalized_views_have_the_same_bytes(array: tuple[Region, frozenset[int]]) -> None:
    region, touched = array
    assert bytes_of(region) == touched
    assert view_of(region).stop == region.stop


@many
@given(arrays(), st.integers(0, 60), st.integers(0, 60))
def test_touches(array: tuple[Region, frozenset[int]], start: int, length: int) -> None:
    region, touched = array
    window = range(BASE + start, BASE + start + length)
    assert touches(view_of(region), window.start, window.stop) == (not touched.isdisjoint(window))


@pytest.mark.parametrize("numpy", [True, False])
@many
@given(one=arrays(), two=arrays(), start=st.integers(0, 30), stop=st.integers(20, 90))
def test_overlap(
    numpy: bool, one: tuple[Region, frozenset[int]], two: tuple[Region, frozenset[int]], start: int, stop: int
) -> None:
    window = range(BASE + start, BASE + stop)
    expected = bool(one[1] & two[1] & frozenset(window))
    whole = bool(one[1] & two[1])
    with pytest.MonkeyPatch.context() as patch:
        if not numpy:
            patch.setattr(views, "_shares_memory", lambda *_: None)
        assert overlap(view_of(one[0]), view_of(two[0]), window.start, window.stop) == expected
        assert overlap(view_of(one[0]), view_of(two[0]), 0, 1 << 40) == whole


def test_no_numpy_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "numpy":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    one, two = View(4096, 4, ((5, 12), (2, 6))), View(4100, 1, ((9, 7),))
    assert overlap(one, two, 0, 1 << 40) is True
    assert views._shares_memory(one, two) is None


def test_too_much_work_is_only_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "WORK_LIMIT", 1)
    monkeypatch.setattr(views, "_shares_memory", lambda *_: None)
    checker = Checker()
    checker.stream("A")
    checker.stream("B")
    one = Use(Region(0, 4096, 4096 + 19 * 13 + 3, (20, 3), (13, 1)))
    two = Use(Region(0, 4100, 4100 + 19 * 11 + 2, (20, 2), (11, 1)))
    checker.access("A", [], [one], operation="fill")
    (conflict,) = checker.access("B", [two], [], operation="sum")
    assert conflict.confidence == "possible"


ROWS = [
    # (shape, strides, offset) of two uint8 arrays, do they meet
    (((8,), (2,), 0), ((8,), (2,), 1), False),
    (((8,), (2,), 0), ((8,), (2,), 2), True),
    (((4, 4), (16, 1), 0), ((4, 4), (16, 1), 4), False),
    (((4, 4), (16, 1), 0), ((4, 4), (16, 1), 3), True),
    (((4, 8), (16, 2), 0), ((4, 8), (16, 2), 1), False),
    (((6,), (-3,), 0), ((6,), (3,), 1), False),
    (((6,), (-3,), 0), ((6,), (3,), 3), True),
    (((6, 100), (7, 0), 0), ((6,), (7,), 1), False),
]


@pytest.mark.parametrize(("one", "two", "meet"), ROWS)
def test_columns_rows_and_halves(one: Any, two: Any, meet: bool) -> None:
    """`a[::2]` and `a[1::2]` do not conflict; `a[::2]` and `a[2::2]` do."""
    checker = Checker()
    checker.stream("A")
    checker.stream("B")
    uses = []
    for shape, strides, offset in (one, two):
        start = 4096 + offset
        stop = start + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) + 1
        uses.append(Use(Region(0, start, stop, shape, strides)))
    checker.access("A", [], uses[:1], operation="fill")
    assert bool(checker.access("B", uses[1:], [], operation="sum")) == meet
