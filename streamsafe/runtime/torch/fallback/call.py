"""A call of an operator, and what it reads and writes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from streamsafe.order.memory import Use
from streamsafe.runtime.places import Site
from streamsafe.runtime.torch.fallback.here import Pass
from streamsafe.runtime.torch.fallback.roles import Operator, Role


@dataclass(frozen=True)
class Call:
    """One call of an operator.

    Attributes:
        operator: what it does.
        args, kwargs: as it is called.
        site: the program's line; empty in a thread of the autograd engine.
        backward: the backward pass that does it.
    """

    operator: Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    site: Site
    backward: Pass | None


@dataclass
class Uses:
    """What one operation reads and writes in one place.

    Attributes:
        bases: addresses of the storages.
    """

    reads: list[Use] = field(default_factory=list)
    writes: list[Use] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)

    def add(self, use: Use, role: Role, base: int) -> None:
        if role is not Role.WRITE:
            self.reads.append(use)
        if role is not Role.READ:
            self.writes.append(use)
        self.bases.append(base)

    def __bool__(self) -> bool:
        return bool(self.bases)


class Seen:
    """What the tensors of a call are: uses by device, and CPU tensors."""

    def __init__(self) -> None:
        self.devices: defaultdict[int, Uses] = defaultdict(Uses)
        self.cpu: list[tuple[Any, Role]] = []


__all__ = ["Call", "Seen", "Uses"]
