"""What happens on a path beside accesses, in order: the lines between the two accesses of a finding."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Literal

Happening = Literal["enters", "waits", "returns", "decides"]

LONGEST = 400
"""How many steps are kept of one path: the last ones."""


@dataclass(frozen=True, slots=True)
class Passed:
    """One thing that a path has done.

    Attributes:
        at: the time of the run, as accesses have it.
        what: a stream becomes current, something waits, a function returns, a condition is taken the other way.
        text: a sentence without its subject; `{}` stands for the names of `streams`, which a later line may give.
        site: the file and the node.
        stream: the stream that becomes current, or that waits; None for the host and where there is none.
    """

    at: int
    what: Happening
    text: str
    site: tuple[Any, ast.AST]
    stream: object = None
    streams: tuple[Any, ...] = ()


class Trail:
    """The steps of one path."""

    def __init__(self) -> None:
        self.steps: list[Passed] = []

    def add(
        self,
        at: int,
        what: Happening,
        text: str,
        site: tuple[Any, ast.AST] | None,
        stream: object = None,
        streams: tuple[Any, ...] = (),
    ) -> None:
        """Something has happened; without a place in a file it is nothing to show."""
        if site is None:
            return
        self.steps.append(Passed(at, what, text, site, stream, streams))
        if len(self.steps) > 2 * LONGEST:
            del self.steps[:LONGEST]

    def between(self, begin: int, end: int) -> list[Passed]:
        """What happened after the access of one time and before that of another.

        A step has the time of the access before it.
        """
        return [step for step in self.steps if begin <= step.at < end]

    def entered(self, stream: object, before: int) -> Passed | None:
        """Where a stream became the current one for the last time before."""
        found = None
        for step in self.steps:
            if step.at > before:
                break
            if step.what == "enters" and step.stream is stream:
                found = step
        return found


def decision_text(s: ast.stmt, value: bool) -> str:
    """What a path has taken for true or false, in words."""
    test = getattr(s, "test", None)
    text = ast.unparse(test) if isinstance(test, ast.expr) else ""
    if not text or len(text) > 60:
        return "the other branch is taken"
    return f"`{text}` is taken" if value else f"`{text}` is not taken"
