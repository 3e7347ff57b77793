"""What the simulated device does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class NotSimulated(NotImplementedError):
    """The program uses something of CUDA that the simulated device does not have."""


def refuse(name: str) -> Callable[..., NoReturn]:
    """A function that says so."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise NotSimulated(f"{name} is not simulated")

    return refused
