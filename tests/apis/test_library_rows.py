"""Rows of cuBLAS and cuRAND, called by raw addresses on the simulated device: each operand is what its row says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import streamsafe
from streamsafe.apis import cuda_libraries as rows
from streamsafe.apis.effects import Call
from tests.simulate.conftest import cupy, simulation

__all__ = ["cupy", "simulation"]

LETTERS = "sdczi"
SIZES = {"m": 4, "n": 4, "k": 4, "nrhs": 4, "batch": 2, "incx": 1, "incy": 1}
CALLS = [
    call
    for call in (*rows.CUBLAS, *rows.CURAND)
    if "*" not in call.parameters.split() and not re.search("(?<!Strided)Batched", call.last)
]
"""All but those that take arrays of pointers, or any arguments."""


def operands(words: str) -> set[str]:
    """The parameters that a row names as operands."""
    return {word.partition(":")[0] for word in words.split()}


def function(cp: Any, call: Call) -> Callable[..., Any] | None:
    """The function of CuPy's bindings; of the four that differ in the type, the first that it has."""
    module = getattr(cp.cuda, call.owner)
    for letter in LETTERS if "{t}" in call.last else ("",):
        found: Callable[..., Any] | None = getattr(module, call.last.replace("{t}", letter), None)
        if found is not None:
            return found
    return None


def argument(cp: Any, name: str, arrays: dict[str, Any], host: int) -> int:
    """What is given for a parameter: square matrices of four rows, in the order of the columns."""
    if name in arrays:
        return int(arrays[name].data.ptr)
    if name == "h":
        return int(cp.cuda.device.get_cublas_handle())
    if name == "g":
        return int(cp.cuda.curand.createGenerator(100))
    if name in ("alpha", "beta"):
        return host
    if name.startswith("stride"):
        return 16
    return SIZES.get(name, 4 if name.startswith("ld") else 0)


def unordered(cp: Any, call: Call, name: str, how: str) -> bool:
    """Whether a hazard is found where another stream has written, or read, an operand."""
    numpy = pytest.importorskip("numpy")
    number = numpy.ones(2)
    given = operands(call.reads) | operands(call.writes)
    side, main = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with streamsafe.sanitize(mode="collect") as session:
        arrays = {each: cp.ones(64, "c16") for each in sorted(given)}
        cp.cuda.Device().synchronize()
        with side:
            if how == "writes":
                arrays[name] += 1
            else:
                arrays[name].copy()
        called = function(cp, call)  # a session puts its hook into the module
        assert called is not None
        with main:
            called(*(argument(cp, each, arrays, number.ctypes.data) for each in call.parameters.split()))
        cp.cuda.Device().synchronize()
    return any(hazard.code in ("SS101", "SS102") for hazard in session.hazards)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_operands(cupy: Any, call: Call) -> None:
    if function(cupy, call) is None:
        pytest.skip("not in this release of CuPy")
    read, written = operands(call.reads), operands(call.writes)
    for name in sorted(read | written):
        assert unordered(cupy, call, name, "writes"), f"{name} is touched"
        assert unordered(cupy, call, name, "reads") == (name in written), f"{name} is written"
