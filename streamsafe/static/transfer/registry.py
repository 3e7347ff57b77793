"""The tables of transfer functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from streamsafe.static.domain.atoms import UNKNOWN, Atom, Value

if TYPE_CHECKING:
    from streamsafe.static.domain.state import State
    from streamsafe.static.models.rows import Row
    from streamsafe.static.summary.analyse import Analysis

Transfer = Callable[["Analysis", "State", Any], "list[State] | None"]
Special = Callable[["Analysis", "State", "CallSite"], "Value | list[State] | None"]

TRANSFERS: dict[type, Transfer] = {}
SPECIALS: dict[str, Special] = {}

T = TypeVar("T", bound=Transfer)
S = TypeVar("S", bound=Special)


def transfer(*instructions: type) -> Callable[[T], T]:
    """Register the transfer function of instructions."""

    def register(function: T) -> T:
        for instruction in instructions:
            TRANSFERS[instruction] = function
        return function

    return register


def special(*names: str) -> Callable[[S], S]:
    """Register the transfer function of the calls whose rows have this ``special``."""

    def register(function: S) -> S:
        for name in names:
            SPECIALS[name] = function
        return function

    return register


@dataclass(slots=True)
class CallSite:
    """A call, with its arguments evaluated.

    Attributes:
        at: the instruction's index of its span.
        dst: the register of the result.
        args: positional arguments; ``*args`` is spread where its elements are known.
        keywords: by name.
        receiver: the object whose method is called, or unknown.
        row: the row of the model, once it is found.
        given: the row's parameters -> values, once they are bound.
        operation: what the program calls, for messages.
        tags: what the accesses of the call rest on.
        weak: whether the type of the receiver is not seen.
        spread: whether ``**keywords`` gives more that is not seen.
        mappings: what is given as ``**keywords``.
        module: the object that is called.
    """

    at: int
    dst: int | str
    args: list[Value]
    keywords: dict[str, Value] = field(default_factory=dict)
    receiver: Value = UNKNOWN
    row: Row | None = None
    given: dict[str, Value] = field(default_factory=dict)
    operation: str = ""
    tags: int = 0
    weak: bool = False
    spread: bool = False
    mappings: list[Value] = field(default_factory=list)
    module: Atom | None = None

    def values(self) -> list[Value]:
        """All arguments."""
        return [*self.args, *self.keywords.values()]

    def argument(self, name: str, position: int | None = None) -> Value:
        """An argument by name or position; unknown where it is not given."""
        if name in self.given:
            return self.given[name]
        if name in self.keywords:
            return self.keywords[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return UNKNOWN
