"""One call of a library, and the tables of the functions that model calls by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ..values import Tensor, V
from .modules import Modules
from .path import Args, Kwargs, Node

H = TypeVar("H")


@dataclass(slots=True)
class Call:
    """What is called, what it is given, and where.

    Attributes:
        name: the full name of a function, as `apis.names` spells it, or the name of a method.
    """

    name: str
    args: Args
    kwargs: Kwargs
    node: Node

    @property
    def last(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]

    @property
    def first(self) -> V | None:
        """The first argument by place."""
        return self.args[0] if self.args else None

    def given(self, keyword: str, position: int | None = None) -> V | None:
        """An argument by its keyword, else by its place."""
        v = self.kwargs.get(keyword)
        if v is None and position is not None and position < len(self.args):
            return self.args[position]
        return v

    def values(self, without: str = "") -> Args:
        """All that is given, but for one keyword."""
        return [*self.args, *(v for k, v in self.kwargs.items() if k != without)]


Function = Callable[[Modules, Call], V | None]
"""Models a function; None: this call is an ordinary one."""
TensorMethod = Callable[[Modules, Tensor, Call], V | None]

FUNCTIONS: dict[str, Function] = {}
"""By full name."""
TORCH_FUNCTIONS: dict[str, Function] = {}
"""Of torch and its submodules, by the last part of the name."""
BUILTINS: dict[str, Function] = {}
TENSOR_METHODS: dict[str, TensorMethod] = {}


def models(table: dict[str, H], names: str | Iterable[str]) -> Callable[[H], H]:
    """Put the function below into a table, under one name or several."""

    def register(function: H) -> H:
        for name in names.split() if isinstance(names, str) else names:
            table[name] = function
        return function

    return register
