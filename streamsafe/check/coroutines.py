"""What is half run: a generator, or a thread of the program, that goes on when somebody asks it to.

It runs in a thread of its own, and only while who asks waits for it: the machine is recursive, and a thread is what
holds a half-run recursion. Which of the two runs is never a matter of time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from .state import StopGenerator
from .values import V

_STACK = 64 << 20
"""Bytes of the stack of a thread, of which only what is used is taken."""


class Stack(Protocol):
    """What a path has entered."""

    frames: list[Any]
    depth: int


class Coroutine:
    """Something that runs until it pauses.

    Args:
        run: what is run; it is given a function that pauses, and hands a value to who has asked.
    """

    def __init__(self, state: Stack, run: Callable[[Callable[[V], None]], None]) -> None:
        self.m, self.run = state, run
        self.inside, self.outside = threading.Semaphore(0), threading.Semaphore(0)
        self.value: V | None = None
        self.error: BaseException | None = None
        self.closed = self.done = False
        size = threading.stack_size(_STACK)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()
        threading.stack_size(size)

    def resume(self) -> V | None:
        """Run it until it pauses.

        Returns:
            What it hands over; None where it has come to its end.
        """
        if self.done:
            return None
        m = self.m
        frames, depth = m.frames, m.depth
        m.frames = list(frames)
        self.value = None
        self.inside.release()
        self.outside.acquire()
        m.frames, m.depth = frames, depth
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.value

    def close(self) -> None:
        """Nobody asks for more."""
        self.closed = True
        self.resume()

    def _main(self) -> None:
        self.inside.acquire()
        try:
            if not self.closed:
                self.run(self.pause)
        except BaseException as error:  # that of who asks, whatever it is
            self.error = error
        self.done = True
        self.value = None
        self.outside.release()

    def pause(self, v: V) -> None:
        """Hand a value to who has asked, and wait until somebody asks again."""
        self.value = v
        self.outside.release()
        self.inside.acquire()
        if self.closed:
            raise StopGenerator
