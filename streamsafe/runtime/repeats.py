"""Hazards that come again and again: after the first time the native engine counts them, and nothing else is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamsafe.order.hazard import Hazard
from streamsafe.runtime import allow
from streamsafe.runtime.session import Session

Count = Callable[[int], None]


class Repeats:
    """What is to be counted when the engine has seen a conflict again.

    Where the engine is not native, no conflict has numbers under which it is known again, and each is judged.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        self._counts: dict[int, list[Count]] = {}

    def use(self, engine: Any) -> None:
        """Another engine is used from here on."""
        self.forget()
        self._engine = engine

    def settle(self, again: tuple[int, int], hazard: Hazard, sessions: Sequence[Session]) -> None:
        """A hazard was judged: the next time the answer will be the same.

        Args:
            again: the numbers of its conflict.
        """
        if again == (0, 0):
            return
        ways = [session.again(hazard) for session in sessions]
        known = all(way.known for way in ways)
        if not known and not allow.knows(self._engine.library):
            return  # the number is not that of what this thread allows
        number = again[0] if known else again[1]
        if not self._engine.judged(number):
            self.forget()
            self._engine.judged(number)
        self._counts[number] = [way.add for way in ways]

    def collect(self) -> None:
        """Count what came again since the last time."""
        if not self._counts:
            return
        for number, times in self._engine.repeats():
            for count in self._counts.get(number, ()):
                count(times)

    def forget(self) -> None:
        """What was judged may be judged otherwise from here on."""
        self.collect()
        if self._counts:
            self._engine.forget_judged()
            self._counts.clear()
