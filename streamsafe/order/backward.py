"""What an operation is called, and what the autograd engine has to do with it."""

from __future__ import annotations

from typing import NamedTuple

from streamsafe.order.hazard import Frame

GRADIENT = "gradient"
"""A mark in a trace: this memory was given to a backward pass as a gradient, as (space, start, stop)."""


class Backward(NamedTuple):
    """The autograd engine does an operation, or a hook that it calls.

    Attributes:
        node: the backward node, as torch names it (``MulBackward0``); empty where none is known.
        forward: where the forward of that node was called, innermost frame first.
        caller: where ``backward()`` was called, where the operation's own place is another one (in a hook).
    """

    node: str = ""
    forward: tuple[Frame, ...] = ()
    caller: tuple[Frame, ...] = ()


_UNKNOWN = Backward()


class Work(str):
    """An operation's name that says whose work it is.

    Attributes:
        backward: what the autograd engine has to do with it.
    """

    __slots__ = ("backward",)

    backward: Backward

    def __new__(cls, name: str, backward: Backward = _UNKNOWN) -> Work:
        made = super().__new__(cls, name)
        made.backward = backward
        return made


def backward_of(operation: str) -> Backward | None:
    """What the autograd engine has to do with an operation of this name; None: nothing, as far as is known."""
    return operation.backward if isinstance(operation, Work) else None
