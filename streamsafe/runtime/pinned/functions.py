"""NumPy's functions as a session has them: those that make arrays of arrays, and random generators.

A subclass of ``numpy.ndarray`` does not hear of them: they are C code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, update_wrapper, wraps
from typing import Any

import numpy

from streamsafe.runtime.monitor import current
from streamsafe.runtime.patches import Patches
from streamsafe.runtime.pinned.arrays import PinnedArray, address_of, among, found_in, report, watched


class Standin:
    """A function of NumPy's as a session has it. It is equal to the one whose place it takes, also as a key, which
    compilers of Python look functions up by, and pickled as that one.
    """

    def __init__(self, original: Callable[..., Any], convert: Callable[..., Any]) -> None:
        update_wrapper(self, original)
        self._original = original
        self._convert = convert

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._convert(self._original(*args, **kwargs), args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return str(self._original.__name__)


def _is_plain_view(result: Any, given: PinnedArray) -> bool:
    """Whether an array is all of another one again, but for its type."""
    return (
        type(result) is numpy.ndarray
        and address_of(result) == address_of(given)
        and result.dtype is given.dtype
        and result.shape == given.shape
        and result.strides == given.strides
    )


def _given(args: Any, kwargs: Any) -> Any:
    """What a conversion was asked to convert; of a pinned tensor its NumPy view."""
    given = args[0] if args else kwargs.get("a", kwargs.get("object"))
    torch = sys.modules.get("torch")
    if (
        torch is None
        or not isinstance(given, torch.Tensor)
        or given.device.type != "cpu"
        or not given.is_pinned()
    ):
        return given
    return given.detach().numpy()


def _converted(name: str) -> Callable[..., Any]:
    """For ``numpy.array`` and its kin: a copy reads the pinned arrays in its argument, a view of one is one."""

    def convert(result: Any, args: Any, kwargs: Any) -> Any:
        if current.monitor is None:
            return result
        given = _given(args, kwargs)
        if type(given) is PinnedArray:
            if _is_plain_view(result, given):
                return given  # as NumPy does with a plain array
            if result is given or not numpy.may_share_memory(result, given):
                found = [given] if result is not given else []
            else:
                return watched(result)
        else:
            found = list(found_in(given)) if type(given) in (list, tuple) else []
        if found:
            report(found, [], name)
        return result

    return convert


_CONVERSIONS = {
    name: Standin(getattr(numpy, name), _converted(name))
    for name in ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
}


def begin(patches: Patches) -> None:
    """A session begins: NumPy's conversion functions, which a subclass does not hear of, are watched while it lasts."""
    patches.variables(numpy, _CONVERSIONS)


_DRAWN = {"random": 2, "standard_normal": 2, "standard_exponential": 3, "standard_gamma": 3, "permuted": 3}
"""Methods of ``numpy.random.Generator`` that fill an array, and the position of their ``out``."""


def watch_generators(patches: Patches, module: Any) -> None:
    """Has NumPy's random generators tell which pinned arrays they fill: their C code asks no array."""

    def draw(position: int, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def drawn(self: Any, *args: Any, **kwargs: Any) -> Any:
            if current.monitor is not None:
                out = args[position] if len(args) > position else kwargs.get("out")
                if isinstance(out, PinnedArray):
                    report(among(args[:1]), [out], original.__name__)
            return original(self, *args, **kwargs)

        return drawn

    def shuffle(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def shuffled(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            if current.monitor is not None and isinstance(x, PinnedArray):
                report([x], [x], "shuffle")
                x = x.view(numpy.ndarray)
            return original(self, x, *args, **kwargs)

        return shuffled

    for name, position in _DRAWN.items():
        patches.wrap(module.Generator, name, partial(draw, position))
    for owner in (module.Generator, module.RandomState):
        patches.wrap(owner, "shuffle", shuffle)
