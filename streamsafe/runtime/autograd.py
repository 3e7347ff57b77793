"""Conflicts with what is known of autograd: the backward nodes that take part, and whether it is about a gradient."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import replace

from streamsafe.order.backward import GRADIENT, Backward, backward_of
from streamsafe.order.hazard import Conflict, Note
from streamsafe.order.memory import Space


class Gradients:
    """The memory of the gradients that a program has given to backward passes. Addresses are a process's own."""

    def __init__(self) -> None:
        self._now: list[tuple[int, int]] = []
        self._before: list[tuple[int, int]] = []

    def given(self, space: Space, start: int, stop: int) -> None:
        """A backward pass is given a gradient that lies there."""
        if (start, stop) not in self._now:
            insort(self._now, (start, stop))

    def handed_out(self, space: Space, start: int, stop: int) -> None:
        """The memory is somebody else's from now on."""
        if self._before:
            self._before = [each for each in self._before if each[1] <= start or stop <= each[0]]
        taken = [each for each in self._now if each[0] < stop and start < each[1]] if self._now else []
        for each in taken:
            self._now.remove(each)
            insort(self._before, each)

    def hold(self, conflict: Conflict) -> bool:
        """Whether the memory of a conflict is that of such a gradient; of its former owner when it is reused."""
        start = conflict.memory.start
        if start is None:
            return False
        ranges = self._before if conflict.facts.reuse is not None and not conflict.latent else self._now
        index = bisect_right(ranges, (start, 1 << 64)) - 1
        return index >= 0 and start < ranges[index][1]


def explained(
    conflict: Conflict, first: Backward | None, second: Backward | None, *, initial: bool
) -> Conflict:
    """The conflict with notes of the backward nodes, and with the facts that the rules of gradients ask for.

    Args:
        first, second: what the autograd engine has to do with the two accesses.
        initial: whether the memory is that of a gradient that was given to a backward pass.
    """
    notes = list(conflict.notes)
    for which, backward in (("first", first), ("second", second)):
        if backward is not None and backward.node:
            place = backward.forward
            text = f"the {which} access is done by {backward.node}"
            notes.append(Note(f"{text}, the backward of this line" if place else text, stack=place))
    conflict = replace(conflict, notes=tuple(notes))
    facts = conflict.facts
    if conflict.first is None or facts.host is not None:
        return conflict
    wrote = conflict.first.reads_or_writes == "writes"
    if facts.reuse is not None:
        return conflict.refined(gradient="initial-reuse") if first is not None and initial else conflict
    if first is not None and wrote and (second is None or _passes(conflict, first, second)):
        if first.caller:  # a line of a Function's own backward: what the program calls is backward()
            conflict = replace(
                conflict, first=replace(conflict.first, operation="backward()", stack=first.caller)
            )
        return conflict.refined(gradient="result")
    if second is not None and first is None and wrote and initial:
        return conflict.refined(gradient="initial")
    return conflict


def recorded(conflict: Conflict, gradients: Gradients) -> Conflict:
    """:func:`explained` for a conflict of the engine in Python, whose operations say whose work they are."""
    first = backward_of(conflict.first.operation) if conflict.first is not None else None
    second = backward_of(conflict.second.operation)
    if first is None and second is None:
        return conflict
    return explained(conflict, first, second, initial=gradients.hold(conflict))


def _passes(conflict: Conflict, first: Backward, second: Backward) -> bool:
    """Whether two operations of backward passes are of different passes.

    The engine orders what it does in one pass. What a hook or a Function's own backward does in it, it need not: there
    the lines that call the passes decide.
    """
    assert conflict.first is not None
    if not first.caller and not second.caller:
        return True
    return (first.caller or conflict.first.stack) != (second.caller or conflict.second.stack)


__all__ = ["GRADIENT", "Gradients", "explained", "recorded"]
