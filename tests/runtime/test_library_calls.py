"""Calls of the CUDA libraries that CuPy wraps: what they read and write is seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import streamsafe
from streamsafe.runtime.patches import Patches
from tests.runtime.helpers import Program, codes


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("sgetrf", True),
        ("dpotrfBatched", True),
        ("zheevd", True),
        ("xsyevd", True),
        ("sgetrf_bufferSize", False),
        ("create", False),
        ("destroy", False),
        ("destroyGesvdjInfo", False),
        ("createSyevjInfo", False),
        ("setStream", False),
        ("xsyevjSetTolerance", False),
    ],
)
def test_solver_functions_that_compute(backend: Any, name: str, computes: bool) -> None:
    from streamsafe.apis import cuda_libraries

    assert bool(re.match(cuda_libraries.CUSOLVER_COMPUTES, name)) is computes


TENSORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "contraction": lambda ct, x, y: ct.contraction(1.0, x, None, x, None, 0.0, y, None),
    "reduction": lambda ct, x, y: ct.reduction(1.0, x, None, beta=0.0, C=y, mode_C=None),
    "elementwise_binary": lambda ct, x, y: ct.elementwise_binary(1.0, x, None, 1.0, x, None, out=y),
    "elementwise_trinary": lambda ct, x, y: ct.elementwise_trinary(
        1.0, x, None, 1.0, x, None, 1.0, x, None, y
    ),
    "_try_reduction_routine": lambda ct, x, y: ct._try_reduction_routine(x, None, None, y, False, 0, 1, 0),
    "_try_elementwise_binary_routine": lambda ct, x, y: ct._try_elementwise_binary_routine(
        x, x, None, y, 0, 1, 1
    ),
}


@pytest.fixture
def cutensor(program: Program) -> Iterator[Any]:
    """A stand-in for CuPy's module, which needs a library that is rarely installed, with the hooks around it."""
    from streamsafe.runtime.cupy import library_calls as libraries

    module = ModuleType("cupyx.cutensor")
    for name in TENSORS:
        setattr(module, name, lambda *args, **kwargs: None)
    patches = Patches()
    libraries.watch(patches, module)
    yield module
    patches.restore()


@pytest.mark.parametrize("name", TENSORS)
def test_cutensor(program: Program, cutensor: Any, name: str) -> None:
    call = TENSORS[name]
    with streamsafe.sanitize("collect") as raw:
        program.write()
        with program.reader:
            call(cutensor, program.x, program.y)
        program.settle()
    with streamsafe.sanitize("collect") as waw:
        with program.writer:
            program.y.fill(1)
        with program.reader:
            call(cutensor, program.x, program.y)
        program.settle()
    with streamsafe.sanitize("collect") as ordered:
        program.write()
        program.reader.wait_event(program.writer.record())
        with program.reader:
            call(cutensor, program.x, program.y)
        program.settle()
    assert (codes(raw), codes(waw), codes(ordered)) == (["SS101"], ["SS102"], [])


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
LIBRARY_CALLS: dict[str, tuple[str, str, Callable[[int, int], Arguments], str]] = {
    "by position": ("cublas", "saxpy", lambda x, y: ((0, 64, 0, x, 1, y, 1), {}), "certain"),
    "by keyword": (
        "cublas",
        "saxpy",
        lambda x, y: ((0, 64), {"alpha": 0, "x": x, "incx": 1, "y": y, "incy": 1}),
        "certain",
    ),
    "all by keyword": (
        "cublas",
        "sgemm",
        lambda x, y: (
            (),
            {
                "handle": 0,
                "transa": 0,
                "transb": 0,
                "m": 4,
                "n": 4,
                "k": 4,
                "alpha": 0,
                "A": x,
                "lda": 4,
                "B": x,
                "ldb": 4,
                "beta": 0,
                "C": y,
                "ldc": 4,
            },
        ),
        "certain",
    ),
    "a keyword of another name": (
        "cublas",
        "saxpy",
        lambda x, y: ((0, 64, 0), {"first": x, "one": 1, "y": y, "incy": 1}),
        "possible",
    ),
    "generator": ("curand", "generateUniform", lambda x, y: ((1,), {"outputPtr": y, "n": 64}), "certain"),
    "solver": (
        "cusolver",
        "spotrs",
        lambda x, y: ((0, 0, 4, 1), {"A": x, "lda": 4, "B": y, "ldb": 4, "devInfo": 0}),
        "certain",
    ),
}


@pytest.mark.parametrize("name", LIBRARY_CALLS)
def test_library_calls_by_any_name(program: Program, name: str) -> None:
    """Of a stand-in for the library's module, with the hooks around it."""
    from streamsafe.runtime.cupy import library_calls as libraries

    library, function, arguments, confidence = LIBRARY_CALLS[name]
    module = ModuleType(f"cupy_backends.cuda.libs.{library}")
    setattr(module, function, lambda *args, **kwargs: (args, kwargs))
    patches = Patches()
    libraries.watch(patches, module)
    call = getattr(module, function)
    with streamsafe.sanitize("collect") as session:
        x, y = program.cp.zeros(64, "f4"), program.cp.zeros(64, "f4")
        program.settle()
        args, kwargs = arguments(x.data.ptr, y.data.ptr)
        with program.writer:
            y.fill(1)
        with program.reader:
            assert call(*args, **kwargs) == (args, kwargs)
        program.settle()
        with program.reader:
            call(*args, **kwargs)
        program.settle()
    assert [hazard.confidence for hazard in session.hazards] == [confidence]
