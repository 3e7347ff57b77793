"""Random numbers: those of cuRAND's generators and of CuPy's ``Generator``, drawn by NumPy from the same seeds.

The distributions are right and a seed repeats its numbers; they are other numbers than a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from streamsafe.simulate.cuda.compute import Computation
from streamsafe.simulate.cuda.kernels import view_at
from streamsafe.simulate.cuda.memory import AddressSpace

_generators: dict[int, numpy.random.Generator] = {}


def generator(key: int) -> numpy.random.Generator:
    """The generator of a handle, or of a state in device memory."""
    return _generators.setdefault(key, numpy.random.default_rng(key))


def seed(key: int, value: int) -> None:
    """``setPseudoRandomGeneratorSeed``: begin anew."""
    _generators[key] = numpy.random.default_rng(value & (1 << 64) - 1)


def _drawn(dtype: str, draw: Callable[..., Any]) -> Callable[..., Computation]:
    def make(
        _memory: AddressSpace, _name: str, handle: int, pointer: int, size: int, *given: Any
    ) -> Computation:
        random = generator(handle)  # of now: a seed that comes later is not for these numbers

        def compute(out: Any) -> None:
            out[...] = draw(random, size, *given)

        return Computation(compute, (), (view_at(pointer, (size,), dtype),))

    return make


def _bits(random: numpy.random.Generator, size: int) -> Any:
    return random.integers(0, 1 << 32, size, "u4")


def _uniform(random: numpy.random.Generator, size: int) -> Any:
    return 1 - random.random(size)  # 1 is among cuRAND's numbers, 0 is not


def _uniform_float(random: numpy.random.Generator, size: int) -> Any:
    return 1 - random.random(size, "f4")


def _normal(random: numpy.random.Generator, size: int, mean: float, deviation: float) -> Any:
    return random.normal(mean, deviation, size)


def _lognormal(random: numpy.random.Generator, size: int, mean: float, deviation: float) -> Any:
    return random.lognormal(mean, deviation, size)


def _poisson(random: numpy.random.Generator, size: int, mean: float) -> Any:
    return random.poisson(mean, size)


CURAND: dict[str, Callable[..., Computation | None]] = {
    "generate": _drawn("u4", _bits),
    "generateLongLong": _drawn("u8", lambda random, size: random.integers(0, 1 << 64, size, "u8")),
    "generateUniform": _drawn("f4", _uniform_float),
    "generateUniformDouble": _drawn("f8", _uniform),
    "generateNormal": _drawn("f4", _normal),
    "generateNormalDouble": _drawn("f8", _normal),
    "generateLogNormal": _drawn("f4", _lognormal),
    "generateLogNormalDouble": _drawn("f8", _lognormal),
    "generatePoisson": _drawn("u4", _poisson),
}
"""As ``BLAS`` in :mod:`streamsafe.simulate.cuda.library_blas`."""
