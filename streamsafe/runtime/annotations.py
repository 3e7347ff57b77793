"""What users say about kernels whose parameters their source does not explain."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from streamsafe.kernels.signatures import base_name, signature

annotated: dict[str, tuple[frozenset[str | int], frozenset[str | int]]] = {}
"""Kernel's own name -> names or positions of the parameters that it reads, and writes, as users say."""

revision = [0]
"""How often ``annotated`` has changed."""


def annotate_kernel(kernel: Any, reads: Iterable[str | int] = (), writes: Iterable[str | int] = ()) -> Any:
    """What ``streamsafe.annotate(kernel, ...)`` does; see there."""
    name = (
        kernel
        if isinstance(kernel, str)
        else getattr(kernel, "name", None) or getattr(kernel, "__name__", None)
    )
    if not isinstance(name, str):
        raise TypeError(f"{kernel!r} is no kernel: it has no name")
    base = base_name(name)
    directions = _places(reads), _places(writes)
    source = getattr(kernel, "code", None)
    known = signature(source, base) if isinstance(source, str) else None
    if known is not None:
        wrong = unknown_places(frozenset().union(*directions), [each.name for each in known.parameters])
        if wrong:
            raise ValueError(f"kernel {base!r} {wrong}")
    annotated[base] = directions
    revision[0] += 1
    return kernel


def _places(given: Iterable[str | int]) -> frozenset[str | int]:
    places = (given,) if isinstance(given, str) else tuple(given)
    for place in places:
        if isinstance(place, bool) or not isinstance(place, (str, int)):
            raise TypeError(f"{place!r} is neither the name nor the position of a parameter")
    return frozenset(places)


def unknown_places(places: Iterable[str | int], names: list[str]) -> str:
    """What is wrong with places that a kernel with these parameters does not have; empty when all is well."""
    wrong = [
        place
        for place in places
        if (place not in names if isinstance(place, str) else not 0 <= place < len(names))
    ]
    if not wrong:
        return ""
    said = ", ".join(repr(place) for place in sorted(wrong, key=str))
    return f"has no parameter {said}: its parameters are {', '.join(names) or 'none'}"


_warned: set[tuple[str, str]] = set()


def check_places(kernel: str, places: frozenset[str | int], names: list[str]) -> None:
    """Warns, once, of an annotation that the kernel of that name cannot mean."""
    wrong = unknown_places(places, names)
    if wrong and (kernel, wrong) not in _warned:
        _warned.add((kernel, wrong))
        warnings.warn(f"streamsafe.annotate: kernel {kernel!r} {wrong}", stacklevel=2)
