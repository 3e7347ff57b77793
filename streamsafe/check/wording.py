"""What operations are called in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PHRASES: Final[Mapping[str, str]] = {
    "": "an operation",
    "arithmetic": "arithmetic",
    "assignment": "an assignment",
    "autograd": "autograd",
    "compare": "a comparison",
    "formatting": "formatting",
    "if": "truth of a tensor",
    "indexing": "indexing",
    "launch": "a launch",
    "not": "truth of a tensor",
    "copy": "a copy",
    "fill": "fill()",
    "wait": "a wait",
    "view": "a view",
    "a container": "a container",
    "indexing by a mask": "mask indexing",
    "capture_begin()": "begins a capture",
    "a capture": "begins a capture in the global mode",
    "a second capture": "begins a capture",
    "the launch of a graph inside a capture": "launches a graph",
    "a capture before the warm-up": "captures what never ran before",
    "a capture of a backward pass without a warm-up": "captures a pass that has not run on a side stream",
    "a capture with less than eleven runs before": "captures a pass that ran fewer than 11 times",
    "a generator that the graph does not have": "draws from a generator that is not registered with the graph",
    "a write of the host": "the host's write",
    "work that the capture does not join": "work on another stream",
    "work beside the capture": "work on a stream that is not captured",
}
"""What operations of the models are called, where it is not the name of a function."""


def operation_name(op: str) -> str:
    """An operation as a user would write it, or a description of it."""
    known = PHRASES.get(op)
    if known is not None:
        return known
    return f"{op}()" if op.replace(".", "_").isidentifier() else op
