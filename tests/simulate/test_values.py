"""What cannot be simulated says so: scalars and shapes asked of the device."""

from __future__ import annotations

import inspect
from typing import Any

import numpy
import pytest

from streamsafe.simulate.cuda import SimulationLimit

# what is asked -> (the question, how the message names it)
QUESTIONS: dict[str, tuple[Any, str]] = {
    "item": (lambda c, x: x[0].item(), "item() of a device array"),
    "float": (lambda c, x: float(x[0]), "float() of a device array"),
    "int": (lambda c, x: int(x.sum()), "int() of a device array"),
    "complex": (lambda c, x: complex(x[0]), "complex() of a device array"),
    "bool": (lambda c, x: bool((x > 1).all()), "bool() of a device array"),
    "if": (lambda c, x: 1 if x[0] > 0 else 2, "bool() of a device array"),
    "mask": (lambda c, x: x[x > 1], "indexing with a mask"),
    "nonzero": (lambda c, x: c.nonzero(x), "cupy.nonzero()"),
    "unique": (lambda c, x: c.unique(x), "cupy.unique()"),
    "histogram": (lambda c, x: c.histogram(x, bins=4), "cupy.histogram()"),
    "bincount": (lambda c, x: c.bincount(x.astype("i4")), "cupy.bincount()"),
    "argwhere": (lambda c, x: c.argwhere(x), "cupy.argwhere()"),
    "repeat": (lambda c, x: c.array_equal(x, x + 1) and 1, "bool() of a device array"),
}


def computed(cupy: Any) -> Any:
    """An array that only a kernel could have filled."""
    return cupy.asarray(numpy.arange(6.0)) * 2


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_stops_and_names_its_line(cupy: Any, name: str) -> None:
    question, call = QUESTIONS[name]
    array = computed(cupy)
    with pytest.raises(SimulationLimit) as caught:
        question(cupy, array)
    line = inspect.getsourcelines(question)[1]
    assert str(caught.value).startswith(f"{__file__}:{line}: {call} asks the device for a value")
    # The next thing works: nothing is left half done.
    assert array.get().shape == (6,)


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "histogram"])
def test_the_fill_policy_goes_on_and_counts(cupy: Any, simulation: Any, name: str) -> None:
    question, call = QUESTIONS[name]
    simulation.values = "fill"
    question(cupy, computed(cupy))
    where = f"{__file__}:{inspect.getsourcelines(question)[1]} {call}"
    assert simulation.summary().scalars_filled[where] >= 1


def test_unknown_policy(simulation: Any) -> None:
    with pytest.raises(ValueError, match="stop"):
        simulation.values = "guess"


# What the host knows already may be asked.
KNOWN: dict[str, tuple[Any, Any]] = {
    "uploaded item": (lambda c: c.asarray(numpy.arange(6.0))[4].item(), 4.0),
    "uploaded float": (lambda c: float(c.asarray(numpy.arange(6.0))[3]), 3.0),
    "scalar upload": (lambda c: int(c.asarray(7)), 7),
    "zeros": (lambda c: bool(c.zeros(3)[1]), False),
    "full": (lambda c: float(c.full(3, 2.5)[2]), 2.5),
    "converted": (lambda c: c.asarray([1.7, 2.7]).astype("i4")[1].item(), 2),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_was_only_moved_may_be_asked(cupy: Any, name: str) -> None:
    question, answer = KNOWN[name]
    assert question(cupy) == answer


# CuPy asks, but the program does not depend on the answer, or has given it.
SILENT: dict[str, tuple[Any, tuple[int, ...]]] = {
    "randint": (lambda c, x: c.random.randint(0, 10, (3, 2)), (3, 2)),
    "choice": (lambda c, x: c.random.choice(7, 4), (4,)),
    "random parameters": (lambda c, x: c.random.exponential(x), (6,)),
    "poisson": (lambda c, x: c.random.poisson(x), (6,)),
    "ravel": (lambda c, x: c.ravel_multi_index((x.astype("i8"), x.astype("i8")), (9, 9)), (6,)),
    "average": (lambda c, x: c.average(x, weights=x), ()),
    "nanmax": (lambda c, x: c.nanmax(x), ()),
    "histogram edges": (lambda c, x: c.histogram(x, bins=c.cumsum(x))[0], (5,)),
    "percentile": (lambda c, x: c.percentile(x, 30), ()),
    "bincount minlength": (lambda c, x: c.bincount(x.astype("i4"), minlength=9), (9,)),
    "histogram range": (lambda c, x: c.histogram(x, bins=4, range=(0, 1))[0], (4,)),
    "where": (lambda c, x: c.where(x > 1, x, 0), (6,)),
}


@pytest.mark.parametrize("name", SILENT)
def test_questions_with_a_known_answer_do_not_stop(cupy: Any, name: str) -> None:
    call, shape = SILENT[name]
    assert call(cupy, computed(cupy)).shape == shape


@pytest.mark.parametrize("value", ["scalar", "zero-dimensional", "array"])
def test_assignment_through_a_mask(cupy: Any, logged: Any, value: str) -> None:
    array = computed(cupy)
    mask = array > 1
    given = {"scalar": 0, "zero-dimensional": cupy.asarray(3.0), "array": cupy.zeros(4)}[value]

    def assign() -> None:
        array[mask] = given

    assert logged(assign)[-1] == "launchKernel"
    assert not array.get().any()


def test_arrays_copied_back_are_counted_where_they_are(cupy: Any, simulation: Any) -> None:
    array = computed(cupy)
    array.get()
    line = inspect.getsourcelines(test_arrays_copied_back_are_counted_where_they_are)[1] + 2
    summary = simulation.summary()
    assert summary.filled_at[f"{__file__}:{line}"] == 1
    assert f"{__file__}:{line}: 1" in str(summary)
    assert summary.kernels["cupy_multiply__float64_float_float64"] >= 1
