"""Generators: run for a loop at once, or suspended where something asks for one value after another."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .coroutines import Coroutine
from .state import MAX_DEPTH, Broke, Frame, Raised, Returned, State, StopGenerator
from .values import NONE, Gen, V

_MAX_YIELDED = 4
"""Values that a generator is asked for."""


class _Left(Exception):
    """The consumer of a generator leaves: its function returns, or its loop ends."""

    def __init__(self, how: Returned | Broke) -> None:
        self.how = how


class Generators:
    """Runs generators."""

    def __init__(self, state: State) -> None:
        self.m = state

    def table(self) -> dict[type[ast.AST], Callable[[Any], V]]:
        """What evaluates each kind of expression."""
        return {ast.Yield: self.eval_yield, ast.YieldFrom: self.eval_yieldfrom}

    def run_generator(self, g: Gen, on_yield: Callable[[V], V | None], n: ast.AST) -> V:
        """Run the body of a generator; what it yields goes to its consumer at once.

        Returns:
            What it returns.
        """
        if g.suspended is not None:
            while (v := g.suspended.resume()) is not None:
                on_yield(v)
            return NONE
        fn = g.func.function
        if self.m.depth >= MAX_DEPTH:
            on_yield(self.m.fresh("yielded"))
            return NONE
        frame = Frame(fn.module, fn, self.m.bind(g.func, g.args, g.kwargs), g.func.closure)
        self.m.entered.add(fn)
        g.frame = frame
        outer = list(self.m.frames)
        count = 0

        def at_yield(v: V) -> V:
            nonlocal count
            count += 1
            if count > _MAX_YIELDED:
                raise StopGenerator
            saved, self.m.frames = self.m.frames, list(outer)
            depth, self.m.depth = self.m.depth, self.m.depth - 1
            try:
                got = on_yield(v)
            except (Returned, Broke) as left:
                raise _Left(left) from None
            finally:
                self.m.frames, self.m.depth = saved, depth
            return got if isinstance(got, V) else NONE

        frame.on_yield = at_yield
        self.m.frames.append(frame)
        self.m.depth += 1
        result: V = NONE
        try:
            self.m.body(fn.body)
        except Returned as r:
            result = r.value
        except StopGenerator:
            pass
        except _Left as left:
            raise left.how from None
        finally:
            self.m.depth -= 1
            self.m.frames = outer
            g.frame = None
        self.m.left(n)
        return result

    def next_of(self, g: Gen, n: ast.AST, default: V | None = None) -> V:
        """What a generator yields next; the default, if there is one, where it has come to its end."""
        if g.suspended is None:
            g.suspended = _suspended(self.m, g, n)
            self.m.suspended.append(g.suspended)
        v: V | None = g.suspended.resume()
        if v is None:
            v = default
        if v is None:
            raise Raised
        return v

    def eval_yield(self, n: ast.Yield) -> V:
        v = self.m.eval(n.value) if n.value is not None else NONE
        hook = self.m.frame.on_yield
        if hook is not None:
            return hook(v) or NONE
        self.m.library.handed_out(v, n)
        return self.m.fresh("<sent>")

    def eval_yieldfrom(self, n: ast.YieldFrom) -> V:
        v = self.m.eval(n.value)
        hook = self.m.frame.on_yield
        if isinstance(v, Gen):
            return self.run_generator(v, hook or (lambda x: self.m.library.handed_out(x, n)), n)
        for x in self.m.iterate(v, n):
            if hook is not None:
                hook(x)
            else:
                self.m.library.handed_out(x, n)
        return self.m.fresh("<sent>")


def _suspended(state: State, g: Gen, n: ast.AST) -> Coroutine:
    """A generator that runs while its consumer waits."""

    def run(pause: Callable[[V], None]) -> None:
        def at_yield(v: V) -> None:
            g.suspended = coroutine
            pause(v)

        g.suspended = None  # it is this one that runs it
        try:
            state.run_generator(g, at_yield, n)
        finally:
            g.suspended = coroutine

    coroutine = Coroutine(state, run)
    return coroutine
